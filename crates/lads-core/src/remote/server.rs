//! The session of a server of remote files: decides which requests of its clients are executed and
//! which frames are written, and when.
//!
//! The owner reports messages, frames and results (`on_…`), and asks for the next decision
//! ([`Server::next_work`], [`Server::next_task`], [`Server::next_messages`]). It holds the bytes of
//! frames and the open files; the session knows them by the numbers of their client.
//!
//! The requests of a client are taken in the order of their numbers ([`super::order`]). One that
//! has to wait for writes ([`super::writes`]) or a lock ([`super::locks`]) holds up no later one,
//! only opening a file does: what comes next may be about this file. So a client that waits until
//! its data is durable can announce further writes meanwhile.

mod client;
mod connections;
mod returning;

use super::groups::Groups;
use super::locks::{ClientNumber, FileId, Grant, Locks, Owner};
use super::message::{
    Call, FRAME_BYTES, Failure, FileNumber, OpenMode, Outcome, Request, Ticket, ToClient, ToServer,
    Unsent, VERSION, Written,
};
use super::order::Placed;
use super::writes::{Access, Action, Turn, Writes};
use crate::frame::{Header, Row};
use crate::issue::Operation;
use crate::remote::extent::Extent;
use crate::units::Instant;
use client::{Client, Later, Opened};
pub use returning::Known;
use returning::{Return, Returning};
use std::collections::{BTreeSet, HashMap, VecDeque};
use thiserror::Error;

/// How a client breaks the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Breach {
    /// It has another version.
    #[error("the server uses protocol version {VERSION}, the client {0}")]
    Version(u16),
    /// A request or a frame that is none.
    #[error(transparent)]
    Order(#[from] super::order::Breach),
    /// A frame for which there is no room.
    #[error("a frame that was not granted")]
    Grant,
    /// It confirms messages that were not sent.
    #[error("the confirmation of a message that was not sent")]
    Confirmed,
    /// It connects again in the middle of a connection.
    #[error("an unexpected greeting")]
    Greeting,
}

/// The session.
#[derive(Debug)]
pub struct Server {
    /// The host, for messages to a user.
    name: String,
    /// How many frames of each client may be here.
    frames_each: u32,
    /// How many clients may be away at a time.
    away_max: usize,
    clients: HashMap<ClientNumber, Client>,
    numbers: u64,
    /// What the next fence is answered with.
    next_fence: u64,
    /// After the server was started again.
    returning: Option<Returning>,
    writes: Writes,
    locks: Locks,
    groups: Groups,
    work: VecDeque<Work>,
    /// Clients for which there may be something new.
    news: BTreeSet<ClientNumber>,
}

/// A decision about the bytes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Write them, and report it with [`Server::on_written`].
    Write {
        /// The client.
        client: ClientNumber,
        /// The number of its frame.
        frame: u64,
        /// The file.
        file: FileNumber,
        /// Where the bytes belong.
        extent: Extent,
    },
    /// Forget them.
    Drop {
        /// The client.
        client: ClientNumber,
        /// The number of its frame.
        frame: u64,
    },
}

impl Work {
    /// The client.
    #[must_use]
    pub fn client(&self) -> ClientNumber {
        match self {
            Self::Write { client, .. } | Self::Drop { client, .. } => *client,
        }
    }

    /// The number of the frame.
    #[must_use]
    pub fn frame(&self) -> u64 {
        match self {
            Self::Write { frame, .. } | Self::Drop { frame, .. } => *frame,
        }
    }
}

/// The execution of a client's request; the owner reports its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The number of the request.
    pub request: u64,
    /// What.
    pub act: Act,
}

