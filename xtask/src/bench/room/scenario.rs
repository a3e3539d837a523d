//! The experiments of the papers, scaled to a small machine.
//!
//! A scenario has stages, which run one after the other. A stage has storage, data, a distance,
//! congestion, and the movers that take turns. The views of a scenario say which results of which
//! stages are drawn, and what the paper found.

mod distance;
mod matching;
mod slow;

use super::contest::{Congestion, Contestant};
use super::data::DataSet;
use super::mount::{Bytes, Storage};
use super::paper::{self, Paper};
use super::peers;
use super::route::{Distance, LineKind, Route};
use crate::scratch::Scratch;
use std::ops::Range;
use std::path::Path;

/// One experiment.
pub(super) struct Scenario {
    /// The name on the command line.
    pub(super) name: &'static str,
    /// The title of the page.
    pub(super) title: &'static str,
    /// What the paper did, and what is done here.
    pub(super) about: &'static str,
    /// The contests that are run.
    pub(super) stages: Vec<Stage>,
    /// The plots that are drawn.
    pub(super) views: Vec<View>,
}

/// One contest.
pub(super) struct Stage {
    /// The name of the stage.
    pub(super) name: String,
    /// The file system of the source.
    pub(super) source: Storage,
    /// The file system of the sink.
    pub(super) sink: Storage,
    /// The data set.
    pub(super) data: DataSet,
    /// The distance; `None` is loopback.
    pub(super) distance: Option<Distance>,
    /// The line, if there is a distance.
    pub(super) line: LineKind,
    /// The congestion during each run.
    pub(super) congestion: Congestion,
    /// Whether the bound also has to write all data to the OSTs that the mover wrote it to.
    pub(super) is_placed: bool,
    /// The sets of options with which LADS takes part.
    pub(super) lads: Vec<Entry>,
    /// The rivals that take part.
    pub(super) rivals: Rivals,
}

/// LADS with some options.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    line: String,
    at: Option<String>,
    options: Vec<String>,
}

/// Which rivals take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rivals {
    /// None.
    No,
    /// Those that keep several OSTs busy. The others would need minutes.
    Parallel,
    /// All that are installed here.
    All,
}

/// One plot.
pub(super) struct View {
    /// The title of the plot.
    pub(super) title: &'static str,
    /// Indices of stages: the one whose lines are drawn, or those whose bars are side by side.
    pub(super) stages: Vec<usize>,
    /// What is varied; bars are drawn if nothing is.
    pub(super) x_label: Option<&'static str>,
    /// What is shown of each run.
    pub(super) quantity: Quantity,
    /// The plot of the paper.
    pub(super) paper: Option<Paper>,
}

/// What a plot shows of each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// MB/s.
    Throughput,
    /// Share of the fluid bound, in percent.
    Share,
    /// The time from start to end.
    Seconds,
    /// The processor time of each end divided by the elapsed time.
    Cpu,
    /// The memory high-water mark of each end, in MB.
    Memory,
}

impl Stage {
    /// All contestants, and a list of the programs that are missing.
    pub(super) fn contestants(
        &self,
        lads: &Path,
        route: &Route,
        notes: &Scratch,
        others: &[(String, String)],
    ) -> (Vec<Contestant>, Vec<String>) {
        let mut contestants: Vec<Contestant> = self
            .lads
            .iter()
            .map(|Entry { line, at, options }| {
                let stage = notes.join("").display().to_string();
                let options: Vec<_> = options.iter().map(|it| it.replace(STAGE, &stage)).collect();
                let options: Vec<&str> = options.iter().map(String::as_str).collect();
                peers::lads(lads, line, at.as_deref(), &options)
            })
            .collect();
        if self.rivals == Rivals::No {
            return (contestants, Vec::new());
        }
        let work = peers::Work { ost_count: self.source.osts, file_count: self.data.file_count() };
        let (mut rivals, missing) = peers::all(route, notes, others, work);
        if self.rivals == Rivals::Parallel {
            // With a single file, one `cp` does the same as several.
            let is_alone = work.file_count == 1;
            rivals.retain(|rival| {
                let line = rival.line.as_str();
                !peers::SERIAL.contains(&line) || (is_alone && line == peers::CP)
            });
        }
        contestants.extend(rivals);
        (contestants, missing)
    }
}

