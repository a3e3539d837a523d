//! The life of one file, link or special file at the source.
//!
//! A file is in one state, and only [`State::after`] leads from one state to the next. These are
//! all transitions; a test prints them from that table and compares:
//!
//! ```text
//! found ─────────────── told ────────► announced
//! announced ─────────── wanted ──────► moving
//! announced ─────────── ended ───────► ended
//! moving ────────────── complete ────► checking
//! moving ────────────── bad ─────────► moving
//! moving ────────────── failed ──────► dropping
//! moving ────────────── unplaced ────► dropping unplaced
//! moving ────────────── different ───► replacing
//! moving ────────────── ended ───────► ended
//! checking ──────────── unchanged ───► finishing
//! checking ──────────── bad ─────────► moving
//! checking ──────────── failed ──────► dropping
//! checking ──────────── different ───► replacing
//! checking ──────────── ended ───────► ended
//! finishing ─────────── bad ─────────► moving
//! finishing ─────────── failed ──────► dropping
//! finishing ─────────── different ───► replacing
//! finishing ─────────── ended ───────► ended
//! dropping ──────────── failed ──────► dropping
//! dropping ──────────── dropped ─────► replacing
//! dropping ──────────── different ───► replacing
//! dropping ──────────── ended ───────► ended
//! dropping unplaced ─── failed ──────► dropping
//! dropping unplaced ─── dropped ─────► replacing
//! dropping unplaced ─── different ───► replacing
//! dropping unplaced ─── ended ───────► ended
//! replacing ─────────── failed ──────► replacing
//! replacing ─────────── ended ───────► ended
//! ```
//!
//! Any other step is our own bug, and a panic: the session compares what the sink says with the
//! state before it takes the step. A file of a single block ends without `checking`: its frame says
//! that the file was the same after it was read.

use super::blocks::{Blocks, Purpose};
use super::links::LinkKey;
use crate::entry::{Entry, Kind, Timestamp};
use crate::gate::is_aligned;
use crate::issue::Failure;
use crate::layout::Layout;
use crate::message::{BlockRange, Ending, Verb};
use crate::range::RangeSet;
use crate::units::EntryId;

/// An entry that is not a directory, was found, and has not ended.
#[derive(Debug)]
pub(super) struct File {
    parent: EntryId,
    verb: Verb,
    /// While it is unsized: [`UNSIZED_BYTES`](crate::entry::UNSIZED_BYTES).
    size: u64,
    /// The bytes of data that the sink must have in the end; of an unsized file, those read
    /// so far.
    data_bytes: u64,
    is_unsized: bool,
    /// If it was unsized and has come to its end: when its data last changed.
    ended_at: Option<Timestamp>,
    tries: Tries,
    known: Known,
    link: Option<LinkKey>,
    /// The bytes of the name and attributes in its announcement.
    metadata_bytes: u64,
    state: State,
}

/// The states of a file, with what is known in each.
#[derive(Debug)]
enum State {
    /// It waits to be announced. The place says where its data lies, if it has data.
    Found(Option<Place>),
    /// The sink was told of it. The ranges are those that the sink says it has so far.
    Announced(Option<Place>, RangeSet),
    /// Its blocks go to the sink.
    Moving(Blocks),
    /// The sink has all of it; a thread checks whether the file is still the same.
    Checking(Blocks),
    /// The file is the same, and the sink was told so.
    Finishing(Blocks),
    /// The sink was told to drop it.
    Dropping(Blocks, Why),
    /// A thread looks at it again; another entry will take its place.
    Replacing(Blocks, Known),
    /// Its life is over.
    Ended,
}

/// Where a file lies, and where it has data.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) layout: Layout,
    pub(super) mirrors: Vec<Layout>,
    pub(super) data: Option<RangeSet>,
    pub(super) disk_offset: Option<u64>,
}

/// What is known of the sink's file of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Nothing,
    /// It was compared, and differs.
    Different,
}

