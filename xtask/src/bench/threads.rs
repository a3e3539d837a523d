//! Measures what it is worth to know the layout if every OST takes time to answer.
//!
//! The source's OSTs are synthetic: the files are spread over eight of them, and every read waits 5
//! ms, as on a file system across a network. One thread can have one read in flight, so the number
//! of threads limits how many OSTs are busy at once.

use super::moves::Uniform;
use super::race::race;
use super::table::Table;
use super::{Bench, movers};
use crate::scratch::Scratch;
use anyhow::Result;

/// The number of bytes moved in each run.
pub(super) const BYTES: u64 = 256 << 20;

/// The block size. It is so small that eight reads of 5 ms at a time leave most of the processors
/// idle: the OSTs must be the limit.
const BLOCK_SIZE: &str = "256K";

const THREADS: [&str; 4] = ["1", "2", "4", "8"];

/// Moves many files, each on one OST, and then one file on all OSTs.
pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let many = Uniform { files: 64, bytes_each: BYTES / 64 };
    let one = Uniform { files: 1, bytes_each: BYTES };
    Ok(vec![
        compare(bench, "64 files, each on one OST", many, 1, &THREADS)?,
        compare(bench, "one file over 8 OSTs", one, 8, &THREADS[3..])?,
    ])
}

fn compare(
    bench: &Bench,
    what: &str,
    set: Uniform,
    stripe_count: u32,
    threads: &[&str],
) -> Result<Table> {
    let scratch = Scratch::new(&bench.memory, "lads-bench")?;
    let source = scratch.join("source");
    let extent = set.make(&source)?;
    let layout = format!(
        "synthetic:osts=8,stripe_size={BLOCK_SIZE},stripe_count={stripe_count},latency_ms=5"
    );
    let mut contestants = Vec::new();
    for schedule in ["file", "layout"] {
        for count in threads {
            let name = format!("--lab schedule={schedule}, {count} source threads");
            let source = format!("--source=layout={layout},threads={count}");
            let lab = format!("--lab=schedule={schedule},block-size={BLOCK_SIZE}");
            let options = [source.as_str(), &lab];
            contestants.push(movers::lads(bench, &name, scratch.join("target"), &options));
        }
    }
    let results = race(&source, &contestants)?;
    let title = format!("threads: {what}, 5 ms a read, tmpfs to tmpfs");
    Ok(Table::of_race(&title, extent, &results))
}
