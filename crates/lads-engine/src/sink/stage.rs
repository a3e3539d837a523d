//! From a buffer into the stage, and back from there into a buffer.

use super::SinkEnd;
use super::write::PAGE_BYTES;
use crate::stage::StageLog;
use lads_core::frame::Row;
use lads_core::sink::{BufferId, Event, Place, Write};
use lads_core::staging::Slot;
use lads_sys::Buffer;
use std::sync::PoisonError;
use std::time::Instant;
use twox_hash::XxHash3_64;

impl SinkEnd {
    /// Puts a frame into the stage and frees its buffer; if that fails, it stays where it is.
    pub(super) fn put_aside(&self, write: Write, slot: Slot) {
        let Place::Buffer(id) = write.place else { return };
        let Some(buffer) = self.take_buffer(id) else { return };
        if self.stage().write(slot, &buffer[..page_bytes(&write)]).is_ok() {
            drop(buffer);
            self.tell(Event::Staged(Write { place: Place::Stage(slot), ..write }));
        } else {
            self.put_buffer(id, buffer);
            self.tell(Event::NotStaged { write, slot });
        }
    }

    /// The bytes of a frame, if they are what they were when it arrived.
    pub(super) fn bytes_of(&self, write: &Write) -> Option<Buffer> {
        match write.place {
            Place::Buffer(id) => self.take_buffer(id),
            Place::Stage(slot) => self.bring_back(write, slot),
        }
    }

    fn bring_back(&self, write: &Write, slot: Slot) -> Option<Buffer> {
        let started = Instant::now();
        // There is one: a buffer is kept for each frame that may be on its way back.
        let mut buffer = self.arena.take();
        let is_read = self.stage().read(slot, &mut buffer[..page_bytes(write)]).is_ok();
        let is_good = |(row, place): &(Row, u32)| {
            let bytes = &buffer[*place as usize..][..row.block.length as usize];
            XxHash3_64::oneshot(bytes) == row.checksum
        };
        if is_read && write.rows.iter().all(is_good) {
            return Some(buffer);
        }
        drop(buffer);
        if is_read {
            self.stage().on_damage();
        }
        self.tell(Event::NotDrained { write: write.clone(), service: started.elapsed() });
        None
    }

    /// Keeps the buffer of a frame until the frame is written.
    pub(super) fn put_buffer(&self, id: BufferId, buffer: Buffer) {
        let place = &self.buffers[id.0 as usize];
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffer);
    }

    fn stage(&self) -> &StageLog {
        self.stage.as_ref().expect("the session was told that there is none")
    }
}

/// How much of its buffer a frame takes up, in bytes: whole pages.
fn page_bytes(write: &Write) -> usize {
    let end = write.rows.last().map_or(0, |(row, place)| place + row.block.length);
    (end as usize).next_multiple_of(PAGE_BYTES)
}
