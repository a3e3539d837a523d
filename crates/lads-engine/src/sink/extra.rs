//! What only the sink has: names in its directories that the source has not announced.
//!
//! A hash of each announced name that is there is kept until its directory ends. Then the directory
//! is listed, and names that are not among the hashes are told. So a directory costs memory for
//! each of its names, up to a limit.

use super::table::Item;
use super::{SinkEnd, failed};
use crate::paths::Directory;
use lads_core::entry::is_own_name;
use lads_core::filter::is_included;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::{Ending, Line, Verb};
use lads_core::units::EntryId;
use rustix::fs::{FileType, OFlags, RawDir, statat};
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use twox_hash::XxHash3_64;

/// Names that are kept at a time, of all directories that have not ended: 80 MiB at most. With half
/// of it, a directory of three million files could not be compared; with double of it, it would
/// take more than all tables of a transfer.
const NAMES_MAX: usize = 4 << 20;

/// The names of directories that have not ended.
#[derive(Debug, Default)]
pub(super) struct Names {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    directories: HashMap<EntryId, Seen>,
    count: usize,
}

/// What is known of the names of one directory.
#[derive(Debug, Default)]
struct Seen {
    hashes: HashSet<u64>,
    /// Whether some are missing, because there are too many.
    is_cut: bool,
    /// Whether the source has more than it could announce.
    is_incomplete: bool,
}

impl Names {
    fn with<T>(&self, what: impl FnOnce(&mut Books) -> T) -> T {
        what(&mut self.books.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, directory: EntryId, name: &[u8]) {
        self.with(|books| {
            let is_full = books.count >= NAMES_MAX;
            let seen = books.directories.entry(directory).or_default();
            if is_full {
                seen.is_cut = true;
            } else {
                books.count += usize::from(seen.hashes.insert(XxHash3_64::oneshot(name)));
            }
        });
    }

    fn set_incomplete(&self, directory: EntryId) {
        self.with(|books| books.directories.entry(directory).or_default().is_incomplete = true);
    }

    fn take(&self, directory: EntryId) -> Seen {
        self.with(|books| {
            let seen = books.directories.remove(&directory).unwrap_or_default();
            books.count -= seen.hashes.len();
            seen
        })
    }
}

impl SinkEnd {
    /// Something that the source has is there, of whatever kind.
    pub(super) fn note_name(&self, item: &Item) {
        if self.options.check {
            self.names.add(item.parent, &item.name);
        }
    }

    /// The source has ended directories of which it could not announce everything: what it has
    /// there is not known.
    pub(super) fn note_incomplete(&self, endings: &[(EntryId, Ending)]) {
        if self.options.check {
            // Nothing is kept of a directory that has ended, whatever the source says.
            let is_open = |entry| self.table.get(entry).is_some_and(|item| item.own.is_some());
            let incomplete = endings.iter().filter(|(_, ending)| *ending == Ending::Incomplete);
            let open = incomplete.filter(|(entry, _)| is_open(*entry));
            open.for_each(|(entry, _)| self.names.set_incomplete(*entry));
        }
    }

    /// Tells what is only here of a directory in which everything has ended.
    pub(super) fn find_extra(&self, entry: EntryId, item: &Item) -> Result<(), Failure> {
        let seen = self.names.take(entry);
        let Some(own) = &item.own else { return Ok(()) };
        if seen.is_incomplete || self.options.files_from.is_some() || self.place().is_missing {
            return Ok(());
        }
        if seen.is_cut {
            return Err(Failure::new(Side::Sink, Operation::List, Reason::ManyNames));
        }
        match self.list_extra(own, &seen) {
            // It is told already that only the source has it, or that something else is there.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            outcome => outcome.map_err(|errno| failed(Operation::List, errno)),
        }
    }

    fn list_extra(&self, own: &Arc<Directory>, seen: &Seen) -> Result<(), Errno> {
        let handle = own.open()?;
        // A handle has one place in the listing: others may list through this one.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listing = crate::paths::open_unnoticed(&*handle, c".", flags)?;
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut names: RawDir<'_, _> = RawDir::new(&listing, buffer.spare_capacity_mut());
        while let Some(name) = names.next() {
            let name = name?.file_name().to_bytes().to_vec();
            let is_ours = name == b"." || name == b".." || is_own_name(&name);
            if !is_ours && !seen.hashes.contains(&XxHash3_64::oneshot(&name)) {
                self.tell_extra(own, &handle, &name);
            }
        }
        Ok(())
    }

    fn tell_extra(&self, own: &Directory, handle: &OwnedFd, name: &[u8]) {
        // It was removed meanwhile, so it is no difference.
        let Ok(stat) = statat(handle, name, crate::paths::NOT_THROUGH_LINKS) else { return };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let mut path = own.path_of(name);
        let filters = &self.options.filters;
        let is_directory = kind == FileType::Directory;
        if !filters.is_empty() && !is_included(filters, &path, is_directory) {
            return;
        }
        if is_directory {
            path.push(b'/');
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let bytes = if kind == FileType::RegularFile { size } else { 0 };
        self.board.line(Line { verb: Verb::OnlyAtSink, path, bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_too_many_are_not_kept_and_their_directory_is_known() {
        let names = Names::default();
        let (first, second) = (EntryId(1), EntryId(2));
        names.with(|books| books.count = NAMES_MAX - 1);
        for directory in [first, second] {
            names.add(directory, b"a");
        }
        let seen = [first, second].map(|directory| names.take(directory));
        assert_eq!(seen.each_ref().map(|seen| seen.is_cut), [false, true]);
        assert_eq!(seen.each_ref().map(|seen| seen.hashes.len()), [1, 0]);
        names.add(second, b"other");
        assert!(!names.take(second).is_cut, "there is room again");
    }
}
