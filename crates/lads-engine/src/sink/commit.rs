//! The last steps of a file: metadata, durable, its own name, durable.

use super::table::{Item, Temporary};
use super::{SinkEnd, failed};
use crate::metadata::{apply, has_default_acl, mtime_of, set_mtime};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::journal::BlockRecord;
use lads_core::sink::{Commit, Committed, Event};
use lads_core::units::EntryId;
use rustix::fs::{
    Advice, AtFlags, Mode, OFlags, fadvise, fstat, fsync, openat, renameat, statat, unlinkat,
};
use rustix::io::{Errno, pread};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use twox_hash::XxHash3_64;

const PAGE_BYTES: u64 = 4096;

/// A file on its way to its name.
struct Ready<'a> {
    entry: EntryId,
    item: Arc<Item>,
    temporary: Arc<Temporary>,
    /// What to read it back against, if it is to be read back.
    verify: Option<&'a [BlockRecord]>,
}

impl SinkEnd {
    /// Gives files their names. Each step is taken for all of them before the next, so that what
    /// makes one durable does so for the others, too: the start of writing, then metadata, then
    /// durable, then renamed, then the directories in which that happened made durable.
    pub(super) fn commit_all(&self, commits: &[Commit]) {
        let mut results = Vec::with_capacity(commits.len());
        let begun = commits.iter().map(|commit| (commit.entry, self.begin(commit)));
        let begun = sift(begun, &mut results);
        let dressed = begun.into_iter().map(|ready| (ready.entry, self.dress(ready)));
        let dressed = sift(dressed, &mut results);
        let durable = dressed.into_iter().map(|ready| (ready.entry, self.make_durable(ready)));
        let durable = sift(durable, &mut results);
        let renamed = durable.into_iter().map(|ready| (ready.entry, self.rename(ready)));
        let renamed = sift(renamed, &mut results);
        let failures = sync_directories(&renamed);
        for Ready { entry, temporary, .. } in renamed {
            self.table.remove(entry);
            let handle = temporary.directory.as_raw_fd();
            let failure = failures.iter().find(|(failed, _)| *failed == handle);
            let committed = failure.map_or(Committed::Complete, |(_, errno)| {
                Committed::Failed(failed(Operation::Sync, *errno))
            });
            results.push((entry, committed));
        }
        self.tell(Event::Committed(results));
    }

