//! The server is started again: what the client must say to the new one, and what it must send
//! again.

use super::Host;
use super::server::{Owed, Server};
use lads_core::remote::client::About;
use lads_core::remote::message::{Call, FileNumber, Outcome, ToClient, ViewNumber};
use lads_core::remote::outbox::Next;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Numbers that the client has not used, and will not in a short input.
pub(super) const FAR: u64 = 1000;

/// What the client has at the server, and what it said to the one that is there now.
#[derive(Default)]
pub(super) struct Standing {
    /// Answered requests for files, views and locks.
    requests: BTreeMap<u64, Call>,
    /// Answered requests to forget a view, and the frames before each.
    forgotten: BTreeMap<u64, (Call, u64)>,
    /// The view of each write that was sent.
    views: HashMap<u32, ViewNumber>,
    written: BTreeSet<u32>,
    /// The file of each view, and those that are closed.
    files: HashMap<ViewNumber, FileNumber>,
    closed: BTreeSet<FileNumber>,
    /// Views that no frame needs and that are forgotten.
    gone: BTreeSet<ViewNumber>,
    /// Writes that were refused and are not done, by the numbers of their first frames.
    pub(super) refused: BTreeMap<u64, u32>,
    /// Writes that must be sent before all others.
    pub(super) first: VecDeque<u32>,
    /// What the client has to say before it has returned; `None`: it has.
    coming: Option<BTreeMap<u64, Call>>,
    /// Batches of messages in which numbers of requests may be left out: they were of reads that
    /// were not sent.
    leaping: u32,
    skipped: BTreeSet<u64>,
    /// Views that this server knows, and those that it forgets after so many frames.
    set: BTreeSet<ViewNumber>,
    forgets: Vec<(ViewNumber, u64)>,
    /// The frames that it got and had not refused: number, view, and the write if it counts as
    /// announced.
    frames: Vec<(u64, ViewNumber, Option<u32>)>,
    announced: BTreeSet<u32>,
    /// Writes that it has refused.
    placed: BTreeSet<u32>,
}

impl Standing {
    /// Whether the client has not returned.
    pub(super) fn is_returning(&self) -> bool {
        self.coming.is_some()
    }

    /// Whether an answer to a request may be taken, though nobody asks for it now.
    pub(super) fn is_open(&self, number: u64) -> bool {
        let is_coming = self.coming.as_ref().is_some_and(|it| it.contains_key(&number));
        is_coming || self.skipped.contains(&number)
    }

    pub(super) fn on_answered(&mut self, number: u64, owed: &Owed, outcome: Outcome) {
        if owed.is_again {
            return;
        }
        let call = owed.call.clone();
        let is_done = outcome == Outcome::Done;
        match &call {
            Call::Open { .. } => drop(self.requests.insert(number, call)),
            // Answers come in any order.
            Call::View { file, view, .. }
                if self.closed.contains(file) || self.gone.contains(view) => {}
            Call::View { .. } => drop(self.requests.insert(number, call)),
            Call::Lock { .. } if is_done => drop(self.requests.insert(number, call)),
            Call::Forget { view } if self.closed.contains(&self.files[view]) => {}
            Call::Forget { .. } => {
                self.forgotten.insert(number, (call, owed.frames_before));
            }
            Call::Unlock { file } => self.requests.retain(|_, it| lock_of(it) != Some(*file)),
            Call::Close { file } => self.close(*file),
            _ => {}
        }
    }

    fn close(&mut self, file: FileNumber) {
        let is_of = |call: &Call| match call {
            Call::Open { file: of, .. } | Call::View { file: of, .. } => *of == file,
            _ => lock_of(call) == Some(file),
        };
        self.requests.retain(|_, call| !is_of(call));
        let Self { forgotten, files, .. } = self;
        forgotten.retain(|_, (call, _)| view_of(call).is_none_or(|it| files[&it] != file));
        self.closed.insert(file);
    }

    pub(super) fn on_written(&mut self, writes: impl IntoIterator<Item = u32>) {
        self.written.extend(writes);
        self.refused.retain(|_, it| !self.written.contains(it));
    }

