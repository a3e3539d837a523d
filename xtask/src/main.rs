//! Which chores the house has: build, check, measure and show it.
//!
//! `cargo xtask ci` is what CI runs, and all that it runs. The chores start other programs and
//! judge what they say; nothing here is part of LADS itself, and nothing depends on it.
#![expect(clippy::print_stdout, reason = "a chore reports on its terminal")]

mod bench;
mod ceph;
mod chaos;
mod ci;
mod demo;
mod fuzz;
mod licences;
mod mutants;
mod not_tried;
mod scratch;
mod setup;
mod shell;
mod sim;
mod sshd;
mod tree;
mod trust;

use anyhow::{Result, bail};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask ci             format, licences, lints, docs, tests, simulation, fuzzing, chaos: what CI
                           runs
cargo xtask setup          install what the tests need (rsync, sshd, fuse3, strace, g++, Ceph, …)
cargo xtask licences       whether all dependencies may be used
cargo xtask sim [SEED]     replay one seed with a trace, or try fresh seeds
cargo xtask fuzz [TARGET] [--seconds N]
                           look for inputs that end badly, of one target or of all
cargo xtask fuzz TARGET INPUT...
                           play inputs again
cargo xtask chaos          rounds of random trees, options and accidents
    [--rounds N] [--seed S] [--jobs J]
cargo xtask mutants [FILTER] [--shard K/N] [--seconds N] [--jobs J]
                           put small faults in one by one, and list those that no test notices
cargo xtask trust          the promise tests and the simulator, at full length (20 minutes)
cargo xtask bench [NAME]   measure beside rivals: big medium small journal memory threads lookups
                           harm slow-ost; or, on emulated file systems: sizes fig7 fig9 fig10
                           fig11 table2 ndm6 ndm8 xdd-lan xdd-wan xdd-null spider stripes
                           congestion servers, all by `room`
    [--repeats N] [--stage WORD] [--peer 'NAME=COMMAND {src} {dst}']
cargo xtask bench page     gather all tables, if they are of one commit
cargo xtask ceph up [DIR]  a Ceph cluster on loopback, in memory, mounted (/tmp/lads-ceph)
cargo xtask ceph down [DIR]
cargo xtask demo           move the Rust compiler, here and over ssh; then past slow OSTs, watched
";

fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["ci"] => return ci::run(),
        ["setup"] => setup::run(&ceph::NEEDED)?,
        ["licences"] => licences::run()?,
        ["sim"] => sim::fresh()?,
        ["sim", seed] => sim::replay(seed)?,
        ["trust"] => trust::run()?,
        ["fuzz", "help" | "-h" | "--help"] => print!("{USAGE}"),
        ["fuzz", words @ ..] => fuzz::run(words)?,
        [_, "help" | "-h" | "--help"] => print!("{USAGE}"),
        ["chaos", words @ ..] => return chaos::run(words),
        ["mutants", words @ ..] => mutants::run(words)?,
        ["bench", words @ ..] => bench::run(words)?,
        ["ceph", "up"] => ceph::up(None)?,
        ["ceph", "up", directory] => ceph::up(Some(directory))?,
        ["ceph", "down"] => ceph::down(None)?,
        ["ceph", "down", directory] => ceph::down(Some(directory))?,
        ["demo"] => demo::run()?,
        // The control of the benchmarks: run by them, in processes of their own.
        ["bare-sink", target] => bench::bare::sink(target.as_ref())?,
        ["bare-source", source, port] => bench::bare::source(source.as_ref(), port.parse()?)?,
        [] | ["help" | "-h" | "--help"] => print!("{USAGE}"),
        _ => bail!("no such chore: {}\n\n{USAGE}", words.join(" ")),
    }
    Ok(ExitCode::SUCCESS)
}
