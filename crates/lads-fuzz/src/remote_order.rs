//! A client of remote files that says what it likes, and a server that does what [`Order`] lets it.
//!
//! The bytes are choices: what the client asks for, which frames come when, and which of those that
//! are being written is done next. The server here keeps to what a server does: it grants room for
//! frames, takes one request at a time, and ends the connection at a breach.

use crate::choices::Choices;
use lads_core::frame::Row;
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::limits::{ALIGNMENT_BYTES, CLIENT_FILES_MAX, CLIENT_VIEWS_MAX, FRAME_BYTES};
use lads_core::remote::locks::{ClientNumber, FileId, Locks, Owner};
use lads_core::remote::message::{Call, Failure, FileNumber, LockKind, OpenMode, ViewNumber};
use lads_core::remote::order::{Breach, Order, Start};
use lads_core::remote::scatter::scatter;
use lads_core::units::{Block, EntryId, OstId};
use lads_core::view::{Datatype, Run, View};
use std::collections::{BTreeMap, BTreeSet};

/// Steps of an input that are taken; beyond that it only costs time.
const STEPS_MAX: u32 = 1000;

/// Frames that may be under way: as many as a server grants that has little memory. With double,
/// each step compares four times as many of them.
const FRAMES_OPEN_MAX: usize = 12;

/// Runs of a frame that are looked at one by one. A frame may have a million.
const RUNS_SEEN_MAX: usize = 64;

/// Plays an input.
///
/// # Panics
/// If a frame is written before its turn, twice, or never.
pub fn run(bytes: &[u8]) {
    let _ = play(bytes);
}

/// What an input led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Frames that were written.
    pub written: u32,
    /// Frames that could not be.
    pub failed: u32,
    /// Requests that were done.
    pub done: u32,
    /// Whether the client broke the protocol.
    pub is_refused: bool,
}

/// Plays an input, to its end.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn play(bytes: &[u8]) -> Reached {
    let mut server = Server {
        choices: Choices::new(bytes),
        order: Order::default(),
        locks: Locks::default(),
        waiting: BTreeSet::new(),
        pending: None,
        requests: 0,
        frames: 0,
        open: BTreeMap::new(),
        writing: Vec::new(),
        files: BTreeSet::new(),
        views: BTreeSet::new(),
        reached: Reached::default(),
    };
    for _ in 0..STEPS_MAX {
        if server.choices.is_empty() || server.reached.is_refused {
            break;
        }
        if server.step().is_err() {
            server.reached.is_refused = true;
        }
        server.advance();
    }
    server.come_to_an_end();
    server.reached
}

/// A frame that is being written, and the first runs of it.
struct Writing {
    start: Start,
    runs: Vec<Run>,
}

struct Server<'a> {
    choices: Choices<'a>,
    order: Order,
    locks: Locks,
    /// Requests that wait for a lock.
    waiting: BTreeSet<u64>,
    /// The request whose turn has not come, and how many frames it waits for.
    pending: Option<(u64, Call)>,
    requests: u64,
    frames: u64,
    /// Frames that have come and of which nothing was said, and their views.
    open: BTreeMap<u64, ViewNumber>,
    writing: Vec<Writing>,
    files: BTreeSet<FileNumber>,
    views: BTreeSet<ViewNumber>,
    reached: Reached,
}

