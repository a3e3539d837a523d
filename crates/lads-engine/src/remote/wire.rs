//! Messages of remote files on a channel.

use lads_core::message::LENGTH_BYTES;
use lads_core::message::wire::Wire;
use lads_core::remote::message::{decode, encode};
use std::io::{self, Read, Write};

/// Reads a message of at most this many bytes; `None` at the end of the channel.
///
/// # Errors
/// If the channel is lost, or what comes is no message.
pub(super) fn hear<M: Wire>(
    from: &mut (impl Read + ?Sized),
    bytes_max: usize,
) -> io::Result<Option<M>> {
    let mut length = [0; LENGTH_BYTES];
    match from.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > bytes_max {
        return Err(io::Error::other(format!("a message of {length} bytes")));
    }
    // Memory grows with what has come, not with what is announced.
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    decode(&body).map(Some).map_err(io::Error::other)
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
