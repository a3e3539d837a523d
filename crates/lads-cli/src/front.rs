//! The process that the user waits for: a small one, in front of the one that moves data.
//!
//! A process cannot end, not even by SIGKILL, while one of its threads is in a call to storage that
//! does not return (a file server that is gone, FUSE above all). So the process that was started
//! makes a second one that moves the data, passes signals on to it, and ends with the exit code
//! that the second one tells, even if that process cannot end.
//!
//! ```text
//!   shell ──► front ──────────── signals ───────────► back ──► the other end
//!               ▲                                       │
//!               └──── exit code, when all is said ──────┘
//! ```
//!
//! If the front is killed, the kernel kills the back.

use crate::signals::{self, Heard, Watch};
use crate::{complain, not_started};
use anyhow::{Context, Result};
use lads_core::pauses::Pauses;
use lads_engine::StopFlag;
use lads_sys::{Ending, Forked, fork};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getppid, kill_process, set_parent_process_death_signal,
    waitpid,
};
use rustix::time::Timespec;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Exit code after a second SIGINT, as shells count: 128 and the signal's number.
const AT_ONCE: u8 = 130;

/// What shells add to the number of the signal that ended a process.
const BY_SIGNAL: i32 = 128;

/// Time from the first signal until the command ends, whatever the back does: it may be blocked in
/// a call to storage or in a write that no process reads. The back normally needs at most 4.5 s
/// (`lads_engine`, `closing.rs`), and the command is promised to end within 5 s.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_millis(4800);

/// How long the back may take to end when it has told its exit code. Half is little for a process
/// that frees hundreds of MiB of memory on a busy machine; with double, a user waits in vain if the
/// process is held in a call.
const END_DEADLINE: Duration = Duration::from_millis(300);
/// The longest pause between looks whether it has ended.
const END_INTERVAL: Duration = Duration::from_millis(2);

/// Does `work` in a process of its own, and gives its exit code. The flag is set when a signal asks
/// to stop.
pub(crate) fn run(work: impl FnOnce(&StopFlag) -> u8) -> ExitCode {
    match divide(work) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn divide(work: impl FnOnce(&StopFlag) -> u8) -> Result<u8> {
    let (ours, theirs) = UnixStream::pair().context("cannot create a pair of sockets")?;
    let front = rustix::process::getpid();
    // Before there are two: a signal that comes meanwhile would end one without a word.
    let watch = Watch::begin()?;
    match fork().map_err(not_started)? {
        Forked::Parent(back) => {
            drop(theirs);
            stand_before(back, &ours, watch)
        }
        Forked::Child => {
            drop(ours);
            die_with(front)?;
            let stop = StopFlag::new();
            obey(&theirs, &stop)?;
            drop(watch);
            let code = work(&stop);
            close_stdio();
            // If the front is gone, nobody can be told.
            let _ = (&theirs).write_all(&[code]);
            Ok(code)
        }
    }
}

/// Passes signals on until the other process has sent its exit code, or has ended.
fn stand_before(back: Pid, to_back: &UnixStream, watch: Watch) -> Result<u8> {
    let (mut is_asked, mut is_interrupted) = (false, false);
    // True when this process kills the other one, and exits with an exit code of its own.
    let is_ending = Arc::new(AtomicBool::new(false));
    let kill = {
        let is_ending = Arc::clone(&is_ending);
        move || {
            is_ending.store(true, Ordering::Relaxed);
            let _ = kill_process(back, Signal::KILL);
        }
    };
    let mut orders = to_back.try_clone().context("cannot duplicate a socket")?;
    watch.listen(move |signal| {
        if signal == signals::INTERRUPT && std::mem::replace(&mut is_interrupted, true) {
            kill();
            complain_unless_blocked("ended at once");
            std::process::exit(AT_ONCE.into());
        }
        // If the other process has ended, the signal has no receiver.
        let _ = orders.write_all(&[signal]);
        if !std::mem::replace(&mut is_asked, true) {
            signals::exit_after(STOP_DEADLINE, kill.clone());
        }
    })?;
    let mut code = [0];
    match (&*to_back).read(&mut code) {
        Ok(1) => {
            let until = Instant::now() + END_DEADLINE;
            let mut pauses = Pauses::up_to(END_INTERVAL);
            let ending = Ending::of(back);
            while waitpid(Some(back), WaitOptions::NOHANG).is_ok_and(|ended| ended.is_none()) {
                if Instant::now() >= until {
                    // It ends as soon as the call returns that holds it.
                    let _ = kill_process(back, Signal::KILL);
                    break;
                }
                ending.pause(pauses.next_pause());
            }
            Ok(code[0])
        }
        // It was killed by another thread of this process, which exits with the code for that.
        _ if is_ending.load(Ordering::Relaxed) => loop {
            std::thread::park();
        },
        // It ended without sending a code, by a signal or a bug.
        _ => Ok(code_of(back)),
    }
}

/// Prints a message if standard error takes it at once.
fn complain_unless_blocked(message: &str) {
    let stderr = std::io::stderr();
    let polled = &mut [PollFd::new(&stderr, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    if poll(polled, Some(&now)).is_ok_and(|count| count > 0) {
        complain(message);
    }
}

fn code_of(back: Pid) -> u8 {
    let status = waitpid(Some(back), WaitOptions::empty()).ok().flatten();
    let code = status.and_then(|(_, status): (Pid, WaitStatus)| {
        status.exit_status().or_else(|| Some(BY_SIGNAL + status.terminating_signal()?))
    });
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(lads_engine::ExitCode::Other as u8)
}

/// Makes this process end when the front does.
fn die_with(front: Pid) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .context("cannot bind to the parent process")?;
    if getppid() != Some(front) {
        // The front is gone already, and nobody waits for us.
        std::process::exit(lads_engine::ExitCode::Interrupted as i32);
    }
    Ok(())
}

/// From now on, a signal that the front passes on sets the flag. This process ignores the signals
/// themselves, because a signal from the keyboard goes to both processes.
fn obey(front: &UnixStream, stop: &StopFlag) -> Result<()> {
    signals::leave_to_the_front()?;
    let (mut orders, stop) =
        (front.try_clone().context("cannot duplicate a socket")?, stop.clone());
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut signal = [0];
            while orders.read_exact(&mut signal).is_ok() {
                stop.set(Heard(signal[0]).reason());
            }
        })
        .map_err(not_started)?;
    Ok(())
}

/// Closes stdin, stdout and stderr. Their reader waits until all processes have closed them, and
/// this process may be held for long.
fn close_stdio() {
    if let Ok(nothing) = File::options().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}
