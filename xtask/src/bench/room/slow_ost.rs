//! Measures how much one slow OST of the sink costs the other OSTs. It is a hundred times slower
//! than they are, and one file in eight has to go to it. The question is what happens if the sink
//! has only 32 MiB of memory.
//!
//! The transfer is not run to its end, because the slow OST alone decides when that is. The rate of
//! the other OSTs is measured for some seconds in the middle.

use super::super::table::Table;
use super::contest::{drop_caches, each_ost, remove};
use super::data::DataSet;
use super::mount::{Mount, Pair, Storage, bound_to_us};
use crate::scratch::Scratch;
use crate::shell;
use anyhow::{Context, Result, bail};
use lads_plot::groups::Spread;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// 1.25 GiB: more than can be moved during the measurement.
const DATA: DataSet = DataSet::Uniform { files: 160, bytes_each: 8 << 20 };
/// The memory that is used as file systems, in bytes.
pub(in crate::bench) const SPACE: u64 = 3 << 30;
const OST_BYTES_PER_SECOND: u64 = 25_000_000;
const SLOW_OST: usize = 5;
const SLOW_BYTES_PER_SECOND: u64 = OST_BYTES_PER_SECOND / 100;
const ROUNDS: usize = 3;
/// The time until the measurement begins, and the time that it takes.
const FROM: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_secs(4);

/// The amounts of memory at the sink, and the options that set them.
const OPTIONS: [(&str, &[&str]); 2] = [
    ("32 MiB at the sink", &["--sink", "place=spread", "--sink", "buffers=32M"]),
    ("defaults", &["--sink", "place=spread"]),
];

/// Lets LADS write with and without a slow OST, in turn.
pub(in crate::bench) fn run(lads: &Path) -> Result<Table> {
    let testbed = shell::build_testbed()?;
    let notes = Scratch::new(&std::env::temp_dir(), "lads-slow-ost")?;
    let storage =
        Storage { ost_bytes_per_second: Some(OST_BYTES_PER_SECOND), ..Storage::default() };
    let pair = Pair::start(&testbed, storage, storage, &notes.join("mounts"))?;
    DATA.make(&pair.source.path().join("data"))?;
    let mut rows = Vec::new();
    for (name, options) in OPTIONS {
        let (mut all_quick, mut one_slow) = (Vec::new(), Vec::new());
        // The first round is a warm-up.
        for round in 0..=ROUNDS {
            let quick = others_rate(lads, &pair, options, false)?;
            let slow = others_rate(lads, &pair, options, true)?;
            if round > 0 {
                all_quick.push(quick);
                one_slow.push(slow);
            }
        }
        let [quick, slow] = [all_quick, one_slow].map(|rates| Spread::of(rates.into_iter()));
        let said = |Spread { median, min, max }: Spread| {
            format!("{:.1} [{:.1}–{:.1}]", median / 1e6, min / 1e6, max / 1e6)
        };
        let kept = format!("{:.0} %", slow.median / quick.median * 100.0);
        rows.push(vec![name.to_owned(), said(quick), said(slow), kept]);
    }
    let head = ["memory", "all fast: each of seven, MB/s", "the eighth slow", "they keep"];
    Ok(Table::of_words("slow-ost: one OST of the sink a hundred times slower", &head, rows))
}

/// The mean write rate of the OSTs other than the slow one, in bytes per second.
fn others_rate(lads: &Path, pair: &Pair, options: &[&str], is_one_slow: bool) -> Result<f64> {
    let [from, to] = [&pair.source, &pair.sink].map(Mount::path);
    let target = to.join("target");
    remove(&target)?;
    drop_caches(pair)?;
    pair.throttle()?;
    if is_one_slow {
        pair.sink.control(&format!("rate {SLOW_OST} {SLOW_BYTES_PER_SECOND}"))?;
    }
    fs::create_dir(&target)?;
    let paths = [from.join("data"), target.clone()].map(|path| format!("{}/", path.display()));
    let mut child = bound_to_us(lads)
        .args(["cp", "-q"])
        .args(options)
        .args(paths)
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start lads")?;
    thread::sleep(FROM);
    let before = others_bytes(&pair.sink)?;
    let start = Instant::now();
    thread::sleep(LOOK);
    let (after, time) = (others_bytes(&pair.sink)?, start.elapsed());
    let has_ended = child.try_wait()?.is_some();
    kill_process(Pid::from_child(&child), Signal::TERM).ok();
    pair.release()?;
    child.wait()?;
    remove(&target)?;
    if has_ended {
        bail!("it ended before the first sample");
    }
    Ok((after - before) as f64 / time.as_secs_f64() / (Storage::default().osts - 1) as f64)
}

/// The number of bytes written to all OSTs except the slow one.
fn others_bytes(mount: &Mount) -> Result<u64> {
    let each = each_ost(&mount.read("stats")?, "written_bytes")?;
    let others = each.iter().enumerate().filter(|(index, _)| *index != SLOW_OST);
    Ok(others.map(|(_, bytes)| bytes).sum())
}
