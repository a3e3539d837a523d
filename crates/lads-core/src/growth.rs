//! How a new file grows over the OSTs of the sink, extent by extent, while it is written.
//!
//! On Lustre, a composite file may be made with its first component only. Further components are
//! added while the file is written (`lustre.lov.add`): each begins where the one before ends, and
//! names the OST that it lies on. A part without a component is *open*: it can still go to any OST.
//! [`Growth`] is the book of one such file.
//!
//! How long an extent is: bytes that are fixed to an OST cannot be called back if the OST turns
//! slow. That does no harm as long as the rest of the transfer takes longer than the slow OST takes
//! for that extent. So the length of an extent is a fraction of the bytes of the whole transfer
//! that are left for each OST ([`extent_bytes`]): long at the beginning and short at the end. Loops
//! are shared in the same way among processors of different speed (guided self-scheduling,
//! Polychronopoulos and Kuck, 1987).

use crate::layout::{Layout, Part};
use crate::units::OstId;
use std::ops::Range;

/// How files may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrowthConfig {
    /// The most extents of a file; at least two.
    pub extents_max: u32,
    /// Extents begin and end at multiples of this, in bytes: 64 KiB on Lustre.
    pub unit_bytes: u64,
    /// Only OSTs with smaller numbers can hold extents; the number that stands for "no OST" has no
    /// space for data.
    pub ost_count: u32,
}

/// Part of a file, on one OST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its bytes. The end is `u64::MAX` if the extent has no end.
    pub range: Range<u64>,
    /// The OST that it lies on.
    pub ost: OstId,
}

/// The length in bytes of an extent that begins now, if `left_bytes` of the transfer are still to
/// be written to `ost_count` OSTs: what is left for each OST, divided by `parts`
/// ([`Tuning::extent_parts`](crate::tuning::Tuning::extent_parts)), rounded down to a multiple of
/// `unit_bytes`, at least one unit.
#[must_use]
pub fn extent_bytes(left_bytes: u64, ost_count: usize, parts: u64, unit_bytes: u64) -> u64 {
    let parts = (ost_count as u64).saturating_mul(parts).max(1);
    (left_bytes / parts / unit_bytes.max(1)).max(1).saturating_mul(unit_bytes.max(1))
}

/// Where a growing file lies, as far as that is decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growth {
    size: u64,
    unit_bytes: u64,
    /// The extents that have their place, in order; at least one.
    extents: Vec<Extent>,
    /// How many more extents there may be.
    left_count: u32,
}

impl Growth {
    /// A file of `size` bytes that has these extents. `None` if no part of it is open, or if no
    /// further extent may be added.
    #[must_use]
    pub fn new(size: u64, extents: Vec<Extent>, config: GrowthConfig) -> Option<Self> {
        let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
        let left_count = config.extents_max.saturating_sub(count);
        let growth = Self { size, unit_bytes: config.unit_bytes, extents, left_count };
        let is_open = !growth.extents.is_empty() && growth.fixed_bytes() < size;
        (is_open && growth.left_count > 0).then_some(growth)
    }

    /// The number of bytes, from the beginning of the file, that have their place.
    #[must_use]
    pub fn fixed_bytes(&self) -> u64 {
        self.extents.last().map_or(0, |extent| extent.range.end)
    }

    /// The OST of the byte at `offset`; `None` if that byte has no place yet.
    #[must_use]
    pub fn ost_at(&self, offset: u64) -> Option<OstId> {
        let at = self.extents.partition_point(|extent| extent.range.end <= offset);
        self.extents.get(at).map(|extent| extent.ost)
    }

    /// Reports whether bytes from `offset` on may go to another OST than the bytes before them.
    #[must_use]
    pub fn may_move(&self, offset: u64) -> bool {
        let fixed = self.fixed_bytes();
        // One extent for the open part before `offset`, one for the bytes themselves.
        let count = if offset > fixed { 2 } else { 1 };
        offset >= fixed && self.left_count >= count
    }

