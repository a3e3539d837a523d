//! When sending rests: while a program copies the first bytes after a pause into buffers.
//!
//! On a machine whose processors all compute, sending takes processor and memory from the copying,
//! for which the program waits; it does not wait for what is sent. A program that waits for the
//! server next is no reason to rest.

use super::policy::COPY_WAIT;
use std::time::Duration;

/// Whether sending rests.
#[derive(Debug, Default)]
pub struct Rest {
    /// How many threads of the program copy.
    copying: u32,
    /// When the rest is over at the latest, if it began and was not ended.
    until: Option<Duration>,
}

impl Rest {
    /// A thread of the program begins to copy.
    pub fn on_copying(&mut self) {
        self.copying += 1;
    }

    /// A thread of the program has copied all. Whether a rest may be over that it began.
    pub fn on_copied(&mut self) -> bool {
        self.copying -= 1;
        self.copying == 0 && self.end()
    }

    /// There is something to send again, after a time without.
    pub fn begin(&mut self, now: Duration) {
        self.until = Some(now + COPY_WAIT);
    }

    /// The program waits for what is sent: for a free buffer. Whether that ends a rest.
    pub fn end(&mut self) -> bool {
        self.until.take().is_some()
    }

    /// For how long nothing is to be sent; `None` if something may be sent now.
    #[must_use]
    pub fn left(&self, now: Duration) -> Option<Duration> {
        let until = self.until.filter(|_| self.copying > 0)?;
        until.checked_sub(now).filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn sending_rests_until_all_is_copied_and_not_for_ever() {
        let mut rest = Rest::default();
        rest.on_copying();
        rest.begin(10 * MS);
        assert_eq!(rest.left(10 * MS), Some(COPY_WAIT));
        assert_eq!(rest.left(11 * MS), Some(COPY_WAIT - MS));
        assert_eq!(rest.left(10 * MS + COPY_WAIT), None);
        rest.on_copying();
        assert!(!rest.on_copied(), "another thread copies");
        assert!(rest.left(11 * MS).is_some());
        assert!(rest.on_copied());
        assert_eq!(rest.left(11 * MS), None);
        rest.on_copying();
        assert_eq!(rest.left(11 * MS), None, "there has been something to send since");
        assert!(!rest.on_copied(), "nobody needs to hear of it");
    }

    /// A program may copy for longer than sending rests, and be at it when the next pause is over.
    #[test]
    fn a_rest_that_ran_out_or_was_ended_begins_again_after_the_next_pause() {
        let mut rest = Rest::default();
        rest.on_copying();
        for (from, is_ended) in [(MS, false), (100 * MS, true), (200 * MS, false)] {
            rest.begin(from);
            assert_eq!(rest.left(from + MS), Some(COPY_WAIT - MS));
            assert!(!is_ended || rest.end());
            assert_eq!(rest.left(from + COPY_WAIT), None);
        }
        assert!(rest.on_copied());
        rest.on_copying();
        rest.begin(300 * MS);
        assert_eq!(rest.left(300 * MS), Some(COPY_WAIT), "the same when nobody copied meanwhile");
    }

    #[test]
    fn a_program_that_waits_for_a_buffer_or_does_not_copy_ends_it() {
        let mut rest = Rest::default();
        rest.begin(MS);
        assert_eq!(rest.left(MS), None, "nobody copies");
        rest.on_copying();
        assert!(rest.left(MS).is_some());
        assert!(rest.end() && !rest.end());
        assert_eq!(rest.left(MS), None);
    }
}
