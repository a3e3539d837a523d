//! The life of one file at the sink.
//!
//! A file is in one state, and only [`State::after`] leads from one to the next. These are all the
//! ways there are; a test prints them from that table:
//!
//! ```text
//! announced ───────────── taken ───────► examining
//! examining ───────────── wanted ──────► receiving
//! examining ───────────── answered ────► ended
//! receiving ───────────── complete ────► committing
//! receiving ───────────── failed ──────► dropping
//! receiving ───────────── different ───► dropping
//! receiving ───────────── given up ────► dropping
//! committing ──────────── named ───────► ended
//! committing ──────────── bad ─────────► receiving
//! committing ──────────── failed ──────► dropping
//! committing ──────────── different ───► dropping
//! committing ──────────── given up ────► committing unwanted
//! committing unwanted ─── named ───────► ended
//! committing unwanted ─── bad ─────────► dropping
//! committing unwanted ─── failed ──────► dropping
//! committing unwanted ─── different ───► dropping
//! committing unwanted ─── given up ────► committing unwanted
//! dropping ────────────── failed ──────► dropping
//! dropping ────────────── different ───► dropping
//! dropping ────────────── given up ────► dropping
//! dropping ────────────── idle ────────► discarding
//! discarding ──────────── failed ──────► discarding
//! discarding ──────────── different ───► discarding
//! discarding ──────────── given up ────► discarding
//! discarding ──────────── discarded ───► ended
//! ```
//!
//! A file that is dropped stays dropped, and the first reason counts. Any other step is a bug of
//! LADS, and panics. The source cannot cause it, because the gate and the session compare each
//! message with these states first.

use super::blocks::{Blocks, Purpose};
use crate::ahead::Placed;
use crate::entry::{Timestamp, UNSIZED_PLACED_BYTES};
use crate::frame::{Header, Row};
use crate::gate;
use crate::issue::Failure;
use crate::limits::BLOCK_BYTES_MAX;
use crate::message::Ending;

/// A file that was announced and has not ended.
#[derive(Debug)]
pub(super) struct File {
    /// While it is unsized: [`UNSIZED_BYTES`](crate::entry::UNSIZED_BYTES).
    size: u64,
    unsized_state: Option<Unsized>,
    state: State,
}

/// A file whose length nobody knows before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unsized {
    Still,
    /// It has come to its end; its data last changed at this time.
    EndMet(Timestamp),
}

/// Where a file is in its life.
#[derive(Debug)]
enum State {
    /// It waits to be looked at.
    Announced { data_bytes: u64 },
    /// An I/O thread looks at what is under its name. Its bytes count as placed, if they are
    /// counted.
    Examining { data_bytes: u64, placed: Option<Placed> },
    /// Its blocks are coming.
    Receiving(Blocks),
    /// All of it is there; an I/O thread gives it its name, or will.
    Committing(Blocks, Interest),
    /// To be dropped when nothing of it is in flight. Only then is the source told: it may send the
    /// file again, or end the directory that it lies in.
    Dropping(Blocks, Why),
    /// An I/O thread drops it, or will.
    Discarding(Blocks, Why),
    /// Nothing is left of it.
    Ended,
}

/// Whether the source still wants the file that is being committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interest {
    Wanted,
    /// It was to be placed again, and its only block was in flight already.
    Unwanted,
}

/// Why a file is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something went wrong here.
    Failed(Failure, Kept),
    /// It was compared, and is different.
    Different,
    /// The source gave it up.
    GivenUp,
}

/// Whether what the journal has of a file is kept for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}

/// What happens to a file.
#[derive(Debug)]
pub(super) enum Step {
    /// A thread looks at it; the bytes that count as placed.
    Taken(Option<Placed>),
    /// Blocks of it are to come.
    Wanted(Blocks),
    /// There is something under its name that needs no data, or it cannot be there.
    Answered,
    /// All of it is there, and vouched for.
    Complete,
    /// It has its name, or was found to be the same.
    Named,
    /// Read back, some of it is not what was written.
    Bad,
    /// Something went wrong.
    Failed(Failure, Kept),
    /// It is not what is there.
    Different,
    /// The source does not want it any more.
    GivenUp,
    /// Nothing is done with it any more.
    Idle,
    /// It is removed, except for what is kept for another attempt.
    Discarded,
}

