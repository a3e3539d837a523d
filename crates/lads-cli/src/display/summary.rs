//! The summary of a transfer, for a person.

use super::again;
use super::differences::Differences;
use super::json::io;
use super::place::Places;
use super::style::{Tone, indented};
use super::{IssueCount, Settings};
use lads_core::bottleneck::Bottleneck;
use lads_core::matching::Why;
use lads_core::message::{BusyOst, Counters};
use lads_core::pass::PassCounts;
use lads_core::pool::Requests;
use lads_core::sizes::{bytes, count, counted, rate, span};
use lads_core::text::{escape, escape_text};
use lads_engine::{ExitCode, Progress, Report, Verify};
use std::time::Duration;

/// Returns the lines of the summary. After a failure there are some even if no summary is wanted.
pub(super) fn lines(
    report: &Report,
    settings: &Settings,
    places: &Places,
    counted: (&IssueCount, &Differences),
) -> Vec<String> {
    let (issues, differences) = counted;
    let is_good = report.exit_code == ExitCode::Ok;
    if is_good && !settings.has_summary {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if let Some(message) = &report.message {
        let message = again::fit(message, places.is_once);
        lines.push(format!("lads: {}", indented(&escape_text(&message))));
        if report.progress.source.files_found == 0 {
            // The transfer did not begin, and the message says why.
            return lines;
        }
    }
    let tone = if is_good { Tone::Good } else { Tone::Bad };
    let outcome = match settings.is_check {
        true => outcome_of_check(report, differences),
        false => again::fit(&outcome(report, settings, issues), places.is_once).into_owned(),
    };
    lines.push(format!("lads: {}", settings.style.paint(tone, &outcome)));
    if settings.has_summary {
        let rows = rows(report, settings, places, issues);
        lines.extend(rows.into_iter().map(|(title, text)| format!("      {title:<11}{text}")));
    }
    lines
}

/// Returns the line for failed entries that were not shown.
pub(super) fn hidden_issues(hidden_count: u64, log: Option<&str>) -> String {
    let place = match log {
        Some(log) => format!("all are in {}", escape(log.as_bytes())),
        None => "--log FILE lists all".to_owned(),
    };
    format!("lads: {} not shown; {place}", counted(hidden_count, "more message"))
}

fn outcome(report: &Report, settings: &Settings, issues: &IssueCount) -> String {
    match report.exit_code {
        ExitCode::Ok if settings.is_dry_run => "this was a dry run: nothing was moved".to_owned(),
        ExitCode::Ok => {
            let said = what_is_true(&report.progress.source, settings);
            format!("done: {said}")
        }
        ExitCode::Reduced => {
            let said = what_is_true(&report.progress.source, settings);
            format!("done, but not all metadata was kept: {said}")
        }
        code => trouble(code, issues).to_owned(),
    }
}

/// Returns what is known of the files after a transfer that went well. It claims no more than was
/// checked.
fn what_is_true(counters: &Counters, settings: &Settings) -> String {
    let Counters { files_moved, files_verified, files_skipped, .. } = *counters;
    let Counters { files_unread, files_compared, .. } = *counters;
    let known = match settings.verify {
        Some(_) if !settings.is_durable => "moved and verified (wire)",
        Some(Verify::Wire) => "moved, durable and verified (wire)",
        Some(Verify::Media) => "moved, durable and verified (media)",
        None => "read, verified (wire) and not kept",
    };
    let others_moved = files_moved.saturating_sub(files_verified);
    let others_there = files_skipped.saturating_sub(files_unread + files_compared);
    let files = |number| counted(number, "file");
    let parts = [
        (files_verified, format!("{} {known}", files(files_verified))),
        (others_moved, format!("{} made", counted(others_moved, "link or special file"))),
        (files_compared, format!("{} the same by checksum", count(files_compared))),
        (files_unread, format!("{} skipped: {UNREAD}", count(files_unread))),
        (others_there, format!("{} there already: {OTHERS}", counted(others_there, "other"))),
    ];
    let mut said: Vec<String> =
        parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
    if files_moved == 0 {
        said.insert(0, "nothing was moved".to_owned());
    }
    said.join("; ")
}

fn outcome_of_check(report: &Report, differences: &Differences) -> String {
    let counters = &report.progress.source;
    let same = format!(
        "the contents of {} ({}) were read at both ends and are the same",
        counted(counters.files_compared, "file"),
        bytes(counters.bytes_compared)
    );
    match report.exit_code {
        ExitCode::Ok | ExitCode::Different => format!("done: {}; {same}", differences.text()),
        _ if differences.sum() == 0 => format!("not all was compared; so far {same}"),
        _ => format!("not all was compared; so far {}; {same}", differences.text()),
    }
}

fn trouble(code: ExitCode, issues: &IssueCount) -> &'static str {
    match code {
        ExitCode::Ok => "done",
        ExitCode::Reduced => "done, but not all metadata was kept",
        ExitCode::Other => "it did not end well",
        ExitCode::Usage => "this cannot be done",
        ExitCode::SourceUnreadable => {
            "not all is done: something at the source is missing or cannot be read"
        }
        ExitCode::Refused => "the other host did not let us in",
        ExitCode::Network => {
            "the other host cannot be reached or was lost; the same command goes on from here"
        }
        ExitCode::SinkRefuses if issues.sink_full > 0 => {
            "not all is done: the sink is full or over quota; the same command goes on from here"
        }
        ExitCode::SinkRefuses if issues.in_the_way > 0 => {
            "not all is done: at the sink, something is in the way"
        }
        ExitCode::SinkRefuses => {
            "not all is done: the sink refuses; the same command goes on from here"
        }
        ExitCode::Mismatch => "not all is done: data at the sink is not what was sent",
        ExitCode::SourceChanged => "not all is done: something kept changing while it was read",
        ExitCode::Interrupted => "stopped; the same command goes on from here",
        ExitCode::Limit => "all is moved; there is more to delete than --max-delete allows",
        ExitCode::Different => "source and sink are different",
        ExitCode::Running => "nothing is done: the same transfer is running already",
    }
}

