//! The thread that reads the pipe. It passes messages to the listener, and frames to the receivers
//! of their streams.

use super::super::assembly::Assembly;
use super::super::seal::Opener;
use super::super::{Frame, GrantedBuffers, Receiver};
use super::{MESSAGES_BYTES_MAX, Pipe};
use crate::thread::spawn;
use lads_core::frame::{Header, Row};
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::packet::{Channel, HEAD_BYTES, Packet};
use lads_core::units::{OstId, StreamId};
use lads_sys::Buffer;
use rustix::io::retry_on_intr;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Starts the thread. Returns the queue into which it puts messages.
pub(super) fn start(input: Input, pipe: Arc<Pipe>, coming_count: u16) -> Arc<Messages> {
    let messages = Arc::new(Messages::default());
    let coming = (0..coming_count).map(|_| Assembly::new()).collect();
    let into = Arc::clone(&messages);
    let mut incoming = Incoming { input, pipe, messages: into, coming, scratch: Vec::new() };
    let begun = spawn("lads-pipe", move || {
        // An end within a packet is an end, too: for example, the remote shell was killed.
        let is_end = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        let error = incoming.read_all().err().filter(|error| !is_end(error));
        incoming.messages.end(error);
    });
    if let Err(error) = begun {
        messages.end(Some(io::Error::other(error.to_string())));
    }
    messages
}

/// What is read from.
pub(super) enum Input {
    /// A pipe, or a socket within this host.
    Plain(File),
    /// A socket, with records.
    Sealed(File, Opener),
}

impl Read for Input {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file) => file.read(to),
            Self::Sealed(file, opener) => opener.read(to, |pieces| {
                // A signal must not end a read in the middle of a record.
                Ok(retry_on_intr(|| rustix::io::readv(&*file, pieces))?)
            }),
        }
    }
}

/// The state of the thread.
struct Incoming {
    input: Input,
    pipe: Arc<Pipe>,
    messages: Arc<Messages>,
    /// The incomplete frame of each stream; only of streams that may come to this end.
    coming: Vec<Assembly>,
    scratch: Vec<u8>,
}

impl Incoming {
    /// Reads packets until the pipe ends.
    fn read_all(&mut self) -> io::Result<()> {
        self.scratch.resize(PACKET_BYTES_MAX as usize, 0);
        let stream_count = u16::try_from(self.coming.len()).expect("16 bits");
        let mut head = [0; HEAD_BYTES];
        while read_whole(&mut self.input, &mut head)? {
            let packet = Packet::take(&head, stream_count).map_err(io::Error::other)?;
            match packet.channel {
                Channel::Messages => self.read_messages(packet.bytes as usize)?,
                Channel::Stream(stream) => self.read_stream(stream, packet.bytes as usize)?,
            }
        }
        Ok(())
    }

    fn read_messages(&mut self, count: usize) -> io::Result<()> {
        let bytes = &mut self.scratch[..count];
        self.input.read_exact(bytes)?;
        self.messages.put(bytes);
        Ok(())
    }

