//! Which entries are passed over although the sink lacks them or has different ones: rsync's
//! `--update`, `--ignore-existing`, `--existing`, `--max-size` and `--min-size`.

use crate::stat::mtime_of;
use lads_core::entry::{Kind, Timestamp};
use lads_core::pass::Pass;
use lads_core::wire_struct;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// Which entries are passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// Files that are newer at the sink (`--update`).
    pub newer: bool,
    /// Entries for which the sink has something of that name (`--ignore-existing`). Directories are
    /// entered all the same.
    pub there: bool,
    /// Entries, including directories, for which the sink has nothing of that name (`--existing`).
    pub missing: bool,
    /// Files with fewer bytes than this.
    pub size_min: Option<u64>,
    /// Files with more bytes than this.
    pub size_max: Option<u64>,
}

wire_struct!(Passing { newer, there, missing, size_min, size_max });

impl Passing {
    /// Whether a file of this many bytes is passed over at the source.
    pub(crate) fn is_size_passed(&self, bytes: u64) -> bool {
        self.size_min.is_some_and(|min| bytes < min) || self.size_max.is_some_and(|max| bytes > max)
    }

    /// Whether the sink may pass anything over.
    pub(crate) fn looks_at_sink(&self) -> bool {
        self.newer || self.there || self.missing
    }

    /// Why an entry that is not a directory is passed over at the sink, where `there` has its name.
    /// As in rsync, only a file can be newer, and only than a file. `expected` returns the time
    /// that the sink's file has if it has this time of the source.
    pub(crate) fn at_sink(
        &self,
        kind: &Kind,
        there: Option<&Stat>,
        expected: impl FnOnce(&Stat, Timestamp) -> Timestamp,
    ) -> Option<Pass> {
        let Some(there) = there else { return self.missing.then_some(Pass::Missing) };
        if self.there {
            return Some(Pass::There);
        }
        let Kind::File { identity, .. } = kind else { return None };
        let is_file = FileType::from_raw_mode(there.st_mode) == FileType::RegularFile;
        let is_newer = || {
            mtime_of(there) > identity.mtime && mtime_of(there) > expected(there, identity.mtime)
        };
        (self.newer && is_file && is_newer()).then_some(Pass::Newer)
    }

    /// Why a directory that cannot be opened at the sink is passed over, with what is in it.
    pub(crate) fn of_directory(&self, errno: Errno) -> Option<Pass> {
        match errno {
            Errno::NOENT => self.missing.then_some(Pass::Missing),
            Errno::NOTDIR | Errno::LOOP => self.there.then_some(Pass::There),
            _ => None,
        }
    }
}
