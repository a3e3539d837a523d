//! Where the sink of a bed puts new files: as its engine does, or all in turn.

use lads_core::growth::Extent;
use lads_core::layout::Layout;
use lads_core::placement::{Candidate, NewFile, Place, Placer, Striping, Wish};
use lads_core::range::RangeSet;
use lads_core::sink::Sink;
use lads_core::tuning::Tuning;
use lads_core::units::{Instant, OstId};

/// Places files, and knows what waits where.
#[derive(Debug)]
pub(crate) struct Placing {
    placer: Placer,
    /// What is placed on each OST and not yet written, in bytes.
    queued: Vec<u64>,
}

impl Placing {
    /// By this rule, in stripes of this many bytes.
    pub(crate) fn new(
        rule: Place,
        tuning: &Tuning,
        ost_count: usize,
        stripe_bytes: u64,
        seed: u64,
    ) -> Self {
        let placer = Placer::new(rule, tuning, stripe_bytes, ost_count, seed);
        Self { placer, queued: vec![0; ost_count] }
    }

    /// Where a file of this many bytes goes, as far as a session knows of the others.
    pub(crate) fn place(
        &mut self,
        size: u64,
        session: &Sink,
        now: Instant,
    ) -> (Layout, Vec<Extent>) {
        let candidates: Vec<Candidate> = (self.queued.iter().zip(session.slowness(now)))
            .map(|(&queued_bytes, slowness)| Candidate {
                queued_bytes,
                slowness,
                ..Candidate::default()
            })
            .collect();
        let file = NewFile {
            size,
            coming_bytes: session.coming_bytes(),
            transfer_bytes: session.transfer_bytes(),
            source: Striping::default(),
        };
        let Wish::On { stripe_size, osts } = self.placer.wish(&file, &candidates) else {
            panic!("every OST takes every file")
        };
        let layout = Layout::striped(stripe_size, osts).expect("an OST at least");
        for (ost, bytes) in layout.bytes_per_ost(0..size) {
            self.queued[ost.index()] += bytes;
        }
        let first =
            session.extent_bytes().filter(|&bytes| layout.position_count() == 1 && bytes < size);
        let extents = first.map(|end| vec![Extent { range: 0..end, ost: layout.ost_at(0) }]);
        (layout, extents.unwrap_or_default())
    }

    /// A file is dropped of which this much was written.
    pub(crate) fn on_dropped(&mut self, layout: &Layout, size: u64, written: &RangeSet) {
        for (ost, bytes) in layout.bytes_per_ost(0..size) {
            self.on_written(ost, bytes);
        }
        for range in written.iter() {
            for (ost, bytes) in layout.bytes_per_ost(range) {
                self.queued[ost.index()] += bytes;
            }
        }
    }

    /// This many bytes of what was placed on an OST are written.
    pub(crate) fn on_written(&mut self, ost: OstId, bytes: u64) {
        self.queued[ost.index()] = self.queued[ost.index()].saturating_sub(bytes);
    }
}