    fn read_stream(&mut self, stream: StreamId, count: usize) -> io::Result<()> {
        let index = stream.index();
        let (inbox, mut left) = (&self.pipe.streams[index].inbox, count);
        let mut frame = Frame::default();
        while left > 0 {
            let is_open = inbox.is_open();
            if !is_open && !self.coming[index].is_between_frames() {
                // An incomplete frame gives its buffer back.
                self.coming[index] = Assembly::new();
            }
            let wanted = if is_open { self.coming[index].wanted() } else { &mut self.scratch[..] };
            let part = wanted.len().min(left);
            let came = match self.input.read(&mut wanted[..part]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            left -= came;
            self.pipe.streams[index].traffic.on_read();
            if !is_open {
                continue;
            }
            match self.coming[index].on_bytes(came, inbox.as_ref(), &mut frame) {
                Ok(true) => inbox.put(std::mem::take(&mut frame)),
                Ok(false) => {}
                // Nothing more of this stream can be trusted; the other streams are not affected.
                Err(_) => inbox.close(),
            }
        }
        Ok(())
    }
}

impl Drop for Incoming {
    /// Nothing more comes, even if the thread panicked.
    fn drop(&mut self) {
        self.coming.clear();
        self.pipe.streams.iter().for_each(|stream| stream.inbox.end());
        self.messages.end(Some(io::Error::other("the thread that reads it has ended")));
    }
}

/// Fills `to`. Returns `false` if the pipe has ended before the first byte.
fn read_whole(from: &mut Input, to: &mut [u8]) -> io::Result<bool> {
    let mut filled = 0;
    while filled < to.len() {
        match from.read(&mut to[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Frames of one stream that have arrived, on their way from the thread that reads the pipe to the
/// receiver. Each is in a granted buffer, so there are never more than grants.
///
/// ```text
///   Unused ──receiver──► Open ──nothing more comes──► Ended ──► Closed
///      │                   └──ended, or damaged──────────────────► ▲
///      └──────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Default)]
struct InboxState {
    phase: Phase,
    frames: VecDeque<Frame>,
    /// Set while there is a receiver.
    buffers: Option<Arc<dyn GrantedBuffers>>,
    /// The sink OST of the frame that has a buffer and is not complete.
    coming: Option<OstId>,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nobody receives on it yet, so no grant can have been given.
    #[default]
    Unused,
    /// Frames arrive.
    Open,
    /// No further frame comes; those that arrived can still be received.
    Ended,
    /// Nobody receives on it any more.
    Closed,
}

impl std::fmt::Debug for InboxState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboxState").field("phase", &self.phase).finish_non_exhaustive()
    }
}

impl Inbox {
    pub(super) fn receiver(
        inbox: &Arc<Self>,
        buffers: Arc<dyn GrantedBuffers>,
    ) -> Box<dyn Receiver> {
        let mut state = inbox.lock();
        if state.phase == Phase::Unused {
            state.phase = Phase::Open;
        }
        state.buffers = Some(buffers);
        drop(state);
        Box::new(PipeReceiver { inbox: Arc::clone(inbox) })
    }

    fn is_open(&self) -> bool {
        self.lock().phase == Phase::Open
    }

    /// A frame has arrived.
    fn put(&self, frame: Frame) {
        let mut state = self.lock();
        state.coming = None;
        if state.buffers.is_some() {
            state.frames.push_back(frame);
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Nothing more is received.
    pub(super) fn close(&self) {
        self.lock().phase = Phase::Closed;
        self.changed.notify_all();
    }

    /// Nothing more comes.
    fn end(&self) {
        let mut state = self.lock();
        if state.phase != Phase::Closed {
            state.phase = Phase::Ended;
        }
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The buffers of the receiver, as long as there is one.
impl GrantedBuffers for Inbox {
    fn buffer_for(&self, header: &Header, rows: &[Row]) -> io::Result<Buffer> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let buffers = self.lock().buffers.clone().ok_or_else(gone)?;
        let buffer = buffers.buffer_for(header, rows)?;
        let mut state = self.lock();
        if state.buffers.is_none() {
            drop(state);
            drop(buffer);
            buffers.on_frame_lost(header.sink_ost);
            return Err(gone());
        }
        state.coming = Some(header.sink_ost);
        Ok(buffer)
    }

    fn on_frame_lost(&self, _sink_ost: OstId) {
        unreachable!("the receiver says so when it goes")
    }
}

struct PipeReceiver {
    inbox: Arc<Inbox>,
}

impl Receiver for PipeReceiver {
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool> {
        let mut state = self.inbox.lock();
        loop {
            if state.phase == Phase::Closed {
                return Ok(false);
            }
            if let Some(first) = state.frames.pop_front() {
                *frame = first;
                return Ok(true);
            }
            if state.phase == Phase::Ended {
                return Ok(false);
            }
            state = self.inbox.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for PipeReceiver {
    /// Frames that arrived and were not received are lost.
    fn drop(&mut self) {
        let mut state = self.inbox.lock();
        state.phase = Phase::Closed;
        let (buffers, frames) = (state.buffers.take(), std::mem::take(&mut state.frames));
        let coming = state.coming.take();
        drop(state);
        let Some(buffers) = buffers else { return };
        let arrived = frames.into_iter().filter_map(|frame| frame.arrived);
        let osts: Vec<OstId> = arrived.map(|it| it.header.sink_ost).chain(coming).collect();
        osts.into_iter().for_each(|ost| buffers.on_frame_lost(ost));
    }
}

/// Bytes of messages on their way from the thread that reads the pipe to the listener.
#[derive(Debug, Default)]
pub(super) struct Messages {
    state: Mutex<MessagesState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct MessagesState {
    bytes: VecDeque<u8>,
    /// Set when nothing more comes; the inner value is the error, if there was one.
    end: Option<Option<(io::ErrorKind, String)>>,
    /// Whether there is no listener any more.
    is_unheard: bool,
}

impl Messages {
    /// Adds bytes, when there is room.
    fn put(&self, bytes: &[u8]) {
        let is_full =
            |state: &mut MessagesState| !state.is_unheard && state.bytes.len() > MESSAGES_BYTES_MAX;
        let state = self.changed.wait_while(self.lock(), is_full);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if !state.is_unheard {
            state.bytes.extend(bytes);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The number of bytes that wait.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.lock().bytes.len()
    }

    fn end(&self, error: Option<io::Error>) {
        let end = || error.map(|error| (error.kind(), error.to_string()));
        self.lock().end.get_or_insert_with(end);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, MessagesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reading side of the message channel.
#[derive(Debug)]
pub(super) struct MessageReader {
    pub(super) messages: Arc<Messages>,
}

impl Read for MessageReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let is_waiting = |state: &mut MessagesState| state.bytes.is_empty() && state.end.is_none();
        let state = self.messages.changed.wait_while(self.messages.lock(), is_waiting);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(Some((kind, text)))) = (state.bytes.is_empty(), &state.end) {
            return Err(io::Error::new(*kind, text.clone()));
        }
        let count = state.bytes.read(to)?;
        drop(state);
        self.messages.changed.notify_all();
        Ok(count)
    }
}

impl Drop for MessageReader {
    fn drop(&mut self) {
        let mut state = self.messages.lock();
        state.is_unheard = true;
        state.bytes.clear();
        drop(state);
        self.messages.changed.notify_all();
    }
}
