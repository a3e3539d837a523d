//! A TCP connection for each data stream. Messages use the pipes of the other end instead.
//!
//! [`door`] says how connections are opened, and who may open them.

mod door;
mod service;

pub(crate) use door::{Listener, await_answer, connect, tune};
#[cfg(test)]
pub(crate) use door::{OPENING_BYTES, tests::opening};
pub(crate) use service::{Guest, Service, connect_to_service};

use super::assembly::Assembly;
use super::seal::{Opener, Sealer, Seals};
use super::{Frame, GrantedBuffers, Receiver, Traffic, Transport, write_all};
use crate::board::lock;
use crate::stop::StopFlag;
use lads_core::issue::Side;
use lads_core::tuning::Tuning;
use lads_core::units::StreamId;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType, sendmsg,
    shutdown, socketpair, sockopt,
};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Data streams that are TCP connections.
#[derive(Debug)]
pub(crate) struct Tcp {
    streams: Vec<Arc<Stream>>,
    /// The streams from this number on may be opened or not: they are there once they are open.
    needed_count: usize,
    timeout: Duration,
}

#[derive(Debug, Default)]
struct Stream {
    /// The connection, once it is open; `None` if the stream was ended before.
    line: OnceLock<Option<Arc<Line>>>,
    /// Before it is open, the connection on which it may be.
    shown: Mutex<Option<Arc<Shown>>>,
    /// One of the two was set.
    changed: Condvar,
    /// Set when the stream is ended.
    ended: StopFlag,
    traffic: Traffic,
}

/// A connection, and what protects it, if anything does.
#[derive(Debug)]
pub(crate) struct Line {
    socket: OwnedFd,
    sealer: Option<Mutex<Sealer>>,
    /// Whoever receives takes it.
    opener: Mutex<Option<Opener>>,
}

/// A connection that has shown its token, and has no answer yet.
#[derive(Debug)]
struct Shown {
    line: Arc<Line>,
    is_accepted: OnceLock<bool>,
}

