//! Compares LADS with nothing said with LADS as an expert would tune it: with the best of a grid of
//! threads, streams and lengths of requests, on six kinds of storage and network.
//!
//! First, each point of the grid runs once. Then the best few, the worst, and LADS with nothing
//! said take turns, and their medians count: the best of many single runs is often the luckiest
//! one. A run that takes several times as long as LADS with nothing said is stopped. Its rate is
//! that of what it has moved until then.

mod disk;
mod place;

use super::super::needs::Needs;
use super::super::table::Table;
use super::contest::remove;
use super::data::DataSet;
use super::mount::Storage;
use super::peers;
use super::route::{Distance, Line, LineKind, Route};
use crate::shell;
use crate::tree::{self, Extent};
use anyhow::{Context, Result, bail, ensure};
use lads_plot::groups::Spread;
use place::{Kind, Place};
use std::fmt;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

/// The memory that is used as storage, and as much of a disk, in bytes.
pub(in crate::bench) const SPACE: u64 = 5 << 30;

/// The number of rounds that count. It is odd, so that the median is one of the results.
const ROUNDS: usize = 5;

/// How many of the best points run again.
const BEST: usize = 3;

/// A run is stopped when it has taken this many times as long as LADS with nothing said.
const TIMES_MAX: f64 = 4.0;

/// The exit status of a transfer that was stopped.
const STOPPED: i32 = 9;

/// The memory for blocks that an end has if nothing is said, in MiB. A point whose threads cannot
/// all have a block at a time is left out: it is the same as one with fewer threads.
const BUFFERS_MIB: u32 = 256;

const THREADS: [u32; 4] = [1, 4, 16, 32];
const STREAMS: [u32; 3] = [1, 4, 8];
const BLOCKS_MIB: [u32; 3] = [1, 8, 32];

/// Options of LADS; without any, it is LADS with nothing said.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Options(Vec<String>);

impl Options {
    fn of(text: &str) -> Self {
        Self(text.split_whitespace().map(str::to_owned).collect())
    }

    fn point(threads: u32, streams: u32, block_mib: u32) -> Self {
        let ends = format!("--source threads={threads} --sink threads={threads}");
        let text = format!("{ends} --streams {streams} --lab block-size={block_mib}M");
        Self::of(&text)
    }
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0[..] {
            [] => write!(f, "LADS, defaults"),
            ref words => write!(f, "`{}`", words.join(" ")),
        }
    }
}

/// All points of the grid that the memory of an end has blocks for.
fn points() -> Vec<Options> {
    let all = THREADS.into_iter().flat_map(|threads| {
        STREAMS.into_iter().flat_map(move |streams| {
            BLOCKS_MIB.into_iter().map(move |block| (threads, streams, block))
        })
    });
    let fits = |&(threads, _, block): &(u32, u32, u32)| threads * block <= BUFFERS_MIB;
    all.filter(fits)
        .map(|(threads, streams, block)| Options::point(threads, streams, block))
        .collect()
}

/// What takes turns on a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rivals {
    /// The best and the worst of the grid.
    Grid,
    /// The orders in which blocks are read.
    Orders,
}

