//! Which blocks that are written go on record, and when.
//!
//! They are made durable and put on record in batches: when there are enough of them, when they
//! have waited long enough, or when a file waits only for that. One batch is under way at a time.

use super::SinkConfig;
use super::event::SyncFile;
use crate::journal::BlockRecord;
use crate::units::{EntryId, Instant};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Whether what is written waits for a batch to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurry {
    No,
    /// A file is whole, or the source is going.
    Yes,
}

/// What waits to go on record.
#[derive(Debug)]
pub(super) struct Recording {
    has_journal: bool,
    batch_bytes: u64,
    batch_interval: Duration,
    /// Files with blocks that are not on record, or were when they were dropped.
    waiting: Vec<SyncFile>,
    /// Where each of them is in that list.
    places: HashMap<EntryId, usize>,
    waiting_bytes: u64,
    waiting_since: Option<Instant>,
    hurry: Hurry,
    /// Files of which blocks are being put on record.
    running: HashSet<EntryId>,
}

impl Recording {
    /// Nothing is written.
    pub(super) fn new(config: &SinkConfig) -> Self {
        Self {
            has_journal: config.has_journal,
            batch_bytes: config.batch_bytes,
            batch_interval: config.batch_interval,
            waiting: Vec::new(),
            places: HashMap::new(),
            waiting_bytes: 0,
            waiting_since: None,
            hurry: Hurry::No,
            running: HashSet::new(),
        }
    }

    /// Whether anything goes on record.
    pub(super) fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// A block is written.
    pub(super) fn push(&mut self, now: Instant, entry: EntryId, block: BlockRecord) {
        self.waiting_bytes += u64::from(block.length);
        self.waiting_since.get_or_insert(now);
        let place = *self.places.entry(entry).or_insert(self.waiting.len());
        match self.waiting.get_mut(place) {
            Some(file) => file.blocks.push(block),
            None => self.waiting.push(SyncFile { entry, blocks: vec![block] }),
        }
    }

    /// What waits is wanted on record now.
    pub(super) fn hurry(&mut self) {
        self.hurry = Hurry::Yes;
    }

    /// What waits of a file need not go on record: it is dropped.
    pub(super) fn forget(&mut self, entry: EntryId) {
        if let Some(place) = self.places.remove(&entry) {
            self.waiting[place].blocks.clear();
        }
    }

    /// What is to go on record now, if it is time; nothing if all that waited was dropped.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<SyncFile>> {
        let is_late = self.waiting_since.is_some_and(|t| now.since(t) >= self.batch_interval);
        let is_time = is_late && self.is_ready();
        if !is_time && !self.is_due() {
            return None;
        }
        let mut batch = std::mem::take(&mut self.waiting);
        batch.retain(|file| !file.blocks.is_empty());
        self.places.clear();
        self.waiting_bytes = 0;
        self.waiting_since = None;
        self.hurry = Hurry::No;
        self.running = batch.iter().map(|file| file.entry).collect();
        Some(batch)
    }

    /// Whether [`Self::next`] has something, whatever the time.
    pub(super) fn is_due(&self) -> bool {
        self.is_ready() && (self.hurry == Hurry::Yes || self.waiting_bytes >= self.batch_bytes)
    }

    fn is_ready(&self) -> bool {
        self.running.is_empty() && !self.waiting.is_empty()
    }

    /// When [`Self::next`] has something although nothing happens until then.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let since = self.waiting_since.filter(|_| self.running.is_empty())?;
        Some(since + self.batch_interval)
    }

    /// What was to go on record is there, or not.
    pub(super) fn on_done(&mut self) {
        self.running.clear();
    }

    /// Whether blocks of a file are being put on record.
    pub(super) fn is_running_for(&self, entry: EntryId) -> bool {
        self.running.contains(&entry)
    }

    /// Whether nothing waits to go on record, and nothing is being put there.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of 100 bytes, or after a second.
    fn recording() -> Recording {
        Recording {
            has_journal: true,
            batch_bytes: 100,
            batch_interval: Duration::from_secs(1),
            waiting: Vec::new(),
            places: HashMap::new(),
            waiting_bytes: 0,
            waiting_since: None,
            hurry: Hurry::No,
            running: HashSet::new(),
        }
    }

    fn push(recording: &mut Recording, entry: u64, length: u32) {
        let block = BlockRecord { offset: 0, length, checksum: 0 };
        recording.push(Instant::START, EntryId(entry), block);
    }

    /// Which files go on record now, with how many blocks.
    fn next(recording: &mut Recording, seconds: u64) -> Option<Vec<(u64, usize)>> {
        let now = Instant::after_start(Duration::from_secs(seconds));
        let batch = recording.next(now)?;
        Some(batch.iter().map(|file| (file.entry.0, file.blocks.len())).collect())
    }

    #[test]
    fn blocks_go_on_record_when_there_are_enough_or_late_or_in_a_hurry() {
        let mut recording = recording();
        push(&mut recording, 1, 50);
        assert_eq!(next(&mut recording, 0), None);
        assert_eq!(recording.due_at(), Some(Instant::after_start(Duration::from_secs(1))));
        push(&mut recording, 2, 50);
        push(&mut recording, 1, 1);
        assert_eq!(next(&mut recording, 0), Some(vec![(1, 2), (2, 1)]));
        push(&mut recording, 3, 500);
        assert_eq!((next(&mut recording, 9), recording.due_at()), (None, None), "one at a time");
        recording.on_done();
        assert_eq!(next(&mut recording, 0), Some(vec![(3, 1)]));
        recording.on_done();
        push(&mut recording, 4, 1);
        assert_eq!(next(&mut recording, 1), Some(vec![(4, 1)]));
        recording.on_done();
        push(&mut recording, 5, 1);
        recording.hurry();
        assert_eq!(next(&mut recording, 0), Some(vec![(5, 1)]));
    }

    #[test]
    fn what_is_dropped_does_not_go_on_record() {
        let mut recording = recording();
        push(&mut recording, 1, 100);
        push(&mut recording, 2, 100);
        recording.forget(EntryId(1));
        // Another file has got the number.
        push(&mut recording, 1, 100);
        assert_eq!(next(&mut recording, 0), Some(vec![(2, 1), (1, 1)]));
        assert!(recording.is_running_for(EntryId(2)));
        recording.on_done();
        push(&mut recording, 2, 100);
        recording.forget(EntryId(2));
        assert_eq!(next(&mut recording, 0), Some(vec![]));
        assert!(recording.is_idle());
    }
}
