//! Clients of a server that was started again.
//!
//! The owner keeps lists on a disk: each client's ticket, and the files that it had open. A server
//! that was started again *expects* these clients for a while. One that connects shows its ticket,
//! opens its files, sets its views and takes its locks again, and returns: it tells which of its
//! writes a fence covers. Nothing else is done for anybody until all have returned or the time is
//! over. Then all these writes are announced in the order of their fences, as they were before, and
//! the server goes on. What a client wrote that does not come is lost.

use super::client::{Client, Opened};
use super::{Breach, ClientNumber, FileId, FileNumber, Outcome, Owner, Server, Ticket};
use crate::limits::CLIENT_ANNOUNCED_MAX;
use crate::remote::message::{Fenced, ToClient, VERSION};
use crate::remote::order;
use crate::units::Instant;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// The files that a client had open, and whether it could write to them.
pub type Known = HashMap<FileNumber, (FileId, bool)>;

/// The time in which clients return.
#[derive(Debug)]
pub(super) struct Returning {
    /// Clients that have not come.
    expected: HashMap<Ticket, Known>,
    /// Files with lost writes.
    lost: Vec<FileId>,
    until: Instant,
}

/// How far a client is that was connected before the server was started again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Return {
    /// It is a new client, or has returned.
    #[default]
    Done,
    /// It opens its files again.
    Begun,
    /// It waits for the others. What a fence covers of what it wrote.
    Waits(Vec<Fenced>),
}

/// Why a client is disconnected that was too slow.
const LATE: &str = "the server was started again, and this client did not return in time";

impl Server {
    /// The server was started again: it expects these clients until then. Writes to these files
    /// were lost before ([`Self::lost`]).
    pub fn expect(&mut self, expected: HashMap<Ticket, Known>, lost: Vec<FileId>, until: Instant) {
        if !expected.is_empty() {
            self.returning = Some(Returning { expected, lost, until });
        }
    }

    /// The files with writes that are lost, as long as a client has them open, in their order.
    #[must_use]
    pub fn lost(&self) -> Vec<FileId> {
        let before = self.returning.iter().flat_map(|it| it.lost.iter().copied());
        let all: BTreeSet<_> = self.writes.lost().chain(before).collect();
        all.into_iter().collect()
    }

    /// A client has connected that shows this ticket. Returns its number, if it is expected. It is
    /// told which of its frames and requests were done.
    pub fn readmit(
        &mut self,
        ticket: Ticket,
        (written, done): (Vec<u64>, Vec<u64>),
        now: Instant,
    ) -> Option<ClientNumber> {
        let known = self.returning.as_mut()?.expected.remove(&ticket)?;
        let number = self.connect(ticket, now);
        let client = self.clients.get_mut(&number)?;
        client.begin_return(&self.name, known, ToClient::Restarted { written, done });
        Some(number)
    }

    /// Reports whether a client with this ticket is here or expected.
    #[must_use]
    pub fn knows(&self, ticket: Ticket) -> bool {
        let is_expected = |it: &Returning| it.expected.contains_key(&ticket);
        self.returning.as_ref().is_some_and(is_expected) || self.find(ticket).is_some()
    }

    /// Reports whether clients are expected, or one that has come has not returned.
    #[must_use]
    pub fn is_expecting(&self) -> bool {
        self.returning.is_some()
    }

    /// Reports whether something of a client is done now.
    pub(super) fn goes_on(&self, number: ClientNumber) -> bool {
        let begun = |it: &Client| it.returns == Return::Begun;
        self.returning.is_none() || self.clients.get(&number).is_some_and(begun)
    }

