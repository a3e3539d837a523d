//! A whole transfer, as the two processes that call it see it.

use crate::board::{Board, lock};
use crate::clock::Clock;
use crate::closing::Closing;
use crate::end::{End, Talks as _, spawn_for};
use crate::event::{ExitCode, Happening, Observer, Progress, Report, Retry};
use crate::expand::expand;
use crate::fatal::Fatal;
use crate::job::{Job, Tunnel, is_daemon};
use crate::launch::{self, CONTACT_DEADLINE, Connected, Opening, Terms};
use crate::patience::{Cut, Patience};
use crate::setup::Setup;
use crate::sink::SinkEnd;
use crate::source::SourceEnd;
use crate::stop::StopFlag;
use crate::stream::Streams;
use crate::thread::spawn;
use crate::watch::Watch;
use lads_core::issue::Side;
use lads_core::message::Counters;
use lads_core::retry::{Ended, Outage, Point, Retries};
use std::borrow::Cow;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time for the other end's reason if streams are refused. The other end sends the reason before it
/// closes the port, but over another connection. Half of this is two round trips over the longest
/// lines; with twice the time, the user waits for nothing.
const LAST_WORD_WAIT: Duration = Duration::from_secs(1);

/// Moves data. Returns when the data is durable at the sink, when it cannot be moved, or when
/// `stop` was set. After an outage it begins again, as often as [`Job::retry`] allows.
pub fn run(job: &Job, stop: &StopFlag, observer: &mut dyn Observer) -> Report {
    let clock = Clock::start();
    let mut retries = Retries::new(job.retry);
    let mut job = Cow::Borrowed(job);
    let hosts = job.sources.iter().chain([&job.target]).filter_map(|it| it.host.as_deref());
    if hosts.into_iter().any(is_daemon) {
        let remote = job.remote.clone().dialing(&job.program);
        job.to_mut().remote = remote;
    }
    let mut is_port_blocked = false;
    for attempt in 1.. {
        let attempt_ended = attempt_once(&job, stop, observer);
        if let Some(reason) = attempt_ended.blocked.as_ref().filter(|_| !stop.is_set())
            && job.can_tunnel()
        {
            is_port_blocked = true;
            job.to_mut().remote.tunnel = Tunnel::Always;
            let message = format!(
                "{reason}; data is sent through the connection of the remote shell, which is \
                 slower: to avoid that, open the port (--ports FIRST-LAST), let the other end \
                 connect (--connect), or name another address (--data-address)"
            );
            let wait = Duration::ZERO;
            observer.on(Happening::Retry(Retry { attempt: attempt + 1, message, wait }));
            continue;
        }
        let ended = attempt_ended.how().filter(|_| !stop.is_set() && !job.is_once());
        let next = ended.and_then(|it| retries.next_wait(clock.now(), it, fastrand::f64()));
        let message = attempt_ended.message();
        let report = Report { attempt_count: attempt, is_port_blocked, ..attempt_ended.report };
        let Some(wait) = next else {
            return match retries.alike() {
                Some(count) => Report {
                    message: Some(format!(
                        "{message}; {count} attempts in a row failed with the same error"
                    )),
                    ..report
                },
                None => report,
            };
        };
        observer.on(Happening::Retry(Retry { attempt: attempt + 1, message, wait }));
        if Patience::new(stop, Duration::MAX).pause(wait).is_err() {
            let reason = stop.reason().unwrap_or_default();
            let message = format!("stopped ({reason}) after an outage; the same command resumes");
            let message = Some(message);
            return Report { exit_code: ExitCode::Interrupted, message, ..report };
        }
    }
    unreachable!("attempts are counted until there is no other one")
}

/// The end of one attempt.
struct Attempt {
    report: Report,
    /// True if the other end was reached, or if this host failed.
    is_reached: bool,
    /// True if the other end may have given up because this process was stopped.
    was_away: bool,
    /// Reason why no data connection could be opened, if that ended the attempt.
    blocked: Option<String>,
}

impl Attempt {
    /// Returns how the attempt ended, if another one may follow.
    fn how(&self) -> Option<Ended> {
        let Counters { bytes_done, bytes_skipped, files_moved, files_skipped, .. } =
            self.report.progress.source;
        match self.report.exit_code {
            ExitCode::Network if self.was_away => Some(Ended::Absence),
            ExitCode::Network => Some(Ended::Outage(Outage {
                message: self.message(),
                is_reached: self.is_reached,
                reached: Point { files_moved, files_skipped, bytes_done, bytes_skipped },
            })),
            ExitCode::Running => Some(Ended::StillRunning),
            _ => None,
        }
    }

