//! The machine room from the command line: `lads-testbed SUBCOMMAND`.

use clap::{Parser, Subcommand};
use lads_testbed::{bound, pfs, wan, watch};
use std::process::ExitCode;

/// Emulated file systems and networks, and what judges the programs that use them
#[derive(Debug, Parser)]
#[command(name = "lads-testbed", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bound(bound::BoundArgs),
    /// A parallel file system, emulated
    Pfs(pfs::Args),
    Wan(wan::WanArgs),
    Watch(watch::WatchArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Bound(args) => bound::run(&args),
        Command::Pfs(args) => pfs::run(args),
        Command::Wan(args) => wan::run(args),
        Command::Watch(args) => watch::run(&args),
    }
}
