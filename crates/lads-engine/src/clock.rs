//! The transfer's own clock.

use lads_core::units::Instant;
use std::time::Duration;

/// Interval between two looks of the watching thread.
pub(crate) const TICK: Duration = Duration::from_millis(50);

/// Counts from the moment when it was started. It never goes back, whatever the wall clock does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::after_start(self.start.elapsed())
    }
}
