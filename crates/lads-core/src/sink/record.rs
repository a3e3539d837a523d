//! What makes blocks last: they are made durable and put on record in batches, and a file of which
//! all is durable gets its name.

use super::{Commit, Committed, Failure, Message, Phase, Sink, SyncFile, Task, range_of};
use crate::issue::{Operation, Reason, Side};
use crate::message::Ending;
use crate::range::RangeSet;
use crate::units::{EntryId, Instant};

impl Sink {
    /// The files whose new blocks are to be put on record now, if it is time.
    pub(super) fn next_sync(&mut self, now: Instant) -> Option<Task> {
        let is_late =
            self.unsynced_since.is_some_and(|t| now.since(t) >= self.config.batch_interval);
        let is_full = self.unsynced_bytes >= self.config.batch_bytes;
        let is_due = is_late || is_full || self.is_sync_urgent;
        if self.is_syncing || self.unsynced.is_empty() || !is_due {
            return None;
        }
        let mut batch = Vec::new();
        for entry in std::mem::take(&mut self.unsynced) {
            if let Some(file) = self.files.get_mut(&entry)
                && !file.unsynced.is_empty()
            {
                file.is_syncing = true;
                batch.push(SyncFile { entry, blocks: std::mem::take(&mut file.unsynced) });
            }
        }
        self.unsynced_bytes = 0;
        self.unsynced_since = None;
        self.is_sync_urgent = false;
        if batch.is_empty() {
            self.finish_stop_if_idle();
            return None;
        }
        self.is_syncing = true;
        Some(Task::Sync(batch))
    }

    /// Blocks are on record, or not.
    pub(super) fn on_synced(&mut self, results: Vec<(SyncFile, Option<Failure>)>) {
        self.is_syncing = false;
        for (SyncFile { entry, blocks }, failure) in results {
            let Some(file) = self.files.get_mut(&entry) else { continue };
            file.is_syncing = false;
            if let Some(failure) = failure {
                self.fail(entry, failure);
                continue;
            }
            if file.phase != Phase::Receiving {
                self.discard_if_idle(entry);
                continue;
            }
            for block in &blocks {
                file.on_record.insert(block.offset..block.offset + u64::from(block.length));
            }
            self.block_dones.extend(blocks.iter().map(|block| range_of(entry, block)));
            self.commit_if_complete(entry);
        }
    }

    /// Has a file given its name if all of it is durable, or will be with its name.
    pub(super) fn commit_if_complete(&mut self, entry: EntryId) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        let bytes =
            if file.is_whole { file.written.byte_count() } else { file.on_record.byte_count() };
        let is_complete = bytes >= file.data_bytes
            && (file.is_whole || file.is_vouched)
            && file.in_flight == 0
            && !file.is_syncing
            && file.phase == Phase::Receiving;
        if is_complete {
            file.phase = Phase::Committing;
            let is_read_back = self.config.verifies_media && !file.is_compared;
            let verify = is_read_back.then(|| file.records.values().copied().collect());
            self.to_commit.push_back(Commit { entry, verify });
        }
    }

    /// A file has its name, or not.
    pub(super) fn on_committed(&mut self, entry: EntryId, committed: Committed) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        match committed {
            Committed::Different => self.on_different(entry),
            Committed::Complete | Committed::Same => {
                let is_same = committed == Committed::Same;
                self.counters.files_moved += u64::from(!is_same);
                let is_given_up = file.is_given_up;
                self.forget(entry);
                let ending = if is_same { Ending::Same } else { Ending::Complete };
                self.endings.push_back((entry, ending));
                if is_given_up {
                    self.endings.push_back((entry, Ending::Dropped));
                }
            }
            Committed::Failed(failure) => self.fail(entry, failure),
            Committed::Bad(_) if file.is_given_up => {
                file.phase = Phase::Dropping { is_kept: false, failure: None };
                self.discard_if_idle(entry);
            }
            Committed::Bad(blocks) => {
                file.resends += u32::try_from(blocks.len()).unwrap_or(u32::MAX);
                if file.resends > self.config.resends_max {
                    // What is on record is not to be trusted: another attempt begins anew.
                    file.on_record = RangeSet::new();
                    let failure = Failure::new(Side::Sink, Operation::Verify, Reason::Media);
                    self.fail(entry, failure);
                    return;
                }
                file.phase = Phase::Receiving;
                (file.is_whole, file.is_vouched) = (false, false);
                let ranges_before = file.written.range_count();
                for block in &blocks {
                    let range = block.offset..block.offset + u64::from(block.length);
                    file.written.remove(range.clone());
                    file.on_record.remove(range);
                    file.records.remove(&(block.offset, block.length));
                }
                self.range_count = self.range_count + file.written.range_count() - ranges_before;
                self.counters.blocks_resent += blocks.len() as u64;
                let ranges = blocks.iter().map(|block| range_of(entry, block)).collect();
                self.messages.push_back(Message::BlockBad(ranges));
            }
        }
    }
}
