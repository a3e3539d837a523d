//! Which blocks wait on local flash, where in its log, and which of them comes back next.
//!
//! A block that can be had now and cannot go on, because there is no room for the OST that it goes
//! to, is parked in a log on local flash, the stage, so that the thread that has it can do
//! something else; when there is room, it is drained: brought back and sent on (LADS, FAST '15,
//! section 3.5).
//!
//! ```text
//!            reserve           on_staged            next            on_drained
//!   free ───────────► reserved ─────────► waiting ───────► draining ─────────► free
//!                        │                   │ retain
//!                        │ on_not_staged     └─────────────────────────────► free
//!                        └─────────────────────────────────────────────────► free
//! ```
//!
//! The log is cut into slots of one length, of which the first that is free is taken: what is
//! staged in one go is written in one go, and the log is never longer than the most that was
//! staged at one time ([`Slots`]). What is in a frame, its owner knows; here it is
//! something that goes to an OST ([`Stage`]).

use crate::units::OstId;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A place in the log, counted from its beginning in slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

impl Slot {
    /// Returns where in the log it begins, in bytes.
    #[must_use]
    pub fn offset(self, slot_bytes: u32) -> u64 {
        u64::from(self.0) * u64::from(slot_bytes)
    }
}

/// Which places of a log are taken.
#[derive(Debug)]
pub struct Slots {
    slot_count: u32,
    /// Slots from here on have never been used.
    unused: u32,
    free: BinaryHeap<Reverse<Slot>>,
    reserved: u32,
    reserved_max: u32,
    is_closed: bool,
}

impl Slots {
    /// A log of this many bytes, in slots of this many; zero bytes are none at all. This many may
    /// be filled at a time: fewer than there are threads and buffers, or none is left to bring
    /// anything back.
    ///
    /// # Panics
    /// If a slot has no bytes.
    #[must_use]
    pub fn new(bytes: u64, slot_bytes: u32, reserved_max: u32) -> Self {
        Self {
            slot_count: u32::try_from(bytes / u64::from(slot_bytes)).unwrap_or(u32::MAX),
            unused: 0,
            free: BinaryHeap::new(),
            reserved: 0,
            reserved_max,
            is_closed: false,
        }
    }

    /// Reports whether a further one may be filled.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let has_slot = self.unused < self.slot_count || !self.free.is_empty();
        has_slot && self.reserved < self.reserved_max && !self.is_closed
    }

    /// One to fill, if there is one; it is taken until [`Self::on_drained`] or
    /// [`Self::on_not_staged`].
    pub fn reserve(&mut self) -> Option<Slot> {
        if !self.has_room() {
            return None;
        }
        self.reserved += 1;
        let slot = self.free.pop().map(|Reverse(slot)| slot);
        Some(slot.unwrap_or_else(|| {
            self.unused += 1;
            Slot(self.unused - 1)
        }))
    }

    /// One that was reserved is filled.
    pub fn on_staged(&mut self) {
        self.reserved -= 1;
    }

    /// Nothing was put into one that was reserved.
    pub fn on_not_staged(&mut self, slot: Slot) {
        self.reserved -= 1;
        self.free.push(Reverse(slot));
    }

    /// What was in it is in memory, or lost.
    pub fn on_drained(&mut self, slot: Slot) {
        self.free.push(Reverse(slot));
    }

    /// No further one is filled.
    pub fn close(&mut self) {
        self.is_closed = true;
    }
}

/// A stage: what waits in which place of its log, by the OST that it goes to.
#[derive(Debug)]
pub struct Stage<F> {
    slots: Slots,
    waiting: Vec<VecDeque<(Slot, F)>>,
    /// The OST to ask first next time.
    turn: usize,
}

impl<F> Stage<F> {
    /// An empty stage with this log.
    #[must_use]
    pub fn new(slots: Slots) -> Self {
        Self { slots, waiting: Vec::new(), turn: 0 }
    }

