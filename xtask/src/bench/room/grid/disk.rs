//! A disk of a given rate: a loop device over a file in memory, with ext4, which
//! the kernel throttles.
//!
//! The limit is set for the root of the control groups, and so for everybody on the machine: what
//! is written late by threads of the kernel is throttled, too.

use crate::shell;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The programs that this needs.
pub(super) const PROGRAMS: [&str; 4] = ["losetup", "mkfs.ext4", "mount", "umount"];

/// The limits of the root control group, version 1: of reads and of writes. The root of version 2
/// has none.
pub(super) const LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device",
    "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device",
];

/// A throttled disk. Its limit, its mount and its device are removed when this is dropped.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    device: String,
    /// The numbers by which the kernel knows the device: `7:0`.
    number: String,
}

impl Disk {
    /// Makes a disk of this size below a directory in memory, and mounts it there.
    pub(super) fn start(directory: &Path, name: &str, size_bytes: u64) -> Result<Self> {
        let (image, path) = (directory.join(format!("{name}.image")), directory.join(name));
        File::create(&image)?.set_len(size_bytes)?;
        fs::create_dir_all(&path)?;
        // With all tables written now, the kernel does not write them while something is measured.
        let at_once = "lazy_itable_init=0,lazy_journal_init=0";
        run("mkfs.ext4", &["-q", "-F", "-E", at_once, &image.display().to_string()])?;
        let words = ["--find", "--show", "--direct-io=on", &image.display().to_string()];
        let device = run("losetup", &words)?.trim().to_owned();
        let disk = Self { number: number(&device)?, path, device };
        run("mount", &[&disk.device, &disk.path.display().to_string()])?;
        Ok(disk)
    }

    /// The directory on which it is mounted.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Limits its reads and its writes, each to this many bytes a second; zero is no limit.
    pub(super) fn limit(&self, bytes_per_second: u64) -> Result<()> {
        let limit = format!("{} {bytes_per_second}", self.number);
        LIMITS.iter().try_for_each(|path| fs::write(path, &limit).context(*path))
    }
}

fn run(program: &str, words: &[&str]) -> Result<String> {
    shell::output(shell::command(program).args(words))
}

fn number(device: &str) -> Result<String> {
    let name = device.strip_prefix("/dev/").context("losetup names no device")?;
    Ok(fs::read_to_string(format!("/sys/block/{name}/dev"))?.trim().to_owned())
}

impl Drop for Disk {
    fn drop(&mut self) {
        let path = self.path.display().to_string();
        // It is not mounted if `start` failed.
        let _ = run("umount", &[&path]);
        let left = [self.limit(0), run("losetup", &["--detach", &self.device]).map(drop)];
        for error in left.into_iter().filter_map(Result::err) {
            println!("{} does not go: {error:#}", self.device);
        }
    }
}
