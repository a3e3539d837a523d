//! What the sink keeps of an entry until it has ended: its place, its metadata, its open file.

use super::comparison::There;
use super::growing::Growing;
use crate::board::lock;
use crate::caching::Caching;
use crate::journal::Claim;
use crate::metadata::Permitted;
use crate::paths::{Directory, Making};
use crate::setup::open_files_max;
use lads_core::entry::UNSIZED_BYTES;
use lads_core::entry::{Entry, Identity, Kind, Metadata, is_own_name, is_safe_name};
use lads_core::gate::ProtocolError;
use lads_core::placement::Striping;
use lads_core::reduction::Reductions;
use lads_core::units::{EntryId, EntryMap};
use rustix::fs::Stat;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// An entry that has not ended.
#[derive(Debug)]
pub(super) struct Item {
    /// The directory that it lies in; `None` if that is not known, because it failed.
    pub(super) directory: Option<Arc<Directory>>,
    /// The number of that directory.
    pub(super) parent: EntryId,
    pub(super) name: Vec<u8>,
    /// What it gets of the metadata that the source says.
    pub(super) metadata: Metadata,
    /// The kinds of metadata that it does not get.
    reductions: Mutex<Reductions>,
    pub(super) identity: Option<Identity>,
    /// Mode and file type of the entry that was under its name when it was looked at.
    pub(super) replaces: OnceLock<u32>,
    /// Whether a directory had its name, which is removed before it gets its name.
    pub(super) replaces_directory: OnceLock<()>,
    /// Whether an earlier comparison has shown that it is different.
    pub(super) is_known_different: bool,
    /// Whether all its bytes are data, none a hole.
    pub(super) is_dense: bool,
    /// How it is striped at the source.
    pub(super) striping: Striping,
    /// If its temporary file grows: how far it has grown.
    pub(super) growing: OnceLock<Growing>,
    /// If it is a directory: the directory.
    pub(super) own: Option<Arc<Directory>>,
    /// Whether blocks that an earlier attempt left in its temporary file count as done.
    pub(super) goes_on: OnceLock<()>,
    /// Whether it was told that it failed: a directory may fail when it is made and when it is
    /// closed, and counts once.
    pub(super) has_failed: OnceLock<()>,
    /// The file that its blocks are written to, under a temporary name.
    pub(super) temporary: Mutex<FileState>,
    /// What is there already and is compared, if it is.
    pub(super) compared: OnceLock<There>,
    /// Whether a difference was told.
    pub(super) is_different: OnceLock<()>,
    /// The name of the temporary file, which no other entry has meanwhile.
    pub(super) claim: Mutex<Option<Claim>>,
}

/// Where an entry's blocks are written to.
#[derive(Debug, Default)]
pub(super) enum FileState {
    /// Not made yet.
    #[default]
    Unopened,
    /// A file under a temporary name that was made to see where the file system puts it; open if
    /// few are.
    Made(Option<KeptOpen>),
    /// A file under a temporary name.
    Open(Arc<Temporary>),
    /// Nowhere: it was dropped while a write was about to begin. It must not be made again, for
    /// the name may be that of another entry by now.
    Dropped,
}

impl FileState {
    /// The file was made, unless the entry was dropped meanwhile.
    pub(super) fn on_made(&mut self, kept: Option<KeptOpen>) {
        if let Self::Unopened = self {
            *self = Self::Made(kept);
        }
    }

    /// Drops the file and returns its last state. Only writes that have begun go on.
    pub(super) fn end(&mut self) -> Self {
        std::mem::replace(self, Self::Dropped)
    }
}

/// New files that are kept open until their data comes, for which they would have to be opened
/// again.
#[derive(Debug)]
pub(super) struct KeptFiles {
    /// Each kept file holds a reference, and so does this.
    one_of: Arc<()>,
    max: usize,
}

/// One of [`KeptFiles`].
#[derive(Debug)]
pub(super) struct KeptOpen {
    pub(super) file: OwnedFd,
    _one_of: Arc<()>,
}

impl Default for KeptFiles {
    /// Half the number of files that are being moved. Those may be open twice, but seldom are.
    fn default() -> Self {
        Self { one_of: Arc::default(), max: open_files_max() as usize / 2 }
    }
}

impl KeptFiles {
    /// Keeps a file open, if not too many are. With several threads, it may be a few more.
    pub(super) fn keep(&self, file: OwnedFd) -> Option<KeptOpen> {
        let is_room = Arc::strong_count(&self.one_of) <= self.max;
        is_room.then(|| KeptOpen { file, _one_of: Arc::clone(&self.one_of) })
    }
}

