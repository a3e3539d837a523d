//! The machine room from the command line: `lads-testbed SUBCOMMAND`.

use clap::{Parser, Subcommand};
use lads_testbed::{proxy, wan};
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
    Proxy(proxy::ProxyArgs),
    Wan(wan::WanArgs),
}

#[expect(clippy::print_stderr, reason = "what went wrong is said where a person looks")]
fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Proxy(args) => proxy::run(&args),
        Command::Wan(args) => wan::run(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("lads-testbed: {error:#}");
        ExitCode::FAILURE
    })
}
