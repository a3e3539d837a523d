//! Decides what is left after a power cut.
//!
//! The directory below always holds what programs see. In addition, this module keeps the last
//! durable state: the length and metadata of each file and each page that has changed since, and
//! each change of names since, in order. A power cut restores all of that. Only what POSIX promises
//! makes something durable, which is less than most file systems do:
//!
//! - fsync of a file: its data, length and metadata; fdatasync: its data and length. Not its name.
//! - fsync of a directory: its metadata and all changes of names in it, with the earlier ones that
//!   these build on. A rename is one change, in both of its directories, and never halved.
//! - The metadata of what cannot be synced (symbolic links, devices) is durable at once; so is all
//!   that was there before the file system was mounted.
//!
//! A torn cut keeps some of what was not durable. It draws for every page, for the length of a
//! file, for its metadata, and for every change of names; if it keeps a change of names, it also
//! keeps the earlier ones that it builds on. A page that was never written, but lies within the
//! kept length, is zeros.
//!
//! An entry that loses its last name is kept in a directory of ours, the grave, so that it can be
//! restored.

use super::nodes::Node;
use super::rules::chance;
use super::snapshot::Snapshot;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ftruncate, linkat, mkdirat, openat,
    renameat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, pread, pwrite};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE_BYTES: u64 = 4096;

/// The storage: its last durable state, and whether it has power.
#[derive(Debug)]
pub(super) struct Disk {
    state: Mutex<Volatile>,
}

/// The state that a power cut restores; locked while it is changed.
#[derive(Debug)]
pub(super) struct Volatile {
    is_off: bool,
    /// The number of power cuts. Handles that were opened before a cut fail after it.
    epoch: u64,
    files: BTreeMap<u64, Before>,
    operations: Vec<Operation>,
    grave: Grave,
}

/// The last durable state of a file or directory.
#[derive(Debug)]
struct Before {
    node: Arc<Node>,
    bytes: u64,
    /// The pages that were changed since, by number; `None` if the page was beyond the end.
    pages: BTreeMap<u64, Option<Vec<u8>>>,
    snapshot: Snapshot,
}

/// One or more changes of names that become durable together.
#[derive(Debug)]
struct Operation {
    changes: Vec<Change>,
}

/// What a name in a directory meant before: the inode of this number below, or nothing.
#[derive(Debug)]
struct Change {
    directory: Arc<Node>,
    name: OsString,
    before: Option<u64>,
}

impl Change {
    fn key(&self) -> (u64, OsString) {
        (self.directory.number, self.name.clone())
    }
}

impl Disk {
    /// Opens the storage. `grave_path` is a directory of ours on the same file system; it is made
    /// if it is missing.
    pub(super) fn open(root: &Node, grave_name: &str, grave_path: PathBuf) -> Result<Self, Errno> {
        match mkdirat(root, grave_name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(root, grave_name, flags, Mode::empty())?;
        let grave = Grave { directory, path: grave_path, numbers: BTreeSet::new() };
        let volatile = Volatile {
            is_off: false,
            epoch: 0,
            files: BTreeMap::new(),
            operations: Vec::new(),
            grave,
        };
        Ok(Self { state: Mutex::new(volatile) })
    }

    /// Returns the number of power cuts so far.
    ///
    /// # Errors
    /// EIO if there is no power.
    pub(super) fn epoch(&self) -> Result<u64, Errno> {
        let state = self.any();
        if state.is_off { Err(Errno::IO) } else { Ok(state.epoch) }
    }

    /// Locks the storage in order to change it.
    ///
    /// # Errors
    /// EIO if the power was cut since `epoch`.
    pub(super) fn since(&self, epoch: u64) -> Result<MutexGuard<'_, Volatile>, Errno> {
        let state = self.any();
        if state.is_off || state.epoch != epoch { Err(Errno::IO) } else { Ok(state) }
    }

