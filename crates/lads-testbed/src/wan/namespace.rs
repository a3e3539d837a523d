//! Makes, enters and removes network namespaces, and knows which process owns each.
//!
//! A namespace is named `lads-NAME-PID-ROLE` after the process that owns it, so that any process
//! can tell whether it is still in use. The files that `ip netns exec` puts over `/etc/hosts` are
//! made and removed with it.

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The directory where `ip netns` keeps namespaces.
const DIRECTORY: &str = "/run/netns";
/// The directory where `ip netns exec` finds the files to put over `/etc`, one directory per
/// namespace.
const OVERLAYS: &str = "/etc/netns";
const PREFIX: &str = "lads-";
/// How long a process may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A network namespace that has a name. It still exists after this is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one for this process.
    pub(crate) fn add(of: &str, role: &str) -> Result<Self> {
        let name = format!("{PREFIX}{of}-{}-{role}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Returns all namespaces of a process.
    pub(crate) fn kept_by(pid: u32) -> Vec<Self> {
        all().filter(|(_, owner)| *owner == pid).map(|(namespace, _)| namespace).collect()
    }

    /// Returns all namespaces whose process is gone.
    pub(crate) fn stale() -> Vec<Self> {
        all().filter(|(_, owner)| !is_testbed(*owner)).map(|(namespace, _)| namespace).collect()
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Adds lines to the `/etc/hosts` of programs that `ip netns exec` starts in it.
    pub(crate) fn add_hosts(&self, lines: &str) -> Result<()> {
        let known = fs::read_to_string("/etc/hosts").unwrap_or_default();
        let (overlay, _lock) = (self.overlay(), lock_overlays()?);
        let path = overlay.join("hosts");
        fs::create_dir_all(&overlay)
            .and_then(|()| fs::write(&path, format!("{known}\n{lines}")))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Runs `ip` in it.
    pub(crate) fn ip(&self, words: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.name], words].concat())
    }

    /// Moves the calling thread into it, with all that the thread opens and starts from now on.
    pub(crate) fn enter(&self) -> Result<()> {
        let path = self.path();
        let file = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .with_context(|| format!("cannot enter {}", path.display()))
    }

    /// Runs a function in it, in a separate thread.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().and_then(|()| work()));
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Ends the processes in it, and removes it with its interfaces and rules.
    pub(crate) fn remove(&self) -> Result<()> {
        self.end_processes();
        self.remove_overlay()?;
        ip(&["netns", "del", &self.name])
    }

    /// Removes its overlay directory, and the parent directory if this was the last one in it.
    fn remove_overlay(&self) -> Result<()> {
        let (overlay, _lock) = (self.overlay(), lock_overlays()?);
        match fs::remove_dir_all(&overlay) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", overlay.display()))
            }
            _ => {
                let _ = fs::remove_dir(OVERLAYS);
                Ok(())
            }
        }
    }

    fn end_processes(&self) {
        signal(&self.processes(), Signal::TERM);
        let asked = Instant::now();
        while !self.processes().is_empty() && asked.elapsed() < GRACE {
            std::thread::sleep(LOOK_INTERVAL);
        }
        signal(&self.processes(), Signal::KILL);
    }

    fn processes(&self) -> Vec<Pid> {
        let output = Command::new("ip").args(["netns", "pids", &self.name]).output();
        let output = output.map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
    }

    fn path(&self) -> PathBuf {
        [DIRECTORY, &self.name].iter().collect()
    }

    fn overlay(&self) -> PathBuf {
        [OVERLAYS, &self.name].iter().collect()
    }
}

/// Locks the overlays, so that no other process makes a directory in one that is about to be
/// removed.
fn lock_overlays() -> Result<File> {
    let lock = File::open(DIRECTORY).context("there are no network namespaces")?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// Returns our namespaces, each with the process that owns it.
fn all() -> impl Iterator<Item = (Namespace, u32)> {
    let entries = fs::read_dir(DIRECTORY).into_iter().flatten();
    entries.filter_map(|entry| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let owner = owner_in(&name)?;
        Some((Namespace { name }, owner))
    })
}

/// Returns the process in `lads-NAME-PID-ROLE`.
fn owner_in(name: &str) -> Option<u32> {
    let (rest, _role) = name.strip_prefix(PREFIX)?.rsplit_once('-')?;
    rest.rsplit_once('-')?.1.parse().ok()
}

/// Returns whether a process lives and is a testbed. The number alone does not tell: it may have
/// been reused.
fn is_testbed(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end() == "lads-testbed"
}

fn signal(processes: &[Pid], signal: Signal) {
    for &process in processes {
        // The process may have ended since.
        let _ = kill_process(process, signal);
    }
}

/// Runs `ip`; its error message becomes the error.
pub(crate) fn ip(words: &[&str]) -> Result<()> {
    run("ip", words)
}

/// Runs a program of the system; its error message becomes the error.
pub(crate) fn run(program: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("cannot start {program}: is its package installed?"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    let words = words.join(" ");
    ensure!(output.status.success(), "{program} {words}: {}", complaint.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_its_process() {
        assert_eq!(owner_in("lads-wan-4242-source"), Some(4242));
        assert_eq!(owner_in("lads-a-b-1-4242-sink"), Some(4242));
        assert_eq!(owner_in("lads-4242"), None);
        assert_eq!(owner_in("other-wan-4242-sink"), None);
    }
}