type Row = (&'static str, String);

fn rows(report: &Report, settings: &Settings, places: &Places, issues: &IssueCount) -> Vec<Row> {
    let counters = &report.progress.source;
    let mut rows = Vec::new();
    if settings.is_check {
        rows.push(("compared", compared(report)));
    } else if settings.is_dry_run {
        rows.push(("would move", would_move(counters)));
    } else {
        rows.push(("moved", moved(report)));
    }
    if !settings.is_check {
        rows.extend(there_already(counters));
    }
    rows.extend(passed(&counters.passed));
    rows.extend(deleted(report, settings.is_dry_run));
    if issues.failed > 0 {
        let entries = if issues.failed == 1 { "entry" } else { "entries" };
        rows.push(("failed", format!("{} {entries}", count(issues.failed))));
    }
    if issues.special > 0 {
        rows.push(("left out", left_out(issues.special)));
    }
    if settings.is_check {
        rows.extend(machine_rows(report, settings.is_verbose));
    }
    if settings.is_dry_run {
        return rows;
    }
    if report.exit_code == ExitCode::Network && settings.verify.is_some() {
        let left = ".lads-*.part files and a .lads-*.journal are in";
        rows.push(("unfinished", format!("{left} {}", places.target_text())));
    }
    if report.attempt_count > 1 {
        let count = counted(u64::from(report.attempt_count), "attempt");
        rows.push(("went on", format!("{count}; the figures here are those of the last one")));
    }
    let resent = counters.blocks_resent.max(report.progress.sink.blocks_resent);
    if resent > 0 {
        rows.push(("re-sent", counted(resent, "block")));
    }
    let staged = counters.bytes_staged + report.progress.sink.bytes_staged;
    if staged > 0 {
        rows.push(("staged", format!("{} waited on flash for the sink", bytes(staged))));
    }
    if counters.files_verified > 0 {
        rows.push(("verified", verified(settings).to_owned()));
    }
    rows.extend(machine_rows(report, settings.is_verbose));
    rows.extend(
        report.progress.bottleneck.map(|bottleneck| ("slowest", slowest(bottleneck).to_owned())),
    );
    if report.is_clear && places.has_remote() {
        let data = "data neither encrypted nor protected on its way (use --tunnel)";
        rows.push(("security", "connections authenticated;".to_owned()));
        rows.push(("", data.to_owned()));
    }
    rows
}

fn would_move(counters: &Counters) -> String {
    let others = counters.files_skipped + counters.files_failed + counters.passed.sum();
    let files = counters.files_found.saturating_sub(others);
    let data = counters.bytes_found.saturating_sub(counters.bytes_skipped);
    format!("{}, {}", counted(files, "file"), bytes(data))
}

fn moved(report: &Report) -> String {
    let counters = &report.progress.source;
    let data = counters.bytes_done.saturating_sub(counters.bytes_skipped);
    let elapsed = report.progress.elapsed;
    format!(
        "{}, {} in {} ({})",
        counted(counters.files_moved, "file"),
        bytes(data),
        span(elapsed),
        rate(mean_rate(report))
    )
}

/// Returns the moved bytes per second, over the whole transfer.
pub(super) fn mean_rate(report: &Report) -> f64 {
    let counters = &report.progress.source;
    let seconds = report.progress.elapsed.as_secs_f64();
    let data = counters.bytes_done.saturating_sub(counters.bytes_skipped);
    if seconds > 0.0 { data as f64 / seconds } else { 0.0 }
}

/// Returns rows for what the sink already had, and how that was checked.
fn there_already(counters: &Counters) -> Vec<Row> {
    let Counters { files_unread, files_compared, files_skipped, .. } = *counters;
    let others = files_skipped.saturating_sub(files_unread + files_compared);
    let files =
        |number, data, known| format!("{}, {}: {known}", counted(number, "file"), bytes(data));
    let begun_bytes =
        counters.bytes_skipped.saturating_sub(counters.bytes_unread + counters.bytes_compared);
    let rows = [
        (files_unread, ("skipped", files(files_unread, counters.bytes_unread, UNREAD))),
        (files_compared, ("the same", files(files_compared, counters.bytes_compared, COMPARED))),
        (others, ("there", format!("{}: {OTHERS}", counted(others, "other")))),
        (begun_bytes, ("resumed", format!("{} of an earlier attempt", bytes(begun_bytes)))),
    ];
    rows.into_iter().filter(|(number, _)| *number > 0).map(|(_, row)| row).collect()
}

const UNREAD: &str = "same size and time, not read";
/// Skipped entries without contents that could be read.
const OTHERS: &str = "links, special or empty files";
const COMPARED: &str = "same checksums at both ends";

fn compared(report: &Report) -> String {
    let counters = &report.progress.source;
    let data = counters.bytes_compared;
    format!(
        "{}, {} in {}",
        counted(counters.files_compared, "file"),
        bytes(data),
        span(report.progress.elapsed)
    )
}

/// Returns the row for what was removed, or would be.
fn deleted(report: &Report, is_dry_run: bool) -> Option<Row> {
    let Progress { source, sink, .. } = &report.progress;
    let removed = source.entries_removed.max(sink.entries_removed);
    let entries = if removed == 1 { "entry" } else { "entries" };
    let title = if is_dry_run { "to delete" } else { "deleted" };
    let text = format!("{} {entries} that the source does not have", count(removed));
    (removed > 0).then_some((title, text))
}

/// Returns a row for each reason why files were passed over.
fn passed(counts: &PassCounts) -> Vec<Row> {
    let reasons = [
        (counts.newer, "newer at the sink (--update)"),
        (counts.there, "at the sink already (--ignore-existing)"),
        (counts.missing, "not at the sink (--existing)"),
        (counts.size, "by size (--max-size, --min-size)"),
    ];
    let met = reasons.into_iter().filter(|&(count, _)| count > 0);
    met.map(|(count, reason)| ("left out", format!("{} {reason}", counted(count, "file"))))
        .collect()
}

fn left_out(special_count: u64) -> String {
    match special_count {
        1 => "1 device, FIFO or socket".to_owned(),
        _ => format!("{} devices, FIFOs and sockets", count(special_count)),
    }
}

fn verified(settings: &Settings) -> &'static str {
    match settings.verify {
        Some(_) if !settings.is_durable => {
            "what was moved: every block's checksum at the sink, then written to a pipe or device"
        }
        Some(Verify::Wire) => {
            "what was moved: every block's checksum at the sink, then made durable"
        }
        Some(Verify::Media) => {
            "what was moved: every block's checksum, durable, read back from storage"
        }
        None => "what was moved: every block's checksum at the sink; nothing is kept there",
    }
}

