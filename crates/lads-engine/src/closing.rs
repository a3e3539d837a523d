//! How long the end of a transfer may take, after everything is done or somebody asked to stop.
//!
//! Whoever asks to stop gets the command back within 5 seconds, whatever hangs at either end:
//!
//! ```text
//!   asked ──► both ends come to rest ──► last words, threads ──► the other end ends ──► returned
//!   0 s                            at 3 s                 at 3.5 s             at 4.5 s
//! ```
//!
//! Nothing is lost by not waiting longer: what is recorded is recorded.

use crate::clock::TICK;
use crate::stop::StopFlag;
use lads_core::pauses::Pauses;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long after a stop request an end waits for its work to end in order; after that it stops all
/// the same. Half of this is a single fsync on busy storage, and blocks since the last record would
/// be sent again. With the double, the command would not return within 5 s.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// How much longer threads and the other end are waited for. They need some milliseconds. Half of
/// this is little for a machine under load; the double would take from the time in which a process
/// has to end.
const REST_DEADLINE: Duration = Duration::from_millis(500);

/// When nobody asked to stop: how long to wait until the last messages are written, until the other
/// end ends, and until threads end. Any of them that takes longer hangs in a call to storage, or in
/// a write to a peer that does not read. Half of this is the time that a host under load takes to
/// end a process with much memory; with the double, a user would wait for nothing.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// The longest pause between looks whether a thread has ended.
const THREAD_INTERVAL: Duration = Duration::from_millis(1);

/// The end of a transfer, which begins when this is made.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    stop: StopFlag,
    began: Instant,
}

impl Closing {
    pub(crate) fn new(stop: &StopFlag) -> Self {
        Self { stop: stop.clone(), began: Instant::now() }
    }

    /// How long it may still take.
    pub(crate) fn left(&self) -> Duration {
        let until = match self.stop.since() {
            Some(asked) => asked + STOP_DEADLINE + REST_DEADLINE,
            None => self.began + CLOSE_DEADLINE,
        };
        until.saturating_duration_since(Instant::now())
    }

    /// Waits for a thread until the time is over. Returns whether the thread has ended.
    pub(crate) fn wait_for(&self, thread: &JoinHandle<()>) -> bool {
        let mut pauses = Pauses::up_to(THREAD_INTERVAL);
        while !thread.is_finished() {
            if self.left().is_zero() {
                return false;
            }
            std::thread::sleep(pauses.next_pause());
        }
        true
    }

    /// Waits until the other half of a channel is dropped, or the time is over.
    pub(crate) fn wait_for_drop(&self, held: &Receiver<()>) {
        while !self.left().is_zero()
            && held.recv_timeout(self.left().min(TICK)) == Err(RecvTimeoutError::Timeout)
        {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_shortens_the_end_even_if_it_is_asked_for_in_the_midst_of_it() {
        let stop = StopFlag::new();
        let closing = Closing::new(&stop);
        assert!(closing.left() > STOP_DEADLINE + REST_DEADLINE);
        stop.set("enough");
        assert!(closing.left() <= STOP_DEADLINE + REST_DEADLINE);
    }
}
