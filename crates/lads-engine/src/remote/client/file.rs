//! An open remote file: what a program writes is copied into buffers, and returns at once.

use super::gathered::{Gathered, run_of};
use super::link::{After, Link};
use super::reading::Source;
use super::{About, RemoteError, Target};
use crate::board::lock;
use lads_core::remote::message::{Call, FileNumber, LockKind, OpenMode, ViewNumber};
use lads_core::remote::policy::{GATHERED_RECORD_BYTES_MAX, PAST_CACHE_BYTES};
use lads_core::remote::reading::Prefetch;
use lads_core::view::{Datatype, View, ViewError};
use lads_sys::{Buffer, gather_past_cache};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

/// The filetype of a file that was just opened, as it travels: one byte.
const WHOLE: [u8; 9] = [0, 1, 0, 0, 0, 0, 0, 0, 0];

/// An open file.
#[derive(Debug)]
pub struct FileHandle {
    link: Arc<Link>,
    file: FileNumber,
    /// Its name, for messages.
    name: String,
    /// Whether it is open for writing.
    writes: bool,
    tail: Arc<Mutex<Tail>>,
    /// Number of the request that opens the file, if the open was deferred.
    deferred_open: Option<u64>,
}

/// The buffer of a file that is being filled.
#[derive(Debug)]
pub(super) struct Tail {
    target: Arc<Target>,
    filling: Option<Filling>,
    prefetch: Prefetch,
    /// How many frames of the connection there were up to the last one of this file.
    frames: u64,
}

#[derive(Debug)]
struct Filling {
    position: u64,
    length: u32,
    buffer: Buffer,
    /// Short records at places of their own, if the bytes do not follow each other in the view.
    gathered: Option<Gathered>,
}

impl Filling {
    fn is_open(&self) -> bool {
        (self.length as usize) < self.buffer.len()
    }

    /// Reports whether bytes at a position of the view follow those in the buffer.
    fn is_followed_by(&self, position: u64) -> bool {
        let is_plain = self.gathered.is_none();
        is_plain && self.is_open() && self.position + u64::from(self.length) == position
    }
}

impl Tail {
    /// Lets the buffer be sent, if there is one.
    pub(super) fn seal(&mut self, link: &Link) {
        let Some(Filling { position, length, buffer, gathered }) = self.filling.take() else {
            return;
        };
        let Some(gathered) = gathered else {
            let target = Arc::clone(&self.target);
            self.frames = link.put(About { target, position, length }, buffer);
            return;
        };
        let target = Arc::new(gathered.target(&self.target));
        let Target { file, view, displacement, ref filetype, .. } = *target;
        let filetype = filetype.clone();
        link.set_reserved_view(file, Call::View { view, file, displacement, filetype });
        self.frames = link.put(About { target, position: 0, length }, buffer);
        link.forget(file, view);
    }

    /// Adds a short record to those in the buffer that is being filled. Returns `false` if the
    /// record does not belong there.
    fn gathers(&mut self, link: &Link, positions: &Range<u64>) -> bool {
        let Some(filling) = &mut self.filling else { return false };
        let length = positions.end - positions.start;
        let room = filling.buffer.len() - filling.length as usize;
        if length > GATHERED_RECORD_BYTES_MAX || length > room as u64 {
            return false;
        }
        let shape = &self.target.shape;
        let Some(run) = run_of(shape, positions) else { return false };
        if let Some(gathered) = &mut filling.gathered {
            return gathered.add(run);
        }
        let first = filling.position..filling.position + u64::from(filling.length);
        let first = run_of(shape, &first).filter(|it| it.offset + it.length <= run.offset);
        let reserved = first.and_then(|it| Some((it, link.reserve_view(self.target.file)?)));
        let Some((first, view)) = reserved else { return false };
        filling.gathered.insert(Gathered::new(view, first)).add(run)
    }

