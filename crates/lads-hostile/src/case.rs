//! One lie: who tells it to whom, and what must come of it.

use crate::peer::{Opening, Peer, Told};
use crate::world::World;
use lads_core::issue::Side;
use std::path::Path;

/// Memory that an honest end may take beyond its buffers, in bytes. It takes 7 MiB; one message of
/// 16 MiB, the longest there is, takes up to ten times as much when it is read.
const MEMORY_BYTES: u64 = 256 << 20;

/// The same where many messages come that are each far below the longest, in bytes.
const MEMORY_BYTES_IN_A_FLOOD: u64 = 48 << 20;

/// Who plays which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The peer is the source; `lads cp there:src dst` started it.
    Source,
    /// The peer is the sink; `lads cp src there:dst` started it.
    Sink,
    /// The peer is the source, and started `lads serve` as the sink.
    ClientSource,
    /// The peer is the sink, and started `lads serve` as the source.
    ClientSink,
}

impl Role {
    /// Which side the peer plays.
    #[must_use]
    pub fn side(self) -> Side {
        match self {
            Self::Source | Self::ClientSource => Side::Source,
            Self::Sink | Self::ClientSink => Side::Sink,
        }
    }

    /// Whether the peer starts the honest end.
    #[must_use]
    pub fn is_client(self) -> bool {
        matches!(self, Self::ClientSource | Self::ClientSink)
    }

    /// What cases of this role are listed under.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
            Self::ClientSource => "client_source",
            Self::ClientSink => "client_sink",
        }
    }
}

/// How a case is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// As whoever runs the tests.
    Plain,
    /// The honest end as user and group 65534, which needs root.
    Nobody,
    /// The same lie of a source, told by a client to `lads serve`.
    Served,
}

/// One lie, and what must come of it. Whatever it is, [`crate::trial`] checks besides that nothing
/// outside the target changed, that memory, threads and descriptors stay bounded, that the honest
/// end goes in time and by itself, that what is under a real name is right, and that no control
/// characters are printed.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What the case is called: the same in `docs/security.md`.
    pub name: &'static str,
    /// Who plays which part.
    pub role: Role,
    /// How far both go honestly.
    pub opening: Opening,
    /// What the peer does then.
    pub lie: fn(&mut Peer) -> Told,
    /// Exit codes that the honest end may end with.
    pub exits: &'static [i32],
    /// Whether the honest end must notice the lie itself, rather than that nothing follows it.
    pub is_noticed: bool,
    /// Options of `lads cp` besides those of all cases.
    pub options: &'static [&'static str],
    /// Whether `--data-address 127.0.0.1` is given.
    pub has_data_address: bool,
    /// What is made ready before, as whoever runs the tests.
    pub setup: fn(&World),
    /// What somebody else has put into the target directory before; told the journal's path.
    pub plants: Option<fn(&World, &Path)>,
    /// Bytes of the job that a client asks for, and what it puts in their place: what an honest
    /// client would not ask for.
    pub forged_job: Option<(&'static [u8], &'static [u8])>,
    /// Files that must be at the target if the exit code is 0: name and bytes.
    pub arrives: &'static [(&'static str, usize)],
    /// Whether it is told to `lads serve` as well.
    pub is_served_too: bool,
    /// Whether it makes sense only for root.
    pub needs_root: bool,
    /// Memory that the honest end may take beyond its buffers, in bytes.
    pub memory_bytes: u64,
    /// How often it is tried: more than once where threads race.
    pub rounds: u32,
}

impl Case {
    const fn new(
        role: Role,
        name: &'static str,
        opening: Opening,
        lie: fn(&mut Peer) -> Told,
    ) -> Self {
        Self {
            name,
            role,
            opening,
            lie,
            exits: &[5],
            is_noticed: true,
            options: &[],
            has_data_address: true,
            setup: |_| {},
            plants: None,
            forged_job: None,
            arrives: &[],
            is_served_too: false,
            needs_root: false,
            memory_bytes: MEMORY_BYTES,
            rounds: 1,
        }
    }

    /// A lie of a source that `lads cp` pulls from, told when the sink is ready. Unless something
    /// else is said, it must be noticed as a breach: exit code 5.
    #[must_use]
    pub const fn source(name: &'static str, lie: fn(&mut Peer) -> Told) -> Self {
        Self::new(Role::Source, name, Opening::Ready, lie)
    }

