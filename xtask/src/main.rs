//! The chores of the project: build, check, measure and show LADS.
//!
//! `cargo xtask ci` is exactly what CI runs. The chores start other programs and judge their
//! output. Nothing here is part of LADS itself, and nothing depends on it.
#![expect(clippy::print_stdout, reason = "a chore reports on its terminal")]

mod bench;
mod ceph;
mod chaos;
mod ci;
mod demo;
mod dist;
mod fuzz;
mod licences;
mod mutants;
mod not_tried;
mod scratch;
mod setup;
mod shell;
mod shims;
mod sim;
mod sshd;
mod suites;
mod tree;
mod trust;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  cargo xtask ci                          all that CI runs
  cargo xtask sim 1317                    one simulated world, step by step
  cargo xtask fuzz frame --seconds 60     one fuzzing target for a minute
  cargo xtask chaos --rounds 1 --seed 7   one round of chaos again
  cargo xtask dist                        packages and archives for users, in target/dist
  cargo xtask shims                       shims for MPI programs, for each installed MPI
  cargo xtask bench big small             two benchmarks; `bench page` gathers all tables";

/// Build, check, measure and show LADS
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", before_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Format, licences, lints, docs, tests, simulation, fuzzing, chaos: what CI runs
    Ci,
    /// Install what the tests need (rsync, sshd, fuse3, strace, g++, Ceph, …)
    Setup,
    /// See whether all dependencies may be used
    Licences,
    /// Replay one seed with a trace, or try fresh seeds
    Sim {
        /// The seed to replay
        seed: Option<u64>,
    },
    Fuzz(fuzz::Arguments),
    Chaos(chaos::Request),
    Mutants(mutants::Arguments),
    /// Run the promise tests, MPI programs and the simulator at full length (an hour)
    Trust,
    Bench(bench::Arguments),
    Dist(dist::Arguments),
    Shims(shims::Arguments),
    Suites(suites::Arguments),
    /// Start or stop a Ceph cluster on loopback, in memory
    #[command(subcommand)]
    Ceph(CephChore),
    /// Move the Rust compiler, here and over ssh; then past slow OSTs, watched
    Demo,
    // The baseline of the benchmarks, which run it in separate processes.
    #[command(hide = true)]
    BareSink {
        target: PathBuf,
        way: bench::bare::Way,
    },
    #[command(hide = true)]
    BareSource {
        source: PathBuf,
        port: u16,
        way: bench::bare::Way,
    },
    // A race in a network of its own.
    #[command(hide = true)]
    Race(bench::Course),
    #[command(hide = true)]
    BareReceiver {
        address: IpAddr,
        path: PathBuf,
    },
    #[command(hide = true)]
    BareSender {
        address: SocketAddr,
        bytes: u64,
        interval_seconds: f64,
        times: u32,
    },
}

#[derive(Debug, Subcommand)]
enum CephChore {
    /// Start it, and mount its file system
    Up {
        /// Where it lies [default: /tmp/lads-ceph]
        directory: Option<PathBuf>,
    },
    /// Stop it
    Down {
        /// Where it lies [default: /tmp/lads-ceph]
        directory: Option<PathBuf>,
    },
}

fn main() -> Result<ExitCode> {
    match Cli::parse().chore {
        Chore::Ci => return ci::run(),
        Chore::Chaos(request) => return chaos::run(&request),
        Chore::Setup => setup::run(&ceph::NEEDED)?,
        Chore::Licences => licences::run()?,
        Chore::Sim { seed: None } => sim::fresh()?,
        Chore::Sim { seed: Some(seed) } => sim::replay(seed)?,
        Chore::Fuzz(arguments) => fuzz::run(&arguments)?,
        Chore::Mutants(arguments) => mutants::run(&arguments)?,
        Chore::Trust => trust::run()?,
        Chore::Bench(arguments) => bench::run(&arguments)?,
        Chore::Dist(arguments) => dist::run(&arguments)?,
        Chore::Shims(arguments) => shims::run(&arguments)?,
        Chore::Suites(arguments) => suites::run(&arguments)?,
        Chore::Ceph(CephChore::Up { directory }) => ceph::up(directory.as_deref())?,
        Chore::Ceph(CephChore::Down { directory }) => ceph::down(directory.as_deref())?,
        Chore::Demo => demo::run()?,
        Chore::BareSink { target, way } => bench::bare::sink(&target, way)?,
        Chore::BareSource { source, port, way } => bench::bare::source(&source, port, way)?,
        Chore::Race(course) => course.run()?,
        Chore::BareReceiver { address, path } => bench::bare::receiver(address, &path)?,
        Chore::BareSender { address, bytes, interval_seconds, times } => {
            bench::bare::sender(address, bytes, interval_seconds, times)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
