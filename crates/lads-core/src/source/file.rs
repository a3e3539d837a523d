//! The life of one file, link or special file at the source.
//!
//! It is in one state, and only [`State::after`] leads from one to the next. These are all the ways
//! there are; a test prints them from that table:
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
//! Anything else is a mistake of ours, and a panic: what the sink says is compared with the state
//! first. A file of a single block ends without being checked: its block carries the word that the
//! file was the same after it was read.

use super::blocks::{Blocks, Purpose};
use super::links::LinkKey;
use crate::entry::{Entry, Kind};
use crate::gate::is_aligned;
use crate::issue::Failure;
use crate::layout::Layout;
use crate::message::{BlockRange, Verb};
use crate::range::RangeSet;
use crate::units::EntryId;

/// Something that is no directory, was found, and has not ended.
#[derive(Debug)]
pub(super) struct File {
    parent: EntryId,
    verb: Verb,
    size: u64,
    /// How much of it has to be there in the end, in bytes.
    data_bytes: u64,
    tries: Tries,
    known: Known,
    link: Option<LinkKey>,
    /// What it takes to announce it, in bytes.
    metadata_bytes: u64,
    state: State,
}

/// Where it is in its life.
#[derive(Debug)]
enum State {
    /// It waits to be announced; a file lies there.
    Found(Option<Place>),
    /// The sink was told of it, and has said that it has these bytes.
    Announced(Option<Place>, RangeSet),
    /// Its blocks go to the sink.
    Moving(Blocks),
    /// The sink has all of it; a thread looks whether it is still the same file.
    Checking(Blocks),
    /// It is the same, and the sink was told so.
    Finishing(Blocks),
    /// The sink was told to drop it.
    Dropping(Blocks, Why),
    /// A thread looks at it anew: another entry takes its place.
    Replacing(Blocks, Known),
    /// Nothing more is said of it.
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

/// What is known of the file that the sink has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    Nothing,
    /// It was compared, and is different.
    Different,
}

/// Why the sink was told to drop a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something went wrong.
    Failed(Failure),
    /// The sink asked for it, to place it again.
    Elsewhere,
}

/// How often a file was announced before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// Because it had changed.
    pub(super) changed: u32,
    /// How often the sink asked for that, to place it again; it may do so once.
    pub(super) placed: u32,
}

/// What happens to a file.
#[derive(Debug)]
pub(super) enum Step {
    /// NEW_FILE has been handed out.
    Told,
    /// The sink wants blocks of it, or their checksums.
    Wanted(Blocks),
    /// The sink has all of it.
    Complete,
    /// It is still the same file.
    Unchanged,
    /// The sink wants blocks of it once more.
    Bad,
    /// Something went wrong.
    Failed(Failure),
    /// The sink wants to place it again.
    Unplaced,
    /// The sink has dropped it, and it is to be tried again.
    Dropped,
    /// The sink has compared it, and it is different.
    Different,
    /// It is over.
    Ended,
}

impl State {
    /// The state that follows, if the step can be taken.
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
            // What went wrong first is told.
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
    /// Something that was found; `place` says where its data lies, if it has data.
    pub(super) fn new(
        entry: &Entry,
        place: Option<Place>,
        tries: Tries,
        link: Option<LinkKey>,
    ) -> Self {
        let (verb, data_bytes) = match &entry.kind {
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
            tries,
            known,
            link,
            metadata_bytes: entry.variable_bytes() as u64,
            state: State::Found(place),
        }
    }

    /// Something happens to it.
    ///
    /// # Panics
    /// If that cannot be in its state.
    pub(super) fn step(&mut self, step: Step) {
        let (from, to) = (self.state.name(), step.name());
        let state = std::mem::replace(&mut self.state, State::Ended).after(step);
        self.state = state.unwrap_or_else(|| panic!("a file that is {from} is {to}"));
    }

    pub(super) fn parent(&self) -> EntryId {
        self.parent
    }

    /// What is done with it.
    pub(super) fn verb(&self) -> Verb {
        self.verb
    }

    /// Its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// How much of it has to be there in the end, in bytes.
    pub(super) fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Its holes are compared, too: how many bytes that adds.
    pub(super) fn fill_holes(&mut self) -> u64 {
        let hole_bytes = self.size - self.data_bytes;
        self.data_bytes = self.size;
        hole_bytes
    }

    pub(super) fn tries(&self) -> Tries {
        self.tries
    }

    /// It is tried once more because it has changed.
    pub(super) fn on_changed(&mut self) {
        self.tries.changed += 1;
    }

    /// The sink asks for it to be announced anew; `true` if it is the first time.
    pub(super) fn on_place_again(&mut self) -> bool {
        self.tries.placed = self.tries.placed.saturating_add(1);
        self.tries.placed == 1
    }

    /// What the sink's file is known to be.
    pub(super) fn known(&self) -> Known {
        match self.state {
            State::Replacing(_, Known::Different) => Known::Different,
            _ => self.known,
        }
    }

    /// Which of several names of a file it is the first of.
    pub(super) fn link(&self) -> Option<LinkKey> {
        self.link
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }

    /// Whether the sink has not been told of it.
    pub(super) fn is_untold(&self) -> bool {
        matches!(self.state, State::Found(_))
    }

    /// Whether the sink was told of it, and has not said what becomes of it.
    pub(super) fn is_announced(&self) -> bool {
        matches!(self.state, State::Announced(..))
    }

    /// Whether its blocks are going to the sink.
    pub(super) fn is_moving(&self) -> bool {
        matches!(self.state, State::Moving(_))
    }

    /// Whether it is looked at whether it is still the same.
    pub(super) fn is_checking(&self) -> bool {
        matches!(self.state, State::Checking(_))
    }

    /// Whether it is looked at anew.
    pub(super) fn is_replacing(&self) -> bool {
        matches!(self.state, State::Replacing(..))
    }

    /// Why the sink was told to drop it, until it has.
    pub(super) fn dropping(&self) -> Option<Why> {
        match self.state {
            State::Dropping(_, why) => Some(why),
            _ => None,
        }
    }

    /// Where its data lies, if it has data and the sink has not said what becomes of it.
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

    /// What the sink has of it, durable.
    pub(super) fn confirmed(&self) -> Option<&RangeSet> {
        match &self.state {
            State::Announced(_, begun) => Some(begun),
            _ => self.blocks().map(Blocks::confirmed),
        }
    }

    /// The sink has this of it from an earlier attempt.
    pub(super) fn on_begun(&mut self, done: &RangeSet) {
        if let State::Announced(_, begun) = &mut self.state {
            done.iter().for_each(|range| {
                begun.insert(range);
            });
        }
    }

    /// Whether only its checksums go to the sink, or went.
    pub(super) fn is_compared(&self) -> bool {
        self.blocks().is_some_and(|blocks| blocks.purpose() == Purpose::Compare)
    }

    /// Where a range ends that the sink names; `None` if it cannot speak of such a one.
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
