//! Files that are there already, of the same size: the source sends the checksum of each block in
//! place of its bytes, and it is compared with what is read here.
//!
//! Such blocks take the way of all others: they need a grant, they wait in the queue of the OST
//! that holds them, and a thread reads them into the buffer that the grant stands for. So both ends
//! read side by side, memory is bounded, and a slow OST holds up no other.

use super::{Compared, Phase, Place, Sink, Write, range_of};
use crate::frame::Row;
use crate::journal::BlockRecord;
use crate::layout::Layout;
use crate::message::Answer;
use crate::units::{EntryId, Instant};
use std::time::Duration;

impl Sink {
    /// Asks the source for the checksums of a file that is there.
    pub(super) fn compare(&mut self, entry: EntryId, layout: Layout) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        file.is_compared = true;
        // Where one end has a hole, the other may have bytes.
        file.data_bytes = file.size;
        file.layout = Some(layout.clone());
        if let Some(placed) = &mut file.ahead {
            self.ahead.on_decided(placed, layout.ost_at(0));
        }
        self.answers.push_back((entry, Answer::Compare { layout }));
    }

    /// Blocks were compared, or could not be.
    pub(super) fn on_compared(
        &mut self,
        now: Instant,
        write: &Write,
        service: Duration,
        results: &[Compared],
    ) {
        self.queues.finish(now, write.ost, write.bytes(), service);
        if let Place::Buffer(_) = write.place {
            self.grants.on_release(write.room);
        }
        for ((row, _), result) in write.rows.iter().zip(results) {
            self.release_block(row.block.entry);
            match result {
                Compared::Same => self.on_block_same(row),
                Compared::Different => self.on_different(row.block.entry),
                Compared::Failed(failure) => self.fail(row.block.entry, *failure),
            }
        }
    }

    fn on_block_same(&mut self, row: &Row) {
        let entry = row.block.entry;
        let Some(file) = self.files.get_mut(&entry) else { return };
        if file.phase != Phase::Receiving {
            self.discard_if_idle(entry);
            return;
        }
        let (offset, length) = (row.block.offset, row.block.length);
        let ranges_before = file.written.range_count();
        file.written.insert(offset..row.block.end());
        file.on_record.insert(offset..row.block.end());
        self.range_count = self.range_count + file.written.range_count() - ranges_before;
        file.is_whole |= row.is_whole;
        if !file.is_whole {
            let block = BlockRecord { offset, length, checksum: row.checksum };
            self.block_dones.push_back(range_of(entry, &block));
        }
        self.commit_if_complete(entry);
    }

    /// What is there of a file is not what the source has.
    pub(super) fn on_different(&mut self, entry: EntryId) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        if !file.phase.is_ending() {
            file.is_different = true;
            self.give_up(entry);
        }
        self.discard_if_idle(entry);
    }
}
