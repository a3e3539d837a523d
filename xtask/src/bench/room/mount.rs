//! Mounts, controls and queries two emulated parallel file systems.
//!
//! A mount must answer before anything is measured on it, and is unmounted whatever happens. Rates
//! are in force only during a measurement: data sets are made, compared and removed at full speed.

use crate::shell;
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The properties of an emulated file system.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::bench) struct Storage {
    /// The number of OSTs.
    pub(super) osts: u32,
    /// The number of OSSes that have these OSTs.
    pub(super) osses: u32,
    /// The rate of each OST; `None` is unlimited.
    pub(super) ost_bytes_per_second: Option<u64>,
    /// The rate of each OSS; `None` is unlimited.
    pub(super) oss_bytes_per_second: Option<u64>,
    /// The additional time that each request to an OST takes.
    pub(super) latency_micros: u64,
    /// The time that each operation on names takes.
    pub(super) metadata_latency_micros: u64,
    /// The additional time of each call that sets a layout or adds to it.
    pub(super) layout_latency_micros: u64,
    /// The number of OSTs that a file is spread over.
    pub(super) stripe_count: u32,
    /// The number of bytes at the beginning of a file that are on one OST all the same.
    pub(super) one_stripe_until: Option<u64>,
    /// Whether the kernel keeps written data and sends it later. Rivals that use buffered writes
    /// need this: without it they are several times slower. But then files cannot grow side by
    /// side, because the kernel ignores what the file system says about the length of a file.
    pub(super) is_written_back: bool,
    /// Whether it does not tell where files lie.
    pub(super) hides_layouts: bool,
    /// What happens to the bytes.
    pub(super) bytes: Bytes,
}

/// What happens to the bytes that are written to a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Bytes {
    /// They are kept in memory.
    Kept,
    /// They are dropped, and reads return zeros, so that only the cost of the software remains.
    Dropped,
}

/// The time that a request to an OST takes before its first byte moves: a round trip on the network
/// of a cluster, and a server that has to find the data. Half of it would be flash on a nearby
/// server. With twice as much, a request of 256 KiB takes a tenth longer than without latency, as
/// with a disk.
const LATENCY_MICROS: u64 = 500;
/// The time that a metadata server takes for an operation on names. A busy server takes several
/// times as long; one that knows the answer takes a third.
const METADATA_LATENCY_MICROS: u64 = 300;

impl Storage {
    /// The same file system without latency.
    pub(super) fn without_latency(self) -> Self {
        Self { latency_micros: 0, metadata_latency_micros: 0, layout_latency_micros: 0, ..self }
    }
}

impl Default for Storage {
    fn default() -> Self {
        Self {
            osts: 8,
            osses: 2,
            ost_bytes_per_second: Some(25_000_000),
            oss_bytes_per_second: None,
            latency_micros: LATENCY_MICROS,
            metadata_latency_micros: METADATA_LATENCY_MICROS,
            layout_latency_micros: 0,
            stripe_count: 1,
            one_stripe_until: None,
            is_written_back: true,
            hides_layouts: false,
            bytes: Bytes::Kept,
        }
    }
}

/// How far the kernel reads ahead. Rivals that go through the page cache need this: without it they
/// are several times slower. Every result mentions it.
const READAHEAD: &str = "--readahead=8M";

/// The directory for the bytes that are kept. It is in memory.
const BACKING: &str = "/dev/shm";

/// The longest time to wait until a file system is mounted or unmounted.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A mounted file system. It is unmounted when this is dropped.
#[derive(Debug)]
pub(in crate::bench) struct Mount {
    child: Child,
    path: PathBuf,
    storage: Storage,
}

impl Mount {
    /// Mounts `storage` below `directory`, and checks that it answers.
    pub(in crate::bench) fn start(
        testbed: &Path,
        storage: Storage,
        directory: &Path,
        name: &str,
    ) -> Result<Self> {
        let path = directory.join(name);
        fs::create_dir_all(&path)?;
        let mut child = bound_to_us(testbed)
            .arg("pfs")
            .args(arguments(storage))
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the emulated file system")?;
        let stdout = child.stdout.take().expect("piped above");
        let mount = Self { child, path, storage };
        let mut word = String::new();
        BufReader::new(stdout).read_line(&mut word)?;
        if word.trim() != "ready" {
            bail!("the emulated file system at {} is not ready: {word}", mount.path.display());
        }
        mount.stats()?;
        Ok(mount)
    }

