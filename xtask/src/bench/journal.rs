//! Measures the cost of the journal, which lets an interrupted transfer go on in the middle of a
//! file.

use super::moves::Uniform;
use super::race::race;
use super::table::Table;
use super::{Bench, movers};
use crate::scratch::Scratch;
use anyhow::Result;

/// The size of the one large file, for which the journal has most to record.
pub(super) const BYTES: u64 = 2 << 30;

/// Moves the file with and without a journal, to memory and to disk.
pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let memory = Scratch::new(&bench.memory, "lads-bench")?;
    let disk = Scratch::new(&bench.disk, "lads-bench")?;
    let source = memory.join("source");
    let extent = Uniform { files: 1, bytes_each: BYTES }.make(&source)?;
    [("tmpfs to tmpfs", &memory), ("tmpfs to disk", &disk)]
        .into_iter()
        .map(|(way, place)| {
            let target = || place.join("target");
            let contestants = [
                movers::lads(bench, "lads --lab=journal=no", target(), &["--lab=journal=no"]),
                movers::lads(bench, "lads", target(), &[]),
            ];
            let results = race(&source, &contestants)?;
            Ok(Table::of_race(&format!("journal: 1 × {BYTES} bytes, {way}"), extent, &results))
        })
        .collect()
}
