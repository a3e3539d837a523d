//! What bytes are, in a world without bytes: which file they came from, and which version of it.

use crate::rng::mix;
use lads_core::range::RangeSet;
use std::collections::BTreeMap;
use std::ops::Range;

/// The bytes of one version of one source file; each byte is known by its offset besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Content {
    /// Index of the file in [`crate::tree::Tree`]; [`Content::GARBAGE`]'s is none.
    pub(crate) file: usize,
    /// Index of its version.
    pub(crate) version: usize,
}

impl Content {
    /// Bytes that no one wrote: torn, flipped, rotten.
    pub(crate) const GARBAGE: Self = Self { file: usize::MAX, version: 0 };

    /// What stands for the checksum of these bytes.
    pub(crate) fn checksum(self, offset: u64, length: u64) -> u64 {
        let parts = [self.file as u64, self.version as u64, offset, length];
        parts.into_iter().fold(17, |hash, part| mix(hash ^ part).wrapping_add(part))
    }
}

/// Which bytes a file at the sink holds; where nothing was written it has a hole.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// Start of each extent to its end and what it holds.
    map: BTreeMap<u64, (u64, Content)>,
}

impl Extents {
    /// Overwrites a range.
    pub(crate) fn put(&mut self, range: Range<u64>, content: Content) {
        let before = self.map.range(..range.start).next_back().map(|(&s, &(e, c))| (s, e, c));
        if let Some((start, end, old)) = before
            && end > range.start
        {
            self.map.insert(start, (range.start, old));
            if end > range.end {
                self.map.insert(range.end, (end, old));
            }
        }
        let inside: Vec<_> = self.map.range(range.clone()).map(|(&s, &(e, c))| (s, e, c)).collect();
        for (start, end, old) in inside {
            self.map.remove(&start);
            if end > range.end {
                self.map.insert(range.end, (end, old));
            }
        }
        self.map.insert(range.start, (range.end, content));
    }

    /// What a range holds if it is of one and the same content and without hole.
    pub(crate) fn single(&self, range: Range<u64>) -> Option<Content> {
        let (_, &(mut end, content)) = self.map.range(..=range.start).next_back()?;
        if end <= range.start {
            return None;
        }
        while end < range.end {
            let &(next, other) = self.map.get(&end)?;
            if other != content {
                return None;
            }
            end = next;
        }
        Some(content)
    }

    /// The first extent that is not of this content or not in this set of ranges, if any.
    pub(crate) fn stranger(&self, content: Content, data: &RangeSet) -> Option<Range<u64>> {
        self.iter()
            .find(|(range, other)| *other != content || !data.contains(range.clone()))
            .map(|(range, _)| range)
    }

    /// The extents, first to last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, Content)> + '_ {
        self.map.iter().map(|(&start, &(end, content))| (start..end, content))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_writes_win() {
        let (a, b) = (Content { file: 1, version: 0 }, Content { file: 1, version: 1 });
        let mut extents = Extents::default();
        extents.put(0..30, a);
        extents.put(10..20, b);
        assert_eq!(extents.single(0..10), Some(a));
        assert_eq!(extents.single(10..20), Some(b));
        assert_eq!(extents.single(5..15), None);
        extents.put(10..25, a);
        assert_eq!(extents.single(0..30), Some(a));
        assert_eq!(extents.single(0..31), None);
    }
}
