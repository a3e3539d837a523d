//! A server of remote files: below one directory, for clients that have its token; or for the one
//! client that started it through ssh, and that may do what its user may do here; or for the
//! process that it is part of, whose writes to files of this host are buffered.

mod calls;
mod lists;
mod opened;
mod places;
mod reach;
mod session;
mod storage;

use super::line::{Line, both_ways, sealed_both_ways};
use super::token::Token;
use crate::launch::answer_distant;
use crate::setup::descriptors_max;
use crate::stop::StopFlag;
use crate::thread::spawn;
use crate::transport::pipe;
use crate::transport::tcp::{Guest, Service};
use lads_core::remote::descriptors::Descriptors;
use lads_core::remote::policy::{HERE_BUFFERS_BYTES, SILENCE_MAX};
use lists::Lists;
use reach::Reach;
use session::{Limits, Shared};
use std::ffi::OsStr;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// What a server is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens; port 0 is any port.
    pub listen: SocketAddr,
    /// The directory that clients see.
    pub root: PathBuf,
    /// What clients must have, too.
    pub token: Token,
    /// The most clients at a time.
    pub sessions_max: u32,
    /// Memory for what is to be written, in bytes, for all clients together.
    pub buffers_bytes: u64,
    /// Where layouts are taken from: auto, or as in `lads cp --source layout=SPEC`.
    pub layout: String,
}

/// What a server is told that a client has started through a remote shell.
#[derive(Clone, Debug)]
pub struct OwnServerConfig {
    /// The directory that the client sees; everything that its user may open if there is none.
    /// Then paths that do not begin with a slash are below the working directory.
    pub root: Option<PathBuf>,
    /// A file or directory whose file system decides about layouts, if there is no root.
    pub near: PathBuf,
    /// Memory for what is to be written, in bytes.
    pub buffers_bytes: u64,
    /// Where layouts are taken from: auto, or as in `lads cp --source layout=SPEC`.
    pub layout: String,
}

/// A server that listens.
pub struct FileServer {
    service: Service,
    shared: Arc<Shared>,
    /// A client that holds up others is cut off when it has been silent for this time.
    pub(super) silence_max: Duration,
    /// What is not as the user wants it.
    notices: Vec<String>,
}

impl FileServer {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the directory cannot be opened, its layouts are not known, there is too little memory, or
    /// nobody can listen at the address. The text says which.
    pub fn open(config: &ServerConfig) -> Result<Self, String> {
        let ServerConfig { root, sessions_max, buffers_bytes, layout, .. } = config;
        let reach = Reach::below(root)?;
        let layouts = crate::layout::open(layout, root)?;
        let limit = descriptors_max();
        let shares = Descriptors::of(limit, *sessions_max);
        let notice = (shares.clients < *sessions_max).then(|| {
            let clients = shares.clients;
            format!(
                "at most {clients} clients can connect, not {sessions_max}: ulimit -n is {limit}"
            )
        });
        let clients = Limits { clients: shares.clients, away: shares.clients, files: shares.files };
        let (own, of_clients) = (config.token.of_server(), config.token.of_clients().public());
        let service = Service::open(config.listen, &own, of_clients, shares.visitors)
            .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
        let mut no_lists = None;
        let lists = |frames_each| {
            // At any port, nobody finds a server that was started again.
            let is_found = config.listen.port() != 0;
            let opened = is_found.then(|| Lists::open(config.listen, root, frames_each))?;
            opened.inspect_err(|error| no_lists = Some(no_return(error))).ok()
        };
        let shared = Shared::open(reach, layouts, clients, *buffers_bytes, lists)?;
        let notices = notice.into_iter().chain(no_lists).collect();
        Ok(Self { service, shared, silence_max: SILENCE_MAX, notices })
    }

    /// Returns where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Serves clients until the flag is set. `told` hears of those that are rejected.
    ///
    /// # Errors
    /// If there is no room for its threads.
    pub fn run(mut self, stop: &StopFlag, told: &(dyn Fn(&str) + Sync)) -> Result<(), String> {
        self.shared.start(self.silence_max, stop)?;
        self.notices.iter().for_each(|notice| told(notice));
        while !stop.is_set() {
            for Guest { socket, seals, name } in self.service.accept(stop, told) {
                let admitted = sealed_both_ways(&socket, seals)
                    .and_then(|connection| self.shared.admit(Box::new(socket), connection));
                if let Err(error) = admitted {
                    told(&format!("{name} is rejected: {error}"));
                }
            }
        }
        self.shared.storage.end();
        Ok(())
    }
}

