//! Which OST is served next. Each OST has one queue, at either end.
//!
//! [`OstQueues::next`] takes in turn from the queues whose OST is free. [`OstQueues::next_best`]
//! takes from the queue that is best at the moment. The [`Judge`] says which OSTs are slow.

use crate::congestion::{Judge, Rule, Verdict};
use crate::matching::{Matching, Why};
use crate::room::Uses;
use crate::tuning::Tuning;
use crate::units::{Instant, OstId};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Duration;

/// A target as its provider describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OstSpec {
    /// What people call it: `OST0003`, `/dev/nvme0n1`, a mount.
    pub name: String,
    /// The most requests of ours that it should have at a time; at least one.
    pub in_flight_max: u32,
    /// Whether it is a track ([`crate::tracks`]). Tracks of one target have its name, and numbers
    /// that follow each other.
    pub is_track: bool,
    /// Whether its file system locks a file while a block of it is written: a second write of the
    /// same file would only wait, and use up a processor for it. Matters at the sink only.
    pub locks_files: bool,
}

impl OstSpec {
    /// A target that is not a track, and writes several blocks of a file at a time.
    #[must_use]
    pub fn new(name: impl Into<String>, in_flight_max: u32) -> Self {
        Self { name: name.into(), in_flight_max, is_track: false, locks_files: false }
    }

    /// What it has buffers for.
    #[must_use]
    pub fn uses(&self) -> Uses {
        Uses { in_flight_max: self.in_flight_max, is_track: self.is_track }
    }
}

/// What one OST did for this transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OstStats {
    /// Requests served.
    pub requests: u64,
    /// Bytes served.
    pub bytes: u64,
    /// Sum of the service times.
    pub busy: Duration,
    /// How long it had at least one request of ours.
    pub occupied: Duration,
    /// How often a thread took from another OST because this one was congested.
    pub avoided: u64,
}

#[derive(Debug)]
struct OstQueue<T> {
    waiting: VecDeque<T>,
    /// About how many bytes wait in the queue.
    waiting_bytes: u64,
    in_flight: u32,
    /// Since when it has had requests in flight.
    occupied_since: Instant,
    /// How often in a row it was passed over, although it had nothing in flight and a thread could
    /// have taken from it.
    passes: usize,
    /// Smoothed service time of one request.
    service: Option<Duration>,
    stats: OstStats,
}

/// One queue for each OST.
#[derive(Debug)]
pub struct OstQueues<T> {
    tuning: Tuning,
    queues: Vec<OstQueue<T>>,
    judge: Box<dyn Judge>,
    /// Requests in flight on all OSTs.
    in_flight: u32,
    /// The most that all OSTs together should have.
    in_flight_max: u32,
    /// How many these should be, if that is looked for.
    matching: Option<Matching>,
    /// The queue to ask first next time.
    turn: usize,
    /// Kept only to avoid an allocation for every block.
    choices: Vec<Choice>,
}

/// A queue that could be taken from. The least one is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Choice {
    /// Whether it may be passed over once more: it has not been passed over too often.
    can_wait: bool,
    is_avoided: bool,
    in_flight: u32,
    runs_waiting: Reverse<u64>,
    is_stale: bool,
    turn: usize,
    index: usize,
    bytes_max: u32,
}

impl<T> OstQueues<T> {
    /// Empty queues for these OSTs, numbered from zero, judged by a rule.
    #[must_use]
    pub fn new(rule: Rule, tuning: &Tuning, osts: &[OstSpec]) -> Self {
        let tuning = &match osts.iter().any(|ost| ost.is_track) {
            // A track has the time of whatever hidden OST its file lies on. So there is nothing to
            // learn from a short request, and files would be made at the sink in another order
            // than they come: 640 files of 1 MiB between 8 and 8 hidden OSTs take 3.75 s instead of
            // 3.58.
            true => Tuning { first_count: 0, ..*tuning },
            false => *tuning,
        };
        let queue = |_| OstQueue {
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: 0,
            occupied_since: Instant::START,
            passes: 0,
            service: None,
            stats: OstStats::default(),
        };
        let judge = rule.judge(tuning, osts.iter().map(|ost| ost.in_flight_max));
        let queues = (0..osts.len()).map(queue).collect();
        Self {
            tuning: *tuning,
            queues,
            judge,
            in_flight: 0,
            in_flight_max: osts.iter().map(|ost| ost.in_flight_max).sum(),
            matching: None,
            turn: 0,
            choices: Vec::new(),
        }
    }

    /// The same queues, but each OST gets only as many requests at a time as keep it busy.
    #[must_use]
    pub fn sparing(mut self) -> Self {
        self.judge.spare();
        self
    }

