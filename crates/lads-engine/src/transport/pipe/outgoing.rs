//! How messages and frames are written to the pipe, and in which order.

use super::super::seal::Sealer;
use super::super::tcp::{end_writing, write_quietly};
use super::super::{Traffic, write_all};
use super::Pipe;
use lads_core::frame::{HEADER_BYTES, ROW_BYTES, ROWS_MAX};
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::packet::{Channel, Packet};
use lads_core::units::StreamId;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The pipe to the other end.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Held while a packet is written; `None` when nothing more can be written.
    to: Mutex<Option<To>>,
    /// Held while a frame is sent. So frames are sent one at a time, and at most one thread with a
    /// frame competes with messages.
    frame: Mutex<()>,
    /// The number of messages that wait to be written before the next packet of a frame.
    messages_waiting: AtomicUsize,
    /// Notified when a message has been written.
    message_written: Condvar,
    is_sealed: bool,
}

/// What is written to, and how.
#[derive(Debug)]
pub(super) struct To {
    file: File,
    write: fn(&File, &[IoSlice<'_>]) -> rustix::io::Result<usize>,
    /// Makes records, if there are any.
    sealer: Option<Sealer>,
}

/// How many of the first pieces of a packet have a record of their own, so that what follows is
/// read directly into its place.
#[derive(Clone, Copy)]
enum Heads {
    /// Messages are short: one read gets all of it.
    None = 0,
    /// That of the packet.
    Packet = 1,
    /// That of the packet, and that of the frame that begins there.
    PacketAndFrame = 2,
}

/// A frame begins in one packet.
const _: () = assert!(HEADER_BYTES + ROWS_MAX * ROW_BYTES < PACKET_BYTES_MAX as usize);

impl Outgoing {
    /// Writes to a pipe.
    pub(super) fn new(to: File) -> Self {
        Self::to(To { file: to, write: |to, pieces| rustix::io::writev(to, pieces), sealer: None })
    }

    /// Writes to a socket.
    pub(super) fn to_socket(to: File, sealer: Option<Sealer>) -> Self {
        Self::to(To { file: to, write: write_quietly, sealer })
    }

    fn to(to: To) -> Self {
        Self {
            is_sealed: to.sealer.is_some(),
            to: Mutex::new(Some(to)),
            frame: Mutex::new(()),
            messages_waiting: AtomicUsize::new(0),
            message_written: Condvar::new(),
        }
    }

    /// Sends a frame, unless its stream ends before that.
    pub(super) fn send_frame(
        &self,
        stream: StreamId,
        pieces: &mut [IoSlice<'_>],
        is_ended: &AtomicBool,
        traffic: &Traffic,
    ) -> io::Result<()> {
        let (mut rest, mut heads) = (pieces, Heads::PacketAndFrame);
        self.send_packets(is_ended, |to| {
            let count = write_packet(to, Channel::Stream(stream), (heads, rest), traffic)?;
            IoSlice::advance_slices(&mut rest, count);
            heads = Heads::Packet;
            Ok(rest.is_empty())
        })
    }

    /// Sends a frame whose payload is encrypted in its place.
    pub(super) fn send_last(
        &self,
        stream: StreamId,
        (mut head, mut payload): (&[u8], &mut [u8]),
        is_ended: &AtomicBool,
        traffic: &Traffic,
    ) -> io::Result<()> {
        self.send_packets(is_ended, |to| {
            let room = PACKET_BYTES_MAX as usize - head.len();
            let rest = std::mem::take(&mut payload);
            let (now, later) = rest.split_at_mut(rest.len().min(room));
            write_last_packet(to, stream, (head, now), traffic)?;
            (head, payload) = (&[], later);
            Ok(payload.is_empty())
        })
    }

    /// Writes packets of a frame until the last one is written, as `write` reports, or its stream
    /// ends. Messages go before each.
    fn send_packets(
        &self,
        is_ended: &AtomicBool,
        mut write: impl FnMut(&mut Option<To>) -> io::Result<bool>,
    ) -> io::Result<()> {
        let _turn = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_whole = false;
        while !is_whole {
            if is_ended.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let to = self.lock();
            let to = self.message_written.wait_while(to, |_| self.is_message_waiting());
            let mut to = to.unwrap_or_else(PoisonError::into_inner);
            is_whole = write(&mut to)?;
        }
        Ok(())
    }

    /// Whether what is written is encrypted.
    pub(super) fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Writes as many bytes of messages as one packet takes. Returns their number.
    fn say(&self, bytes: &[u8]) -> io::Result<usize> {
        self.messages_waiting.fetch_add(1, Ordering::Relaxed);
        let mut to = self.lock();
        let pieces = [IoSlice::new(bytes)];
        let pieces = (Heads::None, &pieces[..]);
        let result = write_packet(&mut to, Channel::Messages, pieces, &Traffic::default());
        self.messages_waiting.fetch_sub(1, Ordering::Relaxed);
        drop(to);
        self.message_written.notify_one();
        result
    }

    pub(super) fn is_message_waiting(&self) -> bool {
        self.messages_waiting.load(Ordering::Relaxed) > 0
    }

    /// Whether a frame is being sent, or will be at once.
    #[cfg(test)]
    pub(super) fn is_frame_waiting(&self) -> bool {
        self.frame.try_lock().is_err()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<To>> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one packet with the first of these bytes. Returns their number. After a failure nobody
/// would know where the next packet begins, so no packet is written after it.
fn write_packet(
    to: &mut Option<To>,
    channel: Channel,
    (heads, pieces): (Heads, &[IoSlice<'_>]),
    traffic: &Traffic,
) -> io::Result<usize> {
    let Some(To { file, write, sealer }) = to else { return Err(io::ErrorKind::BrokenPipe.into()) };
    let mut left = PACKET_BYTES_MAX as usize;
    let mut first = Vec::with_capacity(pieces.len() + 1);
    first.push(IoSlice::new(&[]));
    for piece in pieces {
        let piece = &piece[..piece.len().min(left)];
        left -= piece.len();
        first.push(IoSlice::new(piece));
        if left == 0 {
            break;
        }
    }
    let count = PACKET_BYTES_MAX - u32::try_from(left).expect("no more than there was");
    let head = Packet { channel, bytes: count }.head();
    first[0] = IoSlice::new(&head);
    let put = |pieces: &mut [IoSlice<'_>]| write_all(pieces, traffic, |it| write(file, it));
    let written = match sealer {
        None => put(&mut first),
        Some(sealer) => {
            sealer.write_after(heads as usize, &first, |records| put(&mut [IoSlice::new(records)]))
        }
    };
    if let Err(error) = written {
        *to = None;
        return Err(error);
    }
    Ok(count as usize)
}

/// The same, with the head of a frame, if one begins there, and bytes of its payload, which are
/// encrypted in their place.
fn write_last_packet(
    to: &mut Option<To>,
    stream: StreamId,
    (head, payload): (&[u8], &mut [u8]),
    traffic: &Traffic,
) -> io::Result<()> {
    let Some(To { file, write, sealer: Some(sealer) }) = to else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let bytes = u32::try_from(head.len() + payload.len()).expect("no more than a packet has");
    let of_packet = Packet { channel: Channel::Stream(stream), bytes }.head();
    let put = |pieces: &mut [IoSlice<'_>]| write_all(pieces, traffic, |it| write(file, it));
    let written = sealer.write_last(&[&of_packet, head], payload, put);
    if written.is_err() {
        *to = None;
    }
    written
}

/// The writing side of the message channel; dropping it closes the pipe.
#[derive(Debug)]
pub(super) struct MessageWriter {
    pub(super) pipe: Arc<Pipe>,
}

impl Write for MessageWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.pipe.outgoing.say(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for MessageWriter {
    fn drop(&mut self) {
        let to = self.pipe.outgoing.lock().take();
        // Of a socket, the other direction may be open still; a pipe closes when it is dropped.
        if let Some(to) = to {
            end_writing(&to.file);
        }
    }
}
