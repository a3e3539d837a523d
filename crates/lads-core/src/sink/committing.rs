//! What ends entries: files that are whole get their names, others are dropped, and directories in
//! which everything has ended get their metadata.

use super::event::{Commit, Discard, Task};
use crate::journal::BlockRecord;
use crate::tuning::Tuning;
use crate::units::EntryId;
use std::collections::VecDeque;

/// Entries that are to be ended by a thread.
#[derive(Debug)]
pub(super) struct Committing {
    /// Files that are whole.
    to_commit: VecDeque<Whole>,
    /// Commits that run, and may run.
    running: u32,
    running_max: u32,
    /// The most files that one takes.
    count_max: usize,
    /// When the files of one are this many bytes, it takes no further.
    bytes_enough: u64,
    to_discard: Vec<Discard>,
    to_close: Vec<EntryId>,
}

/// A file that is to get its name.
#[derive(Debug)]
struct Whole {
    commit: Commit,
    bytes: u64,
    /// Blocks that are not recorded.
    waiting: Vec<BlockRecord>,
}

impl Committing {
    /// This many commits may run side by side.
    pub(super) fn new(running_max: u32, tuning: &Tuning) -> Self {
        Self {
            to_commit: VecDeque::new(),
            running: 0,
            running_max,
            count_max: tuning.committed_count,
            bytes_enough: tuning.committed_bytes,
            to_discard: Vec::new(),
            to_close: Vec::new(),
        }
    }

    /// A file of this many bytes is whole; these blocks of it are not recorded.
    pub(super) fn push(&mut self, commit: Commit, bytes: u64, waiting: Vec<BlockRecord>) {
        self.to_commit.push_back(Whole { commit, bytes, waiting });
    }

    /// No file gets its name any more, but for those of commits that run. Returns the others, with
    /// their blocks that are not recorded.
    pub(super) fn stop(&mut self) -> impl Iterator<Item = (EntryId, Vec<BlockRecord>)> {
        self.to_commit.drain(..).map(|whole| (whole.commit.entry, whole.waiting))
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
        let (mut commits, mut bytes) = (Vec::new(), 0);
        while commits.len() < self.count_max
            && bytes < self.bytes_enough
            && let Some(whole) = self.to_commit.pop_front()
        {
            bytes = whole.bytes.saturating_add(bytes);
            commits.push(whole.commit);
        }
        Some(Task::Commit(commits))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_large_files_and_small_ones_are_committed_together() {
        let tuning = Tuning { committed_count: 3, committed_bytes: 10, ..Tuning::DEFAULT };
        let mut committing = Committing::new(u32::MAX, &tuning);
        for (number, bytes) in [(1, 9), (2, 9), (3, 10), (4, 0), (5, 1), (6, 2), (7, u64::MAX)] {
            let commit = Commit { entry: EntryId(number), verify: None, end: None };
            committing.push(commit, bytes, Vec::new());
        }
        let next = || match committing.next_commit()? {
            Task::Commit(commits) => Some(commits.iter().map(|it| it.entry.0).collect::<Vec<_>>()),
            other => unreachable!("{other:?}"),
        };
        let taken: Vec<_> = std::iter::from_fn(next).collect();
        assert_eq!(taken, [vec![1, 2], vec![3], vec![4, 5, 6], vec![7]]);
    }
}