fn no_return(error: &io::Error) -> String {
    format!("if this server is started again, files that are open now are lost: {error}")
}

impl OwnServerConfig {
    fn open(&self) -> Result<Arc<Shared>, String> {
        let Self { root, near, buffers_bytes, layout } = self;
        let reach = root.as_ref().map_or(Ok(Reach::Everything), |root| Reach::below(root))?;
        let layouts = crate::layout::open(layout, root.as_ref().unwrap_or(near))?;
        // Only its own client is served: the system limits its files.
        // It has one connection.
        let limits = Limits { clients: 1, away: 0, files: u32::MAX };
        Shared::open(reach, layouts, limits, *buffers_bytes, |_| None)
    }
}

/// Serves this process itself over a socket, until that ends. Files are opened near `path`.
///
/// # Errors
/// If there is no memory for it.
pub(super) fn serve_here(socket: OwnedFd, path: &[u8]) -> Result<(), String> {
    let near = PathBuf::from(OsStr::from_bytes(directory_of(path)));
    let layout = "auto".to_owned();
    let config = OwnServerConfig { root: None, near, buffers_bytes: HERE_BUFFERS_BYTES, layout };
    let shared = config.open()?;
    let connection = both_ways(&socket).map_err(|error| error.to_string())?;
    let (over, is_over) = sync_channel(1);
    let stop = StopFlag::new();
    shared.start(SILENCE_MAX, &stop)?;
    let (ended, storage) = (stop.clone(), Arc::clone(&shared.storage));
    let awaiting = spawn("lads-serve", move || {
        let _ = is_over.recv();
        ended.set("the client has disconnected");
        storage.end();
    });
    awaiting.map_err(|error| {
        stop.set("it could not start");
        shared.storage.end();
        error.to_string()
    })?;
    let line = Box::new(Ending { socket, over });
    shared.admit(line, connection).map_err(|error| error.to_string())
}

/// The socket of a server within the process of its client: who waits for its end is told.
struct Ending {
    socket: OwnedFd,
    over: SyncSender<()>,
}

impl Line for Ending {
    fn end(&self) {
        self.socket.end();
        // It may be said twice.
        let _ = self.over.try_send(());
    }
}

/// Serves the client that has started this process, from which `input` reads and to which `output`
/// writes, until it is gone. What it did not wait for may not be written then.
///
/// # Errors
/// If the files cannot be served, or the client is none of this build.
pub fn serve_own_client(
    input: OwnedFd,
    output: OwnedFd,
    config: &OwnServerConfig,
) -> Result<(), String> {
    let shared = config.open()?;
    let (input, output) =
        answer_distant(input.into(), output.into()).map_err(|fatal| fatal.text)?;
    let (over, is_over) = sync_channel(1);
    let stop = StopFlag::new();
    shared.start(SILENCE_MAX, &stop)?;
    let connection = pipe::open_pipes_both_ways(input, output, 1);
    shared.admit(Box::new(Over(over)), connection).map_err(|error| error.to_string())?;
    // A thread that hangs in a call to storage, or reads a pipe that nobody closes, is not waited
    // for: it ends with the process.
    let _ = is_over.recv();
    stop.set("the client has disconnected");
    Ok(())
}

/// The words with which `lads` becomes a server of the client that starts it, for a file.
pub(super) fn through_words(path: &[u8]) -> Vec<Vec<u8>> {
    let words = [b"rfs".as_slice(), b"serve", b"--stdio", b"--near", directory_of(path)];
    words.map(<[u8]>::to_vec).to_vec()
}

/// The directory of a file.
fn directory_of(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        None => b".",
        Some(0) => b"/",
        Some(end) => &path[..end],
    }
}

/// Two pipes of this process: they end with it.
struct Over(SyncSender<()>);

impl Line for Over {
    fn end(&self) {
        // It may be said twice.
        let _ = self.0.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Client, ClientOptions};
    use super::*;
    use crate::remote::line::Connection;
    use crate::transport::Channel;
    use crate::transport::tcp::{Tcp, end_socket, socket_pair};
    use lads_core::remote::message::OpenMode;
    use lads_core::remote::name::Server;
    use std::fs::File;

