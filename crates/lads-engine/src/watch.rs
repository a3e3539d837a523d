//! The thread that watches an end: shows what happens, notices silence, and sees when the end is
//! over.

use crate::board::{Board, OWN_MAX, lock};
use crate::clock::{Clock, TICK};
use crate::closing::{Closing, STOP_DEADLINE};
use crate::control::{MessageReader, NotedWriter, write_message};
use crate::end::spawn_for;
use crate::end::{End, Talks};
use crate::event::{ExitCode, Happening, Observer, Progress, Report};
use crate::fatal::Fatal;
use crate::hub::Wakes as _;
use crate::launch::Connected;
use crate::stall::Stall;
use crate::stop::StopFlag;
use crate::talk::{listen, speak};
use crate::transport::Channel;
use lads_core::absence::{ABSENCE_MIN, Presence};
use lads_core::bottleneck::Bottlenecks;
use lads_core::gate::Reader as NewsReader;
use lads_core::issue::Side;
use lads_core::message::{Message, OstBytes};
use lads_core::pauses::Pauses;
use lads_core::source::Note;
use lads_core::units::Instant;
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often progress is shown.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// How often the counters of OSTs are shown.
const OSTS_INTERVAL: Duration = Duration::from_secs(1);
/// The part of the message that says what a stopped transfer leaves behind.
const KEPT: &str = "; unfinished files stay at the target (.lads-*.part, with a .lads-*.journal), \
                    and the same command resumes";

/// How long to wait for the last messages of an end that is gone.
const LAST_WORDS_DEADLINE: Duration = Duration::from_millis(100);
/// The longest pause between looks whether they have come.
const LAST_WORDS_INTERVAL: Duration = Duration::from_millis(1);

/// The threads that talk to the other end.
pub(crate) struct Talk {
    /// `None` if it could not be started; then the transfer ends.
    speaker: Option<JoinHandle<()>>,
    /// The same.
    listener: Option<JoinHandle<()>>,
    /// Why the other end was lost, if it was.
    lost: Arc<Mutex<Option<Fatal>>>,
}

/// What the thread that watches an end needs.
pub(crate) struct Watch<'a, 'o> {
    pub(crate) board: Arc<Board>,
    pub(crate) clock: Clock,
    pub(crate) stop: &'a StopFlag,
    /// Whether the sink keeps what it gets.
    pub(crate) keeps_data: bool,
    /// Set at the end that a user started.
    pub(crate) observer: Option<&'a mut (dyn Observer + 'o)>,
}

impl Watch<'_, '_> {
    /// Called when this end cannot even begin: tells the other end so.
    pub(crate) fn refuse(mut self, fatal: Fatal, mut connected: Connected) -> Report {
        if self.observer.is_some() {
            self.show();
        } else {
            self.board.take_messages().iter().for_each(|message| connected.say(message));
        }
        connected.say(&Message::Fatal { code: fatal.code as u8, text: fatal.text.clone() });
        connected.close(&Closing::new(self.stop), || ());
        let aftermath = match fatal.code {
            ExitCode::Interrupted => format!(", {}", fatal.text),
            _ => String::new(),
        };
        self.report(Progress::default(), Some(fatal), false, &aftermath)
    }

    /// Starts the threads that talk to the other end.
    pub(crate) fn begin_talk<E: End>(&self, end: &Arc<E>, connected: &mut Connected) -> Talk {
        let Channel { input, output } = connected.take_control();
        let lost = Arc::new(Mutex::new(None));
        // Opening this end may have taken long; the time of silence counts from now on.
        self.board.on_listening(self.clock.now());
        let speaker = self.spawn_speaker(end, output, connected.options.timeout_seconds);
        let listener = self.spawn_listener(end, input, Arc::clone(&lost), connected);
        Talk { speaker, listener, lost }
    }

