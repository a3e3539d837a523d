//! The mode that an entry gets.
//!
//! It is that of the source. Without permissions (`--no-perms`), it is the mode that rsync gives:
//! an entry that exists keeps its mode, and a new one gets the permissions of the source that the
//! umask, or the default ACL of its directory, leaves. ACLs of the source are not set then.

use super::SinkEnd;
use super::table::Item;
use crate::metadata::default_permissions;
use crate::paths::Directory;
use lads_core::entry::Entry;
use rustix::fs::{FileType, Stat};
use std::os::fd::OwnedFd;

/// Read, write and execute for owner, group and others.
pub(super) const PERMISSIONS: u32 = 0o777;
/// Set-id bits and the sticky bit.
const SPECIAL_BITS: u32 = 0o7000;
/// Permissions and the sticky bit, but no set-id bits.
const WITHOUT_SET_ID: u32 = 0o1777;
/// Permissions that the owner of a directory needs to work in it.
const OWNER: u32 = 0o700;

impl SinkEnd {
    /// Returns the mode of an entry that exists already; `None` if it keeps the mode that it has.
    pub(super) fn mode_of_existing(&self, item: &Item) -> Option<u32> {
        self.options.permissions.then_some(item.metadata.mode)
    }

    /// Returns the mode of a new file or special file in a directory, which `handle` leads to.
    pub(super) fn mode_of_new(&self, item: &Item, handle: &OwnedFd) -> u32 {
        if self.options.permissions {
            return item.metadata.mode;
        }
        let replaced = item.replaces.get().copied();
        let is_file =
            |mode: &u32| FileType::from_raw_mode(*mode) == FileType::RegularFile && item.has_data();
        match (replaced.filter(is_file), &item.directory) {
            // Set-id bits were those of the file with its former contents.
            (Some(mode), _) => mode & WITHOUT_SET_ID,
            (None, Some(directory)) => item.metadata.mode & permissions_in(directory, handle),
            (None, None) => item.metadata.mode & OWNER,
        }
    }

    /// Returns the mode of a directory in which everything has ended; `None` if it keeps the mode
    /// that it has. `stat` is its status, and `handle` leads to it.
    pub(super) fn mode_of_directory(
        &self,
        item: &Item,
        own: &Directory,
        stat: &Stat,
        handle: &OwnedFd,
    ) -> Option<u32> {
        let mode = item.metadata.mode;
        let is_root_made = item.name == b"." && self.place().is_root_made;
        match () {
            () if self.options.permissions => Some(mode),
            // It has the set-group-id bit if the directory above has.
            () if is_root_made => {
                Some(stat.st_mode & SPECIAL_BITS | mode & permissions_in(own, handle))
            }
            // The system has set all but the permissions of the owner, who had all that a default
            // ACL left.
            () if own.was_made.get().is_some() => {
                let made = own.mode_before.get().copied();
                let made = made.unwrap_or(stat.st_mode & (SPECIAL_BITS | PERMISSIONS));
                Some(made & !(OWNER & !mode))
            }
            () => own.mode_before.get().copied(),
        }
    }

    /// Sets the mode with which a directory of the source is created, if that decides its mode. The
    /// system takes away what the umask, or the default ACL of the directory above, does not leave.
    pub(super) fn set_mode_of_new_directory(&self, entry: &Entry) {
        if self.options.permissions || !entry.is_directory() {
            return;
        }
        if let Some(item) = self.table.get(entry.id)
            && let Some(own) = &item.own
        {
            // An entry is announced once.
            let _ = own.mode_of_new.set(item.metadata.mode & PERMISSIONS | OWNER);
        }
    }
}

/// Returns the permissions that new entries of a directory can have; looked up once.
pub(super) fn permissions_in(directory: &Directory, handle: &OwnedFd) -> u32 {
    *directory.default_permissions.get_or_init(|| default_permissions(handle))
}