/// Returns rows for the resources that both ends used.
fn machine_rows(report: &Report, is_verbose: bool) -> Vec<Row> {
    let (source, sink) = (&report.progress.source, &report.progress.sink);
    let seconds = |micros| span(Duration::from_micros(micros));
    let both =
        |of: &dyn Fn(&Counters) -> String| format!("source {}, sink {}", of(source), of(sink));
    let mut rows = vec![
        ("CPU", both(&|end| seconds(end.cpu_micros))),
        ("memory", format!("{} at most", both(&|end| bytes(end.memory_bytes_peak)))),
    ];
    let busiest = [("source", &source.busiest_ost), ("sink", &sink.busiest_ost)];
    rows.extend(busiest.into_iter().filter_map(|(side, ost)| {
        ost.as_ref()
            .map(|ost| ("busiest", format!("{side} {}", busy(ost, report.progress.elapsed))))
    }));
    let pools = [("reads", &source.requests), ("writes", &sink.requests)];
    rows.extend(pools.into_iter().filter_map(|(title, requests)| {
        let requests = requests.as_ref().filter(|it| is_verbose || it.has_changed())?;
        Some((title, matched(requests)))
    }));
    if is_verbose {
        rows.push(("in storage", both(&|end| seconds(end.storage_micros))));
        rows.push(("in network", both(&|end| seconds(end.network_micros))));
        rows.push(("streams", both(&|end| end.stream_count.to_string())));
        rows.push((
            "sent",
            format!("{}, {}", counted(source.blocks_sent, "block"), bytes(source.bytes_sent)),
        ));
    }
    rows
}

