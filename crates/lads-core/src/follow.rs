//! When a file that is read while it grows has come to its end, and whether it changed in another
//! way meanwhile (`--follow`).
//!
//! The file has ended when it has not grown for a given time. Its status shows two other changes:
//! it is shorter than it was, or its times changed after it grew for the last time, because bytes
//! that were read already were written again. In both cases it must be read again from its
//! beginning. Bytes that are rewritten while the file also grows leave the same status as growth
//! alone. So a copy of a file that changed while it was read may be a mixture, and gets a time that
//! no later transfer takes for that of the source.

use crate::entry::{Identity, Timestamp};
use crate::racy::unsettled_for;
use crate::times::clearly_before;
use crate::units::Instant;
use std::time::Duration;

/// The observations of one pass over a file that may grow.
#[derive(Debug)]
pub struct Following {
    idle: Duration,
    /// Whether the file changed since the pass began, or may have without a trace.
    has_changed: bool,
    /// The status when the file was last seen to grow, and the time of that observation.
    grown: Identity,
    grown_at: Instant,
    /// Bytes up to this offset were read.
    read_end: u64,
}

/// The result of a look at the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The file may still grow.
    Open,
    /// The file has ended: its length in bytes, and the time that its copy gets.
    Ended(u64, Timestamp),
    /// The file must be read again from its beginning.
    Changed,
}

impl Following {
    /// A pass begins over a file with this status. The file has ended when it has not grown for
    /// `idle`. `clock` is the present time as file systems record it.
    #[must_use]
    pub fn new(idle: Duration, status: Identity, now: Instant, clock: Timestamp) -> Self {
        let has_changed = unsettled_for(&status, clock).is_some();
        Self { idle, has_changed, grown: status, grown_at: now, read_end: 0 }
    }

    /// Records that bytes up to this offset were read.
    pub fn on_read(&mut self, end: u64) {
        self.read_end = self.read_end.max(end);
    }

    /// Judges the present status of the file.
    pub fn on_look(&mut self, status: Identity, now: Instant) -> Look {
        if status.size < self.grown.size.max(self.read_end) {
            return Look::Changed;
        }
        if status.size > self.grown.size {
            (self.grown, self.grown_at, self.has_changed) = (status, now, true);
            return Look::Open;
        }
        // A write may set the times before the length: only when the file is idle, its times tell
        // whether it grew.
        match (now.since(self.grown_at) >= self.idle, status == self.grown) {
            (false, _) => Look::Open,
            (true, false) => Look::Changed,
            (true, true) if self.has_changed => {
                Look::Ended(status.size, clearly_before(status.mtime))
            }
            (true, true) => Look::Ended(status.size, status.mtime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(2);
    const CLOCK: Timestamp = Timestamp { seconds: 1_700_000_000, nanos: 5 };

    fn at(seconds: u64) -> Instant {
        Instant::after_start(Duration::from_secs(seconds))
    }

    fn time(seconds: i64) -> Timestamp {
        Timestamp { seconds: 1_600_000_000 + seconds, nanos: 77 }
    }

    /// The status of a file of this length that was last written to, and changed, at these times.
    fn status(size: u64, mtime: i64, ctime: i64) -> Identity {
        Identity { size, mtime: time(mtime), ctime: time(ctime), inode: 7 }
    }

    fn following(first: Identity) -> Following {
        Following::new(IDLE, first, at(0), CLOCK)
    }

    #[test]
    fn a_file_ends_when_it_has_not_grown_for_a_while() {
        let mut pass = following(status(10, 0, 0));
        assert_eq!(pass.on_look(status(20, 1, 1), at(1)), Look::Open);
        assert_eq!(pass.on_look(status(20, 1, 1), at(2)), Look::Open);
        assert_eq!(pass.on_look(status(20, 1, 1), at(3)), Look::Ended(20, time(-1)));
    }

    #[test]
    fn only_a_file_that_did_not_change_has_a_copy_with_its_time() {
        let mut pass = following(status(10, 3, 4));
        pass.on_read(10);
        assert_eq!(pass.on_look(status(10, 3, 4), at(2)), Look::Ended(10, time(3)));
        let now = Identity { ctime: CLOCK, ..status(10, 3, 4) };
        let mut racy = following(now);
        assert_eq!(racy.on_look(now, at(2)), Look::Ended(10, time(1)));
    }

    #[test]
    fn bytes_that_are_written_again_after_the_last_growth_are_noticed() {
        for other in [status(20, 2, 2), status(20, 1, 2)] {
            let mut pass = following(status(10, 0, 0));
            assert_eq!(pass.on_look(status(20, 1, 1), at(1)), Look::Open);
            assert_eq!(pass.on_look(other, at(2)), Look::Open, "it may be about to grow");
            assert_eq!(pass.on_look(other, at(3)), Look::Changed);
        }
        let mut pass = following(status(10, 0, 0));
        assert_eq!(pass.on_look(status(10, 1, 1), at(2)), Look::Changed, "it never grew");
    }

    #[test]
    fn a_write_that_has_set_the_times_and_not_yet_the_length_is_growth() {
        let mut pass = following(status(10, 0, 0));
        assert_eq!(pass.on_look(status(10, 1, 1), at(1)), Look::Open);
        assert_eq!(pass.on_look(status(20, 1, 1), at(2)), Look::Open);
        assert_eq!(pass.on_look(status(20, 1, 1), at(4)), Look::Ended(20, time(-1)));
    }

    #[test]
    fn a_file_that_is_shorter_than_before_has_changed() {
        let mut pass = following(status(10, 0, 0));
        assert_eq!(pass.on_look(status(9, 1, 1), at(0)), Look::Changed);
        // It grew, was read and was cut before anyone looked at its length.
        let mut pass = following(status(10, 0, 0));
        pass.on_read(100);
        pass.on_read(50);
        assert_eq!(pass.on_look(status(99, 1, 1), at(0)), Look::Changed);
        assert_eq!(pass.on_look(status(100, 1, 1), at(0)), Look::Open);
    }
}