    /// Copies bytes into buffers, until the connection is lost.
    fn write(&mut self, link: &Link, mut position: u64, length: u64, mut bytes: Gathering<'_>) {
        let end = position.saturating_add(length);
        while !bytes.is_empty() {
            let goes_on = self.filling.as_ref().is_some_and(|it| it.is_followed_by(position));
            if !goes_on && !self.gathers(link, &(position..end)) {
                self.seal(link);
                let Some(buffer) = link.buffer() else { return };
                self.filling = Some(Filling { position, length: 0, buffer, gathered: None });
                link.on_tail();
            }
            let filling = self.filling.as_mut().expect("made above");
            let room = &mut filling.buffer[filling.length as usize..];
            let copied = bytes.copy(room);
            filling.length += u32::try_from(copied).expect("a frame is shorter");
            position += copied as u64;
            if !filling.is_open() {
                self.seal(link);
            }
        }
    }
}

/// What of the memory of the program is to be copied.
struct Gathering<'a> {
    /// What is left of the piece that is copied now.
    now: &'a [u8],
    later: std::slice::Iter<'a, &'a [u8]>,
    is_long: bool,
}

impl<'a> Gathering<'a> {
    fn new(pieces: &'a [&'a [u8]], bytes: u64) -> Self {
        let is_long = bytes >= PAST_CACHE_BYTES;
        let mut it = Self { now: &[], later: pieces.iter(), is_long };
        it.skip_empty();
        it
    }

    fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    fn skip_empty(&mut self) {
        while self.now.is_empty()
            && let Some(next) = self.later.next()
        {
            self.now = next;
        }
    }

    /// Copies what there is room for. Returns how many bytes that is.
    fn copy(&mut self, room: &mut [u8]) -> usize {
        let mut left = room.len();
        let is_long = self.is_long;
        let parts = std::iter::from_fn(|| {
            let (part, rest) = self.now.split_at(self.now.len().min(left));
            self.now = rest;
            left -= part.len();
            self.skip_empty();
            (!part.is_empty()).then_some(part)
        });
        if is_long {
            return gather_past_cache(room, parts);
        }
        let mut copied = 0;
        for part in parts {
            room[copied..copied + part.len()].copy_from_slice(part);
            copied += part.len();
        }
        copied
    }
}

impl FileHandle {
    pub(super) fn open(
        link: &Arc<Link>,
        path: &[u8],
        mode: OpenMode,
        group: [u8; 16],
        defers: bool,
    ) -> Result<Self, RemoteError> {
        let file = FileNumber(link.next_number());
        let name = name_of(link, path);
        link.wait_until_closed(path);
        let call = Call::Open { file, path: path.to_vec(), mode, group };
        let asked = link.ask_to_open((file, call), &name, defers)?;
        if !defers {
            link.wait_for(asked, &name).inspect_err(|_| link.close_unopened(file))?;
        }
        let target = set(link, file, path, 0, &WHOLE, View::whole());
        let prefetch = Prefetch::default();
        link.begin_view(&target, prefetch);
        let tail = Arc::new(Mutex::new(Tail { target, filling: None, prefetch, frames: 0 }));
        link.add_tail(&tail);
        let deferred_open = defers.then_some(asked);
        Ok(Self { link: Arc::clone(link), file, name, writes: mode.writes, tail, deferred_open })
    }

    /// Sets the view: where it begins in bytes, and the filetype as it travels
    /// ([`lads_core::view::Datatype`]).
    ///
    /// # Errors
    /// If it is no view, or its filetype overlaps in a file that is open for writing. If the server
    /// has no room for it, a later call says so.
    pub fn set_view(&self, displacement: u64, filetype: &[u8]) -> Result<(), RemoteError> {
        let shape = Datatype::take(filetype).and_then(|it| View::new(displacement, &it));
        let shape = shape.and_then(|it| match self.writes && it.has_overlapping_filetype() {
            true => Err(ViewError::Overlapping),
            false => Ok(it),
        });
        let shape = shape.map_err(|error| RemoteError {
            errno: Errno::INVAL.raw_os_error(),
            text: format!("cannot set the view of {}: {error}", self.name),
        })?;
        let mut tail = self.sealed();
        if tail.target.displacement == displacement && tail.target.filetype == filetype {
            return Ok(());
        }
        let path = tail.target.path.clone();
        // First, so that nothing is read through it any more, and the server need not have room
        // for both.
        self.link.end_view(self.file);
        self.link.forget(self.file, tail.target.view);
        tail.target = set(&self.link, self.file, &path, displacement, filetype, shape);
        self.link.begin_view(&tail.target, tail.prefetch);
        Ok(())
    }

