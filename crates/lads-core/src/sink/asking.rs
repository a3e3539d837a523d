//! What the thread that removes asks the session: whether it may, and what the source has.

use super::{Permission, Sink};
use crate::message::{Message, Presence};

impl Sink {
    /// Reports whether another question may be asked now: few enough are in flight.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        self.removal.may_ask()
    }

    /// Asks the source which of these names it has in a directory, a path below the root; the
    /// number of the question.
    pub fn ask(&mut self, directory: Vec<u8>, names: Vec<Vec<u8>>) -> u64 {
        let question = self.removal.ask(directory, names);
        let number = question.number;
        self.outbox.tell(Message::AreThere(question));
        number
    }

    /// Reports whether [`Self::take_answer`] has something.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        self.removal.has_answer()
    }

    /// An answer to a question: its number, and for each name what the source has.
    pub fn take_answer(&mut self) -> Option<(u64, Vec<Presence>)> {
        self.removal.take_answer()
    }

    /// Reports whether the thread that removes should look for answers, or ask on.
    #[must_use]
    pub fn wants_removal(&self) -> bool {
        self.removal.is_running()
            && (self.removal.has_answer() || self.removal.may_ask() || self.is_stopping())
    }

    /// Reports whether another entry may be removed.
    #[must_use]
    pub fn permission(&self) -> Permission {
        match () {
            () if self.is_stopping() => Permission::Stopped,
            () if self.removal.is_limit(self.counters.entries_removed) => Permission::LimitReached,
            () => Permission::Granted,
        }
    }

    /// An entry was removed, or would be.
    pub fn on_removed(&mut self) {
        self.counters.entries_removed += 1;
    }
}
