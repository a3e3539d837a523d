//! The machine room: file systems, networks and faults that LADS and its rivals are measured and
//! tried on, each as a part of one program, `lads-testbed`.

pub mod pfs;

mod sizes;
