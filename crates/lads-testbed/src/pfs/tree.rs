//! The names in the emulated file system, and their inodes.
//!
//! All of it is in memory and follows POSIX. The kernel checks permissions (mount option
//! `default_permissions`). Inode numbers are never reused.

use super::file::FileBody;
use lads_core::lov::Lov;
use rustix::fs::{FileType, Mode};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The number of the root directory.
pub(super) const ROOT: u64 = 1;

const NAME_BYTES_MAX: usize = 255;

/// The permission bits, with set-user-id and the like.
const MODE_BITS: u32 = 0o7777;

/// All names and inodes.
pub(super) struct Tree {
    inodes: HashMap<u64, Inode>,
    last_number: u64,
}

/// An inode: what a name stands for.
pub(super) struct Inode {
    /// What it is.
    pub(super) kind: Kind,
    /// The metadata that all kinds have.
    pub(super) metadata: Metadata,
    /// The extended attributes, except those of the layout.
    pub(super) attributes: BTreeMap<OsString, Vec<u8>>,
    /// How many times the kernel was told its number and has not yet forgotten it.
    lookups: u64,
}

/// Metadata that all kinds have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metadata {
    /// Permission bits.
    pub(super) mode: u32,
    /// Owner.
    pub(super) uid: u32,
    /// Group.
    pub(super) gid: u32,
    /// The device number, if it is a device.
    pub(super) device: u32,
    /// The number of its names.
    pub(super) links: u32,
    /// The time of the last access; it changes only when it is set.
    pub(super) accessed: SystemTime,
    /// The time of the last change of its contents.
    pub(super) modified: SystemTime,
    /// The time of the last change of anything.
    pub(super) changed: SystemTime,
}

/// The kinds of inode.
pub(super) enum Kind {
    /// A directory.
    Directory(Directory),
    /// A regular file.
    File(Arc<FileBody>),
    /// A symbolic link.
    Link(PathBuf),
    /// A FIFO, socket or device.
    Special(FileType),
}

/// What a directory holds.
pub(super) struct Directory {
    parent: u64,
    /// The inode of each name, and its place in `order`.
    names: HashMap<OsString, (u64, u64)>,
    /// The names in the order in which they were made, so that a listing neither repeats nor misses
    /// a name while others change.
    order: BTreeMap<u64, OsString>,
    last_place: u64,
    /// The layout of new files in it.
    pub(super) template: Arc<Lov>,
}

/// A name to be made.
pub(super) struct NewName<'a> {
    /// The directory.
    pub(super) parent: u64,
    /// The name in it.
    pub(super) name: &'a OsStr,
}

/// The user who makes something, and the permission bits for it.
#[derive(Clone, Copy)]
pub(super) struct Maker {
    /// The owner.
    pub(super) uid: u32,
    /// The group, unless the directory passes on its own.
    pub(super) gid: u32,
    /// The permission bits.
    pub(super) mode: u32,
    /// The device number, if it is a device.
    pub(super) device: u32,
}

/// How to rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renaming {
    /// An entry that has the new name is replaced.
    Replace,
    /// No entry may have the new name.
    New,
    /// The two entries change places.
    Exchange,
}

impl Tree {
    /// Makes a tree with an empty root directory.
    pub(super) fn new(template: Arc<Lov>, maker: Maker, now: SystemTime) -> Self {
        let kind = Kind::Directory(Directory::new(ROOT, template));
        let root = Inode::new(kind, maker, now);
        Self { inodes: HashMap::from([(ROOT, root)]), last_number: ROOT }
    }

