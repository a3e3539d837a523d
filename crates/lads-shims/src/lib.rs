//! The shim of remote files as a library for each MPI: what it is called, where it lies, and how
//! it is built ([`build()`]).
//!
//! Every MPI has its own constants and kinds of handles, so the shim is compiled once for each. The
//! chores build it, `lads mpi` finds it, and the tests do both.

mod build;
mod messages;
mod mpi;

pub use build::{build, compile, mpi_of, newest_static_library};
pub use mpi::Mpi;
use std::path::{Path, PathBuf};

/// Where shims lie that belong to an installed `lads`: `PREFIX/lib/lads` beside `PREFIX/bin`.
#[must_use]
pub fn directory_beside(command: &Path) -> Option<PathBuf> {
    Some(command.parent()?.parent()?.join("lib/lads"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_lie_beside_the_command() {
        let directory = directory_beside(Path::new("/opt/lads/bin/lads"));
        assert_eq!(directory, Some(PathBuf::from("/opt/lads/lib/lads")));
        assert_eq!(directory_beside(Path::new("lads")), None);
    }
}
