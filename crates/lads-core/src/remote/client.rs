//! The session of a client of remote files: decides which frames and requests are sent, which
//! frames are staged, which data is cached and read ahead, and how long a call of the program
//! waits.
//!
//! The owner reports the calls of the program ([`Client::begin_write`], [`Client::ask`], …) and the
//! events of its threads (`on_…`), and asks for the next decision: [`Client::next_messages`],
//! [`Client::next_frame`], [`Client::next_staging`], [`Client::next_save`].
//! [`Client::next_timeout`] returns when to ask again. Times are since the program began.
//!
//! A call of the program waits for a [`Wait`]: it continues when [`Client::is_waiting`] returns
//! `false`. The bytes stay with the owner: `B` is a buffer with written bytes, `R` one with bytes
//! that were read.

mod asking;
mod fences;
mod gathered;
mod line;
mod read;
mod restart;
mod sending;
mod staging;
mod standing;
mod tail;

use super::message::{
    Call, FRAME_BYTES, Failure, FileNumber, Outcome, ToClient, ToServer, Written,
};
use super::outbox::Outbox;
use super::policy::{LOOK_INTERVAL, STAGING_MAX};
use super::reading::{ChunkBytes, Reading};
use crate::frame::{Header, Row};
use crate::staging::{Slot, Slots};
use asking::Requests;
use line::Line;
pub use line::{Loss, Trouble};
use read::ReadSide;
pub use read::{Read, ReadBytes, Step};
use sending::Sending;
use staging::Stage;
pub use staging::{StageSettings, StagedBytes, Why};
use std::ops::Range;
use std::time::Duration;
pub use tail::{About, Tail, Target};

/// How a client works.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of buffers for written data.
    pub buffers: u32,
    /// The length of each, in bytes.
    pub buffer_bytes: u32,
    /// Number of chunks of read data in memory.
    pub chunks_max: u32,
    /// Maximum size of read data on the local disk, in bytes.
    pub read_cache_bytes: u64,
    /// The local disk for written data; `None`: a write waits for the network.
    pub stage: Option<StageSettings>,
    /// A server that sends nothing for this long counts as lost.
    pub timeout: Duration,
    /// After this many timeouts without progress, a server that only sends heartbeats counts as
    /// lost.
    pub stall_timeouts: u32,
    /// Whether other processes use other servers for the same files.
    pub has_other_servers: bool,
}

/// The session.
#[derive(Debug)]
pub struct Client<B, R> {
    line: Line,
    requests: Requests<R>,
    sending: Sending<B>,
    stage: Stage,
    reading: ReadSide<R>,
    has_other_servers: bool,
}

/// What a call of the program waits for. The loss of the connection ends every wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The connection is there.
    Connected,
    /// The frames that a request comes after are sent.
    Sent(After),
    /// No file with this path is being closed.
    Closed(Vec<u8>),
    /// The server has answered a deferred request.
    Deferred(u64),
    /// The server takes one more file, or no file is being closed.
    RoomForFile,
    /// The server takes one more view.
    RoomForView,
    /// One more read may be in flight.
    RoomForRead,
    /// What a request of another call reads has arrived.
    Coming(u64),
    /// The reply to a request has arrived, with its bytes.
    Reply(u64),
    /// Everything that was deferred is done.
    Finished,
    /// All frames that are not sent may be announced.
    FewUnsent,
    /// This many frames are written, and everything that was deferred is done.
    Written(u64),
}

/// What a request comes after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// No frame.
    Nothing,
    /// The frames of a file among the first of the connection.
    Frames {
        /// The file.
        file: FileNumber,
        /// How many were the first.
        count: u64,
    },
    /// Those of them that have bytes of the file in common.
    Bytes {
        /// The file.
        file: FileNumber,
        /// The bytes.
        reach: Range<u64>,
        /// How many were the first.
        count: u64,
    },
}

