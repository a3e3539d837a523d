//! The connection: whether it is there, whether the server lives, and its loss.

use super::{About, Client};
use crate::absence::Presence;
use crate::remote::gate::Gate;
use crate::remote::message::ToServer;
use crate::remote::outbox::Staging;
use crate::remote::policy::LOOK_INTERVAL;
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
            heard_at: Duration::ZERO,
            done_at: Duration::ZERO,
            presence: Presence::begin(Instant::START, LOOK_INTERVAL),
            presences: 0,
            loss: None,
            is_keeping: false,
            lost_bytes: 0,
        }
    }

    pub(super) fn on_connected(&mut self, now: Duration) {
        self.is_connected = true;
        (self.heard_at, self.done_at) = (now, now);
        self.presence = Presence::begin(Instant::after_start(now), LOOK_INTERVAL);
    }

    /// Looks whether the server still lives. Returns why it counts as lost.
    fn look(&mut self, is_owed: bool, now: Duration) -> Option<String> {
        // The program may be stopped, which is no silence of the server.
        let away = self.presence.look(Instant::after_start(now));
        self.heard_at = (self.heard_at + away).min(now);
        self.done_at = (self.done_at + away).min(now);
        if !is_owed {
            self.done_at = now;
        }
        if now - self.heard_at > self.timeout {
            return Some(format!("it sent nothing for {} s", self.timeout.as_secs()));
        }
        let seconds = self.patience.as_secs();
        (now - self.done_at > self.patience)
            .then(|| format!("it made no progress for {seconds} s and sent only heartbeats"))
    }
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The connection is there.
    pub fn on_connected(&mut self, now: Duration) {
        self.line.on_connected(now);
    }

    /// The reason for the loss of the connection.
    #[must_use]
    pub fn loss(&self) -> Option<&Loss> {
        self.line.loss.as_ref()
    }

    /// To be called at intervals of [`LOOK_INTERVAL`] while there is a connection. Returns why the
    /// server counts as lost; then the owner calls [`Self::on_lost`].
    pub fn look(&mut self, now: Duration) -> Option<String> {
        let outbox = &self.sending.outbox;
        let is_without_room = outbox.is_without_grant() && !outbox.is_empty();
        let is_owed = self.requests.is_owed() || outbox.under_way() > 0 || is_without_room;
        // Any message shows that this process lives, and a server that reads nothing gets none.
        if self.line.presences > 0 && self.requests.unsent.is_empty() {
            self.requests.unsent.push_back(ToServer::Heartbeat);
        }
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
            self.requests.unsent.clear();
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
