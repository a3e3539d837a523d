//! A transfer from the first message to the last, as the two processes that call it see it.

use crate::board::Board;
use crate::clock::Clock;
use crate::event::{ExitCode, Observer, Progress, Report};
use crate::hub::Fatal;
use crate::job::{Job, Options};
use crate::launch::{self, Connected};
use crate::sink::SinkEnd;
use crate::source::SourceEnd;
use crate::stream::Streams;
use crate::watch::Watch;
use lads_core::issue::Side;
use lads_sys::Arena;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

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

    pub(crate) fn reason(&self) -> Option<String> {
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
    let board = Arc::new(Board::new(connected.own_host.clone(), observer.is_some()));
    board.on_heard(clock.now());
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

/// A thread with a name that shows in `top` and in a debugger.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(512 << 10)
        .spawn(run)
        .expect("the system has room for a few more threads")
}

/// The memory for blocks that the options ask for at one end.
pub(crate) fn arena(options: &Options, buffers_bytes: u64) -> Result<Arena, Fatal> {
    let block_size = options.block_size as usize;
    let count = buffers_bytes / u64::from(options.block_size).max(1);
    let is_sound = block_size.is_multiple_of(4096) && (64 << 10..=64 << 20).contains(&block_size);
    let count = u32::try_from(count).ok().filter(|&count| count >= 2 && is_sound);
    let Some(count) = count else {
        let text = "--block-size must be a multiple of 4096 from 64 KiB to 64 MiB, and \
                    --buffers at least two blocks";
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