    /// The directory on which it is mounted.
    pub(in crate::bench) fn path(&self) -> &Path {
        &self.path
    }

    /// What happens to the bytes that are written to it.
    pub(super) fn bytes(&self) -> Bytes {
        self.storage.bytes
    }

    /// Its statistics. Fails if it is not mounted.
    pub(super) fn stats(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.read("stats")?)?)
    }

    /// The text of one of its files in `.pfs`.
    pub(super) fn read(&self, name: &str) -> Result<String> {
        let path = self.path.join(".pfs").join(name);
        fs::read_to_string(&path).with_context(|| format!("not mounted: {}", path.display()))
    }

    /// Gives the file system a command.
    pub(super) fn control(&self, command: &str) -> Result<()> {
        fs::write(self.path.join(".pfs/control"), format!("{command}\n")).with_context(|| {
            let why = self.read("last-error").unwrap_or_default();
            format!("{command}: {}", why.trim())
        })
    }

    /// Puts its rates and latencies in force, and resets its statistics.
    pub(super) fn throttle(&self) -> Result<()> {
        let said = |rate: Option<u64>| {
            rate.map_or_else(|| "unlimited".to_owned(), |rate| rate.to_string())
        };
        self.control("reset-stats")?;
        self.control(&format!("rate all {}", said(self.storage.ost_bytes_per_second)))?;
        self.control(&format!("oss-rate all {}", said(self.storage.oss_bytes_per_second)))?;
        self.set_latency(self.storage)
    }

    fn set_latency(&self, storage: Storage) -> Result<()> {
        self.control(&format!("latency all {}", storage.latency_micros))?;
        self.control(&format!("metadata-latency {}", storage.metadata_latency_micros))?;
        self.control(&format!("layout-latency {}", storage.layout_latency_micros))
    }

    /// Removes its latencies, but not its rates. This is for the requests that the benchmark itself
    /// makes.
    pub(super) fn answer_at_once(&self) -> Result<()> {
        self.set_latency(self.storage.without_latency())
    }

    /// Removes its rates, latencies and congestion.
    pub(super) fn release(&self) -> Result<()> {
        self.control("congest off")?;
        self.control("rate all unlimited")?;
        self.control("oss-rate all unlimited")?;
        self.answer_at_once()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        // An error means that the process has already ended.
        let _ = kill_process(pid, Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < WAIT_MAX {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        println!("{} does not exit: killed", self.path.display());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = shell::output(shell::command("umount").arg("-l").arg(&self.path));
    }
}

/// A command that ends when this process ends, even if it is killed. `setpriv` is part of every
/// Debian.
pub(super) fn bound_to_us(program: &Path) -> Command {
    if shell::find("setpriv").is_none() {
        return shell::command(program);
    }
    let mut command = shell::command("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(program);
    command
}

fn arguments(storage: Storage) -> Vec<String> {
    let Storage { osts, osses, stripe_count, one_stripe_until, is_written_back, bytes, .. } =
        storage;
    let mut words = vec![
        format!("--osts={osts}"),
        format!("--osses={osses}"),
        format!("--stripe-count={stripe_count}"),
        "--rate=unlimited".to_owned(),
        match bytes {
            Bytes::Kept => format!("--backing={BACKING}"),
            Bytes::Dropped => "--null".to_owned(),
        },
    ];
    words.extend(one_stripe_until.map(|end| format!("--one-stripe-until={end}")));
    words.push(READAHEAD.to_owned());
    words.extend(storage.hides_layouts.then(|| "--layout-style=none".to_owned()));
    words.extend(is_written_back.then(|| "--writeback".to_owned()));
    words
}

/// The file systems of a source and of a sink.
#[derive(Debug)]
pub(super) struct Pair {
    /// The file system of the source.
    pub(super) source: Mount,
    /// The file system of the sink.
    pub(super) sink: Mount,
}

impl Pair {
    /// Mounts both file systems.
    pub(super) fn start(
        testbed: &Path,
        source: Storage,
        sink: Storage,
        directory: &Path,
    ) -> Result<Self> {
        Ok(Self {
            source: Mount::start(testbed, source, directory, "source")?,
            sink: Mount::start(testbed, sink, directory, "sink")?,
        })
    }

    /// Removes the rates, latencies and congestion of both.
    pub(super) fn release(&self) -> Result<()> {
        self.source.release()?;
        self.sink.release()
    }

    /// Puts the rates and latencies of both in force.
    pub(super) fn throttle(&self) -> Result<()> {
        self.source.throttle()?;
        self.sink.throttle()
    }
}
