//! What a client keeps on a local disk, on one thread, in any order: what a seed chooses.
//!
//! The real [`Outbox`], list ([`kept`]) and [`Server`] decide; the program, its disk, the way to
//! the server and the server's storage are simulated. The connection is lost, or the program
//! killed, at any time, and what was kept is sent again. Bytes are not simulated: a byte of the
//! file holds the number of the write that put it there.
//!
//! What is checked: a read sees what the program wrote before; after a sync the server has it. Once
//! what was kept is sent again, nothing is missing if the connection was lost; if the program was
//! killed, a byte is what was synced, or what was written later.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use lads_core::frame::{Header, Row};
use lads_core::remote::kept::{self, Kept, Record};
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{
    Call, FileNumber, FrameOf, OpenMode, Outcome, Request, ToClient, ToServer, ViewNumber,
};
use lads_core::remote::name;
use lads_core::remote::outbox::{Goes, Outbox, Place, Staging};
use lads_core::remote::server::{Act, Server, Task, Work};
use lads_core::staging::{Slot, Slots};
use lads_core::units::{Block, Instant, OstId};
use lads_core::view::{Datatype, View};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::panic::catch_unwind;
use std::rc::Rc;

#[path = "remote_files/rng.rs"]
mod rng;
use rng::Rng;

const FILE: FileNumber = FileNumber(1);
const ID: FileId = FileId { device: 1, inode: 1 };
const FILE_BYTES: usize = 4096;
/// The longest frame, and a slot of the local disk, in bytes.
const FRAME_BYTES: u64 = 64;
const BUFFERS: u32 = 12;
/// As many frames find room on the local disk, in every other world: few, or all there can be.
const SLOTS: [u64; 2] = [8, 400];
/// Frames that the server has room for.
const ROOM: u32 = 5;
const WRITES: u32 = 60;

/// The number of the write that a byte comes from; 0 if it was never written.
type Stamp = u32;
/// What a frame holds.
type Bytes = Rc<Vec<Stamp>>;

#[derive(Clone, Debug)]
struct About {
    view: ViewNumber,
    position: u64,
    length: u32,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stats {
    staged: u64,
    sent_from_disk: u64,
    reads: u64,
    syncs: u64,
    kept: u64,
    kills: u64,
    losses: u64,
}

/// What the program waits for.
#[derive(Debug)]
enum Waits {
    /// Frames before this one are to be sent; then it is read.
    ToRead(u64, Range<u64>),
    ToSync(u64),
    /// For the answer to this request, with what a read must find, by runs.
    ForRead(u64, Vec<Stamp>),
    ForSync(u64),
}

struct Viewed {
    view: View,
    displacement: u64,
    filetype: Vec<u8>,
}

struct World {
    rng: Rng,
    stats: Stats,
    // The program.
    writes: Stamp,
    /// For each byte: what it was at the last sync, and what was written since.
    history: Vec<Vec<Stamp>>,
    waits: Option<Waits>,
    // The client.
    outbox: Outbox<Bytes, About>,
    views: HashMap<ViewNumber, Viewed>,
    view: ViewNumber,
    staging: Vec<Staging<Bytes, About>>,
    requests: u64,
    // Its local disk.
    slots: HashMap<Slot, Bytes>,
    list: Vec<u8>,
    listed: HashSet<ViewNumber>,
    has_room: bool,
    is_disk_full: bool,
    // The way.
    frames: VecDeque<(Row, bool, Bytes)>,
    calls: VecDeque<Request>,
    told: VecDeque<ToClient>,
    /// What was read.
    bytes: Vec<Stamp>,
    // The server.
    server: Server,
    number: ClientNumber,
    came: HashMap<u64, Bytes>,
    started: Vec<Work>,
    file: Vec<Stamp>,
}

fn places(view: &View, positions: Range<u64>) -> Vec<usize> {
    let runs = view.runs(positions).unwrap();
    let bytes = runs.flat_map(|run| run.offset..run.offset + run.length);
    bytes.map(|byte| usize::try_from(byte).unwrap()).collect()
}

fn row(of: FrameOf, positions: &Range<u64>) -> Row {
    let length = u32::try_from(positions.end - positions.start).unwrap();
    let block = Block { entry: of.entry(), offset: positions.start, length };
    Row { block, is_whole: false, checksum: 0 }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut list = Vec::new();
        let slot_bytes = u32::try_from(FRAME_BYTES).unwrap();
        kept::encode(&kept::begin(name::Server::Here, slot_bytes), &mut list);
        let mut server = Server::new("host".to_owned(), ROOM);
        let number = server.connect(Instant::START);
        let mut rng = Rng::new(seed);
        let has_room = rng.is_one_in(2);
        let slots = SLOTS[usize::from(has_room)];
        let slots = Slots::new(slots * FRAME_BYTES, slot_bytes, 3);
        let mut world = Self {
            rng,
            stats: Stats::default(),
            writes: 0,
            history: vec![vec![0]; FILE_BYTES],
            waits: None,
            outbox: Outbox::new(BUFFERS, slots),
            views: HashMap::new(),
            view: ViewNumber(0),
            staging: Vec::new(),
            requests: 0,
            slots: HashMap::new(),
            list,
            listed: HashSet::new(),
            has_room,
            is_disk_full: false,
            frames: VecDeque::new(),
            calls: VecDeque::new(),
            told: VecDeque::new(),
            bytes: Vec::new(),
            server,
            number,
            came: HashMap::new(),
            started: Vec::new(),
            file: vec![0; FILE_BYTES],
        };
        let (path, group) = (b"file".to_vec(), [0; 16]);
        let mode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
        world.ask(Call::Open { file: FILE, path, mode, group });
        world.set_view();
        world
    }