/// Storage, a network, and data that take about two seconds at best.
struct Profile {
    name: &'static str,
    kind: Kind,
    line: Option<(Distance, &'static str)>,
    data: DataSet,
    rivals: Rivals,
}

const MIB: u64 = 1 << 20;

fn profiles() -> Vec<Profile> {
    let files = |files, mib: u64| DataSet::Uniform { files, bytes_each: mib * MIB };
    let grid = |name, kind, data| Profile { name, kind, line: None, data, rivals: Rivals::Grid };
    let osts = |rate| Storage { ost_bytes_per_second: Some(rate), ..Storage::default() };
    let disks = Kind::Disks { bytes_per_second: 50_000_000 };
    let orders = |name, kind, data| Profile { rivals: Rivals::Orders, ..grid(name, kind, data) };
    vec![
        grid("memory", Kind::Memory, files(16, 128)),
        grid("8 OSTs of 50 MB/s", Kind::Mounts(osts(50_000_000)), files(16, 32)),
        grid(
            "8 hidden OSTs of 25 MB/s",
            Kind::Mounts(Storage { hides_layouts: true, ..osts(25_000_000) }),
            files(16, 24),
        ),
        Profile {
            line: Some((Distance::Chicago, "4Gbit")),
            ..grid("a line of 26.8 ms", Kind::Memory, files(16, 48))
        },
        Profile {
            line: Some((Distance::Sunnyvale, "1Gbit")),
            ..grid("a line of 163 ms with 1 Gbit/s", Kind::Memory, files(16, 16))
        },
        grid("one slow disk", disks, files(4, 24)),
        orders("order, a slow disk", disks, files(1, 96)),
        orders(
            "order, 8 OSTs",
            Kind::Mounts(Storage { stripe_count: 8, ..osts(50_000_000) }),
            files(1, 512),
        ),
        orders("order, the disk of the build", Kind::Plain, files(1, 2048)),
    ]
}

/// What is needed for all profiles.
pub(in crate::bench) fn needs() -> Needs<'static> {
    let lines = super::mounts_need().program("ip").program("iptables").program("ssh");
    let needs = disk::PROGRAMS.iter().fold(lines.program("sshd"), |needs, it| needs.program(it));
    disk::LIMITS.iter().fold(needs, |needs, path| needs.file(Path::new(path)))
}

/// Measures the profiles that have this word in their name, or all. Makes two tables of each, and
/// one of all.
pub(in crate::bench) fn run(lads: &Path, disk: &Path, word: Option<&str>) -> Result<Vec<Table>> {
    let testbed = shell::build_testbed()?;
    let is_wanted = |profile: &Profile| word.is_none_or(|word| profile.name.contains(word));
    let wanted: Vec<Profile> = profiles().into_iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "unknown profile");
    let mut tables = Vec::new();
    let mut shares = Vec::new();
    for profile in wanted {
        let found = measured(lads, &testbed, disk, &profile).context(profile.name)?;
        shares.extend(found.share(&profile));
        tables.extend(found.tables(&profile));
    }
    let head = ["profile", "defaults, MB/s", "best, MB/s", "worst, MB/s", "share of the best"];
    if !shares.is_empty() {
        tables.push(Table::of_words("grid: the share of the best of the grid", &head, shares));
    }
    Ok(tables)
}

fn measured(lads: &Path, testbed: &Path, disk: &Path, profile: &Profile) -> Result<Found> {
    let place = Place::start(testbed, disk, profile.kind)?;
    let lay = |(distance, rate)| Line::lay(testbed, distance, LineKind::of_rate(rate));
    let line = profile.line.map(lay).transpose()?;
    let route = line.as_ref().map_or_else(Route::loopback, |line| line.route.clone());
    let extent = profile.data.make(&place.directories()[0])?;
    let bed = Bed { lads, place: &place, route: &route, extent };
    bed.find(profile.rivals)
}

/// Where a profile is measured.
struct Bed<'a> {
    lads: &'a Path,
    place: &'a Place,
    route: &'a Route,
    extent: Extent,
}

/// How a copy is checked, if it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Bytes,
    Lengths,
}

/// One run, whole or stopped.
#[derive(Clone, Copy, Debug)]
struct Ran {
    seconds: f64,
    bytes_per_second: f64,
}

