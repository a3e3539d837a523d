//! Which blocks of files that grow go to another OST than their file began on.
//!
//! An OST that has nothing to do takes the first open block of the last file that waits for the OST
//! that has most to do: that file's next extent goes there.

use super::SinkConfig;
use super::event::Write;
use super::files::Files;
use super::frames::Frames;
use super::placing::Placing;
use crate::growth::{self, Extent, Growth, GrowthConfig};
use crate::schedule::OstQueues;
use crate::tuning::Tuning;
use crate::units::{EntryId, Instant, OstId};
use std::ops::Range;

/// How files grow, if any may.
#[derive(Debug)]
pub(super) struct Growing {
    config: Option<GrowthConfig>,
    tuning: Tuning,
    /// Extents begin at multiples of this, so that a block is on one OST, and no file grows that is
    /// in a frame with others.
    unit_bytes: u64,
    /// Whether no further file begins to grow.
    is_closed: bool,
}

impl Growing {
    pub(super) fn new(config: &SinkConfig) -> Self {
        let unit_bytes = config.growth.map_or(1, |config| config.unit_bytes);
        let unit_bytes = u64::from(config.buffer_bytes)
            .max(config.tuning.packed_bytes_max)
            .next_multiple_of(unit_bytes);
        let tuning = config.tuning;
        let config = config.growth.map(|config| GrowthConfig { unit_bytes, ..config });
        Self { config, tuning, unit_bytes, is_closed: false }
    }

    /// Whether any file may grow.
    pub(super) fn is_allowed(&self) -> bool {
        self.config.is_some()
    }

    /// No further file begins to grow; those that have begun go on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
    }

    /// The book of a file that has these extents, if it can grow.
    pub(super) fn begin(&self, size: u64, extents: Vec<Extent>) -> Option<Growth> {
        Growth::new(size, extents, self.config?)
    }

    /// The length in bytes of an extent that begins now, if `left_bytes` are left to be written;
    /// `None` if no file may begin to grow.
    pub(super) fn extent_bytes(&self, left_bytes: u64, ost_count: usize) -> Option<u64> {
        let parts = self.tuning.extent_parts;
        let config = self.config.filter(|_| !self.is_closed);
        config.map(|_| growth::extent_bytes(left_bytes, ost_count, parts, self.unit_bytes))
    }

    /// The OST that a frame goes to.
    pub(super) fn ost_of(&self, files: &Files, write: &Write) -> OstId {
        let place = open_part(files, write);
        place.and_then(|(growth, range)| growth.ost_at(range.start)).unwrap_or(write.room)
    }

    /// Fixes what a frame is written to, if that is open.
    pub(super) fn grow(&self, files: &mut Files, write: &mut Write, extent_bytes: u64) {
        if !files.has_growing() {
            return;
        }
        let Some((entry, range)) = range_of(write) else { return };
        let room = write.room;
        if let Some(extents) = fix(files, entry, |it| it.fix(range, room, room, extent_bytes)) {
            write.extents = extents;
        }
    }

    /// What is left of a transfer of this many bytes, and how soon OSTs write it. An OST that has
    /// no place for a further extent is infinitely slow: what can still go to another does.
    pub(super) fn outlook(
        &self,
        queues: &OstQueues<Write>,
        placing: &Placing,
        transfer_bytes: u64,
    ) -> Outlook {
        let written: u64 = queues.stats().map(|stats| stats.bytes).sum();
        let left_bytes = transfer_bytes.saturating_sub(written);
        let slowness = self.osts(queues).map(|ost| match placing.burden(ost, self.unit_bytes) {
            Some(burden) => queues.slowness_of(ost) * burden,
            None => f64::INFINITY,
        });
        Outlook { left_bytes, slowness: slowness.collect() }
    }

    /// OSTs whose next block is better left to others, for it can go to them, and they are through
    /// with all that is left before such an OST is with that block. The least slow OST is never
    /// among them.
    pub(super) fn left_alone(
        &self,
        files: &Files,
        queues: &OstQueues<Write>,
        outlook: &Outlook,
    ) -> Vec<OstId> {
        let is_left = |ost: &OstId| {
            let Some(write) = queues.waiting(*ost).next() else { return false };
            outlook.would_be_last(outlook.slowness_of(*ost), write.bytes())
                && movable(files, write).is_some()
        };
        self.osts(queues).filter(is_left).collect()
    }

    /// OSTs on which files can grow.
    fn osts(&self, queues: &OstQueues<Write>) -> impl Iterator<Item = OstId> + use<> {
        let ost_count = self.config.map_or(0, |growth| growth.ost_count as usize);
        (0..ost_count.min(queues.ost_count())).map(OstId::from_index)
    }

    /// Whether [`Self::steal`] would find something.
    pub(super) fn may_steal(
        &self,
        files: &Files,
        queues: &OstQueues<Write>,
        outlook: &Outlook,
    ) -> bool {
        self.theft(files, queues, outlook).is_some()
    }

    /// A frame that waits for a busy OST, for one that has nothing to do.
    pub(super) fn steal(
        &self,
        files: &mut Files,
        frames: &mut Frames,
        outlook: &Outlook,
        now: Instant,
    ) -> Option<Write> {
        let (thief, victim, key) = self.theft(files, frames.queues(), outlook)?;
        let wanted =
            |write: &Write| range_of(write).map(|(entry, it)| (entry, it.start)) == Some(key);
        let mut write = frames.remove_last(victim, wanted)?;
        write.ost = thief;
        frames.start(now, &write);
        let range = range_of(&write)?.1;
        let room = write.room;
        if let Some(extents) = fix(files, key.0, |it| it.fix(range.clone(), room, thief, 0)) {
            write.extents = extents;
        }
        let end = write.extents.last().map_or(range.end, |extent| extent.range.end);
        // Blocks of other frames may lie between those of this one.
        follow(frames, key.0, range.start..end, victim, thief);
        Some(write)
    }

    /// From whom to whom, and the block.
    fn theft(
        &self,
        files: &Files,
        queues: &OstQueues<Write>,
        outlook: &Outlook,
    ) -> Option<(OstId, OstId, (EntryId, u64))> {
        let idle = self.osts(queues).filter(|&ost| queues.is_idle(ost));
        let idle = idle.map(|ost| (ost, outlook.slowness_of(ost))).filter(|it| it.1.is_finite());
        let (thief, slowness) = idle.min_by(|one, other| one.1.total_cmp(&other.1))?;
        let busy = queues.busy().map(|(ost, bytes)| (ost, bytes as f64 * outlook.slowness_of(ost)));
        let mut victims: Vec<(OstId, f64)> = busy.collect();
        victims.sort_by(|one, other| other.1.total_cmp(&one.1));
        victims.into_iter().find_map(|(victim, work)| {
            let (key, bytes) = stealable(files, queues, victim)?;
            let is_worth_it =
                work > bytes as f64 * slowness && !outlook.would_be_last(slowness, bytes);
            is_worth_it.then_some((thief, victim, key))
        })
    }
}

