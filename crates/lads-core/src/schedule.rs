//! Which block an I/O thread takes next.
//!
//! Each OST has its own queue. An idle I/O thread takes from the next queue in turn whose OST is
//! free (fewer requests of ours in flight than it should have), so that threads never wait behind
//! one busy target while others sit idle (LADS, FAST '15, section 3.4). [`OstQueues`] is that
//! rule, and serves both ends: at the source the queues hold lanes of files that are read, at the
//! sink frames to be written. [`Schedule`] is the source's: it also sees that the sink has room.
//!
//! Files of which it is known where on a disk they begin are taken in that order, as an arm sweeps
//! over the disk: only forward, and from the end back to the beginning at once (C-SCAN, as an
//! operating system orders its requests, but over all that is announced).

use crate::congestion::{Judge, PROBE_BYTES, Rule, Threshold, Verdict};
use crate::frame::Row;
use crate::layout::Layout;
use crate::plan::{Lane, Piece, Plan};
use crate::room::Room;
use crate::staging::{Slot, Slots, Stage};
use crate::units::{Block, EntryId, Instant, OstId};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::iter;
use std::ops::Range;
use std::time::Duration;

/// A target as its provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OstSpec {
    /// What people call it: `OST0003`, `/dev/nvme0n1`, a mount.
    pub name: String,
    /// The most requests of ours that it should have at a time; at least one.
    pub in_flight_max: u32,
}

/// What one OST did for us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OstStats {
    /// Requests served.
    pub requests: u64,
    /// Bytes served.
    pub bytes: u64,
    /// Sum of the service times.
    pub busy: Duration,
    /// How often a thread went elsewhere because it was congested.
    pub avoided: u64,
}

#[derive(Debug)]
struct OstQueue<T> {
    waiting: VecDeque<T>,
    /// About how many bytes wait.
    waiting_bytes: u64,
    in_flight: u32,
    /// How often in a row it was passed over, although it could have been taken from and had
    /// nothing in flight.
    passes: usize,
    /// Smoothed service time of one request: an eighth of the new, seven eighths of the old.
    service: Option<Duration>,
    stats: OstStats,
}

/// One queue for each OST, taken from in turn.
#[derive(Debug)]
pub struct OstQueues<T> {
    queues: Vec<OstQueue<T>>,
    judge: Judge,
    /// The queue to ask first next time.
    turn: usize,
    /// Only so that it need not be allocated for every block.
    choices: Vec<Choice>,
}

/// A queue that could be taken from; the least is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    /// Whether it has not been passed over too often.
    can_wait: bool,
    is_avoided: bool,
    in_flight: u32,
    runs_waiting: Reverse<u64>,
    is_stale: bool,
    turn: usize,
    index: usize,
    bytes_max: u32,
}

/// Threads stay with an OST for about this part of what waits for each, but for so many bytes at
/// least.
const RUNS: u64 = 8;
const RUN_BYTES_MIN: u64 = 8 << 20;

/// A queue that could be taken from, of an OST with nothing in flight, is passed over by
/// [`OstQueues::next_best`] at most this many times the number of OSTs in a row; of those that
/// were, one after the other. So each OST gets a sixteenth of its fair share of all takings,
/// however congested it is, and however much is queued for others: if no request takes longer than
/// `service`, what has waited longest on an OST moves within `(PASSES_MAX + 1) * osts * service /
/// threads`. It costs little, for a congested OST is only asked for an eighth of a block.
pub const PASSES_MAX: usize = 16;

impl<T> OstQueues<T> {
    /// Empty queues for these OSTs, numbered from zero, judged by a rule.
    #[must_use]
    pub fn new(rule: Rule, osts: &[OstSpec]) -> Self {
        let queue = |_| OstQueue {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: 0,
            passes: 0,
            service: None,
            stats: OstStats::default(),
        };
        let judge = Judge::new(rule, osts.iter().map(|ost| ost.in_flight_max));
        Self { queues: (0..osts.len()).map(queue).collect(), judge, turn: 0, choices: Vec::new() }
    }

    /// How many OSTs there are.
    #[must_use]
    pub fn ost_count(&self) -> usize {
        self.queues.len()
    }

    /// Puts an item of about so many bytes at the end of an OST's queue.
    ///
    /// # Panics
    /// If there is no such OST.
    pub fn push(&mut self, ost: OstId, item: T, bytes: u64) {
        let queue = &mut self.queues[ost.index()];
        queue.waiting.push_back(item);
        queue.waiting_bytes = queue.waiting_bytes.saturating_add(bytes);
    }

