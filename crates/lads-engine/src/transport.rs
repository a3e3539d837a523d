//! What carries frames and messages from one end to the other, whatever it is made of.
//!
//! The shape is that of CCI, the interface that the papers' LADS was written for (FAST '15, section
//! 3.2), cut down to what is used:
//!
//! | CCI | here |
//! |---|---|
//! | endpoint | [`tcp::Listener`] and [`tcp::connect`], or the two pipes of [`pipe::open`] |
//! | connection | [`Transport`]: all data streams between two ends |
//! | MSG | [`Channel`]: what messages are read from and written to |
//! | RMA into registered memory | [`Receiver::next_frame`]: straight into a granted buffer |
//! | completion of a send | [`Transport::send`] returns: the bytes may be used again |
//! | completion of a receive | [`Receiver::next_frame`] returns: the frame is in its buffer |
//! | loss of a peer | both return an error, or nothing more comes |
//! | statistics | [`Traffic`] |
//!
//! A transport knows neither files nor sessions, and what is above it (sessions, source, sink)
//! knows no socket. It promises:
//!
//! - Frames of one stream arrive in order and whole, or the stream is at its end. Streams are
//!   independent: one that nobody receives on holds up no other, nor a message.
//! - It keeps no frame of its own: what is under way lies in buffers of the source, in the
//!   kernel's, or in buffers that the sink has granted. So memory stays bounded by the grants.
//! - A stream that is ended ([`Transport::end`]) lets go of whoever sends or receives on it, unless
//!   the peer reads nothing at all. Then whoever made the connection ends all of it.
//!
//! Two transports exist: [`tcp`], a connection for each stream, and [`pipe`], the pair of pipes
//! through a remote shell that carries the messages, too (`--tunnel`). The tests have a third, in
//! memory. All keep one contract (`contract.rs`).
//!
//! # Registered memory
//!
//! No transport here can put bytes into the memory of another host by itself, so GRANT is a count,
//! and [`GrantedBuffers::buffer_for`] is asked when the head of a frame has come. A fabric that can
//! (RDMA) fits in at two points, and nowhere else: [`Transport::receiver`] is where it registers
//! the memory that the buffers are parts of, once; and a grant carries the address and key of the
//! buffer that it stands for, as CCI's handles do. Then `send` writes there and sends the head as a
//! message behind it, and `next_frame` returns when that has come. Frames, sums, order and loss
//! stay what they are. Until there is one, every transport has the default: no addresses.

mod assembly;
pub(crate) mod pipe;

pub(crate) mod tcp;

#[cfg(test)]
#[cfg(test)]
mod contract;
#[cfg(test)]
pub(crate) mod memory;

use lads_core::frame::{Header, Row};
use lads_core::units::{OstId, StreamId};
use lads_sys::Buffer;
use std::fmt::Debug;
use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The data streams between two ends. Frames go from source to sink.
pub(crate) trait Transport: Debug + Send + Sync {
    /// How many streams there are; they are numbered from zero.
    fn stream_count(&self) -> u16;

    /// Sends a frame: these pieces, one after the other. The caller sees to it that one thread at a
    /// time sends on a stream.
    ///
    /// # Errors
    /// If the stream is at its end.
    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// What the frames of a stream are received with, into these buffers; once for
    /// each stream, and before the other end is told that it may send.
    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver>;

    /// Ends a stream, at this end and for the other.
    fn end(&self, stream: StreamId);

    /// What went over a stream.
    fn traffic(&self, stream: StreamId) -> &Traffic;

    /// Whether messages come the same way as frames: then a frame is a sign of life, and a message
    /// may have to wait for it.
    fn carries_messages(&self) -> bool {
        false
    }
}

/// Takes in the frames of one stream.
pub(crate) trait Receiver: Send {
    /// Waits for the next frame; `false` if the stream is at its end. `frame` keeps what it has
    /// reserved from one call to the next.
    ///
    /// # Errors
    /// If the stream was lost, or what comes is no frame.
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool>;
}

/// Where frames go.
pub(crate) trait GrantedBuffers: Send + Sync {
    /// The buffer that was granted for the frame with this head. Whoever reads asks for it, and
    /// others wait for what is read: it must not wait for storage.
    ///
    /// # Errors
    /// If there is none, because the frame breaks the protocol. The stream ends then.
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer>;

    /// The rest of a frame for which a buffer was given will not come.
    fn on_frame_lost(&self, sink_ost: OstId);
}

/// A frame that has arrived.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Set once it has arrived.
    pub(crate) arrived: Option<Arrived>,
    pub(crate) rows: Vec<Row>,
}

/// The head of a frame, and the buffer with its payload.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
}

/// What went over a stream: numbers that change whenever something did.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Reads that brought something.
    reads: AtomicU64,
    /// Writes that took something.
    writes: AtomicU64,
}

impl Traffic {
    fn on_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn on_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads that brought something.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads and writes.
    pub(crate) fn moves(&self) -> u64 {
        self.reads().wrapping_add(self.writes.load(Ordering::Relaxed))
    }
}

/// The message channel: what the other end is read from, and what it is written to. It is closed
/// when what it is written to is dropped.
pub(crate) struct Channel {
    pub(crate) input: Box<dyn Read + Send>,
    pub(crate) output: Box<dyn Write + Send>,
}

/// Writes all pieces, as many at a time as one call takes.
fn write_all(
    pieces: &mut [IoSlice<'_>],
    traffic: &Traffic,
    mut write: impl FnMut(&[IoSlice<'_>]) -> rustix::io::Result<usize>,
) -> io::Result<()> {
    /// The most pieces that one call takes: `UIO_MAXIOV` on Linux.
    const PIECES_MAX: usize = 1024;
    let mut rest = pieces;
    while !rest.is_empty() {
        match write(&rest[..rest.len().min(PIECES_MAX)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        traffic.on_write();
    }
    Ok(())
}