/// The names of all scenarios.
pub(in crate::bench) const NAMES: [&str; 17] = [
    "sizes",
    "fig7",
    "fig9",
    "fig10",
    "fig11",
    "table2",
    "ndm6",
    "ndm8",
    "xdd-lan",
    "xdd-wan",
    "xdd-null",
    "spider",
    "stripes",
    "congestion",
    "servers",
    "matching",
    "distance",
];

/// The scenario of this name.
pub(super) fn of(name: &str) -> Option<Scenario> {
    Some(match name {
        "sizes" => sizes(),
        "fig7" => fig7(),
        "fig9" => fig9(),
        "fig10" => fig10(),
        "fig11" => fig11(),
        "table2" => table2(),
        "ndm6" => ndm6(),
        "ndm8" => ndm8(),
        "xdd-lan" => xdd_lan(),
        "xdd-wan" => xdd_wan(),
        "xdd-null" => xdd_null(),
        "spider" => spider(),
        "stripes" => stripes(),
        "congestion" => slow::congestion(),
        "servers" => slow::servers(),
        "matching" => matching::matching(),
        "distance" => distance::distance(),
        _ => return None,
    })
}

const MIB: u64 = 1 << 20;

/// 192 MiB in files of several blocks, two on each OST: the paper's 100 × 1 GB, scaled so that
/// eight threads have work for a second.
const BIG: DataSet = DataSet::Uniform { files: 64, bytes_each: 3 * MIB };
/// A small data set, for a mover that uses only one OST at a time.
const LITTLE: DataSet = DataSet::Uniform { files: 24, bytes_each: 3 * MIB };
/// A data set that keeps many threads busy for four seconds.
const MORE: DataSet = DataSet::Uniform { files: 512, bytes_each: 3 * MIB };
/// 128 MiB in files of one block and less: the paper's 10,000 × 1 MB, scaled.
const SMALL: DataSet = DataSet::Uniform { files: 512, bytes_each: MIB / 4 };

/// The LADS paper's test bed: 32 OSTs below one OSS.
fn lads_storage() -> Storage {
    Storage { osts: 32, osses: 1, ..Storage::default() }
}

/// A stage between two file systems of this kind, on loopback, without congestion.
fn stage(name: impl Into<String>, storage: Storage, data: DataSet, lads: Vec<Entry>) -> Stage {
    Stage {
        name: name.into(),
        source: storage,
        sink: storage,
        data,
        distance: None,
        line: LineKind::USUAL,
        congestion: Congestion::default(),
        is_placed: false,
        lads,
        rivals: Rivals::All,
    }
}

fn entry(line: &str, at: Option<&str>, options: &[&str]) -> Entry {
    let options = options.iter().map(|&option| option.to_owned()).collect();
    Entry { line: line.to_owned(), at: at.map(str::to_owned), options }
}

/// LADS with this schedule and these numbers of threads.
fn threads(schedule: &str, counts: &[&str]) -> Vec<Entry> {
    let line = format!("LADS, --lab schedule={schedule}");
    let lab = format!("--lab=schedule={schedule}");
    let ends = |count: &str| ["source", "sink"].map(|end| format!("--{end}=threads={count}"));
    let one = |&count: &&str| {
        let [source, sink] = ends(count);
        entry(&line, Some(count), &[&lab, &source, &sink])
    };
    counts.iter().map(one).collect()
}

fn both_schedules(counts: &[&str]) -> Vec<Entry> {
    [threads("layout", counts), threads("file", counts)].concat()
}

/// LADS with these schedules and this number of threads, and LADS with default options.
fn by_rules(rules: &[&str], count: &str) -> Vec<Entry> {
    let by_itself = entry(BY_ITSELF, None, &[]);
    rules.iter().flat_map(|rule| threads(rule, &[count])).chain([by_itself]).collect()
}

/// LADS with half as many threads as OSTs, as many, and twice as many, and with default options.
fn many_threads() -> Vec<Entry> {
    let by_itself = entry(BY_ITSELF, Some("64"), &[]);
    [threads("adaptive", &["16", "32", "64"]), threads("file", &["64"]), vec![by_itself]].concat()
}

