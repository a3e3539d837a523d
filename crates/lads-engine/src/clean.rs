//! What transfers that were killed left in a tree, and how it is removed: unfinished files and
//! journals that no running transfer owns.
//!
//! An unfinished file says by its name that it is one, but not which transfer it is of; that is
//! known to the journal only, which lies in its directory or in one above. As long as a transfer
//! runs, its journal is locked. So a file is removed if, after it was seen, no journal in its
//! directory or above is in use. Journals that are not are locked meanwhile, or removed before the
//! files: a command that goes on with one would give its files the same names again. One that
//! begins anew gives names that were never there before.
//!
//! Nothing is opened but directories and journals, and no link is followed. What has such a name,
//! but is no regular file of ours with a single name, is left, and told.

use crate::journal::{Leftover, look_at_journal};
use crate::paths::{Directory, NOT_THROUGH_LINKS, open_named};
use lads_core::entry::{is_journal_name, is_own_name};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, Stat, accessat, fstat, openat, statat,
    unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What was found under a name of LADS's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remains {
    /// Its path below the directory that was named.
    pub path: Vec<u8>,
    /// How long it is.
    pub bytes: u64,
    /// Why it was left, or that it was removed, or in a dry run would be.
    pub outcome: Result<(), Kept>,
}

/// Why something was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A transfer that runs may own it.
    InUse,
    /// LADS did not leave it there: in what it differs.
    NotOurs(String),
    /// The system did not permit it.
    Failed(String),
}

/// Looks for what killed transfers left in a tree, tells of each thing, and removes it unless
/// `is_dry_run`.
///
/// # Errors
/// If the directory cannot be opened. What cannot be listed below it is told.
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
    /// Locks of their journals that were not in use: those commands do not go on meanwhile.
    held: Vec<OwnedFd>,
}

struct Cleaning<'a> {
    is_dry_run: bool,
    above: Above,
    /// Locks of journals above the files that are being looked at, if those are not in use.
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
            // Looked at only now: whoever made one of these had its journal locked before.
            let is_in_use = self.is_in_use(directory)?;
            for name in &names.parts {
                self.clean_part(directory, &handle, name, is_in_use);
            }
            self.held.clear();
        }
        stack.extend(names.directories.iter().map(|name| directory.child(name, false)));
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
        unlinkat(handle, name, AtFlags::empty()).map_err(|errno| Kept::Failed(errno.to_string()))
    }

    /// Whether a transfer that runs may own files in a directory: the journal of one lies there, or
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

    /// Whether a journal in one of them is in use; those that are not are locked from now on.
    fn is_in_use(&mut self) -> Result<bool, Errno> {
        let mut is_in_use = false;
        for directory in &self.directories {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match openat(directory, ".", flags, Mode::empty()) {
                Ok(handle) => is_in_use |= has_journal_in_use(&handle, &mut self.held)?,
                // Where we may not write, there is no journal of ours.
                Err(Errno::ACCESS | Errno::PERM)
                    if accessat(directory, ".", Access::WRITE_OK, AtFlags::EACCESS).is_err() => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(is_in_use)
    }
}

/// Whether a journal in a directory is in use. The locks of those that are not are added to `held`.
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
    /// What is in a directory, as far as it matters.
    fn of(handle: &OwnedFd) -> Result<Self, Errno> {
        let mut found = Self::default();
        // Not the handle itself: it is shared, and so is its place in the list.
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

/// In what something differs from an unfinished file of ours, in words.
fn difference(stat: &Stat) -> Option<String> {
    crate::journal::Own::usual().difference(stat)
}

fn is_same(file: &OwnedFd, stat: &Stat) -> bool {
    fstat(file).is_ok_and(|own| (own.st_dev, own.st_ino) == (stat.st_dev, stat.st_ino))
}

fn length(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}
