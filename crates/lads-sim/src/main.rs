//! Runs worlds by their seeds, or shows what rules reach on beds of OSTs: `lads-sim --help`.
#![expect(clippy::print_stdout, reason = "it is a command")]

mod report;
mod series;
mod sweep;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser};
use std::fmt::Debug;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

const EXAMPLES: &str = "\
Examples:
  lads-sim 1317 --trace               all that happens in one world
  lads-sim --count 1000 --from 5000   the worlds of 1,000 seeds
  lads-sim --remote --count 1000      worlds of remote files
  lads-sim --congestion 32 sink       the beds with these words in their name
  lads-sim --sweep-tuning usual_step  what half and double of a number of policy are worth";

/// In the weather of this many seeds a table is made, unless another number is asked for.
const TABLE_SEEDS: u64 = 5;

/// Run simulated transfers by their seeds, or show what rules reach where OSTs are congested
#[derive(Debug, Parser)]
#[command(name = "lads-sim", version, before_help = EXAMPLES)]
struct Arguments {
    /// Seeds of worlds; for tables, words that a bed or a number of policy has in its name
    #[arg(value_name = "SEED|WORD")]
    words: Vec<String>,
    /// The first of several seeds
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// The number of seeds from there on [default: 5 for tables]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    count: u64,
    /// Print every step of a world
    #[arg(long)]
    trace: bool,
    /// Run worlds of remote files
    #[arg(long, group = "what")]
    remote: bool,
    /// Show the share of the fluid bound that each policy reaches, by bed
    #[arg(long, group = "what")]
    congestion: bool,
    /// The same for the papers' rule with 27 settings
    #[arg(long, group = "what")]
    sweep: bool,
    /// Show what half and double of each number of policy are worth
    #[arg(long, group = "what")]
    sweep_tuning: bool,
    /// Draw how long each read took, with and without avoidance of congested OSTs
    #[arg(long, group = "what", value_name = "OUT.html")]
    service_times: Option<PathBuf>,
    /// Threads at the source [default: one for each request that its OSTs should have]
    #[arg(long, value_name = "T")]
    threads: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let started = Instant::now();
    let is_ok = match &arguments.service_times {
        Some(path) => series::write(path),
        None if arguments.congestion || arguments.sweep || arguments.sweep_tuning => {
            show_beds(&arguments)
        }
        None => run_worlds(&arguments, &seeds_of(&arguments)),
    };
    println!("{:.1} s", started.elapsed().as_secs_f64());
    if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The seeds that were asked for; ends the command if there are none.
fn seeds_of(arguments: &Arguments) -> Vec<u64> {
    let complain = |kind, what: String| Arguments::command().error(kind, what).exit();
    let number = |word: &String| {
        let explain = |_| complain(ErrorKind::InvalidValue, format!("`{word}` is no seed"));
        word.parse().unwrap_or_else(explain)
    };
    let mut seeds: Vec<u64> = arguments.words.iter().map(number).collect();
    seeds.extend(arguments.from..arguments.from.saturating_add(arguments.count));
    if seeds.is_empty() {
        complain(ErrorKind::MissingRequiredArgument, "a seed, or --count N, is needed".to_owned());
    }
    seeds
}

/// Whether no promise was broken.
fn show_beds(arguments: &Arguments) -> bool {
    let count = if arguments.count == 0 { TABLE_SEEDS } else { arguments.count };
    let seeds: Vec<u64> = (arguments.from..arguments.from.saturating_add(count)).collect();
    let tell = |line| println!("{line}");
    let Arguments { words, threads, .. } = arguments;
    let shown = if arguments.sweep_tuning {
        sweep::tuning(&seeds, words, tell)
    } else if arguments.sweep {
        report::sweep(&seeds, words, *threads, tell)
    } else {
        report::congestion(&seeds, words, *threads, tell)
    };
    if let Err(failure) = &shown {
        println!("{failure}");
    }
    shown.is_ok()
}

/// Whether every promise was kept.
fn run_worlds(arguments: &Arguments, seeds: &[u64]) -> bool {
    let mut failed_seeds = Vec::new();
    for &seed in seeds {
        let is_ok = match arguments.remote {
            true => run(seed, arguments, &REMOTE, seeds.len() == 1),
            false => run(seed, arguments, &TRANSFERS, seeds.len() == 1),
        };
        if !is_ok {
            failed_seeds.push(seed);
        }
    }
    println!("{} worlds", seeds.len());
    if !failed_seeds.is_empty() {
        println!("failed: {failed_seeds:?}");
    }
    failed_seeds.is_empty()
}

/// Functions that run the world of a seed.
struct Worlds<S> {
    run: fn(u64) -> Result<S, lads_sim::Failure>,
    run_traced: fn(u64) -> Traced<S>,
}

/// The result of a world, and everything that happened in it.
type Traced<S> = (Result<S, String>, Vec<String>);

const TRANSFERS: Worlds<lads_sim::Stats> =
    Worlds { run: lads_sim::run, run_traced: lads_sim::run_traced };
const REMOTE: Worlds<lads_sim::remote::Stats> =
    Worlds { run: lads_sim::remote::run, run_traced: lads_sim::remote::run_traced };

/// Whether every promise was kept.
fn run<S: Debug>(seed: u64, arguments: &Arguments, worlds: &Worlds<S>, is_alone: bool) -> bool {
    if arguments.trace {
        let (result, trace) = (worlds.run_traced)(seed);
        trace.iter().for_each(|line| println!("{line}"));
        println!("seed {seed}: {result:?}");
        return result.is_ok();
    }
    match (worlds.run)(seed) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
