//! The table of figures below the first line of the summary.

use super::super::changes::{entries, other_entries};
use super::super::json::io;
use super::super::place::Places;
use super::super::{Detail, Settings};
use super::outcome::{COMPARED, OTHERS, UNREAD, passed};
use super::{Counted, mean_rate, moved_bytes, removed_entries};
use lads_core::bottleneck::Bottleneck;
use lads_core::issue::Side;
use lads_core::matching::Why;
use lads_core::message::{BusyOst, Counters};
use lads_core::pool::Requests;
use lads_core::protection::Protection;
use lads_core::sizes::{bytes, count, counted, rate, span};
use lads_core::text::escape;
use lads_engine::{ExitCode, Report, Verify};
use std::time::Duration;

/// Shortest transfer whose bottleneck is in every summary. Below this time, connecting and the walk
/// are a large part of the transfer, and the user does not wait for anything.
const BOTTLENECK_AFTER: Duration = Duration::from_secs(3);

/// A row of the table.
pub(super) struct Row {
    /// The detail from which on the row is shown.
    pub(super) from: Detail,
    pub(super) title: &'static str,
    pub(super) text: String,
}

impl Row {
    fn new(from: Detail, title: &'static str, text: String) -> Self {
        Self { from, title, text }
    }

    fn full(title: &'static str, text: String) -> Self {
        Self::new(Detail::Full, title, text)
    }

    fn everything(title: &'static str, text: String) -> Self {
        Self::new(Detail::Everything, title, text)
    }
}

/// Returns all rows.
pub(super) fn all(
    report: &Report,
    settings: &Settings,
    places: &Places,
    counted: Counted<'_>,
) -> Vec<Row> {
    let mut rows = entry_rows(report, settings, counted);
    rows.extend(trouble_rows(report, settings, places, counted));
    if !settings.is_dry_run {
        rows.extend(data_rows(report, settings));
    }
    if !settings.is_dry_run || settings.is_check {
        rows.extend(machine_rows(report));
        rows.extend(bottleneck_row(report, places));
    }
    if report.is_port_blocked {
        let text = "data went through ssh: the port for data is blocked (see --ports)";
        rows.push(Row::new(Detail::Brief, "network", text.to_owned()));
    }
    if let Some(protection) = report.protection.filter(|_| !settings.is_dry_run) {
        rows.push(security_row(protection));
    }
    rows
}

/// Returns how data was protected between two hosts.
fn security_row(protection: Protection) -> Row {
    let (detail, text) = match protection {
        Protection::Aes128Gcm => (Detail::Full, "data encrypted (AES-128-GCM)"),
        Protection::ChaCha20Poly1305 => (Detail::Full, "data encrypted (ChaCha20-Poly1305)"),
        Protection::Authenticated => (Detail::Brief, "data authenticated, but not encrypted"),
        Protection::Plain => (Detail::Brief, "data neither encrypted nor authenticated"),
    };
    Row::new(detail, "security", text.to_owned())
}

/// Returns rows for the number of entries of each fate.
fn entry_rows(report: &Report, settings: &Settings, counted: Counted<'_>) -> Vec<Row> {
    let counters = &report.progress.source;
    // If it went well, the first line has these figures.
    let is_done = matches!(report.exit_code, ExitCode::Ok | ExitCode::Reduced);
    let from = if is_done { Detail::Full } else { Detail::Brief };
    let mut rows = Vec::new();
    if settings.is_check {
        rows.push(Row::full("compared", compared(report)));
    } else if settings.is_dry_run {
        rows.push(Row::new(from, "would move", counted.changes.transfers()));
    } else {
        rows.push(Row::new(from, "moved", moved(report)));
    }
    if !settings.is_check {
        rows.extend(unchanged(counters));
    }
    let passed = passed(&counters.passed);
    rows.extend(passed.map(|(files, why)| Row::full("skipped", format!("{files}: {why}"))));
    let removed = removed_entries(report);
    if removed > 0 {
        let title = if settings.is_dry_run { "to delete" } else { "deleted" };
        let text = format!("{} that the source does not have", entries(removed));
        rows.push(Row::full(title, text));
    }
    rows
}

/// Returns rows for failures, and for their consequences.
fn trouble_rows(
    report: &Report,
    settings: &Settings,
    places: &Places,
    counted: Counted<'_>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    if counted.issues.failed > 0 {
        rows.push(Row::new(Detail::Brief, "failed", entries(counted.issues.failed)));
    }
    if counted.issues.special > 0 {
        rows.push(Row::full("skipped", special(counted.issues.special)));
    }
    if report.exit_code == ExitCode::Network && settings.verify.is_some() && !settings.is_dry_run {
        let left = ".lads-*.part files and a .lads-*.journal are in";
        let text = format!("{left} {}", places.directory_text());
        rows.push(Row::new(Detail::Brief, "unfinished", text));
    }
    if report.attempt_count > 1 {
        let text =
            format!("{}; the figures are of the last one", count(report.attempt_count.into()));
        rows.push(Row::new(Detail::Brief, "attempts", text));
    }
    rows
}

/// Returns rows for blocks on their way.
fn data_rows(report: &Report, settings: &Settings) -> Vec<Row> {
    let (source, sink) = (&report.progress.source, &report.progress.sink);
    let resent = source.blocks_resent.max(sink.blocks_resent);
    let staged = source.bytes_staged + sink.bytes_staged;
    let rows = [
        (resent, Row::full("resent", counted(resent, "block"))),
        (staged, Row::full("staged", format!("{} staged on flash for the sink", bytes(staged)))),
        (source.files_verified, Row::full("verified", verified(settings).to_owned())),
    ];
    rows.into_iter().filter(|(number, _)| *number > 0).map(|(_, row)| row).collect()
}

