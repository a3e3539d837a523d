//! How quick storage targets are from moment to moment, and the least time for what they hold.
//!
//! An OST serves one request at a time, first come first served, at the rate that it has while it
//! serves. Some are slow, others after a while. Where OSTs share a server, what is asked of them
//! goes through it first, one request after the other, at the rate that it has. All of it follows
//! from a seed, so that the least time in which the bytes could have moved is known: the fluid
//! bound.

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

/// What servers can do, beside the sum of what their OSTs can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Servers {
    /// They are never what limits.
    Unlimited,
    /// Half of it.
    Half,
    /// Twice as much; but one has a fifth of it, others after so long.
    OneSlow(Duration),
}

/// The OSTs of one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) seed: u64,
    pub(crate) sky: Sky,
    pub(crate) ost_count: usize,
    /// Of an OST that is not slow.
    pub(crate) bytes_per_second: f64,
    pub(crate) servers: Servers,
}

/// Of what a server has let through, this much may wait for each of its OSTs, in bytes: as many
/// requests of 1 MiB as an OST may have.
const WAITING_BYTES_MAX: f64 = (4 << 20) as f64;

/// Servers of an end; OSTs go round them, as administrators of Lustre have it.
pub(crate) const SERVER_COUNT: usize = 4;

/// The server of an OST.
pub(crate) fn server_of(ost: usize) -> usize {
    ost % SERVER_COUNT
}

impl Weather {
    /// When an OST that begins with this many bytes at a moment is done.
    pub(crate) fn served_at(&self, ost: usize, from: Instant, bytes: u64) -> Instant {
        self.done_at(from, bytes, |at| self.rate(ost, at))
    }

    /// When a server has let this many bytes through that begins with them at a moment; at once if
    /// servers are not what limits.
    pub(crate) fn let_through_at(&self, server: usize, from: Instant, bytes: u64) -> Instant {
        match self.servers {
            Servers::Unlimited => from,
            _ => self.done_at(from, bytes, |at| self.server_rate(server, at)),
        }
    }

    /// The least time in which every OST, and every server, can have done what lies on it.
    pub(crate) fn bound_in_place(&self, bytes: &[u64]) -> Duration {
        let time = |(ost, bytes)| self.served_at(ost, Instant::START, bytes).since_start();
        let by_osts = bytes.iter().copied().enumerate().map(time).max().unwrap_or_default();
        let of_server = |server| {
            let osts = bytes.iter().enumerate().filter(|(ost, _)| server_of(*ost) == server);
            let bytes: u64 = osts.map(|(_, bytes)| bytes).sum();
            earliest(|at| self.bytes_through(server, at) >= bytes as f64)
        };
        let by_servers = match self.servers {
            Servers::Unlimited => Duration::ZERO,
            _ => (0..SERVER_COUNT).map(of_server).max().unwrap_or_default(),
        };
        by_osts.max(by_servers)
    }

    /// The least time in which this many bytes can be done by all OSTs together.
    pub(crate) fn bound_anywhere(&self, bytes: u64) -> Duration {
        if self.servers != Servers::Unlimited {
            let all = |at| (0..SERVER_COUNT).map(|it| self.bytes_through(it, at)).sum::<f64>();
            return earliest(|at| all(at) >= bytes as f64);
        }
        let rate = |at| (0..self.ost_count).map(|ost| self.rate(ost, at)).sum();
        self.done_at(Instant::START, bytes, rate).since_start()
    }

    /// When this many bytes are done that begin at a moment, at a rate that changes.
    fn done_at(&self, from: Instant, bytes: u64, rate: impl Fn(Instant) -> f64) -> Instant {
        let (mut at, mut left) = (from, bytes as f64);
        loop {
            let (rate, until) = (rate(at), self.until(at));
            let can = until.map_or(f64::INFINITY, |until| rate * until.since(at).as_secs_f64());
            match until {
                Some(until) if can < left => (at, left) = (until, left - can),
                _ => return at + Duration::from_secs_f64(left / rate),
            }
        }
    }

    /// What a server can do at a moment.
    fn server_rate(&self, server: usize, at: Instant) -> f64 {
        let osts = (0..self.ost_count).filter(|&ost| server_of(ost) == server).count();
        let all = self.bytes_per_second * osts as f64;
        match self.servers {
            Servers::Unlimited => f64::INFINITY,
            Servers::Half => all / 2.0,
            Servers::OneSlow(dwell) if self.is_slow_server(server, step(at, dwell)) => {
                all / SLOW_FACTOR
            }
            Servers::OneSlow(_) => all * 2.0,
        }
    }

