//! Entries that the sink has, and that are removed at the source before they end
//! (`--remove-source-files`).

use super::event::Outcome;
use crate::units::{EntryId, EntryMap};

/// An entry that a thread removes, or will remove.
#[derive(Debug)]
pub(super) struct Removing {
    pub(super) parent: EntryId,
    pub(super) outcome: Outcome,
}

/// The entries that are being removed, by number.
pub(super) type Removals = EntryMap<Removing>;
