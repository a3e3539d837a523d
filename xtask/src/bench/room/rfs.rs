//! Measures remote files of an MPI program: how much of the cost of writing a program sees (the RFS
//! paper, figure 4), what goes to the local disk (table 2), and how much the computation is slowed
//! down (table 3). The program is the three-dimensional Jacobi relaxation of the paper. It also
//! measures how fast a file is written in many small pieces, and records at the shared pointer.

use super::super::table::Table;
use super::messages;
use super::mount::{Mount, Storage};
use super::records;
use super::route::{Distance, Line, LineKind, Route};
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, anyhow, bail};
use lads_plot::groups::Spread;
use lads_shims::Mpi;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// The memory that is used as file systems and for programs, in bytes.
pub(in crate::bench) const SPACE: u64 = 4 << 30;
/// The space on the disk, in bytes: what is staged there.
pub(in crate::bench) const DISK_SPACE: u64 = 4 << 30;

const SNAPSHOTS: u64 = 4;
const ROUNDS: usize = 3;

/// How long a phase of computing is, in times that it takes to send a snapshot.
const LONG: f64 = 1.25;
const SHORT: f64 = 0.6;

/// A way from the program to the storage of the server.
struct Way {
    name: &'static str,
    distance: Distance,
    rate: &'static str,
    /// What the slowest part carries, in bytes per second.
    bytes_per_second: f64,
    disk_bytes_per_second: Option<u64>,
    /// With two, each has a part of every row of the file, as in the paper. The machine has two
    /// processors, so the line, the server, and what is sent take their time from the program.
    processes: u64,
    /// The cells of each process, so that a snapshot takes some seconds.
    cells: [u64; 3],
}

const NETWORK: Way = Way {
    name: "the paper's network, 11.7 MB/s, two processes",
    distance: Distance::Ornl,
    rate: "93.6Mbit",
    bytes_per_second: 11.7e6,
    disk_bytes_per_second: None,
    processes: 2,
    cells: [128, 128, 64],
};
const SLOW_DISK: Way = Way {
    name: "the paper's slow disk, 1.95 MB/s, two processes",
    bytes_per_second: 1.95e6,
    disk_bytes_per_second: Some(1_950_000),
    cells: [128, 64, 64],
    ..NETWORK
};
const FAST: Way = Way {
    name: "1 Gbit/s, 26.8 ms there and back, two processes",
    distance: Distance::Chicago,
    rate: "1Gbit",
    bytes_per_second: 125e6,
    disk_bytes_per_second: None,
    processes: 2,
    cells: [256, 256, 128],
};
const WAYS: [Way; 6] = [
    NETWORK,
    Way {
        name: "the paper's network, 11.7 MB/s, one process",
        processes: 1,
        cells: [128, 128, 128],
        ..NETWORK
    },
    SLOW_DISK,
    Way {
        name: "the paper's slow disk, 1.95 MB/s, one process",
        processes: 1,
        cells: [128, 128, 64],
        ..SLOW_DISK
    },
    FAST,
    Way {
        name: "1 Gbit/s, 26.8 ms there and back, one process",
        processes: 1,
        cells: [256, 256, 256],
        ..FAST
    },
];

impl Way {
    fn snapshot_bytes(&self) -> u64 {
        8 * self.processes * self.cells.iter().product::<u64>()
    }

    /// How long it takes to send a snapshot.
    fn seconds(&self) -> f64 {
        self.snapshot_bytes() as f64 / self.bytes_per_second
    }
}

/// How the program writes.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// Buffers as a part of what a process writes at a time; `None` without buffering.
    buffers: Option<f64>,
    phase: f64,
    is_staged: bool,
    /// What is staged is durable at once, so that the memory of the host does not hide the disk.
    is_synced: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "without buffering",
        buffers: None,
        phase: 0.0,
        is_staged: false,
        is_synced: false,
    },
    Case {
        name: "large buffers, long phases",
        buffers: Some(1.0),
        phase: LONG,
        is_staged: false,
        is_synced: false,
    },
    Case {
        name: "large buffers, short phases",
        buffers: Some(1.0),
        phase: SHORT,
        is_staged: true,
        is_synced: false,
    },
    Case {
        name: "small buffers, long phases",
        buffers: Some(0.5),
        phase: LONG,
        is_staged: true,
        is_synced: true,
    },
];

