//! The contents of the hidden directory `.fault`.

use crate::kernel_words::kind;
use fuser::{FileAttr, INodeNo};
use std::ffi::OsStr;
use std::time::SystemTime;

/// The name of the hidden directory. In the directory below, a directory of this name holds what a
/// power cut brings back.
pub(super) const DIRECTORY: &str = ".fault";

/// A file in the hidden directory, or the directory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Virtual {
    /// The directory itself.
    Directory,
    /// The file that takes commands.
    Control,
    /// The reason why the last command was refused.
    LastError,
    /// The log of the faults done.
    Log,
    /// The number of calls of each kind.
    Counts,
}

impl Virtual {
    const ALL: [Self; 5] =
        [Self::Directory, Self::Control, Self::LastError, Self::Log, Self::Counts];

    fn name(self) -> &'static str {
        match self {
            Self::Directory => DIRECTORY,
            Self::Control => "control",
            Self::LastError => "last-error",
            Self::Log => "log",
            Self::Counts => "counts",
        }
    }

    /// Returns its inode number, which is above all numbers that file systems use.
    pub(super) fn number(self) -> INodeNo {
        INodeNo(u64::MAX - 1 - self as u64)
    }

    pub(super) fn of_number(number: INodeNo) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.number() == number)
    }

    /// Returns the entry of this name in this directory, if it is a hidden one.
    pub(super) fn of_name(parent: INodeNo, name: &OsStr) -> Option<Self> {
        if parent == INodeNo::ROOT {
            return (name == DIRECTORY).then_some(Self::Directory);
        }
        let is_ours = parent == Self::Directory.number();
        Self::ALL[1..].iter().copied().find(|one| is_ours && name == one.name())
    }

    /// Returns its attributes for the kernel.
    pub(super) fn attributes(self) -> FileAttr {
        let is_directory = self == Self::Directory;
        let file_type = match self {
            Self::Directory => rustix::fs::FileType::Directory,
            _ => rustix::fs::FileType::RegularFile,
        };
        FileAttr {
            ino: self.number(),
            size: 0,
            blocks: 0,
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: kind(file_type),
            perm: if is_directory { 0o755 } else { 0o666 },
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}
