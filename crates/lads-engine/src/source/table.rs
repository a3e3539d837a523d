//! What the source keeps of an entry until the entry has ended: its place, and its open file.

use super::holes::RangeShare;
use super::input::Input;
use crate::caching::Caching;
use crate::layout::Mirror;
use crate::paths::Directory;
use lads_core::entry::Identity;
use lads_core::source::LinkName;
use lads_core::units::{EntryId, EntryMap};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An entry that has not ended.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) directory: Arc<Directory>,
    pub(super) parent: EntryId,
    pub(super) name: Vec<u8>,
    /// What the file must still be when it is read, or removed.
    pub(super) identity: Option<Identity>,
    /// Whether the name is a symbolic link, and the file it leads to is copied.
    pub(super) is_followed: bool,
    pub(super) link: Option<LinkName>,
    /// The open file, while blocks of it are read; only if it has several blocks.
    pub(super) file: Mutex<Option<Arc<OpenFile>>>,
    /// Whether a thread has begun to check that the file is the same after all of it was read: what
    /// is read from then on is checked block by block.
    pub(super) is_checked: AtomicBool,
    /// The same for each copy, if the file has several.
    pub(super) mirrors: Vec<OpenMirror>,
    /// The open file, if its size is not what its status says.
    pub(super) input: Mutex<Option<Arc<Input>>>,
    /// Whether a read has met the end of the file before the size that its status says.
    pub(super) is_shorter: AtomicBool,
    /// The memory that is reserved for the ranges of a file with holes.
    pub(super) ranges: Option<RangeShare>,
}

/// A copy of a file, open while blocks of it are read.
#[derive(Debug)]
pub(super) struct OpenMirror {
    pub(super) number: u16,
    pub(super) file: Mutex<Option<Arc<OpenFile>>>,
}

/// A file open for reading.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) handle: OwnedFd,
    pub(super) caching: Caching,
}

impl Item {
    /// An entry of which only its place is known.
    pub(super) fn new(directory: Arc<Directory>, parent: EntryId, name: Vec<u8>) -> Self {
        Self {
            directory,
            parent,
            name,
            identity: None,
            is_followed: false,
            link: None,
            file: Mutex::default(),
            is_checked: AtomicBool::default(),
            mirrors: Vec::new(),
            input: Mutex::default(),
            is_shorter: AtomicBool::default(),
            ranges: None,
        }
    }

    /// The copies of a file, none of them open.
    pub(super) fn mirrors_of(mirrors: &[Mirror]) -> Vec<OpenMirror> {
        let open = |it: &Mirror| OpenMirror { number: it.number, file: Mutex::default() };
        mirrors.iter().map(open).collect()
    }

    /// The number of the copy to read from, if one is to be chosen; and the open file of that copy.
    pub(super) fn copy(&self, mirror: u16) -> (Option<u16>, &Mutex<Option<Arc<OpenFile>>>) {
        match self.mirrors.get(usize::from(mirror)) {
            Some(it) => (Some(it.number), &it.file),
            None => (None, &self.file),
        }
    }

    /// Takes out an open file, of whichever copy; drops all others.
    pub(super) fn take_file(&self) -> Option<Arc<OpenFile>> {
        let mirrors = self.mirrors.iter().map(|it| &it.file);
        let files = iter::once(&self.file).chain(mirrors);
        files.filter_map(|it| it.lock().unwrap_or_else(PoisonError::into_inner).take()).last()
    }

    /// Returns the flags for opening the file to read it.
    pub(super) fn open_flags(&self) -> OFlags {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if self.is_followed { flags } else { flags | OFlags::NOFOLLOW }
    }

    /// Its path below the root.
    pub(super) fn path(&self) -> Vec<u8> {
        self.directory.path_of(&self.name)
    }
}

/// The entries that have not ended, by number.
#[derive(Debug)]
pub(super) struct Table {
    items: Mutex<EntryMap<Arc<Item>>>,
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

    fn lock(&self) -> MutexGuard<'_, EntryMap<Arc<Item>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