    fn run(mut self) -> Stats {
        while self.writes < WRITES {
            if self.rng.is_one_in(400) {
                return self.come_to_a_bad_end();
            }
            self.step();
        }
        while !self.outbox.is_empty() || self.waits.is_some() || !self.staging.is_empty() {
            self.move_on();
        }
        self.expect_all();
        let left = kept::read(&self.list).unwrap();
        assert!(left.frames.is_empty(), "all is at the server, and still on the list");
        self.stats
    }

    fn step(&mut self) {
        if self.waits.is_none() && self.rng.is_one_in(4) {
            self.act();
        } else {
            self.move_on();
        }
    }

    /// The program does something.
    fn act(&mut self) {
        match self.rng.below(12) {
            0 => self.set_view(),
            1 => self.waits = Some(Waits::ToSync(self.outbox.count())),
            2 => {
                let positions = self.piece();
                self.waits = Some(Waits::ToRead(self.outbox.count(), positions));
            }
            _ => self.write(),
        }
    }

    fn set_view(&mut self) {
        let length = 1 + self.rng.below(8);
        let (extent, displacement) = (length + self.rng.below(2 * length), self.rng.below(300));
        let bytes = Box::new(Datatype::Bytes(length));
        let extent = i64::try_from(extent).unwrap();
        let datatype = Datatype::Resized { begin: 0, extent, of: bytes };
        let mut filetype = Vec::new();
        datatype.write(&mut filetype);
        let view = View::new(displacement, &datatype).unwrap();
        self.view = ViewNumber(self.view.0 + 1);
        let (number, file) = (self.view, FILE);
        self.ask(Call::View { view: number, file, displacement, filetype: filetype.clone() });
        self.views.insert(number, Viewed { view, displacement, filetype });
    }

    fn ask(&mut self, call: Call) {
        let (number, frames_before) = (self.requests, self.outbox.sent());
        self.calls.push_back(Request { number, frames_before, call });
        self.requests += 1;
    }

    /// Some positions of the view.
    fn piece(&mut self) -> Range<u64> {
        let start = self.rng.below(600);
        start..start + 1 + self.rng.below(200)
    }

    fn write(&mut self) {
        let all = self.piece();
        let view = self.view;
        let starts = (all.start..all.end).step_by(usize::try_from(FRAME_BYTES).unwrap());
        let pieces: Vec<_> = starts.map(|start| start..all.end.min(start + FRAME_BYTES)).collect();
        if self.outbox.in_memory() as usize + pieces.len() > BUFFERS as usize {
            // The program waits for a buffer.
            return self.stage(true);
        }
        self.writes += 1;
        for positions in pieces {
            let shape = &self.views[&view].view;
            let reach = shape.reach(&positions);
            for place in places(shape, positions.clone()) {
                self.history[place].push(self.writes);
            }
            let length = u32::try_from(positions.end - positions.start).unwrap();
            let about = About { view, position: positions.start, length };
            let bytes = Rc::new(vec![self.writes; length as usize]);
            self.outbox.put(Goes { file: FILE, view, positions, reach }, about, bytes);
        }
    }

    /// Something happens that is not the program's doing.
    fn move_on(&mut self) {
        match self.rng.below(9) {
            0 => self.send(),
            1 => {
                let is_needed = self.rng.is_one_in(2);
                self.stage(is_needed);
            }
            2 => self.finish_staging(),
            3 => self.take_frame(),
            4 => self.take_call(),
            5 => self.answer(),
            6 => self.speak(),
            7 => self.store(),
            _ => self.hear(),
        }
        self.go_on_waiting();
    }

