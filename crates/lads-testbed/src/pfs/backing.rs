//! Where the bytes of the emulated file system really are: in one file per inode, in a directory
//! that is removed when the file system ends; or nowhere, to measure what software alone costs.
//!
//! A file system that was killed leaves its directory behind, which takes memory if it is on a
//! tmpfs. The next file system with the same place removes it. A lock shows which directories are
//! still in use.

use super::file::errno;
use super::mounted::REQUEST_BYTES_MAX;
use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, FlockOperation, flock};
use rustix::io::Errno;
use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tempfile::TempDir;

const PREFIX: &str = "lads-pfs-";

/// What happens to the bytes of all files.
pub(super) enum Backing {
    /// They are kept.
    Kept(Files),
    /// They are dropped.
    Null,
}

/// The bytes of one open file.
pub(super) enum Bytes {
    /// They are in this file.
    Kept(File),
    /// They are dropped: every read returns zeros.
    Null,
}

impl Backing {
    /// Makes or opens the bytes of an inode.
    ///
    /// # Errors
    /// Those of opening a file.
    pub(super) fn open(&self, inode: u64) -> std::io::Result<Bytes> {
        match self {
            Self::Kept(files) => files.open(inode).map(Bytes::Kept),
            Self::Null => Ok(Bytes::Null),
        }
    }

    /// Removes the bytes of an inode, in the background.
    pub(super) fn remove(&self, inode: u64) {
        if let Self::Kept(files) = self {
            files.remove(inode);
        }
    }
}

impl Bytes {
    /// Calls `then` with the bytes from an offset on, at most `length` of them, or with the error
    /// of the system call. The bytes are in a buffer that can only be borrowed.
    pub(super) fn read(&self, offset: u64, length: usize, then: impl FnOnce(Result<&[u8], Errno>)) {
        let Self::Kept(file) = self else {
            return then(Ok(&ZEROS[..length.min(ZEROS.len())]));
        };
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let count = read_up_to(file, &mut buffer[..length], offset);
            then(count.map(|count| &buffer[..count]));
        });
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// That of the system call.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        match self {
            Self::Kept(file) => file.write_all_at(data, offset).map_err(|error| errno(&error)),
            Self::Null => Ok(()),
        }
    }

    /// Sets the size: cuts off what is beyond it, or adds zeros.
    ///
    /// # Errors
    /// That of the system call.
    pub(super) fn truncate(&self, size: u64) -> Result<(), Errno> {
        match self {
            Self::Kept(file) => rustix::fs::ftruncate(file, size),
            Self::Null => Ok(()),
        }
    }

    /// Does what `fallocate` does, but does not touch the memory that it reserves: a file system in
    /// memory fills it with zeros, which takes half a second for 2 GiB. Those on disks only write
    /// down what is reserved. The caller keeps count of the room. Only the last byte is reserved
    /// here, so that the file gets its size.
    ///
    /// # Errors
    /// That of the system call.
    pub(super) fn allocate(&self, range: Range<u64>, mode: FallocateFlags) -> Result<(), Errno> {
        let Self::Kept(file) = self else { return Ok(()) };
        let start = match mode.contains(FallocateFlags::PUNCH_HOLE) {
            true => range.start,
            false => range.start.max(range.end.saturating_sub(1)),
        };
        rustix::fs::fallocate(file, mode, start, range.end - start)
    }
}

/// The zeros that a read gets if no bytes are kept: as many as the kernel asks for at a time.
static ZEROS: [u8; REQUEST_BYTES_MAX as usize] = [0; REQUEST_BYTES_MAX as usize];

thread_local! {
    /// The buffer for bytes on their way from a file to the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads until the buffer is full or the file ends.
fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut count = 0;
    while count < buffer.len() {
        let place = offset + count as u64;
        match file.read_at(&mut buffer[count..], place).map_err(|error| errno(&error))? {
            0 => break,
            more => count += more,
        }
    }
    Ok(count)
}

/// The directory that holds the bytes of all files, if they are kept.
pub(super) struct Files {
    directory: TempDir,
    /// A thread that removes files, because that takes long for large ones.
    remover: Option<(Sender<PathBuf>, JoinHandle<()>)>,
    /// The lock on the directory, held as long as this is open.
    _lock: File,
}

impl Files {
    /// Makes the directory within `place`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn new(place: &Path) -> Result<Self> {
        // With this lock, no other process sweeps between the making of a directory and its own
        // lock.
        let turn = File::open(place).with_context(|| format!("no {}", place.display()))?;
        flock(&turn, FlockOperation::LockExclusive)?;
        sweep(place);
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(place);
        let directory =
            directory.with_context(|| format!("cannot keep data in {}", place.display()))?;
        let lock = File::open(directory.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let (sender, paths) = channel();
        let remover = std::thread::spawn(move || {
            for path in paths {
                // The file may never have existed.
                let _ = std::fs::remove_file::<PathBuf>(path);
            }
        });
        Ok(Self { directory, remover: Some((sender, remover)), _lock: lock })
    }

    /// Makes or opens the file with the bytes of an inode.
    fn open(&self, inode: u64) -> std::io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(inode))
    }

    fn remove(&self, inode: u64) {
        if let Some((sender, _)) = &self.remover {
            sender.send(self.path(inode)).expect("it listens as long as this is there");
        }
    }

    fn path(&self, inode: u64) -> PathBuf {
        self.directory.path().join(format!("{inode:x}"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        if let Some((sender, remover)) = self.remover.take() {
            drop(sender);
            remover.join().expect("it does not panic");
        }
    }
}

/// Removes the directories of file systems that no longer run.
fn sweep(place: &Path) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let Some(lock) = is_ours.then(|| File::open(entry.path()).ok()).flatten() else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_its_directory_and_what_a_killed_one_left_but_not_what_is_in_use() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("lads-pfs-killed")).unwrap();
        std::fs::create_dir(place.path().join("other")).unwrap();
        let first = Files::new(place.path()).unwrap();
        let second = Files::new(place.path()).unwrap();
        first.open(1).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 3);
        drop((first, second));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
