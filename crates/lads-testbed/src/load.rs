//! Competing load: readers and writers that keep chosen OSTs busy and measure their own throughput,
//! to show what others get out of a file system while we use it.
//!
//! Each thread has its own file on one of the OSTs and reads or writes it again and again, one
//! block at a time, past the page cache. The files are small; `lustre.lov` places them, and they
//! are removed at the end.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use lads_core::lov::{self, Lov, Place};
use lads_core::sizes::parse_bytes;
use lads_core::units::OstId;
use lads_sys::Arena;
use rustix::fs::{Mode, OFlags, XattrFlags};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the throughput is printed.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Size of each file, in blocks.
const FILE_BLOCKS: u64 = 16;

/// What to compete for, and how.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Where the files are made; they are removed in the end
    directory: PathBuf,
    /// The OSTs to keep busy
    #[arg(long, required = true, value_delimiter = ',')]
    osts: Vec<u32>,
    /// Read or write
    #[arg(long, value_enum, default_value_t = LoadMode::Read)]
    mode: LoadMode,
    /// Number of threads; they are dealt to the OSTs in turn
    #[arg(long, default_value_t = 1)]
    threads: u32,
    /// Bytes of a request, a multiple of 4K
    #[arg(long, default_value = "1M", value_parser = block_size)]
    block_size: u32,
    /// How long; without it, until the standard input ends
    #[arg(long)]
    seconds: Option<f64>,
}

/// The direction in which the bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadMode {
    /// From the OSTs.
    Read,
    /// To the OSTs.
    Write,
}

/// Competes, and prints its throughput as lines of JSON; at the end, a summary.
///
/// # Errors
/// If the files cannot be made where they should be, or if a request fails.
pub fn run(args: Args) -> Result<ExitCode> {
    let plan = Plan {
        directory: args.directory,
        osts: args.osts.into_iter().map(OstId).collect(),
        mode: args.mode,
        threads: args.threads.max(1),
        block_bytes: args.block_size,
    };
    let load = plan.start()?;
    let (sender, ends) = channel::<()>();
    if args.seconds.is_none() {
        std::thread::spawn(move || {
            // The contents of stdin do not matter, only its end.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            drop(sender);
        });
        tell(&load, || ends.recv_timeout(TELL_EVERY) == Err(RecvTimeoutError::Timeout))?;
    } else {
        let time = Duration::try_from_secs_f64(args.seconds.unwrap_or_default())?;
        tell(&load, || {
            let left = time.saturating_sub(load.began.elapsed());
            std::thread::sleep(left.min(TELL_EVERY));
            load.began.elapsed() < time
        })?;
    }
    let outcome = load.stop()?;
    let seconds = outcome.time.as_secs_f64();
    let summary = json!({
        "event": "summary",
        "seconds": seconds,
        "bytes": outcome.bytes,
        "bytes_per_second": outcome.bytes_per_second(),
    });
    writeln!(std::io::stdout(), "{summary}")?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the throughput each time that `wait` returns `true`.
fn tell(load: &Load, mut wait: impl FnMut() -> bool) -> Result<()> {
    let (mut bytes_before, mut time_before) = (0, load.began);
    while wait() && !load.has_failed() {
        let (bytes, now) = (load.bytes(), Instant::now());
        let moved = Outcome { bytes: bytes - bytes_before, time: now - time_before };
        let line = json!({
            "event": "sample",
            "t": crate::clock::monotonic().as_secs_f64(),
            "bytes": bytes,
            "bytes_per_second": moved.bytes_per_second(),
        });
        writeln!(std::io::stdout(), "{line}")?;
        (bytes_before, time_before) = (bytes, now);
    }
    Ok(())
}

/// What to compete for, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The directory for the files.
    pub(crate) directory: PathBuf,
    /// The OSTs to keep busy; at least one.
    pub(crate) osts: Vec<OstId>,
    /// Whether to read or write.
    pub(crate) mode: LoadMode,
    /// The number of threads.
    pub(crate) threads: u32,
    /// The bytes of a request, a multiple of 4096.
    pub(crate) block_bytes: u32,
}

