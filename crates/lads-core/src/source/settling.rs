//! Files that changed a moment ago, so that a further change might not show in their status
//! ([`crate::racy`]). They are announced when it would.
//!
//! All files wait at the same time, each until its own tick is over. So files that did not change
//! after the transfer began cost one wait together, and other files are moved meanwhile.

use super::event::Found;
use super::file::Tries;
use super::links::LinkKey;
use crate::units::{EntryId, Instant};
use std::collections::BTreeMap;

/// A file that is not announced yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) found: Found,
    pub(super) tries: Tries,
    pub(super) link: Option<LinkKey>,
}

/// The files that wait, by the time of their announcement.
#[derive(Debug, Default)]
pub(super) struct Settling {
    held: BTreeMap<(Instant, EntryId), Held>,
    /// The bytes of their names and attributes.
    metadata_bytes: u64,
    /// The time at which a thread will ask again.
    watched: Option<Instant>,
}

impl Settling {
    /// Holds a file back until this time.
    pub(super) fn hold(&mut self, until: Instant, file: Held) {
        self.metadata_bytes += file.found.entry.variable_bytes() as u64;
        self.held.insert((until, file.found.entry.id), file);
    }

    /// Returns a file whose time has come, if there is one.
    pub(super) fn next(&mut self, now: Instant) -> Option<Held> {
        let first = self.held.first_entry().filter(|first| first.key().0 <= now)?;
        let file = first.remove();
        self.metadata_bytes -= file.found.entry.variable_bytes() as u64;
        Some(file)
    }

    /// Returns the time of the next announcement.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.held.first_key_value().map(|((until, _), _)| *until)
    }

    /// A thread has asked for a task. If it got none, it asks again at [`Self::next_time`].
    pub(super) fn on_asked(&mut self, has_task: bool) {
        self.watched = if has_task { None } else { self.next_time() };
    }

    /// Reports whether files wait and no thread will ask again in time.
    pub(super) fn is_unwatched(&self) -> bool {
        self.next_time().is_some_and(|time| self.watched.is_none_or(|watched| watched > time))
    }

    /// Returns the bytes of all names and attributes.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }
}