/// A way of writing nowhere.
struct Nowhere {
    name: &'static str,
    /// What the program is told to write.
    file: &'static str,
}

/// The measure of the paper, and the copy that no program can do without that goes on computing.
const NOWHERE: [Nowhere; 2] = [
    Nowhere { name: "PEAK: ROMIO's TESTFS, which does not write", file: "testfs:snapshot" },
    Nowhere { name: "a copy into memory", file: "nowhere" },
];

/// How much the computation is slowed down by a bare program that sends as much at the same times.
const BARE: [(&str, f64); 2] =
    [("a bare program sends, long phases", LONG), ("a bare program sends, short phases", SHORT)];

/// What a run said.
#[derive(Clone, Copy, Debug)]
struct Run {
    visible_bytes_per_second: f64,
    /// The same without the first snapshot, for which memory is used for the first time.
    later_bytes_per_second: f64,
    compute_seconds: f64,
    foreground_bytes: u64,
    background_bytes: u64,
}

/// Measures the ways whose names have `word` in them.
pub(in crate::bench) fn run(lads: &Path, disk: &Path, word: Option<&str>) -> Result<Vec<Table>> {
    let testbed = shell::build_testbed()?;
    let tools = Tools::build(disk)?;
    let is_meant = |name: &str| word.is_none_or(|word| name.contains(word));
    let ways = WAYS.iter().filter(|way| is_meant(way.name));
    let tables = ways.map(|way| measure(lads, &testbed, &tools, way));
    let pieces = is_meant(PIECES).then(|| measure_pieces(lads, &testbed, &tools));
    let records = is_meant(records::TITLE).then(|| records::measure(lads));
    let is_meant = is_meant(messages::TITLE);
    let messages = is_meant.then(|| messages::measure(lads, &testbed, &tools));
    tables.chain(pieces).chain(records).chain(messages).collect()
}

/// The programs and their shim, and where they stage.
pub(super) struct Tools {
    scratch: Scratch,
    jacobi: PathBuf,
    pieces: PathBuf,
    pub(super) messages: PathBuf,
    shim: PathBuf,
}

const COMPILER: &str = "mpicc.mpich";
const LAUNCHER: &str = "mpirun.mpich";

/// The programs that the benchmark starts.
pub(in crate::bench) const PROGRAMS: [&str; 4] = [COMPILER, LAUNCHER, "ip", "dd"];

impl Tools {
    fn build(disk: &Path) -> Result<Self> {
        shell::run(shell::cargo().args([
            "build",
            "--release",
            "--quiet",
            "--package",
            "lads-mpiio",
        ]))?;
        let built = shell::target_dir()?.join("release");
        let scratch = Scratch::new(disk, "lads-rfs")?;
        let of_shims = |text: String| anyhow!(text);
        let library = lads_shims::newest_static_library(&built).map_err(of_shims)?;
        let shim = lads_shims::build(Mpi::Mpich, COMPILER, &library, &scratch.join(""), &[]);
        let shim = shim.map_err(of_shims)?;
        let compiled = |name: &str| -> Result<PathBuf> {
            let program = scratch.join(name);
            let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/lads-mpiio/examples");
            let mut compile = Command::new(COMPILER);
            compile.args(["-std=gnu11", "-O2", &format!("{examples}/{name}.c"), "-o"]);
            shell::run(compile.arg(&program))?;
            Ok(program)
        };
        let (jacobi, pieces) = (compiled("jacobi")?, compiled("pieces")?);
        let messages = compiled("messages")?;
        fs::create_dir(scratch.join("stage"))?;
        Ok(Self { scratch, jacobi, pieces, messages, shim })
    }
}

