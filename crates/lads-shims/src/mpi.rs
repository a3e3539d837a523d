//! The kinds of MPI, as far as a shim can tell them apart.

/// A binary interface of MPI. A library that is built for one serves all programs that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mpi {
    /// MPICH and what has its interface: Intel MPI, Cray MPICH, MVAPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// The standard ABI of MPI 5, whoever implements it.
    StandardAbi,
}

impl Mpi {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mpich, Self::OpenMpi, Self::StandardAbi];

    /// The name on command lines.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
            Self::StandardAbi => "mpiabi",
        }
    }

    /// The name for people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::OpenMpi => "Open MPI",
            Self::StandardAbi => "the standard ABI of MPI 5",
        }
    }

    /// The one with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mpi| mpi.name() == name)
    }

    /// The file name of its shim.
    #[must_use]
    pub fn library(self) -> String {
        format!("librfs_{}.so", self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for mpi in Mpi::ALL {
            assert_eq!(Mpi::named(mpi.name()), Some(mpi));
        }
        assert_eq!(Mpi::named("lam"), None);
    }
}