/// What waits of a range of a file goes where the range has been fixed.
fn follow(frames: &mut Frames, entry: EntryId, range: Range<u64>, from: OstId, to: OstId) {
    let is_in = |write: &Write| {
        range_of(write).is_some_and(|(of, it)| of == entry && range.contains(&it.start))
    };
    let mut writes = Vec::new();
    while let Some(write) = frames.remove_last(from, is_in) {
        writes.push(write);
    }
    for mut write in writes.into_iter().rev() {
        write.ost = to;
        frames.push(write);
    }
}

/// Of the open blocks that wait for an OST, the one that leaves least of its file to that OST; of
/// those that leave as much, one of the last file. And its length in bytes.
fn stealable(
    files: &Files,
    queues: &OstQueues<Write>,
    victim: OstId,
) -> Option<((EntryId, u64), u64)> {
    let mut found: Option<(u64, _)> = None;
    for write in queues.waiting(victim).rev() {
        if let Some((entry, start, left)) = movable(files, write)
            && found.is_none_or(|(least, _)| left < least)
        {
            found = Some((left, ((entry, start), write.bytes())));
        }
    }
    found.map(|(_, found)| found)
}

/// If a frame can still go to any OST: its file, where it begins there, and how many bytes before
/// it are open, too.
fn movable(files: &Files, write: &Write) -> Option<(EntryId, u64, u64)> {
    let (growth, range) = open_part(files, write)?;
    let can_move = write.is_in_memory() && growth.may_move(range.start);
    let left = range.start.checked_sub(growth.fixed_bytes()).filter(|_| can_move)?;
    Some((range_of(write)?.0, range.start, left))
}

/// The file that a frame is of, if it grows, and the bytes.
fn open_part<'a>(files: &'a Files, write: &Write) -> Option<(&'a Growth, Range<u64>)> {
    if !files.has_growing() {
        return None;
    }
    let (entry, range) = range_of(write)?;
    Some((files.get(entry)?.blocks()?.growth()?, range))
}

/// Fixes something of a file, if it grows; what is added to it.
fn fix(
    files: &mut Files,
    entry: EntryId,
    what: impl FnOnce(&mut Growth) -> Vec<Extent>,
) -> Option<Vec<Extent>> {
    files.with(entry, |file| file.blocks_mut()?.growth_mut().map(what))?
}

/// How the end of the transfer looks from now.
#[derive(Debug)]
pub(super) struct Outlook {
    /// What is not written yet.
    left_bytes: u64,
    /// How many times as long as usual each OST takes.
    slowness: Vec<f64>,
}

impl Outlook {
    /// How many times as long as usual an OST takes; at least 1.
    fn slowness_of(&self, ost: OstId) -> f64 {
        // Files grow on no others.
        self.slowness.get(ost.index()).copied().unwrap_or(1.0)
    }

