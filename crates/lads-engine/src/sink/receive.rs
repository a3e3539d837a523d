//! From a data stream to a buffer that waits to be written, or is written at once.

use super::SinkEnd;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::transport::{Arrived, Frame, GrantedBuffers, Receiver};
use lads_core::frame::{Header, Row};
use lads_core::sink::{BufferId, Event};
use lads_core::units::{OstId, StreamId};
use lads_sys::Buffer;
use std::io;
use std::sync::PoisonError;
use twox_hash::XxHash3_64;

/// A buffer was granted for each frame that may come, so a frame never waits for a buffer.
impl GrantedBuffers for SinkEnd {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        if header.payload_bytes > self.options.block_size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let admitted = self.hub.with(|inner| inner.session.admit(header, rows));
        if let Err(error) = admitted {
            self.hub.fail(crate::fatal::breach(&error));
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.arena.take())
    }

    fn on_frame_lost(&self, sink_ost: OstId) {
        self.hub.with(|inner| inner.session.on_frame_lost(sink_ost));
    }
}

impl SinkEnd {
    /// Receives frames until the stream ends, then says how many arrived whole.
    pub(super) fn receive(&self, stream: u16, mut receiver: Box<dyn Receiver>) {
        let (mut frame, mut checked, mut frames) = (Frame::default(), Vec::new(), 0);
        loop {
            self.hub.wait_for_share();
            if !receiver.next_frame(&mut frame).unwrap_or(false) {
                break;
            }
            frames += 1;
            self.streams.on_frame_received(StreamId(stream));
            if let Some(arrived) = frame.arrived.take() {
                check_rows(&arrived, &frame.rows, &mut checked);
                self.pass_on(arrived, &checked);
            }
        }
        self.streams.lose(StreamId(stream));
        drop(receiver);
        self.tell(Event::StreamEnded { stream, frames });
    }

    /// Queues the frame, or writes it if its OST is quick and idle.
    fn pass_on(&self, arrived: Arrived, rows: &[(Row, bool)]) {
        let Arrived { header, buffer } = arrived;
        let id = BufferId(buffer.index());
        self.put_buffer(id, buffer);
        let ost = header.sink_ost;
        let now = self.clock.now();
        let write = self.hub.with(|inner| inner.session.on_frame(now, id, &header, rows));
        let Some(write) = write else { return };
        if write.rows.is_empty() {
            drop(self.take_buffer(id));
            self.hub.with(|inner| inner.session.on_empty_frame(ost));
        } else if let Some(event) = self.write_queued(write) {
            if self.layouts.is_memory() {
                self.tell_last(event);
                self.do_available_tasks();
            } else {
                self.tell(event);
            }
        }
    }

    /// The buffer with this number, which holds a frame.
    pub(super) fn take_buffer(&self, id: BufferId) -> Option<Buffer> {
        let buffer =
            self.buffers[id.0 as usize].lock().unwrap_or_else(PoisonError::into_inner).take();
        if buffer.is_none() {
            let text = "a buffer was written twice: this is a bug in LADS, please report it";
            self.hub.fail(Fatal::new(ExitCode::Other, text));
        }
        buffer
    }
}

/// Compares each block with its checksum while the bytes are still in the cache. A block that came
/// without bytes is compared later, with the file that is there.
fn check_rows(arrived: &Arrived, rows: &[Row], checked: &mut Vec<(Row, bool)>) {
    checked.clear();
    if arrived.header.has_only_sums {
        checked.extend(rows.iter().map(|row| (*row, true)));
        return;
    }
    let mut rest = &arrived.buffer[..];
    for row in rows {
        let (bytes, tail) = rest.split_at(row.block.length as usize);
        checked.push((*row, XxHash3_64::oneshot(bytes) == row.checksum));
        rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::units::{Block, EntryId};
    use lads_sys::Arena;

    #[test]
    fn each_block_of_a_frame_is_compared_with_its_own_checksum() {
        let files: [&[u8]; 3] = [b"first", b"second one", b"third"];
        let mut buffer = Arena::new(1, 4096).unwrap().take();
        let bytes = files.concat();
        buffer[..bytes.len()].copy_from_slice(&bytes);
        let row = |(number, file): (usize, &&[u8])| Row {
            block: Block {
                entry: EntryId(number as u64),
                offset: 0,
                length: u32::try_from(file.len()).unwrap(),
            },
            is_whole: true,
            checksum: XxHash3_64::oneshot(file),
        };
        let rows: Vec<Row> = files.iter().enumerate().map(row).collect();
        let header = Header {
            count: 3,
            payload_bytes: u32::try_from(bytes.len()).unwrap(),
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant: false,
            has_only_sums: false,
        };
        let mut arrived = Arrived { header, buffer };
        let mut checked = Vec::new();
        let mut start = 0;
        for (damaged, file) in files.iter().enumerate() {
            for place in [start, start + file.len() - 1] {
                arrived.buffer[place] ^= 1;
                check_rows(&arrived, &rows, &mut checked);
                let expected: Vec<_> = (0..3).map(|it| (rows[it], it != damaged)).collect();
                assert_eq!(checked, expected);
                arrived.buffer[place] ^= 1;
            }
            start += file.len();
        }
        check_rows(&arrived, &rows, &mut checked);
        assert!(checked.iter().all(|(_, is_right)| *is_right));
    }
}
