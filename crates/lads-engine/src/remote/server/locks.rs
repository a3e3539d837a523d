//! The locks of files between clients ([`lads_core::remote::locks`]), and what becomes of a client
//! that holds up others and is silent.

use super::session::Session;
use crate::clock::Clock;
use crate::stop::StopFlag;
use lads_core::absence::Presence;
use lads_core::remote::locks::{ClientNumber, FileId, Grant, Locks, Owner, Released, TooMany};
use lads_core::remote::message::{FileNumber, LockKind};
use lads_core::remote::policy::LOOK_INTERVAL;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The locks of all clients of a server.
#[derive(Default)]
pub(super) struct FileLocks(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    locks: Locks,
    clients: u64,
    /// Those that have asked for a lock.
    sessions: HashMap<ClientNumber, Weak<Session>>,
}

impl FileLocks {
    /// A number for a client that comes.
    pub(super) fn number(&self) -> ClientNumber {
        let mut inner = self.lock_inner();
        inner.clients += 1;
        ClientNumber(inner.clients)
    }

    /// Asks for the lock of a file. Returns whether it is given at once; otherwise the session is
    /// told when it is.
    ///
    /// # Errors
    /// If the client has too many.
    pub(super) fn lock(
        &self,
        session: &Arc<Session>,
        (id, file): (FileId, FileNumber),
        request: u64,
        kind: LockKind,
    ) -> Result<bool, TooMany> {
        let client = session.number;
        let mut inner = self.lock_inner();
        inner.sessions.entry(client).or_insert_with(|| Arc::downgrade(session));
        inner.locks.lock(id, Owner { client, file }, request, kind)
    }

    /// Gives the lock back; `None` if the client does not have it.
    pub(super) fn unlock(&self, id: FileId, owner: Owner) -> Option<()> {
        let mut inner = self.lock_inner();
        let grants = inner.locks.unlock(id, owner)?;
        Self::tell(inner, grants);
        Some(())
    }

    /// A file is closed: its locks go to others. Returns the requests that are not waited for any
    /// more.
    pub(super) fn release(&self, id: FileId, owner: Owner) -> Vec<u64> {
        let mut inner = self.lock_inner();
        let Released { grants, given_up } = inner.locks.release(id, owner);
        Self::tell(inner, grants);
        given_up
    }

    /// A client is gone, and all its files are closed.
    pub(super) fn forget(&self, client: ClientNumber) {
        self.lock_inner().sessions.remove(&client);
    }

    /// Cuts off clients that hold up others and are silent, until the flag is set.
    pub(super) fn watch(&self, silence_max: Duration, stop: &StopFlag) {
        let clock = Clock::start();
        let interval = LOOK_INTERVAL.min(silence_max);
        let mut presence = Presence::begin(clock.now(), interval);
        while !stop.is_set() {
            std::thread::sleep(interval);
            let away = presence.look(clock.now());
            let inner = self.lock_inner();
            let clients = inner.locks.holding_up().into_iter();
            let sessions = clients.filter_map(|it| inner.sessions.get(&it)?.upgrade());
            let sessions: Vec<_> = sessions.collect();
            drop(inner);
            sessions.iter().for_each(|session| session.end_if_silent(silence_max, away));
        }
    }

    /// Tells those who are given a lock. One that is gone gives it on when its files are closed.
    fn tell(inner: MutexGuard<'_, Inner>, grants: Vec<Grant>) {
        let of =
            |grant: Grant| Some((inner.sessions.get(&grant.client)?.upgrade()?, grant.request));
        let told: Vec<_> = grants.into_iter().filter_map(of).collect();
        // A session asks for locks while it has its own.
        drop(inner);
        told.iter().for_each(|(session, request)| session.on_locked(*request));
    }

    fn lock_inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
