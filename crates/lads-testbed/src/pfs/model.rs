//! The state of the storage targets at a moment: queues, rates, congestion, and their history.
//!
//! The rate of an OST is the one that was set, unless congestion slows it. There is no clock here:
//! time is an argument, the same as in the records.

use super::congestion::{Congestion, Pattern};
use super::queues::{Piece, Queues, Rate, Tally, Ticket};
use serde::Serialize;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::time::Duration;

/// The time between two samples of the record.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// The most entries of the record, so that it does not grow without limit; the oldest are dropped
/// first. With samples alone, this is an hour and a half.
const RECORD_LENGTH_MAX: usize = 54_000;

/// All storage targets.
pub(super) struct Model {
    queues: Queues,
    /// The rates that hold without congestion.
    own_rates: Vec<Rate>,
    congestion: Option<Running>,
    record: VecDeque<Entry>,
    next_sample: Option<Duration>,
}

/// Congestion that is in progress.
struct Running {
    began: Duration,
    /// The rate of a slow OST, in bytes per second.
    rate: u64,
    changes: Peekable<Congestion>,
    slow: Vec<usize>,
}

/// An event in the history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Entry {
    /// Seconds on `CLOCK_MONOTONIC`.
    t: f64,
    #[serde(flatten)]
    what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum What {
    Rate {
        ost: usize,
        rate_bytes_per_second: Rate,
    },
    OssRate {
        oss: usize,
        rate_bytes_per_second: Rate,
    },
    /// For each OST: bytes read and bytes written since the reset, and the number of waiting
    /// pieces.
    Sample {
        osts: Vec<(u64, u64, usize)>,
    },
}

impl Model {
    /// Makes idle OSTs without limits and latency; `oss_of` names the OSS of each.
    pub(super) fn new(oss_of: &[usize], seed: u64, now: Duration) -> Self {
        let mut model = Self {
            queues: Queues::new(oss_of, seed, now),
            own_rates: vec![None; oss_of.len()],
            congestion: None,
            record: VecDeque::new(),
            next_sample: None,
        };
        model.reset();
        model
    }

    /// Lets time pass until `now`; appends the pieces that ended, in order.
    pub(super) fn advance(&mut self, now: Duration, ended: &mut Vec<Ticket>) {
        while let Some(at) = self.next_event().filter(|at| *at <= now) {
            self.queues.advance(at, ended);
            self.change_if_due(at);
            self.sample_if_due(at);
        }
        self.queues.advance(now, ended);
    }

    /// Returns when [`Self::advance`] next has something to do.
    pub(super) fn next_timeout(&mut self) -> Option<Duration> {
        self.next_event().into_iter().chain(self.queues.next_timeout()).min()
    }

    /// See [`Queues::submit`].
    pub(super) fn submit(&mut self, ost: usize, piece: Piece) -> bool {
        self.queues.submit(ost, piece)
    }

    /// See [`Queues::abandon`].
    pub(super) fn abandon(&mut self, ost: usize) -> Vec<Ticket> {
        self.queues.abandon(ost)
    }

    /// Sets the rate that an OST has without congestion.
    pub(super) fn set_rate(&mut self, ost: usize, rate: Rate) {
        self.own_rates[ost] = rate;
        self.apply(ost);
    }

    /// Sets the rate that all OSTs of an OSS share.
    pub(super) fn set_oss_rate(&mut self, oss: usize, rate: Rate) {
        self.queues.set_oss_rate(oss, rate);
        self.note(What::OssRate { oss, rate_bytes_per_second: rate });
    }

    /// See [`Queues::set_seek`].
    pub(super) fn set_seek(&mut self, ost: usize, seek: Duration) {
        self.queues.set_seek(ost, seek);
    }

    /// See [`Queues::set_latency`].
    pub(super) fn set_latency(&mut self, ost: usize, latency: Duration) {
        self.queues.set_latency(ost, latency);
    }

