//! A TCP connection for each data stream. Messages use the pipes of the other end instead.
//!
//! [`door`] says how connections are opened, and who may open them.

mod door;
mod service;

#[cfg(test)]
pub(crate) use door::tests::opening;
pub(crate) use door::{Listener, await_answer, connect};
pub(crate) use service::{Service, connect_to_service};

use super::assembly::Assembly;
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
    socket: OnceLock<Option<Arc<OwnedFd>>>,
    /// Before it is open, the connection on which it may be.
    shown: Mutex<Option<Arc<Shown>>>,
    /// One of the two was set.
    changed: Condvar,
    /// Set when the stream is ended.
    ended: StopFlag,
    traffic: Traffic,
}

/// A connection that has shown its token, and has no answer yet.
#[derive(Debug)]
struct Shown {
    socket: Arc<OwnedFd>,
    is_accepted: OnceLock<bool>,
}

impl Stream {
    /// The connection; waits until it is open.
    fn socket(&self) -> io::Result<&OwnedFd> {
        let socket = self.socket.wait().as_deref();
        socket.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Sends a frame while the token has no answer, and returns when it has one: so only one frame
    /// is in flight, whose pieces the caller still has, and it is sent again on the next connection
    /// if this one is closed. Returns `false` if the stream is open now, or ended.
    fn send_early(&self, pieces: &[IoSlice<'_>]) -> io::Result<bool> {
        while let Some(shown) = self.wait_until_shown() {
            let write = |pieces: &[IoSlice<'_>]| rustix::io::writev(&shown.socket, pieces);
            let written = write_all(&mut pieces.to_vec(), &self.traffic, write);
            if *shown.is_accepted.wait() {
                return written.map(|()| true);
            }
        }
        Ok(false)
    }

    /// A connection that has shown its token; `None` if the stream is open, or ended.
    fn wait_until_shown(&self) -> Option<Arc<Shown>> {
        let mut shown = lock(&self.shown);
        while self.socket.get().is_none() {
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
    pub(crate) fn open(&self, index: usize, socket: OwnedFd) {
        self.limit_silence(&socket);
        let stream = &self.streams[index];
        let _ = stream.socket.set(Some(Arc::new(socket)));
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
        socket: OwnedFd,
        answer: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        self.limit_silence(&socket);
        let (stream, socket) = (&self.streams[index], Arc::new(socket));
        let shown = Shown { socket: Arc::clone(&socket), is_accepted: OnceLock::new() };
        let shown = Arc::new(shown);
        stream.set_shown(Some(Arc::clone(&shown)));
        let answered = answer(&socket);
        if answered.is_ok() {
            let _ = stream.socket.set(Some(socket));
        } else {
            // Whoever still writes to it returns.
            end_socket(&socket);
        }
        stream.set_shown(None);
        let _ = shown.is_accepted.set(answered.is_ok());
        answered
    }

    /// How many bytes this host, which is that end, lets a stream have in flight
    /// ([`window_bytes`]). `None` if no stream is open.
    pub(crate) fn window_bytes(&self, side: Side) -> Option<u64> {
        let mut sockets = self.streams.iter().filter_map(|stream| stream.socket.get()?.as_deref());
        sockets.next().map(|socket| window_bytes(socket, side))
    }

    /// Whether a connection for this stream is still wanted: it is not open, and was not ended.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.streams[index].socket.get().is_none()
    }

    /// Set when this stream is ended.
    pub(crate) fn ended(&self, index: usize) -> &StopFlag {
        &self.streams[index].ended
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
        let is_open = || matches!(self.streams[stream.index()].socket.get(), Some(Some(_)));
        self.is_needed(stream) || is_open()
    }

    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let stream = &self.streams[stream.index()];
        if stream.socket.get().is_none() && stream.send_early(pieces)? {
            return Ok(());
        }
        let socket = stream.socket()?;
        write_all(pieces, &stream.traffic, |pieces| rustix::io::writev(socket, pieces))
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        let stream = Arc::clone(&self.streams[stream.index()]);
        Box::new(TcpReceiver { stream, buffers, assembly: Assembly::new() })
    }

    fn end(&self, stream: StreamId) {
        let stream = &self.streams[stream.index()];
        stream.ended.set("the stream was ended");
        let open = stream.socket.get_or_init(|| None);
        let shown = lock(&stream.shown);
        stream.changed.notify_all();
        let shown = shown.as_ref().map(|shown| &shown.socket);
        if let Some(socket) = open.as_ref().or(shown) {
            end_socket(socket);
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        let sockets = self.streams.iter().filter_map(|stream| stream.socket.get()?.as_deref());
        sockets.filter_map(lads_sys::round_trip).min()
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
}

impl Receiver for TcpReceiver {
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool> {
        let socket = self.stream.socket()?;
        loop {
            match rustix::io::read(socket, self.assembly.wanted()) {
                Ok(0) if self.assembly.is_between_frames() => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.stream.traffic.on_read();
                    if self.assembly.on_bytes(count, self.buffers.as_ref(), frame)? {
                        return Ok(true);
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for TcpReceiver {
    fn drop(&mut self) {
        self.assembly.abandon(self.buffers.as_ref());
    }
}
