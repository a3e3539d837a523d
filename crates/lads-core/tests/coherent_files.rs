//! Processes that write and read one file through a server, on one thread, in any order: what a
//! seed chooses.
//!
//! The real [`Server`] and [`Outbox`] decide; programs, network and storage are simulated. Programs
//! tell each other of their writes by messages, before which they wait for a fence. Each write and
//! each read knows what happened before it (a vector clock), and a byte of the file holds the
//! number of the write that put it there.
//!
//! What is checked: a read returns no byte that was replaced by a write of which the reader knew;
//! at the end, no byte was replaced by a write that came before its own; nobody waits for ever. A
//! process may die: what it wrote and others know of is there, or reading it fails.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use lads_core::frame::{Header, Row};
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{
    Call, FileNumber, OpenMode, Outcome, Request, ToClient, ToServer, ViewNumber,
};
use lads_core::remote::outbox::{Goes, Next, Outbox, Place};
use lads_core::remote::server::{Act, Server, Task, Work};
use lads_core::staging::Slots;
use lads_core::units::{Block, Instant, OstId};
use lads_core::view::{Datatype, View};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::panic::catch_unwind;
use std::time::Duration;

#[path = "remote_files/rng.rs"]
mod rng;
use rng::Rng;

const FILE: FileNumber = FileNumber(1);
const ID: FileId = FileId { device: 1, inode: 1 };
const FILE_BYTES: u64 = 48;
/// Unsent frames that a program may have.
const FRAMES_MAX: u64 = 6;
/// Frames of each client that the server has room for: few, so that it matters which are there.
const ROOM: u32 = 2;
const STEPS: u32 = 400;
const ROUNDS_MAX: u32 = 3000;

/// The number of a write; 0: what was there before all.
type Stamp = usize;
/// For each process, how many of its writes happened before.
type Clock = Vec<u32>;

#[derive(Clone, Debug)]
struct About {
    position: u64,
    length: u32,
}

struct Written {
    process: usize,
    clock: Clock,
    places: Vec<usize>,
}

/// What a program waits for.
enum Waits {
    /// The answer to a fence, after which another process gets a message.
    Fence {
        request: u64,
        to: usize,
    },
    /// Frames that a read must come after.
    ToRead {
        before: u64,
        view: ViewNumber,
        positions: std::ops::Range<u64>,
    },
    Read {
        request: u64,
        places: Vec<usize>,
    },
}

struct Process {
    number: ClientNumber,
    is_dead: bool,
    clock: Clock,
    inbox: VecDeque<Clock>,
    views: BTreeMap<ViewNumber, View>,
    waits: Option<Waits>,
    outbox: Outbox<Stamp, About>,
    requests: u64,
    // On the way.
    asked: VecDeque<Request>,
    frames: VecDeque<(Row, bool, Stamp)>,
    told: VecDeque<ToClient>,
    bytes: HashMap<u64, Vec<Stamp>>,
    // At the server.
    here: HashMap<u64, Stamp>,
    tasks: Vec<Task>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stats {
    reads: u32,
    messages: u32,
    refused: u32,
    recalled: u32,
    lost: u32,
    deaths: u32,
}

struct World {
    rng: Rng,
    server: Server,
    file: Vec<Stamp>,
    writes: Vec<Written>,
    processes: Vec<Process>,
    writing: Vec<Work>,
    now: Instant,
    stats: Stats,
}

fn places(view: &View, positions: std::ops::Range<u64>) -> Vec<usize> {
    let runs = view.runs(positions).unwrap();
    let bytes = runs.flat_map(|run| run.offset..run.offset + run.length);
    bytes.map(|byte| usize::try_from(byte).unwrap()).collect()
}

fn length_of(positions: &std::ops::Range<u64>) -> u32 {
    u32::try_from(positions.end - positions.start).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 2 + rng.index(3);
        let mut server = Server::new("host".to_owned(), ROOM);
        let processes = (0..count).map(|_| Process::new(server.connect(Instant::START), count));
        let processes = processes.collect();
        let mut world = Self {
            rng,
            server,
            file: vec![0; usize::try_from(FILE_BYTES).unwrap()],
            writes: vec![Written { process: 0, clock: vec![0; count], places: Vec::new() }],
            processes,
            writing: Vec::new(),
            now: Instant::START,
            stats: Stats::default(),
        };
        for index in 0..count {
            let (path, group) = (b"file".to_vec(), [0; 16]);
            let mode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
            world.ask(index, Call::Open { file: FILE, path, mode, group });
            world.set_view(index);
        }
        world
    }

