//! The gate that every call passes through, the commands, the log and the counts.

use super::calls::Handle;
use super::control::DIRECTORY;
use super::disk::{Disk, write_all};
use super::nodes::Nodes;
use super::rules::{Command, Fault, FlippedBit, Kind, Rules, chance, parse};
use clap::ValueEnum as _;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::{Errno, pread};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The whole state of a mounted file system.
#[derive(Debug)]
pub(super) struct State {
    pub(super) nodes: Nodes,
    pub(super) disk: Disk,
    pub(super) handles: Mutex<HashMap<u64, Arc<Handle>>>,
    directory: PathBuf,
    rules: Mutex<Rules>,
    /// How many times hanging calls were released.
    releases: Mutex<u64>,
    was_released: Condvar,
    counts: [AtomicU64; Kind::COUNT],
    log: Mutex<String>,
    last_error: Mutex<String>,
}

/// A call that may be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    /// The number of power cuts when it was let through: the call has no effect if there was
    /// another since.
    pub(super) epoch: u64,
    /// The number to draw its length with, if it is shortened.
    short: Option<u64>,
}

impl Passage {
    /// Returns how many of these bytes are read or written: never zero, and a multiple of `unit` if
    /// more than that was asked for.
    pub(super) fn shorten(self, bytes: usize, unit: usize) -> usize {
        match self.short {
            Some(drawn) if bytes > unit => {
                let units = u64::try_from((bytes - 1) / unit).expect("fits");
                let kept = usize::try_from(1 + drawn % units).expect("less than before");
                kept * unit
            }
            _ => bytes,
        }
    }
}

/// What a call is about.
pub(super) struct Call<P> {
    pub(super) kind: Kind,
    /// The number of power cuts when the handle that it uses was opened, if it uses one.
    pub(super) epoch: Option<u64>,
    /// The offset in the file.
    pub(super) offset: Option<u64>,
    /// The paths that the call names.
    pub(super) paths: P,
}

impl State {
    pub(super) fn over(directory: &Path, time_unit: Duration) -> Result<Self, Errno> {
        let nodes = Nodes::open(directory, time_unit)?;
        let grave = directory.join(DIRECTORY);
        let disk = Disk::open(nodes.root(), DIRECTORY, grave)?;
        Ok(Self {
            nodes,
            disk,
            handles: Mutex::default(),
            directory: directory.to_owned(),
            rules: Mutex::default(),
            releases: Mutex::default(),
            was_released: Condvar::new(),
            counts: [const { AtomicU64::new(0) }; Kind::COUNT],
            log: Mutex::default(),
            last_error: Mutex::default(),
        })
    }

    /// Applies the rules to a call, and lets it through.
    pub(super) fn pass<P>(&self, call: Call<P>) -> Result<Passage, Errno>
    where
        P: FnOnce() -> Vec<Vec<u8>>,
    {
        self.counts[call.kind as usize].fetch_add(1, Ordering::Relaxed);
        let now = self.disk.epoch()?;
        let epoch = call.epoch.unwrap_or(now);
        if epoch != now {
            return Err(Errno::IO);
        }
        let mut passage = Passage { epoch, short: None };
        // Read this before the rules: a release from here on must also release this call.
        let releases = *lock(&self.releases);
        let (faults, paths) = lock(&self.rules).judge(call.kind, call.paths);
        for fault in faults {
            let errno = match &fault {
                Fault::Fail(errno) => Some(*errno),
                Fault::Cut { .. } => Some(Errno::IO.raw_os_error()),
                _ => None,
            };
            let mut line = json!({
                "fault": fault.name(),
                "call": call.kind.name(),
                "path": text(paths.first().map_or(b"", Vec::as_slice)),
                "offset": call.offset,
                "errno": errno,
            });
            if let Fault::Cut { tear } = fault {
                line["lost"] = self.cut(tear)?;
            }
            self.write_log(&line);
            match fault {
                Fault::Fail(errno) => return Err(Errno::from_raw_os_error(errno)),
                Fault::Cut { .. } => return Err(Errno::IO),
                Fault::Short(drawn) => passage.short = Some(drawn),
                Fault::Delay(delay) => std::thread::sleep(delay),
                Fault::Hang => self.hang(releases),
            }
        }
        Ok(passage)
    }

