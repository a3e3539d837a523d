//! How a file is cut into blocks.
//!
//! A block ends where its stripe ends at the source, where its stripe ends at the sink, where the
//! transfer's block size ends, and where a hole begins, whichever comes first: so it lies on one
//! OST at each end. Files are never cut all at once. A [`Lane`] walks over the part of a file that
//! lies on one of its OSTs, block by block, so that a file of any size takes as much memory as it
//! has OSTs, parts of a composite layout counted each.

use crate::layout::Layout;
use crate::range::RangeSet;
use crate::units::{Block, EntryId, OstId};
use std::ops::Range;

/// Direct I/O wants reads to begin on a multiple of this; holes are rounded to it.
const ALIGNMENT_BYTES: u64 = 4096;

/// All that decides how one file is cut.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Length of the file in bytes.
    pub size: u64,
    /// Where it lies at the source.
    pub source: Layout,
    /// Where further copies of it lie there: a block is read from whichever is first free.
    pub mirrors: Vec<Layout>,
    /// Where it will lie at the sink.
    pub sink: Layout,
    /// No block is longer than this, in bytes; a multiple of 4096.
    pub block_size: u32,
    /// Where it has data, if it has holes.
    pub data: Option<RangeSet>,
    /// What the sink has from an earlier attempt.
    pub done: RangeSet,
    /// What has been handed out, if there are mirrors: no block is read from two.
    pub taken: RangeSet,
    /// Where on its disk it begins, in bytes, if that matters ([`crate::source::Found`]).
    pub disk_offset: Option<u64>,
    /// Whether any of its blocks has been handed out.
    pub is_begun: bool,
    /// Whether its blocks are handed out in the order of their offsets.
    pub is_in_order: bool,
    /// Whether it is only compared with what is at the sink: its blocks are read and summed up, and
    /// their bytes go nowhere.
    pub is_comparison: bool,
}

/// A block as planned: where it lies at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes; never zero.
    pub length: u32,
    /// The OST that holds it at the source.
    pub source_ost: OstId,
    /// The OST that will hold it at the sink.
    pub sink_ost: OstId,
}

/// The part of a file at one position of its layout (or all of it), and how far it has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The file.
    pub entry: EntryId,
    /// Which copy of it: zero for [`Plan::source`], then [`Plan::mirrors`] in order.
    pub mirror: u16,
    /// Which position of the layout; `None` for the whole file in order.
    pub position: Option<u32>,
    /// Which position of the sink's, if only what goes there; `None` for all of it.
    pub sink_position: Option<u32>,
    /// Everything before this has been taken.
    pub offset: u64,
    /// Where it ends: at the end of the file, or where another lane begins that took over the rest.
    pub end: u64,
    /// Where on its disk the file begins, in bytes; the same for all where it does not matter.
    pub disk_offset: u64,
    /// Whether any block of the file has been handed out.
    pub is_begun: bool,
}

impl Plan {
    /// Reports whether these ranges hold all data of the file.
    #[must_use]
    pub fn is_all_in(&self, ranges: &RangeSet) -> bool {
        match &self.data {
            Some(data) => data.iter().all(|range| ranges.contains(range)),
            None => ranges.contains(0..self.size),
        }
    }