    fn run(mut self) -> Stats {
        let dies = self.rng.is_one_in(3);
        for _ in 0..STEPS {
            let index = self.rng.index(self.processes.len());
            if self.processes[index].is_dead {
                continue;
            }
            match self.rng.below(10) {
                0..3 => self.act(index),
                3 if dies && self.rng.is_one_in(15) => self.die(index),
                _ => self.move_on(index),
            }
        }
        for round in 0.. {
            assert!(round < ROUNDS_MAX, "something is never done");
            let is_done = |it: &Process| {
                let is_idle = it.is_dead || it.waits.is_none() && it.outbox.is_empty();
                is_idle && (!it.is_dead || self.server.is_ended(it.number))
            };
            if self.processes.iter().all(is_done) {
                break;
            }
            (0..self.processes.len()).for_each(|index| self.move_on(index));
        }
        for (place, stamp) in self.file.iter().enumerate() {
            let replaced = self.writes_to(place).find(|other| {
                !self.processes[self.writes[*other].process].is_dead
                    && self.is_before(*stamp, *other)
            });
            assert_eq!(replaced, None, "byte {place} is {stamp} at the end");
        }
        self.stats
    }

    fn writes_to(&self, place: usize) -> impl Iterator<Item = Stamp> {
        let is_there = move |it: &&Written| it.places.contains(&place);
        let writes = self.writes.iter().enumerate();
        writes.filter(move |(_, it)| is_there(it)).map(|(stamp, _)| stamp)
    }

    /// Whether a write happened before another one.
    fn is_before(&self, one: Stamp, other: Stamp) -> bool {
        one != other && self.is_known(one, &self.writes[other].clock)
    }

    fn is_known(&self, stamp: Stamp, clock: &Clock) -> bool {
        let Written { process, clock: own, .. } = &self.writes[stamp];
        own[*process] <= clock[*process]
    }

    fn ask(&mut self, index: usize, call: Call) -> u64 {
        let process = &mut self.processes[index];
        let number = process.requests;
        process.requests += 1;
        let frames_before = process.outbox.sent();
        process.asked.push_back(Request { number, frames_before, call });
        number
    }

    /// All bytes, or rows that lie between those of others.
    fn set_view(&mut self, index: usize) {
        let number = u32::try_from(self.processes[index].views.len()).unwrap();
        let (view, length) = (ViewNumber(number), 1 + self.rng.below(3));
        let (displacement, gap) = (self.rng.below(4), [0, length][self.rng.index(2)]);
        let (of, extent) = (Box::new(Datatype::Bytes(length)), (length + gap).try_into().unwrap());
        let datatype = Datatype::Resized { begin: 0, extent, of };
        let mut filetype = Vec::new();
        datatype.write(&mut filetype);
        let shape = View::new(displacement, &datatype).unwrap();
        self.processes[index].views.insert(view, shape);
        self.ask(index, Call::View { view, file: FILE, displacement, filetype });
    }

    fn act(&mut self, index: usize) {
        if self.processes[index].waits.is_some() {
            return;
        }
        match self.rng.below(8) {
            0 => self.set_view(index),
            1 | 2 => self.send_message(index),
            3 | 4 => {
                let process = &mut self.processes[index];
                if let Some(clock) = process.inbox.pop_front() {
                    let both = process.clock.iter_mut().zip(clock);
                    both.for_each(|(own, other)| *own = other.max(*own));
                    self.stats.messages += 1;
                }
            }
            5 => {
                let (view, positions) = self.piece(index);
                let before = self.processes[index].outbox.count();
                self.processes[index].waits = Some(Waits::ToRead { before, view, positions });
            }
            _ => self.write(index),
        }
    }

    fn piece(&mut self, index: usize) -> (ViewNumber, std::ops::Range<u64>) {
        let views = &self.processes[index].views;
        let view = ViewNumber(self.rng.below(views.len() as u64).try_into().unwrap());
        let end = views[&view].position_at(FILE_BYTES).unwrap();
        let start = self.rng.below(end);
        (view, start..end.min(start + 1 + self.rng.below(8)))
    }

    fn write(&mut self, index: usize) {
        let (view, positions) = self.piece(index);
        let process = &mut self.processes[index];
        if u64::from(process.outbox.in_memory()) >= FRAMES_MAX {
            return;
        }
        process.clock[index] += 1;
        let shape = &process.views[&view];
        let (places, reach) = (places(shape, positions.clone()), shape.reach(&positions));
        let stamp = self.writes.len();
        self.writes.push(Written { process: index, clock: process.clock.clone(), places });
        let about = About { position: positions.start, length: length_of(&positions) };
        process.outbox.put(Goes { file: FILE, view, positions, reach }, about, stamp);
    }

