//! Tests `faultfs`: durable data stays, other data is lost, and every fault hits the call that it
//! was ordered for.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "these are tests")]

use rustix::fs::{FallocateFlags, RenameFlags, SeekFrom, fallocate, renameat_with, seek};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A mount over an empty directory, for as long as this exists.
struct Mounted {
    daemon: Child,
    directory: TempDir,
}

impl Mounted {
    /// Returns `None`, and prints a message, where mounting is not possible.
    fn new() -> Option<Self> {
        if File::options().read(true).write(true).open("/dev/fuse").is_err() {
            lads_tried::not_tried("this needs /dev/fuse");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        for name in ["below", "mount"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let daemon = start(directory.path());
        if daemon.is_none() {
            lads_tried::not_tried("mounting with FUSE is not permitted here");
        }
        Some(Self { daemon: daemon?, directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("mount").join(name)
    }

    fn command(&self, line: &str) {
        fs::write(self.path(".fault/control"), line).unwrap();
    }

    fn power_cycle(&self) {
        self.command("power-cut\npower-on");
    }

    /// Makes everything in a directory durable except the data of files.
    fn sync_names(&self, name: &str) {
        File::open(self.path(name)).unwrap().sync_all().unwrap();
    }

    fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// Mounts `mount` over `below`; returns `None` if that is not possible.
fn start(directory: &Path) -> Option<Child> {
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_lads-testbed"))
        .arg("faultfs")
        .args(["below", "mount"].map(|name| directory.join(name)))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 6];
    if daemon.stdout.as_mut().unwrap().read_exact(&mut said).is_err() {
        let _ = daemon.wait();
        return None;
    }
    Some(daemon)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        let _ = self.daemon.wait();
    }
}

#[test]
fn a_power_cut_takes_what_was_not_synced() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("named"), b"never synced").unwrap();
    mounted.sync_names("");
    fs::write(mounted.path("unnamed"), b"x").unwrap();
    let synced = File::create(mounted.path("synced")).unwrap();
    synced.write_all_at(&[b'a'; 10_000], 0).unwrap();
    synced.sync_all().unwrap();
    mounted.sync_names("");
    synced.write_all_at(&[b'b'; 5000], 4000).unwrap();
    synced.set_len(20_000).unwrap();
    fs::set_permissions(mounted.path("synced"), fs::Permissions::from_mode(0o600)).unwrap();
    mounted.power_cycle();
    // The directory was synced after `unnamed` was made.
    assert_eq!(mounted.names(""), ["named", "synced", "unnamed"]);
    assert_eq!(fs::read(mounted.path("named")).unwrap(), b"");
    assert_eq!(fs::read(mounted.path("synced")).unwrap(), [b'a'; 10_000]);
    assert_ne!(fs::metadata(mounted.path("synced")).unwrap().mode() & 0o777, 0o600);
    assert_eq!(synced.sync_all().unwrap_err().raw_os_error(), Some(5), "opened before the cut");
}

#[test]
fn when_it_ends_it_leaves_the_mount_alone_that_took_its_place() {
    let Some(mut mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("f")).unwrap();
    if unmount(mounted.path(""), UnmountFlags::DETACH) == Err(Errno::PERM) {
        lads_tried::not_tried("only root may unmount");
        return;
    }
    // The first mount stays as long as the file is open.
    let second = start(mounted.directory.path()).unwrap();
    drop(file);
    let mut first = std::mem::replace(&mut mounted.daemon, second);
    assert!(first.wait().unwrap().success());
    mounted.command("settle");
}

#[test]
fn a_power_cut_undoes_changes_of_names() {
    let Some(mounted) = Mounted::new() else { return };
    for name in ["replaced", "moved", "removed", "swapped"] {
        fs::write(mounted.path(name), name).unwrap();
    }
    fs::create_dir_all(mounted.path("d/e")).unwrap();
    mounted.command("settle");
    fs::rename(mounted.path("moved"), mounted.path("replaced")).unwrap();
    fs::remove_file(mounted.path("removed")).unwrap();
    fs::hard_link(mounted.path("replaced"), mounted.path("d/e/link")).unwrap();
    fs::rename(mounted.path("d/e"), mounted.path("e")).unwrap();
    fs::create_dir_all(mounted.path("new/deep")).unwrap();
    symlink("x", mounted.path("new/deep/symlink")).unwrap();
    let root = File::open(mounted.path("")).unwrap();
    renameat_with(&root, "swapped", &root, "d", RenameFlags::EXCHANGE).unwrap();
    fs::remove_dir(mounted.path("swapped")).unwrap();
    drop(root);
    mounted.power_cycle();
    assert_eq!(mounted.names(""), ["d", "moved", "removed", "replaced", "swapped"]);
    assert_eq!(mounted.names("d"), ["e"]);
    assert_eq!(mounted.names("d/e"), [""; 0]);
    for name in ["replaced", "moved", "removed", "swapped"] {
        assert_eq!(fs::read_to_string(mounted.path(name)).unwrap(), name);
        assert_eq!(fs::metadata(mounted.path(name)).unwrap().nlink(), 1);
    }
}

#[test]
fn a_rename_is_durable_with_its_directory() {
    let Some(mounted) = Mounted::new() else { return };
    fs::create_dir(mounted.path("d")).unwrap();
    mounted.command("settle");
    let file = File::create(mounted.path("d/part")).unwrap();
    file.write_all_at(b"whole", 0).unwrap();
    file.sync_all().unwrap();
    fs::rename(mounted.path("d/part"), mounted.path("d/file")).unwrap();
    drop(file);
    mounted.sync_names("d");
    mounted.power_cycle();
    assert_eq!(mounted.names("d"), ["file"]);
    assert_eq!(fs::read(mounted.path("d/file")).unwrap(), b"whole");
}

#[test]
fn a_torn_cut_keeps_whole_pages_of_one_or_the_other() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("file")).unwrap();
    file.write_all_at(&[b'a'; 16 * 4096], 0).unwrap();
    mounted.command("settle");
    file.write_all_at(&[b'b'; 16 * 4096], 0).unwrap();
    mounted.command("power-cut tear=1\npower-on");
    let bytes = fs::read(mounted.path("file")).unwrap();
    let pages: Vec<u8> = bytes.chunks(4096).map(|page| page[0]).collect();
    assert!(bytes.chunks(4096).all(|page| page.iter().all(|byte| *byte == page[0])));
    assert!(pages.contains(&b'a') && pages.contains(&b'b'), "{pages:?}");
}

