//! Files that are there already: whether they match the checksums of the source.

use super::table::Item;
use super::write::PAGE_BYTES;
use super::{SinkEnd, failed};
use crate::caching::{Caching, Flag, read_uncached};
use crate::job::{DIRECT_BYTES_MIN, IoMode, Verify};
use crate::metadata::Held;
use crate::paths::open_unnoticed;
use crate::stat::identity_of;
use crate::whole::{fill, read_at_least};
use lads_core::entry::Identity;
use lads_core::frame::Row;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::{Line, Verb};
use lads_core::sink::{Committed, Compared, Event, Examined, Place, Write};
use lads_core::units::EntryId;
use rustix::fs::{
    Advice, FileType, Mode, OFlags, Stat, fadvise, fcntl_getfl, fcntl_setfl, fstat, openat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use twox_hash::XxHash3_64;

/// A file that is there, and is compared.
#[derive(Debug)]
pub(super) struct There {
    /// Its status when it was examined. If the status changes, the comparison is void.
    identity: Identity,
    /// Open while blocks of it are compared.
    file: Mutex<Option<Arc<OpenThere>>>,
}

#[derive(Debug)]
struct OpenThere {
    handle: OwnedFd,
    caching: Caching,
}

impl SinkEnd {
    /// A file of the right size is there: says that it is to be compared, and where it lies.
    pub(super) fn begin_comparison(
        &self,
        item: &Item,
        directory: &OwnedFd,
        stat: &Stat,
    ) -> Result<Examined, Failure> {
        let identity = identity_of(stat);
        let (device, inode, size) = (stat.st_dev, stat.st_ino, identity.size);
        let name = item.name.as_slice();
        let at = crate::layout::FileAt { directory, name, device, inode, size };
        let located = self.layouts.of_file(&at);
        if located.is_archived && !self.options.restore {
            return Err(Failure::new(Side::Sink, Operation::Read, Reason::Archived));
        }
        // An entry is examined once.
        let _ = item.compared.set(There { identity, file: Mutex::default() });
        Ok(Examined::Compare { layout: located.layout })
    }

    /// Compares the blocks of a frame, and frees its buffer.
    pub(super) fn compare_queued(&self, write: Write) -> Option<Event> {
        let Place::Buffer(id) = write.place else { return None };
        let mut buffer = self.take_buffer(id)?;
        let started = Instant::now();
        self.layouts.pretend(write.ost);
        let results = write
            .rows
            .iter()
            .map(|(row, _)| {
                let block = row.block;
                let _asked = self.begin_call(Operation::Read, block.entry, Some(write.ost));
                self.compare_block(row, &mut buffer).unwrap_or_else(|failure| {
                    Compared::Failed(failure.of_block(block.offset, block.length, write.ost))
                })
            })
            .collect();
        let service = started.elapsed();
        drop(buffer);
        Some(Event::Compared { write, service, results })
    }

    fn compare_block(&self, row: &Row, buffer: &mut [u8]) -> Result<Compared, Failure> {
        // The entry has ended meanwhile, and the session ignores the result.
        let Some(item) = self.table.get(row.block.entry) else { return Ok(Compared::Same) };
        let Some(there) = item.compared.get() else { return Ok(Compared::Same) };
        let Some(file) = self.open_there(&item, there)? else { return self.changed_there() };
        let (offset, length) = (row.block.offset, row.block.length as usize);
        let read = match file.caching {
            Caching::Direct => {
                let room = length.next_multiple_of(PAGE_BYTES);
                read_at_least(&file.handle, &mut buffer[..room], offset, length)
            }
            Caching::Buffered => read_at_least(&file.handle, &mut buffer[..length], offset, length),
            Caching::Uncached => fill(&mut buffer[..length], offset, length, |to, offset| {
                self.read_uncached(&file, to, offset)
            }),
        };
        match read {
            Ok(()) if XxHash3_64::oneshot(&buffer[..length]) == row.checksum => Ok(Compared::Same),
            Ok(()) => {
                self.tell_difference(&item, Verb::OtherContents);
                Ok(Compared::Different)
            }
            Err(errno) => Err(failed(Operation::Read, errno)),
        }
    }

    fn read_uncached(&self, file: &OpenThere, to: &mut [u8], at: u64) -> Result<usize, Errno> {
        let (count, flag) = read_uncached(&file.handle, to, at)?;
        if flag == Flag::Unknown {
            self.notice_fallback("uncached I/O: read data is dropped from the page cache");
        }
        Ok(count)
    }

    /// The file, opened when it is first needed; `None` if it is not what was looked at.
    fn open_there(&self, item: &Item, there: &There) -> Result<Option<Arc<OpenThere>>, Failure> {
        let mut place = there.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*place {
            return Ok(Some(Arc::clone(file)));
        }
        let of_open = |errno| failed(Operation::Open, errno);
        let opened = self.open_as_it_is(item, there.identity.size).map_err(of_open)?;
        let stat = fstat(&opened.handle).map_err(of_open)?;
        if identity_of(&stat) != there.identity {
            return Ok(None);
        }
        if self.options.restore {
            // Lustre does not restore an archived file for a reader that must not block.
            let flags = fcntl_getfl(&opened.handle).map_err(of_open)?;
            fcntl_setfl(&opened.handle, flags - OFlags::NONBLOCK).map_err(of_open)?;
        }
        let opened = Arc::new(opened);
        *place = Some(Arc::clone(&opened));
        Ok(Some(opened))
    }

    fn open_as_it_is(&self, item: &Item, size: u64) -> Result<OpenThere, Errno> {
        let directory = item.directory.as_ref().ok_or(Errno::NOENT)?.open()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let name = item.name.as_slice();
        let open = |flags| match self.options.check {
            true => open_unnoticed(&*directory, name, flags),
            false => openat(&*directory, name, flags, Mode::empty()),
        };
        let is_asked_for =
            self.options.sink_io == IoMode::Direct || self.options.verify == Verify::Media;
        let is_large = self.options.sink_io == IoMode::Auto && size >= DIRECT_BYTES_MIN;
        if is_asked_for || is_large {
            match open(flags | OFlags::DIRECT) {
                Err(Errno::INVAL) => {}
                handle => return Ok(OpenThere { handle: handle?, caching: Caching::Direct }),
            }
        }
        let handle = open(flags)?;
        if is_asked_for {
            self.notice_fallback("direct I/O: compared data may come from the page cache");
            // Clean pages are dropped, so that most of the file is read from storage.
            let _ = fadvise(&handle, 0, None, Advice::DontNeed);
        }
        Ok(OpenThere { handle, caching: Caching::within(self.options.sink_io) })
    }

    /// Somebody else has written to the file since it was examined.
    fn changed_there(&self) -> Result<Compared, Failure> {
        if self.options.dry_run {
            return Err(Failure::new(Side::Sink, Operation::Read, Reason::Changed));
        }
        Ok(Compared::Different)
    }

    /// A file was compared and is the same: it stays, with the source's metadata.
    pub(super) fn keep(&self, entry: EntryId, item: &Item, there: &There) -> Committed {
        match self.kept(item, there) {
            Ok(true) => {
                if self.table.remove(entry).is_some() {
                    self.count_reduced(item);
                }
                Committed::Same
            }
            Ok(false) => Committed::Different,
            Err(failure) => Committed::Failed(failure),
        }
    }

    /// `false` if it cannot stay.
    fn kept(&self, item: &Item, there: &There) -> Result<bool, Failure> {
        let of_examine = |errno| failed(Operation::Examine, errno);
        let directory = item.directory.as_ref().ok_or_else(|| of_examine(Errno::NOENT))?;
        let handle = directory.open().map_err(of_examine)?;
        let held = Held::open(&handle, &item.name).map_err(of_examine)?;
        if identity_of(held.stat()) != there.identity {
            return self.changed_there().map(|_| false);
        }
        drop(there.file.lock().unwrap_or_else(PoisonError::into_inner).take());
        if self.options.dry_run {
            // A file of which no block had to be read was never opened.
            if self.differs_from(&item.metadata, &handle, &held, held.stat()) {
                self.tell_difference(item, Verb::OtherMetadata);
            }
            return Ok(true);
        }
        if !self.mend_metadata(item, &handle, held.stat())? {
            return Ok(false);
        }
        if self.options.is_move() {
            self.make_kept_durable(item).map_err(|errno| failed(Operation::Sync, errno))?;
        }
        self.clear_left_over(item, &handle);
        Ok(true)
    }

    /// Tells how source and sink differ in an entry, once, if that is what was asked for.
    pub(super) fn tell_difference(&self, item: &Item, verb: Verb) {
        if self.options.check && item.is_different.set(()).is_ok() {
            let bytes = item.identity.map_or(0, |identity| identity.size);
            let mut path = item.path();
            if item.own.is_some() && verb == Verb::OnlyAtSource {
                path.push(b'/');
            }
            self.board.line(Line { verb, path, bytes });
        }
    }
}

/// How the entry under a name differs from a file of this size at the source, as far as its status
/// shows.
pub(super) fn difference_of_file(there: Option<&Stat>, size: u64) -> Option<Verb> {
    match there {
        None => Some(Verb::OnlyAtSource),
        Some(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
            Some(Verb::OtherKind)
        }
        Some(stat) if u64::try_from(stat.st_size) != Ok(size) => Some(Verb::OtherSize),
        Some(_) => None,
    }
}
