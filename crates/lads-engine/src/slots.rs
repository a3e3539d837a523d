//! A file on a local disk that is cut into slots of one length.

use crate::whole::{read_at_least, write_all};
use lads_core::staging::Slot;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, fdatasync};
use rustix::io::Errno;
use std::os::fd::OwnedFd;

/// The file. Where its file system allows that, it is read and written past the page cache, so that
/// it does not use the memory that it is there to save.
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

    /// Writes whole pages into a slot.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn write(&self, slot: Slot, pages: &[u8]) -> Result<(), Errno> {
        self.patiently(|| write_all(&self.file, pages, slot.offset(self.slot_bytes)))
    }

    /// Reads whole pages back from a slot.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn read(&self, slot: Slot, pages: &mut [u8]) -> Result<(), Errno> {
        self.patiently(|| {
            let length = pages.len();
            read_at_least(&self.file, pages, slot.offset(self.slot_bytes), length)
        })
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        fdatasync(&self.file)
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
