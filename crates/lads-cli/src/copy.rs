//! One run of `lads cp`, from the command line to the exit code.

use crate::args::CopyArgs;
use crate::display::{Detail, Display, Meters, Places, Settings, Style};
use crate::output::Output;
use crate::{complain, front, not_started, parsed, refusals, request};
use anyhow::{Context, Result, ensure};
use clap::ArgMatches;
use lads_core::sizes;
use lads_engine::{Job, Location, StopFlag};
use lads_sys::Standard;
use rustix::fs::FileType;
use std::fs::File;
use std::io::{BufWriter, IsTerminal, LineWriter, stderr, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// How often a progress line is printed where there is no terminal, in seconds.
const PLAIN_SECONDS: u32 = 10;

/// The width of a terminal that does not tell its width, in columns.
const COLUMNS_DEFAULT: usize = 80;

/// Moves what the command line names.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let args: CopyArgs = parsed(matches);
    if args.paths.is_empty() {
        return print_short_help("cp");
    }
    let refused = refusals::given(matches);
    if !refused.is_empty() {
        return refuse(&args, &refused);
    }
    match prepare(&args, matches) {
        Ok((job, log)) => {
            let ignored = refusals::ignored(matches);
            front::run(|stop| transfer(&args, &job, log, &ignored, stop))
        }
        Err(error) => refuse(&args, &[format!("{error:#}")]),
    }
}

/// The job, and the file for failed entries.
pub(crate) fn prepare(args: &CopyArgs, matches: &ArgMatches) -> Result<(Job, Option<File>)> {
    let job = request::job(args, matches)?;
    let is_stdio = |it: &Location| it.host.is_none() && it.path == b"-";
    let reads_closed = job.sources.iter().any(is_stdio) && Standard::Input.was_closed();
    ensure!(!reads_closed, "cannot read standard input: it is closed");
    let writes_closed = is_stdio(&job.target) && Standard::Output.was_closed();
    ensure!(!writes_closed, "cannot write to standard output: it is closed");
    let create = |path: &PathBuf| {
        File::create(path).with_context(|| format!("cannot create the log {}", path.display()))
    };
    Ok((job, args.log.as_ref().map(create).transpose()?))
}

/// Runs a job and shows how it goes. Returns the exit code.
pub(crate) fn transfer(
    args: &CopyArgs,
    job: &Job,
    log: Option<File>,
    notices: &[&str],
    stop: &StopFlag,
) -> u8 {
    #[cfg(debug_assertions)]
    crate::panic::when_asked("cp");
    let output = match stop_by_itself(args, stop).and_then(|()| Output::start(stop)) {
        Ok(output) => output,
        Err(error) => {
            complain(&format!("{error:#}"));
            return lads_engine::ExitCode::Other as u8;
        }
    };
    let is_stdout_target = job.target.host.is_none() && job.target.path == b"-";
    let told = if is_stdout_target { output.stderr() } else { output.stdout() };
    let (told, complained) = (BufWriter::new(told), LineWriter::new(output.stderr()));
    let places = Places::new(job);
    let mut display =
        Display::new(settings(args, job), places, Box::new(told), Box::new(complained));
    if let Some(log) = log {
        display.log_to(Box::new(BufWriter::new(log)));
    }
    if job.options.dry_run {
        display.stop_without_reader(stop.clone());
    }
    display.start();
    notices.iter().for_each(|notice| display.on_notice(notice));
    lads_engine::raise_open_files_limit();
    let report = lads_engine::run(job, stop, &mut display);
    let code = display.finish(&report);
    drop(display);
    output.drain();
    code
}

/// Sets the flag after the time that the user has limited the transfer to, and when standard input
/// ends, if that is to stop it.
fn stop_by_itself(args: &CopyArgs, stop: &StopFlag) -> Result<()> {
    if let Some(after) = args.stop_after {
        let stop = stop.clone();
        let reason = format!("stopped after {} (--stop-after)", sizes::span(after));
        begin(move || {
            std::thread::sleep(after);
            stop.set(&reason);
        })?;
    }
    if args.stop_with_stdin {
        let stop = stop.clone();
        begin(move || {
            let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
            stop.set("stop requested: standard input was closed");
        })?;
    }
    Ok(())
}

/// Starts a thread that nobody waits for.
fn begin(run: impl FnOnce() + Send + 'static) -> Result<()> {
    std::thread::Builder::new().spawn(run).map(drop).map_err(not_started)
}

/// Reports what is wrong with the command line.
pub(crate) fn refuse(args: &CopyArgs, messages: &[String]) -> ExitCode {
    for message in messages {
        complain(message);
    }
    if args.json {
        let code = lads_engine::ExitCode::Usage;
        crate::display::tell_refusal(&mut stdout(), code, &messages.join("\n"));
    }
    ExitCode::from(lads_engine::ExitCode::Usage as u8)
}

/// Prints the short help of a command.
pub(crate) fn print_short_help(command_name: &str) -> ExitCode {
    let mut command = crate::args::command();
    command.build();
    let named = command.find_subcommand_mut(command_name).expect("there is one");
    // If stdout is closed, nobody reads the help.
    let _ = named.print_help();
    ExitCode::SUCCESS
}

fn settings(args: &CopyArgs, job: &Job) -> Settings {
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_terminal = stderr().is_terminal() && !is_dumb;
    let has_no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Settings {
        is_quiet: args.quiet,
        detail: detail(args),
        is_json: args.json,
        is_dry_run: job.options.dry_run,
        is_check: job.options.check,
        verify: job.target.keeps_data().then(|| args.verify.into()),
        is_durable: is_durable(&job.target, job.options.write_devices),
        log: args.log.as_ref().map(|path| path.display().to_string()),
        style: Style { has_color: is_terminal && !has_no_color },
        meters: meters(args, is_terminal),
    }
}

/// Reports whether data can be made durable at a target. What the target is on another host is not
/// known here: if it may be a pipe or a device there, nothing is called durable.
fn is_durable(target: &Location, writes_devices: bool) -> bool {
    if !writes_devices {
        return true;
    }
    let mode = match (&target.host, target.path.as_slice()) {
        (Some(_), _) => return false,
        (None, b"-") => rustix::fs::fstat(stdout()).map(|it| it.st_mode),
        (None, path) => rustix::fs::stat(path).map(|it| it.st_mode),
    };
    let kind = mode.map(FileType::from_raw_mode);
    !matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice | FileType::Socket))
}

/// Returns the detail of the summary.
fn detail(args: &CopyArgs) -> Detail {
    match args.verbose {
        _ if args.quiet && !args.stats => Detail::None,
        0 if !args.stats => Detail::Brief,
        0 | 1 => Detail::Full,
        2.. => Detail::Everything,
    }
}

/// How progress is shown. A request for progress overrides -q.
fn meters(args: &CopyArgs, is_terminal: bool) -> Meters {
    let is_asked_for = args.progress.is_some();
    if args.no_progress || args.json || (args.quiet && !is_asked_for) {
        return Meters::None;
    }
    let seconds = args.progress.flatten();
    match seconds {
        None if is_terminal => Meters::Redrawn { columns },
        _ => {
            let seconds = seconds.unwrap_or(PLAIN_SECONDS);
            Meters::Plain { interval: Duration::from_secs(u64::from(seconds)) }
        }
    }
}

/// Returns the width of the terminal, in columns.
fn columns() -> usize {
    match rustix::termios::tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => COLUMNS_DEFAULT,
    }
}
