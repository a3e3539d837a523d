//! What is removed at the sink: rsync's `--delete` and its relatives.

use lads_core::sink::RemovalConfig;
use lads_core::wire_struct;

/// Whatever the source does not have is removed from the directories that are moved, at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deletion {
    /// Also what is left out (`--exclude`); otherwise that stays.
    pub excluded: bool,
    /// Although something failed; otherwise nothing is removed then.
    pub after_errors: bool,
    /// No more entries than this.
    pub count_max: Option<u64>,
}

wire_struct!(Deletion { excluded, after_errors, count_max });

impl Deletion {
    /// What the sink's session needs to know of it.
    pub(crate) fn config(&self) -> RemovalConfig {
        RemovalConfig { after_errors: self.after_errors, count_max: self.count_max }
    }
}