    /// Another process is told of what happened here, after a fence.
    fn send_message(&mut self, index: usize) {
        let to = self.rng.index(self.processes.len());
        if self.processes[index].outbox.is_empty() {
            return self.tell(index, to);
        }
        let process = &mut self.processes[index];
        let unsent = process.outbox.announce();
        let request = self.ask(index, Call::Fence { unsent });
        self.processes[index].waits = Some(Waits::Fence { request, to });
    }

    fn tell(&mut self, index: usize, to: usize) {
        let clock = self.processes[index].clock.clone();
        self.processes[to].inbox.push_back(clock);
    }

    fn move_on(&mut self, index: usize) {
        self.now = self.now + Duration::from_millis(1);
        let is_dead = self.processes[index].is_dead;
        match self.rng.below(7) {
            _ if is_dead => self.do_work(),
            0 => self.send(index),
            1 => self.take_frame(index),
            2 => self.take_request(index),
            3 => self.do_task(index),
            4 => self.do_work(),
            5 => {
                let number = self.processes[index].number;
                let messages = self.server.next_messages(number).unwrap();
                self.processes[index].told.extend(messages);
            }
            _ => self.hear(index),
        }
        while let Some(work) = self.server.next_work() {
            match work {
                Work::Drop { client, frame } => {
                    self.stats.refused += 1;
                    let mut of = self.processes.iter_mut();
                    let process = of.find(|it| it.number == client).unwrap();
                    assert!(process.here.remove(&frame).is_some(), "it is here");
                }
                work @ Work::Write { .. } => self.writing.push(work),
            }
        }
        self.begin_read(index);
    }

    /// A read is asked for when what it must come after is sent.
    fn begin_read(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some(Waits::ToRead { before, view, positions }) = &process.waits else { return };
        let (view, positions, shape) = (*view, positions.clone(), &process.views[view]);
        if process.outbox.is_unsent_in(FILE, &shape.reach(&positions), *before) {
            return;
        }
        let places = places(shape, positions.clone());
        let (position, length) = (positions.start, length_of(&positions));
        let request = self.ask(index, Call::Read { view, position, length });
        self.processes[index].waits = Some(Waits::Read { request, places });
    }

    fn send(&mut self, index: usize) {
        let is_waited_for = self.rng.is_one_in(2);
        let process = &mut self.processes[index];
        let Some(next) = process.outbox.next(is_waited_for) else { return };
        let Next { of, about: About { position, length }, place, is_last_grant, .. } = next;
        let Place::Memory(stamp) = place else { unreachable!("nothing is staged") };
        let block = Block { entry: of.entry(), offset: position, length };
        process.frames.push_back((
            Row { block, is_whole: false, checksum: 0 },
            is_last_grant,
            stamp,
        ));
    }

    fn take_frame(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let Some((row, is_last_grant, stamp)) = process.frames.pop_front() else { return };
        let header = Header {
            count: 1,
            payload_bytes: row.block.length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant,
            has_only_sums: false,
        };
        let number = process.number;
        self.server.on_head(number, &header, &[row]).unwrap();
        let frame = self.server.on_frame(number, &[row], self.now).unwrap();
        self.processes[index].here.insert(frame, stamp);
        assert!(self.processes[index].here.len() <= ROOM as usize, "more than granted");
    }

    fn take_request(&mut self, index: usize) {
        let process = &mut self.processes[index];
        if !self.server.has_room_for_message(process.number) {
            return;
        }
        let Some(request) = process.asked.pop_front() else { return };
        self.server.on_message(process.number, ToServer::Request(request), self.now).unwrap();
    }

    fn do_task(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let number = process.number;
        process.tasks.extend(self.server.next_task(number));
        if process.tasks.is_empty() {
            return;
        }
        let place = self.rng.index(process.tasks.len());
        let Task { request, act } = process.tasks.swap_remove(place);
        match act {
            Act::Open { .. } => self.server.on_opened(number, request, Ok(ID), self.now).unwrap(),
            Act::Read { extent, .. } => {
                let at = places(extent.view(), extent.positions().clone());
                let bytes: Vec<_> = at.into_iter().map(|place| self.file[place]).collect();
                let length = u32::try_from(bytes.len()).unwrap();
                if self.server.on_read(number, request, Ok(length)).unwrap() {
                    process.bytes.insert(request, bytes);
                    self.server.on_sent(number, request, length, self.now).unwrap();
                }
            }
            act => unreachable!("{act:?}"),
        }
    }