    /// Writes pieces, one after the other, from a position of the view on. It returns when they are
    /// copied.
    ///
    /// # Errors
    /// Of an earlier write, too.
    pub fn write(&self, position: u64, pieces: &[&[u8]]) -> Result<(), RemoteError> {
        self.copy(position, pieces, false)
    }

    /// The same, for a write whose end at the server is waited for next: sending does not wait
    /// until all is copied.
    ///
    /// # Errors
    /// Of an earlier write, too.
    pub fn write_awaited(&self, position: u64, pieces: &[&[u8]]) -> Result<(), RemoteError> {
        self.copy(position, pieces, true)
    }

    fn copy(&self, position: u64, pieces: &[&[u8]], is_awaited: bool) -> Result<(), RemoteError> {
        self.link.begin_write(self.file, &self.name, is_awaited)?;
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        // Nobody reads meanwhile: a read puts what was written before in order, and then what is
        // read ahead must not miss this.
        let mut tail = lock(&self.tail);
        let positions = position..position.saturating_add(length);
        self.link.on_write(self.file, &positions);
        tail.write(&self.link, position, length, Gathering::new(pieces, length));
        drop(tail);
        // It may have been lost while this waited for a buffer.
        self.link.end_write(self.file, &self.name, is_awaited, length)
    }

