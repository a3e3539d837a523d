//! Lets movers take turns between two emulated file systems. Each run has the same rates, starts
//! with the same congestion, and begins with an empty page cache.
//!
//! A mover that failed once, or whose copy differs, gets no figure; the result says what happened
//! instead. The first round is a warm-up, and its copies are compared byte for byte. In the other
//! rounds, names and lengths are compared. Where the file systems keep no bytes, the bytes are
//! counted instead.

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

/// The resources that one end of LADS used, as LADS reports them.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct End {
    /// User and system time.
    pub(super) cpu_seconds: f64,
    /// The high-water mark of the memory.
    pub(super) memory_bytes_peak: f64,
}

/// The result that a mover returns for its run.
#[derive(Debug)]
pub(super) struct Run {
    /// The time from the start of the command to its end.
    pub(super) elapsed: Duration,
    /// The resources of source and sink, if the mover is LADS.
    pub(super) ends: Option<[End; 2]>,
}

/// A function that moves the content of the first directory into the second, along a route.
pub(super) type Move = Box<dyn Fn(&Route, &Path, &Path) -> Result<Run>>;

/// One mover with one set of options.
pub(super) struct Contestant {
    /// The line or bar that it belongs to in a plot.
    pub(super) line: String,
    /// The position on the line; `None` if nothing is varied for this mover.
    pub(super) at: Option<String>,
    /// The function that runs it.
    pub(super) run: Move,
}

/// The commands that are given to the file systems while a mover runs. `{seed}` in a command stands
/// for a number that differs from round to round, but is the same for all movers in a round. So
/// each round has a different pattern of congestion.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Congestion {
    /// A command for the source's control file.
    pub(super) source: Option<String>,
    /// A command for the sink's control file.
    pub(super) sink: Option<String>,
    /// A cycle of commands for the sink. Each command is given after this number of seconds.
    pub(super) sink_turns: Vec<(f64, String)>,
}

/// One run of one mover.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    line: String,
    at: Option<String>,
    round: usize,
    /// The time until everything is on the sink's OSTs.
    elapsed_seconds: f64,
    bytes_per_second: f64,
    bound_seconds: f64,
    /// The bound's time divided by the elapsed time.
    bound_share: f64,
    cpu_seconds: f64,
    foreign_cpu_seconds: f64,
    load_average: f64,
    source: Option<End>,
    sink: Option<End>,
}

/// The results of one mover.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Standing {
    /// As in [`Contestant`].
    pub(super) line: String,
    /// As in [`Contestant`].
    pub(super) at: Option<String>,
    /// One row for each round that counts; empty if the mover failed.
    pub(super) rows: Vec<Row>,
    /// The reason why there is no figure.
    pub(super) failure: Option<String>,
}

impl Standing {
    /// One number for each run.
    pub(super) fn each(&self, number: impl Fn(&Row) -> f64) -> Vec<f64> {
        self.rows.iter().map(number).collect()
    }
}

impl Row {
    /// The elapsed seconds, the bytes per second, and the share of the bound.
    pub(super) fn figures(&self) -> [f64; 3] {
        [self.elapsed_seconds, self.bytes_per_second, self.bound_share]
    }

    /// The processor time of an end divided by the elapsed time, and its memory, if the mover is
    /// LADS.
    pub(super) fn end(&self, is_source: bool) -> Option<(f64, f64)> {
        let end = if is_source { self.source } else { self.sink }?;
        Some((end.cpu_seconds / self.elapsed_seconds, end.memory_bytes_peak))
    }

    /// A made-up run, for tests of the code that shows results.
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

    /// The processor time of all processes of the mover, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }
}

/// The place of a contest, and its settings.
pub(super) struct Arena<'a> {
    /// The program that computes the bound.
    pub(super) testbed: &'a Path,
    /// The file systems, with the data set in `data` at the source.
    pub(super) pair: &'a Pair,
    /// The network between them.
    pub(super) route: &'a Route,
    /// The congestion during each run.
    pub(super) congestion: &'a Congestion,
    /// A directory for copies of the statistics of the file systems.
    pub(super) notes: &'a Scratch,
    /// The size of the data set.
    pub(super) extent: Extent,
    /// Whether the bound also has to write all data to the OSTs that the mover wrote it to.
    pub(super) is_placed: bool,
}

/// The page size. The emulated file system counts the size of a file in whole pages.
const PAGE_BYTES: f64 = 4096.0;