impl Tools {
    /// A row for what the local disk carries if each piece is durable before the next: what is
    /// staged there with small buffers, of which there are 64, cannot be faster.
    fn disk_cells(&self, buffers_bytes: u64, nowhere: &[[f64; 2]]) -> Result<Vec<String>> {
        let path = self.scratch.join("stage/alone");
        let piece_bytes = buffers_bytes / 64;
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let mut command = Command::new("dd");
            command.args(["if=/dev/zero", "oflag=direct,dsync", "count=128"]);
            command.arg(format!("bs={piece_bytes}")).arg(format!("of={}", path.display()));
            let begun = Instant::now();
            let status = command.stderr(Stdio::null()).status().context("dd")?;
            if !status.success() {
                bail!("dd cannot write {}", path.display());
            }
            rates.push((128 * piece_bytes) as f64 / begun.elapsed().as_secs_f64());
            fs::remove_file(&path)?;
        }
        let rate = Spread::of(rates.into_iter());
        let name = format!("the local disk alone, {} KiB durable at a time", piece_bytes >> 10);
        let (foreground, background, needed, slower) = (None, None, 0.0, None);
        let disk = Row { name, rate, later: rate, foreground, background, needed, slower };
        Ok(disk.cells(nowhere))
    }
}

/// Measures all cases over one way, in turn.
fn measure(lads: &Path, testbed: &Path, tools: &Tools, way: &Way) -> Result<Table> {
    let line = Line::lay(testbed, way.distance, LineKind::of_rate(way.rate))?;
    let notes = Scratch::new(Path::new("/dev/shm"), "lads-rfs")?;
    let storage = Storage {
        osts: 1,
        osses: 1,
        ost_bytes_per_second: way.disk_bytes_per_second,
        is_written_back: false,
        ..Storage::default()
    };
    let slow = match way.disk_bytes_per_second {
        Some(_) => Some(Mount::start(testbed, storage, &notes.join(""), "disk")?),
        None => None,
    };
    let root = slow.as_ref().map_or_else(|| notes.join("root"), |mount| mount.path().join("root"));
    fs::create_dir(&root)?;
    if let Some(mount) = &slow {
        mount.throttle()?;
    }
    let server = Server::start(lads, &line.route, &notes, &root, 4)?;
    let bed = Bed { tools, way, route: &line.route, server: &server, root: &root };
    let seconds_each = bed.seconds_each_iteration()?;
    let rows = NOWHERE.iter().map(|it| bed.nowhere_row(it, seconds_each));
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    let nowhere = rows.iter().map(|row| [row.rate.median, row.later.median]).collect::<Vec<_>>();
    for case in CASES {
        rows.push(bed.row(case, seconds_each)?);
    }
    for (name, phase) in BARE {
        rows.push(bed.bare_row(name, phase, seconds_each)?);
    }
    let head = [
        "case",
        "visible MB/s [min–max]",
        "of PEAK, of a copy",
        "without the first",
        "of PEAK, of a copy",
        "staged while writing",
        "staged while computing, share of the model",
        "computing is slower by",
    ];
    let title = format!(
        "rfs: {}, {SNAPSHOTS} snapshots of {:.0} MB",
        way.name,
        way.snapshot_bytes() as f64 / 1e6
    );
    let mut cells: Vec<_> = rows.iter().map(|row| row.cells(&nowhere)).collect();
    cells.push(tools.disk_cells(way.snapshot_bytes() / way.processes / 2, &nowhere)?);
    Ok(Table::of_words(&title, &head, cells))
}

/// What the runs of a case said.
struct Row {
    name: String,
    rate: Spread,
    /// Without the first snapshot.
    later: Spread,
    /// Shares of all bytes.
    foreground: Option<f64>,
    background: Option<f64>,
    /// What the model needs, of all bytes.
    needed: f64,
    slower: Option<Spread>,
}

impl Row {
    fn cells(&self, nowhere: &[[f64; 2]]) -> Vec<String> {
        let rate = |it: Spread| {
            let [median, min, max] = [it.median, it.min, it.max].map(|rate| rate / 1e6);
            format!("{median:.1} [{min:.1}–{max:.1}]")
        };
        let of_nowhere = |rate: f64, which: usize| {
            let parts = nowhere.iter().map(|it| format!("{:.3}", rate / it[which]));
            parts.collect::<Vec<_>>().join(", ")
        };
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let none = || "–".to_owned();
        let background = self.background.map_or_else(none, |share| {
            let of_model = match self.needed {
                0.0 => String::new(),
                needed => format!(", {:.2} ×", share / needed),
            };
            percent(share) + &of_model
        });
        vec![
            self.name.clone(),
            rate(self.rate),
            of_nowhere(self.rate.median, 0),
            rate(self.later),
            of_nowhere(self.later.median, 1),
            self.foreground.map_or_else(none, percent),
            background,
            self.slower.map_or_else(none, |it| {
                let [median, min, max] = [it.median, it.min, it.max].map(|it| 100.0 * it);
                format!("{median:.1} % [{min:.1}–{max:.1}]")
            }),
        ]
    }
}

