//! What comes of anything at all that a peer or a disk can say.
//!
//! A [`Target`] is a function that takes any bytes and panics if the core does what it must not.
//! Those of readers pass the bytes to them and look at the answer ([`message`], [`frame`],
//! [`packet`], [`journal`], [`filter`], [`layouts`], [`view`], [`remote_message`]). Those of the
//! two sessions take the bytes as choices of an owner that tells the session the truth about its
//! tasks, and of a peer that says what it likes ([`sink_session`], [`source_session`]); so do those
//! of the server and the client of remote files ([`remote_server`], [`remote_client`]).
//!
//! The same functions are run by libFuzzer (`fuzz/`), which looks for bytes that lead to code that
//! no others led to; by the tests of this crate, which run what was found once and some random
//! bytes; and by nobody else.

pub mod choices;
pub mod filter;
pub mod frame;
pub mod growth;
pub mod journal;
pub mod layouts;
pub mod message;
pub mod nonsense;
pub mod packet;
pub mod remote_client;
pub mod remote_message;
pub mod remote_server;
pub mod sink_session;
pub mod source_session;
pub mod steps;
pub mod view;

use cap::Cap;
use std::alloc::System;
use std::panic;
use std::sync::Once;

/// Counts what is allocated, and refuses what a target must not have.
#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// What a target may allocate for each byte of its input, in bytes. The most that one byte of a
/// message becomes is an element of a list that takes two bytes on the wire and some 100 in memory,
/// in a list that doubles as it grows. Half would refuse sound messages.
const MEMORY_PER_BYTE: usize = 64;

/// Something that is tried with any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What the program, and the directories of its inputs, are called.
    pub name: &'static str,
    /// What is done with an input. Panics if something is wrong.
    pub body: fn(&[u8]),
    /// What it may allocate besides what it may for each byte of its input, in bytes.
    pub memory_bytes: usize,
}

/// All targets. A reader has no reason to allocate more than a small multiple of what it reads; a
/// session keeps tables of OSTs and streams whose numbers its peer names.
pub const TARGETS: [Target; 12] = [
    Target { name: "message", body: message::run, memory_bytes: 1 << 20 },
    Target { name: "frame", body: frame::run, memory_bytes: 1 << 20 },
    Target { name: "packet", body: packet::run, memory_bytes: 1 << 20 },
    Target { name: "journal", body: journal::run, memory_bytes: 1 << 20 },
    Target { name: "filter", body: filter::run, memory_bytes: 1 << 20 },
    Target { name: "layouts", body: layouts::run, memory_bytes: 4 << 20 },
    Target { name: "view", body: view::run, memory_bytes: 1 << 20 },
    Target { name: "remote_message", body: remote_message::run, memory_bytes: 1 << 20 },
    Target { name: "remote_client", body: remote_client::run, memory_bytes: 64 << 20 },
    Target { name: "remote_server", body: remote_server::run, memory_bytes: 64 << 20 },
    Target { name: "source_session", body: source_session::run, memory_bytes: 64 << 20 },
    Target { name: "sink_session", body: sink_session::run, memory_bytes: 64 << 20 },
];

/// Runs a target with an input, and ends the process if it allocates more than it may. The limit is
/// that of the whole process: nothing else may run beside it.
///
/// # Panics
/// If no target has this name, or something is wrong.
pub fn run(name: &str, bytes: &[u8]) {
    static HOOK: Once = Once::new();
    HOOK.call_once(lift_limit_for_panics);
    let found = TARGETS.iter().find(|target| target.name == name);
    let target = found.unwrap_or_else(|| panic!("no target is called {name}"));
    let most = target.memory_bytes + bytes.len() * MEMORY_PER_BYTE;
    let is_set = MEMORY.set_limit(MEMORY.allocated() + most);
    assert!(is_set.is_ok(), "the limit is above what is allocated");
    (target.body)(bytes);
    let is_lifted = MEMORY.set_limit(usize::MAX);
    assert!(is_lifted.is_ok(), "no limit is above all");
}

/// A panic takes memory to say where it was, more than most targets have left.
fn lift_limit_for_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        // Nothing better can be done here if that fails, which it cannot.
        let _ = MEMORY.set_limit(usize::MAX);
        before(info);
    }));
}
