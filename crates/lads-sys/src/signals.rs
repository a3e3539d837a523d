//! Threads that take no signals, and processes that they start.

use std::mem::MaybeUninit;

/// While this lives, its thread takes no signals, nor do threads that it starts, ever: a handler of
/// the program that a library is loaded into does not run on a thread of the library.
#[derive(Debug)]
pub struct SignalsBlocked {
    before: libc::sigset_t,
}

impl SignalsBlocked {
    /// From now on.
    #[must_use]
    pub fn begin() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigfillset` fills its set, and `pthread_sigmask` the other one: it cannot fail
        // with a valid way to change the mask.
        let before = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        };
        Self { before }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is one that `pthread_sigmask` has filled.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut())
        };
    }
}

/// Does something while this thread takes all signals, as a process shall that is started
/// meanwhile: it has the mask of the thread that starts it, and would not end by SIGTERM.
///
/// A handler of the program may run on this thread. To set the mask in the new process instead
/// would need a fork, which is slow in a program with much memory, and harms some networks.
pub fn with_all_signals<T>(act: impl FnOnce() -> T) -> T {
    let mut none = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: as in `SignalsBlocked::begin`.
    let before = unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let _restored_at_the_end = SignalsBlocked { before };
    act()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signals that a thread blocks, as the kernel tells them.
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    #[test]
    fn threads_that_are_started_meanwhile_take_no_signals() {
        const SIGALRM_BIT: u64 = 1 << (libc::SIGALRM - 1);
        let before = blocked();
        let quiet = SignalsBlocked::begin();
        let started = std::thread::spawn(blocked);
        drop(quiet);
        assert_eq!(started.join().unwrap() & SIGALRM_BIT, SIGALRM_BIT);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn processes_that_are_started_take_signals() {
        let _quiet = SignalsBlocked::begin();
        let before = blocked();
        let cat = || std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        let told = String::from_utf8(with_all_signals(cat).stdout).unwrap();
        assert!(told.contains("SigBlk:\t0000000000000000"), "{told}");
        assert_eq!(blocked(), before);
    }
}
