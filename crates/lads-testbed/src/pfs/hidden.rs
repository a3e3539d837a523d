//! The directory `.pfs` at the top of the mount. It can be opened by name, but no listing shows it.
//!
//! Reading a file in it shows the present state; writing to `control` gives orders. No access to it
//! takes time of the emulated file system.

use super::system::System;
use super::tree::ROOT;
use fuser::{FileAttr, FileType, INodeNo};
use std::ffi::OsStr;
use std::time::UNIX_EPOCH;

/// A file in the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// Takes orders, one per line.
    Control,
    /// The reason why the last order was refused.
    LastError,
    /// The activity of the storage targets, as JSON.
    Stats,
    /// The events since the last reset, one JSON object per line.
    Series,
    /// The table of storage targets.
    Osts,
}

const DIRECTORY_NAME: &str = ".pfs";

/// Inode numbers from here on are for hidden files; no real inode reaches them.
const DIRECTORY: u64 = 1 << 62;

const FILES: [(Hidden, &str); 5] = [
    (Hidden::Control, "control"),
    (Hidden::LastError, "last-error"),
    (Hidden::Stats, "stats"),
    (Hidden::Series, "series"),
    (Hidden::Osts, "osts"),
];

impl Hidden {
    /// Returns the hidden file with this number.
    pub(super) fn of_number(number: u64) -> Option<Self> {
        let index = usize::try_from(number.checked_sub(DIRECTORY + 1)?).ok()?;
        FILES.get(index).map(|(hidden, _)| *hidden)
    }

    /// Returns its present contents.
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

/// Returns whether a number is that of a hidden file or of their directory.
pub(super) fn is_hidden(number: u64) -> bool {
    number >= DIRECTORY
}

/// Returns `None` if the name is not a hidden one, `Some(None)` if it would be but there is no such
/// file, and otherwise its number.
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

/// Returns the attributes of a hidden file or of their directory.
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

/// Returns the part of the contents that a read gets.
pub(super) fn part(content: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(content.len());
    let end = start.saturating_add(size as usize).min(content.len());
    &content[start..end]
}
