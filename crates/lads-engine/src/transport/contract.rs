//! The contract of transports: these tests run against each of them. For a new transport, add a way
//! to make [`Ends`], and a line to the macro at the end.

use super::memory::Memory;
use super::seal::{Role, Seals};
use super::{Channel, Frame, GrantedBuffers, Receiver, Transport, pipe, tcp};
use lads_core::frame::{Bound, Header, Row, put_head};
use lads_core::issue::Side;
use lads_core::protection::Protection;
use lads_core::units::{Block, EntryId, OstId, StreamId};
use lads_sys::{Arena, Buffer};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Longer than any step takes, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

const MIB: usize = 1 << 20;

/// The two ends of one connection.
struct Ends {
    source: Arc<dyn Transport>,
    sink: Arc<dyn Transport>,
    /// Message channels that end with the connection: of the source, and of the sink. `None` if
    /// messages use another connection.
    channels: Option<(Channel, Channel)>,
}

/// Makes two ends with this number of streams, on a line that breaks after this number of bytes, if
/// there is one.
type Make = fn(u16, Option<usize>) -> Ends;

fn in_memory(count: u16, breaks_after: Option<usize>) -> Ends {
    let memory = Memory::new(count);
    let memory = match breaks_after {
        Some(bytes) => memory.breaking_after(bytes),
        None => memory,
    };
    let ends: Arc<dyn Transport> = Arc::new(memory);
    Ends { source: Arc::clone(&ends), sink: ends, channels: None }
}

fn over_tcp(count: u16, breaks_after: Option<usize>) -> Ends {
    let (source, sink) = sockets(count, breaks_after);
    let source = Arc::new(tcp::Tcp::new(source, DEADLINE));
    let sink = Arc::new(tcp::Tcp::new(sink, DEADLINE));
    Ends { source, sink, channels: None }
}

/// Streams that are used while they are still being opened, the last one first.
fn over_tcp_that_opens_late(count: u16, breaks_after: Option<usize>) -> Ends {
    let opening = |sockets: Vec<OwnedFd>| {
        let tcp = Arc::new(tcp::Tcp::opening(sockets.len(), DEADLINE));
        let streams = Arc::clone(&tcp);
        thread::spawn(move || {
            for (index, socket) in sockets.into_iter().enumerate().rev() {
                thread::yield_now();
                streams.open(index, socket);
            }
        });
        tcp
    };
    let (source, sink) = sockets(count, breaks_after);
    Ends { source: opening(source), sink: opening(sink), channels: None }
}

/// Streams whose bytes are encrypted.
fn over_tcp_with_seals(count: u16, breaks_after: Option<usize>) -> Ends {
    let (source, sink) = sockets(count, breaks_after);
    let sealed = |sockets: Vec<OwnedFd>, role| {
        let tcp = tcp::Tcp::opening(sockets.len(), DEADLINE);
        for (index, socket) in sockets.into_iter().enumerate() {
            let seals = Seals::new(Protection::Aes128Gcm, &[7; 32], &[9; 16], role);
            tcp.open(index, tcp::Line::new(socket, seals));
        }
        Arc::new(tcp)
    };
    let (source, sink) = (sealed(source, Role::Connects), sealed(sink, Role::Listens));
    Ends { source, sink, channels: None }
}

/// Streams whose first connection is closed before it was accepted.
fn over_tcp_that_is_refused_first(count: u16, breaks_after: Option<usize>) -> Ends {
    let (sockets, sink) = sockets(count, breaks_after);
    let source = Arc::new(tcp::Tcp::opening(sockets.len(), DEADLINE));
    let streams = Arc::clone(&source);
    thread::spawn(move || {
        for (index, socket) in sockets.into_iter().enumerate() {
            let (ours, theirs) = connected();
            let refuse = |_: &_| {
                drop(theirs);
                Err(io::ErrorKind::UnexpectedEof.into())
            };
            streams.open_early(index, OwnedFd::from(ours), refuse).unwrap_err();
            thread::yield_now();
            // A stream that a test ends early is not accepted, either.
            let _ = streams.open_early(index, socket, |_| Ok(()));
        }
    });
    Ends { source, sink: Arc::new(tcp::Tcp::new(sink, DEADLINE)), channels: None }
}

/// The sockets of source and sink.
fn sockets(count: u16, breaks_after: Option<usize>) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    (0..count)
        .map(|_| {
            let (ours, theirs) = connected();
            let Some(bytes) = breaks_after else { return (ours.into(), theirs.into()) };
            let (beyond, far) = connected();
            thread::spawn(move || pass(theirs, far, bytes));
            (ours.into(), beyond.into())
        })
        .unzip()
}
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

