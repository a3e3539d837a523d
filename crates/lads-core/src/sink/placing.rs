//! Where new files go, and how much of this transfer is still to be written on each OST.
//!
//! This is the only book of that. A file is in it from the moment when its place is chosen until it
//! ends. Files that are placed next, extents of files that grow, and the choice of how many stripes
//! a file gets all follow from it.
//!
//! A block of a file that grows may be written on another OST than the one that it is booked on. It
//! stays booked there until it is written: in the simulator, with 4 stripes and OSTs of the sink
//! that turn slow, this reached 88.1 % of what is possible on 8 OSTs and 83.2 % on 32, and moving
//! it in the book at once 86.8 and 81.4 %. An OST from which blocks are taken is slow, and so gets
//! no new file early.

use crate::layout::Layout;
use crate::placement::{Candidate, NewFile, OstState, Place, Placer, Wish};
use crate::tuning::Tuning;
use crate::units::{EntryId, EntryMap, OstId};
use std::ops::Range;

/// By which rule a sink places new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacingConfig {
    /// The rule.
    pub rule: Place,
    /// Bytes in a stripe, where the source has nothing to say.
    pub stripe_size: u64,
    /// The most stripes of a file; at least one.
    pub stripe_count_max: usize,
    /// Makes transfers differ from each other where OSTs are equally good.
    pub seed: u64,
}

/// Where a new file should go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What is asked of the file system.
    pub wish: Wish,
    /// If the file may grow: the length of its first extent, in bytes.
    pub first_extent_bytes: Option<u64>,
}

/// Chooses places and keeps the book.
#[derive(Debug)]
pub(super) struct Placing {
    tuning: Tuning,
    placer: Placer,
    /// What is known of each OST; [`Candidate::queued_bytes`] is what is to be written on it.
    osts: Vec<Candidate>,
    /// The files that have a place and have not ended.
    files: EntryMap<Booked>,
}

/// What of one file is to be written on each OST, in bytes. Most files lie on one.
#[derive(Debug, Default)]
struct Booked {
    first: Option<(OstId, u64)>,
    others: Vec<(OstId, u64)>,
}

impl Placing {
    /// A book for this number of OSTs, of which nothing is known yet.
    pub(super) fn new(config: &PlacingConfig, tuning: &Tuning, ost_count: usize) -> Self {
        let PlacingConfig { rule, stripe_size, stripe_count_max, seed } = *config;
        let servers = 0..u32::try_from(ost_count).expect("OST numbers are 32 bits");
        Self {
            tuning: *tuning,
            placer: Placer::new(rule, tuning, stripe_size, stripe_count_max, seed),
            osts: servers.map(|server| Candidate { server, ..Candidate::default() }).collect(),
            files: EntryMap::default(),
        }
    }

    /// What is known of the OSTs now, in the order of their numbers; there is no place for data on
    /// those that are missing.
    pub(super) fn on_osts(&mut self, known: &[Candidate]) {
        let absent = Candidate { state: OstState::Absent, ..Candidate::default() };
        for (index, ost) in self.osts.iter_mut().enumerate() {
            let known = known.get(index).copied().unwrap_or(absent);
            let Candidate { queued_bytes, slowness, .. } = *ost;
            *ost = Candidate { queued_bytes, slowness, ..known };
        }
    }

    /// Chooses where a file should go while OSTs are so slow, and books it there.
    pub(super) fn choose(
        &mut self,
        entry: EntryId,
        file: &NewFile,
        slowness: impl Iterator<Item = u32>,
    ) -> Wish {
        for (ost, slowness) in self.osts.iter_mut().zip(slowness) {
            ost.slowness = slowness;
        }
        let wish = self.placer.wish(file, &self.osts);
        if let Wish::On { stripe_size, osts } = &wish
            && let Some(layout) = Layout::striped(*stripe_size, osts.clone())
        {
            self.book(entry, &layout, file.size, std::iter::empty());
        }
        wish
    }

    /// Books a file where it lies in place of where it was wished to be, but for the ranges of it
    /// that are written.
    pub(super) fn book(
        &mut self,
        entry: EntryId,
        layout: &Layout,
        size: u64,
        written: impl Iterator<Item = Range<u64>>,
    ) {
        self.release(entry);
        let mut booked = Booked::new(layout, size);
        for (ost, bytes) in booked.iter() {
            self.osts[ost.index()].queued_bytes += bytes;
        }
        for range in written {
            for (ost, bytes) in layout.bytes_per_ost(range) {
                self.osts[ost.index()].queued_bytes -= booked.take(ost, bytes);
            }
        }
        self.files.insert(entry, booked);
    }

    /// Bytes of a file are written that were booked on an OST, or as many as were still to be.
    pub(super) fn on_written(&mut self, entry: EntryId, ost: OstId, bytes: u64) {
        if let Some(booked) = self.files.get_mut(&entry) {
            self.osts[ost.index()].queued_bytes -= booked.take(ost, bytes);
        }
    }

    /// A file has ended: nothing more of it is written anywhere.
    pub(super) fn release(&mut self, entry: EntryId) {
        for (ost, bytes) in self.files.remove(&entry).iter().flat_map(Booked::iter) {
            self.osts[ost.index()].queued_bytes -= bytes;
        }
    }