    /// Fixes a range to `ost`, and the open part before the range to `home`. Returns the extents
    /// that this adds; none if the range already has its place. Bytes after the range are fixed
    /// with it, so that the extent has at least `extent_bytes` and the extents that may still be
    /// added suffice for the rest of the file. If no further extent may be added, the extent has no
    /// end.
    pub fn fix(
        &mut self,
        range: Range<u64>,
        home: OstId,
        ost: OstId,
        extent_bytes: u64,
    ) -> Vec<Extent> {
        let fixed = self.fixed_bytes();
        let mut added = Vec::new();
        if range.end <= fixed || fixed == u64::MAX {
            return added;
        }
        let begins = if ost == home { fixed } else { range.start.max(fixed) };
        if begins > fixed {
            added.push(Extent { range: fixed..begins, ost: home });
            self.left_count -= 1;
        }
        let even = (self.size - begins).div_ceil(u64::from(self.left_count.max(1)));
        let length = extent_bytes.max(even).max(range.end - begins);
        let end = begins.saturating_add(length.next_multiple_of(self.unit_bytes));
        let is_last = end >= self.size || self.left_count <= 1;
        added.push(Extent { range: begins..if is_last { u64::MAX } else { end }, ost });
        self.left_count = self.left_count.saturating_sub(1);
        self.extents.extend_from_slice(&added);
        added
    }
}

