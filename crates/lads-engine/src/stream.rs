//! The data streams of one end, as its threads use them: which thread sends on which stream, how
//! many frames went over each, and which streams are lost. A [`Transport`] carries the bytes.

use crate::clock::TICK;
use crate::transport::{GrantedBuffers, Receiver, Transport};
use lads_core::absence::Presence;
use lads_core::units::{Instant as CoreInstant, StreamId};
use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The data streams of one end.
#[derive(Debug)]
pub(crate) struct Streams {
    transport: Arc<dyn Transport>,
    streams: Vec<Stream>,
    /// The number of streams that are there: open, or to be opened before the transfer begins.
    there_count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Stream {
    /// Held while a frame is sent; the number of frames sent.
    frames_sent: Mutex<u64>,
    /// The number of frames sent or received, for threads that only read it.
    frames: AtomicU64,
    is_lost: AtomicBool,
    /// Whether somebody says, or has said, when it ends: who receives on it, or who found that
    /// nobody does.
    is_watched: AtomicBool,
    /// Microseconds that threads spent sending on it or waiting for it.
    busy_micros: AtomicU64,
}

/// The payload of a frame.
pub(crate) enum Payload<'a> {
    /// In one place, and nobody needs it afterwards.
    Whole(&'a mut [u8]),
    /// In pieces that follow each other.
    Pieces(&'a [&'a [u8]]),
}

/// A frame of which at least a part was sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) stream: StreamId,
    /// The number of frames that this end sent on the stream before.
    pub(crate) number: u64,
    /// Why the stream was lost while the frame was sent. The other end may have received the head
    /// of the frame, or all of it.
    pub(crate) failure: Option<io::Error>,
}

