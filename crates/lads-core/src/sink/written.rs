//! What became of blocks that came: damaged, written, compared, on record.

use super::Sink;
use super::blocks::{Blocks, Placing, record_of};
use super::event::{Compared, SyncFile, Write};
use super::file::File;
use crate::frame::Row;
use crate::issue::{Failure, Operation, Reason, Side};
use crate::journal::BlockRecord;
use crate::message::{BlockRange, Message};
use crate::units::{Block, EntryId, Instant, OstId};
use std::time::Duration;

impl Sink {
    /// A block arrived that does not match its checksum.
    pub(super) fn on_damaged(&mut self, row: &Row, ost: OstId) {
        let Block { entry, offset, length } = row.block;
        let blocks = |file: &mut File| file.blocks_mut().map(|blocks| blocks.on_resends(1));
        let resends = self.files.with(entry, blocks).flatten().expect("it is wanted");
        if resends > self.resends_max {
            let failure = Failure::new(Side::Sink, Operation::Verify, Reason::Checksum);
            self.fail(entry, failure.of_block(offset, length, ost));
            return;
        }
        self.ask_again(&row.block);
    }

    fn ask_again(&mut self, block: &Block) {
        self.counters.blocks_resent += 1;
        let (entry, offset, length) = (block.entry, block.offset, block.length.into());
        self.outbox.ask_again(vec![BlockRange { entry, offset, length }]);
    }

    pub(super) fn on_written(
        &mut self,
        now: Instant,
        write: &Write,
        service: Duration,
        failures: &[Option<Failure>],
    ) {
        self.frames.on_done(now, write, service);
        if self.ahead.is_limited() {
            let queues = self.frames.queues();
            self.ahead.on_congestion(queues.congested(), queues.is_calm(now));
        }
        for ((row, _), failure) in write.rows.iter().zip(failures) {
            self.files.on_block_released(row.block.entry);
            match failure {
                Some(failure) => self.on_not_written(row.block.entry, *failure),
                None => {
                    let (entry, length) = (row.block.entry, row.block.length);
                    self.placing.on_written(entry, write.room, length.into());
                    self.on_block_written(now, row);
                }
            }
        }
        self.place_again(now);
    }

    /// A block could not be written. An OST may take no more since it was given an extent of a file
    /// that grows, or the file system adds no extent. Such a file is not given up, but placed again
    /// as a whole, once: from then on no new file grows.
    fn on_not_written(&mut self, entry: EntryId, failure: Failure) {
        let is_of_its_place =
            failure.is_of_one_ost() || failure.operation == Operation::Preallocate;
        let placing = self.files.get(entry).and_then(File::receiving).and_then(|blocks| {
            blocks.growth().filter(|_| is_of_its_place).map(|_| blocks.placing())
        });
        match placing {
            None => self.fail(entry, failure),
            Some(Placing::Again) => {}
            Some(Placing::Once) => {
                self.growing.close();
                self.files.with(entry, |file| file.blocks_mut().map(Blocks::place_again));
                self.outbox.tell(Message::PlaceAgain(vec![entry]));
            }
        }
    }

    fn on_block_written(&mut self, now: Instant, row: &Row) {
        let entry = row.block.entry;
        let written = |file: &mut File| {
            let blocks = file.receiving_mut()?;
            let new_bytes = blocks.on_written(row);
            let (is_whole, left_bytes) = (blocks.is_whole(), blocks.left_bytes());
            Some((new_bytes, is_whole, left_bytes, file.is_unsized()))
        };
        let written = self.files.with(entry, written).flatten();
        let Some((new_bytes, is_whole, left_bytes, is_unsized)) = written else {
            return self.discard_if_idle(entry);
        };
        self.counters.bytes_done += new_bytes;
        if is_whole {
            self.commit_if_complete(entry);
        } else if self.recording.has_journal() && !is_unsized {
            self.recording.push(now, entry, record_of(row));
            // When the transfer stops, its blocks go on record: it gets no name.
            if left_bytes == 0 && self.course.goes_on() {
                self.settle(entry);
            }
        } else {
            self.on_recorded(entry, &[record_of(row)]);
        }
    }

    /// All of a file is written. What is not recorded need not go there: it will be durable with
    /// the file's name, for which only the word of the source is missing. To sync the file twice
    /// would cost more than to send its last blocks again after a crash.
    fn settle(&mut self, entry: EntryId) {
        self.files.with(entry, |file| file.blocks_mut().map(Blocks::settle));
        let blocks = self.recording.waiting_of(entry);
        self.outbox.tell_done(entry, blocks);
        self.commit_if_complete(entry);
    }

    /// Blocks of a file are recorded, or need not be.
    fn on_recorded(&mut self, entry: EntryId, blocks: &[BlockRecord]) {
        self.files.with(entry, |file| {
            let of_file = file.receiving_mut().expect("looked up by the caller");
            blocks.iter().for_each(|block| of_file.on_recorded(block));
        });
        self.outbox.tell_done(entry, blocks);
        self.commit_if_complete(entry);
    }

    /// Blocks were compared, or could not be.
    pub(super) fn on_compared(
        &mut self,
        now: Instant,
        write: &Write,
        service: Duration,
        results: &[Compared],
    ) {
        self.frames.on_done(now, write, service);
        for ((row, _), result) in write.rows.iter().zip(results) {
            self.files.on_block_released(row.block.entry);
            match result {
                Compared::Same => self.on_block_same(row),
                Compared::Different => self.on_different(row.block.entry),
                Compared::Failed(failure) => self.fail(row.block.entry, *failure),
            }
        }
    }

    fn on_block_same(&mut self, row: &Row) {
        let entry = row.block.entry;
        let same = |file: &mut File| {
            let blocks = file.receiving_mut()?;
            blocks.on_written(row);
            blocks.on_recorded(&record_of(row));
            Some(blocks.is_whole())
        };
        match self.files.with(entry, same).flatten() {
            None => self.discard_if_idle(entry),
            Some(is_whole) => {
                if !is_whole {
                    self.outbox.tell_done(entry, &[record_of(row)]);
                }
                self.commit_if_complete(entry);
            }
        }
    }

    /// A frame could not be brought back: the source is asked for it again.
    pub(super) fn on_not_drained(&mut self, now: Instant, write: &Write, service: Duration) {
        self.frames.on_not_drained(now, write, service);
        for (row, _) in &write.rows {
            let entry = row.block.entry;
            self.files.on_block_released(entry);
            match self.files.get(entry) {
                Some(file) if file.receiving().is_some() => self.ask_again(&row.block),
                _ => self.discard_if_idle(entry),
            }
        }
    }

    /// Blocks are recorded, or not.
    pub(super) fn on_synced(&mut self, now: Instant, results: Vec<(SyncFile, Option<Failure>)>) {
        self.recording.on_done(now);
        for (SyncFile { entry, blocks }, failure) in results {
            let Some(file) = self.files.get(entry) else { continue };
            match failure {
                Some(failure) => self.fail(entry, failure),
                None if file.receiving().is_some() => self.on_recorded(entry, &blocks),
                None => self.discard_if_idle(entry),
            }
        }
    }
}
