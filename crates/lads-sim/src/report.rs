//! How near each policy comes to what is possible, as a table.

use lads_core::congestion::Threshold;
use lads_core::schedule::Policy;
use lads_sim::Failure;
use lads_sim::bed::{Outcome, Scenario, Size};
use std::thread;

/// The columns, and what they are called.
const POLICIES: [(&str, Policy); 4] = [
    ("file", Policy::File),
    ("layout", Policy::Layout),
    ("threshold", Policy::Threshold),
    ("adaptive", Policy::Adaptive),
];

/// Runs all scenarios with these words in their name, in the weather of each seed, and says line
/// by line what share of the fluid bound is reached in the mean: from seed to seed, how evenly the
/// last files lie makes more of a difference than any policy.
///
/// # Errors
/// If a promise was broken.
pub(crate) fn congestion(
    seeds: &[u64],
    words: &[String],
    threads: Option<u32>,
    mut tell: impl FnMut(String),
) -> Result<(), Failure> {
    let titles: String = POLICIES.iter().map(|(name, _)| format!("{name:>11}")).collect();
    tell(format!("{:40}{titles}{:>11}", "share of the fluid bound", "wait, max"));
    for scenario in Scenario::all() {
        let name = scenario.to_string();
        if !words.iter().all(|word| name.contains(word.as_str())) {
            continue;
        }
        let size = Size { threads, ..Size::full(scenario.ost_count) };
        let mut row = format!("{name:40}");
        let mut wait: f64 = 0.0;
        for (_, policy) in POLICIES {
            let outcomes = outcomes(&scenario, size, policy, seeds)?;
            let sum: f64 = outcomes.iter().map(Outcome::share).sum();
            row += &format!("{:>9.1} %", sum * 100.0 / outcomes.len() as f64);
            wait = outcomes.iter().map(|it| it.wait_seconds_max).fold(0.0, f64::max);
        }
        tell(format!("{row}{wait:>9.2} s"));
    }
    Ok(())
}

/// One for each seed.
fn outcomes(
    scenario: &Scenario,
    size: Size,
    policy: Policy,
    seeds: &[u64],
) -> Result<Vec<Outcome>, Failure> {
    let run = |&seed: &u64| scenario.run(seed, size, policy, Threshold::default());
    thread::scope(|scope| {
        let runs: Vec<_> = seeds.iter().map(|seed| scope.spawn(move || run(seed))).collect();
        runs.into_iter().map(|run| run.join().expect("panics are caught in it")).collect()
    })
}