    /// Returns the inode with this number.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub(super) fn inode(&self, number: u64) -> Result<&Inode, Errno> {
        self.inodes.get(&number).ok_or(Errno::STALE)
    }

    /// Returns the inode with this number, to change it.
    ///
    /// # Errors
    /// `ESTALE` if there is none.
    pub(super) fn inode_mut(&mut self, number: u64) -> Result<&mut Inode, Errno> {
        self.inodes.get_mut(&number).ok_or(Errno::STALE)
    }

    /// Returns the number of inodes.
    pub(super) fn inode_count(&self) -> usize {
        self.inodes.len()
    }

    /// Returns the inode number of a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`.
    pub(super) fn find(&self, parent: u64, name: &OsStr) -> Result<u64, Errno> {
        check_name(name)?;
        let names = &self.directory(parent)?.names;
        names.get(name).map(|(number, _)| *number).ok_or(Errno::NOENT)
    }

    /// Makes a new inode; `kind` is called with its number. Returns that number.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` if the directory has been removed, `ENOTDIR`, `ENAMETOOLONG`.
    pub(super) fn make(
        &mut self,
        at: &NewName<'_>,
        mut maker: Maker,
        now: SystemTime,
        kind: impl FnOnce(u64, &Arc<Lov>) -> Kind,
    ) -> Result<u64, Errno> {
        self.check_free(at)?;
        let parent = self.inode(at.parent)?.metadata;
        let number = self.last_number + 1;
        let kind = kind(number, &self.directory(at.parent)?.template);
        let is_directory = matches!(kind, Kind::Directory(_));
        if parent.mode & Mode::SGID.bits() != 0 {
            maker.gid = parent.gid;
            maker.mode |= if is_directory { Mode::SGID.bits() } else { 0 };
        }
        self.last_number = number;
        self.inodes.insert(number, Inode::new(kind, maker, now));
        self.attach(at, number, now)?;
        Ok(number)
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// Those of [`Self::make`], and `EPERM` for a directory.
    pub(super) fn link(
        &mut self,
        number: u64,
        at: &NewName<'_>,
        now: SystemTime,
    ) -> Result<(), Errno> {
        self.check_free(at)?;
        let inode = self.inode_mut(number)?;
        if let Kind::Directory(_) = inode.kind {
            return Err(Errno::PERM);
        }
        inode.metadata.links += 1;
        inode.metadata.changed = now;
        self.attach(at, number, now)
    }

    /// Removes a name of an inode that is not a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`.
    pub(super) fn unlink(
        &mut self,
        parent: u64,
        name: &OsStr,
        now: SystemTime,
    ) -> Result<(), Errno> {
        let number = self.find(parent, name)?;
        if let Kind::Directory(_) = self.inode(number)?.kind {
            return Err(Errno::ISDIR);
        }
        self.detach(parent, name, now)?;
        self.drop_name(number, now);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub(super) fn rmdir(
        &mut self,
        parent: u64,
        name: &OsStr,
        now: SystemTime,
    ) -> Result<(), Errno> {
        let number = self.find(parent, name)?;
        if !self.directory(number)?.names.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        self.detach(parent, name, now)?;
        self.drop_name(number, now);
        Ok(())
    }

    /// Renames an entry.
    ///
    /// # Errors
    /// Those of `renameat2`.
    pub(super) fn rename(
        &mut self,
        from: &NewName<'_>,
        to: &NewName<'_>,
        how: Renaming,
        now: SystemTime,
    ) -> Result<(), Errno> {
        let moved = self.find(from.parent, from.name)?;
        let replaced = match self.find(to.parent, to.name) {
            Ok(_) if how == Renaming::New => return Err(Errno::EXIST),
            Err(error) if how == Renaming::Exchange => return Err(error),
            Ok(number) => Some(number),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        if replaced == Some(moved) {
            return Ok(());
        }
        self.check_not_below(to.parent, moved)?;
        self.check_alive(to.parent)?;
        match replaced {
            Some(number) if how == Renaming::Exchange => {
                self.check_not_below(from.parent, number)?;
                self.detach(from.parent, from.name, now)?;
                self.detach(to.parent, to.name, now)?;
                self.attach(from, number, now)?;
                self.inode_mut(number)?.metadata.changed = now;
            }
            Some(number) => {
                self.check_replaceable(moved, number)?;
                self.detach(to.parent, to.name, now)?;
                self.drop_name(number, now);
                self.detach(from.parent, from.name, now)?;
            }
            None => self.detach(from.parent, from.name, now)?,
        }
        self.attach(to, moved, now)?;
        self.inode_mut(moved)?.metadata.changed = now;
        Ok(())
    }

    /// Returns the names of a directory that come after a place in it, with their numbers and
    /// places.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub(super) fn list(
        &self,
        number: u64,
        after: u64,
    ) -> Result<impl Iterator<Item = (u64, &OsStr, u64)>, Errno> {
        let directory = self.directory(number)?;
        Ok(directory.order.range(after + 1..).map(|(place, name)| {
            let (inode, _) = directory.names[name.as_os_str()];
            (*place, name.as_os_str(), inode)
        }))
    }

    /// Returns the parent of a directory.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub(super) fn parent(&self, number: u64) -> Result<u64, Errno> {
        self.directory(number).map(|it| it.parent)
    }

    /// Counts that the kernel was told a number.
    pub(super) fn remember(&mut self, number: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.lookups += 1;
        }
    }

    /// Counts that the kernel has forgotten a number that it was told this many times.
    pub(super) fn forget(&mut self, number: u64, lookups: u64) {
        if let Some(inode) = self.inodes.get_mut(&number) {
            inode.lookups = inode.lookups.saturating_sub(lookups);
        }
        self.remove_if_unused(number);
    }

    fn directory(&self, number: u64) -> Result<&Directory, Errno> {
        match &self.inode(number)?.kind {
            Kind::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn directory_mut(&mut self, number: u64) -> Result<(&mut Directory, &mut Metadata), Errno> {
        let inode = self.inode_mut(number)?;
        match &mut inode.kind {
            Kind::Directory(directory) => Ok((directory, &mut inode.metadata)),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn check_free(&self, at: &NewName<'_>) -> Result<(), Errno> {
        match self.find(at.parent, at.name) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => self.check_alive(at.parent),
            Err(error) => Err(error),
        }
    }

    /// Checks that a directory has not been removed, because nothing can be made in it then.
    fn check_alive(&self, directory: u64) -> Result<(), Errno> {
        match self.inode(directory)?.metadata.links {
            0 => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }

    /// Checks that a directory is not moved below itself.
    fn check_not_below(&self, mut directory: u64, moved: u64) -> Result<(), Errno> {
        while directory != ROOT {
            if directory == moved {
                return Err(Errno::INVAL);
            }
            directory = self.parent(directory)?;
        }
        Ok(())
    }

    fn check_replaceable(&self, moved: u64, replaced: u64) -> Result<(), Errno> {
        let is_directory = matches!(self.inode(moved)?.kind, Kind::Directory(_));
        match &self.inode(replaced)?.kind {
            Kind::Directory(_) if !is_directory => Err(Errno::ISDIR),
            Kind::Directory(it) if !it.names.is_empty() => Err(Errno::NOTEMPTY),
            Kind::Directory(_) => Ok(()),
            _ if is_directory => Err(Errno::NOTDIR),
            _ => Ok(()),
        }
    }

    /// Adds a name to a directory.
    fn attach(&mut self, at: &NewName<'_>, number: u64, now: SystemTime) -> Result<(), Errno> {
        let is_directory = matches!(self.inode(number)?.kind, Kind::Directory(_));
        let (directory, metadata) = self.directory_mut(at.parent)?;
        directory.last_place += 1;
        let place = directory.last_place;
        directory.names.insert(at.name.to_owned(), (number, place));
        directory.order.insert(place, at.name.to_owned());
        metadata.on_entries_changed(now);
        if is_directory {
            metadata.links += 1;
            self.directory_mut(number)?.0.parent = at.parent;
        }
        Ok(())
    }

    /// Removes a name from a directory.
    fn detach(&mut self, parent: u64, name: &OsStr, now: SystemTime) -> Result<(), Errno> {
        let (directory, metadata) = self.directory_mut(parent)?;
        let (number, place) = directory.names.remove(name).ok_or(Errno::NOENT)?;
        directory.order.remove(&place);
        metadata.on_entries_changed(now);
        if let Kind::Directory(_) = self.inode(number)?.kind {
            self.directory_mut(parent)?.1.links -= 1;
        }
        Ok(())
    }

    /// Counts that an inode has lost a name.
    fn drop_name(&mut self, number: u64, now: SystemTime) {
        let Some(inode) = self.inodes.get_mut(&number) else { return };
        inode.metadata.changed = now;
        inode.metadata.links = match inode.kind {
            Kind::Directory(_) => 0,
            _ => inode.metadata.links - 1,
        };
        if let (0, Kind::File(file)) = (inode.metadata.links, &inode.kind) {
            file.on_unlinked();
        }
        self.remove_if_unused(number);
    }

    fn remove_if_unused(&mut self, number: u64) {
        let is_unused = |it: &Inode| it.lookups == 0 && it.metadata.links == 0;
        if self.inodes.get(&number).is_some_and(is_unused) {
            self.inodes.remove(&number);
        }
    }
}

impl Inode {
    fn new(kind: Kind, maker: Maker, now: SystemTime) -> Self {
        // A directory has a second name: its own `.`.
        let links = if matches!(kind, Kind::Directory(_)) { 2 } else { 1 };
        let metadata = Metadata {
            mode: maker.mode & MODE_BITS,
            uid: maker.uid,
            gid: maker.gid,
            device: maker.device,
            links,
            accessed: now,
            modified: now,
            changed: now,
        };
        Self { kind, metadata, attributes: BTreeMap::new(), lookups: 0 }
    }

    /// Returns the file type.
    pub(super) fn file_type(&self) -> FileType {
        match &self.kind {
            Kind::Directory(_) => FileType::Directory,
            Kind::File(_) => FileType::RegularFile,
            Kind::Link(_) => FileType::Symlink,
            Kind::Special(file_type) => *file_type,
        }
    }
}

impl Metadata {
    /// Updates the times of a directory in which a name was made or removed.
    fn on_entries_changed(&mut self, now: SystemTime) {
        self.modified = now;
        self.changed = now;
    }

    /// Clears the set-id bits, which give rights to those who run the file. POSIX wants this when
    /// another user writes to the file, or when its owner changes.
    pub(super) fn drop_privileges(&mut self) {
        self.mode &= !Mode::SUID.bits();
        // Without the execute bit, this bit has another meaning (mandatory locks).
        if self.mode & Mode::XGRP.bits() != 0 {
            self.mode &= !Mode::SGID.bits();
        }
    }
}

impl Directory {
    /// Makes an empty directory.
    pub(super) fn new(parent: u64, template: Arc<Lov>) -> Self {
        let names = HashMap::new();
        Self { parent, names, order: BTreeMap::new(), last_place: FIRST_PLACE, template }
    }
}

/// The places of `.` and `..` come before this one.
const FIRST_PLACE: u64 = 2;

fn check_name(name: &OsStr) -> Result<(), Errno> {
    if name.len() > NAME_BYTES_MAX { Err(Errno::NAMETOOLONG) } else { Ok(()) }
}
