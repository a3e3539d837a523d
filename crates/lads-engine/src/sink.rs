//! The end that writes: receives blocks, writes them, gives files their names.

mod check;
mod commit;
mod comparison;
mod directory_syncs;
mod end;
mod examine;
mod extra;
mod growing;
mod modes;
mod moved;
mod null;
mod output;
mod placing;
mod planted;
mod receive;
mod remove;
mod replacing;
mod special;
mod stage;
mod table;
mod times;
mod unnamed;
mod usable;
mod write;

use crate::board::Board;
use crate::clock::Clock;
use crate::cpu::Processors;
use crate::deeds::{Subject, UnderWay};
use crate::end::{spawn_for, try_to_spawn_for};
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::hub::{Hub, Waiter, Wake};
use crate::job::null::PLACE;
use crate::job::{Options, Verify};
use crate::journal::Journal;
use crate::layout::{Heeds, Layouts};
use crate::metadata::permitted;
use crate::paths::Directory;
use crate::setup::Setup;
use crate::stage::StageLog;
use crate::stream::{Missing, Streams};
use crate::thread::NoThread;
use crate::transport::GrantedBuffers;
use crate::usage::IoBytes;
use directory_syncs::DirectorySyncs;
use lads_core::entry::{Entry, Kind, Metadata};
use lads_core::gate::ProtocolError;
use lads_core::growth::GrowthConfig;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::limits::{OSTS_MAX, RESENDS_MAX};
use lads_core::message::{Message, Root};
use lads_core::placement::Place as PlaceRule;
use lads_core::reduction::ReducedCounts;
use lads_core::schedule::OstSpec;
use lads_core::shares::{
    STAGE_THREADS, commits_max, matched_requests, part_from_stage, writing_threads,
};
use lads_core::sink::{Event, Sink, SinkConfig, StageConfig, Task};
use lads_core::tuning::Tuning;
use lads_core::units::{EntryId, OstId, StreamId};
use lads_sys::{Arena, Buffer};
use output::Output;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use table::{Item, KeptFiles, Table};
use unnamed::Unnamed;

/// The numbers of policy.
const TUNING: Tuning = Tuning::DEFAULT;

/// The sink end of a transfer.
pub(crate) struct SinkEnd {
    pub(crate) hub: Hub<Sink>,
    pub(crate) osts: Vec<OstSpec>,
    options: Options,
    /// Where to, as given.
    target: Vec<u8>,
    /// What is there in place of a directory or a file, if anything is.
    instead: Option<Instead>,
    job_key: u64,
    place: OnceLock<Place>,
    table: Table,
    arena: Arena,
    stage: Option<StageLog>,
    /// Buffers with frames that wait to be written, by their number.
    buffers: Vec<Mutex<Option<Buffer>>>,
    layouts: Box<dyn Layouts>,
    placing: placing::Placing,
    new_file_count: AtomicU64,
    kept_open: KeptFiles,
    /// Set when the first file grows. Until then, no write has to look whether its file grows.
    grows: OnceLock<()>,
    /// Time in calls to storage other than those that write blocks, in microseconds, summed over
    /// threads.
    other_storage_micros: AtomicU64,
    /// Entries that have ended well, without some of their metadata.
    reduced: Mutex<ReducedCounts>,
    directory_syncs: DirectorySyncs,
    pub(crate) streams: Arc<Streams>,
    pub(crate) missing: Mutex<Missing>,
    /// Names that the source has, to find those that only the sink has.
    names: extra::Names,
    board: Arc<Board>,
    clock: Clock,
    io_bytes: IoBytes,
    has_noticed_fallback: AtomicBool,
}

/// What is in place of a target that is a directory or a file.
enum Instead {
    /// Nothing is kept.
    Null,
    /// A pipe or a device.
    Output(Output),
}

