//! Writes blocks from a buffer to the stage, and sends blocks from the stage.

use super::SourceEnd;
use super::read::{PAGE_BYTES, places};
use lads_core::frame::Row;
use lads_core::schedule::Work;
use lads_core::source::Event;
use lads_core::staging::Slot;
use lads_sys::Buffer;
use twox_hash::XxHash3_64;

impl SourceEnd {
    /// Stages the blocks that were read.
    pub(super) fn put_aside(&self, work: Work, slot: Slot, rows: Vec<Row>, buffer: &Buffer) {
        let written = self.stage().write(slot, &buffer[..page_bytes(&rows)]);
        self.tell(match written {
            Ok(()) => Event::Staged { work, rows },
            Err(_) => Event::NotStaged { work },
        });
    }

    /// Reads blocks back from the stage and sends them, if they are unchanged.
    pub(super) fn drain_and_send(
        &self,
        work: Work,
        slot: Slot,
        rows: &[Row],
        buffer: &mut Buffer,
        worker: usize,
    ) {
        if self.stage().read(slot, &mut buffer[..page_bytes(rows)]).is_err() {
            self.tell(Event::NotDrained { work });
            return;
        }
        let is_good = |(row, place): (&Row, _)| XxHash3_64::oneshot(&buffer[place]) == row.checksum;
        if rows.iter().zip(places(rows)).all(is_good) {
            self.send(work, rows, buffer, worker);
        } else {
            self.stage().on_damage();
            self.tell(Event::NotDrained { work });
        }
    }
}

/// How many bytes of a buffer the blocks take up, in whole pages.
fn page_bytes(rows: &[Row]) -> usize {
    places(rows).last().map_or(0, |place| place.end.next_multiple_of(PAGE_BYTES))
}
