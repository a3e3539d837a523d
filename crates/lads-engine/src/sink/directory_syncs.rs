//! One sync of a directory for all threads that want one at the same time.
//!
//! A sync makes durable what was renamed in the directory before it began. The kernel holds the
//! lock of the directory meanwhile, in which nothing else can be made or renamed. So at most one
//! sync of a directory is in flight, and whoever comes meanwhile shares the next one.

use crate::board::lock;
use crate::paths::sync_names;
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Condvar, Mutex, PoisonError};

/// The syncs that are wanted, of each directory.
#[derive(Debug, Default)]
pub(super) struct DirectorySyncs {
    /// By the handle of the directory, which is open as long as somebody waits.
    directories: Mutex<HashMap<RawFd, Wanted>>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Wanted {
    /// How many syncs were asked for, and how many of them are done.
    asked: u64,
    done: u64,
    is_under_way: bool,
    /// Who has not returned.
    users: u32,
    /// Which of them failed: those up to a number, and not before another.
    failures: Vec<(u64, u64, Errno)>,
}

impl DirectorySyncs {
    /// Makes a directory durable, with all that was renamed in it before.
    ///
    /// # Errors
    /// Of the sync.
    pub(super) fn sync(&self, directory: &OwnedFd) -> Result<(), Errno> {
        self.sync_with(directory.as_raw_fd(), || sync_names(directory))
    }

    fn sync_with(
        &self,
        directory: RawFd,
        sync: impl FnOnce() -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut sync = Some(sync);
        let mut directories = lock(&self.directories);
        let wanted = directories.entry(directory).or_default();
        wanted.asked += 1;
        wanted.users += 1;
        let own = wanted.asked;
        loop {
            let wanted = directories.get_mut(&directory).expect("it has users");
            if wanted.done >= own {
                break;
            }
            if let Some(sync) = sync.take_if(|_| !wanted.is_under_way) {
                wanted.is_under_way = true;
                let (from, to) = (wanted.done, wanted.asked);
                drop(directories);
                let result = sync();
                directories = lock(&self.directories);
                let wanted = directories.get_mut(&directory).expect("it has users");
                wanted.is_under_way = false;
                wanted.done = to;
                wanted.failures.extend(result.err().map(|errno| (from, to, errno)));
                if wanted.users > 1 {
                    self.done.notify_all();
                }
            } else {
                directories = self.done.wait(directories).unwrap_or_else(PoisonError::into_inner);
            }
        }
        let wanted = directories.get_mut(&directory).expect("it has users");
        let is_own = |&&(from, to, _): &&(u64, u64, Errno)| from < own && own <= to;
        let failure = wanted.failures.iter().find(is_own).map(|&(.., errno)| errno);
        wanted.users -= 1;
        if wanted.users == 0 {
            directories.remove(&directory);
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::sync_channel;

    impl DirectorySyncs {
        fn asked(&self, directory: RawFd) -> u64 {
            lock(&self.directories).get(&directory).map_or(0, |wanted| wanted.asked)
        }

        fn wait_until_asked(&self, count: u64) {
            while self.asked(1) < count {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn whoever_comes_during_a_sync_shares_the_next_one() {
        let syncs = DirectorySyncs::default();
        let count = AtomicU32::new(0);
        let (end_first, is_ended) = sync_channel::<()>(0);
        let counted = || {
            count.fetch_add(1, Ordering::Relaxed);
            Err(Errno::NOSPC)
        };
        std::thread::scope(|scope| {
            let until_ended = move || {
                is_ended.recv().unwrap();
                Err(Errno::IO)
            };
            let first = scope.spawn(|| syncs.sync_with(1, until_ended));
            syncs.wait_until_asked(1);
            let later: Vec<_> =
                (0..4).map(|_| scope.spawn(|| syncs.sync_with(1, counted))).collect();
            syncs.wait_until_asked(5);
            assert_eq!(syncs.sync_with(2, || Ok(())), Ok(()), "another directory");
            assert_eq!(count.load(Ordering::Relaxed), 0, "the first may have begun too early");
            end_first.send(()).unwrap();
            assert_eq!(first.join().unwrap(), Err(Errno::IO));
            for thread in later {
                assert_eq!(thread.join().unwrap(), Err(Errno::NOSPC));
            }
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(syncs.sync_with(1, || Ok(())), Ok(()), "failures are not told again");
        assert!(lock(&syncs.directories).is_empty());
    }
}
