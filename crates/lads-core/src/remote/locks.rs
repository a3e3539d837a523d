//! Who may access a file as if it happened at one moment: MPI's atomic mode (MPI 4.0, section
//! 14.6.1).
//!
//! An access of several frames is one access to others only if it has the lock of its file. Reads
//! share it, a write has it alone. Locks are given in the order in which they were asked for, so
//! that readers that come and go do not keep a writer waiting. Only those who ask for a lock are
//! held up: a client that is not in atomic mode does as it likes.

use super::message::{FileNumber, LockKind};
use crate::limits::CLIENT_LOCKS_MAX;
use std::collections::{BTreeSet, HashMap, VecDeque};
use thiserror::Error;

/// A file, whatever its name and whoever has it open: as the server's file system numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The file system.
    pub device: u64,
    /// The file in it.
    pub inode: u64,
}

/// A client, as the server numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientNumber(pub u64);

/// A file that a client has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The client.
    pub client: ClientNumber,
    /// What it calls the file.
    pub file: FileNumber,
}

/// A lock that was waited for and is given now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub client: ClientNumber,
    /// The number of its request.
    pub request: u64,
}

/// What comes of a file that is not open any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// The locks that others are given.
    pub grants: Vec<Grant>,
    /// The requests of its client that waited for a lock, and are given none.
    pub given_up: Vec<u64>,
}

/// A client has as many locks, and waits for as many, as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("more than {CLIENT_LOCKS_MAX} locks of one client")]
pub struct TooMany;

/// The locks of all files of a server.
#[derive(Debug, Default)]
pub struct Locks {
    files: HashMap<FileId, FileLock>,
    /// How many locks each client has or waits for.
    counts: HashMap<ClientNumber, usize>,
}

/// The lock of one file. All who have it share it, or there is only one.
#[derive(Debug, Default)]
struct FileLock {
    owners: Vec<Owner>,
    is_shared: bool,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    owner: Owner,
    request: u64,
    kind: LockKind,
}

impl Locks {
    /// Asks for the lock of a file. Returns whether it is given at once; otherwise it is waited
    /// for.
    ///
    /// # Errors
    /// If the client has too many.
    pub fn lock(
        &mut self,
        id: FileId,
        owner: Owner,
        request: u64,
        kind: LockKind,
    ) -> Result<bool, TooMany> {
        let count = self.counts.entry(owner.client).or_default();
        if *count >= CLIENT_LOCKS_MAX {
            return Err(TooMany);
        }
        *count += 1;
        let lock = self.files.entry(id).or_default();
        lock.waiting.push_back(Waiting { owner, request, kind });
        // Nobody else can be given it: who waits before waits for those who have it.
        Ok(!lock.grant().is_empty())
    }

    /// Reports whether an owner has the lock of a file.
    #[must_use]
    pub fn has(&self, id: FileId, owner: Owner) -> bool {
        self.files.get(&id).is_some_and(|lock| lock.owners.contains(&owner))
    }

    /// Gives the lock of a file back. Returns who has it now; `None` if the owner does not have it.
    pub fn unlock(&mut self, id: FileId, owner: Owner) -> Option<Vec<Grant>> {
        let lock = self.files.get_mut(&id)?;
        let place = lock.owners.iter().position(|it| *it == owner)?;
        lock.owners.swap_remove(place);
        let grants = lock.grant();
        self.forget(id, owner.client, 1);
        Some(grants)
    }

    /// An owner has closed the file, or is gone: it has no lock of it, and waits for none.
    pub fn release(&mut self, id: FileId, owner: Owner) -> Released {
        let Some(lock) = self.files.get_mut(&id) else { return Released::default() };
        let before = lock.owners.len();
        lock.owners.retain(|it| *it != owner);
        let had = before - lock.owners.len();
        let is_its = |it: &Waiting| it.owner == owner;
        let given_up: Vec<u64> =
            lock.waiting.iter().filter(|it| is_its(it)).map(|it| it.request).collect();
        lock.waiting.retain(|it| !is_its(it));
        let grants = lock.grant();
        self.forget(id, owner.client, had + given_up.len());
        Released { grants, given_up }
    }

    /// The clients with a lock that another client waits for.
    #[must_use]
    pub fn holding_up(&self) -> BTreeSet<ClientNumber> {
        let locks = self.files.values();
        let blocking = locks.flat_map(|lock| {
            let is_waited_for =
                |owner: &&Owner| lock.waiting.iter().any(|it| it.owner.client != owner.client);
            lock.owners.iter().filter(is_waited_for).map(|owner| owner.client)
        });
        blocking.collect()
    }

    /// Lowers the number of locks of a client by `count`; nothing is kept of a file without locks.
    fn forget(&mut self, id: FileId, client: ClientNumber, count: usize) {
        if self.files.get(&id).is_some_and(FileLock::is_free) {
            self.files.remove(&id);
        }
        let left = self.counts.get_mut(&client).map(|it| {
            *it -= count;
            *it
        });
        if left == Some(0) {
            self.counts.remove(&client);
        }
    }
}

impl FileLock {
    fn is_free(&self) -> bool {
        self.owners.is_empty() && self.waiting.is_empty()
    }

    /// Gives the lock to those whose turn it is.
    fn grant(&mut self) -> Vec<Grant> {
        let mut grants = Vec::new();
        while let Some(next) = self.waiting.front() {
            let is_shared = next.kind == LockKind::Shared;
            let is_free = self.owners.is_empty() || is_shared && self.is_shared;
            if !is_free {
                break;
            }
            self.owners.push(next.owner);
            self.is_shared = is_shared;
            grants.push(Grant { client: next.owner.client, request: next.request });
            self.waiting.pop_front();
        }
        grants
    }
}

#[cfg(test)]
mod tests;
