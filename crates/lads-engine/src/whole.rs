//! Reads and writes that continue until all bytes are done. A single system call may do less than
//! it was asked for, and a signal may interrupt it.

use rustix::io::{Errno, pread, pwrite};
use std::io;
use std::os::fd::OwnedFd;

/// Reads from an offset of a file until `to` has at least `length` bytes. Direct I/O reads whole
/// pages, so at the end of a file `to` may get fewer bytes than whole pages.
///
/// # Errors
/// Of the system call; EIO if the file ends before.
pub(crate) fn read_at_least(
    file: &OwnedFd,
    to: &mut [u8],
    offset: u64,
    length: usize,
) -> Result<(), Errno> {
    fill(to, offset, length, |to, offset| pread(file, to, offset))
}

/// The same by calls of `read`, which is given where to put bytes and from which offset.
pub(crate) fn fill(
    to: &mut [u8],
    offset: u64,
    length: usize,
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < length {
        match read(&mut to[filled..], offset + filled as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes bytes to an offset of a file.
///
/// # Errors
/// Of the system call; EIO if it takes nothing.
pub(crate) fn write_all(file: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(file, &bytes[written..], offset + written as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Fills `to` with random bytes from the system.
pub(crate) fn fill_random(to: &mut [u8]) -> io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut filled = 0;
    while filled < to.len() {
        match getrandom(&mut to[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