impl Streams {
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        let streams: Vec<_> = (0..transport.stream_count()).map(|_| Stream::default()).collect();
        let streams = Self { transport, streams, there_count: AtomicUsize::new(0) };
        let there_count = streams.needed().count();
        streams.there_count.store(there_count, Ordering::Relaxed);
        streams
    }

    /// The streams of an end that has none.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self::new(Arc::new(crate::transport::memory::Memory::new(0)))
    }

    pub(crate) fn count(&self) -> u16 {
        self.transport.stream_count()
    }

    fn ids(&self) -> impl Iterator<Item = StreamId> {
        (0..self.count()).map(StreamId)
    }

    /// The streams that are there when the transfer begins.
    pub(crate) fn needed(&self) -> impl Iterator<Item = StreamId> {
        self.ids().filter(|id| self.transport.is_needed(*id))
    }

    /// One more stream is there. Returns how many there are now.
    pub(crate) fn on_more(&self) -> usize {
        self.there_count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of streams that are there, or were before they were lost.
    pub(crate) fn there_count(&self) -> usize {
        self.there_count.load(Ordering::Relaxed)
    }

    /// Ends all streams, so that calls that send or receive on them return.
    pub(crate) fn shut_down(&self) {
        self.ids().for_each(|id| self.lose(id));
    }

    /// Microseconds that threads spent on the network.
    pub(crate) fn busy_micros(&self) -> u64 {
        self.streams.iter().map(|stream| stream.busy_micros.load(Ordering::Relaxed)).sum()
    }

    /// Sends a frame on the first stream, counted from `first`, on which no other thread sends; if
    /// all are busy, waits for stream `first`. `head` writes the header for the number of the
    /// frame.
    ///
    /// # Errors
    /// If all streams are lost: nothing was sent.
    pub(crate) fn send(
        &self,
        first: usize,
        mut head: impl FnMut(u64) -> Vec<u8>,
        payload: Payload<'_>,
    ) -> io::Result<Sent> {
        let started = Instant::now();
        let (index, mut frames_sent) = self.lock_one(first)?;
        let stream = &self.streams[index];
        let id = StreamId(u16::try_from(index).expect("the number of streams is 16 bits"));
        let number = *frames_sent;
        let head = head(number);
        let sent = match payload {
            Payload::Whole(bytes) => self.transport.send_last(id, &head, bytes),
            Payload::Pieces(payload) => {
                let payload = payload.iter().copied();
                let pieces = std::iter::once(&head[..]).chain(payload);
                self.transport.send(id, &mut pieces.map(IoSlice::new).collect::<Vec<_>>())
            }
        };
        if let Err(error) = sent {
            self.lose(id);
            return Ok(Sent { stream: id, number, failure: Some(error) });
        }
        *frames_sent += 1;
        stream.frames.store(*frames_sent, Ordering::Relaxed);
        drop(frames_sent);
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        stream.busy_micros.fetch_add(micros, Ordering::Relaxed);
        Ok(Sent { stream: id, number, failure: None })
    }

    fn lock_one(&self, first: usize) -> io::Result<(usize, MutexGuard<'_, u64>)> {
        let count = self.streams.len();
        let first = first % self.there_count().max(1);
        let mut wait_for = None;
        for step in 0..count {
            let index = (first + step) % count;
            if !self.is_usable(index) {
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

    /// How long a round trip to the other end takes, if that is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.transport.round_trip()
    }

    /// Whether the stream is there and not lost.
    fn is_usable(&self, index: usize) -> bool {
        let id = StreamId(u16::try_from(index).expect("the number of streams is 16 bits"));
        !self.streams[index].is_lost.load(Ordering::Relaxed) && self.transport.is_there(id)
    }

    /// Whether all streams are lost.
    pub(crate) fn are_all_lost(&self) -> bool {
        !(0..self.streams.len()).any(|index| self.is_usable(index))
    }

    /// The receiver for the frames of a stream; see [`Transport::receiver`]. `None` if the stream
    /// was lost before anybody received on it.
    pub(crate) fn receiver(
        &self,
        id: StreamId,
        buffers: Arc<dyn GrantedBuffers>,
    ) -> Option<Box<dyn Receiver>> {
        self.watch(id).then(|| self.transport.receiver(id, buffers))
    }

    /// Whoever calls this first for a stream says when it ends.
    fn watch(&self, id: StreamId) -> bool {
        !self.streams[id.index()].is_watched.swap(true, Ordering::Relaxed)
    }

    /// A frame arrived whole.
    pub(crate) fn on_frame_received(&self, id: StreamId) {
        self.streams[id.index()].frames.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of frames sent, or received, on each stream.
    pub(crate) fn frames(&self) -> Vec<u64> {
        self.streams.iter().map(|stream| stream.frames.load(Ordering::Relaxed)).collect()
    }

    /// A number that changes whenever bytes went over a stream.
    pub(crate) fn moves(&self) -> u64 {
        self.ids().map(|id| self.transport.traffic(id).moves()).fold(0, u64::wrapping_add)
    }

    /// A number that changes whenever a stream shows that the other end is alive: only if messages
    /// come over the same connection.
    pub(crate) fn signs_of_life(&self) -> u64 {
        if !self.transport.carries_messages() {
            return 0;
        }
        self.ids().map(|id| self.transport.traffic(id).reads()).fold(0, u64::wrapping_add)
    }

    /// Ends one stream.
    pub(crate) fn lose(&self, id: StreamId) {
        self.streams[id.index()].is_lost.store(true, Ordering::Relaxed);
        self.transport.end(id);
    }
}

/// Frames that were sent and do not arrive. A connection that dies is noticed by whoever uses it.
/// But a forwarded port or a proxy in between may take frames, acknowledge them, and keep them for
/// ever. No thread of the source writes to that stream again, and the sink only knows from the
/// message FRAMES that frames should come.
#[derive(Debug, Default)]
pub(crate) struct Missing {
    rows: Vec<MissingRow>,
    presence: Option<Presence>,
}

#[derive(Clone, Copy, Debug, Default)]
struct MissingRow {
    frames_sent: u64,
    /// The number of reads at the last look, and since when that number has not changed.
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

    /// Ends streams on which frames are missing and nothing has arrived for `timeout`. Returns
    /// those of which nobody else will say that they have ended: the other end thought that they
    /// were open, and this one did not.
    #[must_use]
    pub(crate) fn end_silent(
        &mut self,
        streams: &Streams,
        now: CoreInstant,
        timeout: Duration,
    ) -> Vec<StreamId> {
        let away = self.presence.get_or_insert_with(|| Presence::begin(now, TICK)).look(now);
        let mut unwatched = Vec::new();
        for (row, id) in self.rows.iter_mut().zip(streams.ids()) {
            let stream = &streams.streams[id.index()];
            let reads = streams.transport.traffic(id).reads();
            let is_missing = row.frames_sent > stream.frames.load(Ordering::Relaxed);
            if !is_missing || reads != row.reads || !away.is_zero() {
                (row.reads, row.since) = (reads, None);
                continue;
            }
            let since = *row.since.get_or_insert(now);
            if now.since(since) >= timeout && !stream.is_lost.load(Ordering::Relaxed) {
                streams.lose(id);
                unwatched.extend(streams.watch(id).then_some(id));
            }
        }
        unwatched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tcp::{Tcp, socket_pair};
    use std::os::fd::OwnedFd;

    /// The stream on which a thread would send that begins to look at `first`.
    fn chosen(streams: &Streams, first: usize) -> io::Result<usize> {
        streams.lock_one(first).map(|(index, _)| index)
    }

    #[test]
    fn nothing_is_sent_on_a_stream_that_may_never_come() {
        let tcp = Arc::new(Tcp::opening(1, Duration::from_secs(30)).and_more(2));
        let streams = Streams::new(Arc::clone(&tcp) as Arc<dyn Transport>);
        let open = |index: usize| -> OwnedFd {
            let (ours, theirs) = socket_pair().unwrap();
            tcp.open(index, ours);
            theirs
        };
        let _zero = open(0);
        assert_eq!([0, 1, 2].map(|first| chosen(&streams, first).unwrap()), [0; 3]);
        let _two = open(2);
        assert_eq!(streams.on_more(), 2);
        streams.lose(StreamId(0));
        assert_eq!([0, 1, 2].map(|first| chosen(&streams, first).unwrap()), [2; 3]);
        assert!(!streams.are_all_lost());
        streams.lose(StreamId(2));
        assert!(streams.are_all_lost());
        chosen(&streams, 1).unwrap_err();
    }

    #[test]
    fn a_stream_that_only_the_other_end_has_is_said_to_have_ended_once() {
        let streams = Streams::new(Arc::new(Tcp::opening(1, Duration::from_secs(30)).and_more(1)));
        let (mut missing, timeout) = (Missing::default(), Duration::from_secs(30));
        missing.on_frames(&[0, 7], 2);
        let at = |seconds| CoreInstant::after_start(Duration::from_secs(seconds));
        let mut ended_in = |seconds: std::ops::Range<u64>| -> Vec<(u64, StreamId)> {
            let ended = |at: u64, ids: Vec<StreamId>| ids.into_iter().map(move |id| (at, id));
            seconds
                .flat_map(|it| ended(it, missing.end_silent(&streams, at(it), timeout)))
                .collect()
        };
        assert_eq!(ended_in(0..29), []);
        // The process was stopped for a minute: the time starts again.
        assert_eq!(ended_in(90..120), []);
        assert_eq!(ended_in(120..200), [(121, StreamId(1))]);
    }

    #[test]
    fn threads_share_the_streams_that_are_there() {
        let tcp = Arc::new(Tcp::opening(2, Duration::from_secs(30)).and_more(30));
        let streams = Streams::new(Arc::clone(&tcp) as Arc<dyn Transport>);
        let pairs = [socket_pair().unwrap(), socket_pair().unwrap()];
        let _theirs: Vec<OwnedFd> = (0..)
            .zip(pairs)
            .map(|(index, (ours, theirs))| {
                tcp.open(index, ours);
                theirs
            })
            .collect();
        let used: Vec<usize> = (0..6).map(|worker| chosen(&streams, worker).unwrap()).collect();
        assert_eq!(used, [0, 1, 0, 1, 0, 1]);
    }
}
