//! The writes of all clients of a server that are not in their files yet: which one may be done
//! now, and which request has to wait for which of them.
//!
//! On a local file, a write is visible to every process that hears of it, and a later write
//! replaces an earlier one. A client keeps its writes in buffers and sends them later. Before
//! anything leaves its process that could tell another one of a write, it *announces* all writes
//! that it has not sent, and waits for the answer: a round trip, but not the time that sending the
//! data takes. So the server learns of writes in an order that respects all messages between
//! processes. That order is their *rank*. The rules are:
//!
//! - A write is done after all writes of lower rank that have bytes of the file in common.
//! - A request is executed after all writes of lower rank that it could observe.
//! - A write that another write or a request waits for is *recalled*: its client sends it first.
//! - A frame that comes before an announced write with bytes in common is *refused*: the server
//!   forgets its bytes and its client sends it again later. So the memory of a server holds no
//!   frame that waits for data of another client, and recalled frames always find room.
//! - If a client is gone, its announced writes are *lost*. Reads of these bytes fail until other
//!   data covers them or no client has the file open.
//!
//! Nobody waits in a circle: every write and request waits only for lower ranks, and a client sends
//! overlapping writes in the order of their ranks.
//!
//! ```text
//!             announce                arrive             all of lower rank are done
//!   unknown ────────────► announced ─────────────► here ────────────────────────────► started
//!      │                    ▲    │ client gone      ▲ │                                  │
//!      │                    │    └────────► lost    │ │                               on_written
//!      │                    └───────────────────────┼─┘ refused                          │
//!      └────────────────────────────────────────────┘ arrive                             ▼
//!                                                                                       done
//! ```
//!
//! Ranks are given when the server learns of a write: without an announcement when its frame
//! arrives.

use super::extent::Extent;
use super::locks::{ClientNumber, FileId};
use super::message::WriteNumber;
use crate::limits::{CLIENT_ANNOUNCED_MAX, FILE_LOST_MAX};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use thiserror::Error;

/// The writes of all clients.
#[derive(Debug, Default)]
pub struct Writes {
    files: HashMap<FileId, File>,
    /// Writes that are announced and not here.
    announced: HashMap<(ClientNumber, WriteNumber), (FileId, u64)>,
    /// How many of these each client has.
    counts: HashMap<ClientNumber, usize>,
    /// Writes whose frames are here.
    here: HashMap<(ClientNumber, u64), (FileId, u64)>,
    next_rank: u64,
    actions: VecDeque<Action>,
}

/// What the server is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the bytes of a frame, and report it with [`Writes::on_written`].
    Start {
        /// The client.
        client: ClientNumber,
        /// The number of its frame.
        frame: u64,
        /// Where the bytes belong.
        extent: Extent,
    },
    /// Forget the bytes of a frame.
    Refuse {
        /// The client.
        client: ClientNumber,
        /// The number of its frame.
        frame: u64,
    },
    /// Tell the client that it can send a refused frame again.
    Again {
        /// The client.
        client: ClientNumber,
        /// The number that the frame had.
        frame: u64,
    },
    /// Tell the client that an announced write is waited for.
    Recall {
        /// The client.
        client: ClientNumber,
        /// The write.
        write: WriteNumber,
    },
    /// Execute a request.
    Ready {
        /// The client.
        client: ClientNumber,
        /// The number of its request.
        request: u64,
        /// Bytes that it reads are lost.
        is_lost: bool,
    },
}

/// What a request has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// All writes with bytes in common.
    Read(Extent),
    /// All writes of bytes behind this length of the file.
    Cut(u64),
    /// All writes of the same client.
    Own,
}

/// Whether a request can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// Never: bytes that it reads are lost.
    Lost,
    /// When [`Action::Ready`] names it.
    Later,
}

/// Why a write cannot be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotAnnounced {
    /// The client has announced as many as it may.
    #[error("more than {CLIENT_ANNOUNCED_MAX} announced writes of one client")]
    TooMany,
    /// The number is in use.
    #[error("a write that was announced before")]
    Twice,
}

