//! Clients of remote files and a server: do the real sessions of both ends keep their promises when
//! everything goes wrong?
//!
//! A seed determines a world: processes of a program, each with a client session
//! ([`lads_core::remote::client::Client`]), and a server session
//! ([`lads_core::remote::server::Server`]). Messages and frames are in flight in any order that the
//! transport allows; storage does its work in any order and may fail; local disks are full or fail;
//! connections break and are made again or
//! are lost, processes die, the server crashes, is silent, or is killed and started again.
//!
//! Bytes are not simulated: a byte of a file is the number of the write that put it there.
//!
//! ```text
//!   program ─► client end (session, disk) ══ messages, frames ══► server end (session) ─► files
//!      └────────────────────────── check: what is known, what is read ─────────────────────┘
//! ```

mod bytes;
mod check;
mod client_disk;
mod client_end;
mod client_threads;
mod disk;
mod handle;
mod program;
mod server_end;
mod world;

use crate::findings::{Checked, Trace};
use crate::{Failure, TRACE_LINES, caught};
use check::{Check, Clock};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use world::World;

/// The paths of the files.
const PATHS: [&str; 2] = ["one", "two"];

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The number of events of each kind.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Returns the sum of two numbers of each kind.
            #[must_use]
            pub fn plus(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }

            /// Returns the name and the number of each kind.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

stats! {
    /// Steps of the world.
    steps,
    /// Writes of programs.
    writes,
    /// Reads of programs.
    reads,
    /// Reads that found the end of a file.
    ends,
    /// Files that were made durable or flushed.
    syncs,
    /// Views that were set.
    views,
    /// Locks that were taken.
    locks,
    /// Files that were cut.
    cuts,
    /// Messages between processes.
    messages,
    /// Frames that the server refused.
    refused,
    /// Writes that the server recalled.
    recalled,
    /// Reads that failed because another client was gone.
    gone,
    /// Calls that returned a failure of the storage.
    errors,
    /// Jobs of the storage that failed.
    failures,
    /// Writes that found no free buffer.
    buffer_waits,
    /// Stagings while the program ran.
    staged,
    /// Stagings after the loss of the connection.
    kept,
    /// Stagings that failed.
    disk_failures,
    /// Frames that were sent from the local disk.
    sent_from_disk,
    /// Chunks that were put on the local disk.
    saved,
    /// Chunks that were read from there.
    loaded,
    /// Frames that were sent again by another program.
    replayed,
    /// Connections that were cut for good.
    cut_connections,
    /// Connections that broke, and that the client was to make again.
    broken,
    /// Clients that connected again and found everything.
    resumed,
    /// Clients that connected again, and had been forgotten.
    too_late,
    /// Clients that the server gave up while they were away.
    given_up,
    /// Requests that were sent once more.
    asked_again,
    /// Frames that were sent once more.
    once_more,
    /// Processes that were killed.
    deaths,
    /// Crashes of the server.
    crashes,
    /// How often the server was killed and started again.
    restarts,
    /// How often it was killed again before all its clients had returned.
    restarts_in_return,
    /// Clients that connected to such a server.
    returns,
    /// Clients that such a server expected in vain.
    not_returned,
    /// Connections on which nothing arrived any more.
    freezes,
    /// Clients that gave up a silent server, or could not connect again.
    timeouts,
    /// Clients that gave up a server that made no progress.
    stalls,
    /// Clients that the server gave up because they were silent while others waited for them.
    silences,
    /// Processes that ended well.
    finished,
    /// Of these, those that had been away.
    returned,
    /// A number that two runs of one seed have in common.
    fingerprint,
}

/// What all parts of a world share.
#[derive(Clone, Debug)]
struct Shared {
    clock: Rc<Cell<Duration>>,
    trace: Trace,
    check: Rc<RefCell<Check>>,
    stats: Rc<RefCell<Stats>>,
    /// Messages to processes that run.
    inboxes: Rc<RefCell<BTreeMap<usize, VecDeque<Clock>>>>,
    /// Whether disks may fail.
    is_troubled: Rc<Cell<bool>>,
    /// A process that is killed because it sent a message, in thousandths of all messages.
    doomed: Rc<Cell<Option<usize>>>,
    doomed_per_mille: u32,
    /// The offset of the first byte of files that is written.
    base: u64,
}

impl Shared {
    fn new(trace: Trace, base: u64, doomed_per_mille: u32) -> Self {
        Self {
            clock: Rc::default(),
            trace,
            check: Rc::new(RefCell::new(Check::new(PATHS.len()))),
            stats: Rc::default(),
            inboxes: Rc::default(),
            is_troubled: Rc::new(Cell::new(true)),
            doomed: Rc::default(),
            doomed_per_mille,
            base,
        }
    }

    fn now(&self) -> Duration {
        self.clock.get()
    }

    fn is_troubled(&self) -> bool {
        self.is_troubled.get()
    }

    fn trace(&self, line: impl FnOnce() -> String) {
        if self.trace.wants_lines() {
            self.trace.push(format!("{:>10.3} {}", self.now().as_secs_f64(), line()));
        }
    }

    fn stats(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.stats.borrow_mut());
    }
}

/// Runs the world of a seed.
///
/// # Errors
/// If a promise was broken; the trace is of a second run of the same world.
pub fn run(seed: u64) -> Result<Stats, Failure> {
    run_kept(seed, 0).0.map_err(|what| {
        let (_, trace) = run_kept(seed, TRACE_LINES);
        Failure { seed, what, trace }
    })
}

/// Runs the world of a seed and keeps everything that happens in it.
pub fn run_traced(seed: u64) -> (Result<Stats, String>, Vec<String>) {
    run_kept(seed, usize::MAX)
}

fn run_kept(seed: u64, line_count_max: usize) -> (Checked<Stats>, Vec<String>) {
    let trace = Trace::new(line_count_max);
    let kept = trace.clone();
    let result = caught(|| World::new(seed, trace).run());
    (result, kept.lines())
}