    /// The same, but at the place in the queue that `place` says.
    pub fn push_at(
        &mut self,
        ost: OstId,
        item: T,
        bytes: u64,
        place: impl FnOnce(&VecDeque<T>) -> usize,
    ) {
        let queue = &mut self.queues[ost.index()];
        queue.waiting.insert(place(&queue.waiting), item);
        queue.waiting_bytes = queue.waiting_bytes.saturating_add(bytes);
    }

    /// Puts an item that takes the place of another into an OST's queue, before all that are
    /// `behind` it, and those are together at its end.
    pub fn insert(&mut self, ost: OstId, item: T, behind: impl Fn(&T) -> bool) {
        let waiting = &mut self.queues[ost.index()].waiting;
        waiting.insert(waiting.partition_point(|other| !behind(other)), item);
    }

    /// What waits for an OST, first to last.
    pub fn waiting(&self, ost: OstId) -> impl Iterator<Item = &T> {
        self.queues[ost.index()].waiting.iter()
    }

    /// Takes the last item out of an OST's queue that is `wanted`.
    pub fn remove_last(
        &mut self,
        ost: OstId,
        wanted: impl Fn(&T) -> bool,
        bytes: impl Fn(&T) -> u64,
    ) -> Option<T> {
        let queue = &mut self.queues[ost.index()];
        let at = queue.waiting.iter().rposition(wanted)?;
        let item = queue.waiting.remove(at)?;
        queue.waiting_bytes = queue.waiting_bytes.saturating_sub(bytes(&item));
        Some(item)
    }

