//! What is to be shown to a person, and what the other end says of itself.

use crate::event::{ExitCode, Happening};
use lads_core::entry::shortened;
use lads_core::issue::{Failure, Issue, Reason, Side};
use lads_core::message::{Counters, Line, Message};
use lads_core::units::Instant;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is to be shown to a person, and what the other end says of itself.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) own_host: String,
    /// Whether this is the end that a person started.
    pub(crate) is_persons: bool,
    happenings: Mutex<Vec<Happening>>,
    pub(crate) peer: Mutex<Counters>,
    /// When the other end was last heard, in milliseconds of the transfer's clock.
    heard_millis: AtomicU64,
    /// Failures told, by the exit code that they call for.
    failures: Mutex<HashMap<ExitCode, u64>>,
}

impl Board {
    pub(crate) fn new(own_host: String, is_persons: bool) -> Self {
        Self {
            own_host,
            is_persons,
            happenings: Mutex::default(),
            peer: Mutex::default(),
            heard_millis: AtomicU64::new(0),
            failures: Mutex::default(),
        }
    }

    /// The other end gave a sign of life.
    pub(crate) fn on_heard(&self, now: Instant) {
        let millis = u64::try_from(now.since_start().as_millis()).unwrap_or(u64::MAX);
        self.heard_millis.store(millis, Ordering::Relaxed);
    }

    /// How long the other end has given no sign of life.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let heard = Duration::from_millis(self.heard_millis.load(Ordering::Relaxed));
        now.since(Instant::after_start(heard))
    }

    pub(crate) fn notice(&self, text: String) {
        self.put(Happening::Notice(text));
    }

    pub(crate) fn line(&self, line: Line) {
        self.put(Happening::Line(line));
    }

    pub(crate) fn issue(&self, path: Vec<u8>, failure: Failure) {
        self.put(Happening::Issue(Issue { path, failure }));
    }

    /// Paths are told as far as a call would take them, whoever tells them.
    pub(crate) fn put(&self, mut happening: Happening) {
        if let Happening::Issue(Issue { path, .. }) | Happening::Line(Line { path, .. }) =
            &mut happening
        {
            *path = shortened(std::mem::take(path));
        }
        if let Happening::Issue(issue) = &happening
            && let Some(code) = exit_code_of(&issue.failure)
        {
            *lock(&self.failures).entry(code).or_default() += 1;
        }
        lock(&self.happenings).push(happening);
    }

    pub(crate) fn take_happenings(&self) -> Vec<Happening> {
        std::mem::take(&mut *lock(&self.happenings))
    }

    /// What happened, as it is told to the end where the person is.
    pub(crate) fn take_messages(&self) -> Vec<Message> {
        self.take_happenings().into_iter().filter_map(message_of).collect()
    }

    /// The exit code that the failures call for: the most telling of them.
    pub(crate) fn exit_code(&self) -> (ExitCode, u64) {
        let failures = lock(&self.failures);
        let code = [
            ExitCode::SinkRefuses,
            ExitCode::Mismatch,
            ExitCode::SourceChanged,
            ExitCode::SourceUnreadable,
            ExitCode::Other,
        ]
        .into_iter()
        .find(|code| failures.contains_key(code));
        (code.unwrap_or(ExitCode::Ok), failures.values().sum())
    }
}

fn message_of(happening: Happening) -> Option<Message> {
    Some(match happening {
        Happening::Line(line) => Message::Lines(vec![line]),
        Happening::Issue(issue) => Message::Issues(vec![issue]),
        Happening::Notice(text) => Message::Notice(text),
        Happening::Progress(_) | Happening::OstBytes(..) => return None,
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a failure of one entry means for the whole; `None` if it is only worth a line.
fn exit_code_of(failure: &Failure) -> Option<ExitCode> {
    Some(match (failure.reason, failure.side) {
        (Reason::Special, _) => return None,
        (Reason::Changed | Reason::Vanished, _) => ExitCode::SourceChanged,
        (Reason::Checksum | Reason::Media, _) => ExitCode::Mismatch,
        (_, Side::Source) => ExitCode::SourceUnreadable,
        (_, Side::Sink) => ExitCode::SinkRefuses,
    })
}
