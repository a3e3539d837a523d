//! Runs the long tests before a release: the promise tests and the simulator, at full length.

use crate::{shell, sim};
use anyhow::Result;

/// The number of worlds that the simulator plays.
const WORLDS: u64 = 50_000;

/// Runs both. Stops at the first failure.
pub(crate) fn run() -> Result<()> {
    let mut promises = shell::cargo();
    promises.args(["test", "--release", "--package", "lads-cli", "--test", "promises"]);
    shell::run(promises.env("LADS_TRUST", "1"))?;
    sim::many_fresh(WORLDS)
}