    /// Whether something waits for an OST that is free.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        (0..self.queues.len()).any(|index| self.is_ready(index))
    }

    /// Takes work from the next queue in turn whose OST is free and for which `take` finds some, at
    /// most so many bytes of it; from that of a congested OST only if there is none for the others.
    /// The OST counts it as in flight until [`Self::finish`].
    pub fn next<W>(
        &mut self,
        now: Instant,
        mut take: impl FnMut(OstId, &mut VecDeque<T>, u32) -> Option<(W, u64)>,
    ) -> Option<(OstId, W)> {
        let (count, turn) = (self.queues.len(), self.turn);
        let in_turn = || (0..count).map(|step| (turn + step) % count);
        let mut has_congested = false;
        for index in in_turn() {
            if !self.is_ready(index) {
                continue;
            }
            let bytes_max = match self.judge.verdict(OstId::from_index(index), now) {
                Verdict::Clear => u32::MAX,
                Verdict::Probe => PROBE_BYTES,
                Verdict::Congested => {
                    self.queues[index].stats.avoided += 1;
                    has_congested = true;
                    continue;
                }
            };
            if let Some(found) = self.take(now, index, bytes_max, &mut take) {
                return Some(found);
            }
        }
        in_turn().filter(|_| has_congested).find_map(|index| {
            self.is_ready(index).then(|| self.take(now, index, u32::MAX, &mut take))?
        })
    }

    /// The same, but from the queue that is best just now, not the next in turn: one whose OST is
    /// not congested and has the fewest requests in flight. If `stays`, and an OST was congested
    /// lately, then one that has most waiting and was heard of last: where threads are fewer than
    /// OSTs, they stay with OSTs of which they know that they are quick, and yet no queue is left
    /// to the end. None is passed over for ever ([`PASSES_MAX`]).
    pub fn next_best<W>(
        &mut self,
        now: Instant,
        stays: bool,
        mut take: impl FnMut(OstId, &mut VecDeque<T>, u32) -> Option<(W, u64)>,
    ) -> Option<(OstId, W)> {
        let mut choices = std::mem::take(&mut self.choices);
        choices.clear();
        self.find_choices(now, stays && !self.judge.is_calm(now), &mut choices);
        let best = choices.iter().min().copied();
        let mut found = best.and_then(|it| self.take(now, it.index, it.bytes_max, &mut take));
        if found.is_none() && choices.len() > 1 {
            choices.sort_unstable();
            let others = choices.iter().skip(1);
            found =
                others.copied().find_map(|it| self.take(now, it.index, it.bytes_max, &mut take));
        }
        if let Some((taken, _)) = &found {
            self.count_passes(*taken, &choices);
        }
        self.choices = choices;
        found
    }

    /// Counts a request of so many bytes as in flight that did not wait, if its OST is free,
    /// nothing waits for it, and it usually answers faster than `service_max`: then handing it
    /// over costs more than doing it.
    pub fn start_at_once(
        &mut self,
        now: Instant,
        ost: OstId,
        bytes: u64,
        service_max: Duration,
    ) -> bool {
        let queue = &self.queues[ost.index()];
        let is_quick = queue.service.is_some_and(|service| service < service_max);
        let is_free = queue.waiting.is_empty() && queue.in_flight < self.judge.window(ost);
        if is_quick && is_free {
            self.start(now, ost, bytes);
        }
        is_quick && is_free
    }

    /// Counts a request of so many bytes as in flight.
    pub fn start(&mut self, now: Instant, ost: OstId, bytes: u64) {
        let queue = &mut self.queues[ost.index()];
        queue.in_flight += 1;
        queue.passes = 0;
        self.judge.on_start(ost, now, bytes);
    }

    /// A request is complete, after `service` of work on so many bytes.
    ///
    /// # Panics
    /// If this OST had none in flight.
    pub fn finish(&mut self, now: Instant, ost: OstId, bytes: u64, service: Duration) {
        let queue = &mut self.queues[ost.index()];
        assert!(queue.in_flight > 0, "{ost} had nothing in flight");
        queue.in_flight -= 1;
        queue.service = Some(queue.service.map_or(service, |old| (old * 7 + service) / 8));
        queue.stats.requests += 1;
        queue.stats.bytes += bytes;
        queue.stats.busy += service;
        self.judge.on_finish(ost, now, bytes, service);
    }

    /// Whether the OST should have a further request.
    #[must_use]
    pub fn is_free(&self, ost: OstId) -> bool {
        self.queues[ost.index()].in_flight < self.judge.window(ost)
    }

    /// Requests in flight on all OSTs.
    #[must_use]
    pub fn in_flight_count(&self) -> u32 {
        self.queues.iter().map(|queue| queue.in_flight).sum()
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self, ost: OstId) -> u32 {
        self.queues[ost.index()].in_flight
    }

    fn is_ready(&self, index: usize) -> bool {
        !self.queues[index].waiting.is_empty() && self.is_free(OstId::from_index(index))
    }

    fn take<W>(
        &mut self,
        now: Instant,
        index: usize,
        bytes_max: u32,
        take: &mut impl FnMut(OstId, &mut VecDeque<T>, u32) -> Option<(W, u64)>,
    ) -> Option<(OstId, W)> {
        let ost = OstId::from_index(index);
        let queue = &mut self.queues[index];
        let (work, bytes) = take(ost, &mut queue.waiting, bytes_max)?;
        queue.waiting_bytes = queue.waiting_bytes.saturating_sub(bytes);
        if queue.waiting.is_empty() {
            queue.waiting_bytes = 0;
        }
        self.start(now, ost, bytes);
        self.turn = (index + 1) % self.queues.len();
        Some((ost, work))
    }

    /// One queue was taken from, and the others that could have been were not.
    fn count_passes(&mut self, taken: OstId, choices: &[Choice]) {
        let others = choices.iter().filter(|it| it.index != taken.index() && it.in_flight == 0);
        others.for_each(|it| self.queues[it.index].passes += 1);
    }

    /// All queues that could be taken from.
    fn find_choices(&mut self, now: Instant, stays: bool, choices: &mut Vec<Choice>) {
        let count = self.queues.len();
        let (mut bytes, mut work, mut in_flight) = (0, 0.0, 0);
        for (index, queue) in self.queues.iter().enumerate() {
            bytes += queue.waiting_bytes;
            work += self.work(index);
            in_flight += queue.in_flight;
        }
        let run_bytes = (bytes / (count as u64 * RUNS)).max(RUN_BYTES_MIN);
        // How long all that waits takes as many requests as there are now.
        let work_each = work / f64::from(in_flight + 1);
        for index in 0..count {
            if !self.is_ready(index) {
                continue;
            }
            let can_wait = self.queues[index].passes < PASSES_MAX * count;
            let verdict = self.judge.verdict(OstId::from_index(index), now);
            let is_congested = verdict == Verdict::Congested;
            // If it is the last in any case, leaving it alone saves nothing.
            let is_avoided = can_wait && is_congested && self.work(index) < work_each;
            let is_probed = verdict == Verdict::Probe || (is_congested && !can_wait);
            let queue = &mut self.queues[index];
            queue.stats.avoided += u64::from(is_avoided);
            choices.push(Choice {
                can_wait,
                is_avoided,
                in_flight: queue.in_flight,
                runs_waiting: Reverse(if stays { queue.waiting_bytes / run_bytes } else { 0 }),
                is_stale: stays && verdict != Verdict::Clear,
                turn: (index + count - self.turn) % count,
                index,
                bytes_max: if is_probed { PROBE_BYTES } else { u32::MAX },
            });
        }
    }

    /// How long what waits for an OST takes at its present pace, in bytes of a usual OST.
    fn work(&self, index: usize) -> f64 {
        let slowness = self.judge.slowness(OstId::from_index(index)).max(1.0);
        self.queues[index].waiting_bytes as f64 * slowness
    }

    /// How many times as long as usual requests to each congested OST take, in thousandths, in the
    /// order of their numbers; 1000 for those that are not: they differ by chance, and what is
    /// placed by chance is not even. If more than a few are congested, none counts as such: it is
    /// something else that is slow, and the rest could not take it all.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from one to a million times"
    )]
    pub fn slowness(&self) -> impl Iterator<Item = u32> + '_ {
        let indices = 0..self.queues.len();
        let count =
            indices.clone().filter(|&it| self.judge.is_congested(OstId::from_index(it))).count();
        let are_few = count * 4 <= self.queues.len();
        let times = move |ost| match are_few && self.judge.is_congested(ost) {
            true => self.judge.slowness(ost).clamp(1.0, 1e6),
            false => 1.0,
        };
        indices.map(move |index| (times(OstId::from_index(index)) * 1000.0) as u32)
    }

    /// What each OST did, in the order of their numbers.
    pub fn stats(&self) -> impl Iterator<Item = &OstStats> {
        self.queues.iter().map(|queue| &queue.stats)
    }
}

