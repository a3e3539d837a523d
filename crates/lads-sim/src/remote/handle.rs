//! The calls of a program for a file: each does with the session what the engine's does.

use super::PATHS;
use super::bytes::Stamp;
use super::check::{Clock, Component, SLOTS};
use super::client_end::{FileTail, OwnTail, TailGuard};
use super::disk::offsets;
use super::program::{Done, Process, Stop};
use super::server_end::EIO;
use lads_core::remote::client::{After, CallError, Step, Tail, Wait};
use lads_core::remote::message::{Call, FileNumber, LockKind, OpenMode};
use lads_core::remote::reading::Prefetch;
use lads_core::view::{Datatype, View};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// The filetype of a view of all bytes.
const WHOLE: [u8; 9] = [0, 1, 0, 0, 0, 0, 0, 0, 0];

/// A file that a process has open.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) file: FileNumber,
    pub(super) path: usize,
    pub(super) slot: usize,
    pub(super) component: Component,
    /// The number of writes of the component before.
    first: u32,
    pub(super) tail: Rc<FileTail>,
    deferred_open: Option<u64>,
    prefetch: Cell<Prefetch>,
    /// What the process knew when kept data was dropped last.
    acquired: Cell<Clock>,
    pub(super) is_locked: Cell<bool>,
    /// The position behind the last piece.
    next: Cell<u64>,
}

impl Process {
    /// Opens a file in a slot; `None` if that fails.
    pub(super) async fn open(
        &self,
        slot: usize,
        defers: bool,
        prefetch: Prefetch,
    ) -> Done<Option<Handle>> {
        let link = &self.link;
        let file = FileNumber(link.event(|client, _| client.next_number()));
        let index = slot / (SLOTS / PATHS.len());
        let path = PATHS[index].as_bytes();
        link.wait(&Wait::Closed(path.to_vec())).await;
        link.wait(&Wait::RoomForFile).await;
        let mode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
        let component = self.number * SLOTS + slot;
        let first = self.owns[slot].get();
        let check = &link.shared.check;
        check.borrow_mut().on_open((self.number, file), (component, first));
        let asked = link.event(|client, _| client.open(file, path, mode, [0; 16], defers));
        let asked = asked.ok_or("there is no room for a file")?;
        link.say_all();
        if !defers && let Err(error) = self.reply(asked).await {
            link.ask_with(|client, _| client.close_unopened(file));
            self.failed((component, index), error)?;
            return Ok(None);
        }
        link.wait(&Wait::RoomForView).await;
        let (of, whole) = ((file, path), (0, &WHOLE[..], View::whole()));
        let target = link.ask_with(|client, _| client.begin_view(of, whole, prefetch));
        let tail = FileTail::new(Tail::new(target, prefetch));
        link.add_tail(&tail);
        // It was closed, so everything that was written is at the server.
        self.know(|clock| clock.raise(component, first));
        Ok(Some(Handle {
            file,
            path: index,
            slot,
            component,
            first,
            tail,
            deferred_open: defers.then_some(asked),
            prefetch: Cell::new(prefetch),
            acquired: self.clock.clone(),
            is_locked: Cell::new(false),
            next: Cell::new(0),
        }))
    }

    async fn reply(&self, number: u64) -> Result<u64, CallError> {
        loop {
            self.link.wait(&Wait::Reply(number)).await;
            let reply = self.link.event(|client, _| client.take_reply(number));
            if let Some(reply) = reply {
                return reply;
            }
        }
    }

    /// What an error of a call means.
    fn failed(&self, (component, path): (Component, usize), error: CallError) -> Done {
        let link = &self.link;
        match error {
            CallError::Failed(failure) if failure.errno == EIO => {
                link.stats(|it| it.errors += 1);
                link.shared.check.borrow_mut().on_failure(component);
                Ok(())
            }
            CallError::Failed(failure) => Err(Stop::Broken(format!("a call fails: {failure:?}"))),
            CallError::Gone if link.shared.check.borrow().may_be_gone(path) => {
                link.stats(|it| it.gone += 1);
                Ok(())
            }
            CallError::Gone => Err(Stop::Broken("no client is gone".to_owned())),
            CallError::Lost if link.is_lost() => Err(Stop::Lost),
            CallError::Lost => Err(Stop::Broken("the connection is not lost".to_owned())),
        }
    }

