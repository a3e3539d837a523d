//! Files that changed a moment ago, so that a further change might not show in their status
//! ([`crate::racy`]), or not in the times that the sink keeps. They are announced when it would.
//! What unit the sink keeps is known when it is ready; until then the longest unit counts.
//!
//! All files wait at the same time, each until its own tick is over. So files that did not change
//! after the transfer began cost one wait together, and other files are moved meanwhile.

use super::event::Found;
use super::file::Tries;
use super::links::LinkKey;
use crate::times::UNIT_NANOS_MAX;
use crate::units::{EntryId, Instant};
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The unit in which the sink keeps times, once it is known.
    sink_unit: Option<Duration>,
}

impl Settling {
    /// Returns the time until which a file must be held back, if it is one, and if it must.
    pub(super) fn until(&self, found: &Found) -> Option<Instant> {
        let unit_max = Duration::from_nanos(UNIT_NANOS_MAX.into());
        let over_earlier = unit_max.saturating_sub(self.sink_unit.unwrap_or(unit_max));
        let of_sink = found
            .settled_at_sink
            .map(|at| Instant::after_start(at.since_start().saturating_sub(over_earlier)));
        found.settled_at.max(of_sink).filter(|_| found.entry.is_file())
    }

    /// Holds a file back until this time.
    pub(super) fn hold(&mut self, until: Instant, file: Held) {
        self.metadata_bytes += file.found.entry.variable_bytes() as u64;
        self.held.insert((until, file.found.entry.id), file);
    }

    /// The sink has said in which unit it keeps times.
    pub(super) fn on_sink_unit(&mut self, unit: Duration) {
        self.sink_unit = Some(unit);
        for ((was_until, id), file) in std::mem::take(&mut self.held) {
            let until = self.until(&file.found).unwrap_or(was_until);
            self.held.insert((until, id), file);
        }
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
