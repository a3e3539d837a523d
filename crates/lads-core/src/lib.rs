//! What LADS decides, and nothing that it does.
//!
//! A source session ([`source`]) and a sink session ([`sink`]) talk to each other in messages
//! ([`message`]) and data frames ([`frame`]). The source cuts files into blocks ([`plan`]) and
//! keeps them in one queue per OST ([`schedule`]) until an I/O thread asks for work.
//!
//! What the other end says is checked in one place ([`gate`]) before a session acts on it.
//!
//! Nothing here does I/O, reads a clock, or starts a thread: the owner of a session tells it what
//! happened (`handle`), asks what to do next (`next_message`, `next_task`, `next_note`), and when
//! to look again (`next_timeout`). The engine, the simulator and the fuzzers all drive the same
//! methods. The bytes of the files never enter this crate.
#![forbid(unsafe_code)]

pub mod absence;
pub mod acl;
pub mod ahead;
pub mod beegfs;
pub mod bottleneck;
pub mod ceph;
pub mod congestion;
pub mod cpu_list;
pub mod cpu_share;
pub mod entry;
pub mod errno;
pub mod filter;
pub mod follow;
pub mod frame;
pub mod gate;
pub mod growth;
pub mod imbalance;
pub mod issue;
pub mod journal;
pub mod layout;
pub mod limits;
pub mod lov;
pub mod matching;
pub mod message;
pub mod mode;
pub mod offer;
pub mod orangefs;
pub mod pace;
pub mod packet;
pub mod pass;
pub mod pauses;
#[cfg(test)]
mod picture;
pub mod placement;
pub mod plan;
pub mod pool;
pub mod progress;
pub mod protection;
pub mod racy;
pub mod range;
pub mod record;
pub mod reduction;
pub mod remote;
pub mod retry;
pub mod room;
pub mod schedule;
pub mod schema;
pub mod shares;
pub mod sink;
pub mod sizes;
pub mod source;
pub mod staging;
pub mod text;
pub mod times;
pub mod tracks;
pub mod tuning;
pub mod units;
pub mod view;
pub mod walk;
