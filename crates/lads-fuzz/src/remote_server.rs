//! Clients of remote files that say what they like, and a server that does what its session
//! ([`lads_core::remote::server`]) lets it.
//!
//! The bytes are choices: which client asks for what, which frames come when, and which of the
//! things that are to be done is done next. The owner of the session keeps to what an owner does.

mod absence;
mod hostile;
mod returning;
mod sound;

use crate::choices::Choices;
use lads_core::frame::{Header, Row};
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::limits::ALIGNMENT_BYTES;
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{
    Call, Failure, FileNumber, OpenMode, Outcome, Ticket, ToClient, ToServer, VERSION,
};
use lads_core::remote::scatter::scatter;
use lads_core::remote::server::{Act, Breach, Known, Server, Task, Work};
use lads_core::units::{Instant, OstId};
use lads_core::view::{Run, View};
use returning::Phase;
use sound::Sound;
use std::collections::BTreeSet;
use std::time::Duration;

/// Steps of an input that are taken; beyond that it only costs time.
const STEPS_MAX: u32 = 1000;

/// Frames of a client that the server has room for: as one with little memory. With double, each
/// step compares four times as many of them.
const ROOM: u32 = 6;

/// Grants in a message to a client, of a quarter of its room.
const GRANT: u32 = ROOM.div_ceil(4);

/// Clients whose connection may be broken at a time: one less than there are.
const AWAY_MAX: u32 = 1;

/// The time that a step takes.
const STEP: Duration = Duration::from_millis(1);

/// Runs of a frame that are looked at one by one. A frame may have a million.
const RUNS_SEEN_MAX: usize = 64;

/// Plays an input.
///
/// # Panics
/// If a frame is written twice, beside another one of the same bytes, or never, a task is never
/// done, or a client that comes back misses something.
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
    /// How often a client came back.
    pub resumed: u32,
    /// How often the server was started again.
    pub restarted: u32,
    /// How often a client has returned to such a server.
    pub returned: u32,
    /// Whether a client broke the protocol.
    pub is_refused: bool,
}

/// Plays an input, to its end.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn play(bytes: &[u8]) -> Reached {
    let mut host = Host::new(Choices::new(bytes));
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
    ticket: Ticket,
    /// The number of the next request, and the least one that the server takes.
    next: u64,
    requests: u64,
    /// Frames that have come and were not dropped for the client to send them again.
    frames: u64,
    /// All frames that were sent to this server, the number of the first, and how many more may be.
    sent: Vec<Row>,
    first_frame: u64,
    room: u32,
    /// Frames that are here, and of which nothing was said.
    here: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    /// Tasks that were taken, for whom, and the number of the connection at that time.
    tasks: Vec<(Task, ClientNumber, u32)>,
    /// Reads whose bytes are being sent.
    sending: Vec<(u64, u32)>,
    /// The number of the connection.
    connection: u32,
    /// Messages that it heard on this connection.
    heard: u32,
    /// Counted messages that it heard and confirmed, and the most that the server has sent.
    counted: u64,
    confirmed: u64,
    said: u64,
    has_ticket: bool,
    /// Whether it has no connection.
    is_away: bool,
    /// Whether it has said that it will not come back.
    is_leaving: bool,
    is_over: bool,
    phase: Phase,
    /// The lists of the owner: open files, frames that were written, and requests that were done.
    known: Known,
    /// The files that it had open when the server was started again.
    listed: Known,
    written: Vec<u64>,
    done: Vec<u64>,
    /// What it remembers; `None`: it says anything.
    sound: Option<Sound>,
}

impl Client {
    fn new(number: ClientNumber, ticket: Ticket, sound: Option<Sound>) -> Self {
        Self {
            number,
            ticket,
            next: 0,
            requests: 0,
            frames: 0,
            sent: Vec::new(),
            first_frame: 0,
            room: 0,
            here: BTreeSet::new(),
            answered: BTreeSet::new(),
            tasks: Vec::new(),
            sending: Vec::new(),
            connection: 0,
            heard: 0,
            counted: 0,
            confirmed: 0,
            said: 0,
            has_ticket: false,
            is_away: false,
            is_leaving: false,
            is_over: false,
            phase: Phase::default(),
            known: Known::new(),
            listed: Known::new(),
            written: Vec::new(),
            done: Vec::new(),
            sound,
        }
    }

    /// Whether it may say something: one that comes back must know before what the server has.
    fn may_talk(&self) -> bool {
        !self.is_over && !self.is_away && (self.connection == 0 || self.heard >= 2)
    }

