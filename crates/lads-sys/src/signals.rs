//! Threads that take no signals, or not all of them, and processes that they start.

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

/// From now on, writes of this thread beyond the maximum size of a file (`ulimit -f`) fail with
/// `EFBIG`, and SIGXFSZ, which ends a process without a handler, stays pending.
pub fn hold_file_size_signal() {
    let signal = file_size_signal();
    // SAFETY: the set is initialised, and a null pointer in place of the former mask is permitted.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, std::ptr::null_mut()) };
}

/// Acts while writes of this thread beyond the maximum size of a file fail with `EFBIG` and do not
/// end the process ([`hold_file_size_signal`]). For threads of the program that a library is loaded
/// into.
pub fn without_file_size_signal<T>(act: impl FnOnce() -> T) -> T {
    let _held = FileSizeSignalHeld::begin();
    act()
}

/// While this lives, SIGXFSZ stays pending for this thread. Then it is gone.
struct FileSizeSignalHeld {
    before: libc::sigset_t,
}

impl FileSizeSignalHeld {
    fn begin() -> Self {
        let signal = file_size_signal();
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `pthread_sigmask` fills the second set: it cannot fail with a valid way to change
        // the mask.
        let before = unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, before.as_mut_ptr());
            before.assume_init()
        };
        Self { before }
    }
}

impl Drop for FileSizeSignalHeld {
    fn drop(&mut self) {
        let signal = file_size_signal();
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: all sets are initialised; a null pointer in place of details of the signal, or of
        // the former mask, is permitted.
        unsafe {
            // If the program holds the signal itself, it may be waiting for it.
            if libc::sigismember(&raw const self.before, libc::SIGXFSZ) == 0 {
                libc::sigtimedwait(&raw const signal, std::ptr::null_mut(), &raw const at_once);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// Returns whether this process ignores a signal.
#[must_use]
pub fn is_signal_ignored(signal: i32) -> bool {
    // SAFETY: `sigaction` is plain numbers, for which all zeroes is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a null pointer changes no action; the other pointer is to an action of ours, which
    // the call fills in.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

fn file_size_signal() -> libc::sigset_t {
    let mut signal = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` fills the set, and both calls cannot fail with a signal that exists.
    unsafe {
        libc::sigemptyset(signal.as_mut_ptr());
        libc::sigaddset(signal.as_mut_ptr(), libc::SIGXFSZ);
        signal.assume_init()
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

    /// Sends this thread the signal of a write beyond the maximum size of a file.
    fn raise_file_size_signal() {
        // SAFETY: the call sends a signal and touches no memory.
        assert_eq!(unsafe { libc::raise(libc::SIGXFSZ) }, 0);
    }

    #[test]
    fn a_write_beyond_the_maximum_size_of_a_file_does_not_end_the_process() {
        let before = blocked();
        without_file_size_signal(raise_file_size_signal);
        assert_eq!(blocked(), before);
        let held = std::thread::spawn(|| {
            hold_file_size_signal();
            raise_file_size_signal();
            // The signal of the program itself stays pending.
            without_file_size_signal(|| ());
            let mut pending = MaybeUninit::<libc::sigset_t>::uninit();
            // SAFETY: `sigpending` fills the set.
            unsafe {
                libc::sigpending(pending.as_mut_ptr());
                libc::sigismember(pending.as_ptr(), libc::SIGXFSZ)
            }
        });
        assert_eq!(held.join().unwrap(), 1);
    }

    #[test]
    fn reports_whether_a_signal_is_ignored() {
        // The standard library ignores SIGPIPE.
        assert!(is_signal_ignored(libc::SIGPIPE));
        assert!(!is_signal_ignored(libc::SIGALRM));
        assert!(!is_signal_ignored(-1));
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
