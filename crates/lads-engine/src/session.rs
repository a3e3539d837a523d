//! One end of a transfer, from the first message to the last: the threads that talk, and the
//! thread that watches.

use crate::clock::Clock;
use crate::control::MessageReader;
use crate::event::{Bottleneck, ExitCode, Happening, Observer, Progress, Report};
use crate::hub::{Fatal, Hub, Waiter};
use crate::job::{Job, Options};
use crate::launch::{self, Connected};
use crate::sink::SinkEnd;
use crate::source::SourceEnd;
use crate::stream::Streams;
use crate::usage;
use lads_core::issue::{Failure, Issue, Reason, Side};
use lads_core::message::{Counters, Line, Message};
use lads_core::sink::{Event as SinkEvent, Sink};
use lads_core::source::{Event as SourceEvent, Note, ProtocolError, Source};
use lads_core::units::Instant;
use lads_sys::Arena;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the watching thread looks.
const TICK: Duration = Duration::from_millis(50);
/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// After being asked to stop, an end that has not come to rest by then stops all the same: what
/// is on record is on record.
const STOP_DEADLINE: Duration = Duration::from_secs(4);
/// Messages gathered for one write, in bytes.
const WRITE_BYTES: usize = 64 << 10;

/// Tells a running transfer to stop, from another thread or a signal handler's thread.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    reason: Arc<Mutex<Option<String>>>,
}

impl StopFlag {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the transfer to stop in a state from which the same command goes on.
    pub fn set(&self, reason: &str) {
        self.lock().get_or_insert_with(|| reason.to_owned());
    }

    /// Whether it was asked to.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.lock().is_some()
    }

    fn reason(&self) -> Option<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an end is made with.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) streams: Arc<Streams>,
    pub(crate) board: Arc<Board>,
    pub(crate) clock: Clock,
}

/// What is to be shown to a person, and what the other end says of itself.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) own_host: String,
    happenings: Mutex<Vec<Happening>>,
    peer: Mutex<Counters>,
    /// When the other end was last heard, in milliseconds of the transfer's clock.
    heard_millis: AtomicU64,
    /// Failures told, by the exit code that they call for.
    failures: Mutex<HashMap<ExitCode, u64>>,
}

