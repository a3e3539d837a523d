//! The `lads` command: reads what a person asks for, has the engine do it, and tells how it went.

mod args;
mod copy;
mod display;
mod layouts;
mod lists;
mod man;
mod osts;
mod probe;
mod refusals;
mod relay;
mod request;
mod signals;
mod sizes;
mod subject;

use args::{CompletionsArgs, LayoutArgs, ManArgs, OstsArgs, ProbeArgs, RelayArgs};
use clap::{ArgMatches, FromArgMatches};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    match matches.subcommand() {
        Some(("cp", matches)) => copy::run(matches),
        Some(("layout", matches)) => exit(
            layouts::run(&parsed::<LayoutArgs>(matches)),
            lads_engine::ExitCode::SourceUnreadable,
        ),
        Some(("osts", matches)) => {
            exit(osts::run(&parsed::<OstsArgs>(matches)), lads_engine::ExitCode::SourceUnreadable)
        }
        Some(("probe", matches)) => {
            exit(probe::run(&parsed::<ProbeArgs>(matches)), lads_engine::ExitCode::SourceUnreadable)
        }
        Some(("serve", _)) => ExitCode::from(lads_engine::serve() as u8),
        Some(("relay", matches)) => {
            exit(relay::run(&parsed::<RelayArgs>(matches)), lads_engine::ExitCode::Network)
        }
        Some(("man", matches)) => {
            exit(man::write_pages(&parsed::<ManArgs>(matches)), lads_engine::ExitCode::Other)
        }
        Some(("completions", matches)) => exit(
            man::print_completions(&parsed::<CompletionsArgs>(matches)),
            lads_engine::ExitCode::Other,
        ),
        other => unreachable!("clap lets no other command pass: {other:?}"),
    }
}

/// The arguments of a subcommand.
fn parsed<T: FromArgMatches>(matches: &ArgMatches) -> T {
    T::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// Says what went wrong, if anything did.
fn exit(outcome: anyhow::Result<()>, code: lads_engine::ExitCode) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(code as u8)
        }
    }
}

/// Says on stderr what is wrong. If that fails, too, there is nobody to tell.
fn complain(message: &str) {
    let _ = writeln!(std::io::stderr(), "lads: {}", display::escape_text(message));
}
