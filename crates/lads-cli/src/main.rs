//! The `lads` command: reads what the user asks for, lets the engine do it, and tells how it went.

mod args;
mod bench;
mod between;
mod check;
mod clean;
mod completions;
mod config;
mod copy;
mod daemon;
mod deploy;
mod display;
mod doctor;
mod front;
mod imbalance;
mod key;
mod layouts;
mod lists;
mod ls;
mod man;
mod mpi;
mod osts;
mod output;
mod panic;
mod probe;
mod progress_line;
mod refusals;
mod request;
mod rfs;
mod signals;
mod subject;
mod there;

use anyhow::Context as _;
use args::{
    CleanArgs, CompletionsArgs, ConfigArgs, DeployArgs, DialArgs, DoctorArgs, DoctorEndArgs,
    HostDoctorArgs, ImbalanceArgs, KeyArgs, LayoutArgs, LsArgs, ManArgs, MpiEnvArgs, OstsArgs,
    ProbeArgs, ReplayArgs, ServeArgs, ServeFilesArgs,
};
use clap::{ArgMatches, FromArgMatches};
use lads_core::protection::DataLevel;
use lads_engine::Terms;
use lads_sys::Standard;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

/// The exit code of a command that printed to a pipe without reader, as shells count: 128 and
/// SIGPIPE.
const EXIT_UNREAD: u8 = 141;

/// Commands whose result is their output.
const PRINTING: [&str; 16] = [
    "doctor",
    "ls",
    "complete",
    "layout",
    "osts",
    "probe",
    "bench",
    "clean",
    "config",
    "deploy",
    "imbalance",
    "key",
    "mpi",
    "help",
    "version",
    "completions",
];

/// Adds to the error of a call that starts a thread or a process what is known of the reason.
fn not_started(error: io::Error) -> anyhow::Error {
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock => {
            ": the limit of this user or container is reached (ulimit -u, pids.max)"
        }
        _ => "",
    };
    anyhow::Error::from(error).context(format!("cannot start a thread or process{reason}"))
}

fn main() -> ExitCode {
    panic::end_the_process();
    signals::outlive_file_size_limit();
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(job) = served_job(&words) {
        return serve(job);
    }
    let mut matches = config::matches(words.clone());
    match there::expanded(&words, &matches) {
        Ok(None) => {}
        Ok(Some(words)) => matches = config::matches(words),
        Err((code, text)) => return exit(Err(anyhow::anyhow!(text)), code),
    }
    let prints = matches.subcommand_name().is_some_and(|name| PRINTING.contains(&name));
    if prints && Standard::Output.was_closed() {
        complain("cannot write to standard output: it is closed");
        return ExitCode::from(lads_engine::ExitCode::Other as u8);
    }
    there::run(&words, &matches).unwrap_or_else(|| run(&matches))
}

