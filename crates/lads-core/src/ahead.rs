//! Which of the announced files is placed next, and how far ahead of its blocks.
//!
//! A file gets its place when the sink looks at it. Which OSTs are congested changes within
//! seconds. A file that is placed long before its blocks come is placed by old information; a file
//! that is placed too late leaves OSTs idle. So for each OST of the source a limited number of
//! bytes is *in hand*: placed, and not yet come. The limit is about what came from that OST in the
//! last half second, which even a long-distance line needs to stay busy, and never less than a
//! small amount. The source OST with least in hand gets its next file placed first, so that no OST
//! runs dry while files of another pile up.
//!
//! Bytes that wait for a congested OST of the sink count for little, because their source OST needs
//! other files to stay busy. Bytes that the source has read ahead into its stage do not count: they
//! had to be placed before they were read.

use crate::entry::{Entry, Kind};
use crate::tuning::Tuning;
use crate::units::{Instant, OstId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Keeps the entries that the sink has not looked at, and counts the bytes that are placed and have
/// not come.
#[derive(Debug)]
pub struct Ahead {
    tuning: Tuning,
    /// The number of bytes that may always be in hand, over all source OSTs; `None` if there is no
    /// limit at all.
    bytes_min: Option<u64>,
    /// Entries that need no place, or may be placed at any time.
    at_once: VecDeque<Entry>,
    sources: BTreeMap<OstId, SourceOst>,
    /// The most source OSTs that there were at a time.
    sources_max: u64,
    /// Source OSTs whose next file may be placed, those with least in hand first.
    open: BTreeSet<(u64, OstId)>,
    /// Which OSTs of the sink are congested, in the order of their numbers.
    congested: Vec<bool>,
    /// Whether no OST of the sink has been congested for a while.
    is_calm: bool,
    /// Whether free OSTs take work that waits for others, because files grow.
    is_shared: bool,
    /// Whether any file has several stripes.
    is_striped: bool,
    /// About how many of the placed bytes are in the source's stage.
    staged_bytes: u64,
    /// The number of bytes of all files that have got a place so far.
    decided_bytes: u64,
    interval_began: Instant,
}

/// The bytes of one file that are placed and have not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The OST of the source that they come from.
    pub source_ost: OstId,
    /// The OST of the sink that they go to; `None` while that is being decided.
    pub sink_ost: Option<OstId>,
    /// The number of bytes.
    pub bytes: u64,
}

/// An OST of the source.
#[derive(Debug, Default)]
struct SourceOst {
    waiting: VecDeque<Entry>,
    /// The bytes of the `waiting` files.
    waiting_bytes: u64,
    /// Bytes that are placed and have not come, by the sink OST that they go to.
    placed: BTreeMap<Option<OstId>, u64>,
    /// The bytes that came in the current interval, and in the one before.
    come_bytes: u64,
    come_bytes_before: u64,
    /// The number of bytes in hand under which this OST is in `open`; `None` if it is not in there.
    listed: Option<u64>,
}

impl Ahead {
    /// Nothing is placed yet. `bytes_min` bytes may always be in hand, over all OSTs of the source
    /// together; `None` means no limit.
    #[must_use]
    pub fn new(tuning: &Tuning, bytes_min: Option<u64>) -> Self {
        Self {
            tuning: *tuning,
            bytes_min,
            at_once: VecDeque::new(),
            sources: BTreeMap::new(),
            sources_max: 1,
            open: BTreeSet::new(),
            congested: Vec::new(),
            is_calm: true,
            is_shared: false,
            is_striped: false,
            staged_bytes: 0,
            decided_bytes: 0,
            interval_began: Instant::START,
        }
    }

    /// Sets whether files grow: then other OSTs write what was placed on an OST that turns slow.
    #[must_use]
    pub fn where_files_grow(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// Reports whether there is a limit at all; without one, [`Self::on_congestion`] need not be
    /// called.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.bytes_min.is_some()
    }

    /// An entry was announced.
    pub fn push(&mut self, entry: Entry) {
        let bytes = entry.placed_bytes();
        match entry.kind {
            Kind::File { source_ost, striping, .. } if self.is_limited() && bytes > 0 => {
                self.is_striped |= striping.count > 1;
                let source = self.sources.entry(source_ost).or_default();
                source.waiting.push_back(entry);
                source.waiting_bytes = source.waiting_bytes.saturating_add(bytes);
                self.update(source_ost);
                self.update_if_more();
            }
            _ => self.at_once.push_back(entry),
        }
    }