    /// Frames that are sent and not here: the connection broke.
    fn unsent(&self) -> usize {
        let come = self.frames - self.first_frame;
        self.sent.len() - usize::try_from(come).expect("inputs are short")
    }

    /// Frames that are here, and for which the client knows that there is room.
    fn granted(&self) -> usize {
        self.room as usize + self.here.len() + self.unsent()
    }
}

struct Host<'a> {
    choices: Choices<'a>,
    server: Server,
    clients: [Client; 2],
    /// Clients whose connection broke before they had returned.
    gone: Vec<ClientNumber>,
    /// Until when clients may return, unless the owner has looked since.
    until: Option<Instant>,
    tickets: u8,
    fences: u64,
    writing: Vec<Writing>,
    now: Instant,
    reached: Reached,
}

impl<'a> Host<'a> {
    fn new(mut choices: Choices<'a>) -> Self {
        let (now, mut server) = (Instant::START, Server::new("host".to_owned(), ROOM, AWAY_MAX, 1));
        let clients = [0, 1].map(|index| {
            let ticket = Ticket([index; 16]);
            let sound = (!choices.is_one_in(4)).then(Sound::default);
            Client::new(server.connect(ticket, now), ticket, sound)
        });
        Self {
            choices,
            server,
            clients,
            gone: Vec::new(),
            until: None,
            tickets: 1,
            fences: 1,
            writing: Vec::new(),
            now,
            reached: Reached::default(),
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        let index = usize::from(self.choices.is_one_in(2));
        let number = self.clients[index].number;
        let done = match self.choices.below(9) {
            0 | 1 => self.ask(index),
            2 | 3 => self.send(index),
            4 => {
                self.finish_one();
                Ok(())
            }
            5 => self.do_task(index),
            6 => self.hear(index),
            7 => self.come_and_go(index),
            _ if self.choices.is_one_in(8) => {
                self.restart();
                Ok(())
            }
            _ => {
                self.look();
                Ok(())
            }
        };
        self.end_at_breach(number, done);
        self.begin();
    }

    fn end_at_breach(&mut self, number: ClientNumber, result: Result<(), Breach>) {
        if let Err(breach) = result {
            assert!(self.client(number).sound.is_none(), "a sound client is refused: {breach}");
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
        let client = &self.clients[index];
        if !client.may_talk() || !self.server.has_room_for_message(client.number) {
            return Ok(());
        }
        let is_sound = client.sound.is_some();
        let request = if is_sound { self.sound_request(index) } else { self.any_request(index) };
        let client = &mut self.clients[index];
        let number = request.number;
        let returns =
            if let Call::Return { frames, .. } = &request.call { Some(*frames) } else { None };
        client.is_leaving = false;
        self.server.on_message(client.number, ToServer::Request(request), self.now)?;
        client.requests = number + 1;
        client.next = client.next.max(number.saturating_add(1));
        if let Some(frames) = returns.filter(|_| client.phase == Phase::Begun) {
            client.on_returned(frames);
            self.reached.returned += 1;
        }
        Ok(())
    }

    /// A client sends one more frame, if it may. Returns whether it does.
    fn put(&mut self, index: usize) -> bool {
        let client = &self.clients[index];
        if client.room == 0 {
            return false;
        }
        let is_sound = client.sound.is_some();
        let block = if is_sound { self.sound_block(index) } else { self.any_block() };
        let client = &mut self.clients[index];
        client.sent.extend(block.map(|block| Row { block, is_whole: false, checksum: 0 }));
        client.room -= u32::from(block.is_some());
        block.is_some()
    }

    /// A frame comes: the next one that was sent before the connection broke, or a new one.
    fn send(&mut self, index: usize) -> Result<(), Breach> {
        let client = &self.clients[index];
        if client.may_talk() && client.phase == Phase::Begun {
            return self.send_too_soon(index);
        }
        if !client.may_talk() || client.unsent() == 0 && !self.put(index) {
            return Ok(());
        }
        let client = &mut self.clients[index];
        let row = client.sent[client.sent.len() - client.unsent()];
        let header = header_of(&row, client.room == 0 && client.unsent() == 1);
        self.server.on_head(client.number, &header, &[row])?;
        if self.choices.is_one_in(32) {
            self.server.on_frame_lost(client.number);
            return self.break_off(index);
        }
        let number = self.server.on_frame(client.number, &[row], self.now)?;
        assert_eq!(number, client.frames, "frames are counted");
        client.frames += 1;
        client.here.insert(number);
        client.is_over = self.server.is_over(client.number);
        assert!(!client.is_over || client.sound.is_none(), "a sound client is refused");
        self.reached.is_refused |= client.is_over;
        assert!(client.here.len() <= ROOM as usize, "more than granted");
        Ok(())
    }

    /// A client that says anything sends a frame before it has returned.
    fn send_too_soon(&mut self, index: usize) -> Result<(), Breach> {
        let Client { number, ref sound, .. } = self.clients[index];
        if sound.is_some() || !self.choices.is_one_in(16) {
            return Ok(());
        }
        let Some(block) = self.any_block() else { return Ok(()) };
        let row = Row { block, is_whole: false, checksum: 0 };
        let told = self.server.on_head(number, &header_of(&row, false), &[row]);
        assert_eq!(told, Err(Breach::Grant), "it has no room");
        told
    }

    fn client(&mut self, number: ClientNumber) -> &mut Client {
        let mut clients = self.clients.iter_mut();
        clients.find(|client| client.number == number).expect("there is no other")
    }

    /// Finds clients that were refused when their turn had come.
    fn find_over(&mut self) {
        let Self { clients, server, reached, gone, .. } = self;
        for client in clients.iter_mut().filter(|it| it.phase != Phase::Expected && !it.is_over) {
            client.is_over = server.is_over(client.number);
            let is_refused = client.is_over && !client.is_away;
            assert!(!is_refused || client.sound.is_none(), "a sound client is refused");
            reached.is_refused |= is_refused;
        }
        gone.retain(|number| !server.is_ended(*number));
    }

    /// Takes what is to be done with frames.
    fn begin(&mut self) {
        self.find_over();
        let is_held = self.is_held();
        while let Some(work) = self.server.next_work() {
            let (number, frame) = (work.client(), work.frame());
            let client = self.client(number);
            let Work::Write { file, extent, .. } = work else {
                assert!(client.here.remove(&frame), "frame {frame} ended twice");
                self.reached.dropped += 1;
                continue;
            };
            assert!(client.here.contains(&frame), "frame {frame} is not here");
            assert!(!is_held, "frame {frame} is written before all have returned");
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
        self.client(number).written.extend(failure.is_none().then_some(frame));
        let done = self.server.on_written(number, frame, failure, self.now);
        self.end_at_breach(number, done);
    }

    /// A task is done, any one.
    fn do_task(&mut self, index: usize) -> Result<(), Breach> {
        let is_held = self.is_held();
        let client = &mut self.clients[index];
        let (own, connection) = (client.number, client.connection);
        if let Some(task) = self.server.next_task(own) {
            // One that says that it is back may wait for its last file.
            let may_open = connection > 0 && matches!(task.act, Act::Open { .. });
            assert!(!is_held || may_open, "{task:?} before all have returned");
            client.tasks.push((task, own, connection));
        }
        let Some(place) = self.choices.place_in(client.tasks.len()) else {
            return self.finish_sending(index);
        };
        let (Task { request, act }, number, asked) = client.tasks.swap_remove(place);
        let is_asked = asked == connection && !client.is_away && !client.is_over;
        let (fails, now) = (self.choices.is_one_in(8), self.now);
        match act {
            Act::Open { file, .. } => {
                let is_again = client.phase == Phase::Begun && client.listed.contains_key(&file);
                let mut id = id_of(file);
                id.device += u64::from(is_again && self.choices.is_one_in(8));
                if !fails && number == own {
                    client.known.entry(file).or_insert((id, MODE.writes));
                }
                let result = if fails { Err(FAILURE) } else { Ok(id) };
                self.server.on_opened(number, request, result, now)
            }
            Act::Read { extent, .. } => {
                let positions = extent.positions();
                let _ = scattered(extent.view(), positions.start, positions.end);
                let length = u32::try_from(positions.end - positions.start).unwrap_or(0);
                let result = if fails { Err(FAILURE) } else { Ok(length) };
                if let Some(length) = self.server.on_read(number, request, result)? {
                    assert!(is_asked, "nobody waits for the bytes of request {request}");
                    self.clients[index].sending.push((request, length));
                }
                if self.choices.is_one_in(2) { Ok(()) } else { self.finish_sending(index) }
            }
            Act::Size(_) => {
                let outcome = Outcome::Number(self.choices.below(4096).into());
                self.server.on_done(number, request, outcome, now)
            }
            act => {
                match act {
                    Act::Close { file, .. } => drop(client.known.remove(&file)),
                    Act::Sync(_) => {}
                    _ => client.done.extend((!fails).then_some(request)),
                }
                let outcome = if fails { Outcome::Failed(FAILURE) } else { Outcome::Done };
                self.server.on_done(number, request, outcome, now)
            }
        }
    }

    /// The bytes of a read are sent.
    fn finish_sending(&mut self, index: usize) -> Result<(), Breach> {
        let client = &mut self.clients[index];
        let Some(place) = self.choices.place_in(client.sending.len()) else { return Ok(()) };
        let (request, length) = client.sending.swap_remove(place);
        self.server.on_sent(client.number, request, length, self.now)
    }

    /// A client takes messages.
    fn hear(&mut self, index: usize) -> Result<(), Breach> {
        if self.clients[index].is_away {
            return Ok(());
        }
        for message in self.take_messages(index)? {
            self.hear_one(index, &message);
        }
        Ok(())
    }

    /// The server sends what it has for a client.
    fn take_messages(&mut self, index: usize) -> Result<Vec<ToClient>, Breach> {
        let client = &mut self.clients[index];
        let messages = self.server.next_messages(client.number)?;
        let counted = messages.iter().filter(|it| it.is_counted()).count() as u64;
        client.said = client.said.max(client.counted + counted);
        Ok(messages)
    }

    fn hear_one(&mut self, index: usize, message: &ToClient) {
        let client = &mut self.clients[index];
        client.check_order(message);
        client.heard += 1;
        client.counted += u64::from(message.is_counted());
        match message {
            ToClient::Grant(count) => {
                client.room += *count;
                assert!(client.granted() <= ROOM as usize, "more than there is room for");
            }
            ToClient::Reply { number, outcome } => {
                assert!(client.answered.insert(*number), "request {number} is answered twice");
                self.reached.answered += 1;
                client.on_reply(*number, *outcome);
            }
            ToClient::Resumed { .. } => client.on_resumed(),
            ToClient::Restarted { .. } => client.on_restarted(message),
            ToClient::Written(written) => client.on_written(written),
            ToClient::Again(frame) => client.on_again(*frame),
            _ => {}
        }
    }

    /// All that can be done is done. What is left waits for what a client never said.
    fn come_to_an_end(&mut self) {
        loop {
            let before = self.state();
            self.bring_back();
            for index in 0..self.clients.len() {
                let number = self.clients[index].number;
                while self.has_task(index) {
                    let done = self.do_task(index);
                    self.end_at_breach(number, done);
                }
                self.finish_one();
                self.begin();
                let heard = self.hear(index);
                self.end_at_breach(number, heard);
                self.send_all(index);
            }
            if before == self.state() && self.writing.is_empty() {
                if self.until.is_none() {
                    break;
                }
                self.end_time();
                self.begin();
            }
        }
        assert!(self.gone.is_empty(), "they never end");
        self.check_sound();
        for client in &self.clients {
            let waiting = self.server.coming_count(client.number);
            assert_eq!(client.here.len(), waiting, "a frame whose view is known is never written");
            assert!(!client.is_over || self.server.is_ended(client.number), "it never ends");
            let is_granted = client.granted() + GRANT as usize > ROOM as usize;
            assert!(client.is_over || is_granted, "room that nobody knows of");
        }
        self.clients.iter().for_each(|client| self.server.on_gone(client.number, None));
        self.clients.iter().for_each(|client| self.server.forget(client.number));
    }

    /// What changes until the end.
    fn state(&self) -> (Reached, usize, [[usize; 6]; 2]) {
        let of_client = |it: &Client| {
            let (room, connection) = (it.room as usize, it.connection as usize);
            let is_away = usize::from(it.is_away && !it.is_over);
            let returning = it.sound.as_ref().map_or(0, Sound::returning_count);
            [it.sent.len(), it.unsent(), room, connection, is_away, returning]
        };
        (self.reached, self.writing.len(), self.clients.each_ref().map(of_client))
    }

    fn has_task(&self, index: usize) -> bool {
        let client = &self.clients[index];
        let is_any_taken = !client.tasks.is_empty() || !client.sending.is_empty();
        is_any_taken || self.server.has_task(client.number)
    }
}

/// The head of a frame.
fn header_of(row: &Row, is_last_grant: bool) -> Header {
    Header {
        count: 1,
        payload_bytes: row.block.length,
        table_crc: 0,
        number: 0,
        sink_ost: OstId(0),
        is_last_grant,
        has_only_sums: false,
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

fn open(file: FileNumber) -> Call {
    Call::Open { file, path: Vec::new(), mode: MODE, group: [0; 16] }
}

const MODE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
const FAILURE: Failure = Failure { operation: Operation::Open, errno: 5 };