/// Why a call of the program fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server could not do it.
    Failed(Failure),
    /// Another client wrote the bytes and was gone before it sent them.
    Gone,
    /// The connection is lost ([`Client::loss`]).
    Lost,
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The client of a program that began at zero; it is not connected.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let Settings {
            buffers,
            buffer_bytes,
            chunks_max,
            read_cache_bytes,
            stage,
            timeout,
            stall_timeouts,
            has_other_servers,
        } = settings;
        let bytes_max = stage.as_ref().map_or(0, |stage| stage.bytes_max);
        let outbox = Outbox::new(buffers, Slots::new(bytes_max, buffer_bytes, STAGING_MAX));
        let read_slots = Slots::new(read_cache_bytes, FRAME_BYTES, 1);
        Self {
            line: Line::new(timeout, stall_timeouts),
            requests: Requests::default(),
            sending: Sending::new(outbox, buffers, buffer_bytes, stage.is_some()),
            stage: Stage::new(stage),
            reading: ReadSide::new(Reading::new(chunks_max, read_slots)),
            has_other_servers,
        }
    }

    /// Reports whether other processes use other servers for the same files.
    #[must_use]
    pub fn has_other_servers(&self) -> bool {
        self.has_other_servers
    }

    /// From now on, other processes use other servers for the same files.
    pub fn share_with_other_servers(&mut self) {
        self.has_other_servers = true;
    }

    /// A message has arrived. Returns the staged frames that are written now: their slots are used
    /// again after [`Self::free`]. After the loss of the connection a message changes nothing: what
    /// is left is being kept or forgotten.
    ///
    /// # Errors
    /// If the message breaks the protocol, or ends the connection; the text says why.
    pub fn on_message(
        &mut self,
        message: ToClient,
        now: Duration,
    ) -> Result<Vec<(u64, Slot)>, String> {
        if self.line.loss.is_some() {
            return Ok(Vec::new());
        }
        let outbox = &self.sending.outbox;
        let admitted = self.line.gate.admit(message, |frame| outbox.is_in_flight(frame));
        let message = admitted.map_err(|breach| breach.to_string())?;
        self.line.on_heard(&message, now);
        match message {
            ToClient::Hello { .. } | ToClient::Heartbeat | ToClient::Ticket(_) => {}
            ToClient::Resumed { requests, frames } => self.resume(requests, frames)?,
            ToClient::Restarted { written, done } => return self.restart((&written, &done), now),
            ToClient::Fatal(text) => return Err(text),
            ToClient::Grant(count) => {
                self.sending.outbox.on_grant(count);
                self.line.done_at = now;
            }
            ToClient::Again(frame) => self.sending.again(frame),
            ToClient::Recall(write) => self.sending.recall(write),
            ToClient::Written(written) => return Ok(self.on_written(&written, now)),
            ToClient::Reply { number, outcome } => {
                self.line.done_at = now;
                self.on_reply(number, outcome);
            }
        }
        Ok(Vec::new())
    }

    /// The head of a frame has arrived.
    ///
    /// # Errors
    /// If the frame breaks the protocol; the text says why.
    pub fn on_head(&mut self, header: &Header, rows: &[Row]) -> Result<(), String> {
        let admitted = self.line.gate.admit_frame(header, rows);
        admitted.map(drop).map_err(|breach| breach.to_string())
    }

    /// Frames are written, or cannot be.
    fn on_written(&mut self, written: &[Written], now: Duration) -> Vec<(u64, Slot)> {
        self.line.done_at = now;
        let mut staged = Vec::new();
        for it in written {
            let Some(gone) = self.sending.on_written(it.frame, now) else { continue };
            let is_left = !self.sending.outbox.is_empty();
            self.stage.outlook.on_written(now, gone.about.length.into(), is_left);
            staged.extend(gone.staged);
            let view = gone.about.target.view;
            if !self.sending.outbox.is_unwritten_of_view(view) {
                self.requests.standing.on_not_needed(view);
            }
            if let Some(failure) = it.failure {
                self.requests.failures.entry(gone.file).or_insert(failure);
            }
        }
        staged
    }

    /// The list of the local disk records that these frames are written at the server.
    pub fn free(&mut self, staged: &[(u64, Slot)]) {
        staged.iter().for_each(|(_, slot)| self.sending.outbox.free(*slot));
    }

    fn on_reply(&mut self, number: u64, outcome: Outcome) {
        let outcome = self.requests.outcome_of(number, outcome);
        if !self.requests.is_made(number) {
            return self.on_reply_again(number, outcome);
        }
        if let Some(request) = self.requests.on_reply(number) {
            match (&request.call, outcome) {
                (Call::Fence { .. }, Outcome::Number(answer)) => {
                    self.sending.fences.on_answered(number, answer);
                }
                (Call::Fence { .. }, _) => self.sending.fences.on_failed(number),
                (Call::Close { file }, _) => drop(self.requests.closed_before.remove(file)),
                _ => {}
            }
            let outbox = &self.sending.outbox;
            let is_needed = |view| outbox.is_unwritten_of_view(view);
            let is_done = outcome == Outcome::Done;
            self.requests.standing.on_answered(request, is_done, is_needed);
        }
        let number = self.requests.known(number);
        if let Some(file) = self.requests.take_deferred(number) {
            if let Outcome::Failed(failure) = outcome {
                self.requests.failures.entry(file).or_insert(failure);
            }
        } else if self.requests.set_outcome(number, outcome)
            && !matches!(outcome, Outcome::Number(count) if count > 0)
            && self.reading.on_nothing(number)
        {
            self.requests.forget(number);
        }
    }

    /// A number for a file or a view.
    pub fn next_number(&mut self) -> u32 {
        self.requests.next_number()
    }

    /// Reports whether a call has to wait.
    #[must_use]
    pub fn is_waiting(&self, wait: &Wait) -> bool {
        let requests = &self.requests;
        self.line.loss.is_none()
            && match wait {
                Wait::Connected => !self.line.is_connected,
                Wait::Sent(after) => self.is_unsent(after),
                Wait::Closed(path) => requests.is_closing(path),
                Wait::Deferred(number) => requests.deferred.contains_key(number),
                Wait::RoomForFile => {
                    !requests.taken.has_room_for_file() && requests.is_closing_any()
                }
                Wait::RoomForView => !requests.taken.has_room_for_view(),
                Wait::RoomForRead => !self.reading.has_room(),
                Wait::Coming(number) => self.reading.reading.is_coming(*number),
                Wait::Reply(number) => !requests.is_answered(*number),
                Wait::Finished => !requests.deferred.is_empty() || !requests.held.is_empty(),
                Wait::FewUnsent => self.sending.has_many_unsent(),
                Wait::Written(count) => {
                    self.sending.outbox.is_unwritten_before(*count) || !requests.deferred.is_empty()
                }
            }
    }

    /// A call begins to wait: frames that it needs are sent first.
    pub fn begin_wait(&mut self, wait: &Wait) {
        self.sending.awaited += u32::from(wait.is_for_frames());
    }

    /// A call does not wait any more.
    pub fn end_wait(&mut self, wait: &Wait) {
        self.sending.awaited -= u32::from(wait.is_for_frames());
    }

    /// The messages to be sent, in their order.
    pub fn next_messages(&mut self) -> Vec<ToServer> {
        if !self.line.is_open() {
            return Vec::new();
        }
        while let Some((file, call)) = self.next_held() {
            self.request(true, call, Some(file));
        }
        while let Some((target, positions)) = self.next_ahead() {
            let number = self.requests.count;
            self.reading.begin_ahead(number, target.file, &positions);
            self.request(true, read::call(target.view, &positions), None);
        }
        let is_confirming = self.line.confirms();
        let heard = (is_confirming || self.requests.is_lively).then(|| self.line.confirm());
        self.requests.is_lively = false;
        let confirmation = heard.map(|heard| ToServer::Heartbeat { heard });
        self.requests.take_unsent().into_iter().chain(confirmation).collect()
    }

    /// Reports whether there are messages to be sent.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.line.is_open()
            && (self.requests.has_unsent()
                || self.requests.is_lively
                || self.line.confirms()
                || self.requests.held.iter().any(|held| !self.is_held(held))
                || self.next_ahead().is_some())
    }

    /// When to ask for messages and frames again, if nothing is reported before.
    #[must_use]
    pub fn next_timeout(&self, now: Duration) -> Duration {
        let next = now + LOOK_INTERVAL;
        let rest = self.sending.rest.left(now).map_or(next, |left| now + left);
        next.min(rest).min(self.sending.tails_due.unwrap_or(next))
    }

    /// Makes a request.
    fn request(&mut self, is_after_frames: bool, call: Call, deferred: Option<FileNumber>) -> u64 {
        let frames_before = if is_after_frames { self.sending.outbox.sent() } else { 0 };
        if self.line.loss.is_none() {
            self.line.gate.on_asked(self.requests.count, &call);
        }
        let number = self.requests.add(frames_before, call, deferred);
        if self.line.loss.is_some() {
            self.requests.forget_made();
        }
        number
    }

    /// Returns the first failure of a file that no call has returned, or the loss of the
    /// connection.
    ///
    /// # Errors
    /// If there is one.
    pub fn take_failure(&mut self, file: FileNumber) -> Result<(), CallError> {
        match self.requests.failures.remove(&file) {
            Some(failure) => Err(CallError::Failed(failure)),
            None if self.line.loss.is_some() => Err(CallError::Lost),
            None => Ok(()),
        }
    }
}

impl Wait {
    /// Whether the frames that are in the outbox decide when it ends.
    fn is_for_frames(&self) -> bool {
        match self {
            Self::Sent(_) | Self::Closed(_) | Self::Deferred(_) => true,
            Self::RoomForFile | Self::RoomForView | Self::FewUnsent | Self::Written(_) => true,
            Self::Connected | Self::RoomForRead | Self::Coming(_) => false,
            Self::Reply(_) | Self::Finished => false,
        }
    }
}

#[cfg(test)]
mod tests;