impl Bed<'_> {
    fn find(&self, rivals: Rivals) -> Result<Found> {
        let nothing_said = Options::of("");
        self.ran(&nothing_said, None, Check::Bytes)?;
        let usual = self.ran(&nothing_said, None, Check::Lengths)?;
        let seconds_max = usual.seconds * TIMES_MAX;
        let mut first = Vec::new();
        let mut chosen = vec![nothing_said];
        match rivals {
            Rivals::Orders => chosen.extend(orders()),
            Rivals::Grid => {
                for point in points() {
                    let ran = self.ran(&point, Some(seconds_max), Check::Lengths)?;
                    first.push((point, ran.bytes_per_second));
                }
                chosen.extend(best_and_worst(&first));
            }
        }
        Ok(Found { first, second: self.take_turns(chosen, seconds_max)? })
    }

    /// Every second round has the reverse order.
    fn take_turns(&self, chosen: Vec<Options>, seconds_max: f64) -> Result<Vec<Turns>> {
        let mut all: Vec<Turns> = chosen.into_iter().map(|it| (it, Vec::new())).collect();
        for _ in 0..ROUNDS {
            for (options, runs) in &mut all {
                runs.push(self.ran(options, Some(seconds_max), Check::Lengths)?);
            }
            all.reverse();
        }
        if ROUNDS % 2 == 1 {
            all.reverse();
        }
        Ok(all)
    }

    /// Moves the data once.
    fn ran(&self, options: &Options, seconds_max: Option<f64>, check: Check) -> Result<Ran> {
        let [source, target] = self.place.directories();
        remove(&target)?;
        std::fs::create_dir(&target)?;
        self.place.forget()?;
        self.place.throttle()?;
        let result = self.moved(options, seconds_max, &source, &target);
        self.place.release()?;
        let (ran, is_whole) = result.with_context(|| options.to_string())?;
        match check {
            Check::Bytes => tree::compare(&source, &target)?,
            Check::Lengths if is_whole => {
                ensure!(
                    tree::files(&source)? == tree::files(&target)?,
                    "{options}: the copy differs"
                );
            }
            Check::Lengths => {}
        }
        remove(&target)?;
        Ok(ran)
    }

    /// Runs the command. Returns whether it moved everything, too.
    fn moved(
        &self,
        options: &Options,
        seconds_max: Option<f64>,
        source: &Path,
        target: &Path,
    ) -> Result<(Ran, bool)> {
        let mut words = options.0.clone();
        words.extend(seconds_max.map(|seconds| format!("--stop-after={seconds:.1}s")));
        let mut command = peers::lads_command(self.lads, self.route, &words, source, target);
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output().context("cannot start lads")?;
        let seconds = start.elapsed().as_secs_f64();
        let bytes = match output.status.code() {
            Some(0) => self.extent.bytes as f64,
            Some(STOPPED) => bytes_done(&output.stdout)?,
            _ => bail!("{}: {}", output.status, peers::reason(&output)),
        };
        let ran = Ran { seconds, bytes_per_second: bytes / seconds };
        Ok((ran, output.status.success()))
    }
}

/// How many bytes a transfer moved that was stopped.
fn bytes_done(events: &[u8]) -> Result<f64> {
    let text = String::from_utf8_lossy(events);
    let last = text.lines().last().context("it printed nothing")?;
    let summary: serde_json::Value = serde_json::from_str(last)?;
    summary["bytes_done"].as_f64().context("it did not report the number of bytes")
}

/// The orders in which blocks are read, with blocks as usual and long ones.
fn orders() -> Vec<Options> {
    let all = ["none", "loose", "serial"].into_iter().flat_map(|order| {
        ["1M", "8M"].map(|block| Options::of(&format!("--lab order={order},block-size={block}")))
    });
    all.collect()
}

/// Of points and their rates, the best few and the worst.
fn best_and_worst(tried: &[(Options, f64)]) -> Vec<Options> {
    let mut sorted: Vec<&(Options, f64)> = tried.iter().collect();
    sorted.sort_by(|left, right| right.1.total_cmp(&left.1));
    let worst = sorted.pop();
    sorted.into_iter().take(BEST).chain(worst).map(|(options, _)| options.clone()).collect()
}

/// Options, and a run in each round.
type Turns = (Options, Vec<Ran>);