impl Server<'_> {
    fn step(&mut self) -> Result<(), Breach> {
        match self.choices.below(4) {
            0 => self.finish_one(),
            1 | 2 if self.pending.is_none() => return self.ask(),
            _ if self.open.len() < FRAMES_OPEN_MAX => return self.send(),
            _ => self.finish_one(),
        }
        Ok(())
    }

    /// The client asks for something, most often with the number that is next.
    fn ask(&mut self) -> Result<(), Breach> {
        let is_lie = self.choices.is_one_in(64);
        let number = if is_lie { self.choices.number() } else { self.requests };
        self.order.on_request(number)?;
        self.requests += 1;
        let before = match self.choices.below(8) {
            0 => self.choices.number(),
            1 => self.frames + 1,
            2 => 0,
            _ => self.frames,
        };
        self.pending = Some((before, self.call()));
        Ok(())
    }

    fn call(&mut self) -> Call {
        let (file, view) = (self.file(), self.view());
        match self.choices.below(16) {
            0 => Call::Open { file, path: Vec::new(), mode: MODE, group: [0; 16] },
            1 | 2 => {
                let displacement = self.choices.number();
                Call::View { view, file, displacement, filetype: self.filetype() }
            }
            3 => Call::Forget { view },
            4 => Call::Read { view, position: self.choices.number(), length: self.length() },
            5 => Call::Sync { file },
            6 => Call::Flush { file },
            7 => Call::Close { file },
            8 => Call::Size { file },
            9 => Call::SetSize { file, size: 0 },
            10 => Call::Preallocate { file, size: 0 },
            11 => Call::End { view },
            12 => Call::AddShared { file, bytes: 0 },
            13 => {
                let kinds = [LockKind::Shared, LockKind::Exclusive];
                Call::Lock { file, kind: self.choices.one_of(&kinds) }
            }
            14 => Call::Unlock { file },
            _ => Call::Delete { path: Vec::new() },
        }
    }

    fn file(&mut self) -> FileNumber {
        FileNumber(self.choices.below(3))
    }

    fn view(&mut self) -> ViewNumber {
        ViewNumber(if self.choices.is_one_in(16) {
            self.choices.number32()
        } else {
            self.choices.below(4)
        })
    }

    /// Most are short: a long one may have a million runs, which take long to find.
    fn length(&mut self) -> u32 {
        let is_long = self.choices.is_one_in(250);
        1 + self.choices.below(if is_long { FRAME_BYTES } else { 64 })
    }

    /// A few sound ones, and anything.
    fn filetype(&mut self) -> Vec<u8> {
        let run = |length| Box::new(Datatype::Bytes(length));
        let (length, extent) = (1 + u64::from(self.choices.below(16)), self.choices.below(64));
        let datatype = match self.choices.below(4) {
            0 => Datatype::Bytes(length),
            1 => Datatype::Resized { begin: 0, extent: extent.into(), of: run(length) },
            2 => {
                let stride = i64::from(extent);
                Datatype::Vector { count: length, block: 1, stride, of: run(length) }
            }
            _ => return self.choices.bytes(256).to_vec(),
        };
        let mut bytes = Vec::new();
        datatype.write(&mut bytes);
        bytes
    }

    /// A frame comes, as the transport lets it through: not empty, and no position overflows.
    fn send(&mut self) -> Result<(), Breach> {
        let view = self.view();
        let entry = match self.choices.is_one_in(64) {
            true => EntryId(self.choices.number()),
            false => view.entry(),
        };
        let is_far = self.choices.is_one_in(8);
        let offset = if is_far { self.choices.number() } else { self.choices.below(256).into() };
        let length = self.length();
        let Some(_) = offset.checked_add(length.into()) else { return Ok(()) };
        let row = Row { block: Block { entry, offset, length }, is_whole: false, checksum: 0 };
        let number = self.order.on_frame(&[row])?;
        assert_eq!(number, self.frames, "frames are counted");
        self.frames += 1;
        let view = ViewNumber::of_entry(entry).expect("it was taken");
        self.open.insert(number, view);
        Ok(())
    }

    /// One that is being written is done.
    fn finish_one(&mut self) {
        let Some(place) = self.choices.place_in(self.writing.len()) else { return };
        let Writing { start, .. } = self.writing.swap_remove(place);
        self.order.on_written(start.frame);
        assert!(self.open.remove(&start.frame).is_some(), "{start:?} ended twice");
        self.reached.written += 1;
    }

    /// Does what may be done, as a server does.
    fn advance(&mut self) {
        self.settle();
        while let Some((before, call)) = self.pending.take() {
            if self.reached.is_refused || !self.order.is_ready(before, &call) {
                self.pending = Some((before, call));
                return;
            }
            assert!(self.frames >= before, "{call:?} before its frames");
            match self.act(call) {
                Ok(()) => self.reached.done += 1,
                Err(_) => self.reached.is_refused = true,
            }
            self.settle();
        }
    }

    fn act(&mut self, call: Call) -> Result<(), Breach> {
        match call {
            Call::Open { file, .. } => {
                let failure = self.choices.is_one_in(4).then_some(FAILURE);
                self.order.open(file, failure)?;
                assert!(self.files.insert(file) && self.files.len() <= CLIENT_FILES_MAX);
            }
            Call::View { view, file, displacement, filetype } => {
                let datatype = Datatype::take(&filetype);
                let made = datatype.and_then(|it| View::new(displacement, &it));
                let made = made.map_err(|_| FAILURE);
                self.order.set_view(view, file, filetype.len(), made)?;
                assert!(self.views.insert(view) && self.views.len() <= CLIENT_VIEWS_MAX);
            }
            Call::Forget { view } => {
                self.order.forget(view);
                self.views.remove(&view);
            }
            Call::Close { file } => {
                self.order.failure_of(file)?;
                self.order.close(file);
                self.files.remove(&file);
                let order = &self.order;
                self.views.retain(|view| order.view(*view).is_ok());
                let released = self.locks.release(id_of(file), owner_of(file));
                let gone = released.given_up.into_iter();
                gone.chain(released.grants.into_iter().map(|it| it.request))
                    .for_each(|it| assert!(self.waiting.remove(&it), "request {it} twice"));
            }
            Call::Lock { file, kind } => {
                self.order.failure_of(file)?;
                let request = self.requests;
                let taken = self.locks.lock(id_of(file), owner_of(file), request, kind);
                if taken == Ok(false) {
                    self.waiting.insert(request);
                }
            }
            Call::Unlock { file } => {
                let owner = owner_of(file);
                let grants = self.locks.unlock(id_of(file), owner).ok_or(Breach::Unknown)?;
                for grant in grants {
                    assert!(self.waiting.remove(&grant.request), "{grant:?} twice");
                }
            }
            Call::Read { view, position, length } => {
                let (file, view) = self.order.view(view)?;
                self.order.failure_of(file)?;
                if let Some(end) = position.checked_add(length.into()) {
                    let _ = scattered(&view, position, end);
                }
            }
            Call::End { view } => {
                let (_, view) = self.order.view(view)?;
                let _ = view.position_at(self.choices.number());
            }
            Call::Sync { file } | Call::Flush { file } | Call::Size { file } => {
                self.order.failure_of(file)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// What cannot be written fails; what may be written is being written.
    fn settle(&mut self) {
        for failed in self.order.take_failed() {
            assert!(self.open.remove(&failed.frame).is_some(), "{failed:?} ended twice");
            assert!(failed.failure.is_some(), "{failed:?}");
            self.reached.failed += 1;
        }
        for start in self.order.take_starts() {
            let is_new = self.writing.iter().all(|other| other.start.frame != start.frame);
            assert!(self.open.contains_key(&start.frame) && is_new, "{start:?} twice");
            let runs = scattered(&start.view, start.positions.start, start.positions.end);
            let writing = Writing { start, runs: runs.unwrap_or_default() };
            self.writing.iter().for_each(|other| other.is_apart_from(&writing));
            self.writing.push(writing);
        }
        assert!(self.open.len() <= FRAMES_OPEN_MAX);
    }

    /// All that is being written is done. What is left waits for what the client never said.
    fn come_to_an_end(&mut self) {
        while !self.writing.is_empty() {
            self.finish_one();
            self.advance();
        }
        if self.reached.is_refused {
            return;
        }
        // Later frames wait for one whose view is not known: they may have bytes in common.
        let first = self.open.iter().min_by_key(|(number, _)| **number);
        let waits = first.filter(|(_, view)| self.views.contains(view));
        assert_eq!(waits, None, "a frame whose view is known is never written");
        if let Some((before, call)) = &self.pending {
            assert!(self.frames < *before || !self.open.is_empty(), "{call:?} is never done");
        }
    }
}

impl Writing {
    /// Two frames that are written at the same time have no byte in common.
    fn is_apart_from(&self, other: &Self) {
        if self.start.file != other.start.file {
            return;
        }
        for (run, of_other) in
            self.runs.iter().flat_map(|it| other.runs.iter().map(move |b| (it, b)))
        {
            let is_apart = run.offset + run.length <= of_other.offset
                || of_other.offset + of_other.length <= run.offset;
            assert!(is_apart, "{:?} and {:?}", self.start, other.start);
        }
    }
}

/// The first runs of a piece, as a server finds them: in parts, each of which goes on where the one
/// before ended.
fn scattered(view: &View, first: u64, end: u64) -> Option<Vec<Run>> {
    let layout = Layout::striped(ALIGNMENT_BYTES, vec![OstId(0), OstId(1)]).expect("it is sound");
    let (mut next, mut runs) = (first, Vec::new());
    while next < end {
        let part = scatter(view, &layout, first, next..end).ok()?;
        assert!(part.end > next && part.end <= end, "{} after {next}", part.end);
        let spots = part.osts.values().flatten();
        let length: u64 = spots.clone().map(|spot| spot.run.length).sum();
        assert_eq!(length, part.end - next, "each position once");
        let seen = RUNS_SEEN_MAX - runs.len();
        runs.extend(spots.take(seen).map(|spot| spot.run));
        next = part.end;
    }
    Some(runs)
}

/// Two of its files are the same one.
fn id_of(file: FileNumber) -> FileId {
    FileId { device: 0, inode: u64::from(file.0 / 2) }
}

fn owner_of(file: FileNumber) -> Owner {
    Owner { client: ClientNumber(0), file }
}

const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
const FAILURE: Failure = Failure { operation: Operation::Open, errno: 5 };
