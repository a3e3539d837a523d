//! Which files are looked at again: to check whether they are still what was announced, to announce
//! them again, or to remove them.

use super::event::Task;
use crate::units::EntryId;
use std::collections::VecDeque;

/// The files to be looked at, in order.
#[derive(Debug, Default)]
pub(super) struct Checking {
    tasks: VecDeque<Task>,
}

impl Checking {
    /// The sink has all of a file: check whether the file is still the same.
    pub(super) fn check(&mut self, entry: EntryId) {
        self.tasks.push_back(Task::Check(entry));
    }

    /// A file is to be looked at and announced again.
    pub(super) fn examine(&mut self, entry: EntryId) {
        self.tasks.push_back(Task::Examine(entry));
    }

    /// An entry is to be removed.
    pub(super) fn remove(&mut self, entry: EntryId) {
        self.tasks.push_back(Task::Remove(entry));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn next(&mut self) -> Option<Task> {
        self.tasks.pop_front()
    }
}
