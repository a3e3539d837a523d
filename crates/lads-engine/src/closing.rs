//! How long the end of a transfer may take, once all is said or somebody asked to stop.
//!
//! Whoever asks to stop gets the command back within 5 seconds, whatever hangs at either end:
//!
//! ```text
//!   asked ──► both ends come to rest ──► last words, threads ──► the other end ends ──► returned
//!   0 s                            at 3 s                 at 3.5 s             at 4.5 s
//! ```
//!
//! Nothing is lost by not waiting longer: what is on record is on record.

use crate::stop::StopFlag;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// After being asked to stop, an end that has not come to rest by then stops all the same. Half of
/// it is a single fsync on busy storage, and what was sent since the last record would be sent
/// again; with double of it the command would not return within 5 s.
pub(crate) const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// So long after that, threads and the other end are not waited for any more. It takes them some
/// milliseconds; half of it is little for a machine under load, double of it is at the cost of
/// what a process is given to end.
const REST_DEADLINE: Duration = Duration::from_millis(500);

/// When nobody asked to stop: how long to wait for the last words to be written, for the other end
/// to end, and for threads. Those that take longer hang in a call to storage, or a peer that does
/// not read. Half of it is what a host under load takes to end a process with much memory; double
/// of it is what a person waits for nothing.
const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// How often to see whether a thread has ended.
const THREAD_INTERVAL: Duration = Duration::from_millis(1);

/// The end of a transfer, from now on.
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

    /// Waits for a thread, but no longer than there is time; whether it has ended.
    pub(crate) fn wait_for(&self, thread: &JoinHandle<()>) -> bool {
        while !thread.is_finished() {
            if self.left().is_zero() {
                return false;
            }
            std::thread::sleep(THREAD_INTERVAL);
        }
        true
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
