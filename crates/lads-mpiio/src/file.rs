//! Open files, and the connections to servers that they share.

use crate::error::{Class, Error};
use crate::hints::{Consistency, Hints};
use lads_core::remote::message::{LockKind, OpenMode};
use lads_core::remote::name::{self, Name, Server};
use lads_engine::remote::{
    Client, FileHandle, Prefetch, Presence, ReadBytes, RemoteError, StagedBytes, Token, read_token,
};
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// How a file is opened, in the numbers of `rfs.h`.
mod flag {
    pub(super) const READ: i32 = 1;
    pub(super) const WRITE: i32 = 2;
    pub(super) const CREATE: i32 = 4;
    pub(super) const EXCLUSIVE: i32 = 8;
}

/// The processes that open a file together, seen by one of them: `rfs_group` of `rfs.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Group {
    id: [u8; 16],
    rank: u32,
    size: u32,
    world_rank: u32,
}

/// An open file of a program.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    client: Arc<Client>,
    /// Its name, which does not depend on the working directory.
    name: CString,
    handle: FileHandle,
    mode: OpenMode,
    sharing: Sharing,
    state: Mutex<State>,
}

/// Where that lives which the processes of a group share about a file: its pointer, its lock.
#[derive(Debug)]
enum Sharing {
    /// At the server of this process.
    Here,
    /// At another server, where the file is opened when it is needed first.
    At(Box<Elsewhere>),
    /// Each process has a server of its own, which the others do not reach: the caller shares.
    Apart,
}

#[derive(Debug)]
struct Elsewhere {
    server: Server,
    path: Vec<u8>,
    mode: OpenMode,
    group: [u8; 16],
    handle: OnceLock<FileHandle>,
    opening: Mutex<()>,
}

#[derive(Debug)]
struct State {
    hints: Hints,
    is_atomic: bool,
}

/// The connections of the process.
#[derive(Default)]
struct Clients {
    /// One to each server, for all files.
    of: HashMap<Server, Arc<Client>>,
    /// The first error of a lost connection that another one has replaced.
    lost: Option<RemoteError>,
}

static CLIENTS: Mutex<Option<Clients>> = Mutex::new(None);

impl RemoteFile {
    pub(crate) fn open(name: &[u8], flags: i32, group: Group, hints: Hints) -> Result<Self, Error> {
        let name = absolute(name)?;
        let Name { servers, path } = parsed(&name)?;
        let has = |flag| flags & flag != 0;
        let mode = OpenMode {
            reads: has(flag::READ),
            writes: has(flag::WRITE),
            creates: has(flag::CREATE),
            is_new: has(flag::EXCLUSIVE),
        };
        let index = group.world_rank as usize % servers.len();
        let client = client(&servers[index], &path, &hints)?;
        if servers.len() > 1 {
            client.share_with_other_servers();
        }
        // Others of the group may make the file before a new one that is opened later.
        let defers = hints.defers_open && !(mode.is_new && group.size > 1);
        let handle = client.open(&path, mode, group.id, defers)?;
        let state = State { hints, is_atomic: false };
        handle.set_prefetch(state.prefetch(mode));
        // Rank 0 has made the file.
        let mode = OpenMode { creates: false, is_new: false, ..mode };
        let sharing = match servers.into_iter().next() {
            Some(Server::StartedOn(_) | Server::Here) if group.size > 1 => Sharing::Apart,
            Some(server @ Server::At(_)) if index > 0 => {
                Sharing::At(Box::new(Elsewhere::new(server, path, mode, group.id)))
            }
            _ => Sharing::Here,
        };
        let name = CString::new(name).expect("a name of C has no zero inside");
        Ok(Self { client, name, handle, mode, sharing, state: Mutex::new(state) })
    }

    pub(crate) fn close(self) -> Result<(), Error> {
        let defers = self.state().hints.defers_close;
        if let Sharing::At(elsewhere) = self.sharing
            && let Some(handle) = elsewhere.handle.into_inner()
        {
            // Nothing was written there: only that it is gone is told.
            let _ = handle.close(true);
        }
        Ok(self.handle.close(defers)?)
    }

    /// Does something with what the group shares.
    pub(crate) fn share<T>(
        &self,
        act: impl FnOnce(&FileHandle) -> Result<T, RemoteError>,
    ) -> Result<T, Error> {
        match &self.sharing {
            Sharing::Here | Sharing::Apart => Ok(act(&self.handle)?),
            Sharing::At(elsewhere) => Ok(act(elsewhere.opened(|| self.state().hints.clone())?)?),
        }
    }

