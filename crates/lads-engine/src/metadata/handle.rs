//! Through what metadata is read and set: a file that is open, or something that is only held.

use lads_core::entry::Kind;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid, XattrFlags, chmod, chownat,
    fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, futimens, getxattr,
    listxattr, openat, readlinkat, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A descriptor through which metadata is read and set.
pub(crate) trait Handle {
    /// Whether it has a mode; a symbolic link has none.
    fn has_mode(&self) -> bool;
    /// Sets the owner, unless it is `None`, and the group.
    fn set_owner(&self, uid: Option<Uid>, gid: Gid) -> Result<(), Errno>;
    /// Sets permissions, set-id bits and the sticky bit.
    fn set_mode(&self, mode: Mode) -> Result<(), Errno>;
    /// Sets times.
    fn set_times(&self, times: &Timestamps) -> Result<(), Errno>;
    /// The names of its attributes, each with a zero byte behind it; how many bytes they take.
    fn list_xattrs(&self, to: &mut [u8]) -> Result<usize, Errno>;
    /// The value of an attribute; how many bytes it takes.
    fn xattr(&self, name: &[u8], to: &mut [u8]) -> Result<usize, Errno>;
    /// Sets an attribute.
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno>;
    /// Takes an attribute away.
    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno>;
}

/// A file or directory that is open.
impl Handle for OwnedFd {
    fn has_mode(&self) -> bool {
        true
    }

    fn set_owner(&self, uid: Option<Uid>, gid: Gid) -> Result<(), Errno> {
        fchown(self, uid, Some(gid))
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        fchmod(self, mode)
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        futimens(self, times)
    }

    fn list_xattrs(&self, to: &mut [u8]) -> Result<usize, Errno> {
        flistxattr(self, to)
    }

    fn xattr(&self, name: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
        fgetxattr(self, name, to)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        fsetxattr(self, name, value, XattrFlags::empty())
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        fremovexattr(self, name)
    }
}

/// A symbolic link or special file, held by a descriptor that does not open it (`O_PATH`): to open
/// a FIFO can wait for ever, to open a device can do anything. What is under its name may change;
/// what is held does not.
#[derive(Debug)]
pub(crate) struct Held {
    descriptor: OwnedFd,
    /// Where the kernel shows the descriptor. Calls that refuse an `O_PATH` descriptor take this
    /// path: the kernel goes from it to what is held, not to a name, and follows no link from
    /// there, even if it is a link that is held.
    path: String,
    stat: Stat,
}

impl Held {
    /// Holds what is under a name in an open directory, the link itself if it is one.
    ///
    /// # Errors
    /// `NOENT` if nothing is there; others of the system calls.
    pub(crate) fn open(directory: &OwnedFd, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(directory, name, flags, Mode::empty())?;
        let stat = fstat(&descriptor)?;
        let path = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        Ok(Self { descriptor, path, stat })
    }

    /// What it was like when it was opened.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Whether it is a link to the same target, or a special file of the same sort and number, as
    /// the source has.
    pub(crate) fn is(&self, kind: &Kind) -> Result<bool, Errno> {
        Ok(match kind {
            Kind::Symlink { target } => {
                self.file_type() == FileType::Symlink
                    && readlinkat(&self.descriptor, "", Vec::new())?.as_bytes() == *target
            }
            Kind::Special { file_type, device } => {
                let is_device =
                    matches!(self.file_type(), FileType::BlockDevice | FileType::CharacterDevice);
                self.file_type().as_raw_mode() == *file_type
                    && (!is_device || self.stat.st_rdev == *device)
            }
            Kind::File { .. } | Kind::Directory | Kind::HardLink { .. } => false,
        })
    }

    /// Whether this can be what we made under a name a moment ago: it has no other name, and a
    /// special file that root made is root's. Anything else was put there in its place.
    ///
    /// A link may have another owner, as on a mount that shows one user for all: it has no mode,
    /// so its owner says little.
    pub(crate) fn is_as_made(&self) -> bool {
        let is_root = rustix::process::geteuid().is_root();
        let is_ours = !is_root || self.stat.st_uid == 0 || !self.has_mode();
        self.stat.st_nlink <= 1 && is_ours
    }

    fn file_type(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Handle for Held {
    fn has_mode(&self) -> bool {
        self.file_type() != FileType::Symlink
    }

    fn set_owner(&self, uid: Option<Uid>, gid: Gid) -> Result<(), Errno> {
        chownat(&self.descriptor, "", uid, Some(gid), AtFlags::EMPTY_PATH)
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        chmod(self.path.as_str(), mode)
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        utimensat(CWD, self.path.as_str(), times, AtFlags::empty())
    }

    fn list_xattrs(&self, to: &mut [u8]) -> Result<usize, Errno> {
        listxattr(self.path.as_str(), to)
    }

    fn xattr(&self, name: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
        getxattr(self.path.as_str(), name, to)
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        setxattr(self.path.as_str(), name, value, XattrFlags::empty())
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        removexattr(self.path.as_str(), name)
    }
}

#[cfg(test)]
mod tests;
