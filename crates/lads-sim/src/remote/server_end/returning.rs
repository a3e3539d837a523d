//! A server that is killed and started again: what it keeps of its clients.

use super::{NAME, ServerEnd, Session};
use crate::findings::Checked;
use lads_core::remote::locks::{ClientNumber, FileId};
use lads_core::remote::message::{FileNumber, Ticket};
use lads_core::remote::policy::RETURN_MAX;
use lads_core::remote::server::{Known, Server};

/// What a server that is started again knows of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    known: Known,
    written: Vec<u64>,
    done: Vec<u64>,
    /// It was connected to the server before, and may not have returned.
    is_expected: bool,
}

impl List {
    pub(super) fn add_file(&mut self, file: FileNumber, id: FileId, writes: bool) {
        self.known.entry(file).or_insert((id, writes));
    }

    pub(super) fn add_written(&mut self, frame: u64) {
        self.written.push(frame);
    }

    pub(super) fn add_done(&mut self, request: u64) {
        self.done.push(request);
    }
}

/// What the client shows that belongs to a process.
pub(super) fn ticket_of(process: usize) -> Ticket {
    Ticket((process as u128 + 1).to_le_bytes())
}

impl ServerEnd {
    /// The server is killed, and another one begins with the lists of this one.
    pub(in super::super) fn restart(&mut self) {
        self.restarts += 1;
        let now = self.now();
        // Larger than what all servers before have given.
        let next_fence = self.restarts << 32;
        let lost = self.server.lost();
        for id in &lost {
            self.shared
                .check
                .borrow_mut()
                .on_all_lost(usize::try_from(id.inode).unwrap_or(usize::MAX));
        }
        self.server = Server::new(NAME.to_owned(), self.frames_each, self.away_max, next_fence);
        self.sessions.clear();
        self.jobs.clear();
        let lists = self.lists.iter_mut().map(|(process, list)| {
            list.is_expected = true;
            (ticket_of(*process), list.known.clone())
        });
        self.server.expect(lists.collect(), lost, now + RETURN_MAX);
        self.expects = self.server.is_expecting();
    }

    /// A client connects that was connected to the server before. Returns its number.
    pub(super) fn readmit(&mut self, ticket: Ticket) -> Checked<Option<ClientNumber>> {
        let now = self.now();
        let Some(process) = usize::try_from(u128::from_le_bytes(ticket.0)).ok() else {
            return Ok(None);
        };
        let process = process.saturating_sub(1);
        let Some(list) = self.lists.get(&process) else { return Ok(None) };
        let done = (list.written.clone(), list.done.clone());
        let Some(number) = self.server.readmit(ticket, done, now) else { return Ok(None) };
        let mut session = Session::new(process, false, self.shared.now());
        session.is_returning = true;
        self.sessions.insert(number, session);
        self.shared.stats(|it| it.returns += 1);
        Ok(Some(number))
    }

    /// The number of the client of a process.
    pub(in super::super) fn number_of(&self, process: usize) -> Option<ClientNumber> {
        let is_here = |(number, session): &(&ClientNumber, &Session)| {
            session.process == process && !self.server.is_over(**number)
        };
        self.sessions.iter().find(is_here).map(|(number, _)| *number)
    }

    /// When the time is over in which clients return: what a client wrote that has not come is
    /// lost.
    pub(super) fn after_return(&mut self) {
        if !self.expects || self.server.is_expecting() {
            return;
        }
        self.expects = false;
        let mut gone = Vec::new();
        for process in self.lists.keys().copied().collect::<Vec<_>>() {
            let is_here = self.number_of(process).is_some();
            let Some(list) = self.lists.get_mut(&process) else { continue };
            if std::mem::take(&mut list.is_expected) && !is_here {
                gone.push(process);
            }
        }
        for process in gone {
            self.shared.trace(|| format!("server: client {process} has not returned"));
            self.shared.stats(|it| it.not_returned += 1);
            let list = self.lists.remove(&process).unwrap_or_default();
            let mut check = self.shared.check.borrow_mut();
            check.on_gone(process);
            for (id, _) in list.known.values().filter(|(_, writes)| *writes) {
                check.on_all_lost(usize::try_from(id.inode).unwrap_or(usize::MAX));
            }
        }
        self.look_for_idle();
    }

    /// Whether clients are expected.
    pub(in super::super) fn is_expecting(&self) -> bool {
        self.expects
    }

    /// A client is forgotten.
    pub(super) fn remove_list(&mut self, process: usize) {
        if !self.server.knows(ticket_of(process)) {
            self.lists.remove(&process);
        }
    }
}