impl Instead {
    /// What a target stands for, with the options made to fit; `None` for a directory or a file.
    fn of(target: &[u8], options: &mut Options) -> Result<Option<Self>, Fatal> {
        match null::prepare(target, options)? {
            true => Ok(Some(Self::Null)),
            false => Ok(Output::of(target, options)?.map(Self::Output)),
        }
    }
}

/// The directory into which everything goes, once it is known.
struct Place {
    root: Arc<Directory>,
    unnamed: Unnamed,
    journal: Journal,
    /// The name under which a single file is put, if not its own.
    renamed: Option<Vec<u8>>,
    /// Whether this job made the root, now or in an earlier attempt, and nobody else looks inside.
    is_root_made: bool,
    /// Metadata of the root, if the contents of a directory are moved into it and have ended.
    root_metadata: Mutex<Option<RootMetadata>>,
    /// Whether there is no root: in a dry run that would make it, or because nothing is kept.
    is_missing: bool,
    /// What the source said that it would move.
    sources: Vec<Root>,
    /// The times that the file systems of the target keep.
    kept_times: times::ByDevice,
}

/// The metadata that the root gets when the journal is removed.
struct RootMetadata {
    metadata: Metadata,
    /// `None` if the root keeps the mode that it has.
    mode: Option<u32>,
}

impl SinkEnd {
    /// Makes everything ready; the target directory is opened when the source has said what comes.
    pub(crate) fn open(target: Vec<u8>, job_key: u64, setup: Setup) -> Result<Arc<Self>, Fatal> {
        let Setup { mut options, streams, board, clock, .. } = setup;
        let processors = Processors::of(&options, Side::Sink, clock)?;
        let instead = Instead::of(&target, &mut options)?;
        let path = if instead.is_some() { PLACE } else { &target };
        let path = PathBuf::from(OsStr::from_bytes(path));
        let layouts = crate::setup::layouts(&options, Side::Sink, &[&path])?;
        let mut osts = layouts.osts();
        check_ost_count(osts.len())?;
        let arena = arena_for(&options, osts.len())?;
        let buffer_count = arena.buffer_count();
        if let Some(Instead::Output(output)) = &instead {
            output.fit(&mut osts[0], buffer_count, &mut options);
        }
        let stage = StageLog::of(&options, Side::Sink, &board)?;
        let reads_max = options.sink_needs().reads_max(osts.len(), buffer_count);
        let threads = writing_threads(options.sink_threads, &osts);
        let commits_max = commits_max(threads, reads_max);
        let read_count = reads_max.map_or(0, |_| commits_max);
        let drains_max =
            stage.as_ref().map_or(0, |_| part_from_stage(&mut osts, buffer_count - read_count));
        let placing = placing::config(&options, layouts.as_ref());
        let config = SinkConfig {
            tuning: TUNING,
            policy: options.schedule,
            threshold: options.threshold,
            placing,
            placed_bytes_min: placed_bytes_min(&options, layouts.as_ref(), osts.len()),
            osts: osts.clone(),
            buffer_count,
            buffer_bytes: options.block_size,
            has_journal: options.journal,
            batch_bytes: TUNING.batch_bytes,
            batch_interval: TUNING.batch_interval,
            verifies_media: options.verify == Verify::Media,
            commits_max,
            at_once_max: TUNING.at_once_max,
            growth: growth(&options, layouts.as_ref()),
            resends_max: RESENDS_MAX,
            removal: options.deletion.map(|it| it.config()),
            stage: stage.as_ref().map(|_| stage_config(&options, &osts, drains_max)),
        };
        tell_if_not_spread(&options, layouts.as_ref(), &board);
        Ok(Arc::new(Self {
            hub: Hub::new(session(&config, &options), Wake::One, Arc::clone(&streams), processors),
            placing: placing::Placing::new(placing.rule),
            osts,
            options,
            target,
            instead,
            job_key,
            place: OnceLock::new(),
            table: Table::default(),
            stage,
            buffers: (0..buffer_count).map(|_| Mutex::default()).collect(),
            arena,
            layouts,
            new_file_count: AtomicU64::new(0),
            kept_open: KeptFiles::default(),
            grows: OnceLock::new(),
            other_storage_micros: AtomicU64::new(0),
            reduced: Mutex::default(),
            directory_syncs: DirectorySyncs::default(),
            streams,
            missing: Mutex::default(),
            names: extra::Names::default(),
            board,
            clock,
            io_bytes: IoBytes::default(),
            has_noticed_fallback: AtomicBool::new(false),
        }))
    }

