//! A simulated long-distance network between two network namespaces, for source and sink.
//!
//! Between all programs that run in them, ours or not, there is a line with this round trip time,
//! rate, buffer and loss. It needs root, `iproute2`, `iptables`, and a kernel with `NFQUEUE`; it
//! does not need `netem`. The kernel keeps the payload; one thread per direction decides when a
//! packet goes on.

mod commands;
mod delay;
mod flow;
mod janitor;
mod namespace;
mod options;
mod path;
mod probe;
mod queue;
mod statistics;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Subcommand;
use commands::{Commands, Events};
use options::LineOptions;
use path::{Carried, Path};
use serde::Serialize;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// A long-distance network between two network namespaces
///
/// Runs a command at either end, and ends with the source's exit code; or does what the subcommand
/// says. The commands find addresses in $SOURCE_ADDRESS and $SINK_ADDRESS, and the names for `ip
/// netns exec` in $SOURCE_NAMESPACE and $SINK_NAMESPACE.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub struct WanArgs {
    #[command(flatten)]
    line: LineOptions,

    /// Shell command at the sink, started first, ended when the source's has ended
    #[arg(long, value_name = "COMMAND")]
    sink: Option<String>,

    /// Shell command at the source
    #[arg(long, value_name = "COMMAND", required = true)]
    source: Option<String>,

    /// Start the source's command when somebody listens on this TCP port at the sink
    #[arg(long, value_name = "PORT")]
    wait_for_port: Option<u16>,

    /// File for what the line did, as JSON, instead of stderr
    #[arg(long, value_name = "FILE")]
    statistics: Option<PathBuf>,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Measure what TCP gets through the line, as JSON
    Flow(flow::FlowArgs),
    /// Measure round trips: idle, with a full line, and with busy processors; as JSON, line by line
    Probe(probe::ProbeArgs),
    /// Lay the line for others, print names and addresses as JSON, wait until stdin closes
    Up {
        /// Goes into the names of the namespaces
        #[arg(value_parser = parse_name)]
        name: String,
    },
    /// Tidy up when a process has ended
    #[command(hide = true)]
    Janitor {
        /// The process
        pid: u32,
    },
}

/// Sets up a line and runs what the arguments ask for.
///
/// # Errors
///
/// If something is missing on this machine, says what; in that case, nothing is left behind.
pub fn run(args: &WanArgs) -> Result<ExitCode> {
    if let Some(Action::Janitor { pid }) = args.action {
        return janitor::run(pid);
    }
    ensure!(rustix::process::geteuid().is_root(), "network namespaces need root");
    let events = Events::new()?;
    let name = if let Some(Action::Up { name }) = &args.action { name } else { "wan" };
    let path = Path::lay(name, &args.line)?;
    let code = act(args, &path, &events);
    let carried = path.take_down();
    let code = code?;
    report(&carried?, args.statistics.as_deref())?;
    Ok(code)
}

fn act(args: &WanArgs, path: &Path, events: &Events) -> Result<ExitCode> {
    match (&args.action, &args.source) {
        (Some(Action::Up { .. }), _) => {
            say(&path.described(&args.line))?;
            Ok(events.wait_for_the_end())
        }
        (Some(Action::Flow(flow)), _) => {
            say(&flow::measure(path, flow)?)?;
            Ok(ExitCode::SUCCESS)
        }
        (Some(Action::Probe(probe)), _) => {
            probe::measure(path, &args.line, probe, say)?;
            Ok(ExitCode::SUCCESS)
        }
        (None, Some(source)) => {
            let sink = args.sink.as_deref();
            Commands { sink, source, wait_for_port: args.wait_for_port }.run(path, events)
        }
        (Some(Action::Janitor { .. }), _) | (None, None) => bail!("nothing to do"),
    }
}

/// Prints one line of JSON to stdout.
fn say(value: &impl Serialize) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", serde_json::to_string(value)?)?;
    stdout.flush().context("cannot write to stdout")
}

/// Writes what the line did to a file or to stderr.
fn report(carried: &Carried, file: Option<&std::path::Path>) -> Result<()> {
    let text = serde_json::to_string(carried)? + "\n";
    match file {
        Some(file) => {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
        }
        None => std::io::stderr().write_all(text.as_bytes()).context("cannot write to stderr"),
    }
}

/// Parses a text that may be part of a file name.
fn parse_name(text: &str) -> Result<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    ensure!(
        !text.is_empty() && text.len() <= 64 && text.chars().all(is_plain),
        "letters, digits, -"
    );
    Ok(text.to_owned())
}
