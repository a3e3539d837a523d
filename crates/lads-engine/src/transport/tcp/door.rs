//! How data streams are opened: one end listens, the other connects.
//!
//! The end that listens gives the other end one random token for each stream, over the control
//! channel. A connection must show a token, and each token is accepted once. Anybody can connect to
//! the port, so a connection without a token gets little. One thread looks at all such connections
//! in turn, at a limited number at a time. If there are more, the one that has been silent longest
//! is closed. A peer that was closed by mistake tries again.

use super::{Tcp, window_bytes};
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::patience::{Cut, Patience};
use crate::whole::fill_random;
use lads_core::issue::Side;
use lads_core::units::StreamId;
use lads_sys::widen_window;
use rustix::event::{PollFd, PollFlags};
use rustix::net::sockopt;
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The first bytes of a connection.
const OPENING: [u8; 8] = *b"LADSDATA";
/// The opening, the number of the stream, the token.
const OPENING_BYTES: usize = 8 + 2 + 32;
/// The answer of the listening end to a valid token.
const ACCEPTED: u8 = 1;
/// A connection that has not shown a token within this time is closed. A lost packet is sent again
/// within a second or three. With the double, a stranger would hold a place for twice as long.
const TOKEN_DEADLINE: Duration = Duration::from_secs(10);
/// The most connections without a token that are looked at; each takes some 100 bytes and a
/// descriptor. With half of them, strangers who connect faster than a round trip would more often
/// push out a peer far away. The double would take more of a process's 1,024 descriptors than the
/// streams do.
const UNDECIDED_MAX: usize = 100;
/// How long to wait before the next connection is accepted if there are no descriptors. With half,
/// the processor is used twice as often for nothing; with double, a connection waits as much longer
/// when there are some again.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// How long to wait for a port that is in use, and how often to try. The other end of an attempt
/// that was killed ends within milliseconds. If another transfer uses the port, the error comes
/// this much later.
const TAKEN_DEADLINE: Duration = Duration::from_secs(1);
const TAKEN_INTERVAL: Duration = Duration::from_millis(20);
/// How many connections the kernel keeps until they are looked at, which happens at once. If more
/// strangers than this connect at the same moment, TCP of the other end tries again after 1 s.
const BACKLOG: i32 = 1024;

/// Each connection has room for this many bytes from the start; without it, the window follows the
/// data a round trip late. A sender that begins with ten packets of 9,000 bytes could use 2.9 MB
/// after five round trips; then the kernel has adapted the window.
const WINDOW_BYTES: u32 = 4 << 20;

/// A connection takes more bytes only while it has fewer than this that were never sent. The kernel
/// would take twice what the window holds: a slow stream would collect frames while others have
/// none. 768 MiB over 128 ms, with CUBIC and the kernel's limits for windows, take 3.6 s with this
/// or half of it, 3.7 with double, and 3.95 without; 1.5 GiB with Reno, when every 5,000th packet
/// is lost, 14.5 instead of 16 s. At 0.28 ms there is no difference.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// A port to which data streams can be connected, with a token for each.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    pub(crate) port: u16,
    pub(crate) tokens: Vec<[u8; 32]>,
}

