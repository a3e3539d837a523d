//! A program that writes, reads and asks in any order, as the owner of the session lets it.

use super::buffers::Buffer;
use super::reads::Reading;
use super::{BUFFER_BYTES, BUFFERS, Host};
use lads_core::limits::{FILE_BYTES_MAX, FRAME_BYTES};
use lads_core::remote::client::{About, After, CallError, Tail, Wait, Why};
use lads_core::remote::message::{Call, FileNumber, LockKind, OpenMode};
use lads_core::remote::outbox::{Next, Place};
use lads_core::remote::reading::Prefetch;
use lads_core::view::{Datatype, View};
use std::ops::Range;

/// Files that the program has open at a time.
const FILES_MAX: usize = 3;

/// Calls of the program that wait at a time.
const CALLS_MAX: usize = 4;

/// The filetype of a file that was just opened.
const WHOLE: [u8; 9] = [0, 1, 0, 0, 0, 0, 0, 0, 0];

const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };

/// An open file.
pub(super) struct File {
    pub(super) number: FileNumber,
    pub(super) tail: Tail<Buffer>,
    copying: Option<Copying>,
    /// Positions in the buffer that is being filled.
    filling: Vec<Range<u64>>,
    /// Positions that were written through this view, and the time of each write.
    pub(super) changes: Vec<(u64, Range<u64>)>,
    opening: Option<u64>,
}

/// A write that is being copied.
struct Copying {
    position: u64,
    end: u64,
    length: u64,
    is_awaited: bool,
}

/// A frame that was put in.
pub(super) struct Put {
    file: FileNumber,
    /// Its bytes in the file; none if its view shows the file in parts.
    places: Vec<Range<u64>>,
    at: u64,
    is_sent: bool,
    /// Whether it was sent at any time.
    was_sent: bool,
}

/// A call that waits.
pub(super) struct CallOf {
    file: Option<FileNumber>,
    wait: Wait,
    then: Then,
}

/// What a call does when it has waited.
pub(super) enum Then {
    Nothing,
    Ask(After, Call),
    Reply(u64),
    Opened(FileNumber, Vec<u8>, u64),
    Read(Box<Reading>),
}

impl CallOf {
    pub(super) fn wait(&self) -> &Wait {
        &self.wait
    }
}

impl File {
    pub(super) fn is_copying(&self) -> bool {
        self.copying.is_some()
    }

    fn is_whole(&self) -> bool {
        self.tail.target().shape == View::whole()
    }
}

/// Reports whether two ranges have a position in common.
pub(super) fn meets(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Returns ranges of which those that touch are one.
fn joined(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut all: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match all.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => all.push(range.clone()),
        }
    }
    all
}