    /// Runs an end until its session is over, or it cannot go on.
    pub(crate) fn over<E: End>(
        mut self,
        end: &Arc<E>,
        threads: &Mutex<Vec<JoinHandle<()>>>,
        mut connected: Connected,
        talk: &Talk,
    ) -> Report {
        let Talk { speaker, listener, lost } = talk;
        // The other end knows that nothing has happened yet.
        let last = self.observer.is_none().then(|| self.clock.now());
        let mut pace = Pacer { last, ..Pacer::default() };
        self.watch_until_over(end, lost, &mut pace, &connected);
        let closing = Closing::new(self.stop);
        let (fatal, is_finished) =
            end.hub().with(|inner| (inner.fatal.clone(), inner.session.is_finished()));
        let is_at_rest = end.hub().with(|inner| inner.session.is_over());
        let loss = lock(lost).take();
        let is_lost = loss.is_some();
        let fatal = fatal.or(loss);
        if self.observer.is_none() {
            self.show_or_send(end);
            // The FINISHED of a sink has the counters.
            if E::SIDE == Side::Source || !is_finished {
                let counters = end.counters();
                end.hub().with(|inner| inner.messages.push_back(Message::Progress(counters)));
            }
        }
        end.hub().finish();
        let timeout = Duration::from_secs(connected.options.timeout_seconds.into());
        let has_spoken = || speaker.as_ref().is_some_and(|speaker| closing.wait_for(speaker));
        if self.is_peer_dead(timeout) || !has_spoken() {
            // Nobody reads what the speaker writes, so it may never end; nor may the other end.
            connected.kill();
        }
        end.hub().end_streams();
        connected.close(&closing, || self.show_or_send(end));
        if self.observer.is_some() {
            // Its last messages may still be in the pipe.
            listener.iter().for_each(wait_briefly);
        }
        self.board.close();
        // The process that serves an end ends now, and its threads with it.
        if fatal.is_none() && (self.observer.is_some() || !is_finished) {
            // So that their resources are released. A thread that hangs in a call is abandoned.
            for thread in std::mem::take(&mut *lock(threads)) {
                closing.wait_for(&thread);
            }
        }
        let mut aftermath = self
            .not_waited_for(end, is_at_rest, is_lost, &connected)
            .map(|it| format!(", not waiting: {it}"));
        if !connected.options.dry_run && self.keeps_data {
            aftermath.get_or_insert_default().push_str(KEPT);
        }
        let aftermath = aftermath.unwrap_or_default();
        self.show_or_send(end);
        let mut progress = self.progress(end, &mut pace);
        let (source, sink) = match E::SIDE {
            Side::Source => (&progress.source, &progress.sink),
            Side::Sink => (&progress.sink, &progress.source),
        };
        progress.bottleneck = pace.bottlenecks.of_all(self.clock.now(), source, sink);
        let mut report = self.report(progress, fatal, is_finished, &aftermath);
        report.protection = connected.protection;
        report
    }

    /// Looks repeatedly until this end is over.
    fn watch_until_over<E: End>(
        &mut self,
        end: &Arc<E>,
        lost: &Mutex<Option<Fatal>>,
        pace: &mut Pacer,
        connected: &Connected,
    ) {
        let timeout = Duration::from_secs(connected.options.timeout_seconds.into());
        let mut stall = Stall::new(&connected.options, self.clock.now());
        let mut stopping_since = None;
        let mut presence = Presence::begin(self.clock.now(), TICK);
        let mut has_told = false;
        let mut signs_of_life = 0;
        while !self.look(end, lost, &mut stopping_since) {
            self.tell_what_hangs(end, &mut has_told);
            if self.has_reader(end) {
                self.show_or_send(end);
            }
            self.tell_progress(end, pace);
            self.tell_osts(end, pace);
            let now = self.clock.now();
            self.note_absence(&mut presence, now, timeout);
            if self.observer.is_none()
                && self.board.silence(now).max(self.board.unread(now)) > ABSENCE_MIN
                && is_parent_stopped()
            {
                self.board.on_absence(now, false);
                stall.pause(now);
            }
            let signs = end.hub().signs_of_life();
            if std::mem::replace(&mut signs_of_life, signs) != signs {
                self.board.on_sign_of_life(now);
            }
            self.check_peer(end, now, timeout, connected);
            if let Some(still) = stall.look(now, end.hub().moves()) {
                end.hub().fail(self.stalled(end, still, connected));
            }
            end.tend_streams(now, timeout);
            end.hub().watch_for(TICK);
        }
        // Another thread may have noticed first that the other end has given up.
        self.note_absence(&mut presence, self.clock.now(), timeout);
        self.tell_what_hangs(end, &mut has_told);
    }

