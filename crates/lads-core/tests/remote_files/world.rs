//! What happens next, and whether it may.

use super::client::{Access, Client, Told};
use super::disk::{DiskFile, FILE_BYTES, Stamp};
use super::rng::Rng;
use super::server::{Fate, Received, Sent, Session, failure_of};
use lads_core::remote::message::Failure;

/// The names of the files.
pub(crate) const FILES: [&str; 2] = ["one", "two"];

/// Things that happen before all that was begun is brought to its end.
const STEPS: u64 = 600;

/// Rounds of this end: each does all that can be done, and there are fewer requests.
const ROUNDS_MAX: u32 = 10_000;

/// How often things happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stats {
    pub(crate) writes: u64,
    pub(crate) failures: u64,
    pub(crate) reads: u64,
    pub(crate) syncs: u64,
    pub(crate) refusals: u64,
    pub(crate) losses: u64,
    pub(crate) crashes: u64,
    /// Frames that came before their views.
    pub(crate) overtakings: u64,
}

impl Stats {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            writes: self.writes + other.writes,
            failures: self.failures + other.failures,
            reads: self.reads + other.reads,
            syncs: self.syncs + other.syncs,
            refusals: self.refusals + other.refusals,
            losses: self.losses + other.losses,
            crashes: self.crashes + other.crashes,
            overtakings: self.overtakings + other.overtakings,
        }
    }
}

/// A client, its session, and what is on the way between them.
struct Pair {
    client: Client,
    session: Session,
    received: Received,
    sent: Sent,
}

