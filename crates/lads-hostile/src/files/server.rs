//! A server that speaks the protocol of remote files by hand, truly or falsely.
//!
//! It answers honestly until a script wants to lie ([`Server::until`], [`Server::until_frame`]).
//! The verbs that lie (`say`, `say_raw`, `put_raw`, `send`, …) write down before that the lie is
//! told.

use super::{TOKEN, line};
use crate::frame::Frame;
use crate::peer::{Stop, Told, accept_within, wrong};
use crate::world::World;
use lads_core::frame::{HEADER_BYTES, Header, ROW_BYTES};
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::message::LENGTH_BYTES;
use lads_core::packet::{self, Channel, Packet};
use lads_core::remote::message::{
    Call, Outcome, Request, ToClient, ToServer, VERSION, Written, decode, encode,
};
use lads_core::units::StreamId;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// No client takes so long to connect, on a busy machine.
const CONNECT_DEADLINE: Duration = Duration::from_secs(60);

/// A client that connects again does so sooner.
const RECONNECT_DEADLINE: Duration = Duration::from_secs(20);

/// The server is not served for longer.
const LINGER_DEADLINE: Duration = Duration::from_secs(90);

/// The time between two heartbeats: well below the timeout of the client.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(300);

/// The length of every file.
pub const FILE_BYTES: u64 = 3 << 20;

/// Something that the client sent.
#[derive(Debug)]
enum Heard {
    Message(ToServer),
    Frame,
}

/// A server with one client.
pub struct Server {
    world: World,
    listener: TcpListener,
    socket: TcpStream,
    /// What goes over the connection in records, once the handshake is done.
    inner: Option<Inner>,
    /// Requests that wait for frames that were sent before them.
    requests: VecDeque<Request>,
    frames_heard: u64,
    frames_sent: u64,
    has_lied: bool,
    is_alive: bool,
}

/// A connection without its records.
struct Inner {
    socket: UnixStream,
    heard: Receiver<Heard>,
}

/// Listens on a port of this host. Returns the address as a client names it, too.
///
/// # Panics
/// If no port is free.
#[must_use]
pub fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

impl Server {
    /// Waits for the client. Nothing is sent to it.
    ///
    /// # Errors
    /// If it does not connect.
    pub fn accept(listener: &TcpListener, world: World) -> Told<Self> {
        let Some(socket) = accept_within(listener, CONNECT_DEADLINE) else {
            return wrong("the client does not connect");
        };
        Ok(Self {
            world,
            listener: listener.try_clone().unwrap(),
            socket,
            inner: None,
            requests: VecDeque::new(),
            frames_heard: 0,
            frames_sent: 0,
            has_lied: false,
            is_alive: true,
        })
    }

    // Verbs of an honest server.

    /// Makes the handshake.
    ///
    /// # Errors
    /// If the client has disconnected, or has another token.
    ///
    /// # Panics
    /// If this host has no sockets left.
    pub fn admit(&mut self) -> Told {
        self.admit_with(&TOKEN)
    }

    fn admit_with(&mut self, token: &[u8; 32]) -> Told {
        let socket = line::as_server(self.socket.try_clone().unwrap(), token);
        let Some(socket) = socket else { return self.serve() };
        let (hearing, heard) = channel();
        let mut ears =
            Ears { socket: socket.try_clone().unwrap(), messages: Vec::new(), frame: Vec::new() };
        std::thread::spawn(move || while ears.hear(|heard| drop(hearing.send(heard))).is_some() {});
        self.inner = Some(Inner { socket, heard });
        Ok(())
    }

