//! The server of one client, and its part of the storage's work.

use super::disk::{DiskFile, Stamp};
use super::rng::Rng;
use super::world::{FILES, Stats};
use lads_core::frame::{Header, Row};
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{Failure, FileNumber, Outcome, Request, ToClient, ToServer};
use lads_core::remote::scatter::{Spot, scatter};
use lads_core::remote::server::{Act, Server, Task, Work};
use lads_core::units::{Instant, OstId};
use lads_core::view::View;
use std::collections::{HashMap, VecDeque};

/// Stripes of the files: several in each, so that a frame is written in parts.
const STRIPE_BYTES: u64 = 64;

/// What the server sends: messages, and what was read. They overtake each other.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) messages: VecDeque<ToClient>,
    pub(crate) bytes: VecDeque<(u64, Vec<Stamp>)>,
}

/// What a client sent: requests, and frames with the number of the write and whether it was the
/// last for which there was room.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) requests: VecDeque<Request>,
    pub(crate) frames: VecDeque<(Row, bool, Stamp)>,
}

pub(crate) struct Session {
    server: Server,
    number: ClientNumber,
    /// Which file on the disk it is.
    files: HashMap<FileNumber, usize>,
    stamps: HashMap<u64, Stamp>,
    jobs: Vec<Job>,
    /// Frames that are being written: jobs that are not done, and the first failure.
    writing: HashMap<u64, (usize, Option<Failure>)>,
    pub(crate) outcomes: Vec<(Stamp, Fate)>,
}

/// What has become of a write, as the storage knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Written,
    /// Some of its bytes may be there.
    Torn,
    /// None of its bytes is there.
    Refused,
}

enum Job {
    Write { frame: u64, disk: usize, stamp: Stamp, spots: Vec<Spot> },
    Task(Task),
}

impl Session {
    pub(crate) fn new() -> Self {
        let mut server = Server::new("host".to_owned(), FRAMES_MAX);
        let number = server.connect(NOW);
        Self {
            server,
            number,
            files: HashMap::new(),
            stamps: HashMap::new(),
            jobs: Vec::new(),
            writing: HashMap::new(),
            outcomes: Vec::new(),
        }
    }

    /// Takes in a frame that has come, if there is one.
    pub(crate) fn take_frame(&mut self, from: &mut Received, to: &mut Sent, stats: &mut Stats) {
        let Some((row, is_last_grant, stamp)) = from.frames.pop_front() else { return };
        let header = Header {
            count: 1,
            payload_bytes: row.block.length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant,
            has_only_sums: false,
        };
        self.server.on_head(self.number, &header, &[row]).unwrap();
        let waiting = self.server.coming_count(self.number);
        let number = self.server.on_frame(self.number, &[row], NOW).unwrap();
        stats.overtakings += u64::from(self.server.coming_count(self.number) > waiting);
        self.stamps.insert(number, stamp);
        self.advance(to);
    }

    /// Takes in a request, if one has come and there is room for it.
    pub(crate) fn take_request(&mut self, from: &mut Received, to: &mut Sent) {
        if !self.server.has_room_for_message(self.number) {
            return;
        }
        let Some(request) = from.requests.pop_front() else { return };
        self.server.on_message(self.number, ToServer::Request(request), NOW).unwrap();
        self.advance(to);
    }

    fn advance(&mut self, to: &mut Sent) {
        while let Some(work) = self.server.next_work() {
            let frame = work.frame();
            let Work::Write { file, extent, .. } = work else {
                let stamp = self.stamps.remove(&frame).unwrap();
                self.outcomes.push((stamp, Fate::Refused));
                continue;
            };
            let (stamp, disk) = (self.stamps[&frame], self.files[&file]);
            let positions = extent.positions();
            let parts = spots_of(extent.view(), positions.start, positions.end);
            self.writing.insert(frame, (parts.len(), None));
            let job = |spots| Job::Write { frame, disk, stamp, spots };
            self.jobs.extend(parts.into_iter().map(job));
        }
        while let Some(task) = self.server.next_task(self.number) {
            self.jobs.push(Job::Task(task));
        }
        to.messages.extend(self.server.next_messages(self.number).unwrap());
    }

    /// How many things the storage has to do for this client.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// The storage does one of them, any one.
    pub(crate) fn work(&mut self, to: &mut Sent, disk: &mut [DiskFile], rng: &mut Rng) {
        if self.jobs.is_empty() {
            return;
        }
        match self.jobs.swap_remove(rng.index(self.jobs.len())) {
            Job::Task(task) => self.do_task(task, to, disk),
            Job::Write { frame, disk: file, stamp, spots } => {
                // Storage that fails may have written some of it.
                let is_failing = rng.is_one_in(30);
                let count = if is_failing { rng.index(spots.len() + 1) } else { spots.len() };
                spots[..count].iter().for_each(|spot| disk[file].write(spot.run, stamp));
                let (left, failure) = self.writing.get_mut(&frame).unwrap();
                *left -= 1;
                if is_failing {
                    failure.get_or_insert(failure_of(stamp));
                }
                let (is_done, failure) = (*left == 0, *failure);
                if is_done {
                    self.on_written(frame, failure);
                }
            }
        }
        self.advance(to);
    }

