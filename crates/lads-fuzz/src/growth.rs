//! Whether a session says and asks for no more than what it was told gives reason to.

use lads_core::message::Message;

/// How many things may come out for each that goes in. An entry that is announced becomes one of a
/// task, of an answer, of a commit and of an ending, and each of those tasks goes in again when it
/// is done; half would be too few for a file that is asked for again.
const OUT_PER_IN: u64 = 4;

/// Things that may come out besides.
const OUT_SPARE: u64 = 64;

/// What went in and what came out, in rows of messages and items of tasks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth {
    told: u64,
    said: u64,
}

impl Growth {
    /// The session was told of this many things.
    pub fn on_told(&mut self, count: usize) {
        self.told += 1 + count as u64;
    }

    /// The session named this many things.
    ///
    /// # Panics
    /// If those are more than it has been told of gives reason to.
    pub fn on_said(&mut self, count: usize) {
        self.said += 1 + count as u64;
        assert!(self.said <= OUT_SPARE + OUT_PER_IN * self.told, "{self:?}");
    }
}

/// How many rows a message has, if it is one of those that have some.
#[must_use]
pub fn rows_of(message: &Message) -> usize {
    match message {
        Message::NewFile(rows) => rows.len(),
        Message::FileId(rows) => rows.len(),
        Message::Grant(lot) => lot.osts.len(),
        Message::BlockDone(rows) | Message::BlockBad(rows) => rows.len(),
        Message::FileDone(rows) => rows.len(),
        Message::PlaceAgain(rows) => rows.len(),
        _ => 0,
    }
}
