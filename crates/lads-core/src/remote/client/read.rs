//! A read of the program: what is kept is copied, what is missing is asked for, what is coming is
//! waited for. And what is read ahead.

use super::tail::{Tail, Target};
use super::{After, CallError, Client, Wait};
use crate::remote::message::{CLIENT_READS_MAX, Call, FileNumber, Outcome, ViewNumber};
use crate::remote::outbox::Outbox;
use crate::remote::reading::{ChunkBytes, Found, Load, Prefetch, Reading, Save};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How many bytes of what a client has read did not cost a round trip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadBytes {
    /// Bytes that came before the program asked for them.
    pub ahead: u64,
    /// Bytes that were in memory or on the local disk when the program asked for them.
    pub kept: u64,
}

/// What a client reads.
#[derive(Debug)]
pub(super) struct ReadSide<R> {
    pub(super) reading: Reading<R>,
    /// How many reads are in flight, or were not taken by the program.
    in_flight: u32,
    /// Reads of the program that have not asked for everything that they wait for.
    asking: u32,
    /// Views through which the program reads, and how many times at once.
    through: HashMap<ViewNumber, u32>,
    bytes: ReadBytes,
    /// The views through which files are read now.
    targets: HashMap<FileNumber, Arc<Target>>,
    /// Whether some of them may be views of one file, opened twice.
    has_doubles: bool,
}

impl<R: ChunkBytes> ReadSide<R> {
    pub(super) fn new(reading: Reading<R>) -> Self {
        Self {
            reading,
            in_flight: 0,
            asking: 0,
            through: HashMap::new(),
            bytes: ReadBytes::default(),
            targets: HashMap::new(),
            has_doubles: false,
        }
    }

    /// Whether the program reads through a view: it may ask for more.
    pub(super) fn is_read_through(&self, view: ViewNumber) -> bool {
        self.through.contains_key(&view)
    }

    fn end_read(&mut self, view: ViewNumber) {
        if let Some(count) = self.through.get_mut(&view) {
            *count -= 1;
        }
        self.through.retain(|_, count| *count > 0);
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight < CLIENT_READS_MAX
    }

    /// A view is set: from now on its file is read through it.
    pub(super) fn begin_view(&mut self, target: &Arc<Target>, prefetch: Prefetch) {
        self.reading.begin_view(target.file, prefetch);
        let is_same = |it: &Arc<Target>| it.path == target.path && it.file != target.file;
        self.has_doubles |= self.targets.values().any(is_same);
        self.targets.insert(target.file, Arc::clone(target));
    }

    /// The view of a file ends: nothing more is read ahead through it.
    pub(super) fn end_view(&mut self, file: FileNumber) {
        self.targets.remove(&file);
        self.reading.forget(file);
    }

    pub(super) fn end_file(&mut self, file: FileNumber) {
        self.end_view(file);
        self.reading.close(file);
    }