    /// Reports whether a server keeps what the group shares.
    pub(crate) fn shares(&self) -> bool {
        !matches!(self.sharing, Sharing::Apart)
    }

    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    pub(crate) fn handle(&self) -> &FileHandle {
        &self.handle
    }

    pub(crate) fn write(&self, position: u64, pieces: &[&[u8]]) -> Result<(), Error> {
        let (is_atomic, buffers) = {
            let state = self.state();
            (state.is_atomic, state.hints.buffers)
        };
        if is_atomic {
            return self.write_atomically(position, pieces);
        }
        if buffers {
            return Ok(self.handle.write(position, pieces)?);
        }
        let written = self.handle.write_awaited(position, pieces);
        self.handle.flush()?;
        Ok(written?)
    }

    fn write_atomically(&self, position: u64, pieces: &[&[u8]]) -> Result<(), Error> {
        let _present = self.lock(LockKind::Exclusive)?;
        let written = self.handle.write_awaited(position, pieces);
        let flushed = if let Sharing::At(_) = self.sharing {
            // The server with the lock does not know when another one has written all.
            let flushed = self.handle.flush();
            self.unlock()?;
            flushed
        } else {
            // Others need not wait until this process has heard of it.
            self.unlock()?;
            self.handle.flush()
        };
        flushed?;
        Ok(written?)
    }

    pub(crate) fn read(&self, position: u64, pieces: &mut [&mut [u8]]) -> Result<u64, Error> {
        if !self.state().is_atomic {
            return Ok(self.handle.read(position, pieces)?);
        }
        let _present = self.lock(LockKind::Shared)?;
        let read = self.handle.read(position, pieces);
        self.unlock()?;
        Ok(read?)
    }

    /// Waits for the lock. A server that has nothing but the lock hears meanwhile that this process
    /// lives.
    fn lock(&self, kind: LockKind) -> Result<Option<Presence>, Error> {
        let is_elsewhere = matches!(self.sharing, Sharing::At(_));
        self.share(|it| {
            it.lock(kind)?;
            Ok(is_elsewhere.then(|| it.presence()))
        })
    }

    fn unlock(&self) -> Result<(), Error> {
        self.share(|it| {
            it.unlock();
            Ok(())
        })
    }

    pub(crate) fn set_atomic(&self, is_atomic: bool) -> Result<(), Error> {
        self.handle.flush()?;
        let mut state = self.state();
        state.is_atomic = is_atomic;
        self.handle.set_prefetch(state.prefetch(self.mode));
        Ok(())
    }

    pub(crate) fn set_hints<'a>(&self, hints: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut state = self.state();
        let before = state.prefetch(self.mode);
        hints.for_each(|(key, value)| state.hints.set(key, value));
        let prefetch = state.prefetch(self.mode);
        if prefetch != before {
            self.handle.set_prefetch(prefetch);
        }
    }

    pub(crate) fn hint(&self, index: usize) -> Option<(&'static str, String)> {
        let StagedBytes { in_foreground, in_background } = self.client.staged();
        let staged = [
            ("rfs_staged_foreground", in_foreground.to_string()),
            ("rfs_staged_background", in_background.to_string()),
        ];
        let ReadBytes { ahead, kept } = self.client.read_bytes();
        let read = [
            ("rfs_read_ahead", ahead.to_string()),
            ("rfs_read_kept", kept.to_string()),
            ("rfs_conflicts", self.client.conflicts().to_string()),
            ("rfs_reconnections", self.client.reconnections().to_string()),
        ];
        let hints = self.state().hints.all();
        let has_cache = hints.iter().any(|(key, _)| *key == "rfs_cache_dir");
        hints.into_iter().chain(read).chain(staged.into_iter().filter(|_| has_cache)).nth(index)
    }

    /// Reports whether data that is written must be visible to another process after a fence, and
    /// may not be visible before.
    pub(crate) fn needs_fence(&self) -> bool {
        let state = self.state();
        let is_local = state.hints.consistency == Consistency::Local;
        is_local && state.hints.buffers && !state.is_atomic
    }

    fn state(&self) -> MutexGuard<'_, State> {
        take_lock(&self.state)
    }
}

impl State {
    /// Returns which data may be kept that was read. None may be kept if others see each write at
    /// once or after a message, and expect the same of this process.
    fn prefetch(&self, mode: OpenMode) -> Prefetch {
        let Hints { prefetch, keeps_reads, buffers, consistency, .. } = self.hints;
        let is_visible = !buffers || consistency == Consistency::Local;
        let is_shared = self.is_atomic || (mode.writes && is_visible);
        if mode.reads && keeps_reads && !is_shared { prefetch } else { Prefetch::Off }
    }
}

