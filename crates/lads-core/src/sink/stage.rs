//! Which frames are put aside at the sink, and when they come back.
//!
//! A frame that waits for a congested OST holds a buffer of the arena. When all that its OST may
//! have hold one, the source is granted no more room for it; then what waits is written to the
//! stage, and its buffers are granted anew. It keeps its place in its OST's queue. Some buffers are
//! never granted, so that there is one for each frame that is brought back.

use super::{Phase, Place, Sink, Stop, Task, Write};
use crate::message::{BlockRange, Message};
use crate::staging::{Slot, Slots};
use crate::units::{Instant, OstId};
use std::collections::VecDeque;
use std::time::Duration;

/// A stage at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageConfig {
    /// It takes up no more than this, in bytes.
    pub bytes: u64,
    /// Threads that may be busy filling it at a time.
    pub threads_max: u32,
    /// Buffers for what is brought back; there must be one for each OST besides.
    pub drains_max: u32,
    /// Writes to OSTs at a time: fewer than there are threads, or none is left to fill the stage.
    pub writes_max: u32,
}

/// The books of the stage.
#[derive(Debug)]
pub(super) struct Aside {
    slots: Slots,
    draining: u32,
    drains_max: u32,
    writes_max: u32,
    /// The OST to ask first next time.
    turn: usize,
}

impl Aside {
    pub(super) fn new(config: Option<StageConfig>, buffer_bytes: u32) -> Self {
        let none = StageConfig { bytes: 0, threads_max: 0, drains_max: 0, writes_max: u32::MAX };
        let StageConfig { bytes, threads_max, drains_max, writes_max } = config.unwrap_or(none);
        let slots = Slots::new(bytes, buffer_bytes, threads_max);
        Self { slots, draining: 0, drains_max, writes_max, turn: 0 }
    }

    /// Whether frames are on their way back.
    pub(super) fn is_draining(&self) -> bool {
        self.draining > 0
    }

    /// Takes the first frame of a queue that can be written now.
    pub(super) fn take(
        &mut self,
        waiting: &mut VecDeque<Write>,
        is_stopping: bool,
    ) -> Option<Write> {
        let may_drain = self.draining < self.drains_max && !is_stopping;
        let at = waiting.iter().position(|write| may_drain || write.is_in_memory())?;
        let write = waiting.remove(at)?;
        self.draining += u32::from(!write.is_in_memory());
        Some(write)
    }

    /// What was in a place is written, or lost.
    pub(super) fn on_drained(&mut self, slot: Slot) {
        self.draining -= 1;
        self.slots.on_drained(slot);
    }
}

impl Sink {
    /// Whether there is a thread for a further write.
    pub(super) fn may_write(&self) -> bool {
        self.queues.in_flight_count() < self.aside.writes_max
    }

    /// Whether [`Self::next_to_stage`] may find something.
    pub(super) fn may_stage(&self) -> bool {
        let mut osts = (0..self.queues.ost_count()).map(OstId::from_index);
        self.stop == Stop::No
            && self.aside.slots.has_room()
            && osts.any(|ost| self.is_stageable(ost))
    }

    /// A frame that waits in a buffer that is wanted for another.
    pub(super) fn next_to_stage(&mut self) -> Option<Task> {
        if !self.may_stage() {
            return None;
        }
        let (count, turn) = (self.queues.ost_count(), self.aside.turn);
        let mut in_turn = (0..count).map(|step| OstId::from_index((turn + step) % count));
        let ost = in_turn.find(|&ost| self.is_stageable(ost))?;
        self.aside.turn = ost.index() + 1;
        let bytes_of = |write: &Write| write.bytes();
        let write = self.queues.remove_last(ost, Write::is_stageable, bytes_of)?;
        Some(Task::Stage(write, self.aside.slots.reserve()?))
    }

    fn is_stageable(&self, ost: OstId) -> bool {
        self.grants.is_used_up(ost) && self.queues.waiting(ost).any(Write::is_stageable)
    }

    /// A frame is in its place in the stage; its buffer is free.
    pub(super) fn on_staged(&mut self, write: Write) {
        self.aside.slots.on_staged();
        self.grants.on_release(write.room);
        let bytes = write.bytes();
        self.counters.bytes_staged += bytes;
        self.queues.push(write.ost, write, bytes);
    }

    /// A frame could not be put there: it waits in its buffer, as all others will.
    pub(super) fn on_not_staged(&mut self, write: Write, slot: Slot) {
        self.aside.slots.on_not_staged(slot);
        self.aside.slots.close();
        let bytes = write.bytes();
        self.queues.push(write.ost, write, bytes);
    }

    /// A frame could not be brought back: the source is asked for it again.
    pub(super) fn on_not_drained(&mut self, now: Instant, write: &Write, service: Duration) {
        self.queues.finish(now, write.ost, write.bytes(), service);
        if let Place::Stage(slot) = write.place {
            self.aside.on_drained(slot);
        }
        self.aside.slots.close();
        for (row, _) in &write.rows {
            let (entry, offset, length) = (row.block.entry, row.block.offset, row.block.length);
            self.release_block(entry);
            let Some(file) = self.files.get(&entry) else { continue };
            if file.phase == Phase::Receiving {
                self.counters.blocks_resent += 1;
                let range = BlockRange { entry, offset, length: length.into() };
                self.messages.push_back(Message::BlockBad(vec![range]));
            } else {
                self.discard_if_idle(entry);
            }
        }
    }
}