    /// Locks the storage, with or without power.
    pub(super) fn any(&self) -> MutexGuard<'_, Volatile> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Volatile {
    /// Call this before `bytes` at `offset` change, and perhaps the length.
    pub(super) fn changes_data(
        &mut self,
        node: &Arc<Node>,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        let before = self.before(node)?;
        let mut file = None;
        for page in offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES) {
            if before.pages.contains_key(&page) {
                continue;
            }
            let is_durable = page * PAGE_BYTES < before.bytes;
            let image = if is_durable {
                let file = match &file {
                    Some(file) => file,
                    None => file.insert(node.open(OFlags::RDONLY)?),
                };
                Some(page_of(file, page, before.bytes)?)
            } else {
                None
            };
            before.pages.insert(page, image);
        }
        Ok(())
    }

    /// Call this before the length becomes `bytes`.
    pub(super) fn changes_length(&mut self, node: &Arc<Node>, bytes: u64) -> Result<(), Errno> {
        let durable = self.before(node)?.bytes;
        self.changes_data(node, bytes, durable.saturating_sub(bytes))
    }

    /// Call this before owner, mode, times or extended attributes change.
    pub(super) fn changes_metadata(&mut self, node: &Arc<Node>) -> Result<(), Errno> {
        match node.file_type {
            FileType::RegularFile | FileType::Directory => self.before(node).map(drop),
            _ => Ok(()),
        }
    }

    fn before(&mut self, node: &Arc<Node>) -> Result<&mut Before, Errno> {
        match self.files.entry(node.number) {
            Entry::Occupied(before) => Ok(before.into_mut()),
            Entry::Vacant(vacant) => {
                let bytes = length_of(node)?;
                let (snapshot, pages) = (Snapshot::of(node)?, BTreeMap::new());
                Ok(vacant.insert(Before { node: Arc::clone(node), bytes, pages, snapshot }))
            }
        }
    }

    /// Makes data and length of a file durable.
    pub(super) fn sync_data(&mut self, node: &Node) -> Result<(), Errno> {
        if let Some(before) = self.files.get_mut(&node.number) {
            before.bytes = length_of(node)?;
            before.pages.clear();
        }
        Ok(())
    }

    /// Makes data, length and metadata of a file durable.
    pub(super) fn sync_file(&mut self, node: &Node) {
        self.files.remove(&node.number);
    }

    /// Makes metadata and names of a directory durable.
    pub(super) fn sync_directory(&mut self, node: &Node) -> Result<(), Errno> {
        self.files.remove(&node.number);
        let synced = self
            .split(|changes| changes.iter().any(|change| change.directory.number == node.number));
        drop(synced);
        self.tidy()
    }

    /// Makes everything durable.
    pub(super) fn sync_all(&mut self) -> Result<(), Errno> {
        self.files.clear();
        self.operations.clear();
        self.tidy()
    }

    /// Removes and returns the `chosen` operations, and the earlier ones that they build on.
    fn split(&mut self, mut chosen: impl FnMut(&[Change]) -> bool) -> Vec<Operation> {
        let mut keys = BTreeSet::new();
        let (mut out, mut left) = (Vec::new(), Vec::new());
        for operation in std::mem::take(&mut self.operations).into_iter().rev() {
            let is_built_on = operation.changes.iter().any(|change| keys.contains(&change.key()));
            if is_built_on || chosen(&operation.changes) {
                keys.extend(operation.changes.iter().map(Change::key));
                out.push(operation);
            } else {
                left.push(operation);
            }
        }
        left.reverse();
        self.operations = left;
        out
    }

    /// Records that a name was added to a directory.
    pub(super) fn added(&mut self, directory: &Arc<Node>, name: &OsStr) {
        self.push([(directory, name, None)]);
    }

    /// Removes a name.
    pub(super) fn remove(
        &mut self,
        directory: &Arc<Node>,
        name: &OsStr,
        of_directory: bool,
    ) -> Result<(), Errno> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        match (is_directory, of_directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if !is_empty(directory, name)? => return Err(Errno::NOTEMPTY),
            _ => {}
        }
        self.grave.bury(directory, name)?;
        self.push([(directory, name, Some(stat.st_ino))]);
        Ok(())
    }

    /// Renames, replaces or exchanges.
    pub(super) fn rename(
        &mut self,
        from: (&Arc<Node>, &OsStr),
        to: (&Arc<Node>, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let moved = statat(from.0, from.1, AtFlags::SYMLINK_NOFOLLOW)?;
        let there = match statat(to.0, to.1, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(errno),
        };
        if there.is_some_and(|there| there.st_ino == moved.st_ino) {
            return renameat_with(from.0, from.1, to.0, to.1, flags);
        }
        if let Some(there) = &there
            && flags.is_empty()
        {
            let is_directory = |mode| FileType::from_raw_mode(mode) == FileType::Directory;
            match (is_directory(moved.st_mode), is_directory(there.st_mode)) {
                (true, false) => return Err(Errno::NOTDIR),
                (false, true) => return Err(Errno::ISDIR),
                (true, true) if !is_empty(to.0, to.1)? => return Err(Errno::NOTEMPTY),
                (true, true) => self.grave.bury(to.0, to.1)?,
                (false, false) => self.grave.link(to.0, to.1, there.st_ino)?,
            }
        }
        renameat_with(from.0, from.1, to.0, to.1, flags)?;
        let before = there.map(|there| there.st_ino);
        self.push([(from.0, from.1, Some(moved.st_ino)), (to.0, to.1, before)]);
        Ok(())
    }

    fn push<const N: usize>(&mut self, changes: [(&Arc<Node>, &OsStr, Option<u64>); N]) {
        let changes = changes.map(|(directory, name, before)| Change {
            directory: Arc::clone(directory),
            name: name.to_owned(),
            before,
        });
        self.operations.push(Operation { changes: changes.into() });
    }

    /// Returns how many of a file's names are in the grave.
    pub(super) fn hidden_names(&self, number_below: u64) -> u32 {
        self.grave.numbers.contains(&number_below).into()
    }

    /// Loses what is not durable; with a seed, draws which part of it is kept. From now on there is
    /// no power. Returns what was lost.
    pub(super) fn cut(&mut self, tear: Option<u64>) -> Result<Lost, Errno> {
        self.is_off = true;
        self.epoch += 1;
        if let Some(seed) = tear {
            let mut number = 0;
            drop(self.split(|_| {
                number += 1;
                chance(seed, number).is_multiple_of(2)
            }));
        }
        let mut lost = Lost::default();
        while let Some(operation) = self.operations.pop() {
            self.undo(&operation)?;
            lost.names.extend(operation.changes.into_iter().map(|change| change.name));
        }
        for (number, before) in std::mem::take(&mut self.files) {
            before.restore(tear.map(|seed| chance(seed, number)))?;
            lost.files.push(before.node);
        }
        self.tidy()?;
        Ok(lost)
    }

    /// Gives the storage power again.
    pub(super) fn switch_on(&mut self) {
        self.is_off = false;
    }

    fn undo(&mut self, operation: &Operation) -> Result<(), Errno> {
        for change in &operation.changes {
            match self.grave.bury(&change.directory, &change.name) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
        for change in &operation.changes {
            if let Some(number) = change.before {
                self.grave.give_back(number, &change.directory, &change.name)?;
            }
        }
        Ok(())
    }

    /// Drops from the grave what no power cut can bring back.
    pub(super) fn tidy(&mut self) -> Result<(), Errno> {
        let changes = self.operations.iter().flat_map(|operation| &operation.changes);
        let wanted = changes.filter_map(|change| change.before).collect();
        self.grave.keep(&wanted)
    }
}

impl Before {
    /// Restores the durable state. With `tear`, draws what is kept of the changes.
    fn restore(&self, tear: Option<u64>) -> Result<(), Errno> {
        let is_kept = |what: u64| tear.is_some_and(|seed| chance(seed, what).is_multiple_of(2));
        // Numbers beyond all page numbers.
        let (of_length, of_metadata) = (u64::MAX, u64::MAX - 1);
        // Putting the data back changes the times.
        let snapshot =
            if is_kept(of_metadata) { &Snapshot::of(&self.node)? } else { &self.snapshot };
        if !self.node.is_directory() {
            let now = length_of(&self.node)?;
            let bytes = if is_kept(of_length) { now } else { self.bytes };
            self.restore_data(bytes, is_kept)?;
        }
        snapshot.restore(&self.node)
    }

    fn restore_data(&self, bytes: u64, is_kept: impl Fn(u64) -> bool) -> Result<(), Errno> {
        let file = self.node.open(OFlags::WRONLY)?;
        ftruncate(&file, bytes)?;
        for (&page, image) in &self.pages {
            let start = page * PAGE_BYTES;
            if start >= bytes || is_kept(page) {
                continue;
            }
            let length = usize::try_from(PAGE_BYTES.min(bytes - start)).expect("a page at most");
            let zeros = vec![0; length];
            let image = image.as_ref().map_or(zeros.as_slice(), |image| &image[..length]);
            write_all(&file, image, start)?;
        }
        Ok(())
    }
}

/// What a power cut took away.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// Files and directories with data or metadata that was not durable.
    pub(super) files: Vec<Arc<Node>>,
    /// Names whose last change was not durable and has been undone.
    pub(super) names: Vec<OsString>,
}

