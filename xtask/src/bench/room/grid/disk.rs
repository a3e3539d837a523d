//! A disk of a given rate: a loop device over a file in memory, with ext4, which
//! the kernel throttles.
//!
//! The limit is set for the root of the control groups, and so for everybody on the machine: what
//! is written late by threads of the kernel is throttled, too. It must not stay: the kernel gives
//! the number of the device to the next one, and somebody's image would be slow. So another process
//! removes it, when this one ends, however it ends.

use crate::shell;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

/// The programs that this needs.
pub(super) const PROGRAMS: [&str; 5] = ["losetup", "mkfs.ext4", "mount", "umount", "sh"];

/// The limits of the root control group, version 1: of reads and of writes. The root of version 2
/// has none.
pub(super) const LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device",
    "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device",
];

/// A throttled disk. Its limit, its mount and its device are removed when this is dropped, or when
/// the process is killed.
#[derive(Debug)]
pub(super) struct Disk {
    path: PathBuf,
    /// The numbers by which the kernel knows the device: `7:0`.
    number: String,
    _caretaker: Caretaker,
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
        let number = number(&device)?;
        let caretaker = Caretaker::start(&removal(&path, &device, &number, &image))?;
        let disk = Self { path, number, _caretaker: caretaker };
        run("mount", &[&device, &disk.path.display().to_string()])?;
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
    let name = device.strip_prefix("/dev/").context("losetup printed no device")?;
    Ok(fs::read_to_string(format!("/sys/block/{name}/dev"))?.trim().to_owned())
}

/// The commands that remove a disk. First the limit, so that what is not written yet is soon. The
/// mount goes even if a program still uses it. It is not mounted if `start` failed.
fn removal(path: &Path, device: &str, number: &str, image: &Path) -> String {
    let limits = LIMITS.map(|limit| format!("echo '{number} 0' > {limit}\n")).concat();
    let (path, image) = (path.display(), image.display());
    format!(
        "{limits}umount -l '{path}' 2> /dev/null\nlosetup --detach '{device}'\nrm -f '{image}'\n"
    )
}

/// A process that does something when this is dropped, or when our process ends: then its standard
/// input ends. It is in a process group of its own, so that Ctrl-C does not end it, too.
#[derive(Debug)]
struct Caretaker {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Caretaker {
    /// Starts one for these commands of the shell.
    fn start(commands: &str) -> Result<Self> {
        let mut child = shell::command("sh")
            .arg("-c")
            .arg(format!("trap '' HUP INT TERM\nread -r _\n{commands}"))
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start sh")?;
        Ok(Self { stdin: child.stdin.take(), child })
    }
}

impl Drop for Caretaker {
    fn drop(&mut self) {
        drop(self.stdin.take());
        if let Err(error) = self.child.wait() {
            println!("the caretaker does not exit: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_caretaker_acts_when_it_is_dropped_and_not_before() {
        let scratch = Scratch::new(&std::env::temp_dir(), "xtask-caretaker").unwrap();
        let done = scratch.join("done");
        let caretaker = Caretaker::start(&format!("touch '{}'", done.display())).unwrap();
        assert!(!done.exists());
        drop(caretaker);
        assert!(done.exists());
    }
}
