//! What went wrong with one entry: side, operation, place and reason.
//!
//! A failed file is data, not an error of the transfer: it is listed, and the rest goes on.

use crate::units::OstId;

/// One of the two ends of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that reads.
    Source,
    /// The end that writes.
    Sink,
}

impl Side {
    /// The word for it in messages, `source` or `sink`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
        }
    }

    /// The end that it is not.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Source => Self::Sink,
            Self::Sink => Self::Source,
        }
    }
}

/// What was being done when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Looking at an entry, or at what the sink has under its name.
    Examine = 0,
    /// Listing a directory.
    List = 1,
    /// Opening a file for reading.
    Open = 2,
    /// Reading a block.
    Read = 3,
    /// Creating a file, directory or link.
    Create = 4,
    /// Writing a block.
    Write = 5,
    /// Making data or a name durable.
    Sync = 6,
    /// Setting mode, owner, times or attributes.
    SetMetadata = 7,
    /// Giving a finished file its real name.
    Rename = 8,
    /// Reading a finished file back from storage.
    Verify = 9,
    /// Writing the journal.
    Journal = 10,
    /// Reserving space for a file.
    Preallocate = 11,
    /// Removing an entry: at the sink if the source does not have it, at the source if the sink has
    /// it (`--remove-source-files`).
    Remove = 12,
    /// Creating a further name of a file.
    Link = 13,
}

impl Operation {
    /// All of them, in the order of their wire numbers.
    pub const ALL: [Self; 14] = [
        Self::Examine,
        Self::List,
        Self::Open,
        Self::Read,
        Self::Create,
        Self::Write,
        Self::Sync,
        Self::SetMetadata,
        Self::Rename,
        Self::Verify,
        Self::Journal,
        Self::Preallocate,
        Self::Remove,
        Self::Link,
    ];

    /// The verb for a message that begins with `cannot`.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Self::Examine => "examine",
            Self::List => "list",
            Self::Open => "open",
            Self::Read => "read",
            Self::Create => "create",
            Self::Write => "write",
            Self::Sync => "make durable",
            Self::SetMetadata => "set the metadata of",
            Self::Rename => "rename into place",
            Self::Verify => "verify",
            Self::Journal => "write the journal for",
            Self::Preallocate => "reserve space for",
            Self::Remove => "remove",
            Self::Link => "create the hard link",
        }
    }
}

/// Why something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The operating system said so; the number is Linux's `errno`.
    Os(i32),
    /// The source file changed while it moved, each time it was tried.
    Changed,
    /// The source file was there when its directory was listed, and is gone.
    Vanished,
    /// A block did not match its checksum, however often it was sent.
    Checksum,
    /// What was read back from storage is not what was written.
    Media,
    /// A device, FIFO or socket, which are only moved when asked for.
    Special,
    /// Something else that must not be replaced is under that name at the sink.
    InTheWay,
    /// The directory that it lies in could not be made.
    ParentFailed,
    /// The name is not one that the sink may create: it leads elsewhere, or is one of our own.
    UnsafeName,
    /// Its data is in an archive, and reading it would bring it back.
    Archived,
    /// It has more attributes than can be moved.
    LargeMetadata,
    /// It lies deeper than LADS goes: a directory more than [`DEPTH_MAX`](crate::limits::DEPTH_MAX)
    /// levels below the root, or a further name of a file whose first name has a longer path than
    /// can be told.
    TooDeep,
    /// As much was done as the user allowed (`--max-delete`).
    Limit,
    /// More names are in a directory than can be compared.
    ManyNames,
    /// It is a symbolic link to nothing, and the user asked to copy what links lead to.
    Dangling,
    /// It is a directory that lies in itself, through a symbolic link.
    Loop,
    /// The file of the source and that of the sink are one file, which must not be removed.
    SameFile,
}

/// What went wrong with one entry, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The end where it happened.
    pub side: Side,
    /// What was being done.
    pub operation: Operation,
    /// Why it failed.
    pub reason: Reason,
    /// The block concerned, as offset and length in bytes.
    pub block: Option<(u64, u32)>,
    /// The OST concerned.
    pub ost: Option<OstId>,
}

impl Failure {
    /// A failure that concerns the whole entry.
    #[must_use]
    pub fn new(side: Side, operation: Operation, reason: Reason) -> Self {
        Self { side, operation, reason, block: None, ost: None }
    }

    /// The same failure, of this block on this OST.
    #[must_use]
    pub fn of_block(mut self, offset: u64, length: u32, ost: OstId) -> Self {
        self.block = Some((offset, length));
        self.ost = Some(ost);
        self
    }

    /// Reports whether a block could not be written because an OST of the sink takes no further
    /// data or objects: it has no space left (`ENOSPC`), its administrator has closed it
    /// (`ENOBUFS`), or it is down (`EREMOTEIO`). On another OST there may be a place.
    #[must_use]
    pub fn is_of_one_ost(&self) -> bool {
        const ENOSPC: i32 = 28;
        const ENOBUFS: i32 = 105;
        const EREMOTEIO: i32 = 121;
        self.side == Side::Sink
            && self.operation == Operation::Write
            && matches!(self.reason, Reason::Os(ENOSPC | ENOBUFS | EREMOTEIO))
    }

    /// Reports whether the sink has no space left (`ENOSPC`) or no quota left (`EDQUOT`) for data
    /// or entries: every further file would fail, too, so the transfer stops in a state that can be
    /// resumed. The space for the attributes of one entry may be limited where the rest is empty.
    #[must_use]
    pub fn is_sink_full(&self) -> bool {
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        self.side == Side::Sink
            && self.operation != Operation::SetMetadata
            && matches!(self.reason, Reason::Os(ENOSPC | EDQUOT))
    }
}

/// What went wrong with one entry, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// The path below the source that was named on the command line, with that source's name.
    pub path: Vec<u8>,
    /// What went wrong.
    pub failure: Failure,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_without_space_for_the_attributes_of_one_entry_is_not_full() {
        let is_full = |operation, errno| {
            Failure::new(Side::Sink, operation, Reason::Os(errno)).is_sink_full()
        };
        for errno in [28, 122] {
            assert!(is_full(Operation::Write, errno) && is_full(Operation::Create, errno));
            assert!(!is_full(Operation::SetMetadata, errno));
        }
        assert!(!is_full(Operation::Write, 27));
    }
}
