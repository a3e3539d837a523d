//! Removal of what is at the sink and not at the source (`--delete`).
//!
//! ```text
//!   FINISH, nothing failed ─► Task::Remove ─► ARE_THERE ─► THERE ─► removed ─► Task::Finish
//! ```
//!
//! It begins when everything else has ended, because only then is it known that nothing failed. One
//! I/O thread goes through the directories that were moved. It asks the source which of the names
//! that it finds are there, a limited number at a time, so that neither end keeps the names of a
//! whole directory. It takes answers as they come. The answer alone decides about a name.

use super::course::End;
use crate::gate::ProtocolError;
use crate::limits::{QUESTION_BYTES_MAX, QUESTIONS_BYTES_MAX, QUESTIONS_OPEN_MAX};
use crate::message::{Presence, Question};
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
    /// The limit is reached.
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
    has_failed: bool,
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

    /// Something failed at this end.
    pub(super) fn on_failed(&mut self) {
        self.has_failed = true;
    }

    /// Whether something failed at this end.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(super) fn is_running(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Whether the transfer may end, as far as this is concerned.
    pub(super) fn is_over(&self) -> bool {
        self.config.is_none() || self.phase == Phase::Over
    }

    /// Begins the removal, if everything has ended and there is anything to do. Returns whether it
    /// may.
    pub(super) fn start(&mut self, end: Option<End>) -> Option<bool> {
        let end = end.filter(|_| self.is_due())?;
        self.phase = Phase::Running;
        let is_well = end == End::Complete && !self.has_failed;
        Some(self.config.is_some_and(|it| it.after_errors || is_well))
    }

    /// The thread that removes has come to its end.
    ///
    /// # Panics
    /// If it had not begun.
    pub(super) fn on_over(&mut self) {
        assert_eq!(self.phase, Phase::Running, "nobody was told to remove anything");
        self.phase = Phase::Over;
    }

    /// Whether no more may be removed than this many entries.
    pub(super) fn is_limit(&self, removed_count: u64) -> bool {
        self.config.and_then(|it| it.count_max).is_some_and(|max| removed_count >= max)
    }

    /// Whether another question may be asked now: few enough are in flight.
    pub(super) fn may_ask(&self) -> bool {
        self.open.len() + self.answers.len() < QUESTIONS_OPEN_MAX
            && self.open_bytes + QUESTION_BYTES_MAX <= QUESTIONS_BYTES_MAX
    }

    /// A question to the source: which of these names it has in a directory.
    pub(super) fn ask(&mut self, directory: Vec<u8>, names: Vec<Vec<u8>>) -> Question {
        self.number_last += 1;
        let question = Question { number: self.number_last, directory, names };
        let bytes = question.bytes();
        self.open.insert(question.number, (question.names.len(), bytes));
        self.open_bytes += bytes;
        question
    }

    pub(super) fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn take_answer(&mut self) -> Option<(u64, Vec<Presence>)> {
        self.answers.pop_front()
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
