//! The progress of a transfer, in one line whose figures never go back.

use lads_core::bottleneck::Bottleneck;
use lads_core::sizes;
use lads_core::text::escape;
use lads_engine::{Progress, Waiting};
use std::time::Duration;

/// The time that the shown rate covers: long enough to be readable, short enough to follow changes.
const RATE_WINDOW: Duration = Duration::from_secs(8);

/// Before this time, there is too little data to estimate the end.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);

/// From this number of remaining files on, the estimate also uses the rate of files.
const MANY_FILES: u64 = 1000;

/// The text between two parts of a line.
const PART_DISTANCE: &str = "  ";

/// With fewer columns than this, the end of a path does not tell one file from another.
const CURRENT_COLUMNS_MIN: usize = 12;

/// The figures shown at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// The bytes done, or at the sink already.
    pub(super) bytes_done: u64,
    /// The bytes found.
    pub(super) bytes_found: u64,
    /// The files done, failed, or at the sink already.
    pub(super) files_done: u64,
    /// The files found.
    pub(super) files_found: u64,
    /// Whether the numbers of bytes and files found are final.
    pub(super) is_walk_ended: bool,
    /// The share done; set when the numbers found are final.
    pub(super) percent: Option<u64>,
    /// The recent rate of moved bytes per second.
    pub(super) bytes_per_second: f64,
    /// The estimated time until the end.
    pub(super) remaining: Option<Duration>,
    /// The slowest part, which holds up the others.
    pub(super) bottleneck: Option<Bottleneck>,
    /// The time since the transfer began.
    pub(super) elapsed: Duration,
    /// The path of a file that is being moved, or was moved last.
    pub(super) current: Option<Vec<u8>>,
}

/// Computes [`Figures`] from the engine's counters.
///
/// The engine subtracts bytes when a file changes and begins anew. The shown figures then stay the
/// same until the counters have caught up.
#[derive(Debug, Default)]
pub(super) struct Meter {
    shown: Figures,
    bytes_moved: u64,
    elapsed: Duration,
    bytes_rate: Rate,
    files_rate: Rate,
}

impl Meter {
    /// Takes the present counters; returns the figures to show.
    pub(super) fn take(&mut self, progress: &Progress) -> Figures {
        let counters = &progress.source;
        let bytes_moved = counters.bytes_done.saturating_sub(counters.bytes_skipped);
        let bytes_moved = bytes_moved.max(self.bytes_moved);
        let files_done = counters.files_moved + counters.files_skipped + counters.files_failed;
        let before = &self.shown;
        let files_done = files_done.max(before.files_done);
        let step = progress.elapsed.saturating_sub(self.elapsed);
        self.bytes_rate.take(step, bytes_moved - self.bytes_moved);
        self.files_rate.take(step, files_done - before.files_done);
        self.elapsed = progress.elapsed;
        self.bytes_moved = bytes_moved;

        let bytes_done = counters.bytes_done.max(before.bytes_done);
        let mut figures = Figures {
            bytes_done,
            // If a file grew while it moved, more bytes may be done than were found.
            bytes_found: counters.bytes_found.max(before.bytes_found).max(bytes_done),
            files_done,
            files_found: counters.files_found.max(before.files_found).max(files_done),
            is_walk_ended: counters.is_walk_ended || before.is_walk_ended,
            percent: None,
            bytes_per_second: self.bytes_rate.per_second(),
            remaining: None,
            bottleneck: progress.bottleneck,
            elapsed: progress.elapsed,
            current: progress.current.clone().or_else(|| before.current.clone()),
        };
        if figures.is_walk_ended {
            figures.percent = Some(percent(&figures).max(before.percent.unwrap_or(0)));
            figures.remaining = self.remaining(&figures);
        }
        self.shown = figures.clone();
        figures
    }

    fn remaining(&self, figures: &Figures) -> Option<Duration> {
        if self.elapsed < ESTIMATE_AFTER {
            return None;
        }
        let by_bytes = self.bytes_rate.time_for(figures.bytes_found - figures.bytes_done)?;
        let files = figures.files_found - figures.files_done;
        let by_files = if files < MANY_FILES { None } else { self.files_rate.time_for(files) };
        Some(by_files.map_or(by_bytes, |by_files| by_files.max(by_bytes)))
    }
}

