//! The machine room: file systems, networks and faults that LADS and its rivals are measured and
//! tried on, each as a part of one program, `lads-testbed`, and what judges them.

pub mod bound;
pub mod ctl;
pub mod daemon;
pub mod faultfs;
pub mod load;
pub mod pfs;
pub mod pfs_check;
pub mod proxy;
pub mod wan;
pub mod watch;

mod clock;
mod kernel_mount;
mod kernel_words;
mod rate;
mod stats;