impl Listener {
    /// Listens for `count` streams on a port in `ports` (any port if not set): only on the loopback
    /// address if `is_local`, otherwise on all addresses. If all ports are in use, it tries again
    /// for a short time, because an earlier attempt may just be ending.
    pub(crate) fn open(
        count: u16,
        ports: Option<(u16, u16)>,
        is_local: bool,
        patience: &Patience<'_>,
    ) -> Result<Self, Fatal> {
        let patience = patience.part(TAKEN_DEADLINE);
        let listener = loop {
            match listen(ports, is_local) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if patience.pause(TAKEN_INTERVAL).is_err() {
                        break Err(error);
                    }
                }
                result => break result,
            }
        };
        let listener = listener.map_err(|error| {
            let range = ports.map_or_else(String::new, |(a, b)| format!(" on ports {a} to {b}"));
            Fatal::new(ExitCode::Network, format!("cannot listen for data streams{range}: {error}"))
        })?;
        let port = listener.local_addr().map_or(0, |address| address.port());
        let mut tokens = vec![[0; 32]; usize::from(count)];
        for token in &mut tokens {
            fill_random(token).map_err(|error| {
                Fatal::new(ExitCode::Other, format!("cannot get random bytes: {error}"))
            })?;
        }
        Ok(Self { listener, port, tokens })
    }

    /// How many bytes this host, which is that end, lets each of the streams have in flight.
    pub(crate) fn window_bytes(&self, side: Side) -> u64 {
        window_bytes(&self.listener, side)
    }

    /// Opens each stream that is needed when its token is shown. Returns when none is wanted any
    /// more, or when `control`, from which the other end is read, is closed: then nobody will
    /// connect any more, and the next attempt needs the port. The door that is left is for streams
    /// that may come or not.
    pub(crate) fn accept_all<'t>(
        self,
        streams: &'t Tcp,
        patience: &Patience<'_>,
        control: impl AsFd,
    ) -> Result<Door<'t>, Fatal> {
        let (port, mut door) = (self.port, Door::new(self.listener, self.tokens, streams)?);
        let needed = 0..streams.needed_count();
        while door.is_wanted(&needed) {
            let is_gone = door.wait(patience, control.as_fd()).map_err(|cut| match cut {
                Cut::Stopped | Cut::NoThread => cut.fatal(""),
                Cut::Silent(_) | Cut::Late(_) => {
                    let seconds = patience.limit().as_secs();
                    let text = format!(
                        "no data connection arrived on port {port} within {seconds} s of the start"
                    );
                    Fatal::new(ExitCode::Network, text)
                }
            })?;
            if is_gone {
                return Err(Fatal::new(ExitCode::Network, "the other end has disconnected"));
            }
            door.look(Instant::now(), &needed, |_| ());
        }
        Ok(door)
    }
}

/// A port, and the connections to it that have not shown a token yet.
#[derive(Debug)]
pub(super) struct Lobby {
    listener: TcpListener,
    /// What a connection must show first.
    opening: [u8; 8],
    /// Connections without a token, the oldest first.
    undecided: VecDeque<Visitor>,
    /// The maximum number of these.
    undecided_max: usize,
}

/// The connections that wait at the port of a transfer.
#[derive(Debug)]
pub(crate) struct Door<'t> {
    lobby: Lobby,
    tokens: Vec<[u8; 32]>,
    /// One for each token.
    streams: &'t Tcp,
    /// Since when this end has waited for all streams.
    since: Instant,
}

/// A connection that has not shown a token yet.
#[derive(Debug)]
pub(super) struct Visitor {
    stream: TcpStream,
    opening: [u8; OPENING_BYTES],
    filled: usize,
    since: Instant,
}

/// The result of reading from a connection without a token.
enum Shown {
    /// Too few bytes so far.
    Part,
    /// The whole opening.
    Opening,
    /// Other bytes, or the end of the connection.
    Other,
}

impl<'t> Door<'t> {
    fn new(listener: TcpListener, tokens: Vec<[u8; 32]>, streams: &'t Tcp) -> Result<Self, Fatal> {
        let lobby = Lobby::new(listener, OPENING, UNDECIDED_MAX).map_err(|error| {
            Fatal::new(ExitCode::Other, format!("cannot wait for data streams: {error}"))
        })?;
        Ok(Self { lobby, tokens, streams, since: Instant::now() })
    }

    /// Opens the first `count` of the streams that may come or not. Says which was opened. Returns
    /// when all of these are open, when none is wanted any more, when patience ends, or when
    /// `control` is closed.
    pub(crate) fn accept_more(
        mut self,
        count: usize,
        patience: &Patience<'_>,
        control: impl AsFd,
        mut on_more: impl FnMut(StreamId),
    ) {
        self.since = Instant::now();
        let needed_count = self.streams.needed_count();
        let more = needed_count..(needed_count + count).min(self.tokens.len());
        while self.is_wanted(&more) && matches!(self.wait(patience, &control), Ok(false)) {
            self.look(Instant::now(), &more, &mut on_more);
        }
    }