/// The name of the source directory in a mount.
pub(super) const DATA: &str = "data";
const TARGET: &str = "target";

impl Arena<'_> {
    /// Lets all contestants take turns for this number of rounds. Every second round has the
    /// reverse order.
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

    /// Runs one mover once, and checks its copy.
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
        // This happens before the rates are lifted, because the bound is computed from them.
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

    /// Runs a mover, and waits until everything that it wrote is on the OSTs: data that is only in
    /// the page cache has not been moved yet.
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

    /// Runs a mover while the commands for the sink are given in turn.
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
                // Each end has its own pattern of congestion.
                let seed = 1 + end + 2 * round;
                mount.control(&command.replace("{seed}", &seed.to_string()))?;
            }
        }
        Ok(())
    }

    /// Saves the statistics of a file system. Returns the paths of the files.
    fn note(&self, mount: &Mount, name: &str) -> Result<[PathBuf; 2]> {
        let paths = ["stats", "series"].map(|what| self.notes.join(&format!("{name}.{what}")));
        for (path, what) in paths.iter().zip(["stats", "series"]) {
            fs::write(path, mount.read(what)?)?;
        }
        Ok(paths)
    }

    /// Compares the copy: byte for byte in round zero, by names and lengths in the others. Where
    /// the file systems keep no bytes, it compares names and lengths in every round, and also the
    /// number of bytes that went through the OSTs.
    fn check(&self, round: usize, from: &Path, to: &Path, said: &[[PathBuf; 2]; 2]) -> Result<()> {
        let Pair { source, sink } = self.pair;
        let is_kept = [source, sink].iter().all(|mount| mount.bytes() == Bytes::Kept);
        if is_kept && round == 0 {
            return tree::compare(from, to);
        }
        if tree::files(from)? != tree::files(to)? {
            bail!("names or lengths of the copy differ");
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

    /// The time that a sink needs to write to each of its OSTs the bytes that this OST was given.
    /// It is computed as if these bytes had to be read from there.
    fn bound_in_place(&self, [stats, series]: &[PathBuf; 2], start_seconds: f64) -> Result<f64> {
        let text = fs::read_to_string(stats)?;
        let bytes: Vec<String> =
            each_ost(&text, "written_bytes")?.iter().map(u64::to_string).collect();
        let mut command = shell::command(self.testbed);
        command.arg("bound").arg(format!("--from={start_seconds}"));
        command.arg("--source-stats").arg(stats).arg("--source-series").arg(series);
        command.arg(format!("--source-bytes={}", bytes.join(",")));
        let bound: serde_json::Value = serde_json::from_str(&shell::output(&mut command)?)?;
        bound["seconds"].as_f64().context("there are bytes on OSTs that cannot be written")
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
        let bytes = bound["bytes"].as_f64().context("the bound has no bytes")?;
        // Files take up whole pages.
        let Extent { files, bytes: bytes_wanted } = self.extent;
        let tolerance = bytes_wanted as f64 * 0.01 + files as f64 * PAGE_BYTES;
        if (bytes - bytes_wanted as f64).abs() > tolerance {
            bail!("{bytes} bytes are on the source's OSTs, not {bytes_wanted}");
        }
        bound["seconds"].as_f64().context("there are bytes on OSTs that cannot be read")
    }
}

/// One number for each OST, from the statistics of a file system.
pub(super) fn each_ost(stats: &str, key: &str) -> Result<Vec<u64>> {
    let stats: serde_json::Value = serde_json::from_str(stats)?;
    let osts = stats["osts"].as_array().context("the file system reports no OSTs")?;
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

/// The first line of an error and its causes.
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

/// Drops the data from the page cache; this needs root. The kernel drops only pages that are
/// already written. So the two file systems are synced first, but no others, because that would
/// take time.
pub(super) fn drop_caches(pair: &Pair) -> Result<()> {
    drop_caches_of(&[&pair.source, &pair.sink].map(|mount| mount.path().to_owned()))
}

/// The same for the file systems that hold these directories.
pub(super) fn drop_caches_of(roots: &[PathBuf]) -> Result<()> {
    for root in roots {
        rustix::fs::syncfs(File::open(root)?)?;
    }
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop the page cache")
}

/// Waits until all files are on the OSTs. On a FUSE mount, a sync of the file system only starts
/// the writing; fsync of each file waits for it.
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
