//! What the owner of a source's session tells it, and what it is told to do.

use crate::entry::Entry;
use crate::frame::Row;
use crate::issue::Failure;
use crate::layout::Layout;
use crate::message::{Message, Presence, Question, Verb};
use crate::pass::Pass;
use crate::range::RangeSet;
use crate::schedule::Work;
use crate::units::{EntryId, OstId, StreamId};
use std::time::Duration;

/// One thing that the walk met.
#[derive(Clone, Debug)]
pub struct Found {
    /// What it is.
    pub entry: Entry,
    /// Where it lies; only looked at for files.
    pub layout: Layout,
    /// Where further copies of it lie, any of which can be read.
    pub mirrors: Vec<Layout>,
    /// Where it has data, if it has holes; rounded by [`crate::plan::align_data`].
    pub data: Option<RangeSet>,
    /// Where on its disk a file begins, in bytes, if that is a disk that turns: it is read before
    /// files that are further on.
    pub disk_offset: Option<u64>,
    /// Set for a file with several names.
    pub link: Option<LinkName>,
    /// The entry that this one takes the place of, after that one changed while it moved.
    pub replaces: Option<EntryId>,
}

impl Found {
    /// An entry that is met for the first time, and whose layout does not matter: no file, or one
    /// of which no more is known yet.
    #[must_use]
    pub fn new(entry: Entry) -> Self {
        let (layout, mirrors) = (Layout::on(OstId(0)), Vec::new());
        let (data, disk_offset, link, replaces) = (None, None, None, None);
        Self { entry, layout, mirrors, data, disk_offset, link, replaces }
    }
}

/// One of several names of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkName {
    /// Number of the file system.
    pub device: u64,
    /// Number of the file in it.
    pub inode: u64,
    /// How many names it has, here or elsewhere.
    pub name_count: u64,
    /// This name, as path below the root.
    pub path: Vec<u8>,
}

/// What became of reading one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// It is in a buffer, and will be sent.
    Good,
    /// It could not be read.
    Failed(Failure),
    /// The file is not what was announced.
    Changed,
}

/// What the owner tells the session.
#[derive(Clone, Debug)]
pub enum Event {
    /// The walk met something.
    Found(Box<Found>),
    /// The walk has met all that is in a directory; this many directories in it follow.
    Listed {
        /// The directory.
        directory: EntryId,
        /// How many directories in it will still be found.
        subdirectory_count: u64,
    },
    /// The walk could not list a directory that it met.
    NotListed {
        /// The directory.
        directory: EntryId,
        /// What went wrong.
        failure: Failure,
    },
    /// The walk could not look at something.
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
    /// The walk passes something over that is no directory.
    Passed {
        /// Its number.
        entry: EntryId,
        /// The directory that it lies in.
        parent: EntryId,
        /// Why.
        pass: Pass,
    },
    /// A file that had changed cannot be tried again.
    Gone {
        /// The entry that changed.
        entry: EntryId,
        /// What went wrong.
        failure: Failure,
    },
    /// The walk is at its end.
    WalkEnded,
    /// The sink said something.
    Message(Message),
    /// Blocks were read, or not.
    Read {
        /// What [`Task::Read`] asked for.
        work: Work,
        /// How long the reading took.
        service: Duration,
        /// One for each block.
        outcomes: Vec<ReadOutcome>,
    },
    /// Blocks are in their place in the stage.
    Staged {
        /// What was read for it; only the blocks that are there.
        work: Work,
        /// What was found out of each when it was read.
        rows: Vec<Row>,
    },
    /// Blocks that were read could not be put into the stage: it failed, or its disk is full.
    NotStaged {
        /// What was read for it; only the blocks that would be there.
        work: Work,
    },
    /// Blocks could not be brought back from the stage, or are not what was put there.
    NotDrained {
        /// What [`Task::Read`] asked for.
        work: Work,
    },
    /// A frame went out.
    Sent {
        /// On this stream.
        stream: StreamId,
        /// Frames sent before on this stream.
        number: u64,
        /// What was read for it; only the blocks that are in it.
        work: Work,
    },
    /// A frame could not be sent, its stream is lost.
    NotSent {
        /// What was read for it; only the blocks that would have been in it.
        work: Work,
    },
    /// Whether a file is still what was announced.
    Checked {
        /// The file.
        entry: EntryId,
        /// [`ReadOutcome::Good`] if it is.
        outcome: ReadOutcome,
    },
    /// [`Task::LookUp`] is done.
    LookedUp {
        /// What was asked.
        question: Question,
        /// What there is under each of its names.
        answers: Vec<Presence>,
    },
    /// Stop in a state that can be resumed.
    Stop(String),
}

/// What an I/O thread is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Read these blocks, and send them or put them into the stage, as [`Work::way`] says.
    Read(Work),
    /// See whether a file is still what was announced.
    Check(EntryId),
    /// Look at a file anew, and announce it as another entry.
    Examine(EntryId),
    /// See which of these names are there, and are moved.
    LookUp(Question),
}

/// What the owner should pass on, and how each entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The entry; nothing more will be said of it.
    pub entry: EntryId,
    /// What happened.
    pub outcome: Outcome,
}

/// How an entry ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done, or would be done: what, and how many bytes of data.
    Done(Verb, u64),
    /// Failed; listed, and the rest goes on.
    Failed(Failure),
    /// A directory that was there already, or that was passed over.
    There,
    /// Passed over.
    Passed,
    /// Its place is taken by another entry, after it changed.
    Replaced,
}
