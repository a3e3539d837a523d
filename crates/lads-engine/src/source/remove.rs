//! Removes entries that are durable at the sink (`--remove-source-files`).
//!
//! An entry is removed only if it is still what was announced. Another process may change it
//! between that look and the removal; no call of the system does both at once.
//!
//! Removing one name of a file changes the ctime that the file has under its other names. The new
//! time is recorded and accepted when these names are removed.

use super::table::Item;
use super::{SourceEnd, failed};
use crate::board::lock;
use crate::paths::NOT_THROUGH_LINKS;
use crate::stat::identity_of;
use lads_core::entry::{Identity, Timestamp};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::source::Event;
use lads_core::units::EntryId;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Mutex;

/// The ctimes that files have since this process removed one of their names. The files are
/// identified by device and inode.
#[derive(Debug, Default)]
pub(super) struct RemovalTimes(Mutex<HashMap<(u64, u64), Timestamp>>);

/// Removes an entry, and tells the session.
pub(super) fn remove(end: &SourceEnd, entry: EntryId) {
    let asked = end.begin(Operation::Remove, entry, None);
    let times = &end.removal_times;
    let failure = end.table.get(entry).and_then(|item| remove_item(&item, times).err());
    drop(asked);
    end.tell(Event::Removed { entry, failure });
}

fn remove_item(item: &Item, times: &RemovalTimes) -> Result<(), Failure> {
    let of_remove = |errno| failed(Operation::Remove, errno);
    let Some(announced) = item.identity else { return Err(changed()) };
    let directory = item.directory.open().map_err(of_remove)?;
    let name = Name { directory: &directory, item, announced };
    match name.remove(times) {
        Ok(true) => Ok(()),
        Ok(false) => Err(changed()),
        // Another process has removed it.
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(of_remove(errno)),
    }
}

fn changed() -> Failure {
    Failure::new(Side::Source, Operation::Remove, Reason::Changed)
}

/// A name in an open directory.
struct Name<'a> {
    directory: &'a OwnedFd,
    item: &'a Item,
    announced: Identity,
}

impl Name<'_> {
    /// Removes the name if the entry is still what was announced. Returns whether it was.
    fn remove(&self, times: &RemovalTimes) -> Result<bool, Errno> {
        let stat = self.stat()?;
        let is_last = stat.st_nlink <= 1;
        if is_last && identity_of(&stat) == self.announced {
            return self.unlink().map(|()| true);
        }
        // Another thread may be removing another name of the file.
        let mut times = lock(&times.0);
        let stat = self.stat()?;
        let own = times.get(&(stat.st_dev, stat.st_ino));
        if !self.is_announced(identity_of(&stat), own) {
            return Ok(false);
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let flags = if self.item.is_followed { flags } else { flags | OFlags::NOFOLLOW };
        let file = openat(self.directory, self.item.name.as_slice(), flags, Mode::empty())?;
        self.unlink()?;
        let stat = fstat(&file)?;
        let key = (stat.st_dev, stat.st_ino);
        if stat.st_nlink > 0 {
            times.insert(key, identity_of(&stat).ctime);
        } else {
            times.remove(&key);
        }
        Ok(true)
    }

    /// Returns whether the entry is what was announced, except for its ctime if that is `own`.
    fn is_announced(&self, now: Identity, own: Option<&Timestamp>) -> bool {
        let is_own = own == Some(&now.ctime);
        let ctime = if is_own { self.announced.ctime } else { now.ctime };
        Identity { ctime, ..now } == self.announced
    }

    fn stat(&self) -> Result<Stat, Errno> {
        // With --copy-links, the link is removed, and not what it leads to.
        let flags = if self.item.is_followed { AtFlags::empty() } else { NOT_THROUGH_LINKS };
        statat(self.directory, self.item.name.as_slice(), flags)
    }

    fn unlink(&self) -> Result<(), Errno> {
        unlinkat(self.directory, self.item.name.as_slice(), AtFlags::empty())
    }
}
