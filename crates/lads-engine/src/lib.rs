//! What LADS does: threads, files and sockets that carry out what [`lads_core`] decides.
//!
//! A program that wants to move data makes a [`Job`] and calls [`run`], which blocks until the data
//! is durable at the sink, and tells an [`Observer`] what happens meanwhile. Another thread ends it
//! early with a [`StopFlag`]. The other end of the transfer is a second process, of the program
//! that the job names, started here or through ssh; it calls [`serve`]. `examples/embed.rs` does
//! all that.
//!
//! The engine prints nothing and changes nothing of its process, unless it is asked to
//! ([`Stderr::PassedOn`], [`raise_open_files_limit`]). What options and reports are made of comes
//! from [`lads_core`], which is here by its name.
//!
//! The path of a block, one module a step: [`layout`] finds where a file lies, the core cuts and
//! queues it, `source` reads it into a buffer of the arena and sends it over a `stream` of the
//! `transport`, `sink` receives it and writes it.

#![warn(unnameable_types)]

mod bench;
mod board;
mod caching;
mod clean;
mod clock;
mod closing;
mod control;
mod cpu;
mod daemon;
mod deeds;
mod end;
mod event;
mod expand;
mod fatal;
mod hub;
mod job;
mod journal;
mod keys;
mod launch;
pub mod layout;
mod metadata;
mod names;
mod paths;
mod patience;
pub mod remote;
mod session;
mod setup;
mod sink;
mod slots;
mod source;
mod stage;
mod stall;
mod stat;
mod stop;
mod stream;
mod talk;
mod thread;
mod transport;
mod usage;
mod watch;
mod whole;

pub use lads_core;

pub use bench::{BenchConfig, BenchError, BenchReport, bench};
pub use clean::{Kept, Remains, clean};
pub use daemon::{DaemonConfig, Listening, Peer, SessionEnd, dial, listen, serve_connection};
pub use event::{ExitCode, Happening, Observer, Progress, Report, Retry, Waiting};
pub use expand::expand_paths;
pub use job::{
    BUFFERS_BYTES, DaemonPlace, Deletion, IoMode, Job, Listing, Location, Options, PLACE_EXTENTS,
    PORT, Passing, RemoteShell, Stderr, Tunnel, Verify, is_daemon, shown_before_path, shown_host,
};
pub use keys::{KeyPair, PublicKey};
pub use launch::{Offer, Terms, connect_for_data, deploy, refusal, version};
pub use names::{Names, address_of, names_of_groups, names_of_users};
pub use session::{Served, ServedJob, run, serve};
pub use setup::raise_open_files_limit;
pub use stop::StopFlag;
pub use transport::seal::has_aes;
pub use transport::tcp::TcpLimits;
