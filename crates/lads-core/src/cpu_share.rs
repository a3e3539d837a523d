//! How long a thread waits before its next block, if the user set a share of the processors
//! (`--max-cpu`).
//!
//! The share holds for all threads of an end together. What they have used is paid for with time:
//! with half a processor, a second of processor time pays for two seconds. While less was used than
//! time has passed, nobody waits; so a transfer that stays below its share is never slowed down.
//! Time in which less was used is not saved up.

use crate::tuning::Tuning;
use crate::units::Instant;
use std::time::Duration;

/// The most processor time that an end may use, as the user says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuShare {
    /// How much of it, in thousandths.
    pub thousandths: u32,
    /// Of what.
    pub of: CpuUnit,
}

/// What a share is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuUnit {
    /// One processor.
    Processor,
    /// All processors of the host.
    Host,
}

/// The least share, in thousandths of its unit: a hundredth.
const THOUSANDTHS_MIN: u32 = 10;

impl CpuShare {
    /// Reads `50%` of all processors, or `1.5` processors.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (number, of) = match text.strip_suffix('%') {
            Some(number) => (number, CpuUnit::Host),
            None => (text, CpuUnit::Processor),
        };
        let (factor, max) = match of {
            CpuUnit::Host => (10.0, 1000.0),
            CpuUnit::Processor => (1000.0, f64::from(u32::MAX)),
        };
        let thousandths = number.parse::<f64>().map(|number| (number * factor).round());
        match thousandths {
            Ok(it) if (f64::from(THOUSANDTHS_MIN)..=max).contains(&it) =>
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it is within the range"
                )]
                Ok(Self { thousandths: it as u32, of })
            }
            _ => Err("write a share of all processors of the host, 1% to 100%, or a number of \
                      processors, at least 0.01, like 1.5"
                .to_owned()),
        }
    }

    /// Thousandths of one processor, on a host with this many; `None` if it is all of them.
    fn of_one(self, processors: u32) -> Option<u64> {
        let thousandths = match self.of {
            CpuUnit::Processor => u64::from(self.thousandths),
            CpuUnit::Host => u64::from(self.thousandths) * u64::from(processors),
        };
        (thousandths < u64::from(processors) * 1000).then_some(thousandths)
    }
}

/// A share while it is used.
#[derive(Debug)]
pub struct CpuPace {
    /// The share, in thousandths of one processor.
    thousandths: u64,
    slack: Duration,
    wait_max: Duration,
    /// When it was last asked, and the processor time that was used by then.
    asked: (Instant, Duration),
    /// Until when the processor time used so far has been paid for.
    paid_until: Instant,
}

impl CpuPace {
    /// A share on a host with this many processors, of which `used` has been used by now; `None` if
    /// it is all of them, which nobody can exceed.
    #[must_use]
    pub fn new(
        share: CpuShare,
        processors: u32,
        (now, used): (Instant, Duration),
        tuning: &Tuning,
    ) -> Option<Self> {
        let thousandths = share.of_one(processors)?.max(1);
        let (slack, wait_max) = (tuning.cpu_slack, tuning.cpu_wait_max);
        Some(Self { thousandths, slack, wait_max, asked: (now, used), paid_until: now })
    }

