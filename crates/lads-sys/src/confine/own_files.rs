//! Files outside of its tree that LADS reads, and that a confined process can therefore read.
//!
//! The list is short on purpose. LADS does without a file that it cannot read; most of these only
//! let it choose better defaults.

use super::access::FileAccess;
use super::landlock::Ruleset;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::io;
use std::os::fd::{IntoRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

/// Files and directories in `/proc`. Their descriptors stay open, because `/proc` gives a file a
/// new inode after the old one was evicted from the kernel's cache, and a rule of Landlock applies
/// to an inode.
const IN_PROC: [&str; 7] = [
    // The umask, peak memory, mounts, threads and their waiting times; also its start time, by
    // which another process recognises the holder of a journal.
    "/proc/self",
    // Idle time of the processors.
    "/proc/stat",
    // Recognises journals that were written before a restart of the host.
    "/proc/sys/kernel/random/boot_id",
    // Limits of TCP, from which the number of connections follows.
    "/proc/sys/net/ipv4/tcp_congestion_control",
    "/proc/sys/net/ipv4/tcp_rmem",
    "/proc/sys/net/ipv4/tcp_wmem",
    // State of the targets of BeeGFS.
    "/proc/fs/beegfs",
];

/// Files and directories in other places.
const ELSEWHERE: [&str; 8] = [
    // Number of processors: for glibc and for the option pin.
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/node",
    // Servers of the OSTs of Lustre.
    "/sys/fs/lustre/osc",
    // Devices of a btrfs.
    "/sys/fs/btrfs",
    // Names of the servers of OrangeFS.
    "/etc/orangefs",
    "/etc/orangefs-server.conf",
    "/etc/pvfs2-fs.conf",
    "/opt/orangefs/etc/orangefs-server.conf",
];

/// Links to the directories of all disks and volumes: whether a disk rotates, and on which disks a
/// volume lies.
const BLOCK_DEVICES: &str = "/sys/block";

/// Replaces standard input and output at the end of a process.
const NOTHING: &str = "/dev/null";

/// Permits reading these files as far as they exist.
///
/// # Errors
/// Of the system calls.
pub(super) fn permit(ruleset: &Ruleset) -> io::Result<()> {
    for path in IN_PROC {
        if let Some(file) = open(Path::new(path)) {
            ruleset.permit(&file, FileAccess::Read)?;
            let _stays_open = file.into_raw_fd();
        }
    }
    let elsewhere = ELSEWHERE.iter().map(PathBuf::from).chain(block_devices());
    for file in elsewhere.filter_map(|path| open(&path)) {
        ruleset.permit(&file, FileAccess::Read)?;
    }
    if let Some(nothing) = open(Path::new(NOTHING)) {
        ruleset.permit(&nothing, FileAccess::ReadAndWrite)?;
    }
    Ok(())
}

fn block_devices() -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(BLOCK_DEVICES).ok().into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}

/// Returns a handle of a file; `None` if this host has no such file, or hides it.
fn open(path: &Path) -> Option<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}
