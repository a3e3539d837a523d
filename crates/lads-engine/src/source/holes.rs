//! The ranges of a file that have data, if the file has holes.
//!
//! A file may be in any number of pieces, and memory is limited over all files that have not ended.
//! When the ranges of a file do not fit, its shortest holes count as data: so the fewest bytes are
//! sent and written in excess.

use lads_core::limits::DATA_RANGES_MIN;
use lads_core::plan::align_data;
use lads_core::range::RangeSet;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, SeekFrom, Stat, openat, seek};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const BLOCK_BYTES_OF_STAT: u64 = 512;

/// The number of ranges by which a share grows at least. Half would double the number of attempts.
const STEP: usize = 1024;

/// The number of ranges of data for which memory is left, over all files.
#[derive(Debug)]
pub(super) struct RangeBudget {
    free: AtomicUsize,
}

/// The part of the budget that a file holds until the file has ended.
#[derive(Debug)]
pub(super) struct RangeShare {
    budget: Arc<RangeBudget>,
    count: usize,
}

impl RangeBudget {
    pub(super) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: AtomicUsize::new(count) })
    }
}

impl RangeShare {
    fn new(budget: &Arc<RangeBudget>) -> Self {
        Self { budget: Arc::clone(budget), count: 0 }
    }

    /// The number of ranges that the file may have.
    fn count_max(&self) -> usize {
        DATA_RANGES_MIN.max(self.count)
    }

    /// Takes about as much of the budget as the file holds. Returns `false` if nothing is left.
    fn grow(&mut self) -> bool {
        let wanted = self.count.max(STEP);
        let take = |free: usize| Some(free.saturating_sub(wanted));
        let update = self.budget.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let free = update.unwrap_or_else(|free| free);
        self.count += free.min(wanted);
        free > 0
    }

    /// Returns the part of the share that is not needed for this number of ranges.
    fn shrink(&mut self, range_count: usize) {
        let needed = if range_count <= DATA_RANGES_MIN { 0 } else { range_count };
        let surplus = self.count.saturating_sub(needed);
        self.count -= surplus;
        self.budget.free.fetch_add(surplus, Ordering::Relaxed);
    }
}

impl Drop for RangeShare {
    fn drop(&mut self) {
        self.shrink(0);
    }
}

/// Returns the ranges of a file that have data, if the file has holes: then it takes less space
/// than its length.
pub(super) fn data_of(
    budget: &Arc<RangeBudget>,
    directory: &OwnedFd,
    name: &[u8],
    stat: &Stat,
) -> Result<Option<(RangeSet, RangeShare)>, Errno> {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let space = u64::try_from(stat.st_blocks).unwrap_or(0) * BLOCK_BYTES_OF_STAT;
    if size == 0 || space >= size {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    // A file that cannot be opened fails when it is read.
    let Ok(file) = openat(directory, name, flags, Mode::empty()) else { return Ok(None) };
    let mut share = RangeShare::new(budget);
    let Some(data) = ranges_of(&file, size, &mut share) else { return Ok(None) };
    let data = align_data(&data, size);
    share.shrink(data.range_count());
    Ok((data.byte_count() < size).then_some((data, share)))
}

/// Returns the ranges that have data; `None` if the file system does not know them.
fn ranges_of(file: &OwnedFd, size: u64, share: &mut RangeShare) -> Option<RangeSet> {
    let mut data = RangeSet::new();
    let mut offset = 0;
    while offset < size {
        if data.range_count() >= share.count_max() && !share.grow() {
            data.coarsen(share.count_max() / 2);
        }
        let start = match seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = seek(file, SeekFrom::Hole(start)).ok()?;
        data.insert(start..end.min(size));
        offset = end;
    }
    Some(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const PIECE: u64 = 4096;
    const DISTANCE: u64 = 16 * PIECE;

    /// A file of this many pieces, far from each other, and what is found of it.
    fn found(budget: &Arc<RangeBudget>, piece_count: u64) -> Option<(RangeSet, RangeShare)> {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let file = File::create(directory.path().join("file")).unwrap();
        for piece in 0..piece_count {
            file.write_all_at(&[1], piece * DISTANCE).unwrap();
        }
        file.set_len(piece_count * DISTANCE).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let handle = OwnedFd::from(File::open(directory.path()).unwrap());
        data_of(budget, &handle, b"file", &stat).unwrap()
    }

    #[test]
    fn all_pieces_are_found_while_memory_is_left_and_their_share_is_returned() {
        let budget = RangeBudget::new(30_000);
        let (data, share) = found(&budget, 12_000).unwrap();
        assert_eq!((data.range_count(), data.byte_count()), (12_000, 12_000 * PIECE));
        assert_eq!(budget.free.load(Ordering::Relaxed), 18_000);
        drop(share);
        assert_eq!(budget.free.load(Ordering::Relaxed), 30_000);
    }

    #[test]
    fn without_memory_the_pieces_are_merged_and_none_is_lost() {
        for count in [0, 100, 2000] {
            let budget = RangeBudget::new(count);
            let Some((data, share)) = found(&budget, 3000) else { panic!("no holes with {count}") };
            assert!(data.range_count() <= count.max(DATA_RANGES_MIN), "{count}");
            assert!(data.range_count() >= count.max(DATA_RANGES_MIN) / 2, "{count}");
            assert!(
                (0..3000).all(|piece| data.contains(piece * DISTANCE..piece * DISTANCE + PIECE))
            );
            drop(share);
            assert_eq!(budget.free.load(Ordering::Relaxed), count);
        }
    }
}
