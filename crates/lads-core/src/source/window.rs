//! How many entries may be in flight: memory grows with this, not with the tree.
//!
//! A small window keeps the state of the entries in the caches of the processors. It doubles while
//! it keeps an OST idle: over a long line, if the sink examines entries slowly, or if most entries
//! are on slow OSTs.

use super::SourceConfig;
use crate::limits::METADATA_BYTES_MAX;
use crate::units::Instant;
use std::time::Duration;

/// The number of entries that are announced, or held back, and not ended.
#[derive(Debug)]
pub(super) struct Window {
    count: u64,
    /// Maximum at present.
    count_max: u64,
    /// Maximum after all doublings.
    widest: u64,
    directories_max: u64,
    patience: Duration,
    /// Since when it has been full while an OST had nothing to do.
    hungry_since: Option<Instant>,
}

impl Window {
    /// No entry is in flight.
    pub(super) fn new(config: &SourceConfig) -> Self {
        let (widest, directories_max) = (config.window_entries, config.window_directories);
        Self {
            count: 0,
            count_max: widest.min(config.tuning.window_entries),
            widest,
            directories_max,
            patience: config.tuning.window_patience,
            hungry_since: None,
        }
    }

    /// An entry is in flight.
    pub(super) fn on_open(&mut self) {
        self.count += 1;
    }

    /// An entry has ended.
    ///
    /// # Panics
    /// If no entry was in flight.
    pub(super) fn on_ended(&mut self) {
        assert!(self.count > 0, "an entry ended, and of {} none was under way", self.count_max);
        self.count -= 1;
    }

    /// Whether more entries may be announced, if names and attributes take `metadata_bytes` and
    /// `directory_count` directories have not ended.
    pub(super) fn has_room(&self, metadata_bytes: u64, directory_count: u64) -> bool {
        self.count < self.count_max
            && metadata_bytes < METADATA_BYTES_MAX
            && directory_count < self.directories_max
    }

    /// The walk continues.
    pub(super) fn on_going_on(&mut self) {
        self.hungry_since = None;
    }

    /// The walk has to wait; `is_hungry` if an OST is idle. Doubles the window if an OST has been
    /// idle for [`Tuning::window_patience`](crate::tuning::Tuning). Returns the time of the next
    /// look; `None` if the window is the widest, or has room.
    pub(super) fn on_waiting(&mut self, now: Instant, is_hungry: bool) -> Option<Instant> {
        if self.count < self.count_max || self.count_max == self.widest {
            return None;
        }
        let since = is_hungry.then(|| self.hungry_since.unwrap_or(now));
        self.hungry_since = since;
        if since.is_some_and(|since| now.since(since) >= self.patience) {
            self.count_max = self.count_max.saturating_mul(2).min(self.widest);
            self.hungry_since = None;
        }
        Some(since.unwrap_or(now) + self.patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_millis(5);

    /// A window of at first 4 and at most 15 entries, which is full.
    fn full() -> Window {
        Window {
            count: 4,
            count_max: 4,
            widest: 15,
            directories_max: 1,
            patience: PATIENCE,
            hungry_since: None,
        }
    }

    fn at(millis: u64) -> Instant {
        Instant::after_start(Duration::from_millis(millis))
    }

    fn fill(window: &mut Window) {
        while window.has_room(0, 0) {
            window.on_open();
        }
    }

    #[test]
    fn it_doubles_as_long_as_it_keeps_an_ost_idle() {
        let mut window = full();
        let mut now = at(1);
        for wider in [8, 15] {
            let again_at = window.on_waiting(now, true).expect("it can become wider");
            assert_eq!(again_at, now + PATIENCE);
            assert!(!window.has_room(0, 0));
            now = again_at;
            window.on_waiting(now, true);
            fill(&mut window);
            assert_eq!(window.count, wider);
        }
        assert_eq!(window.on_waiting(now, true), None, "it is as wide as it may be");
    }

    #[test]
    fn it_stays_as_it_is_while_all_osts_have_something_to_do() {
        let mut window = full();
        for millis in 0..100 {
            assert_eq!(window.on_waiting(at(millis), false), Some(at(millis) + PATIENCE));
        }
        // An OST is idle for less than the patience, the walk continues, then no OST is idle.
        window.on_waiting(at(100), true);
        window.on_going_on();
        window.on_waiting(at(104), true);
        window.on_waiting(at(106), true);
        window.on_waiting(at(108), false);
        window.on_waiting(at(110), true);
        assert!(!window.has_room(0, 0));
    }

    #[test]
    fn it_does_not_become_wider_if_the_walk_waits_for_something_else() {
        let mut window = full();
        window.on_ended();
        assert_eq!(window.on_waiting(at(0), true), None);
        assert_eq!(window.on_waiting(at(9), true), None);
        assert!(window.has_room(0, 0) && !window.has_room(0, 1));
        window.on_open();
        assert!(!window.has_room(0, 0));
    }
}
