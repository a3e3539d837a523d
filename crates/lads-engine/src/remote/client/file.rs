//! An open remote file: what a program writes is copied into buffers, and returns at once.

use super::link::{Link, OwnTail};
use crate::board::lock;
use crate::remote::error::RemoteError;
use lads_core::limits::CLIENT_FILES_MAX;
use lads_core::remote::client::{After, Tail, Wait};
use lads_core::remote::message::{Call, FileNumber, LockKind, OpenMode};
use lads_core::remote::policy::PAST_CACHE_BYTES;
use lads_core::remote::reading::Prefetch;
use lads_core::view::{Datatype, View, ViewError};
use lads_sys::gather_past_cache;
use rustix::io::Errno;
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
    tail: Arc<Mutex<OwnTail>>,
    /// Number of the request that opens the file, if the open was deferred.
    deferred_open: Option<u64>,
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
        let file = FileNumber(link.lock().client.next_number());
        let name = name_of(link, path);
        drop(link.wait(&Wait::Closed(path.to_vec())));
        let asked = ask_to_open(link, file, path, (mode, group, defers));
        let asked = asked.map_err(|error| error.unwrap_or_else(|| too_many(&name)))?;
        if !defers {
            let close = |_: &RemoteError| link.ask_with(|client, _| client.close_unopened(file));
            link.reply(asked, &name).inspect_err(close)?;
        }
        let prefetch = Prefetch::default();
        let (of, whole) = ((file, path), (0, &WHOLE[..], View::whole()));
        let mut session = link.wait(&Wait::RoomForView);
        let target = session.client.begin_view(of, whole, prefetch);
        drop(session);
        link.say_all();
        let tail = Arc::new(Mutex::new(Tail::new(target, prefetch)));
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
        let old = Arc::clone(tail.target());
        if old.displacement == displacement && old.filetype == filetype {
            return Ok(());
        }
        // First, so that nothing is read through it any more, and the server need not have room
        // for both.
        self.link.ask_with(|client, _| client.end_view(&old));
        let (of, new) = ((self.file, &old.path[..]), (displacement, filetype, shape));
        let mut session = self.link.wait(&Wait::RoomForView);
        let target = session.client.begin_view(of, new, tail.prefetch());
        drop(session);
        self.link.say_all();
        tail.set_target(target);
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
        let (file, link) = (self.file, &self.link);
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let positions = position..position.saturating_add(length);
        // Nobody reads meanwhile: a read puts what was written before in order, and then what is
        // read ahead must not miss this.
        let mut tail = lock(&self.tail);
        let written = link
            .event(|client, now| client.begin_write(file, &positions, is_awaited, now))
            .and_then(|()| {
                self.fill(&mut tail, position, length, Gathering::new(pieces, length));
                // It may have been lost while this waited for a buffer.
                link.event(|client, now| {
                    // After a loss, another thread may wait for the buffer.
                    if tail.is_full() || client.loss().is_some() {
                        tail.seal(client, now);
                    }
                    client.end_write(file, is_awaited, (length, tail.is_filling()), now)
                })
            });
        drop(tail);
        written.map_err(|error| link.error(error, &self.name))
    }

    /// Copies bytes into buffers, until the connection is lost. The last one stays, full or not.
    fn fill(&self, tail: &mut OwnTail, mut position: u64, length: u64, mut bytes: Gathering<'_>) {
        let end = position.saturating_add(length);
        let reserve = || self.link.lock().client.reserve_view(self.file);
        while !bytes.is_empty() {
            if !tail.takes(&(position..end), reserve) {
                self.link.seal(tail);
                let Some(buffer) = self.link.buffer() else { return };
                let capacity = u32::try_from(buffer.len()).expect("a frame is shorter");
                tail.begin(position, Arc::new(buffer), capacity);
            }
            let (buffer, from) = tail.buffer().expect("begun above");
            let room = &mut Arc::get_mut(buffer).expect("it is not sent")[from as usize..];
            let copied = bytes.copy(room);
            tail.advance(u32::try_from(copied).expect("a frame is shorter"));
            position += copied as u64;
        }
    }

    /// Reads into pieces from a position of the view on. Returns how many bytes there were before
    /// the end of the file. Of what this process has written, only what has bytes of the file in
    /// common is sent before.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self, position: u64, pieces: &mut [&mut [u8]]) -> Result<u64, RemoteError> {
        let wanted: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        let positions = position..position.saturating_add(wanted);
        if positions.is_empty() {
            return self.link.take_failure(self.file, &self.name).map(|()| 0);
        }
        let mut tail = lock(&self.tail);
        let read = self.link.event(|client, now| client.begin_read(&mut tail, positions, now));
        drop(tail);
        let mut read = read.map_err(|error| self.link.error(error, &self.name))?;
        self.link.read(&mut read, position, pieces, &self.name)
    }

    /// From now on, what is read is kept and read ahead like this.
    pub fn set_prefetch(&self, prefetch: Prefetch) {
        let mut tail = lock(&self.tail);
        self.link.ask_with(|client, now| client.set_prefetch(&mut tail, prefetch, now));
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
        self.link.event(|client, _| client.end_file(self.file));
        if !defers {
            self.ask(Call::Close { file: self.file })?;
            return self.link.settle();
        }
        // If a process deletes the file after all processes have closed it, no open may create the
        // file afterwards.
        if let Some(opening) = self.deferred_open {
            drop(self.link.wait(&Wait::Deferred(opening)));
        }
        let tail = self.sealed();
        self.link.ask_with(|client, _| client.close_later(tail.target(), tail.frames()));
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
        let view = lock(&self.tail).target().view;
        self.ask(Call::End { view })
    }

    /// Returns the place in the file of the byte at a position of the view.
    ///
    /// # Errors
    /// If it lies beyond the largest file.
    pub fn offset_of(&self, position: u64) -> Result<u64, RemoteError> {
        let offset = lock(&self.tail).target().shape.offset_of(position);
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
        let after = After::Frames { file: self.file, count: self.sealed().frames() };
        self.link.ask(after, Call::Lock { file: self.file, kind }, &self.name)?;
        // Others may have written until now.
        self.forget_read();
        Ok(())
    }

    /// Gives the lock back as soon as all that was written is at the server. It does not wait.
    pub fn unlock(&self) {
        let count = self.sealed().frames();
        self.link.ask_with(|client, _| client.unlock_later(self.file, count));
    }

    /// Tells the server that this process lives, until this is dropped: for a lock under which it
    /// uses another server. One that is silent would lose its connection.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.link.lock().client.begin_presence();
        Presence(Arc::clone(&self.link))
    }

    /// Asks for something after which a file may be seen otherwise.
    fn ask_anew(&self, call: Call) -> Result<u64, RemoteError> {
        self.forget_read();
        let answer = self.ask(call);
        self.forget_read();
        answer
    }

    fn forget_read(&self) {
        self.link.event(|client, _| client.forget_read(self.file));
    }

    /// Asks for something, after all that was written, and tells earlier failures first.
    fn ask(&self, call: Call) -> Result<u64, RemoteError> {
        let after = After::Frames { file: self.file, count: self.sealed().frames() };
        let answer = self.link.ask(after, call, &self.name);
        self.link.take_failure(self.file, &self.name)?;
        answer
    }

    fn sealed(&self) -> MutexGuard<'_, OwnTail> {
        let mut tail = lock(&self.tail);
        self.link.seal(&mut tail);
        tail
    }
}