    fn failed_of(&self, handle: &Handle, error: CallError) -> Done {
        self.failed((handle.component, handle.path), error)
    }

    async fn sealed<'a>(&self, handle: &'a Handle) -> TailGuard<'a> {
        let guard = handle.tail.lock().await;
        self.link.seal(&mut handle.tail.tail.borrow_mut());
        guard
    }

    /// Seals the buffer of a file. Returns the number of frames, and of writes.
    pub(super) async fn sealed_counts(&self, handle: &Handle) -> (u64, u32) {
        let _guard = self.sealed(handle).await;
        let frames = handle.tail.tail.borrow().frames();
        (frames, self.owns[handle.slot].get())
    }

    /// What a read through a file must see.
    fn known(&self, handle: &Handle) -> Clock {
        let is_kept = handle.prefetch.get() != Prefetch::Off;
        let mut known = if is_kept { handle.acquired.get() } else { self.clock.get() };
        known.raise(handle.component, self.owns[handle.slot].get());
        known
    }

    /// Sets another view.
    pub(super) async fn set_view(&self, handle: &Handle) -> Done {
        let base = self.link.shared.base;
        let (displacement, filetype, shape) = {
            let mut rng = self.rng();
            let (length, is_apart) = (rng.between(1, 3), rng.hits(500));
            let extent = i64::try_from(length * (1 + u64::from(is_apart))).expect("it is short");
            let of = Box::new(Datatype::Bytes(length));
            let datatype = Datatype::Resized { begin: 0, extent, of };
            let displacement = if rng.hits(300) { 0 } else { base + rng.below(4) };
            let mut filetype = Vec::new();
            datatype.write(&mut filetype);
            let shape = View::new(displacement, &datatype).map_err(|error| error.to_string())?;
            (displacement, filetype, shape)
        };
        self.use_view(handle, displacement, &filetype, shape).await;
        Ok(())
    }

    pub(super) async fn use_view(
        &self,
        handle: &Handle,
        displacement: u64,
        filetype: &[u8],
        shape: View,
    ) {
        let link = &self.link;
        let _guard = self.sealed(handle).await;
        let old = handle.tail.tail.borrow().target().clone();
        if old.displacement == displacement && old.filetype == filetype {
            return;
        }
        link.ask_with(|client, _| client.end_view(&old));
        link.wait(&Wait::RoomForView).await;
        let (of, new) = ((handle.file, &old.path[..]), (displacement, filetype, shape));
        let prefetch = handle.tail.tail.borrow().prefetch();
        let target = link.ask_with(|client, _| client.begin_view(of, new, prefetch));
        handle.tail.tail.borrow_mut().set_target(target);
        handle.acquired.set(self.clock.get());
        link.stats(|it| it.views += 1);
    }

    pub(super) async fn set_prefetch(&self, handle: &Handle, prefetch: Prefetch) {
        let _guard = handle.tail.lock().await;
        let mut tail = handle.tail.tail.borrow_mut();
        self.link.ask_with(|client, now| client.set_prefetch(&mut tail, prefetch, now));
        handle.prefetch.set(prefetch);
        handle.acquired.set(self.clock.get());
    }

    /// Some positions of the view of a file, at most this many.
    fn piece(&self, handle: &Handle, length_max: u64) -> Range<u64> {
        let base = self.link.shared.base;
        let shape = &handle.tail.tail.borrow().target().clone().shape;
        let at = |offset| shape.position_at(offset).unwrap_or(0);
        let (first, end) = (at(base), at(base + super::disk::FILE_BYTES));
        let mut rng = self.rng();
        let next = handle.next.get();
        let follows = (first..end).contains(&next) && rng.hits(400);
        let start = if follows { next } else { first + rng.below(end - first) };
        let piece = start..end.min(start + 1 + rng.below(length_max));
        handle.next.set(piece.end);
        piece
    }

    /// Writes some bytes.
    pub(super) async fn write(&self, handle: &Handle) -> Done {
        let guard = handle.tail.lock().await;
        let positions = self.piece(handle, 12);
        self.write_at(handle, guard, positions, None).await
    }

    /// Writes positions, with new stamps or these.
    pub(super) async fn write_at(
        &self,
        handle: &Handle,
        guard: TailGuard<'_>,
        positions: Range<u64>,
        stamps: Option<Vec<Stamp>>,
    ) -> Done {
        let link = &self.link;
        let (file, is_awaited) = (handle.file, self.rng().hits(300));
        let begun = link.event(|client, now| client.begin_write(file, &positions, is_awaited, now));
        if let Err(error) = begun {
            return self.failed_of(handle, error);
        }
        let length = positions.end - positions.start;
        let own = stamps.is_none().then(|| self.begin_write(handle, &positions));
        let stamps = stamps.unwrap_or_else(|| {
            vec![own.unwrap_or_default(); usize::try_from(length).expect("it is short")]
        });
        self.fill(handle, positions, &stamps).await?;
        let ended = link.event(|client, now| {
            let mut tail = handle.tail.tail.borrow_mut();
            if tail.is_full() || client.loss().is_some() {
                tail.seal(client, now);
            }
            client.end_write(file, is_awaited, (length, tail.is_filling()), now)
        });
        drop(guard);
        link.stats(|it| it.writes += 1);
        let Err(error) = ended else { return Ok(()) };
        // An earlier failure of the storage is told before the loss.
        if let Some(stamp) = own.filter(|_| link.is_lost()) {
            link.shared.check.borrow_mut().excuse(stamp);
        }
        self.failed_of(handle, error)
    }

    /// The number of the write that begins.
    fn begin_write(&self, handle: &Handle, positions: &Range<u64>) -> Stamp {
        let target = handle.tail.tail.borrow().target().clone();
        let places = offsets(&target.shape, positions.clone());
        let stamp = self.next_stamp(handle, places, false);
        self.link.trace(|| format!("writes {stamp} to {positions:?} of {}", handle.path));
        stamp
    }

    fn next_stamp(
        &self,
        handle: &Handle,
        places: impl IntoIterator<Item = u64>,
        is_cut: bool,
    ) -> Stamp {
        let mut clock = self.clock.get();
        clock.raise(handle.component, self.owns[handle.slot].get());
        let count = self.owns[handle.slot].get() + 1;
        self.owns[handle.slot].set(count);
        let mut check = self.link.shared.check.borrow_mut();
        check.begin_write((handle.component, count), clock, handle.path, places, is_cut)
    }

    /// Copies bytes into buffers, until the connection is lost.
    async fn fill(&self, handle: &Handle, positions: Range<u64>, stamps: &[Stamp]) -> Done {
        let (link, mut at, mut left) = (&self.link, positions.start, stamps);
        while !left.is_empty() {
            let reserve = || link.event(|client, _| client.reserve_view(handle.file));
            let takes = handle.tail.tail.borrow_mut().takes(&(at..positions.end), reserve);
            if !takes {
                link.seal(&mut handle.tail.tail.borrow_mut());
                let Some(buffer) = link.buffer().await? else { return Ok(()) };
                handle.tail.tail.borrow_mut().begin(at, Rc::new(buffer), link.buffer_bytes);
            }
            let count = copy(&mut handle.tail.tail.borrow_mut(), left)?;
            (at, left) = (at + count as u64, &left[count..]);
            link.pause().await;
        }
        Ok(())
    }

    /// Reads some bytes, and checks them.
    pub(super) async fn read(&self, handle: &Handle) -> Done {
        let guard = handle.tail.lock().await;
        let positions = self.piece(handle, 16);
        let known = self.known(handle);
        let begun = self.link.event(|client, now| {
            client.begin_read(&mut handle.tail.tail.borrow_mut(), positions.clone(), now)
        });
        let target = handle.tail.tail.borrow().target().clone();
        drop(guard);
        let mut read = match begun {
            Ok(read) => read,
            Err(error) => return self.failed_of(handle, error),
        };
        self.link.trace(|| format!("reads {positions:?} of {}", handle.path));
        let mut found = BTreeMap::new();
        let read = loop {
            let step = self.link.ask_with(|client, _| client.step(&mut read));
            let (position, bytes, part) = match step {
                Step::Copy(position, bytes, part) => (position, bytes, part),
                Step::Load(position, load, part) => match self.link.load(load).await? {
                    Some(bytes) => (position, bytes, part),
                    None => {
                        read.again(position..position + part.len() as u64);
                        continue;
                    }
                },
                Step::Wait(wait) => {
                    self.link.wait(&wait).await;
                    continue;
                }
                Step::End(result) => break result,
            };
            let first = part.start;
            found.extend(part.map(|place| {
                (position + (place - first) as u64, bytes.bytes().get(&place).copied().unwrap_or(0))
            }));
            self.link.pause().await;
        };
        let count = match read {
            Ok(count) => count,
            Err(error) => return self.failed_of(handle, error),
        };
        self.link.trace(|| format!("read {count} from {}: {found:?}", positions.start));
        self.link.stats(|it| {
            it.reads += 1;
            it.ends += u64::from(count < positions.end - positions.start);
        });
        let check = self.link.shared.check.borrow();
        for (position, offset) in positions.clone().zip(offsets(&target.shape, positions.clone())) {
            if position < positions.start + count {
                let stamp = found.get(&position).ok_or("a byte was read and not copied")?;
                check.read(handle.path, offset, *stamp, &known)?;
            } else {
                check.read_end(handle.path, offset, &known, false)?;
            }
        }
        Ok(())
    }

    fn forget_read(&self, handle: &Handle) {
        self.link.event(|client, _| client.forget_read(handle.file));
        handle.acquired.set(self.clock.get());
        let others = self.open_handles().into_iter().filter(|it| it.path == handle.path);
        others.for_each(|other| other.acquired.set(self.clock.get()));
    }

    async fn ask_after(&self, after: After, call: Call) -> Result<u64, CallError> {
        let wait = Wait::Sent(after);
        self.link.wait(&wait).await;
        let Wait::Sent(after) = wait else { unreachable!("made above") };
        let number = self.link.ask_with(|client, _| client.ask(&after, call));
        self.reply(number).await
    }

    /// Asks for something after all that was written. Returns the reply, and the number of writes.
    async fn ask(&self, handle: &Handle, call: Call) -> (Result<u64, CallError>, u32) {
        let (frames, writes) = self.sealed_counts(handle).await;
        let after = After::Frames { file: handle.file, count: frames };
        let reply = self.ask_after(after, call).await;
        let taken = self.link.event(|client, _| client.take_failure(handle.file));
        (taken.and(reply), writes)
    }

    /// Everything that was written is at the server, or durable there.
    fn on_done(&self, handle: &Handle, writes: u32, is_durable: bool) -> Done {
        let all = (handle.first, writes);
        self.link.shared.check.borrow_mut().on_done(handle.component, all, is_durable)?;
        self.know(|clock| clock.raise(handle.component, writes));
        Ok(())
    }

    pub(super) async fn sync(&self, handle: &Handle, is_durable: bool) -> Done {
        let file = handle.file;
        let call = if is_durable { Call::Sync { file } } else { Call::Flush { file } };
        self.forget_read(handle);
        let (reply, writes) = self.ask(handle, call).await;
        self.link.stats(|it| it.syncs += 1);
        match reply {
            Ok(_) => self.on_done(handle, writes, is_durable)?,
            Err(error) => self.failed_of(handle, error)?,
        }
        self.forget_read(handle);
        Ok(())
    }

    pub(super) async fn size(&self, handle: &Handle) -> Done {
        let known = self.known(handle);
        let (reply, _) = self.ask(handle, Call::Size { file: handle.file }).await;
        let size = match reply {
            Ok(size) => size,
            Err(error) => return self.failed_of(handle, error),
        };
        let base = self.link.shared.base;
        let end = base + super::disk::FILE_BYTES;
        let check = self.link.shared.check.borrow();
        for offset in size.clamp(base, end)..end {
            check.read_end(handle.path, offset, &known, true)?;
        }
        Ok(())
    }

    /// Cuts or extends a file, of a process with one thread.
    pub(super) async fn set_size(&self, handle: &Handle) -> Done {
        let (base, end) = (self.link.shared.base, super::disk::FILE_BYTES);
        let size = base + self.rng().below(end);
        self.forget_read(handle);
        let (frames, _) = self.sealed_counts(handle).await;
        let stamp = self.next_stamp(handle, size..base + end, true);
        self.link.trace(|| format!("cuts {} to {size}, which is {stamp}", handle.path));
        let after = After::Frames { file: handle.file, count: frames };
        self.link.wait(&Wait::Sent(after.clone())).await;
        let call = Call::SetSize { file: handle.file, size };
        let number = self.link.event(|client, _| client.ask(&after, call));
        self.link.shared.check.borrow_mut().add_cut(self.number, number, stamp);
        self.link.say_all();
        let reply = self.reply(number).await;
        let taken = self.link.event(|client, _| client.take_failure(handle.file));
        self.forget_read(handle);
        self.link.stats(|it| it.cuts += 1);
        let Err(error) = reply.and(taken) else { return Ok(()) };
        self.link.shared.check.borrow_mut().excuse(stamp);
        self.failed_of(handle, error)
    }

    /// Takes a lock. Returns whether the file is locked.
    pub(super) async fn lock(&self, handle: &Handle, kind: LockKind) -> Done<bool> {
        if let Err(error) = self.link.event(|client, _| client.take_failure(handle.file)) {
            self.failed_of(handle, error)?;
            return Ok(false);
        }
        let (frames, _) = self.sealed_counts(handle).await;
        let after = After::Frames { file: handle.file, count: frames };
        if let Err(error) = self.ask_after(after, Call::Lock { file: handle.file, kind }).await {
            self.failed_of(handle, error)?;
            return Ok(false);
        }
        let is_exclusive = kind == LockKind::Exclusive;
        let holder = (self.number, handle.component);
        let released =
            self.link.shared.check.borrow_mut().hold(handle.path, holder, is_exclusive)?;
        self.know(|clock| clock.merge(&released));
        self.forget_read(handle);
        self.link.stats(|it| it.locks += 1);
        Ok(true)
    }

    pub(super) async fn unlock(&self, handle: &Handle) {
        let (frames, writes) = self.sealed_counts(handle).await;
        let mut known = self.clock.get();
        known.raise(handle.component, writes);
        self.link.shared.check.borrow_mut().release(handle.path, handle.component, &known);
        self.link.ask_with(|client, _| client.unlock_later(handle.file, frames));
    }

    pub(super) async fn close(&self, handle: &Handle, defers: bool) -> Done {
        self.link.event(|client, _| client.end_file(handle.file));
        if !defers {
            let (reply, writes) = self.ask(handle, Call::Close { file: handle.file }).await;
            return match reply {
                Ok(_) => self.on_done(handle, writes, true),
                Err(error) => self.failed_of(handle, error),
            };
        }
        if let Some(opening) = handle.deferred_open {
            self.link.wait(&Wait::Deferred(opening)).await;
        }
        let _guard = self.sealed(handle).await;
        let tail = handle.tail.tail.borrow();
        self.link.ask_with(|client, _| client.close_later(tail.target(), tail.frames()));
        Ok(())
    }

    /// Waits for everything that was deferred, at the end of the program.
    pub(super) async fn finish(&self) -> Done {
        self.link.wait(&Wait::Finished).await;
        while let Err(error) = self.link.event(|client, _| client.finish()) {
            for slot in 0..SLOTS {
                self.failed((self.number * SLOTS + slot, 0), error)?;
            }
        }
        if self.link.event(|client, _| client.is_left()) {
            return Err(Stop::Broken("something is left at the end".to_owned()));
        }
        for slot in 0..SLOTS {
            let (component, all) = (self.number * SLOTS + slot, (0, self.owns[slot].get()));
            self.link.shared.check.borrow_mut().on_done(component, all, true)?;
        }
        Ok(())
    }
}

/// Copies bytes into the buffer that is being filled. Returns their number.
fn copy(tail: &mut OwnTail, stamps: &[Stamp]) -> Result<usize, &'static str> {
    let (buffer, from) = tail.buffer().ok_or("no buffer is being filled")?;
    let buffer = Rc::get_mut(buffer).ok_or("a buffer that is filled is being sent")?;
    let room = &mut buffer.content[from as usize..];
    let count = stamps.len().min(room.len());
    room[..count].copy_from_slice(&stamps[..count]);
    tail.advance(u32::try_from(count).expect("a buffer is shorter"));
    Ok(count)
}