/// Competing load that is running.
pub(crate) struct Load {
    began: Instant,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

#[derive(Default)]
struct Shared {
    bytes: AtomicU64,
    is_over: AtomicBool,
    has_failed: AtomicBool,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// The number of bytes moved.
    pub(crate) bytes: u64,
    /// The time in which they moved.
    pub(crate) time: Duration,
}

impl Plan {
    /// Makes the files and starts the load.
    ///
    /// # Errors
    /// If the files cannot be made, or not on their OSTs.
    pub(crate) fn start(&self) -> Result<Load> {
        let arena = Arena::new(self.threads, self.block_bytes as usize)?;
        let shared = Arc::new(Shared::default());
        let files = (0..self.threads).map(|thread| {
            let file = make_file(&self.directory, self.osts[thread as usize % self.osts.len()])?;
            let mut block = arena.take();
            // Blocks that were never written would not be read from the OST.
            for index in 0..FILE_BLOCKS {
                block.fill(1);
                file.write_all_at(&block, index * u64::from(self.block_bytes))?;
            }
            Ok(file)
        });
        let files = files.collect::<Result<Vec<_>>>()?;
        let began = Instant::now();
        let start = |file| {
            let (arena, shared, mode) = (arena.clone(), Arc::clone(&shared), self.mode);
            std::thread::spawn(move || {
                let mut buffer = arena.take();
                let result = shared.work(&file, mode, &mut buffer);
                shared.has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            })
        };
        let threads = files.into_iter().map(start).collect();
        Ok(Load { began, shared, threads })
    }
}

impl Load {
    /// Returns the number of bytes moved so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    fn has_failed(&self) -> bool {
        self.shared.has_failed.load(Ordering::Relaxed)
    }

    /// Ends the load.
    ///
    /// # Errors
    /// If a request failed.
    pub(crate) fn stop(self) -> Result<Outcome> {
        // Requests that are still in progress do not count, because they are not done in this time.
        let outcome = Outcome { bytes: self.bytes(), time: self.began.elapsed() };
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("it does not panic")?;
        }
        Ok(outcome)
    }
}

impl Shared {
    /// The work of each thread.
    fn work(&self, file: &File, mode: LoadMode, block: &mut [u8]) -> Result<()> {
        let block_bytes = block.len() as u64;
        let offsets = (0..FILE_BLOCKS).map(|index| index * block_bytes);
        for offset in offsets.cycle() {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            match mode {
                LoadMode::Read => file.read_exact_at(block, offset),
                LoadMode::Write => file.write_all_at(block, offset),
            }?;
            self.bytes.fetch_add(block_bytes, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Outcome {
    /// Returns the throughput.
    #[expect(clippy::cast_precision_loss, reason = "a rate is not exact anyway")]
    pub(crate) fn bytes_per_second(self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64()
    }
}

/// Makes a file on an OST and removes its name.
fn make_file(directory: &Path, ost: OstId) -> Result<File> {
    let path = directory.join(format!(".lads-load-{}-{ost}", std::process::id()));
    // Lustre's O_LOV_DELAY_CREATE: the file gets its layout later, from the attribute.
    let delay = OFlags::NOCTTY | OFlags::from_bits_retain(libc::O_ASYNC.unsigned_abs());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::DIRECT | delay;
    let problem = || format!("cannot make {} on {ost}", path.display());
    let file: File =
        rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).with_context(problem)?.into();
    let placed = place(&file, ost);
    std::fs::remove_file(&path)?;
    placed.with_context(problem)?;
    Ok(file)
}

fn place(file: &File, ost: OstId) -> Result<()> {
    let wish = Lov::wish_on(1 << 20, &[ost]).encode();
    rustix::fs::fsetxattr(file, lov::ATTRIBUTE, &wish, XattrFlags::empty())?;
    let mut value = vec![0; lov::BYTES_MAX];
    let length = rustix::fs::fgetxattr(file, lov::ATTRIBUTE, &mut value[..])?;
    let place = Lov::parse(&value[..length])?.usual_replica_at(0).map(|it| it.place);
    if place != Some(Place::Ost(ost)) {
        bail!("the file system chose another place");
    }
    Ok(())
}

fn block_size(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    let fits = u32::try_from(bytes).ok().filter(|it| *it > 0 && it.is_multiple_of(4096));
    fits.ok_or_else(|| "a multiple of 4K, less than 4G".to_owned())
}
