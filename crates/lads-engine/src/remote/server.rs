//! A server of remote files: below one directory, for clients that have its token.

mod calls;
mod groups;
mod locks;
mod session;
mod storage;

use super::token::Token;
use crate::paths::{Directory, open_named};
use crate::stop::StopFlag;
use crate::transport::pipe;
use crate::transport::tcp::Service;
use groups::Groups;
use lads_core::remote::message::{CLIENT_READS_MAX, FRAME_BYTES};
use locks::FileLocks;
use session::{Place, Session, Shared};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;
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
    shared: Arc<Shared>,
    sessions: Arc<AtomicU32>,
    sessions_max: u32,
    buffers_each: u32,
    silence_max: Duration,
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
        let (groups, locks) = (Groups::default(), FileLocks::default());
        let shared = Arc::new(Shared { storage, groups, locks, host });
        let (sessions, sessions_max) = (Arc::default(), *sessions_max);
        let silence_max = locks::SILENCE_MAX;
        Ok(Self { service, shared, sessions, sessions_max, buffers_each, silence_max })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.service.address()
    }

    /// A client that holds up others is cut off when it has been silent for this time.
    #[cfg(test)]
    pub(super) fn set_silence_max(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
    }

    /// Serves clients until the flag is set. `told` hears of each that comes and goes.
    pub fn run(mut self, stop: &StopFlag, told: &(dyn Fn(&str) + Sync)) {
        self.shared.storage.start_threads();
        let (shared, stopped, silence_max) =
            (Arc::clone(&self.shared), stop.clone(), self.silence_max);
        crate::thread::spawn("lads-watch", move || shared.locks.watch(silence_max, &stopped));
        while !stop.is_set() {
            for (socket, name) in self.service.accept(stop) {
                if let Err(error) = self.admit(socket) {
                    told(&format!("{name} is turned away: {error}"));
                }
            }
        }
        self.shared.storage.end();
    }

    fn admit(&self, socket: OwnedFd) -> io::Result<()> {
        let place = Place::take(&self.sessions, self.sessions_max)
            .ok_or_else(|| io::Error::other("there are as many clients as may be"))?;
        let (input, output) = (File::from(socket.try_clone()?), File::from(socket.try_clone()?));
        let connection = pipe::open_both_ways(input, output, 1);
        let (shared, share) = (Arc::clone(&self.shared), (place, self.buffers_each));
        crate::thread::spawn("lads-client", move || {
            Session::serve(shared, socket, connection, share);
        });
        Ok(())
    }
}