/// By which rule blocks are handed to I/O threads (`--schedule`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// A thread takes a whole file and goes through it from beginning to end, whatever OST it lies
    /// on: what bbcp and most others do. The baseline.
    File,
    /// A thread takes a block of any file from the next OST that is free.
    Layout,
    /// The same, but OSTs slower than they may be are skipped for a while: the papers' rule.
    Threshold,
    /// The same, but OSTs slower than others, and than they were, come last. Needs no telling.
    #[default]
    Adaptive,
}

impl Policy {
    /// By which rule it judges OSTs; `threshold` says what is slow, to the one that must be told.
    #[must_use]
    pub fn rule(self, threshold: Threshold) -> Rule {
        match self {
            Self::File | Self::Layout => Rule::Never,
            Self::Threshold => Rule::Threshold(threshold),
            Self::Adaptive => Rule::Adaptive,
        }
    }
}

/// Files no longer than this travel many to a frame, in bytes.
pub const PACKED_BYTES_MAX: u64 = 128 << 10;

/// Most blocks in one frame: few enough that a slow open does not hold many files back.
const PACK_COUNT_MAX: usize = 64;

/// How far down a queue to look for a lane whose sink OST has room.
const LOOKAHEAD_LANES: usize = 64;

/// How far down to look for one whose sink OST has so much room that it has little to do.
const BALANCED_LANES: usize = 16;

const PAGE_BYTES: u64 = 4096;

/// How blocks are to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// From their files to the sink.
    Send,
    /// From their files to this place in the stage: the sink has no room for them.
    Stage(Slot),
    /// From this place in the stage to the sink, where they are one after the other, each on pages
    /// of its own; with what was found out when they were read.
    Drain(Slot, Vec<Row>),
}

/// Blocks for one I/O thread to read, all on one OST at each end: one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Where from, and where to.
    pub way: Way,
    /// The OST that is read.
    pub source_ost: OstId,
    /// Which copy of the file is read, if it has several: zero for the usual one.
    pub mirror: u16,
    /// The OST that will be written.
    pub sink_ost: OstId,
    /// Whether no further room is left for that OST.
    pub is_last_grant: bool,
    /// The blocks; several if each is a whole small file, or a stripe of one file that is shorter
    /// than a block.
    pub blocks: Vec<Block>,
}

impl Work {
    /// How much there is to read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| u64::from(block.length)).sum()
    }
}

/// The source's queues.
#[derive(Debug)]
pub struct Schedule {
    policy: Policy,
    queues: OstQueues<Lane>,
    /// Plans of the files that have lanes in the queues.
    plans: HashMap<EntryId, Plan>,
    /// Blocks to be sent again: they go first.
    again: VecDeque<Block>,
    /// For [`Policy::File`]: files that no thread has taken.
    files: VecDeque<Lane>,
    /// For [`Policy::File`]: the file that each thread is going through.
    taken: Vec<Option<Lane>>,
    /// A frame's payload is at most this long, every block rounded up to whole pages.
    frame_bytes_max: u64,
    room: Room,
    begun: Begun,
    stage: Stage<Parcel>,
    /// Bytes that wait in it.
    staged_bytes: u64,
}