    /// Reads into pieces from a position of the view on. Returns how many bytes there were before
    /// the end of the file. Of what this process has written, only what has bytes of the file in
    /// common is sent before.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, position: u64, pieces: &mut [&mut [u8]]) -> Result<u64, RemoteError> {
        self.link.take_failure(self.file, &self.name)?;
        let wanted: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let positions = position..position.saturating_add(wanted);
        if positions.is_empty() {
            return Ok(0);
        }
        let tail = self.sealed();
        let reach = tail.target.shape.reach(&positions);
        let source = Source {
            link: &self.link,
            file: self.file,
            name: &self.name,
            view: tail.target.view,
            after: After::Bytes { file: self.file, reach, count: tail.frames },
            frames: tail.frames,
            changes: self.link.begin_reading(self.file, &positions),
        };
        drop(tail);
        source.read(positions, pieces)
    }

    /// From now on, what is read is kept and read ahead like this.
    pub fn set_prefetch(&self, prefetch: Prefetch) {
        let mut tail = self.sealed();
        tail.prefetch = prefetch;
        self.link.set_prefetch(self.file, prefetch);
    }

    /// Waits until all that was written is at the server, and seen by whoever reads there.
    ///
    /// # Errors
    /// If something could not be written.
    pub fn flush(&self) -> Result<(), RemoteError> {
        self.ask_anew(Call::Flush { file: self.file }).map(|_| ())
    }

    /// Waits until all that was written is durable at the server.
    ///
    /// # Errors
    /// If something could not be written, or made durable.
    pub fn sync(&self) -> Result<(), RemoteError> {
        self.ask_anew(Call::Sync { file: self.file })?;
        self.link.settle()
    }

    /// Makes durable what was written, and closes the file. With `defers` it does not wait: an
    /// error comes with [`super::Client::finish`].
    ///
    /// # Errors
    /// If something could not be written, or made durable.
    pub fn close(self, defers: bool) -> Result<(), RemoteError> {
        self.link.end_file(self.file);
        if !defers {
            self.ask(Call::Close { file: self.file })?;
            return self.link.settle();
        }
        // If a process deletes the file after all processes have closed it, no open may create the
        // file afterwards.
        if let Some(opening) = self.deferred_open {
            self.link.wait_until_answered(opening);
        }
        let tail = self.sealed();
        self.link.close_later(self.file, &tail.target.path, tail.frames);
        Ok(())
    }

    /// The length of the file in bytes.
    ///
    /// # Errors
    /// If it cannot be found out.
    pub fn size(&self) -> Result<u64, RemoteError> {
        self.ask(Call::Size { file: self.file })
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn set_size(&self, size: u64) -> Result<(), RemoteError> {
        self.ask_anew(Call::SetSize { file: self.file, size }).map(|_| ())
    }

    /// Reserves space for the first bytes of the file; it is as long at least.
    ///
    /// # Errors
    /// If that cannot be done.
    pub fn preallocate(&self, size: u64) -> Result<(), RemoteError> {
        self.ask_anew(Call::Preallocate { file: self.file, size }).map(|_| ())
    }

    /// The first position of the view at the end of the file, or behind it.
    ///
    /// # Errors
    /// If it cannot be found out.
    pub fn end(&self) -> Result<u64, RemoteError> {
        let view = lock(&self.tail).target.view;
        self.ask(Call::End { view })
    }

    /// Returns the place in the file of the byte at a position of the view.
    ///
    /// # Errors
    /// If it lies beyond the largest file.
    pub fn offset_of(&self, position: u64) -> Result<u64, RemoteError> {
        let offset = lock(&self.tail).target.shape.offset_of(position);
        offset.map_err(|error| RemoteError {
            errno: Errno::INVAL.raw_os_error(),
            text: format!("position {position} of the view of {}: {error}", self.name),
        })
    }

    /// Adds to the pointer that the group shares. Returns what it was before.
    ///
    /// # Errors
    /// If that is no position.
    pub fn add_shared(&self, bytes: i64) -> Result<u64, RemoteError> {
        self.ask(Call::AddShared { file: self.file, bytes })
    }

    /// Sets the pointer that the group shares.
    ///
    /// # Errors
    /// If the server is lost.
    pub fn set_shared(&self, position: u64) -> Result<(), RemoteError> {
        self.ask(Call::SetShared { file: self.file, position }).map(|_| ())
    }

    /// Waits until nobody else has a lock of the file that excludes this one.
    ///
    /// # Errors
    /// Of an earlier call, or if there are too many locks. Then there is none to be given back.
    pub fn lock(&self, kind: LockKind) -> Result<(), RemoteError> {
        self.link.take_failure(self.file, &self.name)?;
        let after = After::Frames { file: self.file, count: self.sealed().frames };
        let asked = self.link.ask(&after, Call::Lock { file: self.file, kind });
        self.link.wait_for(asked, &self.name)?;
        // Others may have written until now.
        self.link.forget_read(self.file);
        Ok(())
    }

    /// Gives the lock back as soon as all that was written is at the server. It does not wait.
    pub fn unlock(&self) {
        let count = self.sealed().frames;
        self.link.unlock_later(self.file, count);
    }

    /// Tells the server that this process lives, until this is dropped: for a lock under which it
    /// uses another server. One that is silent would lose its connection.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.link.begin_presence();
        Presence(Arc::clone(&self.link))
    }

    /// Asks for something after which a file may be seen otherwise.
    fn ask_anew(&self, call: Call) -> Result<u64, RemoteError> {
        self.link.forget_read(self.file);
        let answer = self.ask(call);
        self.link.forget_read(self.file);
        answer
    }

    /// Asks for something, after all that was written, and tells earlier failures first.
    fn ask(&self, call: Call) -> Result<u64, RemoteError> {
        let count = self.sealed().frames;
        let number = self.link.ask(&After::Frames { file: self.file, count }, call);
        let answer = self.link.wait_for(number, &self.name);
        self.link.take_failure(self.file, &self.name)?;
        answer
    }

    fn sealed(&self) -> MutexGuard<'_, Tail> {
        let mut tail = lock(&self.tail);
        tail.seal(&self.link);
        tail
    }
}

/// As long as it is there, the server hears that this process lives.
#[derive(Debug)]
pub struct Presence(Arc<Link>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.end_presence();
    }
}

/// Removes a file.
pub(super) fn delete(link: &Link, path: &[u8]) -> Result<(), RemoteError> {
    link.wait_until_closed(path);
    let asked = link.ask(&After::Nothing, Call::Delete { path: path.to_vec() });
    link.wait_for(asked, &name_of(link, path)).map(|_| ())
}

/// A file, for messages.
fn name_of(link: &Link, path: &[u8]) -> String {
    format!("{} on {}", String::from_utf8_lossy(path), link.name())
}

/// Sets a view.
fn set(
    link: &Link,
    file: FileNumber,
    path: &[u8],
    displacement: u64,
    filetype: &[u8],
    shape: View,
) -> Arc<Target> {
    let view = ViewNumber(link.next_number());
    let (path, filetype) = (path.to_vec(), filetype.to_vec());
    link.defer_view(file, Call::View { view, file, displacement, filetype: filetype.clone() });
    Arc::new(Target { file, path, view, displacement, filetype, shape })
}
