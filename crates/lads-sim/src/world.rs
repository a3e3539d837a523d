//! The world around both ends: its clock, what will happen when, and what the seed decided.

use crate::content::Content;
use crate::disk::Disk;
use crate::findings::{Checked, Stats, Trace};
use crate::options::{Faults, Options};
use crate::recorder::Recorder;
use crate::rng::{Rng, mix};
use crate::tree::Tree;
use crate::watch::Watch;
use lads_core::entry::Entry;
use lads_core::frame::{HEADER_BYTES, ROW_BYTES};
use lads_core::issue::Side;
use lads_core::message::{LENGTH_BYTES, Message, decode, encode};
use lads_core::units::{Instant, OstId};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

/// A frame on its way: its real head, and what its payload stands for.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) head: Vec<u8>,
    pub(crate) payload: Vec<Content>,
    pub(crate) payload_bytes: u64,
}

impl Frame {
    /// Bytes on the wire.
    pub(crate) fn byte_count(&self) -> u64 {
        self.payload_bytes + (HEADER_BYTES + ROW_BYTES * self.payload.len()) as u64
    }
}

/// What happens on a data stream, seen from the sink.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    /// Header and table of a frame are there.
    Head(Box<Frame>),
    /// So is its payload.
    Payload,
    /// Nothing more will come.
    Cut,
}

/// What goes wrong at a moment that the seed chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mishap {
    ChangeAtSource,
    StreamLoss,
    NetworkLoss,
    SourceCrash,
    SinkCrash,
    PowerCut,
    StopSource,
    StopSink,
    Silence,
    SourceDeath,
    Hang,
}

/// An end that does and says nothing.
#[derive(Debug)]
pub(crate) struct Silent {
    pub(crate) side: Side,
    /// What has happened to it since.
    pub(crate) held: Vec<Happening>,
}

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    /// The walk goes one step on.
    Walk,
    /// What an I/O thread of this end does is done.
    Worker(Side, usize),
    /// Something arrives on a stream.
    Arrival(usize, Arrival),
    /// A receiving thread has written a frame itself.
    Receiver(usize),
    /// The source learns that a stream is lost.
    StreamKnownLost(usize),
    /// The next message arrives at this end.
    Message(Side),
    /// This end's messages are sent.
    Talk(Side),
    /// A session asked to be looked at now.
    Wake,
    /// It is looked whether something waits for ever.
    Look,
    /// The end that was silent goes on.
    Thaw,
    /// The other end takes it for dead.
    GiveUp,
    Mishap(Mishap),
}

#[derive(Debug)]
struct Scheduled {
    at: Instant,
    sequence: u64,
    what: Happening,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// All that there is besides the two ends.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) options: Options,
    /// Of this attempt.
    pub(crate) faults: Faults,
    pub(crate) rng: Rng,
    pub(crate) now: Instant,
    pub(crate) tree: Tree,
    pub(crate) disk: Disk,
    pub(crate) stats: Stats,
    /// Paths with which something went wrong: they may fail.
    pub(crate) excused: BTreeSet<String>,
    /// Whether the session chooses where new files go; otherwise chance does.
    pub(crate) is_placed: bool,
    /// Sees that none waits for ever.
    pub(crate) watch: Option<Watch>,
    /// Records the counters, if they are wanted.
    pub(crate) recorder: Option<Recorder>,
    pub(crate) silent: Option<Silent>,
    /// Threads that are in a call that never returns.
    pub(crate) hung: HashSet<(Side, usize)>,
    trace: Trace,
    heap: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    to_source: Channel,
    to_sink: Channel,
}

/// One direction of the control channel: what is sent first arrives first.
#[derive(Debug, Default)]
struct Channel {
    under_way: VecDeque<Vec<u8>>,
    last_at: Instant,
}

impl World {
    pub(crate) fn draw(seed: u64, trace: Trace) -> Self {
        let mut rng = Rng::new(seed);
        let mut options = Options::draw(&mut rng);
        options.draw_stage(&mut Rng::new(mix(seed)));
        options.draw_troubles(seed);
        options.draw_matching(seed);
        let mut of_removal = Rng::new(mix(seed) ^ seed);
        options.draw_removal(&mut of_removal);
        let tree = Tree::draw(&mut rng, &options);
        if options.is_depth_first {
            // So few that it shows if the walk can wait for directories that wait for it: those on
            // the way to the deepest one, the root, and room for one more.
            options.source.window_directories = tree.depth() + 2;
        }
        let mut world = Self::new(rng, options, tree, trace);
        if world.options.sink.removal.is_some() {
            world.plant(&mut of_removal);
        }
        world
    }

    pub(crate) fn new(rng: Rng, options: Options, tree: Tree, trace: Trace) -> Self {
        let world = Self {
            faults: Faults::default(),
            now: Instant::START,
            disk: Disk::default(),
            stats: Stats::default(),
            excused: BTreeSet::new(),
            is_placed: false,
            watch: None,
            recorder: None,
            silent: None,
            hung: HashSet::new(),
            heap: BinaryHeap::new(),
            sequence: 0,
            to_source: Channel::default(),
            to_sink: Channel::default(),
            rng,
            options,
            tree,
            trace,
        };
        world.log(|| format!("{:#?}", world.options));
        world
    }

