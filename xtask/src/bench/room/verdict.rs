//! Measures how often LADS says rightly which part limits a transfer. Each part in turn is made the
//! slow one, to four degrees, twice each; besides, the person's own limit.

use super::super::table::Table;
use super::contest::{drop_caches, remove};
use super::data::DataSet;
use super::mount::{Mount, Pair, Storage};
use super::route::{Distance, Line, LineKind, Route};
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, ensure};
use lads_tried::write_script;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The memory that is used as file systems, in bytes.
pub(in crate::bench) const SPACE: u64 = 5 << 30;

/// How long each transfer should take, in seconds, so that a verdict settles.
const SECONDS: u64 = 6;

/// The rates of each of eight OSTs where storage is slow, in bytes per second. With twice as much
/// as the most of them, the processors of this machine may be the slowest part.
const OST_RATES: [u64; 4] = [5_000_000, 10_000_000, 20_000_000, 40_000_000];

/// The rates of the line where the network is slow.
const LINE_RATES: [(&str, u64); 4] = [
    ("100Mbit", 12_500_000),
    ("200Mbit", 25_000_000),
    ("400Mbit", 50_000_000),
    ("800Mbit", 100_000_000),
];

/// How many other programs share the processor of an end where that is slow. Beside one, the sink
/// still has as much as it needs: the source costs more, because its processor also does the work
/// of the kernel's network on loopback.
const OTHERS: [usize; 4] = [2, 4, 8, 16];

/// More zeros than an end moves in [`SECONDS`].
const ZEROS: &str = "zero:1T";

/// A processor counts as slow if the transfer reaches less than this share of what it reaches with
/// processors of its own.
const SLOWED: f64 = 0.95;

/// The exit status of a transfer that was stopped.
const STOPPED: i32 = 9;

/// Limits that the person sets, in MiB per second.
const LIMITS: [u64; 4] = [10, 20, 40, 80];

/// How often each is tried.
const TRIES: usize = 2;

/// For how many events LADS names a part before another one becomes slow.
const SETTLED: u32 = 4;

/// How many times [`SECONDS`] pass while parts become slow in turn.
const CHANGES: u64 = 8;

/// What LADS said, of each try.
type Said = Vec<String>;

/// Lets LADS say which part is slow, with each part slow in turn.
pub(in crate::bench) fn run(lads: &Path) -> Result<Table> {
    let testbed = shell::build_testbed()?;
    let notes = Scratch::new(&std::env::temp_dir(), "lads-verdict")?;
    let bed = Bed { lads, testbed: &testbed, notes: &notes };
    let mut rows = bed.slow_storage()?;
    rows.extend(bed.slow_processors()?);
    rows.extend(bed.slow_network()?);
    let changes = bed.changes()?;
    let said = |it: &Row| it.2.iter().filter(|said| **said == it.0).count();
    let (right, all) = (rows.iter().map(said).sum::<usize>(), rows.iter().map(|it| it.2.len()));
    let all = all.sum::<usize>();
    rows.extend(changes);
    let words = |(part, degree, said): Row| vec![part.to_owned(), degree, said.join(", ")];
    let rows = rows.into_iter().map(words).collect();
    let title = format!("verdict: bottleneck found in {right} of {all} runs");
    Ok(Table::of_words(&title, &["slow part", "degree", "LADS reports"], rows))
}

struct Bed<'a> {
    lads: &'a Path,
    testbed: &'a Path,
    notes: &'a Scratch,
}

