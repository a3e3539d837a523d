//! Entries that replace a directory: the source has something else under its name.
//!
//! As in rsync, an empty directory is replaced in any case, and any other with `--delete` or
//! `--force`. The new entry is complete under a temporary name before the directory is removed. A
//! mount point is never replaced, and neither is a directory in which something stays, because it
//! is excluded or belongs to another transfer.

use super::remove::{Removal, is_empty, is_mount_point};
use super::table::Item;
use super::{SinkEnd, failed};
use crate::paths::Directory;
use lads_core::issue::{Failure, Operation, Reason, Side};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl SinkEnd {
    /// Whether directories that are not empty may be replaced.
    fn replaces_full_directories(&self) -> bool {
        self.options.force || self.options.deletion.is_some()
    }

    /// Checks that the directory with the name of this entry may be replaced. In a dry run, lists
    /// the entries that would be removed.
    ///
    /// # Errors
    /// If the directory stays.
    pub(super) fn check_replacing(
        &self,
        item: &Item,
        directory: &Arc<Directory>,
        handle: &OwnedFd,
    ) -> Result<(), Failure> {
        let of_examine = |errno| failed(Operation::Examine, errno);
        if is_mount_point(handle, &item.name).map_err(of_examine)?
            || !self.replaces_full_directories()
                && !is_empty(handle, &item.name).map_err(of_examine)?
        {
            return Err(in_the_way());
        }
        if self.options.dry_run {
            return self.remove_contents(item, directory);
        }
        let _ = item.replaces_directory.set(());
        Ok(())
    }

    /// Gives an entry its name by a call that replaces anything but a directory. If a directory has
    /// the name and is to be replaced, it is removed first.
    pub(super) fn name_replacing(
        &self,
        item: &Item,
        mut rename: impl FnMut() -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let of_rename = |errno| failed(Operation::Rename, errno);
        match rename() {
            Err(Errno::ISDIR | Errno::EXIST | Errno::NOTEMPTY)
                if item.replaces_directory.get().is_some() => {}
            result => return result.map_err(of_rename),
        }
        let directory = item.directory.as_ref().ok_or_else(in_the_way)?;
        if self.replaces_full_directories() {
            self.remove_left_overs_below(&item.path());
            self.remove_contents(item, directory)?;
        }
        let handle = directory.open().map_err(of_rename)?;
        match unlinkat(&handle, item.name.as_slice(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Err(in_the_way()),
            Err(errno) => return Err(failed(Operation::Remove, errno)),
        }
        rename().map_err(of_rename)
    }

    /// Removes what is in the directory with the name of an entry, with all safeguards of
    /// `--delete`. Failures are reported one by one.
    fn remove_contents(&self, item: &Item, directory: &Arc<Directory>) -> Result<(), Failure> {
        match Removal::new(self).remove_contents_of(directory, &item.name) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(in_the_way()),
        }
    }

    /// Removes unfinished files of an earlier attempt below a directory that is replaced.
    fn remove_left_overs_below(&self, path: &[u8]) {
        let journal = &self.place().journal;
        for path in journal.take_begun_below(path) {
            self.remove_left_over(&path);
            journal.forget(&path);
        }
    }
}

fn in_the_way() -> Failure {
    Failure::new(Side::Sink, Operation::Create, Reason::InTheWay)
}
