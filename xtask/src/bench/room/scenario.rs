//! What is measured: the experiments of the papers, scaled to a small machine.
//!
//! A scenario has stages, which are run one after the other: storage, data, distance, congestion
//! and the movers that take turns. Its views say what is drawn of which stages, and what the
//! paper says to it.

use super::contest::{Congestion, Contestant};
use super::data::DataSet;
use super::mount::{Bytes, Storage};
use super::paper::{self, Paper};
use super::peers;
use super::route::{Distance, Route};
use crate::scratch::Scratch;
use std::ops::Range;
use std::path::Path;

/// One experiment.
pub(super) struct Scenario {
    /// As on the command line.
    pub(super) name: &'static str,
    /// What it is about.
    pub(super) title: &'static str,
    /// What the paper did, and what is done here.
    pub(super) about: &'static str,
    /// What is run.
    pub(super) stages: Vec<Stage>,
    /// What is drawn.
    pub(super) views: Vec<View>,
}

/// One contest.
pub(super) struct Stage {
    /// What it is called.
    pub(super) name: &'static str,
    /// Where data comes from.
    pub(super) source: Storage,
    /// Where it goes to.
    pub(super) sink: Storage,
    /// What is moved.
    pub(super) data: DataSet,
    /// How far; `None` is loopback.
    pub(super) distance: Option<Distance>,
    /// What is in the way.
    pub(super) congestion: Congestion,
    /// Whether the bound, too, has to write everything where the mover wrote it.
    pub(super) is_placed: bool,
    /// With which options LADS takes part.
    pub(super) lads: Vec<Entry>,
    /// Which rivals take part.
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
    /// Those that keep several OSTs busy: the others would need minutes.
    Parallel,
    /// All that are here.
    All,
}

/// One picture.
pub(super) struct View {
    /// What it shows.
    pub(super) title: &'static str,
    /// Stages by number: the one whose lines are drawn, or those whose bars stand side by side.
    pub(super) stages: Vec<usize>,
    /// What is varied; bars if nothing is.
    pub(super) x_label: Option<&'static str>,
    /// What is measured.
    pub(super) quantity: Quantity,
    /// The paper's shape.
    pub(super) paper: Option<Paper>,
}

/// What a picture shows of each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// MB/s.
    Throughput,
    /// Share of the fluid bound, in percent.
    Share,
    /// From start to end.
    Seconds,
    /// Processor time by time, of each end.
    Cpu,
    /// High-water mark of each end, in MB.
    Memory,
}

impl Stage {
    /// Everybody who takes part, and who is missing.
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
                let stage = format!("--stage={}", notes.join("").display());
                let said = |option| if option == STAGE { stage.as_str() } else { option };
                let options: Vec<&str> = options.iter().map(|it| said(it.as_str())).collect();
                peers::lads(lads, notes, line, at.as_deref(), &options)
            })
            .collect();
        if self.rivals == Rivals::No {
            return (contestants, Vec::new());
        }
        let (mut rivals, missing) = peers::all(route, notes, others);
        if self.rivals == Rivals::Parallel {
            rivals.retain(|rival| !peers::SERIAL.contains(&rival.line.as_str()));
        }
        contestants.extend(rivals);
        (contestants, missing)
    }
}

/// All scenarios.
pub(in crate::bench) const NAMES: [&str; 14] = [
    "fig7",
    "fig8",
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
];

/// The scenario of this name.
pub(super) fn of(name: &str) -> Option<Scenario> {
    Some(match name {
        "fig7" => fig7(),
        "fig8" => fig8(),
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
        "congestion" => congestion(),
        _ => return None,
    })
}

const MIB: u64 = 1 << 20;