#[test]
fn calls_fail_and_are_short_as_ordered() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), [7; 1000]).unwrap();
    mounted.command("fail open ENOSPC nth=2 path=file\nshort read nth=1 seed=3");
    let file = File::open(mounted.path("file")).unwrap();
    assert_eq!(fs::read(mounted.path("file")).unwrap_err().kind(), ErrorKind::StorageFull);
    let count = file.read_at(&mut [0; 1000], 0).unwrap();
    assert!((1..1000).contains(&count), "{count}");
    assert_eq!(file.read_at(&mut [0; 1000], 0).unwrap(), 1000);
    let log = fs::read_to_string(mounted.path(".fault/log")).unwrap();
    let log: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&log[0]["call"], &log[0]["errno"]), (&"open".into(), &28.into()));
    assert_eq!((&log[1]["fault"], &log[1]["path"]), (&"short".into(), &"file".into()));
    mounted.command("clear\nflip file 10 1");
    assert_eq!(fs::read(mounted.path("file")).unwrap()[9..12], [7, 5, 7]);
    assert!(fs::write(mounted.path(".fault/control"), "nonsense").is_err());
    let why = fs::read_to_string(mounted.path(".fault/last-error")).unwrap();
    assert_eq!(why, "no such command: nonsense\n");
}

#[test]
fn a_call_that_hangs_is_let_go() {
    let Some(mounted) = Mounted::new() else { return };
    mounted.command("hang mkdir");
    std::thread::scope(|scope| {
        let made = scope.spawn(|| fs::create_dir(mounted.path("d")));
        while !fs::read_to_string(mounted.path(".fault/log")).unwrap().contains("hang") {
            std::thread::yield_now();
        }
        assert!(!made.is_finished());
        mounted.command("release");
        made.join().unwrap().unwrap();
    });
    assert!(mounted.path("d").is_dir());
}

#[test]
fn holes_and_times_pass_through() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("file")).unwrap();
    fallocate(&file, FallocateFlags::empty(), 0, 100).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_all_at(b"data", 512 << 10).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(100 << 10)).unwrap(), 512 << 10);
    let before_1970 = rustix::fs::Timespec { tv_sec: -2, tv_nsec: 250_000_000 };
    let times = rustix::fs::Timestamps { last_access: before_1970, last_modification: before_1970 };
    rustix::fs::futimens(&file, &times).unwrap();
    let metadata = file.metadata().unwrap();
    assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (-2, 250_000_000));
    assert_eq!(metadata.len(), 1 << 20);
}