    /// From now on at most `most` requests are in flight at a time, or fewer if these are better.
    pub fn match_requests(&mut self, most: u32) {
        self.matching = Some(Matching::new(&self.tuning, most));
    }

    /// Returns how many requests may be in flight at a time, why, and what the last change of that
    /// number gained.
    #[must_use]
    pub fn limit(&self) -> (u32, Why, f64) {
        match &self.matching {
            Some(matching) => {
                let (why, gain) = matching.reason();
                (matching.home(), why, gain)
            }
            None => (self.in_flight_max, Why::Guess, 1.0),
        }
    }

    /// Returns when [`Self::on_time`] has something to do, if no request is complete before.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let at = self.matching.as_ref()?.next_timeout()?;
        (!self.has_free() && self.has_waiting()).then_some(at)
    }

    /// If no request has been complete for long, those that wait need not wait for it.
    pub fn on_time(&mut self, now: Instant) {
        let is_due = self.next_timeout().is_some_and(|at| at <= now);
        if let Some(matching) = self.matching.as_mut().filter(|_| is_due) {
            matching.on_time(now);
        }
    }

    /// Returns how many OSTs there are.
    #[must_use]
    pub fn ost_count(&self) -> usize {
        self.queues.len()
    }

    /// Puts a lane or a frame of about this many bytes at the end of an OST's queue.
    ///
    /// # Panics
    /// If there is no such OST.
    pub fn push(&mut self, ost: OstId, queued: T, bytes: u64) {
        let queue = &mut self.queues[ost.index()];
        queue.waiting.push_back(queued);
        queue.waiting_bytes = queue.waiting_bytes.saturating_add(bytes);
    }

    /// As [`Self::push`], but at the index in the queue that `place` returns.
    pub fn push_at(
        &mut self,
        ost: OstId,
        queued: T,
        bytes: u64,
        place: impl FnOnce(&VecDeque<T>) -> usize,
    ) {
        let queue = &mut self.queues[ost.index()];
        queue.waiting.insert(place(&queue.waiting), queued);
        queue.waiting_bytes = queue.waiting_bytes.saturating_add(bytes);
    }

    /// Puts a lane or a frame in front of those at the end of the queue for which `behind` holds.
    /// It replaces another one, so the number of waiting bytes stays the same.
    pub fn insert(&mut self, ost: OstId, queued: T, behind: impl Fn(&T) -> bool) {
        let waiting = &mut self.queues[ost.index()].waiting;
        waiting.insert(waiting.partition_point(|other| !behind(other)), queued);
    }

    /// What waits for an OST, first to last.
    pub fn waiting(&self, ost: OstId) -> impl DoubleEndedIterator<Item = &T> {
        self.queues[ost.index()].waiting.iter()
    }

    /// Takes the last one for which `wanted` holds out of an OST's queue.
    pub fn remove_last(
        &mut self,
        ost: OstId,
        wanted: impl Fn(&T) -> bool,
        bytes: impl Fn(&T) -> u64,
    ) -> Option<T> {
        let queue = &mut self.queues[ost.index()];
        let at = queue.waiting.iter().rposition(wanted)?;
        let queued = queue.waiting.remove(at)?;
        queue.waiting_bytes = queue.waiting_bytes.saturating_sub(bytes(&queued));
        Some(queued)
    }

    /// All OSTs.
    pub fn osts(&self) -> impl Iterator<Item = OstId> + use<T> {
        (0..self.queues.len()).map(OstId::from_index)
    }

    /// Reports whether an OST has nothing to do.
    #[must_use]
    pub fn is_idle(&self, ost: OstId) -> bool {
        let queue = &self.queues[ost.index()];
        queue.waiting.is_empty() && queue.in_flight == 0
    }

    /// OSTs for which something waits, and how much that is with what is in flight, in bytes.
    pub fn busy(&self) -> impl Iterator<Item = (OstId, u64)> + '_ {
        let busy = self.queues.iter().enumerate().filter(|(_, it)| !it.waiting.is_empty());
        busy.map(|(index, queue)| {
            let in_flight_bytes = u64::from(queue.in_flight) << 20;
            (OstId::from_index(index), queue.waiting_bytes.saturating_add(in_flight_bytes))
        })
    }

    /// About how many bytes wait for an OST.
    #[must_use]
    pub fn waiting_bytes(&self, ost: OstId) -> u64 {
        self.queues[ost.index()].waiting_bytes
    }

    /// Returns how many lanes or frames wait for an OST.
    #[must_use]
    pub fn waiting_count(&self, ost: OstId) -> usize {
        self.queues[ost.index()].waiting.len()
    }

    /// Moves the last `count` things that wait for one OST to the end of the queue of another.
    /// `bytes` says how many bytes each stands for.
    ///
    /// # Panics
    /// If fewer wait.
    pub fn move_last(&mut self, from: OstId, to: OstId, count: usize, bytes: impl Fn(&T) -> u64) {
        let queue = &mut self.queues[from.index()];
        let moved = queue.waiting.split_off(queue.waiting.len() - count);
        let moved_bytes = moved.iter().map(bytes).sum();
        queue.waiting_bytes = queue.waiting_bytes.saturating_sub(moved_bytes);
        let queue = &mut self.queues[to.index()];
        queue.waiting.extend(moved);
        queue.waiting_bytes = queue.waiting_bytes.saturating_add(moved_bytes);
    }

    /// Replaces the last thing that waits for an OST by one that is shorter by this many bytes.
    ///
    /// # Panics
    /// If nothing waits.
    pub fn shorten_last(&mut self, ost: OstId, shorter: T, bytes: u64) {
        let queue = &mut self.queues[ost.index()];
        *queue.waiting.back_mut().expect("something waits") = shorter;
        queue.waiting_bytes = queue.waiting_bytes.saturating_sub(bytes);
    }

    /// Returns how many times as long as usual an OST takes; at least 1.
    #[must_use]
    pub fn slowness_of(&self, ost: OstId) -> f64 {
        self.judge.slowness_recent(ost).max(1.0)
    }

    /// Reports whether something waits for any OST.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        self.queues.iter().any(|queue| !queue.waiting.is_empty())
    }

    /// Reports whether something waits for an OST that is free.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.has_free() && (0..self.queues.len()).any(|index| self.is_ready(index))
    }

    /// Takes work from the next queue in turn whose OST is free and in which `take` finds work of
    /// at most the given number of bytes. A congested OST is asked only if the others have none.
    /// The OST counts the work as in flight until [`Self::finish`].
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
                Verdict::Probe => self.tuning.probe_bytes,
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

    /// As [`Self::next`], but takes from the queue that is best at the moment: its OST is not
    /// congested and has the fewest requests in flight. If `stays`, and an OST was congested
    /// lately, the best queue is the one with most waiting whose OST completed a request most
    /// recently. So where threads are fewer than OSTs, they stay with OSTs that they know to be
    /// quick, and still no queue is left until the end. No queue is passed over forever
    /// ([`Tuning::passes_max`]).
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

    /// Starts a request of this many bytes that did not wait in the queue, if its OST is free,
    /// nothing waits for the OST, and the OST usually answers faster than `service_max`: then to do
    /// the request costs less than to hand it over to another thread. Returns whether it was
    /// started.
    pub fn start_at_once(
        &mut self,
        now: Instant,
        ost: OstId,
        bytes: u64,
        service_max: Duration,
    ) -> bool {
        let queue = &self.queues[ost.index()];
        let is_quick = queue.service.is_some_and(|service| service < service_max);
        let is_free = queue.waiting.is_empty() && self.is_free(ost);
        if is_quick && is_free {
            self.start(now, ost, bytes);
        }
        is_quick && is_free
    }

    /// Counts a request of this many bytes as in flight.
    pub fn start(&mut self, now: Instant, ost: OstId, bytes: u64) {
        let queue = &mut self.queues[ost.index()];
        if queue.in_flight == 0 {
            queue.occupied_since = now;
        }
        queue.in_flight += 1;
        if let Some(matching) = self.matching.as_mut().filter(|_| self.in_flight == 0) {
            matching.on_first(now);
        }
        self.in_flight += 1;
        queue.passes = 0;
        self.judge.on_start(ost, now, bytes);
    }

    /// A request of this many bytes is complete; the OST worked on it for `service`.
    ///
    /// # Panics
    /// If this OST had none in flight.
    pub fn finish(&mut self, now: Instant, ost: OstId, bytes: u64, service: Duration) {
        self.tell_matching(now, bytes);
        let queue = &mut self.queues[ost.index()];
        assert!(queue.in_flight > 0, "{ost} had nothing in flight");
        queue.in_flight -= 1;
        self.in_flight -= 1;
        if queue.in_flight == 0 {
            queue.stats.occupied += now.since(queue.occupied_since);
        }
        let parts = self.tuning.service_parts.max(1);
        let mean = |old| (old * (parts - 1) + service) / parts;
        queue.service = Some(queue.service.map_or(service, mean));
        queue.stats.requests += 1;
        queue.stats.bytes += bytes;
        queue.stats.busy += service;
        self.judge.on_finish(ost, now, bytes, service);
    }

    /// Reports whether the OST should have one more request.
    #[must_use]
    pub fn is_free(&self, ost: OstId) -> bool {
        self.has_free() && self.queues[ost.index()].in_flight < self.judge.window(ost)
    }

    /// Requests in flight on all OSTs.
    #[must_use]
    pub fn in_flight_count(&self) -> u32 {
        self.in_flight
    }

    /// Requests in flight.
    #[must_use]
    pub fn in_flight(&self, ost: OstId) -> u32 {
        self.queues[ost.index()].in_flight
    }

    /// Whether one more request may be in flight.
    fn has_free(&self) -> bool {
        self.matching.as_ref().is_none_or(|matching| self.in_flight < matching.limit())
    }

    /// A request is complete, and still counted.
    fn tell_matching(&mut self, now: Instant, bytes: u64) {
        let Some(mut matching) = self.matching.take() else { return };
        let is_full = self.in_flight >= matching.limit();
        let is_busy = self.has_waiting() && (is_full || !self.has_ready());
        matching.on_finish(now, bytes, self.in_flight, is_busy);
        self.matching = Some(matching);
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

    /// Counts that one queue was taken from, and that the other `choices` were passed over.
    fn count_passes(&mut self, taken: OstId, choices: &[Choice]) {
        let others = choices.iter().filter(|it| it.index != taken.index() && it.in_flight == 0);
        others.for_each(|it| self.queues[it.index].passes += 1);
    }

    /// Puts all queues that could be taken from into `choices`.
    fn find_choices(&mut self, now: Instant, stays: bool, choices: &mut Vec<Choice>) {
        let count = self.queues.len();
        let (mut bytes, mut work, mut in_flight) = (0, 0.0, 0);
        for (index, queue) in self.queues.iter().enumerate() {
            bytes += queue.waiting_bytes;
            work += self.work(index);
            in_flight += queue.in_flight;
        }
        let run_bytes =
            (bytes / (count as u64 * self.tuning.run_parts)).max(self.tuning.run_bytes_min);
        // The time for all waiting work, divided by the number of requests in flight including this
        // one.
        let work_each = work / f64::from(in_flight + 1);
        // Few requests go to few files, which are served from beginning to end.
        let is_narrow = self.matching.as_ref().is_some_and(Matching::is_narrow);
        let first = if is_narrow { 0 } else { self.turn };
        for index in 0..count {
            if !self.is_ready(index) {
                continue;
            }
            let can_wait = self.queues[index].passes < self.tuning.passes_max * count;
            let verdict = self.judge.verdict(OstId::from_index(index), now);
            let is_congested = verdict == Verdict::Congested;
            // If this OST ends last in any case, to leave it alone saves nothing.
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
                turn: (index + count - first) % count,
                index,
                bytes_max: if is_probed { self.tuning.probe_bytes } else { u32::MAX },
            });
        }
    }

    /// The work that waits for an OST, in the bytes that a usual OST would serve in the same time.
    fn work(&self, index: usize) -> f64 {
        let slowness = self.judge.slowness(OstId::from_index(index)).max(1.0);
        self.queues[index].waiting_bytes as f64 * slowness
    }

    /// Returns which OSTs are congested, in the order of their numbers. If more than a few are,
    /// none counts as congested: the cause is then not the OSTs, and the rest could not take all
    /// the work.
    pub fn congested(&self) -> impl Iterator<Item = bool> + Clone + '_ {
        let osts = (0..self.queues.len()).map(OstId::from_index);
        let count = osts.clone().filter(|&ost| self.judge.is_congested(ost)).count();
        let are_few = count * self.tuning.few_parts <= self.queues.len();
        osts.map(move |ost| are_few && self.judge.is_congested(ost))
    }

    /// Reports whether no OST has been congested for a while.
    #[must_use]
    pub fn is_calm(&self, now: Instant) -> bool {
        self.judge.is_calm(now)
    }

    /// How many times as long as usual requests to each congested OST are expected to take, in
    /// thousandths, in the order of their numbers. 1000 for OSTs that are not congested: they
    /// differ by chance, and to place files by such differences would make the OSTs uneven.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from one to a million times"
    )]
    pub fn slowness(&self, now: Instant) -> impl Iterator<Item = u32> + '_ {
        self.congested().enumerate().map(move |(index, is_congested)| {
            let ost = OstId::from_index(index);
            let slowness = match is_congested {
                true => self.judge.slowness_expected(ost, now).clamp(1.0, 1e6),
                false => 1.0,
            };
            (slowness * 1000.0) as u32
        })
    }

    /// For how long each congested OST has been slow, in the order of their numbers; zero for the
    /// others.
    pub fn slow_for(&self, now: Instant) -> impl Iterator<Item = Duration> + '_ {
        (0..self.queues.len()).map(move |index| self.judge.slow_for(OstId::from_index(index), now))
    }

    /// Counters of each OST, in the order of their numbers.
    pub fn stats(&self) -> impl Iterator<Item = &OstStats> {
        self.queues.iter().map(|queue| &queue.stats)
    }
}
