//! How data streams are opened: one end listens, the other connects.
//!
//! The end that listens gives the other end one random secret for each stream, over the control
//! channel. A connection must show the token that follows from it, and each is accepted once.
//! Anybody can connect to the port, so a connection without a token gets little. One thread looks
//! at all such connections in turn, at a limited number at a time. If there are more, the one that
//! has been silent longest is closed. A peer that was closed by mistake tries again.

use super::super::seal::{Role, SALT_BYTES, Seals, salt, token};
use super::{Line, Tcp, window_bytes};
use crate::event::ExitCode;
use crate::fatal::{Fatal, own_host};
use crate::patience::{Cut, Patience};
use crate::whole::fill_random;
use lads_core::issue::Side;
use lads_core::message::DataPort;
use lads_core::protection::{Protection, Secret};
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
/// The opening, the number of the stream, the token, the salt.
pub(crate) const OPENING_BYTES: usize = 8 + 2 + 32 + SALT_BYTES;
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

/// A port to which data streams can be connected, with a secret for each.
#[derive(Debug)]
pub(crate) struct Listener {
    listener: TcpListener,
    pub(crate) port: u16,
    pub(crate) secrets: Vec<Secret>,
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
        let mut secrets = vec![Secret([0; 32]); usize::from(count)];
        for Secret(secret) in &mut secrets {
            fill_random(secret).map_err(|error| {
                Fatal::new(ExitCode::Other, format!("cannot get random bytes: {error}"))
            })?;
        }
        Ok(Self { listener, port, secrets })
    }

    /// What the other end, which connects to this one, is told. This is that end, and `address` is
    /// the one at which it is reached.
    pub(crate) fn port_at(&self, address: String, side: Side) -> DataPort {
        let (port, secrets) = (self.port, self.secrets.clone());
        DataPort { address, port, secrets, window_bytes: window_bytes(&self.listener, side) }
    }

    /// Opens each stream that is needed when its token is shown. Returns when none is wanted any
    /// more, or when `control`, from which the other end is read, is closed: then nobody will
    /// connect any more, and the next attempt needs the port. The door that is left is for streams
    /// that may come or not. `contact_limit`: how long the first stream may take, if the data can
    /// go through the remote shell instead.
    pub(crate) fn accept_all<'t>(
        self,
        (streams, protection): (&'t Tcp, Protection),
        contact_limit: Option<Duration>,
        patience: &Patience<'_>,
        control: impl AsFd,
    ) -> Result<Door<'t>, Fatal> {
        let (port, mut door) = (self.port, Door::new(self, streams, protection)?);
        let needed = 0..streams.needed_count();
        let first = contact_limit.map(|limit| patience.part(limit));
        while door.is_wanted(&needed) {
            let first = first.as_ref().filter(|_| needed.clone().all(|it| streams.wants(it)));
            let waited = door.wait(first.unwrap_or(patience), control.as_fd());
            let is_gone = waited.map_err(|cut| match cut {
                Cut::Stopped | Cut::NoThread => cut.fatal(""),
                Cut::Silent(_) | Cut::Late(_) => none_arrived(port, first.is_some(), patience),
            })?;
            if is_gone {
                return Err(Fatal::new(ExitCode::Network, "the other end has disconnected"));
            }
            door.look(Instant::now(), &needed, |_| ());
        }
        Ok(door)
    }
}

/// The error that no connection has come. `may_tunnel`: whether the data can go another way.
fn none_arrived(port: u16, may_tunnel: bool, patience: &Patience<'_>) -> Fatal {
    let seconds = patience.limit().as_secs();
    let text = format!("no data connection arrived on port {port} within {seconds} s of the start");
    let fatal = Fatal::new(ExitCode::Network, text);
    if !may_tunnel {
        return fatal;
    }
    let reason = format!("data connections to port {port} of {} do not arrive", own_host());
    Fatal { is_timeout: true, ..fatal.when_blocked(reason) }
}

/// A port, and the connections to it that have not shown yet that they may come in.
#[derive(Debug)]
pub(super) struct Lobby<G> {
    listener: TcpListener,
    /// The oldest first.
    undecided: VecDeque<Visitor<G>>,
    /// The maximum number of these.
    undecided_max: usize,
}