    /// Looks whether this process was stopped since the last look.
    fn note_absence(&self, presence: &mut Presence, now: Instant, timeout: Duration) {
        let away = presence.look(now);
        if !away.is_zero() {
            // The other end expects a heartbeat in each sixth of the timeout.
            self.board.on_absence(now, away > timeout - timeout / 6);
        }
    }

    /// When everything is to stop, the end without a user reports once which of its calls do not
    /// return.
    fn tell_what_hangs<E: End>(&self, end: &Arc<E>, has_told: &mut bool) {
        let is_wanted = !*has_told
            && self.observer.is_none()
            && end.hub().with(|inner| inner.session.is_stopping());
        if is_wanted && let Some(what) = end.what_hangs() {
            *has_told = true;
            let host = self.board.own_name();
            self.board.notice(format!(
                "{what} (on {host}); the same command can start when that call has returned"
            ));
        }
    }

    /// What a user who asked to stop does not have to wait for, in words.
    fn not_waited_for<E: End>(
        &self,
        end: &Arc<E>,
        is_at_rest: bool,
        is_lost: bool,
        connected: &Connected,
    ) -> Option<String> {
        let (own, peer) = (end.what_hangs(), &connected.peer_host);
        let rest = (!is_at_rest && own.is_none()).then(|| match is_lost {
            true => format!("the connection to {peer} ended first"),
            false => {
                let seconds = STOP_DEADLINE.as_secs();
                format!("{peer} had not stopped after {seconds} s")
            }
        });
        own.or(rest)
    }

    /// Passes notes on, and looks whether the end is over.
    fn look<E: End>(
        &self,
        end: &Arc<E>,
        lost: &Mutex<Option<Fatal>>,
        stopping_since: &mut Option<Instant>,
    ) -> bool {
        let now = self.clock.now();
        let is_over = end.hub().with(|inner| inner.is_over || inner.session.is_over());
        let reason = match &*lock(lost) {
            Some(_) => Some("the connection to the other end is lost".to_owned()),
            None => self.stop.reason(),
        };
        if let Some(reason) = reason
            && stopping_since.is_none()
        {
            *stopping_since = Some(now);
            let _ = end.hub().with(|inner| inner.session.stop(now, &reason));
        }
        let is_late = stopping_since.is_some_and(|since| now.since(since) >= STOP_DEADLINE);
        let has_no_peer = E::WAITS_FOR_PEER && lock(lost).is_some();
        let is_last = is_over || is_late || has_no_peer;
        // Takes only as many notes as can be shown, except at the last look. The session waits
        // until its notes are taken, and the walk waits for the session.
        let count_max = if is_last { usize::MAX } else { self.board.own_room() };
        let notes = end.hub().with(|inner| {
            let notes = std::iter::from_fn(|| inner.session.next_note());
            notes.take(count_max).collect::<Vec<Note>>()
        });
        end.pass_on(notes);
        is_last
    }

    /// Whether what happened can be shown: to the user here, or to the other end if that end
    /// reads what it is sent.
    fn has_reader<E: End>(&self, end: &Arc<E>) -> bool {
        self.observer.is_some() || end.hub().with(|inner| inner.messages.len() < OWN_MAX)
    }

    /// Shows what happened to the user, if the user is at this end.
    fn show(&mut self) {
        if let Some(observer) = &mut self.observer {
            self.board.take_happenings().into_iter().for_each(|happening| observer.on(happening));
        }
    }

    /// Shows what happened to the user, or sends it to the end where the user is.
    fn show_or_send<E: End>(&mut self, end: &Arc<E>) {
        self.show();
        if self.observer.is_none() {
            let messages = self.board.take_messages();
            end.hub().with(|inner| inner.messages.extend(messages));
        }
    }

