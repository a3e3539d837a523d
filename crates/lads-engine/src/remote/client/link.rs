//! The connection of a client to its server, and the threads that use it.
//!
//! What a program writes lies in buffers. One thread sends them in their order, as far as the
//! server has granted room (the paper's background thread, section 3.2). A buffer is free again
//! when the server says that it is written.

use super::super::wire::{hear, say};
use super::file::Tail;
use super::{ClientOptions, RemoteError, buffer_count};
use crate::board::lock;
use crate::thread::spawn;
use crate::transport::pipe;
use crate::transport::tcp::end_socket;
use crate::transport::{Arrived, Channel, Frame, GrantedBuffers, Receiver, Transport};
use lads_core::frame::{Bound, Header, Row, put_head};
use lads_core::remote::message::{
    CLIENT_READS_MAX, Call, FRAME_BYTES, Failure, FileNumber, Outcome, Request,
    TO_CLIENT_BYTES_MAX, ToClient, ToServer, VERSION, ViewNumber,
};
use lads_core::units::{Block, OstId, StreamId};
use lads_sys::{Arena, Buffer};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// How long a buffer that is not full waits for more before it is sent. A program that writes
/// records of 1 KiB one after the other fills a buffer in 1 ms. With half, a busy machine sends
/// more of them half full; double is as much later until a last piece goes out.
const TAIL_WAIT: Duration = Duration::from_millis(5);

/// How often it is checked whether the server is silent. So much later than asked for is it lost;
/// half of it wakes a thread beside the computation twice as often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// A connection.
pub(super) struct Link {
    name: String,
    transport: Arc<dyn Transport>,
    socket: OwnedFd,
    output: Mutex<Box<dyn Write + Send>>,
    /// Buffers for what is written, and for what is read.
    pub(super) for_writing: Arena,
    for_reading: Arena,
    inner: Mutex<Inner>,
    changed: Condvar,
    timeout: Duration,
}

struct Inner {
    requests: u64,
    /// Frames that were put into the outbox so far.
    frames: u64,
    outbox: VecDeque<Outgoing>,
    /// Frames that are sent and not written.
    unwritten: BTreeMap<u64, (FileNumber, Arc<Buffer>)>,
    grants: u32,
    /// What is waited for: the outcome, once it is there, and what was read.
    waiting: HashMap<u64, Waiting>,
    /// Requests for which nobody waits, and their files.
    deferred: HashMap<u64, FileNumber>,
    /// The first failure of each file that no call has returned.
    failures: HashMap<FileNumber, Failure>,
    reads: u32,
    tails: Vec<Weak<Mutex<Tail>>>,
    /// Of these, how many have a buffer that is not full.
    open_tails: u32,
    numbers: u32,
    heard_at: Instant,
    /// Why the connection is lost.
    lost: Option<String>,
}

/// A buffer that is to be sent.
pub(super) struct Outgoing {
    pub(super) file: FileNumber,
    pub(super) view: ViewNumber,
    pub(super) position: u64,
    pub(super) length: u32,
    pub(super) buffer: Buffer,
}

/// A buffer that is sent now.
struct Next {
    number: u64,
    view: ViewNumber,
    position: u64,
    length: u32,
    buffer: Arc<Buffer>,
    is_last: bool,
}