    /// Starts a thread for each stream that is needed, and the I/O threads.
    pub(crate) fn start(self: &Arc<Self>) -> Vec<JoinHandle<()>> {
        let mut threads: Vec<_> = self
            .streams
            .needed()
            .filter_map(|stream| self.spawn_receiver(stream))
            .filter_map(|begun| begun.map_err(|error| self.hub.fail(error.into())).ok())
            .collect();
        if self.output_in_order().is_some() {
            threads.extend(spawn_for(self, "output", |end| {
                let output = end.output_in_order().expect("looked up before");
                end.write_in_order(output);
            }));
        }
        let stage_threads = self.stage.as_ref().map_or(0, |_| STAGE_THREADS);
        let workers = writing_threads(self.options.sink_threads, &self.osts) + stage_threads;
        threads.extend((0..workers).filter_map(|_| spawn_for(self, "io", |end| end.work())));
        threads
    }

    /// Starts the thread that receives on a stream. `None` if the stream was lost before.
    fn spawn_receiver(
        self: &Arc<Self>,
        stream: StreamId,
    ) -> Option<Result<JoinHandle<()>, NoThread>> {
        let buffers = Arc::clone(self) as Arc<dyn GrantedBuffers>;
        let receiver = self.streams.receiver(stream, buffers)?;
        Some(try_to_spawn_for(self, "receive", move |end| end.receive(stream.0, receiver)))
    }

    /// The target, if it takes bytes only in order.
    fn output_in_order(&self) -> Option<&Output> {
        match &self.instead {
            Some(Instead::Output(output)) if output.is_in_order() => Some(output),
            _ => None,
        }
    }

    /// Takes in what the engine needs of a message that was checked, before the session acts on it.
    pub(crate) fn before(&self, message: &Message) -> Result<(), Fatal> {
        match message {
            Message::Roots(roots) => self.make_ready(roots),
            Message::FileDone(endings) => {
                self.note_incomplete(endings);
                Ok(())
            }
            Message::NewFile(entries) => {
                self.register(entries).map_err(|error| crate::fatal::breach(&error))
            }
            _ => Ok(()),
        }
    }

    /// Knows the directories before anything in them is looked at.
    fn register(&self, entries: &[Entry]) -> Result<(), ProtocolError> {
        let place = self.place();
        for entry in entries {
            let mut name = entry.name.clone();
            if let Some(renamed) = &place.renamed
                && entry.parent == EntryId::ROOT
                && !entry.is_directory()
            {
                name.clone_from(renamed);
            }
            let permitted = permitted(entry, &self.options);
            self.table.insert(entry, name, permitted, &place.root, self.options.making())?;
            self.set_mode_of_new_directory(entry);
        }
        Ok(())
    }

    fn make_ready(&self, roots: &[Root]) -> Result<(), Fatal> {
        let _asked = self.hub.deeds.begin(Operation::Open, Subject::Target, None);
        let place = Place { sources: roots.to_vec(), ..self.open_place(roots)? };
        assert!(self.place.set(place).is_ok(), "ROOTS is taken from a source once");
        let ost_count = u32::try_from(self.osts.len()).unwrap_or(u32::MAX);
        let open_files_max = crate::setup::open_files_max();
        let is_renamed = self.place().renamed.is_some();
        let time_unit_nanos = self.time_unit_nanos();
        self.board.on_ready(is_renamed);
        let ready = Message::Ready { ost_count, open_files_max, is_renamed, time_unit_nanos };
        self.hub.with(|inner| inner.messages.push_back(ready));
        Ok(())
    }

