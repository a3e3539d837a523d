//! Which names of the sink's are at the source: what it asks before it removes anything.

use super::{ProtocolError, Source};
use crate::limits::{QUESTION_BYTES_MAX, QUESTIONS_BYTES_MAX, QUESTIONS_OPEN_MAX};
use crate::message::{Message, Presence, Question};
use std::collections::VecDeque;

/// Questions of the sink that are not answered.
#[derive(Debug, Default)]
pub(super) struct Questions {
    pub(super) waiting: VecDeque<Question>,
    /// Those with an I/O thread included.
    open_count: usize,
    open_bytes: usize,
}

impl Source {
    /// Whether the sink may ask this now: everything else has ended, and few of its questions are
    /// open.
    pub(super) fn check_question(&self, question: &Question) -> Result<(), ProtocolError> {
        if !self.config.may_be_asked || !self.directories.is_root_closed() {
            return Err(ProtocolError::OutOfPlace("ARE_THERE"));
        }
        let Questions { open_count, open_bytes, .. } = self.questions;
        let bytes = question.bytes();
        let is_too_much = bytes > QUESTION_BYTES_MAX
            || open_bytes + bytes > QUESTIONS_BYTES_MAX
            || open_count >= QUESTIONS_OPEN_MAX;
        if is_too_much { Err(ProtocolError::TooMuch("questions")) } else { Ok(()) }
    }

    pub(super) fn on_question(&mut self, question: Question) {
        self.questions.open_count += 1;
        self.questions.open_bytes += question.bytes();
        self.questions.waiting.push_back(question);
    }

    /// An I/O thread has looked up what the sink asked.
    pub(super) fn on_looked_up(&mut self, question: &Question, answers: Vec<Presence>) {
        self.questions.open_count -= 1;
        self.questions.open_bytes -= question.bytes();
        self.messages.push_back(Message::There { number: question.number, answers });
    }

    /// This many entries have been removed at the sink; the number does not go down.
    pub(super) fn check_removed(&self, count: u64) -> Result<(), ProtocolError> {
        let may_be = self.config.may_be_asked && self.directories.is_root_closed();
        match may_be && count >= self.counters.entries_removed {
            true => Ok(()),
            false => Err(ProtocolError::OutOfPlace("REMOVED")),
        }
    }
}
