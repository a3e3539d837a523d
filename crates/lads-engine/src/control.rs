//! The control channel: messages, one after the other, on a pair of pipes.

use crate::board::Board;
use crate::clock::Clock;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::patience::Cut;
use lads_core::message::{LENGTH_BYTES, MESSAGE_BYTES_MAX, Message, decode, encode};
use std::io::{self, Read, Write};
use std::sync::Arc;

/// A peer that reads fewer bytes than this within the timeout counts as dead. It is the length of a
/// pipe: 2 KB/s with the default timeout. With more, a very slow line would count as dead.
const NOTED_BYTES: usize = 64 << 10;

/// Writes a message.
pub(crate) fn write_message(to: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(256);
    encode(message, &mut bytes);
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads messages; keeps its buffer from one to the next.
#[derive(Debug)]
pub(crate) struct MessageReader<R> {
    from: R,
    body: Vec<u8>,
}

impl<R: Read> MessageReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, body: Vec::new() }
    }

    /// The next message; `None` when the other end closed the channel.
    pub(crate) fn next(&mut self) -> Result<Option<Message>, Fatal> {
        self.next_within(MESSAGE_BYTES_MAX, "the other end")
    }

    /// The next message of `peer`, without its length; an error if it is longer than `length_max`.
    pub(crate) fn next_within(
        &mut self,
        bytes_max: usize,
        peer: &str,
    ) -> Result<Option<Message>, Fatal> {
        let mut length = [0; LENGTH_BYTES];
        match self.from.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(lost(&error, peer)),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > bytes_max {
            return Err(Fatal::new(
                ExitCode::Network,
                format!("{peer} sent a message of {length} bytes: not LADS, or damaged"),
            ));
        }
        self.fill(length).map_err(|error| lost(&error, peer))?;
        decode(&self.body).map(Some).map_err(|error| {
            Fatal::new(ExitCode::Network, format!("invalid data from {peer}: {error}"))
        })
    }

    /// Reads the body piece by piece, so that a length alone reserves no memory.
    fn fill(&mut self, length: usize) -> io::Result<()> {
        const PIECE: usize = 1 << 20;
        self.body.clear();
        while self.body.len() < length {
            let start = self.body.len();
            self.body.resize(length.min(start + PIECE), 0);
            self.from.read_exact(&mut self.body[start..])?;
        }
        self.body.shrink_to(PIECE);
        Ok(())
    }
}

/// Writes to the other end, and tells the board since when the other end has not read.
pub(crate) struct NotedWriter<W> {
    pub(crate) to: W,
    pub(crate) board: Arc<Board>,
    pub(crate) clock: Clock,
}

impl<W: Write> Write for NotedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.board.on_writing(Some(self.clock.now()));
        // A pipe takes all bytes that it is given before the call returns. So only a reader that
        // reads less than this counts as slow.
        let result = self.to.write(&bytes[..bytes.len().min(NOTED_BYTES)]);
        self.board.on_writing(None);
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn lost(error: &io::Error, peer: &str) -> Fatal {
    let lost = || Fatal::new(ExitCode::Network, format!("lost the connection to {peer}: {error}"));
    Cut::of(error).map_or_else(lost, |cut| cut.fatal(peer))
}