/// What is staged: the blocks of a frame.
#[derive(Debug)]
struct Parcel {
    source_ost: OstId,
    rows: Vec<Row>,
}

/// How many files have been begun and not ended: both ends keep them open.
#[derive(Debug)]
struct Begun {
    count: u32,
    count_max: u32,
}

impl Begun {
    /// How many files may be begun to go this way. What is staged leaves half of them to files
    /// that can be sent.
    fn limit(&self, is_staging: bool) -> u32 {
        if is_staging { self.count_max / 2 } else { self.count_max }
    }

    /// Whether blocks of this file may be handed out; if so, it has been begun.
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
        osts: &[OstSpec],
        frame_bytes_max: u32,
    ) -> Self {
        Self {
            policy,
            queues: OstQueues::new(policy.rule(threshold), osts),
            plans: HashMap::new(),
            again: VecDeque::new(),
            files: VecDeque::new(),
            taken: Vec::new(),
            frame_bytes_max: u64::from(frame_bytes_max),
            room: Room::default(),
            begun: Begun { count: 0, count_max: u32::MAX },
            stage: Stage::new(Slots::new(0, frame_bytes_max, 0)),
            staged_bytes: 0,
        }
    }

    /// What can be read and not be sent is staged, up to so many bytes, by so many threads at a
    /// time; not by [`Policy::File`], which reads each file in its order.
    pub fn set_stage(&mut self, bytes: u64, threads_max: u32) {
        if self.policy != Policy::File {
            let slot_bytes = u32::try_from(self.frame_bytes_max).expect("it came as 32 bits");
            self.stage = Stage::new(Slots::new(bytes, slot_bytes, threads_max));
        }
    }

    /// No more files than this are begun at a time; at least one.
    pub fn set_begun_max(&mut self, count_max: u32) {
        self.begun.count_max = count_max.max(1);
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
                    disk_offset: 0,
                    is_begun: false,
                });
            }
            _ => {
                // Near enough: holes and what is done are not looked up.
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

    /// Forgets a file; blocks of it that wait are not handed out any more.
    pub fn remove(&mut self, entry: EntryId) {
        if self.plans.remove(&entry).is_some_and(|plan| plan.is_begun) {
            self.begun.count -= 1;
        }
    }

    /// How a file is cut, while it is queued.
    #[must_use]
    pub fn plan(&self, entry: EntryId) -> Option<&Plan> {
        self.plans.get(&entry)
    }

    /// Queues a block to be sent again, before all others.
    pub fn push_again(&mut self, block: Block) {
        self.again.push_back(block);
    }

    /// Queues all blocks that a range touches to be sent again; says which those are. The range
    /// need not be one of this attempt's blocks: an earlier one may have cut the file otherwise.
    pub fn push_range_again(&mut self, entry: EntryId, range: Range<u64>) -> Vec<Block> {
        let Some(plan) = self.plans.get(&entry) else { return Vec::new() };
        let mut blocks = plan.blocks_in(entry, range);
        blocks.retain(|block| !self.again.contains(block));
        self.again.extend(&blocks);
        blocks
    }

    /// The sink granted room.
    pub fn on_grant(&mut self, ost: OstId, count: u32) {
        self.room.on_grant(ost, count);
    }

    /// Whether [`Self::next`] may find something: worth a thread's while to ask.
    #[must_use]
    pub fn may_have_work(&self) -> bool {
        let has_ready = self.queues.has_ready();
        (self.room.has_any()
            && (has_ready
                || !self.again.is_empty()
                || !self.files.is_empty()
                || self.taken.iter().any(Option::is_some)))
            || (has_ready && self.stage.has_room())
            || self.stage.has_ready(|ost| self.room.has(ost))
    }

    /// What the thread numbered `worker` should read now; room at the sink is taken for it, or a
    /// place in the stage.
    ///
    /// What is staged goes before what is not: it is older, and its place is wanted.
    pub fn next(&mut self, now: Instant, worker: usize) -> Option<Work> {
        let next = self.next_again(now).or_else(|| self.next_staged());
        next.or_else(|| match self.policy {
            Policy::File => self.next_by_file(now, worker),
            _ => self.next_by_layout(now).or_else(|| self.next_to_stage(now)),
        })
    }

    /// A read is complete; its OST is free for another.
    pub fn on_read(&mut self, now: Instant, work: &Work, service: Duration) {
        self.queues.finish(now, work.source_ost, work.bytes(), service);
    }

    /// Nothing was sent after all: the room at the sink is free again.
    pub fn on_not_sent(&mut self, sink_ost: OstId) {
        self.room.give_back(sink_ost);
    }

    /// Blocks are in their place in the stage.
    pub fn on_staged(&mut self, slot: Slot, work: &Work, rows: Vec<Row>) {
        let parcel = Parcel { source_ost: work.source_ost, rows };
        if parcel.has_any_of(&self.plans) {
            self.staged_bytes += parcel.bytes();
            self.stage.on_staged(slot, work.sink_ost, parcel);
        } else {
            self.stage.on_not_staged(slot);
        }
    }

    /// Nothing was put into this place in the stage.
    pub fn on_not_staged(&mut self, slot: Slot) {
        self.stage.on_not_staged(slot);
    }

    /// What was in this place in the stage is in memory, or lost.
    pub fn on_drained(&mut self, slot: Slot) {
        self.stage.on_drained(slot);
    }

    /// Nothing more is staged: it failed, or its disk is full.
    pub fn close_stage(&mut self) {
        self.stage.close();
    }

    /// Frees what the blocks of forgotten files take up of the stage.
    pub fn clear_stage(&mut self) {
        let Self { stage, plans, staged_bytes, .. } = self;
        stage.retain(|parcel| {
            let is_kept = parcel.has_any_of(plans);
            if !is_kept {
                *staged_bytes -= parcel.bytes();
            }
            is_kept
        });
    }

    /// Bytes that wait in the stage.
    #[must_use]
    pub fn staged_bytes(&self) -> u64 {
        self.staged_bytes
    }

    /// What each source OST did.
    pub fn stats(&self) -> impl Iterator<Item = &OstStats> {
        self.queues.stats()
    }

    fn next_again(&mut self, now: Instant) -> Option<Work> {
        for _ in 0..self.again.len() {
            let block = self.again.pop_front()?;
            let Some(plan) = self.plans.get_mut(&block.entry) else { continue };
            let source_ost = plan.source.ost_at(block.offset);
            let sink_ost = plan.sink.ost_at(block.offset);
            let is_free = self.queues.is_free(source_ost) && self.room.has(sink_ost);
            let was_begun = plan.is_begun;
            if is_free && self.begun.admit(plan, self.begun.count_max) {
                if !was_begun {
                    self.move_ahead(block.entry, 0, None);
                }
                let is_last_grant = self.room.take(sink_ost);
                self.queues.start(now, source_ost, u64::from(block.length));
                let (mirror, blocks) = (0, vec![block]);
                let way = Way::Send;
                return Some(Work { way, source_ost, mirror, sink_ost, is_last_grant, blocks });
            }
            self.again.push_back(block);
        }
        None
    }

    /// Blocks in the stage for which the sink has room now.
    fn next_staged(&mut self) -> Option<Work> {
        let (sink_ost, slot, parcel) = self.stage.next(|ost| self.room.has(ost))?;
        self.staged_bytes -= parcel.bytes();
        let Parcel { source_ost, rows } = parcel;
        let blocks = rows.iter().map(|row| row.block).collect();
        let is_last_grant = self.room.take(sink_ost);
        let way = Way::Drain(slot, rows);
        Some(Work { way, source_ost, mirror: 0, sink_ost, is_last_grant, blocks })
    }

    /// Blocks for which the sink has room.
    fn next_by_layout(&mut self, now: Instant) -> Option<Work> {
        let mut work = self.next_frame(now, false)?;
        work.is_last_grant = self.room.take(work.sink_ost);
        Some(work)
    }

    /// Blocks for which it has none, if there is place for them in the stage.
    fn next_to_stage(&mut self, now: Instant) -> Option<Work> {
        if !self.stage.has_room() {
            return None;
        }
        let mut work = self.next_frame(now, true)?;
        work.way = Way::Stage(self.stage.reserve().expect("it has room"));
        Some(work)
    }

    fn next_frame(&mut self, now: Instant, is_staging: bool) -> Option<Work> {
        let Self { policy, queues, plans, room, begun, frame_bytes_max, .. } = self;
        let frame_bytes_max = *frame_bytes_max;
        let mut shelf = Shelf { plans, room, begun, frame_bytes_max, is_staging };
        let is_balanced = *policy == Policy::Adaptive && !is_staging;
        let grants_wanted = if is_balanced { shelf.room.most() / 2 } else { 0 };
        let take = |_, lanes: &mut VecDeque<Lane>, bytes_max| {
            // What several lanes have for the same OST of the sink waits there, while others
            // wait for something to do. But the arm of a disk goes its way.
            let is_on_disk = lanes.front().is_some_and(|lane| lane.disk_offset > 0);
            let found = (grants_wanted > 1 && !is_on_disk)
                .then(|| shelf.take_frame(lanes, bytes_max, grants_wanted, BALANCED_LANES));
            let (work, begun_lane) = found
                .flatten()
                .or_else(|| shelf.take_frame(lanes, bytes_max, 1, LOOKAHEAD_LANES))?;
            let bytes = work.bytes();
            Some(((work, begun_lane), bytes))
        };
        let (_, (work, begun_lane)) = match policy {
            Policy::Adaptive => queues.next_best(now, true, take),
            _ => queues.next(now, take),
        }?;
        if let Some(lane) = begun_lane {
            self.move_ahead(lane.entry, lane.mirror, lane.position);
        }
        Some(work)
    }

    /// Lanes of a file that has been begun go before those of files that have not, but for the one
    /// of `mirror` at `position`, which has. Otherwise files that are open could wait behind files
    /// that must not be opened before those are closed. What is left behind of them is dropped when
    /// met.
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

    /// A thread goes on with its file; at its end it takes the next.
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
            let is_last_grant = self.room.take(piece.sink_ost);
            self.queues.start(now, piece.source_ost, u64::from(piece.length));
            lane.offset = piece.offset + u64::from(piece.length);
            self.taken[worker] = Some(lane);
            return Some(Work { is_last_grant, ..work_of(&lane, &piece) });
        }
    }
}

