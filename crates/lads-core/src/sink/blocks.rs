//! The blocks of one file that is wanted: which have come, are written, are recorded.
//!
//! If a file of the same size is there already, the source sends the checksum of each block in
//! place of its bytes, and the checksum is compared with the bytes that are read here. Such blocks
//! take the way of all others: they need a grant, they wait in the queue of the OST that holds
//! them, and a thread reads them into the buffer that the grant stands for. So both ends read side
//! by side, memory is bounded, and a slow OST holds up no other.

use super::file::Kept;
use crate::ahead::Placed;
use crate::frame::Row;
use crate::growth::Growth;
use crate::journal::BlockRecord;
use crate::layout::Layout;
use crate::range::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// What blocks of a file come for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// They are written.
    Write,
    /// Their checksums are compared with those of a file that is there; nothing is written.
    Compare,
}

/// Who has confirmed that all blocks belong to the same version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Nobody,
    /// The source, of what is recorded by then.
    Source,
    /// The file's only block.
    Block,
}

/// Whether the source was asked to announce a file again, to get another place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placing {
    Once,
    Again,
}

/// The blocks of a file.
#[derive(Debug)]
pub(super) struct Blocks {
    purpose: Purpose,
    /// The bytes of the file that have to come, or be there.
    data_bytes: u64,
    /// Where it lies, or will.
    layout: Layout,
    /// Where it lies by now, if it grows.
    growth: Option<Growth>,
    /// Bytes of it that are placed and have not come, if they are counted.
    placed: Option<Placed>,
    placing: Placing,
    /// Bytes written, or there from an earlier attempt.
    written: RangeSet,
    /// Of these, bytes that this attempt wrote and that count as progress.
    counted_bytes: u64,
    /// Of these, bytes on record.
    on_record: RangeSet,
    /// Whether all is written, and what is not recorded will be durable with the file's name.
    is_settled: bool,
    /// All blocks, if the file will be read back, by offset and length. After an attempt with
    /// another block size some overlap.
    records: Option<BTreeMap<(u64, u32), BlockRecord>>,
    /// Blocks of it with an I/O thread, or waiting for one.
    in_flight: u32,
    word: Word,
    resends: u32,
}

impl Blocks {
    /// The blocks of a file with this layout of which nothing is there.
    pub(super) fn new(purpose: Purpose, data_bytes: u64, layout: Layout) -> Self {
        Self {
            purpose,
            data_bytes,
            layout,
            growth: None,
            placed: None,
            placing: Placing::Once,
            written: RangeSet::new(),
            counted_bytes: 0,
            on_record: RangeSet::new(),
            is_settled: false,
            records: None,
            in_flight: 0,
            word: Word::Nobody,
            resends: 0,
        }
    }

    /// The same, with bytes that are placed and have not come.
    pub(super) fn placed(self, placed: Option<Placed>) -> Self {
        Self { placed, ..self }
    }

    /// The same, if it grows.
    pub(super) fn growing(self, growth: Option<Growth>) -> Self {
        Self { growth, ..self }
    }

    /// The same, with what an earlier attempt left.
    pub(super) fn with_done(self, ranges: RangeSet) -> Self {
        Self { written: ranges.clone(), on_record: ranges, ..self }
    }

    /// The same, with all its blocks kept until the file is read back.
    pub(super) fn with_records(self, done: &[BlockRecord]) -> Self {
        let records = done.iter().map(|block| ((block.offset, block.length), *block));
        Self { records: Some(records.collect()), ..self }
    }

    /// The same, of a file without bytes: it is whole as announced.
    pub(super) fn empty(self) -> Self {
        Self { word: Word::Block, ..self }
    }

    /// What the blocks come for.
    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn growth(&self) -> Option<&Growth> {
        self.growth.as_ref()
    }

    pub(super) fn growth_mut(&mut self) -> Option<&mut Growth> {
        self.growth.as_mut()
    }

    pub(super) fn placed_mut(&mut self) -> Option<&mut Placed> {
        self.placed.as_mut()
    }

    pub(super) fn placed_bytes(&self) -> Option<Placed> {
        self.placed
    }

    pub(super) fn placing(&self) -> Placing {
        self.placing
    }

    pub(super) fn place_again(&mut self) {
        self.placing = Placing::Again;
    }

    /// The number of bytes of the file that have to come, or be there.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// The number of bytes of those that are not written.
    pub(super) fn left_bytes(&self) -> u64 {
        self.data_bytes.saturating_sub(self.written.byte_count())
    }

    /// How many separate ranges are written.
    pub(super) fn range_count(&self) -> usize {
        self.written.range_count()
    }

