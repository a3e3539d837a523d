//! The peer: speaks the protocol of LADS by hand, as truly or as falsely as a script wants.
//!
//! Two kinds of verbs. The honest ones (`open`, `deliver`, `finish`, `sink_honestly`, …) do what
//! the protocol says. The others (`say`, `say_raw`, `send`, `send_raw`, `stay_silent`) lie, and
//! write down before that the lie is told: a case in which the peer never came to its lie fails,
//! whatever the honest end did.

mod channel;
mod honest;
mod port;

use crate::frame::Frame;
use crate::world::World;
use channel::Ears;
pub use channel::Heard;
pub use honest::{BLOCK_BYTES, root, want};
use lads_core::entry::Entry;
use lads_core::issue::Side;
use lads_core::limits::PACKET_BYTES_MAX;
use lads_core::message::wire::Wire;
use lads_core::message::{Answer, Ending, Hello, SchemaDigest};
use lads_core::message::{MAGIC, Message, VERSION, VERSION_MIN};
use lads_core::packet::{Channel, Packet};
use lads_core::schema::DIGEST;
use lads_core::units::{EntryId, StreamId};
pub use port::{OPENING, OPENING_BYTES, accept_within, listens, opening};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Data streams of a case: two, so that one can be lost and the other go on.
pub const STREAMS: u16 = 2;

/// No honest end takes so long to answer, on a busy machine.
const HEAR_DEADLINE: Duration = Duration::from_secs(15);

/// A peer that waits for the honest end to go waits no longer than this.
const LINGER_DEADLINE: Duration = Duration::from_secs(50);

/// How often a peer that is alive says so: well below the shortest timeout of a case.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(300);

/// Why a script ends before its end.
#[derive(Debug)]
pub enum Stop {
    /// The honest end hung up: mostly what should happen.
    Gone,
    /// The honest end did what it must not do.
    Wrong(String),
}

/// What a step of a script returns.
pub type Told<T = ()> = Result<T, Stop>;

/// A [`Stop::Wrong`] with this text.
///
/// # Errors
/// Always.
pub fn wrong<T>(text: impl Into<String>) -> Told<T> {
    Err(Stop::Wrong(text.into()))
}

/// Who started whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// `lads cp` started the peer as its other end.
    Started,
    /// The peer started `lads serve`, and tells it to do this job.
    Starts {
        /// The bytes of JOB.
        job: Vec<u8>,
    },
}

/// How far the two ends go honestly before the lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Opening {
    /// Not a byte was said.
    Nothing,
    /// Both have said HELLO.
    Greeted,
    /// JOB was said.
    Employed,
    /// All data streams are open.
    Connected,
    /// ROOTS and READY were said.
    Ready,
    /// Only from an honest source: all its files were announced.
    Announced,
}

/// An end of LADS that lies.
pub struct Peer {
    world: World,
    side: Side,
    start: Start,
    output: Option<Box<dyn Write + Send>>,
    ears: Ears,
    /// Whether data streams share the pipes, and whether that has begun.
    is_piped: bool,
    is_packing: bool,
    /// What was said in JOB.
    job: Vec<u8>,
    /// The data port, if the peer listens.
    listener: Option<TcpListener>,
    /// The data port, if the honest end listens.
    port: u16,
    tokens: Vec<[u8; 32]>,
    streams: Vec<TcpStream>,
    frames_sent: Vec<u64>,
    /// Frames that the honest sink has room for, in all and by OST.
    frames_granted: u64,
    grants: HashMap<u32, u64>,
    /// Entries that the honest source announced.
    announced: Vec<Entry>,
    has_lied: bool,
}

impl Peer {
    /// A peer that plays this side, and speaks on this pair of pipes; on which it sends data, too,
    /// if `is_piped`.
    pub fn new(
        world: World,
        side: Side,
        start: Start,
        is_piped: bool,
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
    ) -> Self {
        Self {
            world,
            side,
            start,
            output: Some(Box::new(output)),
            ears: Ears::new(Box::new(input), is_piped),
            is_piped,
            is_packing: false,
            job: Vec::new(),
            listener: None,
            port: 0,
            tokens: Vec::new(),
            streams: Vec::new(),
            frames_sent: Vec::new(),
            frames_granted: 0,
            grants: HashMap::new(),
            announced: Vec::new(),
            has_lied: false,
        }
    }

    /// Where the case happens.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Whether a lie was told.
    #[must_use]
    pub fn has_lied(&self) -> bool {
        self.has_lied
    }

    /// The files that the honest source announced.
    pub fn files(&self) -> Vec<Entry> {
        self.announced.iter().filter(|entry| entry.is_file()).cloned().collect()
    }

    /// The largest file that the honest source announced.
    #[must_use]
    pub fn large_file(&self) -> Entry {
        self.files().into_iter().max_by_key(Entry::size).expect("an honest source has files")
    }