    /// The program writes to these positions.
    pub(super) fn on_write(&mut self, file: FileNumber, positions: &Range<u64>) {
        self.reading.on_write(file, positions);
        self.forget_others(file);
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

    /// What is read ahead next. Nothing is while a call asks for what it waits for.
    fn next_ahead<B: Clone>(
        &self,
        outbox: &Outbox<B, super::About>,
    ) -> Option<(Arc<Target>, Range<u64>)> {
        if self.asking > 0 || !self.has_room() {
            return None;
        }
        let (file, positions) = self.reading.next_ahead(|file, positions| {
            let reach = self.targets.get(&file).map(|it| it.shape.reach(positions));
            // After what the program has written there: a frame sent later might overtake it.
            reach.is_some_and(|reach| {
                !reach.is_empty() && !outbox.is_unsent_in(file, &reach, outbox.count())
            })
        })?;
        Some((self.targets.get(&file).map(Arc::clone)?, positions))
    }

    pub(super) fn begin_ahead(&mut self, number: u64, file: FileNumber, positions: &Range<u64>) {
        self.reading.fetch_ahead(number, file, positions);
        self.in_flight += 1;
    }

    /// A request for bytes has failed, or nothing was there. Returns whether it was one ahead.
    pub(super) fn on_nothing(&mut self, number: u64) -> bool {
        let is_ahead = self.reading.is_ahead(number);
        self.reading.on_fetched(number, 0, None);
        self.in_flight -= u32::from(is_ahead);
        is_ahead
    }

    /// No answer to a request ahead comes.
    fn cancel_ahead(&mut self, number: u64) {
        self.reading.cancel(number);
        self.in_flight -= 1;
    }

    /// The connection is lost.
    pub(super) fn clear(&mut self) {
        self.reading.clear();
    }
}

/// A read of the program that is not done ([`Client::begin_read`], [`Client::step`]).
#[derive(Debug)]
pub struct Read {
    file: FileNumber,
    view: ViewNumber,
    after: After,
    /// The number of frames of the connection up to the last one that the program wrote to the file
    /// before.
    frames: u64,
    /// How often the file had been changed when the read began.
    changes: u64,
    /// All positions.
    all: Range<u64>,
    /// Positions that nobody has looked for.
    todo: VecDeque<Range<u64>>,
    /// Positions that are coming because another call has asked for them, and that request.
    coming: Vec<(u64, Range<u64>)>,
    /// Requests of this read, and their positions.
    asked: VecDeque<Asked>,
    /// Here the file ended.
    end: u64,
    /// Whether everything that the program wrote before is at the server.
    flush: Flush,
    failure: Option<CallError>,
    is_asking: bool,
}

#[derive(Debug)]
struct Asked {
    number: u64,
    positions: Range<u64>,
    /// An end of the file is where the server says that it is: nothing that the program wrote
    /// before was on its way.
    is_end_certain: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flush {
    NotNeeded,
    Needed,
    Asked(u64),
    Done,
}

/// What a read does next.
#[derive(Debug)]
pub enum Step<R> {
    /// Copies bytes, from a position of the view on.
    Copy(u64, R, Range<usize>),
    /// Loads a chunk from the local disk ([`Client::on_loaded`]) and copies a part of it, from a
    /// position of the view on; if that fails, [`Read::again`].
    Load(u64, Load, Range<usize>),
    /// Waits.
    Wait(Wait),
    /// Ends: as many bytes were there before the end of the file.
    End(Result<u64, CallError>),
}

impl Read {
    /// These positions could not be loaded from the local disk: they are read from the server.
    pub fn again(&mut self, positions: Range<u64>) {
        self.todo.push_front(positions);
    }
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The program begins to read positions of a file. Of what it has written, only what has bytes
    /// of the file in common is sent before.
    ///
    /// # Errors
    /// The first failure of the file that no call has returned, or the loss of the connection.
    pub fn begin_read(
        &mut self,
        tail: &mut Tail<B>,
        positions: Range<u64>,
        now: Duration,
    ) -> Result<Read, CallError> {
        tail.seal(self, now);
        let (target, frames) = (tail.target(), tail.frames());
        let file = target.file;
        self.take_failure(file)?;
        let reach = target.shape.reach(&positions);
        self.reading.asking += 1;
        *self.reading.through.entry(target.view).or_default() += 1;
        Ok(Read {
            file,
            view: target.view,
            after: After::Bytes { file, reach, count: frames },
            frames,
            changes: self.reading.reading.begin(file, &positions),
            end: positions.end,
            all: positions.clone(),
            todo: VecDeque::from([positions]),
            coming: Vec::new(),
            asked: VecDeque::new(),
            flush: Flush::NotNeeded,
            failure: None,
            is_asking: true,
        })
    }

    /// Returns what a read does next. It is asked again when that is done, until it ends.
    pub fn step(&mut self, read: &mut Read) -> Step<R> {
        loop {
            if read.failure.is_some() {
                read.todo.clear();
                read.coming.clear();
            }
            if let Some(step) = self.flush(read) {
                return step;
            }
            if let Some(mut positions) = read.todo.pop_front() {
                positions.end = positions.end.min(read.end);
                if !positions.is_empty()
                    && let Some(step) = self.look_for(read, positions)
                {
                    return step;
                }
                continue;
            }
            if std::mem::take(&mut read.is_asking) {
                self.reading.asking -= 1;
            }
            if !read.asked.is_empty() {
                if let Some(step) = self.take_bytes(read) {
                    return step;
                }
            } else if let Some((number, _)) = read.coming.first() {
                let wait = Wait::Coming(*number);
                if self.is_waiting(&wait) {
                    return Step::Wait(wait);
                }
                read.todo.extend(read.coming.drain(..).map(|(_, positions)| positions));
                if self.line.loss.is_some() {
                    read.failure.get_or_insert(CallError::Lost);
                }
            } else {
                self.reading.end_read(read.view);
                return Step::End(read.failure.map_or(Ok(read.end - read.all.start), Err));
            }
        }
    }

