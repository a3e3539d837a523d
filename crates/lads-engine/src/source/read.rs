//! From a block that the session hands out to a frame on a stream.
//!
//! The thread that reads a block also sends it: the bytes are still in the cache of its core, and
//! no other thread has to be woken. (Measured against a separate thread for sending:
//! docs/decisions/01-run-to-completion.md.)

use super::input::{Got, Input};
use super::instead::Instead;
use super::table::{Item, OpenFile};
use super::{SourceEnd, failed};
use crate::caching::{Caching, Flag, read_uncached};
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::{DIRECT_BYTES_MIN, IoMode};
use crate::paths::{NOT_THROUGH_LINKS, open_unnoticed};
use crate::stat::identity_of;
use crate::stream::{Payload, Sent};
use lads_core::frame::{Bound, Row, put_head};
use lads_core::issue::Operation;
use lads_core::schedule::{Way, Work};
use lads_core::source::{Event, ReadOutcome};
use lads_core::units::{Block, EntryId};
use lads_sys::Buffer;
use rustix::fs::{AtFlags, Mode, OFlags, fcntl_getfl, fcntl_setfl, fstat, openat, statat};
use rustix::io::{Errno, pread};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use twox_hash::XxHash3_64;

/// Direct I/O needs addresses and offsets that are multiples of this.
pub(super) const PAGE_BYTES: usize = 4096;

/// A block that was read.
struct ReadBlock {
    /// Whether it is the whole file, and the file was unchanged afterwards.
    is_whole: bool,
    /// How many bytes of it there are: fewer than were asked for if an unsized file ended.
    length: u32,
}

impl SourceEnd {
    /// Reads blocks from their files or from the stage, and sends or stages them.
    pub(super) fn pass_on_blocks(&self, mut work: Work, worker: usize) {
        let mut buffer = self.arena.take();
        match work.way {
            Way::Send => {
                let rows = self.read_blocks(&mut work, &mut buffer);
                if !rows.is_empty() {
                    self.send(work, &rows, &mut buffer, worker);
                }
            }
            Way::Stage(slot) => {
                let rows = self.read_blocks(&mut work, &mut buffer);
                if !rows.is_empty() {
                    self.put_aside(work, slot, rows, &buffer);
                }
            }
            Way::Drain(slot, ref mut rows) => {
                let rows = std::mem::take(rows);
                self.drain_and_send(work, slot, &rows, &mut buffer, worker);
            }
        }
    }

    /// Reads the blocks into one buffer, each on pages of its own, and tells the session. `work`
    /// keeps only the blocks that were read well, one after the other.
    fn read_blocks(&self, work: &mut Work, buffer: &mut Buffer) -> Vec<Row> {
        let started = Instant::now();
        let mut outcomes = Vec::with_capacity(work.blocks.len());
        let mut rows = Vec::with_capacity(work.blocks.len());
        let mut at = 0;
        for block in &work.blocks {
            let _asked = self.begin(Operation::Read, block.entry, Some(work.source_ost));
            let room = (block.length as usize).next_multiple_of(PAGE_BYTES);
            match self.read_block(block, work, &mut buffer[at..at + room]) {
                Ok(ReadBlock { is_whole, length }) => {
                    let checksum = XxHash3_64::oneshot(&buffer[at..at + length as usize]);
                    let block = Block { length, ..*block };
                    rows.push(Row { block, is_whole, checksum });
                    outcomes.push(ReadOutcome::Good);
                    at += (length as usize).next_multiple_of(PAGE_BYTES);
                }
                Err(outcome) => outcomes.push(outcome),
            }
        }
        let service = started.elapsed();
        self.tell(Event::Read { work: work.clone(), service, outcomes });
        work.blocks = rows.iter().map(|row| row.block).collect();
        rows
    }

