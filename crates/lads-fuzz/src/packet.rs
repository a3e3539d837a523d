//! Whether any bytes are refused as the head of a packet, or are one that can be.

use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::packet::{Channel, HEAD_BYTES, Packet};

/// Reads bytes as the heads of packets, one after the other, as an end with as many streams as the
/// first byte says.
///
/// # Panics
/// If what was read says what cannot be, or is not the same when it is written again.
pub fn run(bytes: &[u8]) {
    let Some((&first, heads)) = bytes.split_first() else { return };
    let stream_count = u16::from(first);
    for head in heads.chunks_exact(HEAD_BYTES) {
        let head = head.try_into().expect("as many as are read at a time");
        let Ok(packet) = Packet::take(head, stream_count) else { continue };
        assert!((1..=PACKET_BYTES_MAX).contains(&packet.bytes), "{packet:?}");
        if let Channel::Stream(stream) = packet.channel {
            assert!(stream.0 < stream_count, "{packet:?}");
        }
        assert_eq!(packet.head(), *head, "what is written is what was read");
    }
}
