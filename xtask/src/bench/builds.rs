//! Compares the static and the dynamic program that `cargo xtask dist` builds.

use super::moves::Uniform;
use super::race::{Timing, race};
use super::table::Table;
use super::{Bench, movers};
use crate::scratch::Scratch;
use anyhow::Result;
use lads_plot::groups::Spread;

/// The data sets of the benchmarks of these names.
const NAMES: [&str; 3] = ["big", "medium", "small"];

/// The number of bytes that the largest data set fills.
pub(super) fn space() -> u64 {
    super::moves::space("big")
}

/// Moves each data set with both programs in the same rounds, from memory to memory.
pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let (mut tables, mut ratios) = (Vec::new(), Vec::new());
    for name in NAMES {
        let set = Uniform::of(name);
        let scratch = Scratch::new(&bench.memory, "lads-bench")?;
        let source = scratch.join("source");
        let extent = set.make(&source)?;
        let target = || scratch.join("target");
        let contestants = [
            movers::program(&bench.dynamic, "dynamic", target(), &[]),
            movers::program(&bench.first, "static", target(), &[]),
        ];
        let results = race(&source, &contestants)?;
        let title = format!("{name}: {} × {} bytes, tmpfs to tmpfs", set.files, set.bytes_each);
        tables.push(Table::of_race(&title, extent, &results));
        let Spread { median, min, max } = ratio(&results[0], &results[1]);
        ratios.push(vec![name.to_owned(), format!("{median:.3} [{min:.3}–{max:.3}]")]);
    }
    let head = ["data set", "static / dynamic [min–max]"];
    tables.push(Table::of_words("Ratio of the throughputs in the same round", &head, ratios));
    Ok(tables)
}

/// Returns the throughput of the second program divided by that of the first one, round by round.
fn ratio(first: &Timing, second: &Timing) -> Spread {
    let rounds = first.samples.iter().zip(&second.samples);
    Spread::of(rounds.map(|(first, second)| first.elapsed_seconds / second.elapsed_seconds))
}
