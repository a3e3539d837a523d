//! What each number of policy is worth: beds with half and double of it, beside those as they are.

use lads_core::tuning::{Field, Tuning};
use lads_sim::Failure;
use lads_sim::bed::{Congestion, Rules, Scenario, Size};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// By what a number is multiplied.
const FACTORS: [f64; 2] = [0.5, 2.0];

/// The share of the fluid bound that is reached on each bed, weather by weather, in points.
type Shares = Vec<Vec<f64>>;

/// Goes through all fields of [`Tuning`] with one of these words in their name, on beds in the
/// weather of each seed, and says line by line what half and double of a field make of the share of
/// the fluid bound: the mean of the differences over all beds and weathers, and its standard error.
///
/// A field that no bed comes to use makes no difference in any: that is found in the weather of the
/// first seed, and said.
///
/// # Errors
/// If a promise was broken with the numbers as they are. With others it is told in the table.
pub(crate) fn tuning(
    seeds: &[u64],
    words: &[String],
    mut tell: impl FnMut(String),
) -> Result<(), Failure> {
    let (names, scenarios): (Vec<_>, Vec<_>) =
        beds().into_iter().map(|it| (it.to_string(), it)).unzip();
    let (first, rest) = seeds.split_at(1);
    let before_first = run(&scenarios, first, Tuning::DEFAULT)?;
    let before = joined(&before_first, &run(&scenarios, rest, Tuning::DEFAULT)?);
    let (beds, weathers, share) = (names.len(), seeds.len(), mean(&before.concat()));
    tell(format!("{beds} beds in {weathers} weathers: {share:.2} % in the mean"));
    tell(format!("{:28}{:>20}{:>20}   most, and where", "points more or less", "half", "double"));
    let is_asked = |field: &Field| {
        words.is_empty() || words.iter().any(|word| field.name.contains(word.as_str()))
    };
    for field in Tuning::FIELDS.iter().filter(|field| is_asked(field)) {
        let mut row = format!("{:28}", field.name);
        let mut worst: Option<(f64, String)> = None;
        for factor in FACTORS {
            let tuning = field.scaled(Tuning::DEFAULT, factor);
            let cell = match run(&scenarios, first, tuning) {
                Err(failure) => format!("breaks in {}", failure.seed),
                Ok(of_first) if of_first == before_first => "same".to_owned(),
                Ok(of_first) => match run(&scenarios, rest, tuning) {
                    Err(failure) => format!("breaks in {}", failure.seed),
                    Ok(of_rest) => {
                        let found = Difference::of(&joined(&of_first, &of_rest), &before);
                        let (bed, most) = found.most();
                        if worst.as_ref().is_none_or(|(worst, _)| most.abs() > worst.abs()) {
                            worst = Some((most, format!("{most:+.1} {factor}x {}", names[bed])));
                        }
                        found.to_string()
                    }
                },
            };
            row += &format!("{cell:>20}");
        }
        tell(format!("{row}   {}", worst.map_or_else(String::new, |(_, text)| text)));
    }
    Ok(())
}

/// With files that are placed: those that grow and those that do not.
fn beds() -> Vec<Scenario> {
    let is_swept = |it: &Scenario| it.is_placed && it.congestion != Congestion::FullSink;
    Scenario::all().into_iter().filter(is_swept).collect()
}

/// As many runs at a time as there are processors.
fn run(scenarios: &[Scenario], seeds: &[u64], tuning: Tuning) -> Result<Shares, Failure> {
    let rules = Rules { tuning, ..Rules::default() };
    let count = scenarios.len() * seeds.len();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; count]);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let (scenario, seed) = (&scenarios[at / seeds.len()], seeds[at % seeds.len()]);
            let outcome = scenario.run(seed, Size::full(scenario.ost_count), &rules);
            let share = outcome.map(|it| it.share() * 100.0);
            found.lock().expect("panics are caught in it")[at] = Some(share);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let found = found.into_inner().expect("no thread panicked").into_iter();
    let found: Vec<f64> = found.map(|it| it.expect("all were run")).collect::<Result<_, _>>()?;
    let of_bed = |bed: usize| found[bed * seeds.len()..(bed + 1) * seeds.len()].to_vec();
    Ok((0..scenarios.len()).map(of_bed).collect())
}

/// More weathers of the same beds.
fn joined(some: &Shares, others: &Shares) -> Shares {
    some.iter().zip(others).map(|(some, others)| [some.as_slice(), others].concat()).collect()
}

/// By how much two runs of the same beds differ, run by run.
struct Difference {
    /// Of each bed, weather by weather.
    points: Shares,
}

impl Difference {
    fn of(shares: &Shares, before: &Shares) -> Self {
        let of_bed = |(shares, before): (&Vec<f64>, &Vec<f64>)| {
            shares.iter().zip(before).map(|(share, before)| share - before).collect()
        };
        Self { points: shares.iter().zip(before).map(of_bed).collect() }
    }

    fn standard_error(&self) -> f64 {
        let points = self.points.concat();
        let mean = mean(&points);
        let square: f64 = points.iter().map(|it| (it - mean).powi(2)).sum();
        let count = points.len() as f64;
        (square / (count - 1.0).max(1.0) / count).sqrt()
    }

    /// The bed that differs most in the mean of its weathers, and by how many points.
    fn most(&self) -> (usize, f64) {
        let beds = self.points.iter().map(|it| mean(it)).enumerate();
        beds.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap_or_default()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:+.2} ± {:.2}", mean(&self.points.concat()), self.standard_error())
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_compared_one_by_one() {
        // Two beds in two weathers; the second is where it matters.
        let now = joined(&vec![vec![90.0], vec![83.0]], &vec![vec![91.0], vec![81.0]]);
        let found = Difference::of(&now, &vec![vec![90.0; 2], vec![80.0; 2]]);
        assert_eq!(found.most(), (1, 2.0));
        assert_eq!(found.to_string(), "+1.25 ± 0.63");
    }

    #[test]
    fn what_a_number_is_worth_is_told_in_a_line() {
        let mut lines = Vec::new();
        let words = ["pace_slack".to_owned()];
        tuning(&[1], &words, |line| lines.push(line)).unwrap();
        assert!(lines[0].starts_with("32 beds in 1 weathers"), "{}", lines[0]);
        let cells: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(cells, ["pace_slack", "same", "same"]);
    }
}
