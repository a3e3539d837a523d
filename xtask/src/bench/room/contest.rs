//! Movers that take turns between two emulated file systems: each run with the same rates, the
//! same congestion from its start, and nothing in the page cache.
//!
//! A mover that failed once, or whose copy differs, has no figure: it says what happened instead.
//! The first round warms up and is compared byte for byte; the others by names and lengths. Where
//! file systems keep no bytes, these are counted instead.

use super::super::measure::{Sample, measure};
use super::mount::{Bytes, Mount, Pair};
use super::route::Route;
use crate::scratch::Scratch;
use crate::tree::Extent;
use crate::{shell, tree};
use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// What one end of LADS said that it needed.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct End {
    /// User and system.
    pub(super) cpu_seconds: f64,
    /// High-water mark.
    pub(super) memory_bytes_peak: f64,
}

/// What a mover says of its own run.
#[derive(Debug)]
pub(super) struct Run {
    /// From the start of its command to its end.
    pub(super) elapsed: Duration,
    /// Source and sink, if it is LADS.
    pub(super) ends: Option<[End; 2]>,
}

/// Moves what is in the first directory into the second, along a route.
pub(super) type Move = Box<dyn Fn(&Route, &Path, &Path) -> Result<Run>>;

/// One mover with one set of options.
pub(super) struct Contestant {
    /// The line or bar that it belongs to in a plot.
    pub(super) line: String,
    /// Where on the line; `None` if nothing is varied for this mover.
    pub(super) at: Option<String>,
    /// How it is run.
    pub(super) run: Move,
}

/// What is set on the file systems while a mover runs. `{seed}` in a command stands for a number
/// that is another one in each round, and the same for all movers of a round: so as many weathers
/// are seen as there are rounds.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Congestion {
    /// A command for the source's control file.
    pub(super) source: Option<String>,
    /// The same for the sink's.
    pub(super) sink: Option<String>,
    /// Commands for the sink's that come one after the other, each after this many seconds, and
    /// then again from the first.
    pub(super) sink_turns: Vec<(f64, String)>,
}

/// One run of one mover.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    line: String,
    at: Option<String>,
    round: usize,
    /// Everything is at the sink's OSTs then.
    elapsed_seconds: f64,
    bytes_per_second: f64,
    bound_seconds: f64,
    /// The bound's time by the time that it took.
    bound_share: f64,
    cpu_seconds: f64,
    foreign_cpu_seconds: f64,
    load_average: f64,
    source: Option<End>,
    sink: Option<End>,
}

/// All runs of one mover.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standing {
    /// As in [`Contestant`].
    pub(super) line: String,
    /// As in [`Contestant`].
    pub(super) at: Option<String>,
    /// One for each round that counts; none if it failed.
    pub(super) rows: Vec<Row>,
    /// Why there is no figure.
    pub(super) failure: Option<String>,
}

impl Standing {
    /// One number of each run.
    pub(super) fn each(&self, number: impl Fn(&Row) -> f64) -> Vec<f64> {
        self.rows.iter().map(number).collect()
    }
}

impl Row {
    /// Seconds, bytes in a second, share of the bound.
    pub(super) fn figures(&self) -> [f64; 3] {
        [self.elapsed_seconds, self.bytes_per_second, self.bound_share]
    }

    /// Processor time of an end by time, and its memory, if LADS said so.
    pub(super) fn end(&self, is_source: bool) -> Option<(f64, f64)> {
        let end = if is_source { self.source } else { self.sink }?;
        Some((end.cpu_seconds / self.elapsed_seconds, end.memory_bytes_peak))
    }

    /// A run that never was, for tests of what shows it.
    #[cfg(test)]
    pub(super) fn invented(
        contestant: &Contestant,
        round: usize,
        elapsed_seconds: f64,
        [source, sink]: [End; 2],
    ) -> Self {
        Self {
            line: contestant.line.clone(),
            at: contestant.at.clone(),
            round,
            elapsed_seconds,
            bytes_per_second: 200e6 / elapsed_seconds,
            bound_seconds: 0.9,
            bound_share: 0.9 / elapsed_seconds,
            cpu_seconds: 0.5,
            foreign_cpu_seconds: 0.1,
            load_average: 1.0,
            source: Some(source),
            sink: Some(sink),
        }
    }

    /// Processor seconds of all that the mover started.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }
}

/// Where a contest is held.
pub(super) struct Arena<'a> {
    /// The program that judges.
    pub(super) testbed: &'a Path,
    /// The file systems, with the data set in `data` at the source.
    pub(super) pair: &'a Pair,
    /// The way between them.
    pub(super) route: &'a Route,
    /// What is in their way.
    pub(super) congestion: &'a Congestion,
    /// Room for copies of what the file systems say.
    pub(super) notes: &'a Scratch,
    /// The data set.
    pub(super) extent: Extent,
    /// Whether the bound, too, has to write everything where the mover wrote it.
    pub(super) is_placed: bool,
}

/// In what the emulated file system counts what a file takes.
const PAGE_BYTES: f64 = 4096.0;

