//! A client: the real session, its buffers, its local disk, and the connection to the server.
//!
//! After every report it is checked that the session offers what it announced: a frame if it has
//! one, messages if it has some, and none without a grant of the server.

mod watch;

use super::bytes::{Pool, ReadBuffer, Stamp, WriteBuffer};
use super::client_disk::ClientDisk;
use super::client_threads::ReadDisk;
use super::server_end::{EIO, ReadBytes, Said};
use super::{Shared, Stats};
use crate::findings::Checked;
use crate::rng::Rng;
use lads_core::frame::{Header, Row};
use lads_core::remote::client::{About, Client, Loss, Settings, Tail, Trouble, Wait};
use lads_core::remote::message::{CLIENT_READS_MAX, Failure, ToClient, ToServer, Written};
use lads_core::remote::outbox::{Next, Place};
use lads_core::remote::policy::LOOK_INTERVAL;
use lads_core::units::{Block, OstId};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;
use watch::Watch;

pub(super) type OwnClient = Client<WriteBuffer, ReadBuffer>;
pub(super) type OwnTail = Tail<WriteBuffer>;

/// A client and its connection.
#[derive(Debug)]
pub(super) struct Link {
    /// The number of its process.
    pub(super) process: usize,
    pub(super) shared: Shared,
    pub(super) wire: RefCell<Wire>,
    pub(super) disk: RefCell<ClientDisk>,
    pub(super) read_disk: ReadDisk,
    pub(super) rng: RefCell<Rng>,
    pub(super) buffer_bytes: u32,
    pub(super) for_writing: Pool,
    pub(super) for_reading: Pool,
    session: RefCell<Session>,
    watch: RefCell<Watch>,
    tails: RefCell<Vec<Weak<FileTail>>>,
    /// Waits whose end is final, and that ended.
    over: RefCell<Vec<Wait>>,
    /// Bytes that were lost with the connection although there is a local disk.
    pub(super) forgotten_bytes: Cell<u64>,
}

/// What is in flight.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) messages: VecDeque<ToServer>,
    pub(super) frames: VecDeque<SentFrame>,
    pub(super) replies: VecDeque<Said>,
    pub(super) bytes: VecDeque<ReadBytes>,
}

/// A frame in flight to the server.
#[derive(Debug)]
pub(super) struct SentFrame {
    pub(super) header: Header,
    pub(super) row: Row,
    pub(super) stamps: Vec<Stamp>,
}

#[derive(Debug)]
struct Session {
    client: OwnClient,
    /// The sending thread waits until then.
    sender_until: Option<Duration>,
    looked_at: Duration,
    /// Waits that a call began and did not end.
    waits: HashMap<u64, Wait>,
    wait_count: u64,
}

/// The buffer of a file that is being filled, for one thread at a time.
#[derive(Debug)]
pub(super) struct FileTail {
    pub(super) tail: RefCell<OwnTail>,
    is_taken: Cell<bool>,
}

/// The right to use a [`FileTail`].
#[derive(Debug)]
pub(super) struct TailGuard<'a>(&'a FileTail);

impl FileTail {
    pub(super) fn new(tail: OwnTail) -> Rc<Self> {
        Rc::new(Self { tail: RefCell::new(tail), is_taken: Cell::new(false) })
    }

    fn try_lock(&self) -> Option<TailGuard<'_>> {
        (!self.is_taken.replace(true)).then(|| TailGuard(self))
    }

    pub(super) async fn lock(&self) -> TailGuard<'_> {
        poll_fn(|_| self.try_lock().map_or(Poll::Pending, Poll::Ready)).await
    }
}

impl Drop for TailGuard<'_> {
    fn drop(&mut self) {
        self.0.is_taken.set(false);
    }
}

/// Reports whether a wait stays over when it was over once, whatever other calls do.
fn is_final(wait: &Wait) -> bool {
    matches!(wait, Wait::Connected | Wait::Deferred(_) | Wait::Coming(_) | Wait::Reply(_))
}