/// How a connection shows that it may come in.
pub(super) trait Greeting {
    /// Reads the bytes that are there, and answers if they need an answer, without waiting.
    fn go_on(&mut self, stream: &TcpStream) -> Shown;

    /// Whether it has shown more than anybody who just connects. If there are too many connections,
    /// others go first.
    fn has_begun(&self) -> bool {
        false
    }
}

/// The connections that wait at the port of a transfer.
#[derive(Debug)]
pub(crate) struct Door<'t> {
    lobby: Lobby<Opening>,
    secrets: Vec<Secret>,
    protection: Protection,
    /// One for each secret.
    streams: &'t Tcp,
    /// Since when this end has waited for all streams.
    since: Instant,
}

/// A connection that has not shown yet that it may come in.
#[derive(Debug)]
pub(super) struct Visitor<G> {
    stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) greeting: G,
    since: Instant,
}

/// The first bytes of a data stream, as far as they have come.
#[derive(Debug)]
struct Opening {
    bytes: [u8; OPENING_BYTES],
    filled: usize,
}

/// What a connection has shown so far.
pub(super) enum Shown {
    /// Too few bytes.
    Part,
    /// Everything.
    Whole,
    /// Other bytes, or the end of the connection.
    Other,
}

impl<'t> Door<'t> {
    fn new(listener: Listener, streams: &'t Tcp, protection: Protection) -> Result<Self, Fatal> {
        let Listener { listener, secrets, .. } = listener;
        let lobby = Lobby::new(listener, UNDECIDED_MAX).map_err(|error| {
            Fatal::new(ExitCode::Other, format!("cannot wait for data streams: {error}"))
        })?;
        Ok(Self { lobby, secrets, protection, streams, since: Instant::now() })
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
        let more = needed_count..(needed_count + count).min(self.secrets.len());
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
        for visitor in self.lobby.look(now, Opening::new, |_, _| ()) {
            let stream = StreamId(visitor.greeting.index());
            if numbers.contains(&stream.index()) && self.admit(visitor) {
                on_open(stream);
            }
        }
    }

    /// Accepts a connection if its token is right and was not shown before.
    fn admit(&self, visitor: Visitor<Opening>) -> bool {
        let opening = &visitor.greeting;
        let index = usize::from(opening.index());
        let Some(Secret(secret)) = self.secrets.get(index) else { return false };
        if !opening.has(&token(secret)) || !self.streams.wants(index) {
            return false;
        }
        let seals = Seals::new(self.protection, secret, &opening.salt(), Role::Listens);
        // This is one byte, and the first that is written, so the write does not block.
        if (&visitor.stream).write_all(&[ACCEPTED]).is_err() {
            return false;
        }
        let Some((stream, _)) = visitor.let_in() else { return false };
        self.streams.open(index, Line::new(stream.into(), seals));
        true
    }
}