    /// A frame was refused: its write counts as announced.
    pub(super) fn on_refused(&mut self, frame: u64, write: u32) {
        if !self.refused.values().any(|it| *it == write) {
            self.refused.insert(frame, write);
        }
        self.announced.insert(write);
        self.placed.insert(write);
    }

    pub(super) fn on_sent(&mut self, next: &Next<super::buffers::Buffer, About>) {
        assert!(!self.is_returning(), "frame {} before the return", next.number);
        let (write, view) = (next.of.write.0, next.of.view);
        self.views.insert(write, view);
        // The server has not forgotten where one belongs that it refused.
        if !self.placed.contains(&write) {
            self.frames.push((next.number, view, next.of.is_announced.then_some(write)));
        }
    }

    /// A request that is not made before the return.
    pub(super) fn on_request(&mut self, call: &Call, frames_before: u64) {
        match call {
            Call::View { view, file, .. } => {
                self.files.insert(*view, *file);
                self.set.insert(*view);
            }
            Call::Forget { view } => self.forgets.push((*view, frames_before)),
            Call::Fence { unsent } => self.announced.extend(unsent.iter().map(|it| it.write.0)),
            _ => {}
        }
    }

    /// The number of a new request. It is the next one, unless some were left out.
    pub(super) fn check_number(&mut self, number: u64, next: u64) {
        let may_leap = self.leaping > 0 && number > next;
        assert!(number == next || may_leap, "request {number}, not {next}");
        self.skipped.extend(next..number);
    }

    /// The end of a batch of messages.
    pub(super) fn end_batch(&mut self) {
        self.leaping -= u32::from(self.leaping > 0 && !self.is_returning());
    }

    /// No frame waits for ever for its view or its announcement.
    pub(super) fn check_frames(&self) {
        // A server that answers a close before all frames are written is not honest.
        let is_open =
            |view: &ViewNumber| self.files.get(view).is_none_or(|file| !self.closed.contains(file));
        for (number, view, announced) in self.frames.iter().filter(|(_, view, _)| is_open(view)) {
            assert!(self.set.contains(view), "frame {number} is of {view:?}, which is not set");
            let is_late = |(of, before): &(ViewNumber, u64)| of == view && before <= number;
            assert!(!self.forgets.iter().any(is_late), "{view:?} is forgotten before {number}");
            let is_known = announced.is_none_or(|write| self.announced.contains(&write));
            assert!(is_known, "frame {number} counts as announced");
        }
    }

    /// Forgets what is not needed any more by these writes. What is left comes again.
    fn begin_again(&mut self, writes: &[u32]) {
        let views: BTreeSet<_> = writes.iter().map(|write| self.views[write]).collect();
        let is_gone =
            |(call, _): &(Call, u64)| view_of(call).is_some_and(|it| !views.contains(&it));
        let gone = self.forgotten.extract_if(.., |_, it| is_gone(it));
        let gone: BTreeSet<_> = gone.filter_map(|(_, (call, _))| view_of(&call)).collect();
        self.requests.retain(|_, call| view_of(call).is_none_or(|it| !gone.contains(&it)));
        self.gone.extend(gone);
        self.coming = Some(self.requests.clone());
        self.leaping = 2;
        self.refused.clear();
        self.first = writes.iter().copied().collect();
        self.set.clear();
        self.forgets.clear();
        self.frames.clear();
        self.announced.clear();
        self.placed.clear();
    }
}

impl Server {
    /// Takes what comes before the return, and the return. Returns whether it was that.
    pub(super) fn take_return(&mut self, number: u64, before: u64, call: &Call) -> bool {
        let Some(coming) = &mut self.standing.coming else { return false };
        assert_eq!(before, 0, "request {number}");
        if let Call::Return { frames, writes } = call {
            assert!(coming.is_empty(), "{coming:?} did not come");
            assert_eq!(*frames, self.sent, "frames are counted");
            for it in writes {
                let write = it.unsent.write.0;
                assert!(!self.standing.written.contains(&write), "write {write} is done");
                assert!(self.standing.announced.insert(write), "write {write} twice");
            }
            self.standing.coming = None;
            self.heard = 0;
            return true;
        }
        let expected = coming.pop_first();
        assert_eq!(expected.as_ref(), Some(&(number, call.clone())), "what was there");
        self.standing.on_request(call, 0);
        let mut owed = Owed::new(call.clone(), 0, 0);
        owed.is_again = true;
        self.requests.insert(number, owed);
        true
    }