/// Keeps entries that have lost a name, each under its inode number, until that loss is durable.
#[derive(Debug)]
struct Grave {
    directory: OwnedFd,
    path: PathBuf,
    numbers: BTreeSet<u64>,
}

impl Grave {
    /// Takes a name away from an entry and keeps the entry.
    fn bury(&mut self, directory: &Node, name: &OsStr) -> Result<(), Errno> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            renameat(directory, name, &self.directory, stat.st_ino.to_string())?;
            self.numbers.insert(stat.st_ino);
            return Ok(());
        }
        self.link(directory, name, stat.st_ino)?;
        unlinkat(directory, name, AtFlags::empty())
    }

    /// Keeps the entry of a name that is about to be replaced.
    fn link(&mut self, directory: &Node, name: &OsStr, number: u64) -> Result<(), Errno> {
        if self.numbers.insert(number) {
            linkat(directory, name, &self.directory, number.to_string(), AtFlags::empty())?;
        }
        Ok(())
    }

    /// Gives a kept entry a name again.
    fn give_back(&mut self, number: u64, directory: &Node, name: &OsStr) -> Result<(), Errno> {
        let own = number.to_string();
        let stat = statat(&self.directory, own.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            self.numbers.remove(&number);
            return renameat(&self.directory, own, directory, name);
        }
        linkat(&self.directory, own, directory, name, AtFlags::empty())
    }

    /// Drops all entries except the wanted ones.
    fn keep(&mut self, wanted: &BTreeSet<u64>) -> Result<(), Errno> {
        let dropped: Vec<u64> = self.numbers.difference(wanted).copied().collect();
        for number in dropped {
            let own = number.to_string();
            let stat = statat(&self.directory, own.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                let removed = std::fs::remove_dir_all(self.path.join(own));
                removed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            } else {
                unlinkat(&self.directory, own, AtFlags::empty())?;
            }
            self.numbers.remove(&number);
        }
        Ok(())
    }
}

fn length_of(node: &Node) -> Result<u64, Errno> {
    Ok(u64::try_from(node.stat()?.st_size).unwrap_or(0))
}

fn is_empty(directory: &Node, name: &OsStr) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut names = Dir::new(openat(directory, name, flags, Mode::empty())?)?;
    Ok(names.all(|entry| entry.is_ok_and(|entry| [c".", c".."].contains(&entry.file_name()))))
}

/// Returns a page as it is now, with zeros beyond the end.
fn page_of(file: &OwnedFd, page: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
    let start = page * PAGE_BYTES;
    let length = usize::try_from(PAGE_BYTES.min(bytes - start)).expect("a page at most");
    let mut image = vec![0; 4096];
    let mut filled = 0;
    while filled < length {
        match pread(file, &mut image[filled..length], start + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(image)
}

/// Writes all bytes.
pub(super) fn write_all(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut written = 0;
    while written < bytes.len() {
        written += pwrite(file, &bytes[written..], offset + written as u64)?;
    }
    Ok(())
}
