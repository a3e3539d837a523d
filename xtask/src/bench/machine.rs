//! Describes the machine, and the state of the code, with which something was measured.

use crate::shell;
use anyhow::Result;
use serde::Serialize;
use std::fmt;
use std::fs;

/// Everything that a reader needs to judge a figure.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    processor: String,
    cores: usize,
    memory_bytes: u64,
    kernel: String,
    congestion_control: String,
    /// The average number of processes that were ready to run, over the last minute before the
    /// benchmark.
    load_average: String,
    commit: String,
    rustc: String,
    date: String,
}

impl Machine {
    /// The current state of this machine.
    pub(super) fn here() -> Result<Self> {
        let cpu = fs::read_to_string("/proc/cpuinfo")?;
        let memory = fs::read_to_string("/proc/meminfo")?;
        let load = fs::read_to_string("/proc/loadavg")?;
        let memory_kib: u64 = value(&memory, "MemTotal")
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .unwrap_or(0);
        Ok(Self {
            processor: value(&cpu, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kib << 10,
            kernel: read("/proc/sys/kernel/osrelease"),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            load_average: load.split(' ').next().unwrap_or_default().to_owned(),
            commit: commit(),
            rustc: said_by("rustc", &["--version"]),
            date: said_by("date", &["-u", "+%Y-%m-%d"]),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processor, cores, kernel, congestion_control, load_average, .. } = self;
        write!(
            f,
            "{processor}, {cores} cores, {} GiB, Linux {kernel}, TCP {congestion_control}; load \
             average before {load_average}; commit {}, {}, {}",
            self.memory_bytes >> 30,
            self.commit,
            self.rustc,
            self.date
        )
    }
}

/// The current commit, and whether the tree has changes since.
fn commit() -> String {
    let commit = said_by("git", &["rev-parse", "--short", "HEAD"]);
    let is_clean = said_by("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
    if is_clean { commit } else { format!("{commit} with changes") }
}

/// What a program prints, as one line; empty if it cannot be run.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let text = shell::output(shell::command(program).args(arguments)).unwrap_or_default();
    text.trim().replace('\n', " ")
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The value of the first line `key : value`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim())
}