    /// Bytes of the files that are placed next: files that the sink is looking at, and files that
    /// may be placed before anything else has come. `u64::MAX` if there is no limit.
    #[must_use]
    pub fn coming_bytes(&self) -> u64 {
        if !self.is_limited() {
            return u64::MAX;
        }
        let of_source = |source: &SourceOst| {
            let room = self.bytes_max(source).saturating_sub(source.listed.unwrap_or(u64::MAX));
            // A file comes if there is any room, however long it is.
            let at_least = if room > 0 { source.next_bytes() } else { 0 };
            let next = room.clamp(at_least, source.waiting_bytes.max(at_least));
            source.bytes_undecided().saturating_add(next)
        };
        self.sources.values().map(of_source).fold(0, u64::saturating_add)
    }

    /// The bytes of all files of the transfer that are known, with or without a place; `u64::MAX`
    /// if there is no limit.
    #[must_use]
    pub fn transfer_bytes(&self) -> u64 {
        if !self.is_limited() {
            return u64::MAX;
        }
        let unplaced =
            |source: &SourceOst| source.waiting_bytes.saturating_add(source.bytes_undecided());
        self.sources.values().map(unplaced).fold(self.decided_bytes, u64::saturating_add)
    }

    /// Reports whether [`Self::take_next`] has something.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.at_once.is_empty() || !self.open.is_empty()
    }

    /// Reports whether no entry waits for the sink to look at it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at_once.is_empty() && self.sources.values().all(|source| source.waiting.is_empty())
    }

    /// The next entry for the sink to look at. If it is a file with data, its bytes count as placed
    /// from now on; the caller reports what becomes of them.
    pub fn take_next(&mut self) -> Option<(Entry, Option<Placed>)> {
        if let Some(entry) = self.at_once.pop_front() {
            return Some((entry, None));
        }
        let &(_, source_ost) = self.open.first()?;
        let source = self.sources.get_mut(&source_ost)?;
        let entry = source.waiting.pop_front()?;
        let bytes = entry.placed_bytes();
        source.waiting_bytes = source.waiting_bytes.saturating_sub(bytes);
        source.add(None, bytes);
        self.update(source_ost);
        Some((entry, Some(Placed { source_ost, sink_ost: None, bytes })))
    }

    /// It has been decided which OST a file goes to.
    pub fn on_decided(&mut self, placed: &mut Placed, sink_ost: OstId) {
        if let Some(source) = self.sources.get_mut(&placed.source_ost) {
            source.subtract(placed.sink_ost, placed.bytes);
            source.add(Some(sink_ost), placed.bytes);
            self.decided_bytes = self.decided_bytes.saturating_add(placed.bytes);
            placed.sink_ost = Some(sink_ost);
            self.update(placed.source_ost);
        }
    }

    /// `bytes` of a file came, or as many as were left of it.
    pub fn on_come(&mut self, now: Instant, placed: &mut Placed, bytes: u64) {
        if now.since(self.interval_began) >= self.tuning.come_interval {
            self.interval_began = now;
            for source in self.sources.values_mut() {
                source.come_bytes_before = std::mem::take(&mut source.come_bytes);
            }
            self.update_all();
        }
        if let Some(source) = self.sources.get_mut(&placed.source_ost) {
            source.come_bytes = source.come_bytes.saturating_add(bytes.min(placed.bytes));
        }
        self.on_given_up(placed, bytes);
    }

    /// `bytes` of a file will not come any more, or as many as were left of it.
    pub fn on_given_up(&mut self, placed: &mut Placed, bytes: u64) {
        let bytes = bytes.min(placed.bytes);
        placed.bytes -= bytes;
        if let Some(source) = self.sources.get_mut(&placed.source_ost) {
            source.subtract(placed.sink_ost, bytes);
            self.update(placed.source_ost);
        }
    }

    /// The source's stage holds `bytes` of what is placed.
    pub fn on_staged(&mut self, bytes: u64) {
        self.staged_bytes = bytes;
        self.update_all();
    }

    /// Which OSTs of the sink are congested now, in the order of their numbers, and whether no OST
    /// has been congested for a while.
    pub fn on_congestion(&mut self, congested: impl Iterator<Item = bool> + Clone, is_calm: bool) {
        let is_known =
            self.is_calm == is_calm && self.congested.iter().copied().eq(congested.clone());
        if !is_known {
            self.congested = congested.collect();
            self.is_calm = is_calm;
            self.update_all();
        }
    }

    /// The sink looks at no further entry: forgets all that wait.
    pub fn close(&mut self) {
        self.at_once.clear();
        for source in self.sources.values_mut() {
            source.waiting.clear();
            source.waiting_bytes = 0;
        }
        self.update_all();
    }

    /// How many bytes of each source OST may be in hand, if nothing came from it lately.
    fn share(&self) -> u64 {
        let times = match (self.is_calm, self.is_striped) {
            (true, true) => self.tuning.times_for_stripes,
            (true, false) => 1,
            (false, _) => self.tuning.times_for_choice,
        };
        (self.bytes_min.unwrap_or(0).saturating_mul(times) / self.sources_max).max(1)
    }

    /// How many bytes of this source OST may be in hand.
    fn bytes_max(&self, source: &SourceOst) -> u64 {
        let come = source.come_bytes.max(source.come_bytes_before);
        // Stripes of several files are read side by side until the end.
        let is_end =
            source.waiting.len() <= self.tuning.last_files && !self.is_striped && !self.is_shared;
        let part = if is_end { self.tuning.last_parts.max(1) } else { 1 };
        let staged_bytes = self.staged_bytes / self.sources_max;
        self.share().max(come).div_ceil(part).saturating_add(staged_bytes)
    }

    fn update_if_more(&mut self) {
        let count = self.sources.len() as u64;
        if count > self.sources_max {
            self.sources_max = count;
            self.update_all();
        }
    }

    fn update_all(&mut self) {
        let all: Vec<OstId> = self.sources.keys().copied().collect();
        all.into_iter().for_each(|ost| self.update(ost));
    }

    /// Updates whether an OST is in `open`, and with which number; forgets an OST of which nothing
    /// is left.
    fn update(&mut self, ost: OstId) {
        let Some(bytes_max) = self.sources.get(&ost).map(|source| self.bytes_max(source)) else {
            return;
        };
        let Some(source) = self.sources.get_mut(&ost) else { return };
        if let Some(listed) = source.listed.take() {
            self.open.remove(&(listed, ost));
        }
        if source.waiting.is_empty() {
            if source.placed.is_empty() {
                self.sources.remove(&ost);
            }
            return;
        }
        let in_hand = source.bytes_in_hand(&self.congested, self.tuning.congested_parts.max(1));
        if in_hand < bytes_max {
            source.listed = Some(in_hand);
            self.open.insert((in_hand, ost));
        }
    }
}

