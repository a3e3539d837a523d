//! Starts the commands of a round, and finds every process that they start.
//!
//! A process belongs to a round if its environment says so. So it is found whichever process is its
//! parent now, and whichever shell started it.

use super::plan::Output;
use anyhow::{Context, Result};
use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that marks the processes of a round. Its value is the round's
/// directory.
const MARK: &str = "LADS_CHAOS_ROUND";

/// The exit code of a command that moved everything, and reports metadata that the target does not
/// keep.
pub(super) const REDUCED: i32 = 13;

/// A process of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) pid: u32,
    /// Whether this is the end that a command started (`lads serve`).
    pub(super) is_other_end: bool,
    /// Whether this is the end that the user starts (`lads cp`).
    pub(super) is_started: bool,
}

/// All processes of the round in this directory that have not ended.
pub(super) fn members(directory: &Path) -> Vec<Member> {
    let mark = format!("{MARK}={}", directory.display());
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let is_marked = |pid: &u32| {
        // The environment of a process that has ended cannot be read.
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|all| all.split(|&byte| byte == 0).any(|word| word == mark.as_bytes()))
    };
    processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_marked)
        .map(|pid| Member { pid, is_other_end: runs(pid, b"serve"), is_started: runs(pid, b"cp") })
        .collect()
}

/// Whether a process and all its threads have ended. When the rest of a process is gone, one of its
/// threads may still be in a system call, and keep the files of the process open.
pub(super) fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    state.is_none_or(|state| state == 'Z' && threads <= 1)
}

/// Whether a process is `lads` with this subcommand.
fn runs(pid: u32, subcommand: &[u8]) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = words.split(|&byte| byte == 0);
    let is_lads = words.next().is_some_and(|program| program.ends_with(b"lads"));
    is_lads && words.next() == Some(subcommand)
}

/// The number of bytes that a process has written so far, to files, pipes and sockets.
pub(super) fn bytes_written(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// The most memory that a process has used so far, in bytes.
pub(super) fn memory_bytes_peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

/// Sends a signal to a process. It is no error if the process has ended.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}

/// A running command.
pub(super) struct Running {
    child: Child,
    line: String,
    stdout: PathBuf,
    stderr: PathBuf,
    output: Output,
    /// The end of the pipe that no process reads, if the output is blocked.
    _unread: Option<OwnedFd>,
    started: Instant,
}

impl Running {
    /// Starts a command as part of the round in `directory`. Each needs its own `number`.
    pub(super) fn start(
        mut command: Command,
        directory: &Path,
        number: usize,
        output: Output,
    ) -> Result<Self> {
        if output == Output::Closed {
            command = within(&["sh", "-c", "exec \"$@\" >&- 2>&-", "sh"], &command);
        }
        let line = line_of(&command);
        let path = |name: &str| directory.join(format!("run{number}.{name}"));
        let (stdout, stderr) = (path("stdout"), path("stderr"));
        command.env(MARK, directory).current_dir(directory).stdin(Stdio::null());
        command.stdout(File::create(&stdout)?).stderr(File::create(&stderr)?);
        let mut unread = None;
        if output == Output::Blocked {
            let (read_end, write_end) = full_pipe()?;
            command.stdout(write_end.try_clone()?).stderr(write_end);
            unread = Some(read_end);
        }
        let child = command.spawn().with_context(|| format!("cannot start {line}"))?;
        let started = Instant::now();
        Ok(Self { child, line, stdout, stderr, output, _unread: unread, started })
    }

    /// The command line, in shell syntax.
    pub(super) fn line(&self) -> &str {
        &self.line
    }

    /// Sends the command a signal.
    pub(super) fn signal(&self, signal: Signal) {
        self::signal(self.child.id(), signal);
    }

    /// Returns how the command ended, or `None` if it is still running.
    pub(super) fn ended(&mut self) -> Result<Option<Ended>> {
        let Some(status) = self.child.try_wait()? else { return Ok(None) };
        Ok(Some(self.collect(status)?))
    }

    /// Kills the command.
    pub(super) fn kill(mut self) -> Result<Ended> {
        let _ = self.child.kill();
        let status = self.child.wait()?;
        self.collect(status)
    }

    fn collect(&self, status: ExitStatus) -> Result<Ended> {
        Ok(Ended {
            line: self.line.clone(),
            code: status.code(),
            stdout: fs::read(&self.stdout)?,
            stderr: String::from_utf8_lossy(&fs::read(&self.stderr)?).into_owned(),
            has_output: self.output == Output::Kept,
            elapsed: self.started.elapsed(),
        })
    }
}

/// Returns a command that runs `command` by another program that ends in its place: `words` are
/// that program and its first arguments.
pub(super) fn within(words: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(words[0]);
    outer.args(&words[1..]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(name, value),
            None => outer.env_remove(name),
        };
    }
    outer
}

