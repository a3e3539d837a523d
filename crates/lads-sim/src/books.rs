//! Whether the source hands out what it should: each block once, to free OSTs, with room for it,
//! and never nothing while there is something.
//!
//! These books are kept from the outside, from what goes into the session and comes out of it, and
//! know nothing of how it keeps its own.

use crate::findings::Checked;
use crate::room::RoomBooks;
use lads_core::message::{Answer, Message};
use lads_core::plan::{Piece, Plan};
use lads_core::range::RangeSet;
use lads_core::schedule::{OstSpec, Policy, Way, Work};
use lads_core::source::{ReadOutcome, SourceConfig};
use lads_core::staging::Slot;
use lads_core::tuning::Tuning;
use lads_core::units::{Block, EntryId, OstId, StreamId};
use std::collections::{BTreeMap, BTreeSet};

/// The number of lanes that may wait for an OST before the session may fail to see one behind them:
/// half of the lanes that it looks at, because lanes of which nothing is left may stand among them.
const LOOKAHEAD: usize = Tuning::DEFAULT.lookahead_lanes / 2;

#[derive(Debug, Default)]
struct StreamLog {
    sent: Vec<(u64, Work)>,
    ended_at: Option<u64>,
}

/// The source's books.
#[derive(Debug)]
pub(crate) struct Books {
    config: SourceConfig,
    in_flight_max: Vec<u32>,
    /// Whether the source looks for the best number of requests in flight.
    pub(crate) is_matched: bool,
    in_flight: Vec<u32>,
    /// Grants not used.
    room: RoomBooks,
    /// How each wanted file is cut.
    plans: BTreeMap<EntryId, Plan>,
    /// Blocks never handed out.
    waiting: BTreeMap<EntryId, Vec<Piece>>,
    /// Blocks that may be handed out again.
    again: BTreeMap<EntryId, RangeSet>,
    begun: BTreeSet<EntryId>,
    begun_max: usize,
    streams: BTreeMap<StreamId, StreamLog>,
    stage: StageBooks,
}

/// What is in the stage.
#[derive(Debug, Default)]
struct StageBooks {
    /// Places that are taken.
    slots: BTreeSet<Slot>,
    /// What waits there, by place: where it goes to.
    waiting: BTreeMap<Slot, (OstId, Vec<Block>)>,
    /// Threads that fill a place.
    filling: u32,
    is_closed: bool,
}

impl Books {
    pub(crate) fn new(config: &SourceConfig, osts: &[OstSpec], sink_ost_count: usize) -> Self {
        Self {
            config: config.clone(),
            in_flight_max: osts.iter().map(|ost| ost.in_flight_max).collect(),
            is_matched: false,
            in_flight: vec![0; osts.len()],
            room: RoomBooks::new(sink_ost_count),
            plans: BTreeMap::new(),
            waiting: BTreeMap::new(),
            again: BTreeMap::new(),
            begun: BTreeSet::new(),
            begun_max: 0,
            streams: BTreeMap::new(),
            stage: StageBooks::default(),
        }
    }

    /// The sink said something. `plan_of` gives what a file was announced as.
    pub(crate) fn on_message(
        &mut self,
        message: &Message,
        mut plan_of: impl FnMut(EntryId) -> Option<Plan>,
    ) {
        match message {
            Message::Ready { open_files_max, .. } => {
                self.begun_max = self.config.open_files_max.min(*open_files_max) as usize;
            }
            Message::Grant(lot) => {
                self.room.add(lot);
            }
            Message::FileId(answers) => {
                for (entry, answer) in answers {
                    if let Answer::Want { done, layout } = answer
                        && let Some(plan) = plan_of(*entry)
                    {
                        let plan = Plan { sink: layout.clone(), done: done.clone(), ..plan };
                        self.waiting.insert(*entry, pieces(*entry, &plan));
                        self.plans.insert(*entry, plan);
                    }
                }
            }
            Message::BlockBad(ranges) => {
                for range in ranges {
                    let bytes = range.offset..range.offset + range.length;
                    let plan = self.plans.get(&range.entry);
                    let blocks = plan.map(|plan| plan.blocks_in(range.entry, bytes));
                    blocks.iter().flatten().for_each(|block| self.may_go_again(block));
                }
            }
            Message::StreamEnd { stream, frames } => self.on_stream_end(*stream, *frames),
            _ => {}
        }
    }