    /// Whether one of these tokens is waited for.
    fn is_wanted(&self, numbers: &Range<usize>) -> bool {
        numbers.clone().any(|index| self.streams.wants(index))
    }

    /// Waits a short time until there is something to look at. Returns whether the other end has
    /// closed the control channel.
    fn wait(&self, patience: &Patience<'_>, control: impl AsFd) -> Result<bool, Cut> {
        // Bytes that wait there are read later; only the end of the channel matters now.
        let mut polled = vec![PollFd::new(&control, PollFlags::RDHUP)];
        polled.extend(self.lobby.polled());
        patience.look(&mut polled, self.since)?;
        let end = PollFlags::HUP | PollFlags::RDHUP | PollFlags::ERR;
        Ok(polled[0].revents().intersects(end))
    }

    /// Looks at all connections, and takes those that show one of these tokens. Says which stream
    /// each opens.
    fn look(&mut self, now: Instant, numbers: &Range<usize>, mut on_open: impl FnMut(StreamId)) {
        for visitor in self.lobby.look(now) {
            let stream = StreamId(visitor.index());
            if numbers.contains(&stream.index()) && self.admit(visitor) {
                on_open(stream);
            }
        }
    }

    /// Accepts a connection if its token is right and was not shown before.
    fn admit(&self, visitor: Visitor) -> bool {
        let index = usize::from(visitor.index());
        let is_right = self.tokens.get(index).is_some_and(|token| visitor.has(token));
        if is_right
            && self.streams.wants(index)
            && let Some(stream) = visitor.accept()
        {
            self.streams.open(index, stream.into());
            return true;
        }
        false
    }
}

impl Lobby {
    /// # Errors
    /// If the port cannot be looked at without waiting.
    pub(super) fn new(
        listener: TcpListener,
        opening: [u8; 8],
        undecided_max: usize,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, opening, undecided: VecDeque::new(), undecided_max })
    }

    /// What is to be waited for before [`Self::look`].
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let visitors = self.undecided.iter();
        let visitors = visitors.map(|visitor| PollFd::new(&visitor.stream, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(visitors)
    }

    /// Looks at all connections without a token, then at new ones. Returns those that have shown
    /// one.
    pub(super) fn look(&mut self, now: Instant) -> Vec<Visitor> {
        let mut shown = Vec::new();
        for visitor in std::mem::take(&mut self.undecided) {
            if now.saturating_duration_since(visitor.since) < TOKEN_DEADLINE {
                self.look_at(visitor, &mut shown);
            }
        }
        // At most this many, before the others are looked at again.
        for _ in 0..self.undecided_max {
            match self.listener.accept() {
                Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                    let opening = [0; OPENING_BYTES];
                    let visitor = Visitor { stream, opening, filled: 0, since: now };
                    self.look_at(visitor, &mut shown);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Most likely there are no descriptors left: the oldest connection is closed.
                Err(_) if self.undecided.pop_front().is_some() => {}
                Err(_) => {
                    // The connection stays at the port, so that a wait would end at once.
                    std::thread::sleep(FULL_PAUSE);
                    break;
                }
            }
        }
        shown
    }

    fn look_at(&mut self, mut visitor: Visitor, shown: &mut Vec<Visitor>) {
        match visitor.read(&self.opening) {
            Shown::Part => {
                if self.undecided.len() >= self.undecided_max {
                    self.undecided.pop_front();
                }
                self.undecided.push_back(visitor);
            }
            Shown::Opening => shown.push(visitor),
            Shown::Other => {}
        }
    }
}

impl Visitor {
    /// The number of the stream that it wants to be.
    fn index(&self) -> u16 {
        u16::from_le_bytes([self.opening[8], self.opening[9]])
    }