    /// Whether an OST of this slowness would still be writing this many bytes when OSTs that are
    /// less slow have written all that is left.
    fn would_be_last(&self, slowness: f64, bytes: u64) -> bool {
        let others = self.slowness.iter().filter(|&&other| other < slowness);
        let pace: f64 = others.map(|other| 1.0 / other).sum();
        let bytes = bytes as f64;
        pace > 0.0 && bytes * slowness > self.left_bytes as f64 / pace + bytes
    }
}

/// The file that a frame is of, and from where to where its blocks are: more than one file in a
/// frame are small ones, and those do not grow.
fn range_of(write: &Write) -> Option<(EntryId, Range<u64>)> {
    let entry = write.rows.first()?.0.block.entry;
    let blocks = || write.rows.iter().map(|(row, _)| row.block).filter(|it| it.entry == entry);
    let start = blocks().map(|block| block.offset).min()?;
    let end = blocks().map(|block| block.end()).max()?;
    (!write.is_comparison).then_some((entry, start..end))
}

#[cfg(test)]
mod tests {
    use super::super::PlacingConfig;
    use super::*;
    use crate::congestion::Rule;
    use crate::placement::{Candidate, OstState, Place};
    use crate::schedule::OstSpec;

    const MIB: u64 = 1 << 20;

    /// Two OSTs that answer alike: one that is whole, and this one.
    fn slowness_beside_a_whole_one(other: Candidate) -> f64 {
        let tuning = Tuning::DEFAULT;
        let growing = Growing {
            config: Some(GrowthConfig { extents_max: 8, unit_bytes: MIB, ost_count: 2 }),
            tuning,
            unit_bytes: MIB,
            is_closed: false,
        };
        let osts = [0, 1].map(|index| OstSpec::new(format!("{index}"), 2));
        let queues = OstQueues::new(Rule::Adaptive, &tuning, &osts);
        let config =
            PlacingConfig { rule: Place::Aware, stripe_size: MIB, stripe_count_max: 2, seed: 1 };
        let mut placing = Placing::new(&config, &tuning, 2);
        placing.on_osts(&[Candidate::default(), other]);
        let outlook = growing.outlook(&queues, &placing, 100 * MIB);
        assert_eq!(outlook.slowness_of(OstId(0)), 1.0);
        outlook.slowness_of(OstId(1))
    }

    #[test]
    fn an_ost_that_is_degraded_or_nearly_full_counts_as_slow() {
        let in_state = |state| Candidate { state, ..Candidate::default() };
        assert!(slowness_beside_a_whole_one(in_state(OstState::Degraded)) > 1.0);
        assert!(slowness_beside_a_whole_one(in_state(OstState::Full)).is_infinite());
        let capacity_bytes = 1000 * MIB;
        let with_room =
            |free_bytes| Candidate { capacity_bytes, free_bytes, ..Candidate::default() };
        assert!(slowness_beside_a_whole_one(with_room(20 * MIB)) > 1.0);
        assert!(slowness_beside_a_whole_one(with_room(MIB - 1)).is_infinite());
    }

    #[test]
    fn an_ost_that_others_are_through_before_would_be_last() {
        let outlook = |left_mib: u64| Outlook {
            left_bytes: left_mib * MIB,
            slowness: [vec![1.0; 7], vec![5.0]].concat(),
        };
        // Seven others write 28 MiB while it writes four times as long as they do for one.
        assert!(outlook(27).would_be_last(5.0, MIB));
        assert!(!outlook(29).would_be_last(5.0, MIB));
        assert!(!outlook(27).would_be_last(1.0, MIB), "nobody is less slow");
    }

    #[test]
    fn of_osts_that_are_all_slow_the_least_slow_is_never_the_last() {
        let outlook = Outlook { left_bytes: 1, slowness: vec![4.0, 3.0, 3.0] };
        assert!(!outlook.would_be_last(3.0, MIB));
        assert!(outlook.would_be_last(4.0, MIB));
    }

    #[test]
    fn an_ost_without_space_is_the_last_however_much_is_left_if_others_have_some() {
        let outlook = |slowness| Outlook { left_bytes: u64::MAX, slowness };
        assert!(outlook(vec![f64::INFINITY, 9.0]).would_be_last(f64::INFINITY, 1));
        assert!(!outlook(vec![f64::INFINITY; 2]).would_be_last(f64::INFINITY, 1));
    }

    #[test]
    fn extents_begin_until_growing_is_closed() {
        let config = GrowthConfig { extents_max: 8, unit_bytes: MIB, ost_count: 2 };
        let (config, tuning) = (Some(config), Tuning::DEFAULT);
        let mut growing = Growing { config, tuning, unit_bytes: MIB, is_closed: false };
        assert!(growing.extent_bytes(100 * MIB, 2).is_some_and(|bytes| bytes >= MIB));
        growing.close();
        assert_eq!(growing.extent_bytes(100 * MIB, 2), None);
    }
}
