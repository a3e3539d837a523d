//! What a client has to send: which buffer goes next, and which one goes to the local disk so that
//! its memory is free.
//!
//! Buffers in memory are sent first, from the oldest on: that makes room for what the program
//! writes next. When there is no room, the newest of them is staged, and is sent when no other is
//! in memory, or somebody waits for it (foreground and background staging, the RFS paper, section
//! 3.2). The paper sends buffers strictly in their order. A program that computes too briefly
//! then sends what it staged before, which frees no memory, and must stage everything: of five
//! snapshots of which 60 % can be sent in a phase, 82 % in place of 40 %.
//!
//! A buffer never overtakes an earlier one with bytes of the file in common. One that another
//! process waits for ([`super::writes`]) is sent before all others, after those that it cannot
//! overtake.
//!
//! ```text
//!          put             start_staging         on_staged
//!   free ───────► memory ────────────────► staging ───────► staged
//!                   │  ▲                      │                │
//!                   │  └──────────────────────┘ on_not_staged  │
//!                   │ next                                     │ next
//!                   └────────────► sent ◄──────────────────────┘
//!                                   │ on_written
//!                                   └──────────► free
//! ```
//!
//! A server may refuse a frame that is sent: then it is not sent, and is sent again.

use super::message::{FRAME_BYTES, FileNumber, FrameOf, Unsent, ViewNumber, WriteNumber};
use super::policy::{BUFFER_BYTES_MIN, BUFFERS_MIN, WAITING_IN_MEMORY, WAITING_PART};
use crate::staging::{Slot, Slots};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Returns how long a buffer is, of a client with as much memory for all of them: a power of two,
/// and at most a frame.
#[must_use]
pub fn buffer_bytes(all_bytes: u64) -> u32 {
    let bytes = (all_bytes / BUFFERS_MIN).max(BUFFER_BYTES_MIN);
    FRAME_BYTES.min(1 << bytes.ilog2().min(31))
}

/// The buffers of a client that are not written at the server.
#[derive(Debug)]
pub struct Outbox<B, T> {
    /// By the number of frames that were put in before.
    frames: BTreeMap<u64, Frame<B, T>>,
    /// The number of frames that were put in so far.
    count: u64,
    /// Frames that are not sent.
    unsent: BTreeSet<u64>,
    /// How many of these each view has.
    unsent_of_views: HashMap<ViewNumber, u64>,
    /// Of those that are not sent, those whose buffer is in memory and stays there.
    waiting: BTreeSet<u64>,
    /// The number of frames that were sent so far.
    sent: u64,
    /// Frames that are sent, by the number of frames that were sent before.
    under_way: BTreeMap<u64, u64>,
    /// Those of them that are sent once more, with the same numbers: the connection broke.
    once_more: BTreeSet<u64>,
    /// Frames that are not sent and that others wait for.
    recalled: BTreeSet<u64>,
    /// For how many frames the server has room.
    grants: u32,
    /// How many frames have their buffer in memory, sent or not.
    in_memory: u32,
    /// How many stay in memory when others are staged in the background.
    waiting_min: usize,
    slots: Slots,
}

#[derive(Debug)]
struct Frame<B, T> {
    goes: Goes,
    about: T,
    place: Place<B>,
    /// Whether the server knows of it.
    is_announced: bool,
}

/// Where a frame goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Goes {
    /// The file.
    pub file: FileNumber,
    /// The view.
    pub view: ViewNumber,
    /// The positions in the stream of the view.
    pub positions: Range<u64>,
    /// The bytes of the file between its first and its last.
    pub reach: Range<u64>,
}

impl Goes {
    fn meets(&self, file: FileNumber, reach: &Range<u64>) -> bool {
        self.file == file && self.reach.start < reach.end && reach.start < self.reach.end
    }
}

/// Where the bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<B> {
    /// In this buffer.
    Memory(B),
    /// In this buffer, and on their way to the local disk.
    Staging(B),
    /// On the local disk.
    Staged(Slot),
}

/// A frame that is to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Next<B, T> {
    /// The number of frames that were sent before it.
    pub number: u64,
    /// What its row says of it.
    pub of: FrameOf,
    /// What is known about it.
    pub about: T,
    /// Where its bytes are.
    pub place: Place<B>,
    /// Whether there is no further grant.
    pub is_last_grant: bool,
}

