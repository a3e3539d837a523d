//! A FUSE file system to test what a program does when its storage fails. It lies over a directory
//! and passes everything through. On command it refuses, shortens, delays or holds up calls,
//! damages stored data, and simulates a power cut that loses what was not made durable.
//!
//! Commands are lines written into `MOUNT/.fault/control`; `rules` lists them. A command that is
//! not understood fails the write with EINVAL, and `MOUNT/.fault/last-error` says why.
//! `MOUNT/.fault/log` has one JSON object for each fault done, `MOUNT/.fault/counts` the number of
//! calls of each kind. The directory `.fault` can be opened by name, but no listing shows it.
//!
//! The kernel caches nothing: every call of a program is a call here, with its own offset and
//! length. If a call is shortened here, the program sees the short result.
//!
//! This file system decides what is durable (see `disk`), not the storage below: a power cut is
//! simulated, nothing is ever synced. If this process is killed, nothing is lost.
//!
//! Not supported: `sync` and `syncfs` do not reach a file system in user space. Locks are the
//! kernel's, or refused. Without root, only the user who mounted it may use it.

mod calls;
mod control;
mod disk;
mod filesystem;
mod nodes;
mod rules;
mod snapshot;
mod state;

use crate::kernel_mount::{Users, mount, unmount};
use anyhow::{Context, Result};
use filesystem::FaultFs;
use fuser::Config;
use rustix::process::umask;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use state::State;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The name that `mount` shows as the device and as part of the type.
const NAME: &str = "lads-faultfs";

/// How long others may use the mount after it was asked to end: programs that are about to end do
/// so within this time.
const BUSY_MAX: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// What `lads-testbed faultfs` is told.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that is passed through; all of it on one file system
    pub directory: PathBuf,
    /// Where it is mounted
    pub mount: PathBuf,
    /// Calls that are served, or held up, at a time: more than an end of LADS makes, so that one is
    /// left for commands
    #[arg(long, value_name = "N", default_value_t = 160)]
    pub threads: usize,
    /// Refuse flock, as Lustre does that is mounted without it
    #[arg(long)]
    pub without_locks: bool,
    /// Keep times in this unit, in nanoseconds: 1000000000 as ext4 with small inodes, 100 as NTFS
    #[arg(long, value_name = "NANOSECONDS", default_value_t = 1)]
    pub time_unit: u64,
}

/// Mounts the file system, prints `ready` when the mount answers, and stays until it is unmounted
/// or gets SIGINT or SIGTERM, on which it unmounts.
///
/// # Errors
/// If the directory cannot be opened, or if FUSE is missing or not permitted.
#[expect(clippy::print_stdout, reason = "who started it waits for this line")]
pub fn run(args: &Args) -> Result<ExitCode> {
    // The kernel has already applied the program's umask; modes must not be masked again.
    umask(rustix::fs::Mode::empty());
    let state = Arc::new(
        State::over(&args.directory, Duration::from_nanos(args.time_unit))
            .with_context(|| format!("cannot use {}", args.directory.display()))?,
    );
    let file_system = FaultFs::new(Arc::clone(&state), args.without_locks);
    let session = mount(file_system, &args.mount, NAME, config(args.threads))
        .with_context(|| format!("cannot mount at {}", args.mount.display()))?;
    unmount_on_signal(args.mount.clone(), Arc::clone(&state))?;
    let serving = std::thread::spawn(move || session.run());
    let answer = std::fs::read(args.mount.join(control::DIRECTORY).join("counts"));
    answer.with_context(|| format!("{} does not answer", args.mount.display()))?;
    println!("ready");
    serving.join().expect("serving does not panic").context("while serving")?;
    state.tidy();
    Ok(ExitCode::SUCCESS)
}

fn config(threads: usize) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config
}

fn unmount_on_signal(mount: PathBuf, state: Arc<State>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_none() {
            return;
        }
        // Calls that hang would delay the end.
        state.release();
        let deadline = Instant::now() + BUSY_MAX;
        while unmount(&mount, Users::GoOn).is_err() {
            if Instant::now() > deadline {
                // Programs that still use the mount get an error once nobody serves it.
                let _ = unmount(&mount, Users::Fail);
                state.tidy();
                std::process::exit(0);
            }
            std::thread::sleep(BUSY_INTERVAL);
        }
    });
    Ok(())
}