    /// Looks for the first of some positions. `None` if it goes on at once.
    fn look_for(&mut self, read: &mut Read, positions: Range<u64>) -> Option<Step<R>> {
        let start = positions.start;
        let (found, step) = match self.reading.reading.find(read.file, &positions) {
            Found::Here(bytes, part) => {
                self.reading.bytes.kept += part.len() as u64;
                (part.len() as u64, Some(Step::Copy(start, bytes, part)))
            }
            Found::OnDisk(load, part) => {
                self.reading.bytes.kept += part.len() as u64;
                (part.len() as u64, Some(Step::Load(start, load, part)))
            }
            Found::Coming(number, coming) => {
                let length = coming.end - start;
                read.coming.push((number, coming));
                (length, None)
            }
            Found::Missing(missing) => {
                let length = missing.end - start;
                if let Some(wait) = self.ask_for(read, missing) {
                    read.todo.push_front(positions);
                    // Whoever waits for a place must have none whose answer it has not taken:
                    // others may wait for that one.
                    let is_full = wait == Wait::RoomForRead && !read.asked.is_empty();
                    return if is_full { self.take_bytes(read) } else { Some(Step::Wait(wait)) };
                }
                (length, None)
            }
        };
        if start + found < positions.end {
            read.todo.push_front(start + found..positions.end);
        }
        step
    }

    /// Asks for positions of one chunk, unless the read has to wait before.
    fn ask_for(&mut self, read: &mut Read, positions: Range<u64>) -> Option<Wait> {
        let sent = Wait::Sent(read.after.clone());
        if self.is_waiting(&sent) {
            return Some(sent);
        }
        let is_full = read.asked.len() >= CLIENT_READS_MAX as usize;
        if is_full || self.is_waiting(&Wait::RoomForRead) {
            return Some(Wait::RoomForRead);
        }
        let is_written = !self.sending.outbox.is_unwritten(read.file);
        let is_end_certain = is_written || read.flush == Flush::Done;
        let number = self.request(true, call(read.view, &positions), None);
        self.reading.reading.fetch(number, read.file, &positions, read.changes);
        self.reading.in_flight += 1;
        read.asked.push_back(Asked { number, positions, is_end_certain });
        None
    }

