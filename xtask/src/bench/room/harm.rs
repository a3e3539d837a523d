//! Measures how much LADS slows down other programs on the same file systems: a reader at the
//! source, or a writer at the sink. Each has one request at a time on one OST of eight, while LADS
//! moves files between all OSTs.
//!
//! A fair share is half of what the OST can do, because two programs use it. The time of the move
//! is reported, too: a mover that gives way to others takes longer.

use super::super::table::Table;
use super::contest::{drop_caches, monotonic_seconds, remove};
use super::data::DataSet;
use super::mount::{Mount, Pair, Storage, bound_to_us};
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, bail};
use lads_plot::groups::Spread;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// 1 GiB, which LADS moves in five to ten seconds.
const DATA: DataSet = DataSet::Uniform { files: 128, bytes_each: 8 << 20 };
/// The memory that is used as file systems, in bytes.
pub(in crate::bench) const SPACE: u64 = 5 << 29;
/// The OST that is shared.
const SHARED_OST: u32 = 3;
/// The rate that the other program has if it is alone.
const OST_BYTES_PER_SECOND: u64 = 25_000_000;
const ROUNDS: usize = 3;
/// How long the other program is measured alone.
const ALONE: Duration = Duration::from_secs(3);

/// The movers and their options; `None` if nothing is moved.
const MOVERS: [(&str, Option<&[&str]>); 3] =
    [("nobody", None), ("LADS", Some(&[])), ("LADS, --polite", Some(&["--polite"]))];

/// The programs and file systems of the measurement.
struct Beds<'a> {
    lads: &'a Path,
    testbed: &'a Path,
    pair: &'a Pair,
}

/// Measures the reader and the writer in turn, alone and together with LADS.
pub(in crate::bench) fn run(lads: &Path) -> Result<Table> {
    let testbed = shell::build_testbed()?;
    let notes = Scratch::new(&std::env::temp_dir(), "lads-harm")?;
    let storage =
        Storage { ost_bytes_per_second: Some(OST_BYTES_PER_SECOND), ..Storage::default() };
    let pair = Pair::start(&testbed, storage, storage, &notes.join("mounts"))?;
    DATA.make(&pair.source.path().join("data"))?;
    let beds = Beds { lads, testbed: &testbed, pair: &pair };
    let mut rows = Vec::new();
    for (other, mode, mount) in [
        ("a reader at the source", "read", &pair.source),
        ("a writer at the sink", "write", &pair.sink),
    ] {
        let mut said = [const { Vec::new() }; MOVERS.len()];
        for round in 0..=ROUNDS {
            for (said, (_, options)) in said.iter_mut().zip(MOVERS) {
                let figures = beds.measure(mount, mode, options)?;
                // The first round is a warm-up.
                if round > 0 {
                    said.push(figures);
                }
            }
        }
        for (said, (mover, options)) in said.iter().zip(MOVERS) {
            rows.push(row(other, mover, options.is_some(), said));
        }
    }
    let head = [
        "other program",
        "concurrent mover",
        "its rate, MB/s",
        "share of its fair rate",
        "the move, s",
    ];
    Ok(Table::of_words("harm: rate of another program on a shared OST", &head, rows))
}

/// A table row: the rate of the other program, and the time of the move.
fn row(other: &str, mover: &str, is_shared: bool, said: &[(f64, f64)]) -> Vec<String> {
    let rate = Spread::of(said.iter().map(|(rate, _)| *rate));
    let seconds = Spread::of(said.iter().map(|(_, seconds)| *seconds));
    let spread = |it: Spread, digits: usize, unit: f64| {
        let Spread { median, min, max } = it;
        let (median, min, max) = (median / unit, min / unit, max / unit);
        format!("{median:.digits$} [{min:.digits$}–{max:.digits$}]")
    };
    let fair = OST_BYTES_PER_SECOND as f64 / 2.0;
    let (share, took) = match is_shared {
        true => (format!("{:.0} %", rate.median / fair * 100.0), spread(seconds, 2, 1.0)),
        false => (String::new(), String::new()),
    };
    vec![other.to_owned(), mover.to_owned(), spread(rate, 1, 1e6), share, took]
}

