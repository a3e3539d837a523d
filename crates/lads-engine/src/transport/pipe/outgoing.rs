//! How messages and frames are written to the pipe, and in which order.

use super::super::tcp::{end_writing, write_quietly};
use super::super::{Traffic, write_all};
use super::Pipe;
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
}

/// What is written to, and how.
#[derive(Debug)]
pub(super) struct To {
    file: File,
    write: fn(&File, &[IoSlice<'_>]) -> rustix::io::Result<usize>,
}

impl Outgoing {
    /// Writes to a pipe.
    pub(super) fn new(to: File) -> Self {
        Self::to(To { file: to, write: |to, pieces| rustix::io::writev(to, pieces) })
    }

    /// Writes to a socket.
    pub(super) fn to_socket(to: File) -> Self {
        Self::to(To { file: to, write: write_quietly })
    }

    fn to(to: To) -> Self {
        Self {
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
        let _turn = self.frame.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rest = pieces;
        while !rest.is_empty() {
            if is_ended.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::NotConnected.into());
            }
            let to = self.lock();
            let to = self.message_written.wait_while(to, |_| self.is_message_waiting());
            let mut to = to.unwrap_or_else(PoisonError::into_inner);
            let count = write_packet(&mut to, Channel::Stream(stream), rest, traffic)?;
            drop(to);
            IoSlice::advance_slices(&mut rest, count);
        }
        Ok(())
    }

    /// Writes as many bytes of messages as one packet takes. Returns their number.
    fn say(&self, bytes: &[u8]) -> io::Result<usize> {
        self.messages_waiting.fetch_add(1, Ordering::Relaxed);
        let mut to = self.lock();
        let pieces = [IoSlice::new(bytes)];
        let result = write_packet(&mut to, Channel::Messages, &pieces, &Traffic::default());
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
    pieces: &[IoSlice<'_>],
    traffic: &Traffic,
) -> io::Result<usize> {
    let Some(To { file, write }) = to else { return Err(io::ErrorKind::BrokenPipe.into()) };
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
    let written = write_all(&mut first, traffic, |pieces| write(file, pieces));
    if let Err(error) = written {
        *to = None;
        return Err(error);
    }
    Ok(count as usize)
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