impl<G: Greeting> Lobby<G> {
    /// # Errors
    /// If the port cannot be looked at without waiting.
    pub(super) fn new(listener: TcpListener, undecided_max: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, undecided: VecDeque::new(), undecided_max })
    }

    /// What is to be waited for before [`Self::look`].
    pub(super) fn polled(&self) -> impl Iterator<Item = PollFd<'_>> {
        let visitors = self.undecided.iter();
        let visitors = visitors.map(|visitor| PollFd::new(&visitor.stream, PollFlags::IN));
        std::iter::once(PollFd::new(&self.listener, PollFlags::IN)).chain(visitors)
    }

    /// Looks at all connections that are undecided, then at new ones, each of which begins with
    /// `begin`. Returns those that have shown everything. `refused` sees those that have shown
    /// something else.
    pub(super) fn look(
        &mut self,
        now: Instant,
        begin: impl Fn() -> G,
        mut refused: impl FnMut(SocketAddr, G),
    ) -> Vec<Visitor<G>> {
        let mut shown = Vec::new();
        for visitor in std::mem::take(&mut self.undecided) {
            if now.saturating_duration_since(visitor.since) < TOKEN_DEADLINE {
                self.look_at(visitor, &mut shown, &mut refused);
            }
        }
        // At most this many, before the others are looked at again.
        for _ in 0..self.undecided_max {
            match self.listener.accept() {
                Ok((stream, peer)) if stream.set_nonblocking(true).is_ok() => {
                    let visitor = Visitor { stream, peer, greeting: begin(), since: now };
                    self.look_at(visitor, &mut shown, &mut refused);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // Most likely there are no descriptors left.
                Err(_) if self.push_out() => {}
                Err(_) => {
                    // The connection stays at the port, so that a wait would end at once.
                    std::thread::sleep(FULL_PAUSE);
                    break;
                }
            }
        }
        shown
    }

    fn look_at(
        &mut self,
        mut visitor: Visitor<G>,
        shown: &mut Vec<Visitor<G>>,
        refused: &mut impl FnMut(SocketAddr, G),
    ) {
        match visitor.greeting.go_on(&visitor.stream) {
            Shown::Part => {
                if self.undecided.len() >= self.undecided_max {
                    self.push_out();
                }
                self.undecided.push_back(visitor);
            }
            Shown::Whole => shown.push(visitor),
            Shown::Other => refused(visitor.peer, visitor.greeting),
        }
    }

    /// What those who are undecided have shown.
    #[cfg(test)]
    pub(super) fn undecided(&self) -> impl Iterator<Item = &G> {
        self.undecided.iter().map(|visitor| &visitor.greeting)
    }

    /// Closes the oldest connection, of those that have shown nothing if there are any. Returns
    /// whether there was one.
    fn push_out(&mut self) -> bool {
        let silent = self.undecided.iter().position(|visitor| !visitor.greeting.has_begun());
        self.undecided.remove(silent.unwrap_or(0)).is_some()
    }
}

impl<G> Visitor<G> {
    /// It may come in; `None` if it is gone.
    pub(super) fn let_in(self) -> Option<(TcpStream, G)> {
        self.stream.set_nonblocking(false).ok()?;
        tune(&self.stream);
        Some((self.stream, self.greeting))
    }
}

impl Opening {
    fn new() -> Self {
        Self { bytes: [0; OPENING_BYTES], filled: 0 }
    }

    /// The number of the stream that it wants to be.
    fn index(&self) -> u16 {
        u16::from_le_bytes([self.bytes[8], self.bytes[9]])
    }

    /// Whether it has this token.
    fn has(&self, token: &[u8; 32]) -> bool {
        is_same(token, &self.bytes[10..][..32])
    }

    /// What the keys of this connection follow from, beside the secret.
    fn salt(&self) -> [u8; SALT_BYTES] {
        self.bytes[42..].try_into().expect("it has this length")
    }
}

impl Greeting for Opening {
    fn go_on(&mut self, mut stream: &TcpStream) -> Shown {
        loop {
            match stream.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Shown::Other,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Shown::Part,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Shown::Other,
            }
            let known = self.filled.min(OPENING.len());
            if self.bytes[..known] != OPENING[..known] {
                return Shown::Other;
            }
            if self.filled == OPENING_BYTES {
                return Shown::Whole;
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
    (Secret(secret), protection): (&Secret, Protection),
    patience: &Patience<'_>,
) -> io::Result<Line> {
    let salt = salt()?;
    let stream = connect_to(address, patience)?;
    // These are the first bytes on the connection, so there is room for them.
    if rustix::io::write(&stream, &opening(index, (&token(secret), &salt)))? != OPENING_BYTES {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(Line::new(stream.into(), Seals::new(protection, secret, &salt, Role::Connects)))
}

/// Connects, while patience lasts.
pub(super) fn connect_to(address: SocketAddr, patience: &Patience<'_>) -> io::Result<TcpStream> {
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

fn opening(index: u16, (token, salt): (&[u8; 32], &[u8; SALT_BYTES])) -> [u8; OPENING_BYTES] {
    let mut opening = [0; OPENING_BYTES];
    opening[..8].copy_from_slice(&OPENING);
    opening[8..10].copy_from_slice(&index.to_le_bytes());
    opening[10..42].copy_from_slice(token);
    opening[42..].copy_from_slice(salt);
    opening
}

/// Sets options that help and cost nothing. It does no harm if the kernel refuses one.
pub(crate) fn tune(stream: &TcpStream) {
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