impl State {
    /// The state that follows, if the step can be taken.
    fn after(self, step: Step) -> Option<Self> {
        use State::{Announced, Committing, Discarding, Dropping, Ended, Examining, Receiving};
        Some(match (self, step) {
            (Announced { data_bytes }, Step::Taken(placed)) => Examining { data_bytes, placed },
            (Examining { .. }, Step::Wanted(blocks)) => Receiving(blocks),
            (Examining { .. }, Step::Answered) => Ended,
            (Receiving(blocks), Step::Complete) => Committing(blocks, Interest::Wanted),
            (Receiving(blocks), Step::GivenUp) => Dropping(blocks, Why::GivenUp),
            (Receiving(blocks) | Committing(blocks, _), Step::Failed(failure, kept)) => {
                Dropping(blocks, Why::Failed(failure, kept))
            }
            (Receiving(blocks) | Committing(blocks, _), Step::Different) => {
                Dropping(blocks, Why::Different)
            }
            (Committing(..), Step::Named) => Ended,
            (Committing(blocks, Interest::Wanted), Step::Bad) => Receiving(blocks),
            (Committing(blocks, Interest::Unwanted), Step::Bad) => Dropping(blocks, Why::GivenUp),
            (Committing(blocks, _), Step::GivenUp) => Committing(blocks, Interest::Unwanted),
            (Dropping(blocks, why), Step::Failed(..) | Step::Different | Step::GivenUp) => {
                Dropping(blocks, why)
            }
            (Dropping(blocks, why), Step::Idle) => Discarding(blocks, why),
            (Discarding(blocks, why), Step::Failed(..) | Step::Different | Step::GivenUp) => {
                Discarding(blocks, why)
            }
            (Discarding(..), Step::Discarded) => Ended,
            _ => return None,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Announced { .. } => "announced",
            Self::Examining { .. } => "examining",
            Self::Receiving(_) => "receiving",
            Self::Committing(_, Interest::Wanted) => "committing",
            Self::Committing(_, Interest::Unwanted) => "committing unwanted",
            Self::Dropping(..) => "dropping",
            Self::Discarding(..) => "discarding",
            Self::Ended => "ended",
        }
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Taken(_) => "taken",
            Self::Wanted(_) => "wanted",
            Self::Answered => "answered",
            Self::Complete => "complete",
            Self::Named => "named",
            Self::Bad => "bad",
            Self::Failed(..) => "failed",
            Self::Different => "different",
            Self::GivenUp => "given up",
            Self::Idle => "idle",
            Self::Discarded => "discarded",
        }
    }
}

impl Why {
    /// How the file ends, as the source is told.
    pub(super) fn ending(self) -> Ending {
        match self {
            Self::Failed(failure, _) => Ending::Failed(failure),
            Self::Different => Ending::Different,
            Self::GivenUp => Ending::Dropped,
        }
    }

    /// What went wrong here, if anything did.
    pub(super) fn failure(self) -> Option<Failure> {
        match self {
            Self::Failed(failure, _) => Some(failure),
            Self::Different | Self::GivenUp => None,
        }
    }

    /// Whether the journal keeps what it has of the file.
    pub(super) fn is_kept(self) -> bool {
        matches!(self, Self::Failed(_, Kept::Yes))
    }
}

impl File {
    /// A file of `size` bytes that was announced, `data_bytes` of them data.
    pub(super) fn new(size: u64, data_bytes: u64) -> Self {
        Self { size, unsized_state: None, state: State::Announced { data_bytes } }
    }

    /// The same, if it is unsized.
    pub(super) fn unsized_if(self, is_unsized: bool) -> Self {
        Self { unsized_state: is_unsized.then_some(Unsized::Still), ..self }
    }

    /// Whether its length is not known before its end.
    pub(super) fn is_unsized(&self) -> bool {
        self.unsized_state.is_some()
    }