/// The name of LADS with default options.
const BY_ITSELF: &str = "LADS";

const THREADS: [&str; 4] = ["1", "2", "4", "8"];
const THREADS_LABEL: Option<&str> = Some("I/O threads at each end");

fn view(
    title: &'static str,
    stages: &[usize],
    x_label: Option<&'static str>,
    quantity: Quantity,
) -> View {
    View { title, stages: stages.to_vec(), x_label, quantity, paper: None }
}

impl View {
    fn beside(mut self, paper: Paper) -> Self {
        self.paper = Some(paper);
        self
    }
}

/// Small, medium and large files with and without latency, which is most of the cost of small
/// files.
fn sizes() -> Scenario {
    let narrow = ndm_storage();
    let wide = Storage { stripe_count: 4, ..narrow };
    let small = DataSet::Between { files: 1000, bytes_min: 4 << 10, bytes_max: 64 << 10, seed: 1 };
    let medium = DataSet::Uniform { files: 48, bytes_each: MIB };
    let large = DataSet::Uniform { files: 1, bytes_each: 96 * MIB };
    let huge = DataSet::Uniform { files: 1, bytes_each: 1024 * MIB };
    let run = |name, storage, data, rivals| Stage {
        rivals,
        ..stage(name, storage, data, vec![entry(BY_ITSELF, None, &[])])
    };
    let at_once =
        |name, storage: Storage, data| run(name, storage.without_latency(), data, Rivals::Parallel);
    Scenario {
        name: "sizes",
        title: "small, medium and large files",
        about: "Beyond the papers: LADS without options, compared with other programs, both with \
                their defaults and with options for speed. 8 OSTs of 25 MB/s at each end; a \
                request to an OST takes an additional 0.5 ms, one to the metadata server 0.3 ms; \
                neither if the row has no latency. The file of 96 MiB has four stripes, that of 1 \
                GiB eight, on OSTs of 50 MB/s. LADS makes data durable; the others leave that \
                to the file system.",
        stages: vec![
            run("1,000 of 4 to 64 KiB", narrow, small, Rivals::All),
            run("48 of 1 MiB", narrow, medium, Rivals::All),
            run("one of 96 MiB", wide, large, Rivals::All),
            run("one of 1 GiB", volume(), huge, Rivals::Parallel),
            at_once("1,000 of 4 to 64 KiB, no latency", narrow, small),
            at_once("48 of 1 MiB, no latency", narrow, medium),
            at_once("one of 96 MiB, no latency", wide, large),
        ],
        views: vec![
            view("Small", &[0, 4], None, Quantity::Seconds),
            view("Middle", &[1, 5], None, Quantity::Seconds),
            view("Large", &[2, 6], None, Quantity::Seconds),
            view("One of 1 GiB", &[3], None, Quantity::Seconds),
        ],
    }
}

fn fig7() -> Scenario {
    Scenario {
        name: "fig7",
        title: "files in one stripe, against I/O threads",
        about: "LADS (FAST '15), figure 7: blocks of many files are read from any free OST, so \
                threads add up; a mover that takes file after file has one OST at a time. Here: 32 \
                OSTs of 25 MB/s at each end, the paper's file sets scaled to 192 and 128 MiB; \
                movers with one OST at a time are measured separately, on 72 MiB; for more \
                threads, OSTs of 12.5 MB/s, so that the machine is not the bottleneck. Figure 8 of \
                the paper is of the same runs: processor time grows slightly with the threads, \
                memory does not; both as reported in the summary of LADS.",
        stages: vec![
            Stage {
                rivals: Rivals::Parallel,
                ..stage("big files: 64 of 3 MiB", lads_storage(), BIG, both_schedules(&THREADS))
            },
            Stage {
                rivals: Rivals::Parallel,
                ..stage(
                    "small files: 512 of 256 KiB",
                    lads_storage(),
                    SMALL,
                    both_schedules(&THREADS),
                )
            },
            stage(
                "one OST at a time: 24 of 3 MiB",
                lads_storage(),
                LITTLE,
                vec![entry(BY_ITSELF, None, &[])],
            ),
            Stage {
                rivals: Rivals::No,
                ..stage(
                    "32 threads and more: 512 of 3 MiB",
                    Storage { ost_bytes_per_second: Some(12_500_000), ..lads_storage() },
                    MORE,
                    many_threads(),
                )
            },
        ],
        views: vec![
            view("Big files", &[0], THREADS_LABEL, Quantity::Throughput)
                .beside(paper::figure_7(425.0, Some((400.0, 450.0)))),
            view("Small files", &[1], THREADS_LABEL, Quantity::Throughput),
            view("Big files: processor", &[0], THREADS_LABEL, Quantity::Cpu),
            view("Big files: memory", &[0], THREADS_LABEL, Quantity::Memory)
                .beside(paper::figure_8_memory()),
            view("One OST at a time", &[2], None, Quantity::Throughput),
            view("More threads", &[3], THREADS_LABEL, Quantity::Share),
        ],
    }
}

