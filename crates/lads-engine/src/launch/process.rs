//! A process that we started and that does not outlive us: the other end, or what asks ssh.

use crate::board::lock;
use crate::patience::Patience;
use crate::thread::spawn;
use lads_core::pauses::Pauses;
use lads_sys::Ending;
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid,
};
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often to look whether it has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);
/// How long it may take to end when it is told to. ssh needs this time to reset the terminal, if it
/// was asking for a password.
const TERM_DEADLINE: Duration = Duration::from_millis(500);
/// How long to wait for a killed process: one of its calls to storage may hold it.
const KILL_DEADLINE: Duration = Duration::from_millis(500);

/// Starts a command. It takes all signals, also if this thread does not.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    lads_sys::with_all_signals(|| command.spawn())
}

/// A process that is ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    ending: Ending,
    /// True if it leads a process group, which is ended with it.
    leads_group: bool,
    /// Time between SIGTERM and SIGKILL.
    term_deadline: Duration,
    /// Whether it was killed, and is not waited for any longer.
    is_given_up: bool,
}

impl Process {
    pub(crate) fn new(child: Child) -> Self {
        Self::of(child, false, TERM_DEADLINE)
    }

    fn of(child: Child, leads_group: bool, term_deadline: Duration) -> Self {
        let ending = Ending::of(Pid::from_child(&child));
        Self { child, ending, leads_group, term_deadline, is_given_up: false }
    }

    /// LADS as the leader of a process group. It has nothing to restore at its end, so it is killed
    /// at once if it is to end.
    pub(crate) fn leading_group(child: Child) -> Self {
        Self::of(child, true, Duration::ZERO)
    }

    /// A remote shell as the leader of a process group. It may be a script that starts ssh, and ssh
    /// may have started another ssh as its proxy: all of them end.
    pub(crate) fn remote_shell(child: Child) -> Self {
        Self::of(child, true, TERM_DEADLINE)
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
    }

    /// Waits until it has ended by itself. `None` if it has not ended in time, or if the user
    /// wants to stop.
    pub(crate) fn wait(&mut self, patience: &Patience<'_>) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            patience.pause(LOOK_INTERVAL).ok()?;
        }
    }

    /// Sends it SIGTERM, and kills it if it does not end.
    pub(crate) fn end(&mut self) {
        if !self.term_deadline.is_zero() {
            self.signal(Signal::TERM);
        }
        if !self.has_ended_within(self.term_deadline) {
            self.kill();
            self.has_ended_within(KILL_DEADLINE);
        }
        self.is_given_up = true;
    }

    fn has_ended_within(&mut self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut pauses = Pauses::up_to(LOOK_INTERVAL);
        while !self.has_ended() {
            if Instant::now() >= until {
                return false;
            }
            self.ending.pause(pauses.next_pause());
        }
        true
    }

    /// Waits until it may have ended, at most for this time.
    pub(super) fn pause(&self, time: Duration) {
        self.ending.pause(time);
    }

    /// Returns its process ID.
    pub(super) fn pid(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    fn signal(&mut self, signal: Signal) {
        if let Some(pid) = self.pid()
            && !self.has_ended()
        {
            let _ = match self.leads_group {
                true => kill_process_group(pid, signal),
                false => kill_process(pid, signal),
            };
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        // An error means that there is no such child any more.
        !matches!(self.child.try_wait(), Ok(None))
    }
}

/// Takes a process off the system's list of children as soon as it has ended: the program that it
/// belongs to may run for days after that. Without a thread for it, it stays there until then.
pub(crate) fn reap(process: &Arc<Mutex<Process>>) {
    let Some(pid) = lock(process).pid() else { return };
    let process = Arc::downgrade(process);
    let _ = spawn("lads-reap", move || {
        // Its number stays its own meanwhile: who holds the lock may send it a signal.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(Errno::INTR) = waitid(WaitId::Pid(pid), options) {}
        if let Some(process) = process.upgrade() {
            lock(&process).has_ended();
        }
    });
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_given_up {
            self.end();
        }
    }
}
