//! A client that keeps the protocol, and what it knows and expects.
//!
//! It is a program of many threads: while it waits for one file it goes on with others.

use super::disk::{FILE_BYTES, Stamp};
use super::rng::Rng;
use super::server::{Received, Sent};
use super::world::{FILES, Stats};
use lads_core::frame::Row;
use lads_core::issue::Operation;
use lads_core::remote::message::{
    Call, Failure, FileNumber, FrameOf, OpenMode, Outcome, Request, ToClient, ViewNumber,
    WriteNumber,
};
use lads_core::units::Block;
use lads_core::view::Datatype;
use std::collections::{BTreeMap, VecDeque};

/// The files are dealt to the clients in blocks of this many bytes, in turn: no two clients write
/// the same byte, and all their views reach over the same bytes.
const BLOCK_BYTES: u64 = 8;

/// What a client writes or reads: in which file, and which bytes of it.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) disk: usize,
    pub(crate) places: Vec<usize>,
}

/// What a client was told.
#[derive(Debug)]
pub(crate) enum Told {
    /// A write is done, or failed with this; expected was this failure.
    Written {
        stamp: Stamp,
        failure: Option<Failure>,
        expected: Option<Failure>,
    },
    Read {
        access: Access,
        bytes: Vec<Stamp>,
    },
    /// All writes to the file that were begun before this one are durable.
    Synced {
        disk: usize,
        before: Stamp,
    },
}

pub(crate) struct Client {
    /// Which of how many it is.
    place: u64,
    count: u64,
    files: Vec<OpenFile>,
    numbers: u32,
    requests: u64,
    /// Frames that were made, and of these those that wait for room.
    frames: u64,
    outbox: VecDeque<(Row, Stamp)>,
    /// Frames that the server has room for.
    room: u32,
    /// Frames of which nothing was heard.
    unwritten: BTreeMap<u64, Unwritten>,
    asked: BTreeMap<u64, Asked>,
}

struct OpenFile {
    number: FileNumber,
    /// `None`: there is no such file.
    disk: Option<usize>,
    /// Why nothing can be done with it.
    failure: Option<Failure>,
    view: ViewNumber,
    kind: Kind,
    /// It waits for an answer about this file.
    is_waiting: bool,
}

/// What a view shows.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Whole,
    /// All blocks of the client.
    Blocks,
    /// Three bytes of each of them.
    Few,
}

/// A write of which nothing was heard.
struct Unwritten {
    stamp: Stamp,
    file: FileNumber,
    /// How it should fail.
    failure: Option<Failure>,
    places: Vec<usize>,
}

/// What was asked for, and the outcome that must come.
struct Asked {
    file: FileNumber,
    expected: Outcome,
    is_waited_for: bool,
    /// Of a read: what, and the bytes once they are there.
    access: Option<Access>,
    bytes: Option<Vec<Stamp>>,
    outcome: Option<Outcome>,
    /// If frames before this one of the file must be written first.
    after_frames: Option<u64>,
    /// If it makes a file durable: which one, and the first write after that.
    synced: Option<(usize, Stamp)>,
}

impl Client {
    pub(crate) fn new(place: u64, count: u64) -> Self {
        Self {
            place,
            count,
            files: Vec::new(),
            numbers: 0,
            requests: 0,
            frames: 0,
            outbox: VecDeque::new(),
            room: 0,
            unwritten: BTreeMap::new(),
            asked: BTreeMap::new(),
        }
    }

    /// Whether it waits for nothing.
    pub(crate) fn is_done(&self) -> bool {
        self.asked.is_empty() && self.unwritten.is_empty() && self.outbox.is_empty()
    }

    /// Writes that were begun and are not at the server.
    pub(crate) fn unsent(&self) -> impl Iterator<Item = Stamp> {
        self.outbox.iter().map(|(_, stamp)| *stamp)
    }

