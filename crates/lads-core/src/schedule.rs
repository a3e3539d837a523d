//! Which block an I/O thread takes next.
//!
//! Each OST has its own queue. An idle I/O thread visits the queues in turn and takes from the next
//! one whose OST is free (an OST is free if fewer of our requests are in flight than it should
//! have). So threads never wait behind one busy target while other targets are idle (LADS, FAST
//! '15, section 3.4). [`OstQueues`] is that rule, and serves both ends: at the source the queues
//! hold lanes of files to be read, at the sink frames to be written. [`Schedule`] is for the source
//! only. It also checks that the sink has room, and fills frames (`shelf.rs`).
//!
//! Files whose position on a rotating disk is known are taken in the order of a sweep of the disk
//! arm: only forward, and from the end straight back to the beginning (C-SCAN, as an operating
//! system orders its requests, but over all announced files).

mod queues;
mod share;
mod shelf;

pub use queues::{OstQueues, OstSpec, OstStats};
pub(crate) use share::tracks_of;

use crate::congestion::{Rule, Threshold};
use crate::frame::Row;
use crate::layout::Layout;
use crate::plan::{Lane, Piece, Plan};
use crate::pool::{Pool, Requests};
use crate::room::{Lot, Room};
use crate::staging::{Slot, Slots, Stage};
use crate::tuning::Tuning;
use crate::units::{Block, EntryId, EntryMap, Instant, OstId};
use share::Shares;
use shelf::Shelf;
use std::collections::{HashSet, VecDeque};
use std::iter;
use std::ops::Range;
use std::time::Duration;

/// By which rule blocks are handed to I/O threads (`--lab schedule=RULE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// A thread takes a whole file and reads it from beginning to end, whatever OSTs it lies on, as
    /// bbcp and most other tools do. The baseline for comparisons.
    File,
    /// A thread takes a block of any file from the next OST that is free.
    Layout,
    /// As [`Policy::Layout`], but OSTs above a given service time are skipped for a while: the
    /// papers' rule.
    Threshold,
    /// As [`Policy::Layout`], but OSTs that are slower than others, and slower than they were, come
    /// last. Needs no given time.
    #[default]
    Adaptive,
    /// As [`Policy::Adaptive`], and OSTs that others use get one request at a time (`--polite`).
    Polite,
}

impl Policy {
    /// The rule that judges OSTs under this policy; `threshold` is used by [`Policy::Threshold`]
    /// only.
    #[must_use]
    pub fn rule(self, threshold: Threshold) -> Rule {
        match self {
            Self::File | Self::Layout => Rule::Never,
            Self::Threshold => Rule::Threshold(threshold),
            Self::Adaptive => Rule::Adaptive,
            Self::Polite => Rule::Polite,
        }
    }

    /// Whether threads take from the queue that is best at the moment, instead of the next queue in
    /// turn.
    #[must_use]
    pub(crate) fn takes_best(self) -> bool {
        matches!(self, Self::Adaptive | Self::Polite)
    }
}

/// Which way blocks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// They are read from their files and sent to the sink.
    Send,
    /// They are read from their files into this slot of the stage: the sink has no room for them.
    Stage(Slot),
    /// They are read from this slot of the stage and sent to the sink. In the slot they follow each
    /// other, each on pages of its own. The rows were made when the blocks were read.
    Drain(Slot, Vec<Row>),
}

/// Blocks for one I/O thread to read. All are on one OST at each end: they make one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Where from, and where to.
    pub way: Way,
    /// The OST that is read.
    pub source_ost: OstId,
    /// Which copy of the file is read, if the file has several; zero is the primary copy.
    pub mirror: u16,
    /// The OST that will be written.
    pub sink_ost: OstId,
    /// Whether this work uses the last grant that the source has for `sink_ost`.
    pub is_last_grant: bool,
    /// The blocks. There are several if each is a whole small file, or if each is a stripe of the
    /// same file that is shorter than a block.
    pub blocks: Vec<Block>,
    /// Whether the blocks are only compared with those at the sink: then only checksums are sent.
    pub is_comparison: bool,
}

impl Work {
    /// The number of bytes to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.length)).sum()
    }
}

