//! Runs the long tests before a release: the promise tests, MPI programs with remote files, and the
//! simulator, at full length.

use crate::{shell, sim};
use anyhow::Result;

/// The number of worlds that the simulator plays.
const WORLDS: u64 = 50_000;

/// Runs all. Stops at the first failure.
pub(crate) fn run() -> Result<()> {
    for (package, test) in [("lads-cli", "promises"), ("lads-mpiio", "mpi")] {
        let mut tests = shell::cargo();
        tests.args(["test", "--release", "--package", package, "--test", test]);
        shell::run(tests.env("LADS_TRUST", "1"))?;
    }
    sim::many_fresh(WORLDS)
}
