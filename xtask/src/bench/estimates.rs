//! Compares the remaining time that `lads cp` shows after a tenth of its time with the time that
//! was really left.

use super::Bench;
use super::moves::Uniform;
use super::table::Table;
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, bail, ensure};
use lads_plot::groups::Spread;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a transfer.
const BYTES: u64 = 320 << 20;

/// Rates of the runs of each kind, in MiB a second: a run takes 18 to 27 s, so that a tenth of it
/// is about the time from which on there are estimates.
const RATES: [u64; 10] = [12, 13, 14, 15, 16, 17, 18, 12, 15, 17];

/// Space that the benchmark fills, in bytes: two sources, and the targets of a round.
pub(super) const SPACE: u64 = BYTES * (2 + KINDS.len() as u64);

/// A kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One file, on this host.
    OneFile,
    /// Many files, on this host.
    ManyFiles,
    /// From this end to another one.
    Push,
    /// From another end to this one.
    Pull,
    /// The rest of a transfer that was stopped in the middle.
    Resumed,
}

const KINDS: [(Kind, &str); 5] = [
    (Kind::OneFile, "one file"),
    (Kind::ManyFiles, "320 files"),
    (Kind::Push, "one file, pushed"),
    (Kind::Pull, "one file, pulled"),
    (Kind::Resumed, "one file, resumed"),
];

/// What the runs share.
struct Runs<'a> {
    lads: &'a Path,
    scratch: Scratch,
    /// A command in place of ssh, which runs the other end on this host.
    shell: PathBuf,
}

/// Runs ten transfers of each kind, one of each kind at a time.
pub(super) fn run(bench: &Bench) -> Result<Table> {
    let scratch = Scratch::new(&bench.disk, "lads-bench")?;
    for (name, files) in [("one", 1), ("many", 320)] {
        Uniform { files, bytes_each: BYTES / files }.make(&scratch.join(name))?;
    }
    let shell = scratch.join("shell");
    lads_tried::write_script(&shell, "shift; exec \"$@\"")?;
    let runs = Runs { lads: &bench.lads, scratch, shell };
    let mut errors: Vec<Vec<f64>> = vec![Vec::new(); KINDS.len()];
    for (number, rate) in RATES.into_iter().enumerate() {
        let round: Vec<Result<f64>> = std::thread::scope(|scope| {
            let start = |kind: Kind| {
                let runs = &runs;
                scope.spawn(move || runs.error_of(kind, rate, number))
            };
            let threads: Vec<_> = KINDS.into_iter().map(|(kind, _)| start(kind)).collect();
            threads.into_iter().map(|it| it.join().expect("no run panics")).collect()
        });
        for (errors, error) in errors.iter_mut().zip(round) {
            errors.push(error?);
        }
    }
    let all: Vec<f64> = errors.iter().flatten().copied().collect();
    let rows = KINDS.into_iter().map(|(_, name)| name).zip(&errors).chain([("all", &all)]);
    let cells = |(name, errors): (&str, &Vec<f64>)| {
        let Spread { median, min, max } = Spread::of(errors.iter().copied());
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        vec![name.to_owned(), errors.len().to_string(), percent(median), percent(min), percent(max)]
    };
    let head = ["transfer", "runs", "median error", "least", "greatest"];
    Ok(Table::of_words(
        "estimates: remaining time after a tenth of a transfer with --bwlimit, to disk",
        &head,
        rows.map(cells).collect(),
    ))
}

impl Runs<'_> {
    /// Returns the error of the estimate after a tenth of a transfer, as a part of the time that
    /// was left.
    fn error_of(&self, kind: Kind, rate: u64, number: usize) -> Result<f64> {
        let target = self.scratch.join(&format!("target-{kind:?}-{number}"));
        let source = self.scratch.join(if kind == Kind::ManyFiles { "many" } else { "one" });
        let there = |path: &Path| format!("there:{}", path.display());
        let here = |path: &Path| path.display().to_string();
        let (from, to) = match kind {
            Kind::Push => (here(&source), there(&target)),
            Kind::Pull => (there(&source), here(&target)),
            _ => (here(&source), here(&target)),
        };
        let words = [format!("{from}/"), to];
        if kind == Kind::Resumed {
            let half = format!("{}s", BYTES / (rate << 20) / 2);
            let stopped = self.events(rate, &["--stop-after", &half], &words)?;
            ensure!(stopped.last().is_some_and(|it| it["exit_code"] == 9), "{stopped:?}");
        }
        // Half of the data at half of the rate takes as long as the other runs.
        let rate = if kind == Kind::Resumed { rate / 2 } else { rate };
        let events = self.events(rate, &[], &words)?;
        fs::remove_dir_all(&target)?;
        error_of(&events)
    }

    fn events(&self, rate: u64, options: &[&str], words: &[String]) -> Result<Vec<Value>> {
        let mut command = shell::command(self.lads);
        command.args(["cp", "--json", "--bwlimit", &format!("{rate}M"), "-e"]).arg(&self.shell);
        command.arg("--remote-lads").arg(self.lads).args(["--data-address", "127.0.0.1"]);
        let output = command.args(options).args(words).output()?;
        let text = String::from_utf8(output.stdout)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

/// Returns the error of the first estimate after a tenth of the time.
fn error_of(events: &[Value]) -> Result<f64> {
    let seconds = |event: &Value| event["elapsed_seconds"].as_f64();
    let Some((end, before)) = events.split_last() else { bail!("lads printed no events") };
    ensure!(end["exit_code"] == 0, "{end}");
    let whole = seconds(end).context("the summary has no time")?;
    let later = before.iter().filter(|it| it["event"] == "progress");
    let mut later = later.filter_map(|it| Some((seconds(it)?, it["remaining_seconds"].as_f64())));
    let (at, remaining) = later
        .find(|(at, _)| *at >= whole / 10.0)
        .context("no progress was reported after a tenth")?;
    let left = whole - at;
    Ok(remaining.map_or(1.0, |remaining| (remaining - left).abs() / left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_after_a_tenth_counts() {
        let progress = |at: f64, remaining: Option<f64>| {
            serde_json::json!({
                "event": "progress", "elapsed_seconds": at, "remaining_seconds": remaining,
            })
        };
        let end = serde_json::json!({"event": "summary", "elapsed_seconds": 40.0, "exit_code": 0});
        let events =
            [progress(3.0, Some(1.0)), progress(4.0, Some(45.0)), progress(5.0, Some(35.0)), end];
        assert!((error_of(&events).unwrap() - 0.25).abs() < 1e-9);
        let late = [progress(4.0, None), events[3].clone()];
        assert!((error_of(&late).unwrap() - 1.0).abs() < 1e-9, "no estimate is an error");
    }
}