    /// Cuts the power; returns what was lost, for the log.
    fn cut(&self, tear: Option<u64>) -> Result<Value, Errno> {
        let lost = self.disk.any().cut(tear)?;
        let files = lost.files.iter().map(|node| text(&self.nodes.path_of(node)));
        let names = lost.names.iter().map(|name| name.to_string_lossy().into_owned());
        Ok(json!({"files": files.collect::<Vec<_>>(), "names": names.collect::<Vec<_>>()}))
    }

    /// Waits until there is a release after this number of releases.
    fn hang(&self, before: u64) {
        let releases = lock(&self.releases);
        let wait = self.was_released.wait_while(releases, |releases| *releases == before);
        drop(wait.unwrap_or_else(PoisonError::into_inner));
    }

    /// Removes the rules that make calls hang, and releases the calls that hang.
    pub(super) fn release(&self) {
        lock(&self.rules).release();
        *lock(&self.releases) += 1;
        self.was_released.notify_all();
    }

    /// Makes everything durable, and removes the directory of what a power cut would bring back.
    pub(super) fn tidy(&self) {
        let _ = self.disk.any().sync_all();
        let _ = std::fs::remove_dir(self.directory.join(DIRECTORY));
    }

    /// Executes the commands that were written into the control file.
    pub(super) fn command(&self, text: &[u8]) -> Result<(), Errno> {
        let text = String::from_utf8_lossy(text);
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let done = parse(line).and_then(|command| {
                self.execute(command).map_err(|errno| format!("{line}: {errno}"))
            });
            if let Err(why) = done {
                *lock(&self.last_error) = why + "\n";
                return Err(Errno::INVAL);
            }
        }
        Ok(())
    }

    fn execute(&self, command: Command) -> Result<(), Errno> {
        match command {
            Command::Add(rule) => lock(&self.rules).add(rule),
            Command::Release => self.release(),
            Command::Clear => {
                lock(&self.rules).clear();
                self.release();
            }
            Command::Settle => self.disk.any().sync_all()?,
            Command::PowerCut { tear } => {
                let lost = self.cut(tear)?;
                self.write_log(&json!({"fault": "cut", "lost": lost}));
            }
            Command::PowerOn => self.disk.any().switch_on(),
            Command::Flip { path, bit } => self.flip(&path, bit)?,
        }
        Ok(())
    }

    fn flip(&self, path: &str, bit: FlippedBit) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(CWD, self.directory.join(path), flags, Mode::empty())?;
        let bytes = rustix::fs::fstat(&file)?.st_size;
        let bytes = u64::try_from(bytes).ok().filter(|&bytes| bytes > 0).ok_or(Errno::INVAL)?;
        let (offset, bit) = match bit {
            FlippedBit::At { offset, bit } => (offset, bit),
            FlippedBit::Drawn(seed) => {
                let bit = u8::try_from(chance(seed, 1) % 8).expect("less than 8");
                (chance(seed, 0) % bytes, bit)
            }
        };
        let mut byte = [0];
        if pread(&file, &mut byte, offset)? == 0 {
            return Err(Errno::INVAL);
        }
        write_all(&file, &[byte[0] ^ (1 << bit)], offset)?;
        self.write_log(&json!({"fault": "flip", "path": path, "offset": offset, "bit": bit}));
        Ok(())
    }

    fn write_log(&self, value: &Value) {
        let mut log = lock(&self.log);
        log.push_str(&value.to_string());
        log.push('\n');
    }

    /// Returns the log of the faults done, one JSON object per line.
    pub(super) fn log(&self) -> String {
        lock(&self.log).clone()
    }

    /// Returns why the last refused command was refused.
    pub(super) fn last_error(&self) -> String {
        lock(&self.last_error).clone()
    }

    /// Returns the number of calls of each kind, as one JSON object.
    pub(super) fn counts(&self) -> String {
        let counts = Kind::value_variants().iter().map(|&kind| {
            (kind.name(), Value::from(self.counts[kind as usize].load(Ordering::Relaxed)))
        });
        let counts: serde_json::Map<String, Value> = counts.collect();
        Value::Object(counts).to_string() + "\n"
    }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// Locks a mutex, even if another thread panicked while it held it.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
