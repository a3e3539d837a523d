//! How quick storage targets are from moment to moment, and the least time for what they hold.
//!
//! An OST serves one request at a time, first come first served, at the rate that it has while it
//! serves. Some are slow, others after a while. All of it follows from a seed, so that the least
//! time in which the bytes could have moved is known exactly: the fluid bound.

use crate::rng::mix;
use lads_core::units::Instant;
use std::time::Duration;

/// How much slower an OST is that is slow: a fifth of its rate.
const SLOW_FACTOR: f64 = 5.0;
/// In this many steps each OST has been slow once.
const STEPS_OF_ROUND: u64 = 8;
/// How much slower all are when all are congested.
const FULL_FACTOR: f64 = 50.0;

/// Which OSTs of an end are slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sky {
    Clear,
    /// One in eight, others after so long; none again before all have been, as between the emulated
    /// file systems.
    Moving(Duration),
    /// All of them, every other time so long.
    Full(Duration),
}

/// The OSTs of one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    pub(crate) sky: Sky,
    pub(crate) ost_count: usize,
    /// Of an OST that is not slow.
    pub(crate) bytes_per_second: f64,
}

impl Weather {
    /// When an OST that begins with this many bytes at a moment is done.
    pub(crate) fn served_at(&self, ost: usize, from: Instant, bytes: u64) -> Instant {
        let (mut at, mut left) = (from, bytes as f64);
        loop {
            let (rate, until) = (self.rate(ost, at), self.until(at));
            let can = until.map_or(f64::INFINITY, |until| rate * until.since(at).as_secs_f64());
            match until {
                Some(until) if can < left => (at, left) = (until, left - can),
                _ => return at + Duration::from_secs_f64(left / rate),
            }
        }
    }

    /// The least time in which every OST can have done what lies on it.
    pub(crate) fn bound_in_place(&self, bytes: &[u64]) -> Duration {
        let time = |(ost, bytes)| self.served_at(ost, Instant::START, bytes).since_start();
        bytes.iter().copied().enumerate().map(time).max().unwrap_or_default()
    }

    /// The least time in which this many bytes can be done by all OSTs together.
    pub(crate) fn bound_anywhere(&self, bytes: u64) -> Duration {
        let (mut at, mut left) = (Instant::START, bytes as f64);
        loop {
            let rate: f64 = (0..self.ost_count).map(|ost| self.rate(ost, at)).sum();
            match self.until(at) {
                Some(until) if rate * until.since(at).as_secs_f64() < left => {
                    left -= rate * until.since(at).as_secs_f64();
                    at = until;
                }
                _ => return at.since_start() + Duration::from_secs_f64(left / rate),
            }
        }
    }

    fn rate(&self, ost: usize, at: Instant) -> f64 {
        let factor = match self.sky {
            Sky::Clear => 1.0,
            Sky::Moving(dwell) if self.is_slow(ost, step(at, dwell)) => SLOW_FACTOR,
            Sky::Full(dwell) if step(at, dwell) % 2 == 1 => FULL_FACTOR,
            _ => 1.0,
        };
        self.bytes_per_second / factor
    }

    /// When rates may change next.
    fn until(&self, at: Instant) -> Option<Instant> {
        match self.sky {
            Sky::Clear => None,
            Sky::Moving(dwell) | Sky::Full(dwell) => {
                let next = u32::try_from(step(at, dwell) + 1).expect("a world is short");
                Some(Instant::after_start(dwell * next))
            }
        }
    }

    /// Whether it is one of those whose turn it is in the order that chance draws for each round.
    fn is_slow(&self, ost: usize, step: u64) -> bool {
        let round = step / STEPS_OF_ROUND;
        let lot = |ost: usize| mix(self.seed ^ mix(round << 16 | ost as u64));
        let own = lot(ost);
        let before = (0..self.ost_count).filter(|&other| lot(other) < own).count();
        (before as u64 * STEPS_OF_ROUND) / self.ost_count as u64 == step % STEPS_OF_ROUND
    }
}

fn step(at: Instant, dwell: Duration) -> u64 {
    let step = at.since_start().as_nanos() / dwell.as_nanos();
    u64::try_from(step).expect("a world is short")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn weather(sky: Sky) -> Weather {
        Weather { seed: 7, sky, ost_count: 8, bytes_per_second: 100.0 }
    }

    #[test]
    fn one_in_eight_is_slow_and_each_in_its_turn() {
        let weather = weather(Sky::Moving(SECOND));
        let slow = |step: u64| (0..8).filter(|&ost| weather.is_slow(ost, step)).collect::<Vec<_>>();
        let steps: Vec<_> = (0..20).map(slow).collect();
        assert!(steps.iter().all(|slow| slow.len() == 1));
        assert_ne!(steps[0..8], steps[8..16]);
        let mut round = steps[0..8].concat();
        round.sort_unstable();
        assert_eq!(round, (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_is_served_at_the_rate_of_each_moment() {
        let weather = weather(Sky::Full(SECOND));
        // A hundred bytes in the first second, two in the next, the rest in half of the third.
        let at = weather.served_at(0, Instant::START, 152);
        assert_eq!(at.since_start(), SECOND * 5 / 2);
        assert_eq!(weather.bound_in_place(&[152, 10]), SECOND * 5 / 2);
        assert_eq!(weather.bound_anywhere(8 * 152), SECOND * 5 / 2);
    }
}