    /// Makes the handshake, greets the client, and grants room for frames.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn greet(&mut self) -> Told {
        self.admit()?;
        self.speak(&hello())?;
        self.speak(&ToClient::Grant(4))
    }

    /// Answers requests until the first one for which this is true, which is returned.
    ///
    /// # Errors
    /// If the client has disconnected, or makes no such request.
    pub fn until(&mut self, is_wanted: fn(&Call) -> bool) -> Told<Request> {
        loop {
            let request = self.next_request()?;
            if is_wanted(&request.call) {
                return Ok(request);
            }
            self.answer(&request)?;
        }
    }

    /// Answers requests until a frame arrives, and returns its number.
    ///
    /// # Errors
    /// If the client has disconnected, or sends no frame.
    pub fn until_frame(&mut self) -> Told<u64> {
        loop {
            match self.hear()? {
                Heard::Frame => {
                    self.frames_heard += 1;
                    return Ok(self.frames_heard - 1);
                }
                Heard::Message(ToServer::Request(request)) => self.answer(&request)?,
                Heard::Message(_) => {}
            }
        }
    }

    /// Greets the client, and answers until a request for which this is true.
    ///
    /// # Errors
    /// If the client has disconnected, or makes no such request.
    pub fn greet_until(&mut self, is_wanted: fn(&Call) -> bool) -> Told<Request> {
        self.greet()?;
        self.until(is_wanted)
    }

    /// Answers everything until the client has disconnected.
    ///
    /// # Errors
    /// When the client has disconnected, which is well, or does not go.
    pub fn serve(&mut self) -> Told {
        self.until(|_| false).map(drop)
    }

    /// Sends heartbeats and nothing else until the client has disconnected.
    ///
    /// # Errors
    /// When the client has disconnected, which is well, or does not go.
    pub fn stay_alive(&mut self) -> Told {
        self.note_lie();
        loop {
            self.hear()?;
        }
    }

    /// Answers a request as an honest server does.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn answer(&mut self, request: &Request) -> Told {
        let Request { number, call, .. } = request;
        let outcome = match call {
            Call::Read { position, length, .. } => {
                let left = FILE_BYTES.saturating_sub(*position).min((*length).into());
                if left > 0 {
                    self.put_frame(&read_frame(
                        *number,
                        *position,
                        usize::try_from(left).unwrap(),
                    ))?;
                }
                Outcome::Number(left)
            }
            Call::Size { .. } | Call::End { .. } => Outcome::Number(FILE_BYTES),
            Call::AddShared { .. } | Call::Fence { .. } => Outcome::Number(0),
            Call::Return { frames, .. } => {
                self.frames_heard = *frames;
                return Ok(());
            }
            _ => Outcome::Done,
        };
        self.speak(&ToClient::Reply { number: *number, outcome })
    }

    /// Returns the next request, after the frames that were sent before it.
    fn next_request(&mut self) -> Told<Request> {
        loop {
            let is_ready = |request: &Request| request.frames_before <= self.frames_heard;
            if self.requests.front().is_some_and(is_ready) {
                return Ok(self.requests.pop_front().expect("it is there"));
            }
            match self.hear()? {
                Heard::Message(ToServer::Request(request)) => self.requests.push_back(request),
                Heard::Message(_) => {}
                Heard::Frame => {
                    let written = Written { frame: self.frames_heard, failure: None };
                    self.frames_heard += 1;
                    self.speak(&ToClient::Written(vec![written]))?;
                    self.speak(&ToClient::Grant(1))?;
                }
            }
        }
    }

    fn hear(&mut self) -> Told<Heard> {
        let until = Instant::now() + LINGER_DEADLINE;
        while Instant::now() < until {
            let Some(inner) = &self.inner else { return self.await_end() };
            match inner.heard.recv_timeout(HEARTBEAT_INTERVAL) {
                Ok(heard) => return Ok(heard),
                Err(RecvTimeoutError::Disconnected) => return Err(Stop::Gone),
                Err(RecvTimeoutError::Timeout) if self.is_alive => {
                    self.speak(&ToClient::Heartbeat)?;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        wrong("the client neither asks for anything nor goes")
    }

    /// Waits until a client has disconnected that makes no handshake.
    fn await_end(&mut self) -> Told<Heard> {
        self.socket.set_read_timeout(Some(LINGER_DEADLINE)).unwrap();
        let mut bytes = [0; 1024];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(Stop::Gone),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return wrong("the client does not go");
                }
                Err(_) => return Err(Stop::Gone),
            }
        }
    }

    // Verbs that lie.

    /// Makes the handshake of a server with another token.
    ///
    /// # Errors
    /// If the client has disconnected, which is well.
    pub fn admit_with_another_token(&mut self) -> Told {
        self.note_lie();
        self.admit_with(&[0xa5; 32])
    }

    /// Sends bytes in place of a record.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn put_below(&mut self, bytes: &[u8]) -> Told {
        self.note_lie();
        self.socket.write_all(bytes).map_err(|_| Stop::Gone)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn say(&mut self, message: &ToClient) -> Told {
        self.note_lie();
        self.speak(message)
    }

    /// Sends a reply.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn reply(&mut self, request: &Request, outcome: Outcome) -> Told {
        self.say(&ToClient::Reply { number: request.number, outcome })
    }

    /// Sends bytes in place of a message.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn say_raw(&mut self, bytes: &[u8]) -> Told {
        self.note_lie();
        self.pack(Channel::Messages, bytes)
    }

    /// Sends bytes that need not be a packet.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn put_raw(&mut self, bytes: &[u8]) -> Told {
        self.note_lie();
        self.put(bytes)
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn send(&mut self, frame: &Frame) -> Told {
        self.note_lie();
        self.put_frame(frame)
    }

    /// Sends bytes in place of a frame.
    ///
    /// # Errors
    /// If the client has disconnected.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Told {
        self.note_lie();
        self.pack(Channel::Stream(StreamId(0)), bytes)
    }

    /// Sends no heartbeats from now on.
    pub fn stop_heartbeats(&mut self) {
        self.note_lie();
        self.is_alive = false;
    }

    /// Breaks the connection, and waits for the next one of the client.
    ///
    /// # Errors
    /// If the client does not connect again, which is well.
    pub fn break_off(&mut self) -> Told {
        self.hang_up();
        self.socket = accept_within(&self.listener, RECONNECT_DEADLINE).ok_or(Stop::Gone)?;
        self.inner = None;
        self.frames_sent = 0;
        self.admit()
    }

    /// Closes the connection.
    pub fn hang_up(&mut self) {
        self.note_lie();
        // What was said before arrives.
        let _ = match &self.inner {
            Some(inner) => inner.socket.shutdown(Shutdown::Both),
            None => self.socket.shutdown(Shutdown::Both),
        };
    }

    /// Writes down that what follows is the lie, or that there is none.
    pub fn note_lie(&mut self) {
        if !self.has_lied {
            self.has_lied = true;
            self.world.note("lied");
        }
    }

    fn speak(&mut self, message: &ToClient) -> Told {
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        self.pack(Channel::Messages, &bytes)
    }

    fn put_frame(&mut self, frame: &Frame) -> Told {
        let bytes = frame.bytes(self.frames_sent);
        self.frames_sent += 1;
        self.pack(Channel::Stream(StreamId(0)), &bytes)
    }

    fn pack(&mut self, channel: Channel, bytes: &[u8]) -> Told {
        for part in bytes.chunks(PACKET_BYTES_MAX as usize) {
            let bytes = u32::try_from(part.len()).expect("not longer than a packet");
            self.put(&[&Packet { channel, bytes }.head()[..], part].concat())?;
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Told {
        let written = match &mut self.inner {
            Some(inner) => inner.socket.write_all(bytes),
            None => self.socket.write_all(bytes),
        };
        written.map_err(|_| Stop::Gone)
    }
}

/// Returns the greeting of an honest server.
#[must_use]
pub fn hello() -> ToClient {
    ToClient::Hello { version: VERSION, name: "there".to_owned() }
}

/// Returns an honest frame for a read.
#[must_use]
pub fn read_frame(number: u64, position: u64, length: usize) -> Frame {
    Frame::of(number, position, &vec![7; length])
}

/// Takes apart what a client sends.
struct Ears {
    socket: UnixStream,
    /// Bytes of messages and of frames that are not whole yet.
    messages: Vec<u8>,
    frame: Vec<u8>,
}

impl Ears {
    /// Reads a packet, and passes on what is whole. Returns `None` at the end of the connection.
    fn hear(&mut self, mut tell: impl FnMut(Heard)) -> Option<()> {
        let mut head = [0; packet::HEAD_BYTES];
        self.socket.read_exact(&mut head).ok()?;
        let packet = Packet::take(&head, 1).ok()?;
        let mut bytes = vec![0; packet.bytes as usize];
        self.socket.read_exact(&mut bytes).ok()?;
        match packet.channel {
            Channel::Messages => self.messages.extend(bytes),
            Channel::Stream(_) => self.frame.extend(bytes),
        }
        while let Some((length, body)) = self.messages.split_first_chunk::<LENGTH_BYTES>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some(body) = body.get(..length) else { break };
            tell(Heard::Message(decode(body).ok()?));
            self.messages.drain(..LENGTH_BYTES + length);
        }
        while let Some(head) = self.frame.get(..HEADER_BYTES) {
            let header = Header::take(head).ok()?;
            let table = usize::from(header.count) * ROW_BYTES;
            let length = HEADER_BYTES + table + header.payload_bytes as usize;
            if self.frame.len() < length {
                break;
            }
            self.frame.drain(..length);
            tell(Heard::Frame);
        }
        Some(())
    }
}
