//! Whether any bytes are refused as a message, or are one that can be said again.

use lads_core::message::{LENGTH_BYTES, Message, decode, encode};

/// Reads bytes as the body of a message; what was understood is written and read again.
///
/// # Panics
/// If that is not the same message.
pub fn run(bytes: &[u8]) {
    let Ok(message) = decode(bytes) else { return };
    let again = decode(&body_of(&message)).expect("what is written can be read");
    assert_eq!(again, message, "what is written is what was read");
}

/// The bytes of a message behind its length.
#[must_use]
pub fn body_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    bytes.split_off(LENGTH_BYTES)
}
