//! What a client keeps on a local disk until it can be sent: a file with the bytes, and a list that
//! says what they are (`lads_core::remote::kept`). If the program or the connection ends before all
//! is sent, both files stay, and `lads rfs replay` sends what they hold.

mod list;

use crate::paths::{open_named_to_look_up, sync_names};
use crate::slots::SlotFile;
use crate::whole::fill_random;
use lads_core::remote::client::About;
use lads_core::remote::kept::{Kept, List, ListError, begin, read};
use lads_core::remote::name::Server;
use lads_core::remote::outbox::Staging;
use lads_core::staging::Slot;
use lads_sys::Buffer;
use list::Listed;
use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, fcntl_getfl, fcntl_setfl, fdatasync,
    flock, fstat, open, openat, unlink, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use thiserror::Error;
use twox_hash::XxHash3_64;

use crate::board::lock;

/// The files of one connection.
#[derive(Debug)]
pub(super) struct Cache {
    path: PathBuf,
    pub(super) bytes: SlotFile,
    list: Mutex<Listed>,
    durability: Durability,
}

/// How files are made durable, and their names in a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Durability {
    pub(super) sync: fn(BorrowedFd<'_>) -> Result<(), Errno>,
    pub(super) sync_names: fn(&OwnedFd) -> Result<(), Errno>,
}

impl Durability {
    pub(super) const SYNCED: Self = Self { sync: |file| fdatasync(file), sync_names };
    pub(super) const UNSYNCED: Self = Self { sync: |_| Ok(()), sync_names: |_| Ok(()) };
}

impl Cache {
    /// Makes the files in a directory, for frames that go to a server and have at most this many
    /// bytes.
    ///
    /// # Errors
    /// If they cannot be made.
    pub(super) fn make(
        directory: &Path,
        server: Server,
        slot_bytes: u32,
        durability: Durability,
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
        let begin = begin(server, slot_bytes);
        let list = Mutex::new(Listed::begin(File::from(list), durability.sync, &begin)?);
        // That the files are there is durable when something is put there.
        let directory = open_named_to_look_up(directory.as_os_str().as_bytes())?;
        (durability.sync_names)(&directory)?;
        Ok(Self { path, bytes: SlotFile::new(bytes, slot_bytes), list, durability })
    }

    /// The name of the list.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts frames into slots, and on the list. All of them need one sync, if they need any.
    ///
    /// # Errors
    /// If the disk is full, or fails.
    pub(super) fn put(&self, frames: &[Staging<Arc<Buffer>, About>]) -> io::Result<()> {
        // A slot of a frame that is gone is used again only when the list says so.
        self.settle()?;
        for Staging { about, buffer, slot, .. } in frames {
            self.bytes.write(*slot, buffer, about.length as usize)?;
        }
        (self.durability.sync)(self.bytes.file())?;
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

/// The two files that a program left behind.
#[derive(Debug)]
pub(in super::super) struct LeftOver {
    /// The directory in which both were opened, and from which both are removed.
    directory: OwnedFd,
    name: OsString,
    pub(in super::super) list: List,
    bytes: SlotFile,
    /// Locked as long as it is open.
    _file: File,
}

/// The reason why nothing can be sent from a list.
#[derive(Debug, Error)]
pub(in super::super) enum Unusable {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    List(#[from] ListError),
}

impl From<Errno> for Unusable {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

impl LeftOver {
    /// Opens a list and the file with its bytes. Each name is looked up once: another user may
    /// replace the files of a shared directory.
    ///
    /// # Errors
    /// If one of them is no regular file or another user's, the list is no list, or its program
    /// still runs.
    pub(in super::super) fn open(path: &Path) -> Result<Self, Unusable> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            openat(CWD, parent.unwrap_or_else(|| Path::new(".")), flags, Mode::empty())?;
        let mut file = File::from(open_own(&directory, &name)?);
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::other("the program that created it is still running").into());
            }
            result => result?,
        }
        let mut list = Vec::new();
        file.read_to_end(&mut list)?;
        let list = read(&list)?;
        let bytes = open_own(&directory, &bytes_name(&name)).map_err(|error| {
            let name = bytes_name(&name);
            io::Error::new(error.kind(), format!("{}: {error}", name.display()))
        })?;
        direct(&bytes);
        let bytes = SlotFile::new(bytes, list.slot_bytes);
        Ok(Self { directory, name, list, bytes, _file: file })
    }

    /// Reads the bytes of a frame.
    ///
    /// # Errors
    /// If the disk fails, or has other bytes than the list says.
    pub(in super::super) fn read(&self, kept: &Kept, buffer: &mut Buffer) -> io::Result<()> {
        self.bytes.read(kept.slot, buffer, kept.length as usize)?;
        match XxHash3_64::oneshot(&buffer[..kept.length as usize]) == kept.checksum {
            true => Ok(()),
            false => Err(io::Error::other("they do not match their checksum")),
        }
    }

    /// Removes both files.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub(in super::super) fn remove(self) -> io::Result<()> {
        unlinkat(&self.directory, bytes_name(&self.name), AtFlags::empty())?;
        Ok(unlinkat(&self.directory, &self.name, AtFlags::empty())?)
    }
}

/// Opens a regular file of this user for reading.
fn open_own(directory: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
    // A FIFO would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = openat(directory, name, flags, Mode::empty())?;
    let stat = fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    // The list says which bytes go to which server, and with whose token.
    if stat.st_uid != geteuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    Ok(file)
}

fn create(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(open(path, flags, Mode::RUSR | Mode::WUSR)?)
}

/// Past the page cache, unless the file system refuses that.
fn direct(file: &OwnedFd) {
    let _ = fcntl_getfl(file).and_then(|flags| fcntl_setfl(file, flags | OFlags::DIRECT));
}

/// Returns the path of the file with the bytes of a list.
fn bytes_path(list: &Path) -> PathBuf {
    PathBuf::from(bytes_name(list.as_os_str()))
}

fn bytes_name(list: &OsStr) -> OsString {
    let mut name = list.to_owned();
    name.push(".bytes");
    name
}