/// The source's queues.
#[derive(Debug)]
pub struct Schedule {
    policy: Policy,
    tuning: Tuning,
    queues: OstQueues<Lane>,
    pool: Pool,
    shares: Shares,
    /// Plans of the files that have lanes in the queues.
    plans: EntryMap<Plan>,
    /// Blocks to be sent again: they go before all others.
    again: VecDeque<Block>,
    /// The same blocks, for a fast lookup.
    again_known: HashSet<Block>,
    /// For [`Policy::File`]: files that no thread has taken.
    files: VecDeque<Lane>,
    /// For [`Policy::File`]: the file that each thread is going through.
    taken: Vec<Option<Lane>>,
    /// A frame's payload is at most this many bytes, with every block rounded up to whole pages.
    frame_bytes_max: u64,
    room: Room,
    begun: Begun,
    stage: Stage<StagedFrame>,
    /// The number of bytes in the stage.
    staged_bytes: u64,
}

/// A frame that is in the stage.
#[derive(Debug)]
struct StagedFrame {
    source_ost: OstId,
    rows: Vec<Row>,
}

/// How many files have been begun and not ended: both ends keep them open.
#[derive(Debug)]
struct Begun {
    count: u32,
    count_max: u32,
    staged_parts: u32,
}

impl Begun {
    /// How many files may be begun at a time by frames that are staged, or that are sent. Staged
    /// frames leave some of the number to files that can be sent.
    fn limit(&self, is_staging: bool) -> u32 {
        if is_staging { self.count_max / self.staged_parts } else { self.count_max }
    }

    /// Whether blocks of this file may be handed out. If so, the file counts as begun.
    fn admit(&mut self, plan: &mut Plan, count_max: u32) -> bool {
        if !plan.is_begun {
            if self.count >= count_max {
                return false;
            }
            plan.is_begun = true;
            self.count += 1;
        }
        true
    }
}

impl Schedule {
    /// Empty queues for these source OSTs, for frames of at most `frame_bytes_max` bytes.
    #[must_use]
    pub fn new(
        policy: Policy,
        threshold: Threshold,
        tuning: &Tuning,
        osts: &[OstSpec],
        frame_bytes_max: u32,
    ) -> Self {
        let staged_parts = tuning.staged_files_parts.max(1);
        Self {
            policy,
            tuning: *tuning,
            queues: OstQueues::new(policy.rule(threshold), tuning, osts),
            pool: Pool::default(),
            shares: Shares::new(osts, tuning.share_bytes_min),
            plans: EntryMap::default(),
            again: VecDeque::new(),
            again_known: HashSet::new(),
            files: VecDeque::new(),
            taken: Vec::new(),
            frame_bytes_max: u64::from(frame_bytes_max),
            room: Room::default(),
            begun: Begun { count: 0, count_max: u32::MAX, staged_parts },
            stage: Stage::new(Slots::new(0, frame_bytes_max, 0)),
            staged_bytes: 0,
        }
    }

    /// Blocks that can be read and not be sent are staged: at most this many bytes, by at most this
    /// many threads at a time. [`Policy::File`] has no stage, because it reads each file in its
    /// order.
    pub fn set_stage(&mut self, bytes: u64, threads_max: u32) {
        if self.policy != Policy::File {
            let slot_bytes = u32::try_from(self.frame_bytes_max).expect("it came as 32 bits");
            self.stage = Stage::new(Slots::new(bytes, slot_bytes, threads_max));
        }
    }

    /// At most this many files are begun at a time; at least one.
    pub fn set_begun_max(&mut self, count_max: u32) {
        self.begun.count_max = count_max.max(1);
    }

    /// From now on at most `most` reads are in flight at a time, or fewer if these are better.
    pub fn match_requests(&mut self, most: u32) {
        self.queues.match_requests(most);
    }

