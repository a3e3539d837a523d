//! What is at the sink and not at the source: whether it is removed, and what the source is asked.
//!
//! ```text
//!   FINISH, nothing failed ─► Task::Remove ─► ARE_THERE ─► THERE ─► removed ─► Task::Finish
//! ```
//!
//! It is done when everything else has ended: only then it is known that nothing failed. One I/O
//! thread goes through the directories that were moved. It asks the source which of the names
//! that it finds are there, some at a time, so that neither end keeps the names of a whole
//! directory, and takes answers as they come. What becomes of a name is decided by its answer
//! alone.

use super::{Finish, Sink, Stop};
use crate::gate::ProtocolError;
use crate::limits::{QUESTION_BYTES_MAX, QUESTIONS_BYTES_MAX, QUESTIONS_OPEN_MAX};
use crate::message::{Message, Presence, Question};
use std::collections::{HashMap, VecDeque};

/// What is removed at a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalConfig {
    /// Whether it is removed although something failed.
    pub after_errors: bool,
    /// No more entries than this.
    pub count_max: Option<u64>,
}

/// Whether one more entry may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may.
    Granted,
    /// As many as may be are removed.
    LimitReached,
    /// The transfer is being stopped.
    Stopped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is to be removed, or not yet.
    Waiting,
    Running,
    Over,
}

/// What is asked and removed.
#[derive(Debug)]
pub(super) struct Removal {
    config: Option<RemovalConfig>,
    phase: Phase,
    /// Whether something failed at this end.
    pub(super) has_failed: bool,
    number_last: u64,
    /// Questions that are not answered: how many names each has, and how many bytes it takes.
    open: HashMap<u64, (usize, usize)>,
    open_bytes: usize,
    answers: VecDeque<(u64, Vec<Presence>)>,
}

impl Removal {
    pub(super) fn new(config: Option<RemovalConfig>) -> Self {
        Self {
            config,
            phase: Phase::Waiting,
            has_failed: false,
            number_last: 0,
            open: HashMap::new(),
            open_bytes: 0,
            answers: VecDeque::new(),
        }
    }

    /// Whether there is something to do before the transfer ends.
    fn is_due(&self) -> bool {
        self.config.is_some() && self.phase == Phase::Waiting
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether the transfer may end, as far as this is concerned.
    pub(super) fn is_over(&self) -> bool {
        self.config.is_none() || self.phase == Phase::Over
    }

    /// Whether nothing failed at either end, or that does not matter.
    fn is_permitted(&self, is_complete: bool) -> bool {
        self.config.is_some_and(|it| it.after_errors || (is_complete && !self.has_failed))
    }

    /// Whether an answer is one to a question that was asked and is not answered.
    pub(super) fn check(&self, number: u64, answers: &[Presence]) -> Result<(), ProtocolError> {
        match self.open.get(&number) {
            Some((count, _)) if *count == answers.len() => Ok(()),
            Some(_) => Err(ProtocolError::Impossible("THERE for other names")),
            None => Err(ProtocolError::OutOfPlace("THERE")),
        }
    }

    pub(super) fn on_answer(&mut self, number: u64, answers: Vec<Presence>) {
        if let Some((_, bytes)) = self.open.remove(&number) {
            self.open_bytes -= bytes;
            self.answers.push_back((number, answers));
        }
    }
}

impl Sink {
    /// Whether another question may be asked now: few enough are under way.
    #[must_use]
    pub fn may_ask(&self) -> bool {
        let Removal { open, open_bytes, answers, .. } = &self.removal;
        open.len() + answers.len() < QUESTIONS_OPEN_MAX
            && open_bytes + QUESTION_BYTES_MAX <= QUESTIONS_BYTES_MAX
    }

    /// Asks the source which of these names it has in a directory, a path below the root; the
    /// number of the question.
    pub fn ask(&mut self, directory: Vec<u8>, names: Vec<Vec<u8>>) -> u64 {
        self.removal.number_last += 1;
        let number = self.removal.number_last;
        let question = Question { number, directory, names };
        let bytes = question.bytes();
        self.removal.open.insert(number, (question.names.len(), bytes));
        self.removal.open_bytes += bytes;
        self.messages.push_back(Message::AreThere(question));
        number
    }

    /// Whether [`Self::take_answer`] has something.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        !self.removal.answers.is_empty()
    }

    /// An answer to a question: its number, and for each name what the source has.
    pub fn take_answer(&mut self) -> Option<(u64, Vec<Presence>)> {
        self.removal.answers.pop_front()
    }

    /// Whether the thread that removes should look for answers, or ask on.
    #[must_use]
    pub fn wants_removal(&self) -> bool {
        self.removal.is_running()
            && (!self.removal.answers.is_empty() || self.may_ask() || self.stop != Stop::No)
    }

    /// Whether another entry may be removed.
    #[must_use]
    pub fn permission(&self) -> Permission {
        let count_max = self.removal.config.and_then(|it| it.count_max);
        match () {
            () if self.stop != Stop::No => Permission::Stopped,
            () if count_max.is_some_and(|max| self.counters.entries_removed >= max) => {
                Permission::LimitReached
            }
            () => Permission::Granted,
        }
    }

    /// An entry was removed, or would be.
    pub fn on_removed(&mut self) {
        self.counters.entries_removed += 1;
    }

    /// What is removed when everything else has ended, if anything is: whether it may be.
    pub(super) fn next_removal(&mut self) -> Option<bool> {
        let Finish::Asked { is_complete } = self.finish else { return None };
        if self.stop != Stop::No || !self.removal.is_due() {
            return None;
        }
        self.removal.phase = Phase::Running;
        Some(self.removal.is_permitted(is_complete))
    }

    /// The thread that removes has come to its end.
    pub(super) fn on_removal_over(&mut self) {
        self.removal.phase = Phase::Over;
        self.messages.push_back(Message::Removed(self.counters.entries_removed));
    }
}