    fn place(&self) -> &Place {
        self.place.get().expect("nothing else is taken from a source before ROOTS")
    }

    /// What an I/O thread does until the transfer is over.
    fn work(&self) {
        loop {
            let task = self.hub.wait_for(Waiter::Worker, |inner| {
                let now = self.clock.now();
                let session = &mut inner.session;
                session.next_task(now).ok_or_else(|| {
                    let until = session.next_timeout()?;
                    Some(until.since(now).max(Duration::from_millis(1)))
                })
            });
            let Some(task) = task else { return };
            self.act_on(task);
        }
    }

    fn act_on(&self, task: Task) {
        self.hub.busy(|| match (task, &self.instead) {
            (task, Some(instead)) => self.do_instead(task, instead),
            (task, None) => self.do_task(task),
        });
    }

    /// Does all tasks that are available now. Where no task waits for storage, this is faster than
    /// waking an I/O thread.
    fn do_available_tasks(&self) {
        let next = || {
            self.hub.wait_for_share();
            self.hub.with(|inner| match inner.is_over {
                true => None,
                false => inner.session.next_task(self.clock.now()),
            })
        };
        while let Some(task) = next() {
            self.act_on(task);
        }
    }

    /// Does a task at a target that is no directory and no file.
    fn do_instead(&self, task: Task, instead: &Instead) {
        match (task, instead) {
            (Task::Examine(entries), Instead::Null) => self.want_all(entries),
            (Task::Examine(entries), Instead::Output(output)) => self.want_output(output, entries),
            (Task::Commit(commits), Instead::Null) => self.forget_files(&commits),
            (Task::Commit(commits), Instead::Output(output)) => {
                self.finish_output(output, &commits);
            }
            (Task::Close(entries), _) => self.forget_directories(&entries),
            (Task::Discard(discards), Instead::Output(output)) => {
                self.close_output(output);
                self.discard_all(&discards);
            }
            (task, _) => self.do_task(task),
        }
    }

