//! When the next bytes may be sent, if the user set a limit (`--bwlimit`).

use crate::tuning::Tuning;
use crate::units::Instant;
use std::time::Duration;

/// A limit in bytes per second. Bytes may go up to [`Tuning::pace_slack`] early.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    slack: Duration,
    /// When everything that was sent so far would have been sent at exactly the limit.
    paid_until: Instant,
}

impl Pace {
    /// A limit; `None` if `bytes_per_second` is `None` or zero.
    #[must_use]
    pub fn new(bytes_per_second: Option<u64>, tuning: &Tuning) -> Option<Self> {
        let bytes_per_second = bytes_per_second.filter(|&limit| limit > 0)?;
        Some(Self { bytes_per_second, slack: tuning.pace_slack, paid_until: Instant::START })
    }

    /// The moment from which the next bytes may be sent. If it has passed, they may be sent at
    /// once.
    #[must_use]
    pub fn ready_at(&self) -> Instant {
        Instant::after_start(self.paid_until.since_start().saturating_sub(self.slack))
    }

    /// This many bytes are sent now.
    pub fn on_sent(&mut self, now: Instant, bytes: u64) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.paid_until = self.paid_until.max(now) + cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lets_through_what_the_limit_allows() {
        let mut pace = Pace::new(Some(10 << 20), &Tuning::DEFAULT).unwrap();
        let mut now = Instant::START;
        let mut sent = 0u64;
        while now < Instant::after_start(Duration::from_secs(10)) {
            if pace.ready_at() <= now {
                pace.on_sent(now, 1 << 20);
                sent += 1 << 20;
            }
            now = now + Duration::from_millis(1);
        }
        assert!((100 << 20..=103 << 20).contains(&sent), "{sent}");
    }
}
