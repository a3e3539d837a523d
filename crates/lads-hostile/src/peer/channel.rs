//! What the peer hears: messages on the control channel and frames on the data streams, in one
//! queue of one place, so that a peer that does not listen lets the honest end's pipes fill.

use super::{STREAMS, Stop, Told};
use crate::world::SECRET;
use lads_core::frame::{HEADER_BYTES, Header, ROW_BYTES, Row, take_rows};
use lads_core::message::{LENGTH_BYTES, MESSAGE_BYTES_MAX, Message, decode};
use lads_core::packet::{self, Channel, Packet};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;
use twox_hash::XxHash3_64;

/// What the honest end said or sent.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "few are kept, and each only for a moment")]
pub enum Heard {
    /// A message.
    Said(Message),
    /// A frame arrived: its blocks, each of which matches its checksum.
    Frame(Vec<Row>),
    /// Something was sent that nobody asked for.
    Leaked(String),
}

/// Listens to all channels.
#[derive(Debug)]
pub(super) struct Ears {
    heard: Receiver<Option<Heard>>,
    hearing: SyncSender<Option<Heard>>,
}

impl Ears {
    /// Listens to the control channel. If data streams share the pipe, both are in packets after
    /// the two ends have said so.
    pub(super) fn new(mut control: Box<dyn Read + Send>, is_piped: bool) -> Self {
        let (hearing, heard) = sync_channel(1);
        let tells = hearing.clone();
        std::thread::spawn(move || {
            while let Ok(message) = read_message(&mut control) {
                let is_last = matches!(message, Message::Job(_) | Message::Listen { .. });
                if tells.send(Some(Heard::Said(message))).is_err() {
                    return;
                }
                if is_piped && is_last {
                    control = Box::new(Unpacked::new(control, &tells));
                }
            }
            let _ = tells.send(None);
        });
        Self { heard, hearing }
    }

    /// Listens to a data stream of an honest source, too.
    pub(super) fn listen_to(&self, stream: TcpStream) {
        listen(stream, self.hearing.clone());
    }

    /// The next thing heard; `None` if there is none for so long.
    pub(super) fn hear(&self, patience: Duration) -> Told<Option<Heard>> {
        match self.heard.recv_timeout(patience) {
            Ok(Some(heard)) => Ok(Some(heard)),
            Ok(None) | Err(RecvTimeoutError::Disconnected) => Err(Stop::Gone),
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }
}

/// Hears the frames of a data stream.
fn listen(mut stream: impl Read + Send + 'static, tells: SyncSender<Option<Heard>>) {
    std::thread::spawn(move || {
        while let Ok(heard) = read_frame(&mut stream) {
            if tells.send(Some(heard)).is_err() {
                return;
            }
        }
    });
}

/// The messages of a pipe that data streams share; their frames are heard, too.
struct Unpacked {
    from: Box<dyn Read + Send>,
    /// Bytes of the packet of messages that is being read.
    left: usize,
    streams: Vec<Sender<Vec<u8>>>,
}

impl Unpacked {
    fn new(from: Box<dyn Read + Send>, tells: &SyncSender<Option<Heard>>) -> Self {
        let streams = (0..STREAMS).map(|_| {
            let (bytes, came) = channel();
            listen(Came { came, rest: VecDeque::new() }, tells.clone());
            bytes
        });
        Self { from, left: 0, streams: streams.collect() }
    }
}

impl Read for Unpacked {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let mut head = [0; packet::HEAD_BYTES];
            self.from.read_exact(&mut head)?;
            let packet = Packet::take(&head, STREAMS).map_err(io::Error::other)?;
            match packet.channel {
                Channel::Messages => self.left = packet.bytes as usize,
                Channel::Stream(stream) => {
                    let mut bytes = vec![0; packet.bytes as usize];
                    self.from.read_exact(&mut bytes)?;
                    let _ = self.streams[stream.index()].send(bytes);
                }
            }
        }
        let count = to.len().min(self.left);
        let count = self.from.read(&mut to[..count])?;
        self.left -= count;
        Ok(count)
    }
}

/// The bytes of one data stream of a pipe.
struct Came {
    came: Receiver<Vec<u8>>,
    rest: VecDeque<u8>,
}

impl Read for Came {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            self.rest.extend(self.came.recv().unwrap_or_default());
        }
        self.rest.read(to)
    }
}

fn read_message(from: &mut impl Read) -> io::Result<Message> {
    let mut length = [0; LENGTH_BYTES];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    decode(&body).map_err(io::Error::other)
}

fn read_frame(from: &mut impl Read) -> io::Result<Heard> {
    let mut head = [0; HEADER_BYTES];
    from.read_exact(&mut head)?;
    let header = Header::take(&head).map_err(io::Error::other)?;
    let mut table = vec![0; usize::from(header.count) * ROW_BYTES];
    from.read_exact(&mut table)?;
    let mut rows = Vec::new();
    take_rows(&header, &table, &mut rows).map_err(io::Error::other)?;
    let mut payload = vec![0; header.payload_bytes as usize];
    from.read_exact(&mut payload)?;
    if payload.windows(SECRET.len()).any(|bytes| bytes == SECRET) {
        return Ok(Heard::Leaked("a frame holds what lies outside the source".to_owned()));
    }
    let mut rest = payload.as_slice();
    let with_bytes = if header.has_only_sums { &[] } else { rows.as_slice() };
    for row in with_bytes {
        let (block, tail) = rest.split_at(row.block.length as usize);
        if XxHash3_64::oneshot(block) != row.checksum {
            return Ok(Heard::Leaked(format!("{:?} does not match its checksum", row.block)));
        }
        rest = tail;
    }
    Ok(Heard::Frame(rows))
}
