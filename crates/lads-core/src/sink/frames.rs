//! Frames from when they begin to arrive until they are written: room for them, the queues in which
//! they wait, and their buffers.
//!
//! A frame that waits here has its buffer here, and nobody else has it: a thread gets it with the
//! task to write, stage or release it, and says so when it is done.

use super::aside::Aside;
use super::event::{BufferId, Place, Write};
use super::{SinkConfig, Task};
use crate::frame::Header;
use crate::pool::{Pool, Requests};
use crate::room::{Grants, Lot};
use crate::schedule::{OstQueues, OstSpec, OstStats, Policy, tracks_of};
use crate::staging::Slot;
use crate::tuning::Tuning;
use crate::units::{EntryId, Instant, OstId};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

/// Whether what is in the stage may be brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    Allowed,
    /// The transfer stops: what is in memory is written, and no more.
    Stopped,
}

/// What arrives and waits.
#[derive(Debug)]
pub(super) struct Frames {
    policy: Policy,
    /// A write that usually takes less than this is done by whoever received it.
    at_once_max: Duration,
    grants: Grants,
    queues: OstQueues<Write>,
    /// The tracks of each target that has any.
    tracks: Vec<Range<usize>>,
    pool: Pool,
    locks: Locks,
    aside: Aside,
    buffers: Buffers,
    to_release: Vec<Write>,
}

impl Frames {
    /// Nothing has arrived.
    pub(super) fn new(config: &SinkConfig) -> Self {
        let rule = config.policy.rule(config.threshold);
        let queues = OstQueues::new(rule, &config.tuning, &config.osts);
        Self {
            policy: config.policy,
            at_once_max: config.at_once_max,
            grants: Grants::new(
                config.buffer_count - config.kept_count(),
                &config.tuning,
                config.osts.iter().map(OstSpec::uses),
                // Otherwise frames would wait in memory that another OST could use, where they are
                // to be put aside.
                config.stage.is_some(),
            ),
            // What waits here can go elsewhere if files grow, what is under way cannot.
            queues: if config.growth.is_some() { queues.sparing() } else { queues },
            tracks: tracks_of(&config.osts),
            pool: Pool::default(),
            locks: Locks::new(&config.osts),
            aside: Aside::new(config.stage, config.buffer_bytes),
            buffers: Buffers::default(),
            to_release: Vec::new(),
        }
    }

    /// From now on at most `most` writes are in flight at a time, or fewer if these are better.
    pub(super) fn match_requests(&mut self, most: u32) {
        self.queues.match_requests(most);
    }

    /// Time has passed.
    pub(super) fn on_time(&mut self, now: Instant) {
        self.queues.on_time(now);
    }

    /// A round trip to the source takes this long.
    pub(super) fn on_round_trip(&mut self, time: Duration, buffer_bytes: u32, tuning: &Tuning) {
        self.grants.on_round_trip(time, buffer_bytes, tuning);
    }

    /// A frame begins to arrive; `false` if there is no room for it.
    pub(super) fn on_arrival(&mut self, header: &Header) -> bool {
        self.grants.on_arrival(header.sink_ost, header.is_last_grant)
    }

    /// A frame has arrived whole.
    pub(super) fn on_arrived(&mut self, ost: OstId) {
        self.grants.on_arrived(ost);
    }

    /// A frame did not arrive whole.
    pub(super) fn on_lost(&mut self, ost: OstId) {
        self.grants.on_lost(ost);
    }

    /// Nothing is left to do of a frame that arrived; its buffer is free.
    pub(super) fn on_empty(&mut self, ost: OstId) {
        self.grants.on_release(ost);
    }

    /// Whether whoever received a frame is to write it at once: then it counts as being written.
    pub(super) fn start_at_once(&mut self, now: Instant, write: &Write) -> bool {
        let is_started = !self.locks.hold_up(write)
            && self.queues.start_at_once(now, write.ost, write.bytes(), self.at_once_max);
        if is_started {
            self.count(write);
        }
        is_started
    }

    /// A frame is being written that did not wait.
    pub(super) fn start(&mut self, now: Instant, write: &Write) {
        self.queues.start(now, write.ost, write.bytes());
        self.count(write);
    }

    /// A frame waits for its OST.
    pub(super) fn push(&mut self, write: Write) {
        self.buffers.put(&write);
        let bytes = write.bytes();
        self.queues.push(write.ost, write, bytes);
    }

    /// Whether there is a thread for a further write.
    pub(super) fn may_write(&self) -> bool {
        self.queues.in_flight_count() < self.aside.writes_max()
    }

    /// Whether something waits for an OST that is free, or could be written by an idle track.
    pub(super) fn has_ready(&self) -> bool {
        let has_ready = match self.locks.are_open() {
            true => self.queues.has_ready(),
            false => self.has_unlocked(),
        };
        has_ready || self.find_overtaking().is_some()
    }