    /// Its size where places are chosen, in bytes.
    pub(super) fn placed_size(&self) -> u64 {
        if self.is_unsized() { UNSIZED_PLACED_BYTES } else { self.size }
    }

    /// If it was unsized and has come to its end: when its data last changed.
    pub(super) fn ended_at(&self) -> Option<Timestamp> {
        match self.unsized_state {
            Some(Unsized::EndMet(mtime)) => Some(mtime),
            _ => None,
        }
    }

    /// Whether the source may say that the file was unsized and has this length: then all of it was
    /// written, unless it is being dropped.
    pub(super) fn may_end_at(&self, size: u64) -> bool {
        let has_all = self.receiving().is_none_or(|blocks| blocks.has_just(size));
        match self.unsized_state {
            Some(Unsized::Still) => has_all,
            Some(Unsized::EndMet(_)) => has_all && self.size == size,
            None => false,
        }
    }

    /// It was unsized, and came to its end.
    pub(super) fn on_end_met(&mut self, size: u64, mtime: Timestamp) {
        (self.size, self.unsized_state) = (size, Some(Unsized::EndMet(mtime)));
        if let Some(blocks) = self.blocks_mut() {
            blocks.on_end_met(size);
        }
    }

    /// Something happens to it.
    ///
    /// # Panics
    /// If the step cannot be taken in its state.
    pub(super) fn step(&mut self, step: Step) {
        let (from, to) = (self.state.name(), step.name());
        let state = std::mem::replace(&mut self.state, State::Ended).after(step);
        self.state = state.unwrap_or_else(|| panic!("a file that is {from} is {to}"));
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes that have to come, and those of them that count as placed, while a thread looks at
    /// it.
    pub(super) fn examined(&self) -> Option<(u64, Option<Placed>)> {
        match &self.state {
            State::Examining { data_bytes, placed } => Some((*data_bytes, *placed)),
            _ => None,
        }
    }

    /// Whether the source does not know yet what becomes of it.
    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.state, State::Announced { .. } | State::Examining { .. })
    }

    /// Its blocks, if it is wanted, or was.
    pub(super) fn blocks(&self) -> Option<&Blocks> {
        match &self.state {
            State::Receiving(blocks)
            | State::Committing(blocks, _)
            | State::Dropping(blocks, _)
            | State::Discarding(blocks, _) => Some(blocks),
            State::Announced { .. } | State::Examining { .. } | State::Ended => None,
        }
    }

    pub(super) fn blocks_mut(&mut self) -> Option<&mut Blocks> {
        match &mut self.state {
            State::Receiving(blocks)
            | State::Committing(blocks, _)
            | State::Dropping(blocks, _)
            | State::Discarding(blocks, _) => Some(blocks),
            State::Announced { .. } | State::Examining { .. } | State::Ended => None,
        }
    }

    /// Its blocks, if they come now.
    pub(super) fn receiving(&self) -> Option<&Blocks> {
        match &self.state {
            State::Receiving(blocks) => Some(blocks),
            _ => None,
        }
    }

    pub(super) fn receiving_mut(&mut self) -> Option<&mut Blocks> {
        match &mut self.state {
            State::Receiving(blocks) => Some(blocks),
            _ => None,
        }
    }

    /// The bytes that are placed and have not come, if they are counted.
    pub(super) fn placed(&self) -> Option<Placed> {
        match &self.state {
            State::Examining { placed, .. } => *placed,
            _ => self.blocks().and_then(Blocks::placed_bytes),
        }
    }

    /// Whether all of it is there and it does not have its name yet.
    pub(super) fn is_complete(&self) -> bool {
        self.receiving().is_some_and(Blocks::is_complete)
    }

    /// Whether it is about to get its name although the source gave it up.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.state, State::Committing(_, Interest::Unwanted))
    }

    /// Why it is to be dropped, while it waits for that.
    pub(super) fn dropping(&self) -> Option<Why> {
        match &self.state {
            State::Dropping(_, why) => Some(*why),
            _ => None,
        }
    }

    /// Why it is dropped.
    pub(super) fn discarding(&self) -> Option<Why> {
        match &self.state {
            State::Discarding(_, why) => Some(*why),
            _ => None,
        }
    }

    /// Whether it is dropped, or will be.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Dropping(..) | State::Discarding(..))
    }

    /// Whether a block can be one of this file, as far as its place and length tell.
    pub(super) fn is_block(&self, offset: u64, length: u64) -> bool {
        let end = offset.checked_add(length);
        (1..=u64::from(BLOCK_BYTES_MAX)).contains(&length)
            && gate::is_aligned(offset)
            && end.is_some_and(|end| {
                let is_piece = gate::is_aligned(end) || self.unsized_state == Some(Unsized::Still);
                end == self.size || end < self.size && is_piece
            })
    }

    /// Whether a row of a frame can be one of this file, in such a buffer.
    pub(super) fn may_hold(&self, row: &Row, header: &Header, buffer_bytes: u32) -> bool {
        let Some(blocks) = self.blocks() else { return false };
        let (block, layout) = (row.block, blocks.layout());
        (blocks.purpose() == Purpose::Compare) == header.has_only_sums
            && self.is_block(block.offset, block.length.into())
            && block.length <= buffer_bytes
            && layout.ost_at(block.offset) == header.sink_ost
            && block.end() <= layout.stripe_end(block.offset)
            && (!row.is_whole || u64::from(block.length) == self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::{Operation, Reason, Side};
    use crate::layout::Layout;
    use crate::units::OstId;

    fn blocks() -> Blocks {
        Blocks::new(Purpose::Write, 1, Layout::on(OstId(0)))
    }

    fn failure() -> Failure {
        Failure::new(Side::Sink, Operation::Write, Reason::Os(5))
    }

    fn states() -> Vec<State> {
        vec![
            State::Announced { data_bytes: 1 },
            State::Examining { data_bytes: 1, placed: None },
            State::Receiving(blocks()),
            State::Committing(blocks(), Interest::Wanted),
            State::Committing(blocks(), Interest::Unwanted),
            State::Dropping(blocks(), Why::GivenUp),
            State::Discarding(blocks(), Why::GivenUp),
            State::Ended,
        ]
    }

    fn steps() -> Vec<Step> {
        vec![
            Step::Taken(None),
            Step::Wanted(blocks()),
            Step::Answered,
            Step::Complete,
            Step::Named,
            Step::Bad,
            Step::Failed(failure(), Kept::No),
            Step::Different,
            Step::GivenUp,
            Step::Idle,
            Step::Discarded,
        ]
    }

    #[test]
    fn the_picture_shows_the_ways_that_there_are() {
        let mut ways = Vec::new();
        for from in 0..states().len() {
            for step in 0..steps().len() {
                let (state, step) = (states().swap_remove(from), steps().swap_remove(step));
                let names = (state.name(), step.name());
                if let Some(to) = state.after(step) {
                    ways.push((names.0, names.1, to.name()));
                }
            }
        }
        crate::picture::check(include_str!("file.rs"), &ways);
    }

    #[test]
    fn states_say_whether_a_file_was_given_up_and_whether_it_is_dropped() {
        let file = |state| File { size: 1, unsized_state: None, state };
        let of = |is: fn(&File) -> bool| {
            let matching = states().into_iter().map(file).filter(is);
            matching.map(|file| file.state.name()).collect::<Vec<_>>()
        };
        assert_eq!(of(File::is_given_up), ["committing unwanted"]);
        assert_eq!(of(File::is_ending), ["dropping", "discarding"]);
    }

    #[test]
    fn the_first_reason_to_drop_a_file_is_the_one_that_is_told() {
        let mut file = File { size: 1, unsized_state: None, state: State::Receiving(blocks()) };
        file.step(Step::Failed(failure(), Kept::Yes));
        file.step(Step::GivenUp);
        file.step(Step::Idle);
        file.step(Step::Different);
        assert_eq!(file.discarding(), Some(Why::Failed(failure(), Kept::Yes)));
    }
}
