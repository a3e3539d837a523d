//! The server: the real session, the bytes of frames, open files, and storage that does its work in
//! any order.

mod absence;
mod returning;

use super::bytes::Stamp;
use super::client_end::{SentFrame, Wire};
use super::disk::{DiskFile, Found, offsets};
use super::{PATHS, Shared};
use crate::findings::Checked;
use crate::rng::Rng;
use lads_core::issue::Operation;
use lads_core::remote::extent::Extent;
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{Failure, FileNumber, Outcome, ToClient, ToServer};
use lads_core::remote::policy::{HEARTBEAT, SILENCE_MAX};
use lads_core::remote::server::{Act, Server, Task, Work};
use lads_core::units::Instant;
use returning::{List, ticket_of};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Display;
use std::time::Duration;

/// What storage that fails reports: `EIO`.
pub(super) const EIO: i32 = 5;

/// The host of the server.
const NAME: &str = "host";

/// Bytes in flight to a client.
#[derive(Debug)]
pub(super) struct ReadBytes {
    pub(super) request: u64,
    pub(super) first: u64,
    pub(super) length: u32,
    pub(super) found: Found,
}

/// A message in flight to a client.
#[derive(Debug)]
pub(super) struct Said {
    /// How many counted messages were before it; `None` if it is not counted.
    pub(super) number: Option<u64>,
    pub(super) message: ToClient,
}

/// The server and its host.
#[derive(Debug)]
pub(super) struct ServerEnd {
    server: Server,
    shared: Shared,
    sessions: BTreeMap<ClientNumber, Session>,
    jobs: Vec<Job>,
    pub(super) files: Vec<DiskFile>,
    frames_each: u32,
    away_max: u32,
    /// The part of storage jobs that fail, in thousandths.
    pub(super) failing_per_mille: u32,
    looked_at: Duration,
    /// What outlives the server, by process.
    lists: BTreeMap<usize, List>,
    restarts: u64,
    /// Whether clients are expected.
    expects: bool,
}

/// What the server has of a client.
#[derive(Debug)]
struct Session {
    process: usize,
    is_replay: bool,
    files: HashMap<FileNumber, usize>,
    buffers: HashMap<u64, Vec<Stamp>>,
    /// The number of frames whose memory is taken.
    held: u32,
    running: Option<Task>,
    to_send: VecDeque<ReadBytes>,
    said_at: Duration,
    heard_at: Duration,
    /// All counted messages, and how many of them were sent on this connection or before.
    said: Vec<ToClient>,
    said_count: usize,
    /// Its connection is broken since then.
    away_since: Option<Duration>,
    /// It has said that it does not connect again.
    is_leaving: bool,
    /// It was given up while it was away, or cannot come back.
    is_given_up: bool,
    /// It was connected before the server was started again, and has not returned.
    is_returning: bool,
}

#[derive(Debug)]
enum Job {
    Write { client: ClientNumber, frame: u64, path: usize, extent: Extent },
    Read { client: ClientNumber, request: u64, path: usize, extent: Extent },
}

/// What the threads of a client can do.
type Flags = [bool; 4];

fn failure(operation: Operation) -> Failure {
    Failure { operation, errno: EIO }
}

fn broken(error: impl Display) -> String {
    format!("the server finds a breach: {error}")
}

impl Session {
    fn new(process: usize, is_replay: bool, now: Duration) -> Self {
        Self {
            process,
            is_replay,
            files: HashMap::new(),
            buffers: HashMap::new(),
            held: 0,
            running: None,
            to_send: VecDeque::new(),
            said_at: now,
            heard_at: now,
            said: Vec::new(),
            said_count: 0,
            away_since: None,
            is_leaving: false,
            is_given_up: false,
            is_returning: false,
        }
    }
}

impl ServerEnd {
    pub(super) fn new(
        shared: Shared,
        files: Vec<DiskFile>,
        (frames_each, away_max): (u32, u32),
    ) -> Self {
        Self {
            server: Server::new(NAME.to_owned(), frames_each, away_max, 1),
            looked_at: shared.now(),
            shared,
            sessions: BTreeMap::new(),
            jobs: Vec::new(),
            files,
            frames_each,
            away_max,
            failing_per_mille: 0,
            lists: BTreeMap::new(),
            restarts: 0,
            expects: false,
        }
    }

    fn now(&self) -> Instant {
        Instant::after_start(self.shared.now())
    }

    pub(super) fn connect(&mut self, process: usize, is_replay: bool) -> ClientNumber {
        let number = self.server.connect(ticket_of(process), self.now());
        if self.away_max > 0 {
            self.lists.insert(process, List::default());
        }
        self.sessions.insert(number, Session::new(process, is_replay, self.shared.now()));
        number
    }

