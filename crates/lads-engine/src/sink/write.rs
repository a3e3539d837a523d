//! From a buffer to the temporary file, and from there onto record.

use super::table::{FileState, Item, KeptOpen, Temporary};
use super::{Instead, SinkEnd, failed, journal_failed};
use crate::board::lock;
use crate::caching::{Caching, Flag, drop_written, write_all_uncached};
use crate::deeds::Subject;
use crate::job::{DIRECT_BYTES_MIN, IoMode};
use crate::journal::{Durable, Own};
use crate::paths::{remove_left_over, reopen};
use crate::stat::identity_of;
use crate::whole::write_all;
use lads_core::entry::Identity;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::sink::{Discard, Event, Place, SyncFile, Write};
use lads_core::units::{Block, EntryId, OstId};
use rustix::fs::{
    AtFlags, FallocateFlags, Mode, OFlags, Stat, fallocate, fdatasync, fstat, ftruncate, openat,
    unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

/// Direct I/O wants places in memory and in the file to be multiples of this.
pub(super) const PAGE_BYTES: usize = 4096;

impl SinkEnd {
    /// Writes a frame and frees its buffer. Returns the event for the session.
    pub(super) fn write_queued(&self, write: Write) -> Option<Event> {
        if write.is_comparison {
            return self.compare_queued(write);
        }
        if let Some(output) = self.output_in_order() {
            let buffer = self.bytes_of(&write)?;
            output.hold(write, buffer);
            return None;
        }
        // Others may wait for its extents, whatever becomes of the bytes.
        let grown = self.grow(&write);
        let buffer = self.bytes_of(&write)?;
        let started = Instant::now();
        self.layouts.pretend(write.ost);
        let failures: Vec<Option<Failure>> = write
            .rows
            .iter()
            .map(|(row, place)| {
                let block = row.block;
                let bytes = &buffer[*place as usize..][..block.length as usize];
                grown
                    .and_then(|()| self.write_block(&block, write.ost, bytes))
                    .err()
                    .map(|failure| failure.of_block(block.offset, block.length, write.ost))
            })
            .collect();
        let service = started.elapsed();
        drop(buffer);
        if failures.iter().flatten().any(Failure::is_of_one_ost) {
            self.look_again_at_osts();
        }
        Some(Event::Written { write, service, failures })
    }

    /// Frees the buffers of frames of which nothing is wanted any more.
    pub(super) fn release_all(&self, writes: Vec<Write>) {
        for write in &writes {
            if let Place::Buffer(id) = write.place {
                drop(self.take_buffer(id));
            }
        }
        self.tell_last(Event::Released(writes));
    }

    fn write_block(&self, block: &Block, ost: OstId, bytes: &[u8]) -> Result<(), Failure> {
        // The entry has ended meanwhile, and the session ignores the result.
        let Some(item) = self.table.get(block.entry) else { return Ok(()) };
        if let Some(Instead::Null) = self.instead {
            return Ok(());
        }
        let _asked = self.begin_call(Operation::Write, block.entry, Some(ost));
        if let Some(Instead::Output(output)) = &self.instead {
            let written = output.write_at(bytes, block.offset);
            return written.map_err(|errno| failed(Operation::Write, errno));
        }
        let temporary = self.temporary(&item)?;
        let offset = block.offset;
        let flag =
            write_to(&temporary, bytes, offset).map_err(|errno| failed(Operation::Write, errno))?;
        if flag == Flag::Unknown {
            self.notice_fallback("uncached I/O: written data is dropped from the page cache");
        }
        self.io_bytes.count(temporary.caching, bytes.len() as u64);
        if self.layouts.starts_writeback() && temporary.caching != Caching::Direct {
            // Only a head start, as in `begin_sync`.
            let _ = lads_sys::start_writeback_of(&temporary.file, offset..block.end());
        }
        Ok(())
    }

    /// The item's temporary file, made when first needed.
    pub(super) fn temporary(&self, item: &Item) -> Result<Arc<Temporary>, Failure> {
        let mut state = item.temporary.lock().unwrap_or_else(PoisonError::into_inner);
        let made = match &mut *state {
            FileState::Open(temporary) => return Ok(Arc::clone(temporary)),
            FileState::Dropped => return Err(failed(Operation::Create, Errno::STALE)),
            FileState::Unopened => None,
            FileState::Made(kept) => Some(kept.take()),
        };
        let parent = item
            .directory
            .as_ref()
            .ok_or_else(|| Failure::new(Side::Sink, Operation::Create, Reason::ParentFailed))?;
        let directory = parent.open().map_err(|errno| failed(Operation::Create, errno))?;
        let unnamed = match made {
            None => self.make_unnamed(item, &directory),
            Some(_) => Ok(None),
        };
        let opened = unnamed.and_then(|unnamed| match unnamed {
            Some((file, opened_as)) => Ok((file, opened_as, None)),
            None => {
                let name = self.place().journal.temporary_name(&item.path());
                let (file, opened_as) = self.open_named(item, &directory, &name, made)?;
                Ok((file, opened_as, Some(name)))
            }
        });
        let (file, opened_as, name) = opened.map_err(|errno| failed(Operation::Create, errno))?;
        let size = item.known_size();
        self.reserve(item, &file, size).map_err(|errno| {
            if let Some(name) = &name
                && item.goes_on.get().is_none()
            {
                // No other thread knows of it yet, so it must be removed here.
                let _ = unlinkat(&directory, name.as_str(), AtFlags::empty());
            }
            failed(Operation::Preallocate, errno)
        })?;
        let (file, caching) = match self.open_direct(&file, &directory, name.as_deref(), size) {
            Some(direct) => (direct, Caching::Direct),
            None => (file, Caching::within(self.options.sink_io)),
        };
        let temporary = Arc::new(Temporary { directory, name, file, opened_as, caching });
        *state = FileState::Open(Arc::clone(&temporary));
        Ok(temporary)
    }

    /// Opens the file under the temporary name of an item, or makes it. `made` says whether it was
    /// made to see where it would lie, and has the file if that is still open.
    fn open_named(
        &self,
        item: &Item,
        directory: &OwnedFd,
        name: &str,
        made: Option<Option<KeptOpen>>,
    ) -> Result<(OwnedFd, Stat), Errno> {
        let own = self.place().journal.own();
        let size_max = if item.is_unsized() { u64::MAX } else { item.known_size() };
        let file = match made {
            // Its blocks were counted as done, so no new file can take its place.
            _ if item.goes_on.get().is_some() => {
                reopen_temporary(directory, name, size_max, own).ok_or(Errno::STALE)?
            }
            Some(Some(kept)) => kept.file,
            // It is empty, or has its full length already so that all its parts have a place.
            Some(None) => reopen_temporary(directory, name, size_max, own)
                .map_or_else(|| create_temporary(directory, name, own), Ok)?,
            None => create_temporary(directory, name, own)?,
        };
        let opened_as = fstat(&file)?;
        Ok((file, opened_as))
    }

    /// Gives a file that arrives in pieces its length, and its space if it has no holes; one that
    /// is written in one go needs neither.
    fn reserve(&self, item: &Item, file: &OwnedFd, size: u64) -> Result<(), Errno> {
        // A growing file has no space yet for the extents to come.
        if size == 0 || item.growing.get().is_some() {
            return Ok(());
        }
        let is_in_pieces = size > u64::from(self.options.block_size);
        let is_wanted = self.options.preallocate && !self.layouts.is_memory();
        if is_wanted && item.is_dense && is_in_pieces {
            match fallocate(file, FallocateFlags::empty(), 0, size) {
                // Reserving is optional: a file system without it works as well.
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                result => return result,
            }
        }
        if is_in_pieces || !item.is_dense {
            ftruncate(file, size)?;
        }
        Ok(())
    }

    /// The same file, to be written bypassing the page cache, if it is large enough and that can
    /// be.
    fn open_direct(
        &self,
        file: &OwnedFd,
        directory: &OwnedFd,
        name: Option<&str>,
        size: u64,
    ) -> Option<OwnedFd> {
        let is_wanted = match self.options.sink_io {
            IoMode::Direct => true,
            IoMode::Auto => size >= DIRECT_BYTES_MIN && self.layouts.prefers_direct_writes(),
            IoMode::Buffered | IoMode::Uncached => false,
        };
        if !is_wanted {
            return None;
        }
        let direct = reopen(file, directory, name, OFlags::RDWR | OFlags::DIRECT).ok();
        let is_asked_for = self.options.sink_io == IoMode::Direct;
        if direct.is_none() && is_asked_for {
            self.notice_fallback("direct I/O: writing through the page cache");
        }
        direct
    }

    /// Tells once what the file system does not take, and what is done instead.
    pub(super) fn notice_fallback(&self, what: &str) {
        if !self.has_noticed_fallback.swap(true, Ordering::Relaxed) {
            self.board.notice(format!("the sink file system does not support {what}"));
        }
    }

    /// Makes data durable, then puts it on record, durable too.
    pub(super) fn sync_files(&self, files: Vec<SyncFile>) {
        files.iter().for_each(|file| self.begin_sync(file.entry));
        let (mut results, mut parts) = (Vec::new(), Vec::new());
        for file in files {
            let (part, failure) = match self.sync_data(file.entry) {
                Ok(part) => (part, None),
                Err(failure) => (None, Some(failure)),
            };
            results.push((file, failure));
            parts.push(part);
        }
        let mut records = Vec::with_capacity(results.len());
        for ((file, _), part) in results.iter().zip(parts) {
            if let Some(item) = self.table.get(file.entry)
                && let Some((identity, part)) = item.identity.zip(part)
            {
                records.push(Durable { path: item.path(), identity, part, blocks: &file.blocks });
            }
        }
        let asked = self.hub.deeds.begin(Operation::Journal, Subject::Target, None);
        let recorded = self.place().journal.record(&records);
        drop(asked);
        drop(records);
        if let Err(error) = recorded {
            let failure = journal_failed(&error);
            for (_, result) in &mut results {
                result.get_or_insert(failure);
            }
        }
        self.tell_last(Event::Synced(results));
    }

    /// Lets storage begin to write what is in the page cache: files that lie on several OSTs are
    /// written side by side then, not one after the other.
    fn begin_sync(&self, entry: EntryId) {
        let _asked = self.begin_call(Operation::Sync, entry, None);
        if let Some(item) = self.table.get(entry)
            && let Ok(temporary) = self.temporary(&item)
            && temporary.caching != Caching::Direct
            && !self.layouts.is_memory()
        {
            // Only a head start. If it fails, the sync writes everything.
            let _ = lads_sys::start_writeback(&temporary.file);
        }
    }

    /// Makes the data of a file durable. Returns the status of the file, if it is still wanted. A
    /// write in flight may change that status; then the next attempt compares the blocks.
    fn sync_data(&self, entry: EntryId) -> Result<Option<Identity>, Failure> {
        let Some(item) = self.table.get(entry) else { return Ok(None) };
        let _asked = self.begin_call(Operation::Sync, entry, None);
        let temporary = self.temporary(&item)?;
        fdatasync(&temporary.file)
            .inspect(|()| temporary.on_synced())
            .and_then(|()| fstat(&temporary.file))
            .map(|stat| Some(identity_of(&stat)))
            .map_err(|errno| failed(Operation::Sync, errno))
    }

    /// Drops what there is of files; what the journal has for another attempt may be kept.
    pub(super) fn discard_all(&self, discards: &[Discard]) {
        for Discard { entry, is_kept, failure } in discards {
            let Some(item) = self.table.remove(*entry) else { continue };
            if let Some(growing) = item.growing.get() {
                growing.close(failed(Operation::Preallocate, Errno::STALE));
            }
            if let Some(failure) = failure {
                self.tell_failure(&item, *failure);
            }
            if !is_kept {
                let directory = item.directory.clone();
                let subject = directory.map_or(Subject::Target, Subject::In);
                let _asked = self.hub.deeds.begin(Operation::Create, subject, None);
                self.discard(&item);
            }
        }
        self.tell(Event::Discarded(discards.iter().map(|discard| discard.entry).collect()));
    }

    fn discard(&self, item: &Item) {
        if item.compared.get().is_some() {
            // Nothing was made of it.
            return;
        }
        self.place().journal.forget_dropped(&item.path());
        let state = item.temporary.lock().unwrap_or_else(PoisonError::into_inner).end();
        match state {
            // If it cannot be removed, it stays under a temporary name; the next run removes it.
            FileState::Open(temporary) => {
                if let Some(name) = &temporary.name {
                    let _ = unlinkat(&temporary.directory, name.as_str(), AtFlags::empty());
                }
            }
            FileState::Made(_) => self.remove_made(item),
            FileState::Unopened | FileState::Dropped => {}
        }
        item.claim.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Removes a file that was made to see where it would lie, and never came to be written.
    fn remove_made(&self, item: &Item) {
        if let Some(directory) = item.directory.as_ref().and_then(|it| it.open().ok()) {
            let name = self.place().journal.temporary_name(&item.path());
            let _ = unlinkat(&directory, name, AtFlags::empty());
        }
    }
}

impl Drop for SinkEnd {
    /// Files that no block came for would be made again by another attempt.
    fn drop(&mut self) {
        for item in self.table.take_all() {
            if let FileState::Made(_) = lock(&item.temporary).end() {
                self.remove_made(&item);
            }
        }
    }
}

/// Opens what an earlier attempt left under the temporary name, if it is ours alone and no longer
/// than it should be; one that grows is as long as what was written of it.
pub(super) fn reopen_temporary(
    directory: &OwnedFd,
    name: &str,
    size: u64,
    own: &Own,
) -> Option<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(directory, name, flags, Mode::empty()).ok()?;
    let stat = fstat(&file).ok()?;
    let is_no_longer = u64::try_from(stat.st_size).is_ok_and(|found| found <= size);
    (is_no_longer && own.difference(&stat).is_none()).then_some(file)
}

/// Makes a new file that only we can read until it has its own mode. What an earlier attempt left
/// under its name may have data where there are holes now.
fn create_temporary(directory: &OwnedFd, name: &str, own: &Own) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(directory, name, flags, mode) {
        Err(Errno::EXIST) => {
            remove_left_over(directory, name, own.uid)?;
            openat(directory, name, flags, mode)
        }
        result => result,
    }
}

