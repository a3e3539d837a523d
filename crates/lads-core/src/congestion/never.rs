//! No OST is ever congested.

use super::{Judge, Verdict};
use crate::units::{Instant, OstId};
use std::time::Duration;

/// Calls no OST slow; it only says how many requests each OST should have.
#[derive(Debug)]
pub(super) struct Never {
    in_flight_max: Vec<u32>,
}

impl Never {
    pub(super) fn new(in_flight_max: Vec<u32>) -> Self {
        Self { in_flight_max }
    }
}

impl Judge for Never {
    fn spare(&mut self) {}

    fn on_start(&mut self, _ost: OstId, _now: Instant, _bytes: u64) {}

    fn on_finish(&mut self, _ost: OstId, _now: Instant, _bytes: u64, _service: Duration) {}

    fn verdict(&mut self, _ost: OstId, _now: Instant) -> Verdict {
        Verdict::Clear
    }

    fn is_congested(&self, _ost: OstId) -> bool {
        false
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