    /// See [`Queues::set_jitter`].
    pub(super) fn set_jitter(&mut self, ost: usize, jitter: Duration) {
        self.queues.set_jitter(ost, jitter);
    }

    /// Begins congestion and ends any earlier one. A slow OST moves `rate` bytes per second.
    pub(super) fn congest(&mut self, pattern: Pattern, rate: u64, seed: u64) {
        self.end_congestion();
        let (began, ost_count) = (self.queues.now(), self.queues.ost_count());
        let changes = Congestion::new(pattern, ost_count, seed).peekable();
        self.congestion = Some(Running { began, rate, changes, slow: Vec::new() });
        self.change_if_due(began);
    }

    /// Ends congestion, if there is any.
    pub(super) fn end_congestion(&mut self) {
        for ost in self.congestion.take().map_or_else(Vec::new, |it| it.slow) {
            self.apply(ost);
        }
    }

    /// Starts or stops taking samples.
    pub(super) fn set_sampling(&mut self, is_on: bool) {
        self.next_sample = is_on.then_some(self.queues.now());
        self.sample_if_due(self.queues.now());
    }

    /// Clears all counts and the record. The new record begins with the present rates.
    pub(super) fn reset(&mut self) {
        self.queues.reset_tallies();
        self.record.clear();
        for ost in 0..self.queues.ost_count() {
            let rate_bytes_per_second = self.queues.rate(ost);
            self.note(What::Rate { ost, rate_bytes_per_second });
        }
        for oss in 0..self.queues.oss_count() {
            let rate_bytes_per_second = self.queues.oss_rate(oss);
            self.note(What::OssRate { oss, rate_bytes_per_second });
        }
    }

    /// Returns the record since the last reset.
    pub(super) fn record(&self) -> impl Iterator<Item = &Entry> {
        self.record.iter()
    }

    /// Returns the queues, to read.
    pub(super) fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Returns the counts of an OST since the last reset.
    pub(super) fn tally(&self, ost: usize) -> Tally {
        self.queues.tally(ost)
    }

    fn next_event(&mut self) -> Option<Duration> {
        let change = self.congestion.as_mut().and_then(Running::next_change);
        change.into_iter().chain(self.next_sample).min()
    }

    fn change_if_due(&mut self, now: Duration) {
        let Some(running) = &mut self.congestion else { return };
        if running.next_change().is_none_or(|at| at > now) {
            return;
        }
        let slow = running.changes.next().map_or_else(Vec::new, |change| change.slow);
        let before = std::mem::replace(&mut running.slow, slow.clone());
        for ost in before.iter().filter(|ost| !slow.contains(ost)) {
            self.apply(*ost);
        }
        for ost in slow.into_iter().filter(|ost| !before.contains(ost)) {
            self.apply(ost);
        }
    }

    fn sample_if_due(&mut self, now: Duration) {
        let Some(at) = self.next_sample.filter(|at| *at <= now) else { return };
        self.next_sample = Some(at + SAMPLE_EVERY);
        let sample = |ost| {
            let tally = self.queues.tally(ost);
            (tally.read_bytes, tally.written_bytes, self.queues.queued(ost))
        };
        let osts = (0..self.queues.ost_count()).map(sample).collect();
        self.note(What::Sample { osts });
    }

    /// Sets an OST's rate in the queues to its own rate or that of the congestion.
    fn apply(&mut self, ost: usize) {
        let congestion = self.congestion.as_ref().filter(|it| it.slow.contains(&ost));
        let rate = congestion.map_or(self.own_rates[ost], |it| Some(it.rate));
        if self.queues.rate(ost) != rate {
            self.queues.set_rate(ost, rate);
            self.note(What::Rate { ost, rate_bytes_per_second: rate });
        }
    }

    fn note(&mut self, what: What) {
        if self.record.len() == RECORD_LENGTH_MAX {
            self.record.pop_front();
        }
        self.record.push_back(Entry { t: self.queues.now().as_secs_f64(), what });
    }
}

