//! For how long threads of the source had nothing to do although its storage was free: the rest of
//! the path holds it up, or nothing is left to be read.

use crate::units::Instant;
use std::time::Duration;

/// Whether the source waits for others, and for how long it has.
#[derive(Debug, Default)]
pub(super) struct Starving {
    since: Option<Instant>,
    total: Duration,
}

impl Starving {
    /// Time passes.
    pub(super) fn on_time(&mut self, now: Instant) {
        if let Some(since) = &mut self.since {
            self.total += now.since(*since);
            *since = now;
        }
    }

    /// A thread asked for work; `is_starved` if it got none although storage was free.
    pub(super) fn on_asked(&mut self, now: Instant, is_starved: bool) {
        self.on_time(now);
        self.since = is_starved.then_some(now);
    }

    /// For how long it has been so.
    pub(super) fn micros(&self) -> u64 {
        u64::try_from(self.total.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_between_questions_without_an_answer_counts() {
        let at = |micros| Instant::after_start(Duration::from_micros(micros));
        let mut starving = Starving::default();
        starving.on_time(at(5));
        starving.on_asked(at(10), true);
        starving.on_time(at(12));
        assert_eq!(starving.micros(), 2);
        starving.on_asked(at(15), true);
        starving.on_asked(at(20), false);
        starving.on_time(at(90));
        assert_eq!(starving.micros(), 10);
    }
}
