//! How long the start of a transfer may wait for something, and what cuts a wait short.
//!
//! Until both ends know each other nobody sends heartbeats, and no thread watches. So whatever
//! waits then, for words, for a connection, for a name to be resolved, waits here: a short time
//! after the other, and in between it looks whether the person wants to stop and whether it is
//! late. One deadline holds for all waits together, so that a peer that says a byte at a time
//! gains nothing.

use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::stop::StopFlag;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often a wait looks whether it is to end. A signal is heeded this much later; half of it
/// would wake the process twice as often while a person types a password.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// This many bytes can be written without blocking to a pipe or socket that has room: POSIX's
/// `PIPE_BUF` on Linux.
const WRITE_BYTES_MAX: usize = 4096;

/// How long to wait, and for whom to give up.
#[derive(Clone, Debug)]
pub(crate) struct Patience<'a> {
    stop: &'a StopFlag,
    started: Instant,
    /// For all waits together.
    limit: Duration,
    /// For one wait.
    silence: Duration,
}

/// Why a wait was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum Cut {
    /// The person wants to stop.
    #[error("stopped before the transfer began")]
    Stopped,
    /// Nothing at all came, or went, for so long.
    #[error("silent for {} s before the transfer began", .0.as_secs())]
    Silent(Duration),
    /// Something came, but the whole was not there in time.
    #[error("not ready within {} s of its first word", .0.as_secs())]
    Late(Duration),
}

impl<'a> Patience<'a> {
    /// From now on: `limit` for all waits together.
    pub(crate) fn new(stop: &'a StopFlag, limit: Duration) -> Self {
        Self { stop, started: Instant::now(), limit, silence: limit }
    }

    /// The same, but no single wait is longer than this.
    pub(crate) fn with_silence(self, silence: Duration) -> Self {
        Self { silence, ..self }
    }

    /// A part of it, from now on: for something that may take so long at most.
    pub(crate) fn part(&self, limit: Duration) -> Self {
        let left = self.limit.saturating_sub(self.started.elapsed());
        let limit = limit.min(left);
        Self { stop: self.stop, started: Instant::now(), limit, silence: self.silence.min(limit) }
    }

    /// All that it waits for in all.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// How long to wait until the next look, below a second, or why the wait that began at `since`
    /// is over.
    fn next_wait(&self, since: Instant) -> Result<Duration, Cut> {
        if self.stop.is_set() {
            return Err(Cut::Stopped);
        }
        let left = self.limit.saturating_sub(self.started.elapsed());
        let left_of_silence = self.silence.saturating_sub(since.elapsed());
        if left_of_silence.is_zero() {
            return Err(Cut::Silent(self.silence));
        }
        if left.is_zero() {
            return Err(Cut::Late(self.limit));
        }
        Ok(left.min(left_of_silence).min(LOOK_INTERVAL))
    }

    /// Waits until one of these is ready.
    pub(crate) fn wait_for_any(&self, polled: &mut [PollFd<'_>]) -> Result<(), Cut> {
        let since = Instant::now();
        while !self.look(polled, since)? {}
        Ok(())
    }

    /// Waits until one of these is ready, but only until it is time to look after other things,
    /// too; the wait as a whole began at `since`.
    pub(crate) fn look(&self, polled: &mut [PollFd<'_>], since: Instant) -> Result<bool, Cut> {
        let wait = self.next_wait(since)?;
        let wait = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
        match poll(polled, Some(&wait)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            // Whoever reads or writes next is told what is wrong.
            Err(_) => Ok(true),
        }
    }

    pub(crate) fn wait_readable(&self, from: impl AsFd) -> Result<(), Cut> {
        self.wait_for_any(&mut [PollFd::new(&from, PollFlags::IN)])
    }

    pub(crate) fn wait_writable(&self, to: impl AsFd) -> Result<(), Cut> {
        self.wait_for_any(&mut [PollFd::new(&to, PollFlags::OUT)])
    }

    /// Waits without anything to wait for: before something is tried again.
    pub(crate) fn pause(&self, pause: Duration) -> Result<(), Cut> {
        let since = Instant::now();
        while since.elapsed() < pause {
            let left = pause.saturating_sub(since.elapsed());
            std::thread::sleep(self.next_wait(since)?.min(left));
        }
        Ok(())
    }

    /// Has a thread do what blocks and cannot be interrupted, such as to resolve a name or to open
    /// a directory on a server that does not answer. If it takes too long, the thread is left
    /// alone with it.
    pub(crate) fn result_of<T: Send + 'static>(
        &self,
        name: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Cut> {
        let since = Instant::now();
        let (done, result) = mpsc::sync_channel(1);
        let worker = crate::thread::spawn(name, move || {
            // Nobody waits for it any more if this fails.
            let _ = done.send(work());
        });
        loop {
            match result.recv_timeout(self.next_wait(since)?) {
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
    /// Why reading or writing failed, if it was for want of patience.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// What it means for the transfer if `who` was waited for.
    pub(crate) fn fatal(self, who: &str) -> Fatal {
        match self {
            Self::Stopped => Fatal::new(ExitCode::Interrupted, self.to_string()),
            Self::Silent(_) => Fatal::new(ExitCode::Network, format!("{who} was {self}")),
            Self::Late(_) => Fatal::new(
                ExitCode::Network,
                format!("{who} was {self}: it answers, but by far too slowly"),
            ),
        }
    }
}

impl From<Cut> for io::Error {
    fn from(cut: Cut) -> Self {
        Self::other(cut)
    }
}

/// One direction of the control channel while the two ends greet each other. Nothing is buffered:
/// what lies below can be used directly afterwards.
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
