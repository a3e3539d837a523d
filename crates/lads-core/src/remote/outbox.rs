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
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
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
    /// How many frames each view has, and how many of them are not sent.
    of_views: HashMap<ViewNumber, OfView>,
    /// Of those that are not sent, those whose buffer is in memory and stays there.
    waiting: BTreeSet<u64>,
    /// Frames that were sent to a server that has ended, in the order in which they were sent: they
    /// are sent before all others.
    first: VecDeque<u64>,
    /// The number of frames that were sent so far, without these.
    sent: u64,
    /// Frames that are sent, by the number of frames that were sent before.
    under_way: BTreeMap<u64, u64>,
    /// Those of them that are sent once more, with the same numbers: the connection broke.
    once_more: BTreeSet<u64>,
    /// Frames that were refused and are not written, by the numbers that they had first: requests
    /// that were made after these come after them.
    refused: BTreeMap<u64, u64>,
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

#[derive(Clone, Copy, Debug, Default)]
struct OfView {
    all: u64,
    unsent: u64,
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

impl<B, T> Frame<B, T> {
    /// As it is announced; `id` is the number of frames that were put in before it.
    fn unsent(&self, id: u64) -> Unsent {
        let Goes { view, positions, .. } = &self.goes;
        let length = positions.end - positions.start;
        Unsent {
            write: WriteNumber::after(id),
            view: *view,
            position: positions.start,
            length: length.try_into().expect("a frame is shorter"),
        }
    }
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

/// A frame that is not written, at a server that was started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The number of frames that were put in before it.
    pub id: u64,
    /// If it was sent: the number that it had.
    pub before: Option<u64>,
    /// As it is announced.
    pub unsent: Unsent,
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
            of_views: HashMap::new(),
            waiting: BTreeSet::new(),
            first: VecDeque::new(),
            sent: 0,
            under_way: BTreeMap::new(),
            once_more: BTreeSet::new(),
            refused: BTreeMap::new(),
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
        self.of_views.entry(goes.view).or_default().all += 1;
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

    /// The number of frames that were put in before the first that is not written.
    #[must_use]
    pub fn first_unwritten(&self) -> u64 {
        self.frames.first_key_value().map_or(self.count, |(id, _)| *id)
    }

    /// The number of frames that come before the next one that was never sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent + self.first.len() as u64
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

    /// Reports whether a frame of a view is not written at the server, as far as is known here.
    #[must_use]
    pub fn is_unwritten_of_view(&self, view: ViewNumber) -> bool {
        self.of_views.contains_key(&view)
    }

    /// Reports whether a frame of a view is not sent yet.
    #[must_use]
    pub fn is_unsent_of_view(&self, view: ViewNumber) -> bool {
        self.of_views.get(&view).is_some_and(|of| of.unsent > 0)
    }

    fn unsent_before(&self, count: u64) -> impl Iterator<Item = &Frame<B, T>> {
        self.unsent.range(..count).map(|id| &self.frames[id])
    }

    /// The connection is there again, and this many frames were there before it broke. Those that
    /// were sent after them are sent once more, before all others. Returns whether as many can have
    /// been there.
    pub fn resume(&mut self, frames: u64) -> bool {
        self.once_more = self.under_way.range(frames..).map(|(number, _)| *number).collect();
        frames <= self.sent
    }

    /// The server was started again, and knows of no frame. Those that were sent are sent again as
    /// room is granted, before all others and in their order, with new numbers: what is told of an
    /// old one is never about another frame. One that was refused is among them, for requests that
    /// were made after it wait for it. Returns all frames that are not written: none counts as
    /// announced ([`Self::announce_one`]).
    pub fn restart(&mut self) -> Vec<Unwritten> {
        let mut were_sent = std::mem::take(&mut self.refused);
        let refused: BTreeSet<_> = were_sent.values().copied().collect();
        refused.iter().for_each(|id| self.take_from_unsent(*id, self.frames[id].goes.view));
        let under_way = std::mem::take(&mut self.under_way);
        were_sent.extend(under_way.into_iter().filter(|(_, id)| !refused.contains(id)));
        let mut before: HashMap<u64, u64> =
            (self.sent..).zip(&self.first).map(|(number, id)| (*id, number)).collect();
        before.extend(were_sent.iter().map(|(number, id)| (*id, *number)));
        were_sent.values().rev().for_each(|id| self.first.push_front(*id));
        self.once_more.clear();
        self.recalled.clear();
        self.grants = 0;
        let unwritten = self.frames.iter_mut().map(|(id, frame)| {
            frame.is_announced = false;
            Unwritten { id: *id, before: before.get(id).copied(), unsent: frame.unsent(*id) }
        });
        unwritten.collect()
    }

    /// The server knows of a frame from now on.
    pub fn announce_one(&mut self, id: u64) {
        if let Some(frame) = self.frames.get_mut(&id) {
            frame.is_announced = true;
        }
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
        match self.first.pop_front() {
            Some(first) => debug_assert_eq!(first, id, "it is the next"),
            None => self.take_from_unsent(id, self.frames[&id].goes.view),
        }
        self.under_way.insert(number, id);
        Some((number, id))
    }

    /// Returns the frames that are neither sent nor announced, and marks them as announced.
    pub fn announce(&mut self) -> Vec<Unsent> {
        let mut news = Vec::new();
        for id in &self.unsent {
            let frame = self.frames.get_mut(id).expect("it is not sent");
            if !std::mem::replace(&mut frame.is_announced, true) {
                news.push(frame.unsent(*id));
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
        if !self.refused.values().any(|refused| *refused == id) {
            self.refused.insert(number, id);
        }
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
        self.of_views.entry(view).or_default().unsent += 1;
        self.unsent.insert(id);
    }

    /// A frame of a view is sent, or forgotten.
    fn take_from_unsent(&mut self, id: u64, view: ViewNumber) {
        self.waiting.remove(&id);
        self.recalled.remove(&id);
        if self.unsent.remove(&id) {
            self.of_views.entry(view).or_default().unsent -= 1;
        }
    }

    /// A frame of a view is written, or forgotten.
    fn take_from_view(&mut self, view: ViewNumber) {
        let of = self.of_views.entry(view).or_default();
        of.all -= 1;
        if of.all == 0 {
            self.of_views.remove(&view);
        }
    }

    /// Reports whether there is a frame that can be sent now.
    #[must_use]
    pub fn has_next(&self) -> bool {
        let oldest = self.first.front().or_else(|| self.unsent.first());
        let is_moving = oldest.is_none_or(|oldest| self.is_moving(*oldest));
        self.is_resuming() || !is_moving && self.grants > 0 || self.find_next(false).is_some()
    }

    fn find_next(&self, is_waited_for: bool) -> Option<u64> {
        if self.grants == 0 {
            return None;
        }
        if let Some(first) = self.first.front() {
            return (!self.is_moving(*first)).then_some(*first);
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
        self.refused.retain(|_, refused| *refused != id);
        self.take_from_view(frame.goes.view);
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
            self.take_from_view(frame.goes.view);
            self.in_memory -= 1;
        }
        gone.into_iter().map(|(_, frame)| frame.about).collect()
    }

    /// Forgets all frames: they cannot be sent.
    pub fn clear(&mut self) {
        self.frames.clear();
        self.unsent.clear();
        self.of_views.clear();
        self.first.clear();
        self.waiting.clear();
        self.under_way.clear();
        self.once_more.clear();
        self.refused.clear();
        self.recalled.clear();
        self.in_memory = 0;
    }
}

#[cfg(test)]
mod tests;
