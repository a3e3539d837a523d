//! Beds of OSTs in the weather of a thousand seeds: nothing stands still, nothing grows, and no
//! OST waits for ever.
//!
//! `cargo run -p lads-sim -- --congestion` shows how near each policy comes to what is possible.

use lads_core::congestion::Threshold;
use lads_core::schedule::Policy;
use lads_sim::bed::{Congestion, Scenario, Size};
use std::ops::Range;

fn check(seeds: Range<u64>) {
    for seed in seeds {
        if let Err(failure) = Scenario::check(seed) {
            panic!("{failure}");
        }
    }
}

#[test]
fn nothing_stands_still_however_the_weather_is() {
    check(0..500);
}

/// Half of them, so that they take half as long on two processors.
#[test]
fn nothing_stands_still_in_other_weather_either() {
    check(500..1000);
}

#[test]
fn adaptive_costs_nothing_when_nothing_is_slow() {
    for (ost_count, threads) in [(8, None), (32, None), (32, Some(8))] {
        let congestion = Congestion::Clear;
        let scenario = Scenario { ost_count, congestion, stripe_count: 1, is_placed: false };
        let size = Size { threads, ..Size::full(ost_count) };
        let share = |policy| {
            let shares = (0..2).map(|seed| {
                let outcome = scenario.run(seed, size, policy, Threshold::default());
                outcome.unwrap_or_else(|failure| panic!("{failure}")).share()
            });
            shares.sum::<f64>() / 2.0
        };
        let (layout, adaptive) = (share(Policy::Layout), share(Policy::Adaptive));
        assert!(adaptive >= 0.98 * layout, "{ost_count} OSTs: {adaptive}, layout {layout}");
    }
}