pub(crate) struct World {
    rng: Rng,
    disk: Vec<DiskFile>,
    pairs: Vec<Pair>,
    /// What has become of each write, if it is known.
    fates: Vec<Option<Fate>>,
    /// Of each byte of each file, the writes of its client, in order; first what it was before.
    written: Vec<Vec<Vec<Stamp>>>,
    /// Writes before this one are durable if they are written, for each client and file.
    synced: Vec<[Stamp; FILES.len()]>,
    stats: Stats,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let count = 1 + rng.index(3);
        Self {
            rng,
            disk: FILES.map(|_| DiskFile::new()).into(),
            pairs: (0..count).map(|place| Pair::new(place, count)).collect(),
            fates: vec![Some(Fate::Written)],
            written: vec![vec![vec![0]; FILE_BYTES]; FILES.len()],
            synced: vec![[0; FILES.len()]; count],
            stats: Stats::default(),
        }
    }

    pub(crate) fn run(mut self) -> Stats {
        for _ in 0..STEPS {
            self.step();
        }
        self.come_to_an_end();
        for (disk, file) in self.written.iter().enumerate() {
            for (place, _) in file.iter().enumerate() {
                self.check_byte(disk, place, self.disk[disk].bytes[place]);
            }
        }
        self.stats
    }

    fn step(&mut self) {
        let index = self.rng.index(self.pairs.len());
        match self.rng.below(1000) {
            0 => self.crash(),
            1..4 => self.lose(index),
            4..250 => self.act(index),
            _ => self.move_on(index),
        }
    }

    fn act(&mut self, index: usize) {
        let next = self.fates.len() as Stamp;
        let Pair { client, received, .. } = &mut self.pairs[index];
        let Some(access) = client.act(received, &mut self.rng, next, &mut self.stats) else {
            return;
        };
        self.fates.push(None);
        for place in access.places {
            self.written[access.disk][place].push(next);
        }
        self.stats.writes += 1;
    }

    /// Something comes, or is done.
    fn move_on(&mut self, index: usize) {
        let Pair { client, session, received, sent } = &mut self.pairs[index];
        let mut told = Vec::new();
        match self.rng.below(6) {
            0 => client.send(received),
            1 => session.take_frame(received, sent, &mut self.stats),
            2 => session.take_request(received, sent),
            3 => session.work(sent, &mut self.disk, &mut self.rng),
            4 => told = client.hear_message(sent),
            _ => told = client.hear_bytes(sent),
        }
        let outcomes = std::mem::take(&mut session.outcomes);
        outcomes.into_iter().for_each(|(stamp, fate)| self.settle(stamp, fate));
        told.into_iter().for_each(|told| self.check(index, told));
    }

    fn settle(&mut self, stamp: Stamp, fate: Fate) {
        let known = self.fates[at(stamp)].replace(fate);
        assert_eq!(known, None, "write {stamp} ended twice");
    }

    fn check(&mut self, index: usize, told: Told) {
        match told {
            Told::Written { stamp, failure, expected } => {
                self.check_fate(stamp, failure, expected);
            }
            Told::Read { access: Access { disk, places }, bytes } => {
                self.stats.reads += 1;
                assert_eq!(places.len(), bytes.len());
                for (place, byte) in places.into_iter().zip(bytes) {
                    self.check_byte(disk, place, byte);
                }
            }
            Told::Synced { disk, before } => {
                let synced = &mut self.synced[index][disk];
                *synced = before.max(*synced);
            }
        }
    }

    /// What a client is told of a write is what has become of it.
    fn check_fate(&mut self, stamp: Stamp, failure: Option<Failure>, expected: Option<Failure>) {
        let right = match self.fates[at(stamp)] {
            Some(Fate::Written) => (None, None),
            Some(Fate::Torn) => (Some(failure_of(stamp)), None),
            Some(Fate::Refused) => (expected, expected),
            None => panic!("write {stamp} is told before it is done"),
        };
        assert_eq!((failure, expected), right, "write {stamp}");
        let is_refused = self.fates[at(stamp)] == Some(Fate::Refused);
        assert_eq!(is_refused, expected.is_some(), "write {stamp}");
        self.stats.failures += u64::from(failure.is_some() && !is_refused);
        self.stats.refusals += u64::from(is_refused);
    }

    /// A byte holds the last write, or one that failed since.
    fn check_byte(&self, disk: usize, place: usize, byte: Stamp) {
        self.check_byte_since(disk, place, byte, Stamp::MAX);
    }

    /// A byte holds the last write before this one, or any that came later or failed.
    fn check_byte_since(&self, disk: usize, place: usize, byte: Stamp, since: Stamp) {
        let writes = &self.written[disk][place];
        let fate = |stamp: Stamp| self.fates[at(stamp)];
        let is_there = |&&stamp: &&Stamp| stamp < since && fate(stamp) == Some(Fate::Written);
        let last = writes.iter().rposition(|it| is_there(&it)).unwrap_or(0);
        let may_be = |&&stamp: &&Stamp| !matches!(fate(stamp), None | Some(Fate::Refused));
        let allowed: Vec<_> = writes[last..].iter().filter(may_be).collect();
        assert!(allowed.contains(&&byte), "byte {place} of {disk}: {byte} is none of {allowed:?}");
    }

    /// All is done that was begun; nothing new is.
    fn come_to_an_end(&mut self) {
        for _ in 0..ROUNDS_MAX {
            if self.pairs.iter().all(|pair| pair.client.is_done() && pair.session.jobs() == 0) {
                return;
            }
            (0..self.pairs.len()).for_each(|index| self.move_on(index));
        }
        panic!("something is never done");
    }

    /// The connection of a client is lost, and it makes a new one.
    fn lose(&mut self, index: usize) {
        let pair = self.renew(index);
        let outcomes = pair.session.end(&mut self.disk, &mut self.rng);
        outcomes.into_iter().for_each(|(stamp, fate)| self.settle(stamp, fate));
        self.stats.losses += 1;
    }

    /// The server crashes, and comes back.
    fn crash(&mut self) {
        for index in 0..self.pairs.len() {
            let pair = self.renew(index);
            let outcomes = pair.session.crash(&mut self.disk, &mut self.rng);
            outcomes.into_iter().for_each(|(stamp, fate)| self.settle(stamp, fate));
        }
        self.disk.iter_mut().for_each(|file| file.crash(&mut self.rng));
        for disk in 0..FILES.len() {
            for place in 0..FILE_BYTES {
                let byte = self.disk[disk].bytes[place];
                let owner = super::client::owner_of(place, self.pairs.len());
                self.check_byte_since(disk, place, byte, self.synced[owner][disk]);
                self.written[disk][place] = vec![byte];
            }
        }
        self.stats.crashes += 1;
    }

    /// A new connection in the place of one whose rest is returned.
    fn renew(&mut self, index: usize) -> Pair {
        let count = self.pairs.len();
        let pair = std::mem::replace(&mut self.pairs[index], Pair::new(index, count));
        let on_the_way = pair.received.frames.iter().map(|(.., stamp)| *stamp);
        let lost: Vec<Stamp> = pair.client.unsent().chain(on_the_way).collect();
        lost.into_iter().for_each(|stamp| self.settle(stamp, Fate::Refused));
        pair
    }
}

impl Pair {
    fn new(place: usize, count: usize) -> Self {
        Self {
            client: Client::new(place as u64, count as u64),
            session: Session::new(),
            received: Received::default(),
            sent: Sent::default(),
        }
    }
}

fn at(stamp: Stamp) -> usize {
    usize::try_from(stamp).unwrap()
}
