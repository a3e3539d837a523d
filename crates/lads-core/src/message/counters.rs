//! Which counters are sums, so that a peer's can be checked.

use super::Counters;

impl Counters {
    /// All fields that are sums.
    pub(crate) fn numbers(&self) -> [u64; 33] {
        let busiest = self.busiest_ost.as_ref();
        [
            self.files_found,
            self.directories_found,
            self.bytes_found,
            self.files_moved,
            self.files_skipped,
            self.files_failed,
            self.bytes_done,
            self.bytes_skipped,
            self.bytes_sent,
            self.blocks_sent,
            self.blocks_resent,
            self.cpu_micros,
            self.memory_bytes_peak,
            self.storage_micros,
            self.network_micros,
            self.cpu_delay_micros,
            self.cpu_idle_micros,
            self.starved_micros,
            self.bytes_staged,
            self.bytes_limited,
            self.cpu_limited_micros,
            self.passed.newer,
            self.passed.there,
            self.passed.missing,
            self.passed.size,
            self.entries_removed,
            self.files_verified,
            self.files_unread,
            self.bytes_unread,
            self.files_compared,
            self.bytes_compared,
            busiest.map_or(0, |ost| ost.busy_micros),
            busiest.map_or(0, |ost| ost.bytes),
        ]
    }
}
