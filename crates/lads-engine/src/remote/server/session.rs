//! One client of a server: its requests, its frames, its replies.

use super::super::line::Line;
use super::super::wire::{hear, say};
use super::Shared;
use super::places::Place;
use super::storage::{OpenFile, Read};
use crate::thread::{NoThread, spawn};
use crate::transport::{Arrived, Channel, Frame, GrantedBuffers, Receiver, Transport};
use lads_core::frame::{Bound, HEADER_BYTES, Header, ROW_BYTES, Row, put_head};
use lads_core::remote::locks::{ClientNumber, Owner};
use lads_core::remote::message::{
    CLIENT_READS_MAX, FRAME_BYTES, Failure, FileNumber, Outcome, Request, TO_SERVER_BYTES_MAX,
    ToClient, ToServer, VERSION, Written,
};
use lads_core::remote::order::{Breach, Order, Start};
use lads_core::remote::policy::HEARTBEAT;
use lads_core::remote::replies::Replies;
use lads_core::room::{Grants, Uses};
use lads_core::tuning::Tuning;
use lads_core::units::{Block, EntryId, OstId, StreamId};
use lads_sys::Buffer;
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// The only "OST" of the grants of a client: it does not know the OSTs of its files.
const ALL: OstId = OstId(0);

/// One client.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) number: ClientNumber,
    transport: Arc<dyn Transport>,
    line: Box<dyn Line>,
    inner: Mutex<Inner>,
    changed: Condvar,
    /// Given back when nothing of the client is left, in queues neither.
    _place: Place,
}

pub(super) struct Inner {
    pub(super) order: Order,
    grants: Grants,
    pub(super) files: HashMap<FileNumber, Arc<Opened>>,
    /// Frames that came and are not being written yet.
    buffers: HashMap<u64, Buffer>,
    pub(super) replies: Replies,
    /// What was read and is to be sent: the request, its first position, how many bytes.
    to_send: VecDeque<(u64, u64, u32, Buffer)>,
    reads: u32,
    /// Whether a request is being done.
    is_answering: bool,
    /// When it sent something last, or something was done for it.
    active_at: Instant,
    is_over: bool,
}

/// A file that a client has open.
pub(super) struct Opened {
    pub(super) file: Arc<OpenFile>,
    pub(super) writes: bool,
    pub(super) group: [u8; 16],
    /// The directory, if the file was created and its name is not durable yet.
    pub(super) made_in: Mutex<Option<(Arc<OwnedFd>, Place)>>,
    /// One of the files that clients may have open.
    pub(super) _place: Place,
}

impl Session {
    /// Serves a client until it is gone. It may have `buffer_count` frames in flight.
    pub(super) fn serve(
        shared: Arc<Shared>,
        line: Box<dyn Line>,
        (transport, channel): (Arc<dyn Transport>, Channel),
        (place, buffer_count): (Place, u32),
    ) {
        let Channel { mut input, mut output } = channel;
        let all = [Uses { in_flight_max: buffer_count, is_track: false }];
        let grants = Grants::new(buffer_count, &Tuning::DEFAULT, all.into_iter(), false);
        let mut replies = Replies::default();
        replies.add(ToClient::Hello { version: VERSION, name: shared.host.clone() });
        let inner = Inner {
            order: Order::default(),
            grants,
            files: HashMap::new(),
            buffers: HashMap::new(),
            replies,
            to_send: VecDeque::new(),
            reads: 0,
            is_answering: false,
            active_at: Instant::now(),
            is_over: false,
        };
        let (inner, changed, number) = (Mutex::new(inner), Condvar::new(), shared.locks.number());
        let session =
            Arc::new(Self { shared, number, transport, line, inner, changed, _place: place });
        let buffers: Arc<dyn GrantedBuffers> = Arc::clone(&session) as Arc<dyn GrantedBuffers>;
        let receiver = session.transport.receiver(StreamId(0), buffers);
        let of = |session: &Arc<Self>| Arc::clone(session);
        let (receiving, speaking, sending) = (of(&session), of(&session), of(&session));
        let speaker = spawn("lads-speak", move || {
            speaking.speak(&mut *output);
            speaking.end(None);
            // All is said. Now the threads that read come to an end, too.
            speaking.line.end();
        });
        let has_speaker = speaker.is_ok();
        let threads = [
            speaker,
            spawn("lads-receive", move || receiving.receive(receiver)),
            spawn("lads-send", move || sending.send()),
        ];
        let missing = threads.iter().find_map(|it| it.as_ref().err()).map(NoThread::to_string);
        let listen = || session.listen(&mut *input).err().map(|error| error.to_string());
        session.end(missing.or_else(listen));
        if !has_speaker {
            session.line.end();
        }
        // Whoever waits for this client is not held up by what it left in memory.
        for thread in threads.into_iter().flatten() {
            let _ = thread.join();
        }
        session.close_all();
    }

