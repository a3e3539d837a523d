//! Measures the cost of a piece of work: the elapsed time, our processor time, and that of all
//! other processes.
//!
//! Our processor time is that of a control group in which everything runs that is started during
//! the work: both ends together, to the microsecond, also of processes that nobody waits for.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The number of ticks per second in `/proc/stat`. It is the same on every Linux.
const TICKS: f64 = 100.0;

/// The cost of one run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Sample {
    /// From the start of the mover's command to its end.
    pub(super) elapsed_seconds: f64,
    /// User and system time of all our processes.
    pub(super) cpu_seconds: f64,
    /// The processor time of the rest of the machine during the run. It is noise.
    pub(super) foreign_cpu_seconds: f64,
}

/// Measures work that returns the time of its main part.
pub(super) fn measure(work: impl FnOnce() -> Result<Duration>) -> Result<Sample> {
    let before = busy_seconds()?;
    let group = Group::enter()?;
    let elapsed = work();
    let cpu_seconds = group.leave()?;
    let elapsed_seconds = elapsed?.as_secs_f64();
    let foreign_cpu_seconds = (busy_seconds()? - before - cpu_seconds).max(0.0);
    Ok(Sample { elapsed_seconds, cpu_seconds, foreign_cpu_seconds })
}

/// Whether processor time can be measured here.
pub(super) fn is_possible() -> bool {
    Group::enter().and_then(Group::leave).is_ok()
}

/// A control group (version 2) that this process has entered, below the one that it was in.
struct Group {
    before: PathBuf,
    own: PathBuf,
}

impl Group {
    fn enter() -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let is_unified = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let mount = mounts.lines().find(is_unified).and_then(|line| line.split(' ').nth(1));
        let groups = fs::read_to_string("/proc/self/cgroup")?;
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"));
        let (mount, path) = mount.zip(path).context("there are no control groups, version 2")?;
        let before = Path::new(mount).join(path);
        let own = before.join(format!("lads-bench-{}", std::process::id()));
        fs::create_dir(&own).with_context(|| own.display().to_string())?;
        let group = Self { before, own };
        if let Err(error) = move_to(&group.own) {
            let _ = fs::remove_dir(&group.own);
            return Err(error);
        }
        Ok(group)
    }

    /// Waits until everything in it has ended but for this process, and returns its processor time
    /// in seconds.
    fn leave(self) -> Result<f64> {
        move_to(&self.before)?;
        let start = Instant::now();
        while !fs::read_to_string(self.own.join("cgroup.procs"))?.is_empty() {
            if start.elapsed() > Duration::from_secs(10) {
                bail!("a process in {} does not end", self.own.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let stat = fs::read_to_string(self.own.join("cpu.stat"))?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        let micros: f64 = micros.context("cpu.stat")?.parse()?;
        fs::remove_dir(&self.own)?;
        Ok(micros / 1e6)
    }
}

/// Moves this process to a control group.
fn move_to(group: &Path) -> Result<()> {
    let path = group.join("cgroup.procs");
    fs::write(&path, "0").with_context(|| path.display().to_string())
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

/// The processor time of everything on this machine since it was started, in seconds.
fn busy_seconds() -> Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    // user, nice, system, idle, iowait, irq, softirq, steal.
    let words = text.lines().next().context("/proc/stat")?.split_whitespace().skip(1).take(8);
    let ticks: Vec<f64> = words.map(|word| word.parse().unwrap_or(0.0)).collect();
    Ok((ticks.iter().sum::<f64>() - ticks[3] - ticks[4]) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_time_of_all_that_is_started_is_counted() {
        if !is_possible() {
            return lads_tried::not_tried("control groups (root)");
        }
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let run = |words: &[&str]| {
            measure(|| {
                Command::new("setsid").args(words).status()?;
                Ok(Duration::from_secs(1))
            })
        };
        // The second one is not waited for by the first.
        let waited_for = run(&["-w", "sh", "-c", script]).unwrap().cpu_seconds;
        let left_alone = run(&["-f", "sh", "-c", script]).unwrap().cpu_seconds;
        let little = run(&["-w", "true"]).unwrap().cpu_seconds;
        assert!(waited_for > 2.0 * little, "{waited_for} {little}");
        assert!(left_alone > 2.0 * little, "{left_alone} {little}");
    }
}