    /// The bytes on record.
    pub(super) fn on_record(&self) -> &RangeSet {
        &self.on_record
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(super) fn on_come(&mut self) {
        self.in_flight += 1;
    }

    /// This many blocks are no longer with a thread, nor wait for one.
    ///
    /// # Panics
    /// If there were fewer.
    pub(super) fn on_released(&mut self, count: u32) {
        assert!(self.in_flight >= count, "{count} blocks of {} in flight ended", self.in_flight);
        self.in_flight -= count;
    }

    /// A block is written, or found to be there. Returns how many of its bytes were not there
    /// before.
    pub(super) fn on_written(&mut self, row: &Row) -> u64 {
        let record = record_of(row);
        if let Some(records) = &mut self.records {
            records.insert((record.offset, record.length), record);
        }
        if row.is_whole {
            self.word = Word::Block;
        }
        let new_bytes = self.written.insert(row.block.offset..row.block.end());
        self.counted_bytes += new_bytes;
        new_bytes
    }

    /// Returns the written bytes that no longer count as progress, because the file is dropped: all
    /// that this attempt wrote, or those that the journal does not keep.
    pub(super) fn withdraw(&mut self, kept: Kept) -> u64 {
        let withdrawn = match (self.purpose, kept) {
            (Purpose::Compare, _) => 0,
            (Purpose::Write, Kept::No) => self.counted_bytes,
            (Purpose::Write, Kept::Yes) => {
                let lost_bytes = self.written.byte_count() - self.on_record.byte_count();
                lost_bytes.min(self.counted_bytes)
            }
        };
        self.counted_bytes -= withdrawn;
        withdrawn
    }

    /// A block that is written is recorded, or need not be.
    pub(super) fn on_recorded(&mut self, block: &BlockRecord) {
        self.on_record.insert(range_of(block));
    }

    /// All is written: what is not recorded need not go there.
    pub(super) fn settle(&mut self) {
        self.is_settled = true;
    }

    /// The source has confirmed that all blocks belong to the same version of the file.
    pub(super) fn on_vouched(&mut self) {
        self.word = self.word.max(Word::Source);
    }

    /// Whether exactly the first `size` bytes are written.
    pub(super) fn has_just(&self, size: u64) -> bool {
        self.written.byte_count() == size && self.written.contains(0..size)
    }

    /// It was unsized, and came to its end: its length is known now.
    pub(super) fn on_end_met(&mut self, size: u64) {
        self.data_bytes = size;
        self.on_vouched();
    }

    /// Whether its only block has come: then nothing of it is recorded.
    pub(super) fn is_whole(&self) -> bool {
        self.word == Word::Block
    }

    /// Whether all of it is durable, or will be with its name.
    pub(super) fn is_complete(&self) -> bool {
        let bytes = match self.word {
            Word::Nobody => return false,
            Word::Source if !self.is_settled => self.on_record.byte_count(),
            Word::Source | Word::Block => self.written.byte_count(),
        };
        bytes >= self.data_bytes && self.in_flight == 0
    }

    /// If the file is to be read back: what it is compared with.
    pub(super) fn to_read_back(&self) -> Option<Vec<BlockRecord>> {
        self.records.as_ref().map(|records| records.values().copied().collect())
    }

    /// `count` further blocks have to come again. Returns how many that are in all.
    pub(super) fn on_resends(&mut self, count: usize) -> u32 {
        self.resends = self.resends.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        self.resends
    }

    /// Removes blocks that differed from the written ones when they were read back. Returns the
    /// number of bytes that no longer count as progress.
    pub(super) fn on_bad(&mut self, blocks: &[BlockRecord]) -> u64 {
        let written_bytes = self.written.byte_count();
        self.word = Word::Nobody;
        self.is_settled = false;
        for block in blocks {
            self.written.remove(range_of(block));
            self.on_record.remove(range_of(block));
            if let Some(records) = &mut self.records {
                records.remove(&(block.offset, block.length));
            }
        }
        let withdrawn = (written_bytes - self.written.byte_count()).min(self.counted_bytes);
        self.counted_bytes -= withdrawn;
        withdrawn
    }

    /// What is recorded is not to be trusted: another attempt starts over.
    pub(super) fn distrust(&mut self) {
        self.on_record = RangeSet::new();
    }
}

/// The record of a block for the journal.
pub(super) fn record_of(row: &Row) -> BlockRecord {
    BlockRecord { offset: row.block.offset, length: row.block.length, checksum: row.checksum }
}

fn range_of(block: &BlockRecord) -> Range<u64> {
    block.offset..block.offset + u64::from(block.length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Block, EntryId, OstId};

    fn blocks() -> Blocks {
        Blocks::new(Purpose::Write, 300, Layout::on(OstId(0)))
    }

    fn row(offset: u64) -> Row {
        let block = Block { entry: EntryId(1), offset, length: 100 };
        Row { block, is_whole: false, checksum: 0 }
    }

    #[test]
    fn bytes_of_a_dropped_file_are_withdrawn_once_and_those_on_record_may_stay() {
        let mut blocks = blocks();
        blocks.on_written(&row(0));
        blocks.on_written(&row(100));
        blocks.on_recorded(&record_of(&row(0)));
        assert_eq!(blocks.withdraw(Kept::Yes), 100);
        assert_eq!(blocks.withdraw(Kept::No), 100);
        assert_eq!(blocks.withdraw(Kept::No), 0);
    }

    #[test]
    fn bytes_that_rotted_are_left_again_and_withdrawn_once() {
        let mut blocks = blocks();
        blocks.on_written(&row(0));
        blocks.on_written(&row(200));
        assert_eq!(blocks.on_bad(&[record_of(&row(200))]), 100);
        assert_eq!((blocks.left_bytes(), blocks.withdraw(Kept::No)), (200, 100));
    }

    #[test]
    fn ranges_that_do_not_meet_are_counted() {
        let mut blocks = blocks();
        assert_eq!(blocks.range_count(), 0);
        blocks.on_written(&row(0));
        blocks.on_written(&row(200));
        assert_eq!(blocks.range_count(), 2);
        blocks.on_written(&row(100));
        assert_eq!(blocks.range_count(), 1);
    }
}