/// The smallest buffer holds four blocks.
const SOURCE_BUFFERS: [&str; 4] = ["1M", "4M", "16M", "256M"];
/// The smallest buffer holds one block for each OST.
const SINK_BUFFERS: [&str; 3] = ["9M", "32M", "256M"];

fn fig9() -> Scenario {
    let varied = |option: &str, sizes: &[&'static str]| -> Vec<Entry> {
        let general = ["--source=threads=8", "--sink=threads=8", "--lab=block-size=256K"];
        let one = |&size: &&'static str| {
            let memory = format!("{option}={size}");
            entry("LADS", Some(size), &[&general[..], &[&memory]].concat())
        };
        sizes.iter().map(one).collect()
    };
    let source = varied("--source=buffers", &SOURCE_BUFFERS);
    let sink = varied("--sink=buffers", &SINK_BUFFERS);
    let both = varied("--buffers", &SINK_BUFFERS);
    let alone = |name, lads| Stage { rivals: Rivals::No, ..stage(name, lads_storage(), BIG, lads) };
    let throughput = Quantity::Throughput;
    Scenario {
        name: "fig9",
        title: "throughput against the size of the buffers",
        about: "LADS (FAST '15), figure 9: a few MB at the sink suffice, and throughput grows with \
                the source's buffer. Here as fig7, big files, 8 I/O threads, blocks of 256 KiB so \
                that a few MB are a block for each OST; the other end has 256 MiB.",
        stages: vec![
            alone("buffers at the source", source),
            alone("buffers at the sink", sink),
            alone("buffers at both ends", both),
        ],
        views: vec![
            view("Varied at the source", &[0], Some("buffers"), throughput),
            view("Varied at the sink", &[1], Some("buffers"), throughput),
            view("Varied at both ends", &[2], Some("buffers"), throughput),
        ],
    }
}

/// Slows down this number of OSTs to a tenth of their rate, and goes on to other OSTs every second,
/// as the paper's load generator moved from four disks to the next four.
fn moving(count: u32) -> String {
    format!("congest moving COUNT={count} DWELL=1 RATE=2500000 SEED={{seed}}")
}

fn congested_at(source: Option<String>, sink: Option<String>) -> Congestion {
    Congestion { source, sink, ..Congestion::default() }
}

fn fig10() -> Scenario {
    let data = DataSet::Uniform { files: 96, bytes_each: 4 * MIB };
    let run = |name, congestion| Stage {
        congestion,
        rivals: Rivals::Parallel,
        ..stage(name, lads_storage(), data, by_rules(&["layout", "adaptive"], "8"))
    };
    Scenario {
        name: "fig10",
        title: "four of 32 OSTs congested, in turn",
        about: "LADS (FAST '15), figure 10 and table 1: a load generator goes from four disks to \
                the next four; scheduling that avoids them won up to 35 % at the source, and \
                nothing at the sink, where buffered writes hid the congestion. Here: 4 of 32 OSTs \
                at a tenth of their rate, moving every second, 384 MiB; different ones in each \
                round.",
        stages: vec![
            run("normal", Congestion::default()),
            run("source congested", congested_at(Some(moving(4)), None)),
            run("sink congested", congested_at(None, Some(moving(4)))),
        ],
        views: vec![
            view("Run time", &[0, 1, 2], None, Quantity::Seconds),
            view("Share of the fluid bound", &[0, 1, 2], None, Quantity::Share),
        ],
    }
}

