//! What LADS does: threads, files and sockets that carry out what [`lads_core`] decides.
//!
//! A program that wants to move data makes a [`Job`] and calls [`run`], which blocks until the data
//! is durable at the sink, and tells an [`Observer`] what happens meanwhile. The other end of the
//! transfer is a second process, started here or through ssh, that calls [`serve`].
//!
//! The path of a block, one module a step: [`layout`] finds where a file lies, the core cuts and
//! queues it, `source` reads it into a buffer of the arena and sends it over `stream`, `sink`
//! receives it and writes it.

mod board;
mod bottleneck;
mod clean;
mod clock;
mod closing;
mod control;
mod deeds;
mod end;
mod event;
mod hub;
mod job;
mod journal;
mod launch;
pub mod layout;
mod metadata;
mod paths;
mod session;
mod sink;
mod source;
mod stage;
mod stall;
mod stream;
mod talk;
mod usage;
mod watch;
mod whole;

pub use clean::{Kept, Remains, clean};
pub use event::{Bottleneck, ExitCode, Happening, Observer, Progress, Report, Waiting};
pub use job::{
    BUFFERS_BYTES, Deletion, IoMode, Job, Location, Options, PLACE_EXTENTS, Passing, RemoteShell,
    Verify, shown_host,
};
pub use session::{StopFlag, run, serve};
