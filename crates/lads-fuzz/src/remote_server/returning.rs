//! The server is started again: its owner has lists of what was there, and clients return.

use super::sound::Sound;
use super::{AWAY_MAX, Client, Host, ROOM};
use lads_core::remote::locks::ClientNumber;
use lads_core::remote::message::{
    Call, Fenced, FrameOf, Outcome, Request, Ticket, ToClient, Unsent, WriteNumber,
};
use lads_core::remote::server::{Act, Server, Task};
use lads_core::units::Block;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// How long the server waits for clients that return.
const RETURN_TIME: Duration = Duration::from_millis(100);

/// No client is silent for longer than this.
const SILENCE: Duration = Duration::from_secs(3600);

/// A number that no client has.
pub(super) const NOBODY: ClientNumber = ClientNumber(u64::MAX);

/// How far a client is after the server was started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Here,
    /// It has not come.
    Expected,
    /// It has not said that it is back.
    Begun,
}

impl Host<'_> {
    /// Whether nothing may be done for anybody: a client has not returned, and there is time.
    pub(super) fn is_held(&self) -> bool {
        self.until.is_some() && self.clients.iter().any(|it| it.phase != Phase::Here && !it.is_over)
    }

    /// The server ends, and another one begins. Of what was being done, anything may be done.
    pub(super) fn restart(&mut self) {
        for index in 0..self.clients.len() {
            let Client { number, is_away, is_over, .. } = self.clients[index];
            if !is_away && !is_over {
                let heard = self.hear_some(index);
                self.end_at_breach(number, heard);
            }
        }
        self.begin();
        while let Some(writing) = self.writing.pop() {
            let is_written = self.choices.is_one_in(2);
            let client = self.client(writing.client);
            client.written.extend(is_written.then_some(writing.frame));
        }
        self.fences += 1000;
        let lost = self.server.lost();
        self.server = Server::new("host".to_owned(), ROOM, AWAY_MAX, self.fences);
        self.gone.clear();
        let now = self.now;
        let mut lists = HashMap::new();
        for index in 0..self.clients.len() {
            self.do_some(index);
            let client = &mut self.clients[index];
            let is_known = !client.is_over && !client.is_leaving && client.has_ticket;
            if is_known {
                client.on_restart();
                client.listed = client.known.clone();
                lists.insert(client.ticket, client.listed.clone());
            } else {
                self.tickets += 1;
                let ticket = Ticket([self.tickets; 16]);
                let sound = (!self.choices.is_one_in(4)).then(Sound::default);
                self.clients[index] = Client::new(self.server.connect(ticket, now), ticket, sound);
            }
        }
        self.until = (!lists.is_empty()).then(|| now + RETURN_TIME);
        self.server.expect(lists, lost, now + RETURN_TIME);
        self.reached.restarted += 1;
    }

    /// Some of what was being done is done, and cannot be done again.
    fn do_some(&mut self, index: usize) {
        let client = &mut self.clients[index];
        for (Task { request, act }, ..) in client.tasks.drain(..) {
            let is_change = matches!(act, Act::SetSize(..) | Act::Delete(_) | Act::Preallocate(..));
            client.done.extend((is_change && self.choices.is_one_in(2)).then_some(request));
        }
        client.sending.clear();
    }

    /// A client connects again, and is expected until its time is over.
    pub(super) fn readmit(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let done = (client.written.clone(), client.done.clone());
        assert_eq!(self.server.knows(client.ticket), self.until.is_some(), "expected in time");
        let Some(number) = self.server.readmit(client.ticket, done, self.now) else {
            client.is_over = true;
            return;
        };
        assert_eq!(self.server.find(client.ticket), Some(number));
        (client.number, client.phase, client.is_away) = (number, Phase::Begun, false);
        (client.connection, client.heard) = (client.connection + 1, 0);
        (client.counted, client.confirmed, client.said) = (0, 0, 0);
    }

    /// The owner looks for clients that are silent, which ends the time for those that return.
    pub(super) fn look(&mut self) {
        let late = self.clients.each_ref().map(|it| it.phase != Phase::Here || self.has_open(it));
        let silent = self.server.silent(self.now, Duration::ZERO, SILENCE);
        assert!(silent.is_empty(), "{silent:?} are given up");
        if self.until.is_none_or(|until| self.now < until) {
            return;
        }
        self.until = None;
        for (client, is_late) in self.clients.iter_mut().zip(late) {
            let is_known = self.server.knows(client.ticket);
            assert!(!is_known || client.phase == Phase::Here, "{:?} is late", client.number);
            client.is_over |= is_late && !is_known;
        }
    }

    /// Whether a file is being opened for a client: what it said then may wait for that.
    fn has_open(&self, client: &Client) -> bool {
        let is_open = |(task, number, _): &(Task, ClientNumber, u32)| {
            *number == client.number && matches!(task.act, Act::Open { .. })
        };
        client.tasks.iter().any(is_open) || self.server.has_task(client.number)
    }

    pub(super) fn end_time(&mut self) {
        self.now = self.until.map_or(self.now, |until| until.max(self.now));
        self.look();
    }

    /// What a client that says anything says before it is back.
    pub(super) fn any_return(&mut self, index: usize) -> Call {
        let known: Vec<_> = self.clients[index].known.keys().copied().collect();
        match self.choices.below(6) {
            0 => Call::Return { frames: self.any_frames(index), writes: self.any_fenced() },
            1 | 2 => match self.choices.place_in(known.len()) {
                Some(place) => super::open(known[place]),
                None => self.call(),
            },
            _ => self.call(),
        }
    }

    fn any_frames(&mut self, index: usize) -> u64 {
        match self.choices.is_one_in(4) {
            true => self.choices.number(),
            false => self.clients[index].frames,
        }
    }

    pub(super) fn any_fenced(&mut self) -> Vec<Fenced> {
        let count = self.choices.below(4);
        let count = if self.choices.is_one_in(250) { 70_000 } else { count };
        let (fence, view) = (self.choices.number(), self.view());
        let first = self.unsent(view);
        let unsent = |number| Unsent { write: WriteNumber(first.write.0 + number), ..first };
        (0..count).map(|number| Fenced { fence, unsent: unsent(number) }).collect()
    }

    /// The connection of a client is broken that has not returned. It may come again.
    pub(super) fn leave_return(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let number = client.number;
        self.server.on_gone(number, None);
        self.gone.push(number);
        client.is_over = client.is_leaving || self.until.is_none();
        assert_eq!(self.server.knows(client.ticket), !client.is_over, "it may come again");
        client.on_restart();
    }
}