impl SourceOst {
    fn add(&mut self, sink_ost: Option<OstId>, bytes: u64) {
        let placed = self.placed.entry(sink_ost).or_default();
        *placed = placed.saturating_add(bytes);
    }

    fn subtract(&mut self, sink_ost: Option<OstId>, bytes: u64) {
        let Some(placed) = self.placed.get_mut(&sink_ost) else { return };
        *placed = placed.saturating_sub(bytes);
        if *placed == 0 {
            self.placed.remove(&sink_ost);
        }
    }

    /// Bytes of the files that the sink is looking at.
    fn bytes_undecided(&self) -> u64 {
        self.placed.get(&None).copied().unwrap_or(0)
    }

    /// Bytes of the file that the sink looks at next; zero if there is none.
    fn next_bytes(&self) -> u64 {
        self.waiting.front().map_or(0, Entry::placed_bytes)
    }

    fn bytes_in_hand(&self, congested: &[bool], congested_parts: u64) -> u64 {
        let is_congested =
            |ost: &OstId| congested.get(ost.index()).is_some_and(|&congested| congested);
        let in_hand = self.placed.iter().map(|(ost, &bytes)| match ost {
            Some(ost) if is_congested(ost) => bytes / congested_parts,
            _ => bytes,
        });
        in_hand.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests;
