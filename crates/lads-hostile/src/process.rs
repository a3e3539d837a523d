//! An honest process under watch: how much memory, how many threads and descriptors it ever had,
//! and how it ended.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// How often a process is looked at: short against what a flood takes to fill memory.
const LOOK_INTERVAL: Duration = Duration::from_millis(4);

/// Lets this process and those that it starts have as many descriptors as the system gives: some
/// cases open thousands of connections.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // What cannot be raised shows in the cases that need it.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// What a process may have at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files, sockets and pipes.
    pub descriptors: u64,
    /// How long it may run.
    pub elapsed: Duration,
}

/// What a process had at most, and how it ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watched {
    /// Resident memory, in bytes (VmHWM).
    pub memory_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Open files, sockets and pipes.
    pub descriptors: u64,
    /// How long it ran.
    pub elapsed: Duration,
    /// How it ended; `None` if it had to be killed.
    pub status: Option<ExitStatus>,
}

impl Watched {
    /// Watches a process until it has ended. One that takes twice the memory or threads that it may
    /// have, or too long, is killed: it should not take the machine with it.
    #[must_use]
    pub fn until_end(child: &mut Child, limits: &Limits) -> Self {
        let started = Instant::now();
        let mut watched = Self::default();
        loop {
            watched.look(child.id());
            // Where one process stands before that which does the work, it is the latter.
            children(child.id()).into_iter().for_each(|pid| watched.look(pid));
            watched.elapsed = started.elapsed();
            if let Some(status) = child.try_wait().unwrap() {
                watched.status = Some(status);
                return watched;
            }
            let is_too_large = watched.memory_bytes > 2 * limits.memory_bytes
                || watched.threads > 2 * limits.threads;
            if is_too_large || watched.elapsed > limits.elapsed {
                let _ = child.kill();
                let _ = child.wait();
                return watched;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn look(&mut self, pid: u32) {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return };
        // Until the program has its name it still has the descriptors of whoever started it.
        if !status.starts_with("Name:\tlads\n") {
            return;
        }
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        self.memory_bytes = self.memory_bytes.max(number("VmHWM:") << 10);
        self.threads = self.threads.max(number("Threads:"));
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        self.descriptors = self.descriptors.max(descriptors as u64);
    }

    /// What it had more of than it may, in words.
    #[must_use]
    pub fn beyond(&self, limits: &Limits) -> Vec<String> {
        let rows = [
            ("MiB of memory", self.memory_bytes >> 20, limits.memory_bytes >> 20),
            ("threads", self.threads, limits.threads),
            ("descriptors", self.descriptors, limits.descriptors),
            ("seconds", self.elapsed.as_secs(), limits.elapsed.as_secs()),
        ];
        let beyond = rows.into_iter().filter(|(_, had, most)| had > most);
        beyond
            .map(|(what, had, most)| format!("it had {had} {what}, at most {most} allowed"))
            .collect()
    }
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const LIMITS: Limits = Limits {
        memory_bytes: 8 << 20,
        threads: 4,
        descriptors: 20,
        elapsed: Duration::from_millis(200),
    };

    #[test]
    fn what_does_not_end_is_killed_and_told() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let watched = Watched::until_end(&mut child, &LIMITS);
        assert!(watched.status.is_none() && watched.elapsed > LIMITS.elapsed);
    }

    #[test]
    fn a_program_of_another_name_is_not_measured() {
        // Until it has its own name, a process still has the descriptors of who started it.
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert_eq!(Watched::until_end(&mut child, &LIMITS).descriptors, 0);
    }

    #[test]
    fn memory_and_threads_beyond_the_limits_are_told() {
        let watched =
            Watched { memory_bytes: 9 << 20, threads: 5, descriptors: 20, ..Watched::default() };
        let beyond = watched.beyond(&LIMITS);
        assert_eq!(
            beyond,
            ["it had 9 MiB of memory, at most 8 allowed", "it had 5 threads, at most 4 allowed"]
        );
    }
}
