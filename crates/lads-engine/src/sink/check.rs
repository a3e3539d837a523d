//! Whether the blocks of an unfinished file match their checksums: when it is read back from
//! storage, and when it was changed between two attempts.

use super::table::Temporary;
use super::{SinkEnd, failed};
use crate::paths::reopen;
use crate::whole::read_at_least;
use lads_core::issue::{Failure, Operation};
use lads_core::journal::BlockRecord;
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};
use rustix::io::Errno;
use std::hash::Hasher;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use twox_hash::XxHash3_64;

const PAGE_BYTES: u64 = 4096;

/// A file that was changed is compared in pieces of this many bytes: large enough that calls cost
/// nothing, small enough for each thread to have one besides the arena, which may be in use.
const PIECE_BYTES: usize = 1 << 20;

impl SinkEnd {
    /// Reads a file back from storage, bypassing the page cache; says which blocks are not what was
    /// written, in this attempt or an earlier one.
    pub(super) fn read_back(
        &self,
        temporary: &Temporary,
        records: &[BlockRecord],
    ) -> Result<Vec<BlockRecord>, Failure> {
        let Temporary { file, directory, name, .. } = temporary;
        let direct = reopen(file, directory, name.as_deref(), OFlags::RDONLY | OFlags::DIRECT);
        let mut buffer = self.arena.take();
        let mut bad = Vec::new();
        for record in records {
            let is_aligned = record.offset.is_multiple_of(PAGE_BYTES);
            let checksum = checksum_of(record, &mut buffer, |to, offset, length| match &direct {
                Ok(direct) if is_aligned => {
                    let room = length.next_multiple_of(4096);
                    read_at_least(direct, &mut to[..room], offset, length)
                }
                _ => read_evicted(temporary, &mut to[..length], offset),
            });
            if checksum.map_err(|errno| failed(Operation::Verify, errno))? != record.checksum {
                bad.push(*record);
            }
        }
        Ok(bad)
    }
}

/// The blocks of a file that match their checksums. A block that cannot be read does not match.
pub(super) fn unchanged(file: &OwnedFd, blocks: Vec<BlockRecord>) -> Vec<BlockRecord> {
    let mut buffer = vec![0; PIECE_BYTES];
    let mut is_unchanged = |record: &BlockRecord| {
        let read = |to: &mut [u8], offset, length| read_at_least(file, to, offset, length);
        checksum_of(record, &mut buffer, read) == Ok(record.checksum)
    };
    blocks.into_iter().filter(|record| is_unchanged(record)).collect()
}

/// Makes holes of everything in a file of `size` bytes outside of these blocks. The source sends
/// nothing for the holes of a file, so bytes that somebody has written there would stay.
///
/// # Errors
/// Of the system call, where the file system cannot.
pub(super) fn clear_outside(
    file: &OwnedFd,
    blocks: &[BlockRecord],
    size: u64,
) -> Result<(), Errno> {
    let mut sorted: Vec<_> =
        blocks.iter().map(|it| (it.offset, it.offset + u64::from(it.length))).collect();
    sorted.sort_unstable();
    sorted.push((size, size));
    let mut done = 0;
    for (start, end) in sorted {
        if start > done {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, flags, done, start - done)?;
        }
        done = done.max(end);
    }
    Ok(())
}

/// The checksum of the bytes at the place of a block. `read` reads this many bytes from an offset
/// of the file; a block of an earlier attempt may be longer than a buffer is now.
fn checksum_of(
    record: &BlockRecord,
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], u64, usize) -> Result<(), Errno>,
) -> Result<u64, Errno> {
    let mut hasher = XxHash3_64::new();
    let (mut offset, mut left) = (record.offset, record.length as usize);
    while left > 0 {
        let length = left.min(buffer.len());
        read(buffer, offset, length)?;
        hasher.write(&buffer[..length]);
        offset += length as u64;
        left -= length;
    }
    Ok(hasher.finish())
}

/// Reads through the page cache after proving that it does not hold these bytes.
fn read_evicted(temporary: &Temporary, to: &mut [u8], offset: u64) -> Result<(), Errno> {
    let Temporary { file, directory, name, .. } = temporary;
    let file = reopen(file, directory, name.as_deref(), OFlags::RDONLY)?;
    let start = offset / PAGE_BYTES * PAGE_BYTES;
    let length = offset + to.len() as u64 - start;
    fadvise(&file, start, NonZeroU64::new(length), Advice::DontNeed)?;
    let length = usize::try_from(length).map_err(|_| Errno::OVERFLOW)?;
    let resident = lads_sys::resident_bytes(&file, start, length);
    if resident.map_err(|_| Errno::OPNOTSUPP)? > 0 {
        // It would be read from memory, which proves nothing about the disk.
        return Err(Errno::OPNOTSUPP);
    }
    let length = to.len();
    read_at_least(&file, to, offset, length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_as_it_was_counts_however_long_a_block_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let bytes: Vec<u8> = (0..251).cycle().take(3 * PIECE_BYTES + 99).collect();
        let long = bytes.len() - 100;
        let record = |offset: usize, length: usize| BlockRecord {
            offset: offset as u64,
            length: u32::try_from(length).unwrap(),
            checksum: XxHash3_64::oneshot(&bytes[offset..offset + length]),
        };
        let blocks = vec![record(0, 100), record(100, long)];
        std::fs::write(&path, &bytes).unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let descriptor = OwnedFd::from(file.try_clone().unwrap());
        assert_eq!(unchanged(&descriptor, blocks.clone()), blocks);
        std::os::unix::fs::FileExt::write_all_at(&file, b"?", bytes.len() as u64 - 1).unwrap();
        assert_eq!(unchanged(&descriptor, blocks.clone()), blocks[..1]);
        clear_outside(&descriptor, &blocks[..1], bytes.len() as u64).unwrap();
        let mut expected = bytes.clone();
        expected[100..].fill(0);
        assert!(std::fs::read(&path).unwrap() == expected);
        file.set_len(50).unwrap();
        assert_eq!(unchanged(&descriptor, blocks), []);
    }
}
