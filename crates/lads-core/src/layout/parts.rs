//! Which OST holds which byte of a file whose stripes go over its OSTs in turn.

use super::{POSITIONS_MAX, Part, STRIPE_COUNT_MAX};
use crate::placement::Striping;
use crate::units::OstId;
use std::collections::BTreeMap;
use std::ops::Range;

/// A file in stripes, the same from beginning to end, or part by part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    /// The same stripes from beginning to end, as in nearly every file.
    Plain(Stripes),
    /// At least two parts. Each begins where the one before ends; the last ends at `u64::MAX`.
    Composite(Box<[(u64, Stripes)]>),
}

/// Stripes over OSTs in turn, counted from the beginning of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stripes {
    /// The bytes of a stripe; never zero.
    size: u64,
    /// The OSTs, in the order of the stripes; never empty.
    osts: Vec<OstId>,
}

impl Parts {
    pub(super) fn striped(stripe_size: u64, osts: Vec<OstId>) -> Option<Self> {
        Stripes::new(stripe_size, osts).map(Self::Plain)
    }

    pub(super) fn composite(parts: impl IntoIterator<Item = Part>) -> Option<Self> {
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
            u64::MAX if found.len() == 1 => found.pop().map(|(_, it)| Self::Plain(it)),
            u64::MAX => Some(Self::Composite(found.into_boxed_slice())),
            _ => None,
        }
    }

    pub(super) fn on(ost: OstId) -> Self {
        Self::Plain(Stripes { size: u64::MAX, osts: vec![ost] })
    }

    pub(super) fn ost_at(&self, offset: u64) -> OstId {
        let (_, stripes) = self.part_at(offset);
        stripes.osts[stripes.column_at(offset)]
    }

    pub(super) fn stripe_end(&self, offset: u64) -> u64 {
        let (part_end, stripes) = self.part_at(offset);
        stripes.end(offset).min(part_end)
    }

    pub(super) fn next_at(&self, position: usize, offset: u64) -> Option<u64> {
        let (extent, stripes, column) = self.column(position);
        let next = stripes.next_at(column, offset.max(extent.start));
        (next < extent.end).then_some(next)
    }

    pub(super) fn period(&self, position: usize) -> (u64, u64) {
        let (extent, stripes, _) = self.column(position);
        (extent.start, stripes.period())
    }

    pub(super) fn is_aligned(&self, bytes: u64) -> bool {
        let is_multiple = |at: u64| at == u64::MAX || at.is_multiple_of(bytes);
        let mut parts = (0..self.part_count()).map(|index| self.part(index));
        parts.all(|(end, stripes)| is_multiple(end) && is_multiple(stripes.size))
    }

    pub(super) fn osts(&self) -> impl ExactSizeIterator<Item = OstId> + '_ {
        Positions { parts: self, part: 0, column: 0 }
    }

    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = Part> + '_ {
        (0..self.part_count()).map(|index| {
            let (end, stripes) = self.part(index);
            Part { end, stripe_size: stripes.size, osts: stripes.osts.clone() }
        })
    }

    pub(super) fn bytes_per_ost(&self, range: Range<u64>) -> BTreeMap<OstId, u64> {
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

    pub(super) fn striping(&self, size: u64) -> Striping {
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
        match self {
            Self::Plain(_) => 1,
            Self::Composite(parts) => parts.len(),
        }
    }

    /// Where a part ends, and its stripes.
    fn part(&self, index: usize) -> (u64, &Stripes) {
        match self {
            Self::Plain(stripes) => (u64::MAX, stripes),
            Self::Composite(parts) => (parts[index].0, &parts[index].1),
        }
    }

    /// The part that holds the byte at `offset`: where it ends, and its stripes.
    fn part_at(&self, offset: u64) -> (u64, &Stripes) {
        let index = match self {
            Self::Plain(_) => 0,
            // No file has a byte at the largest possible offset.
            Self::Composite(parts) => {
                parts.partition_point(|(end, _)| *end <= offset).min(parts.len() - 1)
            }
        };
        self.part(index)
    }

    /// The part of a position, its stripes, and which of the stripe columns the position is.
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
        // On one OST the stripe size has no meaning, so it is always the same: equal layouts
        // compare as equal.
        let size = if osts.len() == 1 { u64::MAX } else { size };
        is_sound.then_some(Self { size, osts })
    }

    fn column_at(&self, offset: u64) -> usize {
        let count = self.osts.len() as u64;
        usize::try_from(offset / self.size % count).expect("less than STRIPE_COUNT_MAX")
    }

    fn end(&self, offset: u64) -> u64 {
        (offset / self.size).saturating_add(1).saturating_mul(self.size)
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

/// Iterates over the positions of a file.
struct Positions<'a> {
    parts: &'a Parts,
    part: usize,
    column: usize,
}

impl Iterator for Positions<'_> {
    type Item = OstId;

    fn next(&mut self) -> Option<OstId> {
        if self.part == self.parts.part_count() {
            return None;
        }
        let (_, stripes) = self.parts.part(self.part);
        let ost = stripes.osts[self.column];
        self.column += 1;
        if self.column == stripes.osts.len() {
            (self.part, self.column) = (self.part + 1, 0);
        }
        Some(ost)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.part..self.parts.part_count();
        let count = left.map(|part| self.parts.part(part).1.osts.len()).sum::<usize>();
        let left = count - self.column;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Positions<'_> {}
