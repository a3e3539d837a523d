//! The progress of a transfer: the share that is written, the rate, and the remaining time.
//!
//! [`Meter`] computes [`Figures`] from the counters of both ends. Progress follows the bytes that
//! the sink has written, because blocks become durable in batches of many MiB: a line that counted
//! only those would stand still between two batches. The figures never go back: if a file changes
//! and starts over, they stay the same until the counters have caught up.
//!
//! The displays of `lads cp` show these figures; the simulator records runs and compares estimates
//! with the time that was really left.

use crate::message::Counters;
use std::time::Duration;

/// Time over which the shown rate is averaged: long enough to be readable, short enough to follow
/// changes.
const RATE_WINDOW: Duration = Duration::from_secs(8);

/// Part of the elapsed time over which the rates of an estimate are averaged, if that is longer
/// than [`RATE_WINDOW`]: the next minutes resemble the last minutes more than the last seconds, in
/// which one OST may have been slow. A larger part would follow a lasting change too late.
const ESTIMATE_PART: f64 = 0.5;

/// Time after the first byte that counts for no estimate, because queues fill and the rate rises.
/// With half of it, the estimate after a tenth of half a minute is still some percent too long;
/// with double, it rests on too little data.
const RISE: Duration = Duration::from_secs(1);

/// Time after the first byte from which on the remaining time is estimated. Before it, there is too
/// little data.
const ESTIMATE_AFTER: Duration = Duration::from_secs(2);

/// Number of remaining files from which on the estimate also uses the rate of files.
const MANY_FILES: u64 = 1000;

/// Longest time that is shown as an estimate.
const REMAINING_MAX: Duration = Duration::from_secs(100 * 86_400);

/// The figures at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Time since the transfer began.
    pub elapsed: Duration,
    /// Bytes written at the sink in this transfer, or present there before.
    pub bytes_written: u64,
    /// Of `bytes_written`, bytes that are durable and recorded.
    pub bytes_done: u64,
    /// Bytes found.
    pub bytes_found: u64,
    /// Files that have ended: moved, failed, or present at the sink before.
    pub files_done: u64,
    /// Files found.
    pub files_found: u64,
    /// Whether the numbers of bytes and files found are final.
    pub is_walk_ended: bool,
    /// Share of the transfer that is written; known when the numbers found are final.
    pub percent: Option<u64>,
    /// Recent rate of writing.
    pub bytes_per_second: f64,
    /// Estimated time until the end.
    pub remaining: Option<Duration>,
}

/// Computes [`Figures`] from the counters of both ends.
#[derive(Debug, Default)]
pub struct Meter {
    shown: Figures,
    bytes_moved: u64,
    /// Time before the first byte or file was moved.
    began: Option<Duration>,
    recent: Rate,
    bytes_rate: Rate,
    files_rate: Rate,
}

impl Meter {
    /// Takes the present counters; returns the figures to show.
    pub fn take(&mut self, elapsed: Duration, source: &Counters, sink: &Counters) -> Figures {
        let before = self.shown.clone();
        let bytes_done = source.bytes_done.max(before.bytes_done);
        // The counters of the other end are a little older, so either sum may be ahead.
        let bytes_written = source.bytes_skipped.saturating_add(sink.bytes_done);
        let bytes_written = bytes_written.max(bytes_done).max(before.bytes_written);
        let files_done = source.files_moved + source.files_skipped + source.files_failed;
        let files_done = files_done.max(before.files_done);
        let mut figures = Figures {
            elapsed,
            bytes_written,
            bytes_done,
            // If a file grew while it moved, more bytes may be written than were found.
            bytes_found: source.bytes_found.max(before.bytes_found).max(bytes_written),
            files_done,
            files_found: source.files_found.max(before.files_found).max(files_done),
            is_walk_ended: source.is_walk_ended || before.is_walk_ended,
            percent: None,
            bytes_per_second: 0.0,
            remaining: None,
        };
        let bytes_moved = bytes_written.saturating_sub(source.bytes_skipped).max(self.bytes_moved);
        self.take_rates(&figures, bytes_moved, source.files_moved > 0);
        figures.bytes_per_second = self.recent.per_second();
        if figures.is_walk_ended {
            figures.percent = Some(percent(&figures).max(before.percent.unwrap_or(0)));
            figures.remaining = self.remaining(&figures);
        }
        self.shown.clone_from(&figures);
        figures
    }

    /// Measures the rates. Time before the first byte or file is moved does not count: both ends
    /// connect then, and look at what the sink has already.
    fn take_rates(&mut self, figures: &Figures, bytes_moved: u64, has_moved_files: bool) {
        let step = figures.elapsed.saturating_sub(self.shown.elapsed);
        let bytes = bytes_moved - self.bytes_moved;
        let files = figures.files_done - self.shown.files_done;
        self.bytes_moved = bytes_moved;
        if self.began.is_none() {
            if bytes == 0 && !has_moved_files {
                return;
            }
            self.began = Some(self.shown.elapsed);
        }
        let moving = figures.elapsed.saturating_sub(self.began.unwrap_or_default());
        let window = moving.mul_f64(ESTIMATE_PART).max(RATE_WINDOW);
        self.recent.take(step, bytes, RATE_WINDOW);
        if moving >= RISE {
            self.bytes_rate.take(step, bytes, window);
            self.files_rate.take(step, files, window);
        }
    }

    fn remaining(&self, figures: &Figures) -> Option<Duration> {
        if figures.elapsed.saturating_sub(self.began?) < ESTIMATE_AFTER {
            return None;
        }
        let by_bytes = self.bytes_rate.time_for(figures.bytes_found - figures.bytes_written);
        let files = figures.files_found - figures.files_done;
        let by_files = if files < MANY_FILES { None } else { self.files_rate.time_for(files) };
        by_bytes.max(by_files)
    }
}

fn percent(figures: &Figures) -> u64 {
    let (done, found) = match figures.bytes_found {
        0 => (figures.files_done, figures.files_found),
        found => (figures.bytes_written, found),
    };
    let percent = u128::from(done) * 100 / u128::from(found.max(1));
    u64::try_from(percent).map_or(100, |percent| percent.min(100))
}

/// A decaying mean: an amount that is one window old weighs a third of a present one.
#[derive(Debug, Default)]
struct Rate {
    sum: f64,
    /// The weight of the samples so far; with it, the mean is right from the first sample on.
    weight: f64,
}

impl Rate {
    fn take(&mut self, step: Duration, amount: u64, window: Duration) {
        let seconds = step.as_secs_f64();
        if seconds > 0.0 {
            let share = 1.0 - (-seconds / window.as_secs_f64()).exp();
            self.sum += share * (amount as f64 / seconds - self.sum);
            self.weight += share * (1.0 - self.weight);
        }
    }

    fn per_second(&self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    /// Returns `None` if the amount would take longer than [`REMAINING_MAX`].
    fn time_for(&self, amount: u64) -> Option<Duration> {
        let seconds = amount as f64 / self.per_second().max(f64::MIN_POSITIVE);
        (seconds < REMAINING_MAX.as_secs_f64()).then(|| Duration::from_secs_f64(seconds))
    }
}

#[cfg(test)]
mod tests;
