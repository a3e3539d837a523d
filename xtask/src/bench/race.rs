//! Compares the speed of movers, which take turns at the same work.

use super::measure::{Sample, measure};
use crate::tree;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of rounds that count. It is odd, so that the median is one of the results.
const ROUNDS: usize = 5;

/// A function that runs a mover. It moves the content of the first directory into the second, and
/// returns how long that took.
type Run<'a> = Box<dyn Fn(&Path, &Path) -> Result<Duration> + 'a>;

/// A program that takes part, with its options.
pub(super) struct Mover<'a> {
    /// The name in the table.
    pub(super) name: String,
    /// The directory that it moves the data to. It is emptied before each run.
    pub(super) target: PathBuf,
    /// The function that runs it.
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

/// The results of one mover, round by round.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Timing {
    /// The name of the mover.
    pub(super) name: String,
    /// One sample for each round that counts.
    pub(super) samples: Vec<Sample>,
}

/// Lets the movers do the same work in turn, after a first run of each in which the result is
/// checked.
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

/// Measures every mover in each round. Every second round has the reverse order, so that no mover
/// always runs after the same one.
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