    /// A lane for each position of each copy of the file that holds any of it.
    pub fn lanes(&self, entry: EntryId) -> impl Iterator<Item = (OstId, Lane)> + '_ {
        let mirrors = 0..=u16::try_from(self.mirrors.len()).unwrap_or(u16::MAX);
        mirrors.flat_map(move |mirror| self.lanes_of(entry, mirror))
    }

    /// A lane for each position of one copy of the file that holds any of it; a single one if its
    /// blocks are handed out in order.
    ///
    /// # Panics
    /// If there is no such copy.
    pub fn lanes_of(
        &self,
        entry: EntryId,
        mirror: u16,
    ) -> impl Iterator<Item = (OstId, Lane)> + '_ {
        let copy = self.copy(mirror);
        let positions = if self.is_in_order { 1 } else { usize::MAX };
        copy.osts().take(positions).enumerate().filter_map(move |(position, ost)| {
            let offset = copy.next_at(position, 0)?;
            let number = u32::try_from(position).expect("at most STRIPE_COUNT_MAX");
            let position = (!self.is_in_order).then_some(number);
            let (disk_offset, is_begun) = (self.disk_offset.unwrap_or(0), self.is_begun);
            let sink_position = None;
            let end = self.size;
            let lane =
                Lane { entry, mirror, position, sink_position, offset, end, disk_offset, is_begun };
            (offset < self.size).then_some((ost, lane))
        })
    }

    /// A block is handed out: no other copy of it is to be read.
    pub fn take(&mut self, range: Range<u64>) {
        if !self.mirrors.is_empty() {
            self.taken.insert(range);
        }
    }

    /// The next block of a lane that the sink does not have; `None` when the lane is at its end.
    #[must_use]
    pub fn next_piece(&self, lane: &Lane) -> Option<Piece> {
        let mut offset = lane.offset;
        loop {
            offset = self.next_on_lane(lane, offset)?;
            if offset >= self.size.min(lane.end) {
                return None;
            }
            let start = self.skip_hole(offset)?;
            if start > offset {
                offset = start;
                continue;
            }
            // Another attempt may have had blocks of another size. What is on record is never
            // written again: a crash in the middle of that would leave the record untrue.
            let absent = self.next_absent(offset);
            if let Some(absent) = absent.as_ref().filter(|absent| absent.start == offset) {
                offset = absent.end;
                continue;
            }
            let copy = self.copy(lane.mirror);
            let absent_start = absent.map_or(u64::MAX, |absent| absent.start);
            let end = absent_start.min(self.piece_end(copy, offset)).min(lane.end);
            return Some(Piece {
                offset,
                length: u32::try_from(end - offset).expect("at most the block size"),
                source_ost: copy.ost_at(offset),
                sink_ost: self.sink.ost_at(offset),
            });
        }
    }

    /// A lane in two halves, each of at least `bytes_min`; `None` if it is too short. The first
    /// half is an odd number of blocks, so that the second does not begin on the same OST if the
    /// file has an even number of stripes that nobody knows of.
    #[must_use]
    pub fn halves(&self, lane: &Lane, bytes_min: u64) -> Option<(Lane, Lane)> {
        if self.is_in_order {
            return None;
        }
        let block_size = u64::from(self.block_size);
        let end = self.size.min(lane.end);
        let half_bytes = end.saturating_sub(lane.offset) / 2;
        let first = lane.offset.div_ceil(block_size);
        let count = (half_bytes / block_size).saturating_sub(1) / 2 * 2 + 1;
        let middle = (first + count) * block_size;
        let is_long = middle.saturating_sub(lane.offset) >= bytes_min
            && end.saturating_sub(middle) >= bytes_min;
        is_long.then_some((Lane { end: middle, ..*lane }, Lane { offset: middle, ..*lane }))
    }

    /// The same lane as one for each position at the sink.
    pub fn split<'a>(&'a self, lane: &'a Lane) -> impl DoubleEndedIterator<Item = Lane> + 'a {
        (0..self.sink.position_count()).map(move |position| {
            let position = u32::try_from(position).expect("at most STRIPE_COUNT_MAX");
            Lane { sink_position: Some(position), ..*lane }
        })
    }

    /// One of the copies: zero for [`Self::source`], then [`Self::mirrors`] in order.
    ///
    /// # Panics
    /// If there is no such copy.
    #[must_use]
    pub fn copy(&self, mirror: u16) -> &Layout {
        match usize::from(mirror) {
            0 => &self.source,
            mirror => &self.mirrors[mirror - 1],
        }
    }

    /// What next need not be read: the sink has it, or it was taken from another copy.
    fn next_absent(&self, offset: u64) -> Option<Range<u64>> {
        let done = self.done.next_from(offset);
        if self.mirrors.is_empty() {
            return done;
        }
        let taken = self.taken.next_from(offset);
        [done, taken].into_iter().flatten().min_by_key(|absent| absent.start)
    }

    /// The first offset from `offset` on that is on this lane; `None` if there is none.
    fn next_on_lane(&self, lane: &Lane, offset: u64) -> Option<u64> {
        let Some(position) = lane.position else { return Some(offset) };
        let (copy, position) = (self.copy(lane.mirror), position as usize);
        let Some(sink_position) = lane.sink_position else {
            return copy.next_at(position, offset);
        };
        let sink_position = sink_position as usize;
        let (source_start, source_period) = copy.period(position);
        let (sink_start, sink_period) = self.sink.period(sink_position);
        let mut at = offset.max(source_start).max(sink_start);
        let period = least_common_multiple(source_period, sink_period);
        let end = self.size.min(at.saturating_add(period));
        while at < end {
            at = copy.next_at(position, at)?;
            let next = self.sink.next_at(sink_position, at)?;
            if next == at {
                return Some(at);
            }
            at = next;
        }
        None
    }

    /// A range as blocks, done or not.
    #[must_use]
    pub fn blocks_in(&self, entry: EntryId, range: Range<u64>) -> Vec<Block> {
        let mut blocks = Vec::new();
        let block_size = u64::from(self.block_size);
        // No block reaches across this border.
        let mut offset = range.start / block_size * block_size;
        let end = range.end.min(self.size);
        while offset < end {
            let Some(start) = self.skip_hole(offset) else { break };
            let piece_end = self.piece_end(&self.source, start);
            let (from, to) = (start.max(range.start), piece_end.min(end));
            if from < to {
                let length = u32::try_from(to - from).expect("at most the block size");
                blocks.push(Block { entry, offset: from, length });
            }
            offset = piece_end;
        }
        blocks
    }

    /// Returns how many bytes of data the file has, holes left out, done or not.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data.as_ref().map_or(self.size, RangeSet::byte_count)
    }

    /// `offset` if there is data, otherwise where data begins after it; `None` if nowhere.
    fn skip_hole(&self, offset: u64) -> Option<u64> {
        let Some(data) = &self.data else { return Some(offset) };
        let start = data.next_from(offset)?.start;
        Some((start / ALIGNMENT_BYTES * ALIGNMENT_BYTES).max(offset))
    }

    fn piece_end(&self, copy: &Layout, offset: u64) -> u64 {
        let block_size = u64::from(self.block_size);
        let block_end = (offset / block_size + 1).saturating_mul(block_size);
        let mut end =
            self.size.min(block_end).min(copy.stripe_end(offset)).min(self.sink.stripe_end(offset));
        if let Some(data) = &self.data
            && let Some(range) = data.next_from(offset)
        {
            let data_end = range.end.div_ceil(ALIGNMENT_BYTES) * ALIGNMENT_BYTES;
            end = end.min(data_end);
        }
        end
    }
}

