//! Connections to a server of remote files. Each begins with a handshake in which both ends show
//! that they have their keys, and is encrypted from then on; a client connects as often as it
//! likes.
//!
//! Anybody can connect to the port. So the handshakes of all who do are made by one thread, which
//! waits for none of them, and at most so many at a time (`Lobby`). A stranger who says nothing
//! takes a descriptor and some 100 bytes; one who says what a client says first, 10 KiB and less
//! than 0.4 ms of a processor; who sends as much as a handshake may have, 20 KiB. So a hundred of
//! them take 2 MiB at most.

use super::super::handshake::{Handshake, Listening, Purpose, Refusal, meet};
use super::super::seal::Seals;
use super::door::{Greeting, Lobby, Shown, bind, connect_to};
use crate::keys::{KeyPair, PublicKey};
use crate::patience::{Patience, Patient};
use crate::stop::StopFlag;
use rustix::event::PollFd;
use rustix::net::sockopt;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long [`Service::accept`] waits without looking at its stop flag.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A client that reads nothing for as long, or whose host is gone, loses its connection: as long as
/// a client waits for a server. With half, a program that was stopped by a debugger is lost sooner;
/// with double, it holds its place for longer.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// At least so long is between two lines about strangers. With half, who connects for ever fills a
/// log twice as fast; with double, a client with a wrong token is more often only counted.
const REFUSALS_INTERVAL: Duration = Duration::from_secs(10);

/// How often a client connects that is closed out in its handshake, and how long it waits before:
/// each time for twice as long. Then a server has no room for it because of strangers, or is none.
/// With half of the attempts, hundreds of strangers a second keep out a client far away; with
/// double, it takes 6 s to say that something else listens there.
const ATTEMPTS_MAX: u32 = 4;
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The first bytes of clients that showed their token in clear.
const OLD_OPENING: &[u8; 4] = b"LADS";

/// The most bytes that are read at a time: the head of a record, or most of a handshake.
const READ_BYTES: usize = 1024;

/// A port at which clients are let in.
#[derive(Debug)]
pub(crate) struct Service {
    lobby: Lobby<Meeting>,
    listening: Listening,
    /// The key of all clients.
    clients: PublicKey,
    address: SocketAddr,
    refusals: Refusals,
}

/// A client that was let in.
pub(crate) struct Guest {
    pub(crate) socket: OwnedFd,
    pub(crate) seals: Seals,
    /// What it is called in messages.
    pub(crate) name: String,
}

impl Service {
    /// Listens at an address with this key, for those with that key; port 0 is any port. At most
    /// `visitors_max` handshakes are made at a time.
    ///
    /// # Errors
    /// If nobody can listen there.
    pub(crate) fn open(
        address: SocketAddr,
        own: &KeyPair,
        clients: PublicKey,
        visitors_max: usize,
    ) -> io::Result<Self> {
        let listening = Listening::new(own, &[Purpose::Files]).map_err(io::Error::other)?;
        let listener = bind(address)?;
        let address = listener.local_addr()?;
        let lobby = Lobby::new(listener, visitors_max)?;
        Ok(Self { lobby, listening, clients, address, refusals: Refusals::default() })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next clients; none if the flag is set. `told` hears of those that are refused.
    pub(crate) fn accept(&mut self, stop: &StopFlag, told: &dyn Fn(&str)) -> Vec<Guest> {
        while !stop.is_set() {
            let patience = Patience::new(stop, WAIT_MAX);
            let mut polled: Vec<PollFd<'_>> = self.lobby.polled().collect();
            // A wait that is over is begun anew.
            let _ = patience.look(&mut polled, Instant::now());
            drop(polled);
            let guests = self.look(Instant::now(), told);
            if !guests.is_empty() {
                return guests;
            }
        }
        Vec::new()
    }

    /// Goes on with all handshakes.
    fn look(&mut self, now: Instant, told: &dyn Fn(&str)) -> Vec<Guest> {
        let Self { lobby, listening, clients, refusals, .. } = self;
        let begin = || Meeting::new(listening.clone());
        let met = lobby.look(now, begin, |peer, meeting| {
            if let Some(reason) = meeting.refusal.as_ref().and_then(reason) {
                refusals.tell(peer, &reason, now, told);
            }
        });
        let mut guests = Vec::new();
        for visitor in met {
            let name = visitor.peer;
            let Some((stream, meeting)) = visitor.let_in() else { continue };
            match meeting.finish() {
                Ok((seals, key)) if key == *clients => {
                    let millis = u32::try_from(UNREAD_MAX.as_millis()).unwrap_or(u32::MAX);
                    let _ = sockopt::set_tcp_user_timeout(&stream, millis);
                    guests.push(Guest { socket: stream.into(), seals, name: name.to_string() });
                }
                Ok((_, key)) => {
                    refusals.tell(name, &Refusal::OtherKey(key).to_string(), now, told);
                }
                Err(refusal) => refusals.tell(name, &refusal.to_string(), now, told),
            }
        }
        guests
    }
}

/// The handshake of a connection.
#[derive(Debug)]
struct Meeting {
    listening: Listening,
    /// Begun when the first byte has come.
    handshake: Option<Box<Handshake>>,
    has_answered: bool,
    refusal: Option<Refusal>,
}

impl Meeting {
    fn new(listening: Listening) -> Self {
        Self { listening, handshake: None, has_answered: false, refusal: None }
    }

