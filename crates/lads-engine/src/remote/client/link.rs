//! The connection of a client to its server: requests and what comes of them.
//!
//! What a program writes lies in buffers. A thread sends them (`link/sending.rs`), another puts
//! some of them on a local disk (`link/staging.rs`). A buffer is free again when the server says
//! that it is written.

mod beginning;
mod ending;
mod opening;
mod reading;
mod sending;
mod staging;
mod writing;

use super::super::line::Line;
use super::super::wire::{hear, say};
use super::cache::Cache;
#[cfg(test)]
use super::cache::Synced;
use super::file::Tail;
use super::{
    About, ClientOptions, ReadBytes, RemoteError, StageOptions, StagedBytes, Target, shown,
};
use crate::board::lock;
use crate::thread::{NoThread, spawn};
use crate::transport::{Arrived, Frame, GrantedBuffers, Receiver, Transport};
use lads_core::frame::{Header, Row};
use lads_core::remote::gate::Gate;
use lads_core::remote::message::{
    CLIENT_READS_MAX, Call, FRAME_BYTES, Failure, FileNumber, Outcome, Request,
    TO_CLIENT_BYTES_MAX, ToClient, ToServer, ViewNumber, Written,
};
use lads_core::remote::name::Server;
use lads_core::remote::outbox::{Outbox, buffer_bytes};
use lads_core::remote::outlook::Outlook;
use lads_core::remote::policy::{LOOK_INTERVAL, STAGING_MAX};
use lads_core::remote::reading::Reading;
use lads_core::remote::rest::Rest;
use lads_core::remote::taken::Taken;
use lads_core::remote::window::Window;
use lads_core::staging::Slots;
use lads_core::units::OstId;
use lads_sys::{Arena, Buffer};
pub(super) use reading::Wanted;
use reading::{MOVING_BUFFERS, ReadBuffer, ReadCache};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// A connection.
pub(super) struct Link {
    name: String,
    /// What carries frames, and what ends it, as soon as it is connected.
    carrier: OnceLock<Carrier>,
    /// Where messages go, as soon as it is connected.
    output: Mutex<Option<Box<dyn Write + Send>>>,
    /// Buffers for what is written, and for what is read.
    for_writing: Arena,
    /// The bytes of each of these.
    buffer_bytes: u32,
    for_reading: Arena,
    stage: Option<Stage>,
    read_cache: Option<ReadCache>,
    begun: Instant,
    inner: Mutex<Inner>,
    changed: Condvar,
    timeout: Duration,
    stall_timeouts: u32,
    /// Whether other processes use other servers for the same files.
    has_other_servers: AtomicBool,
}

struct Carrier {
    transport: Arc<dyn Transport>,
    line: Box<dyn Line>,
}

/// The local disk.
struct Stage {
    options: StageOptions,
    cache: Cache,
    /// A buffer for what is read back.
    for_draining: Arena,
}

pub(super) struct Inner {
    requests: u64,
    /// Everything that the server sends passes it first.
    gate: Gate,
    /// Requests that are to be sent.
    to_say: VecDeque<ToServer>,
    /// What is not written at the server.
    outbox: Outbox<Arc<Buffer>, About>,
    window: Window,
    /// How many wait until certain frames are sent.
    awaited: u32,
    /// Whether nothing is sent, so that the program copies faster.
    rest: Rest,
    /// What is waited for: the outcome, once it is there, and what was read.
    waiting: HashMap<u64, Waiting>,
    /// Files and views at the server.
    taken: Taken,
    /// Requests for which nobody waits, and their files.
    deferred: HashMap<u64, FileNumber>,
    /// Requests that go out when certain frames are sent.
    held: Vec<Held>,
    /// Files whose close was deferred and is not done.
    closing: Vec<Closing>,
    /// The first failure of each file that no call has returned.
    failures: HashMap<FileNumber, Failure>,
    /// Places of reads that are taken.
    reads: u32,
    /// Reads of the program that have not asked for all that they wait for.
    asking: u32,
    reading: Reading<ReadBuffer>,
    read_bytes: ReadBytes,
    /// The views through which files are read now.
    targets: HashMap<FileNumber, Arc<Target>>,
    /// Some of them may be views of one file, opened twice.
    has_doubles: bool,
    tails: Vec<Weak<Mutex<Tail>>>,
    /// Of these, how many have a buffer that is not full.
    open_tails: u32,
    numbers: u32,
    heard_at: Instant,
    /// When something was done last of what the server owes, or it owed nothing.
    done_at: Instant,
    /// Who wants the server to hear that this process lives, and when that was said last.
    presences: u32,
    present_at: Instant,
    outlook: Outlook,
    staged: StagedBytes,
    is_connected: bool,
    /// Why a thread ended the connection, until the loss is reported.
    broken: Option<String>,
    /// Why the connection is lost, or could not be made.
    lost: Option<RemoteError>,
    /// Whether what is left is being put on the local disk.
    is_keeping: bool,
    /// What was not written at the server when the connection was lost.
    lost_bytes: u64,
    #[cfg(test)]
    is_paused: bool,
}