    /// Whether something waits for an OST that is free, and for nothing else.
    fn has_unlocked(&self) -> bool {
        let mut osts = (0..self.queues.ost_count()).map(OstId::from_index);
        let is_unlocked = |write: &Write| !self.locks.hold_up(write);
        osts.any(|ost| self.queues.is_free(ost) && self.queues.waiting(ost).any(is_unlocked))
    }

    /// The track with most to do, and a track of the same target with nothing to do. Tracks keep
    /// files apart, and the parts of a long file; but what has arrived can be written by any.
    ///
    /// With this rule, one file of 2 GiB in 8 stripes on hidden OSTs, one of which is slow, takes
    /// 15.0 s instead of 16.6, and 15.9 instead of 20 if one is slow at the source, too.
    fn find_overtaking(&self) -> Option<(OstId, OstId)> {
        self.tracks.iter().find_map(|target| {
            let tracks = || target.clone().map(OstId::from_index);
            let to =
                tracks().find(|&track| self.queues.is_idle(track) && self.queues.is_free(track))?;
            let waits = |track: &OstId| self.queues.waiting(*track).any(Write::is_in_memory);
            let most = |track: &OstId| self.queues.waiting_count(*track);
            let from = tracks().filter(waits).max_by_key(most)?;
            Some((from, to))
        })
    }

    /// The frame that is written next, not to one of the OSTs that are left alone; it counts as
    /// being written.
    pub(super) fn next(
        &mut self,
        now: Instant,
        drain: Drain,
        left_alone: &[OstId],
    ) -> Option<Write> {
        let Self { aside, queues, locks, .. } = self;
        let take = |ost, waiting: &mut VecDeque<Write>, _| {
            if left_alone.contains(&ost) {
                return None;
            }
            let write = aside.take(waiting, drain, |write| !locks.hold_up(write))?;
            let bytes = write.bytes();
            Some((write, bytes))
        };
        let found = match self.policy.takes_best() {
            true => queues.next_best(now, false, take),
            false => queues.next(now, take),
        };
        let write = match found {
            Some((_, write)) => write,
            None => self.overtake(now)?,
        };
        self.buffers.take(&write);
        self.count(&write);
        Some(write)
    }

    /// A frame that waits behind a write of its track, to be written by an idle track.
    fn overtake(&mut self, now: Instant) -> Option<Write> {
        let (from, to) = self.find_overtaking()?;
        let mut write = self.queues.remove_last(from, Write::is_in_memory, Write::bytes)?;
        write.ost = to;
        self.queues.start(now, to, write.bytes());
        Some(write)
    }

    /// A frame is being written.
    fn count(&mut self, write: &Write) {
        if let Some(file) = file_of(write) {
            self.pool.on_start(file, write.bytes());
        }
        self.locks.on_start(write);
    }

    /// Takes the last frame out of an OST's queue that is `wanted`.
    pub(super) fn remove_last(
        &mut self,
        ost: OstId,
        wanted: impl Fn(&Write) -> bool,
    ) -> Option<Write> {
        let write = self.queues.remove_last(ost, wanted, Write::bytes)?;
        self.buffers.take(&write);
        Some(write)
    }

    /// A frame is written, or compared, or was not: its buffer or its place in the stage is free.
    pub(super) fn on_done(&mut self, now: Instant, write: &Write, service: Duration) {
        if let Some(file) = file_of(write) {
            self.pool.on_finish(file);
        }
        self.locks.on_finish(write);
        self.queues.finish(now, write.ost, write.bytes(), service);
        match write.place {
            Place::Buffer(_) => self.grants.on_release(write.room),
            Place::Stage(slot) => self.aside.on_drained(slot),
        }
    }

    /// Whether [`Self::next_to_stage`] would find something.
    pub(super) fn may_stage(&self) -> bool {
        self.aside.may_stage(&self.queues, &self.grants)
    }

    /// A frame that waits in a buffer that is wanted for another.
    pub(super) fn next_to_stage(&mut self) -> Option<Task> {
        let (write, slot) = self.aside.next(&mut self.queues, &self.grants)?;
        self.buffers.take(&write);
        Some(Task::Stage(write, slot))
    }

    /// A frame is in its place in the stage; its buffer is free. Says how much it is, in bytes.
    pub(super) fn on_staged(&mut self, write: Write) -> u64 {
        let bytes = write.bytes();
        self.aside.on_staged();
        self.grants.on_release(write.room);
        self.push(write);
        bytes
    }

    /// A frame could not be put there: it waits in its buffer, as all others will.
    pub(super) fn on_not_staged(&mut self, write: Write, slot: Slot) {
        self.aside.on_not_staged(slot);
        self.push(write);
    }

    /// A frame could not be brought back from the stage; nothing more is put there.
    pub(super) fn on_not_drained(&mut self, now: Instant, write: &Write, service: Duration) {
        self.on_done(now, write, service);
        self.aside.close();
    }