/// All that a run needs.
struct Bed<'a> {
    tools: &'a Tools,
    way: &'a Way,
    route: &'a Route,
    server: &'a Server,
    root: &'a Path,
}

impl Bed<'_> {
    /// How long an iteration takes if nothing else runs: in a run that is as long as a phase, for
    /// the first iterations touch memory for the first time.
    fn seconds_each_iteration(&self) -> Result<f64> {
        let mut each = f64::INFINITY;
        let mut iterations = 20;
        for _ in 0..4 {
            each = self.nowhere(iterations, 2)?.compute_seconds / (2 * iterations) as f64;
            iterations = self.iterations(LONG, each);
        }
        Ok(each)
    }

    /// A way of writing nowhere.
    fn nowhere_row(&self, nowhere: &Nowhere, seconds_each: f64) -> Result<Row> {
        let iterations = self.iterations(LONG, seconds_each);
        let run = |_| self.jacobi(iterations, SNAPSHOTS, nowhere.file, &[]);
        let runs = (0..ROUNDS).map(run).collect::<Result<Vec<_>>>()?;
        let rate = Spread::of(runs.iter().map(|run| run.visible_bytes_per_second));
        let later = Spread::of(runs.iter().map(|run| run.later_bytes_per_second));
        let (foreground, background) = (None, None);
        let name = nowhere.name.to_owned();
        Ok(Row { name, rate, later, foreground, background, needed: 0.0, slower: None })
    }

    /// A case of remote files.
    fn row(&self, case: Case, seconds_each: f64) -> Result<Row> {
        let remote = |iterations, _| self.remote(case, iterations);
        let (runs, slower) = self.beside_alone(case.phase, seconds_each, remote)?;
        let all = (self.way.snapshot_bytes() * SNAPSHOTS) as f64;
        let share = |of: fn(&Run) -> u64| {
            let staged = runs.iter().map(|run| of(run) as f64 / all);
            case.is_staged.then(|| Spread::of(staged).median)
        };
        // Of each output but the last, what cannot be sent in a phase.
        let phase = |run: &Run| run.compute_seconds / SNAPSHOTS as f64 / self.way.seconds();
        let phase = Spread::of(runs.iter().map(phase)).median;
        let left = if case.buffers == Some(1.0) { (1.0 - phase).max(0.0) } else { 0.0 };
        Ok(Row {
            name: case.name.to_owned(),
            rate: Spread::of(runs.iter().map(|run| run.visible_bytes_per_second)),
            later: Spread::of(runs.iter().map(|run| run.later_bytes_per_second)),
            foreground: share(|run| run.foreground_bytes),
            background: share(|run| run.background_bytes),
            needed: left * (SNAPSHOTS - 1) as f64 / SNAPSHOTS as f64,
            slower: (case.phase > 0.0).then_some(slower),
        })
    }

    /// A program that writes nowhere while a bare one sends as much as that would write.
    fn bare_row(&self, name: &str, phase: f64, seconds_each: f64) -> Result<Row> {
        let (runs, slower) = self.beside_alone(phase, seconds_each, |iterations, each| {
            let sent = BareSending::start(self, iterations as f64 * each)?;
            let run = self.nowhere(iterations, SNAPSHOTS)?;
            sent.check()?;
            Ok(run)
        })?;
        Ok(Row {
            name: name.to_owned(),
            rate: Spread::of(runs.iter().map(|run| run.visible_bytes_per_second)),
            later: Spread::of(runs.iter().map(|run| run.later_bytes_per_second)),
            foreground: None,
            background: None,
            needed: 0.0,
            slower: Some(slower),
        })
    }

    /// Runs a case with phases of this length; `run` is given the iterations in a phase and the
    /// seconds of an iteration. Before each, a run writes nowhere, to compare the computation with:
    /// the machine is not always as fast, so that run also tells how long an iteration takes now.
    /// The first round is a warm-up. Returns the runs, and by how much an iteration is slower.
    fn beside_alone(
        &self,
        phase: f64,
        seconds_each: f64,
        run: impl Fn(u64, f64) -> Result<Run>,
    ) -> Result<(Vec<Run>, Spread)> {
        let (mut runs, mut slower) = (Vec::new(), Vec::new());
        let mut alone_each = seconds_each;
        for round in 0..=ROUNDS {
            let iterations = self.iterations(phase, alone_each);
            let alone = self.nowhere(iterations, SNAPSHOTS)?;
            alone_each = alone.compute_seconds / (iterations * SNAPSHOTS) as f64;
            let iterations = self.iterations(phase, alone_each);
            let run = run(iterations, alone_each)?;
            if round > 0 {
                runs.push(run);
                let each = run.compute_seconds / (iterations * SNAPSHOTS) as f64;
                slower.push(each / alone_each - 1.0);
            }
        }
        Ok((runs, Spread::of(slower.into_iter())))
    }

    fn iterations(&self, phase: f64, seconds_each: f64) -> u64 {
        let count = (phase * self.way.seconds() / seconds_each).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a number of iterations"
        )]
        let count = count.max(1.0) as u64;
        count
    }

    fn nowhere(&self, iterations: u64, snapshots: u64) -> Result<Run> {
        self.jacobi(iterations, snapshots, "nowhere", &[])
    }

    fn remote(&self, case: Case, iterations: u64) -> Result<Run> {
        let each = self.way.snapshot_bytes() / self.way.processes;
        let mut hints = vec!["rfs_defer_open=true".to_owned(), "rfs_defer_close=true".to_owned()];
        match case.buffers {
            None => hints.push("rfs_buffering=false".to_owned()),
            Some(part) => {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "no more than the memory of a host"
                )]
                let bytes = (each as f64 * part) as u64;
                // A buffer is filled while all of a snapshot waits.
                hints.push(format!("rfs_buffer_size={}", bytes + (1 << 20)));
            }
        }
        if case.is_staged {
            let stage = self.tools.scratch.join("stage");
            hints.push(format!("rfs_cache_dir={}", stage.display()));
            hints.push(format!("rfs_cache_sync={}", case.is_synced));
        }
        let set = [("LADS_RFS_HINTS", hints.join(";"))];
        let name = format!("rfs:{}:snapshot", self.server.at);
        let run = self.jacobi(iterations, SNAPSHOTS, &name, &set)?;
        for number in 0..SNAPSHOTS {
            let path = self.root.join(format!("snapshot.{number}"));
            let bytes = fs::metadata(&path).with_context(|| path.display().to_string())?.len();
            if bytes != self.way.snapshot_bytes() {
                bail!("{} has {bytes} bytes", path.display());
            }
            fs::remove_file(&path)?;
        }
        Ok(run)
    }

    /// Runs the program with `every` iterations before each snapshot.
    fn jacobi(
        &self,
        every: u64,
        snapshots: u64,
        name: &str,
        set: &[(&str, String)],
    ) -> Result<Run> {
        let [x, y, z] = self.way.cells.map(|cells| cells.to_string());
        let (all, every) = ((every * snapshots).to_string(), every.to_string());
        let Self { tools, way, route, server, .. } = self;
        let mut command = launcher(tools, route, server, way.processes, &tools.jacobi);
        command.args([&x, &y, &z, &all, &every, name]);
        command.env("LADS_RFS_VERBOSE", "1").envs(set.iter().map(|(key, value)| (key, value)));
        let Said { said, told } = Said::by(&mut command)?;
        let number = |key| number(&said, key);
        let staged =
            told.lines().find_map(|line| line.strip_prefix("rfs: staged on local disks: "));
        let mut staged =
            staged.unwrap_or_default().split_whitespace().filter_map(|it| it.parse().ok());
        Ok(Run {
            visible_bytes_per_second: number("visible_bytes_per_second=")?,
            later_bytes_per_second: number("later_bytes_per_second=")?,
            compute_seconds: number("compute_seconds=")?,
            foreground_bytes: staged.next().unwrap_or(0),
            background_bytes: staged.next().unwrap_or(0),
        })
    }
}

