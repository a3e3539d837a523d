//! A file on a local disk that is cut into slots of one length.

use crate::whole::{read_at_least, write_all};
use lads_core::staging::Slot;
use lads_sys::without_file_size_signal;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Direct I/O is done in pages of this many bytes.
const PAGE_BYTES: usize = 4096;

/// The file. Where its file system allows that, it is read and written bypassing the page cache, so
/// that it does not use the memory that it is there to save.
#[derive(Debug)]
pub(crate) struct SlotFile {
    file: OwnedFd,
    slot_bytes: u32,
}

impl SlotFile {
    /// Uses a file that is open for reading and writing.
    pub(crate) fn new(file: OwnedFd, slot_bytes: u32) -> Self {
        Self { file, slot_bytes }
    }

    /// Writes the first bytes of a buffer into a slot, in whole pages.
    ///
    /// # Errors
    /// Of the system.
    ///
    /// # Panics
    /// If the buffer does not hold these pages.
    pub(crate) fn write(&self, slot: Slot, buffer: &[u8], length: usize) -> Result<(), Errno> {
        let pages = &buffer[..length.next_multiple_of(PAGE_BYTES)];
        let write = || write_all(&self.file, pages, slot.offset(self.slot_bytes));
        self.patiently(|| without_file_size_signal(write))
    }

    /// Reads the first bytes of a slot back into a buffer, in whole pages.
    ///
    /// # Errors
    /// Of the system.
    ///
    /// # Panics
    /// If the buffer does not hold these pages.
    pub(crate) fn read(&self, slot: Slot, buffer: &mut [u8], length: usize) -> Result<(), Errno> {
        let pages = &mut buffer[..length.next_multiple_of(PAGE_BYTES)];
        self.patiently(|| {
            let length = pages.len();
            read_at_least(&self.file, pages, slot.offset(self.slot_bytes), length)
        })
    }

    /// Returns the file, to make it durable.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Some file systems allow a file to be opened for direct I/O, and then refuse the direct I/O.
    fn patiently(&self, mut act: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
        match act() {
            Err(Errno::INVAL) => {
                let flags = fcntl_getfl(&self.file)?;
                fcntl_setfl(&self.file, flags - OFlags::DIRECT)?;
                act()
            }
            result => result,
        }
    }
}