/// `u64::MAX` where it would be larger.
fn least_common_multiple(a: u64, b: u64) -> u64 {
    let (mut divisor, mut rest) = (a, b);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor).saturating_mul(b)
}

/// Rounds what holds data outwards to whole pages, so that blocks begin where direct I/O can.
#[must_use]
pub fn align_data(data: &RangeSet, size: u64) -> RangeSet {
    data.iter()
        .map(|range| {
            let start = range.start / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
            let end = range.end.div_ceil(ALIGNMENT_BYTES).saturating_mul(ALIGNMENT_BYTES);
            start..end.min(size)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceph::ObjectStriping;
    use crate::layout::Part;
    use proptest::prelude::*;

    fn plan(size: u64, source: Layout, sink: Layout) -> Plan {
        Plan {
            size,
            source,
            mirrors: Vec::new(),
            sink,
            block_size: 1 << 16,
            data: None,
            done: RangeSet::new(),
            taken: RangeSet::new(),
            disk_offset: None,
            is_begun: false,
            is_in_order: false,
            is_comparison: false,
        }
    }

    fn pieces(plan: &Plan) -> Vec<Piece> {
        plan.lanes(EntryId(1)).flat_map(|(_, lane)| pieces_of(plan, lane)).collect()
    }

    fn pieces_of(plan: &Plan, mut lane: Lane) -> Vec<Piece> {
        let mut pieces = Vec::new();
        while let Some(piece) = plan.next_piece(&lane) {
            lane.offset = piece.offset + u64::from(piece.length);
            pieces.push(piece);
        }
        pieces
    }

    fn layout_strategy() -> impl Strategy<Value = Layout> {
        prop_oneof![parts_strategy(), objects_strategy()]
    }

    fn objects_strategy() -> impl Strategy<Value = Layout> {
        let osts = prop::collection::vec(0u32..9, 1..40);
        (1u32..20, 1u32..5, 1u32..4, osts).prop_map(|(unit, count, units, osts)| {
            let (unit, osts) = (unit * 4096, osts.into_iter().map(OstId).collect::<Vec<_>>());
            let striping = ObjectStriping::new(unit, count, unit * units).unwrap();
            Layout::in_objects(striping, &osts).unwrap()
        })
    }

    fn parts_strategy() -> impl Strategy<Value = Layout> {
        let part = (1u64..150, 1u64..20, prop::collection::vec(0u32..9, 1..5));
        prop::collection::vec(part, 1..5).prop_map(|parts| {
            let (mut end, last) = (0, parts.len() - 1);
            let parts = parts.into_iter().enumerate().map(|(index, (length, size, osts))| {
                end += length * 4096;
                Part {
                    end: if index == last { u64::MAX } else { end },
                    stripe_size: size * 4096,
                    osts: osts.into_iter().map(OstId).collect(),
                }
            });
            Layout::composite(parts).unwrap()
        })
    }

    proptest! {
        #[test]
        fn every_byte_is_in_exactly_one_block_on_the_osts_of_its_layouts(
            size in 1u64..2_000_000, source in layout_strategy(), sink in layout_strategy()) {
            let plan = plan(size, source, sink);
            let mut seen = RangeSet::new();
            for piece in pieces(&plan) {
                let end = piece.offset + u64::from(piece.length);
                prop_assert_eq!(seen.insert(piece.offset..end), u64::from(piece.length));
                for at in [piece.offset, end - 1] {
                    prop_assert_eq!(plan.source.ost_at(at), piece.source_ost);
                    prop_assert_eq!(plan.sink.ost_at(at), piece.sink_ost);
                }
                prop_assert!(piece.length <= plan.block_size);
            }
            prop_assert_eq!(seen.byte_count(), size);
        }

        #[test]
        fn of_mirrors_every_byte_is_read_from_one(
            size in 1u64..2_000_000,
            copies in prop::collection::vec(layout_strategy(), 1..4),
            sink in layout_strategy(),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 1..100)) {
            let mut plan = plan(size, copies[0].clone(), sink);
            plan.mirrors = copies[1..].to_vec();
            let mut lanes: Vec<Lane> = plan.lanes(EntryId(1)).map(|(_, lane)| lane).collect();
            let (mut bytes, mut turns) = (0, turns.iter().cycle());
            while !lanes.is_empty() {
                let at = turns.next().expect("cycled").index(lanes.len());
                let Some(piece) = plan.next_piece(&lanes[at]) else {
                    lanes.swap_remove(at);
                    continue;
                };
                let end = piece.offset + u64::from(piece.length);
                let copy = &copies[usize::from(lanes[at].mirror)];
                prop_assert_eq!(copy.ost_at(piece.offset), piece.source_ost);
                prop_assert_eq!(copy.ost_at(end - 1), piece.source_ost);
                plan.take(piece.offset..end);
                lanes[at].offset = end;
                bytes += u64::from(piece.length);
            }
            prop_assert_eq!(bytes, size);
        }

        #[test]
        fn a_lane_that_is_split_has_the_same_blocks(
            size in 1u64..2_000_000, source in layout_strategy(), sink in layout_strategy()) {
            let plan = plan(size, source, sink);
            for (_, lane) in plan.lanes(EntryId(1)) {
                let mut split: Vec<_> = plan
                    .split(&lane)
                    .flat_map(|part| {
                        let pieces = pieces_of(&plan, part);
                        assert!(pieces.iter().all(|it| it.sink_ost == pieces[0].sink_ost));
                        pieces
                    })
                    .collect();
                split.sort_by_key(|piece| piece.offset);
                prop_assert_eq!(split, pieces_of(&plan, lane));
            }
        }

        #[test]
        fn holes_and_what_is_done_are_left_out_and_nothing_else(
            size in 1u64..2_000_000,
            source in layout_strategy(),
            sink in layout_strategy(),
            data in prop::collection::vec((0u64..2_000_000, 1u64..100_000), 0..6),
            done in prop::collection::vec((0u64..30, 1u64..4), 0..6)) {
            let mut plan = plan(size, source, sink);
            let data = data.into_iter().map(|(s, l)| s.min(size)..(s + l).min(size));
            let data: RangeSet = data.collect();
            let data = align_data(&data, size);
            plan.done = done.into_iter().map(|(s, l)| s << 16..(s + l) << 16).collect();
            plan.data = Some(data.clone());
            let mut rest = data.clone();
            for range in plan.done.clone().iter() { rest.remove(range); }
            for piece in pieces(&plan) {
                let range = piece.offset..piece.offset + u64::from(piece.length);
                prop_assert_eq!(data.byte_count_in(range.clone()), u64::from(piece.length));
                rest.remove(range);
            }
            prop_assert!(rest.is_empty(), "left behind: {:?}", rest);
        }
    }

    #[test]
    fn a_lane_holds_one_ost_of_the_file() {
        let source = Layout::striped(1 << 16, vec![OstId(4), OstId(6)]).unwrap();
        let plan = plan(5 << 16, source, Layout::on(OstId(0)));
        let lanes: Vec<_> = plan.lanes(EntryId(1)).collect();
        assert_eq!(lanes.iter().map(|(ost, _)| ost.0).collect::<Vec<_>>(), [4, 6]);
        let offsets: Vec<_> = pieces(&plan).iter().map(|piece| piece.offset >> 16).collect();
        assert_eq!(offsets, [0, 2, 4, 1, 3]);
    }

    #[test]
    fn an_empty_file_has_no_block() {
        let plan = plan(0, Layout::on(OstId(0)), Layout::on(OstId(0)));
        assert_eq!(plan.lanes(EntryId(1)).count(), 0);
    }
}
