//! What the source keeps of an entry until it has ended: where it is, and its open file.

use crate::paths::Directory;
use lads_core::entry::Identity;
use lads_core::source::LinkName;
use lads_core::units::EntryId;
use rustix::fd::OwnedFd;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An entry that has not ended.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) directory: Arc<Directory>,
    pub(super) parent: EntryId,
    pub(super) name: Vec<u8>,
    /// What a file must still be when it is read.
    pub(super) identity: Option<Identity>,
    pub(super) link: Option<LinkName>,
    /// Open while blocks of it are read, if it has several.
    pub(super) file: Mutex<Option<Arc<OpenFile>>>,
}

/// A file open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) handle: OwnedFd,
    /// Whether it is read past the page cache.
    pub(super) is_direct: bool,
}

impl Item {
    /// Its path below the root.
    pub(super) fn path(&self) -> Vec<u8> {
        self.directory.path_of(&self.name)
    }
}

/// The entries that have not ended, by number.
#[derive(Debug)]
pub(super) struct Table {
    items: Mutex<HashMap<EntryId, Arc<Item>>>,
    next: AtomicU64,
}

impl Default for Table {
    fn default() -> Self {
        Self { items: Mutex::default(), next: AtomicU64::new(EntryId::ROOT.0 + 1) }
    }
}

impl Table {
    /// A number that no entry has had.
    pub(super) fn new_id(&self) -> EntryId {
        EntryId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    pub(super) fn insert(&self, items: impl IntoIterator<Item = (EntryId, Arc<Item>)>) {
        self.lock().extend(items);
    }

    pub(super) fn get(&self, entry: EntryId) -> Option<Arc<Item>> {
        self.lock().get(&entry).cloned()
    }

    pub(super) fn remove(&self, entry: EntryId) -> Option<Arc<Item>> {
        self.lock().remove(&entry)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EntryId, Arc<Item>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
