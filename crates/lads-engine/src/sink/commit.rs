//! The last steps of a file: metadata, durable, its own name, durable.

use super::modes::{PERMISSIONS, permissions_in};
use super::table::{Item, Temporary};
use super::{RootMetadata, SinkEnd, failed, journal_failed};
use crate::board::lock;
use crate::deeds::Subject;
use crate::metadata::{apply, has_default_acl, is_not_stored, set_mtime, usable};
use crate::paths::{NOT_THROUGH_LINKS, parent_of, remove_left_over, sync_names};
use crate::stat::mtime_of;
use lads_core::entry::Timestamp;
use lads_core::issue::{Failure, Operation};
use lads_core::journal::BlockRecord;
use lads_core::sink::{Commit, Committed, Event};
use lads_core::units::EntryId;
use rustix::fs::{FileType, Mode, fchmod, fstat, fsync, ftruncate, statat};
use rustix::io::Errno;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, PoisonError};

/// A file on its way to its name.
struct Ready<'a> {
    entry: EntryId,
    item: Arc<Item>,
    temporary: Arc<Temporary>,
    /// What to read it back against, if it is to be read back.
    verify: Option<&'a [BlockRecord]>,
    /// If it was unsized: its length in bytes, and when its data last changed.
    end: Option<(u64, Timestamp)>,
}

