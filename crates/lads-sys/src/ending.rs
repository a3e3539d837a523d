//! Waiting for the end of a child process.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::time::Duration;

/// The end of a child process, which wakes this process. Before Linux 5.3, nothing wakes it, so a
/// caller has to look repeatedly in any case.
#[derive(Debug)]
pub struct Ending(Option<OwnedFd>);

impl Ending {
    /// Returns the end of a child that was not waited for.
    #[must_use]
    pub fn of(child: Pid) -> Self {
        Self(pidfd_open(child, PidfdFlags::empty()).ok())
    }

    /// Waits until the child may have ended, at most for this time.
    pub fn pause(&self, time: Duration) {
        let limit = Timespec::try_from(time).ok();
        match (&self.0, limit) {
            (Some(child), Some(limit)) => {
                // After an error, the caller looks earlier than it has to.
                let _ = poll(&mut [PollFd::new(child, PollFlags::IN)], Some(&limit));
            }
            _ => std::thread::sleep(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn the_end_of_a_child_ends_the_pause() {
        let mut child = Command::new("true").spawn().unwrap();
        let ending = Ending::of(Pid::from_child(&child));
        let (began, time) = (Instant::now(), Duration::from_secs(60));
        while child.try_wait().unwrap().is_none() && began.elapsed() < time {
            ending.pause(if ending.0.is_some() { time } else { Duration::from_millis(1) });
        }
        assert!(began.elapsed() < time);
        Ending(None).pause(Duration::from_millis(1));
    }
}