    /// A server that was started again has written these frames and done these requests.
    fn restart(&mut self, written: &[u64], done: &[u64]) {
        let mut sent = std::mem::take(&mut self.in_flight);
        sent.append(&mut self.again);
        let gone: Vec<_> = written.iter().filter_map(|it| sent.remove(it)).collect();
        self.standing.on_written(gone);
        let refused = &self.standing.refused;
        sent.retain(|_, write| !refused.values().any(|it| it == write));
        sent.extend(refused);
        sent.extend((self.sent_ever..).zip(self.standing.first.iter().copied()));
        let writes: Vec<_> = sent.values().copied().collect();
        self.standing.begin_again(&writes);
        let mut all = std::mem::take(&mut self.requests);
        all.retain(|_, owed| !owed.is_again);
        all.append(&mut self.asked_again);
        let is_read = |owed: &Owed| matches!(owed.call, Call::Read { .. });
        self.cancelled.extend(all.extract_if(.., |_, owed| is_read(owed)));
        all.retain(|number, owed| !(owed.call.is_done_once() && done.contains(number)));
        for (number, (call, before)) in &self.standing.forgotten {
            all.entry(*number).or_insert_with(|| Owed::new(call.clone(), *before, 0));
        }
        let numbers: Vec<_> = sent.into_keys().collect();
        for owed in all.values_mut() {
            let count = numbers.partition_point(|it| *it < owed.frames_before) as u64;
            owed.frames_before = self.sent_ever + count;
        }
        self.asked_again = all;
        (self.granted, self.said, self.confirmed) = (0, 0, 0);
        (self.sent, self.settled, self.answered) = (self.sent_ever, self.sent_ever, 0);
        self.is_late = true;
    }
}

impl Host<'_> {
    /// The server was started again. What it knows may be more than the client asks for.
    pub(super) fn restart(&mut self) {
        let Server { in_flight, again, requests, asked_again, heard_ever, .. } = &self.server;
        let frames: Vec<_> = in_flight.keys().chain(again.keys()).copied().collect();
        let asked: Vec<_> = requests.keys().chain(asked_again.keys()).copied().collect();
        let unused = heard_ever + FAR;
        let flying: BTreeSet<_> = in_flight.values().chain(again.values()).copied().collect();
        let before = flying.len();
        let written = self.some_of(&frames);
        let mut done = self.some_of(&asked);
        done.retain(|number| *number < unused - FAR || *number > unused);
        for write in self.server.standing.refused.clone().into_values() {
            if !flying.contains(&write) {
                self.set_sent(write, true);
            }
        }
        self.server.restart(&written, &done);
        let sent = self.server.standing.first.len();
        self.reached.written += before.saturating_sub(sent) as u64;
        self.deliver(ToClient::Restarted { written, done }, true);
        assert!(!self.client.is_away() && !self.client.has_frame(self.now));
        self.reached.restarted += 1;
    }

    /// Some of these numbers, some of them twice, and others.
    fn some_of(&mut self, numbers: &[u64]) -> Vec<u64> {
        let mut some = Vec::new();
        for number in numbers {
            let count = self.choices.below(4).saturating_sub(1);
            some.extend((0..count).map(|_| *number));
        }
        if self.choices.is_one_in(4) {
            some.push(self.choices.number());
        }
        some
    }
}

fn lock_of(call: &Call) -> Option<FileNumber> {
    match call {
        Call::Lock { file, .. } => Some(*file),
        _ => None,
    }
}

fn view_of(call: &Call) -> Option<ViewNumber> {
    match call {
        Call::View { view, .. } | Call::Forget { view } => Some(*view),
        _ => None,
    }
}