#[derive(Debug, Default)]
struct File {
    /// How often clients have it open.
    opens: u64,
    /// By rank.
    writes: BTreeMap<u64, Write>,
    waiting: Vec<Waiting>,
    /// Writes that are lost, with their ranks.
    lost: Vec<(u64, Extent)>,
    /// There are more lost writes than are remembered.
    is_all_lost: bool,
}

#[derive(Debug)]
struct Write {
    client: ClientNumber,
    number: WriteNumber,
    extent: Extent,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its client has it.
    Announced {
        is_recalled: bool,
        /// The number of the frame that was refused, until the client may send it again.
        refused: Option<u64>,
    },
    /// In a buffer of the server: frame number.
    Here(u64),
    /// Being written.
    Started,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    client: ClientNumber,
    request: u64,
    access: Access,
    /// It waits for writes of lower rank.
    rank: u64,
}

impl Write {
    fn is_announced(&self) -> bool {
        matches!(self.state, State::Announced { .. })
    }
}

impl Waiting {
    fn is_after(&self, write: &Write) -> bool {
        match &self.access {
            Access::Read(extent) => extent.meets(&write.extent),
            Access::Cut(size) => write.extent.reach().end > *size || write.client == self.client,
            Access::Own => write.client == self.client,
        }
    }
}

impl File {
    /// The ranks of the writes that a write waits for, and whether one of them is not here.
    fn before(&self, rank: u64) -> (Vec<u64>, bool) {
        let own = &self.writes[&rank].extent;
        let earlier = self.writes.range(..rank).filter(|(_, it)| it.extent.meets(own));
        let mut is_any_announced = false;
        let ranks = earlier.map(|(rank, it)| {
            is_any_announced |= it.is_announced();
            *rank
        });
        (ranks.collect(), is_any_announced)
    }

    /// The ranks of the writes that a request waits for.
    fn before_request(&self, waiting: &Waiting) -> Vec<u64> {
        let earlier = self.writes.range(..waiting.rank);
        earlier.filter(|(_, it)| waiting.is_after(it)).map(|(rank, _)| *rank).collect()
    }

    fn is_lost(&self, access: &Access) -> bool {
        let Access::Read(extent) = access else { return false };
        self.is_all_lost || self.lost.iter().any(|(_, it)| it.meets(extent))
    }

    fn lose(&mut self, rank: u64, extent: Extent) {
        if self.lost.len() < FILE_LOST_MAX {
            self.lost.push((rank, extent));
        } else {
            self.is_all_lost = true;
        }
    }

    fn is_idle(&self) -> bool {
        self.opens == 0 && self.writes.is_empty() && self.waiting.is_empty()
    }
}

impl Writes {
    /// A client has opened a file.
    pub fn open(&mut self, file: FileId) {
        self.files.entry(file).or_default().opens += 1;
    }

    /// A client has closed a file.
    pub fn close(&mut self, file: FileId) {
        if let Some(it) = self.files.get_mut(&file) {
            it.opens = it.opens.saturating_sub(1);
        }
        self.forget_idle(file);
    }

    /// A client announces a write that it has not sent.
    ///
    /// # Errors
    /// If it has announced too many, or this one before.
    pub fn announce(
        &mut self,
        client: ClientNumber,
        file: FileId,
        number: WriteNumber,
        extent: Extent,
    ) -> Result<(), NotAnnounced> {
        if self.counts.get(&client).is_some_and(|count| *count >= CLIENT_ANNOUNCED_MAX) {
            return Err(NotAnnounced::TooMany);
        }
        if self.is_expected(client, number) {
            return Err(NotAnnounced::Twice);
        }
        let rank = self.take_rank();
        self.expect(client, number, (file, rank));
        let state = State::Announced { is_recalled: false, refused: None };
        let write = Write { client, number, extent, state };
        self.files.entry(file).or_default().writes.insert(rank, write);
        Ok(())
    }

    /// Reports whether a client has announced a write whose frame is not here.
    #[must_use]
    pub fn is_expected(&self, client: ClientNumber, number: WriteNumber) -> bool {
        self.announced.contains_key(&(client, number))
    }

    /// Returns the file of a write that a client has announced and whose frame is not here.
    #[must_use]
    pub fn file_of(&self, client: ClientNumber, number: WriteNumber) -> Option<FileId> {
        self.announced.get(&(client, number)).map(|(file, _)| *file)
    }

