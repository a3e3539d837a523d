//! One pair of pipes for everything: messages both ways, and the frames of all data streams.
//!
//! It is what `--tunnel` uses: the remote shell that started the other end carries its standard
//! input and output, so nobody has to log in again, and no port is opened.
//!
//! ```text
//!            source                                                        sink
//!   I/O threads ─► send ─┐                                      ┌─► stream 0 ─► receiver
//!        one frame at a  ├─► packets ══ one pipe ══► lads-pipe ─┼─► stream 1 ─► receiver
//!   speaker ─► messages ─┘   a message before                   └─► messages ─► listener
//!              the next packet of a frame
//!
//!   listener ◄─ messages ◄─ lads-pipe ◄══ the other pipe, packets of messages only ◄── speaker
//! ```
//!
//! Bytes travel in packets ([`lads_core::packet`]). A message waits for the packet that is being
//! written and for what is in the pipe already, never for a whole frame and never behind other
//! frames that wait. One thread at each end reads its pipe and takes each packet apart: the payload
//! of a frame goes from the pipe into the buffer that was granted for it.
//!
//! # Why it cannot lock up
//!
//! - The thread that reads waits for bytes, for a buffer, and for room for messages, for nothing
//!   else: neither for storage nor for a receiver.
//! - There is a buffer, because no frame comes without a grant and each grant stands for a buffer.
//!   A frame without one breaks the protocol and ends the transfer.
//! - There will be room for messages: the listener takes them, and what it waits for (the session's
//!   lock, the person's terminal, the target to be opened) does not depend on the pipe.
//! - So each end always reads in the end what the other writes, whatever becomes of its own
//!   writing. A thread that writes waits for that alone.
//!
//! # Why memory is bounded
//!
//! Frames lie in granted buffers, of which there are as many as there are. Messages that wait to be
//! read are at most [`MESSAGES_BYTES_MAX`]; then nothing more is read. A packet names one of the
//! streams that there are and a length within its limit, or the pipe is at its end.

mod incoming;
mod outgoing;

use super::{Channel, GrantedBuffers, Receiver, Traffic, Transport};
use incoming::{Inbox, MessageReader};
use lads_core::issue::Side;
use lads_core::units::StreamId;
use outgoing::{MessageWriter, Outgoing};
use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Messages that wait to be read, in bytes. As much as one long message; half of it makes the
/// reading thread wait within such a one, double of it is memory that only a peer who floods uses.
const MESSAGES_BYTES_MAX: usize = 1 << 20;

/// How long a pipe is made, in bytes: the most that Linux gives to whoever is not root. It is made
/// for 64 KiB, and then who writes and who reads wait for each other eight times as often; half of
/// this took longer, too. A message waits for what is in the pipe before it, and ssh keeps 2 MiB of
/// its own.
const PIPE_BYTES: usize = 1 << 20;

/// Data streams in a pair of pipes.
#[derive(Debug)]
pub(crate) struct Pipe {
    outgoing: Outgoing,
    streams: Vec<Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    inbox: Arc<Inbox>,
    is_ended: AtomicBool,
    traffic: Traffic,
}

/// Makes a transport and a message channel of the two pipes to and from the other end, which does
/// the same. From now on nothing else may read or write there.
pub(crate) fn open(
    input: File,
    output: File,
    stream_count: u16,
    own_side: Side,
) -> (Arc<dyn Transport>, Channel) {
    for pipe in [&input, &output] {
        // What is no pipe, or may not be longer, is as long as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
    let streams = (0..stream_count).map(|_| Stream::default()).collect();
    let pipe = Arc::new(Pipe { outgoing: Outgoing::new(output), streams });
    let messages = incoming::start(input, Arc::clone(&pipe), own_side);
    let reader = MessageReader { messages };
    let writer = MessageWriter { pipe: Arc::clone(&pipe) };
    (pipe, Channel { input: Box::new(reader), output: Box::new(writer) })
}

impl Transport for Pipe {
    fn stream_count(&self) -> u16 {
        u16::try_from(self.streams.len()).expect("the number of streams is 16 bits")
    }

    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let Stream { is_ended, traffic, .. } = &self.streams[stream.index()];
        self.outgoing.send_frame(stream, pieces, is_ended, traffic)
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        Inbox::receiver(&self.streams[stream.index()].inbox, buffers)
    }

    /// The other end is not told: whoever ends a stream while the other goes on says so in a
    /// message (STREAM_END, FATAL). What still comes of it is read and thrown away.
    fn end(&self, stream: StreamId) {
        let stream = &self.streams[stream.index()];
        stream.is_ended.store(true, Ordering::Relaxed);
        stream.inbox.close();
    }

    fn traffic(&self, stream: StreamId) -> &Traffic {
        &self.streams[stream.index()].traffic
    }

    fn carries_messages(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
