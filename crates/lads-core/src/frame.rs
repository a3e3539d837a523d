//! A data frame: blocks and their bytes, on a data stream from source to sink (NEW_BLOCK).
//!
//! ```text
//!  0        4     6     8            12           16                 24           28      32
//!  +--------+-----+-----+------------+------------+------------------+------------+-------+
//!  | magic  |count|flags| payload    | table      | frame number     | sink OST   | header|
//!  |        |     |     | bytes      | crc32c     |                  |            | crc32c|
//!  +--------+-----+-----+------------+------------+------------------+------------+-------+
//!  then `count` rows of 32 bytes, then the payload: the blocks' bytes, one after the other;
//!  none if the blocks are only to be compared
//!  +------------------+------------------+------------+------------+------------------+
//!  | entry            | offset           | length     | flags      | xxh3             |
//!  +------------------+------------------+------------+------------+------------------+
//! ```
//!
//! All numbers are little endian. The header's checksum covers its first 28 bytes. If it does not
//! match, the stream ends, because nothing after the header can be trusted. If a block does not
//! match its own checksum, only that block is lost.

use crate::units::{Block, EntryId, OstId};
use thiserror::Error;

/// The length of the header in bytes.
pub const HEADER_BYTES: usize = 32;
/// The length of a row of the table in bytes.
pub const ROW_BYTES: usize = 32;
/// The most blocks in a frame: a buffer of 1 MiB holds this many of the smallest files, because
/// each begins on a page of its own.
pub const ROWS_MAX: usize = 256;

const MAGIC: u32 = u32::from_le_bytes(*b"LDS1");
const CHECKED_BYTES: usize = 28;
/// Header flag: the source has no further grant for the sink OST.
const FLAG_LAST_GRANT: u16 = 1;
/// Header flag: the blocks are only compared; there is no payload.
const FLAG_SUMS: u16 = 2;
/// Row flag: the block is the whole file, and the file was unchanged after it was read.
const FLAG_WHOLE: u32 = 1;

/// The header of a frame, which comes before its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The number of blocks, from 1 to [`ROWS_MAX`].
    pub count: u16,
    /// The bytes of all blocks together; zero if the blocks are only compared.
    pub payload_bytes: u32,
    /// crc32c of the rows.
    pub table_crc: u32,
    /// The number of frames sent before on this stream.
    pub number: u64,
    /// The sink OST of all blocks. The frame uses up one grant for it.
    pub sink_ost: OstId,
    /// Whether that was the last grant that the source had for this OST.
    pub is_last_grant: bool,
    /// Whether the blocks are only compared with those at the sink: the frame has their checksums
    /// without their bytes.
    pub has_only_sums: bool,
}

/// One block of a frame: a row of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Which bytes of which file.
    pub block: Block,
    /// Whether it is the whole file, unchanged after it was read. Then the sink need not wait for
    /// FILE_DONE.
    pub is_whole: bool,
    /// xxh3 (64 bits) of the bytes.
    pub checksum: u64,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The bytes do not begin with the magic number: the stream is out of step.
    #[error("data stream out of sync (bad magic)")]
    Magic,
    /// The header or the table was damaged on the way.
    #[error("frame header damaged in transit")]
    Damaged,
    /// A number in the header or the table is out of range.
    #[error("frame header out of range")]
    OutOfRange,
}

/// Which OST a frame is for, and what it says about the grant that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The sink OST of all blocks.
    pub sink_ost: OstId,
    /// Whether the source has no further grant for this OST.
    pub is_last_grant: bool,
    /// Whether the blocks are only compared, so that the frame has no payload.
    pub has_only_sums: bool,
}

/// Replaces the contents of `to` by the header and the table of frame `number` of its stream.
///
/// # Panics
/// If there is no row, more than [`ROWS_MAX`], or 4 GiB of payload.
pub fn put_head(rows: &[Row], number: u64, bound: Bound, to: &mut Vec<u8>) {
    assert!((1..=ROWS_MAX).contains(&rows.len()), "{} rows in a frame", rows.len());
    to.clear();
    to.resize(HEADER_BYTES + rows.len() * ROW_BYTES, 0);
    let (head, table) = to.split_at_mut(HEADER_BYTES);
    for (row, place) in rows.iter().zip(table.chunks_exact_mut(ROW_BYTES)) {
        row.put(place);
    }
    let header = Header {
        count: u16::try_from(rows.len()).expect("at most ROWS_MAX"),
        payload_bytes: if bound.has_only_sums { 0 } else { bytes_of(rows) },
        table_crc: crc32c::crc32c(table),
        number,
        sink_ost: bound.sink_ost,
        is_last_grant: bound.is_last_grant,
        has_only_sums: bound.has_only_sums,
    };
    header.put(head);
}