fn through_a_pipe(count: u16, breaks_after: Option<usize>) -> Ends {
    let (mut from_source, to_sink) = pipes();
    let (from_sink, to_source) = pipes();
    if let Some(bytes) = breaks_after {
        let (broken, far) = pipes();
        let before = std::mem::replace(&mut from_source, broken);
        thread::spawn(move || pass(before, far, bytes));
    }
    let (source, of_source) = pipe::open(from_sink, to_sink, count, Side::Source);
    let (sink, of_sink) = pipe::open(from_source, to_source, count, Side::Sink);
    Ends { source, sink, channels: Some((of_source, of_sink)) }
}

/// A pipe over a socket, encrypted.
fn through_a_sealed_pipe(count: u16, breaks_after: Option<usize>) -> Ends {
    let (source, sink) = sockets(1, breaks_after);
    let open = |mut socket: Vec<OwnedFd>, role| {
        let socket = File::from(socket.remove(0));
        let seals = Seals::new(Protection::Aes128Gcm, &[7; 32], &[9; 16], role).unwrap();
        pipe::open_sealed_both_ways(socket.try_clone().unwrap(), socket, seals, count)
    };
    let (source, of_source) = open(source, Role::Connects);
    let (sink, of_sink) = open(sink, Role::Listens);
    Ends { source, sink, channels: Some((of_source, of_sink)) }
}

pub(super) fn pipes() -> (File, File) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    (reader.into(), writer.into())
}

/// Passes on this number of bytes, then breaks the line.
fn pass(from: impl Read, mut to: impl Write, bytes: usize) {
    let _ = io::copy(&mut from.take(bytes as u64), &mut to);
}

/// A fixed number of granted buffers.
pub(super) struct Granted {
    arena: Arena,
    /// How many more buffers are given in all.
    left: AtomicU64,
    lost: AtomicU64,
}

impl Granted {
    pub(super) fn new(count: u32) -> Arc<Self> {
        Self::at_most(count, u64::MAX)
    }

    /// The same, but at most `left` buffers are given in all, even if some are free again.
    fn at_most(count: u32, left: u64) -> Arc<Self> {
        let arena = Arena::new(count, MIB).unwrap();
        Arc::new(Self { arena, left: AtomicU64::new(left), lost: AtomicU64::new(0) })
    }

    /// Waits until all buffers are free.
    fn are_all_free(self: &Arc<Self>) {
        let granted = Arc::clone(self);
        within_deadline("all buffers are given back", move || {
            let all = (0..granted.arena.buffer_count()).map(|_| granted.arena.take());
            drop(all.collect::<Vec<_>>());
        });
    }
}

impl GrantedBuffers for Granted {
    fn buffer_for(&self, header: &Header, _rows: &[Row]) -> io::Result<Buffer> {
        assert!(header.payload_bytes as usize <= MIB);
        let take_one = |left: u64| left.checked_sub(1);
        let left = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_one);
        left.map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(self.arena.take())
    }

    fn on_frame_lost(&self, _sink_ost: OstId) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Frame `number` of a stream, with a payload of `bytes` in two rows; without payload, only the
/// checksums.
fn frame(number: u64, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let row = |length: usize| Row {
        block: Block { entry: EntryId(number), offset: 0, length: u32::try_from(length).unwrap() },
        is_whole: false,
        checksum: number,
    };
    let rows = if bytes < 2 { vec![row(1)] } else { vec![row(1), row(bytes - 1)] };
    let bound = Bound { sink_ost: OstId(1), is_last_grant: false, has_only_sums: bytes == 0 };
    let mut head = Vec::new();
    put_head(&rows, number, bound, &mut head);
    (head, vec![u8::try_from(number % 251).unwrap(); bytes])
}

fn send(source: &dyn Transport, stream: u16, number: u64, bytes: usize) -> io::Result<()> {
    let (head, mut payload) = frame(number, bytes);
    // Both ways to send follow each other in any order.
    if number % 3 == 1 {
        return source.send_last(StreamId(stream), &head, &mut payload);
    }
    source.send(StreamId(stream), &mut [IoSlice::new(&head), IoSlice::new(&payload)])
}

