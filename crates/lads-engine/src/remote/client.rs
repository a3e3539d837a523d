//! A client of a server of remote files: one connection, and the files that are open there.

mod cache;
mod file;
mod link;
mod options;
mod read_cache;

use super::error::RemoteError;
use super::line::{Connection, both_ways, sealed_both_ways};
use super::server::{serve_here, through_words};
use super::token::Token;
use crate::event::ExitCode;
use crate::job::{RemoteShell, shown_host};
use crate::keys::{KeyPair, PublicKey};
use crate::launch::Distant;
use crate::names::{part_port, resolve};
use crate::patience::Patience;
use crate::stop::StopFlag;
use crate::transport::handshake::Refusal;
use crate::transport::pipe;
use crate::transport::seal::Seals;
use crate::transport::tcp::{connect_to_service, socket_pair};
pub(super) use cache::{LeftOver, Unusable};
pub use file::{FileHandle, Presence};
pub use lads_core::remote::client::{ReadBytes, StagedBytes};
use lads_core::remote::message::OpenMode;
use lads_core::remote::name::Server;
use lads_core::remote::policy::CONNECT_MAX;
use link::Link;
pub use options::{ClientOptions, ReadCacheOptions, StageOptions, StageSettings};
use rustix::io::Errno;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// A connection to a server. It ends when this and all its files are dropped.
#[derive(Debug)]
pub struct Client {
    pub(super) link: Arc<Link>,
}

impl Client {
    /// Connects to a server: the host and its port, as `host:port`.
    ///
    /// # Errors
    /// If the server cannot be reached, or has another token. If connecting is deferred, a later
    /// call says so: here and in the other functions that make a client.
    pub fn connect(at: &str, token: &Token, options: &ClientOptions) -> Result<Self, RemoteError> {
        let (server, at) = (Server::At(at.to_owned()), at.to_owned());
        let (own, of_server) = (token.of_clients(), token.of_server().public());
        let timeout = options.timeout;
        let mut known = Vec::new();
        Self::begin(server, options, move || reach(&at, (&own, of_server), timeout, &mut known))
    }

    /// Starts a server of one's own on a host, as `[user@]host`, through a remote shell. It ends
    /// with the connection. `path` is that of the first file: its file system decides where the
    /// server expects files to lie.
    ///
    /// # Errors
    /// If that does not succeed in time; the text has what the remote shell said.
    pub fn start(
        shell: &RemoteShell,
        host: &str,
        path: &[u8],
        options: &ClientOptions,
    ) -> Result<Self, RemoteError> {
        let server = Server::StartedOn(host.to_owned());
        let (shell, to, path) = (shell.clone(), host.to_owned(), path.to_vec());
        let timeout = options.timeout;
        Self::begin(server, options, move || start_on(&to, &shell, &path, timeout))
    }

    /// Starts a server in this process, for the files of this host. `path` is that of the first
    /// file: its file system decides where the server expects files to lie.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn here(path: &[u8], options: &ClientOptions) -> Result<Self, RemoteError> {
        let path = path.to_vec();
        Self::begin(Server::Here, options, move || start_here(&path))
    }

    /// A client with a connection that is made by a thread of its own, and made again if it breaks:
    /// the program may go on meanwhile, and a signal for a write to what is gone would stay with
    /// the thread that wrote.
    pub(super) fn begin(
        server: Server,
        options: &ClientOptions,
        connect: impl FnMut() -> Result<Connection, RemoteError> + Send + 'static,
    ) -> Result<Self, RemoteError> {
        let name = shown(&server);
        let link = Link::new(server, name.clone(), options);
        let link = link.map_err(|error| RemoteError::unusable(&name, &error))?;
        Self::begin_with(link, options.defers_connecting, connect)
    }

    /// Starts the threads of a connection.
    fn begin_with(
        link: Link,
        defers_connecting: bool,
        connect: impl FnMut() -> Result<Connection, RemoteError> + Send + 'static,
    ) -> Result<Self, RemoteError> {
        // The threads of the connection are in a program that has handlers of its own.
        let _quiet = lads_sys::SignalsBlocked::begin();
        let link = Arc::new(link);
        let begun = link.begin_threads(connect);
        begun.map_err(|error| RemoteError::unusable(link.name(), &error.into()))?;
        if !defers_connecting {
            link.wait_until_connected()?;
        }
        Ok(Self { link })
    }

    /// What the server is called, for the user.
    #[must_use]
    pub fn server(&self) -> &str {
        self.link.name()
    }

    /// Reports whether the connection is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.is_lost()
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
        file::delete(&self.link, path)
    }

    /// Waits until everything that was written before through this client is visible to every
    /// client of the server: a round trip. Errors are returned by the next call of their file.
    ///
    /// If other processes do not use the same server, it waits until everything is written there.
    pub fn fence(&self) {
        self.link.fence();
    }

    /// Tells that other processes use other servers for the same files.
    pub fn share_with_other_servers(&self) {
        self.link.lock().client.share_with_other_servers();
    }

    /// Returns how many bytes went to the local disk so far.
    #[must_use]
    pub fn staged(&self) -> StagedBytes {
        self.link.lock().client.staged()
    }

    /// Returns how many bytes of what was read did not cost a round trip.
    #[must_use]
    pub fn read_bytes(&self) -> ReadBytes {
        self.link.lock().client.read_bytes()
    }

    /// Returns how often another process waited for data that this one had announced, or the
    /// reverse.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.link.lock().client.conflicts()
    }

    /// Returns how often the connection broke and was made again.
    #[must_use]
    pub fn reconnections(&self) -> u64 {
        self.link.lock().client.reconnections()
    }

    /// Waits for all that was deferred, and returns the first error that no call has returned.
    ///
    /// # Errors
    /// Of what was deferred.
    pub fn finish(&self) -> Result<(), RemoteError> {
        self.link.finish()
    }
}

