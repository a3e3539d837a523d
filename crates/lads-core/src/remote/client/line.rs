//! The connection: whether it is there, whether the server lives, and its loss.

use super::{About, Client};
use crate::absence::Presence;
use crate::remote::gate::Gate;
use crate::remote::message::{Ticket, ToClient, ToServer, VERSION};
use crate::remote::outbox::Staging;
use crate::remote::policy::{AWAY_TIMEOUTS, CONFIRM_MESSAGES, LOOK_INTERVAL};
use crate::remote::reading::ChunkBytes;
use crate::units::Instant;
use std::time::Duration;

/// The connection of a client.
#[derive(Debug)]
pub(super) struct Line {
    /// Everything that the server sends passes it first.
    pub(super) gate: Gate,
    timeout: Duration,
    patience: Duration,
    pub(super) is_connected: bool,
    /// Set from the break of the connection until [`ToClient::Resumed`] or its like.
    away: Option<Away>,
    /// The ticket for the next connection; `None`: the client does not connect again.
    ticket: Option<Ticket>,
    /// How often the connection was made again.
    reconnections: u64,
    /// How many counted messages were heard, and how many of them were confirmed.
    heard: u64,
    confirmed: u64,
    pub(super) heard_at: Duration,
    /// When something was done last of what the server owes, or it owed nothing.
    pub(super) done_at: Duration,
    /// Notices that this process was stopped.
    presence: Presence,
    /// Calls during which the server hears that this process lives.
    presences: u32,
    pub(super) loss: Option<Loss>,
    /// Whether what is left is being put on the local disk.
    is_keeping: bool,
    /// What was not written at the server when the connection was lost.
    pub(super) lost_bytes: u64,
}

/// A connection that is broken.
#[derive(Debug)]
struct Away {
    since: Duration,
    /// Why, and what came of the latest attempt to connect again.
    why: String,
    failure: Option<String>,
}

/// A connection that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It is broken, for this reason: it is to be ended, and [`Client::on_broken`] follows.
    Broken(String),
    /// It is lost, for this reason: [`Client::on_lost`] follows.
    Lost(String),
}

/// Why the connection is lost, or could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Linux's `errno`.
    pub errno: i32,
    /// What happened.
    pub text: String,
}

impl Line {
    pub(super) fn new(timeout: Duration, stall_timeouts: u32) -> Self {
        Self {
            gate: Gate::default(),
            timeout,
            patience: timeout.saturating_mul(stall_timeouts),
            is_connected: false,
            away: None,
            ticket: None,
            reconnections: 0,
            heard: 0,
            confirmed: 0,
            heard_at: Duration::ZERO,
            done_at: Duration::ZERO,
            presence: Presence::begin(Instant::START, LOOK_INTERVAL),
            presences: 0,
            loss: None,
            is_keeping: false,
            lost_bytes: 0,
        }
    }

    /// Whether something can be sent.
    pub(super) fn is_open(&self) -> bool {
        self.loss.is_none() && self.away.is_none()
    }

    pub(super) fn on_heard(&mut self, message: &ToClient, now: Duration) {
        self.heard_at = now;
        self.heard += u64::from(message.is_counted());
        if let ToClient::Ticket(ticket) = message {
            self.ticket = Some(*ticket);
        }
    }

    /// Whether a confirmation of messages is to be sent.
    pub(super) fn confirms(&self) -> bool {
        self.ticket.is_some() && self.heard - self.confirmed >= CONFIRM_MESSAGES
    }

    /// Returns the number of messages that the next heartbeat confirms.
    pub(super) fn confirm(&mut self) -> u64 {
        self.confirmed = self.heard;
        self.heard
    }

    /// All goes on.
    fn on_resumed(&mut self) {
        self.away = None;
        self.reconnections += 1;
        self.confirmed = self.heard;
    }

    /// The same, with a server that was started again and counts its messages anew.
    pub(super) fn on_restarted(&mut self) {
        self.heard = 0;
        self.on_resumed();
    }

    pub(super) fn on_connected(&mut self, now: Duration) {
        self.heard_at = now;
        if std::mem::replace(&mut self.is_connected, true) {
            self.gate.on_connected_again();
        } else {
            self.done_at = now;
        }
        self.presence = Presence::begin(Instant::after_start(now), LOOK_INTERVAL);
    }

    /// Looks whether the server still lives. Returns why it counts as lost.
    fn look(&mut self, is_owed: bool, now: Duration) -> Option<Trouble> {
        // The program may be stopped, which is no silence of the server.
        let away = self.presence.look(Instant::after_start(now));
        self.heard_at = (self.heard_at + away).min(now);
        self.done_at = (self.done_at + away).min(now);
        if !is_owed {
            self.done_at = now;
        }
        // Connecting again is no progress, however often.
        let is_stalled = now - self.done_at > self.patience;
        let stalled = format!("it made no progress for {} s", self.patience.as_secs());
        if let Some(Away { since, why, failure }) = &mut self.away {
            *since = (*since + away).min(now);
            let failure = failure.as_ref().map_or(String::new(), |it| format!(": {it}"));
            let seconds = (now - *since).as_secs();
            let is_late = now - *since > self.timeout.saturating_mul(AWAY_TIMEOUTS);
            let late = || format!("{why}; no new connection in {seconds} s{failure}");
            let text =
                is_late.then(late).or_else(|| is_stalled.then(|| format!("{stalled}; {why}")));
            return text.map(Trouble::Lost);
        }
        if now - self.heard_at > self.timeout {
            let text = format!("it sent nothing for {} s", self.timeout.as_secs());
            return Some(Trouble::Broken(text));
        }
        is_stalled.then(|| Trouble::Lost(format!("{stalled} and sent only heartbeats")))
    }
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The first message on a connection.
    #[must_use]
    pub fn greeting(&self) -> ToServer {
        match self.line.ticket.filter(|_| self.is_away()) {
            Some(ticket) => ToServer::Resume { version: VERSION, ticket, heard: self.line.heard },
            None => ToServer::Hello { version: VERSION, name: String::new() },
        }
    }

