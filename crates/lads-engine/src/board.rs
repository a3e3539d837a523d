//! What is to be shown to a person, and what the other end says of itself.

use crate::event::{ExitCode, Happening};
use lads_core::entry::shortened;
use lads_core::issue::{Failure, Issue, Reason, Side};
use lads_core::message::{Counters, Line, Message, OstBytes};
use lads_core::units::Instant;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// This many happenings that the other end told wait to be shown, and this many bytes of text in
/// them. The watching thread shows them 20 times a second: half of it would be the most that a
/// transfer of 100,000 small files a second can list, twice as much only takes memory.
const TOLD_MAX: usize = 10_000;
const TOLD_BYTES_MAX: usize = 1 << 20;

/// The same for what this end has to show: failed entries above all. Beyond, what makes them waits,
/// so that memory does not grow with the number of failures while nobody reads. Each is counted,
/// shown, and written into the log all the same. Half of it would hold up a transfer in which
/// 200,000 files fail in a second; twice as much only takes memory.
pub(crate) const OWN_MAX: usize = 10_000;

/// In place of a time: there is none.
const NEVER: u64 = u64::MAX;

/// What is to be shown to a person, and what the other end says of itself.
#[derive(Debug)]
pub(crate) struct Board {
    /// This host, as the person calls it; empty for the one that they are on.
    own_host: String,
    /// Whether this is the end that a person started.
    pub(crate) is_persons: bool,
    happenings: Mutex<Happenings>,
    /// Notified when there is room again for what the other end tells.
    room: Condvar,
    pub(crate) peer: Mutex<Counters>,
    /// Since when we listen and hear nothing, in milliseconds of the transfer's clock. [`NEVER`]
    /// while we do something about what was heard: that may take longer than anybody is patient,
    /// and is not the other end's fault.
    listening_millis: AtomicU64,
    /// Since when a write waits for the other end to read; [`NEVER`] if none does.
    writing_millis: AtomicU64,
    /// Failures told, by the exit code that they call for.
    failures: Mutex<HashMap<ExitCode, u64>>,
    /// How often a difference between source and sink was told.
    differences: AtomicU64,
}

/// What waits to be shown.
#[derive(Debug, Default)]
struct Happenings {
    list: Vec<Happening>,
    /// Of these, how many the other end told, and bytes of text in them.
    told: usize,
    told_bytes: usize,
    /// What the OSTs of the other end have done: only the latest is of interest.
    osts: Option<(Side, OstBytes)>,
    /// Whether nobody will show anything any more.
    is_closed: bool,
}

impl Happenings {
    fn own_count(&self) -> usize {
        self.list.len() - self.told
    }
}

impl Board {
    pub(crate) fn new(own_host: String, is_persons: bool) -> Self {
        Self {
            own_host,
            is_persons,
            happenings: Mutex::default(),
            room: Condvar::new(),
            peer: Mutex::default(),
            listening_millis: AtomicU64::new(NEVER),
            writing_millis: AtomicU64::new(NEVER),
            failures: Mutex::default(),
            differences: AtomicU64::new(0),
        }
    }

    /// What this host is called in messages.
    pub(crate) fn own_name(&self) -> &str {
        if self.own_host.is_empty() { "this host" } else { &self.own_host }
    }

    /// `sink:host:path`, as it is told to the person; without the host if they are on it.
    pub(crate) fn place(&self, side: Side, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        match self.own_host.as_str() {
            "" => format!("{}:{path}", side.word()),
            host => format!("{}:{host}:{path}", side.word()),
        }
    }

    /// From now on we listen to the other end.
    pub(crate) fn on_listening(&self, now: Instant) {
        self.listening_millis.store(millis(now), Ordering::Relaxed);
    }

    /// The other end gave a sign of life, and we do something about it.
    pub(crate) fn on_heard(&self) {
        self.listening_millis.store(NEVER, Ordering::Relaxed);
    }

