//! Mounts and unmounts the file system. It says that it is ready only when the mount is in place,
//! and it leaves nothing behind.

use super::mounted::Mounted;
use super::settings::Settings;
use crate::kernel_mount::{self, Users};
use anyhow::{Result, bail};
use fuser::{Config, Session};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The name that `mount` shows as the device and as part of the type.
const NAME: &str = "lads-pfs";

/// How long to wait for an earlier mount to go, and for our own to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the file system ends.
enum End {
    /// It was unmounted, or the kernel ended the session.
    Unmounted(std::io::Result<()>),
    /// A signal came.
    Told,
}

/// Mounts, serves, and unmounts.
pub(super) fn serve(mount: &Path, mounted: Mounted, settings: &Settings) -> Result<()> {
    wait_until_free(mount)?;
    let (sender, ends) = channel();
    let watched = sender.clone();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            let _ = watched.send(End::Told);
        }
    });
    let system = mounted.system();
    let session = kernel_mount::mount(mounted, mount, NAME, config(settings))?;
    system.on_mounted(session.notifier());
    let number = device_mounted_at(mount)?;
    start(session, sender);
    let ready = announce(mount, settings);
    let end = match &ready {
        Ok(()) => ends.recv().expect("whoever sends lives as long as this"),
        Err(_) => End::Told,
    };
    if let End::Unmounted(result) = end {
        ready?;
        return Ok(result?);
    }
    if device_mounted_at(mount)? == number {
        kernel_mount::unmount(mount, Users::Fail)?;
    }
    match ends.recv_timeout(PATIENCE) {
        Ok(_) | Err(RecvTimeoutError::Timeout) => ready,
        Err(RecvTimeoutError::Disconnected) => bail!("the file system ended without a word"),
    }
}

fn start(session: Session<Mounted>, sender: Sender<End>) {
    std::thread::spawn(move || {
        let _ = sender.send(End::Unmounted(session.run()));
    });
}

fn config(settings: &Settings) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(settings.threads.max(1));
    config.clone_fd = true;
    config
}

/// Waits until another emulated file system on this directory, which may be about to end, is gone.
/// Otherwise it would unmount ours as well.
fn wait_until_free(mount: &Path) -> Result<()> {
    let begin = Instant::now();
    while device_mounted_at(mount)?.is_some() {
        if begin.elapsed() > PATIENCE {
            bail!("something is mounted there already");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the device number of the last file system mounted on a directory. It does not ask the
/// file system itself, which may be slow or about to end.
fn device_mounted_at(directory: &Path) -> Result<Option<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    // proc_pid_mountinfo(5): the third field is the device, the fifth the directory.
    let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mut here =
        fields.filter(|fields| fields.get(4).is_some_and(|it| Path::new(it) == directory));
    Ok(here.next_back().and_then(|fields| fields.get(2).map(|device| (*device).to_owned())))
}

/// Checks that the mounted file system is ours, sets its limits, and prints `ready`.
fn announce(mount: &Path, settings: &Settings) -> Result<()> {
    let stats: Value = serde_json::from_slice(&std::fs::read(mount.join(".pfs/stats"))?)?;
    if stats["process"] != std::process::id() {
        bail!("another file system is mounted there");
    }
    for (limit, value) in limits(settings) {
        set_limit(mount, limit, &value)?;
    }
    writeln!(std::io::stdout(), "ready")?;
    Ok(())
}

/// The limits on what the kernel may cache for us, by their names in `/sys/class/bdi`. By default
/// the kernel reads ahead 128 KiB and holds back one page in a hundred, which is too little for any
/// disk system: rivals that use the page cache would be slow through no fault of theirs.
fn limits(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut limits = vec![("read_ahead_kb", (settings.readahead / 1024).to_string())];
    if settings.writeback {
        limits.extend([("max_ratio", "100".to_owned()), ("strict_limit", "0".to_owned())]);
    }
    limits
}

/// Sets a limit; prints a message if that is not possible.
fn set_limit(mount: &Path, limit: &str, value: &str) -> Result<()> {
    let device = mount.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/{limit}");
    if let Err(error) = std::fs::write(&path, value) {
        writeln!(std::io::stderr(), "lads-testbed: {path} stays as it is: {error}")?;
    }
    Ok(())
}