    /// Returns when [`Self::next`] may find something even if no read is complete before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.queues.next_timeout()
    }

    /// Time has passed.
    pub fn on_time(&mut self, now: Instant) {
        self.queues.on_time(now);
    }

    /// Queues a file's blocks.
    pub fn add(&mut self, entry: EntryId, plan: Plan) {
        match self.policy {
            Policy::File => {
                self.files.push_back(Lane {
                    entry,
                    mirror: 0,
                    position: None,
                    sink_position: None,
                    offset: 0,
                    end: plan.size,
                    disk_offset: 0,
                    is_begun: false,
                });
            }
            _ => {
                // An estimate: holes, and ranges that are done, are counted, too.
                let copies = iter::once(&plan.source).chain(&plan.mirrors);
                let positions: usize = copies.map(Layout::position_count).sum();
                let bytes = plan.size / positions as u64;
                for (ost, lane) in plan.lanes(entry) {
                    self.queues.push_at(ost, lane, bytes, |lanes| sweep_place(&lane, lanes));
                }
            }
        }
        self.plans.insert(entry, plan);
    }

    /// Forgets a file. Its waiting blocks are not handed out any more.
    pub fn remove(&mut self, entry: EntryId) {
        if self.plans.remove(&entry).is_some_and(|plan| plan.is_begun) {
            self.begun.count -= 1;
        }
    }

    /// A file is shorter than was planned.
    pub fn shorten(&mut self, entry: EntryId, size: u64) {
        if let Some(plan) = self.plans.get_mut(&entry) {
            plan.size = plan.size.min(size);
        }
    }

    /// The plan of a file, while it is queued.
    #[must_use]
    pub fn plan(&self, entry: EntryId) -> Option<&Plan> {
        self.plans.get(&entry)
    }

    /// Queues a block to be sent again, before all others.
    pub fn push_again(&mut self, block: Block) {
        if self.again_known.insert(block) {
            self.again.push_back(block);
        }
    }

    /// Returns how many blocks wait to be sent again.
    #[must_use]
    pub fn again_count(&self) -> usize {
        self.again.len()
    }

    /// Queues all blocks that a range touches to be sent again, and returns those blocks. The range
    /// need not be one of this attempt's blocks: an earlier attempt may have cut the file
    /// otherwise.
    pub fn push_range_again(&mut self, entry: EntryId, range: Range<u64>) -> Vec<Block> {
        let Some(plan) = self.plans.get(&entry) else { return Vec::new() };
        let mut blocks = plan.blocks_in(entry, range);
        blocks.retain(|block| self.again_known.insert(*block));
        self.again.extend(&blocks);
        blocks
    }

    /// The sink granted room.
    pub fn on_grant(&mut self, lot: &Lot) {
        self.room.on_grant(lot);
    }

    /// Reports whether [`Self::next`] may find something, so that it is worth waking a thread.
    #[must_use]
    pub fn may_have_work(&self) -> bool {
        let has_ready = self.queues.has_ready() || self.shares.has_any(&self.queues, &self.plans);
        (self.room.has_any()
            && (has_ready
                || !self.again.is_empty()
                || !self.files.is_empty()
                || self.taken.iter().any(Option::is_some)))
            || (has_ready && self.stage.has_room())
            || self.stage.has_ready(|ost| self.room.has(ost))
    }

    /// Reports whether blocks wait for OSTs, and all of these OSTs have as many requests as they
    /// should.
    #[must_use]
    pub fn is_storage_busy(&self) -> bool {
        self.queues.has_waiting() && !self.queues.has_ready()
    }

    /// Reports whether an OST has nothing to do, and no file waits to be taken by a thread.
    #[must_use]
    pub fn has_idle_ost(&self) -> bool {
        self.files.is_empty() && self.queues.osts().any(|ost| self.queues.is_idle(ost))
    }

    /// What the thread numbered `worker` should read now. The room at the sink, or the slot in the
    /// stage, is reserved for it.
    ///
    /// Staged frames go before blocks that are not yet read: they are older, and their slots are
    /// needed.
    pub fn next(&mut self, now: Instant, worker: usize) -> Option<Work> {
        let next = self.next_again(now).or_else(|| self.next_staged());
        let work = next.or_else(|| match self.policy {
            Policy::File => self.next_by_file(now, worker),
            _ => self.next_by_layout(now).or_else(|| self.next_to_stage(now)),
        })?;
        if !matches!(work.way, Way::Drain(..)) {
            self.pool.on_start(work.blocks[0].entry, work.bytes());
        }
        Some(work)
    }

    /// What the latest reads were like; `None` before the first.
    #[must_use]
    pub fn requests(&self) -> Option<Requests> {
        let (limit, why, gain) = self.queues.limit();
        self.pool.requests(limit, why, gain)
    }

    /// A read is complete; its OST can get another request.
    pub fn on_read(&mut self, now: Instant, work: &Work, service: Duration) {
        self.pool.on_finish(work.blocks[0].entry);
        self.queues.finish(now, work.source_ost, work.bytes(), service);
    }

    /// The frame was not sent after all: its grant can be used again.
    pub fn on_not_sent(&mut self, sink_ost: OstId) {
        self.room.give_back(sink_ost);
    }

    /// Blocks are in their slot of the stage. Returns the blocks whose files were forgotten
    /// meanwhile; these are dropped.
    pub fn on_staged(&mut self, slot: Slot, work: &Work, rows: Vec<Row>) -> Vec<Block> {
        let frame = StagedFrame { source_ost: work.source_ost, rows };
        if frame.has_any_of(&self.plans) {
            self.staged_bytes += frame.bytes();
            self.stage.on_staged(slot, work.sink_ost, frame);
            return Vec::new();
        }
        self.stage.on_not_staged(slot);
        frame.blocks().collect()
    }

    /// Nothing was written to this slot.
    pub fn on_not_staged(&mut self, slot: Slot) {
        self.stage.on_not_staged(slot);
    }

    /// The slot was read into memory, or its blocks are lost: it is free again.
    pub fn on_drained(&mut self, slot: Slot) {
        self.stage.on_drained(slot);
    }

    /// Nothing more is staged, because the stage failed or its disk is full.
    pub fn close_stage(&mut self) {
        self.stage.close();
    }

    /// Frees the slots that hold only blocks of forgotten files. Returns those blocks.
    pub fn clear_stage(&mut self) -> Vec<Block> {
        let Self { stage, plans, staged_bytes, .. } = self;
        let mut dropped = Vec::new();
        stage.retain(|frame| {
            let is_kept = frame.has_any_of(plans);
            if !is_kept {
                *staged_bytes -= frame.bytes();
                dropped.extend(frame.blocks());
            }
            is_kept
        });
        dropped
    }

    /// The number of bytes in the stage.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }

    /// Counters of each source OST.
    pub fn stats(&self) -> impl Iterator<Item = &OstStats> {
        self.queues.stats()
    }

    fn next_again(&mut self, now: Instant) -> Option<Work> {
        for _ in 0..self.again.len() {
            let block = self.again.pop_front()?;
            let Some(plan) = self.plans.get_mut(&block.entry) else {
                self.again_known.remove(&block);
                continue;
            };
            let source_ost = plan.source.ost_at(block.offset);
            let sink_ost = plan.sink.ost_at(block.offset);
            let is_free = self.queues.is_free(source_ost) && self.room.has(sink_ost);
            let (was_begun, is_comparison) = (plan.is_begun, plan.is_comparison);
            if is_free && self.begun.admit(plan, self.begun.count_max) {
                if !was_begun {
                    self.move_ahead(block.entry, 0, None);
                }
                self.again_known.remove(&block);
                let is_last_grant = self.room.take(sink_ost);
                self.queues.start(now, source_ost, u64::from(block.length));
                return Some(Work {
                    way: Way::Send,
                    source_ost,
                    mirror: 0,
                    sink_ost,
                    is_last_grant,
                    blocks: vec![block],
                    is_comparison,
                });
            }
            self.again.push_back(block);
        }
        None
    }

    /// A frame in the stage for which the sink has room now.
    fn next_staged(&mut self) -> Option<Work> {
        let (sink_ost, slot, frame) = self.stage.next(|ost| self.room.has(ost))?;
        self.staged_bytes -= frame.bytes();
        let blocks = frame.blocks().collect();
        let StagedFrame { source_ost, rows } = frame;
        let is_last_grant = self.room.take(sink_ost);
        let way = Way::Drain(slot, rows);
        // Blocks that are only compared are never staged.
        let (mirror, is_comparison) = (0, false);
        Some(Work { way, source_ost, mirror, sink_ost, is_last_grant, blocks, is_comparison })
    }

    /// Blocks for which the sink has room. The grant is used up.
    fn next_by_layout(&mut self, now: Instant) -> Option<Work> {
        if !self.room.has_any() {
            return None;
        }
        let mut work = self.next_frame(now, false)?;
        work.is_last_grant = self.room.take(work.sink_ost);
        Some(work)
    }

    /// Blocks whose OST of the sink takes no more, if a slot of the stage is free.
    fn next_to_stage(&mut self, now: Instant) -> Option<Work> {
        if !self.stage.has_room() {
            return None;
        }
        let mut work = self.next_frame(now, true)?;
        work.way = Way::Stage(self.stage.reserve().expect("it has room"));
        Some(work)
    }

    fn next_frame(&mut self, now: Instant, is_staging: bool) -> Option<Work> {
        let Self { policy, tuning, queues, shares, plans, room, begun, frame_bytes_max, .. } = self;
        shares.share(queues, plans);
        let (frame_bytes_max, has_tracks) = (*frame_bytes_max, shares.has_tracks());
        let mut shelf =
            Shelf { tuning, plans, room, begun, frame_bytes_max, is_staging, has_tracks };
        let is_balanced = policy.takes_best() && !is_staging;
        let take = |ost, lanes: &mut VecDeque<Lane>, bytes_max| {
            let balanced = is_balanced.then(|| shelf.take_balanced(lanes, bytes_max));
            let (mut work, begun_lane) = balanced
                .flatten()
                .or_else(|| shelf.take_frame(lanes, bytes_max, 1, tuning.lookahead_lanes))?;
            // A track may have taken it over from another.
            work.source_ost = ost;
            let bytes = work.bytes();
            Some(((work, begun_lane), bytes))
        };
        let (_, (work, begun_lane)) = match policy.takes_best() {
            true => queues.next_best(now, true, take),
            false => queues.next(now, take),
        }?;
        if let Some(lane) = begun_lane {
            self.move_ahead(lane.entry, lane.mirror, lane.position);
        }
        Some(work)
    }

    /// Moves the lanes of a file that has been begun before the lanes of files that have not;
    /// except the lane of `mirror` at `position`, which is there already. Otherwise open files
    /// could wait behind files that must not be opened before open ones are closed. The old entries
    /// of moved lanes stay in the queue and are dropped when a thread meets them.
    fn move_ahead(&mut self, entry: EntryId, mirror: u16, position: Option<u32>) {
        if self.policy == Policy::File {
            return;
        }
        let Self { queues, plans, .. } = self;
        let Some(plan) = plans.get(&entry) else { return };
        let lanes = plan.lanes(entry);
        for (ost, lane) in lanes.filter(|(_, it)| (it.mirror, it.position) != (mirror, position)) {
            queues.insert(ost, lane, |other| !other.is_begun);
        }
    }

    /// A thread goes on with its file; at the end of the file it takes the next one.
    fn next_by_file(&mut self, now: Instant, worker: usize) -> Option<Work> {
        if self.taken.len() <= worker {
            self.taken.resize(worker + 1, None);
        }
        loop {
            let mut lane = self.taken[worker].take().or_else(|| self.files.pop_front())?;
            let Some(plan) = self.plans.get_mut(&lane.entry) else { continue };
            let Some(piece) = plan.next_piece(&lane) else { continue };
            let count_max = self.begun.count_max;
            if !self.room.has(piece.sink_ost) || !self.begun.admit(plan, count_max) {
                self.taken[worker] = Some(lane);
                return None;
            }
            let is_comparison = plan.is_comparison;
            let is_last_grant = self.room.take(piece.sink_ost);
            self.queues.start(now, piece.source_ost, u64::from(piece.length));
            lane.offset = piece.offset + u64::from(piece.length);
            self.taken[worker] = Some(lane);
            return Some(Work { is_last_grant, is_comparison, ..work_of(&lane, &piece) });
        }
    }
}