/// Why the sink was told to drop a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something went wrong.
    Failed(Failure),
    /// The sink asked for that, to give the file another place.
    Elsewhere,
}

/// How often a file was announced again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// Because the file had changed.
    pub(super) changed: u32,
    /// Because the sink asked for that, to give it another place; the sink may do so once.
    pub(super) placed: u32,
}

/// The steps that lead from one state to another.
#[derive(Debug)]
pub(super) enum Step {
    /// NEW_FILE was handed out.
    Told,
    /// The sink wants blocks of it, or their checksums.
    Wanted(Blocks),
    /// The sink has all of it.
    Complete,
    /// A thread found that it is still the same file.
    Unchanged,
    /// The sink wants blocks of it again.
    Bad,
    /// Something went wrong.
    Failed(Failure),
    /// The sink wants to give it another place.
    Unplaced,
    /// The sink has dropped it; it is to be tried again.
    Dropped,
    /// The sink has compared it, and it differs.
    Different,
    /// It has ended.
    Ended,
}

impl State {
    /// The next state; `None` if the step is not possible in this state.
    fn after(self, step: Step) -> Option<Self> {
        use State::{Announced, Checking, Dropping, Finishing, Found, Moving, Replacing};
        Some(match (self, step) {
            (Found(place), Step::Told) => Announced(place, RangeSet::new()),
            (Announced(..), Step::Wanted(blocks)) => Moving(blocks),
            (Moving(blocks), Step::Complete) => Checking(blocks),
            (Moving(blocks), Step::Unplaced) => Dropping(blocks, Why::Elsewhere),
            (Checking(blocks), Step::Unchanged) => Finishing(blocks),
            (Moving(blocks) | Checking(blocks) | Finishing(blocks), Step::Bad) => Moving(blocks),
            (
                Moving(blocks)
                | Checking(blocks)
                | Finishing(blocks)
                | Dropping(blocks, Why::Elsewhere),
                Step::Failed(failure),
            ) => Dropping(blocks, Why::Failed(failure)),
            // The first failure is the one that is reported.
            (Dropping(blocks, why), Step::Failed(_)) => Dropping(blocks, why),
            (Dropping(blocks, _), Step::Dropped) => Replacing(blocks, Known::Nothing),
            (
                Moving(blocks) | Checking(blocks) | Finishing(blocks) | Dropping(blocks, _),
                Step::Different,
            ) => Replacing(blocks, Known::Different),
            (Replacing(blocks, known), Step::Failed(_)) => Replacing(blocks, known),
            (
                Announced(..) | Moving(_) | Checking(_) | Finishing(_) | Dropping(..)
                | Replacing(..),
                Step::Ended,
            ) => Self::Ended,
            _ => return None,
        })
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Found(_) => "found",
            Self::Announced(..) => "announced",
            Self::Moving(_) => "moving",
            Self::Checking(_) => "checking",
            Self::Finishing(_) => "finishing",
            Self::Dropping(_, Why::Failed(_)) => "dropping",
            Self::Dropping(_, Why::Elsewhere) => "dropping unplaced",
            Self::Replacing(..) => "replacing",
            Self::Ended => "ended",
        }
    }
}

impl Step {
    fn name(&self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Wanted(_) => "wanted",
            Self::Complete => "complete",
            Self::Unchanged => "unchanged",
            Self::Bad => "bad",
            Self::Failed(_) => "failed",
            Self::Unplaced => "unplaced",
            Self::Dropped => "dropped",
            Self::Different => "different",
            Self::Ended => "ended",
        }
    }
}

