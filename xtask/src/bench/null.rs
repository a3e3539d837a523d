//! Measures what LADS itself costs: transfers without storage at one end or at both.

use super::moves::Uniform;
use super::race::{Mover, take_turns};
use super::table::Table;
use super::{Bench, measure, movers};
use crate::scratch::Scratch;
use crate::shell;
use crate::tree::Extent;
use anyhow::Result;
use std::path::PathBuf;

/// The number of bytes moved in each run.
const BYTES: u64 = 8 << 30;
/// The size of the file in memory that is read, and the memory for it, in bytes.
pub(super) const FILE_BYTES: u64 = 2 << 30;

/// Moves bytes that lie on no storage, and a file in memory, to a sink that keeps nothing.
pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let scratch = Scratch::new(&bench.memory, "lads-bench")?;
    let source = scratch.join("source");
    let extent = Uniform { files: 1, bytes_each: FILE_BYTES }.make(&source)?;
    let size = BYTES.to_string();
    let made_up = ["null", "zero"].map(|word| to_null(bench, &format!("{word}:{size}")));
    let read = to_null(bench, &movers::slashed(&source, &source)[0]);
    Ok(vec![
        measured("null: no storage", Extent { files: 1, bytes: BYTES }, &made_up)?,
        measured("null: a file of 2 GiB on tmpfs, data discarded", extent, &[read])?,
    ])
}

/// `lads cp SOURCE null:`
fn to_null<'a>(bench: &Bench, source: &str) -> Mover<'a> {
    let (lads, source) = (bench.lads.clone(), source.to_owned());
    let name = match source.split_once(':') {
        Some((word, _)) => format!("`{word}:SIZE` to `null:`"),
        None => "a file to `null:`".to_owned(),
    };
    Mover::new(name, PathBuf::new(), move |_, _| {
        movers::timed(shell::command(&lads).args(["cp", "-q", &source, "null:"]))
    })
}

fn measured(title: &str, extent: Extent, movers: &[Mover<'_>]) -> Result<Table> {
    let run = |mover: &Mover<'_>| measure::measure(|| (mover.run)(&mover.target, &mover.target));
    for mover in movers {
        run(mover)?;
    }
    Ok(Table::of_race(title, extent, &take_turns(movers, run)?))
}
