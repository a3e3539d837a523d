//! What a sink may say to a source.

use super::{ProtocolError, check_counters, check_ranges, check_sum, check_text};
use crate::entry::{is_safe_name, is_safe_path};
use crate::limits::{ALIGNMENT_BYTES, OSTS_MAX, QUESTION_NAMES_MAX};
use crate::message::{Answer, Message, Question};
use crate::room::Lot;
use crate::times::UNIT_NANOS_MAX;
use crate::units::{EntryId, OstId};

/// What a sink has said of itself.
#[derive(Debug)]
pub struct AtSource {
    stream_count: u16,
    /// The number of OSTs that the sink has; the most that are allowed, until the sink has said so.
    ost_count: u32,
    is_ready: bool,
    /// For each data stream, whether the sink has said that it ended.
    ended: Vec<bool>,
}

/// The largest count in a GRANT: more frames than any memory has buffers for.
const GRANT_MAX: u32 = 1 << 24;

impl AtSource {
    /// A sink that has not said anything; `stream_count` data streams lead to it.
    #[must_use]
    pub fn new(stream_count: u16) -> Self {
        let ended = vec![false; stream_count.into()];
        Self { stream_count, ost_count: OSTS_MAX, is_ready: false, ended }
    }

    /// Checks whether the sink may send this message now. Changes nothing.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        match message {
            Message::Ready { .. } if self.is_ready => {
                Err(ProtocolError::OutOfPlace("a second READY"))
            }
            Message::Ready { ost_count, open_files_max, time_unit_nanos, .. } => {
                let is_possible = (1..=OSTS_MAX).contains(ost_count)
                    && *open_files_max > 0
                    && *time_unit_nanos <= UNIT_NANOS_MAX;
                if is_possible {
                    Ok(())
                } else {
                    Err(ProtocolError::Impossible("the numbers in READY"))
                }
            }
            Message::Grant(lot) => self.check_lot(lot),
            Message::FileId(answers) => {
                answers.iter().try_for_each(|(_, answer)| self.check_answer(answer))
            }
            Message::BlockDone(ranges) | Message::BlockBad(ranges) => check_ranges(ranges),
            Message::StreamEnd { stream, .. } => self.check_stream(*stream),
            Message::Stop(text) => check_text(text),
            Message::Finished(counters) => check_counters(counters),
            Message::AreThere(question) => check_question(question),
            Message::Removed(count) => check_sum(*count),
            Message::FileDone(_) | Message::PlaceAgain(_) | Message::Heartbeat => Ok(()),
            _ => Err(ProtocolError::OutOfPlace("a message that only a source sends")),
        }
    }

    /// The sink is ready, and has this number of OSTs.
    pub fn on_ready(&mut self, ost_count: u32) {
        (self.is_ready, self.ost_count) = (true, ost_count);
    }

    /// A data stream ended.
    pub fn on_stream_end(&mut self, stream: u16) {
        if let Some(ended) = self.ended.get_mut(usize::from(stream)) {
            *ended = true;
        }
    }

    fn check_lot(&self, lot: &Lot) -> Result<(), ProtocolError> {
        lot.osts.iter().try_for_each(|&(ost, _)| self.check_ost(ost))?;
        let mut counts = lot.osts.iter().map(|&(_, count)| count).chain([lot.frames]);
        if counts.all(|count| count <= GRANT_MAX) {
            Ok(())
        } else {
            Err(ProtocolError::TooMuch("grants"))
        }
    }

    fn check_ost(&self, ost: OstId) -> Result<(), ProtocolError> {
        let is_known = ost.0 < self.ost_count;
        if is_known { Ok(()) } else { Err(ProtocolError::Impossible("an OST that does not exist")) }
    }

    fn check_stream(&self, stream: u16) -> Result<(), ProtocolError> {
        match self.ended.get(usize::from(stream)) {
            Some(false) if stream < self.stream_count => Ok(()),
            _ => Err(ProtocolError::OutOfPlace("STREAM_END")),
        }
    }

    fn check_answer(&self, answer: &Answer) -> Result<(), ProtocolError> {
        let (Answer::Want { layout, .. } | Answer::Compare { layout }) = answer else {
            return Ok(());
        };
        if !layout.is_aligned(ALIGNMENT_BYTES) {
            return Err(ProtocolError::Impossible("stripes that are not whole pages"));
        }
        layout.osts().try_for_each(|ost| self.check_ost(ost))
    }
}

/// Checks the names of a question: they are in a directory below the root, and not too many.
fn check_question(question: &Question) -> Result<(), ProtocolError> {
    let Question { directory, names, .. } = question;
    // Only the root itself is called `.`, and nobody asks for the root.
    let is_name = |name: &Vec<u8>| name != b"." && is_safe_name(name, EntryId::ROOT);
    if !(directory.is_empty() || is_safe_path(directory)) || !names.iter().all(is_name) {
        return Err(ProtocolError::UnsafeName);
    }
    match names.len() {
        1..=QUESTION_NAMES_MAX => Ok(()),
        _ => Err(ProtocolError::TooMuch("names in a question")),
    }
}

/// Whether a block of this transfer may begin here, or end here without being the end of its file.
pub(crate) fn is_aligned(offset: u64) -> bool {
    offset.is_multiple_of(ALIGNMENT_BYTES)
}
