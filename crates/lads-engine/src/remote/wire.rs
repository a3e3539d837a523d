//! Messages of remote files on a channel.

use lads_core::message::LENGTH_BYTES;
use lads_core::message::wire::Wire;
use lads_core::remote::message::{decode, encode};
use std::io::{self, Read, Write};

/// Why no message was read.
#[derive(Debug)]
pub(super) enum Unheard {
    /// The channel has ended, or is lost.
    Ended(String),
    /// The received bytes were changed on their way; the channel is lost.
    Changed(String),
    /// What comes is no message.
    Nonsense(String),
}

impl From<io::Error> for Unheard {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => Self::Changed(error.to_string()),
            _ => Self::Ended(error.to_string()),
        }
    }
}

/// Reads a message of at most this many bytes.
///
/// # Errors
/// If there is none.
pub(super) fn hear<M: Wire>(
    from: &mut (impl Read + ?Sized),
    bytes_max: usize,
) -> Result<M, Unheard> {
    let mut length = [0; LENGTH_BYTES];
    from.read_exact(&mut length).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Unheard::Ended("it closed the connection".to_owned()),
        _ => error.into(),
    })?;
    let length = u32::from_le_bytes(length) as usize;
    if length > bytes_max {
        return Err(Unheard::Nonsense(format!("a message of {length} bytes")));
    }
    // Memory grows with what has come, not with what is announced.
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    decode(&body).map_err(|error| Unheard::Nonsense(error.to_string()))
}

/// Writes messages.
///
/// # Errors
/// If the channel is lost.
pub(super) fn say<M: Wire>(
    to: &mut (impl Write + ?Sized),
    messages: impl IntoIterator<Item = M>,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    for message in messages {
        encode(&message, &mut bytes);
    }
    to.write_all(&bytes)?;
    to.flush()
}
