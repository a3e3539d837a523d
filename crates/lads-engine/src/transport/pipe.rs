//! One pair of pipes for everything: messages both ways, and the frames of all data streams.
//!
//! `--tunnel` uses it. The remote shell that started the other end carries that end's standard
//! input and output, so no second login is needed, and no port is opened.
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
//! written and for the bytes that are in the pipe already. It never waits for a whole frame, nor
//! behind other frames. One thread at each end reads its pipe and takes each packet apart. The
//! payload of a frame goes from the pipe directly into the buffer that was granted for it.
//!
//! Over a TCP connection, packets travel in records that are encrypted ([`super::seal`]). The head
//! of a packet, with that of a frame if one begins there, has a record of its own, so that the
//! payload is decrypted in the granted buffer.
//!
//! # Why it cannot lock up
//!
//! - The thread that reads waits only for bytes, for a buffer, and for room for messages. It never
//!   waits for storage or for a receiver.
//! - There is always a buffer, because no frame comes without a grant and each grant stands for a
//!   buffer. A frame without one breaks the protocol and ends the transfer.
//! - There will be room for messages: the listener takes them, and nothing that the listener waits
//!   for (the session's lock, the person's terminal, the opening of the target) depends on the
//!   pipe.
//! - So each end always comes to read what the other writes, even if its own writing is blocked. A
//!   thread that writes waits only for that.
//!
//! # Why memory is bounded
//!
//! Frames lie in granted buffers, whose number is fixed. Messages that wait to be read have at most
//! [`MESSAGES_BYTES_MAX`]; then nothing more is read. A packet names one of the existing streams
//! and a length within the limit; otherwise the pipe ends.

mod incoming;
mod outgoing;

use super::seal::Seals;
use super::{Channel, GrantedBuffers, Receiver, Traffic, Transport};
use incoming::{Inbox, Input, MessageReader};
use lads_core::issue::Side;
use lads_core::units::StreamId;
use outgoing::{MessageWriter, Outgoing};
use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The most bytes of messages that wait to be read: as much as one long message. With half, the
/// reading thread would wait in the middle of such a message. The double is memory that only a peer
/// who floods would use.
const MESSAGES_BYTES_MAX: usize = 1 << 20;

/// The length of a pipe in bytes: the most that Linux gives to a user other than root. A new pipe
/// has 64 KiB; then the writer and the reader wait for each other more often, and half of this
/// length was slower, too. A message waits for the bytes in the pipe before it, and ssh itself
/// keeps 2 MiB.
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
/// the same. After this call, nothing else may read from or write to the pipes.
pub(crate) fn open(
    input: File,
    output: File,
    stream_count: u16,
    own_side: Side,
) -> (Arc<dyn Transport>, Channel) {
    lengthen([&input, &output]);
    let coming_count = match own_side {
        Side::Source => 0,
        Side::Sink => stream_count,
    };
    start(Input::Plain(input), Outgoing::new(output), stream_count, coming_count)
}

/// The same over a socket within this host, from which `input` reads and to which `output` writes.
/// Frames go both ways. If the other end has disconnected, whoever writes gets an error and no
/// signal.
pub(crate) fn open_both_ways(
    input: File,
    output: File,
    stream_count: u16,
) -> (Arc<dyn Transport>, Channel) {
    start(Input::Plain(input), Outgoing::to_socket(output, None), stream_count, stream_count)
}

/// The same as [`open_both_ways`], for a socket to another host: what goes over it is encrypted.
pub(crate) fn open_sealed_both_ways(
    input: File,
    output: File,
    Seals { sealer, opener }: Seals,
    stream_count: u16,
) -> (Arc<dyn Transport>, Channel) {
    let outgoing = Outgoing::to_socket(output, Some(sealer));
    start(Input::Sealed(input, opener), outgoing, stream_count, stream_count)
}

/// The same as [`open_both_ways`], in two pipes.
pub(crate) fn open_pipes_both_ways(
    input: File,
    output: File,
    stream_count: u16,
) -> (Arc<dyn Transport>, Channel) {
    lengthen([&input, &output]);
    start(Input::Plain(input), Outgoing::new(output), stream_count, stream_count)
}

fn lengthen(pipes: [&File; 2]) {
    for pipe in pipes {
        // If this fails (no pipe, or the length is not permitted), the length stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
}

/// `coming_count` streams may come to this end.
fn start(
    input: Input,
    outgoing: Outgoing,
    stream_count: u16,
    coming_count: u16,
) -> (Arc<dyn Transport>, Channel) {
    let streams = (0..stream_count).map(|_| Stream::default()).collect();
    let pipe = Arc::new(Pipe { outgoing, streams });
    let messages = incoming::start(input, Arc::clone(&pipe), coming_count);
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

    fn send_last(&self, stream: StreamId, head: &[u8], payload: &mut [u8]) -> io::Result<()> {
        if !self.outgoing.is_sealed() {
            return self.send(stream, &mut [IoSlice::new(head), IoSlice::new(payload)]);
        }
        let Stream { is_ended, traffic, .. } = &self.streams[stream.index()];
        self.outgoing.send_last(stream, (head, payload), is_ended, traffic)
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        Inbox::receiver(&self.streams[stream.index()].inbox, buffers)
    }

    /// The other end is not told here: an end that ends a stream while the other goes on says so in
    /// a message (STREAM_END, FATAL). Bytes of the stream that still come are read and dropped.
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