/// Returns both ends of a pipe in which there is no room for another byte.
fn full_pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    loop {
        match rustix::io::write(&write_end, &[b'.'; 4096]) {
            Ok(_) => {}
            Err(Errno::AGAIN) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    fcntl_setfl(&write_end, OFlags::empty())?;
    Ok((read_end, write_end))
}

/// The command line, in shell syntax.
fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quoted = words.map(|word| {
        let word = word.to_string_lossy();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=/.,:+".contains(c);
        if word.chars().all(is_plain) { word.into_owned() } else { format!("'{word}'") }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// How a command ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The command line, in shell syntax.
    pub(super) line: String,
    /// The exit code; `None` if a signal ended the command.
    pub(super) code: Option<i32>,
    stdout: Vec<u8>,
    pub(super) stderr: String,
    /// Whether the output was kept.
    pub(super) has_output: bool,
    pub(super) elapsed: Duration,
}

impl Ended {
    /// A result without a command, for tests.
    #[cfg(test)]
    pub(super) fn with(code: i32, stdout: String) -> Self {
        Self {
            line: String::new(),
            code: Some(code),
            stdout: stdout.into_bytes(),
            stderr: String::new(),
            has_output: true,
            elapsed: Duration::ZERO,
        }
    }

    /// The JSON events that the command printed. If the command was killed, the last line may be
    /// incomplete; it is left out.
    pub(super) fn events(&self) -> Vec<Value> {
        let lines = self.stdout.split(|&byte| byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok()).collect()
    }

    /// The summary, if it is the last event.
    pub(super) fn summary(&self) -> Option<Value> {
        self.events().pop().filter(|event| event["event"] == "summary")
    }

    /// Whether the command has copied everything, except for metadata that the target does not
    /// keep.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.code, Some(0 | REDUCED))
    }

    /// A number in the summary; zero if there is no summary.
    pub(super) fn count(&self, name: &str) -> u64 {
        self.summary().and_then(|summary| summary[name].as_u64()).unwrap_or(0)
    }

    /// The reason in the summary why the command did not run to its end, if there is one.
    pub(super) fn message(&self) -> Option<String> {
        Some(self.summary()?["message"].as_str()?.to_owned())
    }

    /// The most important output of the command, for a report.
    pub(super) fn told(&self) -> String {
        let is_of_weight = |event: &Value| {
            ["issue", "notice", "summary"].iter().any(|kind| event["event"] == *kind)
        };
        let events = self.events().into_iter().filter(is_of_weight);
        let lines: Vec<String> = events.map(|event| event.to_string()).collect();
        let code = self.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        let lines = lines.join("\n    ");
        format!("exit {code} after {:?}\n    {lines}\n    {}", self.elapsed, self.stderr.trim())
    }
}

/// What a process is doing, to help find out why it does not end.
pub(super) fn state(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let threads: Vec<String> = tasks
        .map(|task| {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            format!("{} in {}", read("comm").trim(), read("wchan").trim())
        })
        .collect();
    format!("{pid} {}: {}", read("cmdline").replace('\0', " "), threads.join(", "))
}
