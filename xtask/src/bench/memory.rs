//! Measures the memory of each end, for very many files and for very much data.
//!
//! There are two sources: what LADS reports in its summary, and the kernel's high-water mark of
//! each process (`VmHWM`), which is read while the process runs.

use super::measure::children;
use super::moves::Uniform;
use super::table::Table;
use super::{Bench, movers};
use crate::scratch::Scratch;
use crate::{shell, tree};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The number of bytes moved in the run with much data.
pub(super) const BYTES: u64 = 10 << 30;
/// The additional memory that is used as file system, in bytes.
pub(super) const SPACE: u64 = 12 << 30;

const FILES: u64 = 1_000_000;

/// Moves very many files, then very much data.
pub(super) fn run(bench: &Bench) -> Result<Table> {
    let many = Uniform { files: FILES, bytes_each: 0 };
    let much = Uniform { files: 10, bytes_each: BYTES / 10 };
    let memory = Scratch::new(&bench.memory, "lads-bench")?;
    let disk = Scratch::new(&bench.disk, "lads-bench")?;
    let rows = vec![
        row(bench, "1,000,000 empty files, tmpfs to tmpfs", many, &memory, &memory)?,
        row(bench, "10 files of 1 GiB, tmpfs to disk", much, &memory, &disk)?,
    ];
    let head = [
        "what",
        "seconds",
        "source, own figure",
        "kernel's figure",
        "sink, own figure",
        "kernel's figure",
    ];
    Ok(Table::of_words("memory: peak of each end, default buffers, MiB", &head, rows))
}

fn row(
    bench: &Bench,
    what: &str,
    set: Uniform,
    source: &Scratch,
    target: &Scratch,
) -> Result<Vec<String>> {
    let (source, target) = (source.join("source"), target.join("target"));
    set.make(&source)?;
    let seen = watch(bench, &source, &target)?;
    tree::compare(&source, &target)?;
    fs::remove_dir_all(&source)?;
    fs::remove_dir_all(&target)?;
    let mib = |bytes: u64| format!("{:.0}", bytes as f64 / f64::from(1 << 20));
    let Seen { elapsed, source, sink } = seen;
    let mut row = vec![what.to_owned(), format!("{:.1}", elapsed.as_secs_f64())];
    row.extend([source.said, source.kernel, sink.said, sink.kernel].map(mib));
    Ok(row)
}

/// The peak memory of one end, in bytes: as reported by LADS, and by the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    said: u64,
    kernel: u64,
}

struct Seen {
    elapsed: Duration,
    source: Peak,
    sink: Peak,
}

/// Runs `lads cp`, and reads the memory of the process and of its children until it ends.
fn watch(bench: &Bench, source: &Path, target: &Path) -> Result<Seen> {
    let start = Instant::now();
    let mut child = shell::command(&bench.lads)
        .args(["cp", "-q", "--json"])
        .args(movers::slashed(source, target))
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start lads")?;
    let mut stdout = child.stdout.take().expect("piped above");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stdout.read_to_string(&mut text).map(|_| text)
    });
    let mut peaks = BTreeMap::new();
    let status = loop {
        look(child.id(), &mut peaks);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let elapsed = start.elapsed();
    let events = reader.join().expect("reads, and does not panic")?;
    if !status.success() {
        bail!("lads: {status}: {events}");
    }
    let summary: serde_json::Value =
        serde_json::from_str(events.lines().last().context("lads printed nothing")?)?;
    let said = |side: &str| {
        summary[side]["memory_bytes_peak"].as_u64().with_context(|| format!("no {side} memory"))
    };
    // By process number, the process that we started comes first, then its child, which reads, then
    // that one's child, which writes.
    let mut kernel = peaks.iter().filter(|(pid, _)| **pid != child.id()).map(|(_, peak)| *peak);
    let (kernel_source, kernel_sink) = (kernel.next().unwrap_or(0), kernel.next().unwrap_or(0));
    Ok(Seen {
        elapsed,
        source: Peak { said: said("source")?, kernel: kernel_source },
        sink: Peak { said: said("sink")?, kernel: kernel_sink },
    })
}

/// Records the high-water marks of a process and of its children, by process number.
fn look(pid: u32, peaks: &mut BTreeMap<u32, u64>) {
    if let Some(bytes) = high_water_mark(pid) {
        let peak = peaks.entry(pid).or_default();
        *peak = bytes.max(*peak);
    }
    for child in children(pid) {
        look(child, peaks);
    }
}

fn high_water_mark(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}