    /// Reports whether a write was announced with another extent.
    #[must_use]
    pub fn is_another(&self, client: ClientNumber, number: WriteNumber, extent: &Extent) -> bool {
        let place = self.announced.get(&(client, number));
        let write = place.and_then(|(file, rank)| self.files.get(file)?.writes.get(rank));
        write.is_some_and(|write| !write.extent.is(extent))
    }

    /// A frame is here. If its write was announced, with the same extent, it keeps its rank.
    pub fn arrive(
        &mut self,
        client: ClientNumber,
        file: FileId,
        number: WriteNumber,
        frame: u64,
        extent: Extent,
    ) {
        let expected = self.take_expected(client, number);
        let (file, rank) = expected.unwrap_or_else(|| (file, self.take_rank()));
        let write = Write { client, number, extent, state: State::Here(frame) };
        self.files.entry(file).or_default().writes.insert(rank, write);
        self.here.insert((client, frame), (file, rank));
        self.look_at(file, rank);
        if expected.is_some() {
            // What was refused because of it can come.
            self.look_at_all(file);
        }
    }

    /// A write that was announced cannot be done.
    pub fn withdraw(&mut self, client: ClientNumber, number: WriteNumber) {
        let Some((file, rank)) = self.take_expected(client, number) else { return };
        if let Some(it) = self.files.get_mut(&file) {
            it.writes.remove(&rank);
        }
        self.look_at_all(file);
        self.forget_idle(file);
    }

    /// A request is to be executed.
    pub fn ask(
        &mut self,
        client: ClientNumber,
        request: u64,
        file: FileId,
        access: Access,
    ) -> Turn {
        let waiting = Waiting { client, request, access, rank: self.next_rank };
        let Some(it) = self.files.get_mut(&file) else { return Turn::Now };
        let before = it.before_request(&waiting);
        if before.is_empty() {
            return if it.is_lost(&waiting.access) { Turn::Lost } else { Turn::Now };
        }
        it.waiting.push(waiting);
        self.recall(file, &before);
        Turn::Later
    }

    /// A frame that was started is written, or could not be: then what is lost there stays lost.
    pub fn on_written(&mut self, client: ClientNumber, frame: u64, is_done: bool) {
        let Some((file, rank)) = self.here.remove(&(client, frame)) else { return };
        let Some(it) = self.files.get_mut(&file) else { return };
        if let Some(write) = it.writes.remove(&rank).filter(|_| is_done) {
            // One that came before may have been on its way to the disk.
            it.lost.retain(|(of, lost)| rank < *of || !write.extent.covers(lost));
        }
        self.look_at_all(file);
        self.forget_idle(file);
    }

    /// A client is gone. Writes whose frames are here are done as always.
    pub fn on_gone(&mut self, client: ClientNumber) {
        self.announced.retain(|(of, ..), _| *of != client);
        self.counts.remove(&client);
        let mut touched = Vec::new();
        for (id, file) in &mut self.files {
            let is_gone = |write: &Write| write.client == client && write.is_announced();
            let gone: Vec<_> = file.writes.extract_if(.., |_, it| is_gone(it)).collect();
            if !gone.is_empty() {
                touched.push(*id);
            }
            gone.into_iter().for_each(|(rank, write)| file.lose(rank, write.extent));
            file.waiting.retain(|it| it.client != client);
        }
        touched.into_iter().for_each(|file| self.look_at_all(file));
    }

    /// A client is gone that may have written to a file that others have open, it is not known
    /// where.
    pub fn lose_all(&mut self, file: FileId) {
        if let Some(it) = self.files.get_mut(&file) {
            it.is_all_lost = true;
        }
    }

    /// The files with lost writes.
    pub fn lost(&self) -> impl Iterator<Item = FileId> {
        let lost = self.files.iter().filter(|(_, it)| it.is_all_lost || !it.lost.is_empty());
        lost.map(|(file, _)| *file)
    }

    /// The end of the longest write to a file that is not done, in bytes from the beginning.
    #[must_use]
    pub fn end_of(&self, file: FileId) -> u64 {
        let writes = self.files.get(&file).into_iter().flat_map(|it| it.writes.values());
        writes.map(|it| it.extent.reach().end).max().unwrap_or(0)
    }

