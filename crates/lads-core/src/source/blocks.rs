//! The blocks of one file that the sink wants: which of them were read, and which it has.
//!
//! When all of a file was read, a thread checks whether the file is still what was announced, and
//! the sink is told so (the source's word). That is while the last blocks are still in flight, so
//! the sink can give the file its name as soon as it has them, without a round trip. From the
//! moment the check begins, the thread that reads a block checks the file again after it: blocks
//! that are lost in flight are read once more, and the word holds for them, too.

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

/// The source's word that all blocks were read from the same version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// The sink has no word that holds, and no thread checks the file.
    Nobody,
    /// A thread checks the file.
    Asked,
    /// The same, but blocks were to be read again before it had checked: that may have been before
    /// or after.
    Stale,
    /// The sink was told.
    Given,
}

/// The blocks of a file.
#[derive(Debug)]
pub(super) struct Blocks {
    purpose: Purpose,
    /// The ranges that are durable at the sink.
    confirmed: RangeSet,
    /// The ranges that were read and need not be read again, as far as is known.
    read: RangeSet,
    word: Word,
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
        let (read, word, done_bytes) = (confirmed.clone(), Word::Nobody, skipped_bytes);
        let (bad_count, out_count) = (0, 0);
        Self { purpose, confirmed, read, word, done_bytes, skipped_bytes, bad_count, out_count }
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The ranges that are durable at the sink.
    pub(super) fn confirmed(&self) -> &RangeSet {
        &self.confirmed
    }

    /// The ranges that were read, or are durable at the sink from an earlier attempt.
    pub(super) fn read(&self) -> &RangeSet {
        &self.read
    }

    /// A block was read.
    pub(super) fn on_read(&mut self, block: &Block) {
        self.read.insert(block.offset..block.end());
    }

    /// A block is to be read again, because it was lost here or in flight.
    pub(super) fn on_again(&mut self, block: &Block) {
        self.read.remove(block.offset..block.end());
        if self.word == Word::Asked {
            self.word = Word::Stale;
        }
    }

    pub(super) fn word(&self) -> Word {
        self.word
    }

    /// A thread begins to check whether the file is the same.
    pub(super) fn on_word_asked(&mut self) {
        self.word = Word::Asked;
    }

    /// The file was the same when a thread checked it. Returns whether that counts: the sink is
    /// told. Otherwise it must be checked again.
    pub(super) fn on_checked(&mut self) -> bool {
        let is_good = self.word == Word::Asked;
        self.word = if is_good { Word::Given } else { Word::Nobody };
        is_good
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
        // If the sink has read the file back, it needs another word.
        if self.word == Word::Given {
            self.word = Word::Nobody;
        }
        self.bad_count = self.bad_count.saturating_add(1);
        self.bad_count
    }

    /// The sink does not have these blocks after all. Returns by how many bytes the done bytes and
    /// the skipped bytes decrease.
    pub(super) fn on_lost(&mut self, blocks: &[Block]) -> (u64, u64) {
        let bytes_before = self.confirmed.byte_count();
        for block in blocks {
            self.confirmed.remove(block.offset..block.end());
            self.on_again(block);
        }
        let lost_bytes = (bytes_before - self.confirmed.byte_count()).min(self.done_bytes);
        self.done_bytes -= lost_bytes;
        let unskipped_bytes = self.skipped_bytes.saturating_sub(self.done_bytes);
        self.skipped_bytes -= unskipped_bytes;
        (lost_bytes, unskipped_bytes)
    }
}