    /// Returns the reason for the user.
    fn message(&self) -> String {
        let message = self.report.message.clone().unwrap_or_default();
        match self.was_away {
            true => format!("this process was stopped for longer than --timeout: {message}"),
            false => message,
        }
    }
}

/// Moves data, in one attempt.
fn attempt_once(job: &Job, stop: &StopFlag, observer: &mut dyn Observer) -> Attempt {
    let clock = Clock::start();
    match launch::start(job, stop, observer) {
        Ok(connected) => {
            let pushes = connected.own_side == Side::Source;
            let keeps_data = job.target.keeps_data();
            let Driven { mut report, was_away, blocked } =
                drive(connected, clock, stop, keeps_data, Some(observer));
            if !pushes {
                let progress = &mut report.progress;
                std::mem::swap(&mut progress.source, &mut progress.sink);
            }
            Attempt { report, is_reached: true, was_away, blocked }
        }
        Err(fatal) => {
            let report = Report {
                exit_code: fatal.code,
                message: Some(fatal.text),
                progress: Progress { elapsed: clock.now().since_start(), ..Progress::default() },
                issue_count: 0,
                protection: None,
                is_port_blocked: false,
                attempt_count: 1,
            };
            Attempt {
                report,
                is_reached: fatal.is_reached,
                was_away: false,
                blocked: fatal.blocked,
            }
        }
    }
}

/// What the other end of a transfer did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// How it ended.
    pub exit_code: ExitCode,
    /// What it was told to do, if it was.
    pub job: Option<ServedJob>,
    /// What it moved.
    pub moved: Counters,
    /// Why it could not go on.
    pub message: Option<String>,
}

/// What an end was told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedJob {
    /// Its side.
    pub side: Side,
    /// Whether nothing is changed: it only compares, or lists what would be done.
    pub is_dry_run: bool,
    /// Its paths, relative to its current directory unless they are absolute.
    pub paths: Vec<Vec<u8>>,
}

/// Runs the other end: speaks on standard input and output until the transfer is over. `argument`
/// is the one that the command came with, if any.
pub fn serve(argument: Option<&str>, terms: &Terms<'_>) -> Served {
    let clock = Clock::start();
    let ended =
        |exit_code, message| Served { exit_code, job: None, moved: Counters::default(), message };
    // The handles of the standard library are not used, because they buffer bytes.
    let pipes = io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        io::stdout().as_fd().try_clone_to_owned().map(|output| (input.into(), output.into()))
    });
    // Without these pipes, nobody can be told that they are missing.
    let Ok((input, output)) = pipes else { return ended(ExitCode::Other, None) };
    match launch::answer(input, output, argument, terms) {
        Ok(connected) => {
            let (side, is_dry_run) = (connected.own_side, connected.options.dry_run);
            let job = Some(ServedJob { side, is_dry_run, paths: connected.paths.clone() });
            let report = drive(connected, clock, &StopFlag::new(), true, None).report;
            let (exit_code, moved) = (report.exit_code, report.progress.source);
            Served { exit_code, job, moved, message: report.message }
        }
        // The reason was told to the other end.
        Err(fatal) => ended(fatal.code, Some(fatal.text)),
    }
}

/// The end of one end of a connection.
struct Driven {
    report: Report,
    /// True if the other end may have given up because this process was stopped.
    was_away: bool,
    /// Reason why no data connection could be opened, if that ended it.
    blocked: Option<String>,
}

/// Runs this end of a connection.
fn drive(
    connected: Connected,
    clock: Clock,
    stop: &StopFlag,
    keeps_data: bool,
    observer: Option<&mut dyn Observer>,
) -> Driven {
    let timeout = Duration::from_secs(connected.options.timeout_seconds.into());
    let streams = Arc::new(Streams::new(Arc::clone(&connected.transport)));
    let board = Arc::new(Board::new(connected.own_host.clone(), observer.is_some()));
    board.on_listening(clock.now());
    let setup = Setup { options: connected.options.clone(), streams, board, clock };
    let watched = Arc::clone(&setup.board);
    let watch = Watch { board: Arc::clone(&setup.board), clock, stop, keeps_data, observer };
    let (paths, side, expands) =
        (connected.paths.clone(), connected.own_side, connected.expands_paths);
    let paths = move || if expands { expand(paths, side) } else { Ok(paths) };
    let report = match side {
        Side::Source => {
            let open = move || SourceEnd::open(&paths()?, setup);
            match open_patiently(stop, Side::Source, open) {
                Ok(end) => run_end(watch, end, connected),
                Err(fatal) => watch.refuse(fatal, connected),
            }
        }
        Side::Sink => {
            let job_key = connected.job_key;
            let open = move || {
                let target = paths()?.into_iter().next().unwrap_or_default();
                SinkEnd::open(target, job_key, setup)
            };
            match open_patiently(stop, Side::Sink, open) {
                Ok(end) => run_end(watch, end, connected),
                Err(fatal) => watch.refuse(fatal, connected),
            }
        }
    };
    let was_away = watched.was_away_lately(clock.now(), timeout);
    Driven { report, was_away, blocked: watched.blocked() }
}