/// Receives the next frame and checks that it is the one that was sent.
#[track_caller]
fn receive(receiver: &mut dyn Receiver, into: &mut Frame, number: u64, bytes: usize) {
    assert!(receiver.next_frame(into).unwrap(), "frame {number} of {bytes} bytes");
    let arrived = into.arrived.take().unwrap();
    assert_eq!(arrived.header.number, number);
    assert_eq!(into.rows.len(), if bytes < 2 { 1 } else { 2 });
    assert_eq!(into.rows[0].block.entry, EntryId(number));
    let payload = &arrived.buffer[..bytes];
    assert!(payload.iter().all(|byte| u64::from(*byte) == number % 251), "frame {number}");
}

/// Runs `act` in a thread; fails if it does not end before [`DEADLINE`].
#[track_caller]
fn within_deadline<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    started(act).recv_timeout(DEADLINE).unwrap_or_else(|error| panic!("{what}: {error}"))
}

fn started<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> mpsc::Receiver<T> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        let _ = done.send(act());
    });
    result
}

/// Whether the result is one that a receiver may return at the end of its stream.
fn is_at_end(result: &io::Result<bool>) -> bool {
    !matches!(result, Ok(true))
}

fn frames_of_every_size_arrive_in_order(make: Make) {
    const FRAMES: u64 = 10_000;
    const STREAMS: u16 = 2;
    /// Lengths around those of a page, a packet and a pipe; fewer of the largest.
    fn bytes_of(number: u64) -> usize {
        match number % 64 {
            0 => MIB,
            1 => 200_000,
            2 => 65_535 - 96,
            3 => 65_536 - 96,
            4 => 65_537 - 96,
            other => [0, 1, 100, 4096][usize::try_from(other).unwrap() % 4],
        }
    }
    let ends = make(STREAMS, None);
    let granted = Granted::new(u32::from(STREAMS) * 40);
    let (room, rooms): (Vec<_>, Vec<_>) = (0..STREAMS).map(|_| mpsc::sync_channel(30)).unzip();
    let mut done = Vec::new();
    for (stream, grants) in (0..STREAMS).zip(rooms) {
        let mut receiver = ends.sink.receiver(StreamId(stream), Arc::clone(&granted) as Arc<_>);
        done.push(started(move || {
            let mut into = Frame::default();
            for number in 0..FRAMES {
                receive(receiver.as_mut(), &mut into, number, bytes_of(number));
                grants.recv().unwrap();
            }
        }));
    }
    for (stream, grants) in (0..STREAMS).zip(room) {
        let source = Arc::clone(&ends.source);
        done.push(started(move || {
            for number in 0..FRAMES {
                grants.send(()).unwrap();
                send(source.as_ref(), stream, number, bytes_of(number)).unwrap();
            }
        }));
    }
    for done in done {
        done.recv_timeout(DEADLINE).unwrap();
    }
    assert!(ends.sink.traffic(StreamId(1)).reads() >= FRAMES);
    assert!(ends.source.traffic(StreamId(1)).moves() >= FRAMES);
    assert_eq!(granted.lost.load(Ordering::Relaxed), 0);
}

fn a_stream_that_nobody_receives_on_holds_up_no_other(make: Make) {
    const GRANTED: u64 = 6;
    let ends = make(2, None);
    let granted = Granted::new(8);
    let mut idle = ends.sink.receiver(StreamId(0), Arc::clone(&granted) as Arc<_>);
    let mut busy = ends.sink.receiver(StreamId(1), Arc::clone(&granted) as Arc<_>);
    let source = Arc::clone(&ends.source);
    let sent = started(move || {
        (0..GRANTED).for_each(|number| send(source.as_ref(), 0, number, MIB).unwrap());
    });
    let source = Arc::clone(&ends.source);
    within_deadline("the other stream", move || {
        let mut into = Frame::default();
        for number in 0..200 {
            send(source.as_ref(), 1, number, 10_000).unwrap();
            receive(busy.as_mut(), &mut into, number, 10_000);
        }
    });
    within_deadline("the slow one", move || {
        let mut into = Frame::default();
        (0..GRANTED).for_each(|number| receive(idle.as_mut(), &mut into, number, MIB));
    });
    sent.recv_timeout(DEADLINE).unwrap();
}

