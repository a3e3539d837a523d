//! Which OST holds which byte of a file that is cut into objects, each on any OST.
//!
//! On CephFS a hash decides on which OST an object lies, so no two stretches of a file need be
//! alike, and the OST of each object is kept. In a file with more than [`OBJECTS_MAX`] objects, the
//! objects beyond that are taken to lie as the first ones do, over and over. Then some blocks wait
//! in the queue of another OST than the one that holds them; nothing worse happens.
//!
//! A position is an OST of the file, however many objects that OST holds.

use super::Part;
use crate::ceph::ObjectStriping;
use crate::placement::Striping;
use crate::units::OstId;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The most objects of a file whose place is kept: 64 GiB of a file in objects of 4 MiB, in 32 KiB
/// of memory.
pub const OBJECTS_MAX: usize = 1 << 14;

/// A file in objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    striping: ObjectStriping,
    /// The OSTs of the file, in the order of their first objects.
    osts: Box<[OstId]>,
    /// For each object, the index of its OST in `osts`.
    places: Box<[u16]>,
}

impl Objects {
    pub(super) fn new(striping: ObjectStriping, objects: &[OstId]) -> Option<Self> {
        let is_bounded = (1..=OBJECTS_MAX).contains(&objects.len());
        if !is_bounded || striping.count() as usize > OBJECTS_MAX {
            return None;
        }
        let (mut osts, mut known) = (Vec::new(), HashMap::new());
        let place_of = |&ost: &OstId| {
            *known.entry(ost).or_insert_with(|| {
                osts.push(ost);
                u16::try_from(osts.len() - 1).expect("no more than objects")
            })
        };
        let places = objects.iter().map(place_of).collect();
        Some(Self { striping, osts: osts.into_boxed_slice(), places })
    }

    /// How the file is cut.
    #[must_use]
    pub fn striping(&self) -> ObjectStriping {
        self.striping
    }

