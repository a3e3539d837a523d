//! How long the start of a transfer may wait, and what ends a wait early.
//!
//! Until both ends have exchanged HELLO, nobody sends heartbeats, and no thread watches. So every
//! wait of that time (for messages, for a connection, for a name to be resolved) happens here. A
//! wait is made of short ones; after each of them it checks whether the user wants to stop and
//! whether the deadline has passed. One deadline holds for all waits together, so that a peer that
//! sends one byte at a time gains nothing. Time in which the process was stopped (Ctrl-Z) does not
//! count: a short wait that took far longer shows it.

use crate::board::lock;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::stop::StopFlag;
use crate::thread::{NoThread, spawn};
use lads_core::absence::ABSENCE_MIN;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often a wait checks whether it is to end. A signal takes effect at most this much later.
/// With half of this, the process would wake twice as often while a user types a password.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// This many bytes can be written without blocking to a pipe or socket that has room: POSIX's
/// `PIPE_BUF` on Linux.
const WRITE_BYTES_MAX: usize = 4096;

/// How long to wait, and which stop flag ends the wait.
#[derive(Clone, Debug)]
pub(crate) struct Patience<'a> {
    stop: &'a StopFlag,
    /// Ends waits, too: what is waited for is not wanted any more.
    unwanted: Option<&'a StopFlag>,
    started: Instant,
    /// The limit for all waits together.
    limit: Duration,
    /// The limit for one wait.
    silence: Duration,
    absences: Arc<Absences>,
}

/// When the process was stopped: beginning and end, one after the other.
#[derive(Debug, Default)]
struct Absences(Mutex<Vec<(Instant, Instant)>>);

impl Absences {
    /// A wait for at most `wait` began at `began`, and is over.
    fn on_waited(&self, began: Instant, wait: Duration) {
        let now = Instant::now();
        if now.duration_since(began) < wait + ABSENCE_MIN {
            return;
        }
        // Several threads may have waited at the same time.
        let mut all = lock(&self.0);
        let first = all.last().map_or(began + wait, |&(_, ended)| ended.max(began + wait));
        all.push((first, now.max(first)));
    }

    /// Returns how long the process was stopped after `since`.
    fn after(&self, since: Instant) -> Duration {
        let all = lock(&self.0);
        all.iter().map(|&(began, ended)| ended.saturating_duration_since(began.max(since))).sum()
    }
}

/// Why a wait ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Cut {
    /// The user wants to stop.
    #[error("stopped before the transfer began")]
    Stopped,
    /// Nothing arrived, or could be written, for this long.
    #[error("sent nothing for {} s before the transfer began", .0.as_secs())]
    Silent(Duration),
    /// Something arrived, but not everything in time.
    #[error("did not finish the greeting within {} s", .0.as_secs())]
    Late(Duration),
    /// It needs a thread, and the system has no room for one.
    #[error("cannot start another thread")]
    NoThread,
}

impl<'a> Patience<'a> {
    /// Begins now; `limit` holds for all waits together.
    pub(crate) fn new(stop: &'a StopFlag, limit: Duration) -> Self {
        let (started, absences) = (Instant::now(), Arc::default());
        Self { stop, unwanted: None, started, limit, silence: limit, absences }
    }

    /// The same, until `unwanted` is set as well.
    pub(crate) fn unless(&self, unwanted: &'a StopFlag) -> Self {
        Self { unwanted: Some(unwanted), ..self.clone() }
    }

    /// The same, with `silence` as the limit for each single wait.
    pub(crate) fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// A part of this patience, from now on, for something that may take at most `limit`.
    pub(crate) fn part(&self, limit: Duration) -> Self {
        let left = self.limit.saturating_sub(self.waited(self.started));
        let limit = limit.min(left);
        Self { started: Instant::now(), limit, silence: self.silence.min(limit), ..self.clone() }
    }

    /// The limit for all waits together.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// How long the wait that began at `since` has taken, without the time in which the process was
    /// stopped.
    pub(crate) fn waited(&self, since: Instant) -> Duration {
        since.elapsed().saturating_sub(self.absences.after(since))
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set() || self.unwanted.is_some_and(StopFlag::is_set)
    }

