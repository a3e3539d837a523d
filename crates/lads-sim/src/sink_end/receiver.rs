//! A thread that receives frames from one stream, and sometimes writes them itself.

use super::{Held, SinkEnd, Waiting};
use crate::content::Content;
use crate::findings::Checked;
use crate::world::{Arrival, Frame, Happening, World};
use lads_core::frame::{HEADER_BYTES, Header, Row, take_rows};
use lads_core::sink::{BufferId, Event, Write};
use lads_core::units::Instant;
use std::collections::VecDeque;

/// A frame of which the head has arrived.
#[derive(Debug)]
struct Arriving {
    header: Header,
    rows: Vec<Row>,
    payload: Vec<Content>,
    buffer: usize,
}

/// One receiving thread.
#[derive(Debug, Default)]
pub(crate) struct Receiver {
    inbox: VecDeque<Arrival>,
    arriving: Option<Arriving>,
    /// What it writes itself.
    pub(crate) writing: Option<(Write, Instant)>,
    frames: u64,
    /// Nothing more arrives.
    is_cut: bool,
    has_ended: bool,
}

impl Receiver {
    /// Frames that arrived whole.
    pub(crate) fn frame_count(&self) -> u64 {
        self.frames
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.writing.is_none()
    }
}

impl SinkEnd {
    /// Something arrives on a stream. Says whether this end gives the stream up.
    pub(crate) fn on_arrival(
        &mut self,
        world: &mut World,
        stream: usize,
        arrival: Arrival,
    ) -> Checked<bool> {
        let receiver = &mut self.receivers[stream];
        if receiver.is_cut {
            return Ok(false);
        }
        receiver.is_cut = matches!(arrival, Arrival::Cut);
        receiver.inbox.push_back(arrival);
        self.receive(world, stream)
    }

    /// A receiving thread has written what it wrote itself, and receives again.
    pub(crate) fn on_receiver(&mut self, world: &mut World, stream: usize) -> Checked<bool> {
        let (write, started) = self.receivers[stream].writing.take().expect("it was writing");
        self.finish_write(world, write, started)?;
        self.receive(world, stream)
    }

    fn receive(&mut self, world: &mut World, stream: usize) -> Checked<bool> {
        while self.receivers[stream].writing.is_none() && !self.session.is_over() {
            let Some(arrival) = self.receivers[stream].inbox.pop_front() else { break };
            match arrival {
                Arrival::Head(frame) => {
                    if !self.on_head(world, stream, &frame)? {
                        self.receivers[stream].is_cut = true;
                        self.receivers[stream].inbox.clear();
                        self.end_stream(world, stream)?;
                        return Ok(true);
                    }
                }
                Arrival::Payload => self.on_payload(world, stream)?,
                Arrival::Cut => self.end_stream(world, stream)?,
            }
        }
        Ok(false)
    }

    /// Whether the head is sound.
    fn on_head(&mut self, world: &World, stream: usize, frame: &Frame) -> Checked<bool> {
        let (head, table) = frame.head.split_at(HEADER_BYTES);
        let mut rows = Vec::new();
        let Ok(header) = Header::take(head) else { return Ok(false) };
        if take_rows(&header, table, &mut rows).is_err() {
            return Ok(false);
        }
        if header.number != self.receivers[stream].frames {
            return Err(format!("frame {} is out of order", header.number));
        }
        let ost = header.sink_ost;
        world.log(|| format!("sink <- frame {} on stream {stream} for {ost}", header.number));
        let admitted = self.session.admit(&header, &rows);
        admitted.map_err(|error| format!("a frame is refused: {error}"))?;
        self.outstanding.take(ost)?;
        let buffer = self.buffers.iter().position(Option::is_none);
        let buffer = buffer.ok_or("a frame was let in, and there is no buffer")?;
        self.buffers[buffer] = Some(Vec::new());
        let payload = frame.payload.clone();
        self.receivers[stream].arriving = Some(Arriving { header, rows, payload, buffer });
        Ok(true)
    }

    fn on_payload(&mut self, world: &mut World, stream: usize) -> Checked {
        let arriving = self.receivers[stream].arriving.take().expect("its head came before");
        let Arriving { header, rows, payload, buffer } = arriving;
        let ost = header.sink_ost;
        self.receivers[stream].frames += 1;
        let compare = |(row, content): (&Row, &Content)| {
            let checksum = content.checksum(row.block.offset, row.block.length.into());
            (*row, checksum == row.checksum)
        };
        let checked: Vec<_> = rows.iter().zip(&payload).map(compare).collect();
        let mut place = 0;
        let mut hold = |(row, content): (&Row, &Content)| {
            place += row.block.length;
            Held { place: place - row.block.length, block: row.block, content: *content }
        };
        self.buffers[buffer] = Some(rows.iter().zip(&payload).map(&mut hold).collect());
        let id = BufferId(u32::try_from(buffer).expect("buffer numbers are 32 bits"));
        match self.session.on_frame(world.now, id, &header, &checked) {
            None => {
                let first = checked.iter().find(|(_, is_good)| *is_good);
                let (row, _) = first.ok_or("a frame waits, and all of it is damaged")?;
                self.waiting.insert(id, Waiting { room: ost, block: row.block });
            }
            Some(write) if write.rows.is_empty() => {
                self.buffers[buffer] = None;
                self.session.on_empty_frame(ost);
            }
            Some(write) => {
                let wait = self.begin_write(world, &write)?;
                self.receivers[stream].writing = Some((write, world.now));
                world.after(wait, Happening::Receiver(stream));
            }
        }
        Ok(())
    }

    fn end_stream(&mut self, world: &World, stream: usize) -> Checked {
        let receiver = &mut self.receivers[stream];
        if std::mem::replace(&mut receiver.has_ended, true) {
            return Ok(());
        }
        let frames = receiver.frames;
        if let Some(Arriving { header, buffer, .. }) = receiver.arriving.take() {
            let ost = header.sink_ost;
            self.buffers[buffer] = None;
            self.outstanding.give_back(ost);
            self.session.on_frame_lost(ost);
        }
        let stream = u16::try_from(stream).expect("a few streams");
        self.tell(world, Event::StreamEnded { stream, frames })
    }
}
