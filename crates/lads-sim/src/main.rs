//! Runs worlds by their seeds: `lads-sim [--trace] SEED...` or `lads-sim [--from S] --count N`.
//!
//! `lads-sim --congestion [--count N] [--threads T] [WORD...]` shows instead how near each policy
//! comes to what is possible on beds of OSTs of which some are congested, in the weather of this
//! many seeds, with this many threads at the source; only those scenarios that have all words in
//! their name. `--sweep` instead of `--congestion` compares with the papers' rule, told all that it
//! can be told; `--sweep-tuning` shows what half and double of each number of policy are worth, of
//! those with one of the words in their name; `--service-times OUT` draws how long each read took,
//! with and without avoidance.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

mod report;
mod series;
mod sweep;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: lads-sim [--trace] SEED...
       lads-sim [--from SEED] --count N
       lads-sim --congestion|--sweep [--from SEED] [--count N] [--threads T] [WORD...]
       lads-sim --sweep-tuning [--from SEED] [--count N] [WORD...]
       lads-sim --service-times OUT.html";

/// In the weather of this many seeds a table is made, unless another number is asked for.
const TABLE_SEEDS: u64 = 5;

#[derive(Default)]
struct Arguments {
    shows_congestion: bool,
    sweeps: bool,
    sweeps_tuning: bool,
    service_times: Option<PathBuf>,
    threads: Option<u32>,
    words: Vec<String>,
    from: u64,
    count: u64,
    shows_trace: bool,
}

impl Arguments {
    fn shows_beds(&self) -> bool {
        self.shows_congestion || self.sweeps || self.sweeps_tuning
    }
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let started = Instant::now();
    let is_ok = match &arguments.service_times {
        Some(path) => Some(series::write(path)),
        None if arguments.shows_beds() => Some(show_beds(&arguments)),
        None => run_worlds(&arguments),
    };
    println!("{:.1} s", started.elapsed().as_secs_f64());
    match is_ok {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Whether no promise was broken.
fn show_beds(arguments: &Arguments) -> bool {
    let count = if arguments.count == 0 { TABLE_SEEDS } else { arguments.count };
    let seeds: Vec<u64> = (arguments.from..arguments.from.saturating_add(count)).collect();
    let tell = |line| println!("{line}");
    let Arguments { words, threads, .. } = arguments;
    let shown = if arguments.sweeps_tuning {
        sweep::tuning(&seeds, words, tell)
    } else if arguments.sweeps {
        report::sweep(&seeds, words, *threads, tell)
    } else {
        report::congestion(&seeds, words, *threads, tell)
    };
    if let Err(failure) = &shown {
        println!("{failure}");
    }
    shown.is_ok()
}

/// Whether every promise was kept; `None` if there is a seed that is no number, or none at all.
fn run_worlds(arguments: &Arguments) -> Option<bool> {
    let Arguments { from, count, shows_trace, .. } = *arguments;
    let seeds: Result<Vec<u64>, _> = arguments.words.iter().map(|word| word.parse()).collect();
    let mut seeds = seeds.ok()?;
    seeds.extend(from..from.saturating_add(count));
    let mut failed_seeds = Vec::new();
    for &seed in &seeds {
        if !run(seed, shows_trace, seeds.len() == 1) {
            failed_seeds.push(seed);
        }
    }
    println!("{} worlds", seeds.len());
    if !failed_seeds.is_empty() {
        println!("failed: {failed_seeds:?}");
    }
    (!seeds.is_empty()).then_some(failed_seeds.is_empty())
}

/// Whether every promise was kept.
fn run(seed: u64, shows_trace: bool, is_alone: bool) -> bool {
    if shows_trace {
        let (result, trace) = lads_sim::run_traced(seed);
        trace.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: {result:?}");
        return result.is_ok();
    }
    match lads_sim::run(seed) {
        Ok(stats) => {
            if is_alone {
                println!("seed {seed}: {stats:?}");
            }
            true
        }
        Err(failure) if is_alone => {
            println!("{failure}");
            false
        }
        Err(failure) => {
            println!("seed {seed}: {}", failure.what.lines().next().unwrap_or_default());
            false
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Arguments> {
    let mut parsed = Arguments::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--trace" => parsed.shows_trace = true,
            "--congestion" => parsed.shows_congestion = true,
            "--sweep" => parsed.sweeps = true,
            "--sweep-tuning" => parsed.sweeps_tuning = true,
            "--service-times" => parsed.service_times = Some(arguments.next()?.into()),
            "--threads" => parsed.threads = Some(arguments.next()?.parse().ok()?),
            "--from" => parsed.from = arguments.next()?.parse().ok()?,
            "--count" => parsed.count = arguments.next()?.parse().ok()?,
            word => parsed.words.push(word.to_owned()),
        }
    }
    Some(parsed)
}
