//! Data streams: connections that carry frames from source to sink.
//!
//! A stream is a socket: a TCP connection of our own, or a pipe through the remote shell
//! (`--tunnel`). The end that listens gives the other one random token for each stream, over the
//! control channel; a connection must show one, and each is accepted once.

use crate::event::ExitCode;
use crate::hub::Fatal;
use lads_core::units::{Instant as CoreInstant, StreamId};
use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// What a connection says first.
const OPENING: [u8; 8] = *b"LADSDATA";
/// Opening, stream number, token.
const OPENING_BYTES: usize = 8 + 2 + 32;
/// What the listening end answers to a token that it gave.
const ACCEPTED: u8 = 1;
/// A connection that has not shown a token by then is closed.
const TOKEN_DEADLINE: Duration = Duration::from_secs(10);

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
        if let Err(error) = write_all(&stream.socket, &mut slices) {
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
}

fn write_all(socket: &OwnedFd, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    let mut rest = slices;
    while !rest.is_empty() {
        let batch = rest.len().min(1024);
        match rustix::io::writev(socket, &rest[..batch]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
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
    /// The source has sent so many frames on each stream.
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

/// A place where data streams can be connected to, with a token for each.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    pub(crate) port: u16,
    pub(crate) tokens: Vec<[u8; 32]>,
}

impl Listener {
    /// Listens for `count` streams on a port out of `ports` (any if not set): on this machine only
    /// if `is_local`, otherwise on all its addresses.
    pub(crate) fn open(
        count: u16,
        ports: Option<(u16, u16)>,
        is_local: bool,
    ) -> Result<Self, Fatal> {
        let listener = listen(ports, is_local).map_err(|error| {
            let range = ports.map_or_else(String::new, |(a, b)| format!(" on ports {a} to {b}"));
            Fatal::new(ExitCode::Network, format!("cannot listen for data streams{range}: {error}"))
        })?;
        let port = listener.local_addr().map_or(0, |address| address.port());
        let mut tokens = vec![[0; 32]; usize::from(count)];
        for token in &mut tokens {
            fill_random(token)
                .map_err(|error| Fatal::new(ExitCode::Other, format!("no randomness: {error}")))?;
        }
        Ok(Self { listener, port, tokens })
    }

    /// Waits until each token was shown, at most so long. Every connection has a thread of its own
    /// until it has shown its token, so that one that says nothing holds up no other.
    pub(crate) fn accept_all(self, deadline: Duration) -> Result<Vec<OwnedFd>, Fatal> {
        let until = Instant::now() + deadline;
        let count = self.tokens.len();
        let port = self.port;
        let (admitted, arrivals) = mpsc::channel();
        let door = Arc::new(Door {
            used: self.tokens.iter().map(|_| AtomicBool::new(false)).collect(),
            tokens: self.tokens,
            is_shut: AtomicBool::new(false),
            undecided: AtomicUsize::new(0),
        });
        let (listener, other) = (self.listener, Arc::clone(&door));
        crate::session::spawn("lads-accept", move || other.let_in(&listener, &admitted));
        let mut streams: Vec<Option<OwnedFd>> = (0..count).map(|_| None).collect();
        while streams.iter().any(Option::is_none) {
            let left = until.saturating_duration_since(Instant::now());
            match arrivals.recv_timeout(left) {
                Ok((index, stream)) => streams[index] = Some(stream),
                Err(_) => {
                    door.is_shut.store(true, Ordering::Relaxed);
                    let text = format!(
                        "no data connection arrived on port {port} within {} s",
                        deadline.as_secs()
                    );
                    return Err(Fatal::new(ExitCode::Network, text));
                }
            }
        }
        door.is_shut.store(true, Ordering::Relaxed);
        Ok(streams.into_iter().flatten().collect())
    }
}

/// Who may come in.
#[derive(Debug)]
struct Door {
    tokens: Vec<[u8; 32]>,
    /// Whether each token has been shown.
    used: Vec<AtomicBool>,
    is_shut: AtomicBool,
    /// Connections that have not shown a token yet.
    undecided: AtomicUsize,
}

/// More connections than this that have shown no token are not looked at.
const UNDECIDED_MAX: usize = 100;

impl Door {
    /// Accepts connections until shut.
    fn let_in(self: Arc<Self>, listener: &TcpListener, admitted: &mpsc::Sender<(usize, OwnedFd)>) {
        if listener.set_nonblocking(true).is_err() {
            return;
        }
        while !self.is_shut.load(Ordering::Relaxed) {
            wait_readable(listener, Duration::from_millis(200));
            let Ok((stream, _)) = listener.accept() else { continue };
            if self.undecided.fetch_add(1, Ordering::Relaxed) >= UNDECIDED_MAX {
                self.undecided.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (door, admitted) = (Arc::clone(&self), admitted.clone());
            crate::session::spawn("lads-door", move || {
                if let Ok(arrival) = door.admit(stream) {
                    let _ = admitted.send(arrival);
                }
                door.undecided.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    /// Reads a connection's token; lets it in if the token is right and was not shown before.
    fn admit(&self, mut stream: TcpStream) -> io::Result<(usize, OwnedFd)> {
        stream.set_nonblocking(false)?;
        let mut opening = [0; OPENING_BYTES];
        read_until(&mut stream, &mut opening, Instant::now() + TOKEN_DEADLINE)?;
        let index = usize::from(u16::from_le_bytes([opening[8], opening[9]]));
        let is_right = opening[..8] == OPENING
            && self.tokens.get(index).is_some_and(|token| is_same(token, &opening[10..]));
        if !is_right || self.used[index].swap(true, Ordering::Relaxed) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.write_all(&[ACCEPTED])?;
        stream.set_read_timeout(None)?;
        tune(&stream);
        Ok((index, stream.into()))
    }
}

/// Waits until there is something to read, or the end; `false` after so long, below a second.
pub(crate) fn wait_readable(from: impl AsFd, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut polled = [PollFd::new(&from, PollFlags::IN)];
    let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
    poll(&mut polled, Some(&timeout)).is_ok_and(|count| count > 0)
}

/// Reads with one deadline for all of it, not one for each byte.
fn read_until(stream: &mut TcpStream, to: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while filled < to.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut to[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    Ok(())
}

/// Compares in a time that does not tell how much was right.
fn is_same(token: &[u8; 32], shown: &[u8]) -> bool {
    token.iter().zip(shown).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

fn listen(ports: Option<(u16, u16)>, is_local: bool) -> io::Result<TcpListener> {
    let (first, last) = ports.unwrap_or((0, 0));
    let mut failure = io::Error::from(io::ErrorKind::AddrInUse);
    for port in first..=last {
        for address in listen_addresses(is_local) {
            match bind(SocketAddr::new(address, port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => failure = error,
            }
        }
    }
    Err(failure)
}

/// Where to listen: IPv6 with IPv4 in it first, IPv4 alone where there is no IPv6.
fn listen_addresses(is_local: bool) -> Vec<IpAddr> {
    if is_local {
        vec![Ipv4Addr::LOCALHOST.into()]
    } else {
        vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(128)?;
    Ok(socket.into())
}

/// Connects a stream and shows its token.
///
/// # Errors
/// If nobody listens there, or the token is refused.
pub(crate) fn connect(
    address: SocketAddr,
    index: u16,
    token: &[u8; 32],
    timeout: Duration,
) -> io::Result<OwnedFd> {
    let stream = TcpStream::connect_timeout(&address, timeout)?;
    tune(&stream);
    show_token(&stream, index, token, timeout)?;
    Ok(stream.into())
}

/// Shows a token on a connection that something else has made.
pub(crate) fn show_token_on(
    socket: OwnedFd,
    index: u16,
    token: &[u8; 32],
    timeout: Duration,
) -> io::Result<OwnedFd> {
    let socket = Socket::from(socket);
    socket.set_read_timeout(Some(timeout))?;
    (&socket).write_all(&opening(index, token))?;
    expect_accepted(&socket)?;
    socket.set_read_timeout(None)?;
    Ok(socket.into())
}

fn show_token(
    stream: &TcpStream,
    index: u16,
    token: &[u8; 32],
    timeout: Duration,
) -> io::Result<()> {
    stream.set_read_timeout(Some(timeout))?;
    let mut writer = stream;
    writer.write_all(&opening(index, token))?;
    expect_accepted(stream)?;
    stream.set_read_timeout(None)
}

fn opening(index: u16, token: &[u8; 32]) -> [u8; OPENING_BYTES] {
    let mut opening = [0; OPENING_BYTES];
    opening[..8].copy_from_slice(&OPENING);
    opening[8..10].copy_from_slice(&index.to_le_bytes());
    opening[10..].copy_from_slice(token);
    opening
}

fn expect_accepted(mut stream: impl Read) -> io::Result<()> {
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer[0] == ACCEPTED { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Sets what helps and costs nothing; a kernel that refuses one of it does no harm.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let probes = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let _ = socket.set_tcp_keepalive(&probes);
    if stream.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback()) {
        // On a path that cannot be congested, pacing and probing only cost time: BBR took 8 to
        // 14 % of the throughput over loopback.
        let _ = sockopt::set_tcp_congestion(stream, "reno");
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
