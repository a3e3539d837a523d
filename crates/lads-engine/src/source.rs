//! The end that reads: walks the tree, reads blocks, sends them.

mod end;
mod holes;
mod input;
mod instead;
mod list;
mod look;
mod lookup;
mod made_up;
mod merge;
mod read;
mod remove;
mod roots;
mod stage;
mod table;
mod walk;

use crate::board::{Board, lock};
use crate::clock::Clock;
use crate::cpu::Processors;
use crate::deeds::{Subject, UnderWay};
use crate::end::{spawn_for, try_to_spawn_for};
use crate::fatal::Fatal;
use crate::hub::{Hub, Waiter, Wake};
use crate::job::Options;
use crate::layout::Layouts;
use crate::paths::{Directory, Making};
use crate::setup::Setup;
use crate::stage::StageLog;
use crate::stream::Streams;
use crate::usage::IoBytes;
use holes::RangeBudget;
use instead::Instead;
use lads_core::gate::ProtocolError;
use lads_core::issue::{Failure, Operation, Side};
use lads_core::limits::{DATA_RANGES_MAX, DEPTH_MAX, DIRECTORIES_OPEN_MAX, ENTRIES_OPEN_MAX};
use lads_core::message::{Line, Message, Verb};
use lads_core::reduction::{ReducedCounts, Reductions};
use lads_core::schedule::{OstSpec, Policy};
use lads_core::shares::{
    DRAIN_THREADS, RETRIES_MAX, filling_threads_max, matched_requests, reading_threads,
};
use lads_core::source::{Event, Note, Outcome, Source, SourceConfig, Task};
use lads_core::tuning::Tuning;
use lads_core::units::{EntryId, Instant, OstId};
use lads_sys::Arena;
use lookup::Lookup;
use made_up::FileSystems;
use merge::Level;
use remove::RemovalTimes;
use roots::WalkRoot;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use table::Table;
use walk::{BATCH, Frontier, Walker};

// Otherwise the walk could wait for itself: see the limits.
const _: () = assert!(DEPTH_MAX as usize + 1 + 2 * BATCH < DIRECTORIES_OPEN_MAX);

/// The source end of a transfer.
pub(crate) struct SourceEnd {
    pub(crate) hub: Hub<Source>,
    pub(crate) osts: Vec<OstSpec>,
    options: Options,
    roots: Vec<WalkRoot>,
    /// If the source is no tree: what it is.
    instead: Option<Instead>,
    /// The sources named on the command line, as one directory.
    top: Arc<Level>,
    frontier: Frontier,
    lookup: Lookup,
    /// Entries of which not all metadata could be read.
    reduced: Mutex<ReducedCounts>,
    removal_times: RemovalTimes,
    table: Table,
    ranges: Arc<RangeBudget>,
    file_systems: FileSystems,
    arena: Arena,
    stage: Option<StageLog>,
    layouts: Box<dyn Layouts>,
    pub(crate) streams: Arc<Streams>,
    /// The numbers of frames that the sink was last told.
    pub(crate) frames_told: Mutex<FramesTold>,
    board: Arc<Board>,
    clock: Clock,
    io_bytes: IoBytes,
    has_noticed_fallback: AtomicBool,
    has_noticed_mirrors: AtomicBool,
}

/// When the sink was last told the numbers of frames sent, and these numbers.
#[derive(Debug, Default)]
pub(crate) struct FramesTold {
    pub(crate) at: Option<Instant>,
    pub(crate) counts: Vec<u64>,
}

/// The paths of roots. If no path was named, nothing will be read; but a provider needs one.
fn places_of(roots: &[WalkRoot]) -> Vec<PathBuf> {
    match roots {
        [] => vec![PathBuf::from("/")],
        roots => roots.iter().map(WalkRoot::os_path).collect(),
    }
}