    /// Reports whether a further frame may be staged.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.slots.has_room()
    }

    /// A place for a frame, if there is one; it is taken until [`Self::on_drained`] or
    /// [`Self::on_not_staged`].
    pub fn reserve(&mut self) -> Option<Slot> {
        self.slots.reserve()
    }

    /// A frame is in its place, and waits until it may go on to its OST.
    pub fn on_staged(&mut self, slot: Slot, ost: OstId, frame: F) {
        self.slots.on_staged();
        if self.waiting.len() <= ost.index() {
            self.waiting.resize_with(ost.index() + 1, VecDeque::new);
        }
        self.waiting[ost.index()].push_back((slot, frame));
    }

    /// Nothing was put into a place that was reserved.
    pub fn on_not_staged(&mut self, slot: Slot) {
        self.slots.on_not_staged(slot);
    }

    /// What [`Self::next`] gave is in memory, or lost.
    pub fn on_drained(&mut self, slot: Slot) {
        self.slots.on_drained(slot);
    }

    /// Nothing more is staged; what waits can still be brought back.
    pub fn close(&mut self) {
        self.slots.close();
    }

    /// Reports whether a frame waits for an OST for which there is room.
    pub fn has_ready(&self, has_room: impl Fn(OstId) -> bool) -> bool {
        (0..self.waiting.len()).any(|index| self.is_ready(index, &has_room))
    }

    /// The frame that waited longest for the next OST in turn for which there is room. Its place
    /// is taken until [`Self::on_drained`].
    pub fn next(&mut self, has_room: impl Fn(OstId) -> bool) -> Option<(OstId, Slot, F)> {
        let count = self.waiting.len();
        let index = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|&index| self.is_ready(index, &has_room))?;
        self.turn = (index + 1) % count;
        let (slot, frame) = self.waiting[index].pop_front()?;
        Some((OstId::from_index(index), slot, frame))
    }

    /// Forgets the frames that wait and are not to be kept.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&F) -> bool) {
        let Self { waiting, slots, .. } = self;
        for queue in waiting {
            queue.retain(|(slot, frame)| {
                let is_kept = is_kept(frame);
                if !is_kept {
                    slots.on_drained(*slot);
                }
                is_kept
            });
        }
    }

    fn is_ready(&self, index: usize, has_room: impl Fn(OstId) -> bool) -> bool {
        !self.waiting[index].is_empty() && has_room(OstId::from_index(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT_BYTES: u32 = 1 << 20;

    fn stage(slots: u64) -> Stage<&'static str> {
        Stage::new(Slots::new(slots * u64::from(SLOT_BYTES) + 5, SLOT_BYTES, 5))
    }

    fn put(stage: &mut Stage<&'static str>, ost: u32, frame: &'static str) -> Slot {
        let slot = stage.reserve().unwrap();
        stage.on_staged(slot, OstId(ost), frame);
        slot
    }

    #[test]
    fn a_stage_holds_no_more_than_its_size() {
        let mut stage = stage(2);
        put(&mut stage, 0, "a");
        put(&mut stage, 0, "b");
        assert!(!stage.has_room());
        assert_eq!(stage.reserve(), None);
        let (_, slot, _) = stage.next(|_| true).unwrap();
        assert_eq!(stage.reserve(), None, "it is still read");
        stage.on_drained(slot);
        assert_eq!(stage.reserve(), Some(slot));
    }

    #[test]
    fn not_all_are_on_their_way_into_it_at_a_time() {
        let mut stage = stage(9);
        let slots: Vec<_> = std::iter::from_fn(|| stage.reserve()).collect();
        assert_eq!(slots.len(), 5);
        stage.on_staged(slots[0], OstId(0), "a");
        stage.on_not_staged(slots[4]);
        assert_eq!(std::iter::from_fn(|| stage.reserve()).count(), 2);
    }

    #[test]
    fn the_first_free_place_is_taken() {
        let mut stage = stage(9);
        let slots: Vec<_> = (0..4).map(|_| stage.reserve().unwrap()).collect();
        assert_eq!(slots, [Slot(0), Slot(1), Slot(2), Slot(3)]);
        stage.on_not_staged(Slot(2));
        stage.on_not_staged(Slot(1));
        let slots: Vec<_> = (0..3).map(|_| stage.reserve().unwrap()).collect();
        assert_eq!(slots, [Slot(1), Slot(2), Slot(4)]);
        assert_eq!(Slot(4).offset(SLOT_BYTES), 4 << 20);
    }

    #[test]
    fn what_waited_longest_comes_first_and_osts_take_turns() {
        let mut stage = stage(9);
        for (ost, frame) in [(0, "a"), (0, "b"), (2, "c"), (2, "d"), (1, "e")] {
            put(&mut stage, ost, frame);
        }
        let has_room = |ost: OstId| ost != OstId(1);
        let next = |stage: &mut Stage<_>| stage.next(has_room).map(|(_, _, frame)| frame);
        let order: Vec<_> = std::iter::from_fn(|| next(&mut stage)).collect();
        assert_eq!(order, ["a", "c", "b", "d"]);
        assert!(!stage.has_ready(has_room) && stage.has_ready(|_| true));
    }

    #[test]
    fn what_waits_in_a_closed_stage_comes_back() {
        let mut stage = stage(9);
        put(&mut stage, 0, "a");
        stage.close();
        assert!(!stage.has_room());
        assert_eq!(stage.next(|_| true).unwrap().2, "a");
    }

    #[test]
    fn what_is_not_kept_makes_room() {
        let mut stage = stage(2);
        put(&mut stage, 0, "a");
        put(&mut stage, 1, "b");
        stage.retain(|frame| *frame == "b");
        assert!(stage.has_room());
        assert_eq!(stage.next(|_| true).unwrap().2, "b");
        assert_eq!(stage.next(|_| true), None);
    }

    #[test]
    fn nothing_is_staged_where_there_is_no_stage() {
        assert!(!Slots::new(0, SLOT_BYTES, 5).has_room());
    }
}
