//! What is kept of what was read, what is read ahead, and the local disk for both.

use super::{After, Inner, Link};
use crate::remote::client::{ReadBytes, RemoteError, Target};
use crate::slots::SlotFile;
use crate::stage::open_unnamed;
use lads_core::remote::message::{
    CLIENT_READS_MAX, Call, FRAME_BYTES, FileNumber, Outcome, ViewNumber,
};
use lads_core::remote::policy::LOOK_INTERVAL;
use lads_core::remote::reading::{ChunkBytes, Found, Load, Prefetch, Save};
use lads_sys::Buffer;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;
use twox_hash::XxHash3_64;

use crate::board::lock;

/// Buffers beside those of chunks and of reads in flight: one that is being put on the disk, and
/// one that comes back from there.
pub(super) const MOVING_BUFFERS: u32 = 2;

/// Bytes that a program wants, of one chunk.
pub(in crate::remote::client) struct Wanted {
    pub(in crate::remote::client) file: FileNumber,
    pub(in crate::remote::client) view: ViewNumber,
    pub(in crate::remote::client) positions: Range<u64>,
}

/// The file on the local disk, for one thread at a time to read from.
#[derive(Debug)]
pub(super) struct ReadCache {
    file: SlotFile,
    loading: Mutex<()>,
}

/// The buffer of a chunk.
#[derive(Clone, Debug)]
pub(in crate::remote::client) struct ReadBuffer(Arc<Buffer>);

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl ChunkBytes for ReadBuffer {
    fn take_in(&mut self, from: &Self, part: Range<usize>) -> bool {
        let Some(buffer) = Arc::get_mut(&mut self.0) else { return false };
        buffer[part.clone()].copy_from_slice(&from[part]);
        true
    }
}

impl ReadCache {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let file = open_unnamed(directory).map_err(|error| {
            let place = directory.display();
            io::Error::other(format!("cannot cache read data in {place} (rfs_cache_dir): {error}"))
        })?;
        Ok(Self { file: SlotFile::new(file, FRAME_BYTES), loading: Mutex::new(()) })
    }
}

impl Link {
    /// How many bytes were read ahead, and how many were not asked for again.
    pub(in crate::remote::client) fn read_bytes(&self) -> ReadBytes {
        self.lock().read_bytes
    }

    /// A view is set: from now on its file is read through it.
    pub(in crate::remote::client) fn begin_view(&self, target: &Arc<Target>, prefetch: Prefetch) {
        let mut inner = self.lock();
        inner.reading.begin_view(target.file, prefetch);
        let is_same = |it: &Arc<Target>| it.path == target.path && it.file != target.file;
        inner.has_doubles |= inner.targets.values().any(is_same);
        inner.targets.insert(target.file, Arc::clone(target));
        drop(inner);
        self.changed.notify_all();
    }

    /// The view of a file is about to end: nothing more is read ahead through it.
    pub(in crate::remote::client) fn end_view(&self, file: FileNumber) {
        let mut inner = self.lock();
        inner.targets.remove(&file);
        inner.reading.forget(file);
    }

    /// A file is about to be closed.
    pub(in crate::remote::client) fn end_file(&self, file: FileNumber) {
        self.end_view(file);
        self.lock().reading.close(file);
    }

    pub(in crate::remote::client) fn set_prefetch(&self, file: FileNumber, prefetch: Prefetch) {
        self.lock().reading.set_prefetch(file, prefetch);
        self.changed.notify_all();
    }

    /// Forgets what was read of a file, under whatever number it is open here: it may be seen
    /// otherwise from now on.
    pub(in crate::remote::client) fn forget_read(&self, file: FileNumber) {
        let mut inner = self.lock();
        inner.reading.forget(file);
        inner.forget_others(file);
    }

    /// The program writes to these positions.
    pub(in crate::remote::client) fn on_write(&self, file: FileNumber, positions: &Range<u64>) {
        let mut inner = self.lock();
        inner.reading.on_write(file, positions);
        inner.forget_others(file);
    }

    /// The program reads, and what it wrote before is in the outbox. Returns how often the file was
    /// changed.
    pub(in crate::remote::client) fn begin_reading(
        &self,
        file: FileNumber,
        positions: &Range<u64>,
    ) -> u64 {
        let mut inner = self.lock();
        let changes = inner.reading.begin(file, positions);
        inner.asking += 1;
        changes
    }

    /// Nothing more is asked for in a read: what comes next may be asked for ahead.
    pub(in crate::remote::client) fn end_asking(&self) {
        self.lock().asking -= 1;
        self.changed.notify_all();
    }

    pub(in crate::remote::client) fn find(
        &self,
        file: FileNumber,
        positions: &Range<u64>,
    ) -> Found<ReadBuffer> {
        self.lock().reading.find(file, positions)
    }

    /// Bytes were there.
    pub(in crate::remote::client) fn on_cached(&self, count: usize) {
        self.lock().read_bytes.kept += count as u64;
    }

    /// Asks for bytes, and will wait for them. Returns the number of the request, and whether all
    /// that was written to the file before is known to be written.
    pub(in crate::remote::client) fn ask_to_read(
        &self,
        after: &After,
        wanted: Wanted,
        changes: u64,
    ) -> (u64, bool) {
        let mut inner = self.wait_until_sent(after);
        let Wanted { file, view, positions } = wanted;
        let number = inner.requests;
        let is_all_written = !inner.outbox.is_unwritten(file);
        inner.reading.fetch(number, file, &positions, changes);
        (self.request_with(inner, true, read_call(view, &positions), None), is_all_written)
    }

