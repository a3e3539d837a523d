//! The accidents that happen to a command while it runs.

use rustix::process::Signal;
use std::fmt;

/// When an accident happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// When the processes of the round have written this number of bytes.
    Written(u64),
    /// This many milliseconds after the start.
    Millis(u64),
}

/// The processes that an accident affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whom {
    /// The process that the user started.
    Started,
    /// The other end.
    Other,
    /// All, remote shells included.
    All,
}

/// An accident.
#[derive(Clone, Debug)]
pub(super) enum Accident {
    /// The processes are killed at once.
    Kill(Whom),
    /// The processes get a signal that asks them to end.
    Stop(Whom, Signal),
    /// The processes stop for this number of milliseconds.
    Freeze(Whom, u64),
    /// The command, whose output no process reads, gets SIGTERM.
    StopBlocked,
    /// The source changes: the seed for the changes, and their number.
    Change(u64, usize),
    /// The same command runs a second time.
    Twin,
    /// Another command copies into the same target.
    Rival,
    /// An order that makes the storage fail. After this number of milliseconds, calls that hang are
    /// released.
    Order(String, Option<u64>),
    /// The small file system becomes large.
    MoreRoom,
}

impl Accident {
    /// The name under which the report counts accidents of this kind.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Kill(_) => "killed",
            Self::Stop(..) => "stopped by a signal",
            Self::Freeze(..) => "frozen for a while",
            Self::StopBlocked => "stopped while its output is blocked",
            Self::Change(..) => "source changed",
            Self::Twin => "same command at once",
            Self::Rival => "other command at once",
            Self::Order(order, _) => match order.split(' ').next() {
                Some("fail") => "storage error",
                Some("short") => "short reads and writes",
                Some("delay") => "storage delayed",
                Some("state" | "grow") => "storage target failed",
                _ => "storage hung for a while",
            },
            Self::MoreRoom => "more room",
        }
    }

    /// Whether this accident needs storage that fails, or storage that is too small.
    pub(super) fn is_of_storage(&self) -> bool {
        matches!(self, Self::Order(..) | Self::MoreRoom)
    }

    /// The exit codes besides 0 that are allowed for a command with this accident.
    pub(super) fn exit_codes(&self) -> &'static [i32] {
        match self {
            // An end that is killed before it has sent its greeting counts as one that could not be
            // started: exit code 1.
            Self::Kill(_) => &[1, 5],
            Self::Stop(..) | Self::StopBlocked => &[1, 5, 9],
            // Time in which all processes are stopped does not count.
            Self::Freeze(Whom::All, _) => &[],
            Self::Freeze(..) => &[5],
            Self::Change(..) => &[3, 8],
            Self::Twin => &[12],
            // Two rivals at once count as the same command twice.
            Self::Rival => &[12],
            Self::Order(..) => &[3, 5, 6, 7, 8, 13],
            Self::MoreRoom => &[6],
        }
    }
}

impl fmt::Display for Accident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(whom) => write!(f, "kill -9 of {whom:?}"),
            Self::Stop(whom, signal) => write!(f, "{signal:?} to {whom:?}"),
            Self::Freeze(whom, millis) => write!(f, "SIGSTOP of {whom:?} for {millis} ms"),
            Self::StopBlocked => write!(f, "SIGTERM while the output is blocked"),
            Self::Change(seed, count) => write!(f, "{count} changes of the source, seed {seed}"),
            Self::Twin => write!(f, "the same command again"),
            Self::Rival => write!(f, "another command into the same target"),
            Self::Order(order, None) => write!(f, "the storage: {order}"),
            Self::Order(order, Some(millis)) => write!(f, "the storage: {order}, for {millis} ms"),
            Self::MoreRoom => write!(f, "the small file system becomes large"),
        }
    }
}