    /// How long to wait until the next check (less than a second), or why the wait that began at
    /// `since` is over.
    fn next_wait(&self, since: Instant) -> Result<Duration, Cut> {
        if self.is_stopped() {
            return Err(Cut::Stopped);
        }
        let left = self.limit.saturating_sub(self.waited(self.started));
        let left_of_silence = self.silence.saturating_sub(self.waited(since));
        if left_of_silence.is_zero() {
            return Err(Cut::Silent(self.silence));
        }
        if left.is_zero() {
            return Err(Cut::Late(self.limit));
        }
        Ok(left.min(left_of_silence).min(LOOK_INTERVAL))
    }

    /// Waits until at least one of these is ready.
    pub(crate) fn wait_for_any(&self, polled: &mut [PollFd<'_>]) -> Result<(), Cut> {
        let since = Instant::now();
        while !self.look(polled, since)? {}
        Ok(())
    }

    /// Waits until at least one of these is ready, but only until the next check, so that the
    /// caller can do other things. The whole wait began at `since`.
    pub(crate) fn look(&self, polled: &mut [PollFd<'_>], since: Instant) -> Result<bool, Cut> {
        let (began, wait) = (Instant::now(), self.next_wait(since)?);
        let spec = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        let polled = poll(polled, Some(&spec));
        self.absences.on_waited(began, wait);
        match polled {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            // The next read or write will report the error.
            Err(_) => Ok(true),
        }
    }

    pub(crate) fn wait_readable(&self, from: impl AsFd) -> Result<(), Cut> {
        self.wait_for_any(&mut [PollFd::new(&from, PollFlags::IN)])
    }

    pub(crate) fn wait_writable(&self, to: impl AsFd) -> Result<(), Cut> {
        self.wait_for_any(&mut [PollFd::new(&to, PollFlags::OUT)])
    }

    /// Waits for a fixed time, before something is tried again.
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Cut> {
        let since = Instant::now();
        while since.elapsed() < pause {
            let left = pause.saturating_sub(since.elapsed());
            let (began, wait) = (Instant::now(), self.next_wait(since)?.min(left));
            std::thread::sleep(wait);
            self.absences.on_waited(began, wait);
        }
        Ok(())
    }

    /// Runs `work` on a thread of its own, because it blocks and cannot be interrupted: for
    /// example, to resolve a name, or to open a directory on a server that does not answer. If it
    /// takes too long, the thread is abandoned.
    pub(crate) fn result_of<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Cut> {
        let since = Instant::now();
        let (done, result) = mpsc::sync_channel(1);
        let worker = spawn(name, move || {
            // A failure means that nobody waits for the result any more.
            let _ = done.send(work());
        });
        let worker = worker.map_err(|_| Cut::NoThread)?;
        loop {
            let (began, wait) = (Instant::now(), self.next_wait(since)?);
            let received = result.recv_timeout(wait);
            self.absences.on_waited(began, wait);
            match received {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => match worker.join() {
                    Err(panic) => std::panic::resume_unwind(panic),
                    Ok(()) => unreachable!("it sends before it ends"),
                },
            }
        }
    }
}

impl Cut {
    /// The reason, if reading or writing failed because a wait ended early.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// The error that ends the transfer, if `who` was waited for.
    pub(crate) fn fatal(self, who: &str) -> Fatal {
        match self {
            Self::Stopped => Fatal::new(ExitCode::Interrupted, self.to_string()),
            Self::Silent(_) => Fatal::new(ExitCode::Network, format!("{who} {self}")),
            Self::Late(_) => Fatal::new(
                ExitCode::Network,
                format!("{who} {self}: it answers, but far too slowly"),
            ),
            Self::NoThread => NoThread::from(io::Error::from(Errno::AGAIN)).into(),
        }
    }
}

impl From<Cut> for io::Error {
    fn from(cut: Cut) -> Self {
        Self::other(cut)
    }
}

/// One direction of the control channel during the greeting. It buffers nothing, so the pipe or
/// socket below can be used directly afterwards.
#[derive(Debug)]
pub(crate) struct Patient<'p, T> {
    pub(crate) pipe: T,
    pub(crate) patience: &'p Patience<'p>,
}

impl<T: AsFd + Read> Read for Patient<'_, T> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.patience.wait_readable(&self.pipe)?;
        self.pipe.read(to)
    }
}

impl<T: AsFd + Write> Write for Patient<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.patience.wait_writable(&self.pipe)?;
        self.pipe.write(&bytes[..bytes.len().min(WRITE_BYTES_MAX)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pipe.flush()
    }
}

#[cfg(test)]
mod tests;
