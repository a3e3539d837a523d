//! Finds and removes what killed transfers left in a tree: unfinished files and journals that no
//! running transfer owns.
//!
//! The name of an unfinished file shows that it is one, but not which transfer it belongs to. Only
//! the journal knows that, and it lies in the same directory or in one above. While a transfer
//! runs, its journal is locked. So a file is removed if, after the file was seen, no journal in its
//! directory or above is in use. Journals that are not in use are locked meanwhile, or removed
//! before the files: a command that goes on with such a journal would give its files the same names
//! again. A command that starts over uses new names.
//!
//! Nothing is opened but directories and journals, and no link is followed. An entry with such a
//! name that is not a regular file of ours with a single name is left and reported.

use crate::journal::{Leftover, look_at_journal};
use crate::metadata::{Handle, make_usable};
use crate::paths::{Directory, Making, NOT_THROUGH_LINKS, open_named};
use lads_core::entry::{is_journal_name, is_own_name};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, Stat, accessat, fstat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A file that was found under one of LADS's own names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Its path below the directory that was named.
    pub path: Vec<u8>,
    /// Its length in bytes.
    pub bytes: u64,
    /// `Ok` if it was removed, or would be in a dry run; otherwise why it was left.
    pub outcome: Result<(), Kept>,
}

/// Why a file was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A running transfer may own it.
    InUse,
    /// It is not from LADS; the text says in what it differs.
    NotOurs(String),
    /// A system call failed; the text says how.
    Failed(String),
}

/// Looks for what killed transfers left in a tree, reports each file, and removes it unless
/// `is_dry_run`.
///
/// # Errors
/// If the directory cannot be opened. Directories below it that cannot be listed are reported.
pub fn clean(
    directory: &[u8],
    is_dry_run: bool,
    tell: &mut dyn FnMut(Remains),
) -> std::io::Result<()> {
    let root = open_named(directory)?;
    let above = Above::of(&root)?;
    let mut cleaning = Cleaning { is_dry_run, above, held: Vec::new(), tell };
    let mut stack = vec![Directory::root(root)];
    while let Some(directory) = stack.pop() {
        if let Err(errno) = cleaning.clean_one(&directory, &mut stack) {
            let outcome = Err(Kept::Failed(format!("cannot list it: {errno}")));
            (cleaning.tell)(Remains { path: directory.path(), bytes: 0, outcome });
        }
    }
    Ok(())
}

/// The directories above the one that was named.
struct Above {
    directories: Vec<OwnedFd>,
    /// Locks of their journals that were not in use: the commands of these journals cannot go on
    /// meanwhile.
    held: Vec<OwnedFd>,
}

struct Cleaning<'a> {
    is_dry_run: bool,
    above: Above,
    /// Locks of the journals above the current files, as far as these journals were not in use.
    held: Vec<OwnedFd>,
    tell: &'a mut dyn FnMut(Remains),
}

/// What is in a directory.
#[derive(Default)]
struct Names {
    directories: Vec<Vec<u8>>,
    journals: Vec<Vec<u8>>,
    parts: Vec<Vec<u8>>,
}

impl Cleaning<'_> {
    /// Cleans one directory; those in it go onto the stack.
    fn clean_one(
        &mut self,
        directory: &Arc<Directory>,
        stack: &mut Vec<Arc<Directory>>,
    ) -> Result<(), Errno> {
        let handle = directory.open()?;
        let names = Names::of(&handle)?;
        for name in &names.journals {
            self.clean_journal(directory, &handle, name);
        }
        if !names.parts.is_empty() {
            // This look comes after the listing: whoever made one of the files had locked its
            // journal before.
            let is_in_use = self.is_in_use(directory)?;
            for name in &names.parts {
                self.clean_part(directory, &handle, name, is_in_use);
            }
            self.held.clear();
        }
        stack.extend(names.directories.iter().map(|name| directory.child(name, Making::Never)));
        Ok(())
    }

    fn clean_journal(&mut self, directory: &Directory, handle: &OwnedFd, name: &[u8]) {
        let bytes = statat(handle, name, NOT_THROUGH_LINKS).map_or(0, |stat| length(&stat));
        let outcome = match look_at_journal(handle, name) {
            Ok(Leftover::Gone) => return,
            Ok(Leftover::InUse) => Err(Kept::InUse),
            Ok(Leftover::NotOurs(difference)) => Err(Kept::NotOurs(difference)),
            // Removed under its lock.
            Ok(Leftover::Stale(_lock)) => self.remove(handle, name),
            Err(errno) => Err(Kept::Failed(errno.to_string())),
        };
        (self.tell)(Remains { path: directory.path_of(name), bytes, outcome });
    }

    fn clean_part(
        &mut self,
        directory: &Directory,
        handle: &OwnedFd,
        name: &[u8],
        is_in_use: bool,
    ) {
        let (bytes, outcome) = match statat(handle, name, NOT_THROUGH_LINKS) {
            Err(Errno::NOENT) => return,
            Err(errno) => (0, Err(Kept::Failed(errno.to_string()))),
            Ok(stat) => {
                let outcome = match difference(&stat) {
                    Some(difference) => Err(Kept::NotOurs(difference)),
                    None if is_in_use => Err(Kept::InUse),
                    None => self.remove(handle, name),
                };
                (length(&stat), outcome)
            }
        };
        (self.tell)(Remains { path: directory.path_of(name), bytes, outcome });
    }

    fn remove(&self, handle: &OwnedFd, name: &[u8]) -> Result<(), Kept> {
        if self.is_dry_run {
            return Ok(());
        }
        let removed = match unlinkat(handle, name, AtFlags::empty()) {
            Err(Errno::ACCESS) => remove_as_owner(handle, name),
            removed => removed,
        };
        removed.map_err(|errno| Kept::Failed(errno.to_string()))
    }

    /// Whether a running transfer may own files in a directory: its journal lies there, or
    /// somewhere above.
    fn is_in_use(&mut self, directory: &Arc<Directory>) -> Result<bool, Errno> {
        let mut here = Some(Arc::clone(directory));
        while let Some(directory) = here {
            let handle = directory.open()?;
            if has_journal_in_use(&handle, &mut self.held)? {
                return Ok(true);
            }
            here = directory.above();
        }
        self.above.is_in_use()
    }
}

