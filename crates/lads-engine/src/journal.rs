//! The journal's file: read at the beginning, appended to while files arrive, removed at the end.
//!
//! It lies in the directory into which everything goes, so that it survives whatever the data
//! survives, under a name that the same command finds again. One process holds it at a time.

use crate::event::ExitCode;
use crate::hub::Fatal;
use crate::stream::fill_random;
use lads_core::entry::Identity;
use lads_core::journal::{Begun, FORMAT, Record, encode, replay};
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, fdatasync, flock, fsync, ftruncate, openat, renameat,
    unlinkat,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// What every name of our own in the target directory begins with.
pub(crate) const PREFIX: &str = ".lads-";

/// An open journal; without a file if the transfer has none.
#[derive(Debug)]
pub(crate) struct Journal {
    root: Arc<OwnedFd>,
    name: String,
    salt: [u8; 16],
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: Option<std::fs::File>,
    /// What an earlier attempt left and nobody has asked for yet.
    begun: HashMap<Vec<u8>, Begun>,
    /// Numbers of the files that have records.
    numbers: HashMap<Vec<u8>, u64>,
    next_number: u64,
    /// Records that need not be durable before anything else.
    pending: Vec<u8>,
}

impl Journal {
    /// Opens the journal of the job that `job_key` stands for in `root`, or begins one; reads what
    /// an earlier attempt left, and cuts off what is torn.
    /// `target` is what the directory is called in messages.
    pub(crate) fn open(
        root: Arc<OwnedFd>,
        target: &str,
        job_key: u64,
        has_file: bool,
    ) -> Result<Self, Fatal> {
        let name = format!("{PREFIX}{job_key:016x}.journal");
        if !has_file {
            let mut salt = [0; 16];
            salt[..8].copy_from_slice(&job_key.to_le_bytes());
            return Ok(Self::with(root, name, salt, None, HashMap::new(), 1));
        }
        let failed = |errno: Errno| {
            let text = format!("cannot write to {target} (journal {name}): {errno}");
            Fatal::new(ExitCode::SinkRefuses, text)
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&root, name.as_str(), flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        lock(&file, &name)?;
        let mut file = std::fs::File::from(file);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| broken(&name, &error))?;
        let replay = replay(&bytes);
        let Some(salt) = replay.salt else {
            let salt = begin(&mut file).map_err(|error| broken(&name, &error))?;
            fsync(&root).map_err(failed)?;
            return Ok(Self::with(root, name, salt, Some(file), HashMap::new(), 1));
        };
        let journal = Self::with(root, name, salt, Some(file), replay.files, replay.next_number);
        journal.compact().map_err(|error| broken(&journal.name, &error))?;
        Ok(journal)
    }

    fn with(
        root: Arc<OwnedFd>,
        name: String,
        salt: [u8; 16],
        file: Option<std::fs::File>,
        begun: HashMap<Vec<u8>, Begun>,
        next_number: u64,
    ) -> Self {
        let numbers = begun.iter().map(|(path, begun)| (path.clone(), begun.number)).collect();
        let state = State { file, begun, numbers, next_number, pending: Vec::new() };
        Self { root, name, salt, state: Mutex::new(state) }
    }

    /// The temporary name of the file with this path: the same each time, and nobody else's.
    pub(crate) fn temporary_name(&self, path: &[u8]) -> String {
        let seed = u64::from_le_bytes(self.salt[..8].try_into().expect("eight bytes"));
        let other = u64::from_le_bytes(self.salt[8..].try_into().expect("eight bytes"));
        let low = twox_hash::XxHash3_64::oneshot_with_seed(seed, path);
        let high = twox_hash::XxHash3_64::oneshot_with_seed(other ^ low, path);
        format!("{PREFIX}{high:016x}{low:016x}.part")
    }

    /// What an earlier attempt left of a file.
    pub(crate) fn take_begun(&self, path: &[u8]) -> Option<Begun> {
        self.lock().begun.remove(path)
    }