    fn tell_progress<E: End>(&mut self, end: &Arc<E>, pace: &mut Pacer) {
        let now = self.clock.now();
        if pace.last.is_some_and(|last| now.since(last) < PROGRESS_INTERVAL) {
            return;
        }
        pace.last = Some(now);
        if self.observer.is_some() {
            let mut progress = self.progress(end, pace);
            if E::SIDE == Side::Sink {
                std::mem::swap(&mut progress.source, &mut progress.sink);
            }
            if let Some(observer) = &mut self.observer {
                observer.on(Happening::Progress(Box::new(progress)));
            }
        } else {
            let counters = end.counters();
            end.hub().with(|inner| inner.push_latest(Message::Progress(counters)));
        }
    }

    fn tell_osts<E: End>(&mut self, end: &Arc<E>, pace: &mut Pacer) {
        let now = self.clock.now();
        if pace.osts_last.is_some_and(|last| now.since(last) < OSTS_INTERVAL) {
            return;
        }
        pace.osts_last = Some(now);
        let elapsed_micros = u64::try_from(now.since_start().as_micros()).unwrap_or(u64::MAX);
        let osts = OstBytes { elapsed_micros, bytes: end.ost_bytes() };
        match &mut self.observer {
            Some(observer) => observer.on(Happening::OstBytes(E::SIDE, osts)),
            None => end.hub().with(|inner| inner.push_latest(Message::OstBytes(osts))),
        }
    }

    /// The progress, with the counters of both ends.
    fn progress<E: End>(&self, end: &Arc<E>, pace: &mut Pacer) -> Progress {
        let own = end.counters();
        let peer = lock(&self.board.peer).clone();
        let (source, sink) = if E::SIDE == Side::Source { (&own, &peer) } else { (&peer, &own) };
        let now = self.clock.now();
        let bottleneck = pace.bottlenecks.lately(now, source, sink);
        let elapsed = now.since_start();
        let current = end.hub().deeds.oldest_entry().and_then(|entry| end.path_of(entry));
        Progress { elapsed, source: own, sink: peer, bottleneck, current }
    }

    /// Detects a dead peer: one that says nothing, or does not read what this end writes.
    fn check_peer<E: End>(
        &self,
        end: &Arc<E>,
        now: Instant,
        timeout: Duration,
        connected: &Connected,
    ) {
        let (peer, seconds) = (&connected.peer_host, timeout.as_secs());
        let text = if self.board.silence(now) > timeout {
            format!("no heartbeat from {peer} for {seconds} s; the same command resumes")
        } else if self.board.unread(now) > timeout {
            format!("{peer} has not read messages for {seconds} s; the same command resumes")
        } else {
            return;
        };
        end.hub().fail(Fatal::new(ExitCode::Network, text));
    }

    fn is_peer_dead(&self, timeout: Duration) -> bool {
        let now = self.clock.now();
        self.board.silence(now) > timeout || self.board.unread(now) > timeout
    }

    /// The error when nothing has moved for too long, with what is known about the reason.
    fn stalled<E: End>(&self, end: &Arc<E>, still: Duration, connected: &Connected) -> Fatal {
        let (own, peer) = (self.board.own_name(), &connected.peer_host);
        let seconds = still.as_secs();
        let why = match end.hub().busy_workers() {
            0 => format!("{own} waits for {peer}, which sends only heartbeats"),
            count => format!(
                "{count} I/O threads of {own} wait for storage or to send, and {peer} sends only \
                 heartbeats"
            ),
        };
        let text = format!(
            "no progress for {seconds} s: {why}; the same command resumes (--stall-timeout SECONDS \
             waits longer)"
        );
        Fatal::new(ExitCode::Network, text)
    }

