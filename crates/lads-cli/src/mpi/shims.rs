//! Where the shims are.

use super::elf::Elf;
use super::problem::Problem;
use super::program::mpi_of_soname;
use crate::args::ShimArgs;
use lads_shims::Mpi;
use std::path::{Path, PathBuf};

/// The directory with the shims.
#[derive(Clone, Debug)]
pub(super) struct Shims(PathBuf);

impl Shims {
    /// The one that was named, or the one beside this command.
    pub(super) fn of(args: &ShimArgs) -> Self {
        let beside = || lads_shims::directory_beside(&std::env::current_exe().ok()?);
        let directory = args.shims.clone().or_else(beside).unwrap_or_default();
        // What is preloaded needs a whole path.
        Self(std::path::absolute(&directory).unwrap_or(directory))
    }

    /// The shim for an MPI.
    pub(super) fn of_mpi(&self, mpi: Mpi) -> Result<PathBuf, Problem> {
        let path = self.0.join(mpi.library());
        match mpi_of_shim(&path) {
            Some(found) if found == mpi => Ok(path),
            Some(found) => Err(Problem::new(
                format!("{} is for {}, not for {}", path.display(), found.title(), mpi.title()),
                build_it(mpi),
            )),
            None if path.exists() => Err(Problem::new(
                format!("{} is not a shim of LADS", path.display()),
                build_it(mpi),
            )),
            None => {
                let what = format!("there is no shim for {}: {}", mpi.title(), path.display());
                Err(Problem::new(what, build_it(mpi)))
            }
        }
    }

    /// All that are there.
    pub(super) fn all(&self) -> Vec<Mpi> {
        Mpi::ALL.into_iter().filter(|mpi| self.of_mpi(*mpi).is_ok()).collect()
    }

    /// Where they should be.
    pub(super) fn directory(&self) -> &Path {
        &self.0
    }
}

/// How to get a shim.
fn build_it(mpi: Mpi) -> String {
    format!(
        "install the package lads-mpi; or build it, in a checkout of LADS: cargo xtask shims \
         --mpicc COMMAND (the mpicc of {}); or give its directory: --shims DIR",
        mpi.title()
    )
}

/// The MPI that a shim was built for; `None` if it is not there, or no shim.
pub(super) fn mpi_of_shim(path: &Path) -> Option<Mpi> {
    let elf = Elf::read(path).ok()??;
    let mut needed = elf.needed.iter().filter(|_| elf.is_shim);
    needed.find_map(|soname| mpi_of_soname(soname))
}