/// `100 files and 3 other entries, 1.2 TiB in 2 min 12 s (9.74 GB/s)`
fn moved(report: &Report) -> String {
    let Counters { files_moved, files_verified, .. } = report.progress.source;
    let others = match files_moved.saturating_sub(files_verified) {
        0 => String::new(),
        others => format!(" and {}", other_entries(others)),
    };
    format!(
        "{}{others}, {} in {} ({})",
        counted(files_verified, "file"),
        bytes(moved_bytes(report)),
        span(report.progress.elapsed),
        rate(mean_rate(report))
    )
}

/// Returns rows for entries and bytes that the sink already had, and how that was checked.
fn unchanged(counters: &Counters) -> impl Iterator<Item = Row> {
    let Counters { files_unread, files_compared, files_skipped, .. } = *counters;
    let others = files_skipped.saturating_sub(files_unread + files_compared);
    let files =
        |number, data, known| format!("{}, {}: {known}", counted(number, "file"), bytes(data));
    let begun_bytes =
        counters.bytes_skipped.saturating_sub(counters.bytes_unread + counters.bytes_compared);
    let rows = [
        (files_unread, Row::full("skipped", files(files_unread, counters.bytes_unread, UNREAD))),
        (
            files_compared,
            Row::full("unchanged", files(files_compared, counters.bytes_compared, COMPARED)),
        ),
        (others, Row::full("unchanged", format!("{}: {OTHERS}", other_entries(others)))),
        (
            begun_bytes,
            Row::full("resumed", format!("{} of an earlier attempt", bytes(begun_bytes))),
        ),
    ];
    rows.into_iter().filter(|(number, _)| *number > 0).map(|(_, row)| row)
}

fn compared(report: &Report) -> String {
    let Counters { files_compared, bytes_compared, .. } = report.progress.source;
    let time = span(report.progress.elapsed);
    format!("{}, {} in {time}", counted(files_compared, "file"), bytes(bytes_compared))
}

fn special(number: u64) -> String {
    match number {
        1 => "1 device, FIFO or socket".to_owned(),
        _ => format!("{} devices, FIFOs and sockets", count(number)),
    }
}

fn verified(settings: &Settings) -> &'static str {
    match settings.verify {
        Some(_) if !settings.is_durable => {
            "the checksum of every block, before it was written to a pipe or device"
        }
        Some(Verify::Wire) => "the checksum of every moved block, before it was made durable",
        Some(Verify::Media) => "the checksum of every moved block, read back from storage",
        None => "the checksum of every block; no data is kept",
    }
}

/// Returns rows for the resources that both ends used.
fn machine_rows(report: &Report) -> Vec<Row> {
    let (source, sink) = (&report.progress.source, &report.progress.sink);
    let seconds = |micros| span(Duration::from_micros(micros));
    let both =
        |of: &dyn Fn(&Counters) -> String| format!("source {}, sink {}", of(source), of(sink));
    let mut rows = vec![
        Row::full("CPU", both(&|end| seconds(end.cpu_micros))),
        Row::full("memory", format!("{} at most", both(&|end| bytes(end.memory_bytes_peak)))),
    ];
    let busiest = [("source", &source.busiest_ost), ("sink", &sink.busiest_ost)];
    rows.extend(busiest.into_iter().filter_map(|(side, ost)| {
        let ost = busy(ost.as_ref()?, report.progress.elapsed);
        Some(Row::full("busiest", format!("{side} {ost}")))
    }));
    let pools = [("reads", &source.requests), ("writes", &sink.requests)];
    rows.extend(pools.into_iter().filter_map(|(title, requests)| {
        let requests = requests.as_ref()?;
        let from = if requests.has_changed() { Detail::Full } else { Detail::Everything };
        Some(Row::new(from, title, matched(requests)))
    }));
    let sent = format!("{}, {}", counted(source.blocks_sent, "block"), bytes(source.bytes_sent));
    rows.extend([
        Row::everything("in storage", both(&|end| seconds(end.storage_micros))),
        Row::everything("in network", both(&|end| seconds(end.network_micros))),
        Row::everything("streams", both(&|end| end.stream_count.to_string())),
        Row::everything("sent", sent),
    ]);
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
        Why::Less => format!("{text}; at most {limit}: {gain:.2} times the rate"),
        Why::More => format!("{text}; at most {limit} again"),
    }
}

/// Returns the row for the bottleneck, if it is known.
fn bottleneck_row(report: &Report, places: &Places) -> Option<Row> {
    let is_long = report.progress.elapsed >= BOTTLENECK_AFTER;
    let from = if is_long { Detail::Brief } else { Detail::Full };
    let text = bottleneck(report.progress.bottleneck?, places);
    Some(Row::new(from, "bottleneck", text))
}

/// `storage at dtn2 (sink)`
fn bottleneck(bottleneck: Bottleneck, places: &Places) -> String {
    let at = |part: &str, side: Side| match places.host_text(side) {
        Some(host) => format!("{part} at {host} ({})", side.word()),
        None => format!("{part} ({})", side.word()),
    };
    match bottleneck {
        Bottleneck::SourceStorage => at("storage", Side::Source),
        Bottleneck::SourceCpu => at("CPU", Side::Source),
        Bottleneck::Network => "network".to_owned(),
        Bottleneck::SinkCpu => at("CPU", Side::Sink),
        Bottleneck::SinkStorage => at("storage", Side::Sink),
        Bottleneck::Limit => "--bwlimit".to_owned(),
        Bottleneck::CpuLimit => "--max-cpu".to_owned(),
    }
}
