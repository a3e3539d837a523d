//! What source and sink have in common for the threads that talk and watch.

use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::hub::{Hub, Wakes};
use crate::thread::{NoThread, spawn};
use lads_core::issue::Side;
use lads_core::message::{Counters, Message};
use lads_core::sink::{Event as SinkEvent, Sink};
use lads_core::source::{Event as SourceEvent, Note, ProtocolError, Source};
use lads_core::units::{EntryId, Instant, StreamId};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// One end of a transfer.
pub(crate) trait End: Send + Sync + 'static {
    type Session: Talks + Send + 'static;
    /// Whether it is the source or the sink.
    const SIDE: Side;
    /// Whether it has nothing left to do when the other end has disconnected.
    const WAITS_FOR_PEER: bool;

    /// Starts its threads.
    fn start(end: &Arc<Self>) -> Vec<JoinHandle<()>>;
    /// All streams that are needed are open.
    fn on_open(&self) {}
    /// One more stream is open. Returns the thread that serves it, if one was started. A transfer
    /// goes on without it.
    fn on_more(end: &Arc<Self>, stream: StreamId) -> Option<JoinHandle<()>>;
    fn hub(&self) -> &Hub<Self::Session>;
    /// What the engine does with a checked message before the session acts on it.
    fn before(&self, message: &Message) -> Result<(), Fatal>;
    /// The counters of this end, including what the process used.
    fn counters(&self) -> Counters;
    /// The path of an entry that has not ended, below the root.
    fn path_of(&self, entry: EntryId) -> Option<Vec<u8>>;
    /// The bytes that each OST of this end has served.
    fn ost_bytes(&self) -> Vec<u64>;
    /// Passes on how entries ended.
    fn pass_on(&self, notes: Vec<Note>);
    /// The other end has sent this many frames on each stream.
    fn on_frames(&self, counts: &[u64]);
    /// Which of its calls to storage do not return, in words; `None` if all of them do.
    fn what_hangs(&self) -> Option<String> {
        self.hub().deeds.what_hangs(Self::SIDE, |entry| self.path_of(entry))
    }
    /// Ends streams on which frames are missing; called many times within a timeout.
    fn tend_streams(&self, now: Instant, timeout: Duration);
}

/// The part of a session that is the same at both ends.
pub(crate) trait Talks: Wakes {
    /// Whether the other end may send this message now.
    fn check(&self, message: &Message) -> Result<(), ProtocolError>;
    fn take_message(&mut self, now: Instant, message: Message) -> Result<(), ProtocolError>;
    fn next_message(&mut self) -> Option<Message>;
    fn next_note(&mut self) -> Option<Note>;
    fn stop(&mut self, now: Instant, reason: &str) -> Result<(), ProtocolError>;
    fn is_over(&self) -> bool;
    fn is_finished(&self) -> bool;
}

/// Starts a thread of an end. If it cannot be started, the transfer ends.
pub(crate) fn spawn_for<E: End>(
    end: &Arc<E>,
    name: &str,
    run: impl FnOnce(Arc<E>) + Send + 'static,
) -> Option<JoinHandle<()>> {
    try_to_spawn_for(end, name, run).map_err(|error| end.hub().fail(error.into())).ok()
}

/// Starts a thread of an end. If the thread panics, its work is not done any more, and its session
/// may be in a broken state: the transfer ends.
pub(crate) fn try_to_spawn_for<E: End>(
    end: &Arc<E>,
    name: &str,
    run: impl FnOnce(Arc<E>) + Send + 'static,
) -> Result<JoinHandle<()>, NoThread> {
    let (end, name) = (Arc::clone(end), format!("lads-{name}"));
    spawn(&name.clone(), move || {
        let _alarm = Alarm { end: Arc::clone(&end), name };
        end.hub().processors.pin_this_thread();
        run(end);
    })
}

/// Ends the transfer if the thread that holds it panics.
struct Alarm<E: End> {
    end: Arc<E>,
    name: String,
}

impl<E: End> Drop for Alarm<E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = format!(
                "thread {} panicked: this is a bug in LADS, please report it; the same command \
                 resumes",
                self.name
            );
            self.end.hub().fail(Fatal::new(ExitCode::Interrupted, text));
        }
    }
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

    fn is_stopping(&self) -> bool {
        self.is_stopping()
    }
}

impl Wakes for Sink {
    fn may_have_task(&self) -> bool {
        self.may_have_task()
    }

    fn has_message(&self) -> bool {
        self.has_message()
    }

    /// At the sink, this wakes the thread that removes what the source does not have.
    fn wants_entries(&self) -> bool {
        self.wants_removal()
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping()
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

    fn is_over(&self) -> bool {
        self.is_over()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}
