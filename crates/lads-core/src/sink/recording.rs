//! Which blocks that are written go on record, and when.
//!
//! They are made durable and recorded in batches: when there are enough of them, or when they
//! have waited long enough. One batch is in flight at a time, and the next one waits until the
//! share of time that batches take is small: some file systems write nothing to a file while they
//! sync it.

use super::SinkConfig;
use super::event::SyncFile;
use crate::journal::BlockRecord;
use crate::units::{EntryId, EntryMap, EntrySet, Instant};
use std::time::Duration;

/// Whether what is written waits for a batch to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hurry {
    No,
    /// The source is going.
    Yes,
}

/// What waits to go on record.
#[derive(Debug)]
pub(super) struct Recording {
    has_journal: bool,
    batch_bytes: u64,
    batch_interval: Duration,
    /// Files with blocks that are not recorded, or were when they were dropped.
    waiting: Vec<SyncFile>,
    /// Where each of them is in that list.
    places: EntryMap<usize>,
    waiting_bytes: u64,
    waiting_since: Option<Instant>,
    hurry: Hurry,
    /// Files of which blocks are being recorded.
    running: EntrySet,
    /// Since when.
    running_since: Instant,
    /// No batch begins before, unless it is in a hurry.
    not_before: Instant,
    /// Whether that moment had come when somebody last asked.
    is_gap_over: bool,
    parts: u32,
    gap_max: Duration,
}

impl Recording {
    /// Nothing is written.
    pub(super) fn new(config: &SinkConfig) -> Self {
        Self {
            has_journal: config.has_journal,
            batch_bytes: config.batch_bytes,
            batch_interval: config.batch_interval,
            waiting: Vec::new(),
            places: EntryMap::default(),
            waiting_bytes: 0,
            waiting_since: None,
            hurry: Hurry::No,
            running: EntrySet::default(),
            running_since: Instant::START,
            not_before: Instant::START,
            is_gap_over: true,
            parts: config.tuning.batch_parts,
            gap_max: config.tuning.batch_gap_max,
        }
    }

    /// Whether anything is recorded.
    pub(super) fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// A block is written.
    pub(super) fn push(&mut self, now: Instant, entry: EntryId, block: BlockRecord) {
        self.waiting_bytes += u64::from(block.length);
        self.waiting_since.get_or_insert(now);
        self.blocks_of(entry).push(block);
    }

    /// Blocks of a file that is not to get its name after all.
    pub(super) fn put_back(&mut self, entry: EntryId, blocks: Vec<BlockRecord>) {
        if !blocks.is_empty() {
            self.blocks_of(entry).extend(blocks);
        }
    }

    fn blocks_of(&mut self, entry: EntryId) -> &mut Vec<BlockRecord> {
        let place = *self.places.entry(entry).or_insert(self.waiting.len());
        if place == self.waiting.len() {
            self.waiting.push(SyncFile { entry, blocks: Vec::new() });
        }
        &mut self.waiting[place].blocks
    }

    /// What waits is wanted on record now.
    pub(super) fn hurry(&mut self) {
        self.hurry = Hurry::Yes;
    }

    /// The blocks of a file that wait.
    pub(super) fn waiting_of(&self, entry: EntryId) -> &[BlockRecord] {
        self.places.get(&entry).map_or(&[], |&place| &self.waiting[place].blocks)
    }

    /// What waits of a file need not go on record: it is dropped, or gets its name.
    pub(super) fn forget(&mut self, entry: EntryId) {
        let _ = self.take(entry);
    }

    /// The same, and returns the blocks.
    pub(super) fn take(&mut self, entry: EntryId) -> Vec<BlockRecord> {
        let place = self.places.remove(&entry);
        place.map_or_else(Vec::new, |place| std::mem::take(&mut self.waiting[place].blocks))
    }

    /// What is to go on record now, if it is time; nothing if all that waited was dropped.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<SyncFile>> {
        self.is_gap_over |= now >= self.not_before;
        let is_late = self.waiting_since.is_some_and(|t| now.since(t) >= self.batch_interval);
        let is_time = is_late && self.is_gap_over && self.is_ready();
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
        self.running_since = now;
        Some(batch)
    }

    /// Whether [`Self::next`] has something for another reason than that time has passed.
    pub(super) fn is_due(&self) -> bool {
        let is_full = self.waiting_bytes >= self.batch_bytes && self.is_gap_over;
        self.is_ready() && (self.hurry == Hurry::Yes || is_full)
    }

    fn is_ready(&self) -> bool {
        self.running.is_empty() && !self.waiting.is_empty()
    }

    /// When [`Self::next`] has something although nothing happens until then.
    pub(super) fn due_at(&self) -> Option<Instant> {
        let since = self.waiting_since.filter(|_| self.running.is_empty())?;
        let is_full = self.waiting_bytes >= self.batch_bytes;
        let due_at = if is_full { since } else { since + self.batch_interval };
        Some(due_at.max(self.not_before))
    }

    /// What was to go on record is there, or not.
    pub(super) fn on_done(&mut self, now: Instant) {
        self.running.clear();
        self.is_gap_over = false;
        let took = now.since(self.running_since);
        self.not_before = now + took.saturating_mul(self.parts).min(self.gap_max);
    }

    /// Whether blocks of a file are being recorded.
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
            places: EntryMap::default(),
            waiting_bytes: 0,
            waiting_since: None,
            hurry: Hurry::No,
            running: EntrySet::default(),
            running_since: Instant::START,
            not_before: Instant::START,
            is_gap_over: true,
            parts: 20,
            gap_max: Duration::from_secs(30),
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
        recording.on_done(Instant::START);
        assert_eq!(next(&mut recording, 0), Some(vec![(3, 1)]));
        recording.on_done(Instant::START);
        push(&mut recording, 4, 1);
        assert_eq!(next(&mut recording, 1), Some(vec![(4, 1)]));
        recording.on_done(Instant::START);
        push(&mut recording, 5, 1);
        recording.hurry();
        assert_eq!(next(&mut recording, 0), Some(vec![(5, 1)]));
    }

    #[test]
    fn batches_take_a_small_share_of_the_time_but_those_in_a_hurry() {
        let after = |seconds| Instant::after_start(Duration::from_secs(seconds));
        let mut recording = recording();
        push(&mut recording, 1, 100);
        assert_eq!(next(&mut recording, 1), Some(vec![(1, 1)]));
        push(&mut recording, 1, 100);
        recording.on_done(after(2));
        // It took one second: twenty pass before the next one.
        assert_eq!((next(&mut recording, 21), recording.due_at()), (None, Some(after(22))));
        assert!(!recording.is_due(), "only time is missing");
        assert_eq!(next(&mut recording, 22), Some(vec![(1, 1)]));
        push(&mut recording, 1, 1);
        recording.on_done(after(42));
        assert_eq!((next(&mut recording, 71), recording.due_at()), (None, Some(after(72))));
        recording.hurry();
        assert_eq!(next(&mut recording, 42), Some(vec![(1, 1)]), "the pause is 30 s at most");
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
        recording.on_done(Instant::START);
        push(&mut recording, 2, 100);
        recording.forget(EntryId(2));
        assert_eq!(next(&mut recording, 0), Some(vec![]));
        assert!(recording.is_idle());
    }
}
