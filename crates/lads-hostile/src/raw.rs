//! Messages that the encoder of `lads-core` refuses to write, byte by byte.

use lads_core::message::wire::Wire;

/// Types of messages, as `docs/protocol.md`, section 4, numbers them.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the protocol page")]
    pub const HELLO: u8 = 1;
    pub const JOB: u8 = 2;
    pub const LISTEN: u8 = 3;
    pub const NEW_FILE: u8 = 6;
    pub const FILE_ID: u8 = 7;
    #[cfg(test)]
    pub const GRANT: u8 = 8;
    pub const NOTICE: u8 = 17;
}

/// A message in the making: its type, then fields in the order in which they are added.
#[derive(Clone, Debug)]
pub struct Raw(Vec<u8>);

impl Raw {
    /// A message of this type, without fields.
    #[must_use]
    pub fn message(kind: u8) -> Self {
        Self(vec![kind])
    }

    /// Adds a number (also the count of a list that is to follow).
    #[must_use]
    pub fn number(mut self, number: u64) -> Self {
        number.put(&mut self.0);
        self
    }

    /// Adds bytes with their length before them.
    #[must_use]
    pub fn counted(mut self, bytes: &[u8]) -> Self {
        (bytes.len() as u64).put(&mut self.0);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Adds bytes as they are.
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// The message as it travels: with its true length before it.
    #[must_use]
    pub fn framed(self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap();
        [&length.to_le_bytes()[..], &self.0].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::message::{Message, encode};
    use lads_core::room::Lot;
    use lads_core::units::OstId;

    #[test]
    fn a_message_written_by_hand_is_the_one_that_the_encoder_writes() {
        let by_hand =
            Raw::message(kind::GRANT).number(200).number(1).number(3).number(200).framed();
        let mut encoded = Vec::new();
        encode(&Message::Grant(Lot::of(vec![(OstId(3), 200)])), &mut encoded);
        assert_eq!(by_hand, encoded);
    }
}