    /// The session handed out work.
    pub(crate) fn on_work(&mut self, work: &Work) -> Checked {
        if let Way::Drain(slot, _) = work.way {
            return self.on_drain(work, slot);
        }
        let ost = work.source_ost.index();
        if self.config.policy != Policy::File && self.in_flight[ost] >= self.in_flight_max[ost] {
            return Err(format!("{} has more in flight than it may", work.source_ost));
        }
        self.in_flight[ost] += 1;
        match work.way {
            Way::Stage(slot) => self.reserve(work, slot)?,
            _ => self.room.take(work.sink_ost)?,
        }
        let page = |block: &Block| u64::from(block.length).next_multiple_of(4096);
        if work.blocks.iter().map(page).sum::<u64>() > u64::from(self.config.block_size) {
            return Err(format!("a frame longer than a buffer: {work:?}"));
        }
        for block in &work.blocks {
            self.take_block(work, block)?;
            self.begun.insert(block.entry);
        }
        if self.begun.len() > self.begun_max {
            return Err(format!("{} files are open, not {}", self.begun.len(), self.begun_max));
        }
        Ok(())
    }

    /// What was handed out has been read, or not.
    pub(crate) fn on_read(&mut self, work: &Work, outcomes: &[ReadOutcome]) {
        self.in_flight[work.source_ost.index()] -= 1;
        if !outcomes.contains(&ReadOutcome::Good) {
            match work.way {
                Way::Stage(slot) => self.on_unreserved(slot),
                _ => self.room.give_back(work.sink_ost),
            }
        }
        for (block, outcome) in work.blocks.iter().zip(outcomes) {
            if *outcome != ReadOutcome::Good {
                self.forget(block.entry);
            }
        }
    }

    /// Blocks are in the stage.
    pub(crate) fn on_staged(&mut self, work: &Work) {
        let Way::Stage(slot) = work.way else { return };
        self.stage.filling -= 1;
        self.stage.waiting.insert(slot, (work.sink_ost, work.blocks.clone()));
        self.clear_stage();
    }

    /// Blocks did not get into it.
    pub(crate) fn on_not_staged(&mut self, work: &Work) {
        let Way::Stage(slot) = work.way else { return };
        self.stage.is_closed = true;
        self.on_unreserved(slot);
        work.blocks.iter().for_each(|block| self.may_go_again(block));
    }

    /// Blocks did not get out of it.
    pub(crate) fn on_not_drained(&mut self, work: &Work) {
        self.stage.is_closed = true;
        self.on_lost(work);
    }

    /// A place must be free, the stage not too large, and the sink without room.
    fn reserve(&mut self, work: &Work, slot: Slot) -> Checked {
        let SourceConfig { block_size, stage_bytes, stage_threads_max, .. } = self.config;
        self.stage.filling += 1;
        let is_inside = slot.offset(block_size) + u64::from(block_size) <= stage_bytes;
        if !is_inside || self.stage.filling > stage_threads_max || self.stage.is_closed {
            return Err(format!("must not be staged: {work:?}, {:?}", self.stage));
        }
        if self.room.is_granted(work.sink_ost) {
            return Err(format!("staged, and could be sent: {work:?}"));
        }
        if !self.stage.slots.insert(slot) {
            return Err(format!("{slot:?} is taken: {:?}", self.stage));
        }
        Ok(())
    }

    fn on_unreserved(&mut self, slot: Slot) {
        self.stage.filling -= 1;
        self.stage.slots.remove(&slot);
    }

    fn on_drain(&mut self, work: &Work, slot: Slot) -> Checked {
        self.room.take(work.sink_ost)?;
        match self.stage.waiting.remove(&slot) {
            Some(there) if there == (work.sink_ost, work.blocks.clone()) => Ok(()),
            there => Err(format!("{there:?} is in the stage, not {work:?}")),
        }
    }

