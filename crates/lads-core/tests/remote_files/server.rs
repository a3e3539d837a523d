//! One client's session at the server, and its part of the storage's work.

use super::disk::{DiskFile, Stamp};
use super::rng::Rng;
use super::world::{FILES, Stats};
use lads_core::frame::Row;
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::remote::message::{
    Call, Failure, FileNumber, Outcome, Request, ToClient, ViewNumber, Written,
};
use lads_core::remote::order::{Order, Start};
use lads_core::remote::scatter::{Spot, scatter};
use lads_core::units::OstId;
use lads_core::view::{Datatype, View};
use std::collections::{HashMap, VecDeque};

/// Stripes of the files: several in each, so that a frame is written in parts.
const STRIPE_BYTES: u64 = 64;

/// What the server sends: messages, and what was read. They overtake each other.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) messages: VecDeque<ToClient>,
    pub(crate) bytes: VecDeque<(u64, Vec<Stamp>)>,
}

/// What a client sent: requests, and frames with the number of the write.
#[derive(Default)]
pub(crate) struct Received {
    pub(crate) requests: VecDeque<Request>,
    pub(crate) frames: VecDeque<(Row, Stamp)>,
}

pub(crate) struct Session {
    order: Order,
    /// Which file on the disk it is.
    files: HashMap<FileNumber, usize>,
    stamps: HashMap<u64, Stamp>,
    pending: Option<Request>,
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
    Read { number: u64, disk: usize, spots: Vec<Spot> },
}

impl Session {
    pub(crate) fn new() -> Self {
        Self {
            order: Order::default(),
            files: HashMap::new(),
            stamps: HashMap::new(),
            pending: None,
            jobs: Vec::new(),
            writing: HashMap::new(),
            outcomes: Vec::new(),
        }
    }

    /// Takes in a frame that has come, if there is one.
    pub(crate) fn take_frame(&mut self, from: &mut Received, to: &mut Sent, stats: &mut Stats) {
        let Some((row, stamp)) = from.frames.pop_front() else { return };
        let number = self.order.on_frame(&[row]).unwrap();
        let view = ViewNumber::of_entry(row.block.entry).unwrap();
        stats.overtakings += u64::from(self.order.view(view).is_err());
        self.stamps.insert(number, stamp);
        self.advance(to);
    }

    /// Takes in a request, if one has come and that before it is done; does it if its turn has
    /// come.
    pub(crate) fn take_request(
        &mut self,
        from: &mut Received,
        to: &mut Sent,
        disk: &mut [DiskFile],
    ) {
        if self.pending.is_none() {
            self.pending = from.requests.pop_front();
            if let Some(Request { number, .. }) = &self.pending {
                self.order.on_request(*number).unwrap();
            }
        }
        let is_ready = |it: &mut Request| self.order.is_ready(it.frames_before, &it.call);
        let Some(request) = self.pending.take_if(is_ready) else { return };
        let number = request.number;
        let outcome = self.call(request, disk);
        self.advance(to);
        if let Some(outcome) = outcome {
            let outcome = outcome.map_or_else(Outcome::Failed, |()| Outcome::Done);
            to.messages.push_back(ToClient::Reply { number, outcome });
        }
    }

    fn call(&mut self, request: Request, disk: &mut [DiskFile]) -> Option<Result<(), Failure>> {
        Some(match request.call {
            Call::Open { file, path, .. } => {
                let found = FILES.iter().position(|name| name.as_bytes() == path);
                self.order.open(file, found.is_none().then_some(NO_FILE)).unwrap();
                self.files.extend(found.map(|found| (file, found)));
                found.map(|_| ()).ok_or(NO_FILE)
            }
            Call::View { view, file, displacement, filetype } => {
                let datatype = Datatype::take(&filetype);
                let made = datatype.and_then(|it| View::new(displacement, &it));
                let made = made.map_err(|_| NO_VIEW);
                let failure = self.order.set_view(view, file, filetype.len(), made).unwrap();
                failure.map_or(Ok(()), Err)
            }
            Call::Forget { view } => {
                self.order.forget(view);
                Ok(())
            }
            Call::Read { view, position, length } => {
                let (file, view) = self.order.view(view).unwrap();
                if let Some(failure) = self.order.failure_of(file).unwrap() {
                    return Some(Err(failure));
                }
                let mut spots = spots_of(&view, position, position + u64::from(length)).concat();
                spots.sort_unstable_by_key(|spot| spot.place);
                let disk = self.files[&file];
                self.jobs.push(Job::Read { number: request.number, disk, spots });
                return None;
            }
            Call::Sync { file } => self.sync(file, disk),
            Call::Flush { file } => self.order.failure_of(file).unwrap().map_or(Ok(()), Err),
            Call::Close { file } => {
                let synced = self.sync(file, disk);
                self.order.close(file);
                self.files.remove(&file);
                synced
            }
            call => panic!("{call:?} is not asked for"),
        })
    }