/// What a [`Task`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Open a file; [`Server::on_opened`].
    Open {
        /// The number that it gets.
        file: FileNumber,
        /// Its path below the root of the server.
        path: Vec<u8>,
        /// How it is opened.
        mode: OpenMode,
    },
    /// Read; [`Server::on_read`].
    Read {
        /// The file.
        file: FileNumber,
        /// What, at most [`FRAME_BYTES`].
        extent: Extent,
    },
    /// Make a file durable; [`Server::on_done`], as with what follows.
    Sync(FileNumber),
    /// Make a file durable unless it cannot be used, and close it.
    Close {
        /// The file.
        file: FileNumber,
        /// Whether it can be used.
        is_usable: bool,
    },
    /// Find out the length of a file, in bytes.
    Size(FileNumber),
    /// Cut or extend a file to this many bytes.
    SetSize(FileNumber, u64),
    /// Reserve space for the first bytes of a file.
    Preallocate(FileNumber, u64),
    /// Remove a file.
    Delete(Vec<u8>),
}

impl Act {
    /// Reports whether a server that was started again must know that this was done: a second time
    /// it would fail, or change what others have done meanwhile.
    #[must_use]
    pub fn is_noted(&self) -> bool {
        match self {
            Self::SetSize(..) | Self::Preallocate(..) | Self::Delete(_) => true,
            Self::Close { is_usable, .. } => *is_usable,
            Self::Open { .. } | Self::Read { .. } | Self::Sync(_) | Self::Size(_) => false,
        }
    }
}

impl Server {
    /// A server without clients, with room for `frames_each` frames of each. It keeps what belongs
    /// to `away_max` clients whose connection is broken. Fences are numbered from `next_fence` on:
    /// a server that was started again continues after its predecessor.
    #[must_use]
    pub fn new(name: String, frames_each: u32, away_max: u32, next_fence: u64) -> Self {
        Self {
            name,
            frames_each,
            away_max: away_max as usize,
            clients: HashMap::new(),
            numbers: 0,
            next_fence,
            returning: None,
            writes: Writes::default(),
            locks: Locks::default(),
            groups: Groups::default(),
            work: VecDeque::new(),
            news: BTreeSet::new(),
        }
    }