fn a_line_that_breaks_within_a_frame_delivers_none_of_it(make: Make) {
    for breaks_after in [10, 150, 300_000, MIB + 1100] {
        let ends = make(1, Some(breaks_after));
        let granted = Granted::new(4);
        let mut receiver = ends.sink.receiver(StreamId(0), Arc::clone(&granted) as Arc<_>);
        let source = Arc::clone(&ends.source);
        let sent = started(move || (0..3).try_for_each(|n| send(source.as_ref(), 0, n, MIB)));
        let whole = within_deadline("the break is noticed", move || {
            let (mut into, mut whole) = (Frame::default(), 0);
            while receiver.next_frame(&mut into).unwrap_or(false) {
                into.arrived = None;
                whole += 1;
            }
            whole
        });
        assert_eq!(whole, breaks_after / (MIB + 96));
        ends.source.end(StreamId(0));
        let _ = sent.recv_timeout(DEADLINE).unwrap();
        // The frame that was given a buffer and did not arrive.
        let begun = u64::from(breaks_after > 100);
        assert_eq!(granted.lost.load(Ordering::Relaxed), begun, "{breaks_after}");
        drop(ends);
        granted.are_all_free();
    }
}

fn whoever_is_waited_for_by_nobody_can_be_cancelled(make: Make) {
    let ends = make(2, None);
    let granted = Granted::at_most(4, 4);
    let mut waits = ends.sink.receiver(StreamId(0), Arc::clone(&granted) as Arc<_>);
    let waiting = started(move || waits.next_frame(&mut Frame::default()));
    ends.sink.end(StreamId(0));
    assert!(is_at_end(&waiting.recv_timeout(DEADLINE).unwrap()));
    // More frames than a stream takes on which nobody receives.
    let _idle = ends.sink.receiver(StreamId(1), Arc::clone(&granted) as Arc<_>);
    let source = Arc::clone(&ends.source);
    let sending = started(move || (0..64).try_for_each(|n| send(source.as_ref(), 1, n, MIB)));
    ends.source.end(StreamId(1));
    let _ = sending.recv_timeout(DEADLINE).unwrap();
    send(ends.source.as_ref(), 1, 99, 10).unwrap_err();
}

/// One end has ended a stream, and the other does not know it yet.
fn what_is_sent_on_a_stream_that_the_sink_has_ended_goes_nowhere(make: Make) {
    let ends = make(2, None);
    let granted = Granted::new(4);
    let receiver = ends.sink.receiver(StreamId(0), Arc::clone(&granted) as Arc<_>);
    let mut other = ends.sink.receiver(StreamId(1), Arc::clone(&granted) as Arc<_>);
    ends.sink.end(StreamId(0));
    drop(receiver);
    let source = Arc::clone(&ends.source);
    within_deadline("the source does not hang", move || {
        let _ = (0..64).try_for_each(|number| send(source.as_ref(), 0, number, MIB));
    });
    let source = Arc::clone(&ends.source);
    let sent = started(move || send(source.as_ref(), 1, 0, MIB).unwrap());
    within_deadline("the other stream", move || {
        receive(other.as_mut(), &mut Frame::default(), 0, MIB);
    });
    sent.recv_timeout(DEADLINE).unwrap();
    granted.are_all_free();
}

fn a_peer_that_is_gone_ends_all_streams(make: Make) {
    let mut ends = make(3, None);
    let granted = Granted::new(4);
    let receivers: Vec<_> = (0..3)
        .map(|stream| ends.sink.receiver(StreamId(stream), Arc::clone(&granted) as Arc<_>))
        .map(|mut receiver| started(move || receiver.next_frame(&mut Frame::default())))
        .collect();
    let of_sink = ends.channels.take().map(|(_of_source, of_sink)| of_sink);
    (0..3).for_each(|stream| ends.source.end(StreamId(stream)));
    drop(ends.source);
    for receiver in receivers {
        assert!(is_at_end(&receiver.recv_timeout(DEADLINE).unwrap()));
    }
    if let Some(Channel { mut input, .. }) = of_sink {
        assert_eq!(input.read(&mut [0]).unwrap(), 0, "messages are at their end, too");
    }
}

#[test]
fn a_stream_that_was_ended_before_it_was_open_takes_nothing() {
    let tcp = Arc::new(tcp::Tcp::opening(1, DEADLINE));
    let granted = Granted::new(1);
    let mut receiver = tcp.receiver(StreamId(0), Arc::clone(&granted) as Arc<_>);
    let received = started(move || receiver.next_frame(&mut Frame::default()));
    let source = Arc::clone(&tcp);
    let sent = started(move || send(source.as_ref(), 0, 0, MIB));
    tcp.end(StreamId(0));
    assert!(is_at_end(&received.recv_timeout(DEADLINE).unwrap()));
    sent.recv_timeout(DEADLINE).unwrap().unwrap_err();
    let (ours, mut theirs) = connected();
    tcp.open(0, OwnedFd::from(ours));
    assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the connection is closed again");
}

