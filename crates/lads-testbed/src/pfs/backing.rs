//! Where the bytes of the emulated file system really are: one file per inode, in a directory of
//! its own that goes when the file system does; or nowhere, for who measures what software costs.
//!
//! A file system that was killed leaves its directory behind, with memory in it if it is on a
//! tmpfs; the next one with the same place removes it. A lock tells which are still in use.

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

/// What becomes of the bytes of all files.
pub(super) enum Backing {
    /// They are kept.
    Kept(Files),
    /// They are dropped.
    Null,
}

/// The bytes of one file, open.
pub(super) enum Bytes {
    /// They are in this file.
    Kept(File),
    /// There are none: whatever is read is zero.
    Null,
}

impl Backing {
    /// Makes or opens an inode's bytes.
    ///
    /// # Errors
    /// As opening a file does.
    pub(super) fn open(&self, inode: u64) -> std::io::Result<Bytes> {
        match self {
            Self::Kept(files) => files.open(inode).map(Bytes::Kept),
            Self::Null => Ok(Bytes::Null),
        }
    }

    /// Removes an inode's bytes soon.
    pub(super) fn remove(&self, inode: u64) {
        if let Self::Kept(files) = self {
            files.remove(inode);
        }
    }
}

impl Bytes {
    /// Calls with what is from an offset on, at most `length` bytes, which lie where they can only
    /// be lent; or with the error of the system call.
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

    /// Writes.
    ///
    /// # Errors
    /// Of the system call.
    pub(super) fn write(&self, data: &[u8], offset: u64) -> Result<(), Errno> {
        match self {
            Self::Kept(file) => file.write_all_at(data, offset).map_err(|error| errno(&error)),
            Self::Null => Ok(()),
        }
    }

    /// Cuts off what is behind a size, or adds zeros.
    ///
    /// # Errors
    /// Of the system call.
    pub(super) fn truncate(&self, size: u64) -> Result<(), Errno> {
        match self {
            Self::Kept(file) => rustix::fs::ftruncate(file, size),
            Self::Null => Ok(()),
        }
    }

    /// Takes memory ahead, or gives it back, as `fallocate` does.
    ///
    /// # Errors
    /// Of the system call.
    pub(super) fn allocate(&self, range: Range<u64>, mode: FallocateFlags) -> Result<(), Errno> {
        match self {
            Self::Kept(file) => {
                rustix::fs::fallocate(file, mode, range.start, range.end - range.start)
            }
            Self::Null => Ok(()),
        }
    }
}

/// What a read of nothing gets: as much as the kernel asks for at a time.
static ZEROS: [u8; REQUEST_BYTES_MAX as usize] = [0; REQUEST_BYTES_MAX as usize];

thread_local! {
    /// Where bytes are on their way from a file to the kernel.
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

/// The directory with the bytes of all files, if they are kept.
pub(super) struct Files {
    directory: TempDir,
    /// Removes files, which takes long if they are large.
    remover: Option<(Sender<PathBuf>, JoinHandle<()>)>,
    /// Locked as long as it is open.
    _lock: File,
}

impl Files {
    /// Makes the directory within `place`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn new(place: &Path) -> Result<Self> {
        // Nobody sweeps between the making of a directory and its lock.
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
                // It may never have been there.
                let _ = std::fs::remove_file::<PathBuf>(path);
            }
        });
        Ok(Self { directory, remover: Some((sender, remover)), _lock: lock })
    }

    /// Makes or opens the file with an inode's bytes.
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

/// Removes what file systems that no longer run have left.
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
