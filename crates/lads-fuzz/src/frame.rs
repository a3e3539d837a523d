//! Whether any bytes are refused as the head of a frame, or are one whose every number can be.

use lads_core::frame::{Bound, HEADER_BYTES, Header, ROW_BYTES, ROWS_MAX, put_head, take_rows};

/// Where the checksum of the table, and that of the header, stand in the header.
const TABLE_CRC_AT: usize = 12;
const HEADER_CRC_AT: usize = 28;

/// Reads bytes as the head of a frame, as a receiver does. If the first byte is odd, the checksums
/// of the others are made to match first: a sender that lies makes them match, too.
///
/// # Panics
/// If what was read says what cannot be, or is not the same when it is written again.
pub fn run(bytes: &[u8]) {
    let Some((&first, head)) = bytes.split_first() else { return };
    let mut head = head.to_vec();
    if first % 2 == 1 {
        seal(&mut head);
    }
    if head.len() < HEADER_BYTES {
        return;
    }
    let Ok(header) = Header::take(&head[..HEADER_BYTES]) else { return };
    let count = usize::from(header.count);
    assert!((1..=ROWS_MAX).contains(&count), "{header:?}");
    let Some(table) = head[HEADER_BYTES..].get(..count * ROW_BYTES) else { return };
    let mut rows = Vec::new();
    if take_rows(&header, table, &mut rows).is_err() {
        return;
    }
    assert_eq!(rows.len(), count);
    let lengths = rows.iter().map(|row| u64::from(row.block.length));
    let bytes = if header.has_only_sums { 0 } else { lengths.sum::<u64>() };
    assert_eq!(bytes, u64::from(header.payload_bytes));
    assert!(rows.iter().all(|row| row.block.end() > row.block.offset), "{rows:?}");
    let bound = Bound {
        sink_ost: header.sink_ost,
        is_last_grant: header.is_last_grant,
        has_only_sums: header.has_only_sums,
    };
    let mut again = Vec::new();
    put_head(&rows, header.number, bound, &mut again);
    assert_eq!(again, head[..again.len()], "what is written is what was read");
}

/// Writes the checksums that belong to the bytes of a head, as far as there are any.
pub fn seal(head: &mut [u8]) {
    let Some((header, table)) = head.split_at_mut_checked(HEADER_BYTES) else { return };
    let count = usize::from(u16::from_le_bytes([header[4], header[5]]));
    if let Some(table) = table.get(..count * ROW_BYTES) {
        let crc = crc32c::crc32c(table).to_le_bytes();
        header[TABLE_CRC_AT..TABLE_CRC_AT + 4].copy_from_slice(&crc);
    }
    let crc = crc32c::crc32c(&header[..HEADER_CRC_AT]).to_le_bytes();
    header[HEADER_CRC_AT..].copy_from_slice(&crc);
}
