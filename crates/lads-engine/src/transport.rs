//! The interface of everything that carries frames and messages from one end to the other.
//!
//! Its shape is that of CCI, the interface that the papers' LADS used (FAST '15, section 3.2),
//! reduced to the calls that are used:
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
//! A transport knows neither files nor sessions. The code above it (sessions, source, sink) knows
//! no socket. A transport promises:
//!
//! - Frames of one stream arrive in order and whole, or the stream has ended. Streams are
//!   independent: a stream on which nobody receives delays no other stream, and no message.
//! - A transport keeps no frame of its own. Frames under way are in buffers of the source, in
//!   buffers of the kernel, or in buffers that the sink has granted. So the grants bound the
//!   memory.
//! - When a stream is ended ([`Transport::end`]), calls that send or receive on it return, unless
//!   the peer reads nothing at all. Then whoever made the connection must end all of it.
//!
//! There are two transports: [`tcp`], a connection for each stream, and [`pipe`], the pair of pipes
//! through a remote shell that also carries the messages (`--tunnel`); over a socket, it carries
//! remote files (`remote.rs`), with frames both ways. The tests have a third one, in memory.
//! All of them pass one contract (`contract.rs`).
//!
//! # Registered memory
//!
//! No transport here can put bytes into the memory of another host by itself. So GRANT is a count,
//! and [`GrantedBuffers::buffer_for`] is called when the head of a frame has come. A fabric that
//! can do this (RDMA) fits in at two points, and nowhere else. In [`Transport::receiver`] it
//! registers, once, the memory that the buffers are parts of. And a grant carries the address and
//! key of its buffer, as CCI's handles do. Then `send` writes to that address and sends the head as
//! a message after it, and `next_frame` returns when the head has come. Frames, checksums, order
//! and loss stay the same. Until there is such a fabric, every transport has the default: no
//! addresses.

mod assembly;
pub(crate) mod handshake;
pub(crate) mod pipe;
pub(crate) mod seal;

pub(crate) mod tcp;

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
use std::time::Duration;

/// The data streams between two ends. Frames go from source to sink; for remote files both ways.
pub(crate) trait Transport: Debug + Send + Sync {
    /// The number of streams; they are numbered from zero.
    fn stream_count(&self) -> u16;

    /// Whether a transfer does not begin without this stream. The others are opened later, or
    /// never.
    fn is_needed(&self, _stream: StreamId) -> bool {
        true
    }

    /// Whether the stream is one to send on: needed, or open.
    fn is_there(&self, stream: StreamId) -> bool {
        self.is_needed(stream)
    }

    /// Sends a frame, given as pieces that follow each other. The caller makes sure that only one
    /// thread at a time sends on a stream.
    ///
    /// # Errors
    /// If the stream is at its end.
    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Sends a frame whose payload nobody needs afterwards: what protects it may change it in its
    /// place, which saves a copy.
    ///
    /// # Errors
    /// As with [`Self::send`].
    fn send_last(&self, stream: StreamId, head: &[u8], payload: &mut [u8]) -> io::Result<()> {
        self.send(stream, &mut [IoSlice::new(head), IoSlice::new(payload)])
    }

    /// The receiver for the frames of a stream, which puts them into these buffers. Called once for
    /// each stream, before the other end is told that it may send.
    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver>;

    /// Ends a stream, at both ends.
    fn end(&self, stream: StreamId);

    /// Counters of a stream.
    fn traffic(&self, stream: StreamId) -> &Traffic;

    /// How long a round trip to the other end takes; `None` if that is not known, or not yet. The
    /// shortest that a stream has measured: others may have lost a packet.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// Whether messages use the same connection as frames. Then a frame is a sign of life, and a
    /// message may have to wait for a frame.
    fn carries_messages(&self) -> bool {
        false
    }
}

/// Receives the frames of one stream.
pub(crate) trait Receiver: Send {
    /// Waits for the next frame. Returns `false` if the stream has ended. `frame` keeps its memory
    /// from one call to the next.
    ///
    /// # Errors
    /// If the stream was lost, or the bytes that come are not a frame.
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool>;
}

/// The buffers that frames go into.
pub(crate) trait GrantedBuffers: Send + Sync {
    /// The buffer that was granted for the frame with this head. Whoever reads asks for it, and
    /// others wait for what is read: it must not wait for storage.
    ///
    /// # Errors
    /// If there is none, because the frame breaks the protocol. The stream ends then.
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer>;

    /// The rest of a frame that already has a buffer will not come.
    fn on_frame_lost(&self, sink_ost: OstId);
}

/// A frame that has arrived.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    /// Set when the frame has arrived.
    pub(crate) arrived: Option<Arrived>,
    pub(crate) rows: Vec<Row>,
}

/// The head of a frame, and the buffer with its payload.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) header: Header,
    pub(crate) buffer: Buffer,
}

/// Counters of a stream. They change whenever bytes go over it.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    /// Reads that returned bytes.
    reads: AtomicU64,
    /// Writes that took bytes.
    writes: AtomicU64,
}

impl Traffic {
    fn on_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn on_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads that returned bytes.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads and writes.
    pub(crate) fn moves(&self) -> u64 {
        self.reads().wrapping_add(self.writes.load(Ordering::Relaxed))
    }
}

/// The message channel: where messages of the other end are read from, and where messages to it are
/// written. It closes when the part for writing is dropped.
pub(crate) struct Channel {
    pub(crate) input: Box<dyn Read + Send>,
    pub(crate) output: Box<dyn Write + Send>,
}

/// Writes all pieces, as many in each call as a call takes.
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
