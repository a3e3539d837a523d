//! Ends the daemons of a cluster by their pid files, if the pids still belong to them.

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The longest time to wait until a killed daemon is gone. No daemon is asked to end by itself,
/// because some of them need many seconds for that, and none of their data is kept.
const END_MAX: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Kills all processes whose pid is in a file of a directory, if their command line names this
/// configuration.
pub(super) fn end_all(directory: &Path, configuration: &Path) -> Result<()> {
    let files = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let numbers = numbers.filter_map(|text| text.trim().parse().ok());
    let daemons: Vec<Pid> = numbers.filter_map(Pid::from_raw).collect();
    let ours = || daemons.iter().copied().filter(|&daemon| is_ours(daemon, configuration));
    for daemon in ours() {
        // An error means that the daemon has already ended.
        let _ = kill_process(daemon, Signal::KILL);
    }
    let start = Instant::now();
    while start.elapsed() < END_MAX {
        if ours().next().is_none() {
            return Ok(());
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    bail!("a daemon of {} does not exit", directory.display());
}

fn is_ours(daemon: Pid, configuration: &Path) -> bool {
    let process = format!("/proc/{}", daemon.as_raw_nonzero());
    let words = fs::read(format!("{process}/cmdline")).unwrap_or_default();
    let configuration = configuration.as_os_str().as_bytes();
    test_kill_process(daemon).is_ok()
        && words.split(|&byte| byte == 0).any(|it| it == configuration)
}
