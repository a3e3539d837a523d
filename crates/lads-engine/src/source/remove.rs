//! Removes entries that are durable at the sink (`--remove-source-files`).
//!
//! An entry is removed only if it is still what was announced. Another process may change it
//! between that look and the removal; no call of the system does both at once.

use super::table::Item;
use super::{SourceEnd, failed};
use crate::paths::NOT_THROUGH_LINKS;
use crate::stat::identity_of;
use lads_core::entry::Identity;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::source::Event;
use lads_core::units::EntryId;
use rustix::fs::{AtFlags, statat, unlinkat};
use rustix::io::Errno;

/// Removes an entry, and tells the session.
pub(super) fn remove(end: &SourceEnd, entry: EntryId) {
    let asked = end.begin(Operation::Remove, entry, None);
    let failure = end.table.get(entry).and_then(|item| remove_item(&item).err());
    drop(asked);
    end.tell(Event::Removed { entry, failure });
}

fn remove_item(item: &Item) -> Result<(), Failure> {
    let of_remove = |errno| failed(Operation::Remove, errno);
    let directory = item.directory.open().map_err(of_remove)?;
    let name = item.name.as_slice();
    // With --copy-links, the link is removed, and not what it leads to.
    let flags = if item.is_followed { AtFlags::empty() } else { NOT_THROUGH_LINKS };
    match statat(&directory, name, flags) {
        Ok(stat) if !is_as_announced(item, identity_of(&stat)) => {
            Err(Failure::new(Side::Source, Operation::Remove, Reason::Changed))
        }
        Ok(_) => unlinkat(&directory, name, AtFlags::empty()).map_err(of_remove),
        // Another process has removed it.
        Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(of_remove(errno)),
    }
}

fn is_as_announced(item: &Item, now: Identity) -> bool {
    item.identity.is_some_and(|announced| match item.link {
        // The time of its last change is that of the removal of another name.
        Some(_) => Identity { ctime: announced.ctime, ..now } == announced,
        None => now == announced,
    })
}
