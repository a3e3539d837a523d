//! Whether a message from the other end is allowed: the one place that checks messages.
//!
//! The other end is not trusted. Every message passes this module before a session, a table, a
//! thread or a file system sees any part of it. A message is accepted whole or not at all. One that
//! is not accepted ends the transfer; the same command can go on with it.
//!
//! [`AtSink`] checks what a source says, [`AtSource`] what a sink says. [`check_news`] checks
//! messages for the user who started one of the ends. The session that keeps a file compares
//! messages about that file with the file's state. [`crate::sink::Sink::admit`] checks frames. The
//! limits are in [`crate::limits`].

mod at_sink;
mod at_source;

pub use at_sink::AtSink;
pub use at_source::AtSource;
pub(crate) use at_source::is_aligned;

use crate::entry::PATH_BYTES_MAX;
use crate::issue::Issue;
use crate::limits::{BLOCK_BYTES_MAX, OSTS_MAX, STREAMS_MAX, SUM_MAX, TEXT_BYTES_MAX};
use crate::message::{BlockRange, Counters, Line, Message, OstBytes};
use crate::reduction::Reduction;
use crate::units::EntryId;
use thiserror::Error;

/// How a message breaks the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// A message that has no meaning now, or not from this end.
    #[error("the other end sent an unexpected message: {0}")]
    OutOfPlace(&'static str),
    /// An entry that was never announced.
    #[error("the other end refers to entry {0}, which was never announced")]
    UnknownEntry(EntryId),
    /// A block that ends beyond the file, or is not cut as agreed.
    #[error(
        "the other end refers to {length} bytes at offset {offset} of entry {entry}, which cannot \
         be a block"
    )]
    ImpossibleBlock {
        /// The file.
        entry: EntryId,
        /// Where the block would begin.
        offset: u64,
        /// The length of the block.
        length: u64,
    },
    /// More frames than were granted.
    #[error("the other end sent more than was granted")]
    OverGrant,
    /// A name that is not one plain component.
    #[error("the other end sent a name that leads out of the target directory")]
    UnsafeName,
    /// A value that no honest end sends.
    #[error("the other end sent an impossible value: {0}")]
    Impossible(&'static str),
    /// More than a limit allows.
    #[error("the other end sent more than is allowed: {0}")]
    TooMuch(&'static str),
}

/// Reports whether a message is for the user, or says how far the other end has come. Sessions do
/// not see such messages.
#[must_use]
pub fn is_news(message: &Message) -> bool {
    matches!(
        message,
        Message::Progress(_)
            | Message::OstBytes(_)
            | Message::Issues(_)
            | Message::Lines(_)
            | Message::Notice(_)
            | Message::Fatal { .. }
    )
}

/// Who reads such messages at this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A user started this end.
    Person,
    /// A user started this end, a source, in order to compare: the sink reports differences.
    PersonWhoCompares,
    /// The other end started this one. It may only say that it cannot go on.
    Nobody,
}

/// Checks a message for which [`is_news`] is true.
///
/// # Errors
/// If nobody at this end reads such a message, or if it is longer than any honest one.
pub fn check_news(message: &Message, reader: Reader) -> Result<(), ProtocolError> {
    match message {
        Message::Fatal { text, .. } => check_text(text),
        _ if reader == Reader::Nobody => Err(ProtocolError::OutOfPlace("a message for the user")),
        Message::Progress(counters) => check_counters(counters),
        Message::OstBytes(osts) => check_ost_bytes(osts),
        Message::Issues(issues) => issues.iter().try_for_each(check_issue),
        Message::Lines(lines) => lines.iter().try_for_each(|line| check_line(line, reader)),
        Message::Notice(text) => check_text(text),
        _ => Ok(()),
    }
}

/// Cuts texts for the user to the length that the other end accepts. Paths are cut where they are
/// made.
pub fn cut_news(message: &mut Message) {
    match message {
        Message::Notice(text) | Message::Stop(text) | Message::Fatal { text, .. } => cut_text(text),
        Message::Progress(counters) => {
            counters.busiest_ost.iter_mut().for_each(|ost| cut_text(&mut ost.name));
        }
        _ => {}
    }
}

fn cut_text(text: &mut String) {
    text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
}

fn check_issue(issue: &Issue) -> Result<(), ProtocolError> {
    check_path(&issue.path)
}

fn check_line(line: &Line, reader: Reader) -> Result<(), ProtocolError> {
    if line.verb.is_difference() && reader != Reader::PersonWhoCompares {
        return Err(ProtocolError::OutOfPlace("a difference"));
    }
    check_path(&line.path)
}

fn check_path(path: &[u8]) -> Result<(), ProtocolError> {
    if path.len() <= PATH_BYTES_MAX { Ok(()) } else { Err(ProtocolError::TooMuch("a path")) }
}

fn check_text(text: &str) -> Result<(), ProtocolError> {
    if text.len() <= TEXT_BYTES_MAX { Ok(()) } else { Err(ProtocolError::TooMuch("text")) }
}

fn check_ost_bytes(osts: &OstBytes) -> Result<(), ProtocolError> {
    if osts.bytes.len() > OSTS_MAX as usize {
        return Err(ProtocolError::TooMuch("OSTs"));
    }
    let is_possible = is_sum(osts.elapsed_micros) && osts.bytes.iter().copied().all(is_sum);
    if is_possible { Ok(()) } else { Err(ProtocolError::Impossible("counters beyond the limit")) }
}

/// Checks that sums can be added without overflow, and that the OST's name can be shown.
fn check_counters(counters: &Counters) -> Result<(), ProtocolError> {
    let reduced = Reduction::ALL.map(|kind| counters.reduced.of(kind));
    if !counters.numbers().into_iter().chain(reduced).all(is_sum) {
        return Err(ProtocolError::Impossible("counters beyond the limit"));
    }
    counters.busiest_ost.as_ref().map_or(Ok(()), |ost| check_text(&ost.name))
}

fn is_sum(number: u64) -> bool {
    number <= SUM_MAX
}

fn check_sum(number: u64) -> Result<(), ProtocolError> {
    if is_sum(number) {
        Ok(())
    } else {
        Err(ProtocolError::Impossible("counters beyond the limit"))
    }
}

/// Checks counts of frames, one for each data stream.
fn check_frame_counts(counts: &[u64]) -> Result<(), ProtocolError> {
    let is_bounded = counts.len() <= usize::from(STREAMS_MAX);
    if is_bounded { Ok(()) } else { Err(ProtocolError::TooMuch("data streams")) }
}

/// Checks ranges: each is as long as a block, or as several short blocks that was recorded
/// together.
fn check_ranges(ranges: &[BlockRange]) -> Result<(), ProtocolError> {
    let is_block = |range: &BlockRange| {
        (1..=u64::from(BLOCK_BYTES_MAX)).contains(&range.length)
            && range.offset.checked_add(range.length).is_some()
    };
    match ranges.iter().find(|range| !is_block(range)) {
        None => Ok(()),
        Some(range) => Err(impossible(range)),
    }
}

/// The error for a range that is not possible.
pub(crate) fn impossible(range: &BlockRange) -> ProtocolError {
    ProtocolError::ImpossibleBlock {
        entry: range.entry,
        offset: range.offset,
        length: range.length,
    }
}

#[cfg(test)]
mod tests;