impl Client {
    /// Its server is gone, or has forgotten it.
    pub(super) fn on_restart(&mut self) {
        self.number = NOBODY;
        (self.phase, self.is_away) = (Phase::Expected, true);
        self.room = 0;
        self.here.clear();
        self.frames = self.first_frame + self.sent.len() as u64;
        self.answered.clear();
    }

    /// It says that it is back, and that this is the number of its next frame.
    pub(super) fn on_returned(&mut self, frames: u64) {
        self.phase = Phase::Here;
        self.sent.clear();
        (self.first_frame, self.frames, self.requests) = (frames, frames, 0);
    }

    /// What it says and sends again.
    pub(super) fn on_restarted(&mut self, message: &ToClient) {
        let ToClient::Restarted { written, done } = message else { return };
        let frames = self.first_frame + self.sent.len() as u64;
        if let Some(sound) = &mut self.sound {
            sound.restart(written, done, frames);
        }
    }
}

impl Sound {
    /// A request for which it has an answer.
    pub(super) fn on_answered(&mut self, number: u64, outcome: Outcome) {
        let Some(Request { call, frames_before, .. }) = self.made.remove(&number) else { return };
        match &call {
            // Its file was closed before it was given.
            Call::Lock { .. } if outcome != Outcome::Done => {}
            Call::Open { .. } | Call::View { .. } | Call::Lock { .. } => {
                self.standing.insert(number, call);
            }
            Call::Forget { view } => {
                self.forgotten.insert(*view, Request { number, frames_before, call });
            }
            Call::Close { file } => self.standing.retain(|_, call| match call {
                Call::Open { file: of, .. } | Call::View { file: of, .. } => of != file,
                Call::Lock { file: of, .. } => of != file,
                _ => true,
            }),
            Call::Fence { .. } => {
                let own = self.fences.iter_mut().find(|fence| fence.number == number);
                if let (Some(fence), Outcome::Number(answer)) = (own, outcome) {
                    fence.answer = Some(answer);
                }
            }
            _ => {}
        }
    }