    /// Lets storage begin to write. Before metadata: some file systems (FUSE with its cache on)
    /// write a file, and wait, when its times are set.
    fn begin<'a>(&self, commit: &'a Commit) -> Result<Ready<'a>, Committed> {
        let gone = || Committed::Failed(failed(Operation::Rename, Errno::NOENT));
        let item = self.table.get(commit.entry).ok_or_else(gone)?;
        let temporary = self.temporary(&item).map_err(Committed::Failed)?;
        // Only a head start: what cannot have one is written when it is synced.
        let _ = lads_sys::start_writeback(&temporary.file);
        Ok(Ready { entry: commit.entry, item, temporary, verify: commit.verify.as_deref() })
    }

    fn dress<'a>(&self, ready: Ready<'a>) -> Result<Ready<'a>, Committed> {
        let of_metadata = |errno| Committed::Failed(failed(Operation::SetMetadata, errno));
        let Ready { item, temporary, .. } = &ready;
        let stat = fstat(&temporary.file).map_err(of_metadata)?;
        let directory_gives_acl = || {
            item.directory.as_ref().is_some_and(|directory| {
                *directory.has_default_acl.get_or_init(|| has_default_acl(&temporary.directory))
            })
        };
        // One that an earlier attempt made has what its directory gave then.
        let inherits_acl =
            self.options.xattrs && (item.goes_on.get().is_some() || directory_gives_acl());
        apply(&temporary.file, &stat, &item.metadata, &self.options, inherits_acl)
            .map_err(of_metadata)?;
        Ok(ready)
    }

    fn make_durable<'a>(&self, ready: Ready<'a>) -> Result<Ready<'a>, Committed> {
        fsync(&ready.temporary.file)
            .map_err(|errno| Committed::Failed(failed(Operation::Sync, errno)))?;
        if let Some(records) = ready.verify {
            let bad = self.read_back(&ready.temporary, records).map_err(Committed::Failed)?;
            if !bad.is_empty() {
                return Err(Committed::Bad(bad));
            }
        }
        Ok(ready)
    }

    fn rename<'a>(&self, ready: Ready<'a>) -> Result<Ready<'a>, Committed> {
        let Temporary { directory, name, .. } = &*ready.temporary;
        renameat(directory, name.as_str(), directory, ready.item.name.as_slice())
            .map_err(|errno| Committed::Failed(failed(Operation::Rename, errno)))?;
        self.place().journal.forget(&ready.item.path());
        Ok(ready)
    }

    /// Reads a file back from storage, past the page cache; says which blocks are not what was
    /// written.
    fn read_back(
        &self,
        temporary: &Temporary,
        records: &[BlockRecord],
    ) -> Result<Vec<BlockRecord>, Failure> {
        let of_verify = |errno| failed(Operation::Verify, errno);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = temporary.name.as_str();
        let direct = openat(&temporary.directory, name, flags | OFlags::DIRECT, Mode::empty());
        let mut buffer = self.arena.take();
        let mut bad = Vec::new();
        for record in records {
            let length = record.length as usize;
            let is_aligned = record.offset.is_multiple_of(PAGE_BYTES);
            let read = match &direct {
                Ok(direct) if is_aligned => {
                    let room = length.next_multiple_of(4096);
                    read_exactly(direct, &mut buffer[..room], record.offset, length)
                }
                _ => self.read_evicted(temporary, record, &mut buffer[..length]),
            };
            read.map_err(of_verify)?;
            if XxHash3_64::oneshot(&buffer[..length]) != record.checksum {
                bad.push(*record);
            }
        }
        Ok(bad)
    }

    /// Reads through the page cache after proving that it does not hold the block.
    fn read_evicted(
        &self,
        temporary: &Temporary,
        record: &BlockRecord,
        to: &mut [u8],
    ) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = temporary.name.as_str();
        let file = openat(&temporary.directory, name, flags, Mode::empty())?;
        let start = record.offset / PAGE_BYTES * PAGE_BYTES;
        let length = record.offset + u64::from(record.length) - start;
        let length_of_range = std::num::NonZeroU64::new(length);
        fadvise(&file, start, length_of_range, Advice::DontNeed)?;
        let length = usize::try_from(length).map_err(|_| Errno::OVERFLOW)?;
        let resident = lads_sys::resident_bytes(&file, start, length);
        if resident.map_err(|_| Errno::OPNOTSUPP)? > 0 {
            // It would be read from memory: that proves nothing.
            return Err(Errno::OPNOTSUPP);
        }
        let length = to.len();
        read_exactly(&file, to, record.offset, length)
    }

    /// Sets the metadata of directories in which everything has ended, and makes them durable.
    pub(super) fn close_all(&self, entries: &[EntryId]) {
        let results = entries
            .iter()
            .map(|&entry| {
                let item = self.table.remove(entry);
                let failure = item.and_then(|item| self.close_directory(&item).err());
                (entry, failure)
            })
            .collect();
        self.tell(Event::Closed(results));
    }

    fn close_directory(&self, item: &Item) -> Result<(), Failure> {
        if self.options.dry_run {
            return Ok(());
        }
        let Some(own) = &item.own else { return Ok(()) };
        let handle = own.open().map_err(|errno| failed(Operation::SetMetadata, errno))?;
        if item.name == b"." {
            // The journal still lies in it: its time of change is set when that has gone.
            let mut place =
                self.place().root_metadata.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(item.metadata.clone());
        }
        let of_metadata = |errno| failed(Operation::SetMetadata, errno);
        let stat = fstat(&*handle).map_err(of_metadata)?;
        apply(&handle, &stat, &item.metadata, &self.options, true).map_err(of_metadata)?;
        fsync(&*handle).map_err(|errno| failed(Operation::Sync, errno))
    }

    /// Removes the journal and makes the root durable: the last step of all.
    pub(super) fn finish(&self) {
        if !self.options.dry_run
            && let Err(failure) = self.finish_root()
        {
            self.board.issue(self.target.clone(), failure);
        }
        self.tell(Event::Finished);
        self.hub.nudge();
    }

    fn finish_root(&self) -> Result<(), Failure> {
        let place = self.place();
        let failed_to = |errno| {
            Failure::new(Side::Sink, Operation::Journal, Reason::Os(Errno::raw_os_error(errno)))
        };
        place.journal.finish(|path| self.remove_left_over(path)).map_err(failed_to)?;
        let handle = place.root.open().map_err(failed_to)?;
        let metadata = place.root_metadata.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(metadata) = metadata {
            let stat = fstat(&*handle).map_err(failed_to)?;
            apply(&handle, &stat, &metadata, &self.options, true).map_err(failed_to)?;
        }
        fsync(&*handle).map_err(failed_to)
    }

    /// What an earlier attempt began and this one did not come to: its source is gone. Its
    /// directory has its metadata by now, and keeps its time of change.
    fn remove_left_over(&self, path: &[u8]) {
        let place = self.place();
        let name = place.journal.temporary_name(path);
        if let Ok((directory, _)) = crate::paths::parent_of(&place.root, path)
            && statat(&directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok()
            && let Ok(stat) = fstat(&directory)
            && unlinkat(&directory, name.as_str(), AtFlags::empty()).is_ok()
            && self.options.times
        {
            let _ = set_mtime(&directory, mtime_of(&stat));
        }
    }
}

/// Those that go on; the others have ended.
fn sift<'a>(
    outcomes: impl Iterator<Item = (EntryId, Result<Ready<'a>, Committed>)>,
    ended: &mut Vec<(EntryId, Committed)>,
) -> Vec<Ready<'a>> {
    let go_on = outcomes.filter_map(|(entry, outcome)| match outcome {
        Ok(ready) => Some(ready),
        Err(committed) => {
            ended.push((entry, committed));
            None
        }
    });
    go_on.collect()
}

/// Makes the directories durable in which files were renamed; says which could not be.
fn sync_directories(renamed: &[Ready<'_>]) -> Vec<(i32, Errno)> {
    let mut directories: Vec<&Arc<OwnedFd>> =
        renamed.iter().map(|ready| &ready.temporary.directory).collect();
    directories.sort_by_key(|directory| directory.as_raw_fd());
    directories.dedup_by_key(|directory| directory.as_raw_fd());
    directories
        .into_iter()
        .filter_map(|directory| Some((directory.as_raw_fd(), fsync(directory).err()?)))
        .collect()
}

fn read_exactly(file: &OwnedFd, to: &mut [u8], offset: u64, length: usize) -> Result<(), Errno> {
    let mut filled = 0;
    while filled < length {
        match pread(file, &mut to[filled..], offset + filled as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
