//! A hostile server of remote files, and a client that does what its session
//! ([`lads_core::remote::client`]) decides.
//!
//! The bytes are choices: the calls of the program, the messages of the server, the results of the
//! local disk, and the time. The owner of the session keeps to the contract of an owner.

mod absence;
mod buffers;
mod program;
mod reads;
mod restart;
mod server;

use crate::choices::Choices;
use buffers::{Buffer, Chunk, Pool};
use lads_core::limits::FRAME_BYTES;
use lads_core::remote::client::{
    About, After, Client, Loss, Settings, StageSettings, Trouble, Wait, Why,
};
use lads_core::remote::message::{FileNumber, ToServer};
use lads_core::remote::outbox::Staging;
use lads_core::remote::outlook::Told;
use lads_core::remote::reading::Save;
use lads_core::staging::Slot;
use program::{CallOf, File, Put};
use server::Server;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Maximum number of steps of an input. More only cost time.
const STEPS_MAX: u32 = 1000;

/// Rounds after which everything is done if the server is honest. Each chunk of a read takes a few.
const ROUNDS_MAX: u32 = 1000;

/// A server that is silent for this long is gone. The process is stopped in steps of the time that
/// are longer than a second.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Buffers of the client, and the length of each. With short ones, few bytes are many frames.
const BUFFERS: u32 = 6;
const BUFFER_BYTES: u32 = 64;

/// Chunks in memory.
const CHUNKS_MAX: u32 = 3;

/// Plays an input.
///
/// # Panics
/// If the session breaks a promise ([`play`]).
pub fn run(bytes: &[u8]) {
    let _ = play(bytes);
}

/// What an input led to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// Frames that were sent.
    pub sent: u64,
    /// Frames that were written.
    pub written: u64,
    /// Frames that were put on the local disk.
    pub staged: u64,
    /// Frames that were written after they had been on the local disk.
    pub drained: u64,
    /// Answers with bytes.
    pub read: u64,
    /// Reads of the program that succeeded.
    pub reads: u64,
    /// Chunks that were put on the local disk.
    pub saved: u64,
    /// Chunks that were read from the local disk.
    pub loaded: u64,
    /// How often the connection was made again.
    pub resumed: u64,
    /// How often it was made again to a server that was started again.
    pub restarted: u64,
    /// Whether the server broke the protocol.
    pub is_refused: bool,
}

/// Plays an input, to its end.
///
/// # Panics
/// If a frame is sent twice or without a grant, a buffer is not freed, a read returns old or other
/// bytes, a call waits after the loss of the connection, or for an honest server for ever.
#[must_use]
pub fn play(bytes: &[u8]) -> Reached {
    let mut choices = Choices::new(bytes);
    let is_lost_last = choices.is_one_in(2);
    let mut host = Host::new(choices);
    for _ in 0..STEPS_MAX {
        if host.choices.is_empty() {
            break;
        }
        host.step();
        host.check();
    }
    if !is_lost_last && !host.is_over {
        host.settle();
    }
    host.end()
}

struct Host<'a> {
    choices: Choices<'a>,
    client: Client<Buffer, Chunk>,
    server: Server,
    pool: Pool,
    now: Duration,
    /// Counts events.
    clock: u64,
    files: Vec<File>,
    puts: Vec<Put>,
    calls: Vec<CallOf>,
    /// Time at which the read began that does a step now.
    stepping: Option<u64>,
    /// Calls that wait for frames.
    awaited: u32,
    presences: u32,
    staging: Vec<(Vec<Staging<Buffer, About>>, Why)>,
    /// Frames on the local disk.
    staged: HashMap<Slot, u64>,
    saving: Vec<Save<Chunk>>,
    disk: HashMap<Slot, Chunk>,
    is_connected: bool,
    /// Whether the connection is lost.
    is_over: bool,
    reached: Reached,
}