    /// What was brought back is in memory, or lost.
    fn free_slot(&mut self, work: &Work) {
        if let Way::Drain(slot, _) = work.way {
            self.stage.slots.remove(&slot);
        }
    }

    /// What nobody needs any more does not keep its place.
    fn clear_stage(&mut self) {
        let Self { stage, waiting, .. } = self;
        stage.waiting.retain(|slot, (_, blocks)| {
            let is_kept = blocks.iter().any(|block| waiting.contains_key(&block.entry));
            if !is_kept {
                stage.slots.remove(slot);
            }
            is_kept
        });
    }

    /// A frame went out.
    pub(crate) fn on_sent(&mut self, stream: StreamId, number: u64, work: &Work) {
        self.free_slot(work);
        let log = self.streams.entry(stream).or_default();
        if log.ended_at.is_some_and(|frames| number >= frames) {
            self.on_lost(work);
        } else {
            log.sent.push((number, Work { way: Way::Send, ..work.clone() }));
        }
    }

    /// A frame did not arrive.
    pub(crate) fn on_lost(&mut self, work: &Work) {
        self.free_slot(work);
        self.room.give_back(work.sink_ost);
        work.blocks.iter().for_each(|block| self.may_go_again(block));
    }

    fn may_go_again(&mut self, block: &Block) {
        self.again.entry(block.entry).or_default().insert(block.offset..block.end());
    }

    /// No block of this file is needed any more.
    pub(crate) fn forget(&mut self, entry: EntryId) {
        self.waiting.remove(&entry);
        self.begun.remove(&entry);
        self.clear_stage();
    }

    /// A thread was told that there is nothing to do: is that so?
    pub(crate) fn check_idle(&self) -> Checked {
        // Fewer requests than could be may be better, but not none.
        if self.is_matched && self.in_flight.iter().any(|&count| count > 0) {
            return Ok(());
        }
        // Where each file is read in its order, its other blocks wait for the next one.
        if self.config.policy == Policy::File || self.config.is_in_order {
            return Ok(());
        }
        self.check_stage_idle()?;
        for (entry, pieces) in &self.waiting {
            let is_begun = self.begun.contains(entry);
            let may_go = |piece: &&Piece| {
                // A file is begun with its first block on an OST.
                is_begun || self.begun.len() < self.begun_max && is_head(piece, pieces)
            };
            let free = pieces.iter().filter(may_go).find(|piece| self.is_free(piece));
            if let Some(piece) = free
                && self.waiting_count(piece.source_ost) <= LOOKAHEAD
            {
                return Err(format!("nothing is handed out, but {entry} {piece:?} could be"));
            }
        }
        Ok(())
    }

    /// Nor is anything to be brought back, or to be staged.
    fn check_stage_idle(&self) -> Checked {
        let is_ready = |(ost, _): &&(OstId, Vec<Block>)| self.room.has(*ost);
        if let Some(frame) = self.stage.waiting.values().find(is_ready) {
            return Err(format!("there is room for what is in the stage: {frame:?}"));
        }
        let SourceConfig { block_size, stage_bytes, stage_threads_max, .. } = self.config;
        let has_room = (self.stage.slots.len() as u64) < stage_bytes / u64::from(block_size)
            && self.stage.filling < stage_threads_max
            && !self.stage.is_closed;
        let begun = self.waiting.iter().filter(|(entry, _)| self.begun.contains(entry));
        let mut pieces = begun.flat_map(|(_, pieces)| pieces);
        let is_stageable =
            |piece: &&Piece| self.has_free_ost(piece) && !self.room.is_granted(piece.sink_ost);
        match pieces.find(is_stageable).filter(|_| has_room) {
            Some(piece) if self.waiting_count(piece.source_ost) <= LOOKAHEAD => {
                Err(format!("nothing is handed out, but {piece:?} could be staged"))
            }
            _ => Ok(()),
        }
    }

