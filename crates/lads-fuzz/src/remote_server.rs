//! Clients of remote files that say what they like, and a server that does what its session
//! ([`lads_core::remote::server`]) lets it.
//!
//! The bytes are choices: which client asks for what, which frames come when, and which of the
//! things that are to be done is done next. The owner of the session keeps to what an owner does.

use crate::choices::Choices;
use lads_core::frame::{Header, Row};
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::limits::{ALIGNMENT_BYTES, FRAME_BYTES};
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{
    Call, Failure, FileNumber, FrameOf, LockKind, OpenMode, Outcome, Request, ToClient, ToServer,
    Unsent, ViewNumber, WriteNumber,
};
use lads_core::remote::scatter::scatter;
use lads_core::remote::server::{Act, Breach, Server, Task, Work};
use lads_core::units::{Block, EntryId, Instant, OstId};
use lads_core::view::{Datatype, Run, View};
use std::collections::BTreeSet;

/// Steps of an input that are taken; beyond that it only costs time.
const STEPS_MAX: u32 = 1000;

/// Frames of a client that the server has room for: as one with little memory. With double, each
/// step compares four times as many of them.
const ROOM: u32 = 6;

/// Runs of a frame that are looked at one by one. A frame may have a million.
const RUNS_SEEN_MAX: usize = 64;

/// Plays an input.
///
/// # Panics
/// If a frame is written twice, beside another one of the same bytes, or never, or a task is never
/// done.
pub fn run(bytes: &[u8]) {
    let _ = play(bytes);
}

/// What an input led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Frames that were written.
    pub written: u32,
    /// Frames that could not be, or were refused.
    pub dropped: u32,
    /// Requests that were answered.
    pub answered: u32,
    /// Whether a client broke the protocol.
    pub is_refused: bool,
}

/// Plays an input, to its end.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn play(bytes: &[u8]) -> Reached {
    let mut server = Server::new("host".to_owned(), ROOM, 2);
    let clients = [0, 1].map(|index| {
        let ticket = Ticket([index; 16]);
        Client::new(ticket, server.connect(ticket, Instant::START))
    });
    let (writing, reached) = (Vec::new(), Reached::default());
    let mut host = Host { choices: Choices::new(bytes), server, clients, writing, reached };
    for _ in 0..STEPS_MAX {
        if host.choices.is_empty() {
            break;
        }
        host.step();
    }
    host.come_to_an_end();
    host.reached
}

/// A frame that is being written, and the first runs of it.
struct Writing {
    client: ClientNumber,
    frame: u64,
    file: FileId,
    runs: Vec<Run>,
}

struct Client {
    number: ClientNumber,
    requests: u64,
    /// Frames that have come, and that may come.
    frames: u64,
    room: u32,
    /// Frames that are here, and of which nothing was said.
    here: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    tasks: Vec<Task>,
    is_over: bool,
}

impl Client {
    fn new(number: ClientNumber) -> Self {
        Self {
            number,
            requests: 0,
            frames: 0,
            room: 0,
            here: BTreeSet::new(),
            answered: BTreeSet::new(),
            tasks: Vec::new(),
            is_over: false,
        }
    }
}

struct Host<'a> {
    choices: Choices<'a>,
    server: Server,
    clients: [Client; 2],
    writing: Vec<Writing>,
    reached: Reached,
}