    fn sync(&self, file: FileNumber, disk: &mut [DiskFile]) -> Result<(), Failure> {
        if let Some(failure) = self.order.failure_of(file).unwrap() {
            return Err(failure);
        }
        disk[self.files[&file]].sync();
        Ok(())
    }

    fn advance(&mut self, to: &mut Sent) {
        let failed = self.order.take_failed();
        for written in &failed {
            let stamp = self.stamps.remove(&written.frame).unwrap();
            self.outcomes.push((stamp, Fate::Refused));
        }
        if !failed.is_empty() {
            to.messages.push_back(ToClient::Written(failed));
        }
        for Start { frame, file, view, positions } in self.order.take_starts() {
            let (stamp, disk) = (self.stamps[&frame], self.files[&file]);
            let parts = spots_of(&view, positions.start, positions.end);
            self.writing.insert(frame, (parts.len(), None));
            let job = |spots| Job::Write { frame, disk, stamp, spots };
            self.jobs.extend(parts.into_iter().map(job));
        }
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
            Job::Read { number, disk: file, spots } => {
                let bytes = spots.iter().flat_map(|spot| disk[file].read(spot.run));
                let bytes: Vec<Stamp> = bytes.copied().collect();
                let outcome = Outcome::Number(bytes.len() as u64);
                to.bytes.push_back((number, bytes));
                to.messages.push_back(ToClient::Reply { number, outcome });
            }
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
                    self.on_written(Written { frame, failure }, to);
                }
            }
        }
    }

    fn on_written(&mut self, written: Written, to: &mut Sent) {
        let fate = if written.failure.is_some() { Fate::Torn } else { Fate::Written };
        let stamp = self.stamps.remove(&written.frame).unwrap();
        self.outcomes.push((stamp, fate));
        self.writing.remove(&written.frame);
        self.order.on_written(written.frame);
        to.messages.push_back(ToClient::Written(vec![written]));
        self.advance(to);
    }

    /// The connection is lost: what is being written is written, the rest is not.
    pub(crate) fn end(mut self, disk: &mut [DiskFile], rng: &mut Rng) -> Vec<(Stamp, Fate)> {
        self.jobs.retain(|job| matches!(job, Job::Write { .. }));
        self.pending = None;
        // What its turn comes for now has no buffer any more.
        let mut nobody = Sent::default();
        let before: Vec<u64> = self.writing.keys().copied().collect();
        while self
            .jobs
            .iter()
            .any(|job| matches!(job, Job::Write { frame, .. } if before.contains(frame)))
        {
            self.work(&mut nobody, disk, rng);
            self.jobs
                .retain(|job| matches!(job, Job::Write { frame, .. } if before.contains(frame)));
        }
        self.outcomes.extend(self.stamps.into_values().map(|stamp| (stamp, Fate::Refused)));
        self.outcomes
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

const NO_FILE: Failure = Failure { operation: Operation::Open, errno: 2 };
const NO_VIEW: Failure = Failure { operation: Operation::Examine, errno: 22 };

/// What the storage says when it fails with a write: each time something else.
pub(crate) fn failure_of(stamp: Stamp) -> Failure {
    Failure { operation: Operation::Write, errno: i32::try_from(stamp).unwrap() }
}
