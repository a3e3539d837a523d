//! The machine room: file systems, networks and faults to measure and test LADS and its rivals on,
//! each as a part of one program, `lads-testbed`; and the tools that judge the results.

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
