//! A server of remote files that sends anything: most of its messages are those of an honest one.

use super::Host;
use super::buffers::{Chunk, Piece};
use super::restart::Standing;
use lads_core::frame::{Header, Row};
use lads_core::issue::Operation;
use lads_core::remote::client::About;
use lads_core::remote::message::{
    Call, Failure, Outcome, Request, ToClient, ToServer, VERSION, ViewNumber, WriteNumber, Written,
};
use lads_core::remote::outbox::Next;
use lads_core::remote::policy::CONFIRM_MESSAGES;
use lads_core::units::{Block, EntryId, OstId};
use std::collections::BTreeMap;

/// What the server knows.
#[derive(Default)]
pub(super) struct Server {
    pub(super) has_greeted: bool,
    /// Frames that the client may send.
    pub(super) granted: u32,
    /// Number of frames that the client has sent.
    pub(super) sent: u64,
    /// Frames that were sent and are not written, and the number of frames put before each.
    pub(super) in_flight: BTreeMap<u64, u32>,
    /// Requests that are not answered.
    pub(super) requests: BTreeMap<u64, Owed>,
    /// Frames whose head has arrived and whose bytes have not.
    pub(super) arriving: Vec<Arriving>,
    /// Requests that this server had, and the number of the next one that the client never sent.
    pub(super) heard: u64,
    pub(super) heard_ever: u64,
    pub(super) standing: Standing,
    /// What the next fence is answered with.
    pub(super) next_fence: u64,
    /// Whether the client may connect again, and whether it knows.
    pub(super) gives_ticket: bool,
    pub(super) has_given_ticket: bool,
    /// Counted messages that arrived, and how many the client confirmed.
    pub(super) said: u64,
    pub(super) confirmed: u64,
    /// The server certainly had the requests and frames before these.
    pub(super) answered: u64,
    pub(super) settled: u64,
    /// Number of frames that the client has sent on all connections.
    pub(super) sent_ever: u64,
    /// Frames and requests that did not arrive before the connection broke.
    pub(super) again: BTreeMap<u64, u32>,
    pub(super) asked_again: BTreeMap<u64, Owed>,
    /// Reads whose answers were lost.
    pub(super) cancelled: BTreeMap<u64, Owed>,
    /// Whether the requests that come next were made before the connection was there again.
    pub(super) is_late: bool,
}

/// A request that is not answered.
pub(super) struct Owed {
    pub(super) call: Call,
    pub(super) frames_before: u64,
    /// Whether an earlier server has answered it.
    pub(super) is_again: bool,
    /// Time of the request.
    asked: u64,
    /// Bytes of a read of which one half has been sent: the frame or the reply.
    pub(super) half: Option<(bool, u32)>,
}

impl Owed {
    pub(super) fn new(call: Call, frames_before: u64, asked: u64) -> Self {
        Self { call, frames_before, is_again: false, asked, half: None }
    }
}

/// The bytes of a read.
pub(super) struct Arriving {
    pub(super) number: u64,
    view: ViewNumber,
    position: u64,
    /// How many were asked for, and how many come.
    length: u32,
    count: u32,
    asked: u64,
}

impl Arriving {
    /// The read that was answered with them.
    pub(super) fn owed(&self) -> Owed {
        let Self { view, position, length, count, asked, .. } = *self;
        let call = Call::Read { view, position, length };
        Owed { half: Some((true, count)), ..Owed::new(call, 0, asked) }
    }
}

const FAILURE: Failure = Failure { operation: Operation::Read, errno: 5 };

