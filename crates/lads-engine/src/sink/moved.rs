//! Promises that the sink makes before the source may remove an entry (`--remove-source-files`):
//! the entry is durable with all names on the path to it, and is another one than that of the
//! source.
//!
//! Without that option, the names of new directories become durable when the directories end, and
//! entries that are skipped are not made durable at all.

use super::table::Item;
use super::{SinkEnd, failed};
use crate::paths::{Directory, NOT_THROUGH_LINKS};
use crate::stat::identity_of;
use lads_core::entry::Identity;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::Answer;
use lads_core::sink::Examined;
use lads_core::units::EntryId;
use rustix::fs::{FileType, Mode, OFlags, Stat, fsync, openat, statat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

impl SinkEnd {
    /// Checks that a file that would stay is not the source's file itself. Two ends may reach one
    /// file by different paths and hosts; it has the same number and times for both.
    pub(super) fn check_is_another(
        &self,
        announced: &Identity,
        there: Option<&Stat>,
    ) -> Result<(), Failure> {
        let is_same = there.is_some_and(|stat| identity_of(stat) == *announced);
        if self.options.is_move() && is_same {
            return Err(Failure::new(Side::Sink, Operation::Examine, Reason::SameFile));
        }
        Ok(())
    }

    /// Makes the entries durable that ended when they were examined, each directory once. Those
    /// that cannot be made durable fail.
    pub(super) fn make_examined_durable(
        &self,
        examined: &[(EntryId, Arc<Item>)],
        results: &mut [(EntryId, Examined)],
    ) {
        let mut synced: Option<(Arc<OwnedFd>, Result<(), Errno>)> = None;
        for (entry, item) in examined {
            let durable = self.make_data_durable(item).and_then(|()| {
                let directory = item.directory.as_ref().ok_or(Errno::NOENT)?;
                let handle = directory.open()?;
                match &synced {
                    Some((before, result)) if Arc::ptr_eq(before, &handle) => *result,
                    _ => {
                        let result = self.make_path_durable(directory);
                        synced = Some((handle, result));
                        result
                    }
                }
            });
            let of_entry = |(other, _): &&mut (EntryId, Examined)| other == entry;
            if let Err(errno) = durable
                && let Some((_, result)) = results.iter_mut().find(of_entry)
            {
                let failure = failed(Operation::Sync, errno);
                self.tell_failure(item, failure);
                *result = Examined::Answer(Answer::Failed(failure));
            }
        }
    }

    /// Makes a compared file durable, with all names on the path to it.
    pub(super) fn make_kept_durable(&self, item: &Item) -> Result<(), Errno> {
        self.make_data_durable(item)?;
        self.make_path_durable(item.directory.as_ref().ok_or(Errno::NOENT)?)
    }

    /// Makes a file durable. Links and special files are part of their directory.
    fn make_data_durable(&self, item: &Item) -> Result<(), Errno> {
        let handle = item.directory.as_ref().ok_or(Errno::NOENT)?.open()?;
        let name = item.name.as_slice();
        let stat = statat(&handle, name, NOT_THROUGH_LINKS)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match openat(&handle, name, flags | OFlags::RDONLY, Mode::empty()) {
            Err(Errno::ACCESS) => openat(&handle, name, flags | OFlags::WRONLY, Mode::empty()),
            opened => opened,
        };
        fsync(opened?)
    }

    /// Makes a directory durable, and its name and those of all directories above, up to the
    /// target. Each name is made durable once.
    pub(super) fn make_path_durable(&self, directory: &Arc<Directory>) -> Result<(), Errno> {
        self.directory_syncs.sync(&*directory.open()?)?;
        self.make_names_durable(directory)
    }

    /// Makes durable the name of a directory and those of all directories above, up to the target.
    pub(super) fn make_names_durable(&self, directory: &Arc<Directory>) -> Result<(), Errno> {
        let mut directory = Arc::clone(directory);
        while let Some(above) = directory.above() {
            if directory.name_is_durable.get().is_none() {
                self.directory_syncs.sync(&*above.open()?)?;
                let _ = directory.name_is_durable.set(());
            }
            directory = above;
        }
        Ok(())
    }
}
