//! What waits to be shown to the user, and what is known of the other end from its messages.

use crate::event::{ExitCode, Happening};
use crate::job::is_daemon;
use lads_core::entry::shortened;
use lads_core::issue::{Failure, Issue, Reason, Side};
use lads_core::message::{Counters, Line, Message, OstBytes};
use lads_core::units::Instant;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most happenings of the other end that may wait to be shown, and the most bytes of text in
/// them. The watching thread shows them 20 times a second, so with half of this a transfer of
/// 100,000 small files a second could just be listed; the double only takes memory.
const TOLD_MAX: usize = 10_000;
const TOLD_BYTES_MAX: usize = 1 << 20;

/// The most happenings of this end that may wait to be shown: failed entries above all. When there
/// are more, whoever adds one waits, so that memory does not grow with the number of failures while
/// nobody reads. Every failure is still counted, shown, and written to the log. With half of this,
/// a transfer in which 200,000 files fail in a second would have to wait; the double only takes
/// memory.
pub(crate) const OWN_MAX: usize = 10_000;

/// Stands for "no time".
const NEVER: u64 = u64::MAX;

/// What waits to be shown to the user, and what is known of the other end.
#[derive(Debug)]
pub(crate) struct Board {
    /// This host, as the user calls it; empty if the user is on this host.
    own_host: String,
    /// Whether this is the end that a user started.
    pub(crate) is_persons: bool,
    happenings: Mutex<Happenings>,
    /// Notified when there is room again for happenings of the other end.
    room: Condvar,
    pub(crate) peer: Mutex<Counters>,
    /// Since when this end has listened to the other end without hearing anything, in milliseconds
    /// of the transfer's clock. [`NEVER`] while this end acts on what it heard: that may take
    /// longer than the timeout, and is not the other end's fault.
    listening_millis: AtomicU64,
    /// Since when a write has waited for the other end to read; [`NEVER`] if none waits.
    writing_millis: AtomicU64,
    /// When this process was last continued after a stop that was so long that the other end may
    /// have given up; [`NEVER`] if there was no such stop.
    continued_millis: AtomicU64,
    /// The number of failures shown, by the exit code that they lead to.
    failures: Mutex<HashMap<ExitCode, u64>>,
    /// Reason why no data connection could be opened.
    blocked: Mutex<Option<String>>,
    /// The number of differences between source and sink that were reported.
    differences: AtomicU64,
}