    /// What the program waits for may have come so far that the client can ask the server.
    fn go_on_waiting(&mut self) {
        match self.waits.take() {
            Some(Waits::ToSync(count)) if !self.outbox.is_unsent(FILE, count) => {
                self.waits = Some(Waits::ForSync(self.requests));
                self.ask(Call::Sync { file: FILE });
            }
            Some(Waits::ToRead(count, positions)) => {
                let (view, shape) = (self.view, &self.views[&self.view].view);
                let reach = shape.reach(&positions);
                if self.outbox.is_unsent_in(FILE, &reach, count) {
                    self.waits = Some(Waits::ToRead(count, positions));
                    return;
                }
                let bytes = places(shape, positions.clone());
                let bytes = bytes.into_iter().map(|at| *self.history[at].last().unwrap());
                self.waits = Some(Waits::ForRead(self.requests, bytes.collect()));
                let length = u32::try_from(positions.end - positions.start).unwrap();
                self.ask(Call::Read { view, position: positions.start, length });
            }
            waits => self.waits = waits,
        }
    }

    fn send(&mut self) {
        let is_waited_for = matches!(self.waits, Some(Waits::ToRead(..) | Waits::ToSync(_)));
        let Some(next) = self.outbox.next(is_waited_for) else { return };
        let bytes = match next.place {
            Place::Memory(bytes) | Place::Staging(bytes) => bytes,
            Place::Staged(slot) => {
                self.stats.sent_from_disk += 1;
                Rc::clone(&self.slots[&slot])
            }
        };
        let About { position, length, .. } = next.about;
        assert_eq!(bytes.len(), length as usize, "the bytes of another frame");
        let row = row(next.of, &(position..position + u64::from(length)));
        self.frames.push_back((row, next.is_last_grant, bytes));
    }

    fn stage(&mut self, is_needed: bool) {
        let started = match is_needed {
            true => self.outbox.start_staging(),
            false => self.outbox.start_staging_ahead(),
        };
        self.staging.extend(started);
    }

    fn finish_staging(&mut self) {
        if self.staging.is_empty() {
            return;
        }
        let index = self.rng.index(self.staging.len());
        let staging = self.staging.swap_remove(index);
        self.is_disk_full |= self.rng.is_one_in(500);
        self.put_aside(staging);
    }

    fn put_aside(&mut self, staging: Staging<Bytes, About>) {
        let Staging { id, about: About { view, position, length }, buffer, slot } = staging;
        if self.is_disk_full {
            return self.outbox.on_not_staged(id, slot);
        }
        self.slots.insert(slot, buffer);
        if self.listed.insert(view) {
            let Viewed { displacement, filetype, .. } = &self.views[&view];
            let (displacement, filetype) = (*displacement, filetype.clone());
            let path = b"file".to_vec();
            let record = Record::View { view, file: FILE, path, displacement, filetype };
            kept::encode(&record, &mut self.list);
        }
        let kept = Kept { id, view, position, length, slot, checksum: 0 };
        kept::encode(&Record::Kept(kept), &mut self.list);
        self.outbox.on_staged(id, slot);
        self.stats.staged += 1;
    }

    fn take_frame(&mut self) {
        let Some((row, is_last_grant, bytes)) = self.frames.pop_front() else { return };
        let header = Header {
            count: 1,
            payload_bytes: row.block.length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant,
            has_only_sums: false,
        };
        self.server.on_head(self.number, &header, &[row]).unwrap();
        let frame = self.server.on_frame(self.number, &[row], Instant::START).unwrap();
        self.came.insert(frame, bytes);
    }

    fn take_call(&mut self) {
        if !self.server.has_room_for_message(self.number) {
            return;
        }
        let Some(request) = self.calls.pop_front() else { return };
        let message = ToServer::Request(request);
        self.server.on_message(self.number, message, Instant::START).unwrap();
    }

    /// The server does what a request asks for.
    fn answer(&mut self) {
        let (number, now) = (self.number, Instant::START);
        let Some(Task { request, act }) = self.server.next_task(number) else { return };
        match act {
            Act::Open { .. } => self.server.on_opened(number, request, Ok(ID), now).unwrap(),
            Act::Read { extent, .. } => {
                let at = places(extent.view(), extent.positions().clone());
                self.bytes = at.into_iter().map(|at| self.file[at]).collect();
                let length = u32::try_from(self.bytes.len()).unwrap();
                assert!(self.server.on_read(number, request, Ok(length)).unwrap());
                self.server.on_sent(number, request, length, now).unwrap();
            }
            Act::Sync(_) => self.server.on_done(number, request, Outcome::Done, now).unwrap(),
            act => unreachable!("{act:?}"),
        }
    }

    fn speak(&mut self) {
        self.told.extend(self.server.next_messages(self.number).unwrap());
    }