impl Running {
    fn next_change(&mut self) -> Option<Duration> {
        self.changes.peek().map(|change| self.began + change.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pfs::queues::{Direction, Start};

    const SECOND: Duration = Duration::from_secs(1);

    fn model() -> Model {
        let mut model = Model::new(&[0, 0, 1, 1], 1, Duration::ZERO);
        for ost in 0..4 {
            model.set_rate(ost, Some(1000));
        }
        model.reset();
        model
    }

    fn advance(model: &mut Model, now: Duration) -> Vec<Ticket> {
        let mut ended = Vec::new();
        model.advance(now, &mut ended);
        ended
    }

    fn rates(model: &Model) -> Vec<Rate> {
        (0..4).map(|ost| model.queues.rate(ost)).collect()
    }

    fn lines(model: &Model) -> Vec<String> {
        model.record().map(|entry| serde_json::to_string(entry).unwrap()).collect()
    }

    const START: Start = Start { file: 1, offset: 0 };

    #[test]
    fn congestion_slows_osts_and_gives_them_their_own_rate_back() {
        let mut model = model();
        model.congest(Pattern::Fixed(vec![1, 2]), 10, 1);
        assert_eq!(rates(&model), [Some(1000), Some(10), Some(10), Some(1000)]);
        model.set_rate(2, Some(500));
        assert_eq!(rates(&model)[2], Some(10));
        model.end_congestion();
        assert_eq!(rates(&model), [Some(1000), Some(1000), Some(500), Some(1000)]);
    }

    #[test]
    fn congestion_that_moves_takes_effect_when_it_does_not_when_somebody_looks() {
        let mut model = model();
        model.congest(Pattern::Moving { count: 1, dwell: SECOND }, 0, 3);
        let slow = rates(&model).iter().position(|rate| *rate == Some(0)).unwrap();
        let piece = Piece { ticket: 9, bytes: 1000, direction: Direction::Read, start: START };
        model.submit(slow, piece);
        assert!(advance(&mut model, Duration::from_millis(1999)).is_empty());
        assert_eq!(advance(&mut model, Duration::from_millis(2001)), [9]);
    }

    #[test]
    fn congestion_begins_anew_when_told_again() {
        let mut model = model();
        let pattern = Pattern::Moving { count: 1, dwell: SECOND };
        model.congest(pattern.clone(), 10, 3);
        let first = rates(&model);
        advance(&mut model, SECOND);
        assert_ne!(rates(&model), first);
        model.congest(pattern, 10, 3);
        assert_eq!(rates(&model), first);
    }

    #[test]
    fn the_record_begins_with_the_rates_and_has_every_change() {
        let mut model = model();
        assert_eq!(model.record().count(), 6);
        advance(&mut model, SECOND);
        model.set_rate(3, None);
        model.set_oss_rate(1, Some(7));
        assert_eq!(
            lines(&model)[6..],
            [
                r#"{"t":1.0,"event":"rate","ost":3,"rate_bytes_per_second":null}"#,
                r#"{"t":1.0,"event":"oss-rate","oss":1,"rate_bytes_per_second":7}"#,
            ]
        );
    }

    #[test]
    fn samples_come_every_tenth_of_a_second() {
        let mut model = model();
        model.set_sampling(true);
        let piece = Piece { ticket: 1, bytes: 50, direction: Direction::Write, start: START };
        model.submit(1, piece);
        model.submit(1, Piece { ticket: 2, ..piece });
        advance(&mut model, Duration::from_millis(120));
        model.set_sampling(false);
        advance(&mut model, SECOND);
        assert_eq!(
            lines(&model)[6..],
            [
                r#"{"t":0.0,"event":"sample","osts":[[0,0,0],[0,0,0],[0,0,0],[0,0,0]]}"#,
                r#"{"t":0.1,"event":"sample","osts":[[0,0,0],[0,50,0],[0,0,0],[0,0,0]]}"#,
            ]
        );
    }
}