    /// A directory that the honest source announced, not the one that stands for all.
    #[must_use]
    pub fn directory(&self) -> Entry {
        let is_inner = |entry: &&Entry| entry.is_directory() && entry.name != b".";
        self.announced.iter().find(is_inner).cloned().expect("an honest source has one")
    }

    /// The bytes of JOB, once it was said.
    #[must_use]
    pub fn job(&self) -> &[u8] {
        &self.job
    }

    // What lies.

    /// Says a message.
    ///
    /// # Errors
    /// If the honest end is gone.
    pub fn say(&mut self, message: &Message) -> Told {
        self.note_lie();
        self.speak(message)
    }

    /// Says bytes on the control channel.
    ///
    /// # Errors
    /// If the honest end is gone.
    pub fn say_raw(&mut self, bytes: &[u8]) -> Told {
        self.note_lie();
        self.write(bytes)
    }

    /// Sends a frame on a data stream.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn send(&mut self, stream: u16, frame: &Frame) -> Told {
        self.note_lie();
        self.put_frame(stream, frame)
    }

    /// Sends bytes on a data stream.
    ///
    /// # Errors
    /// If the stream is gone.
    pub fn send_raw(&mut self, stream: u16, bytes: &[u8]) -> Told {
        self.note_lie();
        self.put_data(stream, bytes)
    }

    /// Writes bytes to a pipe that data streams share, be they a packet or not.
    ///
    /// # Errors
    /// If the honest end is gone.
    pub fn put_raw(&mut self, bytes: &[u8]) -> Told {
        self.note_lie();
        self.put(bytes)
    }

    /// Ends a data stream.
    pub fn close_stream(&mut self, stream: u16) {
        let _ = self.streams[usize::from(stream)].shutdown(std::net::Shutdown::Both);
        self.note_lie();
    }

    /// Says nothing more on the control channel, and closes it.
    pub fn hang_up(&mut self) {
        self.output = None;
        self.note_lie();
    }

    /// Says nothing, and listens until the honest end has had enough.
    ///
    /// # Errors
    /// If it goes, as it should, or does not within the deadline.
    pub fn stay_silent(&mut self) -> Told {
        self.note_lie();
        self.linger(false)
    }

    /// Says heartbeats and nothing else, listening or not.
    ///
    /// # Errors
    /// If the honest end goes, as it should, or does not within the deadline.
    pub fn stay_alive(&mut self, listens: bool) -> Told {
        self.note_lie();
        if listens {
            return self.linger(true);
        }
        let until = Instant::now() + LINGER_DEADLINE;
        while Instant::now() < until {
            self.speak(&Message::Heartbeat)?;
            std::thread::sleep(HEARTBEAT_INTERVAL);
        }
        wrong("the honest end never went, although nobody reads what it says")
    }

    /// What follows is the lie although nothing is said in it.
    pub fn note_lie(&mut self) {
        if !self.has_lied {
            self.has_lied = true;
            self.world.note("lied");
        }
    }

    // What does not.

    /// The next thing that the honest end says or sends, but for signs of life and counters.
    ///
    /// # Errors
    /// If the honest end is gone or cannot go on, or says nothing for too long.
    pub fn hear(&mut self) -> Told<Heard> {
        match self.hear_within(HEAR_DEADLINE)? {
            Some(heard) => Ok(heard),
            None => wrong(format!("nothing was heard for {HEAR_DEADLINE:?}")),
        }
    }

    fn hear_within(&mut self, patience: Duration) -> Told<Option<Heard>> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Some(heard) = self.ears.hear(left)? else { return Ok(None) };
            match &heard {
                Heard::Said(Message::Fatal { code, text }) => {
                    self.world.note(&format!("fatal {code} {text}"));
                    return Err(Stop::Gone);
                }
                Heard::Said(Message::Grant(lot)) => {
                    self.frames_granted += u64::from(lot.frames);
                    for (ost, count) in &lot.osts {
                        *self.grants.entry(ost.0).or_default() += u64::from(*count);
                    }
                }
                Heard::Said(Message::NewFile(entries)) => self.announced.extend(entries.clone()),
                Heard::Said(message) if is_chatter(message) => continue,
                Heard::Leaked(what) => return wrong(format!("a secret was sent: {what}")),
                Heard::Said(_) | Heard::Frame(_) => {}
            }
            return Ok(Some(heard));
        }
    }

    /// Hears until something is what is waited for.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub fn expect<T>(&mut self, mut pick: impl FnMut(&Heard) -> Option<T>) -> Told<T> {
        loop {
            let heard = self.hear()?;
            if let Some(picked) = pick(&heard) {
                return Ok(picked);
            }
        }
    }

    /// The same, saying heartbeats meanwhile: what is waited for takes a timeout to come.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub fn hear_alive<T>(&mut self, mut pick: impl FnMut(&Heard) -> Option<T>) -> Told<T> {
        let until = Instant::now() + HEAR_DEADLINE;
        while Instant::now() < until {
            if let Some(picked) = self.hear_within(HEARTBEAT_INTERVAL)?.as_ref().and_then(&mut pick)
            {
                return Ok(picked);
            }
            self.speak(&Message::Heartbeat)?;
        }
        wrong(format!("nothing of the kind was heard for {HEAR_DEADLINE:?}"))
    }

    /// What becomes of an entry that was announced.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub fn expect_answer(&mut self, id: u64) -> Told<Answer> {
        self.expect(|heard| {
            let Heard::Said(Message::FileId(answers)) = heard else { return None };
            let mut answers = answers.iter();
            answers.find(|(entry, _)| *entry == EntryId(id)).map(|(_, answer)| answer.clone())
        })
    }

    /// How an entry ended.
    ///
    /// # Errors
    /// As [`Self::hear`].
    pub fn expect_ending(&mut self, id: u64) -> Told<Ending> {
        self.expect(|heard| {
            let Heard::Said(Message::FileDone(endings)) = heard else { return None };
            let mut endings = endings.iter();
            endings.find(|(entry, _)| *entry == EntryId(id)).map(|(_, ending)| ending.clone())
        })
    }

    /// Waits until the honest end has had nothing to say for a while: long enough to have shown
    /// what it was told before.
    ///
    /// # Errors
    /// If it is gone.
    pub fn await_heartbeat(&mut self) -> Told {
        while let Some(heard) = self.ears.hear(HEAR_DEADLINE)? {
            if matches!(heard, Heard::Said(Message::Heartbeat)) {
                return Ok(());
            }
        }
        wrong(format!("no heartbeat was heard for {HEAR_DEADLINE:?}"))
    }

    /// Listens until the honest end goes; an honest peer gives signs of life meanwhile.
    fn linger(&mut self, is_alive: bool) -> Told {
        let until = Instant::now() + LINGER_DEADLINE;
        while Instant::now() < until {
            self.hear_within(HEARTBEAT_INTERVAL)?;
            if is_alive {
                self.speak(&Message::Heartbeat)?;
            }
        }
        wrong("the honest end never went")
    }

    /// What a script ends with that has told its lie: the honest end has to go by itself.
    ///
    /// # Errors
    /// When it is gone, which is well, or does not go.
    pub fn see_it_go(&mut self) -> Told {
        self.linger(false)
    }

    pub(crate) fn speak(&mut self, message: &Message) -> Told {
        // The encoder of honest ends refuses what is too long.
        let mut body = Vec::new();
        message.put(&mut body);
        let length = u32::try_from(body.len()).expect("less than 4 GiB");
        self.write(&[&length.to_le_bytes()[..], &body].concat())
    }

    fn write(&mut self, bytes: &[u8]) -> Told {
        if self.is_packing { self.pack(Channel::Messages, bytes) } else { self.put(bytes) }
    }

    /// Writes bytes of a channel as packets.
    fn pack(&mut self, channel: Channel, bytes: &[u8]) -> Told {
        for part in bytes.chunks(PACKET_BYTES_MAX as usize) {
            let bytes = u32::try_from(part.len()).expect("not longer than a packet");
            self.put(&[&Packet { channel, bytes }.head()[..], part].concat())?;
        }
        Ok(())
    }

    fn put_data(&mut self, stream: u16, bytes: &[u8]) -> Told {
        if self.is_packing {
            return self.pack(Channel::Stream(StreamId(stream)), bytes);
        }
        self.streams[usize::from(stream)].write_all(bytes).map_err(|_| Stop::Gone)
    }

    fn put(&mut self, bytes: &[u8]) -> Told {
        let Some(output) = &mut self.output else { return Err(Stop::Gone) };
        output.write_all(bytes).and_then(|()| output.flush()).map_err(|_: io::Error| Stop::Gone)
    }

    fn put_frame(&mut self, stream: u16, frame: &Frame) -> Told {
        let index = usize::from(stream);
        let bytes = frame.bytes(self.frames_sent[index]);
        self.frames_sent[index] += 1;
        self.put_data(stream, &bytes)
    }
}

/// The HELLO of an honest end.
#[must_use]
pub fn hello() -> Hello {
    Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version: VERSION,
        features: 0,
        software: "lads 0.1.0".to_owned(),
        host: "there".to_owned(),
        schema: SchemaDigest(Some(DIGEST)),
    }
}

fn is_chatter(message: &Message) -> bool {
    matches!(
        message,
        Message::Heartbeat
            | Message::Progress(_)
            | Message::OstBytes(_)
            | Message::Issues(_)
            | Message::Lines(_)
            | Message::Notice(_)
            | Message::Frames(_)
    )
}
