//! The machine room: file systems, networks and faults that LADS and its rivals are measured and
//! tried on, each as a part of one program, `lads-testbed`.

pub mod ctl;
pub mod daemon;
pub mod load;
pub mod pfs;
pub mod pfs_check;

mod clock;
mod sizes;