/// `OST0007: busy for 61 % of the time, with 40.0 GiB`
fn busy(ost: &BusyOst, elapsed: Duration) -> String {
    let share = ost.busy_micros as f64 / (elapsed.as_micros() as f64).max(1.0);
    // The clocks of both ends differ, and one end may have begun a little earlier.
    let percent = (share * 100.0).min(100.0);
    let name = escape(ost.name.as_bytes());
    format!("{name}: busy for {percent:.0} % of the time, with {}", bytes(ost.bytes))
}

/// `24 in flight over 12 files, 1.0 MiB each, direct`
fn matched(requests: &Requests) -> String {
    let Requests { in_flight, files, request_bytes, limit, .. } = *requests;
    let files = counted(files.into(), "file");
    let way = io(requests.io);
    let text = format!("{in_flight} in flight over {files}, {} each, {way}", bytes(request_bytes));
    let gain = f64::from(requests.gain_per_mille) / 1000.0;
    match requests.why {
        Why::Fixed | Why::Guess => text,
        Why::Less => format!("{text}; {limit} at most: {gain:.2} times the rate"),
        Why::More => format!("{text}; {limit} at most again"),
    }
}

fn slowest(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::SourceStorage => "reading at the source held the rest up",
        Bottleneck::SourceCpu => "the processors of the source held the rest up",
        Bottleneck::Network => "the network held the rest up",
        Bottleneck::SinkCpu => "the processors of the sink held the rest up",
        Bottleneck::SinkStorage => "writing at the sink held the rest up",
        Bottleneck::Limit => "--bwlimit held the rest up",
        Bottleneck::CpuLimit => "--max-cpu held the rest up",
    }
}

#[cfg(test)]
pub(in crate::display) mod tests;
