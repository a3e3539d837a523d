//! Decides from a seed which OSTs are slow, and when.
//!
//! A congestion is a sequence of [`Change`]s with times since it began. It has no end, or only one
//! change. The same pattern and seed give the same sequence.

use std::time::Duration;

/// How congestion comes and goes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pattern {
    /// The same OSTs, for ever.
    Fixed(Vec<usize>),
    /// This many OSTs at a time, each for as long as `dwell`, then others at once. Within a round
    /// through all OSTs, none comes twice.
    Moving { count: usize, dwell: Duration },
    /// Bursts as on the Spider file system; see [`Spider`]. All times are multiplied by `scale`.
    Spider { scale: f64 },
}

/// From one moment on, exactly these OSTs are slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// The time since the congestion began.
    pub(super) at: Duration,
    /// The slow OSTs.
    pub(super) slow: Vec<usize>,
}

/// The sequence of changes.
pub(super) struct Congestion {
    pattern: Pattern,
    ost_count: usize,
    chance: fastrand::Rng,
    /// The time of the next change; `None` if there is none.
    next: Option<Duration>,
    /// OSTs that have not yet been slow in this round, in reverse order.
    round: Vec<usize>,
    is_slow: bool,
}

impl Congestion {
    /// Returns the sequence from its beginning.
    pub(super) fn new(pattern: Pattern, ost_count: usize, seed: u64) -> Self {
        Self {
            pattern,
            ost_count,
            chance: fastrand::Rng::with_seed(seed),
            next: Some(Duration::ZERO),
            round: Vec::new(),
            is_slow: false,
        }
    }

    /// Returns the next OSTs of the round, this many.
    fn pick(&mut self, count: usize) -> Vec<usize> {
        let mut slow = Vec::new();
        while slow.len() < count.min(self.ost_count) {
            let Some(ost) = self.round.pop() else {
                self.round = (0..self.ost_count).collect();
                self.chance.shuffle(&mut self.round);
                continue;
            };
            if !slow.contains(&ost) {
                slow.push(ost);
            }
        }
        slow
    }

    /// Returns the slow OSTs after the next change of a Spider, where a burst begins or ends, and
    /// the time until the change after it.
    fn burst(&mut self, scale: f64) -> (Vec<usize>, Duration) {
        self.is_slow = !self.is_slow;
        if !self.is_slow {
            let distance = quantile(&Spider::DISTANCE_SECONDS, self.chance.f64());
            return (Vec::new(), Duration::from_secs_f64(distance * scale));
        }
        let mut count = 1;
        while self.chance.bool() && count < self.ost_count / 2 {
            count += 1;
        }
        let lifetime = quantile(&Spider::LIFETIME_SECONDS, self.chance.f64());
        (self.pick(count), Duration::from_secs_f64(lifetime * scale))
    }
}

impl Iterator for Congestion {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let at = self.next?;
        let (slow, wait) = match self.pattern.clone() {
            Pattern::Fixed(osts) => (osts, None),
            Pattern::Moving { count, dwell } => (self.pick(count), Some(dwell)),
            Pattern::Spider { scale } => {
                let (slow, wait) = self.burst(scale);
                (slow, Some(wait))
            }
        };
        self.next = wait.map(|wait| at + wait.max(Duration::from_millis(1)));
        Some(Change { at, slow })
    }
}

/// Load imbalance on a quarter of Spider (24 RAID controllers, January to March 2012, sampled every
/// two seconds), as Kim et al., *Layout-aware I/O scheduling for terabits data movement*, report it
/// in section III.D and figure 4. This uses the higher of their two thresholds: for 5 % of the
/// time, the controllers' bandwidths differed by more than that.
///
/// The text gives few points of the curves: the lifetime is about 16 s at the 90th percentile and
/// never above 60 s; the 99th percentile of the distances is between 3000 and 4000 s. Nothing is
/// shorter than the two seconds between two samples. Between the points, the logarithm grows
/// linearly. One point is our own: the distance at the 90th percentile, chosen so that 5 % of all
/// time is in bursts. The paper does not say how many controllers are in a burst. Here it is one,
/// and each further one with probability one half, up to half of them.
struct Spider;

impl Spider {
    const LIFETIME_SECONDS: [(f64, f64); 3] = [(0.0, 2.0), (0.9, 16.0), (1.0, 60.0)];
    const DISTANCE_SECONDS: [(f64, f64); 4] =
        [(0.0, 2.0), (0.9, 190.0), (0.99, 3500.0), (1.0, 4000.0)];
}

/// Returns the value below which this share of all values lies, log-linear between the given
/// points.
fn quantile(points: &[(f64, f64)], share: f64) -> f64 {
    let above = points.partition_point(|(at, _)| *at <= share).clamp(1, points.len() - 1);
    let ((from, low), (to, high)) = (points[above - 1], points[above]);
    low * (high / low).powf((share - from) / (to - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DWELL: Duration = Duration::from_secs(2);

    fn moving(count: usize, seed: u64) -> Vec<Change> {
        Congestion::new(Pattern::Moving { count, dwell: DWELL }, 8, seed).take(100).collect()
    }

    #[test]
    fn fixed_is_one_change() {
        let changes: Vec<_> = Congestion::new(Pattern::Fixed(vec![3, 5]), 8, 1).collect();
        assert_eq!(changes, [Change { at: Duration::ZERO, slow: vec![3, 5] }]);
    }

    #[test]
    fn moves_through_all_before_one_comes_again() {
        let changes = moving(2, 7);
        for (index, round) in changes.chunks(4).enumerate() {
            let mut seen: Vec<_> = round.iter().flat_map(|change| change.slow.clone()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..8).collect::<Vec<_>>(), "round {index}");
        }
        assert_eq!(changes[99].at, 99 * DWELL);
    }

    #[test]
    fn slow_osts_are_never_more_than_there_are_and_never_the_same_twice() {
        for change in moving(3, 7) {
            assert_eq!(change.slow.len(), 3);
            assert!(
                change
                    .slow
                    .iter()
                    .all(|ost| change.slow.iter().filter(|it| *it == ost).count() == 1)
            );
        }
        assert_eq!(moving(20, 7)[5].slow.len(), 8);
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(moving(2, 7), moving(2, 7));
        assert_ne!(moving(2, 7), moving(2, 8));
    }

    #[test]
    fn spider_is_as_the_paper_says() {
        let changes: Vec<_> =
            Congestion::new(Pattern::Spider { scale: 1.0 }, 24, 5).take(40_001).collect();
        let mut lifetimes = Vec::new();
        let mut in_bursts = Duration::ZERO;
        for pair in changes.windows(2).filter(|pair| !pair[0].slow.is_empty()) {
            lifetimes.push(pair[1].at - pair[0].at);
            in_bursts += pair[1].at - pair[0].at;
        }
        lifetimes.sort_unstable();
        let at_90 = lifetimes[lifetimes.len() * 9 / 10].as_secs_f64();
        assert!((15.0..17.0).contains(&at_90), "{at_90}");
        assert!(lifetimes[lifetimes.len() - 1] <= Duration::from_secs(60));
        let share = in_bursts.as_secs_f64() / changes[40_000].at.as_secs_f64();
        assert!((0.04..0.06).contains(&share), "{share}");
    }
}