/// A server, for the user.
fn shown(server: &Server) -> String {
    match server {
        Server::At(at) => at.clone(),
        Server::StartedOn(host) => shown_host(host),
        Server::Here => "this host".to_owned(),
    }
}

/// Connects to a server that listens: tries all addresses of its host, or those that are known.
fn reach(
    at: &str,
    keys: (&KeyPair, PublicKey),
    timeout: Duration,
    known: &mut Vec<SocketAddr>,
) -> Result<Connection, RemoteError> {
    let stop = StopFlag::new();
    // The kernel waits longer and longer before it tries again to reach a host that was not there.
    let limit = if known.is_empty() { timeout } else { timeout.min(CONNECT_MAX) };
    let patience = Patience::new(&stop, limit);
    let reached = reach_any(at, keys, &patience, timeout, known);
    let (socket, seals) = reached.map_err(|refusal| unreached(at, &refusal))?;
    let connected = sealed_both_ways(&socket, seals).map(|(transport, channel)| Connection {
        line: Box::new(socket),
        transport,
        channel,
    });
    connected.map_err(|error| RemoteError::unusable(at, &error))
}

fn unreached(at: &str, refusal: &Refusal) -> RemoteError {
    let server = format!("the server of remote files {at}");
    let version = env!("CARGO_PKG_VERSION");
    match refusal {
        // It would be refused each time.
        Refusal::OtherKey(_) => RemoteError {
            errno: Errno::ACCESS.raw_os_error(),
            text: format!("{server} has another token: copy the token file of the server to here"),
        },
        Refusal::Lost(_) if refusal.is_closed() => RemoteError::lost(format!(
            "{server} closed the connection without a reply: check that it is lads rfs serve of \
             version {version}"
        )),
        Refusal::Lost(error) => RemoteError::lost(format!("cannot reach {server}: {error}")),
        Refusal::Broken(_) | Refusal::NoTls | Refusal::TooLong => RemoteError::lost(format!(
            "cannot reach {server}: {refusal}; check that it is lads rfs serve of version \
             {version}, and the token"
        )),
    }
}

fn reach_any(
    at: &str,
    keys: (&KeyPair, PublicKey),
    patience: &Patience<'_>,
    unread_max: Duration,
    known: &mut Vec<SocketAddr>,
) -> Result<(OwnedFd, Seals), Refusal> {
    // A program for which a name is looked up every second may start a process each time.
    if known.is_empty() {
        let (name, port) = part_port(at, 0);
        let name = name.to_owned();
        let resolved = patience.result_of("lads-resolve", move || resolve(&name, port));
        *known = resolved.map_err(io::Error::from)??;
    }
    let mut failure = Refusal::from(io::Error::from(io::ErrorKind::NotFound));
    for address in known {
        match connect_to_service(*address, keys, patience, unread_max) {
            Ok(connected) => return Ok(connected),
            Err(refusal) => failure = refusal,
        }
    }
    Err(failure)
}

fn start_on(
    host: &str,
    shell: &RemoteShell,
    path: &[u8],
    timeout: Duration,
) -> Result<Connection, RemoteError> {
    let words = through_words(path);
    let started = Distant::start(shell, host, &words, timeout);
    let (distant, input, output) = started.map_err(|fatal| RemoteError {
        errno: match fatal.code {
            ExitCode::Refused => Errno::ACCESS.raw_os_error(),
            _ => Errno::IO.raw_os_error(),
        },
        text: format!("cannot start a server of remote files: {}", fatal.text),
    })?;
    let (transport, channel) = pipe::open_both_ways(input, output, 1);
    Ok(Connection { line: Box::new(distant), transport, channel })
}

pub(super) fn start_here(path: &[u8]) -> Result<Connection, RemoteError> {
    let unusable = |error: io::Error| RemoteError::unusable(&shown(&Server::Here), &error);
    let (own, served) = socket_pair().map_err(unusable)?;
    serve_here(served, path).map_err(|text| unusable(io::Error::other(text)))?;
    over_socket(own).map_err(unusable)
}

fn over_socket(socket: OwnedFd) -> io::Result<Connection> {
    let (transport, channel) = both_ways(&socket)?;
    Ok(Connection { line: Box::new(socket), transport, channel })
}