    /// What the OSTs of a server can have done by a moment, in bytes, if they always have enough to
    /// do. What the server has let through waits for them, up to [`WAITING_BYTES_MAX`] for each.
    fn bytes_through(&self, server: usize, until: Instant) -> f64 {
        let osts = || (0..self.ost_count).filter(move |&ost| server_of(ost) == server);
        let waiting_max = WAITING_BYTES_MAX * osts().count() as f64;
        let (mut at, mut done, mut waiting) = (Instant::START, 0.0, 0.0);
        while at < until {
            let (of_server, of_osts) =
                (self.server_rate(server, at), osts().map(|ost| self.rate(ost, at)).sum::<f64>());
            let next = self.until(at).map_or(until, |next| next.min(until));
            let seconds = next.since(at).as_secs_f64();
            // What waits grows or shrinks, until it is all there may be, or nothing.
            let net = of_server - of_osts;
            let changes = if net > 0.0 { (waiting_max - waiting) / net } else { waiting / -net };
            let changes_for = if net == 0.0 { seconds } else { changes.clamp(0.0, seconds) };
            let rate_then = of_osts.min(of_server);
            done += of_osts * changes_for + rate_then * (seconds - changes_for);
            waiting = (waiting + net * changes_for).clamp(0.0, waiting_max);
            at = next;
        }
        done
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
        let of_osts = match self.sky {
            Sky::Clear => None,
            Sky::Moving(dwell) | Sky::Full(dwell) => Some(dwell),
        };
        let of_servers = match self.servers {
            Servers::Unlimited | Servers::Half => None,
            Servers::OneSlow(dwell) => Some(dwell),
        };
        let next = |dwell| {
            let next = u32::try_from(step(at, dwell) + 1).expect("a world is short");
            Instant::after_start(dwell * next)
        };
        of_osts.into_iter().chain(of_servers).map(next).min()
    }

    /// Whether it is the one whose turn it is, in the order that chance draws for each round.
    fn is_slow_server(&self, server: usize, step: u64) -> bool {
        let count = SERVER_COUNT as u64;
        let round = step / count;
        let lot = |server: usize| mix(self.seed ^ mix(!round << 16 | server as u64));
        let before = (0..SERVER_COUNT).filter(|&other| lot(other) < lot(server)).count();
        before as u64 == step % count
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

/// The earliest moment at which something is so, to a microsecond, if it stays so.
fn earliest(is_so: impl Fn(Instant) -> bool) -> Duration {
    let mut late = Duration::from_micros(1);
    while !is_so(Instant::after_start(late)) {
        late *= 2;
    }
    let mut early = late / 2;
    while late - early > Duration::from_micros(1) {
        let middle = (early + late) / 2;
        if is_so(Instant::after_start(middle)) {
            late = middle;
        } else {
            early = middle;
        }
    }
    late
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
        let servers = Servers::Unlimited;
        Weather { seed: 7, sky, ost_count: 8, bytes_per_second: 100.0, servers }
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

    #[test]
    fn a_server_that_can_do_half_holds_its_osts_back() {
        let weather = Weather { servers: Servers::Half, ..weather(Sky::Clear) };
        // Two OSTs of 100 bytes a second each have 100 between them.
        assert!(is_about(weather.bound_anywhere(8 * 100), SECOND * 2));
        assert!(is_about(weather.bound_in_place(&[100; 8]), SECOND * 2));
        assert!(is_about(weather.bound_in_place(&[100, 0, 0, 0, 0, 0, 0, 0]), SECOND));
        assert_eq!(weather.let_through_at(0, Instant::START, 50).since_start(), SECOND / 2);
    }

    #[test]
    fn one_server_is_slow_and_each_in_its_turn() {
        let weather = Weather { servers: Servers::OneSlow(SECOND), ..weather(Sky::Clear) };
        let at = |step| Instant::after_start(SECOND * step);
        let is_slow = |server, step| weather.server_rate(server, at(step)) < 50.0;
        for round in [0, 4_u32] {
            let slow = |step| (0..SERVER_COUNT).filter(move |&it| is_slow(it, round + step));
            let mut slow: Vec<_> = (0..4_u32).flat_map(slow).collect();
            slow.sort_unstable();
            assert_eq!(slow, [0, 1, 2, 3]);
        }
        // Six OSTs do 100 bytes a second, and those of the slow server 40 together.
        assert!(is_about(weather.bound_anywhere(640), SECOND));
    }

    /// A server lets twice as much through as its OSTs can do, then a fifth of that.
    #[test]
    fn osts_live_on_what_their_server_has_let_through_before() {
        let mib = f64::from(1 << 20);
        let of = Weather { bytes_per_second: mib, ..weather(Sky::Clear) };
        let weather = Weather { servers: Servers::OneSlow(SECOND), ..of };
        let slow_first = (0..SERVER_COUNT).find(|&it| weather.is_slow_server(it, 0)).unwrap();
        let quick_first = (0..SERVER_COUNT).find(|&it| weather.is_slow_server(it, 1)).unwrap();
        let done = |server| weather.bytes_through(server, Instant::after_start(SECOND * 2)) / mib;
        assert!((done(slow_first) - 2.4).abs() < 1e-6, "{}", done(slow_first));
        assert!((done(quick_first) - 4.0).abs() < 1e-6, "{}", done(quick_first));
    }

    fn is_about(time: Duration, expected: Duration) -> bool {
        time.abs_diff(expected) <= Duration::from_micros(2)
    }
}
