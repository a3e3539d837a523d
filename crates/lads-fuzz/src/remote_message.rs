//! Whether any bytes are refused as a message of remote files, or are one that can be said again.

use lads_core::message::LENGTH_BYTES;
use lads_core::message::wire::Wire;
use lads_core::remote::message::{ToClient, ToServer, decode, encode};
use std::fmt::Debug;

/// Reads bytes as the body of a message to a server, or to a client if the first byte is odd; what
/// was understood is written and read again.
///
/// # Panics
/// If that is not the same message.
pub fn run(bytes: &[u8]) {
    match bytes.split_first() {
        Some((first, body)) if first % 2 == 0 => comes_back::<ToServer>(body),
        Some((_, body)) => comes_back::<ToClient>(body),
        None => {}
    }
}

fn comes_back<M: Wire + PartialEq + Debug>(body: &[u8]) {
    let Ok(message) = decode::<M>(body) else { return };
    let again = decode(&body_of(&message)).expect("what is written can be read");
    assert_eq!(message, again, "what is written is what was read");
}

/// The bytes of a message behind its length.
#[must_use]
pub fn body_of(message: &impl Wire) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes.split_off(LENGTH_BYTES)
}