    /// A message has come.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn on_message(
        &mut self,
        number: ClientNumber,
        message: ToServer,
        now: Instant,
    ) -> Result<(), Breach> {
        let Some(client) = self.client(number) else { return Ok(()) };
        client.active_at = now;
        match message {
            ToServer::Hello { version, .. } if version != VERSION => Err(Breach::Version(version)),
            ToServer::Hello { .. } => Ok(()),
            ToServer::Resume { .. } => Err(Breach::Greeting),
            ToServer::Heartbeat { heard } => match client.replies.confirm(heard) {
                true => Ok(()),
                false => Err(Breach::Confirmed),
            },
            ToServer::Bye => {
                client.is_leaving = true;
                Ok(())
            }
            ToServer::Request(request) => {
                client.is_leaving = false;
                client.order.on_request(request.number)?;
                client.requests.push_back(request);
                self.go_on(number)
            }
        }
    }

    /// Reports whether further messages of a client are to be read: memory for those that wait has
    /// a limit.
    #[must_use]
    pub fn has_room_for_message(&self, number: ClientNumber) -> bool {
        self.clients.get(&number).is_none_or(Client::has_room_for_message)
    }

    /// The head of a frame has come.
    ///
    /// # Errors
    /// If the frame is none of this protocol, or was not granted.
    pub fn on_head(
        &mut self,
        number: ClientNumber,
        header: &Header,
        rows: &[Row],
    ) -> Result<(), Breach> {
        let is_one = rows.len() == 1 && !header.has_only_sums;
        let may_come = is_one && header.payload_bytes <= FRAME_BYTES;
        let is_granted = |client: &mut Client| client.on_arrival(header);
        match may_come && self.client(number).is_some_and(is_granted) {
            true => Ok(()),
            false => Err(Breach::Grant),
        }
    }

    /// A frame is here. Returns its number.
    ///
    /// # Errors
    /// If it breaks the protocol.
    pub fn on_frame(
        &mut self,
        number: ClientNumber,
        rows: &[Row],
        now: Instant,
    ) -> Result<u64, Breach> {
        let Some(client) = self.client(number) else { return Err(Breach::Grant) };
        client.active_at = now;
        let frame = client.on_frame(rows)?;
        self.place(number);
        // The frame is here, whatever becomes of its client.
        if let Err(breach) = self.go_on(number) {
            self.on_gone(number, Some(breach.to_string()));
        }
        Ok(frame)
    }

    /// A frame whose head has come does not come.
    pub fn on_frame_lost(&mut self, number: ClientNumber) {
        if let Some(client) = self.clients.get_mut(&number) {
            client.on_frame_lost();
        }
    }

    /// A file is open, or could not be opened.
    ///
    /// # Errors
    /// If a later request of the client breaks the protocol. This holds for all functions that
    /// report a result.
    pub fn on_opened(
        &mut self,
        number: ClientNumber,
        request: u64,
        result: Result<FileId, Failure>,
        now: Instant,
    ) -> Result<(), Breach> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        client.on_task_done(now);
        let Some((file, group)) = client.opening.take() else { return Ok(()) };
        let result =
            result.and_then(|id| if client.is_the_same(file, id) { Ok(id) } else { Err(STALE) });
        client.order.open(file, result.err())?;
        if let Ok(id) = result {
            client.files.insert(file, Opened { id, group });
            match client.known.contains_key(&file) {
                true => self.groups.join_again(group),
                false => self.groups.join(group),
            }
            self.writes.open(id);
        }
        client.reply(request, result.map_or_else(Outcome::Failed, |_| Outcome::Done));
        self.go_on(number)
    }

    /// A task is done, with this outcome: for [`Act::Size`], the number of bytes.
    ///
    /// # Errors
    /// See [`Self::on_opened`].
    pub fn on_done(
        &mut self,
        number: ClientNumber,
        request: u64,
        mut outcome: Outcome,
        now: Instant,
    ) -> Result<(), Breach> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        client.on_task_done(now);
        let Some(later) = client.later.remove(&request) else {
            client.reply(request, outcome);
            return self.go_on(number);
        };
        if let (Outcome::Number(size), Some(opened)) = (&mut outcome, &later.opened) {
            // Announced writes make the file longer when they are sent.
            *size = (*size).max(self.writes.end_of(opened.id));
        }
        if let (Call::End { .. }, Outcome::Number(size)) = (&later.call, outcome) {
            outcome = later.position_at(size);
        }
        client.reply(request, later.failure.map_or(outcome, Outcome::Failed));
        if let Some((file, opened)) = later.closing() {
            self.on_closed(number, file, &opened);
        }
        self.go_on(number)
    }

    /// A read found this number of bytes before the end of the file. Returns how many to send:
    /// more, zeros behind the others, if writes that are not done make the file longer. `None` if
    /// nothing is sent; otherwise [`Self::on_sent`] follows, unless the client is gone before.
    ///
    /// # Errors
    /// See [`Self::on_opened`].
    pub fn on_read(
        &mut self,
        number: ClientNumber,
        request: u64,
        result: Result<u32, Failure>,
    ) -> Result<Option<u32>, Breach> {
        let Self { clients, writes, .. } = self;
        let Some(client) = clients.get_mut(&number) else { return Ok(None) };
        let result = result.map(|count| client.count_before_end(request, count, writes));
        if let Ok(count @ 1..) = result
            && client.begin_sending(request)
        {
            return Ok(Some(count));
        }
        client.end_read(request, result.map_or_else(Outcome::Failed, |_| Outcome::Number(0)));
        self.go_on(number)?;
        Ok(None)
    }

    /// So many bytes that were read are sent.
    ///
    /// # Errors
    /// See [`Self::on_opened`].
    pub fn on_sent(
        &mut self,
        number: ClientNumber,
        request: u64,
        length: u32,
        now: Instant,
    ) -> Result<(), Breach> {
        let Some(client) = self.client(number) else { return Ok(()) };
        client.active_at = now;
        client.end_sending(request, length);
        self.go_on(number)
    }

    /// A frame is written, or could not be. Its buffer is free.
    ///
    /// # Errors
    /// See [`Self::on_opened`].
    pub fn on_written(
        &mut self,
        number: ClientNumber,
        frame: u64,
        failure: Option<Failure>,
        now: Instant,
    ) -> Result<(), Breach> {
        if let Some(client) = self.clients.get_mut(&number) {
            client.active_at = now;
            client.on_written(Written { frame, failure });
        }
        self.writes.on_written(number, frame, failure.is_none());
        self.do_actions();
        self.go_on(number)
    }

    /// The number of frames of a client that wait for their view or their announcement.
    #[must_use]
    pub fn coming_count(&self, number: ClientNumber) -> usize {
        self.clients.get(&number).map_or(0, |client| client.order.coming_count())
    }

    /// The clients for which there may be messages or tasks, or room for messages, since the last
    /// call.
    pub fn take_news(&mut self) -> BTreeSet<ClientNumber> {
        std::mem::take(&mut self.news)
    }

    /// Reports whether there is a task for a client.
    #[must_use]
    pub fn has_task(&self, number: ClientNumber) -> bool {
        self.clients.get(&number).is_some_and(|client| !client.tasks.is_empty())
    }

    /// Returns the next decision about a frame.
    pub fn next_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// Returns the next task of a client. Several tasks of a client may run at a time.
    pub fn next_task(&mut self, number: ClientNumber) -> Option<Task> {
        self.clients.get_mut(&number)?.next_task()
    }

    /// Messages for a client, in their order.
    ///
    /// # Errors
    /// See [`Self::on_opened`].
    pub fn next_messages(&mut self, number: ClientNumber) -> Result<Vec<ToClient>, Breach> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(Vec::new()) };
        let messages = client.next_messages();
        // A request may have waited until the client took some.
        self.go_on(number)?;
        Ok(messages)
    }

    /// Reports whether there are messages for a client.
    #[must_use]
    pub fn has_messages(&self, number: ClientNumber) -> bool {
        self.clients.get(&number).is_some_and(Client::has_messages)
    }

    /// A client that is not gone.
    fn client(&mut self, number: ClientNumber) -> Option<&mut Client> {
        self.clients.get_mut(&number).filter(|client| !client.is_over)
    }

    /// Takes the requests of a client whose turn has come.
    fn go_on(&mut self, number: ClientNumber) -> Result<(), Breach> {
        self.news.insert(number);
        while self.goes_on(number)
            && let Some(request) = self.client(number).and_then(Client::next_request)
        {
            self.take(number, request)?;
            // A view may have been what frames waited for.
            self.place(number);
        }
        Ok(())
    }

    fn take(&mut self, number: ClientNumber, request: Request) -> Result<(), Breach> {
        let Self { clients, locks, groups, .. } = self;
        let Some(client) = clients.get_mut(&number) else { return Ok(()) };
        let Request { number: request, call, .. } = request;
        if client.returns == Return::Begun && !is_for_return(&call) {
            return Err(super::order::Breach::Request.into());
        }
        match call {
            Call::Open { file, path, mut mode, group } => {
                if client.known.contains_key(&file) {
                    // It was made before.
                    (mode.creates, mode.is_new) = (false, false);
                }
                client.opening = Some((file, group));
                client.tasks.push_back(Task { request, act: Act::Open { file, path, mode } });
            }
            Call::View { view, file, displacement, filetype } => {
                let outcome = client.set_view(view, file, displacement, &filetype)?;
                client.reply(request, outcome);
            }
            Call::Forget { view } => {
                client.order.forget(view);
                client.reply(request, Outcome::Done);
            }
            Call::AddShared { file, bytes } => {
                let added = client.usable(file)?.and_then(|it| groups.add(&it.group, bytes));
                client.reply(request, added.map_or_else(Outcome::Failed, Outcome::Number));
            }
            Call::SetShared { file, position } => {
                let set = client.usable(file)?.and_then(|it| groups.set(&it.group, position));
                client.reply(request, set.map_or_else(Outcome::Failed, |()| Outcome::Done));
            }
            Call::Delete { path } => {
                client.tasks.push_back(Task { request, act: Act::Delete(path) });
            }
            Call::Lock { file, kind } => {
                let owner = Owner { client: number, file };
                let taken = client.usable(file)?.map(|it| locks.lock(it.id, owner, request, kind));
                match taken {
                    Ok(Ok(true)) => client.reply(request, Outcome::Done),
                    Ok(Ok(false)) => {}
                    Ok(Err(_)) => client.reply(request, Outcome::Failed(NO_LOCK)),
                    Err(failure) => client.reply(request, Outcome::Failed(failure)),
                }
            }
            Call::Fence { unsent } => {
                unsent.into_iter().try_for_each(|it| self.announce(number, it))?;
                let fence = self.next_fence;
                self.next_fence += 1;
                if let Some(client) = self.client(number) {
                    client.reply(request, Outcome::Number(fence));
                }
            }
            Call::Return { frames, writes } => return self.on_return(number, frames, writes),
            call => {
                let (later, access) = client.later(call)?;
                if let (Call::Unlock { file }, Some(opened)) = (&later.call, later.opened)
                    && !locks.has(opened.id, Owner { client: number, file: *file })
                {
                    let file = *file;
                    return self.on_unlocked_before(number, request, (file, opened));
                }
                return self.wait(number, request, later, access);
            }
        }
        Ok(())
    }

    /// A client has a write that it has not sent.
    fn announce(&mut self, number: ClientNumber, it: Unsent) -> Result<(), Breach> {
        let Some(client) = self.clients.get(&number) else { return Ok(()) };
        let Some((file, extent)) = client.unsent(it)? else { return Ok(()) };
        let announced = self.writes.announce(number, file, it.write, extent);
        announced.map_err(|_| super::order::Breach::Number.into())
    }

    /// A request waits for writes, if there are any.
    fn wait(
        &mut self,
        number: ClientNumber,
        request: u64,
        later: Later,
        access: Access,
    ) -> Result<(), Breach> {
        let id = later.opened.as_ref().map(|it| it.id);
        let turn = id.map_or(Turn::Now, |id| self.writes.ask(number, request, id, access));
        if let Some(client) = self.clients.get_mut(&number) {
            client.reads += u32::from(later.is_read());
            client.later.insert(request, later);
        }
        match turn {
            Turn::Now => self.on_turn(number, request, false),
            Turn::Lost => self.on_turn(number, request, true),
            Turn::Later => {}
        }
        self.do_actions();
        Ok(())
    }

    /// A request has waited for all writes that it must wait for.
    fn on_turn(&mut self, number: ClientNumber, request: u64, is_lost: bool) {
        self.news.insert(number);
        let Some(client) = self.clients.get_mut(&number) else { return };
        let Some(later) = client.later.get(&request) else { return };
        let (failure, call) = (later.failure, &later.call);
        match (call, &later.opened) {
            (Call::Unlock { file }, Some(opened)) => {
                let owner = Owner { client: number, file: *file };
                let id = opened.id;
                client.answer_later(request, Outcome::Done);
                // If it was given back twice, it is given back once.
                let grants = self.locks.unlock(id, owner).unwrap_or_default();
                self.tell(grants);
            }
            (Call::Close { .. }, _) => client.push_task(request),
            _ if let Some(failure) = failure => {
                client.answer_later(request, Outcome::Failed(failure));
            }
            (Call::Flush { .. }, _) => client.answer_later(request, Outcome::Done),
            (Call::Read { .. }, _) if is_lost => client.answer_later(request, Outcome::Lost),
            _ => client.push_task(request),
        }
    }

    /// Hands over the frames whose place has become known.
    fn place(&mut self, number: ClientNumber) {
        if self.returning.is_some() {
            return;
        }
        let Self { clients, writes, work, .. } = self;
        let Some(client) = clients.get_mut(&number).filter(|client| !client.is_over) else {
            return;
        };
        loop {
            let is_expected = |write| writes.is_expected(number, write);
            let Some(placed) = client.order.next_placed(is_expected) else { break };
            let Placed { frame, file, write, is_announced, extent, failure } = placed;
            let id = client.files.get(&file).map(|it| it.id);
            // A refused frame arrives again, and its file may be closing.
            let id = id.or_else(|| writes.file_of(number, write));
            match (failure, id) {
                _ if writes.is_another(number, write, &extent) => {
                    client.give_back(None);
                    work.push_back(Work::Drop { client: number, frame });
                    return self.on_gone(number, Some(super::order::Breach::Frame.to_string()));
                }
                (None, Some(id)) => {
                    client.placed.insert(frame, file);
                    writes.arrive(number, id, write, frame, extent);
                }
                (failure, _) => {
                    if is_announced {
                        writes.withdraw(number, write);
                    }
                    let failure = Some(failure.unwrap_or(UNKNOWN));
                    client.give_back(Some(Written { frame, failure }));
                    work.push_back(Work::Drop { client: number, frame });
                }
            }
        }
        self.do_actions();
    }

    fn do_actions(&mut self) {
        while let Some(action) = self.writes.next_action() {
            match action {
                Action::Start { client: number, frame, extent } => {
                    let client = self.clients.get_mut(&number);
                    if let Some(file) = client.and_then(|it| it.start(frame)) {
                        let client = number;
                        self.work.push_back(Work::Write { client, frame, file, extent });
                    }
                }
                Action::Refuse { client: number, frame } => {
                    self.news.insert(number);
                    self.work.push_back(Work::Drop { client: number, frame });
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.placed.remove(&frame);
                        client.give_back(None);
                    }
                }
                Action::Again { client, frame } => {
                    self.say(client, ToClient::Again(frame));
                }
                Action::Recall { client, write } => {
                    self.say(client, ToClient::Recall(write));
                }
                Action::Ready { client, request, is_lost } => {
                    self.on_turn(client, request, is_lost);
                }
            }
        }
    }

    fn say(&mut self, number: ClientNumber, message: ToClient) {
        self.news.insert(number);
        if let Some(client) = self.client(number) {
            client.replies.add(message);
        }
    }

    /// Others are given locks.
    fn tell(&mut self, grants: Vec<Grant>) {
        for Grant { client, request } in grants {
            // One that is gone gives it on when its files are closed.
            self.say(client, ToClient::Reply { number: request, outcome: Outcome::Done });
        }
    }

    /// A file of a client is not open any more.
    fn on_closed(&mut self, number: ClientNumber, file: FileNumber, opened: &Opened) {
        self.groups.leave(&opened.group);
        self.writes.close(opened.id);
        let released = self.locks.release(opened.id, Owner { client: number, file });
        self.tell(released.grants);
        if let Some(client) = self.client(number) {
            let given_up = released.given_up.into_iter();
            given_up.for_each(|request| client.reply(request, Outcome::Failed(UNKNOWN)));
        }
    }
}

/// Whether a client that returns may ask for it before it has returned.
fn is_for_return(call: &Call) -> bool {
    matches!(call, Call::Open { .. } | Call::View { .. } | Call::Lock { .. } | Call::Return { .. })
}

/// Another file than the one that a client had open: `ESTALE`.
const STALE: Failure = Failure { operation: Operation::Open, errno: 116 };

/// Too many locks: `ENOLCK`.
const NO_LOCK: Failure = Failure { operation: Operation::Examine, errno: 37 };

/// A file that is closed, or a lock that the client does not have: `EBADF`.
const UNKNOWN: Failure = Failure { operation: Operation::Examine, errno: 9 };

#[cfg(test)]
mod tests;
