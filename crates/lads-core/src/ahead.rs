//! How many bytes of new files may be placed ahead of being written.
//!
//! Where a file goes is decided when it is announced. Which OSTs are congested changes within
//! seconds, so what is placed long before it is written is placed by yesterday's weather; but what
//! is placed too late leaves OSTs idle. So about as much is placed as was written in the last
//! second, and a little for each OST at least; and what the source has read ahead into its stage,
//! for that was placed when it had to be.

use crate::units::Instant;
use std::time::Duration;

/// Counts what is placed and not yet written.
#[derive(Debug)]
pub struct Ahead {
    /// So much may always be placed; `None` if there is no limit at all.
    bytes_min: Option<u64>,
    placed_bytes: u64,
    /// Of these, about so many are in the source's stage.
    staged_bytes: u64,
    /// The second that runs, and what was written in it and in the one before.
    second_began: Instant,
    written_bytes: u64,
    written_bytes_before: u64,
}

const SECOND: Duration = Duration::from_secs(1);

impl Ahead {
    /// Nothing is placed yet; `bytes_min` may always be.
    #[must_use]
    pub fn new(bytes_min: Option<u64>) -> Self {
        Self {
            bytes_min,
            placed_bytes: 0,
            staged_bytes: 0,
            second_began: Instant::START,
            written_bytes: 0,
            written_bytes_before: 0,
        }
    }

    /// Whether a further file may be placed. If nothing is, always.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let Some(bytes_min) = self.bytes_min else { return true };
        let written = self.written_bytes.max(self.written_bytes_before);
        let bytes_max = written.max(bytes_min).saturating_add(self.staged_bytes);
        self.placed_bytes == 0 || self.placed_bytes < bytes_max
    }

    /// So many bytes of what is placed are in the source's stage.
    pub fn on_staged(&mut self, bytes: u64) {
        self.staged_bytes = bytes;
    }

    /// A file of so many bytes is placed.
    pub fn on_placed(&mut self, bytes: u64) {
        self.placed_bytes = self.placed_bytes.saturating_add(bytes);
    }

    /// So many bytes need not be written any more.
    pub fn on_given_up(&mut self, bytes: u64) {
        self.placed_bytes = self.placed_bytes.saturating_sub(bytes);
    }

    /// So many bytes were written.
    pub fn on_written(&mut self, now: Instant, bytes: u64) {
        self.on_given_up(bytes);
        if now.since(self.second_began) >= SECOND {
            self.written_bytes_before = self.written_bytes;
            self.written_bytes = 0;
            self.second_began = now;
        }
        self.written_bytes = self.written_bytes.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_may_be_placed_as_was_written_in_a_second() {
        let mut ahead = Ahead::new(Some(10));
        ahead.on_placed(9);
        assert!(ahead.has_room());
        ahead.on_placed(50);
        assert!(!ahead.has_room());
        ahead.on_written(Instant::START + SECOND / 2, 40);
        assert!(ahead.has_room(), "19 are left, and 40 were written");
        ahead.on_placed(30);
        assert!(!ahead.has_room());
        ahead.on_written(Instant::START + SECOND * 3, 1);
        assert!(!ahead.has_room(), "48 are left, 40 were written in the second before");
        ahead.on_given_up(48);
        assert!(ahead.has_room());
    }

    #[test]
    fn what_is_staged_does_not_count() {
        let mut ahead = Ahead::new(Some(10));
        ahead.on_placed(12);
        assert!(!ahead.has_room());
        ahead.on_staged(3);
        assert!(ahead.has_room());
        ahead.on_staged(0);
        assert!(!ahead.has_room());
    }

    #[test]
    fn a_file_larger_than_the_limit_is_placed_by_itself() {
        let mut ahead = Ahead::new(Some(10));
        assert!(ahead.has_room());
        ahead.on_placed(u64::MAX);
        assert!(!ahead.has_room());
        ahead.on_given_up(u64::MAX);
        assert!(ahead.has_room());
    }

    #[test]
    fn without_a_limit_there_is_always_room() {
        let mut ahead = Ahead::new(None);
        ahead.on_placed(1 << 60);
        assert!(ahead.has_room());
    }
}
