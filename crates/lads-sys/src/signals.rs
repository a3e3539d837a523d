//! Threads that take no signals.

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
}
