//! The files of the server, and what a crash leaves of them.

use super::rng::Rng;
use lads_core::view::Run;

/// The bytes of a file; all of them are there from the beginning.
pub(crate) const FILE_BYTES: usize = 1024;

/// The number of a write; 0: nothing was ever written.
pub(crate) type Stamp = u64;

/// A file: of each byte, what it holds.
pub(crate) struct DiskFile {
    pub(crate) bytes: Vec<Stamp>,
    /// What it held when it was durable last, and what it has held since.
    since_sync: Vec<Vec<Stamp>>,
}

impl DiskFile {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; FILE_BYTES], since_sync: vec![vec![0]; FILE_BYTES] }
    }

    pub(crate) fn write(&mut self, run: Run, stamp: Stamp) {
        for index in indexes(run) {
            self.bytes[index] = stamp;
            self.since_sync[index].push(stamp);
        }
    }

    pub(crate) fn read(&self, run: Run) -> &[Stamp] {
        &self.bytes[indexes(run)]
    }

    pub(crate) fn sync(&mut self) {
        for (held, now) in self.since_sync.iter_mut().zip(&self.bytes) {
            held.clear();
            held.push(*now);
        }
    }

    /// Of each byte, anything that it has held since the last sync is left.
    pub(crate) fn crash(&mut self, rng: &mut Rng) {
        for (now, held) in self.bytes.iter_mut().zip(&self.since_sync) {
            *now = held[rng.index(held.len())];
        }
        self.sync();
    }
}

pub(crate) fn indexes(run: Run) -> std::ops::Range<usize> {
    let start = usize::try_from(run.offset).unwrap();
    start..start + usize::try_from(run.length).unwrap()
}