    /// Takes the bytes of the oldest request of a read. `None` if it goes on at once.
    fn take_bytes(&mut self, read: &mut Read) -> Option<Step<R>> {
        let number = read.asked.front()?.number;
        let Some(reply) = self.take_whole_reply(number) else {
            return Some(Step::Wait(Wait::Reply(number)));
        };
        self.reading.in_flight -= 1;
        let Asked { positions, is_end_certain, .. } = read.asked.pop_front()?;
        let bytes = match reply {
            Ok((Outcome::Failed(failure), _)) => Err(CallError::Failed(failure)),
            Ok((Outcome::Lost, _)) => Err(CallError::Gone),
            Ok((_, bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) => {
                read.failure.get_or_insert(error);
                return None;
            }
        };
        let count = bytes.as_ref().map_or(0, |(_, part)| part.len());
        let got = positions.start + count as u64;
        if count > 0 && positions.start >= read.end {
            // When an earlier request was answered, a write was announced that is here now: the
            // file has become longer, and there are bytes or zeros between.
            read.todo.push_front(read.end..read.all.end);
            read.end = read.all.end;
            return None;
        }
        if got < positions.end && is_end_certain {
            read.end = read.end.min(got);
        } else if got < positions.end {
            read.todo.push_front(got..positions.end);
            if read.flush == Flush::NotNeeded {
                read.flush = Flush::Needed;
            }
        }
        let (bytes, part) = bytes?;
        Some(Step::Copy(positions.start, bytes, part))
    }

    /// Waits until everything that the program wrote before is at the server, if it may make the
    /// file longer.
    fn flush(&mut self, read: &mut Read) -> Option<Step<R>> {
        if read.flush == Flush::Needed {
            let after = After::Frames { file: read.file, count: read.frames };
            let sent = Wait::Sent(after.clone());
            if self.is_waiting(&sent) {
                return Some(Step::Wait(sent));
            }
            read.flush = Flush::Asked(self.ask(&after, Call::Flush { file: read.file }));
        }
        let Flush::Asked(number) = read.flush else { return None };
        let Some(reply) = self.take_reply(number) else {
            return Some(Step::Wait(Wait::Reply(number)));
        };
        read.flush = Flush::Done;
        if let Err(error) = reply {
            read.failure.get_or_insert(error);
        }
        None
    }

    pub(super) fn next_ahead(&self) -> Option<(Arc<Target>, Range<u64>)> {
        self.reading.next_ahead(&self.sending.outbox)
    }

    /// Returns where in a chunk the bytes of a request belong.
    #[must_use]
    pub fn place_of(&self, number: u64) -> usize {
        let number = self.requests.known(number);
        self.reading.reading.place_of(number).unwrap_or(0)
    }

    /// Bytes that a request asked for have arrived: this part of a buffer.
    pub fn on_bytes(&mut self, number: u64, mut bytes: R, part: Range<usize>, now: Duration) {
        self.line.done_at = now;
        let number = self.requests.known(number);
        let count = part.len() as u64;
        let is_ahead = self.reading.reading.is_ahead(number);
        self.reading.reading.on_fetched(number, count, Some(&mut bytes));
        if is_ahead {
            self.reading.bytes.ahead += count;
            self.reading.in_flight -= 1;
            self.requests.forget(number);
        } else {
            self.requests.set_bytes(number, bytes, part);
        }
    }

    /// The client is connected again, and the server has the first `requests` requests. Of these,
    /// the client makes each read again whose bytes the program needs. It cancels reads ahead,
    /// because their view may not exist any more.
    pub(super) fn read_again(&mut self, requests: u64) {
        for (number, known, call) in self.requests.take_unread(requests) {
            self.line.gate.abandon(number);
            if self.reading.reading.is_ahead(known) {
                self.reading.cancel_ahead(known);
                self.requests.forget(known);
            } else {
                let frames_before = self.sending.outbox.sent();
                let again = self.requests.add_again(known, frames_before, call.clone());
                self.line.gate.on_asked(again, &call);
            }
        }
    }

    /// From now on a file is read ahead like this.
    pub fn set_prefetch(&mut self, tail: &mut Tail<B>, prefetch: Prefetch, now: Duration) {
        tail.seal(self, now);
        tail.set_prefetch(prefetch);
        self.reading.reading.set_prefetch(tail.target().file, prefetch);
    }

    /// Forgets what was read of a file, under whatever number it is open here: it may be seen
    /// otherwise from now on.
    pub fn forget_read(&mut self, file: FileNumber) {
        self.reading.reading.forget(file);
        self.reading.forget_others(file);
    }

    /// A chunk is back from the local disk; or the disk has failed.
    pub fn on_loaded(&mut self, load: Load, bytes: Option<&mut R>) {
        self.reading.reading.on_loaded(load, bytes);
    }

    /// A chunk that is to be put on the local disk.
    pub fn next_save(&mut self) -> Option<Save<R>> {
        self.reading.reading.next_save()
    }

    /// A chunk is on the local disk, with this checksum; or the disk has failed.
    pub fn on_saved(&mut self, save: Save<R>, checksum: Option<u64>) {
        self.reading.reading.on_saved(save, checksum);
    }

    /// Returns how many bytes of what was read did not cost a round trip.
    #[must_use]
    pub fn read_bytes(&self) -> ReadBytes {
        self.reading.bytes
    }
}

/// The request for positions of a view.
pub(super) fn call(view: ViewNumber, positions: &Range<u64>) -> Call {
    let length = u32::try_from(positions.end - positions.start).expect("a chunk is shorter");
    Call::Read { view, position: positions.start, length }
}
