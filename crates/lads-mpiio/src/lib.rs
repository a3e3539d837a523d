//! Remote files for MPI programs.
//!
//! An MPI program calls `MPI_File_open("rfs:host:port:path")`. The shim (`shim/`, in C, compiled
//! for each MPI) has functions of that name. It takes datatypes apart and packs memory, and calls
//! the functions of `include/rfs.h`, which know no MPI and are here ([`abi`]). They use the client
//! of [`lads_engine::remote`].
//!
//! Nothing here prints, except that the shim itself says what it must.

pub mod abi;
mod error;
mod file;
mod hints;
