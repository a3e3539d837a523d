//! Starts writing a file to storage without waiting for it.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};

/// Starts writing all that the page cache holds of a file and storage does not.
///
/// Nothing is durable by it: it only lets many files be written side by side before each is
/// synced, so that a journalling file system commits them together.
///
/// # Errors
/// If the file or its file system does not take the call.
pub fn start_writeback(file: impl AsFd) -> io::Result<()> {
    // A length of zero stands for the rest of the file.
    start(file, 0, 0)
}

/// As [`start_writeback`], but only these bytes of the file.
///
/// # Errors
/// If the file or its file system does not take the call, or if the range is empty or lies beyond
/// what a file can have.
pub fn start_writeback_of(file: impl AsFd, range: Range<u64>) -> io::Result<()> {
    let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
    let length = range.end.checked_sub(range.start).filter(|&length| length > 0);
    let number =
        |value: Option<u64>| value.and_then(|it| i64::try_from(it).ok()).ok_or_else(invalid);
    start(file, number(Some(range.start))?, number(length)?)
}

fn start(file: impl AsFd, offset: i64, length: i64) -> io::Result<()> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers only; the descriptor is open as long as `file` is borrowed.
    let result =
        unsafe { libc::sync_file_range(file, offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_range_that_a_file_can_have_is_taken() {
        let file = std::fs::File::from(
            rustix::fs::memfd_create("file", rustix::fs::MemfdFlags::empty()).unwrap(),
        );
        start_writeback(&file).unwrap();
        start_writeback_of(&file, 4096..8192).unwrap();
        for range in [5..5, Range { start: 6, end: 5 }, 0..u64::MAX, u64::MAX - 1..u64::MAX] {
            assert_eq!(
                start_writeback_of(&file, range).unwrap_err().raw_os_error(),
                Some(libc::EINVAL)
            );
        }
    }
}
