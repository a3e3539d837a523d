//! `lads mpi`: what to set so that an MPI program uses remote files, and whether it is in force.

mod doctor;
mod elf;
mod env;
mod preload;
mod problem;
mod program;
mod run;
mod server;
mod shims;
mod token;

pub(crate) use doctor::run as doctor;
pub(crate) use env::run as env;