/// What the source directory of a mount is called.
pub(super) const DATA: &str = "data";
const TARGET: &str = "target";

impl Arena<'_> {
    /// Lets all take turns, this many rounds, the order turned round every other time.
    pub(super) fn hold(&self, contestants: &[Contestant], rounds: usize) -> Result<Vec<Standing>> {
        let mut standings: Vec<Standing> = contestants.iter().map(new_standing).collect();
        for round in 0..=rounds {
            let mut order: Vec<usize> = (0..contestants.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let standing = &mut standings[index];
                if standing.failure.is_some() {
                    continue;
                }
                match self.run_once(&contestants[index], round) {
                    Ok(row) if round > 0 => standing.rows.push(row),
                    Ok(_) => {}
                    Err(error) => {
                        standing.rows.clear();
                        standing.failure = Some(said_short(&error));
                    }
                }
            }
        }
        Ok(standings)
    }

    /// Lets one mover run once, and sees that its copy is one.
    pub(super) fn run_once(&self, contestant: &Contestant, round: usize) -> Result<Row> {
        let Pair { source, sink } = self.pair;
        let (from, to) = (source.path().join(DATA), sink.path().join(TARGET));
        remove(&to)?;
        fs::create_dir(&to)?;
        drop_caches(self.pair)?;
        let load_average = load_average()?;
        self.pair.throttle()?;
        let start_seconds = monotonic_seconds();
        let result = self.congested(contestant, round, &from, &to);
        // Before the rates are lifted: they are what the bound is made of.
        let said = [self.note(source, "source")?, self.note(sink, "sink")?];
        self.pair.release()?;
        let (run, sample) = result?;
        self.check(round, &from, &to, &said)?;
        remove(&to)?;
        let bound_seconds = self.bound(&said, start_seconds)?;
        let [source, sink] = run.ends.map_or([None, None], |ends| ends.map(Some));
        Ok(Row {
            line: contestant.line.clone(),
            at: contestant.at.clone(),
            round,
            elapsed_seconds: sample.elapsed_seconds,
            bytes_per_second: self.extent.bytes as f64 / sample.elapsed_seconds,
            bound_seconds,
            bound_share: bound_seconds / sample.elapsed_seconds,
            cpu_seconds: sample.cpu_seconds,
            foreign_cpu_seconds: sample.foreign_cpu_seconds,
            load_average,
            source,
            sink,
        })
    }

    /// Runs it, and waits until what it wrote is on the OSTs: for one that leaves its bytes in
    /// the page cache has not moved them yet.
    fn measured(&self, contestant: &Contestant, from: &Path, to: &Path) -> Result<(Run, Sample)> {
        let mut run = None;
        let sample = measure(|| {
            let done = (contestant.run)(self.route, from, to)?;
            let start = Instant::now();
            self.pair.sink.answer_at_once()?;
            sync(to)?;
            let elapsed = done.elapsed + start.elapsed();
            run = Some(done);
            Ok(elapsed)
        })?;
        Ok((run.expect("measured above"), sample))
    }

    /// Runs a mover while the sink's congestion takes its turns.
    fn congested(
        &self,
        contestant: &Contestant,
        round: usize,
        from: &Path,
        to: &Path,
    ) -> Result<(Run, Sample)> {
        self.congest(round)?;
        let is_over = Condvar::new();
        let over = Mutex::new(false);
        thread::scope(|scope| {
            let turns = scope.spawn(|| self.take_turns(&over, &is_over));
            let result = self.measured(contestant, from, to);
            *over.lock().expect("nobody panics with it") = true;
            is_over.notify_all();
            turns.join().expect("it does not panic")?;
            result
        })
    }

    fn take_turns(&self, over: &Mutex<bool>, is_over: &Condvar) -> Result<()> {
        for (seconds, command) in self.congestion.sink_turns.iter().cycle() {
            let wait = Duration::from_secs_f64(*seconds);
            let over = over.lock().expect("nobody panics with it");
            let (over, _) = is_over
                .wait_timeout_while(over, wait, |over| !*over)
                .expect("nobody panics with it");
            if *over {
                break;
            }
            self.pair.sink.control(command)?;
        }
        Ok(())
    }

    fn congest(&self, round: usize) -> Result<()> {
        let Congestion { source, sink, .. } = self.congestion;
        let ends = [(&self.pair.source, source), (&self.pair.sink, sink)];
        for (end, (mount, command)) in ends.into_iter().enumerate() {
            if let Some(command) = command {
                // Both ends have weather of their own.
                let seed = 1 + end + 2 * round;
                mount.control(&command.replace("{seed}", &seed.to_string()))?;
            }
        }
        Ok(())
    }

    /// Keeps what a file system says; returns where.
    fn note(&self, mount: &Mount, name: &str) -> Result<[PathBuf; 2]> {
        let paths = ["stats", "series"].map(|what| self.notes.join(&format!("{name}.{what}")));
        for (path, what) in paths.iter().zip(["stats", "series"]) {
            fs::write(path, mount.read(what)?)?;
        }
        Ok(paths)
    }

    /// Byte for byte in round zero, by names and lengths in the others; always so where no bytes
    /// are kept, and then by what went through the OSTs.
    fn check(&self, round: usize, from: &Path, to: &Path, said: &[[PathBuf; 2]; 2]) -> Result<()> {
        let Pair { source, sink } = self.pair;
        let is_kept = [source, sink].iter().all(|mount| mount.bytes() == Bytes::Kept);
        if is_kept && round == 0 {
            return tree::compare(from, to);
        }
        if tree::files(from)? != tree::files(to)? {
            bail!("the copy has other names or lengths");
        }
        if is_kept {
            return Ok(());
        }
        for ([stats, _], did) in said.iter().zip(["read", "written"]) {
            let each = each_ost(&fs::read_to_string(stats)?, &format!("{did}_bytes"))?;
            let bytes: u64 = each.iter().sum();
            if bytes < self.extent.bytes {
                bail!("{bytes} bytes were {did} on OSTs, not {}", self.extent.bytes);
            }
        }
        Ok(())
    }

    fn bound(&self, said: &[[PathBuf; 2]; 2], start_seconds: f64) -> Result<f64> {
        let anywhere = self.bound_anywhere(said, start_seconds)?;
        match self.is_placed {
            true => Ok(anywhere.max(self.bound_in_place(&said[1], start_seconds)?)),
            false => Ok(anywhere),
        }
    }

    /// What a sink needs for the bytes that each of its OSTs was given: as if they lay there, and
    /// had to be read.
    fn bound_in_place(&self, [stats, series]: &[PathBuf; 2], start_seconds: f64) -> Result<f64> {
        let text = fs::read_to_string(stats)?;
        let bytes: Vec<String> =
            each_ost(&text, "written_bytes")?.iter().map(u64::to_string).collect();
        let mut command = shell::command(self.testbed);
        command.arg("bound").arg(format!("--from={start_seconds}"));
        command.arg("--source-stats").arg(stats).arg("--source-series").arg(series);
        command.arg(format!("--source-bytes={}", bytes.join(",")));
        let bound: serde_json::Value = serde_json::from_str(&shell::output(&mut command)?)?;
        bound["seconds"].as_f64().context("bytes lie where they cannot be written")
    }

    fn bound_anywhere(&self, said: &[[PathBuf; 2]; 2], start_seconds: f64) -> Result<f64> {
        let mut command = shell::command(self.testbed);
        command.arg("bound").arg(format!("--from={start_seconds}"));
        for ([stats, series], name) in said.iter().zip(["source", "sink"]) {
            command.arg(format!("--{name}-stats")).arg(stats);
            command.arg(format!("--{name}-series")).arg(series);
        }
        if let Some(rate) = self.route.bytes_per_second {
            command.arg(format!("--network={rate}"));
        }
        let bound: serde_json::Value = serde_json::from_str(&shell::output(&mut command)?)?;
        let bytes = bound["bytes"].as_f64().context("the bound says no bytes")?;
        // Files take whole pages.
        let Extent { files, bytes: bytes_wanted } = self.extent;
        let tolerance = bytes_wanted as f64 * 0.01 + files as f64 * PAGE_BYTES;
        if (bytes - bytes_wanted as f64).abs() > tolerance {
            bail!("{bytes} bytes lie on the source's OSTs, not {bytes_wanted}");
        }
        bound["seconds"].as_f64().context("bytes lie where they cannot be read")
    }
}

