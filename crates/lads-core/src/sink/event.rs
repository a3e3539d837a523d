//! What the owner of a sink's session tells it, and what it is told to do.

use crate::entry::{Entry, Timestamp};
use crate::frame::Row;
use crate::growth::Extent;
use crate::issue::Failure;
use crate::journal::BlockRecord;
use crate::layout::Layout;
use crate::message::{Answer, Message};
use crate::placement::Candidate;
use crate::staging::Slot;
use crate::units::{EntryId, OstId};
use std::time::Duration;

/// Which buffer of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub u32);

/// Where the bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a buffer of the arena.
    Buffer(BufferId),
    /// In the stage; a buffer is kept for it when it is to be written.
    Stage(Slot),
}

/// A frame that waits to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where its bytes are.
    pub place: Place,
    /// The OST that they go to.
    pub ost: OstId,
    /// The OST for which room for them was granted.
    pub room: OstId,
    /// What is added to their file before they are written, so that they go there.
    pub extents: Vec<Extent>,
    /// Blocks, and where in the buffer each begins.
    pub rows: Vec<(Row, u32)>,
    /// Whether the blocks are to be compared with the file that is there, not written: only their
    /// checksums have come, and the buffer is for reading the file.
    pub is_comparison: bool,
}

impl Write {
    /// The number of bytes to be written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.rows.iter().map(|(row, _)| u64::from(row.block.length)).sum()
    }

    /// Reports whether its bytes may wait in the stage.
    #[must_use]
    pub fn is_stageable(&self) -> bool {
        self.is_in_memory() && !self.is_comparison
    }

    /// Reports whether its bytes are in memory, not in the stage.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Buffer(_))
    }
}

/// A file whose new blocks are to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFile {
    /// The file.
    pub entry: EntryId,
    /// Blocks written since the last time.
    pub blocks: Vec<BlockRecord>,
}

/// A file that is to get its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The file.
    pub entry: EntryId,
    /// What to read it back against, if it is to be read back.
    pub verify: Option<Vec<BlockRecord>>,
    /// If it was unsized: its length in bytes, and when its data last changed.
    pub end: Option<(u64, Timestamp)>,
}

/// A file that is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The file.
    pub entry: EntryId,
    /// Whether what the journal has of it is kept for another attempt.
    pub is_kept: bool,
    /// What went wrong here; `None` if the source gave it up.
    pub failure: Option<Failure>,
}

/// What an I/O thread of the sink is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// See what is there under these names; make directories and links.
    Examine(Vec<Entry>),
    /// Write a frame, or compare its blocks with what is there.
    Write(Write),
    /// Put a frame into this place in the stage, and free its buffer.
    Stage(Write, Slot),
    /// Free the buffers of these frames, of which nothing is wanted any more.
    Release(Vec<Write>),
    /// Make the data of these files durable, then append records of their blocks, durable too.
    Sync(Vec<SyncFile>),
    /// Give these files metadata and their names, durable.
    Commit(Vec<Commit>),
    /// Set the metadata of these directories, in which everything has ended.
    Close(Vec<EntryId>),
    /// Drop what there is of these files.
    Discard(Vec<Discard>),
    /// Everything has ended: remove what the source does not have, if that is permitted, by asking
    /// ([`Sink::ask`](super::Sink::ask)), until it is done or
    /// [`Sink::permission`](super::Sink::permission) is no longer granted.
    Remove {
        /// Whether nothing failed, or failures do not matter.
        is_permitted: bool,
    },
    /// Everything has ended: make the root durable, remove the journal.
    Finish {
        /// Whether nothing failed at the source: then what is left of an earlier attempt is of no
        /// use any more. Otherwise another attempt may want it.
        is_complete: bool,
    },
}

/// What was found under the name of an entry, and what was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Examined {
    /// The file is to be sent.
    Want {
        /// What an earlier attempt left, from the journal.
        done: Vec<BlockRecord>,
        /// Where it will lie.
        layout: Layout,
        /// If it can grow: the extents that it has.
        extents: Vec<Extent>,
    },
    /// There is a file of the same size: it is to be compared.
    Compare {
        /// Where it lies.
        layout: Layout,
    },
    /// Anything else, as the source is told.
    Answer(Answer),
}

/// How the commit of a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It has its name, durable.
    Complete,
    /// It could not get its name.
    Failed(Failure),
    /// Read back, these blocks are not what was written.
    Bad(Vec<BlockRecord>),
    /// It was compared, and is the same.
    Same,
    /// It was compared, and differs.
    Different,
}

/// The result of comparing a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// The same bytes are at the sink.
    Same,
    /// Other bytes are at the sink.
    Different,
    /// They could not be read.
    Failed(Failure),
}

/// What the owner tells the session.
#[expect(clippy::large_enum_variant, reason = "messages are few, and are taken in at once")]
#[derive(Clone, Debug)]
pub enum Event {
    /// The source said something.
    Message(Message),
    /// What is known of the OSTs now, in the order of their numbers.
    /// [`Candidate::queued_bytes`] and [`Candidate::slowness`] are the session's own to know.
    Osts(Vec<Candidate>),
    /// A round trip to the source, on the network alone, takes this long.
    RoundTrip(Duration),
    /// [`Task::Examine`] is done.
    Examined(Vec<(EntryId, Examined)>),
    /// [`Task::Write`] is done.
    Written {
        /// What was asked for.
        write: Write,
        /// How long it took.
        service: Duration,
        /// For each block, what went wrong.
        failures: Vec<Option<Failure>>,
    },
    /// [`Task::Write`] is done, of a frame of which [`Write::is_comparison`] is true.
    Compared {
        /// What was asked for.
        write: Write,
        /// How long it took.
        service: Duration,
        /// For each block, how it turned out.
        results: Vec<Compared>,
    },
    /// [`Task::Stage`] is done: the frame, with its place.
    Staged(Write),
    /// A frame could not be put into the stage; it is in its buffer as before.
    NotStaged {
        /// What was asked for.
        write: Write,
        /// Where it was to go.
        slot: Slot,
    },
    /// A frame could not be read back from the stage, or is not what was put there.
    NotDrained {
        /// What was asked for.
        write: Write,
        /// How long that took.
        service: Duration,
    },
    /// [`Task::Release`] is done.
    Released(Vec<Write>),
    /// [`Task::Sync`] is done: for each file, what went wrong.
    Synced(Vec<(SyncFile, Option<Failure>)>),
    /// [`Task::Commit`] is done.
    Committed(Vec<(EntryId, Committed)>),
    /// [`Task::Close`] is done: for each directory, what went wrong.
    Closed(Vec<(EntryId, Option<Failure>)>),
    /// [`Task::Discard`] is done.
    Discarded(Vec<EntryId>),
    /// [`Task::Remove`] is done.
    RemovalOver,
    /// [`Task::Finish`] is done.
    Finished,
    /// A data stream ended after this many whole frames.
    StreamEnded {
        /// The stream.
        stream: u16,
        /// Whole frames that arrived.
        frames: u64,
    },
    /// Stop in a state that can be resumed.
    Stop,
}