/// A bare program that sends a snapshot after each phase but the last, while another computes.
struct BareSending {
    receiver: Child,
    sender: Child,
    path: PathBuf,
}

impl BareSending {
    fn start(bed: &Bed<'_>, phase_seconds: f64) -> Result<Self> {
        let own = std::env::current_exe()?.display().to_string();
        let path = bed.root.join("bare");
        let mut command = bed.route.at_sink(&own);
        command.arg("bare-receiver").arg(&bed.route.sink_address).arg(&path);
        let receiver = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut receiver = receiver.context("cannot start the bare receiver")?;
        let mut at = String::new();
        BufReader::new(receiver.stdout.take().expect("piped above")).read_line(&mut at)?;
        let mut command = bed.route.at_source(&own);
        command.args(["bare-sender", at.trim(), &bed.way.snapshot_bytes().to_string()]);
        command.args([phase_seconds.to_string(), (SNAPSHOTS - 1).to_string()]);
        let sender =
            command.stderr(Stdio::null()).spawn().context("cannot start the bare sender")?;
        Ok(Self { receiver, sender, path })
    }

    /// Stops it. An error if it did not send.
    fn check(self) -> Result<()> {
        let sent = fs::metadata(&self.path).map_or(0, |file| file.len());
        if sent == 0 { bail!("the bare program printed nothing") } else { Ok(()) }
    }
}

