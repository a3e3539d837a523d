//! The files of a server, and what a crash of its host leaves of them.

use super::bytes::Stamp;
use crate::rng::Rng;
use lads_core::remote::extent::Extent;
use lads_core::view::View;
use std::collections::BTreeMap;
use std::ops::Range;

/// The number of bytes of a file that are written: few, so that writes overlap.
pub(super) const FILE_BYTES: u64 = 40;

/// A file.
#[derive(Clone, Debug)]
pub(super) struct DiskFile {
    /// The offset of the first byte that is written: before it is a hole.
    pub(super) base: u64,
    now: Content,
    /// The content that a crash preserves.
    durable: Content,
}

#[derive(Clone, Debug)]
struct Content {
    stamps: Vec<Stamp>,
    size: u64,
}

/// Bytes that were read, by their positions in the view; zeros are not listed.
pub(super) type Found = BTreeMap<u64, Stamp>;

/// The offsets of the positions of a view, in the order of the positions.
pub(super) fn offsets(view: &View, positions: Range<u64>) -> Vec<u64> {
    let runs = view.runs(positions).into_iter().flatten();
    runs.flat_map(|run| run.offset..run.offset + run.length).collect()
}

impl DiskFile {
    pub(super) fn new(base: u64) -> Self {
        let stamps = vec![0; usize::try_from(FILE_BYTES).expect("a short file")];
        let now = Content { stamps, size: 0 };
        Self { base, durable: now.clone(), now }
    }

    pub(super) fn size(&self) -> u64 {
        self.now.size
    }

    fn index(&self, offset: u64) -> usize {
        usize::try_from(offset - self.base).expect("a short file")
    }

    /// All offsets, with the stamps there.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Stamp)> {
        (self.base..).zip(self.now.stamps.iter().copied())
    }

    /// Writes a byte. Returns the stamp that was there.
    pub(super) fn put(&mut self, offset: u64, stamp: Stamp) -> Stamp {
        self.now.size = self.now.size.max(offset + 1);
        let index = self.index(offset);
        std::mem::replace(&mut self.now.stamps[index], stamp)
    }

    /// Cuts or extends the file. Returns the offsets behind its end.
    pub(super) fn cut(&mut self, size: u64, stamp: Stamp) -> Range<u64> {
        self.now.size = size;
        let end = self.base + FILE_BYTES;
        let behind = size.clamp(self.base, end)..end;
        for offset in behind.clone() {
            let index = self.index(offset);
            self.now.stamps[index] = stamp;
        }
        behind
    }

    /// Makes the file at least as long as this.
    pub(super) fn extend(&mut self, size: u64) {
        self.now.size = self.now.size.max(size);
    }

    /// Returns how many positions of an extent lie before the end of the file.
    pub(super) fn count(&self, extent: &Extent) -> u32 {
        let positions = extent.positions();
        let end = extent.view().position_at(self.now.size).unwrap_or(u64::MAX).min(positions.end);
        u32::try_from(end.saturating_sub(positions.start)).expect("a frame is shorter")
    }

    /// Reads so many positions of an extent. Behind the end of the file is what will be there when
    /// it is longer.
    pub(super) fn read(&self, extent: &Extent, count: u32) -> Found {
        let start = extent.positions().start;
        let positions = start..start + u64::from(count);
        let found = self.all().filter(|(_, stamp)| *stamp != 0).filter_map(|(offset, stamp)| {
            let position = extent.view().position_at(offset).ok()?;
            let is_seen =
                positions.contains(&position) && extent.view().offset_of(position) == Ok(offset);
            is_seen.then_some((position, stamp))
        });
        found.collect()
    }

    pub(super) fn sync(&mut self) {
        self.durable = self.now.clone();
    }

    /// The host crashes: of the bytes that are not durable, some are lost.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        match rng.below(3) {
            0 => self.now = self.durable.clone(),
            1 => {
                let Content { stamps, size } = &self.durable;
                for (now, durable) in self.now.stamps.iter_mut().zip(stamps) {
                    if rng.hits(500) {
                        *now = *durable;
                    }
                }
                self.now.size = self.now.size.max(*size);
            }
            _ => {}
        }
        self.durable = self.now.clone();
    }
}