    /// The server writes a frame.
    fn store(&mut self) {
        self.started.extend(std::iter::from_fn(|| self.server.next_work()));
        if self.started.is_empty() {
            return;
        }
        let index = self.rng.index(self.started.len());
        let Work::Write { frame, extent, .. } = self.started.swap_remove(index) else {
            unreachable!("all are written");
        };
        let bytes = self.came.remove(&frame).unwrap();
        put(&mut self.file, extent.view(), extent.positions(), &bytes);
        self.server.on_written(self.number, frame, None, Instant::START).unwrap();
    }

    fn hear(&mut self) {
        match self.told.pop_front() {
            Some(ToClient::Grant(count)) => self.outbox.on_grant(count),
            Some(ToClient::Written(written)) => {
                for it in written {
                    let gone = self.outbox.on_written(it.frame).expect("it was sent");
                    if let Some((id, slot)) = gone.staged {
                        kept::encode(&Record::Gone { id }, &mut self.list);
                        self.outbox.free(slot);
                    }
                }
            }
            Some(ToClient::Reply { number, .. }) => match self.waits.take() {
                Some(Waits::ForRead(request, expected)) if request == number => {
                    assert_eq!(self.bytes, expected);
                    self.stats.reads += 1;
                }
                Some(Waits::ForSync(request)) if request == number => {
                    self.expect_all();
                    self.history.iter_mut().for_each(|all| drop(all.drain(..all.len() - 1)));
                    self.stats.syncs += 1;
                }
                waits => self.waits = waits,
            },
            _ => {}
        }
    }

    /// The server has all that the program wrote.
    fn expect_all(&self) {
        for (at, (byte, history)) in self.file.iter().zip(&self.history).enumerate() {
            assert_eq!(byte, history.last().unwrap(), "byte {at}");
        }
    }

    fn come_to_a_bad_end(mut self) -> Stats {
        let is_killed = self.rng.is_one_in(2);
        // What the server has begun it goes on with, and with what comes after it for a while.
        for _ in 0..self.rng.below(20) {
            self.store();
        }
        let mut is_all_kept = !is_killed;
        if is_killed {
            self.stats.kills += 1;
        } else {
            self.stats.losses += 1;
            while let Some(staging) = self.staging.pop() {
                self.put_aside(staging);
            }
            while let Some(staging) = self.outbox.start_keeping() {
                self.put_aside(staging);
            }
            is_all_kept = self.outbox.forget_in_memory().is_empty();
            assert!(is_all_kept || self.is_disk_full || !self.has_room, "there was room for it");
        }
        self.replay();
        for (at, (byte, history)) in self.file.iter().zip(&self.history).enumerate() {
            assert!(history.contains(byte), "byte {at} is {byte}, not one of {history:?}");
        }
        if is_all_kept {
            self.expect_all();
        }
        self.stats
    }

    /// Another program sends what was kept, over a connection of its own.
    fn replay(&mut self) {
        let list = kept::read(&self.list).unwrap();
        // One after the other, as the program wrote them.
        for Kept { view, position, length, slot, .. } in list.frames {
            let kept::KeptView { displacement, filetype, .. } = &list.views[&view];
            let shape = View::new(*displacement, &Datatype::take(filetype).unwrap()).unwrap();
            let positions = position..position + u64::from(length);
            put(&mut self.file, &shape, &positions, &self.slots[&slot]);
            self.stats.kept += 1;
        }
    }
}

fn put(file: &mut [Stamp], view: &View, positions: &Range<u64>, bytes: &[Stamp]) {
    let places = places(view, positions.clone());
    assert_eq!(places.len(), bytes.len());
    places.into_iter().zip(bytes).for_each(|(at, byte)| file[at] = *byte);
}

fn run(seed: u64) -> Stats {
    catch_unwind(|| World::new(seed).run()).unwrap_or_else(|_| panic!("seed {seed} failed"))
}

#[test]
fn promises_are_kept_in_fixed_worlds() {
    let all: Vec<_> = (0..600).map(run).collect();
    // The worlds would say nothing if nothing happened in them.
    let counts: [fn(&Stats) -> u64; 7] = [
        |it| it.staged,
        |it| it.sent_from_disk,
        |it| it.reads,
        |it| it.syncs,
        |it| it.kept,
        |it| it.kills,
        |it| it.losses,
    ];
    let counts = counts.map(|count| all.iter().map(count).sum::<u64>());
    assert!(counts.iter().all(|&count| count >= 50), "{counts:?}");
}

#[test]
fn promises_are_kept_in_worlds_never_seen_before() {
    let first = RandomState::new().hash_one("staged files");
    for step in 0..200 {
        run(first.wrapping_add(step));
    }
}
