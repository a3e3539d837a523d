//! A second process of the same program.

use rustix::process::Pid;
use std::io;

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The one that was there before; with the number of the new one.
    Parent(Pid),
    /// The new one.
    Child,
}

/// Creates a copy of this process; both processes continue from here. The process must not have
/// other threads: the copy contains only one thread, and locks of the others would stay locked.
///
/// # Errors
/// Of the system call.
///
/// # Panics
/// Builds with `debug_assertions` panic if this process has several threads.
pub fn fork() -> io::Result<Forked> {
    // Without /proc, threads cannot be counted. An emulator (qemu-user) adds a thread of its own,
    // so that release builds do not count threads.
    #[cfg(debug_assertions)]
    {
        let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
        assert_eq!(threads, 1, "a process with other threads cannot be copied");
    }
    // SAFETY: no other thread of the program was started (builds for tests assert it), so that the
    // copy lacks none, and no lock is held by a thread that it does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(pid).expect("neither an error nor the copy"))),
    }
}