    /// Sees that nothing is booked when all files have ended.
    ///
    /// # Panics
    /// If something is: then it was counted wrongly.
    pub(super) fn check_empty(&self) {
        let queued: Vec<u64> = self.osts.iter().map(|ost| ost.queued_bytes).collect();
        assert!(self.files.is_empty(), "{:?} have ended and are booked", self.files);
        assert!(queued.iter().all(|&bytes| bytes == 0), "{queued:?} bytes are booked of no file");
    }

    /// How many times as long as an OST that is empty and whole this one takes, for what it is and
    /// however quick it answers; `None` if this many bytes more have no place on it.
    pub(super) fn burden(&self, ost: OstId, bytes: u64) -> Option<f64> {
        let candidate = self.osts.get(ost.index()).filter(|it| it.takes(bytes))?;
        Some(candidate.burden(&self.tuning))
    }
}

impl Booked {
    /// All bytes of a file, where they lie.
    fn new(layout: &Layout, size: u64) -> Self {
        let mut booked = Self::default();
        if layout.position_count() == 1 {
            booked.add(layout.ost_at(0), size);
        } else {
            layout.bytes_per_ost(0..size).into_iter().for_each(|(ost, it)| booked.add(ost, it));
        }
        booked
    }

    fn iter(&self) -> impl Iterator<Item = (OstId, u64)> {
        self.first.iter().chain(&self.others).copied()
    }

    fn bytes_of(&mut self, ost: OstId) -> Option<&mut u64> {
        let mut all = self.first.iter_mut().chain(&mut self.others);
        all.find(|(of, _)| *of == ost).map(|(_, bytes)| bytes)
    }

    fn add(&mut self, ost: OstId, more: u64) {
        if let Some(bytes) = self.bytes_of(ost) {
            *bytes += more;
        } else if self.first.is_none() {
            self.first = Some((ost, more));
        } else {
            self.others.push((ost, more));
        }
    }

    /// Takes bytes out that were to be written on an OST, at most as many as there are; says how
    /// many.
    fn take(&mut self, ost: OstId, bytes: u64) -> u64 {
        let Some(left) = self.bytes_of(ost) else { return 0 };
        let bytes = bytes.min(*left);
        *left -= bytes;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: EntryId = EntryId(7);

    fn placing(ost_count: usize) -> Placing {
        let config = PlacingConfig {
            rule: Place::Aware,
            stripe_size: 1 << 20,
            stripe_count_max: ost_count,
            seed: 1,
        };
        Placing::new(&config, &Tuning::DEFAULT, ost_count)
    }

    fn queued(placing: &Placing) -> Vec<u64> {
        placing.osts.iter().map(|ost| ost.queued_bytes).collect()
    }

    fn new_file(size: u64) -> NewFile {
        NewFile {
            size,
            coming_bytes: size,
            transfer_bytes: size,
            source: crate::placement::Striping::default(),
        }
    }

    #[test]
    fn what_is_written_or_given_up_is_booked_no_more() {
        let mut placing = placing(3);
        let layout = Layout::striped(10, vec![OstId(2), OstId(0)]).unwrap();
        placing.book(FILE, &layout, 25, std::iter::once(10..12));
        assert_eq!(queued(&placing), [8, 0, 15]);
        placing.on_written(FILE, OstId(2), 10);
        placing.on_written(FILE, OstId(0), 99);
        assert_eq!(queued(&placing), [0, 0, 5]);
        placing.release(FILE);
        assert_eq!(queued(&placing), [0, 0, 0]);
        placing.on_written(FILE, OstId(2), 10);
        assert_eq!(queued(&placing), [0, 0, 0], "it has ended");
    }

    #[test]
    fn a_file_is_booked_where_it_is_wished_to_be_until_it_is_known_where_it_lies() {
        let mut placing = placing(3);
        let wish = placing.choose(FILE, &new_file(7), [1000; 3].into_iter());
        let Wish::On { osts, .. } = wish else { panic!("an OST takes it: {wish:?}") };
        assert_eq!(queued(&placing)[osts[0].index()], 7);
        let other = OstId((osts[0].0 + 1) % 3);
        placing.book(FILE, &Layout::on(other), 7, std::iter::empty());
        assert_eq!(queued(&placing)[other.index()], 7);
        assert_eq!(queued(&placing).iter().sum::<u64>(), 7);
    }

    #[test]
    fn what_takes_no_files_or_has_no_space_has_no_place() {
        let mut placing = placing(4);
        placing.book(FILE, &Layout::on(OstId(1)), 60, std::iter::empty());
        let spacious = Candidate { capacity_bytes: 1000, free_bytes: 100, ..Candidate::default() };
        let full = Candidate { state: OstState::Full, ..Candidate::default() };
        placing.on_osts(&[full, spacious, Candidate::default()]);
        assert_eq!(placing.burden(OstId(0), 1), None);
        assert_eq!(placing.burden(OstId(1), 41), None, "60 of 100 bytes are booked");
        assert!(placing.burden(OstId(1), 40).is_some_and(|burden| burden > 1.0));
        assert_eq!(placing.burden(OstId(2), 1), Some(1.0));
        assert_eq!(placing.burden(OstId(3), 1), None, "nothing is known of it");
        assert_eq!(placing.burden(OstId(4), 1), None, "there is none");
        assert_eq!(queued(&placing), [0, 60, 0, 0]);
    }
}
