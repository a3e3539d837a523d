//! When a directory is done: the walk is through with it, and everything in it has ended.
//!
//! Only directories that have not ended are kept, and the walk waits when they are many
//! (`SourceConfig::window_directories`), so memory follows the window, not the tree.

use crate::issue::Failure;
use crate::message::Ending;
use crate::units::EntryId;
use std::collections::HashMap;

#[derive(Debug)]
struct Directory {
    parent: EntryId,
    /// Entries in it that have not ended, directories that the walk still has to come to included.
    pending: u64,
    is_listed: bool,
    /// Whether it was handed out to be announced: the sink may speak of it.
    is_announced: bool,
    /// Whether the sink has said what became of it.
    is_answered: bool,
    is_closing: bool,
    /// Whether the sink made it, or would.
    is_new: bool,
    /// Whether something in it failed, and may never have been announced.
    is_incomplete: bool,
    failure: Option<Failure>,
    /// Its name and attributes, in bytes.
    metadata_bytes: u64,
}

/// A directory that has ended.
#[derive(Debug)]
pub(super) struct Closed {
    pub(super) parent: EntryId,
    /// Whether the sink made it, or would.
    pub(super) is_new: bool,
    /// What went wrong with it before it was closed.
    pub(super) failure: Option<Failure>,
}

/// The directories that have not ended.
#[derive(Debug)]
pub(super) struct Directories {
    open: HashMap<EntryId, Directory>,
    /// Names and attributes of all of them, in bytes.
    metadata_bytes: u64,
}

impl Directories {
    /// With the root open.
    pub(super) fn new() -> Self {
        let mut directories = Self { open: HashMap::new(), metadata_bytes: 0 };
        directories.on_found(EntryId::ROOT, EntryId::ROOT, 0);
        directories
    }

    /// The walk met a directory, which its parent has counted already.
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

    /// All that is in it has been met but for this many directories.
    pub(super) fn on_listed(&mut self, directory: EntryId, subdirectory_count: u64) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.pending += subdirectory_count;
            row.is_listed = true;
        }
    }

    /// Names and attributes of those that have not ended, in bytes.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    /// Something in it was met.
    pub(super) fn on_child(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.pending += 1;
        }
    }

    /// Something in it has ended.
    pub(super) fn on_child_ended(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.pending -= 1;
        }
    }

    /// It was handed out to be announced.
    pub(super) fn on_announced(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_announced = true;
        }
    }

    /// Whether the sink may say what became of it: it knows of it, and has not said so.
    pub(super) fn may_be_answered(&self, directory: EntryId) -> bool {
        self.open.get(&directory).is_some_and(|row| row.is_announced && !row.is_answered)
    }

    /// The sink made it, or would.
    pub(super) fn on_new(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_new = true;
        }
    }

    /// The sink has made it, or could not.
    pub(super) fn on_answered(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_answered = true;
        }
    }

    /// Something went wrong with it: the walk could not list it, or the sink not make it.
    pub(super) fn on_failed(&mut self, directory: EntryId, failure: Failure) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.failure = Some(failure);
        }
    }

    /// Something in it failed.
    pub(super) fn on_child_failed(&mut self, directory: EntryId) {
        if let Some(row) = self.open.get_mut(&directory) {
            row.is_incomplete = true;
        }
    }

    /// How it ends, as the sink is told.
    pub(super) fn ending(&self, directory: EntryId) -> Ending {
        let is_incomplete = |row: &Directory| row.is_incomplete || row.failure.is_some();
        match self.open.get(&directory).is_some_and(is_incomplete) {
            true => Ending::Incomplete,
            false => Ending::Complete,
        }
    }

    /// Whether it is done and was not before.
    pub(super) fn start_closing_if_done(&mut self, directory: EntryId) -> bool {
        let Some(row) = self.open.get_mut(&directory) else { return false };
        let is_done = row.is_listed && row.is_answered && row.pending == 0 && !row.is_closing;
        row.is_closing |= is_done;
        is_done
    }

    /// The sink is through with it.
    pub(super) fn on_closed(&mut self, directory: EntryId) -> Option<Closed> {
        if !self.open.get(&directory)?.is_closing {
            return None;
        }
        let row = self.open.remove(&directory)?;
        self.metadata_bytes -= row.metadata_bytes;
        Some(Closed { parent: row.parent, is_new: row.is_new, failure: row.failure })
    }

    /// How many have been met and have not ended, the root included.
    pub(super) fn open_count(&self) -> u64 {
        self.open.len() as u64
    }

    /// Whether it has been met and has not ended.
    pub(super) fn is_open(&self, directory: EntryId) -> bool {
        directory != EntryId::ROOT && self.open.contains_key(&directory)
    }

    /// Whether everything has ended.
    pub(super) fn is_root_closed(&self) -> bool {
        self.open.get(&EntryId::ROOT).is_none_or(|root| root.is_closing)
    }
}