    /// Records blocks that are durable; they are on record when this returns.
    pub(crate) fn record(
        &self,
        files: &[(Vec<u8>, Identity, &[lads_core::journal::BlockRecord])],
    ) -> std::io::Result<()> {
        let mut state = self.lock();
        let state = &mut *state;
        let mut bytes = std::mem::take(&mut state.pending);
        for (path, identity, blocks) in files {
            let number = state.numbers.get(path).copied().unwrap_or_else(|| {
                let number = state.next_number;
                state.next_number += 1;
                state.numbers.insert(path.clone(), number);
                let record = Record::File { number, path: path.clone(), identity: *identity };
                encode(&record, &mut bytes);
                number
            });
            encode(&Record::Blocks { number, blocks: blocks.to_vec() }, &mut bytes);
        }
        if let Some(file) = &mut state.file
            && !bytes.is_empty()
        {
            file.write_all(&bytes)?;
            fdatasync(&*file)?;
        }
        Ok(())
    }

    /// What is on record of a file that has its name now no longer counts. Need not be durable: it
    /// is found under its name.
    pub(crate) fn forget(&self, path: &[u8]) {
        let mut state = self.lock();
        if let Some(number) = state.numbers.remove(path) {
            encode(&Record::Forget { number }, &mut state.pending);
        }
    }

    /// What is on record of a file no longer counts, durably when this returns. Only then may its
    /// temporary file be begun anew: a run that dies soon after would leave one of the right size
    /// that the record is not about.
    pub(crate) fn forget_durably(&self, path: &[u8]) -> std::io::Result<()> {
        self.forget(path);
        self.record(&[])
    }

    /// Ends the journal: removes it, and what an earlier attempt left of files that are not moved
    /// any more; or keeps it if `is_kept`, because something is left to go on with.
    pub(crate) fn finish(&self, remove: impl Fn(&[u8])) -> Result<(), Errno> {
        let mut state = self.lock();
        for path in std::mem::take(&mut state.begun).into_keys() {
            remove(&path);
            state.numbers.remove(&path);
        }
        if state.file.is_none() {
            return Ok(());
        }
        if state.numbers.is_empty() {
            unlinkat(&self.root, self.name.as_str(), AtFlags::empty())?;
            state.file = None;
        }
        Ok(())
    }

    /// Writes the journal anew without what no longer counts.
    fn compact(&self) -> std::io::Result<()> {
        let mut state = self.lock();
        let mut bytes = Vec::new();
        encode(&Record::Begin { format: FORMAT, salt: self.salt }, &mut bytes);
        for (path, begun) in &state.begun {
            let (number, identity) = (begun.number, begun.identity);
            encode(&Record::File { number, path: path.clone(), identity }, &mut bytes);
            encode(&Record::Blocks { number, blocks: begun.blocks.clone() }, &mut bytes);
        }
        let new_name = format!("{}.new", self.name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let new = openat(&self.root, new_name.as_str(), flags | OFlags::CLOEXEC, mode)?;
        flock(&new, FlockOperation::NonBlockingLockExclusive)?;
        let mut new = std::fs::File::from(new);
        new.write_all(&bytes)?;
        fsync(&new)?;
        renameat(&self.root, new_name.as_str(), &self.root, self.name.as_str())?;
        fsync(&self.root)?;
        state.file = Some(new);
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lock(file: &OwnedFd, name: &str) -> Result<(), Fatal> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        let text = format!(
            "the same transfer is running already: another process holds {name} in the target \
             directory"
        );
        Fatal::new(ExitCode::Usage, text)
    })
}

/// Makes an empty or unusable journal a new one; durable when this returns.
fn begin(file: &mut std::fs::File) -> std::io::Result<[u8; 16]> {
    let mut salt = [0; 16];
    fill_random(&mut salt)?;
    let mut bytes = Vec::new();
    encode(&Record::Begin { format: FORMAT, salt }, &mut bytes);
    ftruncate(&*file, 0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&bytes)?;
    fsync(&*file)?;
    Ok(salt)
}

fn broken(name: &str, error: &std::io::Error) -> Fatal {
    Fatal::new(ExitCode::SinkRefuses, format!("cannot use the journal {name}: {error}"))
}
