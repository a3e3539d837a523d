//! Records the counters of both ends while a transfer runs, as the displays of `lads cp` get them.

use lads_core::message::Counters;
use lads_core::units::Instant;
use std::time::Duration;

/// Time between two samples: that of the engine.
const INTERVAL: Duration = Duration::from_millis(100);

/// The counters of both ends at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Time since the transfer began.
    pub elapsed: Duration,
    /// Counters of the source.
    pub source: Counters,
    /// Counters of the sink.
    pub sink: Counters,
}

/// Collects samples.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    samples: Vec<Sample>,
    next_at: Instant,
    /// Counters after the last step: nothing changes between two steps.
    last: (Counters, Counters),
}

impl Recorder {
    /// Takes the samples that were due before a step, which has led to these counters.
    pub(crate) fn on_step(&mut self, now: Instant, source: &Counters, sink: &Counters) {
        while self.next_at <= now {
            let (at, (source, sink)) = (self.next_at, self.last.clone());
            self.take(at, &source, &sink);
            self.next_at = at + INTERVAL;
        }
        self.last = (source.clone(), sink.clone());
    }

    /// Takes a sample.
    pub(crate) fn take(&mut self, now: Instant, source: &Counters, sink: &Counters) {
        let (elapsed, source, sink) = (now.since_start(), source.clone(), sink.clone());
        self.samples.push(Sample { elapsed, source, sink });
    }

    pub(crate) fn into_samples(self) -> Vec<Sample> {
        self.samples
    }
}
