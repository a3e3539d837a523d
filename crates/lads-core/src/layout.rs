//! Which OST holds which byte of a file.
//!
//! A plain file is striped round robin over its OSTs, `stripe_size` bytes at a time (LADS, FAST
//! '15, section 2.3). A composite file has parts that follow each other, each with its own stripe
//! size and OSTs, as in Lustre's progressive layouts: the first bytes on few OSTs, the rest on
//! many. In every part, stripes are counted from the beginning of the *file*. A file or part on a
//! single OST is one stripe without end. On CephFS a file is cut into objects, and a hash decides
//! where each object lies ([`Objects`]).
//!
//! Bytes that are on no OST (data on the metadata server, parts never written) get an OST number
//! that the provider makes up, so that here every byte is on one OST.
//!
//! A *position* is one stripe column of one part. Positions are counted through all parts, so each
//! OST of a file has as many positions as there are parts, or stripes of a part, that use it. In a
//! file of objects, a position is an OST.

mod objects;
mod parts;

pub use objects::{OBJECTS_MAX, Objects};

use crate::ceph::ObjectStriping;
use crate::limits::ALIGNMENT_BYTES;
use crate::placement::Striping;
use crate::units::OstId;
use parts::Parts;
use std::collections::BTreeMap;
use std::ops::Range;

/// How a file lies on storage targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Shape);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// Stripes over its OSTs in turn.
    Parts(Parts),
    /// Objects, each of them on any OST.
    Objects(Box<Objects>),
}

/// A part of a file. It begins where the part before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first byte after this part; `u64::MAX` for the last part.
    pub end: u64,
    /// The bytes of a stripe, after which the next OST follows.
    pub stripe_size: u64,
    /// The OSTs, in the order of the stripes.
    pub osts: Vec<OstId>,
}

/// The largest stripe count of a file (Lustre's own limit).
pub const STRIPE_COUNT_MAX: usize = 2000;

/// The largest number of positions of a file over all its parts: more than fit into the attribute
/// in which Lustre keeps a layout.
pub const POSITIONS_MAX: usize = 4096;

impl Layout {
    /// A layout of stripes over the OSTs in turn. `None` if the stripe size is zero, if there is no
    /// OST, or if there are more than [`STRIPE_COUNT_MAX`].
    #[must_use]
    pub fn striped(stripe_size: u64, osts: Vec<OstId>) -> Option<Self> {
        Parts::striped(stripe_size, osts).map(Self::of_parts)
    }

    /// A layout of parts that follow each other. Neighbouring parts that are alike become one part.
    /// `None` if a part is not sound by itself ([`Self::striped`]), if the parts are not in order,
    /// if the last part does not end at `u64::MAX`, or if there are more than [`POSITIONS_MAX`]
    /// positions.
    #[must_use]
    pub fn composite(parts: impl IntoIterator<Item = Part>) -> Option<Self> {
        Parts::composite(parts).map(Self::of_parts)
    }

    /// A layout of objects on these OSTs, in the order of the objects. `None` if there is no
    /// object, or if there are more than [`OBJECTS_MAX`] objects, or more OSTs in turn.
    #[must_use]
    pub fn in_objects(striping: ObjectStriping, osts: &[OstId]) -> Option<Self> {
        Objects::new(striping, osts).map(|it| Self(Shape::Objects(Box::new(it))))
    }

    /// A file that lies wholly on one OST.
    #[must_use]
    pub fn on(ost: OstId) -> Self {
        Self::of_parts(Parts::on(ost))
    }

    /// How the file is cut into objects; `None` if it is not.
    #[must_use]
    pub fn objects(&self) -> Option<&Objects> {
        match &self.0 {
            Shape::Parts(_) => None,
            Shape::Objects(objects) => Some(objects),
        }
    }

    /// The OST that holds the byte at `offset`.
    #[must_use]
    pub fn ost_at(&self, offset: u64) -> OstId {
        match &self.0 {
            Shape::Parts(parts) => parts.ost_at(offset),
            Shape::Objects(objects) => objects.ost_at(offset),
        }
    }

    /// The first byte after the stripe that holds the byte at `offset`.
    #[must_use]
    pub fn stripe_end(&self, offset: u64) -> u64 {
        match &self.0 {
            Shape::Parts(parts) => parts.stripe_end(offset),
            Shape::Objects(objects) => objects.stripe_end(offset),
        }
    }

    /// The first offset, not before `offset`, that is at `position`; `None` if there is none.
    ///
    /// # Panics
    /// If there is no such position.
    #[must_use]
    pub fn next_at(&self, position: usize, offset: u64) -> Option<u64> {
        match &self.0 {
            Shape::Parts(parts) => parts.next_at(position, offset),
            Shape::Objects(objects) => objects.next_at(position, offset),
        }
    }

    /// The offset from which the stripes of a position repeat, and the number of bytes after which
    /// they do: 1 if the position is the only one of its part, `u64::MAX` if they do not repeat.
    ///
    /// # Panics
    /// If there is no such position.
    #[must_use]
    pub fn period(&self, position: usize) -> (u64, u64) {
        match &self.0 {
            Shape::Parts(parts) => parts.period(position),
            Shape::Objects(objects) => objects.period(),
        }
    }

