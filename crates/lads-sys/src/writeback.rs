//! Starts writing a file to storage without waiting for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Starts writing all that the page cache holds of a file and storage does not.
///
/// Nothing is durable by it: it only lets many files be written side by side before each is
/// synced, so that a journalling file system commits them together.
///
/// # Errors
/// If the file or its file system does not take the call.
pub fn start_writeback(file: impl AsFd) -> io::Result<()> {
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the call takes numbers only; the descriptor is open as long as `file` is borrowed.
    let result = unsafe { libc::sync_file_range(file, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
