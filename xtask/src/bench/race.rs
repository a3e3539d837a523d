//! Who is faster: movers that take turns at the same work.

use super::measure::{Sample, measure};
use crate::tree;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rounds that count; odd, so that the median is one of them.
const ROUNDS: usize = 5;

/// How a mover is run: it moves what is in the first directory into the second, and says how
/// long that took.
type Run<'a> = Box<dyn Fn(&Path, &Path) -> Result<Duration> + 'a>;

/// One way to do the work.
pub(super) struct Mover<'a> {
    /// What it is called in the table.
    pub(super) name: String,
    /// Where it moves the data to; emptied before each run.
    pub(super) target: PathBuf,
    /// How it is run.
    pub(super) run: Run<'a>,
}

impl<'a> Mover<'a> {
    /// A mover that writes to `target`.
    pub(super) fn new(
        name: impl Into<String>,
        target: PathBuf,
        run: impl Fn(&Path, &Path) -> Result<Duration> + 'a,
    ) -> Self {
        Self { name: name.into(), target, run: Box::new(run) }
    }
}

/// What a mover needed, round by round.
pub(super) struct Timing {
    /// What it is called.
    pub(super) name: String,
    /// One sample for each round that counts.
    pub(super) samples: Vec<Sample>,
}

/// Lets movers do the same work in turn, after a first time in which what they do is checked.
pub(super) fn race(source: &Path, movers: &[Mover<'_>]) -> Result<Vec<Timing>> {
    for mover in movers {
        run_once(source, mover).with_context(|| mover.name.clone())?;
        tree::compare(source, &mover.target).with_context(|| mover.name.clone())?;
        clear(&mover.target)?;
    }
    take_turns(movers, |mover| {
        let sample = run_once(source, mover)?;
        clear(&mover.target)?;
        Ok(sample)
    })
}

/// Measures every mover in each round; the order is turned round every other time, so that none
/// always runs in the wake of the same one.
pub(super) fn take_turns<'a>(
    movers: &[Mover<'a>],
    run: impl Fn(&Mover<'a>) -> Result<Sample>,
) -> Result<Vec<Timing>> {
    let mut results: Vec<Timing> = movers
        .iter()
        .map(|mover| Timing { name: mover.name.clone(), samples: Vec::new() })
        .collect();
    for round in 0..ROUNDS {
        let mut order: Vec<usize> = (0..movers.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let mover = &movers[index];
            let sample = run(mover).with_context(|| mover.name.clone())?;
            results[index].samples.push(sample);
        }
    }
    Ok(results)
}

fn run_once(source: &Path, mover: &Mover<'_>) -> Result<Sample> {
    clear(&mover.target)?;
    fs::create_dir_all(&mover.target)?;
    measure(|| (mover.run)(source, &mover.target))
}

fn clear(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| directory.display().to_string())?;
    }
    Ok(())
}