    /// Sends what there is room for.
    pub(crate) fn send(&mut self, to: &mut Received) {
        while self.room > 0 {
            let Some((row, stamp)) = self.outbox.pop_front() else { return };
            self.room -= 1;
            to.frames.push_back((row, self.room == 0, stamp));
        }
    }

    /// Does something. Returns a write, if it is one, with what must become of it.
    pub(crate) fn act(
        &mut self,
        to: &mut Received,
        rng: &mut Rng,
        next: Stamp,
        stats: &mut Stats,
    ) -> Option<Access> {
        if self.files.is_empty() || rng.is_one_in(12) {
            self.open(to, rng);
            return None;
        }
        let index = rng.index(self.files.len());
        if self.files[index].is_waiting {
            return None;
        }
        match rng.below(16) {
            0 | 1 => self.set_view(index, to, rng),
            2 | 3 => self.read(index, to, rng),
            4 => {
                stats.syncs += 1;
                let file = self.files[index].number;
                self.ask_about_writes(index, Call::Sync { file }, to, Some(next), true);
            }
            5 => {
                let file = self.files[index].number;
                self.ask_about_writes(index, Call::Flush { file }, to, None, true);
            }
            6 => {
                let is_waited_for = rng.is_one_in(2);
                let file = self.files[index].number;
                self.ask_about_writes(index, Call::Close { file }, to, Some(next), is_waited_for);
                self.files.remove(index);
            }
            _ => return self.write(index, rng, next),
        }
        None
    }

    fn next_number(&mut self) -> u32 {
        self.numbers += 1;
        self.numbers
    }

    fn ask(&mut self, call: Call, asked: Asked, frames_before: u64, to: &mut Received) {
        let number = self.requests;
        self.requests += 1;
        self.asked.insert(number, asked);
        to.requests.push_back(Request { number, frames_before, call });
    }

    fn open(&mut self, to: &mut Received, rng: &mut Rng) {
        // One name in several is of no file. One handle for each file: two are not in order.
        let disk = rng.index(FILES.len() + 1);
        let disk = (disk < FILES.len()).then_some(disk);
        if disk.is_some() && self.files.iter().any(|file| file.disk == disk) || self.files.len() > 4
        {
            return;
        }
        let (number, view) = (FileNumber(self.next_number()), ViewNumber(self.next_number()));
        let path = disk.map_or(&b"none"[..], |disk| FILES[disk].as_bytes()).to_vec();
        let failure = disk.is_none().then_some(NO_FILE);
        let call = Call::Open { file: number, path, mode: MODE, group: [0; 16] };
        let is_waiting = rng.is_one_in(2);
        let expected = failure.map_or(Outcome::Done, Outcome::Failed);
        self.ask(call, Asked::new(number, expected, is_waiting), 0, to);
        let kind = Kind::Whole;
        self.files.push(OpenFile { number, disk, failure, view, kind, is_waiting });
        let set = self.view_call(view, number, kind);
        self.ask(set, Asked::new(number, Outcome::Done, false), 0, to);
    }

    fn set_view(&mut self, index: usize, to: &mut Received, rng: &mut Rng) {
        let view = ViewNumber(self.next_number());
        let kind = [Kind::Whole, Kind::Blocks, Kind::Few][rng.index(3)];
        let file = &mut self.files[index];
        let before = std::mem::replace(&mut file.view, view);
        (file.kind, file.is_waiting) = (kind, false);
        let number = file.number;
        let forget = Asked::new(number, Outcome::Done, false);
        self.ask(Call::Forget { view: before }, forget, self.frames, to);
        let (mut call, mut expected) = (self.view_call(view, number, kind), Outcome::Done);
        if let (Call::View { filetype, .. }, true) = (&mut call, rng.is_one_in(20)) {
            filetype.clear();
            expected = Outcome::Failed(NO_VIEW);
            self.files[index].failure.get_or_insert(NO_VIEW);
        }
        self.ask(call, Asked::new(number, expected, false), 0, to);
    }

