//! Measures what it costs that messages make data of remote files visible: how long the first
//! message after a write waits, and how often processes that write rows in turn wait for each other
//! although they never write the same bytes.

use super::super::table::Table;
use super::rfs::{Said, Server, Tools, launcher, number};
use super::route::{Distance, Line, LineKind, Route};
use crate::scratch::Scratch;
use anyhow::Result;
use lads_plot::groups::Spread;
use std::fs;
use std::path::Path;

pub(super) const TITLE: &str = "rfs: messages after writes, 1 Gbit/s";

const ROUNDS: usize = 3;
/// There and back.
const DISTANCES: [(Distance, &str); 2] =
    [(Distance::Ornl, "0.28 ms"), (Distance::Chicago, "26.8 ms")];
const CONSISTENCIES: [&str; 2] = ["local", "mpi"];

/// How a program writes.
struct Case {
    name: &'static str,
    processes: u64,
    row_bytes: u64,
    /// What a process writes in a phase.
    bytes: u64,
    phases: u64,
}

const ALONE: Case = Case {
    name: "1 process, 1 MiB a phase",
    processes: 1,
    row_bytes: 0,
    bytes: 1 << 20,
    phases: 20,
};
const ROWS: [Case; 2] = [
    Case {
        name: "8 processes, rows of 4 KiB in turn",
        processes: 8,
        row_bytes: 4 << 10,
        bytes: 2 << 20,
        phases: 2,
    },
    Case {
        name: "8 processes, rows of 64 B in turn",
        processes: 8,
        row_bytes: 64,
        bytes: 2 << 20,
        phases: 2,
    },
];

/// What a run printed.
struct Run {
    first_seconds: f64,
    second_seconds: f64,
    bytes_per_second: f64,
    conflicts: f64,
}

impl Case {
    fn run(&self, tools: &Tools, route: &Route, server: &Server, consistency: &str) -> Result<Run> {
        let mut command = launcher(tools, route, server, self.processes, &tools.messages);
        command.args([self.row_bytes, self.bytes, self.phases].map(|it| it.to_string()));
        command.arg(format!("rfs:{}:messages", server.at));
        command.env("LADS_RFS_HINTS", format!("rfs_consistency={consistency}"));
        let said = Said::by(&mut command)?;
        let number = |key| number(said.text(), key);
        Ok(Run {
            first_seconds: number("first=")?,
            second_seconds: number("second=")?,
            bytes_per_second: number("bytes_per_second=")?,
            conflicts: number("conflicts=")?,
        })
    }
}

/// Measures all cases at both distances, after a round that warms up.
pub(super) fn measure(lads: &Path, testbed: &Path, tools: &Tools) -> Result<Table> {
    let mut rows = Vec::new();
    for (distance, round_trip) in DISTANCES {
        let line = Line::lay(testbed, distance, LineKind::of_rate("1Gbit"))?;
        let notes = Scratch::new(Path::new("/dev/shm"), "lads-rfs")?;
        let root = notes.join("root");
        fs::create_dir(&root)?;
        let server = Server::start(lads, &line.route, &notes, &root, 8)?;
        for case in std::iter::once(&ALONE).chain(&ROWS) {
            let mut runs = CONSISTENCIES.map(|_| Vec::new());
            for round in 0..=ROUNDS {
                for (consistency, runs) in CONSISTENCIES.iter().zip(&mut runs) {
                    let run = case.run(tools, &line.route, &server, consistency)?;
                    if round > 0 {
                        runs.push(run);
                    }
                }
            }
            let frames = case.processes * case.phases * case.bytes.div_ceil(1 << 20);
            for (consistency, runs) in CONSISTENCIES.iter().zip(&runs) {
                let spread = |of: fn(&Run) -> f64| Spread::of(runs.iter().map(of));
                let millis = |it: Spread| {
                    let [median, min, max] = [it.median, it.min, it.max].map(|it| it * 1e3);
                    format!("{median:.3} [{min:.3}–{max:.3}]")
                };
                let rate = spread(|run| run.bytes_per_second).median / 1e6;
                let conflicts = spread(|run| run.conflicts).max;
                rows.push(vec![
                    format!("{round_trip}, {}, {consistency}", case.name),
                    millis(spread(|run| run.first_seconds)),
                    millis(spread(|run| run.second_seconds)),
                    format!("{rate:.1}"),
                    format!("{conflicts} of {frames}"),
                ]);
            }
        }
    }
    let head = [
        "round trip, case, rfs_consistency",
        "ms of the first barrier after a write [min–max]",
        "of the second",
        "MB/s",
        "conflicts, frames",
    ];
    Ok(Table::of_words(TITLE, &head, rows))
}
