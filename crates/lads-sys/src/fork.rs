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

/// Makes a copy of this process; both go on from here.
///
/// # Errors
/// Of the system call.
///
/// # Panics
/// If this process has several threads: only one of them would be in the copy, and what the others
/// hold locked would stay so there.
pub fn fork() -> io::Result<Forked> {
    // Where there is no /proc, nobody can count.
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(threads, 1, "a process with other threads cannot be copied");
    // SAFETY: this is the only thread (asserted above), so that the copy lacks none, and no lock is
    // held by a thread that it does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        pid => Ok(Forked::Parent(Pid::from_raw(pid).expect("neither an error nor the copy"))),
    }
}
