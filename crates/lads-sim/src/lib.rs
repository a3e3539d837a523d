//! Whether the real sessions of `lads-core` keep their promises when everything goes wrong.
//!
//! A seed makes a world: a tree, storage targets at both ends with service times, a network with
//! delays, and faults. In it a real source session and a real sink session run on one thread and a
//! virtual clock, attempt after attempt, until everything is at the sink; after every step it is
//! checked what must hold. The same seed makes the same world, step for step.
//!
//! Bytes are not simulated: a block stands for "these bytes of that version of that file"
//! (`content`), which is all that is needed to see whether it got lost or mixed up.
//!
//! ```text
//!                      world (clock, what happens next)
//!   tree ─► walk ─► source end ══ messages, frames ══► receiver, sink end ─► disk, journal
//!                   books check it                     sink_check checks it
//! ```

pub mod bed;
mod books;
mod content;
mod crash;
mod disk;
mod ending;
mod findings;
mod journal;
mod options;
mod recorder;
pub mod remote;
mod rng;
mod room;
mod session;
mod sink_check;
mod sink_end;
mod sink_work;
mod source_end;
mod tree;
mod watch;
mod weather;
mod world;

pub use findings::Stats;
use findings::{Checked, Trace};
use options::Faults;
pub use recorder::Sample;
use session::{Ended, Session};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use world::World;

/// A seed whose world broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What did not hold.
    pub what: String,
    /// The last lines of what happened before.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.what)
    }
}

impl std::error::Error for Failure {}

/// Lines of trace that are kept for a failure.
const TRACE_LINES: usize = 300;
/// Attempts in which something goes wrong.
const ATTEMPTS_WITH_FAULTS: usize = 4;

/// Runs the world of a seed.
///
/// # Errors
/// If a promise was broken; the trace comes from a second run of the same world.
pub fn run(seed: u64) -> Result<Stats, Failure> {
    run_kept(seed, 0).0.map_err(|what| {
        let (_, trace) = run_kept(seed, TRACE_LINES);
        Failure { seed, what, trace }
    })
}

/// Runs the world of a seed and keeps all that happens in it.
pub fn run_traced(seed: u64) -> (Result<Stats, String>, Vec<String>) {
    run_kept(seed, usize::MAX)
}

fn run_kept(seed: u64, line_count_max: usize) -> (Result<Stats, String>, Vec<String>) {
    let trace = Trace::new(line_count_max);
    let kept = trace.clone();
    let result = caught(|| {
        let mut world = World::draw(seed, trace);
        run_attempts(&mut world).map(|()| world.stats)
    });
    (result, kept.lines())
}

/// A panic is a broken promise like any other.
fn caught<T>(run: impl FnOnce() -> Checked<T>) -> Checked<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("?")))
    })
}

/// Attempt after attempt goes wrong; then two in which nothing does, the last with nothing to do.
fn run_attempts(world: &mut World) -> Checked {
    for _ in 0..ATTEMPTS_WITH_FAULTS {
        let faults = world.options.faults.clone();
        let (session, ended) = Session::run(world, faults)?;
        if ended == Ended::Finished {
            session.check_finished(world)?;
            break;
        }
    }
    run_calm(world)?;
    ending::check_same(world)?;
    ending::check_extra(world)?;
    let blocks_before = world.stats.blocks_sent;
    run_calm(world)?;
    ending::check_same(world)?;
    match world.stats.blocks_sent - blocks_before {
        0 => Ok(()),
        count => Err(format!("{count} blocks were sent although the sink had everything")),
    }
}

/// Nothing goes wrong, so nothing may fail but what rotted before; then that is sent anew.
fn run_calm(world: &mut World) -> Checked {
    let failures_before = world.stats.failures;
    world.excused = world.disk.rotten();
    let (session, ended) = Session::run(world, Faults::default())?;
    if ended != Ended::Finished {
        return Err(format!("nothing went wrong, and it ended so: {ended:?}"));
    }
    session.check_finished(world)?;
    if world.stats.failures == failures_before { Ok(()) } else { run_calm(world) }
}
