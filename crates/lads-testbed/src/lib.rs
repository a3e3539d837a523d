//! The machine room: file systems and networks that are made to misbehave, so that every claim
//! about LADS is tried where it is hard to keep, with programs that know nothing of it.

pub mod faultfs;