/// A frame that is written.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone<T> {
    /// Its file.
    pub file: FileNumber,
    /// What is known about it.
    pub about: T,
    /// If it is on the local disk: the number of frames that were put in before it, and its slot.
    pub staged: Option<(u64, Slot)>,
}

/// A frame that is to be staged.
#[derive(Debug, PartialEq, Eq)]
pub struct Staging<B, T> {
    /// The number of frames that were put in before it.
    pub id: u64,
    /// What is known about it.
    pub about: T,
    /// Its bytes.
    pub buffer: B,
    /// Where they go.
    pub slot: Slot,
}

impl<B: Clone, T: Clone> Outbox<B, T> {
    /// An empty outbox, for as many buffers. Without slots nothing is ever staged.
    #[must_use]
    pub fn new(buffers: u32, slots: Slots) -> Self {
        Self {
            frames: BTreeMap::new(),
            count: 0,
            unsent: BTreeSet::new(),
            unsent_of_views: HashMap::new(),
            waiting: BTreeSet::new(),
            sent: 0,
            under_way: BTreeMap::new(),
            once_more: BTreeSet::new(),
            recalled: BTreeSet::new(),
            grants: 0,
            in_memory: 0,
            waiting_min: WAITING_IN_MEMORY.min((buffers / WAITING_PART) as usize),
            slots,
        }
    }

    /// A buffer is to be sent.
    pub fn put(&mut self, goes: Goes, about: T, buffer: B) {
        let place = Place::Memory(buffer);
        self.add_to_unsent(self.count, goes.view);
        self.frames.insert(self.count, Frame { goes, about, place, is_announced: false });
        self.waiting.insert(self.count);
        self.in_memory += 1;
        self.count += 1;
    }

    /// The server has room for further frames.
    pub fn on_grant(&mut self, count: u32) {
        self.grants = self.grants.saturating_add(count);
    }

    /// Reports whether the server has no room for a frame.
    #[must_use]
    pub fn is_without_grant(&self) -> bool {
        self.grants == 0
    }

    /// The number of frames that were put in so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The number of frames that were sent so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns how many buffers are in memory, sent or not.
    #[must_use]
    pub fn in_memory(&self) -> u32 {
        self.in_memory
    }

    /// Returns how many frames are not sent.
    #[must_use]
    pub fn unsent_count(&self) -> usize {
        self.unsent.len()
    }

    /// Returns how many frames are sent and not written.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Reports whether a frame is sent and not written, by the number of frames that were sent
    /// before it.
    #[must_use]
    pub fn is_in_flight(&self, number: u64) -> bool {
        self.under_way.contains_key(&number)
    }