impl Board {
    pub(crate) fn new(own_host: String) -> Self {
        Self {
            own_host,
            happenings: Mutex::default(),
            peer: Mutex::default(),
            heard_millis: AtomicU64::new(0),
            failures: Mutex::default(),
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

    fn put(&self, happening: Happening) {
        if let Happening::Issue(issue) = &happening
            && let Some(code) = exit_code_of(&issue.failure)
        {
            *lock(&self.failures).entry(code).or_default() += 1;
        }
        lock(&self.happenings).push(happening);
    }

    fn take_happenings(&self) -> Vec<Happening> {
        std::mem::take(&mut *lock(&self.happenings))
    }

    /// The exit code that the failures call for: the most telling of them.
    fn exit_code(&self) -> (ExitCode, u64) {
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
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

/// What both kinds of end can be asked and told by the threads that talk and watch.
pub(crate) trait End: Send + Sync + 'static {
    type Session: Talks + Send + 'static;
    /// Which end it is.
    const SIDE: Side;
    /// Whether it has nothing left to do once the other end is gone.
    const WAITS_FOR_PEER: bool;

    fn hub(&self) -> &Hub<Self::Session>;
    /// What the engine needs of a message before the session sees it.
    fn before(&self, message: &Message) -> Result<(), Fatal>;
    /// This end's count, with what the process used.
    fn counters(&self) -> Counters;
    /// Passes on what became of entries.
    fn pass_on(&self, notes: Vec<Note>);
}

/// The part of a session that is the same at both ends.
pub(crate) trait Talks {
    fn take_message(&mut self, now: Instant, message: Message) -> Result<(), ProtocolError>;
    fn next_message(&mut self) -> Option<Message>;
    fn next_note(&mut self) -> Option<Note>;
    fn stop(&mut self, now: Instant, reason: &str) -> Result<(), ProtocolError>;
    fn is_over(&self) -> bool;
    fn is_finished(&self) -> bool;
}

impl Talks for Source {
    fn take_message(&mut self, _now: Instant, message: Message) -> Result<(), ProtocolError> {
        self.handle(SourceEvent::Message(message))
    }

    fn next_message(&mut self) -> Option<Message> {
        self.next_message()
    }

    fn next_note(&mut self) -> Option<Note> {
        self.next_note()
    }

    fn stop(&mut self, _now: Instant, reason: &str) -> Result<(), ProtocolError> {
        self.handle(SourceEvent::Stop(reason.to_owned()))
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }

    fn is_finished(&self) -> bool {
        self.is_finished()
    }
}

impl Talks for Sink {
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

impl End for SourceEnd {
    type Session = Source;
    const SIDE: Side = Side::Source;
    const WAITS_FOR_PEER: bool = true;

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

    fn pass_on(&self, notes: Vec<Note>) {
        Self::pass_on(self, notes);
    }
}

impl End for SinkEnd {
    type Session = Sink;
    const SIDE: Side = Side::Sink;
    const WAITS_FOR_PEER: bool = false;

    fn hub(&self) -> &Hub<Sink> {
        &self.hub
    }

    fn before(&self, message: &Message) -> Result<(), Fatal> {
        if matches!(message, Message::NewFile(_)) && !self.is_ready() {
            return Err(Fatal::new(ExitCode::Network, "the source sent NEW_FILE before ROOTS"));
        }
        Self::before(self, message)
    }

    fn counters(&self) -> Counters {
        self.hub.with(|inner| {
            let session = &inner.session;
            usage::complete(session.counters(), &self.osts, session.ost_stats(), &self.streams)
        })
    }

    fn pass_on(&self, _notes: Vec<Note>) {}
}

/// Moves data; returns when it is durable at the sink, or cannot be moved, or `stop` was set.
pub fn run(job: &Job, stop: &StopFlag, observer: &mut dyn Observer) -> Report {
    let clock = Clock::start();
    match launch::start(job, stop) {
        Ok(connected) => {
            let pushes = connected.own_side == Side::Source;
            let mut report = drive(connected, clock, stop, Some(observer));
            if !pushes {
                let progress = &mut report.progress;
                std::mem::swap(&mut progress.source, &mut progress.sink);
            }
            report
        }
        Err(fatal) => Report {
            exit_code: fatal.code,
            message: Some(fatal.text),
            progress: Progress { elapsed: clock.now().since_start(), ..Progress::default() },
            issue_count: 0,
            is_clear: false,
        },
    }
}

/// The other end: speaks on standard input and output until the transfer is over.
pub fn serve() -> ExitCode {
    let clock = Clock::start();
    match launch::answer(std::io::stdin(), std::io::stdout()) {
        Ok(connected) => drive(connected, clock, &StopFlag::new(), None).exit_code,
        // The reason was told to the other end.
        Err(fatal) => fatal.code,
    }
}

fn drive(
    connected: Connected,
    clock: Clock,
    stop: &StopFlag,
    observer: Option<&mut dyn Observer>,
) -> Report {
    let Connected { streams, options, paths, own_side, job_key, .. } = &connected;
    let streams = Arc::new(Streams::new(
        streams.iter().filter_map(|socket| socket.try_clone().ok()).collect(),
    ));
    let board = Arc::new(Board::new(connected.own_host.clone()));
    board.heard_millis.store(millis(clock.now()), Ordering::Relaxed);
    let setup = Setup {
        options: options.clone(),
        streams: Arc::clone(&streams),
        board: Arc::clone(&board),
        clock,
    };
    let watch = Watch { board: Arc::clone(&board), clock, stop, observer };
    match own_side {
        Side::Source => match SourceEnd::open(paths, setup) {
            Ok(end) => watch.over(&end, end.start(), connected),
            Err(fatal) => watch.refuse(fatal, connected),
        },
        Side::Sink => {
            let target = paths.first().cloned().unwrap_or_default();
            match SinkEnd::open(target, *job_key, setup) {
                Ok(end) => watch.over(&end, end.start(), connected),
                Err(fatal) => watch.refuse(fatal, connected),
            }
        }
    }
}

/// What the thread that watches an end needs.
struct Watch<'a, 'o> {
    board: Arc<Board>,
    clock: Clock,
    stop: &'a StopFlag,
    /// Set at the end that a person started.
    observer: Option<&'a mut (dyn Observer + 'o)>,
}

impl Watch<'_, '_> {
    /// This end cannot even begin: says so to the other.
    fn refuse(mut self, fatal: Fatal, mut connected: Connected) -> Report {
        let message = Message::Fatal { code: fatal.code as u8, text: fatal.text.clone() };
        connected.say(&message);
        self.show(None::<&Arc<SinkEnd>>);
        connected.close();
        self.report(Progress::default(), Some(fatal), false)
    }

    /// Runs an end until its session is over, or it cannot go on.
    fn over<E: End>(
        mut self,
        end: &Arc<E>,
        threads: Vec<JoinHandle<()>>,
        mut connected: Connected,
    ) -> Report {
        let (reader, writer) = connected.take_control();
        let lost = Arc::new(Mutex::new(None));
        let speaker = self.spawn_speaker(end, writer, connected.options.timeout_seconds);
        self.spawn_listener(end, reader, Arc::clone(&lost), connected.peer_host.clone());
        let timeout = Duration::from_secs(connected.options.timeout_seconds.into());
        let mut pace = Pacer::default();
        let mut stopping_since = None;
        while !self.look(end, &lost, &mut stopping_since) {
            self.show(Some(end));
            self.tell_progress(end, &mut pace);
            self.check_silence(end, timeout, &connected);
            end.hub().watch_for(TICK);
        }
        let (fatal, is_finished) =
            end.hub().with(|inner| (inner.fatal.clone(), inner.session.is_finished()));
        let fatal = fatal.or_else(|| lock(&lost).take());
        if self.observer.is_none() {
            self.show(Some(end));
            let counters = end.counters();
            end.hub().with(|inner| inner.messages.push_back(Message::Progress(counters)));
        }
        end.hub().finish();
        let _ = speaker.join();
        end.hub().end_streams();
        connected.close();
        if fatal.is_none() {
            for thread in threads {
                let _ = thread.join();
            }
        }
        self.show(Some(end));
        let progress = self.progress(end, &mut pace);
        let mut report = self.report(progress, fatal, is_finished);
        report.is_clear = connected.is_clear;
        report
    }

    /// Passes notes on and sees whether the end has come.
    fn look<E: End>(
        &self,
        end: &Arc<E>,
        lost: &Mutex<Option<Fatal>>,
        stopping_since: &mut Option<Instant>,
    ) -> bool {
        let now = self.clock.now();
        let (notes, is_over) = end.hub().with(|inner| {
            let notes: Vec<Note> = std::iter::from_fn(|| inner.session.next_note()).collect();
            (notes, inner.is_over || inner.session.is_over())
        });
        end.pass_on(notes);
        let reason = match &*lock(lost) {
            Some(_) => Some("the other end is lost".to_owned()),
            None => self.stop.reason(),
        };
        if let Some(reason) = reason
            && stopping_since.is_none()
        {
            *stopping_since = Some(now);
            let _ = end.hub().with(|inner| inner.session.stop(now, &reason));
        }
        let is_late = stopping_since.is_some_and(|since| now.since(since) > STOP_DEADLINE);
        let has_no_peer = E::WAITS_FOR_PEER && lock(lost).is_some();
        is_over || is_late || has_no_peer
    }

    /// Shows what happened to the person, or sends it to the end where the person is.
    fn show<E: End>(&mut self, end: Option<&Arc<E>>) {
        let happenings = self.board.take_happenings();
        if let Some(observer) = &mut self.observer {
            happenings.into_iter().for_each(|happening| observer.on(happening));
        } else if let Some(end) = end {
            let messages = happenings.into_iter().filter_map(message_of);
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
                observer.on(Happening::Progress(progress));
            }
        } else {
            let counters = end.counters();
            end.hub().with(|inner| inner.messages.push_back(Message::Progress(counters)));
        }
    }

    /// This end's count as `source`, the other's as `sink`.
    fn progress<E: End>(&self, end: &Arc<E>, pace: &mut Pacer) -> Progress {
        let own = end.counters();
        let peer = lock(&self.board.peer).clone();
        let (source, sink) = if E::SIDE == Side::Source { (&own, &peer) } else { (&peer, &own) };
        let bottleneck = pace.bottleneck(source, sink);
        let elapsed = self.clock.now().since_start();
        Progress { elapsed, source: own, sink: peer, bottleneck }
    }

    fn check_silence<E: End>(&self, end: &Arc<E>, timeout: Duration, connected: &Connected) {
        let heard = Duration::from_millis(self.board.heard_millis.load(Ordering::Relaxed));
        let silent = self.clock.now().since(Instant::after_start(heard));
        if silent > timeout {
            let text = format!(
                "no sign of life from {} for {} s; the same command resumes",
                connected.peer_host,
                timeout.as_secs()
            );
            end.hub().fail(Fatal::new(ExitCode::Network, text));
        }
    }

    fn spawn_speaker<E: End>(
        &self,
        end: &Arc<E>,
        mut writer: Box<dyn Write + Send>,
        timeout_seconds: u32,
    ) -> JoinHandle<()> {
        let end = Arc::clone(end);
        let interval = Duration::from_secs(timeout_seconds.into()) / 6;
        spawn("lads-speak", move || speak(end.as_ref(), &mut writer, interval))
    }

    fn spawn_listener<E: End>(
        &self,
        end: &Arc<E>,
        mut reader: MessageReader<Box<dyn Read + Send>>,
        lost: Arc<Mutex<Option<Fatal>>>,
        peer_host: String,
    ) {
        let (end, board, clock) = (Arc::clone(end), Arc::clone(&self.board), self.clock);
        spawn("lads-listen", move || {
            if let Err(fatal) = listen(end.as_ref(), &mut reader, &board, clock, &peer_host) {
                if fatal.is_from_peer {
                    end.hub().fail(fatal);
                } else {
                    lock(&lost).get_or_insert(fatal);
                }
            }
            end.hub().nudge();
        });
    }

    fn report(&self, progress: Progress, fatal: Option<Fatal>, is_finished: bool) -> Report {
        let (code, issue_count) = self.board.exit_code();
        let stopped = || match self.stop.reason() {
            Some(reason) => (ExitCode::Interrupted, format!("stopped ({reason})")),
            None if code == ExitCode::SinkRefuses => (code, "stopped: the sink is full".to_owned()),
            None => (ExitCode::Interrupted, "stopped by the other end".to_owned()),
        };
        let (exit_code, message) = match fatal {
            Some(_) if self.stop.is_set() => {
                let (code, text) = stopped();
                (code, Some(text))
            }
            Some(fatal) => (fatal.code, Some(fatal.text)),
            None if is_finished => (code, None),
            None => {
                let (code, text) = stopped();
                (code, Some(text))
            }
        };
        Report { exit_code, message, progress, issue_count, is_clear: false }
    }
}

fn message_of(happening: Happening) -> Option<Message> {
    Some(match happening {
        Happening::Line(line) => Message::Lines(vec![line]),
        Happening::Issue(issue) => Message::Issues(vec![issue]),
        Happening::Notice(text) => Message::Notice(text),
        Happening::Progress(_) => return None,
    })
}

/// When progress was last told, and what it was then.
#[derive(Debug, Default)]
struct Pacer {
    last: Option<Instant>,
    source_before: Counters,
    sink_before: Counters,
    bottleneck: Option<Bottleneck>,
}

impl Pacer {
    /// Which part holds the others up: where threads spent their time since last asked. A source
    /// whose threads mostly wait to send is held up by the network, or by a sink that writes
    /// longer than the network takes.
    fn bottleneck(&mut self, source: &Counters, sink: &Counters) -> Option<Bottleneck> {
        let since = |now: u64, before: u64| now.saturating_sub(before);
        let reading = since(source.storage_micros, self.source_before.storage_micros);
        let sending = since(source.network_micros, self.source_before.network_micros);
        let writing = since(sink.storage_micros, self.sink_before.storage_micros);
        // Too little has happened to tell: keep what was said before.
        if reading + sending + writing > 50_000 {
            self.source_before = source.clone();
            self.sink_before = sink.clone();
            self.bottleneck = Some(match (reading >= sending, writing >= sending) {
                (true, _) if reading >= writing => Bottleneck::SourceStorage,
                (_, true) => Bottleneck::SinkStorage,
                _ => Bottleneck::Network,
            });
        }
        self.bottleneck
    }
}

/// Writes what there is to say, and a heartbeat when there was nothing for a while.
fn speak<E: End>(end: &E, writer: &mut impl Write, interval: Duration) {
    let hub = end.hub();
    loop {
        let deadline = std::time::Instant::now() + interval;
        let message = hub.wait_for(Waiter::Comm, |inner| {
            let message = inner.messages.pop_front().or_else(|| inner.session.next_message());
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match message {
                Some(message) => Ok(message),
                None if left.is_zero() => Ok(Message::Heartbeat),
                None => Err(Some(left)),
            }
        });
        let is_over = message.is_none();
        if say(end, writer, message).is_err() || is_over {
            return;
        }
    }
}

/// Writes a message and what else there is to say, in one go.
fn say<E: End>(end: &E, writer: &mut impl Write, first: Option<Message>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut next = first;
    loop {
        let Some(message) = next.take().or_else(|| {
            end.hub()
                .with(|inner| inner.messages.pop_front().or_else(|| inner.session.next_message()))
        }) else {
            break;
        };
        let message = match message {
            Message::Finished(_) => Message::Finished(end.counters()),
            message => message,
        };
        lads_core::message::encode(&message, &mut bytes);
        if bytes.len() >= WRITE_BYTES {
            writer.write_all(&bytes)?;
            bytes.clear();
        }
    }
    let fatal = end.hub().with(|inner| inner.fatal.clone());
    if let Some(fatal) = fatal.filter(|fatal| !fatal.is_from_peer) {
        let message = Message::Fatal { code: fatal.code as u8, text: fatal.text };
        lads_core::message::encode(&message, &mut bytes);
    }
    writer.write_all(&bytes)?;
    writer.flush()
}

/// Takes in what the other end says, until it has nothing more to say.
fn listen<E: End>(
    end: &E,
    reader: &mut MessageReader<Box<dyn Read + Send>>,
    board: &Board,
    clock: Clock,
    peer_host: &str,
) -> Result<(), Fatal> {
    while let Some(message) = reader.next()? {
        board.heard_millis.store(millis(clock.now()), Ordering::Relaxed);
        match message {
            Message::Heartbeat => continue,
            Message::Progress(counters) => {
                *lock(&board.peer) = counters;
                continue;
            }
            Message::Issues(issues) => {
                issues.into_iter().for_each(|issue| board.put(Happening::Issue(issue)));
                continue;
            }
            Message::Lines(lines) => {
                lines.into_iter().for_each(|line| board.line(line));
                continue;
            }
            Message::Notice(text) => {
                board.notice(text);
                continue;
            }
            Message::Fatal { code, text } => {
                let code = exit_code_from(code);
                return Err(Fatal { code, text, is_from_peer: true });
            }
            message => take_in(end, board, clock, message)?,
        }
    }
    if end.hub().with(|inner| inner.is_over || inner.session.is_over()) {
        return Ok(());
    }
    let text = format!("the connection to {peer_host} was closed; the same command resumes");
    Err(Fatal::new(ExitCode::Network, text))
}

fn take_in<E: End>(end: &E, board: &Board, clock: Clock, message: Message) -> Result<(), Fatal> {
    if let Err(fatal) = end.before(&message) {
        end.hub().fail(fatal);
        return Ok(());
    }
    let is_last = matches!(message, Message::Finished(_));
    if let Message::Finished(counters) = &message {
        *lock(&board.peer) = counters.clone();
    }
    if matches!(message, Message::Roots(_)) {
        return Ok(());
    }
    let now = clock.now();
    let result = end.hub().with(|inner| inner.session.take_message(now, message));
    if let Err(error) = result {
        end.hub().fail(breach(&error));
    }
    if is_last {
        end.hub().nudge();
    }
    Ok(())
}

/// The other end broke the protocol.
pub(crate) fn breach(error: &ProtocolError) -> Fatal {
    Fatal::new(ExitCode::Network, format!("the transfer cannot go on: {error}"))
}

fn exit_code_from(code: u8) -> ExitCode {
    [
        ExitCode::Usage,
        ExitCode::SourceUnreadable,
        ExitCode::Refused,
        ExitCode::Network,
        ExitCode::SinkRefuses,
        ExitCode::Mismatch,
        ExitCode::SourceChanged,
        ExitCode::Interrupted,
        ExitCode::Limit,
    ]
    .into_iter()
    .find(|known| *known as u8 == code)
    .unwrap_or(ExitCode::Other)
}

fn millis(now: Instant) -> u64 {
    u64::try_from(now.since_start().as_millis()).unwrap_or(u64::MAX)
}

/// A thread with a name that shows in `top` and in a debugger.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(512 << 10)
        .spawn(run)
        .expect("the system has room for a few more threads")
}

/// The memory for blocks that the options ask for.
pub(crate) fn arena(options: &Options) -> Result<Arena, Fatal> {
    let block_size = options.block_size as usize;
    let count = options.buffers_bytes / u64::from(options.block_size).max(1);
    let is_sound = block_size.is_multiple_of(4096) && (64 << 10..=64 << 20).contains(&block_size);
    let count = u32::try_from(count).ok().filter(|&count| count >= 2 && is_sound);
    let Some(count) = count else {
        let text = "--block-size must be a multiple of 4096 from 64 KiB to 64 MiB, and --buffers at                     least two blocks";
        return Err(Fatal::new(ExitCode::Usage, text));
    };
    Arena::new(count, block_size)
        .map_err(|error| Fatal::new(ExitCode::Other, format!("no memory for --buffers: {error}")))
}

/// How many files this process can keep open for the transfer: most of what it may have open at
/// all, after asking for as much as the system gives.
pub(crate) fn open_files_max() -> u32 {
    const WANTED: u64 = 16_384;
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let current = getrlimit(Resource::Nofile).current.unwrap_or(WANTED).min(WANTED);
    // Directories, streams and pipes take some.
    u32::try_from(current.saturating_sub(400) / 2).unwrap_or(u32::MAX).clamp(16, 4096)
}
