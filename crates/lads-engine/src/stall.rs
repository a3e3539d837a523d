//! Whether a transfer still moves.
//!
//! A dead peer is silent, and is noticed by that. A peer that hangs in a call to storage, has a bug
//! or means harm may send heartbeats and do nothing else. It would hold a transfer forever. So
//! each end checks that something moves: a message that says more than that the other end is alive,
//! bytes on a data stream, or a step of its own.

use crate::job::Options;
use lads_core::absence::ABSENCE_MIN;
use lads_core::units::Instant;
use std::time::Duration;

/// For how long nothing has moved.
#[derive(Debug)]
pub(crate) struct Stall {
    /// How long nothing may move; `None` for no limit.
    limit: Option<Duration>,
    moves: u64,
    looked: Instant,
    still: Duration,
}

impl Stall {
    pub(crate) fn new(options: &Options, now: Instant) -> Self {
        Self { limit: limit(options), moves: 0, looked: now, still: Duration::ZERO }
    }

    /// Notes that the peer is stopped, so that nothing can move.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.looked = now;
    }

    /// Looks at a number that changes whenever something moves. If it has not changed for too long,
    /// returns for how long.
    pub(crate) fn look(&mut self, now: Instant, moves: u64) -> Option<Duration> {
        let absence = now.since(self.looked);
        self.looked = now;
        if moves == self.moves {
            // After an absence, it is not known what moved meanwhile.
            self.still += absence.min(ABSENCE_MIN);
        } else {
            (self.moves, self.still) = (moves, Duration::ZERO);
        }
        let limit = self.limit?;
        (self.still >= limit).then_some(self.still)
    }
}

/// The limit of the options, plus the time in which a rate limit lets no block through.
fn limit(options: &Options) -> Option<Duration> {
    if options.stall_timeout_seconds == 0 {
        return None;
    }
    let block_seconds = match options.bytes_per_second {
        0 => 0,
        rate => u64::from(options.block_size).div_ceil(rate),
    };
    Some(Duration::from_secs(u64::from(options.stall_timeout_seconds) + block_seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::after_start(Duration::from_secs(seconds))
    }

    fn options(stall_timeout_seconds: u32) -> Options {
        Options { stall_timeout_seconds, ..Options::default() }
    }

    #[test]
    fn nothing_that_moves_for_the_limit_is_too_long() {
        let mut stall = Stall::new(&options(5), at(0));
        assert_eq!((1..5).find_map(|second| stall.look(at(second), 0)), None);
        assert_eq!(stall.look(at(5), 0), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_move_begins_the_time_anew() {
        let mut stall = Stall::new(&options(5), at(0));
        assert_eq!((1..100).find_map(|second| stall.look(at(second), second / 4)), None);
    }

    #[test]
    fn a_process_that_was_away_counts_little_of_that_time() {
        let mut stall = Stall::new(&options(5), at(0));
        assert_eq!(stall.look(at(1000), 0), None);
        assert_eq!((1001..1004).find_map(|second| stall.look(at(second), 0)), None);
        assert_eq!(stall.look(at(1004), 0), Some(Duration::from_secs(5)));
    }

    #[test]
    fn zero_is_for_ever() {
        let mut stall = Stall::new(&options(0), at(0));
        assert_eq!((1..10_000).find_map(|second| stall.look(at(second), 0)), None);
    }

    #[test]
    fn a_limited_rate_gives_a_block_its_time() {
        let slow = Options { bytes_per_second: 1000, block_size: 1 << 20, ..options(5) };
        let mut stall = Stall::new(&slow, at(0));
        assert_eq!((1..5 + 1049).find_map(|second| stall.look(at(second), 0)), None);
        assert!(stall.look(at(5 + 1049), 0).is_some());
    }
}
