//! Questions of the sink about names, which it asks before it removes anything.

use crate::gate::ProtocolError;
use crate::limits::{QUESTION_BYTES_MAX, QUESTIONS_BYTES_MAX, QUESTIONS_OPEN_MAX};
use crate::message::Question;
use std::collections::VecDeque;

/// Questions of the sink that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Questions {
    waiting: VecDeque<Question>,
    /// The number of open questions, including those that an I/O thread works on.
    open_count: usize,
    open_bytes: usize,
}

impl Questions {
    /// Checks whether the sink may ask this in addition to its open questions.
    pub(super) fn check(&self, question: &Question) -> Result<(), ProtocolError> {
        let bytes = question.bytes();
        let is_too_much = bytes > QUESTION_BYTES_MAX
            || self.open_bytes + bytes > QUESTIONS_BYTES_MAX
            || self.open_count >= QUESTIONS_OPEN_MAX;
        if is_too_much { Err(ProtocolError::TooMuch("questions")) } else { Ok(()) }
    }

    /// The sink asks.
    pub(super) fn push(&mut self, question: Question) {
        self.open_count += 1;
        self.open_bytes += question.bytes();
        self.waiting.push_back(question);
    }

    /// Whether a question waits for a thread.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The question to look up next.
    pub(super) fn next(&mut self) -> Option<Question> {
        self.waiting.pop_front()
    }

    /// A thread has looked up a question.
    ///
    /// # Panics
    /// If no question is open.
    pub(super) fn on_looked_up(&mut self, question: &Question) {
        let (count, bytes) = (self.open_count, self.open_bytes);
        assert!(count > 0 && bytes >= question.bytes(), "{count} questions, {bytes} bytes");
        self.open_count -= 1;
        self.open_bytes -= question.bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{NAME_BYTES_MAX, PATH_BYTES_MAX};
    use crate::limits::QUESTION_NAMES_MAX;

    #[test]
    fn the_longest_question_may_be_asked_and_none_that_is_longer() {
        let question = |directory_bytes| {
            let names = vec![vec![b'n'; NAME_BYTES_MAX]; QUESTION_NAMES_MAX];
            Question { number: 1, directory: vec![b'd'; directory_bytes], names }
        };
        let questions = Questions::default();
        assert_eq!(questions.check(&question(PATH_BYTES_MAX)), Ok(()));
        assert!(questions.check(&question(PATH_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn questions_count_until_they_are_looked_up() {
        let question = Question { number: 1, directory: Vec::new(), names: vec![b"a".to_vec()] };
        let mut questions = Questions::default();
        for _ in 0..QUESTIONS_OPEN_MAX {
            assert_eq!(questions.check(&question), Ok(()));
            questions.push(question.clone());
        }
        assert!(questions.check(&question).is_err());
        questions.on_looked_up(&question);
        assert_eq!(questions.check(&question), Ok(()));
        (1..QUESTIONS_OPEN_MAX).for_each(|_| questions.on_looked_up(&question));
        assert_eq!((questions.open_count, questions.open_bytes), (0, 0));
    }
}
