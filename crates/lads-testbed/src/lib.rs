//! The machine room: what LADS and its rivals are measured on, and what judges them.

pub mod bound;
pub mod pfs;
pub mod stats;
pub mod wan;
pub mod watch;

mod chance;
mod sizes;
