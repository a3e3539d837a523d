//! When a transfer that an outage has ended begins again by itself (`--retries`, `--retry-for`), as
//! in XDD.
//!
//! Waits are exponential: each is twice as long as the one before. What the person allows counts
//! for one outage. An attempt that has moved something ends the outage, and the next outage may
//! take as long again.

use crate::units::Instant;
use std::time::Duration;

/// The first wait. With half of it, a host that is restarted is asked once more for nothing. With
/// the double, a line that comes back at once stays idle for a second longer.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait. With half of it, hosts that are away for hours are asked twice as often. With
/// the double, up to a minute more is lost when they come back.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How often, and for how long, a person lets a transfer begin again. With neither, it never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryConfig {
    /// The most new attempts in one outage; `None`: as many as the time allows.
    pub attempts_max: Option<u32>,
    /// The longest time from the beginning of an outage to its last attempt; `None`: as long as it
    /// takes.
    pub outage_max: Option<Duration>,
    /// After an outage, the lost end may still run for this long, and does not let another attempt
    /// begin. Attempts that fail for that reason do not count.
    pub lost_end_max: Duration,
}

/// How an attempt ended that may be followed by another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other end was lost, or could not be reached.
    Outage {
        /// Whether the attempt has moved something.
        has_moved: bool,
    },
    /// The same transfer runs already: what is left of the attempt before.
    StillRunning,
}

/// The attempts so far.
#[derive(Debug)]
pub struct Retries {
    config: RetryConfig,
    /// New attempts in the present outage, those that the lost end kept out not counted.
    attempt_count: u32,
    /// Waits in the present outage.
    wait_count: u32,
    outage_began: Option<Instant>,
}

impl Retries {
    /// No attempt has ended yet.
    #[must_use]
    pub fn new(config: RetryConfig) -> Self {
        Self { config, attempt_count: 0, wait_count: 0, outage_began: None }
    }

    /// An attempt has ended. Returns how long to wait before the next one; `None` if there is to be
    /// none.
    ///
    /// `jitter`, from 0 to 1, shortens the wait by up to a half, so that many clients of a host
    /// that comes back do not all return at the same moment.
    pub fn next_wait(&mut self, now: Instant, ended: Ended, jitter: f64) -> Option<Duration> {
        let RetryConfig { attempts_max, outage_max, lost_end_max } = self.config;
        if attempts_max.is_none() && outage_max.is_none() {
            return None;
        }
        if ended == (Ended::Outage { has_moved: true }) {
            (self.attempt_count, self.wait_count, self.outage_began) = (0, 0, None);
        }
        let is_first = self.outage_began.is_none();
        let lasted = now.since(*self.outage_began.get_or_insert(now));
        let left = match ended {
            // It was not this command that began what is running.
            Ended::StillRunning if is_first => return None,
            Ended::StillRunning => lost_end_max.saturating_sub(lasted),
            Ended::Outage { .. } => {
                if attempts_max.is_some_and(|most| self.attempt_count >= most) {
                    return None;
                }
                self.attempt_count += 1;
                outage_max.map_or(WAIT_MAX, |most| most.saturating_sub(lasted))
            }
        };
        if left.is_zero() {
            return None;
        }
        let wait = WAIT_MIN.saturating_mul(1 << self.wait_count.min(16)).min(WAIT_MAX);
        self.wait_count = self.wait_count.saturating_add(1);
        Some(wait.mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0).min(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Ended = Ended::Outage { has_moved: false };
    const LOST_LATER: Ended = Ended::Outage { has_moved: true };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The waits if every attempt ends `ended` as soon as it begins.
    fn waits(config: RetryConfig, ended: Ended) -> Vec<u64> {
        let (mut retries, mut now) = (Retries::new(config), Instant::START);
        let next = || {
            let wait = retries.next_wait(now, ended, 0.0)?;
            now = now + wait;
            Some(wait.as_secs())
        };
        std::iter::from_fn(next).take(100).collect()
    }

    #[test]
    fn waits_double_until_the_longest() {
        let config = RetryConfig { attempts_max: Some(9), ..RetryConfig::default() };
        assert_eq!(waits(config, LOST), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(waits(config, LOST_LATER), [1; 100], "every attempt moves something");
        assert_eq!(waits(RetryConfig::default(), LOST), [0; 0], "nobody has asked for it");
    }

    #[test]
    fn the_last_attempt_begins_when_the_time_is_over() {
        let config = RetryConfig { outage_max: Some(seconds(100)), ..RetryConfig::default() };
        let waits = waits(config, LOST);
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 37]);
        assert_eq!(waits.iter().sum::<u64>(), 100);
    }

    #[test]
    fn both_limits_hold() {
        let outage_max = Some(seconds(5));
        let config = RetryConfig { outage_max, attempts_max: Some(2), ..RetryConfig::default() };
        assert_eq!(waits(config, LOST), [1, 2]);
        let config = RetryConfig { attempts_max: Some(50), ..config };
        assert_eq!(waits(config, LOST), [1, 2, 2]);
    }

    #[test]
    fn what_is_left_of_the_lost_end_is_waited_for_and_not_counted() {
        let lost_end_max = seconds(60);
        let config = RetryConfig { attempts_max: Some(1), lost_end_max, outage_max: None };
        let mut retries = Retries::new(config);
        let at = |at| Instant::after_start(seconds(at));
        assert_eq!(retries.next_wait(at(0), Ended::StillRunning, 0.0), None, "not ours");

        let mut retries = Retries::new(config);
        assert_eq!(retries.next_wait(at(0), LOST, 0.0), Some(seconds(1)));
        assert_eq!(retries.next_wait(at(1), Ended::StillRunning, 0.0), Some(seconds(2)));
        assert_eq!(retries.next_wait(at(58), Ended::StillRunning, 0.0), Some(seconds(2)));
        assert_eq!(retries.next_wait(at(61), Ended::StillRunning, 0.0), None);
        assert_eq!(retries.next_wait(at(62), LOST, 0.0), None, "one attempt was allowed");
        assert_eq!(retries.next_wait(at(90), LOST_LATER, 0.0), Some(seconds(1)));
    }

    #[test]
    fn clients_of_one_host_do_not_return_at_the_same_moment() {
        let config = RetryConfig { attempts_max: Some(1), ..RetryConfig::default() };
        let wait = |jitter| Retries::new(config).next_wait(Instant::START, LOST, jitter).unwrap();
        assert_eq!([0.0, 0.5, 1.0].map(|it| wait(it).as_millis()), [1000, 750, 500]);
    }
}