#[test]
fn the_first_frame_goes_before_the_answer_and_goes_again_if_that_is_no() {
    let tcp = Arc::new(tcp::Tcp::opening(1, DEADLINE));
    let source = Arc::clone(&tcp);
    let sent = started(move || send(source.as_ref(), 0, 0, MIB));
    let (ours, mut theirs) = connected();
    theirs.set_read_timeout(Some(DEADLINE)).unwrap();
    let refuse = |_: &_| {
        theirs.read_exact(&mut [0])?;
        drop(theirs);
        Err(io::ErrorKind::UnexpectedEof.into())
    };
    tcp.open_early(0, OwnedFd::from(ours), refuse).unwrap_err();
    let (ours, theirs) = connected();
    theirs.set_read_timeout(Some(DEADLINE)).unwrap();
    let sink = tcp::Tcp::new(vec![theirs.into()], DEADLINE);
    let mut receiver = sink.receiver(StreamId(0), Granted::new(2));
    let accept = |_: &_| {
        receive(receiver.as_mut(), &mut Frame::default(), 0, MIB);
        assert!(sent.try_recv().is_err(), "it returns when the connection is accepted");
        Ok(())
    };
    tcp.open_early(0, OwnedFd::from(ours), accept).unwrap();
    sent.recv_timeout(DEADLINE).unwrap().unwrap();
    send(tcp.as_ref(), 0, 1, 1).unwrap();
    receive(receiver.as_mut(), &mut Frame::default(), 1, 1);
}

#[test]
fn a_stream_that_is_ended_before_it_was_accepted_takes_nothing() {
    is_ended_while_a_frame_is_sent(true);
    is_ended_while_a_frame_is_sent(false);
}

/// Before there is an answer to its token, or after that was not waited for any longer.
fn is_ended_while_a_frame_is_sent(is_before_answer: bool) {
    let tcp = Arc::new(tcp::Tcp::opening(1, DEADLINE));
    let source = Arc::clone(&tcp);
    // More than the kernel keeps.
    let sent = started(move || send(source.as_ref(), 0, 0, 64 * MIB));
    // It reads no more than the first byte.
    let (ours, mut theirs) = connected();
    theirs.set_read_timeout(Some(DEADLINE)).unwrap();
    let end = |_: &_| {
        theirs.read_exact(&mut [0])?;
        if is_before_answer {
            tcp.end(StreamId(0));
        }
        Err(io::ErrorKind::TimedOut.into())
    };
    tcp.open_early(0, OwnedFd::from(ours), end).unwrap_err();
    tcp.end(StreamId(0));
    sent.recv_timeout(DEADLINE).unwrap().unwrap_err();
    assert!(!tcp.wants(0) && tcp.ended(0).is_set());
}

/// The contract for one transport.
macro_rules! keeps_the_contract {
    ($($name:ident: $make:expr),* $(,)?) => {$(
        mod $name {
            const MAKE: super::Make = $make;

            #[test]
            fn frames_of_every_size_arrive_in_order() {
                super::frames_of_every_size_arrive_in_order(MAKE);
            }

            #[test]
            fn a_stream_that_nobody_receives_on_holds_up_no_other() {
                super::a_stream_that_nobody_receives_on_holds_up_no_other(MAKE);
            }

            #[test]
            fn a_line_that_breaks_within_a_frame_delivers_none_of_it() {
                super::a_line_that_breaks_within_a_frame_delivers_none_of_it(MAKE);
            }

            #[test]
            fn whoever_is_waited_for_by_nobody_can_be_cancelled() {
                super::whoever_is_waited_for_by_nobody_can_be_cancelled(MAKE);
            }

            #[test]
            fn what_is_sent_on_a_stream_that_the_sink_has_ended_goes_nowhere() {
                super::what_is_sent_on_a_stream_that_the_sink_has_ended_goes_nowhere(MAKE);
            }

            #[test]
            fn a_peer_that_is_gone_ends_all_streams() {
                super::a_peer_that_is_gone_ends_all_streams(MAKE);
            }
        }
    )*};
}

keeps_the_contract! {
    tcp_keeps_it: super::over_tcp,
    tcp_with_seals_keeps_it: super::over_tcp_with_seals,
    tcp_that_opens_late_keeps_it: super::over_tcp_that_opens_late,
    tcp_that_is_refused_first_keeps_it: super::over_tcp_that_is_refused_first,
    the_pipe_keeps_it: super::through_a_pipe,
    the_sealed_pipe_keeps_it: super::through_a_sealed_pipe,
    memory_keeps_it: super::in_memory,
}
