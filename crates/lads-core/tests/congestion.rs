//! How long it takes to read what lies on OSTs of which some are slow, by each policy, beside the
//! least time in which it could be done at all.
//!
//! The OSTs are as real ones are: each serves one request at a time, first come first served, at
//! the rate that it has *while it serves*. The threads do nothing but read.

use lads_core::congestion::Threshold;
use lads_core::schedule::{OstQueues, OstSpec, Policy};
use lads_core::tuning::Tuning;
use lads_core::units::{Instant, OstId};
use std::collections::VecDeque;
use std::time::Duration;

const MIB_BYTES: u64 = 1 << 20;
const MIB: f64 = MIB_BYTES as f64;
const TICK: Duration = Duration::from_millis(1);

/// A bed of OSTs, some of which are slow.
#[derive(Clone, Copy)]
struct Bed {
    osts: usize,
    /// Bytes a second of an OST that is not slow.
    rate: f64,
    threads: usize,
    in_flight_max: u32,
    mib_each: usize,
    slow: Slow,
}

/// Which OSTs are slow, by a factor of five.
#[derive(Clone, Copy)]
enum Slow {
    None,
    /// The first this many, always.
    Fixed(usize),
    /// This many at a time, others after this many milliseconds.
    Moving(usize, usize),
}

impl Slow {
    fn times(self, factor: usize) -> Self {
        match self {
            Self::None => Self::None,
            Self::Fixed(count) => Self::Fixed(count * factor),
            Self::Moving(count, dwell) => Self::Moving(count * factor, dwell),
        }
    }
}

impl Bed {
    /// The rate of an OST, this many milliseconds after the start.
    fn rate(&self, ost: usize, now: usize) -> f64 {
        let is_slow = match self.slow {
            Slow::None => false,
            Slow::Fixed(count) => ost < count,
            Slow::Moving(count, dwell) => {
                // A walk that visits all OSTs, in no order that a policy could know.
                let step = now / dwell;
                (0..count).any(|it| (step * count + it) * 11 % self.osts == ost)
            }
        };
        if is_slow { self.rate / 5.0 } else { self.rate }
    }

    /// The least time in which every OST could have read what lies on it, in seconds.
    fn bound(&self) -> f64 {
        let tick = TICK.as_secs_f64();
        let time_of = |ost| {
            let (mut left, mut ticks) = (self.mib_each as f64 * MIB, 0);
            while left > 0.0 {
                left -= self.rate(ost, ticks) * tick;
                ticks += 1;
            }
            ticks as f64 * tick
        };
        (0..self.osts).map(time_of).fold(0.0, f64::max)
    }

    /// How long a policy takes, in seconds.
    fn run(&self, policy: Policy) -> f64 {
        self.run_with(policy, Threshold::default())
    }

    fn run_with(&self, policy: Policy, threshold: Threshold) -> f64 {
        let spec = |index| OstSpec::new(format!("{index}"), self.in_flight_max);
        let specs: Vec<_> = (0..self.osts).map(spec).collect();
        let mut queues = OstQueues::new(policy.rule(threshold), &Tuning::DEFAULT, &specs);
        for ost in 0..self.osts {
            for _ in 0..self.mib_each {
                queues.push(id(ost), MIB_BYTES, MIB_BYTES);
            }
        }
        let mut served: Vec<VecDeque<Request>> = vec![VecDeque::new(); self.osts];
        let (mut idle, mut ticks) = (self.threads, 0);
        let at =
            |ticks: usize| Instant::START + TICK * u32::try_from(ticks).expect("an hour at most");
        loop {
            let now = at(ticks);
            let take = |_, waiting: &mut VecDeque<u64>, bytes_max| {
                let left = waiting.pop_front()?;
                let bytes = left.min(u64::from(bytes_max));
                if bytes < left {
                    waiting.push_front(left - bytes);
                }
                Some((bytes, bytes))
            };
            while idle > 0
                && let Some((ost, bytes)) = match policy {
                    Policy::Adaptive => queues.next_best(now, true, take),
                    _ => queues.next(now, take),
                }
            {
                idle -= 1;
                served[ost.index()].push_back(Request { started: now, bytes, left: bytes as f64 });
            }
            if idle == self.threads {
                return now.since_start().as_secs_f64();
            }
            ticks += 1;
            let now = at(ticks);
            for (ost, requests) in served.iter_mut().enumerate() {
                let mut can = self.rate(ost, ticks) * TICK.as_secs_f64();
                while let Some(request) = requests.front_mut() {
                    let some = can.min(request.left);
                    request.left -= some;
                    can -= some;
                    if request.left > 0.0 {
                        break;
                    }
                    queues.finish(now, id(ost), request.bytes, now.since(request.started));
                    requests.pop_front();
                    idle += 1;
                }
            }
        }
    }
}