/// What waits to be shown.
#[derive(Debug, Default)]
struct Happenings {
    list: Vec<Happening>,
    /// How many of these are of the other end, and the bytes of text in them.
    told: usize,
    told_bytes: usize,
    /// What the OSTs of the other end have done: only the latest message is kept.
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
            continued_millis: AtomicU64::new(NEVER),
            failures: Mutex::default(),
            differences: AtomicU64::new(0),
            blocked: Mutex::default(),
        }
    }

    /// Records the reason why no data connection could be opened.
    pub(crate) fn on_blocked(&self, reason: &str) {
        *lock(&self.blocked) = Some(reason.to_owned());
    }

    /// Returns the reason why no data connection could be opened.
    pub(crate) fn blocked(&self) -> Option<String> {
        lock(&self.blocked).clone()
    }

    /// What this host is called in messages.
    pub(crate) fn own_name(&self) -> &str {
        if self.own_host.is_empty() { "this host" } else { &self.own_host }
    }

    /// `sink:host:path`, as the user sees it; without the host if the user is on it.
    pub(crate) fn place(&self, side: Side, path: &[u8]) -> String {
        let path = String::from_utf8_lossy(path);
        match self.own_host.as_str() {
            "" => format!("{}:{path}", side.word()),
            host if is_daemon(host) => format!("{}:{host}/{path}", side.word()),
            host => format!("{}:{host}:{path}", side.word()),
        }
    }

    /// From now on this end listens to the other end.
    pub(crate) fn on_listening(&self, now: Instant) {
        self.listening_millis.store(millis(now), Ordering::Relaxed);
    }

    /// The other end sent something, and this end acts on it.
    pub(crate) fn on_heard(&self) {
        self.listening_millis.store(NEVER, Ordering::Relaxed);
    }

    /// How long this end has listened without hearing from the other end.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        since(&self.listening_millis, now)
    }

    /// A write to the other end begins, or has ended (`None`).
    pub(crate) fn on_writing(&self, since: Option<Instant>) {
        self.writing_millis.store(since.map_or(NEVER, millis), Ordering::Relaxed);
    }

    /// How long the other end has not read what this end writes.
    pub(crate) fn unread(&self, now: Instant) -> Duration {
        since(&self.writing_millis, now)
    }

    /// This process was stopped for a while, and does not know what the other end did meanwhile:
    /// all times start again now. `is_long`: the other end may have given up.
    pub(crate) fn on_absence(&self, now: Instant, is_long: bool) {
        count_from(&self.listening_millis, now);
        count_from(&self.writing_millis, now);
        if is_long {
            self.continued_millis.store(millis(now), Ordering::Relaxed);
        }
    }

    /// Reports whether this process was continued less than `limit` ago, after a stop that was so
    /// long that the other end may have given up.
    pub(crate) fn was_away_lately(&self, now: Instant, limit: Duration) -> bool {
        self.continued_millis.load(Ordering::Relaxed) != NEVER
            && since(&self.continued_millis, now) <= limit
    }

    /// Something other than a message came on the connection that carries messages.
    pub(crate) fn on_sign_of_life(&self, now: Instant) {
        count_from(&self.listening_millis, now);
    }

    /// Reports to the user that the target is a file, if it is; only at the user's end, because the
    /// other end learns it from READY.
    pub(crate) fn on_ready(&self, is_renamed: bool) {
        if is_renamed && self.is_persons {
            self.put(Happening::Renamed);
        }
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

    /// As [`Self::issue`], for threads that may wait: waits until there is room.
    pub(crate) fn issue_when_room(&self, path: Vec<u8>, failure: Failure) {
        let is_full = |it: &mut Happenings| !it.is_closed && it.own_count() >= OWN_MAX;
        drop(self.room.wait_while(lock(&self.happenings), is_full));
        self.issue(path, failure);
    }

    /// How many more happenings of this end may wait to be shown.
    pub(crate) fn own_room(&self) -> usize {
        OWN_MAX.saturating_sub(lock(&self.happenings).own_count())
    }

    pub(crate) fn put(&self, happening: Happening) {
        let happening = in_short(happening);
        self.count(&happening);
        lock(&self.happenings).list.push(happening);
    }

    /// As [`Self::put`], for happenings of the other end: waits until there is room. So a flood of
    /// them waits in the control channel, and finally in the other end.
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

    /// What the OSTs of the other end have done so far.
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

    /// Nobody will show anything any more: further happenings of the other end are not kept.
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

    /// What happened at this end, as messages to the end where the user is.
    pub(crate) fn take_messages(&self) -> Vec<Message> {
        self.take_happenings().into_iter().filter_map(message_of).collect()
    }

    /// The exit code that the failures lead to (that of the most important failure), and how many
    /// there are.
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
        Happening::Progress(_)
        | Happening::OstBytes(..)
        | Happening::Renamed
        | Happening::Waiting(_)
        | Happening::Retry(_) => return None,
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn millis(time: Instant) -> u64 {
    u64::try_from(time.since_start().as_millis()).unwrap_or(NEVER - 1)
}

/// Starts the time again if one is running.
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

/// Cuts paths to the length that a system call takes. Those from the other end are short enough:
/// the gate accepts nothing longer.
fn in_short(mut happening: Happening) -> Happening {
    if let Happening::Issue(Issue { path, .. }) | Happening::Line(Line { path, .. }) =
        &mut happening
    {
        *path = shortened(std::mem::take(path));
    }
    happening
}

/// The bytes of text in a happening, as far as the other end decides their number.
fn text_bytes(happening: &Happening) -> usize {
    match happening {
        Happening::Line(line) => line.path.len(),
        Happening::Issue(issue) => issue.path.len(),
        Happening::Notice(text) => text.len(),
        Happening::Progress(_)
        | Happening::OstBytes(..)
        | Happening::Renamed
        | Happening::Waiting(_)
        | Happening::Retry(_) => 0,
    }
}

/// The exit code that the failure of one entry leads to; `None` if the failure is only worth a
/// line.
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