    fn spawn_speaker<E: End>(
        &self,
        end: &Arc<E>,
        writer: Box<dyn Write + Send>,
        timeout_seconds: u32,
    ) -> Option<JoinHandle<()>> {
        let interval = Duration::from_secs(timeout_seconds.into()) / 6;
        let told = self.observer.is_none().then(|| Arc::clone(&self.board));
        let (board, clock) = (Arc::clone(&self.board), self.clock);
        let ours = Arc::new(Mutex::new(Some(NotedWriter { to: writer, board, clock })));
        let theirs = Arc::clone(&ours);
        let speaker = spawn_for(end, "speak", move |end| {
            if let Some(mut writer) = lock(&theirs).take() {
                speak(end.as_ref(), &mut writer, interval, told.as_deref());
            }
        });
        if speaker.is_none()
            && let Some(mut writer) = lock(&ours).take()
            && let Some(Fatal { code, text, .. }) = end.hub().with(|inner| inner.fatal.clone())
        {
            // Without this, the other end would report a lost connection. The message is shorter
            // than the buffer of a pipe.
            let _ = write_message(&mut writer, &Message::Fatal { code: code as u8, text });
        }
        speaker
    }

    fn spawn_listener<E: End>(
        &self,
        end: &Arc<E>,
        input: Box<dyn Read + Send>,
        lost: Arc<Mutex<Option<Fatal>>>,
        connected: &Connected,
    ) -> Option<JoinHandle<()>> {
        let (board, clock) = (Arc::clone(&self.board), self.clock);
        let (peer_host, compares) = (connected.peer_host.clone(), connected.options.check);
        let news = match self.observer.is_some() {
            true if compares && E::SIDE == Side::Source => NewsReader::PersonWhoCompares,
            true => NewsReader::Person,
            false => NewsReader::Nobody,
        };
        let mut reader = MessageReader::new(input);
        spawn_for(end, "listen", move |end| {
            if let Err(fatal) = listen(end.as_ref(), &mut reader, &board, clock, &peer_host, news) {
                // What the sink has written goes on record, also if the source says why it ends.
                lock(&lost).get_or_insert(fatal);
            }
            end.hub().nudge();
        })
    }

    fn report(
        &self,
        progress: Progress,
        fatal: Option<Fatal>,
        is_finished: bool,
        aftermath: &str,
    ) -> Report {
        let (code, issue_count) = self.board.exit_code();
        let stopped = || match self.stop.reason() {
            Some(reason) => (ExitCode::Interrupted, format!("stopped ({reason}){aftermath}")),
            None if code == ExitCode::SinkRefuses => (code, "stopped: the sink is full".to_owned()),
            None => (ExitCode::Interrupted, "stopped by the other end".to_owned()),
        };
        let (exit_code, message) = match fatal {
            Some(_) if self.stop.is_set() => {
                let (code, text) = stopped();
                (code, Some(text))
            }
            Some(fatal) => (fatal.code, Some(fatal.text)),
            None if is_finished && code == ExitCode::Ok && progress.has_lost_metadata() => {
                (ExitCode::Reduced, None)
            }
            None if is_finished => (code, None),
            None => {
                let (code, text) = stopped();
                (code, Some(text))
            }
        };
        Report {
            exit_code,
            message,
            progress,
            issue_count,
            protection: None,
            is_port_blocked: false,
            attempt_count: 1,
        }
    }
}

/// Reports whether the process that started this one is stopped. On one host, that is the end that
/// the user started: Ctrl-Z stops its process group, and this end has a group of its own.
fn is_parent_stopped() -> bool {
    let Some(parent) = rustix::process::getppid() else { return false };
    let path = format!("/proc/{}/stat", parent.as_raw_nonzero());
    // The state follows the name, which may contain parentheses.
    let stat = std::fs::read_to_string(path).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// Waits for a thread to end, for a short time.
fn wait_briefly(thread: &JoinHandle<()>) {
    let until = std::time::Instant::now() + LAST_WORDS_DEADLINE;
    let mut pauses = Pauses::up_to(LAST_WORDS_INTERVAL);
    while !thread.is_finished() && std::time::Instant::now() < until {
        std::thread::sleep(pauses.next_pause());
    }
}

/// When progress was last shown.
#[derive(Debug, Default)]
struct Pacer {
    last: Option<Instant>,
    osts_last: Option<Instant>,
    bottlenecks: Bottlenecks,
}
