//! For how long this process was away: stopped by Ctrl-Z or SIGSTOP, or held up by a terminal.
//!
//! A process that was away does not know what happened meanwhile, so this time is no silence of its
//! peer. A thread that looks at short, regular intervals notices it: the time since its last look
//! is far longer than the interval.

use crate::units::Instant;
use std::time::Duration;

/// A process whose look is late by more than this was away. The value is above the time that a
/// thread on a busy machine waits for its turn, and far below any sensible timeout.
pub const ABSENCE_MIN: Duration = Duration::from_secs(1);

/// A thread that looks at regular intervals.
#[derive(Clone, Copy, Debug)]
pub struct Presence {
    looked: Instant,
    gap_max: Duration,
}

impl Presence {
    /// Begins to look at this interval.
    #[must_use]
    pub fn begin(now: Instant, interval: Duration) -> Self {
        Self { looked: now, gap_max: interval + ABSENCE_MIN }
    }

    /// Looks. Returns for how long the process was away since the last look, or zero.
    #[must_use]
    pub fn look(&mut self, now: Instant) -> Duration {
        let gap = now.since(std::mem::replace(&mut self.looked, now));
        if gap > self.gap_max { gap } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_gap_between_two_looks_is_an_absence() {
        let at = |millis| Instant::after_start(Duration::from_millis(millis));
        let away = |interval: u64, looks: [u64; 5]| {
            let mut presence = Presence::begin(at(0), Duration::from_millis(interval));
            looks.map(|millis| presence.look(at(millis)).as_secs())
        };
        assert_eq!(away(50, [50, 100, 1100, 61_100, 61_150]), [0, 0, 0, 60, 0]);
        assert_eq!(away(50, [50, 1101, 1151, 1200, 3000]), [0, 1, 0, 0, 1]);
        assert_eq!(away(1000, [1001, 2003, 3900, 63_900, 65_900]), [0, 0, 0, 60, 0]);
    }
}
