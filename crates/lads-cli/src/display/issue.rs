//! Describes a failed entry for a person: what failed, where, why, and what to do.

use super::advice::{ENOENT, advice};
use super::again;
use super::errno;
use super::place::Places;
use super::style::{Style, Tone};
use lads_core::entry::PATH_BYTES_MAX;
use lads_core::issue::{Failure, Issue, Operation, Reason, Side};
use lads_core::limits::DEPTH_MAX;
use lads_core::sizes;
use std::borrow::Cow;

/// An issue in words.
#[derive(Debug)]
pub(super) struct Described {
    /// What failed, where, and why.
    pub(super) message: String,
    /// What to do about it.
    pub(super) advice: Cow<'static, str>,
    /// Whether it counts as failed.
    pub(super) is_failure: bool,
}

impl Described {
    /// Returns the message and the advice as two lines for a terminal.
    pub(super) fn lines(&self, style: Style) -> [String; 2] {
        let tone = if self.is_failure { Tone::Bad } else { Tone::Careful };
        [format!("lads: {}", style.paint(tone, &self.message)), format!("      {}", self.advice)]
    }
}

/// Describes the issue in words.
pub(super) fn describe(issue: &Issue, places: &Places) -> Described {
    let failure = &issue.failure;
    let place = places.describe(failure.side, &issue.path);
    let is_failure = failure.reason != Reason::Special;
    let message = if is_failure {
        let verb = failure.operation.verb();
        format!("cannot {verb} {place}{}: {}", block(failure), reason(failure))
    } else {
        format!("skipping {place}: {}", reason(failure))
    };
    let advice = advice(failure, &issue.path, places.host(failure.side));
    let advice = again::fit(advice, places.is_once);
    Described { message, advice, is_failure }
}

/// ` (block at 112 MiB, OST0007)`
fn block(failure: &Failure) -> String {
    let block =
        failure.block.map(|(offset, _)| format!("block at {}", sizes::bytes_exactly(offset)));
    let ost = failure.ost.map(|ost| ost.to_string());
    let parts: Vec<String> = block.into_iter().chain(ost).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

fn reason(failure: &Failure) -> String {
    let text = match failure.reason {
        // An entry that was there once is reported as vanished instead.
        Reason::Os(ENOENT) if failure.side == Side::Source => "it does not exist",
        Reason::Os(errno) => return errno::describe(errno),
        Reason::Changed if failure.operation == Operation::Remove => {
            "it changed after it was moved, and was kept"
        }
        Reason::SameFile => "it is the source file itself, not a copy of it",
        Reason::Changed => "it changed while it was read, at each attempt",
        // It was open already: a file that grows is shorter than before, or a server lost it.
        Reason::Vanished if failure.operation == Operation::Read => {
            "it was truncated, replaced or removed while it was read"
        }
        Reason::Vanished => "it was removed after its directory was listed",
        Reason::Checksum => "data arrived damaged each time it was sent",
        Reason::Media => "data read back from storage differs from the written data",
        Reason::Special => "it is a device, FIFO or socket",
        Reason::InTheWay => "an entry of another kind has its name",
        Reason::ParentFailed => "its directory could not be created",
        Reason::UnsafeName => {
            "its name leads out of its directory, or is reserved for LADS (.lads-…)"
        }
        Reason::Archived => "its data is in an archive, not on storage targets",
        Reason::ManyNames => "such directories have more names than can be compared at a time",
        Reason::Dangling => "it is a dangling symbolic link, and --copy-links is given",
        Reason::Loop => "it is a symbolic link to a directory that contains it",
        Reason::LargeMetadata => "it has more than 1 MiB of extended attributes",
        Reason::Limit => "more entries would have to be deleted than --max-delete allows",
        Reason::TooDeep => {
            return format!(
                "it is nested too deeply: LADS supports {DEPTH_MAX} directories, and \
                 {PATH_BYTES_MAX} bytes of path for a file with several names"
            );
        }
    };
    text.to_owned()
}

#[cfg(test)]
pub(in crate::display) mod tests;
