//! `lads-testbed`: starts one part of the machine room.

use clap::Parser;
use lads_testbed::{ctl, load, pfs, pfs_check};
use std::process::ExitCode;

/// The machine room: what LADS is measured and tried on
#[derive(Debug, Parser)]
#[command(name = "lads-testbed", version)]
enum Command {
    /// Ask an emulated file system, or give it orders
    Ctl(ctl::Args),
    /// Compete for chosen OSTs
    Load(load::Args),
    /// A parallel file system, emulated
    Pfs(pfs::Args),
    /// See whether an emulated file system on this machine is as fast as it should be
    PfsCheck(pfs_check::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    match Command::parse() {
        Command::Ctl(args) => ctl::run(&args),
        Command::Load(args) => load::run(args),
        Command::Pfs(args) => pfs::run(args),
        Command::PfsCheck(args) => pfs_check::run(&args),
    }
}