    /// How long we have listened to the other end and it has given no sign of life.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        since(&self.listening_millis, now)
    }

    /// A write to the other end begins, or has ended.
    pub(crate) fn on_writing(&self, since: Option<Instant>) {
        self.writing_millis.store(since.map_or(NEVER, millis), Ordering::Relaxed);
    }

    /// How long the other end has not read what we write.
    pub(crate) fn unread(&self, now: Instant) -> Duration {
        since(&self.writing_millis, now)
    }

    /// This process was away, and knows of nothing that the other end did meanwhile: times are
    /// counted from now on.
    pub(crate) fn on_absence(&self, now: Instant) {
        count_from(&self.listening_millis, now);
        count_from(&self.writing_millis, now);
    }

    /// Something else than a message came, on the way that messages come, too.
    pub(crate) fn on_sign_of_life(&self, now: Instant) {
        count_from(&self.listening_millis, now);
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

    /// The same for whoever may wait: until there is room.
    pub(crate) fn issue_when_room(&self, path: Vec<u8>, failure: Failure) {
        let is_full = |it: &mut Happenings| !it.is_closed && it.own_count() >= OWN_MAX;
        drop(self.room.wait_while(lock(&self.happenings), is_full));
        self.issue(path, failure);
    }

    /// How much more of this end may wait to be shown, for whoever shows it.
    pub(crate) fn own_room(&self) -> usize {
        OWN_MAX.saturating_sub(lock(&self.happenings).own_count())
    }

    pub(crate) fn put(&self, happening: Happening) {
        let happening = in_short(happening);
        self.count(&happening);
        lock(&self.happenings).list.push(happening);
    }

    /// The same for what the other end tells; waits until there is room. So a flood of it waits in
    /// the control channel, and in the end where it is made.
    pub(crate) fn put_told(&self, happening: Happening) {
        let bytes = text_bytes(&happening);
        let is_full = |it: &mut Happenings| {
            !it.is_closed && (it.told >= TOLD_MAX || it.told_bytes >= TOLD_BYTES_MAX)
        };
        let waiting = self.room.wait_while(lock(&self.happenings), is_full);
        let mut happenings = waiting.unwrap_or_else(PoisonError::into_inner);
        if happenings.is_closed {
            return;
        }
        self.count(&happening);
        happenings.told += 1;
        happenings.told_bytes += bytes;
        happenings.list.push(happening);
    }

    /// What the OSTs of the other end have done.
    pub(crate) fn put_osts(&self, side: Side, osts: OstBytes) {
        lock(&self.happenings).osts = Some((side, osts));
    }

    pub(crate) fn take_happenings(&self) -> Vec<Happening> {
        let mut happenings = lock(&self.happenings);
        let mut list = std::mem::take(&mut happenings.list);
        list.extend(happenings.osts.take().map(|(side, osts)| Happening::OstBytes(side, osts)));
        (happenings.told, happenings.told_bytes) = (0, 0);
        drop(happenings);
        self.room.notify_all();
        list
    }

    /// Nobody will show anything any more: what the other end still tells is not kept.
    pub(crate) fn close(&self) {
        lock(&self.happenings).is_closed = true;
        self.room.notify_all();
    }

    fn count(&self, happening: &Happening) {
        if matches!(happening, Happening::Line(line) if line.verb.is_difference()) {
            self.differences.fetch_add(1, Ordering::Relaxed);
        }
        if let Happening::Issue(issue) = happening
            && let Some(code) = exit_code_of(&issue.failure)
        {
            *lock(&self.failures).entry(code).or_default() += 1;
        }
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
            ExitCode::Limit,
            ExitCode::Other,
        ]
        .into_iter()
        .find(|code| failures.contains_key(code));
        let all_well = match self.differences.load(Ordering::Relaxed) {
            0 => ExitCode::Ok,
            _ => ExitCode::Different,
        };
        (code.unwrap_or(all_well), failures.values().sum())
    }
}

fn message_of(happening: Happening) -> Option<Message> {
    Some(match happening {
        Happening::Line(line) => Message::Lines(vec![line]),
        Happening::Issue(issue) => Message::Issues(vec![issue]),
        Happening::Notice(text) => Message::Notice(text),
        Happening::Progress(_) | Happening::OstBytes(..) | Happening::Waiting(_) => return None,
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Instant) -> u64 {
    u64::try_from(time.since_start().as_millis()).unwrap_or(NEVER - 1)
}

/// How long ago that was; nothing if it never was.
/// What has been counted since it began is counted from now on.
fn count_from(began: &AtomicU64, now: Instant) {
    let from_now = |began| (began != NEVER).then_some(millis(now));
    let _ = began.fetch_update(Ordering::Relaxed, Ordering::Relaxed, from_now);
}

fn since(began: &AtomicU64, now: Instant) -> Duration {
    match began.load(Ordering::Relaxed) {
        NEVER => Duration::ZERO,
        began => now.since(Instant::after_start(Duration::from_millis(began))),
    }
}

/// Paths are told as far as a call would take them. What the other end tells is so already: the
/// gate takes nothing longer.
fn in_short(mut happening: Happening) -> Happening {
    if let Happening::Issue(Issue { path, .. }) | Happening::Line(Line { path, .. }) =
        &mut happening
    {
        *path = shortened(std::mem::take(path));
    }
    happening
}

/// Bytes of text in a happening that the other end can make as long as it likes.
fn text_bytes(happening: &Happening) -> usize {
    match happening {
        Happening::Line(line) => line.path.len(),
        Happening::Issue(issue) => issue.path.len(),
        Happening::Notice(text) => text.len(),
        Happening::Progress(_) | Happening::OstBytes(..) | Happening::Waiting(_) => 0,
    }
}

/// What a failure of one entry means for the whole; `None` if it is only worth a line.
fn exit_code_of(failure: &Failure) -> Option<ExitCode> {
    Some(match (failure.reason, failure.side) {
        (Reason::Special, _) => return None,
        (Reason::Changed | Reason::Vanished, _) => ExitCode::SourceChanged,
        (Reason::Checksum | Reason::Media, _) => ExitCode::Mismatch,
        (Reason::Limit, _) => ExitCode::Limit,
        (_, Side::Source) => ExitCode::SourceUnreadable,
        (_, Side::Sink) => ExitCode::SinkRefuses,
    })
}

#[cfg(test)]
mod tests;
