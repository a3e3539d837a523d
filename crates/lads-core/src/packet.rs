//! How messages and the frames of all data streams share one pipe: they are cut into packets.
//!
//! ```text
//!  0        2          4            8
//!  +--------+----------+------------+------ … ------+
//!  | "LP"   | channel  | length     | length bytes  |
//!  |        | u16 LE   | u32 LE     |               |
//!  +--------+----------+------------+------ … ------+
//! ```
//!
//! Channel 0 carries messages, channel 1 the first data stream, and so on. The bytes of a channel,
//! put together, are the same as on a connection of its own. Packets do not mark where a message or
//! a frame begins or ends.

use crate::limits::PACKET_BYTES_MAX;
use crate::units::StreamId;
use thiserror::Error;

/// The bytes of a packet before those of the channel.
pub const HEAD_BYTES: usize = 8;

const MAGIC: [u8; 2] = *b"LP";

/// The channel that a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// The control channel.
    Messages,
    /// A data stream.
    Stream(StreamId),
}

/// The head of a packet, before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The channel that the bytes belong to.
    pub channel: Channel,
    /// The number of bytes: 1 to [`PACKET_BYTES_MAX`].
    pub bytes: u32,
}

/// Why bytes are not the head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PacketError {
    /// The bytes do not begin with the magic number: the pipe is out of step.
    #[error("the pipe is out of sync (bad magic)")]
    Magic,
    /// The packet is empty, or too long.
    #[error("a packet of {0} bytes, which is not allowed")]
    Length(u32),
    /// The packet is of a data stream that does not exist.
    #[error("a packet of data stream {}, which does not exist: there are {count}", .stream.0)]
    Stream {
        /// The stream that the packet names.
        stream: StreamId,
        /// The number of streams that may come.
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

    /// Reads a head. `stream_count` is the number of data streams that may come: zero at a source.
    ///
    /// # Errors
    /// If the bytes are not a head, the packet is too long, or its stream does not exist.
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
