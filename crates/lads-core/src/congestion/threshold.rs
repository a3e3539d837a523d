//! The papers' rule (LADS, FAST '15, section 3.4): an OST is congested if its mean service time is
//! above a given limit.
//!
//! The rule keeps a mean and says how often to skip an OST. It knows neither how slow an OST is nor
//! for how long. So files are placed as if all OSTs were equally fast.

use super::{Judge, Verdict};
use crate::units::{Instant, OstId};
use std::time::Duration;

/// The papers' rule: if the mean service time of the last `window` requests is above `limit`, the
/// next `skips` threads skip the OST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Requests whose mean is taken (W); at least one.
    pub window: u32,
    /// The longest mean service time of an OST that is not congested, in microseconds for 1 MiB
    /// (T).
    pub limit_micros: u32,
    /// Threads that skip a congested OST (M).
    pub skips: u32,
}

impl Default for Threshold {
    /// As published: 40 requests, 50 ms, 16 threads.
    fn default() -> Self {
        Self { window: 40, limit_micros: 50_000, skips: 16 }
    }
}

/// Judges OSTs by a [`Threshold`].
#[derive(Debug)]
pub(super) struct ByThreshold {
    threshold: Threshold,
    osts: Vec<Mean>,
    in_flight_max: Vec<u32>,
}

/// The requests and service time since the last mean, and the skips that are left.
#[derive(Clone, Debug, Default)]
struct Mean {
    count: u32,
    sum: Duration,
    skips: u32,
}

impl ByThreshold {
    pub(super) fn new(threshold: Threshold, in_flight_max: Vec<u32>) -> Self {
        Self { threshold, osts: vec![Mean::default(); in_flight_max.len()], in_flight_max }
    }
}

impl Judge for ByThreshold {
    /// Does nothing: this rule cannot tell how many requests keep an OST busy.
    fn spare(&mut self) {}

    fn on_start(&mut self, _ost: OstId, _now: Instant, _bytes: u64) {}

    fn on_finish(&mut self, ost: OstId, _now: Instant, bytes: u64, service: Duration) {
        self.osts[ost.index()].on_finish(self.threshold, bytes, service);
    }

    /// A thread that is told [`Verdict::Congested`] has skipped the OST once.
    fn verdict(&mut self, ost: OstId, _now: Instant) -> Verdict {
        self.osts[ost.index()].verdict()
    }

    fn is_congested(&self, ost: OstId) -> bool {
        self.osts[ost.index()].skips > 0
    }

    fn is_calm(&self, _now: Instant) -> bool {
        true
    }

    fn window(&self, ost: OstId) -> u32 {
        self.in_flight_max[ost.index()]
    }

    fn slowness(&self, _ost: OstId) -> f64 {
        1.0
    }

    fn slowness_recent(&self, _ost: OstId) -> f64 {
        1.0
    }

    fn slowness_expected(&self, _ost: OstId, _now: Instant) -> f64 {
        1.0
    }

    fn slow_for(&self, _ost: OstId, _now: Instant) -> Duration {
        Duration::ZERO
    }
}

impl Mean {
    fn on_finish(&mut self, rule: Threshold, bytes: u64, service: Duration) {
        // A request shorter than 1 MiB is not scaled up to 1 MiB.
        let mebibytes = (bytes as f64 / f64::from(1 << 20)).max(1.0);
        self.sum += service.div_f64(mebibytes);
        self.count += 1;
        if self.count >= rule.window.max(1) {
            if self.sum / self.count > Duration::from_micros(rule.limit_micros.into()) {
                self.skips = rule.skips;
            }
            (self.count, self.sum) = (0, Duration::ZERO);
        }
    }

    fn verdict(&mut self) -> Verdict {
        match self.skips {
            0 => Verdict::Clear,
            _ => {
                self.skips -= 1;
                Verdict::Congested
            }
        }
    }
}
