//! What a client keeps on a local disk until it can be sent: a file with the bytes, and a list that
//! says what they are (`lads_core::remote::kept`). If the program or the connection ends before all
//! is sent, both files stay, and `lads rfs replay` sends what they hold.

mod list;

use super::About;
use crate::paths::{open_named_to_look_up, sync_names};
use crate::slots::SlotFile;
use crate::whole::fill_random;
use lads_core::remote::kept::{Kept, List, begin, read};
use lads_core::remote::name::Server;
use lads_core::remote::outbox::Staging;
use lads_core::staging::Slot;
use lads_sys::Buffer;
use list::Listed;
use rustix::fs::{
    FlockOperation, Mode, OFlags, fcntl_getfl, fcntl_setfl, flock, fstat, open, unlink,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use twox_hash::XxHash3_64;

use crate::board::lock;

/// The files of one connection.
#[derive(Debug)]
pub(super) struct Cache {
    path: PathBuf,
    bytes: SlotFile,
    is_synced: bool,
    list: Mutex<Listed>,
    #[cfg(test)]
    is_broken: std::sync::atomic::AtomicBool,
    #[cfg(test)]
    syncs_of_bytes: std::sync::atomic::AtomicU64,
}

/// How often each file was made durable.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Syncs {
    pub(in super::super) of_bytes: u64,
    pub(in super::super) of_list: u64,
}

impl Cache {
    /// Makes the files in a directory, for frames that go to a server and have at most this many
    /// bytes. With `is_synced`, what is put there is durable at once.
    ///
    /// # Errors
    /// If they cannot be made.
    pub(super) fn make(
        directory: &Path,
        server: Server,
        slot_bytes: u32,
        is_synced: bool,
    ) -> io::Result<Self> {
        let mut number = [0; 8];
        fill_random(&mut number)?;
        let name = format!("lads-{:016x}.rfs", u64::from_le_bytes(number));
        let path = directory.join(name);
        let list = create(&path)?;
        flock(&list, FlockOperation::NonBlockingLockExclusive)?;
        let bytes = create(&bytes_path(&path)).inspect_err(|_| {
            let _ = unlink(&path);
        })?;
        direct(&bytes);
        let list = Listed::begin(File::from(list), is_synced, &begin(server, slot_bytes))?;
        if is_synced {
            // That the files are there is durable when something is put there.
            sync_names(&open_named_to_look_up(directory.as_os_str().as_bytes())?)?;
        }
        let bytes = SlotFile::new(bytes, slot_bytes);
        Ok(Self {
            path,
            bytes,
            is_synced,
            list: Mutex::new(list),
            #[cfg(test)]
            is_broken: false.into(),
            #[cfg(test)]
            syncs_of_bytes: 0.into(),
        })
    }

    /// The name of the list.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(test)]
    pub(super) fn break_disk(&self) {
        self.is_broken.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn syncs(&self) -> Syncs {
        let of_bytes = self.syncs_of_bytes.load(std::sync::atomic::Ordering::Relaxed);
        Syncs { of_bytes, of_list: lock(&self.list).syncs }
    }

    /// Makes durable what was written to the file with the bytes, if the user wants that.
    fn sync_bytes(&self) -> io::Result<()> {
        if !self.is_synced {
            return Ok(());
        }
        #[cfg(test)]
        self.syncs_of_bytes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(self.bytes.sync()?)
    }

    /// Puts frames into slots, and on the list. All of them need one sync, if they need any.
    ///
    /// # Errors
    /// If the disk is full, or fails.
    pub(super) fn put(&self, frames: &[Staging<Arc<Buffer>, About>]) -> io::Result<()> {
        #[cfg(test)]
        if self.is_broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Errno::NOSPC.into());
        }
        // A slot of a frame that is gone is used again only when the list says so.
        self.settle()?;
        for Staging { about, buffer, slot, .. } in frames {
            self.bytes.write(*slot, buffer, about.length as usize)?;
        }
        self.sync_bytes()?;
        lock(&self.list).keep(frames)
    }

    /// Takes a frame back from a slot. Returns its checksum.
    ///
    /// # Errors
    /// If the disk fails, or returns other bytes than were written.
    pub(super) fn take(&self, slot: Slot, length: u32, buffer: &mut Buffer) -> io::Result<u64> {
        self.bytes.read(slot, buffer, length as usize)?;
        let checksum = XxHash3_64::oneshot(&buffer[..length as usize]);
        match lock(&self.list).checksum(slot) == Some(checksum) {
            true => Ok(checksum),
            false => Err(io::Error::other("it returned other bytes than were written to it")),
        }
    }

    /// Frames are written at the server. Their slots may be used again after that.
    pub(super) fn on_gone(&self, ids: &[u64]) {
        lock(&self.list).on_gone(ids);
    }

    /// Makes durable which frames are gone, if the user wants that: they must not be sent again
    /// over what is written later.
    ///
    /// # Errors
    /// If the disk fails.
    pub(super) fn settle(&self) -> io::Result<()> {
        lock(&self.list).settle()
    }

    /// Removes both files: nothing is left to be sent.
    pub(super) fn remove(&self) {
        let _ = unlink(&self.path);
        let _ = unlink(bytes_path(&self.path));
    }
}

/// What a program left behind.
#[derive(Debug)]
pub(in super::super) struct LeftOver {
    path: PathBuf,
    pub(in super::super) list: List,
    bytes: SlotFile,
    /// Locked as long as it is open.
    _file: OwnedFd,
}

impl LeftOver {
    /// Opens a list and the file with its bytes.
    ///
    /// # Errors
    /// If it is no list, another user's, or its program still runs.
    pub(in super::super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = open(path, flags, Mode::empty())?;
        // It says which bytes go to which server, and with whose token.
        if fstat(&file)?.st_uid != geteuid().as_raw() {
            return Err(io::Error::other("it is another user's"));
        }
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("the program that made it still runs"));
            }
            result => result?,
        }
        let list = read(&std::fs::read(path)?).map_err(io::Error::other)?;
        let bytes = open(bytes_path(path), flags, Mode::empty())?;
        direct(&bytes);
        let bytes = SlotFile::new(bytes, list.slot_bytes);
        Ok(Self { path: path.to_owned(), list, bytes, _file: file })
    }

    /// Reads the bytes of a frame.
    ///
    /// # Errors
    /// If the disk fails, or has other bytes than the list says.
    pub(in super::super) fn read(&self, kept: &Kept, buffer: &mut Buffer) -> io::Result<()> {
        self.bytes.read(kept.slot, buffer, kept.length as usize)?;
        match XxHash3_64::oneshot(&buffer[..kept.length as usize]) == kept.checksum {
            true => Ok(()),
            false => Err(io::Error::other("the bytes are not those that the list tells of")),
        }
    }

    /// Removes both files.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub(in super::super) fn remove(self) -> io::Result<()> {
        unlink(bytes_path(&self.path))?;
        Ok(unlink(&self.path)?)
    }
}

fn create(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Past the page cache, unless the file system refuses that.
fn direct(file: &OwnedFd) {
    let _ = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT));
}

/// The file with the bytes of a list.
fn bytes_path(list: &Path) -> PathBuf {
    let mut name = list.as_os_str().to_owned();
    name.push(".bytes");
    PathBuf::from(name)
}
