//! Threads of the engine.

use std::thread::JoinHandle;

/// A thread with a name that shows in `top` and in a debugger.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(512 << 10)
        .spawn(run)
        .expect("the system has room for a few more threads")
}