    /// Returns whether the handshake is done.
    fn hear(&mut self, mut stream: &TcpStream) -> Result<bool, Refusal> {
        let mut bytes = [0; READ_BYTES];
        loop {
            let wanted = self.handshake.as_ref().map_or(OLD_OPENING.len(), |it| it.wants());
            if wanted == 0 {
                return Ok(true);
            }
            let count = match stream.read(&mut bytes[..wanted.min(READ_BYTES)]) {
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            if self.handshake.is_none() && bytes[..count] == *OLD_OPENING {
                return Err(io::Error::other(
                    "it shows its token in clear: its LADS is older than this one",
                )
                .into());
            }
            let handshake = match &mut self.handshake {
                Some(handshake) => handshake,
                none => none.insert(Box::new(Handshake::server(&self.listening)?)),
            };
            let heard = handshake.hear(&bytes[..count]);
            let answer = handshake.output();
            self.has_answered |= !answer.is_empty();
            // All answers together are 1 KiB, for which a new connection has room.
            let answered = stream.write_all(&answer);
            heard?;
            answered?;
        }
    }

    fn finish(self) -> Result<(Seals, PublicKey), Refusal> {
        let none = || io::Error::from(io::ErrorKind::UnexpectedEof);
        self.handshake.ok_or_else(none)?.finish()
    }
}

impl Greeting for Meeting {
    fn go_on(&mut self, stream: &TcpStream) -> Shown {
        match self.hear(stream) {
            Ok(true) => Shown::Whole,
            Ok(false) => Shown::Part,
            Err(refusal) => {
                self.refusal = Some(refusal);
                Shown::Other
            }
        }
    }

    fn has_begun(&self) -> bool {
        self.has_answered
    }
}

/// Why a stranger is refused, for the user; `None` if it has just gone, as who looks whether
/// somebody listens here.
fn reason(refusal: &Refusal) -> Option<String> {
    match refusal {
        Refusal::Lost(error) if error.kind() == io::ErrorKind::Other => Some(error.to_string()),
        Refusal::Lost(_) => None,
        refusal if refusal.is_other_key_told() => Some("it has another token".to_owned()),
        refusal => Some(refusal.to_string()),
    }
}

/// What is said about those that are refused, which may be any number.
#[derive(Debug, Default)]
struct Refusals {
    told_at: Option<Instant>,
    /// How many were refused since then.
    untold: u64,
}

impl Refusals {
    fn tell(&mut self, peer: SocketAddr, reason: &str, now: Instant, told: &dyn Fn(&str)) {
        let is_early = |at| now.saturating_duration_since(at) < REFUSALS_INTERVAL;
        if self.told_at.is_some_and(is_early) {
            self.untold += 1;
            return;
        }
        let others = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            count => format!("; so were {count} others before"),
        };
        self.told_at = Some(now);
        told(&format!("{peer} is rejected: {reason}{others}"));
    }
}

/// Connects with this key to a server of remote files that has that key, while patience lasts. A
/// server that takes nothing for `unread_max` loses the connection.
///
/// # Errors
/// If nobody listens at the address, it is not the owner of the key, or patience ends.
pub(crate) fn connect_to_service(
    address: SocketAddr,
    (own, server): (&KeyPair, PublicKey),
    patience: &Patience<'_>,
    unread_max: Duration,
) -> Result<(OwnedFd, Seals), Refusal> {
    let (mut attempt, mut pause) = (0, PAUSE_MIN);
    loop {
        attempt += 1;
        let stream = connect_to(address, patience)?;
        let handshake = Handshake::client(own, server, Purpose::Files)?;
        match meet(handshake, &mut Patient { pipe: &stream, patience }) {
            Ok((seals, _)) => {
                let millis = u32::try_from(unread_max.as_millis()).unwrap_or(u32::MAX);
                // A server whose host is gone is noticed by writing to it.
                let _ = sockopt::set_tcp_user_timeout(&stream, millis);
                return Ok((stream.into(), seals));
            }
            Err(refusal) if refusal.is_closed() && attempt < ATTEMPTS_MAX => {
                patience.pause(pause).map_err(io::Error::from)?;
                pause *= 2;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}

#[cfg(test)]
mod tests;