/// Returns a line with the time waited so far, its limit, and what is waited for.
pub(super) fn waiting(waiting: &Waiting) -> String {
    let whole = |time: Duration| match time.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => sizes::span(Duration::from_secs(seconds)),
    };
    let (elapsed, limit) = (whole(waiting.elapsed), whole(waiting.limit));
    format!("waited {elapsed} ({limit} at most) for {}", escape(waiting.what.as_bytes()))
}

fn percent(figures: &Figures) -> u64 {
    let (done, found) = match figures.bytes_found {
        0 => (figures.files_done, figures.files_found),
        found => (figures.bytes_done, found),
    };
    let percent = u128::from(done) * 100 / u128::from(found.max(1));
    u64::try_from(percent).map_or(100, |percent| percent.min(100))
}

/// A decaying mean: what happened one [`RATE_WINDOW`] ago weighs a third of what happens now.
#[derive(Debug, Default)]
struct Rate {
    sum: f64,
    /// The weight of the samples so far; with it, the mean is right from the first sample on.
    weight: f64,
}

impl Rate {
    fn take(&mut self, step: Duration, amount: u64) {
        let seconds = step.as_secs_f64();
        if seconds > 0.0 {
            let share = 1.0 - (-seconds / RATE_WINDOW.as_secs_f64()).exp();
            self.sum += share * (amount as f64 / seconds - self.sum);
            self.weight += share * (1.0 - self.weight);
        }
    }

    fn per_second(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    /// Returns `None` if it would take unreasonably long, or for ever.
    fn time_for(&self, amount: u64) -> Option<Duration> {
        const LONGEST_SECONDS: f64 = 100.0 * 86400.0;
        let seconds = amount as f64 / self.per_second().max(f64::MIN_POSITIVE);
        (seconds < LONGEST_SECONDS).then(|| Duration::from_secs_f64(seconds))
    }
}

impl Figures {
    /// Returns one line, no wider than this. The least important parts are left out first.
    pub(super) fn line(&self, columns: usize) -> String {
        // Each part has a rank; the highest rank is left out first.
        let mut parts = vec![
            (0, self.bytes_part()),
            (4, self.files_part()),
            (1, sizes::rate(self.bytes_per_second)),
            (3, sizes::clock(self.elapsed)),
        ];
        let remaining = self.remaining.map(|remaining| format!("{} left", sizes::clock(remaining)));
        parts.extend(remaining.map(|remaining| (2, remaining)));
        parts.extend(self.bottleneck.map(|it| (5, format!("slowest: {}", name(it)))));
        loop {
            let line = parts.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>();
            let line = line.join(PART_DISTANCE);
            let last = parts.iter().max_by_key(|(rank, _)| *rank).map_or(0, |(rank, _)| *rank);
            if last == 0 || line.chars().count() <= columns {
                let line: String = line.chars().take(columns).collect();
                let current = self.current_part(columns.saturating_sub(line.chars().count()));
                return line + &current;
            }
            parts.retain(|(rank, _)| *rank != last);
        }
    }

    /// Returns the current file, with the space before it. If the path is too long for these
    /// columns, only its end is shown, and nothing if that is too short to identify the file.
    fn current_part(&self, columns: usize) -> String {
        let Some(current) = &self.current else { return String::new() };
        let (path, room) = (escape(current), columns.saturating_sub(PART_DISTANCE.len()));
        let length = path.chars().count();
        match () {
            () if length <= room => format!("{PART_DISTANCE}{path}"),
            () if room < CURRENT_COLUMNS_MIN => String::new(),
            () => {
                let end: String = path.chars().skip(length - (room - 1)).collect();
                format!("{PART_DISTANCE}…{end}")
            }
        }
    }

    fn bytes_part(&self) -> String {
        let (done, found) = (sizes::bytes(self.bytes_done), sizes::bytes(self.bytes_found));
        match self.percent {
            Some(percent) => format!("{percent:3}%  {done} of {found}"),
            None => format!("{done} of {found}, scanning…"),
        }
    }

    fn files_part(&self) -> String {
        format!("{} of {}", sizes::count(self.files_done), sizes::counted(self.files_found, "file"))
    }
}

/// Returns the name of the slowest part of the transfer.
fn name(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::SourceStorage => "source storage",
        Bottleneck::SourceCpu => "source CPU",
        Bottleneck::Network => "network",
        Bottleneck::SinkCpu => "sink CPU",
        Bottleneck::SinkStorage => "sink storage",
        Bottleneck::Limit => "--bwlimit",
        Bottleneck::CpuLimit => "--max-cpu",
    }
}

#[cfg(test)]
mod tests;