impl Parcel {
    /// Whether it holds blocks of any of these files.
    fn has_any_of(&self, plans: &HashMap<EntryId, Plan>) -> bool {
        self.rows.iter().any(|row| plans.contains_key(&row.block.entry))
    }

    fn bytes(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.block.length)).sum()
    }
}

/// Where in a queue a lane of a file that is not begun belongs: in the order in which the arm of a
/// disk meets the files on its way from the first that waits to the end of the disk, and then from
/// the beginning of the disk on. Where no disk turns, all offsets are the same: at the end.
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
    }
}

/// What is looked at to fill a frame from one OST's queue.
struct Shelf<'a> {
    plans: &'a mut HashMap<EntryId, Plan>,
    room: &'a Room,
    begun: &'a mut Begun,
    frame_bytes_max: u64,
    /// Whether blocks are wanted for which there is no room.
    is_staging: bool,
}

impl Shelf<'_> {
    /// Takes a block from the first lane whose sink OST has room (or none, to stage it), at most so
    /// many bytes of it; if it is a whole small file, the small files behind it go along. Also says
    /// which lane is the first of its file to be begun, if that has others.
    fn take_frame(
        &mut self,
        lanes: &mut VecDeque<Lane>,
        bytes_max: u32,
        grants_wanted: u32,
        lookahead: usize,
    ) -> Option<(Work, Option<Lane>)> {
        let mut at = 0;
        while at < lanes.len().min(lookahead) {
            let mut lane = lanes[at];
            let Some((plan, mut piece)) = self.next_piece(&lane) else {
                lanes.remove(at);
                continue;
            };
            piece.length = piece.length.min(bytes_max);
            if plan.is_begun && !lane.is_begun {
                // It stands further ahead.
                lanes.remove(at);
                continue;
            }
            if !lane.is_begun && self.begun.count >= self.begun.limit(self.is_staging) {
                // Nor has any lane behind it been begun.
                return None;
            }
            let is_small = is_packed(plan, &piece);
            let is_passed = match self.is_staging {
                true => self.room.has(piece.sink_ost),
                false => self.room.count(piece.sink_ost) < grants_wanted,
            };
            if is_passed {
                let is_splittable = lane.sink_position.is_none() && plan.sink.position_count() > 1;
                if lane.is_begun && is_splittable {
                    // What the file has for other OSTs of the sink need not wait for this one.
                    lanes.remove(at);
                    self.put_back(lanes, at, lane, true);
                } else {
                    at += 1;
                }
                continue;
            }
            let is_new = !std::mem::replace(&mut lane.is_begun, true);
            self.admit(lane.entry);
            let mut work = work_of(&lane, &piece);
            self.take(&work.blocks[0]);
            lanes.remove(at);
            if is_small {
                self.pack(lanes, at, &mut work, bytes_max);
                return Some((work, None));
            }
            lane.offset = piece.offset + u64::from(piece.length);
            let has_strays = self.extend(&mut lane, &mut work, bytes_max);
            let place = if is_new { lanes.partition_point(|other| other.is_begun) } else { at };
            self.put_back(lanes, place, lane, has_strays);
            return Some((work, is_new.then_some(lane)));
        }
        None
    }

    /// Adds the stripes that follow on the lane, as long as the frame has place: many short ones
    /// cost no more than one block. Says whether it ended at one that goes to another OST of the
    /// sink, though it is short.
    fn extend(&mut self, lane: &mut Lane, work: &mut Work, bytes_max: u32) -> bool {
        let bytes_max = self.frame_bytes_max.min(bytes_max.into());
        let mut bytes = in_pages(work.blocks[0].length);
        while work.blocks.len() < PACK_COUNT_MAX
            && let Some((_, piece)) = self.next_piece(lane)
        {
            bytes += in_pages(piece.length);
            if bytes > bytes_max {
                return false;
            }
            if piece.sink_ost != work.sink_ost {
                return lane.sink_position.is_none();
            }
            let block = Block { entry: lane.entry, offset: piece.offset, length: piece.length };
            work.blocks.push(block);
            self.take(&block);
            lane.offset = block.end();
        }
        false
    }

    /// Puts what is left of a lane back; as one lane for each OST of the sink if `is_split`, so
    /// that stripes for the same one come after each other.
    fn put_back(&self, lanes: &mut VecDeque<Lane>, place: usize, lane: Lane, is_split: bool) {
        if is_split && let Some(plan) = self.plans.get(&lane.entry) {
            plan.split(&lane).rev().for_each(|lane| lanes.insert(place, lane));
            return;
        }
        // Of the lanes that were one, that which is furthest behind goes first.
        let behind = lanes.iter().skip(place).take_while(|other| {
            (other.entry, other.mirror, other.position) == (lane.entry, lane.mirror, lane.position)
                && other.offset < lane.offset
        });
        let place = place + behind.count();
        lanes.insert(place, lane);
    }

    /// Adds the small files that follow in the queue, as long as the frame has place.
    fn pack(&mut self, lanes: &mut VecDeque<Lane>, at: usize, work: &mut Work, bytes_max: u32) {
        let bytes_max = self.frame_bytes_max.min(bytes_max.into());
        let mut bytes = in_pages(work.blocks[0].length);
        while work.blocks.len() < PACK_COUNT_MAX {
            let Some(&lane) = lanes.get(at) else { return };
            let Some((plan, piece)) = self.next_piece(&lane) else {
                lanes.remove(at);
                continue;
            };
            if plan.is_begun && !lane.is_begun {
                lanes.remove(at);
                continue;
            }
            let fits = is_packed(plan, &piece)
                && (lane.mirror, piece.sink_ost) == (work.mirror, work.sink_ost)
                && bytes + in_pages(piece.length) <= bytes_max;
            if !fits || !self.admit(lane.entry) {
                return;
            }
            bytes += in_pages(piece.length);
            let block = Block { entry: lane.entry, offset: piece.offset, length: piece.length };
            work.blocks.push(block);
            self.take(&block);
            lanes.remove(at);
        }
    }

    fn next_piece(&self, lane: &Lane) -> Option<(&Plan, Piece)> {
        let plan = self.plans.get(&lane.entry)?;
        Some((plan, plan.next_piece(lane)?))
    }

    /// A block of a file is handed out.
    fn take(&mut self, block: &Block) {
        if let Some(plan) = self.plans.get_mut(&block.entry) {
            plan.take(block.offset..block.end());
        }
    }

    fn admit(&mut self, entry: EntryId) -> bool {
        let count_max = self.begun.limit(self.is_staging);
        self.plans.get_mut(&entry).is_some_and(|plan| self.begun.admit(plan, count_max))
    }
}

/// A length as whole pages: each block of a frame begins on a page of its own.
fn in_pages(length: u32) -> u64 {
    u64::from(length).div_ceil(PAGE_BYTES) * PAGE_BYTES
}

fn is_packed(plan: &Plan, piece: &Piece) -> bool {
    plan.size <= PACKED_BYTES_MAX && u64::from(piece.length) == plan.size
}

/// Whether the file is one block, so that the sink can finish it as soon as that arrives.
#[must_use]
pub fn is_whole(plan: &Plan, block: &Block) -> bool {
    block.offset == 0 && u64::from(block.length) == plan.size && plan.done.is_empty()
}

/// When something that waits for time should be looked at again: the earlier of two moments.
#[must_use]
pub fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (moment, None) | (None, moment) => moment,
    }
}

#[cfg(test)]
mod tests;
