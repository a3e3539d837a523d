//! Threads of the engine.

use crate::event::ExitCode;
use crate::fatal::{Fatal, own_host};
use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use thiserror::Error;

/// The stack of each thread, in bytes. Memory is taken only for the part that is used. All tests of
/// this crate pass with a quarter of it, compiled without optimization. So half would do, and
/// double gains nothing.
const STACK_BYTES: usize = 512 << 10;

/// A thread or process cannot be started: the system limits their number for a user, or a
/// container.
#[derive(Debug, Error)]
#[error(
    "{host} permits no more threads or processes: {error}; raise the limit (ulimit -u, or pids.max \
     of the container)"
)]
pub(crate) struct NoThread {
    host: String,
    error: io::Error,
}

impl From<io::Error> for NoThread {
    fn from(error: io::Error) -> Self {
        Self { host: own_host(), error }
    }
}

impl From<NoThread> for io::Error {
    fn from(error: NoThread) -> Self {
        Self::other(error)
    }
}

impl From<NoThread> for Fatal {
    fn from(error: NoThread) -> Self {
        let text = format!(
            "{error}, or use fewer threads (--source threads=N, --sink threads=N, --streams)"
        );
        Self::new(ExitCode::Other, text)
    }
}

/// Starts a thread with a name that shows in `top` and in a debugger. Its writes beyond the maximum
/// size of a file fail, and do not end the process.
///
/// # Errors
/// If no other thread can start. Then `run` is dropped.
pub(crate) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, NoThread> {
    Ok(named(name).spawn(|| {
        lads_sys::hold_file_size_signal();
        run();
    })?)
}

/// The same within a scope.
///
/// # Errors
/// As for [`spawn`].
pub(crate) fn spawn_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, NoThread> {
    Ok(named(name).spawn_scoped(scope, || {
        lads_sys::hold_file_size_signal();
        run()
    })?)
}

fn named(name: &str) -> Builder {
    Builder::new().name(name.to_owned()).stack_size(STACK_BYTES)
}