impl SourceEnd {
    /// Looks at what is to be moved and prepares everything.
    pub(crate) fn open(paths: &[Vec<u8>], setup: Setup) -> Result<Arc<Self>, Fatal> {
        let Setup { options, streams, board, clock, .. } = setup;
        let processors = Processors::of(&options, Side::Source, clock)?;
        let instead = Instead::of(paths, &options)?;
        let roots = match &instead {
            Some(it) => vec![WalkRoot::without_storage(it.name(), it.is_directory())?],
            None => roots::find_roots(paths, &options, board.as_ref())?,
        };
        let places = places_of(&roots);
        let places: Vec<&Path> = places.iter().map(PathBuf::as_path).collect();
        let layouts = crate::setup::layouts(&options, Side::Source, &places)?;
        let osts = layouts.osts();
        let stage = StageLog::of(&options, Side::Source, &board)?;
        let arena = crate::setup::arena(&options, options.source_buffers_bytes)?;
        let threads = reading_threads(options.source_threads, &osts);
        let config = SourceConfig {
            tuning: Tuning::DEFAULT,
            policy: options.schedule,
            threshold: options.threshold,
            block_size: options.block_size,
            window_entries: ENTRIES_OPEN_MAX as u64,
            window_directories: DIRECTORIES_OPEN_MAX as u64,
            stream_count: streams.count(),
            is_in_order: options.in_order || options.write_devices,
            is_dry_run: options.dry_run,
            may_pass: options.passing.looks_at_sink(),
            may_be_asked: options.deletion.is_some(),
            removes_sources: options.is_move(),
            is_all_there: roots.len() == paths.len(),
            is_comparing: options.checksum,
            open_files_max: crate::setup::open_files_max(),
            retries_max: RETRIES_MAX,
            bytes_per_second: (options.bytes_per_second > 0).then_some(options.bytes_per_second),
            stage_bytes: stage.as_ref().map_or(0, |_| options.stage_bytes),
            stage_threads_max: filling_threads_max(threads, arena.buffer_count()),
        };
        let wake = if options.schedule == Policy::File { Wake::All } else { Wake::One };
        let mut session = Source::new(config, &osts);
        if let Some(most) = matched_requests(options.source_threads, options.schedule, &osts) {
            session.match_requests(most);
        }
        let end = Self {
            hub: Hub::new(session, wake, Arc::clone(&streams), processors),
            osts,
            top: Arc::new(Level::of(&roots)),
            frontier: Frontier::new(options.files_from.as_deref()),
            lookup: Lookup::default(),
            reduced: Mutex::default(),
            removal_times: RemovalTimes::default(),
            options,
            roots,
            instead,
            table: Table::default(),
            ranges: RangeBudget::new(DATA_RANGES_MAX),
            file_systems: FileSystems::default(),
            arena,
            stage,
            layouts,
            streams,
            frames_told: Mutex::default(),
            board,
            clock,
            io_bytes: IoBytes::default(),
            has_noticed_fallback: AtomicBool::new(false),
            has_noticed_mirrors: AtomicBool::new(false),
        };
        let message = Message::Roots(end.roots.iter().map(WalkRoot::announced).collect());
        end.hub.with(|inner| inner.messages.push_back(message));
        Ok(Arc::new(end))
    }

