//! How the mount itself begins and ends: nobody measures on what is not mounted, and nothing is
//! left behind.

use super::mounted::Mounted;
use super::settings::Settings;
use crate::kernel_mount;
use anyhow::{Context, Result, bail};
use fuser::{Config, Session, SessionACL};
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// What `mount` shows as the device and as part of the type.
const NAME: &str = "lads-pfs";

/// How long a mount that is going may take to be gone, and ours to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the file system ends.
enum End {
    /// It is unmounted, or the kernel has no more to do with us.
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
    let device = kernel_mount::mount(mount, NAME)?;
    let session = Session::from_fd(mounted, device, SessionACL::All, config(settings));
    let session = session.or_else(|error| {
        kernel_mount::unmount(mount)?;
        Err(error)
    })?;
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
    if is_ours(mount)? {
        kernel_mount::unmount(mount)?;
    }
    match ends.recv_timeout(Duration::from_secs(1)) {
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

/// Waits until another emulated file system, which may be about to end, is gone: it would take
/// ours with it.
fn wait_until_free(mount: &Path) -> Result<()> {
    let mount =
        mount.canonicalize().with_context(|| format!("no directory {}", mount.display()))?;
    let begin = Instant::now();
    while is_mount_point(&mount)? {
        if begin.elapsed() > PATIENCE {
            bail!("something is mounted there already");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn is_mount_point(directory: &Path) -> Result<bool> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.into_iter().any(|point| Path::new(point) == directory))
}

/// Sees whether what is mounted is ours, and tells whoever waits for it.
fn announce(mount: &Path, settings: &Settings) -> Result<()> {
    if !is_ours(mount)? {
        bail!("another file system is mounted there");
    }
    for (limit, value) in limits(settings) {
        set_limit(mount, limit, &value)?;
    }
    writeln!(std::io::stdout(), "ready")?;
    Ok(())
}

/// Whether what is mounted there is this process.
fn is_ours(mount: &Path) -> Result<bool> {
    match std::fs::read(mount.join(".pfs/stats")) {
        Ok(stats) => Ok(serde_json::from_slice::<Value>(&stats)?["process"] == std::process::id()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What the kernel may collect for us, as `/sys/class/bdi` names it. By default it reads ahead
/// 128 KiB and holds back one page in a hundred, which no disk system gets by with: rivals that
/// use the page cache would be slow for no fault of theirs.
fn limits(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut limits = vec![("read_ahead_kb", (settings.readahead / 1024).to_string())];
    if settings.writeback {
        limits.extend([("max_ratio", "100".to_owned()), ("strict_limit", "0".to_owned())]);
    }
    limits
}

/// Sets a limit; says so if that cannot be.
fn set_limit(mount: &Path, limit: &str, value: &str) -> Result<()> {
    let device = mount.metadata()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/{limit}");
    if let Err(error) = std::fs::write(&path, value) {
        writeln!(std::io::stderr(), "lads-testbed: {path} stays as it is: {error}")?;
    }
    Ok(())
}
