//! The machine room from the command line: `lads-testbed SUBCOMMAND`.

use clap::{Parser, Subcommand};
use lads_testbed::wan;
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
    Wan(wan::WanArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Wan(args) => wan::run(args),
    }
}
