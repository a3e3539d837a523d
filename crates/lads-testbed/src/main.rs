//! `lads-testbed SUBCOMMAND`: which part of the machine room to start.

use anyhow::Result;
use clap::{Parser, Subcommand};
use lads_testbed::faultfs;
use std::process::ExitCode;

/// File systems and networks that misbehave on command, to try programs on.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// A file system that passes a directory through, and does harm on command
    Faultfs(faultfs::Args),
}

fn main() -> Result<ExitCode> {
    match &Cli::parse().part {
        Part::Faultfs(args) => faultfs::run(args),
    }
}
