//! Runs worlds by their seeds: `lads-sim [--trace] SEED...` or `lads-sim [--from S] --count N`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it is a command")]

use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "usage: lads-sim [--trace] SEED... | lads-sim [--from SEED] --count N";

#[derive(Default)]
struct Arguments {
    seeds: Vec<u64>,
    from: u64,
    count: u64,
    shows_trace: bool,
}

fn main() -> ExitCode {
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let Arguments { mut seeds, from, count, shows_trace } = arguments;
    seeds.extend(from..from.saturating_add(count));
    let started = Instant::now();
    let mut failed_seeds = Vec::new();
    for &seed in &seeds {
        if !run(seed, shows_trace, seeds.len() == 1) {
            failed_seeds.push(seed);
        }
    }
    println!("{} worlds in {:.1} s", seeds.len(), started.elapsed().as_secs_f64());
    if failed_seeds.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed_seeds:?}");
    ExitCode::FAILURE
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
            "--from" => parsed.from = arguments.next()?.parse().ok()?,
            "--count" => parsed.count = arguments.next()?.parse().ok()?,
            seed => parsed.seeds.push(seed.parse().ok()?),
        }
    }
    (!parsed.seeds.is_empty() || parsed.count > 0).then_some(parsed)
}
