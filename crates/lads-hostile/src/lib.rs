//! What an honest end of LADS makes of a peer that speaks its protocol and lies.
//!
//! A *case* ([`case`]) is one lie: a script of some lines that a *peer* ([`peer`]) follows, as
//! source or as sink, started by the honest end or starting it. A *trial* ([`trial`]) runs a case
//! against the real `lads` and checks what must always hold: nothing outside the target changed
//! and nothing of it was sent, memory and threads are bounded, the honest end went in time with a
//! documented exit code, and what is under a real name is right.
//!
//! A server of remote files that lies to its client has cases and trials of its own ([`files`]).
//!
//! To add a case, write a line in one of the tables below [`cases`] and one in `docs/security.md`.
//! The tests are run by `crates/lads-cli/tests/hostile.rs`, which has the command to run.
#![allow(clippy::unwrap_used, reason = "all of this is a test")]

pub mod case;
pub mod cases;
pub mod entries;
pub mod files;
pub mod frame;
mod oracle;
pub mod peer;
pub mod process;
pub mod raw;
pub mod snapshot;
pub mod trial;
pub mod world;
