//! A client of a server of remote files: one connection, and the files that are open there.

mod file;
mod link;

use super::token::Token;
use crate::patience::Patience;
use crate::stop::StopFlag;
use crate::transport::tcp::connect_to_service;
pub use file::FileHandle;
use lads_core::errno;
use lads_core::remote::message::{Call, FRAME_BYTES, Failure, OpenMode};
use link::Link;
use std::io;
use std::net::ToSocketAddrs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// How a client uses a server.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Memory for what was written and is not at the server yet, in bytes: at least one frame.
    pub buffers_bytes: u64,
    /// A server that says nothing for as long counts as lost.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        // 64 frames. A process of the paper's simulation has a snapshot of half of it. With half,
        // a snapshot of this size is only half hidden behind the computation; double is memory
        // that the program may want itself.
        Self { buffers_bytes: 64 << 20, timeout: Duration::from_secs(60) }
    }
}

/// Why something with a remote file failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct RemoteError {
    /// Linux's `errno`.
    pub errno: i32,
    /// What failed, where.
    pub text: String,
}

impl RemoteError {
    fn of(failure: Failure, what: &str) -> Self {
        let Failure { operation, errno } = failure;
        let name = errno::name(errno).map_or_else(String::new, |name| format!(" ({name})"));
        let cause = io::Error::from_raw_os_error(errno);
        Self { errno, text: format!("cannot {} {what}: {cause}{name}", operation.verb()) }
    }

    fn lost(text: impl Into<String>) -> Self {
        Self { errno: rustix::io::Errno::IO.raw_os_error(), text: text.into() }
    }
}

/// A connection to a server. It ends when this and all its files are dropped.
#[derive(Debug)]
pub struct Client {
    link: Arc<Link>,
}

impl Client {
    /// Connects to a server: the host and its port, as `host:port`.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses the token.
    pub fn connect(at: &str, token: &Token, options: ClientOptions) -> Result<Self, RemoteError> {
        let stop = StopFlag::new();
        let patience = Patience::new(&stop, options.timeout);
        let socket = reach(at, token, &patience).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::UnexpectedEof => ": it closed the connection; is the token right?",
                _ => "",
            };
            RemoteError::lost(format!(
                "cannot reach the server of remote files {at}: {error}{hint}"
            ))
        })?;
        // The threads of the connection are in a program that has handlers of its own.
        let _quiet = lads_sys::SignalsBlocked::begin();
        let link = Link::open(socket, at, options)
            .map_err(|error| RemoteError::lost(format!("cannot use the server {at}: {error}")))?;
        Ok(Self { link })
    }

    /// Whether the connection is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.is_lost()
    }

    /// Cuts the connection.
    #[cfg(test)]
    pub(super) fn cut(&self) {
        self.link.cut();
    }

    /// Opens a file; processes that open it together give the same `group`. With `defers` it does
    /// not wait: an error comes with the next call.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(
        &self,
        path: &[u8],
        mode: OpenMode,
        group: [u8; 16],
        defers: bool,
    ) -> Result<FileHandle, RemoteError> {
        FileHandle::open(&self.link, path, mode, group, defers)
    }

    /// Removes a file.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn delete(&self, path: &[u8]) -> Result<(), RemoteError> {
        let what = format!("{} on {}", String::from_utf8_lossy(path), self.link.name());
        let asked = self.link.ask(0, Call::Delete { path: path.to_vec() });
        self.link.wait_for(asked, &what).map(|_| ())
    }

    /// Waits for all that was deferred, and returns the first error that no call has returned.
    ///
    /// # Errors
    /// Of what was deferred.
    pub fn finish(&self) -> Result<(), RemoteError> {
        self.link.finish()
    }
}

/// Tries all addresses of a host.
fn reach(at: &str, token: &Token, patience: &Patience<'_>) -> io::Result<OwnedFd> {
    let name = at.to_owned();
    let found = patience.result_of("lads-resolve", move || {
        name.to_socket_addrs().map(Iterator::collect::<Vec<_>>)
    })??;
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in found {
        match connect_to_service(address, &token.0, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// How many buffers a client has for this many bytes.
fn buffer_count(bytes: u64) -> u32 {
    u32::try_from(bytes / u64::from(FRAME_BYTES)).unwrap_or(u32::MAX).max(2)
}
