//! What a connection is made of besides its transport: what ends it.

use crate::launch::Distant;
use crate::transport::seal::Seals;
use crate::transport::tcp::end_socket;
use crate::transport::{Channel, Transport, pipe};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The way between a client and a server.
pub(super) trait Line: Send + Sync {
    /// Ends it: whoever reads from it or writes to it returns.
    fn end(&self);

    /// What was said on it besides messages, to go on a sentence with; empty if nothing.
    fn last_words(&self) -> String {
        String::new()
    }
}

impl Line for OwnedFd {
    fn end(&self) {
        end_socket(self);
    }
}

impl Line for Distant {
    fn end(&self) {
        self.end();
    }

    fn last_words(&self) -> String {
        match self.last_words().trim() {
            "" => String::new(),
            said => format!("; it printed \"{}\"", said.escape_debug()),
        }
    }
}

/// Messages and frames both ways over a connection to another host, encrypted.
pub(super) fn sealed_both_ways(
    socket: &OwnedFd,
    seals: Seals,
) -> io::Result<(Arc<dyn Transport>, Channel)> {
    let (input, output) = (File::from(socket.try_clone()?), File::from(socket.try_clone()?));
    Ok(pipe::open_sealed_both_ways(input, output, seals, 1))
}

/// Messages and frames both ways over a connection within this process.
pub(super) fn both_ways(socket: &OwnedFd) -> io::Result<(Arc<dyn Transport>, Channel)> {
    let (input, output) = (File::from(socket.try_clone()?), File::from(socket.try_clone()?));
    Ok(pipe::open_both_ways(input, output, 1))
}

/// What carries frames and messages to the other end and back.
pub(super) struct Connection {
    pub(super) line: Box<dyn Line>,
    pub(super) transport: Arc<dyn Transport>,
    pub(super) channel: Channel,
}
