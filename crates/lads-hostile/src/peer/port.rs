//! The data port: the peer listens, or connects, with right tokens or wrong ones.

use super::{HEAR_DEADLINE, Heard, Peer, STREAMS, Start, Stop, Told, wrong};
use lads_core::issue::Side;
use lads_core::message::{DataPort, Message};
use lads_core::protection::{Protection, Secret};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

/// What a connection says first.
pub const OPENING: [u8; 8] = *b"LADSDATA";
/// What the listening end answers to a token that it gave.
const ACCEPTED: u8 = 1;
/// Opening, stream number, token, salt.
pub const OPENING_BYTES: usize = 8 + 2 + 32 + SALT_BYTES;
const SALT_BYTES: usize = 16;
/// How often a client that was not let in tries again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
/// How often a condition is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// A right opening of a stream.
#[must_use]
pub fn opening(stream: u16, token: &[u8; 32]) -> Vec<u8> {
    [&OPENING[..], &stream.to_le_bytes(), token, &[0; SALT_BYTES]].concat()
}

/// The token that shows that somebody has the secret of a stream.
fn token_of(secret: &[u8; 32]) -> [u8; 32] {
    blake3::derive_key("lads 2026-11-29 token of a connection", secret)
}

/// LISTEN of a host whose windows have no limit, for streams in clear with these secrets.
pub fn listens(address: String, port: u16, secrets: Vec<[u8; 32]>) -> Message {
    let (protection, window_bytes) = (Protection::Plain, u64::MAX);
    let secrets = secrets.into_iter().map(Secret).collect();
    let port = DataPort { address, port, secrets, window_bytes };
    Message::Listen { port, protection }
}

impl Peer {
    /// Opens the data port, if the peer is the one that listens, and says where it is.
    pub(super) fn open_port(&mut self) -> Told {
        if self.is_piped {
            return self.speak(&listens(String::new(), 0, Vec::new()));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        self.port = listener.local_addr().unwrap().port();
        let secrets: Vec<_> = (1..=STREAMS).map(|stream| [stream.to_le_bytes()[0]; 32]).collect();
        self.tokens = secrets.iter().map(token_of).collect();
        self.listener = Some(listener);
        self.speak(&listens(String::new(), self.port, secrets))
    }

    /// Hears where the honest end listens.
    pub(super) fn hear_port(&mut self) -> Told {
        let (port, secrets) = self.expect(|heard| match heard {
            Heard::Said(Message::Listen { port, .. }) => Some((port.port, port.secrets.clone())),
            _ => None,
        })?;
        self.port = port;
        self.tokens = secrets.iter().map(|Secret(secret)| token_of(secret)).collect();
        Ok(())
    }

    /// All data streams, connected by whoever has to.
    pub(super) fn connect_streams(&mut self) -> Told {
        if self.is_piped {
            self.is_packing = true;
            self.frames_sent = vec![0; usize::from(STREAMS)];
            return Ok(());
        }
        let missing = self.stream_count()..STREAMS;
        let mut sockets = Vec::new();
        for stream in missing.clone() {
            sockets.push(match self.start {
                Start::Started => self.accept(missing.clone())?,
                Start::Starts { .. } => match self.knock(&self.right_opening(stream))? {
                    Some(socket) => (stream, socket),
                    // It has noticed the lie: its exit code tells whether it should have.
                    None if self.has_lied() => return Err(Stop::Gone),
                    None => return wrong("a right token was not let in"),
                },
            });
        }
        // The honest end opens them all at once, so they come in any order.
        sockets.sort_by_key(|(stream, _)| *stream);
        if !sockets.iter().map(|(stream, _)| *stream).eq(missing) {
            return wrong("the honest end shows a token twice");
        }
        sockets.into_iter().for_each(|(_, socket)| self.adopt(socket));
        Ok(())
    }

    /// Takes a connection for the next data stream.
    pub fn adopt(&mut self, socket: TcpStream) {
        if self.side == Side::Sink {
            self.ears.listen_to(socket.try_clone().unwrap());
        }
        self.streams.push(socket);
        self.frames_sent.push(0);
    }

    fn stream_count(&self) -> u16 {
        u16::try_from(self.streams.len()).unwrap()
    }

    /// Connects all data streams to a port at which others crowd, as an honest client does: again
    /// and again, until it is let in.
    ///
    /// # Errors
    /// If it is not.
    pub fn connect_patiently(&mut self) -> Told {
        let until = Instant::now() + HEAR_DEADLINE;
        while self.stream_count() < STREAMS {
            match self.knock(&self.right_opening(self.stream_count())) {
                Ok(Some(socket)) => self.adopt(socket),
                Ok(None) | Err(Stop::Gone) if Instant::now() < until => {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                Ok(None) | Err(Stop::Gone) => return wrong("a right token is never let in"),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether it is known where the honest end listens.
    #[must_use]
    pub fn has_port(&self) -> bool {
        self.port != 0
    }

    /// A connection for one of these streams, and for which.
    fn accept(&mut self, streams: Range<u16>) -> Told<(u16, TcpStream)> {
        let listener = self.listener.as_ref().expect("opened before");
        let Some(mut socket) = accept_within(listener, HEAR_DEADLINE) else {
            return wrong("the honest end does not connect its data streams");
        };
        let mut said = [0; OPENING_BYTES];
        socket.read_exact(&mut said).map_err(|_| Stop::Gone)?;
        let right = |stream: u16| opening(stream, &self.tokens[usize::from(stream)]);
        let is_of = |stream: &u16| said[..42] == right(*stream)[..42];
        let Some(stream) = streams.into_iter().find(is_of) else {
            return wrong("the honest end does not show the token that it was given");
        };
        socket.write_all(&[ACCEPTED]).map_err(|_| Stop::Gone)?;
        Ok((stream, socket))
    }

    /// What the honest end expects to be shown for this stream.
    #[must_use]
    pub fn right_opening(&self, stream: u16) -> Vec<u8> {
        opening(stream, &self.tokens[usize::from(stream)])
    }

    /// Where the honest end listens.
    #[must_use]
    pub fn data_port(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Connects to the honest end's data port and shows these bytes; the connection, if it was let
    /// in.
    ///
    /// # Errors
    /// If nobody listens there, or nothing is answered.
    pub fn knock(&self, shown: &[u8]) -> Told<Option<TcpStream>> {
        let mut socket = TcpStream::connect(self.data_port()).map_err(|_| Stop::Gone)?;
        socket.set_read_timeout(Some(HEAR_DEADLINE)).unwrap();
        if socket.write_all(shown).is_err() {
            return Ok(None);
        }
        let mut answer = [0];
        match socket.read(&mut answer) {
            Ok(1) if answer[0] == ACCEPTED => Ok(Some(socket)),
            Ok(1) => wrong(format!("the data port answers {}", answer[0])),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                wrong("the data port neither lets in nor closes")
            }
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

/// The next connection, if one comes within this time.
#[must_use]
pub fn accept_within(listener: &TcpListener, patience: Duration) -> Option<TcpStream> {
    let until = Instant::now() + patience;
    listener.set_nonblocking(true).unwrap();
    loop {
        if let Ok((socket, _)) = listener.accept() {
            socket.set_nonblocking(false).unwrap();
            return Some(socket);
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}
