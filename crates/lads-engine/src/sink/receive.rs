//! From a data stream to a buffer that waits to be written, or is written at once.

use super::SinkEnd;
use crate::event::ExitCode;
use crate::hub::Fatal;
use lads_core::frame::{HEADER_BYTES, Header, ROW_BYTES, ROWS_MAX, Row, take_rows};
use lads_core::sink::{BufferId, Event};
use lads_core::units::StreamId;
use lads_sys::Buffer;
use std::io;
use std::sync::PoisonError;
use twox_hash::XxHash3_64;

/// Header and first row, which every frame has: they come in one read.
const FIRST_BYTES: usize = HEADER_BYTES + ROW_BYTES;

/// What one receiving thread keeps from frame to frame.
struct Receiver {
    stream: StreamId,
    head: Vec<u8>,
    rows: Vec<Row>,
    checked: Vec<(Row, bool)>,
    frames: u64,
}

impl SinkEnd {
    /// Receives frames until the stream ends, then says how many arrived whole.
    pub(super) fn receive(&self, stream: u16) {
        let mut receiver = Receiver {
            stream: StreamId(stream),
            head: vec![0; HEADER_BYTES + ROWS_MAX * ROW_BYTES],
            rows: Vec::new(),
            checked: Vec::new(),
            frames: 0,
        };
        while self.receive_frame(&mut receiver).unwrap_or(false) {
            receiver.frames += 1;
            self.streams.on_frame_received(receiver.stream);
        }
        self.streams.lose(receiver.stream);
        self.tell(Event::StreamEnded { stream, frames: receiver.frames });
    }

    /// `false` when the stream is at its end.
    fn receive_frame(&self, receiver: &mut Receiver) -> io::Result<bool> {
        let stream = receiver.stream;
        if !self.streams.receive(stream, &mut receiver.head[..FIRST_BYTES])? {
            return Ok(false);
        }
        let header = Header::take(&receiver.head[..HEADER_BYTES]).map_err(io::Error::other)?;
        let end = HEADER_BYTES + usize::from(header.count) * ROW_BYTES;
        if end > FIRST_BYTES {
            self.streams.receive(stream, &mut receiver.head[FIRST_BYTES..end])?;
        }
        take_rows(&header, &receiver.head[HEADER_BYTES..end], &mut receiver.rows)
            .map_err(io::Error::other)?;
        if header.number != receiver.frames || header.payload_bytes > self.options.block_size {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let rows = &receiver.rows;
        let admitted = self.hub.with(|inner| inner.session.admit(&header, rows));
        if let Err(error) = admitted {
            self.hub.fail(crate::talk::breach(&error));
            return Ok(false);
        }
        let mut buffer = self.arena.take();
        let payload = &mut buffer[..header.payload_bytes as usize];
        if let Err(error) = self.receive_payload(stream, payload) {
            drop(buffer);
            self.hub.with(|inner| inner.session.on_frame_lost(header.sink_ost));
            return Err(error);
        }
        if header.has_only_sums {
            receiver.checked.clear();
            receiver.checked.extend(receiver.rows.iter().map(|row| (*row, true)));
        } else {
            check_rows(receiver, payload);
        }
        self.pass_on(&header, receiver, buffer);
        Ok(true)
    }

    fn receive_payload(&self, stream: StreamId, payload: &mut [u8]) -> io::Result<()> {
        if payload.is_empty() || self.streams.receive(stream, payload)? {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Queues the frame, or writes it if its OST is quick and idle.
    fn pass_on(&self, header: &Header, receiver: &Receiver, buffer: Buffer) {
        let id = BufferId(buffer.index());
        self.put_buffer(id, buffer);
        let ost = header.sink_ost;
        let now = self.clock.now();
        let rows = &receiver.checked;
        let write = self.hub.with(|inner| inner.session.on_frame(now, id, header, rows));
        let Some(write) = write else { return };
        if write.rows.is_empty() {
            drop(self.take_buffer(id));
            self.hub.with(|inner| inner.session.on_empty_frame(ost));
        } else {
            self.write_queued(write);
        }
    }

    /// The buffer with this number, which holds a frame.
    pub(super) fn take_buffer(&self, id: BufferId) -> Option<Buffer> {
        let buffer =
            self.buffers[id.0 as usize].lock().unwrap_or_else(PoisonError::into_inner).take();
        if buffer.is_none() {
            let text = "a buffer was written twice: this is a mistake in LADS, please report it";
            self.hub.fail(Fatal::new(ExitCode::Other, text));
        }
        buffer
    }
}

/// Compares each block with its checksum, while the bytes are warm in the cache.
fn check_rows(receiver: &mut Receiver, payload: &[u8]) {
    receiver.checked.clear();
    let mut rest = payload;
    for row in &receiver.rows {
        let (bytes, tail) = rest.split_at(row.block.length as usize);
        receiver.checked.push((*row, XxHash3_64::oneshot(bytes) == row.checksum));
        rest = tail;
    }
}