/// As long as it is there, the server hears that this process lives.
#[derive(Debug)]
pub struct Presence(Arc<Link>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.lock().client.end_presence();
    }
}

/// Removes a file.
pub(super) fn delete(link: &Link, path: &[u8]) -> Result<(), RemoteError> {
    drop(link.wait(&Wait::Closed(path.to_vec())));
    let call = Call::Delete { path: path.to_vec() };
    link.ask(After::Nothing, call, &name_of(link, path)).map(drop)
}

/// Asks for a file to be opened. `Err(None)` if the server takes no more files.
fn ask_to_open(
    link: &Link,
    file: FileNumber,
    path: &[u8],
    (mode, group, defers): (OpenMode, [u8; 16], bool),
) -> Result<u64, Option<RemoteError>> {
    let mut session = link.wait(&Wait::RoomForFile);
    let asked = session.client.open(file, path, mode, group, defers);
    let is_lost = session.client.loss().is_some();
    drop(session);
    link.say_all();
    asked.ok_or_else(|| is_lost.then(|| link.lost()))
}

fn too_many(name: &str) -> RemoteError {
    let text = format!(
        "cannot open {name}: this process has {CLIENT_FILES_MAX} files open there, which is the \
         maximum (EMFILE); close some of them"
    );
    RemoteError { errno: Errno::MFILE.raw_os_error(), text }
}

/// A file, for messages.
fn name_of(link: &Link, path: &[u8]) -> String {
    format!("{} on {}", String::from_utf8_lossy(path), link.name())
}