    /// Frames of a file that is dropped need not be written: their buffers are wanted, and the
    /// source waits to hear that nothing is left of it. Says how many blocks these are.
    pub(super) fn release_waiting(
        &mut self,
        entry: EntryId,
        osts: impl Iterator<Item = OstId>,
    ) -> u32 {
        let is_of_file = |write: &Write| {
            write.is_in_memory() && write.rows.iter().all(|(row, _)| row.block.entry == entry)
        };
        let mut count = 0;
        for ost in osts {
            while let Some(write) = self.remove_last(ost, is_of_file) {
                count += u32::try_from(write.rows.len()).expect("rows are few");
                self.to_release.push(write);
            }
        }
        count
    }

    /// Whether [`Self::next_release`] has something.
    pub(super) fn has_release(&self) -> bool {
        !self.to_release.is_empty()
    }

    /// Buffers that hold nothing that is wanted.
    pub(super) fn next_release(&mut self) -> Option<Task> {
        let writes = std::mem::take(&mut self.to_release);
        (!writes.is_empty()).then_some(Task::Release(writes))
    }

    /// Their buffers are free.
    pub(super) fn on_released(&mut self, writes: &[Write]) {
        for write in writes {
            if let Place::Buffer(_) = write.place {
                self.grants.on_release(write.room);
            }
        }
    }

    /// Whether there is room to be granted.
    pub(super) fn has_grants(&self) -> bool {
        self.grants.has_new()
    }

    /// Room that is granted from now on.
    pub(super) fn take_grants(&mut self) -> Lot {
        self.grants.take_new()
    }

    /// Whether nothing that has arrived is left to be written, but for what is in the stage.
    pub(super) fn is_idle(&self) -> bool {
        self.grants.held_count() == 0 && !self.aside.is_draining()
    }

    /// The queues, to be looked at.
    pub(super) fn queues(&self) -> &OstQueues<Write> {
        &self.queues
    }

    /// What the latest writes were like; `None` before the first.
    pub(super) fn requests(&self) -> Option<Requests> {
        let (limit, why, gain) = self.queues.limit();
        self.pool.requests(limit, why, gain)
    }

    /// What each OST did.
    pub(super) fn stats(&self) -> impl Iterator<Item = &OstStats> {
        self.queues.stats()
    }
}

/// Files that their file system has locked, because a block of them is being written.
///
/// A thread that wanted to write another block of such a file would spin in the kernel until the
/// first is written, and not receive meanwhile. Without this, one file of 2 GiB from memory to
/// memory takes 1.18 instead of 1.11 s, and 2.10 instead of 1.77 s of processors.
#[derive(Debug)]
struct Locks {
    /// For each OST, whether it locks files.
    lock_files: Vec<bool>,
    /// The files, once for each write. There are about as many as OSTs take requests.
    held: Vec<EntryId>,
}

impl Locks {
    fn new(osts: &[OstSpec]) -> Self {
        Self { lock_files: osts.iter().map(|ost| ost.locks_files).collect(), held: Vec::new() }
    }

    /// Whether no file is locked.
    fn are_open(&self) -> bool {
        self.held.is_empty()
    }

    /// The file that is locked while this frame is written, if any. Small files of the same frame
    /// have no other blocks.
    fn file_of(&self, write: &Write) -> Option<EntryId> {
        let is_locked = self.lock_files[write.ost.index()] && !write.is_comparison;
        if is_locked { file_of(write) } else { None }
    }

    /// Whether this frame would wait for another one of the same file.
    fn hold_up(&self, write: &Write) -> bool {
        self.file_of(write).is_some_and(|file| self.held.contains(&file))
    }

    fn on_start(&mut self, write: &Write) {
        self.held.extend(self.file_of(write));
    }

    /// # Panics
    /// If it was not started.
    fn on_finish(&mut self, write: &Write) {
        let Some(file) = self.file_of(write) else { return };
        let at = self.held.iter().position(|&held| held == file);
        self.held.swap_remove(at.expect("it was started"));
    }
}

/// The buffers of frames that wait here, by their numbers.
#[derive(Debug, Default)]
struct Buffers {
    is_here: Vec<bool>,
}

impl Buffers {
    /// # Panics
    /// If it is here already: then two frames have it.
    fn put(&mut self, write: &Write) {
        let Some(index) = index_of(write) else { return };
        if self.is_here.len() <= index {
            self.is_here.resize(index + 1, false);
        }
        assert!(!self.is_here[index], "buffer {index} holds two frames, one is for {}", write.ost);
        self.is_here[index] = true;
    }

    /// # Panics
    /// If it is not here: then somebody else has it.
    fn take(&mut self, write: &Write) {
        let Some(index) = index_of(write) else { return };
        let is_here = self.is_here.get(index).copied().unwrap_or(false);
        assert!(is_here, "buffer {index} of a frame for {} is not here", write.ost);
        self.is_here[index] = false;
    }
}

/// The first file of a frame.
fn file_of(write: &Write) -> Option<EntryId> {
    write.rows.first().map(|(row, _)| row.block.entry)
}

fn index_of(write: &Write) -> Option<usize> {
    match write.place {
        Place::Buffer(BufferId(number)) => Some(number as usize),
        Place::Stage(_) => None,
    }
}