    /// Returns how long a thread must wait now, if all threads together have used this much
    /// processor time so far. At most [`Tuning::cpu_wait_max`]; what would take longer is forgiven.
    pub fn wait(&mut self, now: Instant, used: Duration) -> Duration {
        let (asked, used_before) = std::mem::replace(&mut self.asked, (now, used));
        let nanos = used.saturating_sub(used_before).as_nanos() * 1000;
        let cost = u64::try_from(nanos / u128::from(self.thousandths)).unwrap_or(u64::MAX);
        let latest = now + self.slack + self.wait_max;
        let paid_until = self.paid_until.max(asked) + Duration::from_nanos(cost);
        self.paid_until = paid_until.min(latest);
        self.paid_until.since(now).saturating_sub(self.slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: (Instant, Duration) = (Instant::START, Duration::ZERO);
    const BLOCK: Duration = Duration::from_micros(500);

    fn pace(share: &str, processors: u32) -> CpuPace {
        let share = CpuShare::parse(share).unwrap();
        CpuPace::new(share, processors, START, &Tuning::DEFAULT).unwrap()
    }

    /// Threads that take one block after the other for ten seconds: each block takes `cpu` of
    /// processor time and `other` of other time. Returns the processors that they used.
    fn used(pace: &mut CpuPace, threads: usize, cpu: Duration, other: Duration) -> f64 {
        let end = Instant::after_start(Duration::from_secs(10));
        let mut ready = vec![Instant::START; threads];
        let mut used = Duration::ZERO;
        loop {
            let next = ready.iter_mut().min().unwrap();
            let now = *next;
            if now >= end {
                return used.as_secs_f64() / 10.0;
            }
            let wait = pace.wait(now, used);
            *next = now + wait;
            if wait.is_zero() {
                used += cpu;
                *next = now + cpu + other;
            }
        }
    }

    #[test]
    fn an_end_uses_what_it_may_however_many_threads_it_has() {
        for (share, processors, expected) in
            [("50%", 2, 1.0), ("1.5", 8, 1.5), ("25%", 64, 16.0), ("20%", 2, 0.4), ("1%", 2, 0.02)]
        {
            for threads in [16, 64] {
                let used = used(&mut pace(share, processors), threads, BLOCK, Duration::ZERO);
                let range = expected * 0.95..expected * 1.05 + 0.02;
                assert!(range.contains(&used), "{share} of {processors}, {threads}: {used}");
            }
        }
    }

    #[test]
    fn threads_that_stay_below_the_share_never_wait() {
        let mut pace = pace("1", 4);
        for block in 0..10_000 {
            let (passed, used) = (BLOCK * 2 * block, BLOCK * block);
            assert_eq!(pace.wait(Instant::after_start(passed), used), Duration::ZERO);
        }
    }

    #[test]
    fn what_was_not_used_is_not_saved_up() {
        let mut pace = pace("0.5", 4);
        let later = Instant::after_start(Duration::from_secs(60));
        assert_eq!(pace.wait(later, Duration::ZERO), Duration::ZERO);
        let tuning = Tuning::DEFAULT;
        let (passed, used) = (Duration::from_millis(100), Duration::from_millis(500));
        assert_eq!(pace.wait(later + passed, used), used * 2 - passed - tuning.cpu_slack);
    }

    #[test]
    fn no_thread_waits_for_ever_whatever_the_others_use() {
        let mut pace = pace("1%", 1);
        let wait_max = Tuning::DEFAULT.cpu_wait_max;
        let hour = Duration::from_secs(3600);
        assert_eq!(pace.wait(Instant::START, hour), wait_max);
        let later = Instant::START + wait_max;
        assert_eq!(pace.wait(later, hour), Duration::ZERO);
        assert_eq!(pace.wait(later, Duration::ZERO), Duration::ZERO, "a clock that went back");
        assert_eq!(pace.wait(later, Duration::MAX), wait_max);
    }

    #[test]
    fn all_processors_are_no_limit() {
        for (share, processors) in [("100%", 2), ("2", 2), ("64", 2)] {
            let share = CpuShare::parse(share).unwrap();
            assert!(CpuPace::new(share, processors, START, &Tuning::DEFAULT).is_none());
        }
    }

    #[test]
    fn a_share_is_a_part_of_the_host_or_a_number_of_processors() {
        let share = |thousandths, of| Ok(CpuShare { thousandths, of });
        assert_eq!(CpuShare::parse("12.5%"), share(125, CpuUnit::Host));
        assert_eq!(CpuShare::parse("1.5"), share(1500, CpuUnit::Processor));
        for text in ["", "%", "0", "0%", "101%", "0.5%", "-1", "nan", "inf", "1e9", "half", "5 %"] {
            assert!(CpuShare::parse(text).is_err(), "{text}");
        }
    }
}