impl File {
    /// A file that was found. `place` says where its data lies, if it has data.
    pub(super) fn new(
        entry: &Entry,
        place: Option<Place>,
        tries: Tries,
        link: Option<LinkKey>,
    ) -> Self {
        let (verb, data_bytes) = match &entry.kind {
            Kind::File { .. } if entry.is_unsized() => (Verb::Send, 0),
            Kind::File { data_bytes, .. } => (Verb::Send, *data_bytes),
            Kind::HardLink { .. } => (Verb::HardLink, 0),
            Kind::Symlink { .. } => (Verb::Symlink, 0),
            Kind::Special { .. } | Kind::Directory => (Verb::Special, 0),
        };
        let known = match &entry.kind {
            Kind::File { is_different: true, .. } => Known::Different,
            _ => Known::Nothing,
        };
        Self {
            parent: entry.parent,
            verb,
            size: entry.size(),
            data_bytes,
            is_unsized: entry.is_unsized(),
            ended_at: None,
            tries,
            known,
            link,
            metadata_bytes: entry.variable_bytes() as u64,
            state: State::Found(place),
        }
    }

    /// Takes a step.
    ///
    /// # Panics
    /// If the step is not possible in the present state.
    pub(super) fn step(&mut self, step: Step) {
        let (from, to) = (self.state.name(), step.name());
        let state = std::mem::replace(&mut self.state, State::Ended).after(step);
        self.state = state.unwrap_or_else(|| panic!("a file that is {from} is {to}"));
    }

    pub(super) fn parent(&self) -> EntryId {
        self.parent
    }

    /// What is done with the entry, as the user is told.
    pub(super) fn verb(&self) -> Verb {
        self.verb
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of data that the sink must have in the end.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Whether its length is not known before its end.
    pub(super) fn is_unsized(&self) -> bool {
        self.is_unsized
    }

    /// Whether its length is not known yet.
    pub(super) fn is_still_unsized(&self) -> bool {
        self.is_unsized && self.ended_at.is_none()
    }

    /// An unsized file was read up to this offset. Returns how many bytes of it were not known
    /// before.
    pub(super) fn on_unsized_read(&mut self, end: u64) -> u64 {
        let new_bytes =
            if self.is_still_unsized() { end.saturating_sub(self.data_bytes) } else { 0 };
        self.data_bytes += new_bytes;
        new_bytes
    }

    /// It was unsized, and came to its end.
    pub(super) fn on_end_met(&mut self, size: u64, mtime: Timestamp) {
        (self.size, self.data_bytes, self.ended_at) = (size, size, Some(mtime));
    }

    /// What the sink is told when all of it is there and it is unchanged.
    pub(super) fn good_ending(&self) -> Ending {
        match self.ended_at {
            Some(mtime) => Ending::CompleteAt { size: self.size, mtime },
            None => Ending::Complete,
        }
    }

    /// Holes are to be compared, too. Returns how many bytes that adds.
    pub(super) fn fill_holes(&mut self) -> u64 {
        let hole_bytes = self.size - self.data_bytes;
        self.data_bytes = self.size;
        hole_bytes
    }

    pub(super) fn tries(&self) -> Tries {
        self.tries
    }

    /// It is tried again because it has changed.
    pub(super) fn on_changed(&mut self) {
        self.tries.changed += 1;
    }

    /// The sink asks for it to be announced again. Returns whether it is the first time.
    pub(super) fn on_place_again(&mut self) -> bool {
        self.tries.placed = self.tries.placed.saturating_add(1);
        self.tries.placed == 1
    }

    /// What is known of the sink's file of the same name.
    pub(super) fn known(&self) -> Known {
        match self.state {
            State::Replacing(_, Known::Different) => Known::Different,
            _ => self.known,
        }
    }

    /// The link group of which this file is the first name, if it has several names.
    pub(super) fn link(&self) -> Option<LinkKey> {
        self.link
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    /// Whether it has not been announced.
    pub(super) fn is_untold(&self) -> bool {
        matches!(self.state, State::Found(_))
    }

    /// Whether it was announced, and the sink has not answered yet.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self.state, State::Announced(..))
    }

    /// Whether its blocks go to the sink.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self.state, State::Moving(_))
    }