    /// Sends the blocks in a buffer, which nobody needs afterwards, and tells the session.
    pub(super) fn send(&self, work: Work, rows: &[Row], buffer: &mut [u8], worker: usize) {
        let pieces: Vec<&[u8]>;
        let payload = match rows {
            [row] if !work.is_comparison => {
                Payload::Whole(&mut buffer[..row.block.length as usize])
            }
            rows => {
                let places = places(rows).filter(|_| !work.is_comparison);
                pieces = places.map(|place| &buffer[place]).collect();
                Payload::Pieces(&pieces)
            }
        };
        let bound = Bound {
            sink_ost: work.sink_ost,
            is_last_grant: work.is_last_grant,
            has_only_sums: work.is_comparison,
        };
        let head = |number| {
            let mut head = Vec::new();
            put_head(rows, number, bound, &mut head);
            head
        };
        let failure = match self.streams.send(worker, head, payload) {
            // If the stream was lost meanwhile, the sink says whether the frame has arrived.
            Ok(Sent { stream, number, failure }) => {
                self.tell_last(Event::Sent { stream, number, work });
                failure
            }
            Err(error) => {
                self.tell_last(Event::NotSent { work });
                Some(error)
            }
        };
        if let Some(error) = failure.filter(|_| self.streams.are_all_lost()) {
            let text = format!("lost all data streams: {error}; the same command resumes");
            self.hub.fail(Fatal::new(ExitCode::Network, text));
        }
    }

    /// Reads one block.
    fn read_block(
        &self,
        block: &Block,
        work: &Work,
        to: &mut [u8],
    ) -> Result<ReadBlock, ReadOutcome> {
        self.layouts.pretend(work.source_ost);
        let item = self.table.get(block.entry).ok_or(ReadOutcome::Changed)?;
        let size = item.identity.map_or(0, |identity| identity.size);
        let is_whole = block.offset == 0 && u64::from(block.length) == size;
        let read = ReadBlock { is_whole, length: block.length };
        match &self.instead {
            Some(Instead::Null(null)) => {
                null.fill(&mut to[..block.length as usize]);
                return Ok(read);
            }
            Some(Instead::Input(input)) => return self.read_input(input, block, work, to),
            None if item.is_unsized() => {
                let input = self.input_of(&item)?;
                return self.read_input(&input, block, work, to);
            }
            None => {}
        }
        let of_block = |errno| {
            let failure = failed(Operation::Read, errno);
            ReadOutcome::Failed(failure.of_block(block.offset, block.length, work.source_ost))
        };
        let file = self.open_item(&item, work.mirror, !is_whole)?;
        let length = block.length as usize;
        let outcome = self.read_at(&file, block.offset, length, to);
        if outcome.is_err() && is_whole {
            // It may not be the file that was announced.
            is_unchanged(&item, &file)?;
        }
        match outcome {
            Ok(()) => self.io_bytes.count(file.caching, length as u64),
            Err(Errno::INVAL) if file.caching == Caching::Direct => {
                let buffered = self.open_new(&item, false)?;
                self.io_bytes.count(buffered.caching, length as u64);
                let read = self.read_at(&buffered, block.offset, length, to);
                read.map_err(|errno| match errno {
                    Errno::PIPE => on_early_end(&item, &buffered),
                    errno => of_block(errno),
                })?;
            }
            Err(Errno::PIPE) => return Err(on_early_end(&item, &file)),
            // One copy cannot be read: the file system may find another one.
            Err(_) if item.copy(work.mirror).0.is_some() => {
                let any = self.open_new(&item, true)?;
                self.read_at(&any, block.offset, length, to).map_err(of_block)?;
            }
            Err(errno) => return Err(of_block(errno)),
        }
        if is_whole || item.is_checked.load(Ordering::Relaxed) {
            is_unchanged(&item, &file)?;
        }
        Ok(read)
    }

    /// Reads one block of a pipe, a device or a file that grows. If it meets the end, the session
    /// is told before it gets the block.
    fn read_input(
        &self,
        input: &Input,
        block: &Block,
        work: &Work,
        to: &mut [u8],
    ) -> Result<ReadBlock, ReadOutcome> {
        let is_stopping = || self.hub.with(|inner| inner.is_over || inner.session.is_stopping());
        let length = block.length as usize;
        let got = input.read(block.entry, block.offset, length, to, is_stopping);
        let count = match got {
            Ok(Got::Bytes(count)) => count,
            // The session asks for nothing more.
            Ok(Got::Stopped) => return Err(ReadOutcome::BeyondEnd),
            Ok(Got::Changed) => return Err(ReadOutcome::Changed),
            // A block is to be read again. Other than a pipe, a file can be read from its start.
            Err(Errno::SPIPE) if self.instead.is_none() => return Err(ReadOutcome::Changed),
            Err(errno) => {
                let failure = failed(Operation::Read, errno);
                let (offset, length) = (block.offset, block.length);
                return Err(ReadOutcome::Failed(failure.of_block(offset, length, work.source_ost)));
            }
        };
        let length = u32::try_from(count).expect("at most the length of the block");
        if length < block.length
            && let Some((size, mtime)) = input.end()
        {
            self.tell(Event::EndMet { entry: block.entry, size, mtime });
        }
        if length == 0 {
            return Err(ReadOutcome::BeyondEnd);
        }
        Ok(ReadBlock { is_whole: false, length })
    }