    /// Finds what is said and sent again.
    fn restart(&mut self, written: &[u64], done: &[u64], frames: u64) {
        self.reads.clear();
        self.made.retain(|number, it| {
            let is_done = it.call.is_done_once() && done.contains(number);
            !is_done && !matches!(it.call, Call::Read { .. })
        });
        self.owed.retain(|number| self.made.contains_key(number));
        self.on_written(written);
        let sent = self.writes.iter().filter_map(|(write, it)| Some((it.number?, *write)));
        let mut sent: Vec<_> = sent.collect();
        sent.sort_unstable();
        self.announced.retain(|it| self.writes[&it.write].number.is_none());
        let (returned, lists) = self.announce_again();
        self.first = sent.iter().map(|(_, write)| *write).collect();
        for (number, write) in (frames..).zip(&self.first) {
            self.writes.get_mut(write).expect("it is one of them").number = Some(number);
        }
        let views: BTreeSet<_> = self.writes.values().map(|it| it.unsent.view).collect();
        self.standing.retain(|_, call| match call {
            Call::View { view, .. } => views.contains(view) || !self.forgotten.contains_key(view),
            _ => true,
        });
        self.forgotten.retain(|view, _| views.contains(view));
        for request in self.forgotten.values() {
            self.made.entry(request.number).or_insert_with(|| request.clone());
        }
        for request in self.made.values_mut() {
            let count = sent.partition_point(|(number, _)| *number < request.frames_before);
            request.frames_before = frames + count as u64;
            if let Call::Fence { unsent } = &mut request.call {
                *unsent = lists.get(&request.number).cloned().unwrap_or_default();
            }
        }
        self.say_again(frames, returned);
    }

    /// Writes that are announced with the return, and those with each fence that was not answered.
    fn announce_again(&mut self) -> (Vec<Fenced>, HashMap<u64, Vec<Unsent>>) {
        let (mut returned, mut lists) = (Vec::new(), HashMap::<u64, Vec<Unsent>>::new());
        self.known.clear();
        for (write, it) in &self.writes {
            let Some(fence) = self.fences.iter().find(|fence| fence.last >= *write) else {
                continue;
            };
            let before = self.made.get(&fence.number).map(|it| it.frames_before);
            match (fence.answer, before) {
                (Some(fence), _) => returned.push(Fenced { fence, unsent: it.unsent }),
                (None, Some(before)) if it.number.is_none_or(|number| number >= before) => {
                    lists.entry(fence.number).or_default().push(it.unsent);
                }
                _ => continue,
            }
            self.known.insert(*write);
        }
        (returned, lists)
    }

    fn say_again(&mut self, frames: u64, writes: Vec<Fenced>) {
        let request = |number, call| Request { number, frames_before: 0, call };
        let standing = self.standing.iter();
        let standing = standing.map(|(number, call)| request(*number, call.clone()));
        let last = self.standing.last_key_value().map_or(0, |(number, _)| number + 1);
        let back = request(last, Call::Return { frames, writes });
        let made = self.made.values().cloned();
        self.returning = standing.chain([back]).chain(made).collect();
    }

    /// The next frame of those that are sent again.
    pub(super) fn next_first(&mut self) -> Option<Block> {
        let write = self.first.pop_front()?;
        let Unsent { view, position: offset, length, .. } = self.writes[&write].unsent;
        let is_announced = self.known.contains(&write);
        let entry = FrameOf { view, write, is_announced }.entry();
        Some(Block { entry, offset, length })
    }

    pub(super) fn next_returning(&mut self) -> Option<Request> {
        VecDeque::pop_front(&mut self.returning)
    }
}
