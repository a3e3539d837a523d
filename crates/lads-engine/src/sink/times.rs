//! Whether an entry at the sink has the time of its source, as far as its file system keeps such
//! times.
//!
//! The rule of a file system is learned when a time differs for the first time: times are set on a
//! file that is made for this and has a temporary name, or none. In a dry run, and in a directory
//! where nothing may be made, the times that are there must do ([`looks_kept`]).

use super::SinkEnd;
use crate::board::lock;
use crate::metadata::{Handle, differs, set_mtime};
use crate::paths::{remove_left_over, remove_own};
use crate::stat::{identity_of, mtime_of};
use lads_core::entry::{Metadata, Timestamp};
use lads_core::racy::is_coarse;
use lads_core::times::{KeptTimes, looks_kept, looks_like_unit_nanos};
use rustix::fs::{Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

/// The path whose temporary name the file has on which times are set: no entry has this path.
const PROBE_PATH: &[u8] = b"./times";

/// The rules that were learned, by the number of the file system.
pub(super) type ByDevice = Mutex<HashMap<u64, KeptTimes>>;

impl SinkEnd {
    /// Returns the unit in which the file system of the target keeps times, in nanoseconds; 1 if no
    /// times are kept. The unit is measured only if the target's own time of change looks coarse.
    pub(super) fn time_unit_nanos(&self) -> u32 {
        const FINE: u32 = 1;
        let place = self.place();
        if !self.options.times || self.instead.is_some() || place.is_missing {
            return FINE;
        }
        let stat = place.root.open().and_then(|root| fstat(&*root).map(|stat| (root, stat)));
        let Ok((root, stat)) = stat else { return FINE };
        let looks_like = looks_like_unit_nanos(identity_of(&stat).ctime);
        if !is_coarse(looks_like) {
            return FINE;
        }
        self.kept_times(&root, stat.st_dev).map_or(looks_like, |kept| kept.unit_nanos())
    }

    /// Returns the time that an entry has if its source has `wanted`: a time of the entry that its
    /// file system made of `wanted` counts as right. `there` is the status of the entry, and
    /// `directory` is on the same file system.
    pub(super) fn expected_time(
        &self,
        directory: &OwnedFd,
        there: &Stat,
        wanted: Timestamp,
    ) -> Timestamp {
        let mtime = mtime_of(there);
        if mtime == wanted {
            return wanted;
        }
        match self.kept_times(directory, there.st_dev) {
            Some(kept) => kept.kept(wanted),
            None if looks_kept(wanted, mtime, identity_of(there).ctime) => mtime,
            None => wanted,
        }
    }

    /// Reports whether an entry differs from `wanted` in what the options ask for; see
    /// [`differs`]. `directory` is on the file system of the entry.
    pub(super) fn differs_from(
        &self,
        wanted: &Metadata,
        directory: &OwnedFd,
        file: &impl Handle,
        stat: &Stat,
    ) -> bool {
        let mtime = match self.options.times {
            true => self.expected_time(directory, stat, wanted.mtime),
            false => wanted.mtime,
        };
        differs(file, stat, wanted, mtime, &self.options)
    }

    /// Returns the rule of the file system with this number, which `directory` is on. `None` if the
    /// rule cannot be learned there.
    fn kept_times(&self, directory: &OwnedFd, device: u64) -> Option<KeptTimes> {
        if self.options.dry_run {
            return None;
        }
        // Held meanwhile, because all threads use one name.
        let mut by_device = lock(&self.place().kept_times);
        if let Some(kept) = by_device.get(&device) {
            return Some(*kept);
        }
        let kept = self.learn_times(directory, device).ok()?;
        by_device.insert(device, kept);
        Some(kept)
    }

    fn learn_times(&self, directory: &OwnedFd, device: u64) -> Result<KeptTimes, Errno> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        if let Ok(file) = openat(directory, ".", flags | OFlags::TMPFILE, mode) {
            return learn_on(&file, device);
        }
        let journal = &self.place().journal;
        let name = journal.temporary_name(PROBE_PATH);
        remove_left_over(directory, &name, journal.own().uid)?;
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = openat(directory, name.as_str(), flags, mode)?;
        let kept = learn_on(&file, device);
        remove_own(directory, &name)?;
        kept
    }
}

/// Learns the rule of a file system from a new file on it.
///
/// # Errors
/// Of the system calls; `XDEV` if the file is on another file system.
fn learn_on(file: &OwnedFd, device: u64) -> Result<KeptTimes, Errno> {
    if fstat(file)?.st_dev != device {
        return Err(Errno::XDEV);
    }
    let mut returned = KeptTimes::PROBES;
    for time in &mut returned {
        set_mtime(file, *time)?;
        *time = mtime_of(&fstat(file)?);
    }
    Ok(KeptTimes::learned(returned))
}
