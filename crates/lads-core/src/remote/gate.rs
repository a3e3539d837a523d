//! Decides whether a message or a frame of a server is allowed: the one place that checks what a
//! server sends.
//!
//! A server is not trusted. Every message passes [`Gate::admit`], and the head of every frame
//! [`Gate::admit_frame`], before another part of the client sees any of it. One that is not allowed
//! ends the connection. So all that is left to the rest of the client is true of every server:
//! the greeting is first; a request is answered once, with the kind of answer that it asks for; a
//! number is a length or a position of a file; the bytes of a read are as many as the answer tells,
//! and arrive once; an error has a number that Linux knows; a text has no control characters.

use super::message::{Call, Failure, Outcome, ToClient, VERSION, Written};
use crate::frame::{Header, Row};
use crate::limits::{FILE_BYTES_MAX, TEXT_BYTES_MAX};
use crate::text::escape;
use std::collections::{HashMap, HashSet};
use thiserror::Error;

/// The largest error number that Linux can return (`MAX_ERRNO`).
const ERRNO_MAX: i32 = 4095;

/// The way in which a server breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// The server has another version.
    #[error("its protocol has version {0}, that of this program has version {VERSION}")]
    Version(u16),
    /// The first message is no greeting, or a later message is one.
    #[error("it sent an unexpected greeting")]
    Greeting,
    /// An answer to a request that was not made, or was answered before.
    #[error("it answered a request that was not sent")]
    Unasked,
    /// An answer of another kind than the request asks for.
    #[error("it sent an answer that does not belong to the request")]
    Answer,
    /// A number that is no length and no position of a file.
    #[error("it sent an invalid length of a file")]
    Number,
    /// An error number that does not exist.
    #[error("it sent an error number that does not exist")]
    Errno,
    /// A frame that is not what was asked for.
    #[error("it sent data that was not requested")]
    Frame,
    /// A frame counts as written that was not sent, or was written before.
    #[error("it wrote a frame that was not sent")]
    Written,
    /// A frame was refused that was not sent, or was written before.
    #[error("it refused a frame that was not sent")]
    Refused,
    /// A text is too long.
    #[error("it sent a text that is too long")]
    Text,
}

/// The requests that a server owes something, and what it owes.
#[derive(Debug, Default)]
pub struct Gate {
    state: State,
    has_ticket: bool,
    owed: HashMap<u64, Owed>,
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The greeting comes next.
    #[default]
    Begun,
    /// The greeting comes next, and [`ToClient::Resumed`] or [`ToClient::Restarted`] after it.
    BegunAgain,
    /// One of these comes next.
    Greeted,
    Open,
}

/// The answer that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    /// That it is done.
    Done,
    /// A length or a position.
    Number,
    /// Bytes, and their number. They travel on two ways.
    Bytes {
        position: u64,
        length: u32,
        /// The number of bytes in the frame, if it has arrived.
        in_frame: Option<u64>,
        /// The number of bytes in the answer, if it has arrived.
        in_answer: Option<u64>,
    },
    /// It is asked for again under another number. An answer may be on its way.
    Nothing,
}

impl Owed {
    fn by(call: &Call) -> Self {
        match call {
            Call::Open { .. } | Call::View { .. } | Call::Forget { .. } => Self::Done,
            Call::Sync { .. } | Call::Flush { .. } | Call::Close { .. } => Self::Done,
            Call::SetSize { .. } | Call::Preallocate { .. } | Call::Delete { .. } => Self::Done,
            Call::SetShared { .. } | Call::Lock { .. } | Call::Unlock { .. } => Self::Done,
            Call::Return { .. } => Self::Nothing,
            Call::Fence { .. } | Call::Size { .. } => Self::Number,
            Call::End { .. } | Call::AddShared { .. } => Self::Number,
            Call::Read { position, length, .. } => {
                let (position, length) = (*position, *length);
                Self::Bytes { position, length, in_frame: None, in_answer: None }
            }
        }
    }

    /// Takes an answer. Returns whether something is owed still.
    fn answer(&mut self, outcome: Outcome) -> Result<bool, Breach> {
        match (self, outcome) {
            (Self::Nothing, _) => Ok(false),
            (Self::Bytes { in_frame, .. }, Outcome::Failed(_) | Outcome::Lost) => {
                if let Outcome::Failed(failure) = outcome {
                    check_failure(failure)?;
                }
                if in_frame.is_none() { Ok(false) } else { Err(Breach::Answer) }
            }
            (_, Outcome::Failed(failure)) => check_failure(failure).map(|()| false),
            (Self::Done, Outcome::Done) => Ok(false),
            (Self::Number, Outcome::Number(number)) if number > FILE_BYTES_MAX => {
                Err(Breach::Number)
            }
            (Self::Number, Outcome::Number(_)) => Ok(false),
            (Self::Bytes { length, in_frame, in_answer, .. }, Outcome::Number(count)) => {
                let is_first = in_answer.replace(count).is_none();
                let is_same = in_frame.is_none_or(|it| it == count);
                let is_right = is_first && is_same && count <= u64::from(*length);
                if is_right { Ok(count > 0 && in_frame.is_none()) } else { Err(Breach::Answer) }
            }
            _ => Err(Breach::Answer),
        }
    }

