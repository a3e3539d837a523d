//! Measures the cost of finding out on which OSTs files are, compared with the cost of moving them.
//!
//! On each file system, the same files of 1 MiB are looked up, then moved into memory, then moved
//! again without layouts from the file system (`--source layout=local`). A lookup that takes a
//! hundredth of the time of the move does not matter. The walk makes the lookups while blocks are
//! moved, so their real cost is the difference between the two moves.

use super::moves::Uniform;
use super::race::{Timing, race};
use super::room::mount::{Mount, Storage};
use super::table::Table;
use super::{Bench, movers};
use crate::scratch::Scratch;
use crate::{setup, shell};
use anyhow::{Context, Result};
use lads_plot::groups::Spread;
use std::path::{Path, PathBuf};

/// Files of medium size. With smaller files, many of which are packed into one request, a lookup
/// takes a larger share of the time.
const SET: Uniform = Uniform { files: 1000, bytes_each: 1 << 20 };

/// The memory that is used as file system, in bytes: for the source, the target and the emulated
/// file system.
pub(super) const SPACE: u64 = 4 << 30;
/// The number of bytes on the disk.
pub(super) const DISK_BYTES: u64 = 1 << 30;

/// Looks up and moves the files on every file system that is available here.
pub(super) fn run(bench: &Bench) -> Result<Table> {
    let lookups = build()?;
    let notes = Scratch::new(&std::env::temp_dir(), "lads-lookups")?;
    let memory = Scratch::new(&bench.memory, "lads-bench")?;
    let disk = Scratch::new(&bench.disk, "lads-bench")?;
    let mut rows = vec![
        row(bench, &lookups, "tmpfs", &memory.join("source"), &memory)?,
        row(bench, &lookups, "the disk of the build", &disk.join("source"), &memory)?,
    ];
    if setup::is_root() && Path::new("/dev/fuse").exists() {
        let testbed = shell::build_testbed()?;
        let mount = Mount::start(&testbed, Storage::default(), &notes.join("mounts"), "source")?;
        rows.push(row(bench, &lookups, "emulated Lustre", &mount.path().join("data"), &memory)?);
    } else {
        println!("no emulated Lustre: it needs root and /dev/fuse\n");
    }
    let head = [
        "files of 1 MiB on",
        "provider",
        "lookup, µs",
        "first extent, µs",
        "move, µs",
        "share",
        "move without lookups, µs",
        "difference",
    ];
    Ok(Table::of_words("lookups: a layout for each file", &head, rows))
}

fn build() -> Result<PathBuf> {
    let words = ["build", "--release", "--quiet", "--package", "lads-engine", "--example"];
    shell::run(shell::cargo().args(words).arg("lookups"))?;
    Ok(shell::target_dir()?.join("release/examples/lookups"))
}

fn row(
    bench: &Bench,
    lookups: &Path,
    name: &str,
    source: &Path,
    memory: &Scratch,
) -> Result<Vec<String>> {
    SET.make(source)?;
    let (provider, lookup, extent) = look_up(lookups, source)?;
    let blind = ["--source", "layout=local"];
    let target = || memory.join("target");
    let contestants = [
        movers::lads(bench, "lads", target(), &[]),
        movers::lads(bench, "lads without lookups", target(), &blind),
    ];
    let results = race(source, &contestants)?;
    std::fs::remove_dir_all(source)?;
    let [moved, blind] = [0, 1].map(|index: usize| moved(&results[index]));
    let share = format!("{:.3} %", lookup.median / moved.median * 100.0);
    let said = |Spread { median, min, max }| format!("{median:.2} [{min:.2}–{max:.2}]");
    let difference = format!("{:+.1} %", (moved.median / blind.median - 1.0) * 100.0);
    let [lookup, extent, moved, blind] = [lookup, extent, moved, blind].map(said);
    Ok(vec![name.to_owned(), provider, lookup, extent, moved, share, blind, difference])
}

/// The provider of the layouts, and the time in microseconds for a lookup and for the first extent
/// of a file.
fn look_up(lookups: &Path, source: &Path) -> Result<(String, Spread, Spread)> {
    let text = shell::output(shell::command(lookups).arg(source))?;
    let mut lines = text.lines();
    let provider = lines.next().context("lookups printed nothing")?.to_owned();
    let (mut lookup, mut extent) = (Vec::new(), Vec::new());
    for line in lines.skip(1) {
        let numbers = line.split(' ').map(str::parse::<f64>).collect::<Result<Vec<_>, _>>()?;
        let &[count, lookups, extents] = numbers.as_slice() else { continue };
        lookup.push(lookups / count * 1e6);
        extent.push(extents / count * 1e6);
    }
    Ok((provider, Spread::of(lookup.into_iter()), Spread::of(extent.into_iter())))
}

/// The time to move a file, in microseconds.
fn moved(result: &Timing) -> Spread {
    Spread::of(result.samples.iter().map(|sample| sample.elapsed_seconds / SET.files as f64 * 1e6))
}
