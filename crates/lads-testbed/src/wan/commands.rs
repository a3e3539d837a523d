//! Runs commands at the ends of a line, and waits for their end.

use super::namespace::Namespace;
use super::path::{Path, SINK, SOURCE};
use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs;
use std::io::Read as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How long a command may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// An event that ends a wait.
enum Event {
    SourceEnded(ExitStatus),
    Interrupted(i32),
    StdinClosed,
}

/// The events from any thread.
pub(crate) struct Events {
    sender: Sender<Event>,
    receiver: Receiver<Event>,
}

impl Events {
    /// Starts to turn signals into events.
    pub(crate) fn new() -> Result<Self> {
        let (sender, receiver) = channel();
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let to = sender.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let _ = to.send(Event::Interrupted(signal));
            }
        });
        Ok(Self { sender, receiver })
    }

    /// Waits until stdin is closed, or until a signal asks to end.
    pub(crate) fn wait_for_the_end(&self) -> ExitCode {
        let to = self.sender.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while std::io::stdin().read(&mut buffer).is_ok_and(|bytes| bytes > 0) {}
            let _ = to.send(Event::StdinClosed);
        });
        match self.receiver.recv() {
            Ok(Event::Interrupted(signal)) => code_of_signal(signal),
            _ => ExitCode::SUCCESS,
        }
    }
}

/// The commands to run at either end.
pub(crate) struct Commands<'a> {
    pub(crate) sink: Option<&'a str>,
    pub(crate) source: &'a str,
    /// The TCP port of the sink to wait for before the source's command starts.
    pub(crate) wait_for_port: Option<u16>,
}

impl Commands<'_> {
    /// Runs the sink's command beside the source's, until the latter ends. Returns the source's
    /// exit code.
    pub(crate) fn run(&self, path: &Path, events: &Events) -> Result<ExitCode> {
        let mut sink =
            self.sink.map(|command| Group::start(path, &path.sink, command)).transpose()?;
        if let Some(port) = self.wait_for_port {
            let must_live = sink.as_mut();
            if let Some(code) = wait_for_listener(&path.sink, port, must_live, events)? {
                return Ok(code);
            }
        }
        let source = Group::start(path, &path.source, self.source)?;
        let (group, to) = (source.group, events.sender.clone());
        let waiter = std::thread::spawn(move || source.wait(&to));
        let code = match events.receiver.recv()? {
            Event::SourceEnded(status) => code_of(status),
            Event::Interrupted(signal) => {
                let _ = kill_process_group(group, Signal::TERM);
                if events.receiver.recv_timeout(GRACE).is_err() {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                code_of_signal(signal)
            }
            Event::StdinClosed => bail!("nobody waits for stdin here"),
        };
        let _ = waiter.join();
        Ok(code)
    }
}

/// Waits until a program listens on the port; returns an exit code if we are told to end before
/// that.
fn wait_for_listener(
    namespace: &Namespace,
    port: u16,
    mut must_live: Option<&mut Group>,
    events: &Events,
) -> Result<Option<ExitCode>> {
    while !namespace.inside(|| is_listened_on(port))? {
        if let Some(status) = must_live.as_mut().and_then(|group| group.status()) {
            bail!("the sink's command ended ({status}) before it listened on port {port}");
        }
        match events.receiver.recv_timeout(LOOK_INTERVAL) {
            Ok(Event::Interrupted(signal)) => return Ok(Some(code_of_signal(signal))),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("no more events"),
        }
    }
    Ok(None)
}

/// Returns whether a TCP socket listens on a port, in the namespace of the calling thread.
fn is_listened_on(port: u16) -> Result<bool> {
    let tables = ["tcp", "tcp6"].map(|name| format!("/proc/thread-self/net/{name}"));
    let tables = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    Ok(tables.iter().any(|table| has_listener(table, port)))
}

/// Returns whether the table has a row with this local port in the state LISTEN.
fn has_listener(table: &str, port: u16) -> bool {
    let end = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_local = words.next().is_some_and(|address| address.ends_with(&end));
        is_local && words.nth(1) == Some("0A")
    })
}

/// A command with all processes that it starts. They are ended when this is dropped.
struct Group {
    child: Child,
    group: Pid,
}

impl Group {
    fn start(path: &Path, namespace: &Namespace, command: &str) -> Result<Self> {
        // `ip` not only enters the network: it also puts the namespace's own host names in place.
        let mut shell = Command::new("ip");
        shell.args(["netns", "exec", namespace.name(), "sh", "-c", command]);
        shell.stdin(Stdio::null()).process_group(0);
        shell.env("SOURCE_ADDRESS", SOURCE.to_string()).env("SINK_ADDRESS", SINK.to_string());
        // With the namespace names, a command at one end can start another one at the other end.
        shell.env("SOURCE_NAMESPACE", path.source.name()).env("SINK_NAMESPACE", path.sink.name());
        let child = shell.spawn().context("cannot start a shell")?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let group = group.context("a process without a number")?;
        Ok(Self { child, group })
    }

    fn wait(mut self, to: &Sender<Event>) {
        if let Ok(status) = self.child.wait() {
            let _ = to.send(Event::SourceEnded(status));
        }
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = kill_process_group(self.group, Signal::TERM);
        let mut waited = Duration::ZERO;
        while self.status().is_none() && waited < GRACE {
            std::thread::sleep(LOOK_INTERVAL);
            waited += LOOK_INTERVAL;
        }
        let _ = kill_process_group(self.group, Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Returns the exit code that a shell would give.
fn code_of(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from),
        (None, Some(signal)) => code_of_signal(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

fn code_of_signal(signal: i32) -> ExitCode {
    u8::try_from(128 + signal).map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     \x20  0: 00000000:1451 00000000:0000 0A 00000000:00000000\n\
                     \x20  1: 0100007F:1452 0100007F:9999 01 00000000:00000000\n";
        assert!(has_listener(table, 0x1451));
        assert!(!has_listener(table, 0x1452));
        assert!(!has_listener(table, 0x9999));
    }
}
