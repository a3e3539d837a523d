//! The progress of a transfer, in one line.

use lads_core::bottleneck::Bottleneck;
use lads_core::progress::{Figures, Meter};
use lads_core::sizes;
use lads_core::text::escape;
use lads_engine::{Progress, Waiting};
use std::time::Duration;

/// The text between two parts of a line.
const PART_DISTANCE: &str = "  ";

/// With fewer columns than this, the end of a path does not tell one file from another.
const CURRENT_COLUMNS_MIN: usize = 12;

/// Figures of the progress line at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shown {
    pub(super) figures: Figures,
    /// The slowest part, which holds up the others.
    pub(super) bottleneck: Option<Bottleneck>,
    /// The path of a file that is being moved, or was moved last.
    pub(super) current: Option<Vec<u8>>,
}

/// Follows a transfer.
#[derive(Debug, Default)]
pub(super) struct Follower {
    meter: Meter,
    current: Option<Vec<u8>>,
}

impl Follower {
    /// Takes the present counters; returns what to show.
    pub(super) fn take(&mut self, progress: &Progress) -> Shown {
        let figures = self.meter.take(progress.elapsed, &progress.source, &progress.sink);
        if progress.current.is_some() {
            self.current.clone_from(&progress.current);
        }
        Shown { figures, bottleneck: progress.bottleneck, current: self.current.clone() }
    }
}

/// Returns a line with the time waited so far, its limit, and what is waited for.
pub(super) fn waiting(waiting: &Waiting) -> String {
    let whole = |time: Duration| match time.as_secs() {
        seconds @ ..60 => format!("{seconds} s"),
        seconds => sizes::span(Duration::from_secs(seconds)),
    };
    let (elapsed, limit) = (whole(waiting.elapsed), whole(waiting.limit));
    format!("waited {elapsed} (at most {limit}) for {}", escape(waiting.what.as_bytes()))
}

impl Shown {
    /// Returns one line, no wider than this. The least important parts are left out first.
    pub(super) fn line(&self, columns: usize) -> String {
        let figures = &self.figures;
        // Each part has a rank; the highest rank is left out first.
        let mut parts = vec![
            (0, self.bytes_part()),
            (4, self.files_part()),
            (1, sizes::rate(figures.bytes_per_second)),
            (3, sizes::clock(figures.elapsed)),
        ];
        let remaining = figures.remaining.map(|it| format!("{} left", sizes::clock(it)));
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
        let Figures { bytes_written, bytes_found, percent, .. } = self.figures;
        let (done, found) = (sizes::bytes(bytes_written), sizes::bytes(bytes_found));
        match percent {
            Some(percent) => format!("{percent:3}%  {done} of {found}"),
            None => format!("{done} of {found}, scanning…"),
        }
    }

    fn files_part(&self) -> String {
        let Figures { files_done, files_found, .. } = self.figures;
        format!("{} of {}", sizes::count(files_done), super::changes::entries(files_found))
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
