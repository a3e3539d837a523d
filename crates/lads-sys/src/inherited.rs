//! Sockets that the service manager opened for this process.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// The number of the first one (`sd_listen_fds(3)`).
const FIRST: RawFd = 3;

/// Returns the listening sockets that systemd passes to this process (`sd_listen_fds(3)`): none if
/// it was started otherwise. They can be taken once, before other files are opened.
///
/// # Panics
/// If it is called again.
#[must_use]
pub fn inherited_sockets() -> Vec<OwnedFd> {
    use std::sync::atomic::{AtomicBool, Ordering};
    static TAKEN: AtomicBool = AtomicBool::new(false);
    assert!(!TAKEN.swap(true, Ordering::Relaxed), "they are taken once");
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let count = RawFd::try_from(number("LISTEN_FDS").unwrap_or(0)).unwrap_or(0);
    let is_open = |fd: &RawFd| {
        // SAFETY: it takes numbers, and changes only a flag of what the number stands for.
        unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) == 0 }
    };
    let open = (FIRST..FIRST.saturating_add(count)).take_while(is_open);
    // SAFETY: the service manager opened them for this process, nothing else in it knows them, and
    // they are taken once.
    open.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}