impl Elsewhere {
    fn new(server: Server, path: Vec<u8>, mode: OpenMode, group: [u8; 16]) -> Self {
        let (handle, opening) = (OnceLock::new(), Mutex::new(()));
        Self { server, path, mode, group, handle, opening }
    }

    /// The file there; opened if it is not.
    fn opened(&self, hints: impl FnOnce() -> Hints) -> Result<&FileHandle, Error> {
        let _one_at_a_time = take_lock(&self.opening);
        if let Some(handle) = self.handle.get() {
            return Ok(handle);
        }
        let client = client(&self.server, &self.path, &hints())?;
        let handle = client.open(&self.path, self.mode, self.group, true)?;
        Ok(self.handle.get_or_init(|| handle))
    }
}

fn take_lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a file.
pub(crate) fn delete(name: &[u8]) -> Result<(), Error> {
    let Name { servers, path } = parsed(&absolute(name)?)?;
    // All of them show the same files.
    Ok(client(&servers[0], &path, &Hints::default())?.delete(&path)?)
}

/// How many bytes went to the local disk, on the way to all servers.
pub(crate) fn staged() -> StagedBytes {
    let clients = clients();
    let each = clients.iter().flat_map(|it| it.of.values()).map(|client| client.staged());
    each.fold(StagedBytes::default(), |all, one| StagedBytes {
        in_foreground: all.in_foreground + one.in_foreground,
        in_background: all.in_background + one.in_background,
    })
}

/// Waits until everything that this process has written is visible to all others.
pub(crate) fn fence() {
    let clients: Vec<_> = clients().iter().flat_map(|it| it.of.values()).map(Arc::clone).collect();
    clients.iter().for_each(|client| client.fence());
}

/// Waits for everything that was deferred.
pub(crate) fn finish() -> Result<(), Error> {
    let (lost, clients): (_, Vec<_>) = {
        let mut clients = clients();
        let clients = clients.get_or_insert_default();
        (clients.lost.take(), clients.of.values().map(Arc::clone).collect())
    };
    // All are waited for, whatever becomes of the first.
    let failed: Vec<_> = clients.iter().filter_map(|client| client.finish().err()).collect();
    lost.into_iter().chain(failed).next().map_or(Ok(()), |error| Err(error.into()))
}

/// Returns the name of the same file that does not depend on the working directory: the program may
/// change it before a deferred open, and before the file is deleted.
fn absolute(name: &[u8]) -> Result<Vec<u8>, Error> {
    let Some(path) = name::on_this_host(name) else { return Ok(name.to_vec()) };
    let path = std::path::absolute(OsStr::from_bytes(path)).map_err(|error| {
        let name = String::from_utf8_lossy(name);
        Error::new(
            Class::BadFile,
            format!("cannot determine the working directory, to which {name} is relative: {error}"),
        )
    })?;
    Ok([name::THIS_HOST, path.as_os_str().as_bytes()].concat())
}

fn parsed(name: &[u8]) -> Result<Name, Error> {
    name::parse(name).map_err(|text| Error::new(Class::BadFile, text))
}

/// The connection to a server; a new one if there is none, or it is lost. It is for a file first.
fn client(server: &Server, path: &[u8], hints: &Hints) -> Result<Arc<Client>, Error> {
    let mut clients = clients();
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.of.get(server).filter(|client| !client.is_lost()) {
        return Ok(Arc::clone(client));
    }
    let client = Arc::new(match server {
        Server::At(at) => Client::connect(at, &token(hints)?, &hints.options())?,
        Server::StartedOn(host) => {
            let shell = hints.shell().map_err(|text| Error::new(Class::Argument, text))?;
            Client::start(&shell, host, path, &hints.options())?
        }
        Server::Here => Client::here(path, &hints.options())?,
    });
    let replaced = clients.of.insert(server.clone(), Arc::clone(&client));
    // Data that it has lost is an error at the end, even if no call has returned it.
    let lost = replaced.and_then(|replaced| replaced.finish().err());
    clients.lost = clients.lost.take().or(lost);
    Ok(client)
}

fn token(hints: &Hints) -> Result<Token, Error> {
    let path = hints.token_file.as_ref().ok_or_else(|| {
        let text = "no token: set LADS_RFS_TOKEN_FILE, or the hint rfs_token_file, to the file \
                    that the server was started with";
        Error::new(Class::Access, text)
    })?;
    read_token(path).map_err(|error| {
        Error::new(Class::Access, format!("cannot use the token in {}: {error}", path.display()))
    })
}

fn clients() -> MutexGuard<'static, Option<Clients>> {
    take_lock(&CLIENTS)
}

#[cfg(test)]
mod tests;