/// Returns where a file lies that has these extents, as if the last extent had no end. `None` if
/// there is no extent, or if they are not in order.
#[must_use]
pub fn layout_of(extents: &[Extent]) -> Option<Layout> {
    let last = extents.len().checked_sub(1)?;
    let part = |(index, extent): (usize, &Extent)| Part {
        end: if index == last { u64::MAX } else { extent.range.end },
        stripe_size: u64::MAX,
        osts: vec![extent.ost],
    };
    Layout::composite(extents.iter().enumerate().map(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u64 = 64 << 10;
    const OST_COUNT: u32 = 8;
    const MIB: u64 = 1 << 20;

    fn first(end: u64) -> Vec<Extent> {
        vec![Extent { range: 0..end, ost: OstId(7) }]
    }

    fn growth(size: u64, first_end: u64, extents_max: u32) -> Growth {
        Growth::new(
            size,
            first(first_end),
            GrowthConfig { extents_max, unit_bytes: UNIT, ost_count: OST_COUNT },
        )
        .unwrap()
    }

    fn told(extents: &[Extent]) -> Vec<(u64, u64, u32)> {
        let mib = |bytes: u64| if bytes == u64::MAX { u64::MAX } else { bytes / MIB };
        extents.iter().map(|it| (mib(it.range.start), mib(it.range.end), it.ost.0)).collect()
    }

    #[test]
    fn what_is_written_on_the_first_ost_is_fixed_there_in_long_pieces() {
        let mut growth = growth(8 * MIB, MIB, 9);
        let home = OstId(7);
        assert_eq!(growth.fix(0..MIB, home, home, 4 * MIB), []);
        assert_eq!(told(&growth.fix(MIB..2 * MIB, home, home, 4 * MIB)), [(1, 5, 7)]);
        assert_eq!(growth.fix(4 * MIB..5 * MIB, home, home, 4 * MIB), []);
        assert_eq!(told(&growth.fix(5 * MIB..6 * MIB, home, home, MIB)), [(5, 6, 7)]);
        assert_eq!(told(&growth.fix(7 * MIB..8 * MIB, home, home, MIB)), [(6, u64::MAX, 7)]);
    }

    #[test]
    fn what_goes_elsewhere_fixes_what_lies_before_where_it_began() {
        let mut growth = growth(8 * MIB, MIB, 9);
        let (home, other) = (OstId(7), OstId(3));
        assert_eq!(told(&growth.fix(3 * MIB..4 * MIB, home, other, MIB)), [(1, 3, 7), (3, 4, 3)]);
        assert_eq!(growth.ost_at(2 * MIB), Some(home));
        assert_eq!(growth.ost_at(3 * MIB), Some(other));
        assert_eq!(growth.ost_at(4 * MIB), None);
        assert!(!growth.may_move(3 * MIB));
        assert!(growth.may_move(4 * MIB));
    }

    #[test]
    fn the_last_extent_that_may_be_added_has_no_end() {
        let mut growth = growth(8 * MIB, MIB, 3);
        let (home, other) = (OstId(7), OstId(3));
        assert!(growth.may_move(2 * MIB));
        assert_eq!(
            told(&growth.fix(2 * MIB..3 * MIB, home, other, MIB)),
            [(1, 2, 7), (2, u64::MAX, 3)]
        );
        assert!(!growth.may_move(5 * MIB));
        assert_eq!(growth.fix(5 * MIB..6 * MIB, home, home, MIB), []);
    }

    #[test]
    fn a_file_that_may_not_grow_has_no_growth() {
        let config = GrowthConfig { extents_max: 1, unit_bytes: UNIT, ost_count: OST_COUNT };
        assert_eq!(Growth::new(8 * MIB, first(MIB), config), None);
        let config = GrowthConfig { extents_max: 9, unit_bytes: UNIT, ost_count: OST_COUNT };
        assert_eq!(Growth::new(8 * MIB, Vec::new(), config), None);
        assert_eq!(Growth::new(MIB, first(MIB), config), None);
        assert_eq!(Growth::new(8 * MIB, first(u64::MAX), config), None);
    }

    #[test]
    fn extents_are_a_part_of_what_is_left_for_each_ost() {
        let parts = 24;
        let left_bytes = 10 * 8 * parts * MIB;
        assert_eq!(extent_bytes(left_bytes, 8, parts, MIB), 10 * MIB);
        assert_eq!(extent_bytes(left_bytes - 1, 8, parts, MIB), 9 * MIB);
        assert_eq!(extent_bytes(0, 8, parts, MIB), MIB);
        assert_eq!(extent_bytes(u64::MAX, 0, parts, 0), u64::MAX);
    }

    proptest! {
        #[test]
        fn extents_follow_each_other_are_not_too_many_and_hold_what_was_fixed(
            size in 1u64..40, first_units in 1u64..8, extents_max in 2u32..12,
            fixes in prop::collection::vec((0u64..40, 1u64..4, 0u32..3, 1u64..20), 1..60),
        ) {
            let size = size * UNIT - 1;
            let config = GrowthConfig { extents_max, unit_bytes: UNIT, ost_count: OST_COUNT };
            let Some(mut growth) = Growth::new(size, first(first_units * UNIT), config) else {
                return Ok(());
            };
            let mut all = first(first_units * UNIT);
            for (start, units, ost, extent_units) in fixes {
                let range = start * UNIT..((start + units) * UNIT).min(size);
                let can_be_elsewhere = growth.may_move(range.start);
                if range.is_empty() || (ost != 0 && !can_be_elsewhere) {
                    continue;
                }
                let (home, ost) = (OstId(0), OstId(ost));
                let open = growth.fixed_bytes() <= range.start;
                all.extend(growth.fix(range.clone(), home, ost, extent_units * UNIT));
                prop_assert!(growth.fixed_bytes() >= range.end);
                if open {
                    prop_assert_eq!(growth.ost_at(range.start), Some(ost));
                }
            }
            prop_assert!(all.len() <= extents_max as usize);
            prop_assert!(all.windows(2).all(|two| two[0].range.end == two[1].range.start));
            prop_assert!(all.iter().all(|it| !it.range.is_empty()));
            let is_whole = growth.fixed_bytes() >= size;
            prop_assert_eq!(is_whole, growth.fixed_bytes() == u64::MAX);
            if let Some(layout) = layout_of(&all) {
                prop_assert_eq!(layout.ost_at(0), OstId(7));
            }
        }
    }
}
