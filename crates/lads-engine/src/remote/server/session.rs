//! One client of a server: the threads that serve it.
//!
//! One reads messages, one receives frames, one does what requests ask for (`calls.rs`), and one
//! sends replies and what was read. If the connection breaks, only what requests ask for goes on,
//! until the client connects again or is given up. What is done, and when, decides the session that
//! all clients share ([`lads_core::remote::server`]).

use super::super::line::Line;
use super::super::wire::{Unheard, hear, say};
use super::lists::{Before, ClientList, Lists};
use super::opened::Opened;
use super::places::{Place, Places};
use super::reach::Reach;
use super::storage::{Asker, OpenFile, Storage};
use crate::board::lock;
use crate::clock::Clock;
use crate::fatal::own_host;
use crate::layout::Layouts;
use crate::stop::StopFlag;
use crate::thread::{NoThread, spawn};
use crate::transport::{Arrived, Channel, Frame, GrantedBuffers, Receiver, Transport};
use crate::whole::fill_random;
use lads_core::absence::Presence;
use lads_core::frame::{Bound, HEADER_BYTES, Header, ROW_BYTES, Row, put_head};
use lads_core::remote::locks::ClientNumber;
use lads_core::remote::message::{
    CLIENT_READS_MAX, FRAME_BYTES, Failure, FileNumber, TO_SERVER_BYTES_MAX, Ticket, ToClient,
    ToServer, VERSION,
};
use lads_core::remote::policy::{HEARTBEAT, LOOK_INTERVAL, RETURN_MAX};
use lads_core::remote::server::{Breach, Server, Work};
use lads_core::units::{Block, EntryId, Instant, OstId, StreamId};
use lads_sys::Buffer;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use twox_hash::XxHash3_64;

/// Why a client is disconnected.
const HOLDS_UP: &str =
    "other clients wait for a lock or for data of this client, and it sends nothing";

/// What a client is told that connects again too late, or to another server.
const UNKNOWN: &str = "the server does not know this client any more: it was away for too long, \
     others waited for it, or the host of the server was started again";

/// A client that opens a file waits at most this long until the files of a client that is given up
/// are closed. With half, an open fails when closing takes a moment on a busy file system; with
/// double, an open that fails takes 2 s for each client that is given up.
const GIVEN_UP_WAIT: Duration = Duration::from_secs(1);

/// How many there may be at a time.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) clients: u32,
    /// Clients whose connection is broken.
    pub(super) away: u32,
    /// Files that they have open together.
    pub(super) files: u32,
}

/// The files, and the clients that use them.
pub(super) struct Shared {
    pub(super) storage: Arc<Storage>,
    /// What is done for whom, and when.
    server: Mutex<Server>,
    clients: Mutex<HashMap<ClientNumber, Arc<Session>>>,
    clock: Clock,
    sessions: Places,
    pub(super) files: Places,
    /// For the case that this server is started again.
    lists: Option<Lists>,
}

impl Shared {
    pub(super) fn open(
        reach: Reach,
        layouts: Box<dyn Layouts>,
        limits: Limits,
        buffers_bytes: u64,
        lists: impl FnOnce(u32) -> Option<(Lists, Before)>,
    ) -> Result<Arc<Self>, String> {
        let sessions_max = limits.clients;
        let all = u32::try_from(buffers_bytes / u64::from(FRAME_BYTES)).unwrap_or(u32::MAX);
        let buffers_each = all / sessions_max.max(1);
        if buffers_each == 0 || sessions_max == 0 {
            let needed = (u64::from(sessions_max) * u64::from(FRAME_BYTES)) >> 20;
            return Err(format!("{sessions_max} sessions need buffers of at least {needed}M"));
        }
        let arena = |count| {
            lads_sys::Arena::new(count, FRAME_BYTES as usize)
                .map_err(|error| format!("cannot reserve memory: {error}"))
        };
        let (writing, reading) =
            (arena(buffers_each * sessions_max)?, arena(CLIENT_READS_MAX * sessions_max)?);
        let storage = Arc::new(Storage::new(reach, layouts, writing, reading));
        let clock = Clock::start();
        let mut server = Server::new(own_host(), buffers_each, limits.away, since_boot());
        let lists = lists(buffers_each).map(|(lists, (expected, lost))| {
            server.expect(expected, lost, clock.now() + RETURN_MAX);
            lists
        });
        let (sessions, files) = (Places::new(sessions_max), Places::new(limits.files));
        let (clients, server) = (Mutex::default(), Mutex::new(server));
        Ok(Arc::new(Self { storage, server, clients, clock, sessions, files, lists }))
    }