    /// A client has its files again.
    pub(super) fn on_return(
        &mut self,
        number: ClientNumber,
        frames: u64,
        writes: Vec<Fenced>,
    ) -> Result<(), Breach> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        if client.returns != Return::Begun {
            return Err(order::Breach::Request.into());
        }
        if writes.len() > CLIENT_ANNOUNCED_MAX {
            return Err(order::Breach::Number.into());
        }
        client.order.begin_again(frames)?;
        client.returns = Return::Waits(writes);
        self.end_return_if_all_are_here();
        Ok(())
    }

    /// A client is gone before all goes on. It may come again unless it left: its
    /// connection broke, or it was given up because others are away as well.
    pub(super) fn on_gone_in_return(&mut self, number: ClientNumber) {
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Some(returning) = &mut self.returning else { return };
        if std::mem::take(&mut client.returns) != Return::Done
            && !client.is_leaving
            && let Some(ticket) = client.ticket.take()
        {
            // A file that is being opened for it was known before.
            returning.expected.insert(ticket, client.known.clone());
        }
        self.end_return_if_all_are_here();
    }

    /// The time is over if all that were expected are here. `away`: for how long this process was
    /// stopped.
    pub(super) fn look_at_return(&mut self, now: Instant, away: Duration) {
        let Some(returning) = &mut self.returning else { return };
        returning.until = returning.until + away;
        if now < returning.until {
            return;
        }
        let late = self.clients.iter().filter(|(_, it)| it.returns == Return::Begun);
        let late: Vec<_> = late.map(|(number, _)| *number).collect();
        late.into_iter().for_each(|number| self.on_gone(number, Some(LATE.to_owned())));
        self.end_return();
    }

    /// A client gives a lock back that it does not have. The server before may have done it, and
    /// have given the lock to another client, which has taken it again.
    pub(super) fn on_unlocked_before(
        &mut self,
        number: ClientNumber,
        request: u64,
        (file, opened): (FileNumber, Opened),
    ) -> Result<(), Breach> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        if !client.known.contains_key(&file) {
            return Err(order::Breach::Unknown.into());
        }
        let released = self.locks.release(opened.id, Owner { client: number, file });
        let done = released.given_up.into_iter().chain([request]);
        done.for_each(|request| client.reply(request, Outcome::Done));
        self.tell(released.grants);
        Ok(())
    }

    fn end_return_if_all_are_here(&mut self) {
        let is_empty = self.returning.as_ref().is_some_and(|it| it.expected.is_empty());
        if is_empty && self.clients.values().all(|it| it.returns != Return::Begun) {
            self.end_return();
        }
    }

    /// All writes are announced in the order in which they were before; then all goes on.
    fn end_return(&mut self) {
        let Some(Returning { expected, lost, .. }) = self.returning.take() else { return };
        let lost = expected.values().flat_map(written_of).chain(lost);
        lost.for_each(|file| self.writes.lose_all(file));
        let mut numbers: Vec<_> = self.clients.keys().copied().collect();
        numbers.sort_unstable();
        let mut all = Vec::new();
        for number in &numbers {
            let Some(client) = self.client(*number) else { continue };
            if let Return::Waits(writes) = std::mem::take(&mut client.returns) {
                all.extend(writes.into_iter().map(|it| (*number, it)));
            }
        }
        // Those of one client stay in their order.
        all.sort_by_key(|(_, it)| it.fence);
        for (number, Fenced { unsent, .. }) in all {
            if let Err(breach) = self.announce(number, unsent) {
                self.on_gone(number, Some(breach.to_string()));
            }
        }
        for number in numbers {
            self.place(number);
            if let Err(breach) = self.go_on(number) {
                self.on_gone(number, Some(breach.to_string()));
            }
        }
    }
}

impl Client {
    /// It was connected before the server was started again.
    fn begin_return(&mut self, name: &str, known: Known, restarted: ToClient) {
        self.returns = Return::Begun;
        self.known = known;
        self.order.begin_to_skip();
        self.replies.clear_first();
        self.replies.add_first(ToClient::Hello { version: VERSION, name: name.to_owned() });
        self.replies.add_first(restarted);
    }

    /// Reports whether a file is the one that it was before the server was started again.
    pub(super) fn is_the_same(&self, file: FileNumber, id: FileId) -> bool {
        self.known.get(&file).is_none_or(|(known, _)| *known == id)
    }
}

fn written_of(known: &Known) -> impl Iterator<Item = FileId> {
    known.values().filter(|(_, writes)| *writes).map(|(id, _)| *id)
}