/// Placeholder in the options of an entry for a directory on this machine's disk.
const STAGE: &str = "{stage}";

/// The rates of the OSTs of source and sink. The sink is faster than the source, except when it is
/// congested.
const OST_RATES: [u64; 2] = [6_250_000, 12_500_000];

fn fig11() -> Scenario {
    const MEMORY: &str = "LADS, memory at the sink";
    const FLASH: &str = "LADS, 32 MiB, and a stage at the source";
    let waits = |size: &&'static str| {
        let memory = format!("--sink=buffers={size}");
        let flash = format!("--source=stage={STAGE},stage-size={size}");
        [
            entry(MEMORY, Some(size), &["--source=buffers=32M", &memory]),
            entry(FLASH, Some(size), &["--buffers=32M", &flash]),
        ]
    };
    let small = entry(MEMORY, Some("32M"), &["--buffers", "32M"]);
    let [source, sink] = OST_RATES.map(|rate| Storage {
        osts: 16,
        ost_bytes_per_second: Some(rate),
        ..Storage::default()
    });
    let data = DataSet::Uniform { files: 128, bytes_each: 4 * MIB };
    Scenario {
        name: "fig11",
        title: "a congested sink, and space for pending blocks",
        about: "LADS (FAST '15), figure 11: while the sink is congested, the source reads ahead \
                into memory or flash, and delivers when the sink is free again; throughput grows \
                with that space, and flash is cheaper. There: congested for 10 s in every 20. \
                Here: for 1 s in every 2, all 16 OSTs of the sink at a fortieth of their rate, \
                which is twice that of the source's otherwise; 32 MiB of memory at each end, and \
                in addition memory at the sink or a stage at the source. In turn: the sink's OSTs \
                four at a time, for half a second in every one.",
        stages: vec![
            Stage {
                source,
                sink,
                congestion: all_at_times(),
                rivals: Rivals::No,
                ..stage(
                    "all OSTs of the sink congested at times",
                    source,
                    data,
                    [vec![small.clone()], ["128M"].iter().flat_map(waits).collect()].concat(),
                )
            },
            Stage {
                source,
                sink,
                congestion: Congestion { sink_turns: fours_in_turn(), ..Congestion::default() },
                rivals: Rivals::No,
                ..stage(
                    "a quarter of them, in turn",
                    source,
                    data,
                    [vec![small], waits(&"256M").to_vec()].concat(),
                )
            },
        ],
        views: vec![
            view(
                "All OSTs of the sink congested at times",
                &[0],
                Some("space for pending blocks"),
                Quantity::Throughput,
            ),
            view(
                "A quarter of them, in turn",
                &[1],
                Some("space for pending blocks"),
                Quantity::Throughput,
            ),
        ],
    }
}

/// All OSTs of the sink are slow for a second, then fast for a second, and so on.
fn all_at_times() -> Congestion {
    let slow = slow_command(0..16);
    let sink_turns = vec![(1.0, "congest off".to_owned()), (1.0, slow.clone())];
    Congestion { source: None, sink: Some(slow), sink_turns }
}

/// Four of the sink's OSTs at a time are slow, with a pause after each group of four.
fn fours_in_turn() -> Vec<(f64, String)> {
    let fours = (0..4).map(|four| slow_command(four * 4..four * 4 + 4));
    let pause = || (0.5, "congest off".to_owned());
    fours.flat_map(|slow| [(0.5, slow), pause()]).collect()
}

fn slow_command(osts: Range<u32>) -> String {
    let osts: Vec<String> = osts.map(|ost| ost.to_string()).collect();
    format!("congest fixed OSTS={} {}", osts.join(","), OST_RATES[1] / 40)
}

fn table2() -> Scenario {
    let storage = Storage { stripe_count: 4, ..lads_storage() };
    Scenario {
        name: "table2",
        title: "files in four stripes over 26.8 ms, against I/O threads",
        about: "LADS (FAST '15), table 2: between two production file systems, through sockets, \
                the default stripe count of 4. Here: 32 OSTs of 25 MB/s at each end of a line of \
                26.8 ms.",
        stages: vec![Stage {
            distance: Some(Distance::Chicago),
            ..stage("26.8 ms", storage, BIG, threads("layout", &THREADS))
        }],
        views: vec![
            view("Throughput", &[0], THREADS_LABEL, Quantity::Throughput).beside(paper::table_2()),
        ],
    }
}