/// What a request comes after.
#[derive(Clone, Debug)]
pub(super) enum After {
    /// It has nothing to do with frames.
    Nothing,
    /// After the frames of a file among the first of the connection.
    Frames { file: FileNumber, count: u64 },
    /// After those that have bytes of the file in common.
    Bytes { file: FileNumber, reach: Range<u64>, count: u64 },
}

/// A request that is held until all its frames are sent.
struct Held {
    file: FileNumber,
    after: HeldAfter,
    call: Call,
}

enum HeldAfter {
    View(ViewNumber),
    Frames(u64),
}

/// A file that is closed later.
struct Closing {
    file: FileNumber,
    path: Vec<u8>,
}

#[derive(Default)]
struct Waiting {
    /// Whether other clients decide when it is done.
    is_for_others: bool,
    /// Whether bytes come as well, unless there are none or the request fails.
    is_read: bool,
    outcome: Option<Outcome>,
    bytes: Option<Came>,
}

/// Bytes that came, and where in the buffer they are.
type Came = (ReadBuffer, Range<usize>);

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// What is written goes into buffers from now on; it is sent when the connection is there.
    pub(super) fn new(server: Server, options: &ClientOptions) -> io::Result<Arc<Self>> {
        let name = shown(&server);
        let buffer_bytes = buffer_bytes(options.buffers_bytes);
        // Such a server is that of this process alone.
        let has_other_servers = AtomicBool::new(!matches!(server, Server::At(_)));
        let stage = options.stage.clone();
        let stage = stage.map(|it| Stage::open(it, server, buffer_bytes)).transpose()?;
        let bytes_max = stage.as_ref().map_or(0, |stage| stage.options.bytes_max);
        let told = stage.as_ref().map(|stage| stage.options.told).unwrap_or_default();
        let read_cache = options.read_cache.as_ref();
        let read_cache_bytes = read_cache.map_or(0, |it| it.bytes_max);
        let read_cache = read_cache.map(|it| ReadCache::open(&it.directory)).transpose()?;
        let chunks_max = count_of(options.read_bytes, FRAME_BYTES);
        let buffers = count_of(options.buffers_bytes, buffer_bytes).max(2);
        let for_reading = chunks_max.saturating_add(CLIENT_READS_MAX + MOVING_BUFFERS);
        let inner = Inner {
            requests: 0,
            gate: Gate::default(),
            to_say: VecDeque::new(),
            outbox: Outbox::new(buffers, Slots::new(bytes_max, buffer_bytes, STAGING_MAX)),
            window: Window::default(),
            awaited: 0,
            rest: Rest::default(),
            waiting: HashMap::new(),
            taken: Taken::default(),
            deferred: HashMap::new(),
            held: Vec::new(),
            closing: Vec::new(),
            failures: HashMap::new(),
            reads: 0,
            asking: 0,
            reading: Reading::new(chunks_max, Slots::new(read_cache_bytes, FRAME_BYTES, 1)),
            read_bytes: ReadBytes::default(),
            targets: HashMap::new(),
            has_doubles: false,
            tails: Vec::new(),
            open_tails: 0,
            numbers: 0,
            heard_at: Instant::now(),
            done_at: Instant::now(),
            presences: 0,
            present_at: Instant::now(),
            outlook: Outlook::new(told),
            staged: StagedBytes::default(),
            is_connected: false,
            broken: None,
            lost: None,
            is_keeping: false,
            lost_bytes: 0,
            #[cfg(test)]
            is_paused: false,
        };
        let link = Arc::new(Self {
            name,
            carrier: OnceLock::new(),
            output: Mutex::new(None),
            for_writing: arena(buffers, buffer_bytes)?,
            buffer_bytes,
            for_reading: arena(for_reading, FRAME_BYTES)?,
            stage,
            read_cache,
            begun: options.begun,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            timeout: options.timeout,
            stall_timeouts: options.stall_timeouts,
            has_other_servers,
        });
        link.begin_disks()?;
        Ok(link)
    }

    /// Starts the threads that put something on a local disk.
    fn begin_disks(self: &Arc<Self>) -> Result<(), NoThread> {
        if self.stage.is_some() {
            let staging = Arc::downgrade(self);
            spawn("lads-stage", move || Self::stage(&staging))?;
        }
        if self.read_cache.is_some() {
            let saving = Arc::downgrade(self);
            spawn("lads-cache", move || Self::save(&saving))?;
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    #[cfg(test)]
    pub(super) fn pause(&self, is_paused: bool) {
        self.lock().is_paused = is_paused;
        self.changed.notify_all();
    }

    #[cfg(test)]
    pub(super) fn awaited(&self) -> u32 {
        self.lock().awaited
    }

    #[cfg(test)]
    pub(super) fn break_disk(&self) {
        self.stage.as_ref().expect("there is one").cache.break_disk();
    }

    #[cfg(test)]
    pub(super) fn synced(&self) -> Vec<Synced> {
        self.stage.as_ref().expect("there is one").cache.synced()
    }

    #[cfg(test)]
    pub(super) fn cut(&self) {
        self.carrier.get().expect("it is connected").line.end();
    }

    /// A number for a file or a view.
    pub(super) fn next_number(&self) -> u32 {
        let mut inner = self.lock();
        inner.numbers += 1;
        inner.numbers
    }

    pub(super) fn add_tail(&self, tail: &Arc<Mutex<Tail>>) {
        let mut inner = self.lock();
        inner.tails.retain(|tail| tail.strong_count() > 0);
        inner.tails.push(Arc::downgrade(tail));
    }

    /// Asks for something and will wait for it: returns the number of the request. It waits until
    /// what the request comes after is sent.
    pub(super) fn ask(&self, after: &After, call: Call) -> u64 {
        let inner = self.wait_until_sent(after);
        self.request_with(inner, !matches!(after, After::Nothing), call, None)
    }

    /// Waits until what a request comes after is sent.
    fn wait_until_sent(&self, after: &After) -> MutexGuard<'_, Inner> {
        let mut inner = self.lock();
        if inner.is_unsent(after) {
            inner.awaited += 1;
            self.changed.notify_all();
            let is_open = |inner: &mut Inner| inner.lost.is_none() && inner.is_unsent(after);
            let waited = self.changed.wait_while(inner, is_open);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
            inner.awaited -= 1;
        }
        inner
    }

    /// Forgets a view when all its frames are sent.
    pub(super) fn forget(&self, file: FileNumber, view: ViewNumber) {
        self.hold(Held { file, after: HeldAfter::View(view), call: Call::Forget { view } });
    }

    /// Closes a file when all its frames are sent.
    pub(super) fn close_later(&self, file: FileNumber, path: &[u8], count: u64) {
        self.lock().closing.push(Closing { file, path: path.to_vec() });
        self.hold(Held { file, after: HeldAfter::Frames(count), call: Call::Close { file } });
    }

    /// Gives the lock of a file back when all its frames are sent.
    pub(super) fn unlock_later(&self, file: FileNumber, count: u64) {
        self.hold(Held { file, after: HeldAfter::Frames(count), call: Call::Unlock { file } });
    }

    fn hold(&self, held: Held) {
        self.lock().held.push(held);
        self.release_held();
    }

    /// Lets requests go whose frames are sent.
    fn release_held(&self) {
        loop {
            let mut inner = self.lock();
            let ready = inner.held.iter().position(|held| !inner.is_held(held));
            let Some(Held { file, call, .. }) = ready.map(|index| inner.held.remove(index)) else {
                return;
            };
            // Whoever waits for all that is deferred sees it in one list or in the other.
            self.request_with(inner, true, call, Some(file));
            self.changed.notify_all();
        }
    }

    fn request(&self, is_after_frames: bool, call: Call, deferred: Option<FileNumber>) -> u64 {
        self.request_with(self.lock(), is_after_frames, call, deferred)
    }

    fn request_with(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        is_after_frames: bool,
        call: Call,
        deferred: Option<FileNumber>,
    ) -> u64 {
        let number = inner.requests;
        inner.requests += 1;
        match deferred {
            Some(file) => drop(inner.deferred.insert(number, file)),
            None => {
                let is_read = matches!(call, Call::Read { .. });
                let is_for_others = matches!(call, Call::Lock { .. });
                let waiting = Waiting { is_for_others, is_read, ..Waiting::default() };
                inner.waiting.insert(number, waiting);
            }
        }
        inner.taken.on_call(&call);
        inner.gate.on_asked(number, &call);
        let frames_before = if is_after_frames { inner.outbox.sent() } else { 0 };
        let message = ToServer::Request(Request { number, frames_before, call });
        inner.to_say.push_back(message);
        drop(inner);
        self.say_all();
        number
    }

    /// Sends the requests that are to be sent, in the order of their numbers.
    fn say_all(&self) {
        let mut output = lock(&self.output);
        let Some(to_server) = &mut *output else { return };
        let messages: Vec<_> = self.lock().to_say.drain(..).collect();
        if let Err(error) = say(&mut **to_server, messages) {
            drop(output);
            self.break_off(&error.to_string());
        }
    }

    /// Waits for the outcome of a request; `what` it is about goes into an error.
    pub(super) fn wait_for(&self, number: u64, what: &str) -> Result<u64, RemoteError> {
        let (outcome, _) = self.wait(number)?;
        match outcome {
            Outcome::Done => Ok(0),
            Outcome::Number(number) => Ok(number),
            Outcome::Failed(failure) => Err(RemoteError::of(failure, what)),
            Outcome::Lost => Err(RemoteError::gone(what)),
        }
    }

    /// Waits for what was asked for in a read. Then one more may be asked for.
    pub(super) fn wait_for_bytes(
        &self,
        number: u64,
        what: &str,
    ) -> Result<Option<Came>, RemoteError> {
        let waited = self.wait(number);
        self.lock().reads -= 1;
        self.changed.notify_all();
        let (outcome, bytes) = waited?;
        match outcome {
            Outcome::Failed(failure) => Err(RemoteError::of(failure, what)),
            Outcome::Lost => Err(RemoteError::gone(what)),
            _ => Ok(bytes),
        }
    }

    /// Takes a place for a read; waits for one if it may. Returns whether it has one.
    pub(super) fn begin_read(&self, may_wait: bool) -> bool {
        let is_full = |inner: &mut Inner| inner.reads >= CLIENT_READS_MAX && inner.lost.is_none();
        let mut inner = self.lock();
        if may_wait {
            let waited = self.changed.wait_while(inner, is_full);
            inner = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let has_place = !is_full(&mut inner);
        inner.reads += u32::from(has_place);
        has_place
    }

    fn wait(&self, number: u64) -> Result<(Outcome, Option<Came>), RemoteError> {
        let mut inner = self.lock();
        loop {
            let waiting = inner.waiting.get(&number);
            let outcome = waiting.and_then(|it| it.outcome);
            // Bytes and outcome come on two ways.
            let is_whole = match outcome {
                Some(Outcome::Number(count)) if count > 0 => {
                    waiting.is_some_and(|it| !it.is_read || it.bytes.is_some())
                }
                outcome => outcome.is_some(),
            };
            if let (true, Some(outcome)) = (is_whole, outcome) {
                let waiting = inner.waiting.remove(&number);
                return Ok((outcome, waiting.and_then(|it| it.bytes)));
            }
            if inner.lost.is_some() {
                inner.waiting.remove(&number);
                return self.outlived(inner);
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The first failure of a file that was not returned, or that the connection is lost.
    pub(super) fn take_failure(&self, file: FileNumber, what: &str) -> Result<(), RemoteError> {
        self.checked(file, what).map(drop)
    }

    fn checked(&self, file: FileNumber, what: &str) -> Result<MutexGuard<'_, Inner>, RemoteError> {
        let mut inner = self.lock();
        if !inner.failures.is_empty()
            && let Some(failure) = inner.failures.remove(&file)
        {
            return Err(RemoteError::of(failure, what));
        }
        if inner.lost.is_some() { self.outlived(inner) } else { Ok(inner) }
    }

    /// Waits until no file with this path is being closed.
    pub(super) fn wait_until_closed(&self, path: &[u8]) {
        let mut inner = self.lock();
        let is_open = |inner: &mut Inner| {
            inner.lost.is_none() && inner.closing.iter().any(|closing| is_same(&closing.path, path))
        };
        if is_open(&mut inner) {
            inner.awaited += 1;
            self.changed.notify_all();
            let waited = self.changed.wait_while(inner, is_open);
            waited.unwrap_or_else(PoisonError::into_inner).awaited -= 1;
        }
    }

    /// Waits until the server has answered a deferred request, or is lost.
    pub(super) fn wait_until_answered(&self, number: u64) {
        let mut inner = self.lock();
        let is_pending =
            |inner: &mut Inner| inner.lost.is_none() && inner.deferred.contains_key(&number);
        if is_pending(&mut inner) {
            inner.awaited += 1;
            self.changed.notify_all();
            let waited = self.changed.wait_while(inner, is_pending);
            waited.unwrap_or_else(PoisonError::into_inner).awaited -= 1;
        }
    }

    /// The server hears from now on that this process lives, even if it asks for nothing.
    pub(super) fn begin_presence(&self) {
        self.lock().presences += 1;
    }

    pub(super) fn end_presence(&self) {
        self.lock().presences -= 1;
    }

    fn say_present(&self) {
        let mut inner = self.lock();
        if inner.presences == 0 || inner.present_at.elapsed() < LOOK_INTERVAL {
            return;
        }
        inner.present_at = Instant::now();
        inner.to_say.push_back(ToServer::Heartbeat);
        drop(inner);
        self.say_all();
    }

    /// How many bytes went to the local disk.
    pub(super) fn staged(&self) -> StagedBytes {
        self.lock().staged
    }

    /// Hears messages until the connection ends.
    fn listen(link: &Weak<Self>, input: &mut (dyn io::Read + Send)) {
        loop {
            let heard = hear(input, TO_CLIENT_BYTES_MAX);
            let Some(link) = link.upgrade() else { return };
            match heard {
                Ok(Some(message)) => {
                    if let Err(text) = link.take_in(message) {
                        return link.lose(&text);
                    }
                }
                Ok(None) => return link.lose_after_all("it closed the connection"),
                Err(error) => return link.lose_after_all(&error.to_string()),
            }
        }
    }

    fn take_in(&self, message: ToClient) -> Result<(), String> {
        let mut inner = self.lock();
        let Inner { gate, outbox, .. } = &mut *inner;
        let admitted = gate.admit(message, |frame| outbox.is_in_flight(frame));
        let message = admitted.map_err(|breach| breach.to_string())?;
        inner.heard_at = Instant::now();
        match message {
            ToClient::Hello { .. } | ToClient::Heartbeat => {}
            ToClient::Fatal(text) => return Err(text),
            ToClient::Grant(count) => {
                inner.outbox.on_grant(count);
                inner.done_at = inner.heard_at;
            }
            ToClient::Again(frame) => inner.outbox.again(frame),
            ToClient::Recall(write) => inner.outbox.recall(write),
            ToClient::Written(written) => {
                drop(inner);
                self.on_written(&written);
                return Ok(());
            }
            ToClient::Reply { number, outcome } => {
                inner.done_at = inner.heard_at;
                if let Some(file) = inner.deferred.remove(&number) {
                    inner.on_deferred_done(file);
                    if let Outcome::Failed(failure) = outcome {
                        inner.failures.entry(file).or_insert(failure);
                    }
                } else if let Some(waiting) = inner.waiting.get_mut(&number) {
                    waiting.outcome = Some(outcome);
                    inner.on_nothing_read(number, outcome);
                }
            }
        }
        drop(inner);
        self.changed.notify_all();
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
        if let Some(link) = link.upgrade() {
            link.break_off("it closed the connection");
        }
    }

    /// Frames are written, or cannot be.
    fn on_written(&self, written: &[Written]) {
        if let Some(stage) = &self.stage {
            let inner = self.lock();
            let staged = written.iter().filter_map(|it| inner.outbox.staged(it.frame));
            let gone: Vec<_> = staged.collect();
            drop(inner);
            stage.cache.on_gone(&gone);
        }
        let now = self.now();
        let mut inner = self.lock();
        inner.done_at = Instant::now();
        for it in written {
            // Frames are forgotten when the connection is lost meanwhile.
            let Some((file, about)) = inner.outbox.on_written(it.frame) else { continue };
            let under_way = inner.outbox.under_way();
            inner.window.on_written(it.frame, now, under_way);
            let is_left = !inner.outbox.is_empty();
            inner.outlook.on_written(now, about.length.into(), is_left);
            if let Some(failure) = it.failure {
                inner.failures.entry(file).or_insert(failure);
            }
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// The time since the program began.
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(carrier) = self.carrier.get() {
            carrier.line.end();
        }
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        let is_sent = inner.outbox.is_empty() && inner.lost_bytes == 0;
        if let Some(stage) = self.stage.as_ref().filter(|_| is_sent) {
            stage.cache.remove();
        }
    }
}

/// Whether two paths mean the same file, but for links.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let parts =
        |path| <[u8]>::split(path, |&byte| byte == b'/').filter(|it| !matches!(*it, b"" | b"."));
    parts(one).eq(parts(other))
}

impl Stage {
    fn open(options: StageOptions, server: Server, buffer_bytes: u32) -> io::Result<Self> {
        let StageOptions { directory, is_synced, .. } = &options;
        let cache = Cache::make(directory, server, buffer_bytes, *is_synced).map_err(|error| {
            let place = directory.display();
            io::Error::other(format!("cannot stage in {place} (rfs_cache_dir): {error}"))
        })?;
        Ok(Self { cache, for_draining: Arena::new(1, buffer_bytes as usize)?, options })
    }
}

impl Inner {
    /// Whether something that a request comes after is not sent.
    fn is_unsent(&self, after: &After) -> bool {
        match after {
            After::Nothing => false,
            After::Frames { file, count } => {
                self.outbox.is_unsent(*file, *count) || self.is_holding(*file)
            }
            After::Bytes { file, reach, count } => self.outbox.is_unsent_in(*file, reach, *count),
        }
    }

    /// Whether a request of a file is held that the server must not get after a later one. A view
    /// that is forgotten late harms nobody.
    fn is_holding(&self, file: FileNumber) -> bool {
        self.held.iter().any(|it| it.file == file && !matches!(it.call, Call::Forget { .. }))
    }

    fn is_held(&self, held: &Held) -> bool {
        match held.after {
            HeldAfter::View(view) => self.outbox.is_unsent_of_view(view),
            HeldAfter::Frames(count) => self.outbox.is_unsent(held.file, count),
        }
    }

    /// A request of a file for which nobody waited is done.
    fn on_deferred_done(&mut self, file: FileNumber) {
        let is_open = self.deferred.values().any(|it| *it == file)
            || self.held.iter().any(|held| held.file == file);
        if !is_open {
            self.closing.retain(|closing| closing.file != file);
        }
    }

    /// Whether the server has something to do that it alone decides about.
    fn is_owed(&self) -> bool {
        let is_asked = self.waiting.values().any(|it| !it.is_for_others);
        let is_unwritten = self.outbox.under_way() > 0;
        let is_without_room = self.outbox.is_without_grant() && !self.outbox.is_empty();
        is_asked || !self.deferred.is_empty() || is_unwritten || is_without_room
    }

    /// Whether something was neither done nor refused.
    fn is_left(&self) -> bool {
        !self.deferred.is_empty()
            || !self.held.is_empty()
            || !self.outbox.is_empty()
            || self.lost_bytes > 0
    }
}

/// The buffers for what is read: there is one for each read that may be in flight, beside those
/// that are kept.
struct Coming(Weak<Link>);

impl GrantedBuffers for Coming {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        let refused = || io::Error::from(io::ErrorKind::InvalidData);
        let link = self.0.upgrade().ok_or_else(refused)?;
        let admitted = link.lock().gate.admit_frame(header, rows);
        if let Err(breach) = admitted {
            link.lose(&breach.to_string());
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
