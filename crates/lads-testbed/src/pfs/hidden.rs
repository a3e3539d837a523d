//! The directory `.pfs` at the top of the mount: found by whoever knows it, in no listing.
//!
//! Reading a file there tells what is going on; writing to `control` gives orders. Nothing in it
//! takes time of the emulated file system.

use super::system::System;
use super::tree::ROOT;
use fuser::{FileAttr, FileType, INodeNo};
use std::ffi::OsStr;
use std::time::UNIX_EPOCH;

/// A file in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// Takes orders, one a line.
    Control,
    /// Why the last order was refused.
    LastError,
    /// What storage targets have done: JSON.
    Stats,
    /// What happened since the last reset: a line of JSON each.
    Series,
    /// The table of storage targets.
    Osts,
}

const DIRECTORY_NAME: &str = ".pfs";

/// Numbers from here on are ours: no inode gets so far.
const DIRECTORY: u64 = 1 << 62;

const FILES: [(Hidden, &str); 5] = [
    (Hidden::Control, "control"),
    (Hidden::LastError, "last-error"),
    (Hidden::Stats, "stats"),
    (Hidden::Series, "series"),
    (Hidden::Osts, "osts"),
];

impl Hidden {
    /// The file with this number.
    pub(super) fn of_number(number: u64) -> Option<Self> {
        let index = usize::try_from(number.checked_sub(DIRECTORY + 1)?).ok()?;
        FILES.get(index).map(|(hidden, _)| *hidden)
    }

    /// What is in it now.
    pub(super) fn content(self, system: &System) -> Vec<u8> {
        let text = match self {
            Self::Control => String::new(),
            Self::LastError => system.last_error(),
            Self::Stats => system.stats(),
            Self::Series => system.series(),
            Self::Osts => system.osts(),
        };
        text.into_bytes()
    }
}

/// Whether a number is one of these.
pub(super) fn is_hidden(number: u64) -> bool {
    number >= DIRECTORY
}

/// The number of a name if it is one of these, `Some(None)` if it would be but is not there.
#[expect(clippy::option_option, reason = "not ours, ours and there, ours and not there")]
pub(super) fn find(parent: u64, name: &OsStr) -> Option<Option<u64>> {
    match parent {
        ROOT if name == DIRECTORY_NAME => Some(Some(DIRECTORY)),
        DIRECTORY => {
            let numbered = (DIRECTORY + 1..).zip(FILES);
            Some(numbered.into_iter().find(|(_, it)| name == it.1).map(|(number, _)| number))
        }
        _ => None,
    }
}

/// Attributes of one of these.
pub(super) fn attributes(number: u64) -> FileAttr {
    let (kind, perm) = match Hidden::of_number(number) {
        None => (FileType::Directory, 0o555),
        Some(Hidden::Control) => (FileType::RegularFile, 0o644),
        Some(_) => (FileType::RegularFile, 0o444),
    };
    FileAttr {
        ino: INodeNo(number),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// What a read of some content gets.
pub(super) fn part(content: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
    let end = start.saturating_add(size as usize).min(content.len());
    &content[start..end]
}