    /// The OST of each position.
    pub fn osts(&self) -> Box<dyn ExactSizeIterator<Item = OstId> + '_> {
        match &self.0 {
            Shape::Parts(parts) => Box::new(parts.osts()),
            Shape::Objects(objects) => Box::new(objects.osts()),
        }
    }

    /// Returns how many positions there are.
    #[must_use]
    pub fn position_count(&self) -> usize {
        match &self.0 {
            Shape::Parts(parts) => parts.osts().len(),
            Shape::Objects(objects) => objects.osts().len(),
        }
    }

    /// The parts of the file: one if the layout is plain. For a file of objects, one part for each
    /// object set whose place is known.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        match &self.0 {
            Shape::Parts(parts) => parts.parts().collect(),
            Shape::Objects(objects) => objects.parts().collect(),
        }
    }

    /// Returns how many bytes of a range each OST holds. OSTs that hold none are left out.
    #[must_use]
    pub fn bytes_per_ost(&self, range: Range<u64>) -> BTreeMap<OstId, u64> {
        match &self.0 {
            Shape::Parts(parts) => parts.bytes_per_ost(range),
            Shape::Objects(objects) => objects.bytes_per_ost(range),
        }
    }

    /// How a file of this many bytes is striped, in the part that has the most stripes.
    #[must_use]
    pub fn striping(&self, size: u64) -> Striping {
        match &self.0 {
            Shape::Parts(parts) => parts.striping(size),
            Shape::Objects(objects) => objects.stripes(),
        }
    }

    /// Reports whether all stripes begin at multiples of this number of bytes.
    #[must_use]
    pub fn is_aligned(&self, bytes: u64) -> bool {
        match &self.0 {
            Shape::Parts(parts) => parts.is_aligned(bytes),
            Shape::Objects(objects) => objects.is_aligned(bytes),
        }
    }

    /// The layout that a transfer uses for this file. If its stripes are not whole pages, the whole
    /// file counts as on the OST of its first byte. No known file system makes such stripes unless
    /// it is told to.
    #[must_use]
    pub fn in_pages(self) -> Self {
        if self.is_aligned(ALIGNMENT_BYTES) { self } else { Self::on(self.ost_at(0)) }
    }

    fn of_parts(parts: Parts) -> Self {
        Self(Shape::Parts(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn osts(numbers: &[u32]) -> Vec<OstId> {
        numbers.iter().map(|&number| OstId(number)).collect()
    }

    /// Found by fuzzing: the end of the last stripe that a number can say overflowed.
    #[test]
    fn the_last_stripe_ends_where_numbers_end() {
        let osts = || vec![OstId(0), OstId(1)];
        let striping = ObjectStriping::new(1, 2, 1).unwrap();
        for layout in [Layout::striped(1, osts()), Layout::in_objects(striping, &osts())] {
            assert_eq!(layout.unwrap().stripe_end(u64::MAX), u64::MAX);
        }
    }

    #[test]
    fn stripes_go_round_the_osts() {
        let layout = Layout::striped(10, osts(&[7, 3, 5])).unwrap();
        let found: Vec<_> = [0, 9, 10, 29, 30].iter().map(|&o| layout.ost_at(o).0).collect();
        assert_eq!(found, [7, 7, 3, 5, 7]);
        assert_eq!(layout.stripe_end(0), 10);
        assert_eq!(layout.next_at(0, 5), Some(5));
        assert_eq!(layout.next_at(0, 15), Some(30));
        assert_eq!(layout.next_at(2, 15), Some(20));
    }

    #[test]
    fn a_file_on_one_ost_has_one_stripe() {
        let layout = Layout::on(OstId(4));
        assert_eq!(layout.ost_at(u64::MAX - 1), OstId(4));
        assert_eq!(layout.stripe_end(1 << 60), u64::MAX);
        assert_eq!(Layout::striped(1 << 20, osts(&[4])), Some(layout));
    }

    #[test]
    fn stripes_of_a_later_part_are_counted_from_the_beginning_of_the_file() {
        let layout = Layout::composite([
            Part { end: 15, stripe_size: 1, osts: osts(&[4]) },
            Part { end: u64::MAX, stripe_size: 10, osts: osts(&[9, 1, 6]) },
        ]);
        let layout = layout.unwrap();
        let found: Vec<_> = [14, 15, 20, 30].iter().map(|&o| layout.ost_at(o).0).collect();
        assert_eq!(found, [4, 1, 6, 9]);
        assert_eq!(layout.stripe_end(3), 15);
        assert_eq!(layout.stripe_end(15), 20);
        assert_eq!(layout.next_at(0, 15), None);
        assert_eq!(layout.next_at(2, 0), Some(15));
        assert_eq!(layout.osts().map(|ost| ost.0).collect::<Vec<_>>(), [4, 9, 1, 6]);
        assert_eq!(layout.striping(15), Striping { size: 0, count: 1 });
        assert_eq!(layout.striping(16), Striping { size: 10, count: 3 });
    }

    #[test]
    fn parts_that_leave_a_gap_or_have_no_end_are_refused() {
        let part = |end| Part { end, stripe_size: 10, osts: osts(&[1, 2]) };
        assert!(Layout::composite([]).is_none());
        assert!(Layout::composite([part(20)]).is_none());
        assert!(Layout::composite([part(20), part(20), part(u64::MAX)]).is_none());
        assert!(Layout::composite([part(20), part(u64::MAX)]).is_some());
        let wide = |end| Part { end, stripe_size: end, osts: osts(&[0; STRIPE_COUNT_MAX]) };
        assert!(Layout::composite([wide(1), wide(2), wide(u64::MAX)]).is_none());
    }

    fn objects(unit: u32, count: u32, object_size: u32, numbers: &[u32]) -> Layout {
        let striping = ObjectStriping::new(unit, count, object_size).unwrap();
        Layout::in_objects(striping, &osts(numbers)).unwrap()
    }

    #[test]
    fn objects_are_where_they_are_and_stripes_go_round_those_of_a_set() {
        let layout = objects(10, 2, 20, &[7, 3, 3, 5]);
        let found: Vec<_> = (0..9).map(|stripe| layout.ost_at(stripe * 10 + 1).0).collect();
        assert_eq!(found, [7, 3, 7, 3, 3, 5, 3, 5, 7]);
        assert_eq!(layout.osts().map(|ost| ost.0).collect::<Vec<_>>(), [7, 3, 5]);
        let next = [(0, 5), (0, 15), (0, 35), (1, 0), (2, 0)];
        let next = next.map(|(position, offset)| layout.next_at(position, offset));
        assert_eq!(next, [5, 20, 80, 10, 50].map(Some));
        assert_eq!(layout.stripe_end(11), 20);
        assert_eq!(layout.striping(1), Striping { size: 10, count: 2 });
        let parts = layout.parts().into_iter().map(|part| (part.end, part.osts));
        assert_eq!(parts.collect::<Vec<_>>(), [(40, osts(&[7, 3])), (u64::MAX, osts(&[3, 5]))]);
    }

    #[test]
    fn objects_that_are_all_on_one_ost_are_one_stripe() {
        let layout = objects(10, 1, 20, &[7, 7, 7]);
        assert_eq!(layout.stripe_end(15), u64::MAX);
        assert_eq!(layout.period(0), (0, 1));
        assert_eq!(layout.bytes_per_ost(5..95), [(OstId(7), 90)].into());
        assert_eq!(layout.striping(1), Striping { size: 0, count: 1 });
    }

    #[test]
    fn more_objects_than_can_be_kept_are_refused() {
        let striping = |count| ObjectStriping::new(1, count, 1).unwrap();
        assert!(Layout::in_objects(striping(1), &[]).is_none());
        assert!(Layout::in_objects(striping(1), &[OstId(1); OBJECTS_MAX + 1]).is_none());
        assert!(Layout::in_objects(striping(u32::MAX), &[OstId(1)]).is_none());
        assert!(Layout::in_objects(striping(1), &[OstId(1); OBJECTS_MAX]).is_some());
    }

    fn parts_strategy() -> impl Strategy<Value = Layout> {
        prop::collection::vec((1u64..60, 1u64..9, 1usize..5), 1..5).prop_map(|parts| {
            let mut end = 0;
            let last = parts.len() - 1;
            let parts = parts.iter().enumerate().map(|(index, &(length, stripe_size, count))| {
                end += length;
                let osts = (0..count).map(|ost| OstId(u32::try_from(ost * 7 % 5).unwrap()));
                let end = if index == last { u64::MAX } else { end };
                Part { end, stripe_size, osts: osts.collect() }
            });
            Layout::composite(parts).unwrap()
        })
    }

    fn objects_strategy() -> impl Strategy<Value = Layout> {
        let osts = prop::collection::vec(0u32..5, 1..30);
        (1u32..9, 1u32..5, 1u32..4, osts)
            .prop_map(|(unit, count, units, osts)| objects(unit, count, unit * units, &osts))
    }

    proptest! {
        #[test]
        fn every_position_meets_the_bytes_that_lie_there_and_no_others(
            layout in prop_oneof![parts_strategy(), objects_strategy()]) {
            prop_assert_eq!(layout.position_count(), layout.osts().count());
            let per_ost = layout.bytes_per_ost(17..300);
            for (&ost, &bytes) in &per_ost {
                let found = (17..300).filter(|&offset| layout.ost_at(offset) == ost).count();
                prop_assert_eq!(found as u64, bytes);
            }
            prop_assert_eq!(per_ost.values().sum::<u64>(), 300 - 17);
            let mut seen = vec![0; 300];
            for (position, ost) in layout.osts().enumerate() {
                let mut at = layout.next_at(position, 0);
                while let Some(offset) = at.filter(|&offset| offset < 300) {
                    seen[usize::try_from(offset).unwrap()] += 1;
                    prop_assert_eq!(layout.ost_at(offset), ost);
                    at = layout.next_at(position, offset + 1);
                }
            }
            prop_assert!(seen.iter().all(|&count| count == 1), "{:?}", seen);
        }
    }
}
