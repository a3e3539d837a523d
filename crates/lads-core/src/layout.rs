//! Which OST holds which byte of a file.
//!
//! A plain file is striped round robin over its OSTs, `stripe_size` bytes at a time (LADS,
//! FAST '15, section 2.3). A composite one has parts that follow each other, each with its own
//! stripe size and OSTs, as Lustre's progressive layouts do: the first bytes on few OSTs, the rest
//! on many. Stripes are counted from the beginning of the *file* in every part. A file, or part,
//! on a single OST is one stripe without end.
//!
//! Whatever has no OST (data on the metadata server, parts never written) has a number that its
//! provider made up for it, so that every byte is on one OST here.
//!
//! A *position* is one stripe column of one part: they are counted through all parts, so each OST
//! of a file has as many positions as parts, or stripes of a part, that use it.

use crate::placement::Striping;
use crate::units::OstId;
use std::collections::BTreeMap;
use std::ops::Range;

/// How a file lies on storage targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout(Shape);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// Nearly every file: no more than its stripe size and OSTs.
    Plain(Stripes),
    /// Two parts at least; each begins where the one before ends, the last ends at `u64::MAX`.
    Composite(Box<[(u64, Stripes)]>),
}

/// Stripes over OSTs in turn, counted from the beginning of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stripes {
    /// Bytes in a stripe before the next OST takes over; never zero.
    size: u64,
    /// The OSTs in turn; never empty.
    osts: Vec<OstId>,
}

/// A part of a file: from where the part before it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first byte after it; `u64::MAX` for the last.
    pub end: u64,
    /// Bytes in a stripe before the next OST takes over.
    pub stripe_size: u64,
    /// The OSTs in turn.
    pub osts: Vec<OstId>,
}

/// The largest number of OSTs one file may be striped over (Lustre's own limit).
pub const STRIPE_COUNT_MAX: usize = 2000;

/// The largest number of positions of a file, all its parts together: more than fit into the
/// attribute in which Lustre keeps them.
pub const POSITIONS_MAX: usize = 4096;

impl Layout {
    /// A layout of stripes over the OSTs in turn; `None` if the stripe size is zero, or there is
    /// no OST or more than [`STRIPE_COUNT_MAX`].
    #[must_use]
    pub fn striped(stripe_size: u64, osts: Vec<OstId>) -> Option<Self> {
        Stripes::new(stripe_size, osts).map(|stripes| Self(Shape::Plain(stripes)))
    }

    /// A layout of parts that follow each other; what begins the same as it goes on is one part.
    /// `None` if one is not sound by itself ([`Self::striped`]), they are not in order, the last
    /// does not end at `u64::MAX`, or there are more than [`POSITIONS_MAX`] positions.
    #[must_use]
    pub fn composite(parts: impl IntoIterator<Item = Part>) -> Option<Self> {
        let mut found: Vec<(u64, Stripes)> = Vec::new();
        let mut position_count = 0;
        for part in parts {
            let start = found.last().map_or(0, |(end, _)| *end);
            let stripes = Stripes::new(part.stripe_size, part.osts).filter(|_| part.end > start)?;
            match found.last_mut() {
                Some((end, before)) if *before == stripes => *end = part.end,
                _ => {
                    position_count += stripes.osts.len();
                    found.push((part.end, stripes));
                }
            }
            if position_count > POSITIONS_MAX {
                return None;
            }
        }
        match found.last()?.0 {
            u64::MAX if found.len() == 1 => found.pop().map(|(_, it)| Self(Shape::Plain(it))),
            u64::MAX => Some(Self(Shape::Composite(found.into_boxed_slice()))),
            _ => None,
        }
    }

    /// A file that lies wholly on one OST.
    #[must_use]
    pub fn on(ost: OstId) -> Self {
        Self(Shape::Plain(Stripes { size: u64::MAX, osts: vec![ost] }))
    }

    /// The OST that holds the byte at `offset`.
    #[must_use]
    pub fn ost_at(&self, offset: u64) -> OstId {
        let (_, stripes) = self.part_at(offset);
        stripes.osts[stripes.column_at(offset)]
    }

    /// The first byte after the stripe that holds the byte at `offset`.
    #[must_use]
    pub fn stripe_end(&self, offset: u64) -> u64 {
        let (part_end, stripes) = self.part_at(offset);
        stripes.end(offset).min(part_end)
    }

    /// The first offset from `offset` on that is at `position`; `None` if there is none.
    ///
    /// # Panics
    /// If there is no such position.
    #[must_use]
    pub fn next_at(&self, position: usize, offset: u64) -> Option<u64> {
        let (extent, stripes, column) = self.column(position);
        let next = stripes.next_at(column, offset.max(extent.start));
        (next < extent.end).then_some(next)
    }

    /// From where on a position's stripes repeat, and after how many bytes; 1 where it is the only
    /// one of its part.
    ///
    /// # Panics
    /// If there is no such position.
    #[must_use]
    pub fn period(&self, position: usize) -> (u64, u64) {
        let (extent, stripes, _) = self.column(position);
        (extent.start, stripes.period())
    }