    /// Which OSTs have nothing in flight although they could.
    pub(crate) fn neglected(&self) -> Vec<bool> {
        let mut is_neglected = vec![false; self.in_flight.len()];
        for (entry, pieces) in &self.waiting {
            let may_begin = self.begun.contains(entry) || self.begun.len() < self.begun_max;
            for piece in pieces.iter().filter(|_| may_begin) {
                let ost = piece.source_ost.index();
                is_neglected[ost] |= self.in_flight[ost] == 0 && self.is_free(piece);
            }
        }
        is_neglected
    }

    /// Grants not used.
    pub(crate) fn room(&self) -> &RoomBooks {
        &self.room
    }

    /// Whether every frame that was sent is known to have ended well or badly.
    pub(crate) fn had_stream_losses(&self) -> bool {
        self.streams.values().any(|log| log.ended_at.is_some())
    }

    fn is_free(&self, piece: &Piece) -> bool {
        self.has_free_ost(piece) && self.room.has(piece.sink_ost)
    }

    fn has_free_ost(&self, piece: &Piece) -> bool {
        let ost = piece.source_ost.index();
        let at_least = in_flight_at_least(self.config.policy, self.in_flight_max[ost]);
        self.in_flight[ost] < at_least
    }

    /// Lanes that may stand in an OST's queue.
    fn waiting_count(&self, ost: OstId) -> usize {
        let there = |(entry, pieces): (&EntryId, &Vec<Piece>)| {
            let mirror_count = self.plans.get(entry).map_or(0, |plan| plan.mirrors.len());
            let is_there = |piece: &&Piece| piece.source_ost == ost || mirror_count > 0;
            let sink_osts = pieces.iter().filter(is_there).map(|piece| piece.sink_ost);
            sink_osts.collect::<BTreeSet<_>>().len() * (mirror_count + 1)
        };
        self.waiting.iter().map(there).sum()
    }

    fn take_block(&mut self, work: &Work, block: &Block) -> Checked {
        let lies_there = self
            .plans
            .get(&block.entry)
            .is_some_and(|plan| plan.copy(work.mirror).ost_at(block.offset) == work.source_ost);
        if let Some(pieces) = self.waiting.get_mut(&block.entry)
            && let Some(at) = pieces.iter().position(|piece| {
                piece.offset == block.offset && piece.sink_ost == work.sink_ost && lies_there
            })
            && pieces[at].length >= block.length
        {
            // A short one looks whether an OST is still congested.
            let piece = &mut pieces[at];
            piece.offset += u64::from(block.length);
            piece.length -= block.length;
            if piece.length == 0 {
                pieces.swap_remove(at);
            }
            return Ok(());
        }
        let again = self.again.entry(block.entry).or_default();
        if !again.contains(block.offset..block.end()) {
            return Err(format!("{block:?} is sent twice, or was done before"));
        }
        again.remove(block.offset..block.end());
        Ok(())
    }

    fn on_stream_end(&mut self, stream: u16, frames: u64) {
        let log = self.streams.entry(StreamId(stream)).or_default();
        log.ended_at = Some(frames);
        for (number, work) in std::mem::take(&mut log.sent) {
            if number >= frames {
                self.on_lost(&work);
            }
        }
    }
}

fn pieces(entry: EntryId, plan: &Plan) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (_, mut lane) in plan.lanes_of(entry, 0) {
        while let Some(piece) = plan.next_piece(&lane) {
            lane.offset = piece.offset + u64::from(piece.length);
            pieces.push(piece);
        }
    }
    pieces
}

/// Whether it is the first of these on its source OST.
fn is_head(piece: &Piece, pieces: &[Piece]) -> bool {
    !pieces.iter().any(|other| other.source_ost == piece.source_ost && other.offset < piece.offset)
}

/// How many requests an OST has in flight if work for it waits and threads are idle: a congested
/// one need not have more than one.
pub(crate) fn in_flight_at_least(policy: Policy, in_flight_max: u32) -> u32 {
    if matches!(policy, Policy::Adaptive | Policy::Polite) { 1 } else { in_flight_max }
}