/// The test bed of the second paper: 8 OSTs below two OSSes.
fn ndm_storage() -> Storage {
    Storage { osts: 8, osses: 2, ..Storage::default() }
}

fn ndm6() -> Scenario {
    let data = DataSet::Uniform { files: 48, bytes_each: 4 * MIB };
    let run = |name, congestion| Stage {
        congestion,
        rivals: Rivals::Parallel,
        ..stage(name, ndm_storage(), data, by_rules(&["file", "layout", "adaptive"], "4"))
    };
    let one_moving = "congest moving COUNT=1 DWELL=0.7 RATE=2500000 SEED={seed}".to_owned();
    Scenario {
        name: "ndm6",
        title: "one congested OST at the source",
        about: "Layout-Aware I/O Scheduling (NDM '12 and later), figure 6: four threads, 8 OSTs in \
                two OSSes, overloaded in turn. Reading file by file lost 30 %, by layout 16 %. \
                Here: one OST of 8 at a tenth of its rate, moving every 0.7 s.",
        stages: vec![
            run("normal", Congestion::default()),
            run("source congested", congested_at(Some(one_moving), None)),
        ],
        views: vec![
            view("Throughput", &[0, 1], None, Quantity::Throughput).beside(paper::ndm_6()),
            view("Share of the fluid bound", &[0, 1], None, Quantity::Share),
        ],
    }
}

fn ndm8() -> Scenario {
    let data = DataSet::Uniform { files: 48, bytes_each: 4 * MIB };
    let run = |name, congestion| Stage {
        congestion,
        rivals: Rivals::Parallel,
        ..stage(name, ndm_storage(), data, by_rules(&["file", "layout", "adaptive"], "8"))
    };
    let fixed = "congest fixed OSTS=5 2500000".to_owned();
    Scenario {
        name: "ndm8",
        title: "one congested OST at the sink",
        about: "Layout-Aware I/O Scheduling, figure 8: eight threads write, OST 5 is overloaded. \
                Movers that bind files to OSTs lost 37 %, movers that place them on free ones less \
                than 10 %. Here: OST 5 of 8 at a tenth of its rate.",
        stages: vec![
            run("normal", Congestion::default()),
            run("sink congested", congested_at(None, Some(fixed))),
        ],
        views: vec![
            view("Throughput", &[0, 1], None, Quantity::Throughput).beside(paper::ndm_8()),
            view("Share of the fluid bound", &[0, 1], None, Quantity::Share),
        ],
    }
}

/// One file over 8 OSTs of 50 MB/s: a logical volume, as in the XDD paper.
fn volume() -> Storage {
    Storage { ost_bytes_per_second: Some(50_000_000), stripe_count: 8, ..Storage::default() }
}

fn xdd_lan() -> Scenario {
    let data = DataSet::Uniform { files: 1, bytes_each: 256 * MIB };
    Scenario {
        name: "xdd-lan",
        title: "one large file over a short line, against I/O threads",
        about: "XDD (MSST '11 and later), figure 28: one file of 200 GiB, direct I/O, volumes that \
                do 1000 MB/s, a loop of 0.28 ms. Here: 256 MiB over 8 OSTs of 50 MB/s.",
        stages: vec![Stage {
            distance: Some(Distance::Ornl),
            ..stage("0.28 ms", volume(), data, threads("layout", &["1", "2", "4", "8", "16"]))
        }],
        views: vec![
            view("Throughput", &[0], THREADS_LABEL, Quantity::Throughput)
                .beside(paper::figure_28()),
        ],
    }
}