impl Host<'_> {
    /// The program does something.
    pub(super) fn act(&mut self) {
        let place = self.choices.place_in(self.files.len());
        let kind = self.choices.below(16);
        match (kind, place) {
            (0, _) | (_, None) => self.open(),
            (1..=3, Some(place)) => self.begin_write(place),
            (4..=6, Some(place)) => self.begin_read(place),
            (7..=9, _) => self.wake_one(),
            (10, Some(place)) => self.copy(place),
            (_, Some(place)) => self.change(place),
        }
    }

    fn open(&mut self) {
        let path = vec![self.choices.one_of(b"ab")];
        let (closed, defers) = (Wait::Closed(path.clone()), self.choices.is_one_in(2));
        if self.files.len() >= FILES_MAX || self.has_many_calls() {
            return;
        }
        if self.client.is_waiting(&closed) {
            return self.wait_for(None, closed, Then::Nothing);
        }
        let file = FileNumber(self.client.next_number());
        assert!(!self.client.is_waiting(&Wait::RoomForFile), "there is room");
        let asked = self.client.open(file, &path, MODE, [0; 16], defers).expect("there is room");
        self.say();
        if defers {
            self.begin(file, &path, Some(asked));
        } else {
            let then = Then::Opened(file, path, asked);
            self.wait_for(None, Wait::Reply(asked), then);
        }
    }

    /// A file is open.
    fn begin(&mut self, number: FileNumber, path: &[u8], opening: Option<u64>) {
        let (of, whole) = ((number, path), (0, &WHOLE[..], View::whole()));
        let target = self.client.begin_view(of, whole, Prefetch::default());
        self.say();
        let tail = Tail::new(target, Prefetch::default());
        let (filling, changes) = (Vec::new(), Vec::new());
        self.files.push(File { number, tail, copying: None, filling, changes, opening });
    }

    fn begin_write(&mut self, place: usize) {
        let (position, length) = (self.position(), 1 + u64::from(self.choices.below(100)));
        let is_awaited = self.choices.is_one_in(4);
        let (file, end) = (&mut self.files[place], position.saturating_add(length));
        if file.is_copying() {
            return self.copy(place);
        }
        let positions = position..end;
        let begun = self.client.begin_write(file.number, &positions, is_awaited, self.now);
        assert!(begun.is_ok() || begun != Err(CallError::Lost) || self.is_over);
        if begun.is_ok() {
            self.awaited += u32::from(is_awaited);
            file.copying = Some(Copying { position, end, length: end - position, is_awaited });
            self.copy(place);
        }
    }

    /// Copies what there are buffers for.
    pub(super) fn copy(&mut self, place: usize) {
        while self.files[place].copying.as_ref().is_some_and(|it| it.position < it.end) {
            let Self { client, files, .. } = self;
            let file = &mut files[place];
            let copying = file.copying.as_mut().expect("just seen");
            let positions = copying.position..copying.end;
            let number = file.number;
            if !file.tail.takes(&positions, || client.reserve_view(number)) {
                self.seal(place);
                if !self.has_buffer() {
                    if self.is_over {
                        break;
                    }
                    return;
                }
                let buffer = self.pool.take();
                self.files[place].tail.begin(positions.start, buffer, BUFFER_BYTES);
                continue;
            }
            let (_, from) = file.tail.buffer().expect("begun before");
            let left = u32::try_from(positions.end - positions.start).unwrap_or(u32::MAX);
            let count = left.min(BUFFER_BYTES - from);
            file.tail.advance(count);
            copying.position += u64::from(count);
            file.filling.push(positions.start..copying.position);
        }
        let Some(copying) = self.files[place].copying.take() else { return };
        if self.files[place].tail.is_full() {
            self.seal(place);
        }
        let at = self.tick();
        let Copying { end, length, is_awaited, .. } = copying;
        let file = &mut self.files[place];
        let has_tail = file.tail.is_filling();
        self.awaited -= u32::from(is_awaited);
        let (number, tail) = (file.number, (length, has_tail));
        let _ = self.client.end_write(number, is_awaited, tail, self.now);
        file.changes.push((at, end.saturating_sub(length)..end));
    }

    /// Reports whether there is a buffer to be filled. If not, frames are staged for one.
    fn has_buffer(&mut self) -> bool {
        if self.pool.in_use() < BUFFERS {
            return true;
        }
        if !self.is_over {
            let frames = self.client.start_staging();
            if !frames.is_empty() {
                self.staging.push((frames, Why::Write));
            }
        }
        false
    }

    /// Lets the buffer of a file be sent, if there is one.
    pub(super) fn seal(&mut self, place: usize) {
        if !self.files[place].tail.is_filling() {
            return;
        }
        let is_put = !self.is_over || self.client.is_keeping();
        let at = self.tick();
        let file = &mut self.files[place];
        let places = std::mem::take(&mut file.filling);
        // A server refuses all of a frame that ends beyond the largest file.
        let is_possible = places.last().is_some_and(|last| last.end <= FILE_BYTES_MAX);
        let places = if file.is_whole() && is_possible { places } else { Vec::new() };
        file.tail.seal(&mut self.client, self.now);
        if is_put {
            self.puts.push(Put { file: file.number, places, at, is_sent: false, was_sent: false });
        }
        assert_eq!(self.files[place].tail.frames(), self.puts.len() as u64, "frames are counted");
    }

    pub(super) fn set_sent(&mut self, write: u32, is_sent: bool) {
        let put = &mut self.puts[write as usize];
        put.was_sent |= is_sent;
        assert_ne!(std::mem::replace(&mut put.is_sent, is_sent), is_sent, "frame {write}");
    }

    /// The bytes of a frame are where it is read from, and go where they were written.
    pub(super) fn check_frame(&self, next: &Next<Buffer, About>) {
        let (about, write) = (&next.about, next.of.write.0);
        if let Place::Staged(slot) = next.place {
            assert_eq!(self.staged.get(&slot), Some(&write.into()), "{slot:?}");
        }
        let put = &self.puts[write as usize];
        assert_eq!(put.file, about.target.file, "the file of frame {write}");
        if !put.places.is_empty() {
            let runs = about.target.shape.runs(about.positions()).expect("they are possible");
            let runs = runs.map(|run| run.offset..run.offset + run.length);
            assert_eq!(runs.collect::<Vec<_>>(), joined(&put.places), "frame {write}");
        }
    }

    /// A file is closed after all its frames. Nothing is read that has bytes in common with unsent
    /// frames put in before. A read that was made before the connection was there again may be of
    /// frames that were refused since then: they are known there.
    pub(super) fn check_request(&self, call: &Call) {
        if let Call::Close { file } = call {
            // A frame that the server refused is known there.
            let is_left = |put: &Put| put.file == *file && !put.was_sent;
            assert!(self.puts.iter().all(|put| !is_left(put)), "{file:?} is closed too soon");
        }
        let Call::Read { view, position, length } = call else { return };
        let positions = *position..position.saturating_add((*length).into());
        let file = self.files.iter().find(|it| it.tail.target().view == *view);
        // One that ends beyond the largest file reads nothing.
        let is_checked = |it: &&File| it.is_whole() && positions.end <= FILE_BYTES_MAX;
        let Some(file) = file.filter(is_checked) else { return };
        let begun = self.calls.iter().filter_map(|call| match &call.then {
            Then::Read(reading) if reading.view == *view => Some(reading.begun),
            _ => None,
        });
        let begun = begun.chain(self.stepping).min().unwrap_or(u64::MAX);
        let is_sent = |put: &Put| if self.server.is_late { put.was_sent } else { put.is_sent };
        let is_before = |put: &&Put| !is_sent(put) && put.at < begun && put.file == file.number;
        for put in self.puts.iter().filter(is_before) {
            let is_apart = put.places.iter().all(|place| !meets(place, &positions));
            assert!(is_apart, "{positions:?} of {view:?} are read over unsent {:?}", put.places);
        }
    }

    /// Another call of an open file.
    fn change(&mut self, place: usize) {
        let file = &self.files[place];
        let number = file.number;
        let is_used = self.calls.iter().any(|call| call.file == Some(number));
        if file.is_copying() || self.has_many_calls() {
            return;
        }
        match self.choices.below(15) {
            0 if !is_used => self.set_view(place),
            1 => {
                let all = [Prefetch::Off, Prefetch::Never, Prefetch::Auto, Prefetch::Always];
                let prefetch = self.choices.one_of(&all);
                self.seal(place);
                let tail = &mut self.files[place].tail;
                self.client.set_prefetch(tail, prefetch, self.now);
            }
            2 if !is_used => self.close(place),
            3 => {
                self.seal(place);
                self.client.unlock_later(number, self.files[place].tail.frames());
            }
            4 => {
                let kind = self.choices.one_of(&[LockKind::Shared, LockKind::Exclusive]);
                self.ask(place, Call::Lock { file: number, kind });
            }
            5 => self.fence(),
            6 => {
                self.client.begin_presence();
                self.presences += 1;
            }
            7 if self.presences > 0 => {
                self.client.end_presence();
                self.presences -= 1;
            }
            8 => {
                let at = self.tick();
                self.client.forget_read(number);
                self.files[place].changes.push((at, 0..u64::MAX));
            }
            9 => self.ask(place, Call::Size { file: number }),
            10 => self.ask(place, Call::Sync { file: number }),
            11 => {
                let wait = self.client.until_written();
                self.wait_for(None, wait, Then::Nothing);
            }
            12 => self.wait_for(None, Wait::Finished, Then::Nothing),
            13 => self.ask(place, Call::SetSize { file: number, size: 1 << 20 }),
            _ => self.ask(place, Call::Flush { file: number }),
        }
    }

    fn set_view(&mut self, place: usize) {
        let (displacement, extent) = (self.position(), i64::from(self.choices.below(64)));
        let run = |length| Box::new(Datatype::Bytes(length));
        let datatype = match self.choices.below(3) {
            0 => Datatype::Bytes(1),
            1 => Datatype::Resized { begin: 0, extent, of: run(8) },
            _ => Datatype::Vector { count: 3, block: 1, stride: extent, of: run(8) },
        };
        let Ok(shape) = View::new(displacement, &datatype) else { return };
        let mut filetype = Vec::new();
        datatype.write(&mut filetype);
        if shape.has_overlapping_filetype() {
            return;
        }
        self.seal(place);
        let file = &mut self.files[place];
        let old = file.tail.target().clone();
        self.client.end_view(&old);
        if self.client.is_waiting(&Wait::RoomForView) {
            return;
        }
        let (of, new) = ((file.number, &old.path[..]), (displacement, &filetype[..], shape));
        let target = self.client.begin_view(of, new, file.tail.prefetch());
        file.tail.set_target(target);
        file.changes.clear();
    }

    fn close(&mut self, place: usize) {
        let is_deferred = self.choices.is_one_in(2);
        let (number, opening) = (self.files[place].number, self.files[place].opening);
        let opening = opening.map(Wait::Deferred).filter(|wait| self.client.is_waiting(wait));
        if let Some(wait) = opening {
            return self.wait_for(None, wait, Then::Nothing);
        }
        self.client.end_file(number);
        if is_deferred {
            self.seal(place);
            let file = self.files.swap_remove(place);
            self.client.close_later(file.tail.target(), file.tail.frames());
        } else {
            self.ask(place, Call::Close { file: number });
            let place = self.files.iter().position(|file| file.number == number);
            self.files.swap_remove(place.expect("it is open"));
        }
    }

    /// Asks for something after all that was written to a file.
    fn ask(&mut self, place: usize, call: Call) {
        self.seal(place);
        let file = &self.files[place];
        let after = After::Frames { file: file.number, count: file.tail.frames() };
        let (number, wait) = (file.number, Wait::Sent(after.clone()));
        self.wait_for(Some(number), wait, Then::Ask(after, call));
    }

    fn fence(&mut self) {
        let places = (0..self.files.len()).filter(|place| !self.files[*place].is_copying());
        places.collect::<Vec<_>>().into_iter().for_each(|place| self.seal(place));
        if !self.client.is_waiting(&Wait::FewUnsent)
            && let Some(number) = self.client.fence()
        {
            assert!(!self.is_over, "nothing is asked after the loss");
            self.wait_for(None, Wait::Reply(number), Then::Reply(number));
        }
    }

    pub(super) fn has_many_calls(&self) -> bool {
        self.calls.len() >= CALLS_MAX
    }

    pub(super) fn wait_for(&mut self, file: Option<FileNumber>, wait: Wait, then: Then) {
        if !self.client.is_waiting(&wait) {
            return self.go_on(file, then);
        }
        assert!(!self.is_over, "{wait:?} after the loss");
        self.client.begin_wait(&wait);
        self.awaited += u32::from(is_for_frames(&wait));
        self.calls.push(CallOf { file, wait, then });
    }

    /// A call that does not wait any more goes on.
    pub(super) fn go_on(&mut self, file: Option<FileNumber>, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Ask(after, call) => {
                let number = self.client.ask(&after, call);
                self.wait_for(file, Wait::Reply(number), Then::Reply(number));
            }
            Then::Reply(number) => {
                let reply = self.client.take_reply(number);
                assert!(reply.is_some(), "a reply that was waited for");
            }
            Then::Opened(number, path, asked) => match self.client.take_reply(asked) {
                Some(Ok(_)) => self.begin(number, &path, None),
                _ => self.client.close_unopened(number),
            },
            Then::Read(reading) => {
                self.go_on_reading(file.expect("it is of a file"), reading);
            }
        }
    }

    fn wake_one(&mut self) {
        let Some(place) = self.choices.place_in(self.calls.len()) else { return };
        self.wake(place);
    }

    /// Makes a call go on if it need not wait any more.
    pub(super) fn wake(&mut self, place: usize) {
        if self.client.is_waiting(&self.calls[place].wait) {
            return;
        }
        let CallOf { file, wait, then } = self.calls.remove(place);
        self.client.end_wait(&wait);
        self.awaited -= u32::from(is_for_frames(&wait));
        self.go_on(file, then);
    }

    /// Most are near others, or at the border of a chunk.
    pub(super) fn position(&mut self) -> u64 {
        let near = u64::from(self.choices.below(256));
        match self.choices.below(16) {
            0 => u64::from(FRAME_BYTES) - 128 + near,
            1 => u64::from(self.choices.below(8)) * u64::from(FRAME_BYTES),
            2 => self.choices.number() >> 1,
            _ => near,
        }
    }
}

/// Whether frames are sent for a call that waits for this.
fn is_for_frames(wait: &Wait) -> bool {
    match wait {
        Wait::Sent(_) | Wait::Closed(_) | Wait::Deferred(_) | Wait::Written(_) => true,
        Wait::RoomForFile | Wait::RoomForView | Wait::FewUnsent => true,
        Wait::Connected | Wait::RoomForRead | Wait::Coming(_) => false,
        Wait::Reply(_) | Wait::Finished => false,
    }
}
