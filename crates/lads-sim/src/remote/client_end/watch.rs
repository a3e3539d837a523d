//! What the world knows of a connection: the session must do nothing that does not fit it.

use super::super::bytes::Stamp;
use super::super::server_end::Said;
use crate::findings::Checked;
use lads_core::frame::Row;
use lads_core::remote::client::Trouble;
use lads_core::remote::message::{Call, Request, ToClient, ToServer};
use lads_core::remote::policy::{AWAY_TIMEOUTS, TIMEOUT};
use std::collections::BTreeMap;
use std::time::Duration;

/// The connection of a client, and what went through it and those before.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// It is broken, and there is no new one.
    pub(super) is_down: bool,
    /// Since it broke, until the server has said what it has: nothing may be sent.
    away_since: Option<Duration>,
    /// Whether it was broken, and the server had everything.
    pub(super) has_returned: bool,
    heard_at: Duration,
    /// Counted messages that were heard.
    heard: u64,
    granted: u64,
    /// All requests, by their numbers.
    requests: BTreeMap<u64, Request>,
    /// All frames, by their numbers.
    frames: Vec<(Row, Vec<Stamp>)>,
    /// The server was started again.
    is_restarted: bool,
    /// From this number on, frames may be sent once more.
    once_more: u64,
}

impl Watch {
    pub(super) fn is_away(&self) -> bool {
        self.away_since.is_some()
    }

    pub(super) fn on_broken(&mut self, now: Duration) {
        self.is_down = true;
        self.away_since.get_or_insert(now);
    }

    pub(super) fn on_connected(&mut self, greeting: &ToServer, now: Duration) -> Checked {
        (self.is_down, self.heard_at) = (false, now);
        let expected = match greeting {
            ToServer::Hello { .. } => !self.is_away(),
            ToServer::Resume { heard, .. } => self.is_away() && *heard == self.heard,
            _ => false,
        };
        if expected { Ok(()) } else { Err(format!("{greeting:?} after {} messages", self.heard)) }
    }

    pub(super) fn on_message(&mut self, said: &Said, now: Duration) -> Checked {
        self.heard_at = now;
        if let Some(number) = said.number {
            if number != self.heard {
                return Err(format!("message {number} arrives after {}", self.heard));
            }
            self.heard += 1;
        }
        match &said.message {
            ToClient::Grant(count) => self.granted += u64::from(*count),
            ToClient::Resumed { frames, .. } => {
                (self.away_since, self.has_returned) = (None, true);
                self.once_more = *frames;
            }
            ToClient::Restarted { .. } => {
                (self.away_since, self.has_returned) = (None, true);
                (self.heard, self.is_restarted) = (0, true);
                // Every frame is a new one, and takes a grant.
                self.granted = self.frames.len() as u64;
                self.once_more = self.granted;
            }
            _ => {}
        }
        Ok(())
    }

    /// A message is sent. Returns whether it is a request that was sent before.
    pub(super) fn on_said(&mut self, message: &ToServer) -> Checked<bool> {
        let ToServer::Request(request) = message else { return Ok(false) };
        if let Call::Return { .. } = request.call {
            return Ok(true);
        }
        let next = self.requests.last_key_value().map_or(0, |(last, _)| last + 1);
        match self.requests.get(&request.number) {
            Some(known) if known == request => Ok(true),
            // Its place among the frames, and the writes of a fence are other ones.
            Some(known) if self.is_restarted && is_same_call(&known.call, &request.call) => {
                Ok(true)
            }
            Some(known) => Err(format!("{known:?} is sent again as {request:?}")),
            // A read that was not sent is made again under another number.
            None if request.number == next || self.is_restarted && request.number > next => {
                self.requests.insert(request.number, request.clone());
                Ok(false)
            }
            None => Err(format!("a request is left out before {request:?}")),
        }
    }

    /// A frame is sent, with its bytes and whether it says that there is no further grant. Returns
    /// whether it is sent once more.
    pub(super) fn on_frame(
        &mut self,
        number: u64,
        row: Row,
        (stamps, is_last_grant): (&[Stamp], bool),
    ) -> Checked<bool> {
        let sent = self.frames.len() as u64;
        if number == sent && sent < self.granted {
            self.frames.push((row, stamps.to_vec()));
            return match is_last_grant == (sent + 1 == self.granted) {
                true => Ok(false),
                false => Err(format!("frame {number} counts {} grants wrongly", self.granted)),
            };
        }
        if number >= sent {
            return Err(format!("frame {number} is sent with {} grants", self.granted));
        }
        let known = usize::try_from(number).ok().and_then(|it| self.frames.get(it));
        let is_same = known.is_some_and(|(of, bytes)| *of == row && bytes == stamps);
        match is_same && number >= self.once_more {
            true => Ok(true),
            false => Err(format!("frame {number} is sent once more as {row:?} {stamps:?}")),
        }
    }

    /// The session gives up its connection: is it time?
    pub(super) fn check(&self, trouble: &Trouble, now: Duration) -> Checked {
        let silence = now.saturating_sub(self.heard_at);
        let is_due = match (trouble, self.away_since) {
            (Trouble::Broken(_), None) => silence >= TIMEOUT,
            (Trouble::Broken(_), Some(_)) => false,
            // Connecting again is no progress.
            _ if is_stall(trouble) => true,
            (Trouble::Lost(_), Some(since)) => now.saturating_sub(since) >= TIMEOUT * AWAY_TIMEOUTS,
            (Trouble::Lost(_), None) => false,
        };
        if is_due { Ok(()) } else { Err(format!("after {silence:?}: {trouble:?}")) }
    }
}

fn is_same_call(one: &Call, other: &Call) -> bool {
    matches!((one, other), (Call::Fence { .. }, Call::Fence { .. })) || one == other
}

/// Reports whether a connection is lost because nothing was done of what the server owed.
pub(super) fn is_stall(trouble: &Trouble) -> bool {
    matches!(trouble, Trouble::Lost(why) if why.contains("it made no progress"))
}
