//! How the bytes of an open file pass the page cache, and how they go through it and leave nothing
//! there.
//!
//! Linux 6.14 and later drop the pages of a call with `RWF_DONTCACHE` as soon as they are read or
//! written, on file systems that know the flag. Elsewhere the call is made without the flag, and
//! the kernel is told afterwards that the pages are not needed. It drops clean pages at once, and
//! starts to write dirty ones; those are dropped by another word after the sync.

use crate::job::IoMode;
use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};

/// The way from and to an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    /// Past the page cache (`O_DIRECT`): whole pages only.
    Direct,
    /// Through the page cache.
    Buffered,
    /// Through the page cache, and nothing stays there.
    Uncached,
}

impl Caching {
    /// The way through the page cache, for a file that does not go past it.
    pub(crate) fn within(mode: IoMode) -> Self {
        match mode {
            IoMode::Uncached => Self::Uncached,
            IoMode::Auto | IoMode::Direct | IoMode::Buffered => Self::Buffered,
        }
    }
}

/// Whether the kernel and the file system knew the flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    Known,
    Unknown,
}

/// `RWF_DONTCACHE`, which rustix does not name yet.
const DONT_CACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);

/// Reads once, and leaves nothing in the page cache.
pub(crate) fn read_uncached(
    file: impl AsFd,
    to: &mut [u8],
    offset: u64,
) -> Result<(usize, Flag), Errno> {
    match preadv2(&file, &mut [IoSliceMut::new(to)], offset, DONT_CACHE) {
        Err(errno) if may_be_of_flag(errno) => {
            let count = pread(&file, to, offset)?;
            drop_pages(&file, offset, count);
            Ok((count, Flag::Unknown))
        }
        result => Ok((result?, Flag::Known)),
    }
}

/// Writes all bytes, and leaves nothing in the page cache. Where the flag is not known, something
/// stays until [`drop_written`] after a sync.
pub(crate) fn write_all_uncached(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<Flag, Errno> {
    let (mut written, mut flag) = (0, Flag::Known);
    while written < bytes.len() {
        let (rest, at) = (&bytes[written..], offset + written as u64);
        let count = match pwritev2(file, &[IoSlice::new(rest)], at, DONT_CACHE) {
            Err(errno) if may_be_of_flag(errno) => {
                flag = Flag::Unknown;
                let count = pwrite(file, rest, at);
                drop_pages(file, at, count.unwrap_or(0));
                count
            }
            result => result,
        };
        match count {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(flag)
}

/// A file was synced: what the page cache still has of it is dropped. Only a wish: it can fail, and
/// nothing is lost then.
pub(crate) fn drop_written(file: impl AsFd) {
    let _ = fadvise(file, 0, None, Advice::DontNeed);
}

/// An old kernel, or a file system without the flag. If the error has another reason, the call
/// without the flag fails with it, too.
fn may_be_of_flag(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS)
}

fn drop_pages(file: impl AsFd, offset: u64, count: usize) {
    // No length would stand for the rest of the file.
    if let Some(length) = NonZeroU64::new(count as u64) {
        let _ = fadvise(file, offset, Some(length), Advice::DontNeed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lads_sys::resident_bytes;
    use rustix::fs::{MemfdFlags, fsync, memfd_create};
    use std::fs::File;

    const LENGTH: usize = 1 << 20;

    fn bytes() -> Vec<u8> {
        (0..LENGTH).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    /// Memory has no storage besides the page cache, and no kernel takes the flag for it.
    #[test]
    fn where_the_flag_is_not_known_the_bytes_come_all_the_same() {
        let file = memfd_create("file", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(write_all_uncached(&file, &bytes(), 0), Ok(Flag::Unknown));
        let mut read = vec![0; LENGTH];
        assert_eq!(read_uncached(&file, &mut read, 0), Ok((LENGTH, Flag::Unknown)));
        assert_eq!(read, bytes());
        assert_eq!(read_uncached(&file, &mut read, LENGTH as u64).map(|(count, _)| count), Ok(0));
    }

    #[test]
    fn an_error_that_has_nothing_to_do_with_the_flag_is_told() {
        let file: OwnedFd = File::open("/").unwrap().into();
        assert_eq!(read_uncached(&file, &mut [0], 0), Err(Errno::ISDIR));
        assert_eq!(write_all_uncached(&file, &[0], 0), Err(Errno::BADF));
    }

    #[test]
    fn nothing_stays_in_the_page_cache_of_a_file_on_storage() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file: OwnedFd = file.into();
        let resident = || resident_bytes(&file, 0, LENGTH).unwrap();
        write_all_uncached(&file, &bytes(), 0).unwrap();
        fsync(&file).unwrap();
        drop_written(&file);
        if resident() == LENGTH as u64 {
            lads_tried::not_tried(
                "the sources lie on a file system that is nothing but page cache",
            );
            return;
        }
        assert_eq!(resident(), 0);
        let mut read = vec![0; LENGTH];
        assert_eq!(read_uncached(&file, &mut read, 0).map(|(count, _)| count), Ok(LENGTH));
        assert_eq!((read, resident()), (bytes(), 0));
    }
}
