//! Which frames are put aside at the sink, and when they come back.
//!
//! A frame that waits for a congested OST holds a buffer of the arena. When all buffers that its
//! OST may have are in use, the source is granted no more room for this OST. Then frames that wait
//! are written to the stage, and their buffers are granted again. A staged frame keeps its place in
//! the queue of its OST. Some buffers are never granted: they are for frames that are brought back.

use super::event::Write;
use super::frames::Drain;
use crate::room::Grants;
use crate::schedule::OstQueues;
use crate::staging::{Slot, Slots};
use crate::units::OstId;
use std::collections::VecDeque;

/// A stage at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageConfig {
    /// Its largest size, in bytes.
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

    /// Writes to OSTs at a time.
    pub(super) fn writes_max(&self) -> u32 {
        self.writes_max
    }

    /// Whether frames are on their way back.
    pub(super) fn is_draining(&self) -> bool {
        self.draining > 0
    }

    /// Takes the first frame of a queue that can be written now, and that is `wanted`.
    pub(super) fn take(
        &mut self,
        waiting: &mut VecDeque<Write>,
        drain: Drain,
        wanted: impl Fn(&Write) -> bool,
    ) -> Option<Write> {
        let may_drain = self.draining < self.drains_max && drain == Drain::Allowed;
        let can_come = |write: &Write| may_drain || write.is_in_memory();
        let at = waiting.iter().position(|write| can_come(write) && wanted(write))?;
        let write = waiting.remove(at)?;
        self.draining += u32::from(!write.is_in_memory());
        Some(write)
    }

    /// Whether [`Self::next`] would find something.
    pub(super) fn may_stage(&self, queues: &OstQueues<Write>, grants: &Grants) -> bool {
        let mut osts = (0..queues.ost_count()).map(OstId::from_index);
        self.slots.has_room() && osts.any(|ost| is_stageable(queues, grants, ost))
    }

    /// Takes a frame that waits in a buffer which is wanted for another frame. Returns the frame,
    /// and its place in the stage.
    pub(super) fn next(
        &mut self,
        queues: &mut OstQueues<Write>,
        grants: &Grants,
    ) -> Option<(Write, Slot)> {
        if !self.may_stage(queues, grants) {
            return None;
        }
        let (count, turn) = (queues.ost_count(), self.turn);
        let mut in_turn = (0..count).map(|step| OstId::from_index((turn + step) % count));
        let ost = in_turn.find(|&ost| is_stageable(queues, grants, ost))?;
        self.turn = ost.index() + 1;
        let write = queues.remove_last(ost, Write::is_stageable, Write::bytes)?;
        Some((write, self.slots.reserve()?))
    }

    /// A frame is in its place.
    pub(super) fn on_staged(&mut self) {
        self.slots.on_staged();
    }

    /// A frame could not be put there. No other frame will be.
    pub(super) fn on_not_staged(&mut self, slot: Slot) {
        self.slots.on_not_staged(slot);
        self.slots.close();
    }

    /// What was in a place is written, or lost.
    ///
    /// # Panics
    /// If nothing was on its way back.
    pub(super) fn on_drained(&mut self, slot: Slot) {
        assert!(self.draining > 0, "{slot:?} was not on its way back");
        self.draining -= 1;
        self.slots.on_drained(slot);
    }

    /// From now on, no frame is put there.
    pub(super) fn close(&mut self) {
        self.slots.close();
    }
}

fn is_stageable(queues: &OstQueues<Write>, grants: &Grants, ost: OstId) -> bool {
    grants.is_used_up(ost) && queues.waiting(ost).any(Write::is_stageable)
}