impl<'a> Host<'a> {
    fn new(mut choices: Choices<'a>) -> Self {
        let gives_ticket = !choices.is_one_in(8);
        let is_endless = choices.is_one_in(16);
        let stage = (!choices.is_one_in(3)).then(|| StageSettings {
            bytes_max: u64::from(BUFFER_BYTES * choices.below(16)),
            in_foreground: choices.is_one_in(2),
            in_background: choices.is_one_in(2),
            is_synced: choices.is_one_in(2),
            told: Told {
                interval: Some(if is_endless { Duration::MAX } else { Duration::from_secs(1) }),
                output_bytes: Some(1 << 10),
            },
        });
        let settings = Settings {
            buffers: BUFFERS,
            buffer_bytes: BUFFER_BYTES,
            chunks_max: CHUNKS_MAX,
            read_cache_bytes: u64::from(choices.below(4)) * u64::from(FRAME_BYTES),
            stage,
            timeout: if is_endless { Duration::MAX } else { TIMEOUT },
            stall_timeouts: 10,
            has_other_servers: false,
        };
        Self {
            choices,
            client: Client::new(settings),
            server: Server::new(gives_ticket),
            pool: Pool::default(),
            now: Duration::ZERO,
            clock: 0,
            files: Vec::new(),
            puts: Vec::new(),
            calls: Vec::new(),
            stepping: None,
            awaited: 0,
            presences: 0,
            staging: Vec::new(),
            staged: HashMap::new(),
            saving: Vec::new(),
            disk: HashMap::new(),
            is_connected: false,
            is_over: false,
            reached: Reached::default(),
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn step(&mut self) {
        match self.choices.below(16) {
            0..=6 => self.act(),
            7 => drop(self.send()),
            8 => drop(self.say()),
            9..=11 => self.serve(),
            12 => self.arrive(),
            13 | 14 => self.use_disk(),
            _ => self.pass_time(),
        }
        if !self.is_connected && !self.is_over && self.choices.is_one_in(4) {
            self.connect();
        }
    }

    fn connect(&mut self) {
        self.is_connected = true;
        self.check_greeting();
        self.client.on_connected(self.now);
    }

    /// Promises that hold at any time.
    fn check(&self) {
        assert_eq!(self.client.awaited(), self.awaited, "calls that wait for frames");
        let in_flight = self.server.in_flight.len() + self.server.again.len();
        assert!(in_flight <= self.puts.len(), "{in_flight} frames in flight");
        assert!(self.is_over == self.client.loss().is_some());
    }

    /// Sends a frame if one may be sent.
    fn send(&mut self) -> bool {
        let has_frame = self.client.has_frame(self.now);
        let next = self.client.next_frame(self.now);
        assert_eq!(has_frame, next.is_some(), "a frame is reported and not returned");
        let Some(next) = next else { return false };
        assert!(self.is_connected && !self.client.is_away(), "a frame without a connection");
        self.check_frame(&next);
        self.on_sent(&next);
        true
    }

    fn on_refused(&mut self, write: u32) {
        self.set_sent(write, false);
    }

    fn say(&mut self) -> bool {
        let is_away = self.client.is_away();
        if !self.is_connected && !is_away {
            return false;
        }
        let has_messages = self.client.has_messages();
        let messages = self.client.next_messages();
        assert_eq!(has_messages, !messages.is_empty(), "messages are reported and not returned");
        assert!(!has_messages || !is_away, "messages without a connection");
        self.on_messages(messages);
        has_messages
    }

    /// Time passes. Sometimes the owner looks for the server, or sends everything.
    fn pass_time(&mut self) {
        let millis = [0, 1, 5, 51, 1000, 1001, 3000, 61_000, 700_000];
        self.now += Duration::from_millis(self.choices.one_of(&millis));
        match self.choices.below(4) {
            0 if !self.is_over => self.look(),
            1 if self.choices.is_one_in(64) => self.lose("cut".to_owned()),
            2 => self.rest(),
            3 if self.is_connected && !self.is_over && self.may_break() => {
                self.break_off("reset");
            }
            _ => {}
        }
    }

    /// That ends a connection for which there is no ticket.
    fn may_break(&mut self) -> bool {
        self.server.has_given_ticket || self.choices.is_one_in(8)
    }

    fn look(&mut self) {
        match self.client.look(self.now) {
            Some(Trouble::Broken(why)) => {
                assert!(self.is_connected && !self.client.is_away(), "it is broken already");
                self.break_off(&why);
            }
            Some(Trouble::Lost(why)) => self.lose(why),
            None => {}
        }
    }

    /// Sends all that may be sent now. After that the owner sleeps.
    fn rest(&mut self) {
        if self.client.take_tails_due(self.now) {
            self.seal_all();
        }
        while self.send() || self.say() {}
        assert!(self.client.next_timeout(self.now) > self.now, "the owner cannot sleep");
    }

    fn seal_all(&mut self) {
        for place in 0..self.files.len() {
            if !self.files[place].is_copying() {
                self.seal(place);
            }
        }
    }

    /// The local disk does something.
    fn use_disk(&mut self) {
        match self.choices.below(6) {
            0 if !self.is_over => {
                if let Ok(staging) = self.client.next_staging(self.now) {
                    self.staging.push((vec![staging], Why::Outlook));
                }
            }
            1 | 2 => self.finish_staging(),
            3 => self.saving.extend(self.client.next_save()),
            4 => self.finish_saving(),
            5 if self.client.is_keeping() => self.keep(),
            _ => {}
        }
    }

    fn finish_staging(&mut self) {
        let Some(place) = self.choices.place_in(self.staging.len()) else { return };
        let (frames, why) = self.staging.swap_remove(place);
        self.stage(&frames, why);
    }

    /// Frames are on the local disk, or cannot be put there.
    fn stage(&mut self, frames: &[Staging<Buffer, About>], why: Why) {
        let took = (!self.choices.is_one_in(32)).then_some(Duration::from_millis(1));
        self.client.on_staged(frames, took, why, self.now);
        if took.is_some() {
            self.reached.staged += frames.len() as u64;
            for Staging { id, slot, .. } in frames {
                assert_eq!(self.staged.insert(*slot, *id), None, "{slot:?} is in use");
            }
        }
    }

    fn finish_saving(&mut self) {
        let Some(place) = self.choices.place_in(self.saving.len()) else { return };
        let save = self.saving.swap_remove(place);
        let is_saved = !self.choices.is_one_in(32);
        if is_saved {
            assert!(save.length <= FRAME_BYTES, "a chunk is shorter");
            self.disk.insert(save.slot, save.bytes.copied());
            self.reached.saved += 1;
        }
        self.client.on_saved(save, is_saved.then_some(0));
    }

    /// The server is honest from now on, and everything comes to an end.
    fn settle(&mut self) {
        if !self.is_connected {
            self.connect();
        }
        self.greet();
        for _ in 0..ROUNDS_MAX {
            self.now += Duration::from_secs(1);
            if self.server.granted < BUFFERS && !self.server.standing.is_returning() {
                self.grant(BUFFERS);
            }
            (0..self.files.len()).for_each(|place| self.copy(place));
            self.seal_all();
            self.rest();
            self.serve_all();
            (0..self.calls.len()).rev().for_each(|place| self.wake(place));
            if self.is_quiet() {
                break;
            }
        }
        assert!(self.is_quiet(), "it never ends: {:?}", self.client);
        self.server.standing.check_frames();
        assert!(self.client.is_written() && self.client.unwritten_bytes() == 0);
        let waits = [self.client.until_written(), Wait::RoomForRead, Wait::FewUnsent];
        waits.iter().for_each(|wait| assert!(!self.client.is_waiting(wait), "{wait:?}"));
        assert_eq!(self.pool.in_use(), 0, "buffers are freed");
        while let Err(error) = self.client.finish() {
            assert!(self.client.loss().is_none(), "{error:?}");
        }
        assert_eq!(self.client.farewell(), Some(ToServer::Bye), "it can go");
    }

    fn serve_all(&mut self) {
        while !self.server.in_flight.is_empty() {
            self.write_one();
        }
        for _ in 0..2 * self.server.requests.len() {
            self.answer_one();
        }
        while !self.server.arriving.is_empty() {
            self.arrive();
        }
        while !self.staging.is_empty() {
            self.finish_staging();
        }
        while !self.saving.is_empty() {
            self.finish_saving();
        }
    }

    fn is_quiet(&self) -> bool {
        self.calls.is_empty()
            && !self.client.is_away()
            && !self.files.iter().any(|file| file.is_copying() || file.tail.is_filling())
            && self.client.is_written()
            && !self.client.has_messages()
            && !self.client.is_waiting(&Wait::Finished)
            && self.server.requests.is_empty()
    }

    /// The connection is lost.
    fn lose(&mut self, text: String) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.client.on_lost(Loss { errno: 5, text });
        self.server.requests.clear();
        self.check_lost();
        while !self.calls.is_empty() {
            self.wake(0);
        }
    }

    /// After the loss nothing is sent, and nothing waits.
    fn check_lost(&mut self) {
        let client = &mut self.client;
        assert!(!client.has_messages() && client.next_messages().is_empty());
        assert!(!client.has_frame(self.now) && client.next_frame(self.now).is_none());
        let file = FileNumber(1);
        let count = u64::MAX;
        let waits = [
            Wait::Connected,
            Wait::Sent(After::Frames { file, count }),
            Wait::Sent(After::Bytes { file, reach: 0..u64::MAX, count }),
            Wait::Closed(b"a".to_vec()),
            Wait::RoomForFile,
            Wait::RoomForView,
            Wait::RoomForRead,
            Wait::Finished,
            Wait::FewUnsent,
            Wait::Written(count),
        ];
        let waits = waits.iter().chain(self.calls.iter().map(CallOf::wait));
        waits.for_each(|wait| assert!(!client.is_waiting(wait), "{wait:?} after the loss"));
    }

    /// Puts all that is in memory on the local disk.
    fn keep(&mut self) {
        self.seal_all();
        let mut kept = BTreeSet::new();
        while let Some(staging) = self.client.start_keeping() {
            assert!(kept.insert(staging.id), "frame {} twice", staging.id);
            self.stage(&[staging], Why::Loss);
        }
        while !self.staging.is_empty() {
            self.finish_staging();
        }
        let forgotten = self.client.forget_in_memory();
        self.deliver_late();
        let left = self.client.unwritten_bytes() + forgotten;
        self.client.end_keeping(forgotten, "; kept");
        assert!(!self.client.is_keeping() && self.client.unwritten_bytes() == 0);
        let text = self.client.loss().map(|loss| loss.text.clone()).unwrap_or_default();
        assert!(text.ends_with("; kept"), "{text}");
        assert_eq!(left > 0 || !self.client.is_written(), left > 0, "the loss is known");
    }

    /// The connection ends if it has not, and the program with it.
    fn end(mut self) -> Reached {
        self.lose("the end".to_owned());
        (0..self.files.len()).for_each(|place| self.copy(place));
        while !self.server.arriving.is_empty() {
            self.arrive();
        }
        if self.client.is_keeping() {
            self.keep();
        }
        while !self.staging.is_empty() {
            self.finish_staging();
        }
        self.check_lost();
        let filling = self.files.iter().filter(|file| file.tail.is_filling()).count();
        assert_eq!(self.pool.in_use() as usize, filling, "buffers that no call can use");
        drop((self.client, self.files));
        assert_eq!(self.pool.in_use(), 0, "buffers are freed once");
        self.reached
    }
}
