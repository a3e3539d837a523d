//! The connection of a client to its server: its threads, its buffers and its disks. What they do
//! is decided by the session ([`lads_core::remote::client`]).

mod connecting;
mod ending;
mod reading;
mod sending;
mod staging;

use super::super::line::{Connection, Line};
use super::super::wire::say;
use super::cache::{Cache, Durability};
use super::options::{ClientOptions, StageOptions};
use super::read_cache::{MOVING_BUFFERS, ReadBuffer, ReadCache};
use crate::board::lock;
use crate::remote::error::RemoteError;
use crate::thread::{NoThread, spawn};
use crate::transport::{Arrived, Frame, GrantedBuffers, Receiver, Transport};
use lads_core::frame::{Header, Row};
use lads_core::remote::client::{After, CallError, Client, Settings, Tail, Wait};
use lads_core::remote::message::{CLIENT_READS_MAX, Call, FRAME_BYTES, FileNumber, ToClient};
use lads_core::remote::name::Server;
use lads_core::remote::outbox::buffer_bytes;
use lads_core::units::OstId;
use lads_sys::{Arena, Buffer};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// The session of this client.
pub(super) type OwnClient = Client<Arc<Buffer>, ReadBuffer>;
/// The buffer that is being filled of one of its files.
pub(super) type OwnTail = Tail<Arc<Buffer>>;

/// A connection.
pub(in crate::remote) struct Link {
    name: String,
    /// What carries frames, and what ends it, while it is connected.
    carrier: Mutex<Option<Arc<Carrier>>>,
    /// Where messages go, while it is connected.
    pub(in crate::remote) output: Mutex<Option<Box<dyn Write + Send>>>,
    /// Buffers for what is written, and for what is read.
    for_writing: Arena,
    for_reading: Arena,
    stage: Option<Stage>,
    read_cache: Option<ReadCache>,
    begun: Instant,
    session: Mutex<Session>,
    wakes: Wakes,
}

struct Carrier {
    transport: Arc<dyn Transport>,
    line: Box<dyn Line>,
    is_over: AtomicBool,
}

/// The local disk for what is written.
struct Stage {
    cache: Cache,
    /// A buffer for what is read back.
    for_draining: Arena,
}

/// The session, and who waits for it.
pub(super) struct Session {
    pub(super) client: OwnClient,
    /// The files that are open.
    tails: Vec<Weak<Mutex<OwnTail>>>,
    /// How many threads of the program wait.
    waiting: u32,
    /// The sending thread waits until then, if nothing is there to be sent before.
    sender_until: Option<Duration>,
    /// Why a thread ended the connection, until the loss is reported.
    broken: Option<String>,
}

/// Where threads wait.
#[derive(Default)]
struct Wakes {
    program: Condvar,
    sender: Condvar,
    disks: Condvar,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// What is written goes into buffers from now on; it is sent when the connection is there.
    pub(super) fn new(server: Server, name: String, options: &ClientOptions) -> io::Result<Self> {
        let buffer_bytes = buffer_bytes(options.buffers_bytes);
        let buffers = count_of(options.buffers_bytes, buffer_bytes).max(2);
        let chunks_max = count_of(options.read_bytes, FRAME_BYTES);
        let read_cache = options.read_cache.as_ref();
        let settings = Settings {
            buffers,
            buffer_bytes,
            chunks_max,
            read_cache_bytes: read_cache.map_or(0, |it| it.bytes_max),
            stage: options.stage.as_ref().map(|stage| stage.settings),
            timeout: options.timeout,
            stall_timeouts: options.stall_timeouts,
            // Such a server is that of this process alone.
            has_other_servers: !matches!(server, Server::At(_)),
        };
        let stage = options.stage.as_ref();
        let stage = stage.map(|it| Stage::open(it, server, buffer_bytes)).transpose()?;
        let read_cache = read_cache.map(|it| ReadCache::open(&it.directory)).transpose()?;
        let for_reading = chunks_max.saturating_add(CLIENT_READS_MAX + MOVING_BUFFERS);
        let session = Session {
            client: Client::new(settings),
            tails: Vec::new(),
            waiting: 0,
            sender_until: None,
            broken: None,
        };
        Ok(Self {
            name,
            carrier: Mutex::new(None),
            output: Mutex::new(None),
            for_writing: arena(buffers, buffer_bytes)?,
            for_reading: arena(for_reading, FRAME_BYTES)?,
            stage,
            read_cache,
            begun: options.begun,
            session: Mutex::new(session),
            wakes: Wakes::default(),
        })
    }

