//! How near each policy comes to what is possible, as a table.

use lads_core::congestion::Threshold;
use lads_core::schedule::Policy;
use lads_sim::Failure;
use lads_sim::bed::{Outcome, Rules, Scenario, Size};
use std::thread;
use std::time::Duration;

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
    tell(format!("{:49}{titles}{:>11}", "share of the fluid bound", "wait, max"));
    for scenario in Scenario::all().into_iter().chain(Scenario::with_servers()) {
        let name = scenario.to_string();
        if !words.iter().all(|word| name.contains(word.as_str())) {
            continue;
        }
        let size = Size { threads, ..Size::full(scenario.ost_count) };
        let mut row = format!("{name:49}");
        let mut wait: f64 = 0.0;
        for (_, policy) in POLICIES {
            let outcomes = outcomes(&scenario, size, &Rules::of(policy), seeds)?;
            row += &format!("{:>9.1} %", mean_share(&outcomes));
            wait = outcomes.iter().map(|it| it.wait_seconds_max).fold(0.0, f64::max);
        }
        tell(format!("{row}{wait:>9.2} s"));
    }
    Ok(())
}

/// What the papers' rule can be told: requests, times of a request alone on an idle OST, threads.
const WINDOWS: [u32; 3] = [4, 10, 40];
const LIMITS: [f64; 3] = [1.5, 3.0, 6.0];
const SKIPS: [u32; 3] = [4, 16, 64];

/// Runs all scenarios with these words in their name by the papers' rule, told all 27 things that
/// it can be told, and by the policies that are told nothing.
///
/// # Errors
/// If a promise was broken.
pub(crate) fn sweep(
    seeds: &[u64],
    words: &[String],
    threads: Option<u32>,
    mut tell: impl FnMut(String),
) -> Result<(), Failure> {
    tell(format!(
        "{:40}{:>11}{:>11}  {:24}{:>11}{:>11}",
        "share of the fluid bound",
        "worst of 27",
        "best of 27",
        "which was told",
        "layout",
        "adaptive"
    ));
    for scenario in Scenario::all() {
        let name = scenario.to_string();
        if !words.iter().all(|word| name.contains(word.as_str())) {
            continue;
        }
        let size = Size { threads, ..Size::full(scenario.ost_count) };
        let share = |rules: &Rules| Ok(mean_share(&outcomes(&scenario, size, rules, seeds)?));
        let mut told = Vec::new();
        for threshold in thresholds(size.service_seconds(scenario.ost_count)) {
            let rules = Rules { threshold, ..Rules::of(Policy::Threshold) };
            told.push((share(&rules)?, threshold));
        }
        told.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((worst, _), (best, which)) = (told[0], told[told.len() - 1]);
        let Threshold { window, limit_micros, skips } = which;
        let which = format!("W {window}, T {} ms, M {skips}", limit_micros / 1000);
        let layout = share(&Rules::of(Policy::Layout))?;
        let adaptive = share(&Rules::of(Policy::Adaptive))?;
        tell(format!(
            "{name:40}{worst:>9.1} %{best:>9.1} %  {which:24}{layout:>9.1} %{adaptive:>9.1} %"
        ));
    }
    Ok(())
}

/// All 27, where a block takes so long by itself.
fn thresholds(service_seconds: f64) -> Vec<Threshold> {
    let mut all = Vec::new();
    for window in WINDOWS {
        for limit in LIMITS {
            for skips in SKIPS {
                let limit = Duration::from_secs_f64(limit * service_seconds);
                let limit_micros = u32::try_from(limit.as_micros()).expect("a few seconds");
                all.push(Threshold { window, limit_micros, skips });
            }
        }
    }
    all
}

/// How much of what was possible was reached, in percent.
fn mean_share(outcomes: &[Outcome]) -> f64 {
    let sum: f64 = outcomes.iter().map(Outcome::share).sum();
    sum * 100.0 / outcomes.len() as f64
}

/// One for each seed.
fn outcomes(
    scenario: &Scenario,
    size: Size,
    rules: &Rules,
    seeds: &[u64],
) -> Result<Vec<Outcome>, Failure> {
    let run = |&seed: &u64| scenario.run(seed, size, rules);
    thread::scope(|scope| {
        let runs: Vec<_> = seeds.iter().map(|seed| scope.spawn(move || run(seed))).collect();
        runs.into_iter().map(|run| run.join().expect("panics are caught in it")).collect()
    })
}