    fn session(&mut self, number: ClientNumber) -> Checked<&mut Session> {
        self.sessions.get_mut(&number).ok_or_else(|| format!("no client {number:?}"))
    }

    fn flags(&self) -> BTreeMap<ClientNumber, Flags> {
        let server = &self.server;
        let flags = |number: ClientNumber| {
            let has_room = server.has_room_for_message(number);
            let (has_messages, has_task) = (server.has_messages(number), server.has_task(number));
            [has_room, has_messages, has_task, server.is_over(number)]
        };
        self.sessions.keys().map(|number| (*number, flags(*number))).collect()
    }

    /// Reports something to the session, and does what follows from it.
    fn event<T, E: Display>(
        &mut self,
        act: impl FnOnce(&mut Server, Instant) -> Result<T, E>,
    ) -> Checked<T> {
        let now = self.now();
        let before = self.flags();
        let result = act(&mut self.server, now).map_err(broken)?;
        self.after_return();
        let news = self.server.take_news();
        for (number, flags) in self.flags() {
            let was = before.get(&number).copied().unwrap_or_default();
            let is_new = flags.iter().zip(was).any(|(now, before)| *now && !before);
            if is_new && !news.contains(&number) {
                return Err(format!("there is something new for {number:?} that is no news"));
            }
        }
        Ok(result)
    }

    /// Does what the session decided about frames.
    fn take_work(&mut self) -> Checked {
        while let Some(work) = self.server.next_work() {
            let process = self.session(work.client())?.process;
            self.shared.trace(|| format!("server: client {process}: {work:?}"));
            match work {
                Work::Drop { client, frame } => {
                    let session = self.session(client)?;
                    session.held -= 1;
                    session.buffers.remove(&frame).ok_or("a frame is dropped twice")?;
                }
                Work::Write { client, frame, file, extent } => {
                    let path = self.session(client)?.files.get(&file);
                    let path = *path.ok_or("a frame is written to a file that is closed")?;
                    self.jobs.push(Job::Write { client, frame, path, extent });
                }
            }
        }
        Ok(())
    }

    /// A message of a client arrives. Returns whether one did.
    pub(super) fn hear(&mut self, number: ClientNumber, wire: &mut Wire) -> Checked<bool> {
        let greeting = wire.messages.pop_front_if(|it| matches!(it, ToServer::Resume { .. }));
        if let Some(ToServer::Resume { ticket, heard, .. }) = greeting {
            return self.resume(number, (ticket, heard), wire).map(|()| true);
        }
        if !self.server.has_room_for_message(number) {
            return Ok(false);
        }
        let Some(message) = wire.messages.pop_front() else { return Ok(false) };
        if let Some(session) = self.sessions.get_mut(&number) {
            session.is_leaving = message == ToServer::Bye;
            session.heard_at = self.shared.now();
        }
        self.event(|server, now| server.on_message(number, message, now))?;
        self.take_work()?;
        Ok(true)
    }

    /// A frame of a client arrives; or only its head, before the connection ends.
    pub(super) fn receive(
        &mut self,
        number: ClientNumber,
        frame: SentFrame,
        is_whole: bool,
    ) -> Checked {
        let frames_each = self.frames_each;
        if self.server.is_over(number) {
            return Ok(());
        }
        let SentFrame { header, row, stamps } = frame;
        self.event(|server, _| server.on_head(number, &header, &[row]))?;
        if !is_whole {
            self.server.on_frame_lost(number);
            return Ok(());
        }
        let now = self.shared.now();
        let session = self.session(number)?;
        session.heard_at = now;
        session.held += 1;
        if session.held > frames_each {
            return Err("more frames are here than there is memory for".to_owned());
        }
        let frame = self.event(|server, now| server.on_frame(number, &[row], now))?;
        if frame != header.number {
            return Err(format!("frame {} arrives as {frame}", header.number));
        }
        self.session(number)?.buffers.insert(frame, stamps);
        if self.server.is_over(number) {
            return Err("a frame ends the connection".to_owned());
        }
        self.take_work()
    }

    /// A step of the thread that does what a client asked for.
    pub(super) fn work(&mut self, number: ClientNumber, rng: &mut Rng) -> Checked<bool> {
        let Some(session) = self.sessions.get_mut(&number) else { return Ok(false) };
        let Some(task) = session.running.take() else {
            let Some(task) = self.server.next_task(number) else { return Ok(false) };
            let session = self.session(number)?;
            if let Act::Read { file, extent } = task.act {
                let (client, request) = (number, task.request);
                match session.files.get(&file).copied() {
                    Some(path) => self.jobs.push(Job::Read { client, request, path, extent }),
                    // It was read ahead, and waited for another client until it was closed.
                    None => {
                        let result = Err(failure(Operation::Read));
                        self.event(|server, _| server.on_read(client, request, result))?;
                    }
                }
            } else {
                session.running = Some(task);
            }
            return Ok(true);
        };
        let process = session.process;
        self.shared.trace(|| format!("server: client {process}: {task:?}"));
        self.do_task(number, task, rng)?;
        self.take_work()?;
        Ok(true)
    }

