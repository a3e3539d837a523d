//! Records in a file that only grows: each can be told to be whole.
//!
//! ```text
//!  +---------------+---------------+------ ... ------+
//!  | length u32 LE | crc32c u32 LE | body            |   the checksum covers length and body
//!  +---------------+---------------+------ ... ------+
//! ```

use crate::message::wire::{Reader, Wire, Writer};

/// The bytes before the body of each record.
const HEAD_BYTES: usize = 8;

/// The result of reading one record from bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<R> {
    /// A record, and the number of bytes that it takes.
    Record(R, usize),
    /// There are too few bytes to say.
    Incomplete,
    /// Bytes that no version of LADS has written.
    Damaged,
}

/// Appends a record.
///
/// # Panics
/// If the body is longer than `body_bytes_max`: such a record could not be read again.
pub fn encode(record: &impl Wire, body_bytes_max: usize, to: &mut Writer) {
    let start = to.len();
    to.extend_from_slice(&[0; HEAD_BYTES]);
    record.put(to);
    let length = to.len() - start - HEAD_BYTES;
    assert!(length <= body_bytes_max, "a record of {length} bytes could not be read again");
    let length = u32::try_from(length).expect("records are shorter");
    to[start..start + 4].copy_from_slice(&length.to_le_bytes());
    let crc = crc_of(&to[start..start + 4], &to[start + HEAD_BYTES..]);
    to[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the record at the beginning of some bytes.
#[must_use]
pub fn next<R: Wire>(bytes: &[u8], body_bytes_max: usize) -> Next<R> {
    let Some(head) = bytes.get(..HEAD_BYTES) else { return Next::Incomplete };
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    let crc = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
    if length > body_bytes_max {
        return Next::Damaged;
    }
    let Some(body) = bytes.get(HEAD_BYTES..HEAD_BYTES + length) else { return Next::Incomplete };
    if crc_of(&head[..4], body) != crc {
        return Next::Damaged;
    }
    match R::take(&mut Reader::of_own(body)) {
        Ok(record) => Next::Record(record, HEAD_BYTES + length),
        Err(_) => Next::Damaged,
    }
}

fn crc_of(length: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(length), body)
}
