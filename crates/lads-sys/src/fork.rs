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

/// Makes a copy of this process; both go on from here. No other thread may have been started: only
/// one would be in the copy, and what the others hold locked would stay so there.
///
/// # Errors
/// Of the system call.
///
/// # Panics
/// Builds with `debug_assertions` panic if this process has several threads.
pub fn fork() -> io::Result<Forked> {
    // Where there is no /proc, nobody can count; and an emulator (qemu-user) has a thread of its
    // own, so that programs that people use do not count.
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