impl Link {
    pub(super) fn new(process: usize, shared: Shared, settings: Settings, rng: Rng) -> Rc<Self> {
        let Settings { buffers, buffer_bytes, chunks_max, .. } = settings;
        let stage_bytes = settings.stage.map_or(0, |stage| stage.bytes_max);
        let slots_max = usize::try_from(stage_bytes / u64::from(buffer_bytes)).expect("few");
        let session = Session {
            client: Client::new(settings),
            sender_until: None,
            looked_at: shared.now(),
            waits: HashMap::new(),
            wait_count: 0,
        };
        Rc::new(Self {
            process,
            shared,
            wire: RefCell::default(),
            disk: RefCell::new(ClientDisk::new(buffer_bytes, slots_max)),
            read_disk: ReadDisk::default(),
            rng: RefCell::new(rng),
            buffer_bytes,
            for_writing: Pool::new(buffers),
            for_reading: Pool::new(chunks_max + CLIENT_READS_MAX + 2),
            session: RefCell::new(session),
            watch: RefCell::default(),
            tails: RefCell::default(),
            over: RefCell::default(),
            forgotten_bytes: Cell::new(0),
        })
    }

    pub(super) fn trace(&self, line: impl FnOnce() -> String) {
        self.shared.trace(|| format!("client {}: {}", self.process, line()));
    }

    pub(super) fn stats(&self, count: impl FnOnce(&mut Stats)) {
        self.shared.stats(count);
    }

    /// Reports or asks something that makes no request.
    pub(super) fn event<T>(&self, act: impl FnOnce(&mut OwnClient, Duration) -> T) -> T {
        let now = self.shared.now();
        let mut session = self.session.borrow_mut();
        let result = act(&mut session.client, now);
        let Session { client, sender_until, .. } = &mut *session;
        let says = client.has_messages();
        let wakes = |until: &mut Duration| {
            let is_sooner = client.next_timeout(now) < *until;
            says || client.loss().is_some() || client.has_frame(now) || is_sooner
        };
        sender_until.take_if(wakes);
        result
    }

    /// Does something that makes requests, and sends them.
    pub(super) fn ask_with<T>(&self, act: impl FnOnce(&mut OwnClient, Duration) -> T) -> T {
        let result = self.event(act);
        self.say_all();
        result
    }

    pub(super) fn is_lost(&self) -> bool {
        self.session.borrow().client.loss().is_some()
    }

    /// Sends the messages that are to be sent.
    pub(super) fn say_all(&self) {
        let client = &mut self.session.borrow_mut().client;
        let has_some = client.has_messages();
        let messages = client.next_messages();
        assert_eq!(has_some, !messages.is_empty(), "messages of client {}", self.process);
        assert!(!client.has_messages(), "client {} has more messages", self.process);
        let mut watch = self.watch.borrow_mut();
        assert!(messages.is_empty() || !watch.is_away(), "client {} is away", self.process);
        for message in &messages {
            self.trace(|| format!("sends {message:?}"));
            let is_again = watch.on_said(message).unwrap_or_else(|what| panic!("{what}"));
            self.stats(|it| it.asked_again += u64::from(is_again));
        }
        self.wire.borrow_mut().messages.extend(messages);
    }

    /// Waits on behalf of the program.
    pub(super) async fn wait(&self, wait: &Wait) {
        let mut begun = None;
        poll_fn(|_| {
            let mut session = self.session.borrow_mut();
            let session = &mut *session;
            let is_waiting = session.client.is_waiting(wait);
            match begun {
                None if is_waiting => {
                    session.client.begin_wait(wait);
                    session.sender_until = None;
                    session.wait_count += 1;
                    session.waits.insert(session.wait_count, wait.clone());
                    begun = Some(session.wait_count);
                    Poll::Pending
                }
                Some(_) if is_waiting => Poll::Pending,
                _ => {
                    if let Some(number) = begun {
                        session.client.end_wait(wait);
                        session.waits.remove(&number);
                    }
                    Poll::Ready(())
                }
            }
        })
        .await;
        if is_final(wait) {
            self.over.borrow_mut().push(wait.clone());
        }
    }

    /// Checks that waits that ended are over still.
    pub(super) fn check_waits(&self) -> Checked {
        let session = self.session.borrow();
        let mut over = self.over.borrow_mut();
        let keep_from = over.len().saturating_sub(16);
        over.drain(..keep_from);
        match over.iter().find(|wait| session.client.is_waiting(wait)) {
            Some(wait) => Err(format!("a wait of {} begins again: {wait:?}", self.process)),
            None => Ok(()),
        }
    }

    /// The waits that calls began and did not end.
    pub(super) fn waits(&self) -> Vec<Wait> {
        self.session.borrow().waits.values().cloned().collect()
    }

    pub(super) fn add_tail(&self, tail: &Rc<FileTail>) {
        let mut tails = self.tails.borrow_mut();
        tails.retain(|tail| tail.strong_count() > 0);
        tails.push(Rc::downgrade(tail));
    }