    /// Takes the head of a frame. Returns whether something is owed still.
    fn frame(&mut self, offset: u64, bytes: u32) -> Result<bool, Breach> {
        let Self::Bytes { position, length, in_frame, in_answer } = self else {
            return Err(Breach::Frame);
        };
        let is_first = in_frame.replace(bytes.into()).is_none();
        let is_same = in_answer.is_none_or(|it| it == u64::from(bytes));
        let is_right = is_first && is_same && offset == *position && (1..=*length).contains(&bytes);
        if is_right { Ok(in_answer.is_none()) } else { Err(Breach::Frame) }
    }
}

impl Gate {
    /// The client connects again: the greeting comes anew, and then what the server has.
    pub fn on_connected_again(&mut self) {
        self.state = State::BegunAgain;
    }

    /// The request for bytes is made again under another number. An answer that was on its way is
    /// not looked at; bytes do not come.
    pub fn abandon(&mut self, number: u64) {
        self.owed.insert(number, Owed::Nothing);
    }

    /// A request was done, though no answer has come. Returns whether one was owed.
    pub fn settle(&mut self, number: u64) -> bool {
        self.owed.remove(&number).is_some()
    }

    /// A request is sent, or is sent again to a server that was started again.
    pub fn on_asked(&mut self, number: u64, call: &Call) {
        self.owed.insert(number, Owed::by(call));
    }

    /// Checks a message, and returns it with its text made fit for a terminal. `is_in_flight` tells
    /// whether a frame is sent and not written.
    ///
    /// # Errors
    /// If the server breaks the protocol with it.
    pub fn admit(
        &mut self,
        message: ToClient,
        is_in_flight: impl Fn(u64) -> bool,
    ) -> Result<ToClient, Breach> {
        let is_right = match (self.state, &message) {
            (State::Begun | State::BegunAgain, ToClient::Hello { .. }) => true,
            (State::Greeted, ToClient::Resumed { .. } | ToClient::Fatal(_)) => true,
            (State::Greeted, ToClient::Restarted { .. }) => true,
            (State::Open, ToClient::Ticket(_)) => !std::mem::replace(&mut self.has_ticket, true),
            (State::Open, ToClient::Hello { .. } | ToClient::Resumed { .. }) => false,
            (State::Open, ToClient::Restarted { .. }) => false,
            (state, _) => state == State::Open,
        };
        if !is_right {
            return Err(Breach::Greeting);
        }
        match &message {
            ToClient::Hello { version, .. } if *version != VERSION => {
                return Err(Breach::Version(*version));
            }
            ToClient::Hello { name, .. } => {
                check_text(name)?;
                let is_new = self.state == State::Begun;
                self.state = if is_new { State::Open } else { State::Greeted };
            }
            ToClient::Resumed { .. } | ToClient::Restarted { .. } => self.state = State::Open,
            ToClient::Fatal(text) => {
                check_text(text)?;
                return Ok(ToClient::Fatal(escape(text.as_bytes())));
            }
            ToClient::Written(written) => check_written(written, is_in_flight)?,
            ToClient::Reply { number, outcome } => {
                let answer = |owed: &mut Owed| owed.answer(*outcome);
                self.take(*number, answer, Breach::Unasked)?;
            }
            ToClient::Again(frame) if !is_in_flight(*frame) => return Err(Breach::Refused),
            // No more is sent than was written, whatever was granted or recalled.
            ToClient::Grant(_) | ToClient::Heartbeat | ToClient::Ticket(_) => {}
            ToClient::Again(_) | ToClient::Recall(_) => {}
        }
        Ok(message)
    }

    /// Checks the head of a frame, and returns the number of the request that asked for its bytes.
    ///
    /// # Errors
    /// If the server breaks the protocol with it.
    pub fn admit_frame(&mut self, header: &Header, rows: &[Row]) -> Result<u64, Breach> {
        let [row] = rows else { return Err(Breach::Frame) };
        let is_whole = row.block.length == header.payload_bytes && !header.has_only_sums;
        if !is_whole {
            return Err(Breach::Frame);
        }
        let number = row.block.entry.0;
        let take = |owed: &mut Owed| owed.frame(row.block.offset, row.block.length);
        self.take(number, take, Breach::Frame)?;
        Ok(number)
    }

    /// Takes something that a request may be owed; `unasked` is the breach if it is not.
    fn take(
        &mut self,
        number: u64,
        take: impl FnOnce(&mut Owed) -> Result<bool, Breach>,
        unasked: Breach,
    ) -> Result<(), Breach> {
        let owed = self.owed.get_mut(&number).ok_or(unasked)?;
        if !take(owed)? {
            self.owed.remove(&number);
        }
        Ok(())
    }
}

fn check_written(written: &[Written], is_in_flight: impl Fn(u64) -> bool) -> Result<(), Breach> {
    let mut frames = HashSet::new();
    for Written { frame, failure } in written {
        if !frames.insert(*frame) || !is_in_flight(*frame) {
            return Err(Breach::Written);
        }
        failure.map_or(Ok(()), check_failure)?;
    }
    Ok(())
}

fn check_failure(failure: Failure) -> Result<(), Breach> {
    if (1..=ERRNO_MAX).contains(&failure.errno) { Ok(()) } else { Err(Breach::Errno) }
}

fn check_text(text: &str) -> Result<(), Breach> {
    if text.len() <= TEXT_BYTES_MAX { Ok(()) } else { Err(Breach::Text) }
}

#[cfg(test)]
mod tests;