/// A number of each OST, as a file system says it.
pub(super) fn each_ost(stats: &str, key: &str) -> Result<Vec<u64>> {
    let stats: serde_json::Value = serde_json::from_str(stats)?;
    let osts = stats["osts"].as_array().context("the file system says nothing of OSTs")?;
    osts.iter().map(|ost| ost[key].as_u64().with_context(|| format!("no {key}"))).collect()
}

fn new_standing(contestant: &Contestant) -> Standing {
    Standing {
        line: contestant.line.clone(),
        at: contestant.at.clone(),
        rows: Vec::new(),
        failure: None,
    }
}

/// The first line of what went wrong, and of why.
fn said_short(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

pub(super) fn monotonic_seconds() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn load_average() -> Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().context("loadavg")?.parse()?)
}

/// Throws away what the page cache knows of the data; needs root. Only what is written can be
/// thrown away; what others have not yet written is none of our business, and takes its time.
pub(super) fn drop_caches(pair: &Pair) -> Result<()> {
    for mount in [&pair.source, &pair.sink] {
        rustix::fs::syncfs(File::open(mount.path())?)?;
    }
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the page cache")
}

/// Waits until all files are on the OSTs. Sync of the whole file system only starts the writing
/// on a FUSE mount; fsync of each file waits for it.
fn sync(root: &Path) -> Result<()> {
    rustix::fs::syncfs(File::open(root)?)?;
    for (path, _) in tree::files(root)? {
        File::open(root.join(path))?.sync_all()?;
    }
    Ok(())
}

pub(super) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
