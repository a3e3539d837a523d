//! A server of remote files: below one directory, for clients that have its token.

mod calls;
mod groups;
mod session;
mod storage;

use super::token::Token;
use crate::paths::{Directory, open_named};
use crate::stop::StopFlag;
use crate::transport::pipe;
use crate::transport::tcp::Service;
use groups::Groups;
use lads_core::remote::message::{CLIENT_READS_MAX, FRAME_BYTES};
use session::{Place, Session};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use storage::Storage;

/// What a server is told.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where it listens; port 0 is any port.
    pub listen: SocketAddr,
    /// The directory that clients see.
    pub root: PathBuf,
    /// What clients must show.
    pub token: Token,
    /// The most clients at a time.
    pub sessions_max: u32,
    /// Memory for what is to be written, in bytes, for all clients together.
    pub buffers_bytes: u64,
    /// Where layouts are taken from: auto, or as in `lads cp --layout`.
    pub layout: String,
}

/// A server that listens.
pub struct FileServer {
    service: Service,
    storage: Arc<Storage>,
    groups: Arc<Groups>,
    sessions: Arc<AtomicU32>,
    sessions_max: u32,
    buffers_each: u32,
    host: String,
}

impl FileServer {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the directory cannot be opened, its layouts are not known, there is too little memory, or
    /// nobody can listen at the address. The text says which.
    pub fn open(config: &ServerConfig) -> Result<Self, String> {
        let ServerConfig { root, sessions_max, .. } = config;
        let shown = root.display();
        let no_root = |error| format!("cannot open the directory {shown}: {error}");
        let handle = open_named(root.as_os_str().as_bytes()).map_err(no_root)?;
        let layouts = crate::layout::open(&config.layout, Path::new(root))?;
        let all = u32::try_from(config.buffers_bytes / u64::from(FRAME_BYTES)).unwrap_or(u32::MAX);
        let buffers_each = all / sessions_max.max(&1);
        if buffers_each == 0 || *sessions_max == 0 {
            let needed = (u64::from(*sessions_max) * u64::from(FRAME_BYTES)) >> 20;
            return Err(format!("{sessions_max} sessions need buffers of {needed}M at least"));
        }
        let arena = |count| {
            lads_sys::Arena::new(count, FRAME_BYTES as usize)
                .map_err(|error| format!("cannot reserve memory: {error}"))
        };
        let (writing, reading) =
            (arena(buffers_each * sessions_max)?, arena(CLIENT_READS_MAX * sessions_max)?);
        let service = Service::open(config.listen, config.token.0)
            .map_err(|error| format!("cannot listen on {}: {error}", config.listen))?;
        let root = Directory::root(handle);
        let storage = Arc::new(Storage::new(root, layouts, writing, reading));
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let (groups, sessions) = (Arc::default(), Arc::default());
        let sessions_max = *sessions_max;
        Ok(Self { service, storage, groups, sessions, sessions_max, buffers_each, host })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// Serves clients until the flag is set. `told` hears of each that comes and goes.
    pub fn run(mut self, stop: &StopFlag, told: &(dyn Fn(&str) + Sync)) {
        self.storage.start_threads();
        while !stop.is_set() {
            for (socket, name) in self.service.accept(stop) {
                if let Err(error) = self.admit(socket) {
                    told(&format!("{name} is turned away: {error}"));
                }
            }
        }
        self.storage.end();
    }

    fn admit(&self, socket: OwnedFd) -> io::Result<()> {
        let place = Place::take(&self.sessions, self.sessions_max)
            .ok_or_else(|| io::Error::other("there are as many clients as may be"))?;
        let (input, output) = (File::from(socket.try_clone()?), File::from(socket.try_clone()?));
        let connection = pipe::open_both_ways(input, output, 1);
        let (storage, groups) = (Arc::clone(&self.storage), Arc::clone(&self.groups));
        let (share, host) = ((place, self.buffers_each), self.host.clone());
        crate::thread::spawn("lads-client", move || {
            Session::serve(storage, groups, socket, connection, share, host);
        });
        Ok(())
    }
}
