//! When a directory is done: the walk has finished with it, and everything in it has ended.
//!
//! Only directories that have not ended are kept. The walk waits when there are many of them
//! (`SourceConfig::window_directories`), so memory grows with the window, not with the tree.

use crate::issue::Failure;
use crate::message::Ending;
use crate::units::{EntryId, EntryMap};

#[derive(Debug)]
struct Directory {
    parent: EntryId,
    /// Entries in it that have not ended, including directories that the walk has still to visit.
    /// Directories of which the sink was told that all in them has ended do not count: the sink
    /// closes a directory after those in it, so that a deep tree ends within one round trip.
    pending: u64,
    is_listed: bool,
    /// Whether it was announced, so that the sink may send messages about it.
    is_announced: bool,
    /// Whether the sink has said what became of it (FILE_ID).
    is_answered: bool,
    is_closing: bool,
    /// Whether the sink made it, or would make it in a dry run.
    is_new: bool,
    /// Whether something in it failed; that entry may never have been announced.
    is_incomplete: bool,
    failure: Option<Failure>,
    /// The bytes of its name and attributes.
    metadata_bytes: u64,
}

/// A directory that has ended.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) parent: EntryId,
    /// Whether the sink made it, or would make it in a dry run.
    pub(super) is_new: bool,
    /// What went wrong with it before it was closed.
    pub(super) failure: Option<Failure>,
}

/// The directories that have not ended.
#[derive(Debug)]
pub(super) struct Directories {
    open: EntryMap<Directory>,
    /// The bytes of the names and attributes of all of them.
    metadata_bytes: u64,
    /// Whether one of them failed, also before the sink has said how it ended.
    has_failed: bool,
}

impl Directories {
    /// Only the root is open.
    pub(super) fn new() -> Self {
        let mut directories =
            Self { open: EntryMap::default(), metadata_bytes: 0, has_failed: false };
        directories.on_found(EntryId::ROOT, EntryId::ROOT, 0);
        directories
    }

    /// The walk met a directory, which was counted in its parent already.
    pub(super) fn on_found(&mut self, directory: EntryId, parent: EntryId, metadata_bytes: u64) {
        self.metadata_bytes += metadata_bytes;
        let row = Directory {
            parent,
            pending: 0,
            is_listed: false,
            is_announced: directory == EntryId::ROOT,
            is_answered: directory == EntryId::ROOT,
            is_closing: false,
            is_new: false,
            is_incomplete: false,
            failure: None,
            metadata_bytes,
        };
        self.open.insert(directory, row);
    }

    /// The walk has met everything in it, except this many directories.
    pub(super) fn on_listed(&mut self, directory: EntryId, subdirectory_count: u64) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.pending += subdirectory_count;
            row.is_listed = true;
        }
    }

    /// The bytes of the names and attributes of all directories that have not ended.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    /// The walk met an entry in it.
    pub(super) fn on_child(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.pending += 1;
        }
    }

    /// An entry in it has ended.
    pub(super) fn on_child_ended(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.pending -= 1;
        }
    }

    /// It was announced.
    pub(super) fn on_announced(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_announced = true;
        }
    }

    /// Whether the sink may answer for it: it was announced, and is not answered yet.
    pub(super) fn may_be_answered(&self, directory: EntryId) -> bool {
        self.open.get(&directory).is_some_and(|row| row.is_announced && !row.is_answered)
    }

    /// The sink made it, or would make it in a dry run.
    pub(super) fn on_new(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_new = true;
        }
    }

    /// The sink has answered for it.
    pub(super) fn on_answered(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_answered = true;
        }
    }

    /// It failed: the walk could not list it, or the sink could not make it.
    pub(super) fn on_failed(&mut self, directory: EntryId, failure: Failure) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.failure = Some(failure);
            self.has_failed = true;
        }
    }

    /// Whether one of them failed so far.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// An entry in it failed.
    pub(super) fn on_child_failed(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_incomplete = true;
        }
    }

    /// How it ends; the sink is told this.
    pub(super) fn ending(&self, directory: EntryId) -> Ending {
        let is_incomplete = |row: &Directory| row.is_incomplete || row.failure.is_some();
        match self.open.get(&directory).is_some_and(is_incomplete) {
            true => Ending::Incomplete,
            false => Ending::Complete,
        }
    }

    /// Marks the directory as closing if it is done. Returns whether it was marked now.
    pub(super) fn start_closing_if_done(&mut self, directory: EntryId) -> bool {
        let Some(row) = self.open.get_mut(&directory) else { return false };
        let is_done = row.is_listed && row.is_answered && row.pending == 0 && !row.is_closing;
        row.is_closing |= is_done;
        is_done
    }

    /// The sink was told how a closing directory ends: the directory that it is in does not wait
    /// for it any more. Returns that one.
    pub(super) fn on_told(&mut self, directory: EntryId) -> Option<EntryId> {
        let row = self.open.get(&directory)?;
        let (parent, has_failed) = (row.parent, row.failure.is_some());
        let parent_row = self.open.get_mut(&parent)?;
        parent_row.pending -= 1;
        parent_row.is_incomplete |= has_failed;
        Some(parent)
    }

    /// The sink has finished with it. Forgets the directory, and says how it ended.
    pub(super) fn on_closed(&mut self, directory: EntryId) -> Option<Closed> {
        if !self.open.get(&directory)?.is_closing {
            return None;
        }
        let row = self.open.remove(&directory)?;
        self.metadata_bytes -= row.metadata_bytes;
        Some(Closed { parent: row.parent, is_new: row.is_new, failure: row.failure })
    }

    /// How many directories have been met and have not ended, the root included.
    pub(super) fn open_count(&self) -> u64 {
        self.open.len() as u64
    }

    /// Whether it has been met and has not ended.
    pub(super) fn is_open(&self, directory: EntryId) -> bool {
        directory != EntryId::ROOT && self.open.contains_key(&directory)
    }

    /// Whether everything has ended, and the sink has said so of every directory.
    pub(super) fn are_all_over(&self) -> bool {
        self.open.len() <= 1 && self.open.get(&EntryId::ROOT).is_none_or(|root| root.is_closing)
    }
}
