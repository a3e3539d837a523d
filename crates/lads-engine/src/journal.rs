//! The journal: read at the beginning, added to while files arrive, removed at the end.
//!
//! The journal lies in the target directory, so that it survives whatever the data survives, under
//! a name that the same command finds again. One process holds it at a time. A transfer without a
//! record of blocks (`--lab=journal=no`) has a journal, too, for the lock and for the salt of its
//! temporary names. `site` finds and checks the file, `log` writes it.

mod holder;
mod log;
mod site;

use crate::board::{Board, lock};
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::whole::fill_random;
pub(crate) use holder::boot;
use lads_core::entry::{Identity, OWN_PREFIX};
use lads_core::journal::{Begun, BlockRecord, Record, encode, encode_blocks};
use log::Log;
use rustix::io::Errno;
use site::Site;
pub(crate) use site::{Leftover, Own, look_at_journal};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The path on record for the root directory itself: no file has this path.
const ROOT_PATH: &[u8] = b".";

/// How long to wait for a journal that another process holds, and how often to try. An attempt
/// whose other end was killed ends within milliseconds. Half of this is little for a machine under
/// load; with the double, whoever starts a transfer twice is told so that much later.
const HELD_DEADLINE: Duration = Duration::from_secs(1);
const HELD_INTERVAL: Duration = Duration::from_millis(20);

/// An open journal; in a dry run it has no file.
#[derive(Debug)]
pub(crate) struct Journal {
    site: Site,
    salt: [u8; 16],
    own: Own,
    /// Whether an earlier attempt began it.
    is_inherited: bool,
    /// The temporary names that are in use by entries now.
    claimed: Arc<Mutex<HashSet<u128>>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    log: Option<Log>,
    /// What an earlier attempt left and no entry has taken yet.
    begun: HashMap<Vec<u8>, Begun>,
    /// The numbers of the files that have records.
    numbers: HashMap<Vec<u8>, u64>,
    next_number: u64,
    /// Records that need not be durable before anything else happens.
    pending: Vec<u8>,
    /// Whether one of these must be durable before a file begins again.
    is_forget_due: bool,
}

/// Blocks of a file that are durable.
pub(crate) struct Durable<'a> {
    /// The file's path below the root.
    pub(crate) path: Vec<u8>,
    /// The identity of the source file.
    pub(crate) identity: Identity,
    /// The identity of the temporary file after its data was made durable.
    pub(crate) part: Identity,
    /// The blocks.
    pub(crate) blocks: &'a [BlockRecord],
}

/// A temporary name; one entry at a time can have it.
#[derive(Debug)]
pub(crate) struct Claim {
    number: u128,
    claimed: Arc<Mutex<HashSet<u128>>>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        lock(&self.claimed).remove(&self.number);
    }
}

impl Journal {
    /// Opens the journal of the job with this `job_key` in `root`, or begins one. `target` is the
    /// directory's name in messages. If another process holds it, waits a short time, because an
    /// earlier attempt may just be ending.
    pub(crate) fn open(
        root: Arc<OwnedFd>,
        target: &str,
        job_key: u64,
        board: &Board,
    ) -> Result<Self, Fatal> {
        let site = Site::new(root, target, job_key);
        let since = Instant::now();
        let opened = loop {
            match site.open(board) {
                Err(fatal)
                    if fatal.code == ExitCode::Running && since.elapsed() < HELD_DEADLINE =>
                {
                    std::thread::sleep(HELD_INTERVAL);
                }
                opened => break opened?,
            }
        };
        let site::Opened { log, salt, replay, own } = opened;
        let is_inherited = replay.salt.is_some();
        let journal = Self::with(site, salt, own, Some(log), replay.files, replay.next_number);
        Ok(Self { is_inherited, ..journal })
    }

