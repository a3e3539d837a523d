//! What ends entries: files that are whole get their names, others are dropped, and directories in
//! which everything has ended get their metadata.

use super::event::{Commit, Discard, Task};
use crate::units::EntryId;
use std::collections::VecDeque;

/// Entries that are to be ended by a thread.
#[derive(Debug)]
pub(super) struct Committing {
    to_commit: VecDeque<Commit>,
    /// Commits that run, and may run.
    running: u32,
    running_max: u32,
    /// The most that one takes.
    count_max: usize,
    to_discard: Vec<Discard>,
    to_close: Vec<EntryId>,
}

impl Committing {
    /// This many commits may run side by side, each of at most `count_max` files.
    pub(super) fn new(running_max: u32, count_max: usize) -> Self {
        Self {
            to_commit: VecDeque::new(),
            running: 0,
            running_max,
            count_max,
            to_discard: Vec::new(),
            to_close: Vec::new(),
        }
    }

    /// A file is whole.
    pub(super) fn push(&mut self, commit: Commit) {
        self.to_commit.push_back(commit);
    }

    /// A file is dropped.
    pub(super) fn discard(&mut self, discard: Discard) {
        self.to_discard.push(discard);
    }

    /// Everything in a directory has ended.
    pub(super) fn close(&mut self, directory: EntryId) {
        self.to_close.push(directory);
    }

    /// Whether files may get their names now.
    pub(super) fn has_commit(&self) -> bool {
        !self.to_commit.is_empty() && self.running < self.running_max
    }

    /// Files that get their names now; it runs until [`Self::on_committed`].
    pub(super) fn next_commit(&mut self) -> Option<Task> {
        if !self.has_commit() {
            return None;
        }
        self.running += 1;
        let count = self.to_commit.len().min(self.count_max);
        Some(Task::Commit(self.to_commit.drain(..count).collect()))
    }

    /// A commit is over.
    ///
    /// # Panics
    /// If none ran.
    pub(super) fn on_committed(&mut self) {
        assert!(self.running > 0, "none of at most {} commits ran", self.running_max);
        self.running -= 1;
    }

    /// Whether a commit runs.
    pub(super) fn is_running(&self) -> bool {
        self.running > 0
    }

    /// Whether files are to be dropped.
    pub(super) fn has_discard(&self) -> bool {
        !self.to_discard.is_empty()
    }

    /// Files that are dropped now.
    pub(super) fn next_discard(&mut self) -> Option<Task> {
        self.has_discard().then(|| Task::Discard(std::mem::take(&mut self.to_discard)))
    }

    /// Whether directories are to be closed.
    pub(super) fn has_close(&self) -> bool {
        !self.to_close.is_empty()
    }

    /// Directories that are closed now.
    pub(super) fn next_close(&mut self) -> Option<Task> {
        self.has_close().then(|| Task::Close(std::mem::take(&mut self.to_close)))
    }
}
