//! How many entries may be in flight: memory grows with this, not with the tree.

use super::SourceConfig;
use crate::limits::METADATA_BYTES_MAX;

/// The number of entries that are announced, or held back, and not ended.
#[derive(Debug)]
pub(super) struct Window {
    count: u64,
    count_max: u64,
    directories_max: u64,
}

impl Window {
    /// No entry is in flight.
    pub(super) fn new(config: &SourceConfig) -> Self {
        let (count_max, directories_max) = (config.window_entries, config.window_directories);
        Self { count: 0, count_max, directories_max }
    }

    /// An entry is in flight.
    pub(super) fn on_open(&mut self) {
        self.count += 1;
    }

    /// An entry has ended.
    ///
    /// # Panics
    /// If no entry was in flight.
    pub(super) fn on_ended(&mut self) {
        assert!(self.count > 0, "an entry ended, and of {} none was under way", self.count_max);
        self.count -= 1;
    }

    /// Whether more entries may be announced, if names and attributes take `metadata_bytes` and
    /// `directory_count` directories have not ended.
    pub(super) fn has_room(&self, metadata_bytes: u64, directory_count: u64) -> bool {
        self.count < self.count_max
            && metadata_bytes < METADATA_BYTES_MAX
            && directory_count < self.directories_max
    }
}
