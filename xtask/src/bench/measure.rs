//! Measures the cost of a piece of work: the elapsed time, our processor time, and that of all
//! other processes.
//!
//! Our processor time is that of all processes that were started, and waited for, during the work:
//! both ends together. The kernel counts it in hundredths of a second, so the work has to take a
//! considerable part of a second.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::time::Duration;

/// The number of ticks per second in `/proc`. It is the same on every Linux.
const TICKS: f64 = 100.0;

/// The cost of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sample {
    /// From the start of the mover's command to its end.
    pub(super) elapsed_seconds: f64,
    /// User and system time of all our processes.
    pub(super) cpu_seconds: f64,
    /// The processor time of the rest of the machine during the run. It is noise.
    pub(super) foreign_cpu_seconds: f64,
}

/// Measures work that returns the time of its main part, and that waits for its child processes.
pub(super) fn measure(work: impl FnOnce() -> Result<Duration>) -> Result<Sample> {
    let before = Ticks::now()?;
    let elapsed = work()?;
    let after = Ticks::now()?;
    let machine = after.machine - before.machine;
    let ours = after.ours - before.ours;
    let children = after.children - before.children;
    Ok(Sample {
        elapsed_seconds: elapsed.as_secs_f64(),
        cpu_seconds: children / TICKS,
        foreign_cpu_seconds: ((machine - ours - children) / TICKS).max(0.0),
    })
}

/// The child processes of all threads of a process.
pub(super) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children")));
    let lists: Vec<String> = lists.filter_map(Result::ok).collect();
    lists
        .iter()
        .flat_map(|list| list.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

struct Ticks {
    /// The time of the processes that this process has waited for.
    children: f64,
    /// The time of this process.
    ours: f64,
    /// The busy time of the whole machine.
    machine: f64,
}

impl Ticks {
    fn now() -> Result<Self> {
        let own = fs::read_to_string("/proc/self/stat")?;
        // The name, in parentheses, may contain any character; the numbers begin after it.
        let (_, numbers) = own.rsplit_once(')').context("/proc/self/stat")?;
        // utime, stime, cutime and cstime are the fields 14 to 17. The first field after the name
        // is 3.
        let times: Vec<f64> = parse(numbers, 11, 4);
        let machine = fs::read_to_string("/proc/stat")?;
        // user, nice, system, idle, iowait, irq, softirq, steal.
        let busy: Vec<f64> = parse(machine.lines().next().context("/proc/stat")?, 1, 8);
        Ok(Self {
            ours: times[0] + times[1],
            children: times[2] + times[3],
            machine: busy.iter().sum::<f64>() - busy[3] - busy[4],
        })
    }
}

/// Parses this number of words, after skipping this number of words.
fn parse(text: &str, skip: usize, count: usize) -> Vec<f64> {
    let words = text.split_whitespace().skip(skip).take(count);
    let mut numbers: Vec<f64> = words.map(|word| word.parse().unwrap_or(0.0)).collect();
    numbers.resize(count, 0.0);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_works_is_counted() {
        let sample = measure(|| {
            let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
            std::process::Command::new("sh").args(["-c", script]).status()?;
            Ok(Duration::from_secs(1))
        });
        assert!(sample.unwrap().cpu_seconds > 0.0);
    }
}
