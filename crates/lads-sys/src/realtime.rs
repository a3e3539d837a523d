//! How a thread gets a processor as soon as it wants one, whatever else runs.

use std::io;

/// Puts the calling thread under `SCHED_FIFO` with this priority, 1 to 99: it runs before all
/// ordinary threads of the machine. Threads and processes that it starts are ordinary ones again.
///
/// # Errors
///
/// What the system says, above all `EPERM` without `CAP_SYS_NICE`.
pub fn run_before_others(priority: u8) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority.into() };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a `sched_param` of ours, which the call only reads.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_priority_that_does_not_exist_is_refused() {
        assert!(super::run_before_others(200).is_err());
    }
}