impl Host<'_> {
    fn step(&mut self) {
        let index = usize::from(self.choices.is_one_in(2));
        let done = match self.choices.below(8) {
            0 | 1 => self.ask(index),
            2 | 3 => self.send(index),
            4 => {
                self.finish_one();
                Ok(())
            }
            5 => self.do_task(index),
            6 => self.hear(index),
            _ if self.choices.is_one_in(32) => {
                self.end(self.clients[index].number);
                Ok(())
            }
            _ => {
                self.finish_one();
                Ok(())
            }
        };
        let number = self.clients[index].number;
        self.end_at_breach(number, done);
        self.begin();
    }

    fn end_at_breach(&mut self, number: ClientNumber, result: Result<(), Breach>) {
        if result.is_err() {
            self.reached.is_refused = true;
            self.end(number);
        }
    }

    /// The connection of a client ends.
    fn end(&mut self, number: ClientNumber) {
        self.client(number).is_over = true;
        self.server.on_gone(number, Some("it lies".to_owned()));
    }

    /// A client asks for something, most often with the number that is next.
    fn ask(&mut self, index: usize) -> Result<(), Breach> {
        let client = &mut self.clients[index];
        if client.is_over || !self.server.has_room_for_message(client.number) {
            return Ok(());
        }
        let is_lie = self.choices.is_one_in(64);
        let number = if is_lie { self.choices.number() } else { client.requests };
        client.requests += 1;
        let frames_before = match self.choices.below(8) {
            0 => self.choices.number(),
            1 => client.frames + 1,
            2 => 0,
            _ => client.frames,
        };
        let client = client.number;
        let call = self.call();
        let request = Request { number, frames_before, call };
        self.server.on_message(client, ToServer::Request(request), Instant::START)
    }

    fn call(&mut self) -> Call {
        let (file, view) = (self.file(), self.view());
        match self.choices.below(18) {
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
            9 => Call::SetSize { file, size: self.choices.below(256).into() },
            10 => Call::Preallocate { file, size: 0 },
            11 => Call::End { view },
            12 => Call::AddShared { file, bytes: 0 },
            13 => {
                let kinds = [LockKind::Shared, LockKind::Exclusive];
                Call::Lock { file, kind: self.choices.one_of(&kinds) }
            }
            14 => Call::Unlock { file },
            15 | 16 => Call::Fence { unsent: vec![self.unsent(view)] },
            _ => Call::Delete { path: Vec::new() },
        }
    }

    fn unsent(&mut self, view: ViewNumber) -> Unsent {
        let (write, position) = (self.write(), self.choices.below(256).into());
        Unsent { write, view, position, length: self.length() }
    }

    fn write(&mut self) -> WriteNumber {
        WriteNumber(self.choices.below(16))
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
    fn send(&mut self, index: usize) -> Result<(), Breach> {
        let client = &self.clients[index];
        if client.is_over || client.room == 0 {
            return Ok(());
        }
        let (view, write) = (self.view(), self.write());
        let of = FrameOf { view, write, is_announced: self.choices.is_one_in(4) };
        let entry = match self.choices.is_one_in(64) {
            true => EntryId(self.choices.number()),
            false => of.entry(),
        };
        let is_far = self.choices.is_one_in(8);
        let offset = if is_far { self.choices.number() } else { self.choices.below(256).into() };
        let length = self.length();
        let Some(_) = offset.checked_add(length.into()) else { return Ok(()) };
        let row = Row { block: Block { entry, offset, length }, is_whole: false, checksum: 0 };
        let client = &mut self.clients[index];
        client.room -= 1;
        let header = Header {
            count: 1,
            payload_bytes: length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant: client.room == 0,
            has_only_sums: false,
        };
        self.server.on_head(client.number, &header, &[row])?;
        let number = self.server.on_frame(client.number, &[row], Instant::START)?;
        assert_eq!(number, client.frames, "frames are counted");
        client.frames += 1;
        client.here.insert(number);
        client.is_over = self.server.is_over(client.number);
        self.reached.is_refused |= client.is_over;
        assert!(client.here.len() <= ROOM as usize, "more than granted");
        Ok(())
    }

    fn client(&mut self, number: ClientNumber) -> &mut Client {
        let mut clients = self.clients.iter_mut();
        clients.find(|client| client.number == number).expect("there is no other")
    }

    /// Takes what is to be done with frames.
    fn begin(&mut self) {
        while let Some(work) = self.server.next_work() {
            let (number, frame) = (work.client(), work.frame());
            let client = self.client(number);
            let Work::Write { file, extent, .. } = work else {
                assert!(client.here.remove(&frame), "frame {frame} ended twice");
                self.reached.dropped += 1;
                continue;
            };
            assert!(client.here.contains(&frame), "frame {frame} is not here");
            let is_it = |it: &Writing| it.client == number && it.frame == frame;
            assert!(!self.writing.iter().any(is_it), "frame {frame} twice");
            let positions = extent.positions();
            let runs = scattered(extent.view(), positions.start, positions.end);
            let (file, runs) = (id_of(file), runs.unwrap_or_default());
            let writing = Writing { client: number, frame, file, runs };
            self.writing.iter().for_each(|other| other.is_apart_from(&writing));
            self.writing.push(writing);
        }
    }

    /// One that is being written is done.
    fn finish_one(&mut self) {
        let Some(place) = self.choices.place_in(self.writing.len()) else { return };
        let Writing { client: number, frame, .. } = self.writing.swap_remove(place);
        let client = self.client(number);
        assert!(client.here.remove(&frame), "frame {frame} ended twice");
        self.reached.written += 1;
        let failure = self.choices.is_one_in(16).then_some(FAILURE);
        let done = self.server.on_written(number, frame, failure, Instant::START);
        self.end_at_breach(number, done);
    }

    /// A task is done, any one.
    fn do_task(&mut self, index: usize) -> Result<(), Breach> {
        let client = &mut self.clients[index];
        let number = client.number;
        client.tasks.extend(self.server.next_task(number));
        let Some(place) = self.choices.place_in(client.tasks.len()) else { return Ok(()) };
        let Task { request, act } = client.tasks.swap_remove(place);
        let fails = self.choices.is_one_in(8);
        let now = Instant::START;
        match act {
            Act::Open { file, .. } => {
                let result = if fails { Err(FAILURE) } else { Ok(id_of(file)) };
                self.server.on_opened(number, request, result, now)
            }
            Act::Read { extent, .. } => {
                let positions = extent.positions();
                let _ = scattered(extent.view(), positions.start, positions.end);
                let length = u32::try_from(positions.end - positions.start).unwrap_or(0);
                let result = if fails { Err(FAILURE) } else { Ok(length) };
                if self.server.on_read(number, request, result)? {
                    self.server.on_sent(number, request, length, now)?;
                }
                Ok(())
            }
            Act::Size(_) => {
                let outcome = Outcome::Number(self.choices.below(4096).into());
                self.server.on_done(number, request, outcome, now)
            }
            _ => {
                let outcome = if fails { Outcome::Failed(FAILURE) } else { Outcome::Done };
                self.server.on_done(number, request, outcome, now)
            }
        }
    }

    /// A client takes messages.
    fn hear(&mut self, index: usize) -> Result<(), Breach> {
        let client = &mut self.clients[index];
        for message in self.server.next_messages(client.number)? {
            match message {
                ToClient::Grant(count) => client.room += count,
                ToClient::Reply { number, .. } => {
                    assert!(client.answered.insert(number), "request {number} is answered twice");
                    self.reached.answered += 1;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All that can be done is done. What is left waits for what a client never said.
    fn come_to_an_end(&mut self) {
        loop {
            let before = (self.reached, self.writing.len());
            for index in 0..self.clients.len() {
                let number = self.clients[index].number;
                let heard = self.hear(index);
                self.end_at_breach(number, heard);
                while self.server.has_task(number) || !self.clients[index].tasks.is_empty() {
                    let done = self.do_task(index);
                    self.end_at_breach(number, done);
                }
                self.finish_one();
                self.begin();
            }
            if before == (self.reached, self.writing.len()) && self.writing.is_empty() {
                break;
            }
        }
        for client in &self.clients {
            let waiting = self.server.coming_count(client.number);
            assert_eq!(client.here.len(), waiting, "a frame whose view is known is never written");
            assert!(!client.is_over || self.server.is_ended(client.number), "it never ends");
        }
        self.clients.iter().for_each(|client| self.server.on_gone(client.number, None));
        self.clients.iter().for_each(|client| self.server.forget(client.number));
    }
}

impl Writing {
    /// Two frames that are written at the same time have no byte in common.
    fn is_apart_from(&self, other: &Self) {
        if self.file != other.file {
            return;
        }
        for (run, of_other) in
            self.runs.iter().flat_map(|it| other.runs.iter().map(move |b| (it, b)))
        {
            let is_apart = run.offset + run.length <= of_other.offset
                || of_other.offset + of_other.length <= run.offset;
            assert!(is_apart, "{:?} of {:?} and {:?}", self.frame, self.client, other.frame);
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

/// Two of the files of a client are the same one, and the clients have the same files.
fn id_of(file: FileNumber) -> FileId {
    FileId { device: 0, inode: u64::from(file.0 / 2) }
}

const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
const FAILURE: Failure = Failure { operation: Operation::Open, errno: 5 };
