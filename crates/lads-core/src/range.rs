//! Which bytes of a file: a set of byte ranges.
//!
//! Used for what is done, what holds data, and what has been written. Ranges that touch are
//! merged, so a file that arrives almost in order takes a handful of ranges however large it is.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes, kept as sorted ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// Start of each range to its end (the first byte after it).
    ranges: BTreeMap<u64, u64>,
    /// Sum of the lengths of the ranges.
    bytes: u64,
}

impl RangeSet {
    /// The set without a byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range; says how many of its bytes were not in the set before.
    pub fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let bytes_before = self.bytes;
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other_start, &other_end)) = self.ranges.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            start = start.min(other_start);
            end = end.max(other_end);
            self.ranges.remove(&other_start);
            self.bytes -= other_end - other_start;
        }
        self.ranges.insert(start, end);
        self.bytes += end - start;
        self.bytes - bytes_before
    }

    /// Takes a range out; bytes of it that were not in the set do not matter.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&start, &end)) = self.ranges.range(..range.end).next_back() {
            if end <= range.start {
                break;
            }
            self.ranges.remove(&start);
            self.bytes -= end - start;
            if start < range.start {
                self.ranges.insert(start, range.start);
                self.bytes += range.start - start;
            }
            if end > range.end {
                self.ranges.insert(range.end, end);
                self.bytes += end - range.end;
            }
        }
    }

    /// Takes the first ranges out of the set, this many of them.
    #[must_use]
    pub fn split_first(&mut self, count: usize) -> Self {
        let Some((&start, _)) = self.ranges.iter().nth(count) else { return std::mem::take(self) };
        let rest = self.ranges.split_off(&start);
        let ranges = std::mem::replace(&mut self.ranges, rest);
        let bytes = ranges.iter().map(|(start, end)| end - start).sum();
        self.bytes -= bytes;
        Self { ranges, bytes }
    }

    /// Merges ranges until at most `count_max` are left, by adding the bytes between them: those of
    /// the shortest gaps.
    pub fn coarsen(&mut self, count_max: usize) {
        let excess = self.ranges.len().saturating_sub(count_max.max(1));
        if excess == 0 {
            return;
        }
        let ends = self.ranges.values();
        let next_starts = self.ranges.keys().skip(1);
        let mut gaps: Vec<Range<u64>> =
            ends.zip(next_starts).map(|(&end, &start)| end..start).collect();
        gaps.select_nth_unstable_by_key(excess - 1, |gap| gap.end - gap.start);
        gaps.truncate(excess);
        for gap in gaps {
            self.insert(gap);
        }
    }

    /// Returns how many bytes of a range are in the set.
    #[must_use]
    pub fn byte_count_in(&self, range: Range<u64>) -> u64 {
        let mut bytes = 0;
        let mut at = range.start;
        while let Some(found) = self.next_from(at).filter(|found| found.start < range.end) {
            bytes += found.end.min(range.end) - found.start;
            at = found.end;
        }
        bytes
    }

    /// Reports whether every byte of the range is in the set.
    #[must_use]
    pub fn contains(&self, range: Range<u64>) -> bool {
        range.is_empty()
            || self
                .ranges
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, &end)| end >= range.end)
    }

    /// The first range that ends after `offset`, cut so that it does not begin before `offset`.
    #[must_use]
    pub fn next_from(&self, offset: u64) -> Option<Range<u64>> {
        if let Some((_, &end)) = self.ranges.range(..=offset).next_back()
            && end > offset
        {
            return Some(offset..end);
        }
        self.ranges.range(offset..).next().map(|(&start, &end)| start..end)
    }

    /// Returns how many bytes are in the set.
    #[must_use]
    pub fn byte_count(&self) -> u64 {
        self.bytes
    }

    /// Returns how many separate ranges there are.
    #[must_use]
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The ranges, first to last.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Reports whether there is no byte in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn merges_what_touches() {
        let mut set = RangeSet::new();
        assert_eq!(set.insert(0..10), 10);
        assert_eq!(set.insert(20..30), 10);
        assert_eq!(set.insert(10..20), 10);
        assert_eq!(set.iter().collect::<Vec<_>>(), vec![0..30]);
        assert_eq!(set.insert(5..35), 5);
    }

    #[test]
    fn removing_the_middle_leaves_two_ends() {
        let mut set: RangeSet = std::iter::once(0..30).collect();
        set.remove(10..20);
        assert_eq!(set.iter().collect::<Vec<_>>(), vec![0..10, 20..30]);
        assert_eq!(set.byte_count(), 20);
        assert_eq!(set.next_from(12), Some(20..30));
        assert_eq!(set.next_from(25), Some(25..30));
    }

    #[test]
    fn what_is_split_off_and_what_is_left_know_their_bytes() {
        let mut left: RangeSet = [0..10, 20..23, 30..40].into_iter().collect();
        let first = left.split_first(2);
        assert_eq!((first.range_count(), first.byte_count()), (2, 13));
        assert_eq!((left.range_count(), left.byte_count()), (1, 10));
        let last = left.split_first(2);
        assert_eq!((last.byte_count(), left.byte_count(), left.is_empty()), (10, 0, true));
    }

    #[test]
    fn a_set_is_coarsened_at_its_shortest_gaps() {
        let set: RangeSet = [0..10, 12..20, 90..100, 101..110, 400..401].into_iter().collect();
        let coarsened = |count_max| {
            let mut set = set.clone();
            set.coarsen(count_max);
            set.iter().collect::<Vec<_>>()
        };
        assert_eq!(coarsened(5).len(), 5);
        assert_eq!(coarsened(3), [0..20, 90..110, 400..401]);
        assert_eq!(coarsened(2), [0..110, 400..401]);
        assert_eq!(coarsened(0), coarsened(1));
        assert_eq!(coarsened(1).first(), Some(&(0..401)));
    }

    proptest! {
        #[test]
        fn agrees_with_a_bitmap(steps in prop::collection::vec(
            (any::<bool>(), 0u64..200, 0u64..40), 1..60)) {
            let mut set = RangeSet::new();
            let mut bitmap = [false; 256];
            for (is_insert, start, length) in steps {
                let range = start..start + length;
                for byte in range.clone() {
                    bitmap[usize::try_from(byte).unwrap()] = is_insert;
                }
                if is_insert { set.insert(range); } else { set.remove(range); }
            }
            let expected = bitmap.iter().filter(|&&bit| bit).count();
            prop_assert_eq!(set.byte_count(), expected as u64);
            for range in set.iter() {
                prop_assert!(set.contains(range.clone()));
                prop_assert!(bitmap[usize::try_from(range.start).unwrap()]);
                prop_assert!(!bitmap[usize::try_from(range.end).unwrap()]);
            }
        }
    }
}