type Row = (&'static str, String, Said);

/// What LADS said at its end.
struct Ended {
    bottleneck: String,
    bytes_per_second: f64,
}

impl Bed<'_> {
    fn slow_storage(&self) -> Result<Vec<Row>> {
        let storage = Storage::default();
        let pair = Pair::start(self.testbed, storage, storage, &self.notes.join("mounts"))?;
        let mut rows = Vec::new();
        for rate in OST_RATES {
            make_data(&pair, rate * u64::from(storage.osts))?;
            for (part, slow) in [("source-storage", &pair.source), ("sink-storage", &pair.sink)] {
                let said = (0..TRIES).map(|_| self.between(&pair, Some((slow, rate)), &[]));
                let degree = format!("8 OSTs of {} MB/s", rate / 1_000_000);
                rows.push((part, degree, said.collect::<Result<_>>()?));
            }
        }
        for limit in LIMITS {
            make_data(&pair, limit << 20)?;
            let words = ["--bwlimit", &format!("{limit}M")];
            let said = (0..TRIES).map(|_| self.between(&pair, None, &words));
            rows.push(("limit", format!("{limit} MiB/s"), said.collect::<Result<_>>()?));
        }
        Ok(rows)
    }

    /// Moves the data between the two file systems; one of them may be slow.
    fn between(
        &self,
        pair: &Pair,
        slow: Option<(&Mount, u64)>,
        options: &[&str],
    ) -> Result<String> {
        pair.release()?;
        let target = pair.sink.path().join("target");
        remove(&target)?;
        drop_caches(pair)?;
        pair.throttle()?;
        for mount in [&pair.source, &pair.sink] {
            mount.control("rate all unlimited")?;
        }
        if let Some((mount, rate)) = slow {
            mount.control(&format!("rate all {rate}"))?;
        }
        let mut command = shell::command(self.lads);
        command.args(["cp", "--json"]).args(options);
        command.arg(pair.source.path().join("data")).arg(&target);
        Ok(verdict(command)?.bottleneck)
    }

    /// How long it takes until LADS names another part, when another one becomes slow.
    fn changes(&self) -> Result<Vec<Row>> {
        let storage = Storage::default();
        let pair = Pair::start(self.testbed, storage, storage, &self.notes.join("changes"))?;
        let rate = OST_RATES[2];
        // Enough for all of it, each part in turn.
        make_data(&pair, rate * u64::from(storage.osts) * CHANGES)?;
        let ends = [("source-storage", &pair.source), ("sink-storage", &pair.sink)];
        pair.release()?;
        drop_caches(&pair)?;
        pair.sink.control("rate all unlimited")?;
        pair.source.control(&format!("rate all {rate}"))?;
        let mut command = shell::command(self.lads);
        command.args(["cp", "--json"]).arg(pair.source.path().join("data"));
        command.arg(pair.sink.path().join("target"));
        let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start lads")?;
        let told = child.stdout.take().context("it has no output")?;
        let mut rows: Vec<Row> =
            ends.iter().map(|end| (end.0, String::new(), Vec::new())).collect();
        let (mut slow, mut changed) = (0, None::<Instant>);
        let mut right = 0;
        for line in BufReader::new(told).lines() {
            let event: Value = serde_json::from_str(&line?)?;
            if event["event"] != "progress" || event["bottleneck"] != ends[slow].0 {
                continue;
            }
            if let Some(changed) = changed.take() {
                let seconds = changed.elapsed().as_secs_f64();
                rows[slow].1 = "since it is slow".to_owned();
                rows[slow].2.push(format!("after {seconds:.1} s"));
            }
            right += 1;
            if right == SETTLED && rows.iter().any(|row| row.2.len() < TRIES) {
                ends[slow].1.control("rate all unlimited")?;
                slow = 1 - slow;
                ends[slow].1.control(&format!("rate all {rate}"))?;
                (changed, right) = (Some(Instant::now()), 0);
            }
        }
        child.wait()?;
        ensure!(rows.iter().all(|row| row.2.len() == TRIES), "the transfer ended too early");
        Ok(rows)
    }

    /// Zeros go to a sink that keeps nothing; each end has one processor, which one of them shares
    /// with others.
    fn slow_processors(&self) -> Result<Vec<Row>> {
        let (shell, there) = (self.notes.join("shell"), self.notes.join("there"));
        write_script(&shell, "shift; exec \"$@\"")?;
        write_script(&there, &format!("exec taskset -c 1 {} \"$@\"", self.lads.display()))?;
        let seconds = format!("{SECONDS}s");
        let ended = || {
            let mut command = shell::command("taskset");
            command.args(["-c", "0"]).arg(self.lads).args(["cp", "--json", "-e"]).arg(&shell);
            command.arg("--remote-lads").arg(&there).args(["--stop-after", &seconds]);
            command.args(["--data-address", "127.0.0.1"]).args([ZEROS, "there:null:"]);
            verdict(command)
        };
        let alone = ended()?.bytes_per_second;
        let mut rows = Vec::new();
        for count in OTHERS {
            for (part, processor) in [("source-cpu", "0"), ("sink-cpu", "1")] {
                let mut said = Said::new();
                for _ in 0..TRIES {
                    let others = Others::begin(processor, count)?;
                    let ended = ended()?;
                    drop(others);
                    ensure!(
                        ended.bytes_per_second < SLOWED * alone,
                        "{part} is not slow with {count} other processes: {} of {alone} bytes a second",
                        ended.bytes_per_second
                    );
                    said.push(ended.bottleneck);
                }
                rows.push((part, format!("shared with {count}"), said));
            }
        }
        Ok(rows)
    }

    fn slow_network(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (rate, bytes_per_second) in LINE_RATES {
            let mut said = Said::new();
            for distance in [Distance::Ornl, Distance::Seattle] {
                let line = Line::lay(self.testbed, distance, LineKind::of_rate(rate))?;
                let ended = verdict(self.over(&line.route, bytes_per_second * SECONDS))?;
                said.push(ended.bottleneck);
            }
            rows.push(("network", rate.to_owned(), said));
        }
        Ok(rows)
    }

    fn over(&self, route: &Route, bytes: u64) -> Command {
        let mut command = route.at_source(&self.lads.display().to_string());
        command.args(["cp", "--json", "-e", &route.remote_shell, "--remote-lads"]);
        command.arg(self.lads).args(["--data-address", &route.sink_address]);
        command.arg(format!("null:{bytes}")).arg("sink:null:");
        command
    }
}