/// Runs the command that was typed.
fn run(matches: &ArgMatches) -> ExitCode {
    match matches.subcommand() {
        Some(("cp", matches)) => between::run(matches).unwrap_or_else(|| copy::run(matches)),
        Some(("check", matches)) => check::run(matches),
        Some(("ls", matches)) => shown(ls::run(&parsed::<LsArgs>(matches))),
        Some(("layout", matches)) => shown(layouts::run(&parsed::<LayoutArgs>(matches))),
        Some(("osts", matches)) => shown(osts::run(&parsed::<OstsArgs>(matches))),
        Some(("probe", matches)) => shown(probe::run(&parsed::<ProbeArgs>(matches))),
        Some(("bench", matches)) => bench::run(matches),
        Some(("deploy", matches)) => deploy::run(&parsed::<DeployArgs>(matches)),
        Some(("doctor", matches)) => doctor::run(&parsed::<HostDoctorArgs>(matches)),
        Some(("doctor-end", matches)) => {
            let outcome = doctor::run_end(&parsed::<DoctorEndArgs>(matches));
            exit(outcome, lads_engine::ExitCode::Other)
        }
        Some(("clean", matches)) => shown(clean::run(&parsed::<CleanArgs>(matches))),
        Some(("config", matches)) => {
            let outcome = config::show(&parsed::<ConfigArgs>(matches));
            printed(outcome, lads_engine::ExitCode::Usage)
        }
        Some(("imbalance", matches)) => shown(imbalance::run(&parsed::<ImbalanceArgs>(matches))),
        Some(("rfs", matches)) => match matches.subcommand() {
            Some(("serve", matches)) => exit(
                rfs::serve(&parsed::<ServeFilesArgs>(matches)),
                lads_engine::ExitCode::SinkRefuses,
            ),
            Some(("replay", matches)) => {
                let (outcome, code) = rfs::replay(&parsed::<ReplayArgs>(matches));
                exit(outcome, code)
            }
            other => unreachable!("clap lets no other command pass: {other:?}"),
        },
        Some(("mpi", matches)) => match matches.subcommand() {
            Some(("env", matches)) => {
                printed(mpi::env(&parsed::<MpiEnvArgs>(matches)), lads_engine::ExitCode::Other)
            }
            Some(("doctor", matches)) => judged(mpi::doctor(&parsed::<DoctorArgs>(matches))),
            other => unreachable!("clap lets no other command pass: {other:?}"),
        },
        Some(("serve", matches)) => serve_as_told(&parsed::<ServeArgs>(matches)),
        Some(("key", matches)) => {
            printed(key::run(&parsed::<KeyArgs>(matches)), lads_engine::ExitCode::Usage)
        }
        Some(("dial", matches)) => key::connect(&parsed::<DialArgs>(matches)),
        Some(("help", matches)) => printed(
            help(matches.get_one::<String>("command").map(String::as_str)),
            lads_engine::ExitCode::Usage,
        ),
        Some(("version", _)) => {
            let version = args::command().render_version();
            let outcome = io::stdout().write_all(version.as_bytes());
            printed(outcome.map_err(Into::into), lads_engine::ExitCode::Other)
        }
        Some(("complete", matches)) => {
            let word = matches.get_one::<OsString>("word").expect("it is required");
            printed(there::complete(word), lads_engine::ExitCode::Other)
        }
        Some(("man", matches)) => {
            exit(man::write_pages(&parsed::<ManArgs>(matches)), lads_engine::ExitCode::Other)
        }
        Some(("completions", matches)) => {
            let args = parsed::<CompletionsArgs>(matches);
            printed(completions::print(&args), lads_engine::ExitCode::Other)
        }
        other => unreachable!("clap lets no other command pass: {other:?}"),
    }
}

/// Returns the job of `lads serve [JOB]` as the other end starts it; `None` if this is another
/// command line. The other end waits, and all commands with all their options take longer to be
/// described than such a process to start.
fn served_job(words: &[OsString]) -> Option<Option<&str>> {
    match words {
        [_, command] if command == "serve" => Some(None),
        [_, command, job] if command == "serve" => {
            job.to_str().filter(|job| !job.starts_with('-')).map(Some)
        }
        _ => None,
    }
}

/// Is the other end of a transfer.
fn serve(job: Option<&str>) -> ExitCode {
    #[cfg(debug_assertions)]
    panic::when_asked("serve");
    lads_engine::raise_open_files_limit();
    if let Err(error) = has_open_pipes() {
        return exit(Err(error), lads_engine::ExitCode::Other);
    }
    let terms = Terms { level: &data_level, offer: None };
    ExitCode::from(lads_engine::serve(job, &terms).exit_code as u8)
}