impl SinkEnd {
    /// Gives files their names. Each step is taken for all files before the next step, because the
    /// sync of one file often makes others durable, too: write-back is started, metadata is set,
    /// the files are synced and renamed, and their directories are synced.
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
        let asked = renamed.first().map(|it| self.begin_call(Operation::Sync, it.entry, None));
        let failures = self.sync_directories(&renamed);
        let is_move = self.options.is_move();
        drop(asked);
        for Ready { entry, item, temporary, .. } in renamed {
            let handle = temporary.directory.as_raw_fd();
            let failure = failures.iter().find(|(failed, _)| *failed == handle);
            let durable = match (failure, &item.directory) {
                (Some((_, errno)), _) => Err(*errno),
                (None, Some(directory)) if is_move => self.make_names_durable(directory),
                (None, _) => Ok(()),
            };
            let committed = match durable {
                // It stays in the table until it is discarded, and the failure is told then.
                Err(errno) => Committed::Failed(failed(Operation::Sync, errno)),
                Ok(()) => {
                    self.table.remove(entry);
                    self.count_reduced(&item);
                    Committed::Complete
                }
            };
            results.push((entry, committed));
        }
        self.tell_last(Event::Committed(results));
    }

    /// Lets storage begin to write. Before metadata: some file systems (FUSE with its cache on)
    /// write a file, and wait, when its times are set.
    fn begin<'a>(&self, commit: &'a Commit) -> Result<Ready<'a>, Committed> {
        let _asked = self.begin_call(Operation::Sync, commit.entry, None);
        let gone = || Committed::Failed(failed(Operation::Rename, Errno::NOENT));
        let item = self.table.get(commit.entry).ok_or_else(gone)?;
        if let Some(there) = item.compared.get() {
            return Err(self.keep(commit.entry, &item, there));
        }
        let temporary = self.temporary(&item).map_err(Committed::Failed)?;
        if !self.layouts.is_memory() {
            // Only a head start. If it fails, the sync writes everything.
            let _ = lads_sys::start_writeback(&temporary.file);
        }
        let Commit { entry, end, .. } = *commit;
        Ok(Ready { entry, item, temporary, verify: commit.verify.as_deref(), end })
    }

    fn dress<'a>(&self, ready: Ready<'a>) -> Result<Ready<'a>, Committed> {
        let of_metadata = |errno| Committed::Failed(failed(Operation::SetMetadata, errno));
        let _asked = self.begin_call(Operation::SetMetadata, ready.entry, None);
        let Ready { item, temporary, end, .. } = &ready;
        let mut metadata = item.metadata.clone();
        if let Some((size, mtime)) = *end {
            // It was made longer where that decides in how many parts it lies.
            ftruncate(&temporary.file, size)
                .map_err(|errno| Committed::Failed(failed(Operation::Write, errno)))?;
            metadata.mtime = mtime;
        }
        // A file that an earlier attempt made has the mode that its directory gave it then.
        let inherits_acl = self.options.xattrs
            && (item.goes_on.get().is_some() || self.inherits_acl(item, &temporary.directory));
        let (file, stat) = (&temporary.file, &temporary.opened_as);
        let mode = Some(self.mode_of_new(item, &temporary.directory));
        let reductions = apply(file, stat, &metadata, mode, &self.options, inherits_acl);
        item.reduce(reductions.map_err(of_metadata)?);
        Ok(ready)
    }

    /// Whether what is made for an item gets an ACL from its directory, which `handle` is.
    pub(super) fn inherits_acl(&self, item: &Item, handle: &OwnedFd) -> bool {
        self.options.xattrs
            && item.directory.as_ref().is_some_and(|directory| {
                *directory.has_default_acl.get_or_init(|| has_default_acl(handle))
            })
    }

    fn make_durable<'a>(&self, ready: Ready<'a>) -> Result<Ready<'a>, Committed> {
        let asked = self.begin_call(Operation::Sync, ready.entry, None);
        fsync(&ready.temporary.file)
            .map_err(|errno| Committed::Failed(failed(Operation::Sync, errno)))?;
        ready.temporary.on_synced();
        drop(asked);
        if let Some(records) = ready.verify {
            let _asked = self.begin_call(Operation::Verify, ready.entry, None);
            let bad = self.read_back(&ready.temporary, records).map_err(Committed::Failed)?;
            if !bad.is_empty() {
                return Err(Committed::Bad(bad));
            }
        }
        Ok(ready)
    }

    fn rename<'a>(&self, ready: Ready<'a>) -> Result<Ready<'a>, Committed> {
        let _asked = self.begin_call(Operation::Rename, ready.entry, None);
        let (item, journal) = (&ready.item, &self.place().journal);
        let give_name =
            || ready.temporary.give_name(&item.name, || journal.temporary_name(&item.path()));
        self.name_replacing(item, give_name).map_err(Committed::Failed)?;
        journal.forget_any(|| ready.item.path());
        Ok(ready)
    }

    /// Makes the directories durable in which files were renamed; says which could not be.
    fn sync_directories(&self, renamed: &[Ready<'_>]) -> Vec<(i32, Errno)> {
        let mut directories: Vec<&Arc<OwnedFd>> =
            renamed.iter().map(|ready| &ready.temporary.directory).collect();
        directories.sort_by_key(|directory| directory.as_raw_fd());
        directories.dedup_by_key(|directory| directory.as_raw_fd());
        let failure = |directory: &Arc<OwnedFd>| {
            Some((directory.as_raw_fd(), self.directory_syncs.sync(directory).err()?))
        };
        directories.into_iter().filter_map(failure).collect()
    }

    /// Sets the metadata of directories in which everything has ended, and makes them durable.
    pub(super) fn close_all(&self, entries: &[EntryId]) {
        let results = entries
            .iter()
            .map(|&entry| {
                let item = self.table.remove(entry);
                let directory = item.as_ref().and_then(|item| item.own.clone());
                let subject = directory.map_or(Subject::Target, Subject::In);
                let _asked = self.hub.deeds.begin(Operation::SetMetadata, subject, None);
                let failure = item.and_then(|item| match self.close_directory(entry, &item) {
                    Ok(()) => {
                        self.count_reduced(&item);
                        None
                    }
                    Err(failure) => {
                        self.tell_failure(&item, failure);
                        Some(failure)
                    }
                });
                (entry, failure)
            })
            .collect();
        self.tell_last(Event::Closed(results));
    }

    fn close_directory(&self, entry: EntryId, item: &Item) -> Result<(), Failure> {
        if self.options.check {
            return self.find_extra(entry, item);
        }
        if self.options.dry_run {
            return Ok(());
        }
        let Some(own) = &item.own else { return Ok(()) };
        let handle = match own.open() {
            Ok(handle) => handle,
            Err(errno) if self.options.passing.of_directory(errno).is_some() => return Ok(()),
            Err(errno) => return Err(failed(Operation::SetMetadata, errno)),
        };
        let of_metadata = |errno| failed(Operation::SetMetadata, errno);
        let stat = fstat(&*handle).map_err(of_metadata)?;
        let mut mode = self.mode_of_directory(item, own, &stat, &handle);
        if item.name == b"." {
            // The journal is still in it, and must be removable. Mode and time of change are set
            // when the journal is removed.
            let mut place =
                self.place().root_metadata.lock().unwrap_or_else(PoisonError::into_inner);
            *place = Some(RootMetadata { metadata: item.metadata.clone(), mode });
            mode = mode.map(|mode| usable(FileType::Directory, mode));
        }
        let reductions = apply(&*handle, &stat, &item.metadata, mode, &self.options, true);
        item.reduce(reductions.map_err(of_metadata)?);
        sync_names(&handle).map_err(|errno| failed(Operation::Sync, errno))
    }

    /// Removes the journal and makes the root durable: the last step of all.
    pub(super) fn finish(&self, is_complete: bool) {
        let asked = self.hub.deeds.begin(Operation::Journal, Subject::Target, None);
        if !self.options.dry_run
            && self.instead.is_none()
            && let Err(failure) = self.finish_root(is_complete)
        {
            self.board.issue(b".".to_vec(), failure);
        }
        drop(asked);
        self.tell(Event::Finished);
        self.hub.nudge();
    }

    /// Counts an entry that has ended well, if its metadata was reduced.
    pub(super) fn count_reduced(&self, item: &Item) {
        let reductions = item.reductions();
        if !reductions.is_empty() {
            lock(&self.reduced).add(reductions);
        }
    }

    fn finish_root(&self, is_complete: bool) -> Result<(), Failure> {
        let place = self.place();
        self.open_up_root()?;
        let journal = &place.journal;
        journal
            .finish(is_complete, |path| self.remove_left_over(path))
            .map_err(|errno| failed(Operation::Journal, errno))?;
        let handle = place.root.open().map_err(|errno| failed(Operation::Sync, errno))?;
        let metadata = place.root_metadata.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(RootMetadata { metadata, mode }) = metadata {
            // If its metadata is reduced, it was counted when the directory was closed.
            fstat(&*handle)
                .and_then(|stat| apply(&*handle, &stat, &metadata, mode, &self.options, true))
                .map_err(|errno| failed(Operation::SetMetadata, errno))?;
        }
        sync_names(&handle).map_err(|errno| failed(Operation::Sync, errno))
    }

    /// Gives a root that this job made the mode of a new directory, unless it has got that of a
    /// directory of the source; until now only this user could look inside.
    fn open_up_root(&self) -> Result<(), Failure> {
        let place = self.place();
        if !place.is_root_made {
            return Ok(());
        }
        let has_metadata =
            place.root_metadata.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        if !has_metadata {
            let open_up = || {
                let handle = place.root.open()?;
                let permissions = permissions_in(&place.root, &handle);
                let stat = fstat(&*handle)?;
                let others = stat.st_mode & !PERMISSIONS;
                match fchmod(&*handle, Mode::from_raw_mode(others | permissions)) {
                    Err(errno) if is_not_stored(errno, &stat) => Ok(()),
                    result => result,
                }
            };
            open_up().map_err(|errno| failed(Operation::SetMetadata, errno))?;
        }
        place.journal.forget_root_made().map_err(|error| journal_failed(&error))
    }

    /// Removes what an earlier attempt began and this one did not need, because its source is gone.
    /// The directory has its metadata by now, and keeps its time of change.
    pub(super) fn remove_left_over(&self, path: &[u8]) {
        let place = self.place();
        let name = place.journal.temporary_name(path);
        if let Ok((directory, _)) = parent_of(&place.root, path)
            && statat(&directory, name.as_str(), NOT_THROUGH_LINKS).is_ok()
            && let Ok(stat) = fstat(&directory)
            && remove_left_over(&directory, &name, place.journal.own().uid).is_ok()
            && self.options.times
        {
            let _ = set_mtime(&directory, mtime_of(&stat));
        }
    }
}

/// The files that go on to the next step; the others have ended.
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