impl StagedFrame {
    /// Whether it holds blocks of any of these files.
    fn has_any_of(&self, plans: &EntryMap<Plan>) -> bool {
        self.rows.iter().any(|row| plans.contains_key(&row.block.entry))
    }

    fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        self.rows.iter().map(|row| row.block)
    }

    fn bytes(&self) -> u64 {
        self.blocks().map(|block| u64::from(block.length)).sum()
    }
}

/// The place in a queue for a lane of a file that has not been begun. The order is that of a sweep
/// of the disk arm: from the first waiting lane to the end of the disk, then from the beginning of
/// the disk. If the disk does not rotate, all offsets are the same and the lane goes to the end.
fn sweep_place(lane: &Lane, lanes: &VecDeque<Lane>) -> usize {
    let first = lanes.partition_point(|other| other.is_begun);
    let Some(start) = lanes.get(first).map(|first| first.disk_offset) else { return first };
    let way = |lane: &Lane| lane.disk_offset.wrapping_sub(start);
    lanes.partition_point(|other| other.is_begun || way(other) <= way(lane))
}

fn work_of(lane: &Lane, piece: &Piece) -> Work {
    let block = Block { entry: lane.entry, offset: piece.offset, length: piece.length };
    Work {
        way: Way::Send,
        source_ost: piece.source_ost,
        mirror: lane.mirror,
        sink_ost: piece.sink_ost,
        is_last_grant: false,
        blocks: vec![block],
        is_comparison: false,
    }
}

/// Reports whether the file is a single block, so that the sink can finish the file as soon as the
/// block arrives.
#[must_use]
pub fn is_whole(plan: &Plan, block: &Block) -> bool {
    block.offset == 0 && u64::from(block.length) == plan.size && plan.done.is_empty()
}

/// The earlier of two moments; `None` means never.
#[must_use]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (moment, None) | (None, moment) => moment,
    }
}

#[cfg(test)]
mod tests;
