//! The handle through which metadata is read and set: an open file or directory, or an entry that
//! is held without opening it.

use lads_core::entry::Kind;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timestamps, Uid, XattrFlags, chmod, chownat,
    fchmod, fchown, fgetxattr, flistxattr, fremovexattr, fsetxattr, fstat, futimens, getxattr,
    listxattr, openat, readlinkat, removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A descriptor through which metadata is read and set.
pub(crate) trait Handle: AsFd {
    /// Whether it has a mode; a symbolic link has none.
    fn has_mode(&self) -> bool;
    /// Sets the owner, unless it is `None`, and the group.
    fn set_owner(&self, uid: Option<Uid>, gid: Gid) -> Result<(), Errno>;
    /// Sets permissions, set-id bits and the sticky bit.
    fn set_mode(&self, mode: Mode) -> Result<(), Errno>;
    /// Sets times.
    fn set_times(&self, times: &Timestamps) -> Result<(), Errno>;
    /// Puts the names of its attributes into `to`, each with a zero byte after it. Returns their
    /// length in bytes.
    fn list_xattrs(&self, to: &mut [u8]) -> Result<usize, Errno>;
    /// Puts the value of an attribute into `to`. Returns its length in bytes.
    fn xattr(&self, name: &[u8], to: &mut [u8]) -> Result<usize, Errno>;
    /// Sets an attribute.
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno>;
    /// Removes an attribute.
    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno>;
}

/// An open file or directory, or a directory that this process may not list (`O_PATH`).
impl Handle for OwnedFd {
    fn has_mode(&self) -> bool {
        true
    }

    fn set_owner(&self, uid: Option<Uid>, gid: Gid) -> Result<(), Errno> {
        or_through_proc(self, fchown(self, uid, Some(gid)), |path| {
            chownat(CWD, path, uid, Some(gid), AtFlags::empty())
        })
    }

    fn set_mode(&self, mode: Mode) -> Result<(), Errno> {
        or_through_proc(self, fchmod(self, mode), |path| chmod(path, mode))
    }

    fn set_times(&self, times: &Timestamps) -> Result<(), Errno> {
        or_through_proc(self, futimens(self, times), |path| {
            utimensat(CWD, path, times, AtFlags::empty())
        })
    }

    fn list_xattrs(&self, to: &mut [u8]) -> Result<usize, Errno> {
        or_through_proc(self, flistxattr(self, &mut *to), |path| listxattr(path, to))
    }

    fn xattr(&self, name: &[u8], to: &mut [u8]) -> Result<usize, Errno> {
        or_through_proc(self, fgetxattr(self, name, &mut *to), |path| getxattr(path, name, to))
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let flags = XattrFlags::empty();
        or_through_proc(self, fsetxattr(self, name, value, flags), |path| {
            setxattr(path, name, value, flags)
        })
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        or_through_proc(self, fremovexattr(self, name), |path| removexattr(path, name))
    }
}

/// Returns the result of a call that takes a descriptor. If the descriptor does not open its entry
/// (`O_PATH`), such calls refuse it, and the call that takes a path gets the one under which the
/// kernel shows the descriptor.
fn or_through_proc<T>(
    file: &OwnedFd,
    result: Result<T, Errno>,
    by_path: impl FnOnce(&str) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match result {
        Err(Errno::BADF) => by_path(&shown_in_proc(file)),
        result => result,
    }
}

/// The path under which the kernel shows a descriptor. It leads to the entry itself, not to a name.
fn shown_in_proc(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// A symbolic link or special file, held by a descriptor that does not open it (`O_PATH`): opening
/// a FIFO can wait forever, and opening a device can do anything. Another entry may get its name;
/// the handle still leads to the same one.
#[derive(Debug)]
pub(crate) struct Held {
    descriptor: OwnedFd,
    /// The path under which the kernel shows the descriptor, for calls that refuse an `O_PATH`
    /// descriptor. The kernel goes from this path to the held entry itself, not to a name, and
    /// follows no link from there, even if the entry is a link.
    path: String,
    stat: Stat,
}

impl Held {
    /// Holds the entry with this name in an open directory; if it is a link, the link itself.
    ///
    /// # Errors
    /// `NOENT` if nothing is there; others of the system calls.
    pub(crate) fn open(directory: &OwnedFd, name: &[u8]) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = openat(directory, name, flags, Mode::empty())?;
        let stat = fstat(&descriptor)?;
        let path = shown_in_proc(&descriptor);
        Ok(Self { descriptor, path, stat })
    }

    /// Opens a regular file that is held.
    ///
    /// # Errors
    /// `NXIO` if it is no regular file; others of the system call.
    pub(crate) fn read(&self) -> Result<OwnedFd, Errno> {
        if self.file_type() != FileType::RegularFile {
            return Err(Errno::NXIO);
        }
        openat(CWD, self.path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Its attributes at the time when it was opened.
    pub(crate) fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Whether it is the same as at the source: a link to the same target, or a special file of the
    /// same sort and number.
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

    /// Whether this can be the entry that this process has just made: it has no other name, and a
    /// special file that root made belongs to root. Anything else was put there in its place.
    ///
    /// A link may have another owner, for example on a mount that shows one user for all files. A
    /// link has no mode, so its owner matters little.
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