    pub(super) fn tails(&self) -> Vec<Rc<FileTail>> {
        self.tails.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets the buffer of a file be sent, if there is one.
    pub(super) fn seal(&self, tail: &mut OwnTail) {
        if tail.is_filling() {
            self.event(|client, now| tail.seal(client, now));
        }
    }

    /// Lets the buffers of files be sent that no thread is filling. Returns whether these are all.
    pub(super) fn seal_tails(&self) -> bool {
        let mut is_all = true;
        for tail in self.tails() {
            match tail.try_lock() {
                Some(_guard) => self.seal(&mut tail.tail.borrow_mut()),
                None => is_all = false,
            }
        }
        is_all
    }

    /// A step of the sending thread. Returns whether it did something.
    pub(super) fn send(&self) -> Checked<bool> {
        let now = self.shared.now();
        {
            let mut session = self.session.borrow_mut();
            if session.client.loss().is_some() || session.sender_until.is_some_and(|it| now < it) {
                return Ok(false);
            }
            session.sender_until = None;
        }
        self.say_all();
        if let Some(next) = self.next_frame()? {
            self.send_one(&next)?;
            drop(next);
            self.event(|_, _| ());
            return Ok(true);
        }
        if self.event(OwnClient::take_tails_due) {
            self.seal_tails();
            return Ok(true);
        }
        let mut session = self.session.borrow_mut();
        if !session.client.has_messages() {
            session.sender_until = Some(session.client.next_timeout(now));
        }
        Ok(false)
    }

    fn next_frame(&self) -> Checked<Option<Next<WriteBuffer, About>>> {
        let now = self.shared.now();
        let session = &mut *self.session.borrow_mut();
        let has_frame = session.client.has_frame(now);
        let next = session.client.next_frame(now);
        if has_frame != next.is_some() {
            return Err(format!("client {}: a frame is {has_frame}", self.process));
        }
        match next.is_none() || !self.watch.borrow().is_away() {
            true => Ok(next),
            false => Err(format!("client {} is away, and sends a frame", self.process)),
        }
    }

    fn send_one(&self, next: &Next<WriteBuffer, About>) -> Checked {
        let Next { number, of, about, place, is_last_grant } = next;
        let length = about.length;
        let stamps = match place {
            Place::Memory(it) | Place::Staging(it) => it.content[..length as usize].to_vec(),
            Place::Staged(slot) => {
                self.stats(|it| it.sent_from_disk += 1);
                self.disk.borrow().take(*slot, length)?
            }
        };
        self.trace(|| format!("sends frame {number} {of:?} {stamps:?}"));
        let block = Block { entry: of.entry(), offset: about.position, length };
        let row = Row { block, is_whole: false, checksum: 0 };
        let sent = (&stamps[..], *is_last_grant);
        let is_once_more = self.watch.borrow_mut().on_frame(*number, row, sent)?;
        self.stats(|it| it.once_more += u64::from(is_once_more));
        let header = header(length, *number, *is_last_grant);
        self.wire.borrow_mut().frames.push_back(SentFrame { header, row, stamps });
        Ok(())
    }

    /// A message arrives.
    pub(super) fn hear(&self) -> Checked<bool> {
        let Some(said) = self.wire.borrow_mut().replies.pop_front() else { return Ok(false) };
        let message = &said.message;
        self.trace(|| format!("hears {message:?}"));
        self.watch.borrow_mut().on_message(&said, self.shared.now())?;
        match message {
            ToClient::Recall(_) => self.stats(|it| it.recalled += 1),
            ToClient::Again(_) => self.stats(|it| it.refused += 1),
            ToClient::Resumed { .. } => self.stats(|it| it.resumed += 1),
            ToClient::Written(written) => check_written(written)?,
            _ => {}
        }
        let is_fatal = matches!(message, ToClient::Fatal(_));
        let staged = match self.event(|client, now| client.on_message(said.message, now)) {
            Err(why) if is_fatal => {
                self.lose(&why);
                return Ok(true);
            }
            heard => heard?,
        };
        if !staged.is_empty() {
            let ids: Vec<_> = staged.iter().map(|(id, _)| *id).collect();
            self.disk.borrow_mut().on_gone(&ids)?;
            self.event(|client, _| client.free(&staged));
        }
        Ok(true)
    }

    /// Bytes arrive that were read.
    pub(super) fn receive(&self) -> Checked<bool> {
        if self.wire.borrow().bytes.is_empty() || !self.for_reading.has_free() {
            return Ok(false);
        }
        let Some(read) = self.wire.borrow_mut().bytes.pop_front() else { return Ok(false) };
        let ReadBytes { request, first, length, found } = read;
        self.trace(|| format!("receives bytes of {request}: {length} from {first}"));
        let block = Block { entry: lads_core::units::EntryId(request), offset: first, length };
        let row = Row { block, is_whole: false, checksum: 0 };
        self.event(|client, _| client.on_head(&header(length, 0, false), &[row]))?;
        let place = self.session.borrow().client.place_of(request);
        let at = |position: u64| place + usize::try_from(position - first).expect("in a chunk");
        let content = found.into_iter().map(|(position, stamp)| (at(position), stamp)).collect();
        let buffer = self.for_reading.take(content).ok_or("no buffer for what was read")?;
        let (bytes, part) = (ReadBuffer::new(buffer), place..place + length as usize);
        self.event(|client, now| client.on_bytes(request, bytes, part, now));
        Ok(true)
    }

    /// Looks whether the server lives, if it is time to do that.
    pub(super) fn look(&self) -> Checked {
        let now = self.shared.now();
        {
            let mut session = self.session.borrow_mut();
            if session.client.loss().is_some() || now < session.looked_at + LOOK_INTERVAL {
                return Ok(());
            }
            session.looked_at = now;
        }
        let Some(trouble) = self.event(OwnClient::look) else { return Ok(()) };
        self.watch.borrow().check(&trouble, now)?;
        let is_stall = watch::is_stall(&trouble);
        self.stats(|it| if is_stall { it.stalls += 1 } else { it.timeouts += 1 });
        match trouble {
            Trouble::Broken(why) => self.break_off(&why),
            Trouble::Lost(why) => self.lose(&why),
        }
        Ok(())
    }

    /// The connection is there, for the first time or again.
    pub(super) fn on_connected(&self) -> Checked {
        let greeting = self.event(|client, _| client.greeting());
        self.watch.borrow_mut().on_connected(&greeting, self.shared.now())?;
        self.trace(|| format!("connects: {greeting:?}"));
        self.wire.borrow_mut().messages.push_back(greeting);
        self.event(OwnClient::on_connected);
        self.say_all();
        Ok(())
    }

    /// The connection is broken. If the client cannot connect again, it is lost.
    pub(super) fn break_off(&self, why: &str) {
        self.trace(|| format!("has no connection any more: {why}"));
        self.forget_answers();
        if self.event(|client, now| client.on_broken(why, now)) {
            self.stats(|it| it.broken += 1);
            self.watch.borrow_mut().on_broken(self.shared.now());
        } else {
            self.lose(why);
        }
    }

    /// Reports whether the connection is broken, and there is no new one.
    pub(super) fn is_down(&self) -> bool {
        self.watch.borrow().is_down && !self.is_lost()
    }

    /// Reports whether the connection is broken, and the server has not said what it has.
    pub(super) fn is_away(&self) -> bool {
        self.watch.borrow().is_away()
    }

    /// Reports whether the client was away and has lost nothing.
    pub(super) fn has_returned(&self) -> bool {
        self.watch.borrow().has_returned
    }

    /// Nothing arrives of what is in flight to the client.
    pub(super) fn forget_answers(&self) {
        let mut wire = self.wire.borrow_mut();
        wire.replies.clear();
        wire.bytes.clear();
    }

    /// Says the last word to the server. Returns whether there was one.
    pub(super) fn say_farewell(&self) -> bool {
        let farewell = self.event(|client, _| client.farewell());
        let is_said = farewell.is_some();
        self.trace(|| format!("says {farewell:?}"));
        self.wire.borrow_mut().messages.extend(farewell);
        is_said
    }

    /// The connection is lost.
    pub(super) fn lose(&self, why: &str) {
        self.trace(|| format!("loses the connection: {why}"));
        self.forget_answers();
        let loss = Loss { errno: 104, text: why.to_owned() };
        self.event(|client, _| client.on_lost(loss));
        self.seal_tails();
    }
}

/// Only storage that fails is a reason not to write a frame.
fn check_written(written: &[Written]) -> Checked {
    let is_other = |failure: Failure| failure.errno != EIO;
    match written.iter().any(|it| it.failure.is_some_and(is_other)) {
        true => Err(format!("the server refuses frames: {written:?}")),
        false => Ok(()),
    }
}

pub(super) fn header(payload_bytes: u32, number: u64, is_last_grant: bool) -> Header {
    Header {
        count: 1,
        payload_bytes,
        table_crc: 0,
        number,
        sink_ost: OstId(0),
        is_last_grant,
        has_only_sums: false,
    }
}
