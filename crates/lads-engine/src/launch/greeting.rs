//! The greeting: what both ends say first, and how much of it is read.
//!
//! A peer that has not sent HELLO yet may be anything: a login script or an attacker. So each
//! message of the greeting has a limit of its own, far below the limit of later messages, and all
//! of them together have one deadline ([`Patience`]).

use crate::control::{MessageReader, write_message};
use crate::event::ExitCode;
use crate::fatal::{Fatal, own_host};
use crate::patience::{Cut, Patience, Patient};
use lads_core::message::{Hello, MAGIC, Message, SchemaDigest, VERSION, VERSION_MIN};
use lads_core::schema::DIGEST;
use std::fs::File;
use std::io::{self, Read, Write};
use std::time::Duration;

/// The time from the first byte of the other end until all data streams are open. Half of it would
/// be too short to open 256 streams to a loaded login node. With the double, a peer that sends one
/// byte at a time would hold a port for a minute.
pub(super) const GREETING_DEADLINE: Duration = Duration::from_secs(30);

/// The longest HELLO, in bytes. It has two names and a few numbers, usually 60 bytes.
pub(super) const HELLO_BYTES_MAX: usize = 4 << 10;

/// The longest LISTEN, in bytes: 256 tokens take 8.5 KiB. FATAL, which may come instead, has a
/// sentence for the user and is not longer, either.
pub(super) const LISTEN_BYTES_MAX: usize = 64 << 10;

/// What a process sends that refuses to be the other end: HELLO and FATAL. `text` is for the user.
#[must_use]
pub fn refusal(code: ExitCode, text: &str) -> Vec<u8> {
    let message = Message::Fatal { code: code as u8, text: text.to_owned() };
    [bytes_of(&own_hello()), bytes_of(&message)].concat()
}

/// The control channel during the greeting.
pub(super) struct Greeting {
    input: File,
    output: File,
    /// The name of the other end in messages.
    peer: String,
}

impl Greeting {
    pub(super) fn new(input: File, output: File, peer: &str) -> Self {
        Self { input, output, peer: peer.to_owned() }
    }

    /// The two pipes, for the time after the greeting.
    pub(super) fn into_pipes(self) -> (File, File) {
        (self.input, self.output)
    }

    /// The pipe from which the other end is read.
    pub(super) fn input(&self) -> &File {
        &self.input
    }

    pub(super) fn say(&mut self, message: &Message, patience: &Patience<'_>) -> Result<(), Fatal> {
        self.send(&bytes_of(message), patience)
    }

    /// Writes bytes.
    pub(super) fn send(&mut self, bytes: &[u8], patience: &Patience<'_>) -> Result<(), Fatal> {
        let mut output = Patient { pipe: &self.output, patience };
        output.write_all(bytes).and_then(|()| output.flush()).map_err(|error| {
            let lost = || Fatal::new(ExitCode::Network, format!("lost {}: {error}", self.peer));
            Cut::of(&error).map_or_else(lost, |cut| cut.fatal(&self.peer))
        })
    }

    /// The next message, if it is at most `length_max` bytes long; `None` if the other end has
    /// closed the channel.
    pub(super) fn hear(
        &mut self,
        bytes_max: usize,
        patience: &Patience<'_>,
    ) -> Result<Option<Message>, Fatal> {
        self.hear_after(&[], bytes_max, patience)
    }

    /// As [`Self::hear`], if the first bytes of the message were read already.
    pub(super) fn hear_after(
        &mut self,
        first: &[u8],
        bytes_max: usize,
        patience: &Patience<'_>,
    ) -> Result<Option<Message>, Fatal> {
        let from = first.chain(Patient { pipe: &self.input, patience });
        MessageReader::new(from).next_within(bytes_max, &self.peer)
    }

    /// Reads the bytes that are there, without an error text.
    pub(super) fn read(&mut self, to: &mut [u8], patience: &Patience<'_>) -> io::Result<usize> {
        Patient { pipe: &self.input, patience }.read(to)
    }
}

/// A message as it is sent.
pub(super) fn bytes_of(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_message(&mut bytes, message).expect("memory takes it");
    bytes
}

