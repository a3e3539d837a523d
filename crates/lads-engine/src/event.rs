//! What a transfer reports while it runs, and how it ended.

use lads_core::bottleneck::Bottleneck;
use lads_core::issue::{Issue, Side};
use lads_core::message::{Counters, Line, OstBytes};
use lads_core::protection::Protection;
use lads_core::reduction::Reduction;
use std::time::Duration;

/// Something that happened, for the user or a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// How far the transfer has come; about ten times a second.
    Progress(Box<Progress>),
    /// What each OST of an end has done so far; about once a second for each end.
    OstBytes(Side, OstBytes),
    /// The target is a new name for the only source, a file, and no directory. Reported before the
    /// first line or issue of the sink.
    Renamed,
    /// What is done with a path (dry runs and `-v`).
    Line(Line),
    /// One entry failed; the transfer goes on.
    Issue(Issue),
    /// Something that the user should know, for example that direct I/O is not possible here.
    Notice(String),
    /// The other end has not answered yet; about once a second.
    Waiting(Waiting),
    /// An outage has ended an attempt, and another one follows. What was told of progress, entries
    /// and differences starts over with it.
    Retry(Retry),
}

/// Another attempt after an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The number of the attempt that follows; the first attempt of all is 1.
    pub attempt: u32,
    /// Why the attempt before has ended, for the user.
    pub message: String,
    /// How long it is until the attempt begins.
    pub wait: Duration,
}

/// A wait for the other end before the transfer begins, if it is long enough to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// What the wait is for, in words.
    pub what: String,
    /// How long the wait has lasted.
    pub elapsed: Duration,
    /// How long the wait may last.
    pub limit: Duration,
}

/// How far a transfer has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The time since the transfer began.
    pub elapsed: Duration,
    /// The counters of the source.
    pub source: Counters,
    /// The counters of the sink.
    pub sink: Counters,
    /// What limits the transfer now, if one part clearly does; in a [`Report`], what limited the
    /// whole transfer.
    pub bottleneck: Option<Bottleneck>,
    /// The path, below the root, of a file that this end reads or writes now.
    pub current: Option<Vec<u8>>,
}

impl Progress {
    /// Returns the kinds of metadata that entries do not get, each with the number of entries.
    pub fn reductions(&self) -> impl Iterator<Item = (Reduction, u64)> {
        self.source.reduced.of_both(self.sink.reduced)
    }

    /// Returns whether entries do not get metadata that they should have.
    pub(crate) fn has_lost_metadata(&self) -> bool {
        self.reductions().any(|(kind, _)| kind.is_loss())
    }
}

/// Receives what happens. Called on the thread that called [`crate::run`].
pub trait Observer {
    /// Something happened.
    fn on(&mut self, happening: Happening);
}

/// How a transfer ended, as the shell sees it. The numbers are part of the command's interface and
/// do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything that was asked for is done: what was moved is durable and verified. In a
    /// comparison, no difference was found.
    Ok = 0,
    /// Any other failure.
    Other = 1,
    /// The command line is wrong, or the version at the other end does not match.
    Usage = 2,
    /// Something at the source is missing or cannot be read; the rest was moved.
    SourceUnreadable = 3,
    /// The other end refused the login.
    Refused = 4,
    /// The other end cannot be reached, or was lost.
    Network = 5,
    /// The sink is full, over quota or read-only, or does not permit the write.
    SinkRefuses = 6,
    /// Data at the sink is not what was sent.
    Mismatch = 7,
    /// A file changed again and again while it was read.
    SourceChanged = 8,
    /// Stopped; the same command resumes the transfer.
    Interrupted = 9,
    /// As many entries were removed as the user allowed, and there are more to remove.
    Limit = 10,
    /// A comparison has found differences.
    Different = 11,
    /// The same transfer is running already.
    Running = 12,
    /// All data is at the sink, durable and verified; some metadata could not be kept there.
    Reduced = 13,
}

/// How a transfer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// As the shell sees it.
    pub exit_code: ExitCode,
    /// Why the transfer could not go on, for the user: what failed, where, and what to do.
    pub message: Option<String>,
    /// How far the transfer came, with the counters of both ends.
    pub progress: Progress,
    /// How many entries failed (each was told as a [`Happening::Issue`]).
    pub issue_count: u64,
    /// What protected data that went to another host over connections of its own; `None` if there
    /// was none.
    pub protection: Option<Protection>,
    /// True if data went through the remote shell because no separate connection could be opened.
    pub is_port_blocked: bool,
    /// The number of attempts, with the first. Everything else is of the last one.
    pub attempt_count: u32,
}
