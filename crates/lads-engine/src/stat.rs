//! Converts what the system says of a file into types of the core.

use lads_core::entry::{Identity, Timestamp};
use rustix::fs::Stat;
use std::time::{SystemTime, UNIX_EPOCH};

/// The identity of a file: the values that must stay the same while the file moves.
pub(crate) fn identity_of(stat: &Stat) -> Identity {
    Identity {
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mtime: mtime_of(stat),
        ctime: timestamp(stat.st_ctime, stat.st_ctime_nsec),
        inode: stat.st_ino,
    }
}

/// The time when the data last changed.
pub(crate) fn mtime_of(stat: &Stat) -> Timestamp {
    timestamp(stat.st_mtime, stat.st_mtime_nsec)
}

fn timestamp(seconds: i64, nanos: u64) -> Timestamp {
    Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0) }
}

/// The present time, as file systems record it.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or_default();
    Timestamp { seconds, nanos: since.subsec_nanos() }
}