    fn do_task(&mut self, Task { request, act }: Task, to: &mut Sent, disk: &mut [DiskFile]) {
        let number = self.number;
        let outcome = match act {
            Act::Open { file, path, .. } => {
                let found = FILES.iter().position(|name| name.as_bytes() == path);
                self.files.extend(found.map(|found| (file, found)));
                let id = |inode: usize| FileId { device: 1, inode: inode as u64 };
                let result = found.map(id).ok_or(NO_FILE);
                return self.server.on_opened(number, request, result, NOW).unwrap();
            }
            Act::Read { file, extent } => {
                let positions = extent.positions();
                let spots = spots_of(extent.view(), positions.start, positions.end);
                let mut spots = spots.concat();
                spots.sort_unstable_by_key(|spot| spot.place);
                let file = &disk[self.files[&file]];
                let bytes = spots.iter().flat_map(|spot| file.read(spot.run));
                let bytes: Vec<Stamp> = bytes.copied().collect();
                let length = u32::try_from(bytes.len()).unwrap();
                if self.server.on_read(number, request, Ok(length)).unwrap() {
                    to.bytes.push_back((request, bytes));
                    self.server.on_sent(number, request, length, NOW).unwrap();
                }
                return;
            }
            Act::Sync(file) => {
                disk[self.files[&file]].sync();
                Outcome::Done
            }
            Act::Close { file, is_usable } => {
                let file = self.files.remove(&file).filter(|_| is_usable);
                file.into_iter().for_each(|file| disk[file].sync());
                Outcome::Done
            }
            act => panic!("{act:?} is not asked for"),
        };
        self.server.on_done(number, request, outcome, NOW).unwrap();
    }

    fn on_written(&mut self, frame: u64, failure: Option<Failure>) {
        let fate = if failure.is_some() { Fate::Torn } else { Fate::Written };
        let stamp = self.stamps.remove(&frame).unwrap();
        self.outcomes.push((stamp, fate));
        self.writing.remove(&frame);
        self.server.on_written(self.number, frame, failure, NOW).unwrap();
    }

    /// The connection is lost: what is here is written, the rest is not.
    pub(crate) fn end(mut self, disk: &mut [DiskFile], rng: &mut Rng) -> Vec<(Stamp, Fate)> {
        self.server.on_gone(self.number, None);
        let mut nobody = Sent::default();
        self.advance(&mut nobody);
        for _ in 0..JOBS_MAX {
            if self.server.is_ended(self.number) {
                assert_eq!((self.jobs.len(), self.stamps.len()), (0, 0), "it has ended");
                return self.outcomes;
            }
            self.work(&mut nobody, disk, rng);
        }
        panic!("a client that is gone keeps something");
    }

    /// The server crashes: of what is being written, some bytes are on their way to the disk.
    pub(crate) fn crash(mut self, disk: &mut [DiskFile], rng: &mut Rng) -> Vec<(Stamp, Fate)> {
        for job in std::mem::take(&mut self.jobs) {
            let Job::Write { disk: file, stamp, spots, .. } = job else { continue };
            let count = rng.index(spots.len() + 1);
            spots[..count].iter().for_each(|spot| disk[file].write(spot.run, stamp));
        }
        let torn = |(frame, stamp)| match self.writing.contains_key(&frame) {
            true => (stamp, Fate::Torn),
            false => (stamp, Fate::Refused),
        };
        self.outcomes.extend(self.stamps.into_iter().map(torn));
        self.outcomes
    }
}

/// The parts of a piece, one for each OST.
fn spots_of(view: &View, first: u64, end: u64) -> Vec<Vec<Spot>> {
    let layout = Layout::striped(STRIPE_BYTES, (0..3).map(OstId).collect()).unwrap();
    let found = scatter(view, &layout, first, first..end).unwrap();
    assert_eq!(found.end, end, "few runs are found at once");
    found.osts.into_values().collect()
}

/// Frames that the server has room for.
const FRAMES_MAX: u32 = 6;

/// More jobs than a client can leave behind.
const JOBS_MAX: u32 = 1000;

/// Nothing here depends on time.
const NOW: Instant = Instant::START;

const NO_FILE: Failure = Failure { operation: Operation::Open, errno: 2 };

/// What the storage says when it fails with a write: each time something else.
pub(crate) fn failure_of(stamp: Stamp) -> Failure {
    Failure { operation: Operation::Write, errno: i32::try_from(stamp).unwrap() }
}