    /// The OST of each position.
    pub fn osts(&self) -> impl ExactSizeIterator<Item = OstId> + '_ {
        Positions { layout: self, part: 0, column: 0 }
    }

    /// The parts, one if the layout is plain.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = Part> + '_ {
        (0..self.part_count()).map(|index| {
            let (end, stripes) = self.part(index);
            Part { end, stripe_size: stripes.size, osts: stripes.osts.clone() }
        })
    }

    /// How many bytes of a range each OST holds; those that hold none are left out.
    #[must_use]
    pub fn bytes_per_ost(&self, range: Range<u64>) -> BTreeMap<OstId, u64> {
        let mut bytes = BTreeMap::new();
        let mut start = 0;
        for index in 0..self.part_count() {
            let (end, stripes) = self.part(index);
            let (from, to) = (range.start.max(start), range.end.min(end));
            start = end;
            if from >= to {
                continue;
            }
            for (column, &ost) in stripes.osts.iter().enumerate() {
                let here = stripes.bytes_before(column, to) - stripes.bytes_before(column, from);
                if here > 0 {
                    *bytes.entry(ost).or_default() += here;
                }
            }
        }
        bytes
    }

    /// How a file of so many bytes is striped, in the part of it that has most stripes.
    #[must_use]
    pub fn striping(&self, size: u64) -> Striping {
        let mut starts = 0;
        let parts = (0..self.part_count()).map(|index| self.part(index));
        let used = parts.filter(|(end, _)| std::mem::replace(&mut starts, *end) < size.max(1));
        let widest = used.map(|(_, stripes)| stripes).max_by_key(|stripes| stripes.osts.len());
        widest.map_or_else(Striping::default, |stripes| Striping {
            size: if stripes.osts.len() == 1 { 0 } else { stripes.size },
            count: u32::try_from(stripes.osts.len()).expect("at most STRIPE_COUNT_MAX"),
        })
    }

    fn part_count(&self) -> usize {
        match &self.0 {
            Shape::Plain(_) => 1,
            Shape::Composite(parts) => parts.len(),
        }
    }

    /// Where a part ends, and its stripes.
    fn part(&self, index: usize) -> (u64, &Stripes) {
        match &self.0 {
            Shape::Plain(stripes) => (u64::MAX, stripes),
            Shape::Composite(parts) => (parts[index].0, &parts[index].1),
        }
    }

    /// The part that holds the byte at `offset`: where it ends, and its stripes.
    fn part_at(&self, offset: u64) -> (u64, &Stripes) {
        let index = match &self.0 {
            Shape::Plain(_) => 0,
            // No file has a byte at the very last offset that a number can say.
            Shape::Composite(parts) => {
                parts.partition_point(|(end, _)| *end <= offset).min(parts.len() - 1)
            }
        };
        self.part(index)
    }

    /// The part of a position, its stripes, and which of their columns it is.
    fn column(&self, position: usize) -> (Range<u64>, &Stripes, usize) {
        let (mut start, mut column) = (0, position);
        for index in 0..self.part_count() {
            let (end, stripes) = self.part(index);
            if column < stripes.osts.len() {
                return (start..end, stripes, column);
            }
            column -= stripes.osts.len();
            start = end;
        }
        panic!("no position {position} in {self:?}");
    }
}

impl Stripes {
    fn new(size: u64, osts: Vec<OstId>) -> Option<Self> {
        let is_sound = size > 0 && !osts.is_empty() && osts.len() <= STRIPE_COUNT_MAX;
        // One OST has no stripes: the same layout looks the same.
        let size = if osts.len() == 1 { u64::MAX } else { size };
        is_sound.then_some(Self { size, osts })
    }

    fn column_at(&self, offset: u64) -> usize {
        let count = self.osts.len() as u64;
        usize::try_from(offset / self.size % count).expect("less than STRIPE_COUNT_MAX")
    }

    fn end(&self, offset: u64) -> u64 {
        (offset / self.size + 1).saturating_mul(self.size)
    }

    fn next_at(&self, column: usize, offset: u64) -> u64 {
        let here = self.column_at(offset);
        if here == column {
            return offset;
        }
        let count = self.osts.len();
        let stripes_ahead = (column + count - here) % count;
        (offset / self.size).saturating_add(stripes_ahead as u64).saturating_mul(self.size)
    }

    /// How many of the first `offset` bytes of the file are in a column.
    fn bytes_before(&self, column: usize, offset: u64) -> u64 {
        if self.osts.len() == 1 {
            return offset;
        }
        let (period, before) = (self.period(), (column as u64).saturating_mul(self.size));
        offset / period * self.size + (offset % period).saturating_sub(before).min(self.size)
    }

    fn period(&self) -> u64 {
        match self.osts.len() as u64 {
            1 => 1,
            count => self.size.saturating_mul(count),
        }
    }
}

/// Goes through the positions of a layout.
struct Positions<'a> {
    layout: &'a Layout,
    part: usize,
    column: usize,
}

impl Iterator for Positions<'_> {
    type Item = OstId;

    fn next(&mut self) -> Option<OstId> {
        if self.part == self.layout.part_count() {
            return None;
        }
        let (_, stripes) = self.layout.part(self.part);
        let ost = stripes.osts[self.column];
        self.column += 1;
        if self.column == stripes.osts.len() {
            (self.part, self.column) = (self.part + 1, 0);
        }
        Some(ost)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let parts = self.part..self.layout.part_count();
        let count = parts.map(|part| self.layout.part(part).1.osts.len()).sum::<usize>();
        let left = count - self.column;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Positions<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn osts(numbers: &[u32]) -> Vec<OstId> {
        numbers.iter().map(|&number| OstId(number)).collect()
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

    proptest! {
        #[test]
        fn every_position_meets_the_bytes_that_lie_there_and_no_others(
            parts in prop::collection::vec((1u64..60, 1u64..9, 1usize..5), 1..5)) {
            let mut end = 0;
            let last = parts.len() - 1;
            let parts = parts.iter().enumerate().map(|(index, &(length, stripe_size, count))| {
                end += length;
                let osts = (0..count).map(|ost| OstId(u32::try_from(ost * 7 % 5).unwrap()));
                let end = if index == last { u64::MAX } else { end };
                Part { end, stripe_size, osts: osts.collect() }
            });
            let layout = Layout::composite(parts).unwrap();
            prop_assert_eq!(layout.osts().len(), layout.osts().count());
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
