//! When a transfer that an outage has ended starts over (`--retries`, `--retry-for`), as in XDD.
//!
//! Waits are exponential: each is twice as long as the one before. The limits of the user apply to
//! one outage. An attempt that has moved something ends the outage, and the next outage may take as
//! long again.
//!
//! A failure that is not an outage repeats: the other end was reached, and the attempt ended with
//! the same message at the same point as the attempt before. After `ALIKE_MAX` such attempts in a
//! row, there is no other one.
//!
//! An attempt that failed because this process was stopped (Ctrl-Z) for longer than the other end
//! waits is repeated without limits: each needs a stop by the user.

use crate::units::Instant;
use std::time::Duration;

/// The first wait. With half of it, a host that is restarted is asked once more for nothing. With
/// the double, a line that comes back at once stays idle for a second longer.
const WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait. With half of it, hosts that are away for hours are asked twice as often. With
/// the double, up to a minute more is lost when they come back.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Maximum number of attempts in a row that fail alike. They take at least 8 s. With half, a line
/// that drops a few new connections in a row ends the transfer; double takes minutes longer to
/// report a failure that repeats.
const ALIKE_MAX: u32 = 5;

/// How often, and for how long, a user lets a transfer begin again. With neither, it never does.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The other end was lost, or could not be reached.
    Outage(Outage),
    /// The other end was lost while this process was stopped for longer than the other end waits.
    Absence,
    /// The same transfer runs already: what is left of the attempt before.
    StillRunning,
}

/// The end of an attempt that lost the other end, or did not reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outage {
    /// The reason, as the user reads it.
    pub message: String,
    /// True if the other end was reached, so that the reason may not be the network.
    pub is_reached: bool,
    /// Progress of the attempt.
    pub reached: Point,
}

/// Progress of an attempt, in files and in bytes on record at the sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Files that this attempt moved.
    pub files_moved: u64,
    /// Files that the sink had already.
    pub files_skipped: u64,
    /// Bytes on record, with those of earlier attempts.
    pub bytes_done: u64,
    /// Bytes that earlier attempts recorded.
    pub bytes_skipped: u64,
}

impl Point {
    /// Reports whether the attempt itself has moved something.
    fn has_moved(&self) -> bool {
        self.files_moved > 0 || self.bytes_done > self.bytes_skipped
    }
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
    /// The end of the last attempt that reached the other end, and the number of attempts in a row
    /// that ended so.
    alike: Option<(Outage, u32)>,
}

impl Retries {
    /// No attempt has ended yet.
    #[must_use]
    pub fn new(config: RetryConfig) -> Self {
        Self { config, attempt_count: 0, wait_count: 0, outage_began: None, alike: None }
    }