impl Header {
    fn put(&self, to: &mut [u8]) {
        to[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        to[4..6].copy_from_slice(&self.count.to_le_bytes());
        let last_grant = if self.is_last_grant { FLAG_LAST_GRANT } else { 0 };
        let flags = last_grant | if self.has_only_sums { FLAG_SUMS } else { 0 };
        to[6..8].copy_from_slice(&flags.to_le_bytes());
        to[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        to[12..16].copy_from_slice(&self.table_crc.to_le_bytes());
        to[16..24].copy_from_slice(&self.number.to_le_bytes());
        to[24..28].copy_from_slice(&self.sink_ost.0.to_le_bytes());
        let crc = crc32c::crc32c(&to[..CHECKED_BYTES]);
        to[28..32].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header from [`HEADER_BYTES`] bytes.
    ///
    /// # Errors
    /// If the bytes are not a header, or were damaged.
    pub fn take(from: &[u8]) -> Result<Self, FrameError> {
        if u32_at(from, 0) != MAGIC {
            return Err(FrameError::Magic);
        }
        if u32_at(from, 28) != crc32c::crc32c(&from[..CHECKED_BYTES]) {
            return Err(FrameError::Damaged);
        }
        let count = u16::from_le_bytes([from[4], from[5]]);
        let flags = u16::from_le_bytes([from[6], from[7]]);
        if count == 0
            || usize::from(count) > ROWS_MAX
            || flags & !(FLAG_LAST_GRANT | FLAG_SUMS) != 0
        {
            return Err(FrameError::OutOfRange);
        }
        Ok(Self {
            count,
            payload_bytes: u32_at(from, 8),
            table_crc: u32_at(from, 12),
            number: u64_at(from, 16),
            sink_ost: OstId(u32_at(from, 24)),
            is_last_grant: flags & FLAG_LAST_GRANT != 0,
            has_only_sums: flags & FLAG_SUMS != 0,
        })
    }
}

impl Row {
    fn put(&self, to: &mut [u8]) {
        to[0..8].copy_from_slice(&self.block.entry.0.to_le_bytes());
        to[8..16].copy_from_slice(&self.block.offset.to_le_bytes());
        to[16..20].copy_from_slice(&self.block.length.to_le_bytes());
        let flags = if self.is_whole { FLAG_WHOLE } else { 0 };
        to[20..24].copy_from_slice(&flags.to_le_bytes());
        to[24..32].copy_from_slice(&self.checksum.to_le_bytes());
    }

    fn take(from: &[u8]) -> Result<Self, FrameError> {
        let block = Block {
            entry: EntryId(u64_at(from, 0)),
            offset: u64_at(from, 8),
            length: u32_at(from, 16),
        };
        let flags = u32_at(from, 20);
        let is_sound = block.length > 0
            && block.offset.checked_add(u64::from(block.length)).is_some()
            && flags & !FLAG_WHOLE == 0;
        if !is_sound {
            return Err(FrameError::OutOfRange);
        }
        Ok(Self { block, is_whole: flags & FLAG_WHOLE != 0, checksum: u64_at(from, 24) })
    }
}

/// Reads the rows that belong to a header, into `rows`.
///
/// # Errors
/// If they do not match the header, were damaged, or name impossible blocks.
pub fn take_rows(header: &Header, table: &[u8], rows: &mut Vec<Row>) -> Result<(), FrameError> {
    if crc32c::crc32c(table) != header.table_crc {
        return Err(FrameError::Damaged);
    }
    rows.clear();
    let mut payload_bytes = 0u64;
    for row in table.chunks_exact(ROW_BYTES) {
        let row = Row::take(row)?;
        payload_bytes += if header.has_only_sums { 0 } else { u64::from(row.block.length) };
        rows.push(row);
    }
    let is_whole = rows.len() == usize::from(header.count);
    if !is_whole || payload_bytes != u64::from(header.payload_bytes) {
        return Err(FrameError::OutOfRange);
    }
    Ok(())
}

fn bytes_of(rows: &[Row]) -> u32 {
    rows.iter().map(|row| row.block.length).sum()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(entry: u64, length: u32) -> Row {
        let block = Block { entry: EntryId(entry), offset: 1 << 20, length };
        Row { block, is_whole: entry.is_multiple_of(2), checksum: 0x1234_5678_9abc_def0 }
    }

    fn frame_of(rows: &[Row], has_only_sums: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let bound = Bound { sink_ost: OstId(2), is_last_grant: true, has_only_sums };
        put_head(rows, 9, bound, &mut bytes);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Row>, FrameError> {
        let header = Header::take(&bytes[..HEADER_BYTES])?;
        let mut rows = Vec::new();
        take_rows(&header, &bytes[HEADER_BYTES..], &mut rows)?;
        Ok(rows)
    }

    #[test]
    fn what_is_put_can_be_taken() {
        let rows = [row(1, 5), row(2, 4096), row(3, 1)];
        assert_eq!(read(&frame_of(&rows, false)), Ok(rows.to_vec()));
    }

    #[test]
    fn sums_without_bytes_have_no_payload() {
        let rows = [row(1, 5), row(2, 4096)];
        let bytes = frame_of(&rows, true);
        let header = Header::take(&bytes[..HEADER_BYTES]).unwrap();
        assert_eq!((header.payload_bytes, header.has_only_sums), (0, true));
        assert_eq!(read(&bytes), Ok(rows.to_vec()));
        let announced = Header { payload_bytes: 4101, ..header };
        assert_eq!(
            take_rows(&announced, &bytes[HEADER_BYTES..], &mut Vec::new()),
            Err(FrameError::OutOfRange)
        );
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = frame_of(&[row(1, 5), row(2, 4096)], false);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                assert!(read(&damaged).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn impossible_blocks_are_refused() {
        let overflow = Row {
            block: Block { entry: EntryId(1), offset: u64::MAX, length: 1 },
            is_whole: false,
            checksum: 0,
        };
        assert_eq!(read(&frame_of(&[overflow], false)), Err(FrameError::OutOfRange));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 32..400)) {
            let _ = read(&bytes);
        }
    }
}