    /// The OST of each object whose place is known.
    pub fn places(&self) -> impl ExactSizeIterator<Item = OstId> + '_ {
        self.places.iter().map(|&place| self.osts[usize::from(place)])
    }

    pub(super) fn is_aligned(&self, bytes: u64) -> bool {
        // An object is a number of whole units.
        u64::from(self.striping.unit()).is_multiple_of(bytes)
    }

    pub(super) fn osts(&self) -> impl ExactSizeIterator<Item = OstId> + '_ {
        self.osts.iter().copied()
    }

    pub(super) fn stripes(&self) -> Striping {
        let (unit, count) = (self.striping.unit(), self.striping.count());
        Striping { size: if count == 1 { 0 } else { unit.into() }, count }
    }

    pub(super) fn period(&self) -> (u64, u64) {
        (0, if self.osts.len() == 1 { 1 } else { u64::MAX })
    }

    pub(super) fn ost_at(&self, offset: u64) -> OstId {
        self.ost_of(self.striping.locate(offset).object)
    }

    pub(super) fn stripe_end(&self, offset: u64) -> u64 {
        if self.osts.len() == 1 { u64::MAX } else { self.striping.run_end(offset) }
    }

    /// The first byte, not before `offset`, that is on the OST of a position.
    pub(super) fn next_at(&self, position: usize, offset: u64) -> Option<u64> {
        if self.osts.len() == 1 {
            return Some(offset);
        }
        let first = offset / self.striping.set_bytes();
        // After this many sets every object was looked at, wherever the search began.
        let sets = self.places.len() as u64 / u64::from(self.striping.count()) + 2;
        (first..first.saturating_add(sets)).find_map(|set| self.next_in_set(set, position, offset))
    }

    fn next_in_set(&self, set: u64, position: usize, offset: u64) -> Option<u64> {
        let count = u64::from(self.striping.count());
        let columns = (0..count).filter(|column| {
            let object = set.saturating_mul(count).saturating_add(*column);
            self.place_of(object) == position
        });
        columns.filter_map(|column| self.next_in_column(set, column, offset)).min()
    }

    /// The first byte, not before `offset`, that is in a column of an object set.
    fn next_in_column(&self, set: u64, column: u64, offset: u64) -> Option<u64> {
        let (unit, set_bytes) = (u64::from(self.striping.unit()), self.striping.set_bytes());
        let row_bytes = unit * u64::from(self.striping.count());
        let start = set.checked_mul(set_bytes)?;
        let within = offset.saturating_sub(start);
        let (row, at) = (within / row_bytes, within % row_bytes);
        let unit_start = column * unit;
        let next = match at {
            _ if at < unit_start => row * row_bytes + unit_start,
            _ if at < unit_start + unit => within,
            _ => (row + 1) * row_bytes + unit_start,
        };
        if next < set_bytes { start.checked_add(next) } else { None }
    }

    /// The same layout as stripes: a part for each object set whose place is known.
    pub(super) fn parts(&self) -> impl ExactSizeIterator<Item = Part> + '_ {
        (0..self.set_count()).map(|set| self.part(set))
    }

    fn part(&self, set: usize) -> Part {
        let (count, set) = (u64::from(self.striping.count()), set as u64);
        let is_last = set + 1 == self.set_count() as u64;
        let osts = (0..count).map(|column| self.ost_of(set * count + column));
        let end = (set + 1) * self.striping.set_bytes();
        let stripe_size = self.striping.unit().into();
        Part { end: if is_last { u64::MAX } else { end }, stripe_size, osts: osts.collect() }
    }

    fn set_count(&self) -> usize {
        self.places.len().div_ceil(self.striping.count() as usize)
    }

    pub(super) fn bytes_per_ost(&self, range: Range<u64>) -> BTreeMap<OstId, u64> {
        let mut bytes = BTreeMap::new();
        if self.osts.len() == 1 {
            bytes.insert(self.osts[0], range.end.saturating_sub(range.start));
            bytes.retain(|_, bytes| *bytes > 0);
            return bytes;
        }
        // Object sets repeat after this many bytes, so no more of a file need be looked at.
        let cycle_bytes = self.striping.set_bytes().saturating_mul(self.places.len() as u64);
        let cycle_count = (range.end - range.start.min(range.end)) / cycle_bytes;
        let rest = range.start + cycle_count * cycle_bytes..range.end;
        self.add_bytes(&mut bytes, rest, 1);
        if cycle_count > 0 {
            self.add_bytes(&mut bytes, 0..cycle_bytes, cycle_count);
        }
        bytes
    }

    /// Adds `times` the number of bytes of a range that each OST holds.
    fn add_bytes(&self, bytes: &mut BTreeMap<OstId, u64>, range: Range<u64>, times: u64) {
        let (set_bytes, count) = (self.striping.set_bytes(), u64::from(self.striping.count()));
        let mut start = range.start;
        while start < range.end {
            let set = start / set_bytes;
            let end = range.end.min((set + 1).saturating_mul(set_bytes));
            let (from, to) = (start - set * set_bytes, end - set * set_bytes);
            for column in 0..count {
                let here = self.bytes_before(column, to) - self.bytes_before(column, from);
                if here > 0 {
                    let ost = self.ost_of(set * count + column);
                    *bytes.entry(ost).or_default() += here * times;
                }
            }
            start = end;
        }
    }

    /// How many of the first `offset` bytes of an object set are in a column.
    fn bytes_before(&self, column: u64, offset: u64) -> u64 {
        let unit = u64::from(self.striping.unit());
        let row_bytes = unit * u64::from(self.striping.count());
        let before = column * unit;
        offset / row_bytes * unit + (offset % row_bytes).saturating_sub(before).min(unit)
    }

    fn ost_of(&self, object: u64) -> OstId {
        self.osts[self.place_of(object)]
    }

    fn place_of(&self, object: u64) -> usize {
        let known = object % self.places.len() as u64;
        self.places[usize::try_from(known).expect("less than OBJECTS_MAX")].into()
    }
}