pub(super) fn own_hello() -> Message {
    Message::Hello(Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version: VERSION,
        features: 0,
        software: format!("lads {}", env!("CARGO_PKG_VERSION")),
        host: own_host(),
        schema: SchemaDigest(Some(DIGEST)),
    })
}

/// Checks that both ends can talk to each other. Returns the HELLO of the other end.
pub(super) fn check_hello(message: Option<Message>, name: &str) -> Result<Hello, Fatal> {
    let Some(message) = message else {
        let text = format!("{name} ended before it sent a greeting");
        return Err(Fatal::new(ExitCode::Network, text));
    };
    let Message::Hello(hello) = message else {
        return Err(Fatal::new(
            ExitCode::Usage,
            format!("{name} sent something other than the greeting of LADS"),
        ));
    };
    let (software, own) = (&hello.software, env!("CARGO_PKG_VERSION"));
    if hello.magic != MAGIC || hello.version_min > VERSION || hello.version < VERSION_MIN {
        let text = format!(
            "{name} runs {software} (protocols {} to {}), this host lads {own} (protocols \
             {VERSION_MIN} to {VERSION}): install the same version on both hosts",
            hello.version_min, hello.version
        );
        return Err(Fatal::new(ExitCode::Usage, text));
    }
    // The digest of another version says nothing to this build: both versions were made to work
    // together.
    let own_schema = SchemaDigest(Some(DIGEST));
    if hello.version == VERSION && hello.schema != own_schema {
        let text = format!(
            "{name} runs {software} (protocol {VERSION}, wire {}), this host lads {own} (protocol \
             {VERSION}, wire {own_schema}): the messages of the two builds differ; install the \
             same build on both hosts",
            hello.schema
        );
        return Err(Fatal::new(ExitCode::Usage, text));
    }
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Assignment, Deletion, IoMode, Listing, Options, Passing, Verify};
    use crate::transport::tcp::opening;
    use expect_test::expect_file;

    /// What the engine says beside messages and frames. See [`lads_core::schema`].
    #[test]
    fn the_description_of_jobs_and_connections_is_what_the_code_says() {
        let forms = [
            Assignment::wire_form(),
            Options::wire_form(),
            Passing::wire_form(),
            Deletion::wire_form(),
            IoMode::wire_form(),
            Verify::wire_form(),
            Listing::wire_form(),
        ];
        let (said, answered) = opening(258, &[7; 32], &[9; 16]);
        let opening: String = said.iter().map(|byte| format!(" {byte:02x}")).collect();
        let text = format!(
            "{}\nopening of stream 258, token of sevens, salt of nines:{opening}\nanswer: {answered:02x}\n",
            forms.concat()
        );
        expect_file!["../../../lads-core/src/schema/transports.txt"].assert_eq(&text);
    }

    fn refusal(hello: Hello) -> String {
        let refused = check_hello(Some(Message::Hello(hello)), "dtn2").unwrap_err();
        assert_eq!(refused.code, ExitCode::Usage);
        refused.text
    }

    fn hello() -> Hello {
        let Message::Hello(hello) = own_hello() else { panic!("it is HELLO") };
        hello
    }

    #[test]
    fn a_build_of_another_wire_is_refused_and_told_what_to_do() {
        let other = Hello { schema: SchemaDigest(Some([0xab; 8])), ..hello() };
        let text = refusal(Hello { software: "lads 0.9".to_owned(), ..other });
        assert!(text.contains("dtn2 runs lads 0.9 (protocol 2, wire abababababababab)"), "{text}");
        assert!(text.contains("install the same build on both hosts"), "{text}");
        let text = refusal(Hello { schema: SchemaDigest(None), ..hello() });
        assert!(text.contains("wire unknown"), "{text}");
    }

    #[test]
    fn a_build_of_another_version_is_refused_unless_it_knows_ours() {
        let none = SchemaDigest(None);
        let text = refusal(Hello { version_min: 7, version: 9, schema: none, ..hello() });
        assert!(text.contains("(protocols 7 to 9)"), "{text}");
        // What its own latest wire is does not concern us.
        let later = Hello { version: 9, schema: SchemaDigest(Some([1; 8])), ..hello() };
        assert!(check_hello(Some(Message::Hello(later)), "dtn2").is_ok());
    }
}