    /// A write is done, any one.
    fn do_work(&mut self) {
        if self.writing.is_empty() {
            return;
        }
        let place = self.rng.index(self.writing.len());
        let Work::Write { client, frame, extent, .. } = self.writing.swap_remove(place) else {
            unreachable!("others are done at once");
        };
        let process = self.processes.iter_mut().find(|it| it.number == client).unwrap();
        let stamp = process.here.remove(&frame).unwrap();
        let at = places(extent.view(), extent.positions().clone());
        at.into_iter().for_each(|place| self.file[place] = stamp);
        self.server.on_written(client, frame, None, self.now).unwrap();
    }

    fn hear(&mut self, index: usize) {
        let process = &mut self.processes[index];
        match process.told.pop_front() {
            Some(ToClient::Grant(count)) => process.outbox.on_grant(count),
            Some(ToClient::Written(written)) => {
                for it in written {
                    assert_eq!(it.failure, None);
                    assert!(process.outbox.on_written(it.frame).is_some());
                }
            }
            Some(ToClient::Again(frame)) => process.outbox.again(frame),
            Some(ToClient::Recall(write)) => {
                self.stats.recalled += 1;
                process.outbox.recall(write);
            }
            Some(ToClient::Reply { number, outcome }) => self.on_reply(index, number, outcome),
            Some(ToClient::Hello { .. }) | None => {}
            Some(message) => panic!("{message:?}"),
        }
    }

    fn on_reply(&mut self, index: usize, number: u64, outcome: Outcome) {
        let process = &mut self.processes[index];
        match process.waits.take() {
            Some(Waits::Fence { request, to }) if request == number => self.tell(index, to),
            Some(Waits::Read { request, places }) if request == number => {
                if outcome == Outcome::Lost {
                    assert!(self.processes.iter().any(|it| it.is_dead), "nothing can be lost");
                    self.stats.lost += 1;
                    return;
                }
                let bytes = process.bytes.remove(&number).unwrap();
                assert_eq!(bytes.len(), places.len());
                let pairs = places.into_iter().zip(bytes);
                pairs.for_each(|(place, stamp)| self.check(index, place, stamp));
                self.stats.reads += 1;
            }
            waits => self.processes[index].waits = waits,
        }
    }

    /// A process has read a byte.
    fn check(&self, index: usize, place: usize, stamp: Stamp) {
        let clock = &self.processes[index].clock;
        let is_newer =
            |other: &Stamp| self.is_known(*other, clock) && self.is_before(stamp, *other);
        let newer = self.writes_to(place).find(is_newer);
        assert_eq!(newer, None, "byte {place} is {stamp}");
    }

    /// A process is gone with what it has not sent.
    fn die(&mut self, index: usize) {
        self.stats.deaths += 1;
        let process = &mut self.processes[index];
        let number = process.number;
        (process.is_dead, process.waits) = (true, None);
        process.outbox.clear();
        process.frames.clear();
        process.asked.clear();
        self.server.on_gone(number, None);
    }
}

impl Process {
    fn new(number: ClientNumber, count: usize) -> Self {
        Self {
            number,
            is_dead: false,
            clock: vec![0; count],
            inbox: VecDeque::new(),
            views: BTreeMap::new(),
            waits: None,
            outbox: Outbox::new(16, Slots::new(0, 1 << 20, 1)),
            requests: 0,
            asked: VecDeque::new(),
            frames: VecDeque::new(),
            told: VecDeque::new(),
            bytes: HashMap::new(),
            here: HashMap::new(),
            tasks: Vec::new(),
        }
    }
}

fn run(seed: u64) -> Stats {
    catch_unwind(|| World::new(seed).run()).unwrap_or_else(|_| panic!("seed {seed} failed"))
}

fn sum(seeds: impl IntoIterator<Item = u64>) -> Stats {
    seeds.into_iter().map(run).fold(Stats::default(), |all, one| Stats {
        reads: all.reads + one.reads,
        messages: all.messages + one.messages,
        refused: all.refused + one.refused,
        recalled: all.recalled + one.recalled,
        lost: all.lost + one.lost,
        deaths: all.deaths + one.deaths,
    })
}

#[test]
fn what_a_process_knows_of_is_what_it_reads_in_fixed_worlds() {
    let stats = sum(0..2000);
    // The worlds would say nothing if nothing happened in them.
    let Stats { reads, messages, refused, recalled, lost, deaths } = stats;
    let counts = [reads, messages, refused, recalled, lost, deaths];
    assert!(counts.iter().all(|&count| count >= 20), "{stats:?}");
}

#[test]
fn what_a_process_knows_of_is_what_it_reads_in_worlds_never_seen_before() {
    let first = RandomState::new().hash_one("coherent files");
    sum((0..500).map(|step| first.wrapping_add(step)));
}

#[test]
fn the_same_seed_makes_the_same_world() {
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}