    fn view_call(&self, view: ViewNumber, file: FileNumber, kind: Kind) -> Call {
        let period = i64::try_from(BLOCK_BYTES * self.count).unwrap();
        let every = |bytes| Datatype::Resized {
            begin: 0,
            extent: period,
            of: Box::new(Datatype::Bytes(bytes)),
        };
        let start = self.place * BLOCK_BYTES;
        let (displacement, datatype) = match kind {
            Kind::Whole => (0, Datatype::Bytes(1)),
            Kind::Blocks => (start, every(BLOCK_BYTES)),
            Kind::Few => (start + 2, every(3)),
        };
        let mut filetype = Vec::new();
        datatype.write(&mut filetype);
        Call::View { view, file, displacement, filetype }
    }

    /// Chooses a piece of the view: its first position, how many, and which bytes of the file.
    fn piece(&self, kind: Kind, rng: &mut Rng) -> (u64, Vec<usize>) {
        let period = BLOCK_BYTES * self.count;
        let blocks = FILE_BYTES as u64 / period;
        let start = self.place * BLOCK_BYTES;
        let (first, length, place_of): (u64, u64, &dyn Fn(u64) -> u64) = match kind {
            // Only one block: the next one is of another client.
            Kind::Whole => {
                let skip = rng.below(BLOCK_BYTES);
                let first = start + rng.below(blocks) * period + skip;
                (first, 1 + rng.below(BLOCK_BYTES - skip), &|position| position)
            }
            Kind::Blocks => {
                let place = |it: u64| start + it / BLOCK_BYTES * period + it % BLOCK_BYTES;
                (rng.below(blocks * BLOCK_BYTES - 40), 1 + rng.below(40), &{ place })
            }
            Kind::Few => {
                let place = |it: u64| start + 2 + it / 3 * period + it % 3;
                (rng.below(blocks * 3 - 20), 1 + rng.below(20), &{ place })
            }
        };
        let places = (first..first + length).map(|it| usize::try_from(place_of(it)).unwrap());
        (first, places.collect())
    }

    fn write(&mut self, index: usize, rng: &mut Rng, stamp: Stamp) -> Option<Access> {
        let OpenFile { number, disk, failure, view, kind, .. } = self.files[index];
        let (offset, places) = self.piece(kind, rng);
        let length = u32::try_from(places.len()).unwrap();
        let of = FrameOf { view, write: WriteNumber::after(self.frames), is_announced: false };
        let block = Block { entry: of.entry(), offset, length };
        let unwritten = Unwritten { stamp, file: number, failure, places: places.clone() };
        self.unwritten.insert(self.frames, unwritten);
        self.frames += 1;
        self.outbox.push_back((Row { block, is_whole: false, checksum: 0 }, stamp));
        Some(Access { disk: disk.unwrap_or(0), places })
    }

    fn read(&mut self, index: usize, to: &mut Received, rng: &mut Rng) {
        let OpenFile { number, disk, failure, view, kind, .. } = self.files[index];
        let (position, places) = self.piece(kind, rng);
        let length = u32::try_from(places.len()).unwrap();
        let done = Outcome::Number(length.into());
        let expected = failure.map_or(done, Outcome::Failed);
        let mut asked = Asked::new(number, expected, true);
        asked.access = disk.filter(|_| failure.is_none()).map(|disk| Access { disk, places });
        asked.after_frames = asked.access.as_ref().map(|_| self.frames);
        self.files[index].is_waiting = true;
        self.ask(Call::Read { view, position, length }, asked, self.frames, to);
    }

