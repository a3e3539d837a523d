//! Open files, and the connections to servers that they share.

use crate::error::{Class, Error};
use crate::hints::Hints;
use lads_core::remote::message::{LockKind, OpenMode};
use lads_core::remote::name::{self, Name};
use lads_engine::remote::{Client, FileHandle, RemoteError, StagedBytes, read_token};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a file is opened, in the numbers of `rfs.h`.
mod flag {
    pub(super) const READ: i32 = 1;
    pub(super) const WRITE: i32 = 2;
    pub(super) const CREATE: i32 = 4;
    pub(super) const EXCLUSIVE: i32 = 8;
}

/// An open file of a program.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    client: Arc<Client>,
    handle: FileHandle,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    hints: Hints,
    is_atomic: bool,
}

/// One connection to each server, for all files of the process.
static CLIENTS: Mutex<Option<HashMap<String, Arc<Client>>>> = Mutex::new(None);

impl RemoteFile {
    pub(crate) fn open(
        name: &[u8],
        flags: i32,
        group: [u8; 16],
        hints: Hints,
    ) -> Result<Self, Error> {
        let name = parsed(name)?;
        let has = |flag| flags & flag != 0;
        let mode = OpenMode {
            reads: has(flag::READ),
            writes: has(flag::WRITE),
            creates: has(flag::CREATE),
            is_new: has(flag::EXCLUSIVE),
        };
        let client = client(&name.at, &hints)?;
        let handle = client.open(&name.path, mode, group, hints.defers_open)?;
        Ok(Self { client, handle, state: Mutex::new(State { hints, is_atomic: false }) })
    }

    pub(crate) fn close(self) -> Result<(), Error> {
        let defers = self.state().hints.defers_close;
        Ok(self.handle.close(defers)?)
    }

    pub(crate) fn handle(&self) -> &FileHandle {
        &self.handle
    }

    pub(crate) fn write(&self, position: u64, pieces: &[&[u8]]) -> Result<(), Error> {
        let (is_atomic, buffers) = {
            let state = self.state();
            (state.is_atomic, state.hints.buffers)
        };
        let written = if is_atomic {
            self.locked(LockKind::Exclusive, || self.handle.write(position, pieces))
        } else {
            self.handle.write(position, pieces)
        };
        if is_atomic || !buffers {
            // Behind the unlock: others need not wait until this process has heard of it.
            self.handle.flush()?;
        }
        Ok(written?)
    }

    pub(crate) fn read(&self, position: u64, pieces: &mut [&mut [u8]]) -> Result<u64, Error> {
        if !self.state().is_atomic {
            return Ok(self.handle.read(position, pieces)?);
        }
        Ok(self.locked(LockKind::Shared, || self.handle.read(position, pieces))?)
    }

    /// Does something while no other process does what must not happen beside it.
    fn locked<T>(
        &self,
        kind: LockKind,
        access: impl FnOnce() -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        self.handle.lock(kind)?;
        let done = access();
        self.handle.unlock();
        done
    }

    pub(crate) fn set_atomic(&self, is_atomic: bool) -> Result<(), Error> {
        self.handle.flush()?;
        self.state().is_atomic = is_atomic;
        Ok(())
    }

    pub(crate) fn set_hints<'a>(&self, hints: impl Iterator<Item = (&'a str, &'a str)>) {
        let mut state = self.state();
        hints.for_each(|(key, value)| state.hints.set(key, value));
    }

    pub(crate) fn hint(&self, index: usize) -> Option<(&'static str, String)> {
        let StagedBytes { in_foreground, in_background } = self.client.staged();
        let staged = [
            ("rfs_staged_foreground", in_foreground.to_string()),
            ("rfs_staged_background", in_background.to_string()),
        ];
        let hints = self.state().hints.all();
        let has_cache = hints.iter().any(|(key, _)| *key == "rfs_cache_dir");
        hints.into_iter().chain(staged.into_iter().filter(|_| has_cache)).nth(index)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes a file.
pub(crate) fn delete(name: &[u8]) -> Result<(), Error> {
    let name = parsed(name)?;
    Ok(client(&name.at, &Hints::default())?.delete(&name.path)?)
}

/// How many bytes went to the local disk, on the way to all servers.
pub(crate) fn staged() -> StagedBytes {
    let clients = clients();
    let each = clients.iter().flat_map(HashMap::values).map(|client| client.staged());
    each.fold(StagedBytes::default(), |all, one| StagedBytes {
        in_foreground: all.in_foreground + one.in_foreground,
        in_background: all.in_background + one.in_background,
    })
}

/// Waits for everything that was deferred.
pub(crate) fn finish() -> Result<(), Error> {
    let clients: Vec<_> = clients().iter().flat_map(HashMap::values).map(Arc::clone).collect();
    let mut outcomes: Vec<_> = clients.iter().map(|client| client.finish()).collect();
    // All are waited for, whatever becomes of the first.
    let failed = outcomes.iter().position(Result::is_err);
    failed.map_or(Ok(()), |index| Ok(outcomes.swap_remove(index)?))
}

fn parsed(name: &[u8]) -> Result<Name, Error> {
    name::parse(name).map_err(|text| Error::new(Class::BadFile, text))
}

/// The connection to a server; a new one if there is none, or it is lost.
fn client(at: &str, hints: &Hints) -> Result<Arc<Client>, Error> {
    let mut clients = clients();
    let clients = clients.get_or_insert_with(HashMap::new);
    if let Some(client) = clients.get(at).filter(|client| !client.is_lost()) {
        return Ok(Arc::clone(client));
    }
    let path = hints.token_file.as_ref().ok_or_else(|| {
        let text = "no token: set LADS_RFS_TOKEN_FILE, or the hint rfs_token_file, to the file \
                    that the server was started with";
        Error::new(Class::Access, text)
    })?;
    let token = read_token(path).map_err(|error| {
        Error::new(Class::Access, format!("cannot use the token in {}: {error}", path.display()))
    })?;
    let client = Arc::new(Client::connect(at, &token, &hints.options())?);
    clients.insert(at.to_owned(), Arc::clone(&client));
    Ok(client)
}

fn clients() -> MutexGuard<'static, Option<HashMap<String, Arc<Client>>>> {
    CLIENTS.lock().unwrap_or_else(PoisonError::into_inner)
}
