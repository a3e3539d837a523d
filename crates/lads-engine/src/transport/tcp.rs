//! A TCP connection for each data stream. Messages use the pipes of the other end instead.
//!
//! [`door`] says how connections are opened, and who may open them.

mod door;
mod service;

#[cfg(test)]
pub(crate) use door::tests::opening;
pub(crate) use door::{Listener, connect};
pub(crate) use service::{Service, connect_to_service};

use super::assembly::Assembly;
use super::{Frame, GrantedBuffers, Receiver, Traffic, Transport, write_all};
use lads_core::units::StreamId;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendFlags, Shutdown, SocketFlags, SocketType, sendmsg,
    shutdown, socketpair, sockopt,
};
use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Data streams that are TCP connections.
#[derive(Debug)]
pub(crate) struct Tcp {
    streams: Vec<Arc<Stream>>,
    timeout: Duration,
}

#[derive(Debug)]
struct Stream {
    /// The connection, once it is open; `None` if the stream was ended before.
    socket: OnceLock<Option<OwnedFd>>,
    traffic: Traffic,
}

impl Stream {
    /// The connection; waits until it is open.
    fn socket(&self) -> io::Result<&OwnedFd> {
        self.socket.wait().as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Tcp {
    /// One stream for each socket; [`Self::opening`] says what `timeout` is.
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
        let stream = || Arc::new(Stream { socket: OnceLock::new(), traffic: Traffic::default() });
        Self { streams: (0..count).map(|_| stream()).collect(), timeout }
    }

    /// The connection of this stream is open. It is closed again if the stream was ended meanwhile.
    pub(crate) fn open(&self, index: usize, socket: OwnedFd) {
        let millis = u32::try_from(self.timeout.as_millis()).unwrap_or(u32::MAX);
        // An error means that it is not TCP; then other checks must notice a dead peer.
        let _ = sockopt::set_tcp_user_timeout(&socket, millis);
        let _ = self.streams[index].socket.set(Some(socket));
    }
}

impl Transport for Tcp {
    fn stream_count(&self) -> u16 {
        u16::try_from(self.streams.len()).expect("the number of streams is 16 bits")
    }

    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let stream = &self.streams[stream.index()];
        let socket = stream.socket()?;
        write_all(pieces, &stream.traffic, |pieces| rustix::io::writev(socket, pieces))
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        let stream = Arc::clone(&self.streams[stream.index()]);
        Box::new(TcpReceiver { stream, buffers, assembly: Assembly::new() })
    }

    fn end(&self, stream: StreamId) {
        if let Some(socket) = self.streams[stream.index()].socket.get_or_init(|| None) {
            let _ = shutdown(socket, Shutdown::Both);
        }
    }

    fn round_trip(&self) -> Option<Duration> {
        let sockets = self.streams.iter().filter_map(|stream| stream.socket.get()?.as_ref());
        sockets.filter_map(lads_sys::round_trip).min()
    }

    fn traffic(&self, stream: StreamId) -> &Traffic {
        &self.streams[stream.index()].traffic
    }
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