/// As much at the source as takes [`SECONDS`] at a rate.
fn make_data(pair: &Pair, bytes_per_second: u64) -> Result<()> {
    let data = pair.source.path().join("data");
    pair.release()?;
    remove(&data)?;
    let files = (bytes_per_second * SECONDS) >> 20;
    DataSet::Uniform { files, bytes_each: 1 << 20 }.make(&data)?;
    Ok(())
}

/// Runs a transfer; what it says at its end of what was slow.
fn verdict(mut command: Command) -> Result<Ended> {
    let output = command.stdin(Stdio::null()).output().context("cannot start lads")?;
    let told = String::from_utf8_lossy(&output.stderr);
    let is_over = matches!(output.status.code(), Some(0 | STOPPED));
    ensure!(is_over, "lads fails: {told}");
    let text = String::from_utf8(output.stdout)?;
    let last: Value = serde_json::from_str(text.lines().last().context("it printed nothing")?)?;
    Ok(Ended {
        bottleneck: last["bottleneck"].as_str().unwrap_or("nothing").to_owned(),
        bytes_per_second: last["bytes_per_second"].as_f64().context("it reported no rate")?,
    })
}

/// Programs that want all of a processor. They end when this is dropped.
struct Others(Vec<Child>);

impl Others {
    fn begin(processor: &str, count: usize) -> Result<Self> {
        let mut others = Self(Vec::new());
        for _ in 0..count {
            let mut command = shell::command("taskset");
            command.args(["-c", processor, "sh", "-c", "while :; do :; done"]);
            others.0.push(command.spawn().context("taskset is missing")?);
        }
        Ok(others)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // An error means that it has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
