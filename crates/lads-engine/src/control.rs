//! The control channel: messages, one after the other, on a pair of pipes.

use crate::event::ExitCode;
use crate::hub::Fatal;
use lads_core::message::{LENGTH_BYTES, MESSAGE_BYTES_MAX, Message, decode, encode};
use std::io::{self, Read, Write};

/// Writes a message.
pub(crate) fn write_message(to: &mut impl Write, message: &Message) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(256);
    encode(message, &mut bytes);
    to.write_all(&bytes)
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
        let mut length = [0; LENGTH_BYTES];
        match self.from.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(lost(&error)),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Fatal::new(
                ExitCode::Network,
                format!("the other end sent a message of {length} bytes: not LADS, or damaged"),
            ));
        }
        self.fill(length)?;
        decode(&self.body).map(Some).map_err(|error| {
            Fatal::new(ExitCode::Network, format!("the other end is not understood: {error}"))
        })
    }

    /// Reads the body piece by piece, so that a length alone reserves no memory.
    fn fill(&mut self, length: usize) -> Result<(), Fatal> {
        const PIECE: usize = 1 << 20;
        self.body.clear();
        while self.body.len() < length {
            let start = self.body.len();
            self.body.resize(length.min(start + PIECE), 0);
            self.from.read_exact(&mut self.body[start..]).map_err(|error| lost(&error))?;
        }
        self.body.shrink_to(PIECE);
        Ok(())
    }

    /// What lies below.
    pub(crate) fn inner(&mut self) -> &mut R {
        &mut self.from
    }
}

fn lost(error: &io::Error) -> Fatal {
    Fatal::new(ExitCode::Network, format!("lost the connection to the other end: {error}"))
}