    /// Asks for something that is about what was written.
    fn ask_about_writes(
        &mut self,
        index: usize,
        call: Call,
        to: &mut Received,
        syncs_before: Option<Stamp>,
        is_waited_for: bool,
    ) {
        let file = &mut self.files[index];
        file.is_waiting = is_waited_for;
        let expected = file.failure.map_or(Outcome::Done, Outcome::Failed);
        let mut asked = Asked::new(file.number, expected, is_waited_for);
        asked.after_frames = Some(self.frames);
        asked.synced = file.disk.filter(|_| file.failure.is_none()).zip(syncs_before);
        self.ask(call, asked, self.frames, to);
    }

    /// Hears a message. Returns what it says of writes and reads.
    pub(crate) fn hear_message(&mut self, from: &mut Sent) -> Vec<Told> {
        match from.messages.pop_front() {
            Some(ToClient::Written(written)) => {
                let told = written.into_iter().map(|it| {
                    let Unwritten { stamp, failure: expected, .. } =
                        self.unwritten.remove(&it.frame).unwrap();
                    Told::Written { stamp, failure: it.failure, expected }
                });
                told.collect()
            }
            Some(ToClient::Reply { number, outcome }) => {
                let asked = self.asked.get_mut(&number).unwrap();
                assert_eq!(asked.outcome, None, "answered twice");
                assert_eq!(outcome, asked.expected, "request {number}");
                asked.outcome = Some(outcome);
                let asked = &self.asked[&number];
                let mut before = self.unwritten.range(..asked.after_frames.unwrap_or(0));
                let early = before.find(|(_, it)| asked.comes_after(it)).map(|(_, it)| it.stamp);
                assert_eq!(early, None, "answered before this write was");
                self.finish(number)
            }
            Some(ToClient::Grant(count)) => {
                self.room += count;
                Vec::new()
            }
            Some(ToClient::Hello { .. }) | None => Vec::new(),
            Some(message) => panic!("{message:?}"),
        }
    }

    /// Hears what was read.
    pub(crate) fn hear_bytes(&mut self, from: &mut Sent) -> Vec<Told> {
        let Some((number, bytes)) = from.bytes.pop_front() else { return Vec::new() };
        let asked = self.asked.get_mut(&number).unwrap();
        assert!(asked.access.is_some() && asked.bytes.is_none(), "nobody asked for it");
        asked.bytes = Some(bytes);
        self.finish(number)
    }

    fn finish(&mut self, number: u64) -> Vec<Told> {
        let asked = &self.asked[&number];
        if asked.outcome.is_none() || asked.access.is_some() != asked.bytes.is_some() {
            return Vec::new();
        }
        let asked = self.asked.remove(&number).unwrap();
        let mut files = self.files.iter_mut();
        let file = files.find(|file| asked.is_waited_for && file.number == asked.file);
        file.into_iter().for_each(|file| file.is_waiting = false);
        let read = asked.access.zip(asked.bytes);
        let read = read.map(|(access, bytes)| Told::Read { access, bytes });
        let synced = asked.synced.map(|(disk, before)| Told::Synced { disk, before });
        read.into_iter().chain(synced).collect()
    }
}

impl Asked {
    /// Whether an earlier write must be done before: for a read, one with bytes in common.
    fn comes_after(&self, write: &Unwritten) -> bool {
        let meets = |it: &Access| it.places.iter().any(|place| write.places.contains(place));
        write.file == self.file && self.access.as_ref().is_none_or(meets)
    }

    fn new(file: FileNumber, expected: Outcome, is_waited_for: bool) -> Self {
        Self {
            file,
            expected,
            is_waited_for,
            access: None,
            bytes: None,
            outcome: None,
            after_frames: None,
            synced: None,
        }
    }
}

const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: false, is_new: false };
const NO_FILE: Failure = Failure { operation: Operation::Open, errno: 2 };
const NO_VIEW: Failure = Failure { operation: Operation::Examine, errno: 22 };

/// Which client, of this number of clients, writes a byte.
pub(crate) fn owner_of(place: usize, count: usize) -> usize {
    place / usize::try_from(BLOCK_BYTES).unwrap() % count
}