/// A file that has not got its own name yet.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) directory: Arc<OwnedFd>,
    /// Its temporary name; `unnamed.rs` says which files have none.
    pub(super) name: Option<String>,
    pub(super) file: OwnedFd,
    /// Its status when it was opened. Its inode, owner and mode stay what they were until it gets
    /// its metadata, and a file system may have to be asked for them again after a write.
    pub(super) opened_as: Stat,
    /// How it is written. It is open once only: a file that is open for the cache beside direct
    /// writes has its writers wait for each other (FUSE).
    pub(super) caching: Caching,
}

impl Item {
    /// Whether its length is not known before its end.
    pub(super) fn is_unsized(&self) -> bool {
        self.identity.is_some_and(|identity| identity.size == UNSIZED_BYTES) && self.is_dense
    }

    /// Whether it is a file, which has data.
    pub(super) fn has_data(&self) -> bool {
        self.identity.is_some()
    }

    /// Its length in bytes; zero if it is not known.
    pub(super) fn known_size(&self) -> u64 {
        let size = self.identity.map_or(0, |identity| identity.size);
        if self.is_unsized() { 0 } else { size }
    }

    /// Records kinds of metadata that it does not get.
    pub(super) fn reduce(&self, reductions: Reductions) {
        if !reductions.is_empty() {
            lock(&self.reductions).extend(reductions);
        }
    }

    /// Returns the kinds of metadata that it does not get.
    pub(super) fn reductions(&self) -> Reductions {
        *lock(&self.reductions)
    }

    /// Its path below the root.
    pub(super) fn path(&self) -> Vec<u8> {
        self.directory.as_ref().map_or_else(Vec::new, |directory| directory.path_of(&self.name))
    }
}

/// The entries that have not ended, by number.
#[derive(Debug, Default)]
pub(super) struct Table {
    items: Mutex<EntryMap<Arc<Item>>>,
}

impl Table {
    /// Adds an entry under this name. The gate has checked the name and the number. Both keep
    /// threads inside the target, so they are checked here once more.
    ///
    /// # Errors
    /// If the name leads elsewhere, or the number is that of an entry that has not ended.
    pub(super) fn insert(
        &self,
        entry: &Entry,
        name: Vec<u8>,
        permitted: Permitted,
        root: &Arc<Directory>,
        making: Making,
    ) -> Result<(), ProtocolError> {
        if !is_safe_name(&name, entry.parent) {
            return Err(ProtocolError::UnsafeName);
        }
        let mut items = self.lock();
        if items.contains_key(&entry.id) {
            return Err(ProtocolError::OutOfPlace("NEW_FILE with a number in use"));
        }
        let directory = if entry.parent == EntryId::ROOT {
            Some(Arc::clone(root))
        } else {
            items.get(&entry.parent).and_then(|parent| parent.own.clone())
        };
        let is_root_itself = entry.parent == EntryId::ROOT && name == b".";
        let own = match &directory {
            Some(directory) if entry.is_directory() && is_root_itself => {
                Some(Arc::clone(directory))
            }
            Some(directory) if entry.is_directory() && !is_own_name(&name) => {
                Some(directory.child(&name, making))
            }
            _ => None,
        };
        let (identity, is_dense, striping) = match entry.kind {
            Kind::File { identity, data_bytes, striping, .. } => {
                (Some(identity), data_bytes == identity.size, striping)
            }
            _ => (None, false, Striping::default()),
        };
        let item = Item {
            directory,
            parent: entry.parent,
            name,
            metadata: permitted.metadata,
            reductions: Mutex::new(permitted.reductions),
            identity,
            replaces: OnceLock::new(),
            replaces_directory: OnceLock::new(),
            is_known_different: matches!(entry.kind, Kind::File { is_different: true, .. }),
            is_dense,
            striping,
            growing: OnceLock::new(),
            own,
            goes_on: OnceLock::new(),
            has_failed: OnceLock::new(),
            temporary: Mutex::default(),
            compared: OnceLock::new(),
            is_different: OnceLock::new(),
            claim: Mutex::default(),
        };
        items.insert(entry.id, Arc::new(item));
        Ok(())
    }

    pub(super) fn get(&self, entry: EntryId) -> Option<Arc<Item>> {
        self.lock().get(&entry).cloned()
    }

    pub(super) fn remove(&self, entry: EntryId) -> Option<Arc<Item>> {
        self.lock().remove(&entry)
    }

    /// Removes and returns all entries that have not ended.
    pub(super) fn take_all(&self) -> Vec<Arc<Item>> {
        self.lock().drain().map(|(_, item)| item).collect()
    }

    fn lock(&self) -> MutexGuard<'_, EntryMap<Arc<Item>>> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_new_files_are_kept_open_until_each_is_let_go() {
        let files = KeptFiles { one_of: Arc::default(), max: 2 };
        let open = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let (first, second) = (files.keep(open()), files.keep(open()));
        assert!(first.is_some() && second.is_some());
        assert!(files.keep(open()).is_none());
        drop(first);
        assert!(files.keep(open()).is_some());
    }
}
