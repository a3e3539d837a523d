//! What shares a pipe: messages and the frames of all data streams, cut into packets.
//!
//! ```text
//!  0        2          4            8
//!  +--------+----------+------------+------ … ------+
//!  | "LP"   | channel  | length     | length bytes  |
//!  |        | u16 LE   | u32 LE     |               |
//!  +--------+----------+------------+------ … ------+
//! ```
//!
//! Channel 0 has messages, channel 1 the first data stream, and so on. The bytes of a channel, put
//! together, are what they would be on a connection of their own. Where a message or a frame begins
//! and ends has nothing to do with packets.

use crate::limits::PACKET_BYTES_MAX;
use crate::units::StreamId;
use thiserror::Error;

/// Bytes before those of the channel.
pub const HEAD_BYTES: usize = 8;

const MAGIC: [u8; 2] = *b"LP";

/// Whose bytes a packet has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The control channel.
    Messages,
    /// A data stream.
    Stream(StreamId),
}

/// What stands before the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Whose bytes they are.
    pub channel: Channel,
    /// How many there are: 1 to [`PACKET_BYTES_MAX`].
    pub bytes: u32,
}

/// Why bytes are not the head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// Not the beginning of a packet: the pipe is out of step.
    #[error("the pipe is out of step (bad magic)")]
    Magic,
    /// No bytes, or too many.
    #[error("a packet of {0} bytes")]
    Length(u32),
    /// There is no such data stream.
    #[error("a packet of data stream {}, and there are {count}", .stream.0)]
    Stream {
        /// The number named.
        stream: StreamId,
        /// How many streams may come.
        count: u16,
    },
}

impl Packet {
    /// The head as it travels.
    #[must_use]
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let channel = match self.channel {
            Channel::Messages => 0,
            Channel::Stream(stream) => stream.0 + 1,
        };
        let mut head = [0; HEAD_BYTES];
        head[..2].copy_from_slice(&MAGIC);
        head[2..4].copy_from_slice(&channel.to_le_bytes());
        head[4..].copy_from_slice(&self.bytes.to_le_bytes());
        head
    }

    /// Reads a head. `stream_count` is how many data streams may come: none to a source.
    ///
    /// # Errors
    /// If it is none, is too long, or belongs to a stream that there is not.
    pub fn take(head: &[u8; HEAD_BYTES], stream_count: u16) -> Result<Self, PacketError> {
        let [m0, m1, c0, c1, l0, l1, l2, l3] = *head;
        if [m0, m1] != MAGIC {
            return Err(PacketError::Magic);
        }
        let channel = match u16::from_le_bytes([c0, c1]).checked_sub(1).map(StreamId) {
            None => Channel::Messages,
            Some(stream) if stream.0 < stream_count => Channel::Stream(stream),
            Some(stream) => return Err(PacketError::Stream { stream, count: stream_count }),
        };
        let bytes = u32::from_le_bytes([l0, l1, l2, l3]);
        if bytes == 0 || bytes > PACKET_BYTES_MAX {
            return Err(PacketError::Length(bytes));
        }
        Ok(Self { channel, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(number: u16, bytes: u32) -> Packet {
        Packet { channel: Channel::Stream(StreamId(number)), bytes }
    }

    #[test]
    fn what_is_put_can_be_taken() {
        let messages = Packet { channel: Channel::Messages, bytes: 1 };
        for packet in [messages, stream(0, PACKET_BYTES_MAX), stream(2, 7)] {
            assert_eq!(Packet::take(&packet.head(), 3), Ok(packet));
        }
    }

    #[test]
    fn the_bytes_stay_as_documented() {
        assert_eq!(stream(1, 0x0102).head(), [b'L', b'P', 2, 0, 2, 1, 0, 0]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let number = StreamId(3);
        let error = PacketError::Stream { stream: number, count: 3 };
        assert_eq!(Packet::take(&stream(3, 7).head(), 3), Err(error));
        let to_a_source = PacketError::Stream { stream: StreamId(0), count: 0 };
        assert_eq!(Packet::take(&stream(0, 7).head(), 0), Err(to_a_source));
        for bytes in [0, PACKET_BYTES_MAX + 1, u32::MAX] {
            assert_eq!(Packet::take(&stream(0, bytes).head(), 1), Err(PacketError::Length(bytes)));
        }
        assert_eq!(Packet::take(b"LQ\0\0\x01\0\0\0", 1), Err(PacketError::Magic));
    }
}
