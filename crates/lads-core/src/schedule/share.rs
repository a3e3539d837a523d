//! Work for idle tracks.
//!
//! Tracks ([`crate::tracks`]) are parts of one target, so each can read any file of that target. An
//! idle track takes over work from the track that has most to do: the later half of the files that
//! wait there; or half of the rest, if it is one long file; or that rest, if it is too short to be
//! halved and waits behind a read.

use super::{OstQueues, OstSpec};
use crate::plan::{Lane, Plan};
use crate::units::{EntryMap, OstId};
use std::ops::Range;

/// The tracks of each target that has any, as ranges of their numbers.
pub(crate) fn tracks_of(osts: &[OstSpec]) -> Vec<Range<usize>> {
    let mut targets: Vec<Range<usize>> = Vec::new();
    for (index, ost) in osts.iter().enumerate().filter(|(_, ost)| ost.is_track) {
        match targets.last_mut() {
            Some(last) if last.end == index && osts[last.start].name == ost.name => {
                last.end = index + 1;
            }
            _ => targets.push(index..index + 1),
        }
    }
    targets
}

/// What idle tracks take over.
#[derive(Debug)]
pub(super) struct Shares {
    /// The tracks of each target that has any.
    targets: Vec<Range<usize>>,
    /// An idle track takes over half of a file only if both halves have this many bytes.
    bytes_min: u64,
}

/// What an idle track can take over from another.
#[derive(Debug)]
struct Share {
    from: OstId,
    to: OstId,
    part: Part,
}

#[derive(Debug)]
enum Part {
    /// This number of lanes from the end of the queue.
    Lanes(usize),
    /// The last lane is divided; this is what stays, and what is taken over.
    Half(Lane, Lane),
}

impl Shares {
    pub(super) fn new(osts: &[OstSpec], bytes_min: u64) -> Self {
        Self { targets: tracks_of(osts), bytes_min }
    }

    /// Whether any target has tracks.
    pub(super) fn has_tracks(&self) -> bool {
        !self.targets.is_empty()
    }

    /// Whether an idle track could take over work.
    pub(super) fn has_any(&self, queues: &OstQueues<Lane>, plans: &EntryMap<Plan>) -> bool {
        self.targets.iter().any(|target| self.find(target, queues, plans).is_some())
    }

    /// Gives idle tracks work of others, as far as there is any.
    pub(super) fn share(&self, queues: &mut OstQueues<Lane>, plans: &EntryMap<Plan>) {
        for target in &self.targets {
            while let Some(share) = self.find(target, queues, plans) {
                share.carry_out(queues, plans);
            }
        }
    }

    fn find(
        &self,
        target: &Range<usize>,
        queues: &OstQueues<Lane>,
        plans: &EntryMap<Plan>,
    ) -> Option<Share> {
        let to = target.clone().map(OstId::from_index).find(|&ost| queues.is_idle(ost))?;
        let others = target.clone().map(OstId::from_index);
        let parts = others.filter_map(|from| Some((from, self.part_of(from, queues, plans)?)));
        let (from, part) = parts.max_by_key(|(from, _)| queues.waiting_bytes(*from))?;
        Some(Share { from, to, part })
    }

    fn part_of(
        &self,
        from: OstId,
        queues: &OstQueues<Lane>,
        plans: &EntryMap<Plan>,
    ) -> Option<Part> {
        let last = *queues.waiting(from).next_back()?;
        let count = queues.waiting_count(from);
        if count > 1 {
            return Some(Part::Lanes(count / 2));
        }
        // Only a file that is begun has its one lane here and nowhere else.
        let plan = plans.get(&last.entry).filter(|_| last.is_begun);
        let halves = plan.and_then(|plan| plan.halves(&last, self.bytes_min));
        let is_behind_read = queues.in_flight(from) > 0;
        match halves {
            Some((stays, goes)) => Some(Part::Half(stays, goes)),
            None => is_behind_read.then_some(Part::Lanes(1)),
        }
    }
}

impl Share {
    fn carry_out(self, queues: &mut OstQueues<Lane>, plans: &EntryMap<Plan>) {
        let Self { from, to, part } = self;
        let bytes = |lane: &Lane| match plans.contains_key(&lane.entry) {
            true => lane.end.saturating_sub(lane.offset),
            false => 0,
        };
        match part {
            Part::Lanes(count) => queues.move_last(from, to, count, bytes),
            Part::Half(stays, goes) => {
                queues.shorten_last(from, stays, bytes(&goes));
                queues.push(to, goes, bytes(&goes));
            }
        }
    }
}