impl Drop for BareSending {
    fn drop(&mut self) {
        // The program has ended: nothing compares what is still to be sent. An error means that
        // one has already ended.
        for child in [&mut self.sender, &mut self.receiver] {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// The command that runs a program with this number of processes at the source end of a route.
pub(super) fn launcher(
    tools: &Tools,
    route: &Route,
    server: &Server,
    processes: u64,
    program: &Path,
) -> Command {
    let mut command = route.at_source(LAUNCHER);
    command.args(["-n", &processes.to_string(), "-env", "LD_PRELOAD"]);
    command.arg(&tools.shim).arg(program).env("LADS_RFS_TOKEN_FILE", &server.token);
    command
}

/// What a program said.
pub(super) struct Said {
    said: String,
    told: String,
}

impl Said {
    /// Returns the standard output.
    pub(super) fn text(&self) -> &str {
        &self.said
    }

    pub(super) fn by(command: &mut Command) -> Result<Self> {
        let output = command.output().context(LAUNCHER)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            bail!("the program failed: {said}{told}");
        }
        Ok(Self { said, told })
    }
}

/// The number behind a key that ends with `=`.
pub(super) fn number(said: &str, key: &str) -> Result<f64> {
    let value = said.split_whitespace().find_map(|word| word.strip_prefix(key));
    value.and_then(|value| value.parse().ok()).with_context(|| format!("{key} in {said}"))
}

const PIECES: &str = "small pieces, 1 Gbit/s, 26.8 ms there and back";

/// A file that is written in small pieces.
struct Pieces {
    name: &'static str,
    kind: &'static str,
    processes: u64,
    bytes: u64,
    pieces: u64,
    times: u64,
    hints: &'static str,
    /// Whether it is compared with the case before.
    is_compared: bool,
}

const PIECES_CASES: [Pieces; 4] = [
    Pieces {
        name: "8 processes, 16 × 2 MiB in one piece each",
        kind: "together",
        processes: 8,
        bytes: 512,
        pieces: 4096,
        times: 16,
        hints: "",
        is_compared: false,
    },
    Pieces {
        name: "8 processes, 16 × 4,096 pieces of 512 B, apart",
        kind: "apart",
        processes: 8,
        bytes: 512,
        pieces: 4096,
        times: 16,
        hints: "",
        is_compared: true,
    },
    Pieces {
        name: "1 process, 200 writes of 1 KiB, without buffering",
        kind: "single",
        processes: 1,
        bytes: 1024,
        pieces: 200,
        times: 1,
        hints: "rfs_buffering=false",
        is_compared: false,
    },
    Pieces {
        name: "1 process, 1,048,576 writes of 1 KiB",
        kind: "single",
        processes: 1,
        bytes: 1024,
        pieces: 4096,
        times: 256,
        hints: "",
        is_compared: true,
    },
];

/// Measures files in small pieces, all cases in turn, after a round that warms up.
fn measure_pieces(lads: &Path, testbed: &Path, tools: &Tools) -> Result<Table> {
    let line = Line::lay(testbed, Distance::Chicago, LineKind::of_rate("1Gbit"))?;
    let notes = Scratch::new(Path::new("/dev/shm"), "lads-rfs")?;
    let root = notes.join("root");
    fs::create_dir(&root)?;
    let server = Server::start(lads, &line.route, &notes, &root, 8)?;
    let mut rates = vec![Vec::new(); PIECES_CASES.len()];
    for round in 0..=ROUNDS {
        for (case, rates) in PIECES_CASES.iter().zip(&mut rates) {
            let rate = case.rate(tools, &line.route, &server, &root.join("pieces"))?;
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    let rates: Vec<_> = rates.into_iter().map(|rates| Spread::of(rates.into_iter())).collect();
    let rows = PIECES_CASES.iter().enumerate().map(|(index, case)| {
        let Spread { median, min, max } = rates[index];
        let rate = format!("{:.3} [{:.3}–{:.3}]", median / 1e6, min / 1e6, max / 1e6);
        let times = match case.is_compared {
            true => format!("{:.2} ×", median / rates[index - 1].median),
            false => "–".to_owned(),
        };
        vec![case.name.to_owned(), rate, times]
    });
    let head = ["case", "MB/s from open to closed [min–max]", "of the row before"];
    Ok(Table::of_words(&format!("rfs: {PIECES}"), &head, rows.collect()))
}

impl Pieces {
    /// How many bytes per second are durable at the server.
    fn rate(&self, tools: &Tools, route: &Route, server: &Server, path: &Path) -> Result<f64> {
        let Self { kind, processes, bytes, pieces, times, hints, .. } = self;
        let mut command = launcher(tools, route, server, *processes, &tools.pieces);
        command.arg(kind).args([bytes, pieces, times].map(ToString::to_string));
        command.arg(format!("rfs:{}:pieces", server.at)).env("LADS_RFS_HINTS", hints);
        let rate = number(&Said::by(&mut command)?.said, "bytes_per_second=")?;
        let length = fs::metadata(path).with_context(|| path.display().to_string())?.len();
        if length != processes * bytes * pieces * times {
            bail!("{} has {length} bytes", path.display());
        }
        fs::remove_file(path)?;
        Ok(rate)
    }
}

/// A server of remote files at the other end of the line.
pub(super) struct Server {
    child: Child,
    pub(super) at: String,
    pub(super) token: PathBuf,
}

impl Server {
    pub(super) fn start(
        lads: &Path,
        route: &Route,
        notes: &Scratch,
        root: &Path,
        sessions: u32,
    ) -> Result<Self> {
        let command = route.at_sink(&lads.display().to_string());
        Self::listen(command, &route.sink_address, &notes.join("token"), root, sessions)
    }

    /// Starts a server that listens at an address; `command` runs LADS there.
    pub(super) fn listen(
        mut command: Command,
        address: &str,
        token: &Path,
        root: &Path,
        sessions: u32,
    ) -> Result<Self> {
        command.args(["rfs", "serve", "--sessions", &sessions.to_string()]);
        command.args(["--buffers", "128M", "--listen"]);
        command.arg(format!("{address}:0")).arg("--root").arg(root);
        command.arg("--token-file").arg(token).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start the server")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped above")).read_line(&mut line)?;
        let at = line.trim().strip_prefix("listening on ").map(str::to_owned);
        // Dropped, and so stopped, if it said something else.
        let server = Self { child, at: at.clone().unwrap_or_default(), token: token.to_owned() };
        at.map(|_| server).with_context(|| format!("the server printed: {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