    /// Whether it has shown this token.
    pub(super) fn has(&self, token: &[u8; 32]) -> bool {
        is_same(token, &self.opening[10..])
    }

    /// Tells it that its token is right; `None` if it is gone.
    pub(super) fn accept(mut self) -> Option<TcpStream> {
        // This is one byte, and the first that is written, so the write does not block.
        self.stream.write_all(&[ACCEPTED]).ok()?;
        self.stream.set_nonblocking(false).ok()?;
        tune(&self.stream);
        Some(self.stream)
    }

    /// Reads the bytes that are there.
    fn read(&mut self, wanted: &[u8; 8]) -> Shown {
        loop {
            match self.stream.read(&mut self.opening[self.filled..]) {
                Ok(0) => return Shown::Other,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Shown::Part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Shown::Other,
            }
            let known = self.filled.min(wanted.len());
            if self.opening[..known] != wanted[..known] {
                return Shown::Other;
            }
            if self.filled == OPENING_BYTES {
                return Shown::Opening;
            }
        }
    }
}

/// Compares in a time that does not depend on how much of the token is right.
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

/// The addresses to listen on: IPv6, which includes IPv4, first; IPv4 alone where there is no IPv6.
fn listen_addresses(is_local: bool) -> Vec<IpAddr> {
    if is_local {
        vec![Ipv4Addr::LOCALHOST.into()]
    } else {
        vec![Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()]
    }
}

pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // Connections of an earlier attempt may still be closing on the port.
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Connects a stream and shows its token. [`await_answer`] comes next.
///
/// # Errors
/// If nobody listens at the address, or if patience ends ([`Cut`]).
pub(crate) fn connect(
    address: SocketAddr,
    index: u16,
    token: &[u8; 32],
    patience: &Patience<'_>,
) -> io::Result<OwnedFd> {
    connect_with(address, &opening(OPENING, index, token), patience)
}

/// Connects, and shows the first bytes of a connection. [`await_answer`] comes next.
pub(super) fn connect_with(
    address: SocketAddr,
    opening: &[u8; OPENING_BYTES],
    patience: &Patience<'_>,
) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.connect(&address.into()) {
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) =>
        {
            patience.wait_writable(&socket)?;
            socket.take_error()?.map_or(Ok(()), Err)?;
        }
        result => result?,
    }
    socket.set_nonblocking(false)?;
    let stream = TcpStream::from(socket);
    tune(&stream);
    let stream = OwnedFd::from(stream);
    // These are the first bytes on the connection, so there is room for them.
    if rustix::io::write(&stream, opening)? != OPENING_BYTES {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(stream)
}

/// Waits until the other end has accepted the token.
///
/// # Errors
/// If the connection is closed before, or if patience ends ([`Cut`]).
pub(crate) fn await_answer(socket: &OwnedFd, patience: &Patience<'_>) -> io::Result<()> {
    patience.wait_readable(socket)?;
    let mut answer = [0];
    match rustix::io::read(socket, &mut answer)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ if answer[0] == ACCEPTED => Ok(()),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

pub(super) fn opening(word: [u8; 8], index: u16, token: &[u8; 32]) -> [u8; OPENING_BYTES] {
    let mut opening = [0; OPENING_BYTES];
    opening[..8].copy_from_slice(&word);
    opening[8..10].copy_from_slice(&index.to_le_bytes());
    opening[10..].copy_from_slice(token);
    opening
}

/// Sets options that help and cost nothing. It does no harm if the kernel refuses one.
fn tune(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let socket = socket2::SockRef::from(stream);
    let probes = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    let _ = socket.set_tcp_keepalive(&probes);
    let _ = widen_window(stream, WINDOW_BYTES);
    if stream.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback()) {
        // On a path that cannot be congested, pacing and probing only cost time: BBR took 8 to 14 %
        // of the throughput over loopback.
        let _ = sockopt::set_tcp_congestion(stream, "reno");
    } else {
        let _ = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }
}

#[cfg(test)]
pub(crate) mod tests;