    /// A journal for a dry run: nothing is written, and no lock is taken.
    pub(crate) fn of_dry_run(root: Arc<OwnedFd>, target: &str) -> Result<Self, Fatal> {
        let site = Site::new(root, target, 0);
        Ok(Self::with(site, new_salt()?, Own::usual(), None, HashMap::new(), 1))
    }

    fn with(
        site: Site,
        salt: [u8; 16],
        own: Own,
        log: Option<Log>,
        begun: HashMap<Vec<u8>, Begun>,
        next_number: u64,
    ) -> Self {
        let numbers = begun.iter().map(|(path, begun)| (path.clone(), begun.number)).collect();
        let (pending, is_forget_due) = (Vec::new(), false);
        let next_number = next_number.max(1);
        let state = State { log, begun, numbers, next_number, pending, is_forget_due };
        let (claimed, is_inherited) = (Arc::default(), false);
        Self { site, salt, own, is_inherited, claimed, state: Mutex::new(state) }
    }

    /// Whether an earlier attempt began it and did not finish.
    pub(crate) fn is_inherited(&self) -> bool {
        self.is_inherited
    }

    /// The owner and mode of files that this process makes, to recognise files of others.
    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// The temporary name for this path: the same in each attempt, and different for every other
    /// path. Nobody can predict it without the salt, which only this user can read.
    pub(crate) fn temporary_name(&self, path: &[u8]) -> String {
        format!("{OWN_PREFIX}{:032x}.part", self.temporary_number(path))
    }

    fn temporary_number(&self, path: &[u8]) -> u128 {
        let seed = u64::from_le_bytes(self.salt[..8].try_into().expect("eight bytes"));
        let other = u64::from_le_bytes(self.salt[8..].try_into().expect("eight bytes"));
        let low = twox_hash::XxHash3_64::oneshot_with_seed(seed, path);
        let high = twox_hash::XxHash3_64::oneshot_with_seed(other ^ low, path);
        u128::from(high) << 64 | u128::from(low)
    }

    /// Reserves the temporary name of this path until the result is dropped. `None` if another
    /// entry with the same path has it: both would write to one file.
    pub(crate) fn claim(&self, path: &[u8]) -> Option<Claim> {
        let number = self.temporary_number(path);
        let is_free = lock(&self.claimed).insert(number);
        is_free.then(|| Claim { number, claimed: Arc::clone(&self.claimed) })
    }

    /// What an earlier attempt left of a file.
    pub(crate) fn take_begun(&self, path: &[u8]) -> Option<Begun> {
        lock(&self.state).begun.remove(path)
    }

    /// The paths of files below a directory that an earlier attempt left unfinished. No entry of
    /// this attempt gets their blocks any more.
    pub(crate) fn take_begun_below(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let is_below =
            |path: &[u8]| path.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"));
        let begun = &mut lock(&self.state).begun;
        begun.extract_if(|path, _| is_below(path)).map(|(path, _)| path).collect()
    }

    /// Whether an earlier attempt made the root directory and did not finish.
    pub(crate) fn take_root_made(&self) -> bool {
        self.take_begun(ROOT_PATH).is_some()
    }

    /// Puts on record that this job made the root directory, so that a later attempt sets its mode.
    pub(crate) fn record_root_made(&self) -> std::io::Result<()> {
        let (path, none) = (ROOT_PATH.to_vec(), Identity::default());
        self.record(&[Durable { path, identity: none, part: none, blocks: &[] }])
    }

    /// The root directory has its mode, and counts from now on as one that existed before.
    pub(crate) fn forget_root_made(&self) -> std::io::Result<()> {
        self.forget_durably(ROOT_PATH)
    }

