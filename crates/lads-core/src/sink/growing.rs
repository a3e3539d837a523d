//! Which blocks of files that grow go to another OST than their file began on.
//!
//! An OST that has nothing to do takes the first open block of the last file that waits for the OST
//! that has most to do: that file's next extent goes there.

use super::{Sink, Write};
use crate::growth::Growth;
use crate::units::{EntryId, Instant, OstId};
use std::ops::Range;

impl Sink {
    /// The OST that a frame goes to.
    pub(super) fn ost_of(&self, write: &Write) -> OstId {
        let place = self.open_part(write);
        place.and_then(|(growth, range)| growth.ost_at(range.start)).unwrap_or(write.room)
    }

    /// Fixes what a frame is written to, if that is open.
    pub(super) fn grow(&mut self, write: &mut Write) {
        if self.growing_count == 0 {
            return;
        }
        let extent_bytes = self.extent_bytes().unwrap_or(0);
        let Some((entry, range)) = range_of(write) else { return };
        let Some(file) = self.files.get_mut(&entry) else { return };
        let Some(growth) = &mut file.growth else { return };
        write.extents = growth.fix(range, write.room, write.room, extent_bytes);
    }

    /// Whether [`Self::next_stolen`] would find something.
    pub(super) fn may_steal(&self) -> bool {
        self.theft().is_some()
    }

    /// A frame that waits for a busy OST, for one that has nothing to do.
    pub(super) fn next_stolen(&mut self, now: Instant) -> Option<Write> {
        let (thief, victim, key) = self.theft()?;
        let wanted =
            |write: &Write| range_of(write).map(|(entry, it)| (entry, it.start)) == Some(key);
        let mut write = self.queues.remove_last(victim, wanted, Write::bytes)?;
        write.ost = thief;
        self.queues.start(now, thief, write.bytes());
        let range = range_of(&write)?.1;
        if let Some(growth) = self.files.get_mut(&key.0).and_then(|file| file.growth.as_mut()) {
            let bytes = range.end - range.start;
            write.extents = growth.fix(range.clone(), write.room, thief, bytes);
        }
        let end = write.extents.last().map_or(range.end, |extent| extent.range.end);
        // Blocks of other frames may lie between those of this one.
        self.follow(key.0, range.start..end, victim, thief);
        Some(write)
    }

    /// What waits of a range of a file goes where the range has been fixed.
    fn follow(&mut self, entry: EntryId, range: Range<u64>, from: OstId, to: OstId) {
        let is_in = |write: &Write| {
            range_of(write).is_some_and(|(of, it)| of == entry && range.contains(&it.start))
        };
        let mut writes = Vec::new();
        while let Some(write) = self.queues.remove_last(from, is_in, Write::bytes) {
            writes.push(write);
        }
        for mut write in writes.into_iter().rev() {
            write.ost = to;
            let bytes = write.bytes();
            self.queues.push(to, write, bytes);
        }
    }

    /// From whom to whom, and the block.
    fn theft(&self) -> Option<(OstId, OstId, (EntryId, u64))> {
        let growth = self.config.growth.filter(|_| self.growing_count > 0)?;
        let thief = self.queues.idlest(growth.ost_count)?;
        let mut victims: Vec<(OstId, f64)> = self.queues.busy().collect();
        victims.sort_by(|one, other| other.1.total_cmp(&one.1));
        let slowness = self.queues.slowness_of(thief);
        victims.into_iter().find_map(|(victim, work)| {
            let bytes = f64::from(self.config.buffer_bytes);
            let is_worth_it = work > bytes * slowness;
            is_worth_it.then(|| self.stealable(victim).map(|key| (thief, victim, key)))?
        })
    }

    /// Of the open blocks that wait for an OST, the one that leaves least of its file to that OST;
    /// of those that leave as much, one of the last file.
    fn stealable(&self, victim: OstId) -> Option<(EntryId, u64)> {
        let mut found: Option<(u64, (EntryId, u64))> = None;
        for write in self.queues.waiting(victim).rev() {
            if let Some((growth, range)) = self.open_part(write)
                && write.is_in_memory()
                && growth.may_move(range.start)
            {
                let left = range.start - growth.fixed_bytes();
                if found.is_none_or(|(least, _)| left < least) {
                    found = range_of(write).map(|(entry, it)| (left, (entry, it.start)));
                }
            }
        }
        found.map(|(_, key)| key)
    }

    /// The file that a frame is of, if it grows, and the bytes.
    fn open_part(&self, write: &Write) -> Option<(&Growth, Range<u64>)> {
        if self.growing_count == 0 {
            return None;
        }
        let (entry, range) = range_of(write)?;
        Some((self.files.get(&entry)?.growth.as_ref()?, range))
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