    /// The connection is there, for the first time or again; [`Self::greeting`] was sent on it. The
    /// program continues meanwhile.
    pub fn on_connected(&mut self, now: Duration) {
        self.line.on_connected(now);
    }

    /// The connection is broken: nothing more arrives on it. Returns whether the owner makes a new
    /// one, if necessary several times, until [`Self::look`] returns that it is lost; otherwise it
    /// is lost.
    pub fn on_broken(&mut self, why: &str, now: Duration) -> bool {
        if self.line.loss.is_some() || self.line.ticket.is_none() {
            return false;
        }
        let why = why.to_owned();
        self.line.away.get_or_insert(Away { since: now, why, failure: None });
        self.requests.is_lively = false;
        true
    }

    /// The connection could not be made again this time.
    pub fn on_not_connected(&mut self, failure: String) {
        if let Some(away) = &mut self.line.away {
            away.failure = Some(failure);
        }
    }

    /// Reports whether the connection is broken, and not lost.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.line.loss.is_none() && self.line.away.is_some()
    }

    /// The server says how many requests and frames it has: all others are sent again. Bytes that
    /// have not come are asked for again.
    pub(super) fn resume(&mut self, requests: u64, frames: u64) -> Result<(), String> {
        if requests > self.requests.sent() || !self.sending.outbox.resume(frames) {
            return Err("it has requests or frames that were not sent".to_owned());
        }
        self.line.on_resumed();
        self.requests.resume(requests);
        self.read_again(requests);
        Ok(())
    }

    /// Returns how often the connection broke and was made again.
    #[must_use]
    pub fn reconnections(&self) -> u64 {
        self.line.reconnections
    }

    /// The last message to the server, if it owes nothing but bytes that were read ahead: then the
    /// end of the connection is no accident.
    #[must_use]
    pub fn farewell(&self) -> Option<ToServer> {
        let is_owed = self.is_left() || self.requests.is_owed_beside_bytes();
        let is_done = self.line.is_open() && !is_owed;
        is_done.then_some(ToServer::Bye)
    }

    /// The reason for the loss of the connection.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        self.line.loss.as_ref()
    }

    /// To be called at intervals of [`LOOK_INTERVAL`]. Returns the failure of the connection, if
    /// there is one.
    pub fn look(&mut self, now: Duration) -> Option<Trouble> {
        if !self.line.is_connected || self.line.loss.is_some() {
            return None;
        }
        let outbox = &self.sending.outbox;
        let is_without_room = outbox.is_without_grant() && !outbox.is_empty();
        let is_owed = self.requests.is_owed() || outbox.under_way() > 0 || is_without_room;
        // Any message shows that this process lives, and a server that reads nothing gets none.
        self.requests.is_lively |= self.line.presences > 0 && !self.requests.has_unsent();
        self.line.look(is_owed, now)
    }

    /// The server hears from now on that this process lives, even if it asks for nothing.
    pub fn begin_presence(&mut self) {
        self.line.presences += 1;
    }

    /// The end of what [`Self::begin_presence`] began.
    pub fn end_presence(&mut self) {
        self.line.presences -= 1;
    }

    /// The connection is lost, or could not be made. With a local disk, what is not written goes
    /// there now ([`Self::start_keeping`]); without one it is forgotten.
    pub fn on_lost(&mut self, loss: Loss) {
        if self.line.loss.is_none() {
            self.line.loss = Some(loss);
            self.line.is_keeping = self.stage.is_there();
            self.line.lost_bytes = self.unwritten_bytes();
            self.requests.forget_made();
        }
        if !self.line.is_keeping {
            self.sending.outbox.clear();
        }
        self.reading.clear();
    }

    /// Returns how many bytes are not written at the server.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.sending.outbox.all().map(|about| u64::from(about.length)).sum()
    }

    /// Reports whether everything that the program wrote is at the server.
    #[must_use]
    pub fn is_written(&self) -> bool {
        self.sending.outbox.is_empty() && self.line.lost_bytes == 0
    }

    /// How long a server may send nothing.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.line.timeout
    }

    /// Reports whether what is not written is being put on the local disk.
    #[must_use]
    pub fn is_keeping(&self) -> bool {
        self.line.is_keeping
    }

    /// A frame in memory that is to be put on the local disk, since the connection is lost.
    pub fn start_keeping(&mut self) -> Option<Staging<B, About>> {
        self.sending.outbox.start_keeping()
    }

    /// Forgets the frames in memory, for which there is no room on the local disk. Returns how many
    /// bytes they have.
    pub fn forget_in_memory(&mut self) -> u64 {
        let lost = self.sending.outbox.forget_in_memory();
        lost.iter().map(|about| u64::from(about.length)).sum()
    }

    /// What found room on the local disk is there, and this many bytes found none. The text goes on
    /// with the reason for the loss.
    pub fn end_keeping(&mut self, forgotten_bytes: u64, text: &str) {
        self.line.lost_bytes = self.unwritten_bytes() + forgotten_bytes;
        if let Some(loss) = &mut self.line.loss {
            loss.text.push_str(text);
        }
        self.sending.outbox.clear();
        self.line.is_keeping = false;
    }
}