    /// The clients with a write that another client waits for.
    #[must_use]
    pub fn holding_up(&self) -> BTreeSet<ClientNumber> {
        let writes = self.files.values().flat_map(|it| it.writes.values());
        let is_awaited =
            |it: &&Write| matches!(it.state, State::Announced { is_recalled: true, refused: None });
        writes.filter(is_awaited).map(|it| it.client).collect()
    }

    /// The next thing to be done.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn take_rank(&mut self) -> u64 {
        self.next_rank += 1;
        self.next_rank - 1
    }

    /// The frame of this write will come.
    fn expect(&mut self, client: ClientNumber, number: WriteNumber, place: (FileId, u64)) {
        self.announced.insert((client, number), place);
        *self.counts.entry(client).or_default() += 1;
    }

    fn take_expected(
        &mut self,
        client: ClientNumber,
        number: WriteNumber,
    ) -> Option<(FileId, u64)> {
        let place = self.announced.remove(&(client, number))?;
        if let Some(count) = self.counts.get_mut(&client) {
            *count -= 1;
        }
        Some(place)
    }

    /// Lets clients send writes that are waited for.
    fn recall(&mut self, file: FileId, ranks: &[u64]) {
        let Some(it) = self.files.get_mut(&file) else { return };
        for rank in ranks {
            let Some(write) = it.writes.get_mut(rank) else { continue };
            let State::Announced { is_recalled, refused: None } = &mut write.state else {
                continue;
            };
            if !std::mem::replace(is_recalled, true) {
                let (client, write) = (write.client, write.number);
                self.actions.push_back(Action::Recall { client, write });
            }
        }
    }

    /// Whether a write that is here, or was refused, can go on.
    fn look_at(&mut self, file: FileId, rank: u64) {
        let Some(it) = self.files.get_mut(&file) else { return };
        let (before, is_any_announced) = it.before(rank);
        let Some(write) = it.writes.get_mut(&rank) else { return };
        let (client, number) = (write.client, write.number);
        match write.state {
            State::Here(frame) if is_any_announced => {
                write.state = State::Announced { is_recalled: true, refused: Some(frame) };
                self.here.remove(&(client, frame));
                self.expect(client, number, (file, rank));
                self.actions.push_back(Action::Refuse { client, frame });
                self.recall(file, &before);
            }
            State::Here(frame) if before.is_empty() => {
                write.state = State::Started;
                let extent = write.extent.clone();
                self.actions.push_back(Action::Start { client, frame, extent });
            }
            State::Announced { refused: Some(frame), .. } if !is_any_announced => {
                write.state = State::Announced { is_recalled: true, refused: None };
                self.actions.push_back(Action::Again { client, frame });
            }
            _ => {}
        }
    }

    /// Writes of a file are done, or will never be: others may go on.
    fn look_at_all(&mut self, file: FileId) {
        let Some(it) = self.files.get_mut(&file) else { return };
        let is_blocked = |it: &Write| match it.state {
            State::Here(_) | State::Announced { refused: Some(_), .. } => true,
            State::Started | State::Announced { .. } => false,
        };
        let blocked = it.writes.iter().filter(|(_, write)| is_blocked(write));
        let blocked: Vec<_> = blocked.map(|(rank, _)| *rank).collect();
        blocked.into_iter().for_each(|rank| self.look_at(file, rank));
        let Some(it) = self.files.get_mut(&file) else { return };
        let waiting = std::mem::take(&mut it.waiting);
        let (ready, waiting): (Vec<_>, Vec<_>) =
            waiting.into_iter().partition(|request| it.before_request(request).is_empty());
        it.waiting = waiting;
        for Waiting { client, request, access, .. } in ready {
            let is_lost = it.is_lost(&access);
            self.actions.push_back(Action::Ready { client, request, is_lost });
        }
    }

    /// Keeps nothing of a file that nobody uses.
    fn forget_idle(&mut self, file: FileId) {
        if self.files.get(&file).is_some_and(File::is_idle) {
            self.files.remove(&file);
        }
    }
}

#[cfg(test)]
mod tests;
