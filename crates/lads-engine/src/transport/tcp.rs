//! A TCP connection for each data stream. Messages use the pipes of the other end instead.
//!
//! [`door`] says how connections are opened, and who may open them.

mod door;

#[cfg(test)]
pub(crate) use door::tests::opening;
pub(crate) use door::{Listener, connect};

use super::assembly::Assembly;
use super::{Frame, GrantedBuffers, Receiver, Traffic, Transport, write_all};
use lads_core::units::StreamId;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown, sockopt};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Data streams that are TCP connections.
#[derive(Debug)]
pub(crate) struct Tcp {
    streams: Vec<Arc<Stream>>,
}

#[derive(Debug)]
struct Stream {
    socket: OwnedFd,
    traffic: Traffic,
}

impl Tcp {
    /// One stream for each socket. A peer that does not acknowledge data for `timeout` counts as
    /// dead.
    pub(crate) fn new(sockets: Vec<OwnedFd>, timeout: Duration) -> Self {
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        let stream = |socket: OwnedFd| {
            // An error means that it is not TCP; then other checks must notice a dead peer.
            let _ = sockopt::set_tcp_user_timeout(&socket, millis);
            Arc::new(Stream { socket, traffic: Traffic::default() })
        };
        Self { streams: sockets.into_iter().map(stream).collect() }
    }
}

impl Transport for Tcp {
    fn stream_count(&self) -> u16 {
        u16::try_from(self.streams.len()).expect("the number of streams is 16 bits")
    }

    fn send(&self, stream: StreamId, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let stream = &self.streams[stream.index()];
        write_all(pieces, &stream.traffic, |pieces| rustix::io::writev(&stream.socket, pieces))
    }

    fn receiver(&self, stream: StreamId, buffers: Arc<dyn GrantedBuffers>) -> Box<dyn Receiver> {
        let stream = Arc::clone(&self.streams[stream.index()]);
        Box::new(TcpReceiver { stream, buffers, assembly: Assembly::new() })
    }

    fn end(&self, stream: StreamId) {
        let _ = shutdown(&self.streams[stream.index()].socket, Shutdown::Both);
    }

    fn traffic(&self, stream: StreamId) -> &Traffic {
        &self.streams[stream.index()].traffic
    }
}

struct TcpReceiver {
    stream: Arc<Stream>,
    buffers: Arc<dyn GrantedBuffers>,
    assembly: Assembly,
}

impl Receiver for TcpReceiver {
    fn next_frame(&mut self, frame: &mut Frame) -> io::Result<bool> {
        loop {
            match rustix::io::read(&self.stream.socket, self.assembly.wanted()) {
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