/// 384 MiB in files of several blocks, four on each OST: the paper's 100 × 1 GB, scaled so that
/// eight threads have work for two seconds.
const BIG: DataSet = DataSet::Uniform { files: 128, bytes_each: 3 * MIB };
/// The same, half as many more: eight threads have work for three seconds, so that beginning and
/// end, which no thread shortens, are a few percent.
const LONG: DataSet = DataSet::Uniform { files: 192, bytes_each: 3 * MIB };
/// Little enough for a mover that has one OST at a time.
const LITTLE: DataSet = DataSet::Uniform { files: 64, bytes_each: 3 * MIB };
/// Enough for many threads to work for four seconds.
const MORE: DataSet = DataSet::Uniform { files: 512, bytes_each: 3 * MIB };
/// 384 MiB in files of one block and less: the paper's 10,000 × 1 MB, scaled.
const SMALL: DataSet = DataSet::Uniform { files: 1536, bytes_each: MIB / 4 };

/// The LADS paper's test bed: 32 OSTs below one OSS.
fn lads_storage() -> Storage {
    Storage { osts: 32, osses: 1, ..Storage::default() }
}

/// A stage between two of these storages, on loopback, with nothing in its way.
fn stage(name: &'static str, storage: Storage, data: DataSet, lads: Vec<Entry>) -> Stage {
    Stage {
        name,
        source: storage,
        sink: storage,
        data,
        distance: None,
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

/// LADS by this rule with these numbers of threads.
fn threads(schedule: &str, counts: &[&str]) -> Vec<Entry> {
    let line = format!("LADS, --schedule {schedule}");
    let options = |count| ["--schedule", schedule, "--threads", count];
    counts.iter().map(|&count| entry(&line, Some(count), &options(count))).collect()
}

fn both_schedules(counts: &[&str]) -> Vec<Entry> {
    [threads("layout", counts), threads("file", counts)].concat()
}

/// LADS by every rule with this many threads, and left to itself.
fn all_schedules(count: &str) -> Vec<Entry> {
    let rules = ["layout", "threshold", "adaptive", "file"];
    let by_itself = entry("LADS, nothing said", None, &[]);
    rules.iter().flat_map(|rule| threads(rule, &[count])).chain([by_itself]).collect()
}

/// As many threads as OSTs, half and twice as many, and as many as LADS takes by itself.
fn many_threads() -> Vec<Entry> {
    let counts = ["16", "32", "64"];
    let by_itself = entry("LADS, nothing said", Some("64"), &[]);
    [threads("adaptive", &counts), both_schedules(&counts), vec![by_itself]].concat()
}

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

fn fig7() -> Scenario {
    Scenario {
        name: "fig7",
        title: "throughput against I/O threads, stripe count 1",
        about: "LADS (FAST '15), figure 7: blocks of many files are read from whichever OST is \
                free, so threads add up; a mover that takes file after file has one OST at a time. \
                Here: 32 OSTs of 25 MB/s at each end, the paper's file sets scaled to 576 and 384 \
                MiB; those who have one OST at a time by themselves, on 192 MiB; for more threads, \
                OSTs of 12.5 MB/s, so that the machine is not the bottleneck.",
        stages: vec![
            Stage {
                rivals: Rivals::Parallel,
                ..stage("big files: 192 of 3 MiB", lads_storage(), LONG, both_schedules(&THREADS))
            },
            Stage {
                rivals: Rivals::Parallel,
                ..stage(
                    "small files: 1536 of 256 KiB",
                    lads_storage(),
                    SMALL,
                    both_schedules(&THREADS),
                )
            },
            stage(
                "one OST at a time: 64 of 3 MiB",
                lads_storage(),
                LITTLE,
                vec![entry("LADS, nothing said", None, &[])],
            ),
            Stage {
                rivals: Rivals::No,
                ..stage(
                    "as many threads as OSTs and more: 512 of 3 MiB",
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
            view("One OST at a time", &[2], None, Quantity::Throughput),
            view("More threads", &[3], THREADS_LABEL, Quantity::Share),
        ],
    }
}

fn fig8() -> Scenario {
    let alone = |name, data| Stage {
        rivals: Rivals::No,
        ..stage(name, lads_storage(), data, threads("layout", &THREADS))
    };
    Scenario {
        name: "fig8",
        title: "processor time and memory of both ends against I/O threads",
        about: "LADS (FAST '15), figure 8: processor time grows slightly with the threads, memory \
                does not. Here as fig7, LADS alone; both as LADS says in its summary.",
        stages: vec![
            alone("big files: 128 of 3 MiB", BIG),
            alone("small files: 1536 of 256 KiB", SMALL),
        ],
        views: vec![
            view("Big files: processor", &[0], THREADS_LABEL, Quantity::Cpu),
            view("Big files: memory", &[0], THREADS_LABEL, Quantity::Memory)
                .beside(paper::figure_8_memory()),
            view("Small files: processor", &[1], THREADS_LABEL, Quantity::Cpu),
            view("Small files: memory", &[1], THREADS_LABEL, Quantity::Memory)
                .beside(paper::figure_8_memory()),
        ],
    }
}

/// From four blocks on.
const SOURCE_BUFFERS: [&str; 7] = ["1M", "2M", "4M", "8M", "16M", "64M", "256M"];
/// From one block for each OST on.
const SINK_BUFFERS: [&str; 5] = ["9M", "16M", "32M", "64M", "256M"];

fn fig9() -> Scenario {
    let varied = |option: &str, sizes: &[&'static str]| -> Vec<Entry> {
        let options = |size| ["--threads", "8", "--block-size", "256K", option, size];
        sizes.iter().map(|&size| entry("LADS", Some(size), &options(size))).collect()
    };
    let source = varied("--source-buffers", &SOURCE_BUFFERS);
    let sink = varied("--sink-buffers", &SINK_BUFFERS);
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

/// Four OSTs of 32 at a tenth of their rate, for a second each time, as the paper's load
/// generator moved from four disks to the next four.
fn moving(count: u32) -> String {
    format!("congest moving COUNT={count} DWELL=1 RATE=2500000 SEED=1")
}

fn congested_at(source: Option<String>, sink: Option<String>) -> Congestion {
    Congestion { source, sink, ..Congestion::default() }
}

fn fig10() -> Scenario {
    let data = DataSet::Uniform { files: 128, bytes_each: 4 * MIB };
    let run = |name, congestion| Stage {
        congestion,
        rivals: Rivals::Parallel,
        ..stage(name, lads_storage(), data, all_schedules("8"))
    };
    Scenario {
        name: "fig10",
        title: "run time with congested OSTs at the source or at the sink",
        about: "LADS (FAST '15), figure 10 and table 1: a load generator goes from four disks to \
                the next four; scheduling that avoids them won up to 35 % at the source, and \
                nothing at the sink, where buffered writes hid the congestion. Here: 4 of 32 OSTs \
                at a tenth of their rate, moving every second, 512 MiB.",
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

/// An option of an entry that stands for a stage on this machine's disk.
const STAGE: &str = "--stage";

/// The sink of this scenario is faster than its source, but for when it is congested.
const OST_RATES: [u64; 2] = [6_250_000, 12_500_000];

fn fig11() -> Scenario {
    const MEMORY: &str = "LADS, memory at the sink";
    const FLASH: &str = "LADS, 32 MiB, and a stage at the source";
    let waits = |size: &&'static str| {
        let memory = ["--source-buffers", "32M", "--sink-buffers", size];
        let flash = ["--buffers", "32M", STAGE, "--stage-size", size];
        [entry(MEMORY, Some(size), &memory), entry(FLASH, Some(size), &flash)]
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
        title: "a congested sink, and room to wait for it",
        about: "LADS (FAST '15), figure 11: while the sink is congested, the source reads ahead \
                into memory or flash, and delivers when the sink is free again; throughput grows \
                with that room, and flash is cheaper. There: congested for 10 s in every 20. Here: \
                for 1 s in every 2, all 16 OSTs of the sink at a fortieth of their rate, which is \
                twice that of the source's otherwise; 32 MiB of memory at each end, and besides, \
                memory at the sink or a stage at the source. In turn: the sink's OSTs four at a \
                time, for half a second in every one.",
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
                    [vec![small.clone()], ["64M", "128M", "256M"].iter().flat_map(waits).collect()]
                        .concat(),
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
                Some("room to wait in"),
                Quantity::Throughput,
            ),
            view("A quarter of them, in turn", &[1], Some("room to wait in"), Quantity::Throughput),
        ],
    }
}

/// All OSTs of the sink are slow for a second, and free for one, and so on.
fn all_at_times() -> Congestion {
    let slow = slow_command(0..16);
    let sink_turns = vec![(1.0, "congest off".to_owned()), (1.0, slow.clone())];
    Congestion { source: None, sink: Some(slow), sink_turns }
}

/// The sink's OSTs slow in fours, with a pause after each.
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
        title: "over a long line, stripe count 4, against I/O threads",
        about: "LADS (FAST '15), table 2: between two production file systems, through sockets, \
                the default stripe count of 4. Here: 32 OSTs of 25 MB/s at each end of a line of \
                26.8 ms.",
        stages: vec![Stage {
            distance: Some(Distance::Chicago),
            ..stage("26.8 ms", storage, BIG, both_schedules(&THREADS))
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
    let data = DataSet::Uniform { files: 64, bytes_each: 4 * MIB };
    let run = |name, congestion| Stage {
        congestion,
        rivals: Rivals::Parallel,
        ..stage(name, ndm_storage(), data, all_schedules("4"))
    };
    let one_moving = "congest moving COUNT=1 DWELL=0.7 RATE=2500000 SEED=1".to_owned();
    Scenario {
        name: "ndm6",
        title: "a congested OST at the source: file by file, or by layout",
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
    let data = DataSet::Uniform { files: 64, bytes_each: 4 * MIB };
    let run = |name, congestion| Stage {
        congestion,
        rivals: Rivals::Parallel,
        ..stage(name, ndm_storage(), data, all_schedules("8"))
    };
    let fixed = "congest fixed OSTS=5 2500000".to_owned();
    Scenario {
        name: "ndm8",
        title: "a congested OST at the sink: a file a server, or by layout",
        about: "Layout-Aware I/O Scheduling, figure 8: eight threads write, OST 5 is overloaded. \
                Whoever binds files to OSTs lost 37 %, whoever places them on free ones less than \
                10 %. Here: OST 5 of 8 at a tenth of its rate.",
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

/// One file over 8 OSTs of 50 MB/s: a logical volume, as the XDD paper had one.
fn volume() -> Storage {
    Storage { ost_bytes_per_second: Some(50_000_000), stripe_count: 8, ..Storage::default() }
}

fn xdd_lan() -> Scenario {
    let data = DataSet::Uniform { files: 1, bytes_each: 512 * MIB };
    Scenario {
        name: "xdd-lan",
        title: "one large file over a short line, against I/O threads",
        about: "XDD (MSST '11 and later), figure 28: one file of 200 GiB, direct I/O, volumes that \
                do 1000 MB/s, a loop of 0.28 ms. Here: 512 MiB over 8 OSTs of 50 MB/s.",
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
    let data = DataSet::Uniform { files: 1, bytes_each: 768 * MIB };
    let run = |distance: Distance| Stage {
        distance: Some(distance),
        ..stage(distance.said(), volume(), data, vec![entry("LADS", None, &[])])
    };
    Scenario {
        name: "xdd-wan",
        title: "one large file over four distances",
        about: "XDD, figures 8 and 29 to 31: the same file over loops of 0.28, 26.8, 128 and 163 \
                ms; what is made for the distance loses least by it. Here: 768 MiB, options by \
                default.",
        stages: Distance::ALL.map(run).into(),
        views: vec![
            view("Throughput", &[0, 1, 2, 3], None, Quantity::Throughput),
            view("Share of the fluid bound", &[0, 1, 2, 3], None, Quantity::Share),
        ],
    }
}

fn xdd_null() -> Scenario {
    let storage = Storage { ost_bytes_per_second: None, bytes: Bytes::Dropped, ..volume() };
    let data = DataSet::Uniform { files: 1, bytes_each: 2048 * MIB };
    Scenario {
        name: "xdd-null",
        title: "the cost of the software alone",
        about: "XDD, figures 26 and 27: from a source that costs nothing to a sink that costs \
                nothing. Here: file systems without limits that give zeros and drop what they are \
                given. So no copy can be compared byte for byte: names and lengths have to be \
                those of the source, and the source's OSTs have to have read, the sink's to have \
                written, as many bytes as there are. What the mounts cost is in every figure, \
                ours and the rivals' alike; the share is that of a fluid that nothing holds back, \
                and says nothing.",
        stages: vec![stage("nowhere to nowhere", storage, data, threads("layout", &THREADS))],
        views: vec![view("Throughput", &[0], THREADS_LABEL, Quantity::Throughput)],
    }
}

fn spider() -> Scenario {
    let data = DataSet::Spider { files: 300, bytes: 192 * MIB, seed: 1 };
    let entries = vec![
        entry("LADS", None, &[]),
        entry("LADS, --schedule file", None, &["--schedule", "file"]),
    ];
    Scenario {
        name: "spider",
        title: "files of the sizes that a centre-wide file system holds",
        about: "LADS (FAST '15), figure 6: 86.76 % of the files are below 1 MiB, 90.35 % below 4 \
                MiB, and the few large ones hold the bytes. Here: 300 such files, 192 MiB, 8 OSTs \
                of 25 MB/s, stripe count 1.",
        stages: vec![stage("loopback", ndm_storage(), data, entries)],
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
        ..stage(name, storage, data, vec![entry("LADS, nothing said", None, &[])])
    };
    Scenario {
        name: "stripes",
        title: "files in one stripe, in four, and in parts",
        about: "LADS (FAST '15), section 4.2, with enough threads: how a file is striped should \
                not matter to a mover that takes blocks from whichever OST is free. Here: 32 OSTs \
                of 12.5 MB/s at each end, 320 files of 8 MiB; the composite ones have 2 MiB on one \
                OST and the rest on four.",
        stages: vec![
            run("stripe count 1", one),
            run("stripe count 4", four),
            run("composite", composite),
        ],
        views: vec![view("Share of the fluid bound", &[0, 1, 2], None, Quantity::Share)],
    }
}

/// Storage, how many files of 8 MiB, and which OSTs are slow.
type Bed = (Storage, u64, &'static str);

/// 32 OSTs of which four are slow, others after this many seconds.
fn many_osts(files: u64, slow: &'static str) -> Bed {
    (Storage { ost_bytes_per_second: Some(12_500_000), ..lads_storage() }, files, slow)
}

/// LADS as it is by itself, while OSTs of the source, of the sink, or of both are slow.
fn lads_beside(
    name: &'static str,
    (storage, files, slow): Bed,
    [source, sink]: [bool; 2],
) -> Stage {
    let there =
        |is_there: bool, seed| is_there.then(|| format!("congest moving {slow} SEED={seed}"));
    Stage {
        congestion: congested_at(there(source, 1), there(sink, 2)),
        rivals: Rivals::No,
        ..stage(
            name,
            storage,
            DataSet::Uniform { files, bytes_each: 8 * MIB },
            vec![entry("LADS, nothing said", None, &[])],
        )
    }
}

fn congestion() -> Scenario {
    let eight = (ndm_storage(), 160, "COUNT=1 DWELL=0.7 RATE=5000000");
    let many = many_osts(320, "COUNT=4 DWELL=1.5 RATE=2500000");
    let twice = many_osts(640, "COUNT=4 DWELL=1.5 RATE=2500000");
    let shorter = many_osts(320, "COUNT=4 DWELL=0.7 RATE=2500000");
    let longer = many_osts(320, "COUNT=4 DWELL=5 RATE=2500000");
    let run = |name, bed, ends| {
        let mut stage = lads_beside(name, bed, ends);
        stage.lads.push(entry("LADS, --schedule layout", None, &["--schedule", "layout"]));
        stage
    };
    // Past the page cache by default: so it is seen which OSTs are slow.
    let with_buffered = |mut stage: Stage| {
        let buffered = entry("LADS, --sink-io buffered", None, &["--sink-io", "buffered"]);
        stage.lads.push(buffered);
        stage
    };
    let placed = |name, bed| Stage {
        is_placed: true,
        lads: vec![entry("LADS, --place spread", None, &["--place", "spread"])],
        ..run(name, bed, [false, true])
    };
    let in_four = |name, (storage, files, slow): Bed, ends| {
        lads_beside(name, (Storage { stripe_count: 4, ..storage }, files, slow), ends)
    };
    Scenario {
        name: "congestion",
        title: "one OST in eight at a fifth of its rate, and never the same one",
        about: "Beyond the papers: enough threads, and congestion that moves on every 0.7 to 5 \
                s, at the source, at the sink and at both. Here: 8 OSTs of 25 MB/s and 160 files \
                of 8 MiB, 32 OSTs of 12.5 MB/s and 320 files; at the source in one stripe or in \
                four. Where files are placed in turn at the sink, the bound has to write them \
                there, too.",
        stages: vec![
            run("8 OSTs, clear", eight, [false, false]),
            run("8 OSTs, source", eight, [true, false]),
            with_buffered(run("8 OSTs, sink", eight, [false, true])),
            run("8 OSTs, both", eight, [true, true]),
            run("32 OSTs, clear", many, [false, false]),
            run("32 OSTs, source", many, [true, false]),
            with_buffered(run("32 OSTs, sink", many, [false, true])),
            run("32 OSTs, both", many, [true, true]),
            placed("8 OSTs, sink, placed in turn", eight),
            placed("32 OSTs, sink, placed in turn", many),
            in_four("8 OSTs, stripe count 4, source", eight, [true, false]),
            in_four("8 OSTs, stripe count 4, sink", eight, [false, true]),
            in_four("8 OSTs, stripe count 4, both", eight, [true, true]),
            in_four("32 OSTs, stripe count 4, source", many, [true, false]),
            in_four("32 OSTs, stripe count 4, sink", many, [false, true]),
            in_four("32 OSTs, stripe count 4, both", many, [true, true]),
            lads_beside("32 OSTs, twice as many files, sink", twice, [false, true]),
            lads_beside("32 OSTs, twice as many files, both", twice, [true, true]),
            lads_beside("32 OSTs, others after 0.7 s, sink", shorter, [false, true]),
            lads_beside("32 OSTs, others after 0.7 s, both", shorter, [true, true]),
            lads_beside("32 OSTs, others after 5 s, sink", longer, [false, true]),
            lads_beside("32 OSTs, others after 5 s, both", longer, [true, true]),
        ],
        views: vec![
            view("8 OSTs", &[0, 1, 2, 3], None, Quantity::Share),
            view("32 OSTs", &[4, 5, 6, 7], None, Quantity::Share),
            view("Placed in turn", &[8, 9], None, Quantity::Share),
            view("Stripe count 4, 8 OSTs", &[10, 11, 12], None, Quantity::Share),
            view("Stripe count 4, 32 OSTs", &[13, 14, 15], None, Quantity::Share),
            view("32 OSTs, longer and otherwise", &[16, 17, 18, 19, 20, 21], None, Quantity::Share),
        ],
    }
}
