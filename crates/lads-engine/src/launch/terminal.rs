//! The controlling terminal, while the remote shell may ask for a password on it.
//!
//! The remote shell has its own process group, so that a signal to the group of this command (from
//! the keyboard, or from timeout(1)) does not end ssh before the transfer has stopped. The kernel
//! stops a process outside the foreground group that reads from the terminal. So this module does
//! for ssh what a shell does for `fg`:
//!
//! ```text
//!   ssh reads ──► stopped by SIGTTIN, SIGTTOU ──► its group becomes the foreground group, SIGCONT
//!   answered  ──► the group of this command becomes the foreground group again
//! ```
//!
//! If this command is in the background itself, or the user presses Ctrl-Z at the question, this
//! command stops as well, and the user's shell regains the terminal.

use crate::event::ExitCode;
use crate::fatal::Fatal;
use lads_sys::SignalsBlocked;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process_group, waitid};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use std::fs::File;

/// Signals with which the kernel stops a process because of the terminal.
const STOPPING: [Signal; 3] = [Signal::TTIN, Signal::TTOU, Signal::TSTP];

/// Number of times that a question may be asked in vain in the background. A shell that does job
/// control stops this command at the first one, and the user continues it with `fg`. Without such a
/// shell, the command would wait for an answer that cannot come. With half, a user who types `bg`
/// by mistake would end the transfer; double only delays the error.
const VAIN_QUESTIONS_MAX: u32 = 4;

/// The controlling terminal of this process.
#[derive(Debug)]
pub(super) struct Terminal {
    device: File,
    own_group: Pid,
    /// The group that was made the foreground group.
    lent_to: Option<Pid>,
    vain_questions: u32,
}

impl Terminal {
    /// Opens the controlling terminal; `None` if this process has none.
    pub(super) fn open() -> Option<Self> {
        let device = File::options().read(true).write(true).open("/dev/tty").ok()?;
        Some(Self { device, own_group: getpgrp(), lent_to: None, vain_questions: 0 })
    }

    /// Lets the leader of a process group continue if the kernel has stopped it because it wants
    /// the terminal.
    ///
    /// # Errors
    /// If the user cannot be asked, because this command is in the background and no shell
    /// continues it in the foreground.
    pub(super) fn attend(&mut self, leader: Pid) -> Result<(), Fatal> {
        let Some(signal) = stopping_signal(leader) else { return Ok(()) };
        if signal == Signal::TSTP || !self.is_foreground() {
            self.take_back();
            // Returns when the user's shell continues this command, if there is such a shell.
            let _ = kill_process_group(self.own_group, signal);
        }
        if self.is_foreground() {
            self.lend(leader);
        } else {
            self.vain_questions += 1;
            if self.vain_questions >= VAIN_QUESTIONS_MAX {
                let text = "the remote shell asks a question on the terminal, but this command \
                            runs in the background; run it in the foreground, or set up a login \
                            without questions";
                return Err(Fatal::new(ExitCode::Refused, text));
            }
        }
        let _ = kill_process_group(leader, Signal::CONT);
        Ok(())
    }

    /// Reports whether another group had the terminal at any time, so that signals from the
    /// keyboard went to it.
    pub(super) fn was_lent(&self) -> bool {
        self.lent_to.is_some()
    }

    /// Makes the group of this command the foreground group again, if it has lent the terminal.
    fn take_back(&self) {
        if self.lent_to.is_some() && tcgetpgrp(&self.device).ok() == self.lent_to {
            self.set_foreground(self.own_group);
        }
    }

    fn lend(&mut self, to: Pid) {
        self.lent_to = Some(to);
        self.set_foreground(to);
    }

    fn set_foreground(&self, group: Pid) {
        // The kernel would stop a process in the background for this, unless it blocks SIGTTOU.
        let _blocked = SignalsBlocked::begin();
        // An error means that the terminal, or the group, has gone.
        let _ = tcsetpgrp(&self.device, group);
    }

    fn is_foreground(&self) -> bool {
        tcgetpgrp(&self.device).is_ok_and(|group| group == self.own_group)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Returns the signal that has stopped a child since the last call, if it is one of the terminal's.
fn stopping_signal(child: Pid) -> Option<Signal> {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
    let status = waitid(WaitId::Pid(child), options).ok().flatten()?;
    let number = status.stopping_signal()?;
    STOPPING.into_iter().find(|signal| signal.as_raw() == number)
}
