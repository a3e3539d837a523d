//! What is removed at the sink: rsync's `--delete` and related options.

use lads_core::sink::RemovalConfig;
use lads_core::wire_struct;

/// Removes, at the end, everything that the source does not have from the directories that are
/// moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Removes also entries that are left out (`--exclude`); otherwise they stay.
    pub excluded: bool,
    /// Removes even if something failed; otherwise nothing is removed after a failure.
    pub after_errors: bool,
    /// Removes at most this many entries.
    pub count_max: Option<u64>,
}

wire_struct!(Deletion { excluded, after_errors, count_max });

impl Deletion {
    /// The part of it that the sink's session needs.
    pub(crate) fn config(&self) -> RemovalConfig {
        RemovalConfig { after_errors: self.after_errors, count_max: self.count_max }
    }
}
