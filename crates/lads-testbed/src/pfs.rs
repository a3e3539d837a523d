//! Mounts an emulated parallel file system, and ends it.
//!
//! It is striped over storage targets as Lustre is, and every program can use it. The bytes are in
//! memory, one file per inode, or are dropped (`backing`). A storage target is a queue that lets
//! time pass (`queues`). `service` waits for the queues; `placement` decides where files lie;
//! `mounted` answers the kernel.

mod attributes;
mod backing;
mod ceph;
mod congestion;
mod control;
mod file;
mod hidden;
mod layouts;
mod model;
mod mount;
mod mounted;
mod placement;
mod queues;
mod service;
mod settings;
mod share;
mod space;
mod system;
mod tree;

use crate::clock::monotonic;
use anyhow::{Context, Result};
use backing::{Backing, Files};
use file::Store;
use model::Model;
use mounted::Mounted;
use placement::Defaults;
use service::Service;
use settings::Settings;
use space::Space;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use system::System;
use tree::{Maker, Tree};

/// What to mount, and where.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    settings: Settings,
    /// Where to mount it: a directory
    mount: PathBuf,
}

/// Mounts it, prints `ready`, and serves until it is unmounted or a signal says to end.
///
/// # Errors
/// If it cannot be mounted.
pub fn run(args: &Args) -> Result<ExitCode> {
    let problem = || format!("cannot mount on {}", args.mount.display());
    let mount = args.mount.canonicalize().with_context(problem)?;
    let backing = match args.settings.null {
        true => Backing::Null,
        false => Backing::Kept(Files::new(&args.settings.backing)?),
    };
    let system = Arc::new(start(args.settings.clone(), backing));
    mount::serve(&mount, Mounted::new(Arc::clone(&system)), &system.settings)
        .with_context(problem)?;
    Ok(ExitCode::SUCCESS)
}

fn start(settings: Settings, backing: Backing) -> System {
    let (stripe_size, stripe_count) = (settings.stripe_size, settings.stripe_count);
    let store = Store {
        backing,
        space: Mutex::new(Space::new(settings.osts, settings.capacity)),
        defaults: Defaults { stripe_size, stripe_count },
    };
    let template = Arc::new(settings.default_layout());
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let maker = Maker { uid, gid, mode: 0o755, device: 0 };
    let tree = Tree::new(template, maker, SystemTime::now());
    let service = Service::start(model(&settings), SERVING_THREADS);
    System::new(settings, service, Arc::new(store), tree)
}

/// The number of threads that answer served requests. While one of them is about to watch the
/// clock, two can copy bytes to the kernel.
const SERVING_THREADS: usize = 3;

fn model(settings: &Settings) -> Model {
    let mut model = Model::new(&settings.oss_of(), settings.seed, monotonic());
    for ost in 0..settings.osts {
        model.set_rate(ost, settings.rate.0);
        model.set_latency(ost, Duration::from_micros(settings.latency));
        model.set_jitter(ost, Duration::from_micros(settings.jitter));
        model.set_seek(ost, Duration::from_micros(settings.seek));
    }
    for oss in 0..model.queues().oss_count() {
        model.set_oss_rate(oss, settings.oss_rate.0);
    }
    model.reset();
    model
}