    /// Starts the threads that read and write, and the one that cuts off clients that hold up
    /// others and are silent for `silence_max`.
    pub(super) fn start(
        self: &Arc<Self>,
        silence_max: Duration,
        stop: &StopFlag,
    ) -> Result<(), String> {
        let (shared, stopped) = (Arc::clone(self), stop.clone());
        let watch = move || shared.watch(silence_max, &stopped);
        let begun = self.storage.start_threads().and_then(|()| spawn("lads-watch", watch));
        begun.map(drop).map_err(|error| {
            self.storage.end();
            error.to_string()
        })
    }

    pub(super) fn admit(
        self: &Arc<Self>,
        line: Box<dyn Line>,
        connection: (Arc<dyn Transport>, Channel),
    ) -> io::Result<()> {
        let place = self.sessions.take();
        let place =
            place.ok_or_else(|| io::Error::other("the maximum number of clients is connected"))?;
        let shared = Arc::clone(self);
        let (begin, begun) = sync_channel(1);
        let serving = spawn("lads-client", move || {
            if let Ok((line, (transport, channel))) = begun.recv() {
                let is_over = AtomicBool::new(false);
                let way = Arc::new(Way { transport, line, is_over, _place: place });
                Session::arrive(&shared, &way, channel);
            }
        });
        if let Err(error) = serving {
            line.end();
            return Err(error.into());
        }
        begin.send((line, connection)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Reports something to the session, and does what follows from it.
    ///
    /// # Errors
    /// If the client breaks the protocol.
    pub(super) fn event<T>(
        &self,
        report: impl FnOnce(&mut Server, Instant) -> Result<T, Breach>,
    ) -> Result<T, Breach> {
        let mut server = self.lock();
        let result = report(&mut server, self.clock.now());
        let work: Vec<_> = std::iter::from_fn(|| server.next_work()).collect();
        let news = server.take_news().into_iter();
        let news: Vec<_> = news.map(|it| (it, News::of(&server, it))).collect();
        drop(server);
        let clients = lock(&self.clients);
        let of = |number: &ClientNumber| clients.get(number).map(Arc::clone);
        let work = work.into_iter().filter_map(|it| Some((of(&it.client())?, it)));
        let news = news.into_iter().filter_map(|(number, it)| Some((of(&number)?, it)));
        let (work, news): (Vec<_>, Vec<_>) = (work.collect(), news.collect());
        drop(clients);
        for (session, work) in work {
            self.begin(session, work);
        }
        news.into_iter().for_each(|(session, it)| session.on_news(it));
        result
    }

    /// Begins to write a frame, or forgets it.
    fn begin(&self, session: Arc<Session>, work: Work) {
        let Some(buffer) = session.take_buffer(work.frame()) else { return };
        let Work::Write { frame, file, extent, .. } = work else { return };
        let Some(file) = session.file(file) else { return };
        self.storage.write((frame, extent), file, buffer, session);
    }

    /// A client has connected for the first time.
    fn connect(self: &Arc<Self>, way: &Arc<Way>) -> io::Result<Arc<Session>> {
        let mut ticket = [0; 16];
        fill_random(&mut ticket)?;
        let ticket = Ticket(ticket);
        let list = self.lists.as_ref().and_then(|lists| lists.begin(ticket));
        let number = self.lock().connect(ticket, self.clock.now());
        self.begin_session((number, ticket), list, way)
    }

    /// A client has connected that was connected to the server before this one was started.
    fn readmit(self: &Arc<Self>, ticket: Ticket, way: &Arc<Way>) -> Option<Arc<Session>> {
        let (list, done) = self.lists.as_ref()?.resume(ticket).ok()?;
        let number = self.lock().readmit(ticket, done, self.clock.now())?;
        self.begin_session((number, ticket), Some(list), way).ok()
    }

    fn begin_session(
        self: &Arc<Self>,
        (number, ticket): (ClientNumber, Ticket),
        list: Option<ClientList>,
        way: &Arc<Way>,
    ) -> io::Result<Arc<Session>> {
        let session = Arc::new(Session::new(Arc::clone(self), (number, ticket), list));
        *lock(&session.way) = Some(Arc::clone(way));
        lock(&self.clients).insert(number, Arc::clone(&session));
        let calling = Arc::clone(&session);
        if let Err(error) = spawn("lads-call", move || calling.do_tasks()) {
            session.end(None);
            self.forget(number, ticket);
            return Err(error.into());
        }
        Ok(session)
    }

    /// The client that has this ticket.
    fn find(&self, ticket: Ticket) -> Option<Arc<Session>> {
        let number = self.lock().find(ticket)?;
        lock(&self.clients).get(&number).map(Arc::clone)
    }

    /// A place for a file. If there is none, clients whose connection is broken are given up.
    pub(super) fn place_for_file(&self) -> Option<Place> {
        let mut place = self.files.take();
        while place.is_none() && self.give_up_oldest() {
            place = self.files.take_within(GIVEN_UP_WAIT);
        }
        place
    }

    fn give_up_oldest(&self) -> bool {
        self.event(|server, _| Ok(server.give_up_oldest())).unwrap_or(false)
    }

    /// Nothing is left of a client.
    fn forget(&self, number: ClientNumber, ticket: Ticket) {
        // It breaks no protocol any more.
        let returns = self.event(|server, _| {
            server.forget(number);
            Ok(server.knows(ticket))
        });
        lock(&self.clients).remove(&number);
        if let Some(lists) = self.lists.as_ref().filter(|_| returns != Ok(true)) {
            lists.set_lost(|| self.lock().lost()).then(|| lists.remove(ticket));
        }
    }

    /// Cuts off clients that hold up others and are silent, until the flag is set.
    fn watch(&self, silence_max: Duration, stop: &StopFlag) {
        let interval = LOOK_INTERVAL.min(silence_max);
        let mut presence = Presence::begin(self.clock.now(), interval);
        while !stop.is_set() {
            std::thread::sleep(interval);
            let away = presence.look(self.clock.now());
            let silent = self.event(|server, now| Ok(server.silent(now, away, silence_max)));
            if let Some(lists) = &self.lists {
                let is_kept = lists.set_lost(|| self.lock().lost());
                is_kept.then(|| lists.remove_unknown(|it| self.lock().knows(it)));
            }
            for number in silent.into_iter().flatten() {
                let Some(session) = lock(&self.clients).get(&number).map(Arc::clone) else {
                    continue;
                };
                let is_over = self.lock().is_over(number);
                if is_over {
                    // It takes nothing either, not even the reason.
                    if let Some(way) = lock(&session.way).clone() {
                        session.end_way(&way);
                    }
                } else {
                    session.end(Some(HOLDS_UP.to_owned()));
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Server> {
        lock(&self.server)
    }
}

/// A number that grows from one start of a server to the next: nanoseconds since the host started.
fn since_boot() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// One client.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) number: ClientNumber,
    ticket: Ticket,
    pub(super) list: Option<ClientList>,
    /// Its connection, if there is one.
    way: Mutex<Option<Arc<Way>>>,
    wakes: Wakes,
    pub(super) files: Mutex<HashMap<FileNumber, Arc<Opened>>>,
    /// Frames that are here and are not being written.
    buffers: Mutex<HashMap<u64, Buffer>>,
    /// What was read and is to be sent.
    to_send: Mutex<VecDeque<Bytes>>,
}

/// Where the threads of a client wait.
#[derive(Default)]
struct Wakes {
    /// The connection has ended.
    left: Condvar,
    /// There is something to be sent.
    answers: Condvar,
    /// There is a task, or room for messages.
    work: Condvar,
    /// Whether a message waits for room.
    is_full: AtomicBool,
}

/// A connection.
struct Way {
    transport: Arc<dyn Transport>,
    line: Box<dyn Line>,
    is_over: AtomicBool,
    /// Given back when it has ended.
    _place: Place,
}

impl Way {
    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.transport.end(StreamId(0));
        self.line.end();
    }
}

/// What is new for a client.
#[derive(Clone, Copy)]
pub(super) struct News {
    has_answers: bool,
    has_work: bool,
    is_over: bool,
}

impl News {
    pub(super) fn of(server: &Server, number: ClientNumber) -> Self {
        let is_over = server.is_over(number);
        let has_answers = is_over || server.has_messages(number);
        let has_work = is_over || server.has_task(number) || server.is_away(number);
        Self { has_answers, has_work, is_over }
    }
}

/// Bytes that were read.
struct Bytes {
    request: u64,
    first: u64,
    length: u32,
    buffer: Buffer,
}

impl Session {
    fn new(
        shared: Arc<Shared>,
        (number, ticket): (ClientNumber, Ticket),
        list: Option<ClientList>,
    ) -> Self {
        Self {
            shared,
            number,
            ticket,
            list,
            way: Mutex::new(None),
            wakes: Wakes::default(),
            files: Mutex::default(),
            buffers: Mutex::default(),
            to_send: Mutex::default(),
        }
    }

    /// A connection is there: of a new client, or of one that was connected before.
    fn arrive(shared: &Arc<Shared>, way: &Arc<Way>, channel: Channel) {
        let Channel { mut input, mut output } = channel;
        let begun = match hear(&mut *input, TO_SERVER_BYTES_MAX) {
            Ok(ToServer::Resume { version: VERSION, ticket, heard }) => {
                let found = shared.find(ticket).filter(|session| session.resume(way, heard));
                let found = found.or_else(|| shared.readmit(ticket, way));
                found.map(|session| (session, None)).ok_or_else(|| UNKNOWN.to_owned())
            }
            Ok(first) => {
                let connected = shared.connect(way).map(|session| (session, Some(first)));
                connected.map_err(|error| error.to_string())
            }
            Err(Unheard::Ended(_) | Unheard::Changed(_)) => return way.end(),
            Err(Unheard::Nonsense(text)) => Err(text),
        };
        match begun {
            Ok((session, first)) => session.serve(way, Channel { input, output }, first),
            Err(text) => {
                let hello = ToClient::Hello { version: VERSION, name: own_host() };
                let _ = say(&mut *output, [hello, ToClient::Fatal(text)]);
                way.end();
            }
        }
    }

    /// The client is connected again, and has heard as many counted messages. Returns `false` if it
    /// is gone.
    fn resume(&self, way: &Arc<Way>, heard: u64) -> bool {
        let mut own = lock(&self.way);
        // The server may not have noticed that the connection before is broken.
        while let Some(before) = own.clone() {
            drop(own);
            self.end_way(&before);
            own = lock(&self.way);
            let is_same =
                |it: &mut Option<Arc<Way>>| it.as_ref().is_some_and(|it| Arc::ptr_eq(it, &before));
            own = self.wakes.left.wait_while(own, is_same).unwrap_or_else(PoisonError::into_inner);
        }
        *own = Some(Arc::clone(way));
        drop(own);
        let resumed = self.shared.event(|server, now| server.resume(self.number, heard, now));
        let is_back = resumed.unwrap_or_else(|breach| {
            self.end(Some(breach.to_string()));
            false
        });
        if !is_back {
            self.leave();
        }
        is_back
    }

    /// The connection has ended, and its threads.
    fn leave(&self) {
        *lock(&self.way) = None;
        self.wakes.left.notify_all();
    }

    /// Serves a client until the connection has ended. `first` is what it said first.
    fn serve(self: &Arc<Self>, way: &Arc<Way>, channel: Channel, first: Option<ToServer>) {
        let Channel { mut input, mut output } = channel;
        let buffers: Arc<dyn GrantedBuffers> = Arc::clone(self) as Arc<dyn GrantedBuffers>;
        let receiver = way.transport.receiver(StreamId(0), buffers);
        let (receiving, answering) = (Arc::clone(self), Arc::clone(self));
        let (receives, answers) = (Arc::clone(way), Arc::clone(way));
        let threads = [
            spawn("lads-receive", move || {
                receiving.receive(receiver);
                // If the client has broken the protocol, it is told before that.
                if !receiving.shared.lock().is_over(receiving.number) {
                    receiving.end_way(&receives);
                }
            }),
            spawn("lads-answer", move || {
                answering.answer(&answers, &mut *output);
                // All is said. Now the threads that read come to an end, too.
                answering.end_way(&answers);
            }),
        ];
        let missing = threads.iter().find_map(|it| it.as_ref().err()).map(NoThread::to_string);
        let has_answerer = threads[1].is_ok();
        match missing.map_or_else(|| self.listen(way, first, &mut *input), Err) {
            Err(text) if has_answerer => self.end(Some(text)),
            _ => self.end_way(way),
        }
        // Whoever waits for this client is not held up by what it left in memory.
        for thread in threads.into_iter().flatten() {
            let _ = thread.join();
        }
        lock(&self.to_send).clear();
        let is_kept = self.shared.event(|server, now| Ok(server.on_broken(self.number, now)));
        if is_kept != Ok(true) {
            self.end(None);
        }
        self.leave();
        // Memory for its frames is a part of its place.
        drop(self.wait_until(|server, number| !server.has_memory(number)));
    }

    /// Reads messages, after the first one. Returns `Ok` when the connection has ended.
    ///
    /// # Errors
    /// If the client breaks the protocol; the text says how.
    fn listen(
        &self,
        way: &Way,
        mut first: Option<ToServer>,
        input: &mut (dyn io::Read + Send),
    ) -> Result<(), String> {
        loop {
            let heard = match first.take() {
                Some(first) => Ok(first),
                None => hear(input, TO_SERVER_BYTES_MAX),
            };
            let message = match heard {
                Ok(message) => message,
                Err(Unheard::Nonsense(text)) => return Err(text),
                Err(Unheard::Ended(_) | Unheard::Changed(_)) => return Ok(()),
            };
            let has_room = |server: &Server, number| {
                let is_over = server.is_over(number) || way.is_over.load(Ordering::Relaxed);
                is_over || server.has_room_for_message(number)
            };
            self.wakes.is_full.store(true, Ordering::Relaxed);
            drop(self.wait_until(has_room));
            self.wakes.is_full.store(false, Ordering::Relaxed);
            let taken = |server: &mut Server, now| server.on_message(self.number, message, now);
            self.shared.event(taken).map_err(|breach| breach.to_string())?;
        }
    }

    /// Does what requests ask for, until the client is gone; then forgets it.
    fn do_tasks(self: &Arc<Self>) {
        loop {
            let has_news =
                |server: &Server, number| server.has_task(number) || server.is_over(number);
            let mut server = self.wait_until(has_news);
            let Some(task) = server.next_task(self.number) else { break };
            drop(server);
            let done = self.do_task(task);
            self.end_at_breach(done);
        }
        let is_there = |way: &mut Option<Arc<Way>>| way.is_some();
        drop(self.wakes.left.wait_while(lock(&self.way), is_there));
        drop(self.wait_until(Server::is_ended));
        lock(&self.files).clear();
        self.shared.forget(self.number, self.ticket);
    }

    /// Receives frames.
    fn receive(&self, mut receiver: Box<dyn Receiver>) {
        let mut frame = Frame::default();
        while receiver.next_frame(&mut frame).unwrap_or(false) {
            let Some(Arrived { header, buffer }) = frame.arrived.take() else { continue };
            let bytes = &buffer[..header.payload_bytes as usize];
            let is_whole = frame.rows.iter().all(|row| XxHash3_64::oneshot(bytes) == row.checksum);
            if !is_whole {
                return self.end(Some("a frame that is damaged".to_owned()));
            }
            let taken = self.shared.event(|server, now| {
                // Before anybody is told to write it.
                let number = server.on_frame(self.number, &frame.rows, now)?;
                lock(&self.buffers).insert(number, buffer);
                Ok(())
            });
            if let Err(breach) = taken {
                return self.end(Some(breach.to_string()));
            }
        }
    }

    /// Sends messages and what was read, until the connection has ended or the client is gone.
    fn answer(&self, way: &Way, output: &mut dyn io::Write) {
        let mut frames = 0;
        loop {
            let is_quiet = |server: &mut Server| {
                let has_news = server.has_messages(self.number) || server.is_over(self.number);
                !has_news && !way.is_over.load(Ordering::Relaxed) && lock(&self.to_send).is_empty()
            };
            let waited =
                self.wakes.answers.wait_timeout_while(self.shared.lock(), HEARTBEAT, is_quiet);
            let (server, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            let is_over = server.is_over(self.number);
            drop(server);
            if way.is_over.load(Ordering::Relaxed) {
                return;
            }
            let messages = self.shared.event(|server, _| server.next_messages(self.number));
            let Ok(mut messages) = messages.map_err(|breach| self.end(Some(breach.to_string())))
            else {
                continue;
            };
            if waited.timed_out() {
                messages.push(ToClient::Heartbeat);
            }
            if say(output, messages).is_err() || is_over {
                return;
            }
            let Some(bytes) = lock(&self.to_send).pop_front() else { continue };
            if self.send(way, bytes, frames).is_err() {
                return;
            }
            frames += 1;
        }
    }

    /// Sends what was read.
    fn send(&self, way: &Way, bytes: Bytes, frames: u64) -> io::Result<()> {
        let Bytes { request, first, length, mut buffer } = bytes;
        let payload = &mut buffer[..length as usize];
        let block = Block { entry: EntryId(request), offset: first, length };
        let row = Row { block, is_whole: false, checksum: XxHash3_64::oneshot(payload) };
        let bound = Bound { sink_ost: OstId(0), is_last_grant: false, has_only_sums: false };
        let mut head = Vec::with_capacity(HEADER_BYTES + ROW_BYTES);
        put_head(&[row], frames, bound, &mut head);
        let sent = way.transport.send_last(StreamId(0), &head, payload);
        drop(buffer);
        let done =
            self.shared.event(|server, now| server.on_sent(self.number, request, length, now));
        self.end_at_breach(done);
        sent
    }

    /// The bytes of a frame.
    pub(super) fn take_buffer(&self, frame: u64) -> Option<Buffer> {
        lock(&self.buffers).remove(&frame)
    }

    pub(super) fn file(&self, file: FileNumber) -> Option<Arc<OpenFile>> {
        lock(&self.files).get(&file).map(|opened| Arc::clone(&opened.file))
    }

    /// There may be something new for the threads of this client.
    pub(super) fn on_news(&self, news: News) {
        if news.has_answers {
            self.wakes.answers.notify_one();
        }
        if news.has_work || self.wakes.is_full.load(Ordering::Relaxed) {
            self.wakes.work.notify_all();
        }
        if news.is_over
            && let Some(way) = &*lock(&self.way)
        {
            way.transport.end(StreamId(0));
        }
    }

    /// Waits until something is so, of which the session tells.
    fn wait_until(&self, is_so: impl Fn(&Server, ClientNumber) -> bool) -> MutexGuard<'_, Server> {
        let is_open = |server: &mut Server| !is_so(server, self.number);
        let waited = self.wakes.work.wait_while(self.shared.lock(), is_open);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn end_at_breach(&self, result: Result<(), Breach>) {
        if let Err(breach) = result {
            self.end(Some(breach.to_string()));
        }
    }

    /// Ends a connection: the threads that use it return.
    fn end_way(&self, way: &Way) {
        way.end();
        // Whoever is about to wait has looked at it, or waits before this lock is taken.
        drop(self.shared.lock());
        self.wakes.answers.notify_all();
        self.wakes.work.notify_all();
    }

    /// Ends the connection; the text is told to the client.
    pub(super) fn end(&self, text: Option<String>) {
        // Nobody breaks the protocol by being gone.
        let _ = self.shared.event(|server, _| {
            server.on_gone(self.number, text);
            Ok(())
        });
    }
}

/// A thread of the storage has done something.
impl Asker for Session {
    fn on_read(
        &self,
        (request, first): (u64, u64),
        mut buffer: Buffer,
        result: Result<u32, Failure>,
    ) {
        let sends = self.shared.event(|server, _| {
            let found = result.map_or(0, |found| found as usize);
            if let Some(length) = server.on_read(self.number, request, result)? {
                buffer[found..length as usize].fill(0);
                lock(&self.to_send).push_back(Bytes { request, first, length, buffer });
            }
            Ok(())
        });
        self.wakes.answers.notify_one();
        self.end_at_breach(sends);
    }

    fn on_written(&self, frame: u64, failure: Option<Failure>) {
        if let Some(list) = self.list.as_ref().filter(|_| failure.is_none()) {
            list.add_written(frame);
        }
        let done =
            self.shared.event(|server, now| server.on_written(self.number, frame, failure, now));
        self.end_at_breach(done);
    }
}

/// A buffer was granted for each frame that may come.
impl GrantedBuffers for Session {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        let admitted = self.shared.event(|server, _| server.on_head(self.number, header, rows));
        if let Err(breach) = admitted {
            self.end(Some(breach.to_string()));
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.shared.storage.for_writing.take())
    }

    fn on_frame_lost(&self, _sink_ost: OstId) {
        let _ = self.shared.event(|server, _| {
            server.on_frame_lost(self.number);
            Ok(())
        });
    }
}