fn xdd_wan() -> Scenario {
    let data = DataSet::Uniform { files: 1, bytes_each: 4096 * MIB };
    let storage = Storage { ost_bytes_per_second: Some(12_500_000), ..volume() };
    let run = |distance: Distance| Stage {
        distance: Some(distance),
        rivals: Rivals::Parallel,
        ..stage(distance.said(), storage, data, vec![entry("LADS", None, &[])])
    };
    Scenario {
        name: "xdd-wan",
        title: "one large file over four distances",
        about: "XDD, figures 8 and 29 to 31: one file of 200 GiB, volumes that do 1000 MB/s, over \
                loops of 0.28, 26.8, 128 and 163 ms; software made for long distances loses least. \
                Here: 4 GiB, volumes of 100 MB/s, default options. Thus the transfer takes a fifth \
                of the time, and the cost of the distance at the beginning and the end has five \
                times the weight.",
        stages: Distance::ALL.map(run).into(),
        views: vec![
            view("Throughput", &[0, 1, 2, 3], None, Quantity::Throughput),
            view("Share of the fluid bound", &[0, 1, 2, 3], None, Quantity::Share),
        ],
    }
}

fn xdd_null() -> Scenario {
    let storage = Storage { ost_bytes_per_second: None, bytes: Bytes::Dropped, ..volume() };
    let storage = storage.without_latency();
    let data = DataSet::Uniform { files: 1, bytes_each: 2048 * MIB };
    Scenario {
        name: "xdd-null",
        title: "the cost of the software, without storage",
        about: "XDD, figures 26 and 27: from a source without cost to a sink without cost. Here: \
                file systems without limits that return zeros and discard written data. Therefore \
                copies cannot be compared byte for byte: names and lengths must be those of the \
                source, and the OSTs of both ends must have read and written the total number of \
                bytes. The cost of the mounts is part of every figure, for LADS and for the \
                rivals; the share has no meaning here, because the bound has no limit.",
        stages: vec![stage("nowhere to nowhere", storage, data, threads("layout", &THREADS))],
        views: vec![view("Throughput", &[0], THREADS_LABEL, Quantity::Throughput)],
    }
}

fn spider() -> Scenario {
    let data = DataSet::Spider { files: 300, bytes: 192 * MIB, seed: 1 };
    let entries = vec![
        entry("LADS", None, &[]),
        entry("LADS, --lab schedule=file", None, &["--lab", "schedule=file"]),
    ];
    Scenario {
        name: "spider",
        title: "files of the sizes of a centre-wide file system",
        about: "LADS (FAST '15), figure 6: 86.76 % of the files are below 1 MiB, 90.35 % below 4 \
                MiB, and the few large ones hold the bytes. Here: 300 such files, 192 MiB, 8 OSTs \
                of 25 MB/s, stripe count 1.",
        stages: vec![Stage {
            rivals: Rivals::Parallel,
            ..stage("loopback", ndm_storage(), data, entries)
        }],
        views: vec![
            view("Throughput", &[0], None, Quantity::Throughput),
            view("Share of the fluid bound", &[0], None, Quantity::Share),
        ],
    }
}

fn stripes() -> Scenario {
    let data = DataSet::Uniform { files: 320, bytes_each: 8 * MIB };
    let rate = Some(12_500_000);
    let one = Storage { ost_bytes_per_second: rate, ..lads_storage() };
    let four = Storage { stripe_count: 4, ..one };
    let composite = Storage { one_stripe_until: Some(2 * MIB), ..four };
    let run = |name, storage| Stage {
        rivals: Rivals::No,
        ..stage(name, storage, data, vec![entry(BY_ITSELF, None, &[])])
    };
    Scenario {
        name: "stripes",
        title: "files in one stripe, in four, and in parts",
        about: "LADS (FAST '15), section 4.2, with enough threads: striping should not matter to a \
                mover that takes blocks from any free OST. Here: 32 OSTs of 12.5 MB/s at each end, \
                320 files of 8 MiB; the composite ones have 2 MiB on one OST and the rest on \
                four.",
        stages: vec![
            run("stripe count 1", one),
            run("stripe count 4", four),
            run("composite", composite),
        ],
        views: vec![view("Share of the fluid bound", &[0, 1, 2], None, Quantity::Share)],
    }
}

/// The storage, the number of files of 8 MiB, and the options of the moving congestion.
type Bed = (Storage, u64, &'static str);

/// A bed with 32 OSTs of 12.5 MB/s.
fn many_osts(files: u64, slow: &'static str) -> Bed {
    (Storage { ost_bytes_per_second: Some(12_500_000), ..lads_storage() }, files, slow)
}
