//! Whether the user's rate limit lets anything through now, and how many bytes waited for it.

use crate::pace::Pace;
use crate::tuning::Tuning;
use crate::units::Instant;

/// A rate limit, or none.
#[derive(Debug)]
pub(super) struct Limit {
    pace: Option<Pace>,
    wait: Wait,
}

/// Whether a thread found something to send that the limit did not yet let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    No,
    Yes,
}

impl Limit {
    pub(super) fn new(bytes_per_second: Option<u64>, tuning: &Tuning) -> Self {
        Self { pace: Pace::new(bytes_per_second, tuning), wait: Wait::No }
    }

    /// Whether nothing may be sent now.
    pub(super) fn is_reached(&self, now: Instant) -> bool {
        self.pace.as_ref().is_some_and(|pace| pace.ready_at() > now)
    }

    /// Returns when something may be sent again, if something waits for that.
    pub(super) fn ready_at(&self) -> Option<Instant> {
        self.pace.as_ref().filter(|_| self.wait == Wait::Yes).map(Pace::ready_at)
    }

    /// Something waits for the limit.
    pub(super) fn on_waiting(&mut self) {
        self.wait = Wait::Yes;
    }

    /// This many bytes are sent, and nothing waits any more. Returns how many of the bytes had to
    /// wait.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64) -> u64 {
        let wait = std::mem::replace(&mut self.wait, Wait::No);
        let Some(pace) = self.pace.as_mut().filter(|_| bytes > 0) else { return 0 };
        pace.on_sent(now, bytes);
        if wait == Wait::Yes { bytes } else { 0 }
    }
}