    /// Reads requests and does them, one after the other.
    fn listen(self: &Arc<Self>, input: &mut dyn io::Read) -> io::Result<()> {
        while let Some(message) = hear(input, TO_SERVER_BYTES_MAX)? {
            match message {
                ToServer::Hello { version, .. } if version != VERSION => {
                    let text =
                        format!("the server uses protocol version {VERSION}, the client {version}");
                    return Err(io::Error::other(text));
                }
                ToServer::Hello { .. } => {}
                ToServer::Heartbeat => self.lock().active_at = Instant::now(),
                ToServer::Request(request) => {
                    if !self.wait_for_turn(&request)? {
                        return Ok(());
                    }
                    self.answer(request)?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a request may be done, and the client has taken replies to earlier requests.
    /// Returns `false` if the client has disconnected.
    fn wait_for_turn(&self, request: &Request) -> io::Result<bool> {
        let mut inner = self.lock();
        inner.active_at = Instant::now();
        inner.order.on_request(request.number).map_err(io::Error::other)?;
        let is_early = |inner: &mut Inner| {
            let Inner { order, replies, is_over, .. } = inner;
            let is_ready = order.is_ready(request.frames_before, &request.call);
            !*is_over && (replies.is_full() || !is_ready)
        };
        let waited = self.changed.wait_while(inner, is_early);
        let mut inner = waited.unwrap_or_else(PoisonError::into_inner);
        inner.is_answering = true;
        Ok(!inner.is_over)
    }

    fn answer(self: &Arc<Self>, request: Request) -> io::Result<()> {
        let number = request.number;
        let outcome = self.call(request).map_err(io::Error::other)?;
        // A view may have been what frames waited for.
        self.advance();
        let mut inner = self.lock();
        (inner.is_answering, inner.active_at) = (false, Instant::now());
        if let Some(outcome) = outcome {
            inner.replies.add(ToClient::Reply { number, outcome });
        }
        drop(inner);
        self.changed.notify_all();
        Ok(())
    }

    /// The client is given a lock that it has waited for.
    pub(super) fn on_locked(&self, number: u64) {
        let mut inner = self.lock();
        inner.active_at = Instant::now();
        inner.replies.add(ToClient::Reply { number, outcome: Outcome::Done });
        drop(inner);
        self.changed.notify_all();
    }

    /// Ends the connection if the client was silent for this time, though nothing is done for it.
    /// `away`: the time since the last call in which this process was stopped.
    pub(super) fn end_if_silent(&self, silence_max: Duration, away: Duration) {
        let mut inner = self.lock();
        inner.active_at = (inner.active_at + away).min(Instant::now());
        let is_busy = inner.is_answering || inner.reads > 0 || inner.order.is_writing();
        let is_silent = !is_busy && inner.active_at.elapsed() >= silence_max;
        let is_over = inner.is_over;
        drop(inner);
        if is_over {
            // It takes nothing either, not even the reason.
            self.line.end();
        } else if is_silent {
            self.end(Some(
                "other clients wait for a file that this client has locked, and it sends nothing"
                    .to_owned(),
            ));
        }
    }

    /// Waits until one more read may be in flight; `false` if the client has disconnected.
    pub(super) fn begin_read(&self) -> bool {
        let inner = self.lock();
        let is_full = |inner: &mut Inner| inner.reads >= CLIENT_READS_MAX && !inner.is_over;
        let inner = self.changed.wait_while(inner, is_full);
        let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
        inner.reads += 1;
        !inner.is_over
    }

    /// A thread has read what the client wanted.
    pub(super) fn on_read(&self, read: Read, result: Result<u32, Failure>) {
        let Read { number, first, buffer, .. } = read;
        let mut inner = self.lock();
        match result {
            Ok(got) if got > 0 => inner.to_send.push_back((number, first, got, buffer)),
            result => {
                let outcome = result.map_or_else(Outcome::Failed, |_| Outcome::Number(0));
                inner.replies.add(ToClient::Reply { number, outcome });
                inner.reads -= 1;
            }
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// A thread has written a frame.
    pub(super) fn on_written(self: &Arc<Self>, written: Written) {
        let mut inner = self.lock();
        inner.active_at = Instant::now();
        inner.order.on_written(written.frame);
        inner.grants.on_release(ALL);
        inner.replies.add_written(written);
        drop(inner);
        self.advance();
        self.changed.notify_all();
    }

    /// Hands frames over to be written whose turn has come.
    fn advance(self: &Arc<Self>) {
        let mut inner = self.lock();
        if inner.is_over {
            // Nothing more is begun: whoever ends the session waits for what is.
            return;
        }
        let failed = inner.order.take_failed();
        for written in failed {
            inner.buffers.remove(&written.frame);
            inner.grants.on_release(ALL);
            inner.replies.add_written(written);
        }
        let started = inner.order.take_starts();
        let with_file = |start: Start| {
            let buffer = inner.buffers.remove(&start.frame)?;
            let file = inner.files.get(&start.file).map(|it| Arc::clone(&it.file))?;
            Some((start, file, buffer))
        };
        let started: Vec<_> = started.into_iter().filter_map(with_file).collect();
        drop(inner);
        for (start, file, buffer) in started {
            self.shared.storage.write(start, file, buffer, Arc::clone(self));
        }
    }

    /// Receives frames.
    fn receive(self: &Arc<Self>, mut receiver: Box<dyn Receiver>) {
        let mut frame = Frame::default();
        while receiver.next_frame(&mut frame).unwrap_or(false) {
            let Some(Arrived { header, buffer }) = frame.arrived.take() else { continue };
            let bytes = &buffer[..header.payload_bytes as usize];
            let is_whole = frame.rows.iter().all(|row| XxHash3_64::oneshot(bytes) == row.checksum);
            let mut inner = self.lock();
            inner.active_at = Instant::now();
            inner.grants.on_arrived(ALL);
            let taken =
                if is_whole { inner.order.on_frame(&frame.rows) } else { Err(Breach::Frame) };
            let Ok(number) = taken else {
                drop(inner);
                return self.end(Some("a frame that is damaged, or no piece of a view".to_owned()));
            };
            inner.buffers.insert(number, buffer);
            drop(inner);
            self.advance();
            self.changed.notify_all();
        }
        self.end(None);
    }

    /// Writes messages until the client has disconnected.
    fn speak(&self, output: &mut dyn io::Write) {
        loop {
            let inner = self.lock();
            let is_quiet = |inner: &mut Inner| {
                inner.replies.is_empty() && !inner.grants.has_new() && !inner.is_over
            };
            let waited = self.changed.wait_timeout_while(inner, HEARTBEAT, is_quiet);
            let (mut inner, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            let is_over = inner.is_over;
            let was_full = inner.replies.is_full();
            let mut messages = inner.replies.take();
            // With one OST, there is a buffer for each of its grants.
            let lot = inner.grants.take_new();
            messages.extend(lot.osts.into_iter().map(|(_, count)| ToClient::Grant(count)));
            if waited.timed_out() {
                messages.push(ToClient::Heartbeat);
            }
            drop(inner);
            if was_full {
                // A request waits.
                self.changed.notify_all();
            }
            if say(output, messages).is_err() || is_over {
                return;
            }
        }
    }

    /// Sends what was read.
    fn send(&self) {
        let mut frames = 0;
        loop {
            let is_quiet = |inner: &mut Inner| inner.to_send.is_empty() && !inner.is_over;
            let inner = self.changed.wait_while(self.lock(), is_quiet);
            let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
            let Some((number, first, length, buffer)) = inner.to_send.pop_front() else { return };
            drop(inner);
            let payload = &buffer[..length as usize];
            let block = Block { entry: EntryId(number), offset: first, length };
            let row = Row { block, is_whole: false, checksum: XxHash3_64::oneshot(payload) };
            let bound = Bound { sink_ost: ALL, is_last_grant: false, has_only_sums: false };
            let mut head = Vec::with_capacity(HEADER_BYTES + ROW_BYTES);
            put_head(&[row], frames, bound, &mut head);
            let pieces = &mut [IoSlice::new(&head), IoSlice::new(payload)];
            let sent = self.transport.send(StreamId(0), pieces);
            frames += 1;
            drop(buffer);
            let mut inner = self.lock();
            let outcome = Outcome::Number(length.into());
            inner.replies.add(ToClient::Reply { number, outcome });
            inner.reads -= 1;
            inner.active_at = Instant::now();
            drop(inner);
            self.changed.notify_all();
            if sent.is_err() {
                return self.end(None);
            }
        }
    }

    /// Ends the connection; the text is told to the client.
    fn end(&self, text: Option<String>) {
        let mut inner = self.lock();
        if let Some(text) = text.filter(|_| !inner.is_over) {
            inner.replies.add(ToClient::Fatal(text));
        }
        inner.is_over = true;
        drop(inner);
        self.changed.notify_all();
        self.transport.end(StreamId(0));
    }

    /// The client is gone: nothing is kept of it. What is being written is written, and only then
    /// are its locks given to others.
    fn close_all(&self) {
        let mut inner = self.lock();
        inner.buffers.clear();
        let files = std::mem::take(&mut inner.files);
        let is_writing = |inner: &mut Inner| inner.order.is_writing();
        drop(self.changed.wait_while(inner, is_writing));
        for (file, opened) in files {
            self.on_closed(file, &opened);
        }
        self.shared.locks.forget(self.number);
        self.line.end();
    }

    /// A file is closed. Returns requests for its lock that were not answered.
    pub(super) fn on_closed(&self, file: FileNumber, opened: &Opened) -> Vec<u64> {
        self.shared.groups.leave(&opened.group);
        self.shared.locks.release(opened.file.id, Owner { client: self.number, file })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer was granted for each frame that may come.
impl GrantedBuffers for Session {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        let is_one = rows.len() == 1 && !header.has_only_sums && header.sink_ost == ALL;
        let may_come = is_one && header.payload_bytes <= FRAME_BYTES && {
            let mut inner = self.lock();
            !inner.is_over && inner.grants.on_arrival(ALL, header.is_last_grant)
        };
        if !may_come {
            self.end(Some("a frame that was not granted".to_owned()));
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(self.shared.storage.for_writing.take())
    }

    fn on_frame_lost(&self, _sink_ost: OstId) {
        self.lock().grants.on_lost(ALL);
    }
}