    /// Starts the walk and the I/O threads.
    pub(crate) fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let walk = |end: Arc<Self>| Walker::new(&end).run();
        let walker = spawn_for(self, "walk", walk);
        let workers = (0..self.io_threads())
            .filter_map(|worker| spawn_for(self, "io", move |end| end.work(worker)));
        walker.into_iter().chain(workers).collect()
    }

    /// The number of I/O threads at the beginning.
    fn io_threads(&self) -> usize {
        let drain_threads = self.stage.as_ref().map_or(0, |_| DRAIN_THREADS);
        (reading_threads(self.options.source_threads, &self.osts) + drain_threads) as usize
    }

    /// The number of streams has grown to `stream_count`. Starts another I/O thread if there are
    /// fewer threads than streams, because each thread sends on one stream at a time. Starts none
    /// if a user gave the number of threads.
    fn start_one_more(self: &Arc<Self>, stream_count: usize) -> Option<JoinHandle<()>> {
        let may_start = self.options.source_threads == 0 && self.io_threads() < stream_count;
        let start = || try_to_spawn_for(self, "io", move |end| end.work(stream_count - 1)).ok();
        may_start.then(start).flatten()
    }

    /// A thread is about to call storage for an entry.
    fn begin(&self, operation: Operation, entry: EntryId, ost: Option<OstId>) -> UnderWay<'_> {
        self.hub.deeds.begin(operation, Subject::Entry(entry), ost)
    }

    /// Returns a directory in another one; with `--copy-links`, also through a symbolic link.
    fn child_of(&self, above: &Arc<Directory>, name: &[u8]) -> Arc<Directory> {
        match self.options.copy_links {
            true => above.child_through_link(name),
            false => above.child(name, Making::Never),
        }
    }

    fn stage(&self) -> &StageLog {
        self.stage.as_ref().expect("the session was told that there is none")
    }

    /// The loop of an I/O thread: runs until the transfer is over.
    fn work(&self, worker: usize) {
        loop {
            let task = self.hub.wait_for(Waiter::Worker, |inner| {
                let now = self.clock.now();
                let session = &mut inner.session;
                session.next_task(now, worker).ok_or_else(|| {
                    let until = session.next_timeout()?;
                    Some(until.since(now)).filter(|wait| !wait.is_zero())
                })
            });
            let Some(task) = task else { return };
            self.hub.busy(|| match task {
                Task::Read(work) => self.pass_on_blocks(work, worker),
                Task::Check(entry) => self.check(entry),
                Task::Examine(entry) => look::examine_again(self, entry),
                Task::Remove(entry) => remove::remove(self, entry),
                Task::LookUp(question) => lookup::look_up(self, question),
            });
        }
    }

    /// Checks whether the sink may give the source another name, and reports that it does.
    fn before_ready(&self, is_renamed: bool) -> Result<(), Fatal> {
        let is_one_file = matches!(&self.roots[..], [root] if !root.is_directory);
        if is_renamed && !is_one_file {
            return Err(crate::fatal::breach(&ProtocolError::Impossible(
                "a new name for more than one file",
            )));
        }
        self.board.on_ready(is_renamed);
        Ok(())
    }

    /// Tells the session what happened; a breach of protocol ends the transfer.
    fn tell(&self, event: Event) {
        self.tell_all(std::iter::once(event));
    }

    fn tell_all(&self, events: impl IntoIterator<Item = Event>) {
        let now = self.clock.now();
        self.check_told(self.hub.tell(|inner| {
            events.into_iter().try_for_each(|event| inner.session.handle(now, event))
        }));
    }

    /// Tells the session what an I/O thread has done; see [`Hub::tell_last`].
    fn tell_last(&self, event: Event) {
        let now = self.clock.now();
        self.check_told(self.hub.tell_last(|inner| inner.session.handle(now, event)));
    }

    fn check_told(&self, told: Result<(), ProtocolError>) {
        if let Err(error) = told {
            self.hub.fail(crate::fatal::breach(&error));
        }
    }

    /// The path of an entry that has not ended, below the root.
    pub(crate) fn path_of(&self, entry: EntryId) -> Option<Vec<u8>> {
        self.table.get(entry).map(|item| item.path())
    }

    /// Counts an entry, if not all of its metadata could be read.
    fn count_reduced(&self, reductions: Reductions) {
        if !reductions.is_empty() && !self.options.dry_run {
            lock(&self.reduced).add(reductions);
        }
    }

    /// Passes on how entries ended.
    pub(crate) fn pass_on(&self, notes: Vec<Note>) {
        for note in notes {
            let Some(file) = self.table.remove(note.entry) else { continue };
            match note.outcome {
                Outcome::Passed if self.options.listing.has(Verb::Skip) => {
                    self.board.line(Line { verb: Verb::Skip, path: file.path(), bytes: 0 });
                }
                Outcome::Done(verb, bytes) if self.options.listing.has(verb) => {
                    self.board.line(Line { verb, path: file.path(), bytes });
                }
                Outcome::Done(..) | Outcome::There | Outcome::Passed | Outcome::Replaced => {}
                Outcome::Failed(failure) => self.board.issue(file.path(), failure),
            }
        }
    }
}

/// A failure at the source.
fn failed(operation: Operation, errno: rustix::io::Errno) -> Failure {
    use lads_core::issue::Reason;
    let reason = match errno {
        rustix::io::Errno::NOENT | rustix::io::Errno::STALE => Reason::Vanished,
        errno => Reason::Os(errno.raw_os_error()),
    };
    Failure::new(Side::Source, operation, reason)
}
