//! Beds of OSTs in the weather of a thousand seeds: nothing stands still, nothing grows, and no
//! OST waits for ever.
//!
//! `cargo run -p lads-sim -- --congestion` shows how near each policy comes to what is possible.

use lads_sim::bed::Scenario;
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
