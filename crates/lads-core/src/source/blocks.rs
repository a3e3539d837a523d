//! The blocks of one file that the sink wants: which of them it has.

use crate::message::BlockRange;
use crate::range::RangeSet;
use crate::units::Block;

/// What blocks of a file are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Their bytes go to the sink.
    Send,
    /// Only their checksums go to the sink, which compares them with its own.
    Compare,
}

/// The blocks of a file.
#[derive(Debug)]
pub(super) struct Blocks {
    purpose: Purpose,
    /// The ranges that are durable at the sink.
    confirmed: RangeSet,
    /// Bytes of the file that the counters count as done. `skipped_bytes` of them are of an earlier
    /// attempt.
    done_bytes: u64,
    skipped_bytes: u64,
    /// How often the sink has asked for blocks of it again.
    bad_count: u32,
    /// The number of blocks that were handed out and whose fate is not known yet.
    out_count: u32,
}

impl Blocks {
    /// The sink has `confirmed` from an earlier attempt; `skipped_bytes` of that is data.
    pub(super) fn new(purpose: Purpose, confirmed: RangeSet, skipped_bytes: u64) -> Self {
        let done_bytes = skipped_bytes;
        Self { purpose, confirmed, done_bytes, skipped_bytes, bad_count: 0, out_count: 0 }
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The ranges that are durable at the sink.
    pub(super) fn confirmed(&self) -> &RangeSet {
        &self.confirmed
    }

    /// Whether the sink has a block.
    pub(super) fn has(&self, block: &Block) -> bool {
        self.confirmed.contains(block.offset..block.end())
    }

    /// How many bytes count as done.
    pub(super) fn done_bytes(&self) -> u64 {
        self.done_bytes
    }

    /// How many of the done bytes are of an earlier attempt.
    pub(super) fn skipped_bytes(&self) -> u64 {
        self.skipped_bytes
    }

    /// The sink has the bytes from the start of `range` to `end`. Returns how many of them are new.
    pub(super) fn on_done(&mut self, range: &BlockRange, end: u64) -> u64 {
        let new_bytes = self.confirmed.insert(range.offset..end);
        self.done_bytes += new_bytes;
        new_bytes
    }

    /// The number of blocks that were handed out and whose fate is not known yet.
    pub(super) fn out_count(&self) -> u32 {
        self.out_count
    }

    /// A block is handed out.
    pub(super) fn on_out(&mut self) {
        self.out_count += 1;
    }

    /// The fate of a block that was handed out is known.
    ///
    /// # Panics
    /// If no block was handed out.
    pub(super) fn on_back(&mut self) {
        assert!(self.out_count > 0, "a block is back, and none was handed out");
        self.out_count -= 1;
    }

    /// The sink asks for blocks again. Returns how often it has done so.
    pub(super) fn on_asked_again(&mut self) -> u32 {
        self.bad_count = self.bad_count.saturating_add(1);
        self.bad_count
    }

    /// The sink does not have these blocks after all. Returns by how many bytes the done bytes and
    /// the skipped bytes decrease.
    pub(super) fn on_lost(&mut self, blocks: &[Block]) -> (u64, u64) {
        let bytes_before = self.confirmed.byte_count();
        for block in blocks {
            self.confirmed.remove(block.offset..block.end());
        }
        let lost_bytes = (bytes_before - self.confirmed.byte_count()).min(self.done_bytes);
        self.done_bytes -= lost_bytes;
        let unskipped_bytes = self.skipped_bytes.saturating_sub(self.done_bytes);
        self.skipped_bytes -= unskipped_bytes;
        (lost_bytes, unskipped_bytes)
    }
}
