//! The quantities and names that everything else is said in.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

/// Index of a storage target, as its provider numbers it.
///
/// Lustre calls it OST; a provider for another system maps its own targets (an OSD, a disk, a
/// mount) to these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct OstId(pub u32);

impl OstId {
    /// The OST of this row of such a table.
    ///
    /// # Panics
    /// If the table has more rows than there can be OSTs.
    #[must_use]
    pub fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).expect("OST numbers are 32 bits"))
    }

    /// The place of this OST in a table that has one row per OST.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for OstId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OST{:04x}", self.0)
    }
}

/// One thing of the tree that is moved (a file, a directory, a link), as the source numbers it.
///
/// Numbers are never used twice in a transfer. Zero is the directory at the sink into which
/// everything goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryId(pub u64);

impl EntryId {
    /// The directory at the sink into which everything goes.
    pub const ROOT: Self = Self(0);
}

/// A table with a row for some entries. Several are asked for each step of a file, so it has a
/// quicker hash function than other tables, with a seed that a peer cannot know.
pub type EntryMap<T> = HashMap<EntryId, T, foldhash::fast::RandomState>;

/// Some entries.
pub type EntrySet = HashSet<EntryId, foldhash::fast::RandomState>;

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// One data connection between source and sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u16);

impl StreamId {
    /// The place of this stream in a table that has one row per stream.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A piece of one file that lies on one OST at the source and on one OST at the sink: the unit of
/// scheduling, transfer, acknowledgement and resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// The file that it belongs to.
    pub entry: EntryId,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; never zero.
    pub length: u32,
}

impl Block {
    /// The first byte after the block.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.length)
    }
}

/// A moment on the transfer's own clock, counted from the moment the transfer began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Instant {
    nanos: u64,
}

impl Instant {
    /// The moment the transfer began.
    pub const START: Self = Self { nanos: 0 };

    /// The moment this long after the transfer began.
    #[must_use]
    pub fn after_start(elapsed: Duration) -> Self {
        Self { nanos: u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX) }
    }

    /// Returns how long after the transfer began this is.
    #[must_use]
    pub fn since_start(self) -> Duration {
        Duration::from_nanos(self.nanos)
    }

    /// The time that passed since `earlier`, or zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos.saturating_sub(earlier.nanos))
    }
}

impl std::ops::Add<Duration> for Instant {
    type Output = Self;

    fn add(self, wait: Duration) -> Self {
        Self::after_start(self.since_start().saturating_add(wait))
    }
}