impl Temporary {
    /// All that was written so far is on storage.
    pub(super) fn on_synced(&self) {
        if self.caching == Caching::Uncached {
            drop_written(&self.file);
        }
    }
}

/// Writes a block. Bytes that cannot bypass the page cache go through it, by a second
/// descriptor.
fn write_to(temporary: &Temporary, bytes: &[u8], offset: u64) -> Result<Flag, Errno> {
    let Temporary { file, directory, name, caching, .. } = temporary;
    match caching {
        Caching::Uncached => return write_all_uncached(file, bytes, offset),
        Caching::Buffered => return write_all(file, bytes, offset).map(|()| Flag::Known),
        Caching::Direct => {}
    }
    let pages_end = direct_bytes(bytes, offset);
    let (pages, rest) = bytes.split_at(pages_end);
    write_all(file, pages, offset)?;
    if rest.is_empty() {
        return Ok(Flag::Known);
    }
    let through_cache = reopen(file, directory, name.as_deref(), OFlags::WRONLY)?;
    write_all(&through_cache, rest, offset + pages_end as u64).map(|()| Flag::Known)
}

/// How many of the bytes, from the first on, can bypass the page cache: whole pages, if they
/// begin on a page in memory and in the file. Small files follow each other in a frame without a
/// gap, so all but the first may begin anywhere in memory.
fn direct_bytes(bytes: &[u8], offset: u64) -> usize {
    let is_aligned = offset.is_multiple_of(PAGE_BYTES as u64)
        && bytes.as_ptr().addr().is_multiple_of(PAGE_BYTES);
    if is_aligned { bytes.len() / PAGE_BYTES * PAGE_BYTES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Small files failed with EINVAL where direct I/O was asked for, all but the first of a frame:
    /// ext4 and XFS refuse bytes that do not begin on a page in memory.
    #[test]
    fn only_whole_pages_of_memory_and_file_go_past_the_page_cache() {
        let memory = vec![0; 4 * PAGE_BYTES];
        let page = memory.as_ptr().align_offset(PAGE_BYTES);
        let (page, next) = (&memory[page..], &memory[page + 1..]);
        assert_eq!(direct_bytes(&page[..2 * PAGE_BYTES + 1], 0), 2 * PAGE_BYTES);
        assert_eq!(direct_bytes(&page[..PAGE_BYTES - 1], 0), 0);
        assert_eq!(direct_bytes(&page[..PAGE_BYTES], 1), 0);
        assert_eq!(direct_bytes(&next[..PAGE_BYTES], 0), 0);
    }

    /// A write may be in flight while its file is dropped to be placed again, and another entry
    /// have a file of the same name by then.
    #[test]
    fn what_is_written_late_to_a_dropped_file_does_not_reach_another_of_its_name() {
        let there = tempfile::tempdir().unwrap();
        let path = there.path().join("name");
        let directory: Arc<OwnedFd> = Arc::new(fs::File::open(there.path()).unwrap().into());
        let file = create_temporary(&directory, "name", &Own::usual()).unwrap();
        let (opened_as, caching) = (fstat(&file).unwrap(), Caching::Direct);
        let name = Some("name".to_owned());
        let temporary = Temporary { directory, name, file, opened_as, caching };
        let bytes = [1; PAGE_BYTES + 1];
        write_to(&temporary, &bytes, 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), bytes);

        fs::remove_file(&path).unwrap();
        fs::write(&path, b"another").unwrap();
        write_to(&temporary, &bytes, 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
    }
}