impl Above {
    fn of(directory: &OwnedFd) -> Result<Self, Errno> {
        let mut directories: Vec<OwnedFd> = Vec::new();
        let mut last = fstat(directory)?;
        loop {
            let below = directories.last().unwrap_or(directory);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let parent = openat(below, "..", flags, Mode::empty())?;
            let stat = fstat(&parent)?;
            if (stat.st_dev, stat.st_ino) == (last.st_dev, last.st_ino) {
                let mut above = Self { directories, held: Vec::new() };
                above.is_in_use()?;
                return Ok(above);
            }
            last = stat;
            directories.push(parent);
        }
    }

    /// Whether a journal in one of these directories is in use. The others stay locked from now on.
    fn is_in_use(&mut self) -> Result<bool, Errno> {
        let mut is_in_use = false;
        for directory in &self.directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat(directory, ".", flags, Mode::empty()) {
                Ok(handle) => is_in_use |= has_journal_in_use(&handle, &mut self.held)?,
                // In a directory where this process may not write, it has no journal.
                Err(Errno::ACCESS | Errno::PERM)
                    if accessat(directory, ".", Access::WRITE_OK, AtFlags::EACCESS).is_err() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(is_in_use)
    }
}

/// Removes a name from a directory of this user whose mode does not let its owner change it, as a
/// transfer may have left it. The directory keeps its mode.
fn remove_as_owner(handle: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    let mode = make_usable(handle, &fstat(handle)?)?.ok_or(Errno::ACCESS)?;
    let removed = unlinkat(handle, name, AtFlags::empty());
    handle.set_mode(Mode::from_raw_mode(mode)).and(removed)
}

/// Whether a journal in a directory is in use. The locks of the others are added to `held`.
fn has_journal_in_use(handle: &OwnedFd, held: &mut Vec<OwnedFd>) -> Result<bool, Errno> {
    let mut is_in_use = false;
    for name in Names::of(handle)?.journals {
        let stat = statat(handle, name.as_slice(), NOT_THROUGH_LINKS);
        let is_held = stat.is_ok_and(|stat| held.iter().any(|file| is_same(file, &stat)));
        if is_held {
            continue;
        }
        match look_at_journal(handle, &name)? {
            Leftover::InUse => is_in_use = true,
            Leftover::Stale(lock) => held.push(lock),
            Leftover::Gone | Leftover::NotOurs(_) => {}
        }
    }
    Ok(is_in_use)
}

impl Names {
    /// The names in a directory that matter here.
    fn of(handle: &OwnedFd) -> Result<Self, Errno> {
        let mut found = Self::default();
        // A handle of its own: `handle` is shared, and so is its position in the listing.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(handle, ".", flags, Mode::empty())?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries: RawDir<'_, _> = RawDir::new(&listed, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if is_journal_name(name) {
                found.journals.push(name.to_vec());
            } else if is_own_name(name) {
                found.parts.push(name.to_vec());
            } else if name != b"." && name != b".." && is_directory(handle, name, entry.file_type())
            {
                found.directories.push(name.to_vec());
            }
        }
        Ok(found)
    }
}

fn is_directory(handle: &OwnedFd, name: &[u8], told: FileType) -> bool {
    match told {
        FileType::Unknown => statat(handle, name, NOT_THROUGH_LINKS)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        told => told == FileType::Directory,
    }
}

/// In what a file differs from an unfinished file of ours, in words; `None` if it does not.
fn difference(stat: &Stat) -> Option<String> {
    crate::journal::Own::usual().difference(stat)
}

fn is_same(file: &OwnedFd, stat: &Stat) -> bool {
    fstat(file).is_ok_and(|own| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino))
}

fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