    /// Starts the threads that put something on a local disk, the one that looks for the server,
    /// and the one that connects.
    pub(super) fn begin_threads(
        self: &Arc<Self>,
        connect: impl FnMut() -> Result<Connection, RemoteError> + Send + 'static,
    ) -> Result<(), NoThread> {
        if self.stage.is_some() {
            let staging = Arc::downgrade(self);
            spawn("lads-stage", move || Self::stage(&staging))?;
        }
        if self.read_cache.is_some() {
            let saving = Arc::downgrade(self);
            spawn("lads-cache", move || Self::save(&saving))?;
        }
        let watching = Arc::downgrade(self);
        spawn("lads-watch", move || Self::watch(&watching))?;
        let connecting = Arc::downgrade(self);
        spawn("lads-connect", move || Self::stay_connected(&connecting, connect)).map(drop)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The time since the program began.
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Session> {
        lock(&self.session)
    }

    /// Reports or asks something that makes no request, and wakes whoever can go on.
    pub(in crate::remote) fn event<T>(&self, act: impl FnOnce(&mut OwnClient, Duration) -> T) -> T {
        let mut session = self.lock();
        let result = act(&mut session.client, self.now());
        let says = session.client.has_messages();
        self.wake(session, says);
        result
    }

    /// Does something that makes requests, sends them, and wakes whoever can go on.
    pub(super) fn ask_with<T>(&self, act: impl FnOnce(&mut OwnClient, Duration) -> T) -> T {
        let mut session = self.lock();
        let result = act(&mut session.client, self.now());
        self.wake(session, false);
        self.say_all();
        result
    }

    /// Wakes whoever can go on, the sending thread also if it has messages to send.
    fn wake(&self, mut session: MutexGuard<'_, Session>, says: bool) {
        let now = self.now();
        let Session { client, sender_until, waiting, .. } = &mut *session;
        let is_lost = client.loss().is_some();
        let wakes = |until: &mut Duration| {
            says || is_lost
                || client.is_away()
                || client.has_frame(now)
                || client.next_timeout(now) < *until
        };
        let is_sender = sender_until.take_if(wakes).is_some();
        let is_program = *waiting > 0;
        drop(session);
        if is_sender {
            self.wakes.sender.notify_one();
        }
        if is_program {
            self.wakes.program.notify_all();
        }
        if is_lost {
            self.wakes.disks.notify_all();
        }
    }

    /// Waits on behalf of the program.
    pub(super) fn wait(&self, wait: &Wait) -> MutexGuard<'_, Session> {
        let mut session = self.lock();
        if !session.client.is_waiting(wait) {
            return session;
        }
        session.client.begin_wait(wait);
        session.waiting += 1;
        if session.sender_until.take().is_some() {
            self.wakes.sender.notify_one();
        }
        let is_waiting = |session: &mut Session| session.client.is_waiting(wait);
        let waited = self.wakes.program.wait_while(session, is_waiting);
        session = waited.unwrap_or_else(PoisonError::into_inner);
        session.waiting -= 1;
        session.client.end_wait(wait);
        session
    }

    /// Makes a request, after the frames that it comes after, and returns the reply to it; `what`
    /// it is about goes into an error.
    pub(super) fn ask(&self, after: After, call: Call, what: &str) -> Result<u64, RemoteError> {
        let wait = Wait::Sent(after);
        let mut session = self.wait(&wait);
        let Wait::Sent(after) = wait else { unreachable!("made above") };
        let number = session.client.ask(&after, call);
        drop(session);
        self.say_all();
        self.reply(number, what)
    }

    /// Waits for the reply to a request; `what` it is about goes into an error.
    pub(super) fn reply(&self, number: u64, what: &str) -> Result<u64, RemoteError> {
        loop {
            let mut session = self.wait(&Wait::Reply(number));
            let Some(reply) = session.client.take_reply(number) else { continue };
            drop(session);
            return reply.map_err(|error| self.error(error, what));
        }
    }

    /// What an error of the session means for the program.
    pub(super) fn error(&self, error: CallError, what: &str) -> RemoteError {
        match error {
            CallError::Failed(failure) => RemoteError::of(failure, what),
            CallError::Gone => RemoteError::gone(what),
            CallError::Lost => self.lost(),
        }
    }

    /// The first failure of a file that was not returned, or that the connection is lost.
    pub(super) fn take_failure(&self, file: FileNumber, what: &str) -> Result<(), RemoteError> {
        let taken = self.lock().client.take_failure(file);
        taken.map_err(|error| self.error(error, what))
    }

    /// Sends the messages that are to be sent.
    pub(super) fn say_all(&self) {
        let mut output = lock(&self.output);
        let Some(to_server) = &mut *output else { return };
        let messages = self.lock().client.next_messages();
        if let Err(error) = say(&mut **to_server, messages) {
            drop(output);
            self.break_off(&error.to_string());
        }
    }

