//! Chooses the seeds with which the simulator runs.

use crate::shell;
use anyhow::Result;
use std::time::{SystemTime, UNIX_EPOCH};

/// The number of worlds that CI plays each time with the same seeds, so that the effect of a change
/// shows.
const FIXED_COUNT: u64 = 300;
/// The number of worlds with new seeds in each run of CI.
const FRESH_COUNT: u64 = 300;

/// The number of worlds of remote files that CI plays, with the same seeds and with new ones.
const REMOTE_COUNT: u64 = 1000;

/// Worlds from this seed on may have ends that become silent and calls that never return.
const TROUBLED_FROM: u64 = 50_000;

/// Plays worlds with fixed and with fresh seeds.
pub(crate) fn ci() -> Result<()> {
    many(FIXED_COUNT, 0)?;
    many(FIXED_COUNT, TROUBLED_FROM)?;
    many_fresh(FRESH_COUNT)?;
    remote(REMOTE_COUNT, 0)?;
    remote(REMOTE_COUNT, fresh_seed())
}

/// Plays worlds with seeds that nobody has tried.
pub(crate) fn fresh() -> Result<()> {
    many_fresh(FRESH_COUNT * 10)?;
    remote(REMOTE_COUNT * 10, fresh_seed())
}

/// Plays this many worlds with seeds that nobody has tried.
pub(crate) fn many_fresh(count: u64) -> Result<()> {
    many(count, fresh_seed())
}

/// Plays one seed again and shows what happens in that world.
pub(crate) fn replay(seed: u64) -> Result<()> {
    shell::run(simulator().args([&seed.to_string(), "--trace"]))
}

fn many(count: u64, from: u64) -> Result<()> {
    shell::run(simulator().args(["--count", &count.to_string(), "--from", &from.to_string()]))
}

fn remote(count: u64, from: u64) -> Result<()> {
    let (count, from) = (count.to_string(), from.to_string());
    shell::run(simulator().args(["--remote", "--count", &count, "--from", &from]))
}

fn simulator() -> std::process::Command {
    let mut command = shell::cargo();
    command.args(["run", "--quiet", "--release", "--package", "lads-sim", "--"]);
    command
}

/// A seed that grows with the time. The seed of a failure is printed, so that it can be played
/// again.
fn fresh_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() * 1000
}
