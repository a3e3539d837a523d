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
        let (Some(mut own), Some(others)) = (self.within(&other.reach), other.within(&other.reach))
        else {
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
        other.within(&other.reach).is_some_and(|it| it.count() <= RUNS_COMPARED_MAX)
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

    #[test]
    fn too_many_rows_count_as_common() {
        let (one, two) = (rows(0, 1, 2), rows(1, 1, 2));
        let of = |view: &Arc<View>, count| Extent::new(Arc::clone(view), 0..count);
        assert!(!of(&one, 2000).meets(&of(&two, 2000)));
        assert!(of(&one, 3000).meets(&of(&two, 3000)));
        assert!(!of(&one, 5000).covers(&of(&one, 5000)), "not known");
    }

    proptest! {
        #[test]
        fn extents_are_compared_byte_by_byte(
            one in (0u64..50, 1u64..9, 0u64..9, 0u64..60, 0u64..40),
            two in (0u64..50, 1u64..9, 0u64..9, 0u64..60, 0u64..40),
        ) {
            let make = |(displacement, length, gap, first, count): (u64, u64, u64, u64, u64)| {
                Extent::new(rows(displacement, length, length + gap), first..first + count)
            };
            let (one, two) = (make(one), make(two));
            let common = bytes(&one).intersection(&bytes(&two)).next().is_some();
            prop_assert_eq!(one.meets(&two), common);
            prop_assert_eq!(one.covers(&two), bytes(&two).is_subset(&bytes(&one)));
        }
    }
}
