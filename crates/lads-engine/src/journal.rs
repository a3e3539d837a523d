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
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// What every name of our own in the target directory begins with.
pub(crate) const PREFIX: &str = ".lads-";

/// Stands for the directory itself where a path is recorded: no file has this path.
const ROOT_PATH: &[u8] = b".";

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
    log: Option<Log>,
    /// What an earlier attempt left and nobody has asked for yet.
    begun: HashMap<Vec<u8>, Begun>,
    /// Numbers of the files that have records.
    numbers: HashMap<Vec<u8>, u64>,
    next_number: u64,
    /// Records that need not be durable before anything else.
    pending: Vec<u8>,
    /// Whether one of them must be before a file begins anew.
    is_forget_due: bool,
}

/// The journal's file, locked as long as it is open.
#[derive(Debug)]
struct Log {
    file: File,
    /// The records that are durable take so many bytes.
    sound_bytes: u64,
    /// Why nothing more can be added.
    failure: Option<Errno>,
}

impl Log {
    fn new(file: File, sound_bytes: u64) -> Self {
        Self { file, sound_bytes, failure: None }
    }

    /// Adds records, durably. After an error none of them counts, and there is nothing torn that
    /// would hide later ones; if that is not sure, there will be no later ones.
    fn append(&mut self, records: &[u8]) -> std::io::Result<()> {
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        if let Err(error) = self.file.write_all_at(records, self.sound_bytes) {
            self.failure = ftruncate(&self.file, self.sound_bytes).err();
            return Err(error);
        }
        // What could not be written back is taken for written from then on: to ask once more
        // would only get a wrong answer.
        self.failure = fdatasync(&self.file).err();
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        self.sound_bytes += records.len() as u64;
        Ok(())
    }
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
        let mut file = File::from(file);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| broken(&name, &error))?;
        let replay = replay(&bytes);
        let Some(salt) = replay.salt else {
            let (salt, log) = begin(file).map_err(|error| broken(&name, &error))?;
            fsync(&root).map_err(failed)?;
            return Ok(Self::with(root, name, salt, Some(log), HashMap::new(), 1));
        };
        let log = Log::new(file, replay.sound_bytes);
        let journal = Self::with(root, name, salt, Some(log), replay.files, replay.next_number);
        journal.compact().map_err(|error| broken(&journal.name, &error))?;
        Ok(journal)
    }

    fn with(
        root: Arc<OwnedFd>,
        name: String,
        salt: [u8; 16],
        log: Option<Log>,
        begun: HashMap<Vec<u8>, Begun>,
        next_number: u64,
    ) -> Self {
        let numbers = begun.iter().map(|(path, begun)| (path.clone(), begun.number)).collect();
        let (pending, is_forget_due) = (Vec::new(), false);
        let state = State { log, begun, numbers, next_number, pending, is_forget_due };
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

    /// Whether an earlier attempt made the directory and did not come to its end.
    pub(crate) fn take_root_made(&self) -> bool {
        self.take_begun(ROOT_PATH).is_some()
    }

    /// Puts on record that this job made the directory: whoever goes on gives it its mode.
    pub(crate) fn record_root_made(&self) -> std::io::Result<()> {
        self.record(&[(ROOT_PATH.to_vec(), Identity::default(), &[])])
    }

    /// The directory has its mode, and counts from now on as one that was there.
    pub(crate) fn forget_root_made(&self) -> std::io::Result<()> {
        self.forget_durably(ROOT_PATH)
    }

    /// Records blocks that are durable; they are on record when this returns. After an error, it
    /// is as if nobody had asked.
    pub(crate) fn record(
        &self,
        files: &[(Vec<u8>, Identity, &[lads_core::journal::BlockRecord])],
    ) -> std::io::Result<()> {
        let mut state = self.lock();
        let state = &mut *state;
        let mut bytes = state.pending.clone();
        let mut begun = Vec::new();
        for (path, identity, blocks) in files {
            let number = state.numbers.get(path).copied().unwrap_or_else(|| {
                let number = state.next_number;
                state.next_number += 1;
                begun.push((path.clone(), number));
                let record = Record::File { number, path: path.clone(), identity: *identity };
                encode(&record, &mut bytes);
                number
            });
            encode(&Record::Blocks { number, blocks: blocks.to_vec() }, &mut bytes);
        }
        if let Some(log) = &mut state.log
            && !bytes.is_empty()
        {
            log.append(&bytes)?;
        }
        state.pending.clear();
        state.is_forget_due = false;
        state.numbers.extend(begun);
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

    /// What is on record of a file that is dropped no longer counts. It may be sent anew, and be
    /// the same file as before: [`Self::settle`] comes before that.
    pub(crate) fn forget_dropped(&self, path: &[u8]) {
        self.forget(path);
        self.lock().is_forget_due = true;
    }

    /// Makes durable that files that were dropped do not count. Only then may one of them be begun
    /// anew, for the reason that [`Self::forget_durably`] has.
    pub(crate) fn settle(&self) -> std::io::Result<()> {
        let is_due = self.lock().is_forget_due;
        if is_due { self.record(&[]) } else { Ok(()) }
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
        if state.log.is_none() {
            return Ok(());
        }
        if state.numbers.is_empty() {
            unlinkat(&self.root, self.name.as_str(), AtFlags::empty())?;
            state.log = None;
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
        let new = File::from(new);
        new.write_all_at(&bytes, 0)?;
        fsync(&new)?;
        renameat(&self.root, new_name.as_str(), &self.root, self.name.as_str())?;
        fsync(&self.root)?;
        state.log = Some(Log::new(new, bytes.len() as u64));
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
fn begin(file: File) -> std::io::Result<([u8; 16], Log)> {
    let mut salt = [0; 16];
    fill_random(&mut salt)?;
    let mut bytes = Vec::new();
    encode(&Record::Begin { format: FORMAT, salt }, &mut bytes);
    ftruncate(&file, 0)?;
    file.write_all_at(&bytes, 0)?;
    fsync(&file)?;
    Ok((salt, Log::new(file, bytes.len() as u64)))
}

fn broken(name: &str, error: &std::io::Error) -> Fatal {
    Fatal::new(ExitCode::SinkRefuses, format!("cannot use the journal {name}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stdout, reason = "these are tests")]
mod tests {
    use super::*;
    use lads_core::journal::BlockRecord;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use tempfile::TempDir;

    /// A file system of a few pages; unmounted when this is dropped.
    struct Small(TempDir);

    impl Small {
        /// `None`, and a line that says so, where that is not possible.
        fn new() -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            let size = Some(c"size=64K");
            if let Err(errno) = mount("none", directory.path(), "tmpfs", MountFlags::empty(), size)
            {
                println!("skipped: cannot mount a tmpfs: {errno}");
                return None;
            }
            Some(Self(directory))
        }

        /// A journal that is begun in it, or gone on with.
        fn journal(&self) -> Journal {
            let root = File::open(self.0.path()).unwrap();
            Journal::open(Arc::new(root.into()), "here", 1, true).unwrap()
        }
    }

    impl Drop for Small {
        fn drop(&mut self) {
            unmount(self.0.path(), UnmountFlags::DETACH).unwrap();
        }
    }

    fn records(count: u64) -> Vec<BlockRecord> {
        (0..count).map(|n| BlockRecord { offset: n, length: 1, checksum: n }).collect()
    }

    fn record(journal: &Journal, path: &[u8], blocks: &[BlockRecord]) -> std::io::Result<()> {
        journal.record(&[(path.to_vec(), Identity::default(), blocks)])
    }

    #[test]
    fn a_record_that_did_not_fit_hides_none_that_comes_after_it() {
        let Some(small) = Small::new() else { return };
        let journal = small.journal();
        record(&journal, b"before", &records(1)).unwrap();
        journal.forget(b"before");
        let ballast = small.0.path().join("ballast");
        std::fs::write(&ballast, vec![0; 64 << 10]).unwrap_err();
        let error = record(&journal, b"large", &records(1000)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::NOSPC));
        std::fs::remove_file(ballast).unwrap();
        record(&journal, b"large", &records(2)).unwrap();
        record(&journal, b"after", &records(3)).unwrap();
        drop(journal);
        let journal = small.journal();
        assert!(journal.take_begun(b"before").is_none());
        assert_eq!(journal.take_begun(b"large").unwrap().blocks, records(2));
        assert_eq!(journal.take_begun(b"after").unwrap().blocks, records(3));
    }

    #[test]
    fn a_file_that_was_dropped_is_forgotten_before_it_begins_anew() {
        let directory = tempfile::tempdir().unwrap();
        let open = || {
            let root = File::open(directory.path()).unwrap();
            Journal::open(Arc::new(root.into()), "here", 1, true).unwrap()
        };
        let journal = open();
        record(&journal, b"file", &records(3)).unwrap();
        journal.forget_dropped(b"file");
        journal.settle().unwrap();
        // A kill: nothing is written down any more.
        drop(journal);
        assert!(open().take_begun(b"file").is_none());
    }

    #[test]
    fn where_a_torn_record_cannot_be_cut_off_no_other_follows_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        std::fs::write(&path, "sound").unwrap();
        let mut log = Log::new(File::open(&path).unwrap(), 5);
        assert!(log.append(b"torn").is_err());
        log.file = File::options().write(true).open(&path).unwrap();
        assert!(log.append(b"later").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"sound");
    }
}