/// Runs a daemon or one of its sessions, or is the other end of a transfer.
fn serve_as_told(args: &ServeArgs) -> ExitCode {
    match (&args.config, args.confined) {
        (Some(config), _) => exit(daemon::run(args, config), lads_engine::ExitCode::Usage),
        (None, Some(access)) => match has_open_pipes() {
            Ok(()) => daemon::serve_confined(access, args.data, args.ports),
            Err(error) => exit(Err(error), lads_engine::ExitCode::Other),
        },
        (None, None) => serve(args.job.as_deref()),
    }
}

/// Returns how the settings of this host want data to be protected that goes to another one.
fn data_level() -> Result<DataLevel, String> {
    let setting = config::default_of(&args::command(), "data", "").map_err(|it| it.to_string())?;
    let Some(name) = setting else { return Ok(DataLevel::Encrypted) };
    args::level_of(&name).map_err(|error| format!("data = {name:?} in its configuration: {error}"))
}

/// Checks that standard input and output are open, through which a server talks to the process
/// that started it.
fn has_open_pipes() -> anyhow::Result<()> {
    let is_closed = Standard::Input.was_closed() || Standard::Output.was_closed();
    anyhow::ensure!(!is_closed, "standard input and output must be connected to a client");
    Ok(())
}

/// Prints the help of a command, or of all.
fn help(of: Option<&str>) -> anyhow::Result<()> {
    let mut command = args::command();
    command.build();
    let shown = match of {
        None => &mut command,
        Some(name) => {
            let known = command.find_subcommand_mut(name);
            known.with_context(|| format!("unknown command `{name}`; see lads help"))?
        }
    };
    Ok(shown.print_long_help()?)
}

/// Returns the arguments of a subcommand.
fn parsed<T: FromArgMatches>(matches: &ArgMatches) -> T {
    T::from_arg_matches(matches).unwrap_or_else(|error| error.exit())
}

/// Reports what went wrong when a file system was examined, if anything did.
fn shown(outcome: anyhow::Result<()>) -> ExitCode {
    printed(outcome, lads_engine::ExitCode::SourceUnreadable)
}

/// The exit code of a command that prints its judgement.
fn judged(outcome: anyhow::Result<bool>) -> ExitCode {
    match outcome {
        Ok(false) => ExitCode::from(lads_engine::ExitCode::Other as u8),
        outcome => printed(outcome.map(|_| ()), lads_engine::ExitCode::Other),
    }
}

/// Tells what went wrong with a command that prints. It is no error that the reader has gone, as
/// with `lads osts | head`.
fn printed(outcome: anyhow::Result<()>, code: lads_engine::ExitCode) -> ExitCode {
    ExitCode::from(code_of_printing(outcome, code))
}

/// The same, as a number.
fn code_of_printing(outcome: anyhow::Result<()>, code: lads_engine::ExitCode) -> u8 {
    let is_unread = outcome.as_ref().is_err_and(|error| {
        let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
        causes.any(|error| error.kind() == io::ErrorKind::BrokenPipe)
    });
    if is_unread { EXIT_UNREAD } else { exit_code(outcome, code) }
}

/// Reports what went wrong, if anything did.
fn exit(outcome: anyhow::Result<()>, code: lads_engine::ExitCode) -> ExitCode {
    ExitCode::from(exit_code(outcome, code))
}

fn exit_code(outcome: anyhow::Result<()>, code: lads_engine::ExitCode) -> u8 {
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            complain(&format!("{error:#}"));
            code as u8
        }
    }
}

/// Prints a message on stderr. If that fails, there is no other way to report it.
fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "lads: {}", display::message(message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_other_end_of_a_transfer_starts_without_a_description_of_all_commands() {
        let served = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
            served_job(&words).map(|job| job.map(str::to_owned))
        };
        assert_eq!(served("lads serve"), Some(None));
        assert_eq!(served("lads serve job"), Some(Some("job".to_owned())));
        for other in [
            "lads",
            "lads cp",
            "lads serve --help",
            "lads serve a b",
            "lads rfs serve",
            "lads cp serve",
        ] {
            assert_eq!(served(other), None, "{other}");
        }
    }
}