/// Runs an end, then drops it; dropping it may call storage, too.
fn run_end<E: End>(watch: Watch<'_, '_>, end: Arc<E>, mut connected: Connected) -> Report {
    let (stop, is_served) = (watch.stop, watch.observer.is_none());
    // If there are too few threads for the others, these tell why.
    let talk = watch.begin_talk(&end, &mut connected);
    let threads = Arc::new(Mutex::new(E::start(&end)));
    let board = Arc::clone(&watch.board);
    if let Some(opening) = connected.opening.take() {
        let more_threads = Arc::clone(&threads);
        let opening = spawn_for(&end, "opening", move |end| match opening.failure() {
            // A reason of the other end, or its end, counts more than the failure.
            Some(fatal) if end.hub().is_over_within(last_word_wait(&fatal, is_served)) => {}
            Some(fatal) => {
                if let Some(reason) = &fatal.blocked {
                    board.on_blocked(reason);
                }
                end.hub().fail(fatal);
            }
            None => {
                end.on_open();
                if opening.may_have_more {
                    take_more(&end, opening, more_threads);
                }
            }
        });
        lock(&threads).extend(opening);
    } else {
        end.on_open();
    }
    let report = watch.over(&end, &threads, connected, &talk);
    if is_served && end.hub().with(|inner| inner.session.is_finished()) {
        // The process ends now, which is quicker.
        std::mem::forget(end);
        return report;
    }
    let closing = Closing::new(stop);
    let (held, dropped) = channel();
    // Without a thread for it, the end is dropped here.
    if spawn("lads-end", move || drop((end, held))).is_ok() {
        closing.wait_for_drop(&dropped);
    }
    report
}

/// Returns the time to wait for the other end's reason why streams cannot be opened. If this end
/// was started to connect and cannot, the one that started it may send the data another way.
fn last_word_wait(fatal: &Fatal, is_served: bool) -> Duration {
    match fatal.blocked {
        Some(_) if is_served => CONTACT_DEADLINE + LAST_WORD_WAIT,
        Some(_) if fatal.is_timeout => Duration::ZERO,
        _ => LAST_WORD_WAIT,
    }
}

/// Takes in further streams when they are open, on a thread that nobody waits for: some may come
/// late, or never.
fn take_more<E: End>(end: &Arc<E>, opening: Opening, threads: Arc<Mutex<Vec<JoinHandle<()>>>>) {
    let weak = Arc::downgrade(end);
    let begun = spawn("lads-more", move || {
        while let (Some(stream), Some(end)) = (opening.next_more(), weak.upgrade()) {
            lock(&threads).extend(E::on_more(&end, stream));
        }
    });
    if let Err(error) = begun {
        end.hub().fail(error.into());
    }
}

