//! Data frames in which every field can be wrong (`docs/protocol.md`, section 5).

use lads_core::frame::{HEADER_BYTES, ROW_BYTES};
use twox_hash::XxHash3_64;

/// Row flag: the block is the whole file.
const WHOLE: u32 = 1;
/// Header flag: the blocks are only to be compared.
const ONLY_SUMS: u16 = 2;

/// A frame. What is `None` is what an honest source would write there.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The four bytes that every frame begins with.
    pub magic: [u8; 4],
    /// How many rows the header says there are.
    pub count: Option<u16>,
    /// Flags of the header. Bit 1: only checksums, no bytes.
    pub flags: u16,
    /// How many bytes of payload the header says there are.
    pub payload_bytes: Option<u32>,
    /// The checksum of the rows.
    pub table_crc: Option<u32>,
    /// Frames sent before on the stream.
    pub number: Option<u64>,
    /// The OST that the frame says it is for.
    pub sink_ost: u32,
    /// The checksum of the header.
    pub header_crc: Option<u32>,
    /// The blocks.
    pub rows: Vec<Row>,
    /// The bytes of the blocks.
    pub payload: Vec<u8>,
}

/// One block of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Number of the file.
    pub entry: u64,
    /// Where in the file the block begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub length: u32,
    /// Bit 0: the block is the whole file.
    pub flags: u32,
    /// xxh3 of its bytes.
    pub checksum: u64,
}

impl Frame {
    /// An honest frame for OST 0 with one block.
    #[must_use]
    pub fn of(entry: u64, offset: u64, bytes: &[u8]) -> Self {
        let length = u32::try_from(bytes.len()).unwrap();
        let row = Row { entry, offset, length, flags: 0, checksum: XxHash3_64::oneshot(bytes) };
        Self {
            magic: *b"LDS1",
            count: None,
            flags: 0,
            payload_bytes: None,
            table_crc: None,
            number: None,
            sink_ost: 0,
            header_crc: None,
            rows: vec![row],
            payload: bytes.to_vec(),
        }
    }

    /// The same, and its one block is the whole file.
    #[must_use]
    pub fn whole(self) -> Self {
        self.with(|frame| frame.rows[0].flags = WHOLE)
    }

    /// The same without the bytes: only their checksums, to be compared.
    #[must_use]
    pub fn only_sums(self) -> Self {
        self.with(|frame| (frame.flags, frame.payload) = (ONLY_SUMS, Vec::new()))
    }

    /// The same with something changed.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The bytes as they travel, as the `next`-th of its stream if it has no number.
    #[must_use]
    pub fn bytes(&self, next: u64) -> Vec<u8> {
        let table: Vec<u8> = self.rows.iter().flat_map(Row::bytes).collect();
        let rows = u16::try_from(self.rows.len()).unwrap();
        let payload = u32::try_from(self.payload.len()).unwrap();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + table.len() + self.payload.len());
        bytes.extend_from_slice(&self.magic);
        bytes.extend_from_slice(&self.count.unwrap_or(rows).to_le_bytes());
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(&self.payload_bytes.unwrap_or(payload).to_le_bytes());
        bytes.extend_from_slice(
            &self.table_crc.unwrap_or_else(|| crc32c::crc32c(&table)).to_le_bytes(),
        );
        bytes.extend_from_slice(&self.number.unwrap_or(next).to_le_bytes());
        bytes.extend_from_slice(&self.sink_ost.to_le_bytes());
        let header_crc = self.header_crc.unwrap_or_else(|| crc32c::crc32c(&bytes));
        bytes.extend_from_slice(&header_crc.to_le_bytes());
        bytes.extend_from_slice(&table);
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

impl Row {
    fn bytes(&self) -> [u8; ROW_BYTES] {
        let mut bytes = [0; ROW_BYTES];
        bytes[0..8].copy_from_slice(&self.entry.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.flags.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_core::frame::{Bound, put_head};
    use lads_core::units::{Block, EntryId, OstId};

    #[test]
    fn an_honest_frame_is_the_one_that_the_encoder_writes() {
        let bytes = Frame::of(7, 0, b"abc").whole().bytes(5);
        let row = lads_core::frame::Row {
            block: Block { entry: EntryId(7), offset: 0, length: 3 },
            is_whole: true,
            checksum: XxHash3_64::oneshot(b"abc"),
        };
        let mut encoded = Vec::new();
        put_head(
            &[row],
            5,
            Bound { sink_ost: OstId(0), is_last_grant: false, has_only_sums: false },
            &mut encoded,
        );
        encoded.extend_from_slice(b"abc");
        assert_eq!(bytes, encoded);
    }
}