    /// Waits until what somebody else has asked for has come.
    pub(in crate::remote::client) fn wait_until_come(
        &self,
        number: u64,
    ) -> Result<(), RemoteError> {
        // While this waits, one more may be read ahead.
        self.changed.notify_all();
        let is_coming = |inner: &mut Inner| inner.lost.is_none() && inner.reading.is_coming(number);
        let inner = self.changed.wait_while(self.lock(), is_coming);
        let inner = inner.unwrap_or_else(PoisonError::into_inner);
        if inner.lost.is_some() { self.outlived(inner) } else { Ok(()) }
    }

    /// Reads ahead what there is a place for.
    pub(super) fn go_ahead(&self) {
        loop {
            let mut inner = self.lock();
            let Some((target, positions)) = inner.next_ahead() else { return };
            let number = inner.requests;
            inner.reading.fetch_ahead(number, target.file, &positions);
            inner.reads += 1;
            self.request_with(inner, true, read_call(target.view, &positions), None);
        }
    }

    /// Bytes that were asked for have come.
    pub(super) fn on_bytes(&self, number: u64, mut buffer: Buffer, count: usize) {
        let place = self.lock().reading.place_of(number).unwrap_or(0);
        if place > 0 {
            buffer.copy_within(..count, place);
        }
        let mut buffer = ReadBuffer(Arc::new(buffer));
        let mut inner = self.lock();
        inner.done_at = Instant::now();
        let is_ahead = inner.reading.is_ahead(number);
        inner.reading.on_fetched(number, count as u64, Some(&mut buffer));
        if is_ahead {
            inner.read_bytes.ahead += count as u64;
            inner.end_ahead(number);
        } else if let Some(waiting) = inner.waiting.get_mut(&number) {
            waiting.bytes = Some((buffer, place..place + count));
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// Brings a chunk back from the disk. `None` if that has failed.
    pub(in crate::remote::client) fn load(&self, load: Load) -> Option<ReadBuffer> {
        let cache = self.read_cache.as_ref().expect("it was put there");
        let _one = lock(&cache.loading);
        let mut buffer = self.for_reading.take();
        let length = load.length as usize;
        let read = cache.file.read(load.slot, &mut buffer, length);
        let is_whole = || XxHash3_64::oneshot(&buffer[..length]) == load.checksum;
        let is_read = read.is_ok() && is_whole();
        let mut buffer = is_read.then(|| ReadBuffer(Arc::new(buffer)));
        self.lock().reading.on_loaded(load, buffer.as_mut());
        buffer
    }

    /// Puts chunks on the disk until the connection is lost.
    pub(super) fn save(link: &Weak<Self>) {
        loop {
            let Some(link) = link.upgrade() else { return };
            if link.is_lost() {
                return;
            }
            let Some(save) = link.next_save() else { continue };
            let cache = link.read_cache.as_ref().expect("this thread is there for it");
            let length = save.length as usize;
            let written = cache.file.write(save.slot, &save.bytes, length);
            let checksum = written.is_ok().then(|| XxHash3_64::oneshot(&save.bytes[..length]));
            link.lock().reading.on_saved(save, checksum);
        }
    }

    /// A chunk for the disk. `None` after a while without one.
    fn next_save(&self) -> Option<Save<ReadBuffer>> {
        let mut inner = self.lock();
        if let Some(save) = inner.reading.next_save() {
            return Some(save);
        }
        drop(self.changed.wait_timeout(inner, LOOK_INTERVAL));
        None
    }
}

impl Inner {
    /// What is read ahead next. Nothing is while somebody wants to ask for what it waits for.
    pub(super) fn next_ahead(&self) -> Option<(Arc<Target>, Range<u64>)> {
        if self.asking > 0 || self.reads >= CLIENT_READS_MAX || self.lost.is_some() {
            return None;
        }
        let (file, positions) = self.reading.next_ahead(|file, positions| {
            let reach = self.targets.get(&file).map(|it| it.shape.reach(positions));
            // After what the program has written there: a frame sent later might overtake it.
            reach.is_some_and(|reach| {
                let is_unsent = self.outbox.is_unsent_in(file, &reach, self.outbox.count());
                !reach.is_empty() && !is_unsent
            })
        })?;
        Some((self.targets.get(&file).map(Arc::clone)?, positions))
    }

    /// Something that was read ahead has come, or does not come.
    fn end_ahead(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.reads -= 1;
    }

    /// A request that reads has failed, or nothing was there.
    pub(super) fn on_nothing_read(&mut self, number: u64, outcome: Outcome) {
        if matches!(outcome, Outcome::Number(count) if count > 0) {
            return;
        }
        let is_ahead = self.reading.is_ahead(number);
        self.reading.on_fetched(number, 0, None);
        if is_ahead {
            self.end_ahead(number);
        }
    }

    /// Forgets what was read of the same file under other numbers.
    fn forget_others(&mut self, file: FileNumber) {
        self.has_doubles &= self.targets.len() > 1;
        if !self.has_doubles {
            return;
        }
        let Some(target) = self.targets.get(&file) else { return };
        let others = self.targets.values().filter(|it| it.path == target.path && it.file != file);
        let others: Vec<_> = others.map(|it| it.file).collect();
        others.into_iter().for_each(|other| self.reading.forget(other));
    }
}

fn read_call(view: ViewNumber, positions: &Range<u64>) -> Call {
    let length = u32::try_from(positions.end - positions.start).expect("a chunk is shorter");
    Call::Read { view, position: positions.start, length }
}
