//! The machine room: what LADS and its rivals are measured on, and what judges them.

pub mod wan;

mod chance;