    fn do_task(&mut self, number: ClientNumber, task: Task, rng: &mut Rng) -> Checked {
        let Task { request, act } = task;
        let is_noted = act.is_noted();
        let fails = rng.hits(self.failing_per_mille);
        let done = |is_done: bool, operation| match is_done {
            true => Outcome::Done,
            false => Outcome::Failed(failure(operation)),
        };
        let outcome = match act {
            Act::Open { file, path, mode } => {
                let opened = (file, path.as_slice(), mode.writes);
                return self.open((number, request), opened, fails);
            }
            Act::Sync(file) => {
                let path = self.path(number, file)?;
                if !fails {
                    self.files[path].sync();
                }
                done(!fails, Operation::Sync)
            }
            Act::Close { file, is_usable } => {
                let path = self.session(number)?.files.remove(&file);
                if is_usable {
                    let path = path.ok_or("a file is closed that is not open")?;
                    if !fails {
                        self.files[path].sync();
                    }
                }
                self.look_for_idle();
                done(!(fails && is_usable), Operation::Sync)
            }
            Act::Size(file) => {
                let path = self.path(number, file)?;
                Outcome::Number(self.files[path].size())
            }
            Act::SetSize(file, size) => {
                let path = self.path(number, file)?;
                if !fails {
                    let process = self.session(number)?.process;
                    self.cut(path, size, (process, request))?;
                }
                done(!fails, Operation::Write)
            }
            Act::Preallocate(file, size) => {
                let path = self.path(number, file)?;
                self.files[path].extend(size);
                Outcome::Done
            }
            act => return Err(format!("no program does this: {act:?}")),
        };
        let process = self.session(number)?.process;
        if let Some(list) = self.lists.get_mut(&process)
            && is_noted
            && outcome == Outcome::Done
        {
            list.add_done(request);
        }
        self.event(|server, now| server.on_done(number, request, outcome, now))
    }

    fn open(
        &mut self,
        (number, request): (ClientNumber, u64),
        (file, path, writes): (FileNumber, &[u8], bool),
        fails: bool,
    ) -> Checked {
        let index = PATHS.iter().position(|it| it.as_bytes() == path);
        let index = index.ok_or("an unknown path is opened")?;
        let id = FileId { device: 1, inode: index as u64 };
        let result = if fails { Err(failure(Operation::Open)) } else { Ok(id) };
        let session = self.session(number)?;
        let process = session.process;
        if fails {
            self.shared.check.borrow_mut().on_not_opened((process, file));
        } else {
            session.files.insert(file, index);
            if let Some(list) = self.lists.get_mut(&process) {
                list.add_file(file, id, writes);
            }
        }
        self.event(|server, now| server.on_opened(number, request, result, now))
    }

    fn path(&mut self, number: ClientNumber, file: FileNumber) -> Checked<usize> {
        let path = self.session(number)?.files.get(&file).copied();
        path.ok_or_else(|| "a file is used that is not open".to_owned())
    }

    fn cut(&mut self, path: usize, size: u64, asked: (usize, u64)) -> Checked {
        let mut check = self.shared.check.borrow_mut();
        let stamp = check.take_cut(asked.0, asked.1);
        let before: BTreeMap<_, _> = self.files[path].all().collect();
        for offset in self.files[path].cut(size, stamp) {
            if stamp != 0 {
                check.apply(path, offset, (before[&offset], stamp), false)?;
            }
        }
        Ok(())
    }

    /// Finds out which files no client has open.
    fn look_for_idle(&self) {
        // Clients that return have theirs open.
        if self.expects {
            return;
        }
        for path in 0..PATHS.len() {
            if !self.sessions.values().any(|it| it.files.values().any(|of| *of == path)) {
                self.shared.check.borrow_mut().on_idle(path);
            }
        }
    }

    /// The storage does one of its jobs.
    pub(super) fn store(&mut self, rng: &mut Rng) -> Checked<bool> {
        if self.jobs.is_empty() {
            return Ok(false);
        }
        let index = rng.index(self.jobs.len());
        let fails = rng.hits(self.failing_per_mille);
        match self.jobs.swap_remove(index) {
            Job::Write { client, frame, path, extent } => {
                self.write(client, (frame, path, &extent), fails)?;
            }
            Job::Read { client, request, path, extent } => {
                let count = self.files[path].count(&extent);
                let result = if fails { Err(failure(Operation::Read)) } else { Ok(count) };
                self.shared.stats(|it| it.failures += u64::from(fails));
                let length = self.event(|server, _| server.on_read(client, request, result))?;
                if let Some(length) = length {
                    let found = self.files[path].read(&extent, length);
                    let first = extent.positions().start;
                    let bytes = ReadBytes { request, first, length, found };
                    self.session(client)?.to_send.push_back(bytes);
                }
            }
        }
        self.take_work()?;
        Ok(true)
    }