impl Line {
    /// A connection, and what protects it.
    pub(super) fn new(socket: OwnedFd, seals: Option<Seals>) -> Self {
        let (sealer, opener) = seals.map(|it| (Mutex::new(it.sealer), it.opener)).unzip();
        Self { socket, sealer, opener: Mutex::new(opener) }
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Sends pieces, which one thread at a time does.
    fn send(&self, pieces: &mut [IoSlice<'_>], traffic: &Traffic) -> io::Result<()> {
        let Some(sealer) = &self.sealer else { return self.write(pieces, traffic) };
        lock(sealer).write(pieces, |bytes| self.write(&mut [IoSlice::new(bytes)], traffic))
    }

    fn write(&self, pieces: &mut [IoSlice<'_>], traffic: &Traffic) -> io::Result<()> {
        write_all(pieces, traffic, |pieces| rustix::io::writev(&self.socket, pieces))
    }
}

/// Without protection.
impl From<OwnedFd> for Line {
    fn from(socket: OwnedFd) -> Self {
        Self::new(socket, None)
    }
}

impl Stream {
    /// The connection; waits until it is open.
    fn line(&self) -> io::Result<&Line> {
        let line = self.line.wait().as_deref();
        line.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Sends a frame while the token has no answer, and returns when it has one: so only one frame
    /// is in flight, whose pieces the caller still has, and it is sent again on the next connection
    /// if this one is closed. Returns `false` if the stream is open now, or ended.
    fn send_early(&self, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        while let Some(shown) = self.wait_until_shown() {
            let written = shown.line.send(&mut pieces.to_vec(), &self.traffic);
            if *shown.is_accepted.wait() {
                return written.map(|()| true);
            }
        }
        Ok(false)
    }

    /// A connection that has shown its token; `None` if the stream is open, or ended.
    fn wait_until_shown(&self) -> Option<Arc<Shown>> {
        let mut shown = lock(&self.shown);
        while self.line.get().is_none() {
            if let Some(shown) = &*shown {
                return Some(Arc::clone(shown));
            }
            shown = self.changed.wait(shown).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Takes note of a connection that has shown its token, or of the end of that.
    fn set_shown(&self, connection: Option<Arc<Shown>>) {
        *lock(&self.shown) = connection;
        self.changed.notify_all();
    }
}

impl Tcp {
    /// One stream for each socket; [`Self::opening`] says what `timeout` is.
    #[cfg(test)]
    pub(crate) fn new(sockets: Vec<OwnedFd>, timeout: Duration) -> Self {
        let tcp = Self::opening(sockets.len(), timeout);
        for (index, socket) in sockets.into_iter().enumerate() {
            tcp.open(index, socket);
        }
        tcp
    }

    /// As many streams, of which none is open yet. Whoever sends or receives on a stream waits
    /// until it is open or ended. A peer that does not acknowledge data for `timeout` counts as
    /// dead.
    pub(crate) fn opening(count: usize, timeout: Duration) -> Self {
        let streams = (0..count).map(|_| Arc::default()).collect();
        Self { streams, needed_count: count, timeout }
    }

    /// Adds `count` streams that may be opened or not.
    pub(crate) fn and_more(mut self, count: usize) -> Self {
        self.streams.extend((0..count).map(|_| Arc::default()));
        self
    }

    /// The number of streams without which a transfer does not begin.
    pub(crate) fn needed_count(&self) -> usize {
        self.needed_count
    }

    /// The connection of this stream is open. It is closed again if the stream was ended meanwhile.
    pub(crate) fn open(&self, index: usize, line: impl Into<Line>) {
        let line = line.into();
        self.limit_silence(&line.socket);
        let stream = &self.streams[index];
        let _ = stream.line.set(Some(Arc::new(line)));
        stream.set_shown(None);
    }

    /// This connection for a stream has shown its token: the stream may send its first frame on it
    /// while `answer` waits for the answer, which saves a round trip. Then the stream is open.
    ///
    /// # Errors
    /// That of `answer`: the connection is closed, and another one may be tried.
    pub(crate) fn open_early(
        &self,
        index: usize,
        line: impl Into<Line>,
        answer: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let (stream, line) = (&self.streams[index], Arc::new(line.into()));
        self.limit_silence(&line.socket);
        let shown = Shown { line: Arc::clone(&line), is_accepted: OnceLock::new() };
        let shown = Arc::new(shown);
        stream.set_shown(Some(Arc::clone(&shown)));
        let answered = answer(&line.socket);
        if answered.is_ok() {
            let _ = stream.line.set(Some(line));
        } else {
            // Whoever still writes to it returns.
            end_socket(&line.socket);
        }
        stream.set_shown(None);
        let _ = shown.is_accepted.set(answered.is_ok());
        answered
    }

    /// How many bytes this host, which is that end, lets a stream have in flight
    /// ([`window_bytes`]). `None` if no stream is open.
    pub(crate) fn window_bytes(&self, side: Side) -> Option<u64> {
        self.lines().next().map(|line| window_bytes(&line.socket, side))
    }

    /// Whether a connection for this stream is still wanted: it is not open, and was not ended.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.streams[index].line.get().is_none()
    }

    /// Set when this stream is ended.
    pub(crate) fn ended(&self, index: usize) -> &StopFlag {
        &self.streams[index].ended
    }

    /// The connections that are open.
    fn lines(&self) -> impl Iterator<Item = &Line> {
        self.streams.iter().filter_map(|stream| stream.line.get()?.as_deref())
    }

    fn limit_silence(&self, socket: &OwnedFd) {
        let millis = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX);
        // An error means that it is not TCP; then other checks must notice a dead peer.
        let _ = sockopt::set_tcp_user_timeout(socket, millis);
    }
}

impl Transport for Tcp {
    fn stream_count(&self) -> u16 {
        u16::try_from(self.streams.len()).expect("the number of streams is 16 bits")
    }

    fn is_needed(&self, stream: StreamId) -> bool {
        stream.index() < self.needed_count
    }

    fn is_there(&self, stream: StreamId) -> bool {
        let is_open = || matches!(self.streams[stream.index()].line.get(), Some(Some(_)));
        self.is_needed(stream) || is_open()
    }

    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let stream = &self.streams[stream.index()];
        if stream.line.get().is_none() && stream.send_early(pieces)? {
            return Ok(());
        }
        stream.line()?.send(pieces, &stream.traffic)
    }

    fn send_last(&self, stream: StreamId, head: &[u8], payload: &mut [u8]) -> io::Result<()> {
        let open = &self.streams[stream.index()];
        if let Some(Some(line)) = open.line.get()
            && let Some(sealer) = &line.sealer
        {
            return lock(sealer)
                .write_last(&[head], payload, |pieces| line.write(pieces, &open.traffic));
        }
        self.send(stream, &mut [IoSlice::new(head), IoSlice::new(payload)])
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        let stream = Arc::clone(&self.streams[stream.index()]);
        Box::new(TcpReceiver { stream, buffers, assembly: Assembly::new(), opener: None })
    }

    fn end(&self, stream: StreamId) {
        let stream = &self.streams[stream.index()];
        stream.ended.set("the stream was ended");
        let open = stream.line.get_or_init(|| None);
        let shown = lock(&stream.shown);
        stream.changed.notify_all();
        let shown = shown.as_ref().map(|shown| &shown.line);
        if let Some(line) = open.as_ref().or(shown) {
            end_socket(&line.socket);
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        self.lines().filter_map(|line| lads_sys::round_trip(&line.socket)).min()
    }

    fn traffic(&self, stream: StreamId) -> &Traffic {
        &self.streams[stream.index()].traffic
    }
}

/// Returns the number of bytes that this host allows in flight on a connection like `socket`: sent
/// by a source, received by a sink.
///
/// The congestion control of a listening socket is that of the connections that it will accept.
pub(crate) fn window_bytes(socket: impl AsFd, side: Side) -> u64 {
    let congestion = lads_sys::congestion_control(socket);
    let congestion = congestion.map(|name| String::from_utf8_lossy(&name).into_owned());
    let congestion = congestion.unwrap_or_default();
    TcpLimits { congestion, ..TcpLimits::of_this_host() }.window_bytes(side)
}

/// The limits of a host for its TCP connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpLimits {
    /// Maximum memory for received bytes: the last number of `net.ipv4.tcp_rmem`.
    pub receive_bytes_max: u64,
    /// Maximum memory for bytes to send: the last number of `net.ipv4.tcp_wmem`.
    pub send_bytes_max: u64,
    /// Name of the default congestion control.
    pub congestion: String,
}

impl TcpLimits {
    /// Reads the limits of this host. Limits that cannot be read count as untuned.
    #[must_use]
    pub fn of_this_host() -> Self {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"));
        let last = |name| read(name).ok()?.split_whitespace().next_back()?.parse().ok();
        let limit = |name| last(name).unwrap_or(Tuning::DEFAULT.stream_window_bytes);
        let congestion = read("tcp_congestion_control").unwrap_or_default().trim().to_owned();
        Self { receive_bytes_max: limit("tcp_rmem"), send_bytes_max: limit("tcp_wmem"), congestion }
    }

    /// Returns the number of bytes that a connection can have in flight, as a source or a sink.
    ///
    /// The kernel's limits also count its own data about the bytes. A window that losses reduce
    /// counts as untuned.
    #[must_use]
    pub fn window_bytes(&self, side: Side) -> u64 {
        match side {
            Side::Sink => self.receive_bytes_max / 2,
            Side::Source => {
                let window = self.send_bytes_max / 8 * 5;
                let is_bbr = self.congestion.starts_with("bbr");
                let untuned = Tuning::DEFAULT.stream_window_bytes;
                if is_bbr { window } else { window.min(untuned) }
            }
        }
    }
}

/// Connects to an address, for a trial.
///
/// # Errors
/// If the connection does not open within the limit.
pub(crate) fn connect_within(address: SocketAddr, limit: Duration) -> io::Result<OwnedFd> {
    TcpStream::connect_timeout(&address, limit).map(Into::into)
}

/// Two ends of a connection within this host.
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Ends a connection: whoever reads from it or writes to it returns.
pub(crate) fn end_socket(socket: &OwnedFd) {
    // An error means that it has ended already.
    let _ = shutdown(socket, Shutdown::Both);
}

/// Writes pieces to a connection. If it is closed, that is an error and not a signal: the signal
/// (SIGPIPE) would end a program that does not know of the connection.
pub(super) fn write_quietly(socket: &File, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
    let nothing_else = &mut SendAncillaryBuffer::default();
    sendmsg(socket, pieces, nothing_else, SendFlags::NOSIGNAL)
}

/// Tells the other end of a connection that nothing more comes. A pipe is left as it is.
pub(super) fn end_writing(socket: impl AsFd) {
    let _ = shutdown(socket, Shutdown::Write);
}

struct TcpReceiver {
    stream: Arc<Stream>,
    buffers: Arc<dyn GrantedBuffers>,
    assembly: Assembly,
    /// Reads the records of the connection, if it has some.
    opener: Option<Opener>,
}

impl Receiver for TcpReceiver {
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool> {
        let Line { socket, opener, .. } = self.stream.line()?;
        if self.opener.is_none() {
            self.opener = lock(opener).take();
        }
        loop {
            let traffic = &self.stream.traffic;
            let wanted = self.assembly.wanted();
            let count = match &mut self.opener {
                None => uninterrupted(traffic, || rustix::io::read(socket, &mut *wanted))?,
                Some(opener) => opener.read(wanted, |pieces| {
                    uninterrupted(traffic, || rustix::io::readv(socket, pieces))
                })?,
            };
            if count == 0 {
                let is_whole = self.assembly.is_between_frames();
                return if is_whole { Ok(false) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            }
            if self.assembly.on_bytes(count, self.buffers.as_ref(), frame)? {
                return Ok(true);
            }
        }
    }
}

/// Reads until no signal interrupts it. Returns the number of bytes.
fn uninterrupted(
    traffic: &Traffic,
    mut read: impl FnMut() -> rustix::io::Result<usize>,
) -> io::Result<usize> {
    loop {
        match read() {
            Ok(count) => {
                if count > 0 {
                    traffic.on_read();
                }
                return Ok(count);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

impl Drop for TcpReceiver {
    fn drop(&mut self) {
        self.assembly.abandon(self.buffers.as_ref());
    }
}
