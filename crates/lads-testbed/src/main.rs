//! `lads-testbed`: starts one part of the machine room.

use clap::Parser;
use lads_testbed::pfs;
use std::process::ExitCode;

/// The machine room: what LADS is measured and tried on
#[derive(Debug, Parser)]
#[command(name = "lads-testbed", version)]
enum Command {
    /// A parallel file system, emulated
    Pfs(pfs::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        Command::Pfs(args) => pfs::run(args),
    }
}