    /// A file is open.
    pub(super) fn add_tail(&self, tail: &Arc<Mutex<OwnTail>>) {
        let mut session = self.lock();
        session.tails.retain(|tail| tail.strong_count() > 0);
        session.tails.push(Arc::downgrade(tail));
    }

    fn tails(&self) -> Vec<Arc<Mutex<OwnTail>>> {
        self.lock().tails.iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets the buffer of a file be sent, if there is one.
    pub(super) fn seal(&self, tail: &mut OwnTail) {
        if tail.is_filling() {
            self.event(|client, now| tail.seal(client, now));
        }
    }

    /// Waits until all clients of the server see what was written before: until the server knows of
    /// it, or, if other processes use other servers, has it. The next call of a file returns its
    /// failure.
    pub(super) fn fence(&self) {
        self.tails().iter().for_each(|tail| self.seal(&mut lock(tail)));
        let session = self.lock();
        if session.client.has_other_servers() {
            let written = session.client.until_written();
            drop(session);
            drop(self.wait(&written));
            return;
        }
        drop(session);
        let number = self.wait(&Wait::FewUnsent).client.fence();
        if let Some(number) = number {
            self.say_all();
            // If the connection is lost, the next call returns that.
            let _ = self.reply(number, "");
        }
    }

    fn take_in(&self, message: ToClient) -> Result<(), String> {
        let staged = self.event(|client, now| client.on_message(message, now))?;
        if let Some(stage) = self.stage.as_ref().filter(|_| !staged.is_empty()) {
            let ids: Vec<_> = staged.iter().map(|(id, _)| *id).collect();
            stage.cache.on_gone(&ids);
            self.event(|client, _| client.free(&staged));
        }
        Ok(())
    }

    /// Receives what was read.
    fn receive(link: &Weak<Self>, mut receiver: Box<dyn Receiver>) {
        let mut frame = Frame::default();
        while receiver.next_frame(&mut frame).unwrap_or(false) {
            let Some(link) = link.upgrade() else { return };
            let Some(Arrived { header, buffer }) = frame.arrived.take() else { continue };
            let bytes = &buffer[..header.payload_bytes as usize];
            let is_whole = frame.rows.iter().all(|row| XxHash3_64::oneshot(bytes) == row.checksum);
            if !is_whole {
                return link.lose("the data that it read was damaged in transit");
            }
            let number = frame.rows[0].block.entry.0;
            link.on_bytes(number, buffer, header.payload_bytes as usize);
        }
        // Why it has ended is what the thread finds that reads messages.
        if let Some(carrier) = link.upgrade().and_then(|link| link.carrier()) {
            carrier.end();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.say_farewell();
        if let Some(carrier) = self.carrier() {
            carrier.end();
        }
        let session = self.session.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(stage) = self.stage.as_ref().filter(|_| session.client.is_written()) {
            stage.cache.remove();
        }
    }
}

impl Stage {
    fn open(options: &StageOptions, server: Server, buffer_bytes: u32) -> io::Result<Self> {
        let StageOptions { directory, settings } = options;
        let durability = if settings.is_synced { Durability::SYNCED } else { Durability::UNSYNCED };
        let cache = Cache::make(directory, server, buffer_bytes, durability);
        let cache = cache.map_err(|error| {
            let place = directory.display();
            io::Error::other(format!("cannot stage in {place} (rfs_cache_dir): {error}"))
        })?;
        Ok(Self { cache, for_draining: Arena::new(1, buffer_bytes as usize)? })
    }
}

/// The buffers for what is read: there is one for each read that may be in flight, beside those
/// that are kept.
struct Coming(Weak<Link>);

impl GrantedBuffers for Coming {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        let refused = || io::Error::from(io::ErrorKind::InvalidData);
        let link = self.0.upgrade().ok_or_else(refused)?;
        let admitted = link.lock().client.on_head(header, rows);
        if let Err(breach) = admitted {
            link.lose(&breach);
            return Err(refused());
        }
        Ok(link.for_reading.take())
    }

    fn on_frame_lost(&self, _sink_ost: OstId) {}
}

fn arena(count: u32, buffer_bytes: u32) -> io::Result<Arena> {
    let arena = Arena::new(count, buffer_bytes as usize)?;
    arena.prefer_huge_pages();
    Ok(arena)
}

/// How many buffers there are in as many bytes.
fn count_of(bytes: u64, buffer_bytes: u32) -> u32 {
    u32::try_from(bytes / u64::from(buffer_bytes)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