    fn do_task(&self, task: Task) {
        let is_other = !matches!(task, Task::Write(_) | Task::Stage(..) | Task::Release(_));
        let started = Instant::now();
        self.do_task_of_files(task);
        if is_other {
            let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.other_storage_micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    fn do_task_of_files(&self, task: Task) {
        match task {
            Task::Write(write) => {
                if let Some(event) = self.write_queued(write) {
                    self.tell_last(event);
                }
            }
            Task::Stage(write, slot) => self.put_aside(write, slot),
            Task::Release(writes) => self.release_all(writes),
            Task::Examine(entries) => self.examine_all(entries),
            Task::Sync(files) => self.sync_files(files),
            Task::Commit(commits) => self.commit_all(&commits),
            Task::Close(entries) => self.close_all(&entries),
            Task::Discard(entries) => self.discard_all(&entries),
            Task::Remove { is_permitted } => self.remove_what_is_not_there(is_permitted),
            Task::Finish { is_complete } => self.finish(is_complete),
        }
    }

    /// Counts a failure of this end, once for each entry. If the user is at the other end, that end
    /// counts the failure when it hears of it. If the user is here, this end counts it itself,
    /// because a peer that kept quiet would hide what failed here.
    fn tell_failure(&self, item: &Item, failure: Failure) {
        if self.board.is_persons && item.has_failed.set(()).is_ok() {
            self.board.issue_when_room(item.path(), failure);
        }
    }

    /// The path below the root of an entry that has not ended.
    pub(crate) fn path_of(&self, entry: EntryId) -> Option<Vec<u8>> {
        self.table.get(entry).map(|item| item.path())
    }

    /// A thread is about to call storage for an entry.
    fn begin_call(&self, operation: Operation, entry: EntryId, ost: Option<OstId>) -> UnderWay<'_> {
        self.hub.deeds.begin(operation, Subject::Entry(entry), ost)
    }

    /// Tells the session what happened; a breach of protocol ends the transfer.
    fn tell(&self, event: Event) {
        let now = self.clock.now();
        self.check_told(self.hub.tell(|inner| inner.session.handle(now, event)));
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
}

/// A source refuses a sink with more OSTs than this.
fn check_ost_count(count: usize) -> Result<(), Fatal> {
    if count <= OSTS_MAX as usize {
        return Ok(());
    }
    let text = format!(
        "the sink has {count} OSTs, more than the {OSTS_MAX} that LADS can serve; --sink \
         layout=local treats them as one"
    );
    Err(Fatal::new(ExitCode::Usage, text))
}

/// The memory for blocks that go to this number of OSTs.
fn arena_for(options: &Options, ost_count: usize) -> Result<Arena, Fatal> {
    let arena = crate::setup::arena(options, options.sink_buffers_bytes(ost_count))?;
    let needed = options.sink_needs().buffers(ost_count);
    if arena.buffer_count() >= needed {
        return Ok(arena);
    }
    let text = format!(
        "--buffers is too small: the sink has {ost_count} OSTs and needs {needed} blocks of memory, \
         more with --sink stage=DIR or --verify media than without; by default it takes twice that"
    );
    Err(Fatal::new(ExitCode::Usage, text))
}

/// The bytes of new files that may be placed ahead of their blocks in any case; unlimited where it
/// does not matter when files are placed.
fn placed_bytes_min(options: &Options, layouts: &dyn Layouts, ost_count: usize) -> Option<u64> {
    let is_aware = options.place == PlaceRule::Aware && layouts.heeds() == Heeds::Place;
    is_aware.then_some(ost_count as u64 * TUNING.placed_bytes_each)
}

/// A session that looks for the best number of requests in flight, if that is not fixed.
fn session(config: &SinkConfig, options: &Options) -> Sink {
    let mut session = Sink::new(config);
    if let Some(most) = matched_requests(options.sink_threads, options.schedule, &config.osts) {
        session.match_requests(most);
    }
    session
}

fn stage_config(options: &Options, osts: &[OstSpec], drains_max: u32) -> StageConfig {
    StageConfig {
        bytes: options.stage_bytes,
        threads_max: STAGE_THREADS,
        drains_max,
        writes_max: writing_threads(options.sink_threads, osts),
    }
}

/// How new files grow while they are written, if any may.
fn growth(options: &Options, layouts: &dyn Layouts) -> Option<GrowthConfig> {
    let extents_max = options.place_extents;
    let is_wanted = options.place == PlaceRule::Aware && extents_max > 1;
    let (unit_bytes, ost_count) = layouts.extents().filter(|_| is_wanted)?;
    Some(GrowthConfig { extents_max, unit_bytes, ost_count })
}

/// Tells a user who asked for `--sink place=spread` that it has no effect here.
fn tell_if_not_spread(options: &Options, layouts: &dyn Layouts, board: &Board) {
    if options.place == PlaceRule::Spread && layouts.heeds() != Heeds::Place {
        let kind = layouts.kind();
        board.notice(format!(
            "--sink place=spread has the same effect as inherit here: the sink file system \
             ({kind}) chooses the OSTs of new files itself"
        ));
    }
}

/// A failure to put something on record.
fn journal_failed(error: &std::io::Error) -> Failure {
    let errno = error.raw_os_error().unwrap_or(0);
    Failure::new(Side::Sink, Operation::Journal, Reason::Os(errno))
}

/// A failure at the sink.
fn failed(operation: Operation, errno: Errno) -> Failure {
    let reason = match errno {
        Errno::LOOP | Errno::NOTDIR | Errno::ISDIR => Reason::InTheWay,
        errno => Reason::Os(errno.raw_os_error()),
    };
    Failure::new(Side::Sink, operation, reason)
}

/// Whether an entry is of the kind that has data.
fn is_file(kind: &Kind) -> bool {
    matches!(kind, Kind::File { .. })
}