/// Opens an end. That looks at file systems, whose servers may not answer, so it may take any time;
/// but a request to stop is obeyed. The text of the error then continues "stopped".
fn open_patiently<E: Send + 'static>(
    stop: &StopFlag,
    side: Side,
    open: impl FnOnce() -> Result<E, Fatal> + Send + 'static,
) -> Result<E, Fatal> {
    let patience = Patience::new(stop, Duration::MAX);
    let began = std::time::Instant::now();
    patience.result_of("lads-open", open).map_err(|cut| {
        if cut == Cut::NoThread {
            return cut.fatal("");
        }
        let mut text = "before the transfer began".to_owned();
        let (side, seconds) = (side.word(), began.elapsed().as_secs());
        if seconds > 0 {
            text +=
                &format!(", not waiting: storage at the {side} has not answered for {seconds} s");
        }
        Fatal::new(cut.fatal("the file system").code, text)
    })?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Location, Options, RemoteShell};
    use lads_core::retry::RetryConfig;
    use lads_core::units::StreamId;

    fn source_end() -> Arc<SourceEnd> {
        source_end_with(Options { streams: 1, ..Options::default() })
    }

    fn source_end_with(options: Options) -> Arc<SourceEnd> {
        let setup = Setup {
            options,
            streams: Arc::new(Streams::none()),
            board: Arc::new(Board::new(String::new(), true)),
            clock: Clock::start(),
        };
        let directory = tempfile::tempdir().unwrap();
        let path = format!("{}/", directory.path().display());
        SourceEnd::open(&[path.into_bytes()], setup).unwrap()
    }

    #[test]
    fn a_thread_that_panics_ends_the_transfer() {
        let end = source_end();
        let thread = spawn_for(&end, "test", |end| {
            // With the lock held, which is the worst that can be.
            end.hub.with(|_| panic!("a mistake"));
        });
        thread.unwrap().join().unwrap_err();
        let (fatal, is_over) = end.hub.with(|inner| (inner.fatal.clone(), inner.is_over));
        let fatal = fatal.unwrap();
        assert!(is_over && fatal.code == ExitCode::Interrupted, "{fatal:?}");
        assert!(fatal.text.contains("thread lads-test panicked"), "{fatal:?}");
    }

    #[test]
    fn a_thread_that_ends_ends_nothing_else() {
        let end = source_end();
        spawn_for(&end, "test", drop).unwrap().join().unwrap();
        assert!(!end.hub.with(|inner| inner.is_over));
    }

    #[test]
    fn each_stream_has_a_thread_that_sends_unless_a_person_says_how_many_there_are() {
        let started = |options: Options, stream_count: u16| {
            let end = source_end_with(options);
            let more = (0..stream_count).map(StreamId);
            let threads: Vec<_> =
                more.map(|stream| SourceEnd::on_more(&end, stream).is_some()).collect();
            end.hub.finish();
            threads
        };
        let options = Options { streams: 1, ..Options::default() };
        let threads = started(options.clone(), 200);
        let at_first = threads.iter().take_while(|is_started| !**is_started).count();
        assert!((1..=128).contains(&at_first), "{at_first}");
        assert!(threads[at_first..].iter().all(|is_started| *is_started));
        let fixed = started(Options { source_threads: 2, ..options }, 5);
        assert_eq!(fixed, [false; 5]);
    }

    #[test]
    fn of_what_a_peer_does_not_read_only_the_latest_waits() {
        use lads_core::message::{Counters, Message};
        let end = source_end();
        let files_moved = |files_moved| Counters { files_moved, ..Counters::default() };
        let waiting = end.hub.with(|inner| {
            inner.messages.clear();
            for count in 0..100 {
                inner.push_latest(Message::Progress(files_moved(count)));
                inner.push_latest(Message::OstBytes(Default::default()));
            }
            Vec::from(inner.messages.clone())
        });
        let latest = [Message::Progress(files_moved(99)), Message::OstBytes(Default::default())];
        assert_eq!(waiting, latest);
    }

    /// Runs a job whose remote shell fails at once. Returns the number of attempts.
    fn attempts_from(source: &[u8]) -> u32 {
        struct Unwatched;
        impl Observer for Unwatched {
            fn on(&mut self, _: Happening) {}
        }
        let place = |host: Option<&str>, path: &[u8]| Location {
            host: host.map(str::to_owned),
            path: path.to_vec(),
        };
        let remote = RemoteShell { command: vec!["false".to_owned()], ..RemoteShell::default() };
        let retry = RetryConfig { attempts_max: Some(1), ..RetryConfig::default() };
        let (sources, target) = (vec![place(None, source)], place(Some("there"), b"to"));
        let job = Job { remote, retry, ..Job::new(sources, target) };
        let report = run(&job, &StopFlag::new(), &mut Unwatched);
        assert_eq!(report.exit_code, ExitCode::Network, "{report:?}");
        report.attempt_count
    }

    /// Standard input was read in part: a second attempt would leave a truncated file.
    #[test]
    fn a_pipe_is_not_tried_again() {
        assert_eq!(attempts_from(b"-"), 1);
        assert_eq!(attempts_from(b"/etc"), 2);
    }

    #[test]
    fn whoever_wants_to_stop_does_not_wait_for_a_file_system() {
        let stop = StopFlag::new();
        let (never, waits) = channel::<()>();
        stop.set("enough");
        let fatal = open_patiently(&stop, Side::Sink, move || {
            let _ = waits.recv();
            Ok(())
        });
        assert_eq!(fatal.unwrap_err().code, ExitCode::Interrupted);
        drop(never);
    }

    struct Deaf;

    impl Observer for Deaf {
        fn on(&mut self, _: Happening) {}
    }

    /// A pipe that was read in part would have become a file without its beginning.
    #[test]
    fn a_source_that_can_be_read_only_once_is_not_tried_again_after_an_outage() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        let target = Location { host: Some("there".to_owned()), path: b"/there".to_vec() };
        let mut job = Job::new(vec![Location::here(&fifo)], target);
        job.options.copy_devices = true;
        job.remote.command = ["sh", "-c", "exit 255"].map(str::to_owned).to_vec();
        job.retry = RetryConfig { attempts_max: Some(3), ..RetryConfig::default() };
        let report = run(&job, &StopFlag::new(), &mut Deaf);
        assert_eq!((report.exit_code, report.attempt_count), (ExitCode::Network, 1), "{report:?}");
    }
}