    /// An attempt has ended. Returns how long to wait before the next one; `None` if there is to be
    /// none.
    ///
    /// `jitter`, from 0 to 1, shortens the wait by up to a half, so that many clients of a host
    /// that comes back do not all return at the same moment.
    pub fn next_wait(&mut self, now: Instant, ended: Ended, jitter: f64) -> Option<Duration> {
        let RetryConfig { attempts_max, outage_max, lost_end_max } = self.config;
        let is_first = self.outage_began.is_none();
        let left = match ended {
            Ended::Absence => {
                self.begin_outage(now);
                WAIT_MAX
            }
            // It was not this command that began what is running.
            Ended::StillRunning if is_first => return None,
            Ended::StillRunning => lost_end_max.saturating_sub(self.lasted(now)),
            Ended::Outage(_) if attempts_max.is_none() && outage_max.is_none() => return None,
            Ended::Outage(outage) => {
                let has_moved = outage.reached.has_moved();
                match self.count_alike(outage) {
                    1 if has_moved => self.begin_outage(now),
                    1..ALIKE_MAX => {}
                    _ => return None,
                }
                if attempts_max.is_some_and(|most| self.attempt_count >= most) {
                    return None;
                }
                self.attempt_count += 1;
                let lasted = self.lasted(now);
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

    /// Returns the number of attempts in a row that failed alike, if that is why there is no other
    /// one.
    #[must_use]
    pub fn alike(&self) -> Option<u32> {
        let count = self.alike.as_ref().map(|(_, count)| *count);
        count.filter(|&count| count >= ALIKE_MAX)
    }

    fn begin_outage(&mut self, now: Instant) {
        (self.attempt_count, self.wait_count, self.outage_began) = (0, 0, Some(now));
    }

    /// Returns the duration of the present outage, which begins now if there is none.
    fn lasted(&mut self, now: Instant) -> Duration {
        now.since(*self.outage_began.get_or_insert(now))
    }

    /// Returns the number of attempts in a row that ended like this one.
    fn count_alike(&mut self, outage: Outage) -> u32 {
        let count = match &self.alike {
            Some((before, count)) if *before == outage => count + 1,
            _ => 1,
        };
        self.alike = outage.is_reached.then_some((outage, count));
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other end cannot be reached.
    fn unreached() -> Ended {
        Ended::Outage(Outage { message: "no route".to_owned(), ..Outage::default() })
    }

    /// The other end was lost at this point.
    fn lost(files_moved: u64, bytes_done: u64) -> Ended {
        let reached = Point { files_moved, bytes_done, ..Point::default() };
        Ended::Outage(Outage { message: "closed".to_owned(), is_reached: true, reached })
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The waits if every attempt ends so as soon as it begins; `ended` gets its number.
    fn waits(config: RetryConfig, ended: impl Fn(u64) -> Ended) -> Vec<u64> {
        let (mut retries, mut now) = (Retries::new(config), Instant::START);
        let mut number = 0;
        let next = || {
            number += 1;
            let wait = retries.next_wait(now, ended(number), 0.0)?;
            now = now + wait;
            Some(wait.as_secs())
        };
        std::iter::from_fn(next).take(100).collect()
    }

    #[test]
    fn waits_double_until_the_longest() {
        let config = RetryConfig { attempts_max: Some(9), ..RetryConfig::default() };
        assert_eq!(waits(config, |_| unreached()), [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(
            waits(config, |number| lost(number, 0)),
            [1; 100],
            "every attempt moves something"
        );
        assert_eq!(
            waits(RetryConfig::default(), |_| unreached()),
            [0; 0],
            "nobody has asked for it"
        );
    }

    #[test]
    fn the_last_attempt_begins_when_the_time_is_over() {
        let config = RetryConfig { outage_max: Some(seconds(100)), ..RetryConfig::default() };
        let waits = waits(config, |_| unreached());
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 37]);
        assert_eq!(waits.iter().sum::<u64>(), 100);
    }

    #[test]
    fn both_limits_hold() {
        let outage_max = Some(seconds(5));
        let config = RetryConfig { outage_max, attempts_max: Some(2), ..RetryConfig::default() };
        assert_eq!(waits(config, |_| unreached()), [1, 2]);
        let config = RetryConfig { attempts_max: Some(50), ..config };
        assert_eq!(waits(config, |_| unreached()), [1, 2, 2]);
    }

    #[test]
    fn what_is_left_of_the_lost_end_is_waited_for_and_not_counted() {
        let lost_end_max = seconds(60);
        let config = RetryConfig { attempts_max: Some(1), lost_end_max, outage_max: None };
        let mut retries = Retries::new(config);
        let at = |at| Instant::after_start(seconds(at));
        assert_eq!(retries.next_wait(at(0), Ended::StillRunning, 0.0), None, "not ours");

        let mut retries = Retries::new(config);
        assert_eq!(retries.next_wait(at(0), unreached(), 0.0), Some(seconds(1)));
        assert_eq!(retries.next_wait(at(1), Ended::StillRunning, 0.0), Some(seconds(2)));
        assert_eq!(retries.next_wait(at(58), Ended::StillRunning, 0.0), Some(seconds(2)));
        assert_eq!(retries.next_wait(at(61), Ended::StillRunning, 0.0), None);
        assert_eq!(retries.next_wait(at(62), unreached(), 0.0), None, "one attempt was allowed");
        assert_eq!(retries.next_wait(at(90), lost(1, 0), 0.0), Some(seconds(1)));
    }

    #[test]
    fn clients_of_one_host_do_not_return_at_the_same_moment() {
        let config = RetryConfig { attempts_max: Some(1), ..RetryConfig::default() };
        let wait =
            |jitter| Retries::new(config).next_wait(Instant::START, unreached(), jitter).unwrap();
        assert_eq!([0.0, 0.5, 1.0].map(|it| wait(it).as_millis()), [1000, 750, 500]);
    }

    #[test]
    fn a_failure_that_repeats_at_the_same_point_is_no_outage() {
        let config = RetryConfig { outage_max: Some(seconds(3600)), ..RetryConfig::default() };
        assert_eq!(waits(config, |_| lost(0, 7)), [1, 2, 4, 8]);
        assert_eq!(waits(config, |_| lost(3, 7)), [1, 2, 4, 8], "the same files each time");
        let config = RetryConfig { attempts_max: Some(2), ..RetryConfig::default() };
        assert_eq!(waits(config, |_| lost(3, 7)), [1, 2]);
    }

    #[test]
    fn outages_at_other_points_or_of_a_host_that_is_not_reached_are_retried() {
        let config = RetryConfig { outage_max: Some(seconds(3600)), ..RetryConfig::default() };
        assert!(waits(config, |_| unreached()).len() > 60);
        let by_turns = |number| if number % 4 == 0 { unreached() } else { lost(0, 0) };
        assert!(waits(config, by_turns).len() > 60);
        assert_eq!(waits(config, |number| lost(0, number % 3)).len(), 100);
    }

    #[test]
    fn an_attempt_that_ended_because_of_a_stop_is_repeated_without_being_asked_for() {
        let lost_end_max = seconds(60);
        let config = RetryConfig { lost_end_max, ..RetryConfig::default() };
        assert_eq!(waits(config, |_| Ended::Absence), [1; 100]);
        let still_running = |number| match number {
            1 => Ended::Absence,
            _ => Ended::StillRunning,
        };
        assert_eq!(waits(config, still_running).iter().sum::<u64>(), 60);
        assert_eq!(
            waits(config, |number| if number == 1 { Ended::Absence } else { lost(1, 1) }),
            [1]
        );
    }
}
