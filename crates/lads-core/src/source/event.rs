//! What the owner tells a source's session, and what the session tells its owner to do.

use crate::entry::{Entry, Timestamp};
use crate::frame::Row;
use crate::issue::Failure;
use crate::layout::Layout;
use crate::message::{Message, Presence, Question, Verb};
use crate::pass::Pass;
use crate::range::RangeSet;
use crate::schedule::Work;
use crate::units::{EntryId, Instant, OstId, StreamId};
use std::time::Duration;

/// One entry that the walk met.
#[derive(Clone, Debug)]
pub struct Found {
    /// The entry.
    pub entry: Entry,
    /// Where it lies; used only for files.
    pub layout: Layout,
    /// Where further copies of a file lie. Any copy can be read.
    pub mirrors: Vec<Layout>,
    /// The ranges that have data, if the file has holes; rounded by [`crate::plan::align_data`].
    pub data: Option<RangeSet>,
    /// Where on its disk a file begins, in bytes, if the disk rotates. The file is read before
    /// files that begin further on.
    pub disk_offset: Option<u64>,
    /// The file's number and this name; set only for a file with several names.
    pub link: Option<LinkName>,
    /// The entry that this one replaces, because that one changed while it moved.
    pub replaces: Option<EntryId>,
    /// The time from which on any change of the file shows in its status, if that is not now
    /// ([`crate::racy`]). The file is not read before.
    pub settled_at: Option<Instant>,
    /// The time from which on any change of the file leaves another modification time at every
    /// sink, if that is not now ([`crate::racy::same_at_sink_for`]). The file is not read before,
    /// or so much earlier as the unit of the sink is shorter than the longest one.
    pub settled_at_sink: Option<Instant>,
}

impl Found {
    /// An entry that is met for the first time and whose layout does not matter: not a file, or a
    /// file of which nothing more is known yet.
    #[must_use]
    pub fn new(entry: Entry) -> Self {
        let (layout, mirrors) = (Layout::on(OstId(0)), Vec::new());
        Self {
            entry,
            layout,
            mirrors,
            data: None,
            disk_offset: None,
            link: None,
            replaces: None,
            settled_at: None,
            settled_at_sink: None,
        }
    }
}

/// One of several names of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkName {
    /// The number of the file system.
    pub device: u64,
    /// The number of the file in its file system.
    pub inode: u64,
    /// How many names the file has, inside or outside the tree.
    pub name_count: u64,
    /// This name, as a path below the root.
    pub path: Vec<u8>,
}

/// The result of reading one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The block is in a buffer, and will be sent.
    Good,
    /// The block could not be read.
    Failed(Failure),
    /// The file is not the one that was announced, or has changed.
    Changed,
    /// The file was unsized, and ended before this block.
    BeyondEnd,
}

/// What the owner tells the session.
#[expect(clippy::large_enum_variant, reason = "messages are few, and are taken in at once")]
#[derive(Clone, Debug)]
pub enum Event {
    /// The walk met an entry.
    Found(Box<Found>),
    /// The walk has met everything in a directory, except directories; this many directories
    /// follow.
    Listed {
        /// The directory.
        directory: EntryId,
        /// How many directories in it will still be found.
        subdirectory_count: u64,
    },
    /// The walk could not list a directory.
    NotListed {
        /// The directory.
        directory: EntryId,
        /// What went wrong.
        failure: Failure,
    },
    /// The walk could not look at an entry.
    Unreadable {
        /// Its number.
        entry: EntryId,
        /// The directory that it lies in.
        parent: EntryId,
        /// Whether [`Event::Listed`] counted it.
        is_counted: bool,
        /// What went wrong.
        failure: Failure,
    },
    /// The walk passes over an entry that is not a directory.
    Passed {
        /// Its number.
        entry: EntryId,
        /// The directory that it lies in.
        parent: EntryId,
        /// Why.
        pass: Pass,
    },
    /// A file that changed is gone, and cannot be tried again.
    Gone {
        /// The entry that changed.
        entry: EntryId,
        /// What went wrong.
        failure: Failure,
    },
    /// The walk has ended.
    WalkEnded,
    /// The sink sent a message.
    Message(Message),
    /// Blocks were read, or could not be read.
    Read {
        /// What [`Task::Read`] asked for.
        work: Work,
        /// How long the reading took.
        service: Duration,
        /// One result for each block.
        outcomes: Vec<ReadOutcome>,
    },
    /// An unsized file has come to its end. Told before the result of the read that met the end.
    EndMet {
        /// The file.
        entry: EntryId,
        /// How long it is, in bytes.
        size: u64,
        /// When its data last changed.
        mtime: Timestamp,
    },
    /// Blocks are in their slot of the stage.
    Staged {
        /// The work that was read for it, with only the blocks that are in the slot.
        work: Work,
        /// The row of each block, made when it was read.
        rows: Vec<Row>,
    },
    /// Blocks that were read could not be staged: the stage failed, or its disk is full.
    NotStaged {
        /// The work that was read for it, with only the blocks that would be in the slot.
        work: Work,
    },
    /// Blocks could not be read back from the stage, or differ from what was staged.
    NotDrained {
        /// What [`Task::Read`] asked for.
        work: Work,
    },
    /// A frame was sent, or a part of it before its stream was lost. In both cases the sink may
    /// have seen the head of the frame, and counted its grant as used: when the stream has ended,
    /// the sink says how many frames arrived.
    Sent {
        /// The stream that it was sent on.
        stream: StreamId,
        /// The number of frames sent before it on this stream.
        number: u64,
        /// The work that was read for it, with only the blocks that are in the frame.
        work: Work,
    },
    /// Nothing of a frame was sent, because all streams are lost.
    NotSent {
        /// The work that was read for it, with only the blocks that would have been in the frame.
        work: Work,
    },
    /// A thread has checked whether a file is still what was announced.
    Checked {
        /// The file.
        entry: EntryId,
        /// [`ReadOutcome::Good`] if the file is unchanged.
        outcome: ReadOutcome,
    },
    /// A thread has done [`Task::Remove`].
    Removed {
        /// The entry.
        entry: EntryId,
        /// The reason why it was not removed, if it was not.
        failure: Option<Failure>,
    },
    /// A thread has done [`Task::LookUp`].
    LookedUp {
        /// The sink's question.
        question: Question,
        /// What the source has under each name of the question.
        answers: Vec<Presence>,
    },
    /// Stop in a state from which the same command can go on; the text says why.
    Stop(String),
}

/// What an I/O thread is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read these blocks, and send them or put them into the stage, as [`Work::way`] says.
    Read(Work),
    /// Check whether a file is still what was announced.
    Check(EntryId),
    /// Look at a file again, and announce it as another entry.
    Examine(EntryId),
    /// Remove an entry that the sink has, if it is still what was announced.
    Remove(EntryId),
    /// Look up which of these names exist, and whether they are moved.
    LookUp(Question),
}

/// How one entry ended, for the owner to pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The entry. Nothing more will be said of it.
    pub entry: EntryId,
    /// How it ended.
    pub outcome: Outcome,
}

/// How an entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, or would be done in a dry run: what was done, and how many bytes of data.
    Done(Verb, u64),
    /// It failed. It is listed, and the transfer goes on.
    Failed(Failure),
    /// A directory that existed already, or that was passed over.
    There,
    /// It was passed over.
    Passed,
    /// It changed, and another entry takes its place.
    Replaced,
}