#[derive(Clone)]
struct Request {
    started: Instant,
    bytes: u64,
    left: f64,
}

fn id(index: usize) -> OstId {
    OstId(u32::try_from(index).expect("a few"))
}

const EIGHT: Bed = Bed {
    osts: 8,
    rate: 25.0 * MIB,
    threads: 16,
    in_flight_max: 4,
    mib_each: 160,
    slow: Slow::None,
};
const MANY: Bed = Bed {
    osts: 32,
    rate: 6.25 * MIB,
    threads: 8,
    in_flight_max: 4,
    mib_each: 40,
    slow: Slow::None,
};

/// How much of what was possible a policy reached, given that this many threads read one request of
/// one OST each at a time; 1 is all of it.
fn share(bed: &Bed, policy: Policy) -> f64 {
    let all = bed.osts as f64 * bed.mib_each as f64 * MIB;
    let by_threads = all / bed.rate / bed.threads as f64;
    bed.bound().max(by_threads) / bed.run(policy)
}

#[test]
fn where_nothing_is_slow_every_policy_reaches_what_is_possible() {
    for bed in [EIGHT, MANY, Bed { threads: 64, ..MANY }] {
        for policy in [Policy::Layout, Policy::Threshold, Policy::Adaptive] {
            assert!(share(&bed, policy) > 0.98, "{policy:?} {}", share(&bed, policy));
        }
    }
}

#[test]
fn with_threads_for_all_osts_a_slow_one_costs_nothing() {
    for slow in [Slow::Fixed(1), Slow::Moving(1, 700), Slow::Moving(1, 5000)] {
        let bed = Bed { slow, ..EIGHT };
        assert!(share(&bed, Policy::Adaptive) > 0.98, "{}", share(&bed, Policy::Adaptive));
        let bed = Bed { slow: slow.times(4), threads: 64, ..MANY };
        assert!(share(&bed, Policy::Adaptive) > 0.98, "{}", share(&bed, Policy::Adaptive));
    }
}

#[test]
fn with_fewer_threads_adaptive_steers_round_the_slow_ones_that_layout_runs_into() {
    let eight = Bed { threads: 8, slow: Slow::Moving(1, 700), ..EIGHT };
    assert!(share(&eight, Policy::Adaptive) > 0.98);
    assert!(eight.run(Policy::Layout) > 1.35 * eight.run(Policy::Adaptive));
    for dwell in [1500, 5000] {
        let many = Bed { slow: Slow::Moving(4, dwell), ..MANY };
        assert!(share(&many, Policy::Adaptive) > 0.83, "{}", share(&many, Policy::Adaptive));
        assert!(many.run(Policy::Layout) > 1.2 * many.run(Policy::Adaptive));
    }
}

/// The limits are 1.5, 3 and 6 times what a block takes by itself.
#[test]
fn adaptive_needs_no_telling_to_beat_every_threshold() {
    for bed in [
        Bed { slow: Slow::Moving(4, 5000), ..MANY },
        Bed { slow: Slow::Moving(4, 1500), ..MANY },
        Bed { slow: Slow::Moving(1, 700), threads: 8, ..EIGHT },
        Bed { slow: Slow::Moving(1, 1500), threads: 4, ..EIGHT },
    ] {
        let adaptive = bed.run(Policy::Adaptive);
        for window in [4, 10, 40] {
            for block_times in [1.5, 3.0, 6.0] {
                for skips in [4, 16, 64] {
                    let limit = Duration::from_secs_f64(block_times * MIB / bed.rate);
                    let limit_micros = u32::try_from(limit.as_micros()).expect("a second");
                    let threshold = Threshold { window, limit_micros, skips };
                    let told = bed.run_with(Policy::Threshold, threshold);
                    assert!(adaptive < told, "{threshold:?}: {told}, adaptive {adaptive}");
                }
            }
        }
    }
}

#[test]
fn osts_that_are_slow_for_good_are_not_left_to_the_end() {
    let bed = Bed { slow: Slow::Fixed(4), ..MANY };
    assert!(bed.run(Policy::Adaptive) < 1.1 * bed.run(Policy::Layout));
}