impl Beds<'_> {
    /// The rate of the other program in bytes per second, and the time of the move in seconds.
    fn measure(&self, mount: &Mount, mode: &str, options: Option<&[&str]>) -> Result<(f64, f64)> {
        let target = self.pair.sink.path().join("target");
        remove(&target)?;
        drop_caches(self.pair)?;
        self.pair.throttle()?;
        let load = Load::start(self.testbed, mount.path(), mode)?;
        let began = monotonic_seconds();
        match options {
            Some(options) => self.move_all(options, &target)?,
            None => thread::sleep(ALONE),
        }
        let ended = monotonic_seconds();
        let samples = load.stop()?;
        self.pair.release()?;
        Ok((rate_between(&samples, began, ended)?, ended - began))
    }

    fn move_all(&self, options: &[&str], target: &Path) -> Result<()> {
        let slashed = |path: PathBuf| format!("{}/", path.display());
        let source = slashed(self.pair.source.path().join("data"));
        fs::create_dir(target)?;
        let mut command = shell::command(self.lads);
        command.args(["cp", "-q"]).args(options).args([source, slashed(target.to_owned())]);
        shell::run(command.stdout(Stdio::null()))
    }
}

/// The other program while it runs.
struct Load {
    child: Child,
    samples: JoinHandle<Vec<(f64, u64)>>,
}

impl Load {
    /// Starts the program, and waits until it has begun its work.
    fn start(testbed: &Path, directory: &Path, mode: &str) -> Result<Self> {
        let mut child = bound_to_us(testbed)
            .arg("load")
            .arg(directory)
            .args([&format!("--osts={SHARED_OST}"), &format!("--mode={mode}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the other program")?;
        let mut lines = BufReader::new(child.stdout.take().expect("piped above")).lines();
        let first = lines.next().and_then(Result::ok).and_then(|line| sample(&line));
        let Some(first) = first else {
            let _ = child.kill();
            let _ = child.wait();
            bail!("the other program printed nothing");
        };
        let rest = move || lines.map_while(Result::ok).filter_map(|line| sample(&line));
        let samples = thread::spawn(move || std::iter::once(first).chain(rest()).collect());
        Ok(Self { child, samples })
    }

    /// Ends the program. Returns the samples: moments, and the number of bytes that it had moved
    /// until then.
    fn stop(mut self) -> Result<Vec<(f64, u64)>> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        let samples = self.samples.join().expect("it does not panic");
        if !status.success() {
            bail!("the other program failed: {status}");
        }
        Ok(samples)
    }
}

/// Parses a line into a moment and the number of bytes moved until then.
fn sample(line: &str) -> Option<(f64, u64)> {
    let line: Value = serde_json::from_str(line).ok()?;
    Some((line["t"].as_f64()?, line["bytes"].as_u64()?))
}

/// The rate in bytes per second between two moments, from the first and the last sample between
/// them.
fn rate_between(samples: &[(f64, u64)], began: f64, ended: f64) -> Result<f64> {
    let mut within = samples.iter().filter(|(at, _)| (began..=ended).contains(at));
    let (first, last) = (within.next(), within.next_back());
    let ((from, before), (to, after)) = first.zip(last).context("too short to measure")?;
    Ok((after - before) as f64 / (to - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_moved_meanwhile_counts() {
        let line = r#"{"event":"sample","t":2.5,"bytes":100,"bytes_per_second":7.0}"#;
        assert_eq!(sample(line), Some((2.5, 100)));
        assert_eq!(sample(r#"{"event":"summary","seconds":1,"bytes":5}"#), None);
        let samples = [(1.0, 50), (2.0, 60), (3.0, 80), (4.0, 200), (5.0, 999)];
        assert_eq!(rate_between(&samples, 1.5, 4.5).unwrap(), 70.0);
        assert!(rate_between(&samples, 4.5, 5.5).is_err());
    }
}
