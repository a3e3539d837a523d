//! The connection breaks, and an honest server is there again; or one that lies about what it has.

use super::Host;
use super::restart::FAR;
use super::server::{Owed, Server};
use lads_core::remote::message::{Call, Outcome, Ticket, ToClient, ToServer, VERSION};

const TICKET: Ticket = Ticket([7; 16]);

impl Server {
    pub(super) fn new(gives_ticket: bool) -> Self {
        Self { gives_ticket, ..Self::default() }
    }

    /// Whether a frame is sent and not written, as far as the client knows.
    pub(super) fn is_in_flight(&self, frame: u64) -> bool {
        self.in_flight.contains_key(&frame) || self.again.contains_key(&frame)
    }

    /// Whether nothing is owed for a request. The client may have made some that it has not sent.
    pub(super) fn is_answered(&self, number: u64) -> bool {
        let lists = [&self.requests, &self.cancelled, &self.asked_again];
        let is_owed = lists.iter().any(|list| list.contains_key(&number));
        number < self.heard_ever && !is_owed && !self.standing.is_open(number)
    }

    /// The client is connected again: this many requests and frames had come. The others come
    /// again, and the reads that had come under other numbers.
    fn resume(&mut self, requests: u64, frames: u64) {
        let is_lost = |number: &u64, owed: &mut Owed| *number >= requests && !owed.is_again;
        self.asked_again.extend(self.requests.extract_if(.., is_lost));
        self.again.append(&mut self.in_flight.split_off(&frames));
        let reads = self.requests.extract_if(.., |_, owed| matches!(owed.call, Call::Read { .. }));
        self.cancelled.extend(reads);
        self.is_late = true;
        (self.heard, self.sent, self.confirmed) = (requests, frames, self.said);
        // What it had, it has.
        (self.answered, self.settled) = (requests, frames);
    }
}

impl Host<'_> {
    /// The connection breaks. The bytes that were on their way arrive before, or never.
    pub(super) fn break_off(&mut self, why: &str) {
        while !self.server.arriving.is_empty() {
            if self.choices.is_one_in(2) {
                self.arrive();
            } else {
                self.lose_bytes();
            }
        }
        let may_return = self.client.on_broken(why, self.now);
        assert_eq!(may_return, self.server.has_given_ticket, "a client with a ticket may return");
        assert_eq!(may_return, self.client.is_away());
        if !may_return {
            return self.lose(why.to_owned());
        }
        (self.is_connected, self.server.has_greeted) = (false, false);
    }

    fn lose_bytes(&mut self) {
        let Some(lost) = self.server.arriving.pop() else { return };
        if !self.server.requests.contains_key(&lost.number) {
            self.server.cancelled.insert(lost.number, lost.owed());
        }
    }

    /// What the client says first on a connection.
    pub(super) fn check_greeting(&self) {
        let is_away = self.client.is_away();
        match self.client.greeting() {
            ToServer::Resume { version, ticket, heard } => {
                assert!(is_away && version == VERSION && ticket == TICKET);
                assert_eq!(heard, self.server.said, "messages are counted");
            }
            ToServer::Hello { version, .. } => assert!(!is_away && version == VERSION),
            other => panic!("{other:?} is no greeting"),
        }
    }

    /// What follows the greeting of the server.
    pub(super) fn introduce(&mut self) {
        let is_returning = self.server.standing.is_returning();
        if self.client.is_away() && (is_returning || self.choices.is_one_in(3)) {
            self.restart();
        } else if self.client.is_away() {
            self.resume();
        } else if self.server.gives_ticket {
            self.give_ticket();
        }
    }

    /// One ticket is enough.
    pub(super) fn give_ticket(&mut self) {
        let is_first = !std::mem::replace(&mut self.server.has_given_ticket, true);
        self.deliver(ToClient::Ticket(TICKET), is_first);
    }

    /// The server has what it has answered, and any number of later requests and frames.
    fn resume(&mut self) {
        let Server { answered, heard, settled, sent, .. } = self.server;
        let requests = self.between(answered, heard);
        let frames = self.between(settled, sent);
        self.server.resume(requests, frames);
        self.deliver(ToClient::Resumed { requests, frames }, true);
        assert!(!self.client.is_away(), "it is connected again");
        self.reached.resumed += 1;
    }

    fn between(&mut self, first: u64, last: u64) -> u64 {
        let count = u32::try_from(last - first).expect("inputs are short");
        first + u64::from(self.choices.below(count + 1))
    }

    /// The reply to a read that was cancelled was on its way.
    pub(super) fn answer_late(&mut self) {
        let count = self.server.cancelled.len();
        let Some(place) = self.choices.place_in(count) else { return };
        let Some((&number, owed)) = self.server.cancelled.iter_mut().nth(place) else { return };
        let Call::Read { length, .. } = owed.call else { return };
        let count = match owed.half {
            Some((true, _)) => return,
            Some((false, count)) => count,
            None => self.choices.below(length + 1),
        };
        owed.half = Some((true, count));
        self.deliver(ToClient::Reply { number, outcome: Outcome::Number(count.into()) }, true);
    }

    /// The bytes of a read that was cancelled come, which they must not.
    pub(super) fn send_late(&mut self) {
        let Some(place) = self.choices.place_in(self.server.cancelled.len()) else { return };
        let late = self.server.cancelled.iter().nth(place);
        let Some((&number, &Owed { call: Call::Read { position, .. }, .. })) = late else { return };
        self.deliver_head(number, position, 1, false);
    }

    /// What begins a connection only after a break, and once.
    pub(super) fn resumed_or_restarted(&mut self) -> ToClient {
        match self.choices.is_one_in(2) {
            true => ToClient::Restarted { written: Vec::new(), done: Vec::new() },
            false => ToClient::Resumed { requests: 0, frames: 0 },
        }
    }

    /// A connection that does not begin as it must.
    pub(super) fn lie_first(&mut self) {
        let hello = |version| ToClient::Hello { version, name: String::new() };
        self.server.has_greeted = true;
        let first = match self.choices.below(4) {
            0 => hello(self.choices.one_of(&[0, u16::MAX])),
            1 => ToClient::Grant(1),
            2 => self.resumed_or_restarted(),
            _ => {
                self.deliver(hello(VERSION), true);
                self.lie_second()
            }
        };
        self.deliver(first, false);
    }

    /// What must not follow the greeting.
    fn lie_second(&mut self) -> ToClient {
        let Server { heard_ever, sent_ever, .. } = self.server;
        let beyond = 1 + u64::from(self.choices.below(3));
        let far = if self.reached.restarted > 0 { FAR } else { 0 };
        match self.choices.below(if self.client.is_away() { 6 } else { 3 }) {
            0 if !self.client.is_away() => self.resumed_or_restarted(),
            0 => ToClient::Hello { version: VERSION, name: String::new() },
            1 => ToClient::Resumed { requests: heard_ever + far + beyond, frames: 0 },
            2 => ToClient::Resumed { requests: 0, frames: sent_ever + beyond },
            3 => ToClient::Ticket(TICKET),
            4 => ToClient::Grant(1),
            _ => ToClient::Heartbeat,
        }
    }
}
