//! Data streams: connections that carry frames from source to sink.
//!
//! A stream is a socket: a TCP connection of our own, or a pipe through the remote shell
//! (`--tunnel`). How it comes to be open is told in [`door`].

mod door;

pub(crate) use door::{Listener, connect, show_token};

use lads_core::units::{Instant as CoreInstant, StreamId};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The data streams of one end.
#[derive(Debug)]
pub(crate) struct Streams {
    streams: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    socket: OwnedFd,
    /// Held while a frame is sent; counts the frames.
    frames_sent: Mutex<u64>,
    /// The same number, or frames received, for whoever only looks.
    frames: AtomicU64,
    /// Reads that brought something.
    reads: AtomicU64,
    /// Writes that took something.
    writes: AtomicU64,
    is_lost: AtomicBool,
    /// Micros that threads spent sending on it or waiting for it.
    busy_micros: AtomicU64,
}

impl Streams {
    pub(crate) fn new(sockets: Vec<OwnedFd>) -> Self {
        let streams = sockets
            .into_iter()
            .map(|socket| Stream {
                socket,
                frames_sent: Mutex::new(0),
                frames: AtomicU64::new(0),
                reads: AtomicU64::new(0),
                writes: AtomicU64::new(0),
                is_lost: AtomicBool::new(false),
                busy_micros: AtomicU64::new(0),
            })
            .collect();
        Self { streams }
    }

    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.streams.len()).expect("the number of streams is 16 bits")
    }

    /// Ends all streams; whoever sends or receives on one returns.
    pub(crate) fn shut_down(&self) {
        for stream in &self.streams {
            stream.lose();
        }
    }

    /// Micros that threads spent on the network.
    pub(crate) fn busy_micros(&self) -> u64 {
        self.streams.iter().map(|stream| stream.busy_micros.load(Ordering::Relaxed)).sum()
    }

    /// Sends a frame on the first stream from `first` on that nobody else sends on, or waits for
    /// that one. `head` is written for the number of the frame. Says which stream and number.
    ///
    /// # Errors
    /// If the stream is lost meanwhile, or all are.
    pub(crate) fn send(
        &self,
        first: usize,
        mut head: impl FnMut(u64) -> Vec<u8>,
        payload: &[&[u8]],
    ) -> io::Result<(StreamId, u64)> {
        let started = Instant::now();
        let (index, mut frames_sent) = self.lock_one(first)?;
        let stream = &self.streams[index];
        let number = *frames_sent;
        let head = head(number);
        let mut slices = Vec::with_capacity(payload.len() + 1);
        slices.push(IoSlice::new(&head));
        slices.extend(payload.iter().map(|bytes| IoSlice::new(bytes)));
        if let Err(error) = stream.write_all(&mut slices) {
            stream.lose();
            return Err(error);
        }
        *frames_sent += 1;
        stream.frames.store(*frames_sent, Ordering::Relaxed);
        drop(frames_sent);
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        stream.busy_micros.fetch_add(micros, Ordering::Relaxed);
        let id = u16::try_from(index).expect("the number of streams is 16 bits");
        Ok((StreamId(id), number))
    }

    fn lock_one(&self, first: usize) -> io::Result<(usize, MutexGuard<'_, u64>)> {
        let count = self.streams.len();
        let mut wait_for = None;
        for step in 0..count {
            let index = (first + step) % count;
            if self.streams[index].is_lost.load(Ordering::Relaxed) {
                continue;
            }
            if let Ok(guard) = self.streams[index].frames_sent.try_lock() {
                return Ok((index, guard));
            }
            wait_for.get_or_insert(index);
        }
        let index = wait_for.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        let guard = self.streams[index].frames_sent.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((index, guard))
    }

    /// Whether none is left.
    pub(crate) fn are_all_lost(&self) -> bool {
        self.streams.iter().all(|stream| stream.is_lost.load(Ordering::Relaxed))
    }

    /// Receives exactly as many bytes as `to` holds; `false` if the stream ended before the first.
    ///
    /// # Errors
    /// If the stream ends in between, or is lost.
    pub(crate) fn receive(&self, id: StreamId, to: &mut [u8]) -> io::Result<bool> {
        let socket = &self.streams[id.index()].socket;
        let mut filled = 0;
        while filled < to.len() {
            match rustix::io::read(socket, &mut to[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            self.streams[id.index()].reads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(true)
    }

    /// A frame arrived whole.
    pub(crate) fn on_frame_received(&self, id: StreamId) {
        self.streams[id.index()].frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Frames sent, or received, on each stream.
    pub(crate) fn frames(&self) -> Vec<u64> {
        self.streams.iter().map(|stream| stream.frames.load(Ordering::Relaxed)).collect()
    }

    /// A number that changes whenever bytes went over a stream.
    pub(crate) fn moves(&self) -> u64 {
        let moves = |stream: &Stream| {
            let reads = stream.reads.load(Ordering::Relaxed);
            reads.wrapping_add(stream.writes.load(Ordering::Relaxed))
        };
        self.streams.iter().map(moves).fold(0, u64::wrapping_add)
    }

    /// Ends one stream.
    pub(crate) fn lose(&self, id: StreamId) {
        self.streams[id.index()].lose();
    }
}

impl Stream {
    fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn write_all(&self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut rest = slices;
        while !rest.is_empty() {
            let batch = rest.len().min(1024);
            match rustix::io::writev(&self.socket, &rest[..batch]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut rest, count),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Frames that were sent and do not arrive. A connection that dies is noticed by whoever uses it;
/// but something in between, a forwarded port or a proxy, may take frames, acknowledge them, and
/// keep them for ever. Nobody at the source writes to the stream again, and the sink cannot know
/// that something should come, but for being told (FRAMES).
#[derive(Debug, Default)]
pub(crate) struct Missing {
    rows: Vec<MissingRow>,
}

#[derive(Clone, Copy, Debug, Default)]
struct MissingRow {
    frames_sent: u64,
    /// Reads when they were last looked at, and since when they have been as many.
    reads: u64,
    since: Option<CoreInstant>,
}

impl Missing {
    /// The source has sent this many frames on each stream.
    pub(crate) fn on_frames(&mut self, counts: &[u64], stream_count: u16) {
        self.rows.resize(stream_count.into(), MissingRow::default());
        for (row, count) in self.rows.iter_mut().zip(counts) {
            row.frames_sent = *count;
        }
    }

    /// Ends streams on which frames are missing and nothing arrived for so long.
    pub(crate) fn end_silent(&mut self, streams: &Streams, now: CoreInstant, timeout: Duration) {
        for (row, stream) in self.rows.iter_mut().zip(&streams.streams) {
            let reads = stream.reads.load(Ordering::Relaxed);
            let is_missing = row.frames_sent > stream.frames.load(Ordering::Relaxed);
            if !is_missing || reads != row.reads {
                (row.reads, row.since) = (reads, None);
                continue;
            }
            let since = *row.since.get_or_insert(now);
            if now.since(since) >= timeout && !stream.is_lost.load(Ordering::Relaxed) {
                stream.lose();
            }
        }
    }
}

/// A peer that does not acknowledge data for so long is dead.
pub(crate) fn set_send_timeout(socket: &OwnedFd, timeout: Duration) {
    let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
    let _ = sockopt::set_tcp_user_timeout(socket, millis);
}

/// Fills with random bytes of the system's.
pub(crate) fn fill_random(to: &mut [u8]) -> io::Result<()> {
    use rustix::rand::{GetRandomFlags, getrandom};
    let mut filled = 0;
    while filled < to.len() {
        match getrandom(&mut to[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}