impl Host<'_> {
    /// A frame is sent, or sent once more.
    pub(super) fn on_sent(&mut self, next: &Next<super::buffers::Buffer, About>) {
        let write = next.of.write.0;
        self.server.standing.on_sent(next);
        match self.server.again.remove(&next.number) {
            Some(before) => assert_eq!(write, before, "frame {} was another", next.number),
            None => self.on_sent_first(next),
        }
        let server = &mut self.server;
        let is_last = server.granted == 0 && server.again.is_empty();
        assert_eq!(next.is_last_grant, is_last, "the last grant");
        assert_eq!(next.number, server.sent, "frames are counted");
        server.sent += 1;
        server.sent_ever = server.sent_ever.max(server.sent);
        server.in_flight.insert(next.number, write);
    }

    fn on_sent_first(&mut self, next: &Next<super::buffers::Buffer, About>) {
        let server = &mut self.server;
        assert!(server.granted > 0, "frame {} without a grant", next.number);
        assert!(server.again.is_empty(), "frame {} is sent too soon", next.number);
        server.granted -= 1;
        self.reached.sent += 1;
        let write = next.of.write.0;
        match server.standing.first.pop_front() {
            Some(first) => assert_eq!(write, first, "frame {} is sent too soon", next.number),
            None => self.set_sent(write, true),
        }
    }

    /// Messages are sent.
    pub(super) fn on_messages(&mut self, messages: Vec<ToServer>) {
        let is_heartbeat = |message: &&ToServer| matches!(message, ToServer::Heartbeat { .. });
        assert!(messages.iter().filter(is_heartbeat).count() <= 1, "heartbeats pile up");
        let is_any = !messages.is_empty();
        for message in messages {
            match message {
                ToServer::Request(request) => self.on_request(request),
                ToServer::Heartbeat { heard } => {
                    assert_eq!(heard, self.server.said, "messages are counted");
                    self.server.confirmed = heard;
                }
                other => panic!("{other:?} is not to be sent now"),
            }
        }
        self.server.is_late &= !is_any;
        if is_any {
            self.server.standing.end_batch();
        }
        let Server { said, confirmed, has_given_ticket, .. } = self.server;
        let is_confirmed = said - confirmed < CONFIRM_MESSAGES;
        let confirms = has_given_ticket && !self.is_over && !self.client.is_away();
        assert!(is_confirmed || !confirms, "the server keeps too much");
    }

    fn on_request(&mut self, request: Request) {
        let Request { number, frames_before, call } = request;
        let server = &mut self.server;
        if server.take_return(number, frames_before, &call) {
            return;
        }
        let frames = server.sent_ever + server.standing.first.len() as u64;
        assert!(frames_before <= frames, "request {number} waits for ever");
        if let Some((again, before)) = server.asked_again.pop_first() {
            assert_eq!(number, again, "requests come again in their order");
            let is_fence = |call: &Call| matches!(call, Call::Fence { .. });
            let is_call = call == before.call || is_fence(&call) && is_fence(&before.call);
            let is_same = is_call && frames_before == before.frames_before;
            assert!(is_same, "request {number} was another");
        } else {
            server.standing.check_number(number, server.heard_ever);
            server.heard_ever = number + 1;
            self.check_request(&call);
        }
        let server = &mut self.server;
        server.heard = number + 1;
        server.standing.on_request(&call, frames_before);
        server.requests.insert(number, Owed::new(call, frames_before, self.clock));
    }

    /// The server does one thing; rarely one that it must not.
    pub(super) fn serve(&mut self) {
        if self.is_over {
            return self.deliver_late();
        }
        if !self.is_connected {
            return;
        }
        let is_lie = self.choices.is_one_in(if self.client.is_away() { 16 } else { 200 });
        if is_lie && !self.server.has_greeted {
            return self.lie_first();
        }
        self.greet();
        if is_lie {
            return self.lie();
        }
        match self.choices.below(8) {
            0 if !self.server.standing.is_returning() => {
                let count = 1 + self.choices.below(4);
                self.grant(count);
            }
            1 | 2 => self.write_one(),
            3 => self.refuse_one(),
            4 => {
                let write = WriteNumber(self.choices.below(16));
                self.deliver(ToClient::Recall(write), true);
            }
            5 if !self.server.cancelled.is_empty() => self.answer_late(),
            _ => self.answer_one(),
        }
    }

    pub(super) fn greet(&mut self) {
        if !std::mem::replace(&mut self.server.has_greeted, true) {
            let name = "host".to_owned();
            self.deliver(ToClient::Hello { version: VERSION, name }, true);
            self.introduce();
        }
    }

    pub(super) fn grant(&mut self, count: u32) {
        self.greet();
        self.server.granted = self.server.granted.saturating_add(count);
        self.deliver(ToClient::Grant(count), true);
    }

    /// One of the frames in flight is written, or some are.
    pub(super) fn write_one(&mut self) {
        let Some(place) = self.choices.place_in(self.server.in_flight.len()) else { return };
        let count = 1 + self.choices.below(3) as usize;
        let frames = self.server.in_flight.keys().skip(place).take(count).copied();
        let frames: Vec<_> = frames.collect();
        let written = frames.iter().map(|&frame| {
            let failure = self.choices.is_one_in(16).then_some(FAILURE);
            Written { frame, failure }
        });
        let written = written.collect();
        let writes = frames.iter().filter_map(|frame| self.server.in_flight.remove(frame));
        self.server.standing.on_written(writes.collect::<Vec<_>>());
        let settled = frames.last().map_or(0, |last| last + 1);
        self.server.settled = self.server.settled.max(settled);
        self.reached.written += frames.len() as u64;
        self.deliver(ToClient::Written(written), true);
    }

    fn refuse_one(&mut self) {
        let Some(place) = self.choices.place_in(self.server.in_flight.len()) else { return };
        let Some((&frame, &id)) = self.server.in_flight.iter().nth(place) else { return };
        self.server.in_flight.remove(&frame);
        self.server.standing.on_refused(frame, id);
        self.server.settled = self.server.settled.max(frame + 1);
        self.on_refused(id);
        self.deliver(ToClient::Again(frame), true);
    }

    /// A request is answered, or the bytes of a read are sent.
    pub(super) fn answer_one(&mut self) {
        let Some(place) = self.choices.place_in(self.server.requests.len()) else { return };
        let Some(&number) = self.server.requests.keys().nth(place) else { return };
        let is_failed = self.choices.is_one_in(16);
        let owed = self.server.requests.get_mut(&number).expect("just seen");
        if !owed.is_again {
            self.server.answered = self.server.answered.max(number + 1);
        }
        let outcome = match (&owed.call, owed.half) {
            (Call::Read { .. }, Some((is_replied, count))) => {
                self.answer_read(number, !is_replied, count);
                return;
            }
            (Call::Read { .. }, None) if is_failed && self.choices.is_one_in(2) => Outcome::Lost,
            _ if is_failed => Outcome::Failed(FAILURE),
            (Call::Read { length, .. }, None) => {
                let length = *length;
                let is_short = self.choices.is_one_in(4);
                let count = if is_short { self.choices.below(length + 1) } else { length };
                let is_reply = self.choices.is_one_in(2) || count == 0;
                self.answer_read(number, is_reply, count);
                return;
            }
            (Call::Size { .. } | Call::End { .. } | Call::AddShared { .. }, _) => {
                Outcome::Number(self.choices.number() >> 1)
            }
            (Call::Fence { .. }, _) => {
                self.server.next_fence += 1;
                Outcome::Number(self.server.next_fence)
            }
            _ => Outcome::Done,
        };
        let owed = self.server.requests.remove(&number).expect("just seen");
        self.server.standing.on_answered(number, &owed, outcome);
        self.deliver(ToClient::Reply { number, outcome }, true);
    }

    /// Sends one half of the answer to a read: the reply, or the frame.
    fn answer_read(&mut self, number: u64, is_reply: bool, count: u32) {
        let owed = self.server.requests.get_mut(&number).expect("it is not answered");
        let is_whole = count == 0 || owed.half.replace((is_reply, count)).is_some();
        let (asked, &Call::Read { view, position, length }) = (owed.asked, &owed.call) else {
            unreachable!("it is a read")
        };
        let arriving = Arriving { number, view, position, length, count, asked };
        if is_whole {
            self.server.requests.remove(&number);
        }
        if is_reply {
            let outcome = Outcome::Number(count.into());
            self.deliver(ToClient::Reply { number, outcome }, true);
        } else {
            self.deliver_head(number, arriving.position, count, true);
            self.server.arriving.push(arriving);
        }
    }

    /// The bytes of a frame follow its head, even if the connection is lost meanwhile.
    pub(super) fn arrive(&mut self) {
        let Some(place) = self.choices.place_in(self.server.arriving.len()) else { return };
        let it = self.server.arriving.swap_remove(place);
        let Arriving { number, view, position, count, asked, .. } = it;
        let place = self.client.place_of(number);
        let part = place..place + count as usize;
        let chunk = Chunk::new(Piece { part: part.clone(), view, position, asked });
        self.client.on_bytes(number, chunk, part, self.now);
        self.reached.read += u64::from(count > 0);
    }

    /// Something that an honest server does not send, or not now.
    fn lie(&mut self) {
        let number = self.choices.number();
        let frame = self.choices.below(32).into();
        let frame = if self.choices.is_one_in(2) { number } else { frame };
        let is_in_flight = self.server.is_in_flight(frame);
        let is_answered = self.server.is_answered(number);
        match self.choices.below(12) {
            0 => {
                let version = self.choices.one_of(&[VERSION, 0, u16::MAX]);
                self.deliver(ToClient::Hello { version, name: "h".to_owned() }, false);
            }
            1 => self.deliver(ToClient::Fatal("full".to_owned()), false),
            2 if !is_in_flight => self.deliver(ToClient::Again(frame), false),
            3 if !is_in_flight => {
                let written = vec![Written { frame, failure: None }];
                self.deliver(ToClient::Written(written), false);
            }
            4 => {
                // One frame twice.
                let frame = self.server.in_flight.keys().next().copied().unwrap_or(frame);
                let written = vec![Written { frame, failure: None }; 2];
                self.deliver(ToClient::Written(written), false);
            }
            5 if is_answered => {
                let outcome = Outcome::Number(self.choices.number());
                self.deliver(ToClient::Reply { number, outcome }, false);
            }
            6 if is_answered => {
                self.deliver_head(number, 0, 1, false);
            }
            7 if !self.server.standing.is_returning() => self.grant(u32::MAX),
            8 => self.give_ticket(),
            9 => {
                let begin = self.resumed_or_restarted();
                self.deliver(begin, false);
            }
            10 => self.send_late(),
            _ => {
                let write = WriteNumber(self.choices.number32());
                self.deliver(ToClient::Recall(write), true);
            }
        }
    }

    /// A message arrives while another thread reports the loss of the connection.
    pub(super) fn deliver_late(&mut self) {
        let Some((frame, _)) = self.server.in_flight.pop_first() else { return };
        let message = match self.choices.below(3) {
            0 => ToClient::Again(frame),
            1 => ToClient::Written(vec![Written { frame, failure: None }]),
            _ => ToClient::Grant(1),
        };
        let staged = self.client.on_message(message, self.now);
        self.client.free(&staged.unwrap_or_default());
    }

    pub(super) fn deliver_head(&mut self, number: u64, offset: u64, length: u32, is_sound: bool) {
        let block = Block { entry: EntryId(number), offset, length };
        let header = Header {
            count: 1,
            payload_bytes: length,
            table_crc: 0,
            number: 0,
            sink_ost: OstId(0),
            is_last_grant: false,
            has_only_sums: false,
        };
        let row = Row { block, is_whole: false, checksum: 0 };
        let result = self.client.on_head(&header, &[row]);
        self.end_at_breach(result, is_sound);
    }

    /// A message arrives. One that an honest server sends ends nothing, any other one the
    /// connection.
    pub(super) fn deliver(&mut self, message: ToClient, is_sound: bool) {
        let (before, is_counted) = (self.pool.in_use(), message.is_counted());
        let result = self.client.on_message(message, self.now);
        assert!(self.pool.in_use() <= before, "buffers do not appear");
        let result = result.map(|staged| {
            self.reached.drained += staged.len() as u64;
            for (id, slot) in &staged {
                assert_eq!(self.staged.remove(slot), Some(*id), "{slot:?}");
            }
            self.client.free(&staged);
        });
        self.server.said += u64::from(is_counted && result.is_ok());
        self.end_at_breach(result, is_sound);
    }

    fn end_at_breach(&mut self, result: Result<(), String>, is_sound: bool) {
        assert_eq!(result.is_ok(), is_sound, "{result:?}");
        if let Err(text) = result {
            self.reached.is_refused = true;
            self.lose(text);
        }
    }
}
