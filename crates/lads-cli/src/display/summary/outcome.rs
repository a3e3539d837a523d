//! The first line of the summary: the outcome, with the most important figures.

use super::super::changes::{entries, other_entries};
use super::super::{IssueCount, Settings};
use super::{Counted, mean_rate, moved_bytes, removed_entries};
use lads_core::message::Counters;
use lads_core::pass::PassCounts;
use lads_core::sizes::{bytes, counted, rate, span};
use lads_engine::{ExitCode, Report, Verify};

/// The reason why skipped files were not read.
pub(super) const UNREAD: &str = "same size and time, not read";

/// Skipped entries without contents that could be read.
pub(super) const OTHERS: &str = "links, special or empty files";

/// The reason why compared files were skipped.
pub(super) const COMPARED: &str = "same checksums at both ends";

/// Returns the outcome of the transfer, the dry run or the comparison.
pub(super) fn text(report: &Report, settings: &Settings, all: Counted<'_>) -> String {
    match report.exit_code {
        _ if settings.is_check => of_check(report, all),
        ExitCode::Ok if settings.is_dry_run => of_dry_run(report, all),
        ExitCode::Ok => format!("done: {}", of_transfer(report, settings)),
        ExitCode::Reduced => {
            let transfer = of_transfer(report, settings);
            format!("done, but not all metadata was kept: {transfer}")
        }
        code => trouble(code, all.issues).to_owned(),
    }
}

/// Returns the outcome of a transfer that went well. It claims no more than was checked.
fn of_transfer(report: &Report, settings: &Settings) -> String {
    let Counters { files_moved, files_verified, .. } = report.progress.source;
    let mut parts = vec![moved_files(report, settings)];
    let others_moved = files_moved.saturating_sub(files_verified);
    if others_moved > 0 {
        parts.push(format!("{} created (links, special files)", other_entries(others_moved)));
    }
    if files_moved == 0 {
        "nothing was moved".clone_into(&mut parts[0]);
    } else if files_verified == 0 {
        parts.remove(0);
    }
    parts.extend(unchanged(&report.progress.source));
    match removed_entries(report) {
        0 => {}
        removed => parts.push(format!("{} deleted", entries(removed))),
    }
    parts.join("; ")
}

/// `4,190 files (1.2 TiB) moved in 2 min 12 s (9.74 GB/s), durable and verified (wire)`
fn moved_files(report: &Report, settings: &Settings) -> String {
    let (verb, known) = match settings.verify {
        Some(_) if !settings.is_durable => ("moved", "verified (wire)"),
        Some(Verify::Wire) => ("moved", "durable and verified (wire)"),
        Some(Verify::Media) => ("moved", "durable and verified (media)"),
        None => ("read", "verified (wire) and discarded"),
    };
    let files = counted(report.progress.source.files_verified, "file");
    let (data, time) = (bytes(moved_bytes(report)), span(report.progress.elapsed));
    format!("{files} ({data}) {verb} in {time} ({}), {known}", rate(mean_rate(report)))
}

/// Returns a part for each reason why entries at the sink were left as they are.
fn unchanged(counters: &Counters) -> Vec<String> {
    let Counters { files_unread, files_compared, files_skipped, .. } = *counters;
    let others = files_skipped.saturating_sub(files_unread + files_compared);
    let files = |number| counted(number, "file");
    let parts = [
        (files_compared, format!("{} unchanged ({COMPARED})", files(files_compared))),
        (files_unread, format!("{} skipped ({UNREAD})", files(files_unread))),
        (others, format!("{} unchanged ({OTHERS})", other_entries(others))),
    ];
    let mut parts: Vec<String> =
        parts.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
    parts.extend(passed(&counters.passed).map(|(files, why)| format!("{files} skipped ({why})")));
    parts
}

/// Returns the number of files that were passed over for each reason: `2 files` and
/// `not at the sink, --existing`.
pub(super) fn passed(counts: &PassCounts) -> impl Iterator<Item = (String, &'static str)> {
    let reasons = [
        (counts.newer, "newer at the sink, --update"),
        (counts.there, "already at the sink, --ignore-existing"),
        (counts.missing, "not at the sink, --existing"),
        (counts.size, "too large or too small, --max-size, --min-size"),
    ];
    let met = reasons.into_iter().filter(|&(count, _)| count > 0);
    met.map(|(count, reason)| (counted(count, "file"), reason))
}

fn of_dry_run(report: &Report, all: Counted<'_>) -> String {
    let mut parts = vec![format!("{} would be moved", all.changes.transfers())];
    parts.extend(unchanged(&report.progress.source));
    match all.changes.deletions() {
        0 => {}
        deletions => parts.push(format!("{} would be deleted", entries(deletions))),
    }
    format!("dry run: {}", parts.join("; "))
}

fn of_check(report: &Report, all: Counted<'_>) -> String {
    let counters = &report.progress.source;
    let differences = all.differences;
    let same = format!(
        "the contents of {} ({}) were read at both ends and are the same",
        counted(counters.files_compared, "file"),
        bytes(counters.bytes_compared)
    );
    match report.exit_code {
        ExitCode::Ok | ExitCode::Different => format!("done: {}; {same}", differences.text()),
        _ if differences.sum() == 0 => format!("incomplete: so far {same}"),
        _ => format!("incomplete: so far {}; {same}", differences.text()),
    }
}

fn trouble(code: ExitCode, issues: &IssueCount) -> &'static str {
    match code {
        ExitCode::Ok | ExitCode::Reduced => "done",
        ExitCode::Other => "failed",
        ExitCode::Usage => "the command cannot be executed",
        ExitCode::SourceUnreadable => {
            "incomplete: some entries at the source are missing or cannot be read"
        }
        ExitCode::Refused => "the other host rejected the login",
        ExitCode::Network => {
            "the other host cannot be reached, or the connection was lost; the same command resumes"
        }
        ExitCode::SinkRefuses if issues.sink_full > 0 => {
            "incomplete: the sink is full or over quota; free space there, then the same command \
             resumes"
        }
        ExitCode::SinkRefuses if issues.in_the_way > 0 => {
            "incomplete: entries of another kind have the same names at the sink"
        }
        ExitCode::SinkRefuses => "incomplete: permission was denied at the sink",
        ExitCode::Mismatch => "incomplete: data at the sink differs from the data that was sent",
        ExitCode::SourceChanged => "incomplete: files changed while they were read",
        ExitCode::Interrupted => "stopped; the same command resumes",
        ExitCode::Limit => {
            "all data is at the sink; more entries would have to be deleted than --max-delete \
             allows"
        }
        ExitCode::Different => "source and sink differ",
        ExitCode::Running => "nothing was done: the same transfer is already running",
    }
}
