//! What both ends say first: who they are, and how much of it is heard.
//!
//! A peer that has not greeted yet may be anything, a login script or an attacker. So each message
//! of the greeting has a bound of its own, far below what a message may be later, and all of them
//! together have one deadline ([`Patience`]).

use super::patience::{Cut, Patience, Patient};
use crate::control::{MessageReader, write_message};
use crate::event::ExitCode;
use crate::hub::Fatal;
use lads_core::message::{Hello, MAGIC, Message, VERSION, VERSION_MIN};
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

/// From the first word of the other end until all data streams are open. An ssh connection for
/// each of 16 tunnelled streams fits in, half of it would be too short for a loaded login node;
/// twice as long and a peer that says a byte at a time holds a port for a minute.
pub(super) const GREETING_DEADLINE: Duration = Duration::from_secs(30);

/// HELLO is not longer, in bytes: two names and a few numbers, 60 bytes mostly.
pub(super) const HELLO_BYTES_MAX: usize = 4 << 10;

/// LISTEN is not longer, in bytes: 256 tokens take 8.5 KiB. Nor is FATAL, which may come in its
/// place, with a sentence for the person.
pub(super) const LISTEN_BYTES_MAX: usize = 64 << 10;

/// The control channel while the two ends greet each other.
pub(super) struct Greeting {
    input: File,
    output: File,
    /// What the other end is called in messages.
    peer: String,
}

impl Greeting {
    pub(super) fn new(input: File, output: File, peer: &str) -> Self {
        Self { input, output, peer: peer.to_owned() }
    }

    /// The two pipes, for the time after.
    pub(super) fn into_pipes(self) -> (File, File) {
        (self.input, self.output)
    }

    /// What the other end is read from.
    pub(super) fn input(&self) -> &File {
        &self.input
    }

    pub(super) fn say(&mut self, message: &Message, patience: &Patience<'_>) -> Result<(), Fatal> {
        write_message(&mut Patient { pipe: &self.output, patience }, message).map_err(|error| {
            let lost = || Fatal::new(ExitCode::Network, format!("lost {}: {error}", self.peer));
            Cut::of(&error).map_or_else(lost, |cut| cut.fatal(&self.peer))
        })
    }

    /// The next message, if it is no longer than this; `None` if the other end said its last.
    pub(super) fn hear(
        &mut self,
        bytes_max: usize,
        patience: &Patience<'_>,
    ) -> Result<Option<Message>, Fatal> {
        self.hear_after(&[], bytes_max, patience)
    }

    /// The same, if the first bytes of the message were read already.
    pub(super) fn hear_after(
        &mut self,
        first: &[u8],
        bytes_max: usize,
        patience: &Patience<'_>,
    ) -> Result<Option<Message>, Fatal> {
        let from = first.chain(Patient { pipe: &self.input, patience });
        MessageReader::new(from).next_within(bytes_max, &self.peer)
    }

    /// Reads what is there, without a word of our own.
    pub(super) fn read(&mut self, to: &mut [u8], patience: &Patience<'_>) -> io::Result<usize> {
        Patient { pipe: &self.input, patience }.read(to)
    }
}

pub(super) fn own_hello() -> Message {
    Message::Hello(Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version: VERSION,
        features: 0,
        software: format!("lads {}", env!("CARGO_PKG_VERSION")),
        host: super::own_host(),
    })
}

/// What the other end says of itself, if we can go on with it.
pub(super) fn check_hello(message: Option<Message>, name: &str) -> Result<Hello, Fatal> {
    let Some(message) = message else {
        let text = format!("{name} ended before it greeted");
        return Err(Fatal::new(ExitCode::Network, text));
    };
    let Message::Hello(hello) = message else {
        return Err(Fatal::new(ExitCode::Usage, format!("{name} does not greet")));
    };
    if hello.magic != MAGIC || hello.version_min > VERSION || hello.version < VERSION_MIN {
        let text = format!(
            "{name} runs {} (protocols {} to {}), here is lads {} (protocols {VERSION_MIN} to \
             {VERSION}): install the same version on both",
            hello.software,
            hello.version_min,
            hello.version,
            env!("CARGO_PKG_VERSION")
        );
        return Err(Fatal::new(ExitCode::Usage, text));
    }
    Ok(hello)
}