    /// Reports whether nothing is left to be written at the server.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// What is known about the frames that are not written.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.frames.values().map(|frame| &frame.about)
    }

    /// Reports whether a frame is on its way to the local disk.
    #[must_use]
    pub fn is_staging(&self) -> bool {
        self.frames.keys().any(|id| self.is_moving(*id))
    }

    /// Reports whether a frame of a file that was put in before this many is not sent yet.
    #[must_use]
    pub fn is_unsent(&self, file: FileNumber, count: u64) -> bool {
        self.unsent_before(count).any(|frame| frame.goes.file == file)
    }

    /// Reports whether a frame of a file is not written at the server, as far as is known here.
    #[must_use]
    pub fn is_unwritten(&self, file: FileNumber) -> bool {
        self.frames.values().any(|frame| frame.goes.file == file)
    }

    /// Reports whether a frame that was put in before this many is not written at the server, as
    /// far as is known here.
    #[must_use]
    pub fn is_unwritten_before(&self, count: u64) -> bool {
        self.frames.first_key_value().is_some_and(|(id, _)| *id < count)
    }

    /// Reports whether one of them has bytes in common with these of the file.
    #[must_use]
    pub fn is_unsent_in(&self, file: FileNumber, reach: &Range<u64>, count: u64) -> bool {
        self.unsent_before(count).any(|frame| frame.goes.meets(file, reach))
    }

    /// Reports whether a frame of a view is not sent yet.
    #[must_use]
    pub fn is_unsent_of_view(&self, view: ViewNumber) -> bool {
        self.unsent_of_views.contains_key(&view)
    }

    fn unsent_before(&self, count: u64) -> impl Iterator<Item = &Frame<B, T>> {
        self.unsent.range(..count).map(|id| &self.frames[id])
    }

    /// The connection is there again, and this many frames were there before it broke. Those that
    /// were sent after them are sent once more, before all others.
    pub fn resume(&mut self, frames: u64) {
        self.once_more = self.under_way.range(frames..).map(|(number, _)| *number).collect();
    }

    /// Reports whether frames are to be sent once more.
    #[must_use]
    pub fn is_resuming(&self) -> bool {
        !self.once_more.is_empty()
    }

    /// The next frame that can be sent now. It counts as sent from then on; a buffer in memory is
    /// kept until it is written. Somebody waits for a frame: then the oldest goes first.
    pub fn next(&mut self, is_waited_for: bool) -> Option<Next<B, T>> {
        let (number, id) = match self.once_more.pop_first() {
            Some(number) => (number, self.under_way[&number]),
            None => self.next_new(is_waited_for)?,
        };
        let frame = &self.frames[&id];
        let (about, place, view) = (frame.about.clone(), frame.place.clone(), frame.goes.view);
        let (write, is_announced) = (WriteNumber::after(id), frame.is_announced);
        let of = FrameOf { view, write, is_announced };
        let is_last_grant = self.grants == 0 && self.once_more.is_empty();
        Some(Next { number, of, about, place, is_last_grant })
    }

    /// The next frame that was not sent, and its number from now on.
    fn next_new(&mut self, is_waited_for: bool) -> Option<(u64, u64)> {
        let id = self.find_next(is_waited_for)?;
        let number = self.sent;
        self.sent += 1;
        self.grants -= 1;
        let view = self.frames[&id].goes.view;
        self.take_from_unsent(id, view);
        self.under_way.insert(number, id);
        Some((number, id))
    }

    /// Returns the frames that are neither sent nor announced, and marks them as announced.
    pub fn announce(&mut self) -> Vec<Unsent> {
        let mut news = Vec::new();
        for id in &self.unsent {
            let frame = self.frames.get_mut(id).expect("it is not sent");
            if !std::mem::replace(&mut frame.is_announced, true) {
                let Goes { view, positions, .. } = &frame.goes;
                let length = positions.end - positions.start;
                news.push(Unsent {
                    write: WriteNumber::after(*id),
                    view: *view,
                    position: positions.start,
                    length: length.try_into().expect("a frame is shorter"),
                });
            }
        }
        news
    }

    /// Others wait for a write that was announced. Nothing is done if it is sent.
    pub fn recall(&mut self, write: WriteNumber) {
        let id = self.unsent.iter().find(|id| WriteNumber::after(**id) == write).copied();
        self.recalled.extend(id);
    }

    /// Reports whether others wait for a frame that is not sent.
    #[must_use]
    pub fn is_recalled(&self) -> bool {
        !self.recalled.is_empty()
    }

    /// A frame was refused, and can be sent again.
    pub fn again(&mut self, number: u64) {
        let Some(id) = self.under_way.remove(&number) else { return };
        self.once_more.remove(&number);
        let frame = self.frames.get_mut(&id).expect("it is not written");
        frame.is_announced = true;
        let (view, is_in_memory) = (frame.goes.view, matches!(frame.place, Place::Memory(_)));
        self.add_to_unsent(id, view);
        if is_in_memory {
            self.waiting.insert(id);
        }
        self.recalled.insert(id);
    }

    fn add_to_unsent(&mut self, id: u64, view: ViewNumber) {
        *self.unsent_of_views.entry(view).or_default() += 1;
        self.unsent.insert(id);
    }

    /// A frame of a view is sent, or forgotten.
    fn take_from_unsent(&mut self, id: u64, view: ViewNumber) {
        self.waiting.remove(&id);
        self.recalled.remove(&id);
        if !self.unsent.remove(&id) {
            return;
        }
        let left = self.unsent_of_views.get_mut(&view).expect("it was counted");
        *left -= 1;
        if *left == 0 {
            self.unsent_of_views.remove(&view);
        }
    }

    /// Reports whether there is a frame that can be sent now.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let is_moving = self.unsent.first().is_none_or(|oldest| self.is_moving(*oldest));
        self.is_resuming() || !is_moving && self.grants > 0 || self.find_next(false).is_some()
    }

    fn find_next(&self, is_waited_for: bool) -> Option<u64> {
        if self.grants == 0 {
            return None;
        }
        let oldest = *self.unsent.first()?;
        let may_overtake = |id: &&u64| {
            let goes = &self.frames[*id].goes;
            !self.is_unsent_in(goes.file, &goes.reach, **id)
        };
        let in_memory = || self.waiting.iter().find(may_overtake).copied();
        let next = match self.recalled.first() {
            Some(recalled) => self.first_before(*recalled),
            None if is_waited_for => oldest,
            None => in_memory().unwrap_or(oldest),
        };
        if !self.is_moving(next) {
            return Some(next);
        }
        in_memory().or_else(|| (!self.is_moving(oldest)).then_some(oldest))
    }

    /// The first frame that must be sent before this one, or this one.
    fn first_before(&self, mut id: u64) -> u64 {
        loop {
            let goes = &self.frames[&id].goes;
            let is_before = |other: &&u64| self.frames[*other].goes.meets(goes.file, &goes.reach);
            match self.unsent.range(..id).find(is_before) {
                Some(before) => id = *before,
                None => return id,
            }
        }
    }

    /// Whether a frame is on its way to the local disk.
    fn is_moving(&self, id: u64) -> bool {
        matches!(self.frames[&id].place, Place::Staging(_))
    }

    /// A frame is written at the server, or cannot be. `None` if it was not sent, or this was said
    /// before. If it is on the local disk, its slot is used again after [`Self::free`].
    pub fn on_written(&mut self, number: u64) -> Option<Gone<T>> {
        let id = self.under_way.remove(&number)?;
        self.once_more.remove(&number);
        let frame = self.frames.remove(&id)?;
        let staged = match frame.place {
            Place::Staged(slot) => Some((id, slot)),
            Place::Memory(_) | Place::Staging(_) => {
                self.in_memory -= 1;
                None
            }
        };
        Some(Gone { file: frame.goes.file, about: frame.about, staged })
    }

    /// The slot of a frame that is written may be used again.
    pub fn free(&mut self, slot: Slot) {
        self.slots.on_drained(slot);
    }

    /// The newest frame in memory, to be staged, if there is room: the program waits for a buffer.
    pub fn start_staging(&mut self) -> Option<Staging<B, T>> {
        let newest = *self.waiting.last()?;
        self.stage(newest)
    }

    /// The newest frame in memory, to be staged while the program computes, if there is room and
    /// enough others wait.
    pub fn start_staging_ahead(&mut self) -> Option<Staging<B, T>> {
        let is_much = self.waiting.len() > self.waiting_min;
        if is_much { self.start_staging() } else { None }
    }

    /// The oldest frame in memory, sent or not, to be staged: the connection is lost.
    pub fn start_keeping(&mut self) -> Option<Staging<B, T>> {
        let in_memory = |(id, frame): (&u64, &Frame<B, T>)| {
            matches!(frame.place, Place::Memory(_)).then_some(*id)
        };
        let oldest = self.frames.iter().find_map(in_memory)?;
        self.stage(oldest)
    }

    fn stage(&mut self, id: u64) -> Option<Staging<B, T>> {
        let frame = self.frames.get_mut(&id)?;
        let Place::Memory(buffer) = &frame.place else { return None };
        let slot = self.slots.reserve()?;
        let buffer = buffer.clone();
        frame.place = Place::Staging(buffer.clone());
        self.waiting.remove(&id);
        Some(Staging { id, about: frame.about.clone(), buffer, slot })
    }

    /// A frame is on the local disk; its memory is free.
    pub fn on_staged(&mut self, id: u64, slot: Slot) {
        self.slots.on_staged();
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.place = Place::Staged(slot);
            self.in_memory -= 1;
        }
    }

    /// A frame could not be put on the local disk. Nothing more is staged.
    pub fn on_not_staged(&mut self, id: u64, slot: Slot) {
        self.slots.on_not_staged(slot);
        self.slots.close();
        let Some(frame) = self.frames.get_mut(&id) else { return };
        if let Place::Staging(buffer) = &frame.place {
            frame.place = Place::Memory(buffer.clone());
        }
        if self.unsent.contains(&id) {
            self.waiting.insert(id);
        }
    }

    /// Forgets the frames in memory: they can neither be sent nor staged. Returns what is known
    /// about them.
    pub fn forget_in_memory(&mut self) -> Vec<T> {
        let is_in_memory = |frame: &Frame<B, T>| matches!(frame.place, Place::Memory(_));
        let gone: Vec<_> = self.frames.extract_if(.., |_, frame| is_in_memory(frame)).collect();
        for (id, frame) in &gone {
            self.take_from_unsent(*id, frame.goes.view);
            self.in_memory -= 1;
        }
        gone.into_iter().map(|(_, frame)| frame.about).collect()
    }

    /// Forgets all frames: they cannot be sent.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.unsent.clear();
        self.unsent_of_views.clear();
        self.waiting.clear();
        self.under_way.clear();
        self.once_more.clear();
        self.recalled.clear();
        self.in_memory = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLOT_BYTES: u32 = 1 << 20;
    const FILE: FileNumber = FileNumber(1);

    fn outbox(slots: u64) -> Outbox<u64, u64> {
        let mut outbox = Outbox::new(16, Slots::new(slots * u64::from(SLOT_BYTES), SLOT_BYTES, 2));
        outbox.on_grant(u32::MAX);
        outbox
    }

    fn goes(start: u64) -> Goes {
        Goes {
            file: FILE,
            view: ViewNumber(1),
            positions: start..start + 1,
            reach: start..start + 1,
        }
    }

    fn filled(slots: u64, frames: u64) -> Outbox<u64, u64> {
        let mut outbox = outbox(slots);
        (0..frames).for_each(|frame| outbox.put(goes(frame), frame, frame));
        outbox
    }

    fn written(outbox: &mut Outbox<u64, u64>, number: u64) -> Option<u64> {
        let gone = outbox.on_written(number)?;
        assert_eq!(gone.file, FILE);
        gone.staged.into_iter().for_each(|(_, slot)| outbox.free(slot));
        Some(gone.about)
    }

    fn stage(outbox: &mut Outbox<u64, u64>) -> Option<(u64, Slot)> {
        let Staging { id, slot, .. } = outbox.start_staging_ahead()?;
        outbox.on_staged(id, slot);
        Some((id, slot))
    }

    /// The next frame, and whether it is in memory.
    fn next(outbox: &mut Outbox<u64, u64>, is_waited_for: bool) -> Option<(u64, bool)> {
        assert_eq!(outbox.has_next(), outbox.find_next(is_waited_for).is_some());
        let Next { about, place, .. } = outbox.next(is_waited_for)?;
        Some((about, matches!(place, Place::Memory(_))))
    }

    #[test]
    fn little_memory_is_cut_into_shorter_buffers() {
        let of_mib = |mib: u64| buffer_bytes(mib << 20) >> 10;
        assert_eq!([0, 1, 8, 17, 63, 64, 1 << 43].map(of_mib), [64, 64, 128, 256, 512, 1024, 1024]);
    }

    #[test]
    fn frames_are_sent_in_order_and_kept_until_they_are_written() {
        let mut outbox = filled(0, 2);
        assert!(outbox.is_unsent(FILE, 1) && !outbox.is_unsent(FileNumber(2), 2));
        assert_eq!(next(&mut outbox, false), Some((0, true)));
        assert!(!outbox.is_unsent(FILE, 1) && outbox.is_unsent(FILE, 2));
        assert_eq!(written(&mut outbox, 1), None, "it was not sent");
        assert_eq!(next(&mut outbox, false), Some((1, true)));
        assert_eq!(next(&mut outbox, false), None);
        assert!(!outbox.is_unsent_of_view(ViewNumber(1)));
        assert_eq!((outbox.under_way(), outbox.in_memory()), (2, 2));
        assert!(outbox.is_in_flight(0) && outbox.is_in_flight(1) && !outbox.is_in_flight(2));
        assert!(outbox.is_unwritten(FILE) && !outbox.is_unwritten(FileNumber(2)));
        assert_eq!(written(&mut outbox, 1), Some(1));
        assert!(!outbox.is_in_flight(1));
        assert_eq!(written(&mut outbox, 1), None, "it was said before");
        assert_eq!(written(&mut outbox, 0), Some(0));
        assert!(outbox.is_empty() && outbox.in_memory() == 0 && !outbox.is_unwritten(FILE));
    }

    #[test]
    fn the_newest_are_staged_and_two_stay() {
        let mut outbox = filled(9, 4);
        assert_eq!(stage(&mut outbox), Some((3, Slot(0))));
        assert_eq!(stage(&mut outbox), Some((2, Slot(1))));
        assert_eq!(stage(&mut outbox), None);
        assert_eq!(outbox.in_memory(), 2);
        let last = outbox.start_staging().expect("the program waits");
        assert_eq!(last.id, 1);
        outbox.on_staged(1, last.slot);
        let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, false)).collect();
        assert_eq!(sent, [(0, true), (1, false), (2, false), (3, false)]);
        assert_eq!(outbox.on_written(0).unwrap().staged, None);
        let gone = Gone { file: FILE, about: 2, staged: Some((2, Slot(1))) };
        assert_eq!(outbox.on_written(2), Some(gone));
        (4..7).for_each(|frame| outbox.put(goes(frame), frame, frame));
        let unused = outbox.start_staging().expect("three wait");
        assert_eq!(unused.slot, Slot(3), "nobody has said that the place of 2 is free");
        outbox.on_staged(unused.id, unused.slot);
        outbox.put(goes(7), 7, 7);
        outbox.free(Slot(1));
        assert_eq!(stage(&mut outbox), Some((7, Slot(1))), "its place is free again");
    }

    #[test]
    fn of_few_buffers_all_that_wait_may_be_staged() {
        let mut outbox = Outbox::new(7, Slots::new(9 << 20, SLOT_BYTES, 2));
        outbox.put(goes(0), 0, 0);
        assert_eq!(stage(&mut outbox), Some((0, Slot(0))));
    }

    #[test]
    fn of_eight_buffers_one_stays_beside_those_that_are_under_way() {
        let mut outbox = Outbox::new(8, Slots::new(9 << 20, SLOT_BYTES, 2));
        outbox.on_grant(8);
        (0..4).for_each(|frame| outbox.put(goes(frame), frame, frame));
        next(&mut outbox, false);
        next(&mut outbox, false);
        assert_eq!(stage(&mut outbox), Some((3, Slot(0))));
        assert_eq!(stage(&mut outbox), None, "though three are in memory");
        outbox.put(goes(4), 4, 4);
        assert_eq!(stage(&mut outbox), Some((4, Slot(1))));
    }

    #[test]
    fn what_is_in_memory_overtakes_what_is_staged_unless_bytes_are_the_same() {
        let mut outbox = filled(9, 3);
        stage(&mut outbox);
        outbox.put(goes(3), 3, 3);
        outbox.put(goes(2), 4, 4);
        outbox.put(Goes { file: FileNumber(2), ..goes(2) }, 5, 5);
        let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, false)).collect();
        let ids: Vec<_> = sent.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [0, 1, 3, 5, 2, 4]);
    }

    #[test]
    fn what_somebody_waits_for_comes_in_order() {
        let mut outbox = filled(9, 3);
        stage(&mut outbox);
        outbox.put(goes(3), 3, 3);
        assert!(outbox.is_unsent_in(FILE, &(2..3), 4) && !outbox.is_unsent_in(FILE, &(4..9), 4));
        let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, true)).collect();
        assert_eq!(sent, [(0, true), (1, true), (2, false), (3, true)]);
    }

    #[test]
    fn a_frame_on_its_way_to_the_disk_is_not_sent() {
        let mut outbox = filled(9, 3);
        let Staging { id, slot, .. } = outbox.start_staging().unwrap();
        assert!(outbox.is_staging());
        next(&mut outbox, true);
        next(&mut outbox, true);
        assert_eq!(next(&mut outbox, true), None);
        assert_eq!(next(&mut outbox, false), None);
        outbox.put(goes(3), 3, 3);
        assert_eq!(next(&mut outbox, true), Some((3, true)), "another need not wait");
        outbox.on_staged(id, slot);
        assert!(!outbox.is_staging());
        assert_eq!(next(&mut outbox, false), Some((2, false)));
    }

    /// `has_next` reported a frame, and `next` returned none.
    #[test]
    fn a_recalled_frame_on_its_way_to_the_disk_holds_up_no_staged_one() {
        let mut outbox = filled(9, 2);
        let newest = outbox.start_staging().unwrap();
        let oldest = outbox.start_staging().unwrap();
        outbox.on_staged(oldest.id, oldest.slot);
        outbox.recall(WriteNumber(1));
        assert_eq!(next(&mut outbox, false), Some((0, false)));
        assert_eq!(next(&mut outbox, false), None);
        outbox.on_staged(newest.id, newest.slot);
        assert_eq!(next(&mut outbox, false), Some((1, false)));
    }

    #[test]
    fn a_disk_that_fails_is_not_used_again() {
        let mut outbox = filled(9, 5);
        let first = outbox.start_staging().unwrap();
        outbox.on_not_staged(first.id, first.slot);
        assert_eq!(outbox.start_staging(), None);
        let sent: Vec<_> = std::iter::from_fn(|| next(&mut outbox, false)).collect();
        assert_eq!(sent.len(), 5);
        assert_eq!(sent[4], (4, true));
    }

    #[test]
    fn what_finds_no_room_on_the_disk_is_forgotten_in_the_end() {
        let mut outbox = filled(1, 4);
        next(&mut outbox, false);
        let Staging { id, slot, .. } = outbox.start_keeping().unwrap();
        outbox.on_staged(id, slot);
        assert_eq!(outbox.start_keeping(), None);
        assert_eq!(outbox.forget_in_memory(), [1, 2, 3]);
        assert_eq!((outbox.in_memory(), outbox.has_next()), (0, false));
        assert_eq!(outbox.all().collect::<Vec<_>>(), [&0]);
    }

    #[test]
    fn what_was_sent_and_not_written_is_kept_too() {
        let mut outbox = filled(9, 4);
        stage(&mut outbox);
        next(&mut outbox, false);
        next(&mut outbox, false);
        written(&mut outbox, 0);
        let mut kept = Vec::new();
        while let Some(Staging { id, slot, .. }) = outbox.start_keeping() {
            outbox.on_staged(id, slot);
            kept.push(id);
        }
        assert_eq!(kept, [1, 2]);
        assert_eq!(outbox.all().collect::<Vec<_>>(), [&1, &2, &3]);
        assert_eq!(outbox.in_memory(), 0);
    }

    proptest! {
        /// Whatever happens in whatever order, every frame is sent once, with its bytes, and after
        /// all earlier ones for the same bytes.
        #[test]
        fn all_are_sent_and_none_overtakes_its_like(steps: Vec<u8>) {
            let mut outbox = outbox(5);
            let (mut disk, mut staging, mut under_way) = (HashMap::new(), Vec::new(), Vec::new());
            let mut last_of_place = HashMap::new();
            let mut sent = 0;
            let mut step = |outbox: &mut Outbox<u64, u64>, what: u8| {
                let is_unsent = !outbox.unsent.is_empty();
                assert_eq!(outbox.is_unsent_of_view(ViewNumber(1)), is_unsent);
                match what % 7 {
                    0 | 1 => {
                        let id = outbox.count();
                        outbox.put(goes(u64::from(what / 7 % 6)), id, id);
                    }
                    2 => staging.extend(outbox.start_staging()),
                    3 if !staging.is_empty() => {
                        let Staging { id, buffer, slot, .. } = staging.remove(0);
                        disk.insert(slot, buffer);
                        outbox.on_staged(id, slot);
                    }
                    4 | 5 => {
                        let Some(Next { number, about, place, .. }) = outbox.next(what % 7 == 4)
                        else {
                            return;
                        };
                        let bytes = match place {
                            Place::Memory(bytes) | Place::Staging(bytes) => bytes,
                            Place::Staged(slot) => disk[&slot],
                        };
                        assert_eq!((number, bytes), (sent, about));
                        let start = outbox.frames[&about].goes.reach.start;
                        let before = last_of_place.insert(start, about);
                        assert!(before < Some(about));
                        sent += 1;
                        under_way.push(number);
                    }
                    6 if !under_way.is_empty() => {
                        let number = under_way.swap_remove(usize::from(what) % under_way.len());
                        assert!(written(outbox, number).is_some());
                    }
                    _ => {}
                }
            };
            for what in steps {
                step(&mut outbox, what);
            }
            for what in [3, 3, 4, 6].repeat(outbox.count().try_into().unwrap()) {
                step(&mut outbox, what);
            }
            prop_assert!(outbox.is_empty() && outbox.in_memory() == 0);
            prop_assert_eq!(sent, outbox.count());
        }
    }
}
