//! The summary of a transfer, for the user.
//!
//! By default it has two lines: the outcome with the most important figures, and the bottleneck.
//! `-v` and `--stats` add a table of figures, `-vv` the figures of single resources. After a
//! failure the number of failed entries and the place of unfinished files are always in it.

mod outcome;
mod rows;

use super::again;
use super::changes::Changes;
use super::differences::Differences;
use super::place::Places;
use super::style::{Tone, indented, message};
use super::{Detail, IssueCount, Settings};
use lads_core::sizes::counted;
use lads_core::text::escape;
use lads_engine::{ExitCode, Report};

/// The numbers that the display has counted itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted<'a> {
    pub(super) issues: &'a IssueCount,
    pub(super) differences: &'a Differences,
    pub(super) changes: &'a Changes,
}

/// Returns the lines of the summary. After a failure there are some even if no summary is wanted.
pub(super) fn lines(
    report: &Report,
    settings: &Settings,
    places: &Places,
    counted: Counted<'_>,
) -> Vec<String> {
    let is_good = report.exit_code == ExitCode::Ok;
    if is_good && settings.detail == Detail::None {
        return Vec::new();
    }
    let mut lines = Vec::new();
    if let Some(text) = &report.message {
        let text = again::fit(text, places.is_once);
        lines.push(format!("lads: {}", indented(&message(&text))));
        if !has_progress(report, counted.issues) {
            // The message already reports the outcome.
            return lines;
        }
    }
    let tone = match report.exit_code {
        ExitCode::Ok => Tone::Good,
        ExitCode::Reduced => Tone::Careful,
        _ => Tone::Bad,
    };
    let outcome = outcome::text(report, settings, counted);
    let outcome = again::fit(&outcome, places.is_once);
    lines.push(format!("lads: {}", settings.style.paint(tone, &outcome)));
    let rows = rows::all(report, settings, places, counted);
    let rows = rows.into_iter().filter(|row| row.from <= settings.detail);
    lines.extend(rows.map(|row| format!("      {:<11}{}", row.title, row.text)));
    lines
}

/// Returns whether there is anything to report in addition to the message that ended the transfer.
fn has_progress(report: &Report, issues: &IssueCount) -> bool {
    let counters = &report.progress.source;
    counters.bytes_done > 0
        || counters.files_moved + counters.files_skipped + counters.passed.sum() > 0
        || removed_entries(report) > 0
        || issues.failed + issues.special > 0
}

/// Returns the moved bytes per second, over the whole transfer.
pub(super) fn mean_rate(report: &Report) -> f64 {
    let seconds = report.progress.elapsed.as_secs_f64();
    if seconds > 0.0 { moved_bytes(report) as f64 / seconds } else { 0.0 }
}

/// Returns the bytes that this transfer has moved.
fn moved_bytes(report: &Report) -> u64 {
    let counters = &report.progress.source;
    counters.bytes_done.saturating_sub(counters.bytes_skipped)
}

/// Returns the number of entries that were removed, or would be in a dry run.
fn removed_entries(report: &Report) -> u64 {
    report.progress.source.entries_removed.max(report.progress.sink.entries_removed)
}

/// Returns the line for failed entries that were not shown.
pub(super) fn hidden_issues(hidden_count: u64, log: Option<&str>) -> String {
    let place = match log {
        Some(log) => format!("all are in {}", escape(log.as_bytes())),
        None => "--log FILE lists all".to_owned(),
    };
    format!("lads: {} not shown; {place}", counted(hidden_count, "more message"))
}

#[cfg(test)]
pub(in crate::display) mod tests;