    /// Whether a thread checks if it is still the same.
    pub(super) fn is_checking(&self) -> bool {
        matches!(self.state, State::Checking(_))
    }

    /// Whether a thread looks at it again.
    pub(super) fn is_replacing(&self) -> bool {
        matches!(self.state, State::Replacing(..))
    }

    /// Why the sink was told to drop it; `None` unless it is being dropped.
    pub(super) fn dropping(&self) -> Option<Why> {
        match self.state {
            State::Dropping(_, why) => Some(why),
            _ => None,
        }
    }

    /// Takes out where its data lies, if it has data and the sink has not answered yet.
    pub(super) fn take_place(&mut self) -> Option<Place> {
        match &mut self.state {
            State::Found(place) | State::Announced(place, _) => place.take(),
            _ => None,
        }
    }

    /// Its blocks, once they are wanted.
    pub(super) fn blocks(&self) -> Option<&Blocks> {
        match &self.state {
            State::Moving(blocks)
            | State::Checking(blocks)
            | State::Finishing(blocks)
            | State::Dropping(blocks, _)
            | State::Replacing(blocks, _) => Some(blocks),
            State::Found(_) | State::Announced(..) | State::Ended => None,
        }
    }

    pub(super) fn blocks_mut(&mut self) -> Option<&mut Blocks> {
        match &mut self.state {
            State::Moving(blocks)
            | State::Checking(blocks)
            | State::Finishing(blocks)
            | State::Dropping(blocks, _)
            | State::Replacing(blocks, _) => Some(blocks),
            State::Found(_) | State::Announced(..) | State::Ended => None,
        }
    }

    /// The ranges that are durable at the sink.
    pub(super) fn confirmed(&self) -> Option<&RangeSet> {
        match &self.state {
            State::Announced(_, begun) => Some(begun),
            _ => self.blocks().map(Blocks::confirmed),
        }
    }

    /// The sink has these ranges from an earlier attempt.
    pub(super) fn on_begun(&mut self, done: &RangeSet) {
        if let State::Announced(_, begun) = &mut self.state {
            done.iter().for_each(|range| {
                begun.insert(range);
            });
        }
    }

    /// Whether its blocks are only compared: their checksums go to the sink, without bytes.
    pub(super) fn is_compared(&self) -> bool {
        self.blocks().is_some_and(|blocks| blocks.purpose() == Purpose::Compare)
    }

    /// The end of a range that the sink names; `None` if the range is not possible for this file.
    pub(super) fn end_of(&self, range: &BlockRange) -> Option<u64> {
        let end = range.offset.checked_add(range.length)?;
        let is_piece = range.length > 0
            && is_aligned(range.offset)
            && (end == self.size || end < self.size && is_aligned(end));
        (self.blocks().is_some() && is_piece).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::issue::{Operation, Reason, Side};

    fn blocks() -> Blocks {
        Blocks::new(Purpose::Send, RangeSet::new(), 0)
    }

    fn failure() -> Failure {
        Failure::new(Side::Source, Operation::Read, Reason::Os(5))
    }

    fn states() -> Vec<State> {
        vec![
            State::Found(None),
            State::Announced(None, RangeSet::new()),
            State::Moving(blocks()),
            State::Checking(blocks()),
            State::Finishing(blocks()),
            State::Dropping(blocks(), Why::Failed(failure())),
            State::Dropping(blocks(), Why::Elsewhere),
            State::Replacing(blocks(), Known::Nothing),
            State::Ended,
        ]
    }

    fn steps() -> Vec<Step> {
        vec![
            Step::Told,
            Step::Wanted(blocks()),
            Step::Complete,
            Step::Unchanged,
            Step::Bad,
            Step::Failed(failure()),
            Step::Unplaced,
            Step::Dropped,
            Step::Different,
            Step::Ended,
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
}