#[derive(Default)]
struct Waiting {
    outcome: Option<Outcome>,
    /// How many bytes may come, and those that came, with their number.
    length: u32,
    bytes: Option<(Buffer, usize)>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Link {
    /// Uses a connection that was accepted.
    pub(super) fn open(
        socket: OwnedFd,
        name: &str,
        options: ClientOptions,
    ) -> io::Result<Arc<Self>> {
        let (input, output) = (File::from(socket.try_clone()?), File::from(socket.try_clone()?));
        let (transport, channel) = pipe::open_both_ways(input, output, 1);
        let Channel { mut input, output } = channel;
        let inner = Inner {
            requests: 0,
            frames: 0,
            outbox: VecDeque::new(),
            unwritten: BTreeMap::new(),
            grants: 0,
            waiting: HashMap::new(),
            deferred: HashMap::new(),
            failures: HashMap::new(),
            reads: 0,
            tails: Vec::new(),
            open_tails: 0,
            numbers: 0,
            heard_at: Instant::now(),
            lost: None,
        };
        let link = Arc::new(Self {
            name: name.to_owned(),
            transport,
            socket,
            output: Mutex::new(output),
            for_writing: Arena::new(buffer_count(options.buffers_bytes), FRAME_BYTES as usize)?,
            for_reading: Arena::new(CLIENT_READS_MAX, FRAME_BYTES as usize)?,
            inner: Mutex::new(inner),
            changed: Condvar::new(),
            timeout: options.timeout,
        });
        let hello = ToServer::Hello { version: VERSION, name: String::new() };
        say(&mut **lock(&link.output), [hello])?;
        let coming = Coming(Arc::downgrade(&link));
        let receiver = link.transport.receiver(StreamId(0), Arc::new(coming));
        let of = |link: &Arc<Self>| Arc::downgrade(link);
        let (listening, receiving, sending, watching) =
            (of(&link), of(&link), of(&link), of(&link));
        spawn("lads-listen", move || Self::listen(&listening, &mut *input));
        spawn("lads-receive", move || Self::receive(&receiving, receiver));
        spawn("lads-send", move || Self::send(&sending));
        spawn("lads-watch", move || Self::watch(&watching));
        Ok(link)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lock().lost.is_some()
    }

    #[cfg(test)]
    pub(super) fn cut(&self) {
        end_socket(&self.socket);
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

    /// A buffer of a file begins to be filled: it is to be sent some time.
    pub(super) fn on_tail(&self) {
        self.lock().open_tails += 1;
        self.changed.notify_all();
    }

    /// Puts a buffer that was filled into the outbox. Returns the number of frames up to this one.
    pub(super) fn put(&self, outgoing: Outgoing) -> u64 {
        let mut inner = self.lock();
        inner.open_tails -= 1;
        if inner.lost.is_none() {
            inner.outbox.push_back(outgoing);
        }
        inner.frames += 1;
        let frames = inner.frames;
        drop(inner);
        self.changed.notify_all();
        frames
    }

    /// Asks for something and will wait for it: returns the number of the request.
    pub(super) fn ask(&self, frames_before: u64, call: Call) -> u64 {
        self.request(frames_before, call, None)
    }

    /// Asks for something for which nobody waits.
    pub(super) fn defer(&self, file: FileNumber, frames_before: u64, call: Call) {
        self.request(frames_before, call, Some(file));
    }

    fn request(&self, frames_before: u64, call: Call, deferred: Option<FileNumber>) -> u64 {
        // Requests go out in the order of their numbers.
        let mut output = lock(&self.output);
        let mut inner = self.lock();
        let number = inner.requests;
        inner.requests += 1;
        match deferred {
            Some(file) => drop(inner.deferred.insert(number, file)),
            None => {
                let length = if let Call::Read { length, .. } = &call { *length } else { 0 };
                inner.waiting.insert(number, Waiting { length, ..Waiting::default() });
            }
        }
        drop(inner);
        let message = ToServer::Request(Request { number, frames_before, call });
        if let Err(error) = say(&mut **output, [message]) {
            self.lose(&error.to_string());
        }
        number
    }

    /// Waits for the outcome of a request; `what` it is about goes into an error.
    pub(super) fn wait_for(&self, number: u64, what: &str) -> Result<u64, RemoteError> {
        let (outcome, _) = self.wait(number)?;
        match outcome {
            Outcome::Done => Ok(0),
            Outcome::Number(number) => Ok(number),
            Outcome::Failed(failure) => Err(RemoteError::of(failure, what)),
        }
    }

    /// Waits for what was asked for in a read. Then one more may be asked for.
    pub(super) fn wait_for_bytes(
        &self,
        number: u64,
        what: &str,
    ) -> Result<Option<(Buffer, usize)>, RemoteError> {
        let waited = self.wait(number);
        self.lock().reads -= 1;
        self.changed.notify_all();
        let (outcome, bytes) = waited?;
        match outcome {
            Outcome::Failed(failure) => Err(RemoteError::of(failure, what)),
            _ => Ok(bytes),
        }
    }

    /// Waits until a read more may be asked for.
    pub(super) fn begin_read(&self) {
        let is_full = |inner: &mut Inner| inner.reads >= CLIENT_READS_MAX && inner.lost.is_none();
        let inner = self.changed.wait_while(self.lock(), is_full);
        inner.unwrap_or_else(PoisonError::into_inner).reads += 1;
    }

    fn wait(&self, number: u64) -> Result<(Outcome, Option<(Buffer, usize)>), RemoteError> {
        let mut inner = self.lock();
        loop {
            let waiting = inner.waiting.get(&number);
            let outcome = waiting.and_then(|it| it.outcome);
            // Bytes and outcome come on two ways.
            let is_whole = match outcome {
                Some(Outcome::Number(count)) if count > 0 => {
                    waiting.is_some_and(|it| it.length == 0 || it.bytes.is_some())
                }
                outcome => outcome.is_some(),
            };
            if let (true, Some(outcome)) = (is_whole, outcome) {
                let waiting = inner.waiting.remove(&number);
                return Ok((outcome, waiting.and_then(|it| it.bytes)));
            }
            if let Some(text) = &inner.lost {
                let error = RemoteError::lost(text.clone());
                inner.waiting.remove(&number);
                return Err(error);
            }
            inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The first failure of a file that was not returned, or that the connection is lost.
    pub(super) fn take_failure(&self, file: FileNumber, what: &str) -> Result<(), RemoteError> {
        let mut inner = self.lock();
        if let Some(failure) = inner.failures.remove(&file) {
            return Err(RemoteError::of(failure, what));
        }
        inner.lost.as_ref().map_or(Ok(()), |text| Err(RemoteError::lost(text.clone())))
    }

    /// Waits for all requests for which nobody waited.
    pub(super) fn finish(&self) -> Result<(), RemoteError> {
        let is_open = |inner: &mut Inner| !inner.deferred.is_empty() && inner.lost.is_none();
        let inner = self.changed.wait_while(self.lock(), is_open);
        let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
        let first = inner.failures.keys().min().copied();
        if let Some(failure) = first.and_then(|file| inner.failures.remove(&file)) {
            return Err(RemoteError::of(failure, &format!("a file on {}", self.name)));
        }
        let is_left = !inner.deferred.is_empty() || !inner.unwritten.is_empty();
        match inner.lost.clone().filter(|_| is_left) {
            Some(text) => Err(RemoteError::lost(text)),
            None => Ok(()),
        }
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
                Ok(None) => return link.lose("it closed the connection"),
                Err(error) => return link.lose(&error.to_string()),
            }
        }
    }

    fn take_in(&self, message: ToClient) -> Result<(), String> {
        let mut inner = self.lock();
        inner.heard_at = Instant::now();
        match message {
            ToClient::Hello { version, .. } if version != VERSION => {
                return Err(format!("it speaks version {version}, this program {VERSION}"));
            }
            ToClient::Hello { .. } | ToClient::Heartbeat => {}
            ToClient::Fatal(text) => return Err(text),
            ToClient::Grant(count) => inner.grants = inner.grants.saturating_add(count),
            ToClient::Written(written) => {
                for it in written {
                    let Some((file, buffer)) = inner.unwritten.remove(&it.frame) else {
                        return Err("it wrote a frame that was never sent".to_owned());
                    };
                    drop(buffer);
                    if let Some(failure) = it.failure {
                        inner.failures.entry(file).or_insert(failure);
                    }
                }
            }
            ToClient::Reply { number, outcome } => {
                if let Some(file) = inner.deferred.remove(&number) {
                    if let Outcome::Failed(failure) = outcome {
                        inner.failures.entry(file).or_insert(failure);
                    }
                } else if let Some(waiting) = inner.waiting.get_mut(&number) {
                    if waiting.length > 0
                        && matches!(outcome, Outcome::Number(it) if it > waiting.length.into())
                    {
                        return Err("it read more than was asked for".to_owned());
                    }
                    waiting.outcome = Some(outcome);
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
                return link.lose("what it read was damaged on the way");
            }
            let number = frame.rows[0].block.entry.0;
            let mut inner = link.lock();
            if let Some(waiting) = inner.waiting.get_mut(&number) {
                waiting.bytes = Some((buffer, header.payload_bytes as usize));
            }
            drop(inner);
            link.changed.notify_all();
        }
        if let Some(link) = link.upgrade() {
            link.lose("it closed the connection");
        }
    }

    /// Sends what is in the outbox.
    fn send(link: &Weak<Self>) {
        let mut head = Vec::new();
        loop {
            let Some(link) = link.upgrade() else { return };
            let Some(Next { number, view, position, length, buffer, is_last }) =
                link.next_to_send()
            else {
                continue;
            };
            let payload = &buffer[..length as usize];
            let block = Block { entry: view.entry(), offset: position, length };
            let row = Row { block, is_whole: false, checksum: XxHash3_64::oneshot(payload) };
            let bound = Bound { sink_ost: OstId(0), is_last_grant: is_last, has_only_sums: false };
            put_head(&[row], number, bound, &mut head);
            let pieces = &mut [IoSlice::new(&head), IoSlice::new(payload)];
            let sent = link.transport.send(StreamId(0), pieces);
            if let Err(error) = sent {
                link.lose(&error.to_string());
            }
        }
    }

    /// The next buffer for which there is room at the server. `None` after a while without one.
    fn next_to_send(&self) -> Option<Next> {
        let inner = self.lock();
        let has_tails = inner.open_tails > 0;
        let is_idle = |inner: &mut Inner| {
            (inner.outbox.is_empty() || inner.grants == 0) && (inner.open_tails > 0) == has_tails
        };
        let limit = if has_tails { TAIL_WAIT } else { LOOK_INTERVAL };
        let waited = self.changed.wait_timeout_while(inner, limit, is_idle);
        let (mut inner, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() && has_tails {
            let tails: Vec<_> = inner.tails.iter().filter_map(Weak::upgrade).collect();
            drop(inner);
            for tail in tails {
                // A thread that fills it will see to it.
                if let Ok(mut tail) = tail.try_lock() {
                    tail.seal(self);
                }
            }
            return None;
        }
        if inner.grants == 0 {
            return None;
        }
        let Outgoing { file, view, position, length, buffer } = inner.outbox.pop_front()?;
        let number = inner.frames - inner.outbox.len() as u64 - 1;
        inner.grants -= 1;
        let (is_last, buffer) = (inner.grants == 0, Arc::new(buffer));
        // The server may have written it before it is sent whole.
        inner.unwritten.insert(number, (file, Arc::clone(&buffer)));
        Some(Next { number, view, position, length, buffer, is_last })
    }

    /// Ends the connection if the server says nothing for too long.
    fn watch(link: &Weak<Self>) {
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let Some(link) = link.upgrade() else { return };
            let inner = link.lock();
            let (is_over, silence) = (inner.lost.is_some(), inner.heard_at.elapsed());
            drop(inner);
            if is_over {
                return;
            }
            if silence > link.timeout {
                link.lose(&format!("it said nothing for {} s", link.timeout.as_secs()));
            }
        }
    }

    /// The connection is lost: nothing more is sent, and whoever waits is told.
    fn lose(&self, why: &str) {
        let mut inner = self.lock();
        if inner.lost.is_none() {
            inner.lost = Some(format!("lost the server of remote files {}: {why}", self.name));
        }
        inner.outbox.clear();
        inner.unwritten.clear();
        drop(inner);
        self.changed.notify_all();
        self.transport.end(StreamId(0));
        end_socket(&self.socket);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        end_socket(&self.socket);
    }
}

/// The buffers for what is read: there is one for each read that may be under way.
struct Coming(Weak<Link>);

impl GrantedBuffers for Coming {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        let refused = || io::Error::from(io::ErrorKind::InvalidData);
        let link = self.0.upgrade().ok_or_else(refused)?;
        let inner = link.lock();
        let waiting = rows.first().and_then(|row| inner.waiting.get(&row.block.entry.0));
        let may_come = rows.len() == 1
            && waiting.is_some_and(|it| it.bytes.is_none() && header.payload_bytes <= it.length);
        drop(inner);
        if !may_come {
            link.lose("it sent what nobody asked for");
            return Err(refused());
        }
        Ok(link.for_reading.take())
    }

    fn on_frame_lost(&self, _sink_ost: OstId) {}
}
