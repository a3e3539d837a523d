//! Which files are looked at once more: whether they are still what was announced, or to announce
//! them anew.

use super::event::Task;
use crate::units::EntryId;
use std::collections::VecDeque;

/// What is to be looked at, in its order.
#[derive(Debug, Default)]
pub(super) struct Checking {
    tasks: VecDeque<Task>,
}

impl Checking {
    /// The sink has all of a file.
    pub(super) fn check(&mut self, entry: EntryId) {
        self.tasks.push_back(Task::Check(entry));
    }

    /// A file is to be announced anew.
    pub(super) fn examine(&mut self, entry: EntryId) {
        self.tasks.push_back(Task::Examine(entry));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }
}