    /// A lie of a sink that `lads cp` pushes to, told when all files were announced.
    #[must_use]
    pub const fn sink(name: &'static str, lie: fn(&mut Peer) -> Told) -> Self {
        Self::new(Role::Sink, name, Opening::Announced, lie)
    }

    /// A lie of a source that is the client of `lads serve`.
    #[must_use]
    pub const fn client_source(name: &'static str, lie: fn(&mut Peer) -> Told) -> Self {
        Self::new(Role::ClientSource, name, Opening::Ready, lie)
    }

    /// The lie is told at this point.
    #[must_use]
    pub const fn at(mut self, opening: Opening) -> Self {
        self.opening = opening;
        self
    }

    /// The honest end may end with these exit codes, and need not notice the lie itself.
    #[must_use]
    pub const fn exits(mut self, codes: &'static [i32]) -> Self {
        self.exits = codes;
        self.is_noticed = false;
        self
    }

    /// It must not only end as [`Self::exits`] says, but for the lie, not for what follows it.
    #[must_use]
    pub const fn noticed(mut self) -> Self {
        self.is_noticed = true;
        self
    }

    /// Many messages come, none of them long: memory is bounded more tightly.
    #[must_use]
    pub const fn flood(mut self) -> Self {
        self.memory_bytes = MEMORY_BYTES_IN_A_FLOOD;
        self
    }

    /// With these options of `lads cp`.
    #[must_use]
    pub const fn options(mut self, options: &'static [&'static str]) -> Self {
        self.options = options;
        self
    }

    /// Without `--data-address`.
    #[must_use]
    pub const fn without_data_address(mut self) -> Self {
        self.has_data_address = false;
        self
    }

    /// With something made ready before.
    #[must_use]
    pub const fn setup(mut self, setup: fn(&World)) -> Self {
        self.setup = setup;
        self
    }

    /// With something in the target directory that somebody else has put there.
    #[must_use]
    pub const fn plants(mut self, plants: fn(&World, &Path)) -> Self {
        self.plants = Some(plants);
        self
    }

    /// If the exit code is 0, these are at the target.
    #[must_use]
    pub const fn arrives(mut self, files: &'static [(&'static str, usize)]) -> Self {
        self.arrives = files;
        self
    }

    /// A client asks for what an honest one would not: these bytes of its job are others.
    #[must_use]
    pub const fn forging_job(mut self, honest: &'static [u8], forged: &'static [u8]) -> Self {
        self.forged_job = Some((honest, forged));
        self
    }

    /// Told to `lads serve` as well.
    #[must_use]
    pub const fn served_too(mut self) -> Self {
        self.is_served_too = true;
        self
    }

    /// Only for root.
    #[must_use]
    pub const fn for_root(mut self) -> Self {
        self.needs_root = true;
        self
    }

    /// Tried so often.
    #[must_use]
    pub const fn rounds(mut self, rounds: u32) -> Self {
        self.rounds = rounds;
        self
    }

    /// Whether data streams share the pipes with messages.
    #[must_use]
    pub fn is_piped(&self) -> bool {
        self.options.contains(&"--tunnel")
    }

    /// How it is run, by whether root runs the tests.
    #[must_use]
    pub fn manners(&self, is_root: bool) -> Vec<Manner> {
        let mut manners = Vec::new();
        if is_root || !self.needs_root {
            manners.push(Manner::Plain);
        }
        if is_root && !self.needs_root {
            manners.push(Manner::Nobody);
        }
        if self.is_served_too && (is_root || !self.needs_root) {
            manners.push(Manner::Served);
        }
        manners
    }

    /// The role in which the peer plays it.
    #[must_use]
    pub fn role_in(&self, manner: Manner) -> Role {
        match (manner, self.role) {
            (Manner::Served, Role::Source) => Role::ClientSource,
            (Manner::Served, Role::Sink) => Role::ClientSink,
            (_, role) => role,
        }
    }

    /// What its test is called.
    #[must_use]
    pub fn test_name(&self, manner: Manner) -> String {
        let ending = match manner {
            Manner::Plain => "",
            Manner::Nobody => "::as_nobody",
            Manner::Served => "::served",
        };
        format!("{}::{}{ending}", self.role.word(), self.name)
    }
}