    /// Opens the item's file. If more of it will be read, it stays open, and is checked to be what
    /// was announced; if all of it is read at once, that is checked after that.
    fn open_item(
        &self,
        item: &Item,
        mirror: u16,
        is_kept: bool,
    ) -> Result<Arc<OpenFile>, ReadOutcome> {
        let (number, place) = item.copy(mirror);
        if !is_kept {
            return self.open_copy(item, number, false).map(Arc::new);
        }
        let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*place {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(self.open_copy(item, number, true)?);
        *place = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Opens a file, and makes reads use the chosen copy, if there is one. All copies have the same
    /// bytes.
    fn open_copy(
        &self,
        item: &Item,
        mirror: Option<u16>,
        is_checked: bool,
    ) -> Result<OpenFile, ReadOutcome> {
        let file = self.open_unchecked(item, true)?;
        // An archive may have to bring it back as soon as it is read.
        if is_checked || self.options.restore {
            self.check_opened(item, &file)?;
        }
        if let Some(number) = mirror
            && let Err(errno) = self.layouts.choose_mirror(&file.handle, number)
            && !self.has_noticed_mirrors.swap(true, Ordering::Relaxed)
        {
            let text =
                format!("the source file system does not support the choice of a copy: {errno}");
            self.board.notice(text);
        }
        Ok(file)
    }

    /// Opens a file, and checks that its identity is the announced one.
    fn open_new(&self, item: &Item, may_be_direct: bool) -> Result<OpenFile, ReadOutcome> {
        let file = self.open_unchecked(item, may_be_direct)?;
        self.check_opened(item, &file)?;
        Ok(file)
    }

    fn check_opened(&self, item: &Item, file: &OpenFile) -> Result<(), ReadOutcome> {
        is_unchanged(item, file)?;
        if self.options.restore {
            // With O_NONBLOCK, Lustre does not restore a file from an archive. The flag is cleared
            // only now: the entry is known to be a file, not a FIFO of the same name.
            let of_open = |errno| not_opened(item, errno);
            let flags = fcntl_getfl(&file.handle).map_err(of_open)?;
            fcntl_setfl(&file.handle, flags - OFlags::NONBLOCK).map_err(of_open)?;
        }
        Ok(())
    }

    fn open_unchecked(&self, item: &Item, may_be_direct: bool) -> Result<OpenFile, ReadOutcome> {
        let of_open = |errno| not_opened(item, errno);
        let directory = item.directory.open().map_err(of_open)?;
        let size = item.identity.map_or(0, |identity| identity.size);
        let wants_direct = may_be_direct
            && match self.options.source_io {
                IoMode::Direct => true,
                IoMode::Auto => size >= DIRECT_BYTES_MIN,
                IoMode::Buffered | IoMode::Uncached => false,
            };
        let flags = item.open_flags();
        let name = item.name.as_slice();
        let open = |flags| match self.options.check {
            true => open_unnoticed(&directory, name, flags),
            false => openat(&directory, name, flags, Mode::empty()),
        };
        let cached = Caching::within(self.options.source_io);
        let file = if wants_direct {
            match open(flags | OFlags::DIRECT) {
                Ok(handle) => OpenFile { handle, caching: Caching::Direct },
                Err(Errno::INVAL) => {
                    self.notice_fallback("direct I/O: reading through the page cache");
                    OpenFile { handle: open(flags).map_err(of_open)?, caching: cached }
                }
                Err(errno) => return Err(of_open(errno)),
            }
        } else {
            OpenFile { handle: open(flags).map_err(of_open)?, caching: cached }
        };
        Ok(file)
    }

    /// Reads exactly `length` bytes; `Errno::PIPE` if the file ends before.
    fn read_at(
        &self,
        file: &OpenFile,
        offset: u64,
        length: usize,
        to: &mut [u8],
    ) -> Result<(), Errno> {
        let mut filled = 0;
        while filled < length {
            // Past the page cache, whole pages must be read, even beyond the end of the file.
            let end = if file.caching == Caching::Direct { to.len() } else { length };
            match self.read_once(file, &mut to[filled..end], offset + filled as u64) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn read_once(&self, file: &OpenFile, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
        if file.caching != Caching::Uncached {
            return pread(&file.handle, to, offset);
        }
        let (count, flag) = read_uncached(&file.handle, to, offset)?;
        if flag == Flag::Unknown {
            self.notice_fallback("uncached I/O: read data is dropped from the page cache");
        }
        Ok(count)
    }

    /// Tells once what the file system does not take, and what is done instead.
    fn notice_fallback(&self, what: &str) {
        if !self.has_noticed_fallback.swap(true, Ordering::Relaxed) {
            self.board.notice(format!("the source file system does not support {what}"));
        }
    }

    /// Checks whether a file is still what was announced, after all of it was read.
    pub(super) fn check(&self, entry: EntryId) {
        let _asked = self.begin(Operation::Examine, entry, None);
        let outcome = match self.table.get(entry) {
            Some(_) if self.instead.is_some() => None,
            Some(item) if item.is_unsized() => None,
            Some(item) => {
                // Before the check, so that no block is read unnoticed after it.
                item.is_checked.store(true, Ordering::Relaxed);
                match item.take_file() {
                    Some(file) => is_unchanged(&item, &file).err(),
                    None => is_still_there(&item).err(),
                }
            }
            None => Some(ReadOutcome::Changed),
        };
        self.tell_last(Event::Checked { entry, outcome: outcome.unwrap_or(ReadOutcome::Good) });
    }
}

/// The places in a buffer of blocks that follow each other, each on pages of its own.
pub(super) fn places(rows: &[Row]) -> impl Iterator<Item = Range<usize>> + '_ {
    rows.iter().scan(0, |at, row| {
        let start = *at;
        let length = row.block.length as usize;
        *at += length.next_multiple_of(PAGE_BYTES);
        Some(start..start + length)
    })
}

/// Returns the outcome for a file that could not be opened. A symbolic link in its place is a
/// change.
pub(super) fn not_opened(item: &Item, errno: Errno) -> ReadOutcome {
    match errno {
        Errno::LOOP if !item.is_followed => ReadOutcome::Changed,
        errno => ReadOutcome::Failed(failed(Operation::Open, errno)),
    }
}

/// A file has ended before the size that was announced. If its status is still the same, that size
/// is not true, and the next attempt reads the file to its end.
fn on_early_end(item: &Item, file: &OpenFile) -> ReadOutcome {
    if is_unchanged(item, file).is_ok() {
        item.is_shorter.store(true, Ordering::Relaxed);
    }
    ReadOutcome::Changed
}

/// Compares an open file with what was announced.
fn is_unchanged(item: &Item, file: &OpenFile) -> Result<(), ReadOutcome> {
    let stat = fstat(&file.handle)
        .map_err(|errno| ReadOutcome::Failed(failed(Operation::Examine, errno)))?;
    if Some(identity_of(&stat)) == item.identity { Ok(()) } else { Err(ReadOutcome::Changed) }
}

/// The same check for a file that is not open.
fn is_still_there(item: &Item) -> Result<(), ReadOutcome> {
    let failed = |errno| ReadOutcome::Failed(failed(Operation::Examine, errno));
    let directory = item.directory.open().map_err(failed)?;
    let flags = if item.is_followed { AtFlags::empty() } else { NOT_THROUGH_LINKS };
    let stat = statat(&directory, item.name.as_slice(), flags).map_err(failed)?;
    if Some(identity_of(&stat)) == item.identity { Ok(()) } else { Err(ReadOutcome::Changed) }
}

#[cfg(test)]
mod tests {
    use super::super::look::{look, sight};
    use super::*;
    use crate::board::Board;
    use crate::clock::Clock;
    use crate::job::Options;
    use crate::paths::Directory;
    use crate::setup::Setup;
    use crate::stream::Streams;
    use lads_core::entry::UNSIZED_BYTES;
    use lads_core::units::OstId;
    use rustix::fs::{FileType, mknodat};
    use std::fs::{File, write};
    use std::time::SystemTime;

    const ENTRY: EntryId = EntryId(7);

    /// The end of a source, with a file of two blocks.
    fn end_with_file(directory: &std::path::Path) -> Arc<SourceEnd> {
        write(directory.join("file"), [1; 2 * PAGE_BYTES]).unwrap();
        let setup = Setup {
            options: Options { streams: 1, ..Options::default() },
            streams: Arc::new(Streams::none()),
            board: Arc::new(Board::new(String::new(), true)),
            clock: Clock::start(),
        };
        let path = format!("{}/", directory.display()).into_bytes();
        let end = SourceEnd::open(&[path], setup).unwrap();
        let root = Directory::root(File::open(directory).unwrap().into());
        let stat = fstat(File::open(directory.join("file")).unwrap()).unwrap();
        let item = Item::new(root, EntryId::ROOT, b"file".to_vec());
        let item = Item { identity: Some(identity_of(&stat)), ..item };
        end.table.insert([(ENTRY, Arc::new(item))]);
        end
    }

    fn reads(end: &SourceEnd, offset: u64) -> Result<(), ReadOutcome> {
        let block = Block { entry: ENTRY, offset, length: 4096 };
        let work = Work {
            way: Way::Send,
            source_ost: OstId(0),
            mirror: 0,
            sink_ost: OstId(0),
            is_last_grant: false,
            blocks: vec![block],
            is_comparison: false,
        };
        end.read_block(&block, &work, &mut [0; PAGE_BYTES]).map(|_| ())
    }

    /// The sink may have been told already that the file is the same.
    #[test]
    fn what_is_read_after_a_file_was_checked_is_checked_block_by_block() {
        let directory = tempfile::tempdir().unwrap();
        let end = end_with_file(directory.path());
        reads(&end, 0).unwrap();
        end.check(ENTRY);
        // It is opened again, and stays open.
        reads(&end, 0).unwrap();
        let file = File::options().write(true).open(directory.path().join("file")).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(reads(&end, 4096), Err(ReadOutcome::Changed));
    }

    /// A file of sysfs has a page, as its status says, and fewer bytes.
    #[test]
    fn a_file_that_is_shorter_than_its_status_says_is_read_to_its_end_the_next_time() {
        const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
        let Ok(file) = File::open(FILE) else {
            return lads_tried::not_tried("no file of sysfs can be read");
        };
        let directory = tempfile::tempdir().unwrap();
        let end = end_with_file(directory.path());
        let (above, name) = FILE.rsplit_once('/').unwrap();
        let root = Directory::root(File::open(above).unwrap().into());
        let item = Item::new(root, EntryId::ROOT, name.as_bytes().to_vec());
        let item = Item { identity: Some(identity_of(&fstat(file).unwrap())), ..item };
        end.table.insert([(ENTRY, Arc::new(item))]);
        assert_eq!(reads(&end, 0), Err(ReadOutcome::Changed));
        let item = end.table.get(ENTRY).unwrap();
        assert!(item.is_shorter.load(Ordering::Relaxed));
    }

    /// Opening a FIFO in its place would wait for a writer, and its bytes are those of no file.
    #[test]
    fn a_file_without_a_size_that_was_replaced_by_a_fifo_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let end = end_with_file(directory.path());
        let root = Directory::root(File::open(directory.path()).unwrap().into());
        mknodat(root.open().unwrap(), "fifo", FileType::Fifo, Mode::RUSR, 0).unwrap();
        let item = Item::new(root, EntryId::ROOT, b"fifo".to_vec());
        assert_eq!(end.input_of(&item).err(), Some(ReadOutcome::Changed));
    }

    #[test]
    fn a_file_that_was_shorter_than_its_status_says_is_announced_without_a_size() {
        let directory = tempfile::tempdir().unwrap();
        let end = end_with_file(directory.path());
        let item = end.table.get(ENTRY).unwrap();
        let identity = || {
            let sight = sight(&end.options, &item.directory, &item.name).unwrap();
            look(&end, &item, &sight).unwrap().unwrap().identity().unwrap()
        };
        assert_eq!(Some(identity()), item.identity);
        item.is_shorter.store(true, Ordering::Relaxed);
        assert_eq!(identity().size, UNSIZED_BYTES);
    }
}
