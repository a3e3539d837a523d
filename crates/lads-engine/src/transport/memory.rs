//! A transport within one process, without any socket: for the contract, and for tests of the code
//! above the trait.

use super::assembly::Assembly;
use super::{Frame, GrantedBuffers, Receiver, Traffic, Transport};
use lads_core::units::StreamId;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The most bytes of a stream in flight: as many as in a pipe, fewer than in a block.
const UNDER_WAY_BYTES_MAX: usize = 64 << 10;

/// Data streams in memory, as one end sees them.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    streams: Vec<Arc<Stream>>,
}

#[derive(Debug, Default)]
struct Stream {
    state: Mutex<State>,
    changed: Condvar,
    traffic: Traffic,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    is_ended: bool,
    /// After how many further bytes the line breaks; `None` if it does not.
    left: Option<usize>,
}

impl Memory {
    /// Both ends use this same value.
    pub(crate) fn new(stream_count: u16) -> Self {
        Self { streams: (0..stream_count).map(|_| Arc::default()).collect() }
    }

    /// The same, but each stream breaks after this number of bytes.
    pub(crate) fn breaking_after(self, bytes: usize) -> Self {
        self.streams.iter().for_each(|stream| stream.lock().left = Some(bytes));
        self
    }
}

impl State {
    fn put(&mut self, piece: &[u8]) {
        let passes = piece.len().min(self.left.unwrap_or(usize::MAX));
        self.bytes.extend(&piece[..passes]);
        self.left = self.left.map(|left| left - passes);
        self.is_ended |= self.left == Some(0);
    }
}

impl Stream {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_while(&self, is_waiting: impl FnMut(&mut State) -> bool) -> MutexGuard<'_, State> {
        let state = self.changed.wait_while(self.lock(), is_waiting);
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for Memory {
    fn stream_count(&self) -> u16 {
        u16::try_from(self.streams.len()).unwrap()
    }

    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let stream = &self.streams[stream.index()];
        let pieces = pieces.iter().flat_map(|piece| piece.chunks(UNDER_WAY_BYTES_MAX));
        for piece in pieces {
            let is_full = |state: &mut State| {
                !state.is_ended && state.bytes.len() + piece.len() > UNDER_WAY_BYTES_MAX
            };
            let mut state = stream.wait_while(is_full);
            if state.is_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            state.put(piece);
            drop(state);
            stream.traffic.on_write();
            stream.changed.notify_all();
        }
        Ok(())
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        let stream = Arc::clone(&self.streams[stream.index()]);
        Box::new(MemoryReceiver { stream, buffers, assembly: Assembly::new() })
    }

    fn end(&self, stream: StreamId) {
        let stream = &self.streams[stream.index()];
        stream.lock().is_ended = true;
        stream.changed.notify_all();
    }

    fn traffic(&self, stream: StreamId) -> &Traffic {
        &self.streams[stream.index()].traffic
    }
}

struct MemoryReceiver {
    stream: Arc<Stream>,
    buffers: Arc<dyn GrantedBuffers>,
    assembly: Assembly,
}

impl Receiver for MemoryReceiver {
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool> {
        loop {
            let is_empty = |state: &mut State| !state.is_ended && state.bytes.is_empty();
            let mut state = self.stream.wait_while(is_empty);
            let count = state.bytes.read(self.assembly.wanted())?;
            drop(state);
            self.stream.changed.notify_all();
            if count == 0 && self.assembly.is_between_frames() {
                return Ok(false);
            }
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.stream.traffic.on_read();
            if self.assembly.on_bytes(count, self.buffers.as_ref(), frame)? {
                return Ok(true);
            }
        }
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.assembly.abandon(self.buffers.as_ref());
    }
}
