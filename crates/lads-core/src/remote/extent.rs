//! Bytes of a file that one write or one read is about.

use super::policy::RUNS_COMPARED_MAX;
use crate::view::View;
use std::ops::Range;
use std::sync::Arc;

/// Some positions of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    view: Arc<View>,
    positions: Range<u64>,
    reach: Range<u64>,
}

impl Extent {
    /// Positions of a view. Nothing lies in the extent if they are beyond the largest file.
    #[must_use]
    pub fn new(view: Arc<View>, positions: Range<u64>) -> Self {
        let reach = view.reach(&positions);
        Self { view, positions, reach }
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The positions in the stream of the view.
    #[must_use]
    pub fn positions(&self) -> &Range<u64> {
        &self.positions
    }

    /// The bytes of the file from the first to the last.
    #[must_use]
    pub fn reach(&self) -> &Range<u64> {
        &self.reach
    }

    /// Reports whether two extents are the same positions of the same view.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.view, &other.view) && self.positions == other.positions
    }

    /// Reports whether two extents have bytes of the file in common. Rows of several processes that
    /// alternate have none.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let both = self.reach.start.max(other.reach.start)..self.reach.end.min(other.reach.end);
        if both.is_empty() {
            return false;
        }
        let both = self.once(other, both);
        let (Some(mut own), Some(mut others)) = (self.within(&both), other.within(&both)) else {
            return true;
        };
        let (mut one, mut two) = (own.next(), others.next());
        for _ in 0..RUNS_COMPARED_MAX {
            let (Some(a), Some(b)) = (&one, &two) else { return false };
            match (a.end <= b.start, b.end <= a.start) {
                (true, _) => one = own.next(),
                (_, true) => two = others.next(),
                _ => return true,
            }
        }
        true
    }

    /// Reports whether all bytes of another extent are in this one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let Range { start, end } = other.reach;
        if !(self.reach.start <= start && end <= self.reach.end) {
            return other.reach.is_empty();
        }
        let part = self.once(other, other.reach.clone());
        let (Some(mut own), Some(others)) = (self.within(&part), other.within(&part)) else {
            return false;
        };
        let mut one = own.next();
        for two in others.take(RUNS_COMPARED_MAX) {
            while one.as_ref().is_some_and(|it| it.end <= two.start) {
                one = own.next();
            }
            if !one.as_ref().is_some_and(|it| it.start <= two.start && two.end <= it.end) {
                return false;
            }
        }
        other.within(&part).is_some_and(|it| it.count() <= RUNS_COMPARED_MAX)
    }

    /// The first bytes of a part that lies in the reach of both, after which everything repeats
    /// itself: filetypes follow each other at equal distances.
    fn once(&self, other: &Self, part: Range<u64>) -> Range<u64> {
        let (one, two) = (self.view.extent(), other.view.extent());
        let (mut divisor, mut rest) = (one, two);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        let period = (one / divisor).checked_mul(two);
        let end = period.and_then(|period| part.start.checked_add(period)).unwrap_or(part.end);
        part.start..part.end.min(end)
    }

    /// The runs that lie in a part of the file, in order; `None` if they are in no order.
    fn within(&self, part: &Range<u64>) -> Option<impl Iterator<Item = Range<u64>>> {
        if self.view.overlaps() {
            return None;
        }
        let at = |offset| self.view.position_at(offset).unwrap_or(u64::MAX);
        let first = at(part.start).max(self.positions.start);
        let last = at(part.end).min(self.positions.end);
        let runs = self.view.runs(first..last.max(first)).ok()?;
        Some(runs.map(|run| run.offset..run.offset + run.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::Datatype;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn rows(displacement: u64, length: u64, distance: u64) -> Arc<View> {
        let of = Box::new(Datatype::Bytes(length));
        let filetype = Datatype::Resized { begin: 0, extent: i64::try_from(distance).unwrap(), of };
        Arc::new(View::new(displacement, &filetype).unwrap())
    }

    fn bytes(extent: &Extent) -> BTreeSet<u64> {
        let runs = extent.view.runs(extent.positions.clone()).unwrap();
        runs.flat_map(|run| run.offset..run.offset + run.length).collect()
    }

    #[test]
    fn rows_that_alternate_have_nothing_in_common() {
        let (one, two) = (rows(0, 100, 200), rows(100, 100, 200));
        let all = |view: &Arc<View>| Extent::new(Arc::clone(view), 0..100_000);
        assert!(!all(&one).meets(&all(&two)) && !all(&two).meets(&all(&one)));
        let whole = Extent::new(Arc::new(View::whole()), 150..151);
        assert!(whole.meets(&all(&two)) && !whole.meets(&all(&one)));
    }

    /// With rows of 64 bytes, a frame has 16,384 of them.
    #[test]
    fn of_rows_at_equal_distances_a_few_tell_all() {
        let (one, two) = (rows(0, 64, 512), rows(64, 64, 512));
        let frame = |view: &Arc<View>| Extent::new(Arc::clone(view), 0..1 << 20);
        assert!(!frame(&one).meets(&frame(&two)) && frame(&one).covers(&frame(&one)));
        assert!(frame(&one).meets(&frame(&rows(500, 13, 1024))));
        assert!(!frame(&one).covers(&frame(&rows(0, 65, 512))));
    }

    #[test]
    fn too_many_rows_count_as_common() {
        // Even and odd bytes, at distances that have little in common.
        let (one, two) = (rows(0, 1, 6002), rows(1, 1, 6022));
        let of = |view: &Arc<View>, count| Extent::new(Arc::clone(view), 0..count);
        assert!(!of(&one, 2000).meets(&of(&two, 2000)));
        assert!(of(&one, 3000).meets(&of(&two, 3000)));
        let (all, some) = (rows(0, 8198, 8198), rows(0, 1, 2));
        assert!(of(&all, 8198).covers(&of(&some, 2000)));
        assert!(!of(&all, 3 * 8198).covers(&of(&some, 5000)), "not known");
    }

    /// Views whose filetypes have two blocks, with gaps, and positions of them.
    fn extents() -> impl Strategy<Value = Extent> {
        let blocks = (1u64..6, 0u64..5, 1u64..6, 0u64..5);
        (0u64..40, blocks, 0u64..90, 0u64..60).prop_map(|(displacement, blocks, first, count)| {
            let (one, gap, two, last) = blocks;
            let place = |bytes: u64| i64::try_from(bytes).unwrap();
            let of = Box::new(Datatype::Bytes(1));
            let of =
                Box::new(Datatype::Indexed { blocks: vec![(one, 0), (two, place(one + gap))], of });
            let extent = place(one + gap + two + last);
            let filetype = Datatype::Resized { begin: 0, extent, of };
            let view = Arc::new(View::new(displacement, &filetype).unwrap());
            Extent::new(view, first..first + count)
        })
    }

    proptest! {
        #[test]
        fn extents_are_compared_byte_by_byte(one in extents(), two in extents()) {
            let common = bytes(&one).intersection(&bytes(&two)).next().is_some();
            prop_assert_eq!(one.meets(&two), common);
            let is_subset = bytes(&two).is_subset(&bytes(&one));
            // Blocks that follow each other without a gap are two runs: that one covers is not
            // known then.
            prop_assert!(!one.covers(&two) || is_subset);
        }

        #[test]
        fn rows_cover_each_other_byte_by_byte(
            one in (0u64..50, 1u64..9, 0u64..9, 0u64..60, 0u64..40),
            two in (0u64..50, 1u64..9, 0u64..9, 0u64..60, 0u64..40),
        ) {
            let make = |(displacement, length, gap, first, count): (u64, u64, u64, u64, u64)| {
                Extent::new(rows(displacement, length, length + gap), first..first + count)
            };
            let (one, two) = (make(one), make(two));
            prop_assert_eq!(one.covers(&two), bytes(&two).is_subset(&bytes(&one)));
        }
    }
}