/// The results of a profile.
struct Found {
    /// Each point of the grid with its rate; empty where there is no grid.
    first: Vec<(Options, f64)>,
    /// What took turns: first LADS with nothing said, last the worst point of a grid.
    second: Vec<Turns>,
}

fn rate((_, runs): &Turns) -> Spread {
    Spread::of(runs.iter().map(|run| run.bytes_per_second))
}

fn mb(rate: f64) -> String {
    format!("{:.0}", rate / 1e6)
}

impl Found {
    /// What was fastest besides LADS with nothing said.
    fn best(&self) -> &Turns {
        let rivals = self.second[1..].iter();
        rivals.max_by(|one, other| rate(one).median.total_cmp(&rate(other).median)).expect("some")
    }

    fn share_of(&self, turns: &Turns) -> String {
        format!("{:.2}", rate(turns).median / rate(self.best()).median)
    }

    /// One row for the table of all profiles, if this has a grid.
    fn share(&self, profile: &Profile) -> Option<Vec<String>> {
        let said = |turns: &Turns| format!("{} {}", mb(rate(turns).median), turns.0);
        let [first, .., last] = &self.second[..] else { return None };
        (profile.rivals == Rivals::Grid).then(|| {
            let nothing_said = mb(rate(first).median);
            let [best, worst, share] = [said(self.best()), said(last), self.share_of(first)];
            vec![profile.name.to_owned(), nothing_said, best, worst, share]
        })
    }

    fn tables(&self, profile: &Profile) -> Vec<Table> {
        let mut tables = Vec::new();
        if !self.first.is_empty() {
            let rows = self.first.iter();
            let rows = rows.map(|(options, rate)| vec![options.to_string(), mb(*rate)]);
            let title = format!("grid: {}: each point once", profile.name);
            tables.push(Table::of_words(&title, &["options", "MB/s"], rows.collect()));
        }
        let rows = self.second.iter().map(|turns| {
            let Spread { median, min, max } = rate(turns);
            let seconds = Spread::of(turns.1.iter().map(|run| run.seconds)).median;
            let rate = format!("{} [{}–{}]", mb(median), mb(min), mb(max));
            vec![turns.0.to_string(), format!("{seconds:.2}"), rate, self.share_of(turns)]
        });
        let head = ["options", "seconds", "MB/s [min–max]", "share of the best"];
        let title = format!("grid: {}: in turn", profile.name);
        tables.push(Table::of_words(&title, &head, rows.collect()));
        tables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_that_the_memory_has_no_blocks_for_are_left_out() {
        let points = points();
        let is_there = |threads, block| points.contains(&Options::point(threads, 1, block));
        assert!(is_there(32, 8) && is_there(4, 32) && !is_there(16, 32) && !is_there(32, 32));
        assert_eq!(points.len(), (THREADS.len() * BLOCKS_MIB.len() - 2) * STREAMS.len());
    }

    #[test]
    fn the_best_few_and_the_worst_run_again() {
        let tried: Vec<(Options, f64)> =
            [5.0, 1.0, 9.0, 7.0, 3.0].map(|rate| (Options::of(&rate.to_string()), rate)).into();
        let words = best_and_worst(&tried).iter().map(|it| it.0.concat()).collect::<Vec<_>>();
        assert_eq!(words, ["9", "7", "5", "1"]);
    }

    #[test]
    fn the_share_is_that_of_the_best_median_and_not_of_the_luckiest_run() {
        let turns = |name: &str, rates: [f64; 3]| {
            let run = |bytes_per_second| Ran { seconds: 1.0, bytes_per_second };
            (Options::of(name), rates.map(run).to_vec())
        };
        let second =
            vec![turns("", [90e6; 3]), turns("a", [100e6; 3]), turns("b", [10e6, 20e6, 500e6])];
        let found = Found { first: Vec::new(), second };
        let profile = profiles().into_iter().next().unwrap();
        assert_eq!(found.share(&profile).unwrap()[1..], ["90", "100 `a`", "20 `b`", "0.90"]);
    }
}
