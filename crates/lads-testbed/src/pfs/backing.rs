//! Where the bytes of the emulated file system really are: one file per inode, in a directory of
//! its own that goes when the file system does.
//!
//! A file system that was killed leaves its directory behind, with memory in it if it is on a
//! tmpfs; the next one with the same place removes it. A lock tells which are still in use.

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tempfile::TempDir;

const PREFIX: &str = "lads-pfs-";

/// The directory with the bytes of all files.
pub(super) struct Backing {
    directory: TempDir,
    /// Removes files, which takes long if they are large.
    remover: Option<(Sender<PathBuf>, JoinHandle<()>)>,
    /// Locked as long as it is open.
    _lock: File,
}

impl Backing {
    /// Makes the directory within `place`.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn new(place: &Path) -> Result<Self> {
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
    ///
    /// # Errors
    /// As opening does.
    pub(super) fn open(&self, inode: u64) -> std::io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.path(inode))
    }

    /// Removes an inode's bytes soon.
    pub(super) fn remove(&self, inode: u64) {
        if let Some((sender, _)) = &self.remover {
            sender.send(self.path(inode)).expect("it listens as long as this is there");
        }
    }

    fn path(&self, inode: u64) -> PathBuf {
        self.directory.path().join(format!("{inode:x}"))
    }
}

impl Drop for Backing {
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
        let first = Backing::new(place.path()).unwrap();
        let second = Backing::new(place.path()).unwrap();
        first.open(1).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 3);
        drop((first, second));
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