    /// Two connections: one for messages, one for frames.
    struct Two(OwnedFd, OwnedFd);

    impl Line for Two {
        fn end(&self) {
            end_socket(&self.0);
            end_socket(&self.1);
        }
    }

    fn end(messages: &OwnedFd, frames: OwnedFd) -> Connection {
        let again = |socket: &OwnedFd| socket.try_clone().unwrap();
        let file = || Box::new(File::from(again(messages)));
        let channel = Channel { input: file(), output: file() };
        let line = Box::new(Two(again(messages), again(&frames)));
        let limit = ClientOptions::default().timeout;
        Connection { line, transport: Arc::new(Tcp::new(vec![frames], limit)), channel }
    }

    /// Whatever is a [`Transport`] carries remote files: here that of a transfer without
    /// `--tunnel`, whose frames and messages do not wait for each other.
    #[test]
    fn another_transport_carries_remote_files() {
        let place = tempfile::tempdir().unwrap();
        let layouts = crate::layout::open("synthetic:osts=3,stripe_size=64K", place.path());
        let reach = Reach::below(place.path()).unwrap();
        let limits = Limits { clients: 1, away: 0, files: 9 };
        let shared = Shared::open(reach, layouts.unwrap(), limits, 4 << 20, |_| None).unwrap();
        shared.storage.start_threads().unwrap();
        let (messages, frames) = (socket_pair().unwrap(), socket_pair().unwrap());
        let Connection { line, transport, channel } = end(&messages.0, frames.0);
        shared.admit(line, (transport, channel)).unwrap();
        let connection = end(&messages.1, frames.1);
        let it = Server::At("it".to_owned());
        let client = Client::over(connection, it, &ClientOptions::default()).unwrap();
        let mode = OpenMode { reads: true, writes: true, creates: true, is_new: true };
        let file = client.open(b"new", mode, [1; 16], false).unwrap();
        let bytes: Vec<u8> = (0..9_000_000u32).map(|index| (index % 251) as u8).collect();
        for _ in 0..3 {
            file.write(7, &[&bytes]).unwrap();
            let mut back = vec![0; bytes.len()];
            assert_eq!(file.read(7, &mut [&mut back]).unwrap(), bytes.len() as u64);
            assert!(back == bytes);
        }
        file.close(false).unwrap();
        assert!(std::fs::read(place.path().join("new")).unwrap()[7..] == bytes);
        shared.storage.end();
    }

    /// A program that was killed says nothing, and others need what it had.
    #[test]
    fn a_client_that_is_away_gives_its_files_to_others() {
        let place = tempfile::tempdir().unwrap();
        let layouts = crate::layout::open("synthetic:osts=1", place.path());
        let reach = Reach::below(place.path()).unwrap();
        // One file that is created.
        let limits = Limits { clients: 2, away: 2, files: 2 };
        let shared = Shared::open(reach, layouts.unwrap(), limits, 4 << 20, |_| None).unwrap();
        shared.storage.start_threads().unwrap();
        let client = || {
            let (own, served) = socket_pair().unwrap();
            let connection = both_ways(&served).unwrap();
            shared.admit(Box::new(served), connection).unwrap();
            let (transport, channel) = both_ways(&own).unwrap();
            let connection = Connection { line: Box::new(own), transport, channel };
            let it = Server::At("it".to_owned());
            Client::over(connection, it, &ClientOptions::default()).unwrap()
        };
        let mode = OpenMode { reads: true, writes: true, creates: true, is_new: true };
        let (killed, other) = (client(), client());
        let _file = killed.open(b"one", mode, [1; 16], false).unwrap();
        other.open(b"two", mode, [1; 16], false).unwrap_err();
        killed.break_line();
        // The server may not have noticed.
        let mut opened = (0..1_000_000).map(|_| other.open(b"two", mode, [1; 16], false));
        opened.find_map(Result::ok).unwrap().close(false).unwrap();
        shared.storage.end();
    }

    #[test]
    fn a_server_is_started_near_the_first_file() {
        for (path, near) in [("a", "."), ("a/b", "a"), ("/a", "/"), ("/a/b/c", "/a/b")] {
            let words = through_words(path.as_bytes());
            assert_eq!(words.last().unwrap(), near.as_bytes());
        }
    }
}
