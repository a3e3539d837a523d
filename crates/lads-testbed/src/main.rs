//! The command line of the machine room: `lads-testbed PART`.

use clap::{Parser, Subcommand};
use lads_testbed::{bound, ctl, faultfs, load, pfs, pfs_check, proxy, wan, watch};
use std::process::ExitCode;

/// Emulated file systems and networks, and what judges the programs that use them
#[derive(Debug, Parser)]
#[command(name = "lads-testbed", version)]
struct Cli {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    Bound(bound::BoundArgs),
    /// Ask an emulated file system, or give it orders
    Ctl(ctl::Args),
    /// A file system that passes a directory through, and does harm on command
    Faultfs(faultfs::Args),
    /// Compete for chosen OSTs
    Load(load::Args),
    /// A parallel file system, emulated
    Pfs(pfs::Args),
    /// See whether an emulated file system on this machine is as fast as it should be
    PfsCheck(pfs_check::Args),
    Proxy(proxy::ProxyArgs),
    Wan(wan::WanArgs),
    Watch(watch::WatchArgs),
}

#[expect(clippy::print_stderr, reason = "what went wrong is said where a person looks")]
fn main() -> ExitCode {
    let outcome = match Cli::parse().part {
        Part::Bound(args) => bound::run(&args),
        Part::Ctl(args) => ctl::run(&args),
        Part::Faultfs(args) => faultfs::run(&args),
        Part::Load(args) => load::run(args),
        Part::Pfs(args) => pfs::run(&args),
        Part::PfsCheck(args) => pfs_check::run(&args),
        Part::Proxy(args) => proxy::run(&args),
        Part::Wan(args) => wan::run(&args),
        Part::Watch(args) => watch::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("lads-testbed: {error:#}");
        ExitCode::FAILURE
    })
}
