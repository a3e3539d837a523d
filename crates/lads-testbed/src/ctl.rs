//! Asks a mounted emulated file system for figures, or gives it orders, from the command line.

use crate::stats::{OstStats, Stats};
use anyhow::{Context, Result, bail};
use lads_core::sizes::bytes;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Which file system to ask or order, and what.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where the file system is mounted
    mount: PathBuf,
    /// `stats`, `osts` or `series` to ask; everything else is an order, like `rate 3 10M`
    #[arg(required = true)]
    command: Vec<String>,
    /// Answer for programs
    #[arg(long)]
    json: bool,
}

/// Asks for figures or gives the order.
///
/// # Errors
/// If there is no emulated file system at the path, or if it refuses the order; the error has the
/// reason.
pub fn run(args: &Args) -> Result<ExitCode> {
    let hidden = args.mount.join(".pfs");
    let answer = match &args.command.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["stats"] if args.json => read(&hidden, "stats")?,
        ["stats"] => show_stats(&stats(&hidden)?),
        ["osts"] if args.json => show_osts_for_programs(&stats(&hidden)?),
        ["osts"] => read(&hidden, "osts")?,
        ["series"] => read(&hidden, "series")?,
        order => give(&hidden, &order.join(" "))?,
    };
    std::io::stdout().write_all(answer.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn read(hidden: &Path, name: &str) -> Result<String> {
    let path = hidden.join(name);
    let problem = || format!("{}: is an emulated file system mounted there?", path.display());
    std::fs::read_to_string(&path).with_context(problem)
}

fn stats(hidden: &Path) -> Result<Stats> {
    Stats::read(&hidden.join("stats")).context("is an emulated file system mounted there?")
}

/// Gives an order; returns an empty text if it is obeyed.
fn give(hidden: &Path, order: &str) -> Result<String> {
    let path = hidden.join("control");
    let problem = || format!("{}: is an emulated file system mounted there?", path.display());
    let mut control = OpenOptions::new().write(true).open(&path).with_context(problem)?;
    if let Err(error) = control.write_all(format!("{order}\n").as_bytes()) {
        match error.raw_os_error() {
            Some(libc::EINVAL) => bail!("{}", read(hidden, "last-error")?.trim()),
            _ => return Err(error).context("the order was not taken"),
        }
    }
    Ok(String::new())
}

fn show_stats(stats: &Stats) -> String {
    let mut text = format!(
        "{:>4} {:>3} {:9} {:>10} {:>10} {:>7} {:>10} {:>10} {:>8} {:>6} {:>4}\n",
        "OST", "OSS", "state", "rate", "used", "files", "read", "written", "busy", "queued", "max"
    );
    for it in &stats.osts {
        let (rate, used) = (rate(it.rate_bytes_per_second), bytes(it.used_bytes));
        let (read, written) = (bytes(it.read_bytes), bytes(it.written_bytes));
        let line = writeln!(
            text,
            "{:>4} {:>3} {:9} {rate:>10} {used:>10} {:>7} {read:>10} {written:>10} {:>6.1} s {:>6} \
             {:>4}",
            it.ost, it.oss, it.state, it.files, it.busy_seconds, it.queued, it.queued_max
        );
        line.expect("a string takes all");
    }
    for it in &stats.osses {
        let (rate, moved) = (rate(it.rate_bytes_per_second), bytes(it.bytes));
        writeln!(text, "OSS {}: {rate}, {moved} moved", it.oss).expect("a string takes all");
    }
    writeln!(text, "{} operations on names", stats.metadata_operations).expect("as above");
    let settings = stats.settings.iter().map(|(name, value)| format!("{name}={value}"));
    writeln!(text, "{}", settings.collect::<Vec<_>>().join(" ")).expect("as above");
    text
}

fn show_osts_for_programs(stats: &Stats) -> String {
    let ost = |it: &OstStats| {
        json!({
            "ost": it.ost,
            "oss": it.oss,
            "state": it.state,
            "capacity_bytes": it.capacity_bytes,
            "used_bytes": it.used_bytes,
        })
    };
    let osts: Vec<_> = stats.osts.iter().map(ost).collect();
    format!("{}\n", json!(osts))
}

/// Bytes per second with one decimal, in decimal units.
fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "unlimited".to_owned(), |rate| format!("{:.1} MB/s", rate / 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_as_people_know_them() {
        assert_eq!([None, Some(50e6)].map(rate), ["unlimited", "50.0 MB/s"]);
    }
}