    fn write(
        &mut self,
        number: ClientNumber,
        (frame, path, extent): (u64, usize, &Extent),
        fails: bool,
    ) -> Checked {
        let session = self.session(number)?;
        session.held -= 1;
        let (is_replay, process) = (session.is_replay, session.process);
        let stamps = session.buffers.remove(&frame).ok_or("a frame is written twice")?;
        let places = offsets(extent.view(), extent.positions().clone());
        if places.len() != stamps.len() {
            return Err(format!("a frame of {} bytes has {}", places.len(), stamps.len()));
        }
        let mut check = self.shared.check.borrow_mut();
        if fails {
            self.shared.stats(|it| it.failures += 1);
            check.fail(&stamps);
        } else {
            for (offset, stamp) in places.into_iter().zip(stamps) {
                let before = self.files[path].put(offset, stamp);
                check.apply(path, offset, (before, stamp), is_replay)?;
            }
        }
        drop(check);
        if let Some(list) = self.lists.get_mut(&process).filter(|_| !fails) {
            list.add_written(frame);
        }
        let failure = fails.then(|| failure(Operation::Write));
        self.event(|server, now| server.on_written(number, frame, failure, now))
    }

    /// A step of the thread that sends messages and bytes to a client.
    pub(super) fn answer(&mut self, number: ClientNumber, wire: &mut Wire) -> Checked<bool> {
        if self.sessions.get(&number).is_none_or(|it| it.away_since.is_some()) {
            return Ok(false);
        }
        let now = self.shared.now();
        let mut messages = self.event(|server, _| server.next_messages(number))?;
        self.take_work()?;
        let is_over = self.server.is_over(number);
        let session = self.session(number)?;
        if messages.is_empty() && now >= session.said_at + HEARTBEAT {
            messages.push(ToClient::Heartbeat);
        }
        if !messages.is_empty() {
            session.said_at = now;
        }
        let mut did = !messages.is_empty();
        for message in messages {
            // It has returned, and may send frames.
            session.is_returning &= !matches!(message, ToClient::Grant(_));
            wire.replies.push_back(session.say(message)?);
        }
        if !is_over && let Some(bytes) = session.to_send.pop_front() {
            let (request, length) = (bytes.request, bytes.length);
            wire.bytes.push_back(bytes);
            self.event(|server, now| server.on_sent(number, request, length, now))?;
            self.take_work()?;
            did = true;
        }
        Ok(did)
    }

    /// The connection of a client ends.
    pub(super) fn end(&mut self, number: ClientNumber) -> Checked {
        if !self.sessions.contains_key(&number) {
            return Ok(());
        }
        self.event(|server, _| {
            server.on_gone(number, None);
            Ok::<_, String>(())
        })?;
        self.take_work()
    }

    /// Forgets a client that is gone when nothing is left to be done for it. Returns whether it is
    /// forgotten.
    pub(super) fn forget(&mut self, number: ClientNumber) -> Checked<bool> {
        if !self.sessions.contains_key(&number) {
            return Ok(true);
        }
        if !self.server.is_over(number) || !self.server.is_ended(number) {
            return Ok(false);
        }
        let session = self.session(number)?;
        if session.held > 0 || !session.buffers.is_empty() {
            return Err("frames of a client that is gone are kept".to_owned());
        }
        self.event(|server, _| {
            server.forget(number);
            Ok::<_, String>(())
        })?;
        let process = self.session(number)?.process;
        self.sessions.remove(&number);
        self.remove_list(process);
        self.look_for_idle();
        self.take_work()?;
        Ok(true)
    }

    /// Disconnects clients that others wait for and that are silent, and gives up those that are
    /// away for too long.
    pub(super) fn look(&mut self) -> Checked {
        self.forget_given_up()?;
        let now = self.shared.now();
        if now < self.looked_at + Duration::from_secs(1) {
            return Ok(());
        }
        self.looked_at = now;
        let instant = self.now();
        let silent = self.server.silent(instant, Duration::ZERO, SILENCE_MAX);
        self.after_return();
        self.take_work()?;
        for number in silent {
            self.shared.trace(|| format!("server: {number:?} is silent"));
            self.on_silent(number)?;
            let process = self.session(number)?.process;
            self.shared.check.borrow_mut().on_gone(process);
            self.event(|server, _| {
                server.on_gone(number, Some("silent".to_owned()));
                Ok::<_, String>(())
            })?;
            self.take_work()?;
        }
        Ok(())
    }

    /// Whether storage has something to do.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }
}
