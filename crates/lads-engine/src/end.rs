//! What both kinds of end can be asked and told by the threads that talk and watch.

use crate::board::lock;
use crate::hub::{Fatal, Hub, Wakes};
use crate::sink::SinkEnd;
use crate::source::SourceEnd;
use crate::usage;
use lads_core::issue::Side;
use lads_core::message::{Counters, Message};
use lads_core::sink::{Event as SinkEvent, Sink};
use lads_core::source::{Event as SourceEvent, Note, ProtocolError, Source};
use lads_core::units::{EntryId, Instant};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// One end of a transfer.
pub(crate) trait End: Send + Sync + 'static {
    type Session: Talks + Send + 'static;
    /// Which end it is.
    const SIDE: Side;
    /// Whether it has nothing left to do once the other end is gone.
    const WAITS_FOR_PEER: bool;

    /// Starts its threads.
    fn start(end: &Arc<Self>) -> Vec<JoinHandle<()>>;
    fn hub(&self) -> &Hub<Self::Session>;
    /// What the engine needs of a message that was checked, before the session acts on it.
    fn before(&self, message: &Message) -> Result<(), Fatal>;
    /// This end's count, with what the process used.
    fn counters(&self) -> Counters;
    /// The path below the root of an entry that has not ended.
    fn path_of(&self, entry: EntryId) -> Option<Vec<u8>>;
    /// Bytes that each OST of this end has served.
    fn ost_bytes(&self) -> Vec<u64>;
    /// Passes on what became of entries.
    fn pass_on(&self, notes: Vec<Note>);
    /// The other end has sent this many frames on each stream.
    fn on_frames(&self, counts: &[u64]);
    /// Sees, many times within a timeout, that no stream stands still unnoticed.
    fn tend_streams(&self, now: Instant, timeout: Duration);
}

/// The part of a session that is the same at both ends.
pub(crate) trait Talks: Wakes {
    /// Whether the other end may say this now.
    fn check(&self, message: &Message) -> Result<(), ProtocolError>;
    fn take_message(&mut self, now: Instant, message: Message) -> Result<(), ProtocolError>;
    fn next_message(&mut self) -> Option<Message>;
    fn next_note(&mut self) -> Option<Note>;
    fn stop(&mut self, now: Instant, reason: &str) -> Result<(), ProtocolError>;
    /// Whether it was told to stop, and has not said that all is done.
    fn is_stopping(&self) -> bool;
    fn is_over(&self) -> bool;
    fn is_finished(&self) -> bool;
}

impl Wakes for Source {
    fn may_have_task(&self) -> bool {
        self.may_have_task()
    }

    fn has_message(&self) -> bool {
        self.has_message()
    }

    fn wants_entries(&self) -> bool {
        self.wants_entries()
    }
}

impl Wakes for Sink {
    fn may_have_task(&self) -> bool {
        self.may_have_task()
    }

    fn has_message(&self) -> bool {
        self.has_message()
    }

    /// Here, the thread that removes what the source does not have.
    fn wants_entries(&self) -> bool {
        self.wants_removal()
    }
}

impl Talks for Source {
    fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        self.check(message)
    }

    fn take_message(&mut self, now: Instant, message: Message) -> Result<(), ProtocolError> {
        self.handle(now, SourceEvent::Message(message))
    }

    fn next_message(&mut self) -> Option<Message> {
        self.next_message()
    }

    fn next_note(&mut self) -> Option<Note> {
        self.next_note()
    }

    fn stop(&mut self, now: Instant, reason: &str) -> Result<(), ProtocolError> {
        self.handle(now, SourceEvent::Stop(reason.to_owned()))
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping()
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}

impl Talks for Sink {
    fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        self.check(message)
    }

    fn take_message(&mut self, now: Instant, message: Message) -> Result<(), ProtocolError> {
        self.handle(now, SinkEvent::Message(message))
    }

    fn next_message(&mut self) -> Option<Message> {
        self.next_message()
    }

    fn next_note(&mut self) -> Option<Note> {
        None
    }

    fn stop(&mut self, now: Instant, _reason: &str) -> Result<(), ProtocolError> {
        self.handle(now, SinkEvent::Stop)
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping()
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}

impl End for SourceEnd {
    type Session = Source;
    const SIDE: Side = Side::Source;
    const WAITS_FOR_PEER: bool = true;

    fn start(end: &Arc<Self>) -> Vec<JoinHandle<()>> {
        end.start()
    }

    fn hub(&self) -> &Hub<Source> {
        &self.hub
    }

    fn before(&self, _message: &Message) -> Result<(), Fatal> {
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.hub.with(|inner| {
            let session = &inner.session;
            usage::complete(session.counters(), &self.osts, session.ost_stats(), &self.streams)
        })
    }

    fn path_of(&self, entry: EntryId) -> Option<Vec<u8>> {
        Self::path_of(self, entry)
    }

    fn ost_bytes(&self) -> Vec<u64> {
        self.hub.with(|inner| inner.session.ost_stats().map(|stats| stats.bytes).collect())
    }

    fn pass_on(&self, notes: Vec<Note>) {
        Self::pass_on(self, notes);
    }

    fn on_frames(&self, _counts: &[u64]) {}

    fn tend_streams(&self, now: Instant, timeout: Duration) {
        let mut told = lock(&self.frames_told);
        if told.at.is_some_and(|at| now.since(at) < timeout / 6) {
            return;
        }
        told.at = Some(now);
        let counts = self.streams.frames();
        if counts != told.counts {
            told.counts.clone_from(&counts);
            self.hub.with(|inner| inner.messages.push_back(Message::Frames(counts)));
        }
    }
}

impl End for SinkEnd {
    type Session = Sink;
    const SIDE: Side = Side::Sink;
    const WAITS_FOR_PEER: bool = false;

    fn start(end: &Arc<Self>) -> Vec<JoinHandle<()>> {
        end.start()
    }

    fn hub(&self) -> &Hub<Sink> {
        &self.hub
    }

    fn before(&self, message: &Message) -> Result<(), Fatal> {
        Self::before(self, message)
    }

    fn counters(&self) -> Counters {
        self.hub.with(|inner| {
            let session = &inner.session;
            usage::complete(session.counters(), &self.osts, session.ost_stats(), &self.streams)
        })
    }

    fn path_of(&self, entry: EntryId) -> Option<Vec<u8>> {
        Self::path_of(self, entry)
    }

    fn ost_bytes(&self) -> Vec<u64> {
        self.hub.with(|inner| inner.session.ost_stats().map(|stats| stats.bytes).collect())
    }

    fn pass_on(&self, _notes: Vec<Note>) {}

    fn on_frames(&self, counts: &[u64]) {
        lock(&self.missing).on_frames(counts, self.streams.count());
    }

    fn tend_streams(&self, now: Instant, timeout: Duration) {
        lock(&self.missing).end_silent(&self.streams, now, timeout);
    }
}