    /// Lets something happen after a while.
    pub(crate) fn after(&mut self, wait: Duration, what: Happening) {
        self.at(self.now + wait, what);
    }

    /// Lets something happen at a moment.
    pub(crate) fn at(&mut self, at: Instant, what: Happening) {
        self.sequence += 1;
        self.heap.push(Reverse(Scheduled { at, sequence: self.sequence, what }));
    }

    /// What happens next; the clock moves on to it.
    pub(crate) fn next_happening(&mut self) -> Option<Happening> {
        let Reverse(next) = self.heap.pop()?;
        self.now = next.at;
        self.stats.steps += 1;
        let nanos = u64::try_from(self.now.since_start().as_nanos()).unwrap_or(u64::MAX);
        self.stats.fingerprint = mix(self.stats.fingerprint ^ nanos).wrapping_add(next.sequence);
        Some(next.what)
    }

    /// Whether anything will happen.
    pub(crate) fn has_happenings(&self) -> bool {
        !self.heap.is_empty()
    }

    /// Whether an end does nothing now.
    pub(crate) fn is_silent(&self, side: Side) -> bool {
        self.silent.as_ref().is_some_and(|silent| silent.side == side)
    }

    /// A new attempt begins: nothing of the last one is under way.
    pub(crate) fn begin_session(&mut self, faults: Faults) {
        self.heap.clear();
        self.silent = None;
        self.hung.clear();
        self.to_source = Channel::default();
        self.to_sink = Channel::default();
        self.now = Instant::START;
        self.stats.sessions += 1;
        self.faults = faults;
        let rng = &mut self.rng;
        self.options.redraw(rng);
        let count = self.stats.sessions;
        self.log(|| format!("=== attempt {count}, {:?}", self.faults));
    }

    /// Keeps a line of what happens, if anyone wants to know.
    pub(crate) fn log(&self, line: impl FnOnce() -> String) {
        if self.trace.wants_lines() {
            let micros = self.now.since_start().as_micros();
            self.trace.push(format!("{micros:>9} {}", line()));
        }
    }

    /// Sends a message to this end, as bytes.
    pub(crate) fn send(&mut self, to: Side, message: &Message) -> Checked {
        self.log(|| format!("-> {} {}", to.word(), brief(message)));
        let mut bytes = Vec::new();
        encode(message, &mut bytes);
        bytes.drain(..LENGTH_BYTES);
        if decode(&bytes).as_ref() != Ok(message) {
            return Err(format!("comes back from the wire as something else: {message:?}"));
        }
        let wait = self.network_delay();
        let at = self.now + wait;
        let channel = self.channel(to);
        channel.last_at = channel.last_at.max(at);
        channel.under_way.push_back(bytes);
        let at = channel.last_at;
        self.at(at, Happening::Message(to));
        Ok(())
    }

    /// The next message for this end, which has just arrived.
    pub(crate) fn receive(&mut self, at: Side) -> Message {
        let bytes = self.channel(at).under_way.pop_front().expect("sent before it arrives");
        decode(&bytes).expect("checked when it was sent")
    }

    /// Whether messages for this end are under way.
    pub(crate) fn has_messages(&self, to: Side) -> bool {
        let channel = if to == Side::Source { &self.to_source } else { &self.to_sink };
        !channel.under_way.is_empty()
    }

    /// How long something takes from one end to the other this time.
    pub(crate) fn network_delay(&mut self) -> Duration {
        let network = &self.options.network;
        let (low, high) = (network.delay_micros, network.delay_micros + network.jitter_micros);
        self.rng.micros(low, high)
    }

    fn channel(&mut self, to: Side) -> &mut Channel {
        match to {
            Side::Source => &mut self.to_source,
            Side::Sink => &mut self.to_sink,
        }
    }

    /// A thread takes something of an OST, which will take so long.
    pub(crate) fn watch_taking(&mut self, at: Side, ost: OstId, service: Duration) {
        let now = self.now;
        if let Some(watch) = &mut self.watch {
            watch.on_taking(at, ost, now, service);
        }
    }

    /// Whether this goes wrong now; then the path may fail.
    pub(crate) fn fails(&mut self, per_mille: u32, path: &str) -> bool {
        let fails = self.rng.hits(per_mille);
        if fails {
            self.excused.insert(path.to_owned());
            self.log(|| format!("(mishap) {path}"));
        }
        fails
    }

    /// Whether the stage fails now, which no file may be the worse for.
    pub(crate) fn stage_fails(&mut self, per_mille: u32) -> bool {
        let fails = self.rng.hits(per_mille);
        if fails {
            self.stats.stage_faults += 1;
            self.log(|| "(mishap) the stage fails".to_owned());
        }
        fails
    }

    /// Whether a path, or a directory that it lies in, may fail.
    pub(crate) fn is_excused(&self, path: &str) -> bool {
        let mut path = path;
        loop {
            if self.excused.contains(path) {
                return true;
            }
            if path.is_empty() {
                return false;
            }
            path = crate::tree::parent_of(path);
        }
    }
}

/// A message in a line.
fn brief(message: &Message) -> String {
    match message {
        Message::NewFile(entries) => {
            let line = |entry: &Entry| {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                format!("{} {name} {} bytes", entry.id, entry.size())
            };
            format!("NewFile {:?}", entries.iter().map(line).collect::<Vec<_>>())
        }
        other => format!("{other:?}"),
    }
}