    /// Records blocks that are durable. They are recorded when this returns without an error;
    /// after an error, none of them is.
    pub(crate) fn record(&self, files: &[Durable<'_>]) -> std::io::Result<()> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let mut bytes = state.pending.clone();
        let mut begun = Vec::new();
        for Durable { path, identity, part, blocks } in files {
            let number = state.numbers.get(path).copied().unwrap_or_else(|| {
                let number = state.next_number;
                state.next_number += 1;
                begun.push((path.clone(), number));
                let record = Record::File { number, path: path.clone(), identity: *identity };
                encode(&record, &mut bytes);
                number
            });
            encode_blocks(number, *part, blocks, &mut bytes);
        }
        if let Some(log) = &mut state.log
            && !bytes.is_empty()
        {
            log.append(&bytes)?;
            if log.is_grown()
                && let Some(shorter) = self.site.shorten(log, self.salt)
            {
                *log = shorter;
            }
        }
        state.pending.clear();
        state.is_forget_due = false;
        state.numbers.extend(begun);
        Ok(())
    }

    /// Records these blocks of a file in place of all earlier records of that file.
    pub(crate) fn record_instead(&self, file: Durable<'_>) -> std::io::Result<()> {
        self.forget(&file.path);
        self.record(&[file])
    }

    /// The records of a file do not count any more, because the file has its own name. This need
    /// not be durable, because the next attempt finds the file under that name.
    pub(crate) fn forget(&self, path: &[u8]) {
        let mut state = lock(&self.state);
        if let Some(number) = state.numbers.remove(path) {
            encode(&Record::Forget { number }, &mut state.pending);
        }
    }

    /// The same for the path that `path` returns. It is not called where no file has a record: in a
    /// tree of small files, none has.
    pub(crate) fn forget_any(&self, path: impl FnOnce() -> Vec<u8>) {
        if !lock(&self.state).numbers.is_empty() {
            self.forget(&path());
        }
    }

    /// The records of a dropped file do not count any more. The file may be sent again, and be the
    /// same file as before; [`Self::settle`] must come first.
    pub(crate) fn forget_dropped(&self, path: &[u8]) {
        self.forget(path);
        lock(&self.state).is_forget_due = true;
    }

    /// Makes durable that the records of dropped files do not count. Only then may such a file
    /// begin again; [`Self::forget_durably`] says why.
    pub(crate) fn settle(&self) -> std::io::Result<()> {
        let is_due = lock(&self.state).is_forget_due;
        if is_due { self.record(&[]) } else { Ok(()) }
    }

    /// The records of a file do not count any more, durably when this returns. Only then may its
    /// temporary file begin again. Otherwise a run that dies soon after would leave a temporary
    /// file of the right size that the records do not describe.
    pub(crate) fn forget_durably(&self, path: &[u8]) -> std::io::Result<()> {
        self.forget(path);
        self.record(&[])
    }

    /// Ends the journal. If nothing is left to go on with, this removes the journal, and temporary
    /// files of an earlier attempt that are not moved any more. If not everything could be looked
    /// at (`is_complete` is false), temporary files of an earlier attempt may still be needed, and
    /// all are kept.
    pub(crate) fn finish(&self, is_complete: bool, remove: impl Fn(&[u8])) -> Result<(), Errno> {
        if self.is_inherited && !is_complete {
            return Ok(());
        }
        let mut state = lock(&self.state);
        for path in std::mem::take(&mut state.begun).into_keys() {
            remove(&path);
            state.numbers.remove(&path);
        }
        if state.numbers.is_empty()
            && let Some(log) = state.log.take()
        {
            self.site.remove(&log)?;
        }
        Ok(())
    }
}

fn new_salt() -> Result<[u8; 16], Fatal> {
    let mut salt = [0; 16];
    fill_random(&mut salt).map_err(|error| {
        Fatal::new(ExitCode::Other, format!("cannot get random bytes: {error}"))
    })?;
    Ok(salt)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    use std::fs::File;
    use std::path::Path;
    use tempfile::TempDir;

    fn open_in(directory: &Path) -> Journal {
        let root = File::open(directory).unwrap();
        let board = Board::new("here".to_owned(), true);
        Journal::open(Arc::new(root.into()), "sink:here:dst", 1, &board).unwrap()
    }

    /// A file system of a few pages; unmounted when this is dropped.
    struct Small(TempDir);

    impl Small {
        /// `None`, and a line that says so, where that is not possible.
        fn new() -> Option<Self> {
            let directory = tempfile::tempdir().unwrap();
            let size = Some(c"size=64K");
            if let Err(errno) = mount("none", directory.path(), "tmpfs", MountFlags::empty(), size)
            {
                lads_tried::not_tried(&format!("cannot mount a tmpfs: {errno}"));
                return None;
            }
            Some(Self(directory))
        }

        /// A journal that is begun in it, or gone on with.
        fn journal(&self) -> Journal {
            open_in(self.0.path())
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
        let (path, identity) = (path.to_vec(), Identity::default());
        journal.record(&[Durable { path, identity, part: identity, blocks }])
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
        let open = || open_in(directory.path());
        let journal = open();
        record(&journal, b"file", &records(3)).unwrap();
        journal.forget_dropped(b"file");
        journal.settle().unwrap();
        // A kill: nothing is written down any more.
        drop(journal);
        assert!(open().take_begun(b"file").is_none());
    }

    /// The file of 55 GiB in blocks of 64 KiB whose progress was forgotten by the second attempt
    /// that went on with it.
    #[test]
    fn a_file_of_a_million_blocks_goes_on_again_and_again() {
        let directory = tempfile::tempdir().unwrap();
        let journal = open_in(directory.path());
        record(&journal, b"file", &records(1_000_000)).unwrap();
        drop(journal);
        for attempt in 2..5 {
            let journal = open_in(directory.path());
            if attempt == 4 {
                assert_eq!(journal.take_begun(b"file").unwrap().blocks.len(), 1_000_000);
            }
        }
    }

    #[test]
    fn a_journal_in_use_is_written_anew_before_it_grows_without_end() {
        let directory = tempfile::tempdir().unwrap();
        let journal = open_in(directory.path());
        record(&journal, b"kept", &records(10)).unwrap();
        let many: Vec<BlockRecord> = (0..1_000_000)
            .map(|n| BlockRecord { offset: n << 20, length: 1, checksum: !n })
            .collect();
        for number in 0..8 {
            let path = format!("done {number}");
            record(&journal, path.as_bytes(), &many).unwrap();
            journal.forget(path.as_bytes());
        }
        let is_journal = |name: &std::ffi::OsStr| name.to_string_lossy().ends_with(".journal");
        let names = || std::fs::read_dir(directory.path()).unwrap().map(Result::unwrap);
        let bytes =
            names().find(|it| is_journal(&it.file_name())).unwrap().metadata().unwrap().len();
        assert!((1 << 20..100 << 20).contains(&bytes), "8 times 16 MB are {bytes}");
        assert_eq!(names().count(), 1, "nothing else is left");
        let root = Arc::new(File::open(directory.path()).unwrap().into());
        let second = Journal::open(root, "sink:here:dst", 1, &Board::new("here".to_owned(), true));
        assert!(second.is_err(), "the lock went along");
        record(&journal, b"kept too", &records(20)).unwrap();
        drop(journal);
        let journal = open_in(directory.path());
        assert_eq!(journal.take_begun(b"kept").unwrap().blocks.len(), 10);
        assert_eq!(journal.take_begun(b"kept too").unwrap().blocks.len(), 20);
    }

    #[test]
    fn a_temporary_name_is_had_by_one_entry_at_a_time_and_not_foretold() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let journal = open_in(here.path());
        let claim = journal.claim(b"file").unwrap();
        assert!(journal.claim(b"file").is_none());
        assert!(journal.claim(b"another").is_some());
        drop(claim);
        assert!(journal.claim(b"file").is_some());
        let other = open_in(there.path());
        assert_ne!(journal.temporary_name(b"file"), other.temporary_name(b"file"));
    }
}
