//! What a transfer tells while it runs, and how it ended.

use lads_core::issue::{Issue, Side};
use lads_core::message::{Counters, Line, OstBytes};
use std::time::Duration;

/// Something that happened, for a person or a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// How far it has come; about ten times a second.
    Progress(Box<Progress>),
    /// What each OST of an end has done so far; about once a second for each end.
    OstBytes(Side, OstBytes),
    /// What is done with a path (dry runs and `-v`).
    Line(Line),
    /// One entry failed; the rest goes on.
    Issue(Issue),
    /// Something to know, such as that direct I/O is not possible here.
    Notice(String),
    /// The other end has not answered yet; about once a second.
    Waiting(Waiting),
}

/// A wait for the other end, before the transfer begins, that is long enough to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What for, in words.
    pub what: String,
    /// How long so far.
    pub elapsed: Duration,
    /// How long at most.
    pub limit: Duration,
}

/// Which part of the path holds the others up, by what its threads spent their time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Reading at the source.
    SourceStorage,
    /// The way between the ends.
    Network,
    /// Writing at the sink.
    SinkStorage,
    /// The limit that the person set.
    Limit,
}

/// How far a transfer has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Since the transfer began.
    pub elapsed: Duration,
    /// The source's count.
    pub source: Counters,
    /// The sink's count.
    pub sink: Counters,
    /// What holds the others up now, if anything does clearly; in a [`Report`], what did in all.
    pub bottleneck: Option<Bottleneck>,
    /// The path below the root of a file that is read or written now, at the end that was called.
    pub current: Option<Vec<u8>>,
}

/// Takes in what happens. Called on the thread that called [`crate::run`].
pub trait Observer {
    /// Something happened.
    fn on(&mut self, happening: Happening);
}

/// How a transfer ended, as the shell sees it. Numbers are part of the command's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// All that was asked for is done: what was moved is durable and verified. In a comparison: no
    /// difference was found.
    Ok = 0,
    /// Anything else.
    Other = 1,
    /// The command line, or the version at the other end.
    Usage = 2,
    /// Something at the source is missing or cannot be read; the rest was moved.
    SourceUnreadable = 3,
    /// The other end did not let us in.
    Refused = 4,
    /// The other end cannot be reached, or was lost.
    Network = 5,
    /// The sink is full, over quota, read-only, or does not permit it.
    SinkRefuses = 6,
    /// Data at the sink is not what was sent.
    Mismatch = 7,
    /// Something kept changing while it was read.
    SourceChanged = 8,
    /// Stopped; the same command goes on from here.
    Interrupted = 9,
    /// As much was removed as the person allowed, and there is more.
    Limit = 10,
    /// A comparison has found differences.
    Different = 11,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// As the shell sees it.
    pub exit_code: ExitCode,
    /// Why it could not go on to the end, for a person: what failed, where, what to do.
    pub message: Option<String>,
    /// How far it came, both ends, over all.
    pub progress: Progress,
    /// How many entries failed (each was told as a [`Happening::Issue`]).
    pub issue_count: u64,
    /// Whether data went over connections that are not encrypted.
    pub is_clear: bool,
}
