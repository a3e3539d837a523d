//! The end around a sink's session: its buffers, its tasks, and what its storage does.

use super::peer::Sent;
use crate::choices::Choices;
use crate::growth::{Growth, rows_of};
use crate::nonsense;
use lads_core::congestion::Threshold;
use lads_core::entry::{Entry, Kind};
use lads_core::frame::{Header, Row};
use lads_core::issue::{Failure, Side};
use lads_core::journal::BlockRecord;
use lads_core::layout::Layout;
use lads_core::message::{Answer, Message};
use lads_core::placement::{Place as Rule, Striping};
use lads_core::range::RangeSet;
use lads_core::schedule::{OstSpec, Policy};
use lads_core::sink::{
    BufferId, Commit, Committed, Compared, Event, Examined, Place, PlacingConfig, ProtocolError,
    RemovalConfig, Sink, SinkConfig, StageConfig, SyncFile, Task, Write,
};
use lads_core::tuning::Tuning;
use lads_core::units::{EntryId, Instant, OstId};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// What a sink must know before it says that something is done.
#[derive(Debug, Default)]
pub(super) struct Books {
    /// Bytes that are durable and, if there is a journal, on record.
    pub(super) durable: BTreeMap<EntryId, RangeSet>,
    /// Bytes that are written.
    pub(super) written: BTreeMap<EntryId, RangeSet>,
    /// Entries that have their names, or are closed.
    pub(super) complete: BTreeSet<EntryId>,
    /// Files that are there, and are compared.
    pub(super) compared: BTreeSet<EntryId>,
    /// Of these, those of which other bytes are there.
    pub(super) different: BTreeSet<EntryId>,
}

/// A frame that was let in and has not arrived.
#[derive(Debug)]
struct Frame {
    header: Header,
    rows: Vec<Row>,
    buffer: BufferId,
}

/// The owner of a session.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) sink: Sink,
    pub(super) config: SinkConfig,
    pub(super) books: Books,
    now: Instant,
    free: Vec<BufferId>,
    /// Buffers with frames that the session has.
    waiting: HashSet<BufferId>,
    arriving: Vec<Frame>,
    tasks: Vec<Task>,
    growth: Growth,
}

impl Owner {
    /// A sink with a few OSTs and buffers, as the input says.
    pub(super) fn new(choices: &mut Choices<'_>) -> Self {
        let config = config(choices);
        let mut sink = Sink::new(&config);
        let roots = Event::Message(Message::Roots(Vec::new()));
        sink.handle(Instant::START, roots).expect("the first word of a source");
        Self {
            sink,
            books: Books::default(),
            now: Instant::START,
            free: (0..config.buffer_count - config.kept_count()).map(BufferId).collect(),
            waiting: HashSet::new(),
            arriving: Vec::new(),
            tasks: Vec::new(),
            growth: Growth::default(),
            config,
        }
    }

    pub(super) fn wait(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    pub(super) fn is_receiving(&self) -> bool {
        !self.arriving.is_empty()
    }

    /// Tells what happened here, which is never refused.
    pub(super) fn tell(&mut self, event: Event) {
        self.growth.on_told(1);
        let result = self.sink.handle(self.now, event);
        assert_eq!(result, Ok(()), "only a peer is refused");
    }

    /// Passes on what the source says; an error if it is refused.
    pub(super) fn tell_message(&mut self, message: Message) -> Option<ProtocolError> {
        self.growth.on_told(rows_of(&message));
        let is_in_use = self.names_what_is_written(&message);
        let refused = self.sink.handle(self.now, Event::Message(message)).err();
        assert!(refused.is_some() || !is_in_use, "a number stands for two files");
        refused
    }

    /// Whether new entries have numbers of files of which something is being written.
    fn names_what_is_written(&self, message: &Message) -> bool {
        let Message::NewFile(entries) = message else { return false };
        // Of what is only to be released, nothing is written.
        let is_written = |task: &&Task| matches!(task, Task::Write(_) | Task::Stage(..));
        let writes = self.tasks.iter().filter(is_written).flat_map(writes_of);
        let mut rows = writes.flat_map(|write| &write.rows);
        rows.any(|(row, _)| entries.iter().any(|entry| entry.id == row.block.entry))
    }

    pub(super) fn next_message(&mut self) -> Option<Message> {
        let is_expected = self.sink.has_message();
        let message = self.sink.next_message()?;
        assert!(is_expected, "nobody would have been woken for {message:?}");
        self.growth.on_said(rows_of(&message));
        Some(message)
    }

    /// Takes the next task, to be done later. Says whether there was one.
    pub(super) fn take_task(&mut self) -> bool {
        let is_expected = self.sink.may_have_task()
            || self.sink.next_timeout().is_some_and(|timeout| timeout <= self.now);
        let Some(task) = self.sink.next_task(self.now) else { return false };
        assert!(is_expected, "nobody would have been woken for {task:?}");
        self.growth.on_said(items_of(&task));
        self.check_limits(&task);
        for write in writes_of(&task) {
            self.take_buffer(write);
        }
        self.tasks.push(task);
        true
    }

    fn check_limits(&self, task: &Task) {
        let is_drain = |task: &&Task| matches!(task, Task::Write(write) if !write.is_in_memory());
        let drains_max = self.config.stage.map_or(0, |stage| stage.drains_max) as usize;
        let drain_count = self.tasks.iter().chain([task]).filter(is_drain).count();
        assert!(drain_count <= drains_max, "{drain_count} frames are brought back");
        let is_sync = |task: &Task| matches!(task, Task::Sync(_));
        assert!(!is_sync(task) || !self.tasks.iter().any(is_sync), "two syncs side by side");
        let is_commit = |task: &&Task| matches!(task, Task::Commit(_));
        let commit_count = self.tasks.iter().chain([task]).filter(is_commit).count();
        assert!(commit_count <= self.config.commits_max as usize, "{commit_count} commits");
    }

    /// The session gives a frame back to its owner.
    fn take_buffer(&mut self, write: &Write) {
        if let Place::Buffer(buffer) = write.place {
            assert!(self.waiting.remove(&buffer), "{buffer:?} is written twice");
        }
    }

    fn free_buffer(&mut self, write: &Write) {
        if let Place::Buffer(buffer) = write.place {
            self.free.push(buffer);
        }
    }

    /// A frame begins to arrive; an error if the source is refused.
    pub(super) fn admit(&mut self, header: &Header, rows: Vec<Row>) -> Option<ProtocolError> {
        if let Err(error) = self.sink.admit(header, &rows) {
            return Some(error);
        }
        let buffer = self.free.pop().expect("there is a buffer for each frame that was granted");
        self.arriving.push(Frame { header: *header, rows, buffer });
        None
    }

    /// A frame has arrived; if not `is_good`, with damaged blocks. The blocks of it are sent.
    pub(super) fn receive(&mut self, choices: &mut Choices<'_>, is_good: bool) -> Option<Sent> {
        let place = choices.place_in(self.arriving.len())?;
        let Frame { header, rows, buffer } = self.arriving.remove(place);
        let checked: Vec<(Row, bool)> =
            rows.into_iter().map(|row| (row, is_good || choices.is_one_in(2))).collect();
        self.growth.on_told(checked.len());
        match self.sink.on_frame(self.now, buffer, &header, &checked) {
            None => {
                self.waiting.insert(buffer);
            }
            Some(write) if write.rows.is_empty() => {
                self.free.push(buffer);
                self.sink.on_empty_frame(header.sink_ost);
            }
            Some(write) => self.tasks.push(Task::Write(write)),
        }
        Some(Sent::Arrived)
    }

    /// A frame does not arrive whole.
    pub(super) fn lose_frame(&mut self, choices: &mut Choices<'_>) -> Option<Sent> {
        let place = choices.place_in(self.arriving.len())?;
        let Frame { header, rows, buffer } = self.arriving.remove(place);
        let ost = header.sink_ost;
        self.free.push(buffer);
        self.sink.on_frame_lost(ost);
        Some(Sent::Lost(ost, rows))
    }

    /// Does one of the tasks taken, and tells how it went. Says whether there was one.
    pub(super) fn do_task(&mut self, choices: &mut Choices<'_>, is_good: bool) -> bool {
        let Some(place) = choices.place_in(self.tasks.len()) else { return false };
        let task = self.tasks.remove(place);
        let event = self.outcome_of(task, choices, is_good);
        self.growth.on_told(items_of_event(&event));
        self.tell(event);
        true
    }

    fn outcome_of(&mut self, task: Task, choices: &mut Choices<'_>, is_good: bool) -> Event {
        let mut luck = Luck { choices, is_good };
        match task {
            Task::Examine(entries) => {
                for entry in &entries {
                    // The file system need not do as it is asked.
                    let _ = self.sink.place(self.now, entry.id, Striping::default());
                }
                let examined =
                    entries.iter().map(|entry| (entry.id, self.examine(entry, &mut luck)));
                Event::Examined(examined.collect())
            }
            Task::Write(write) => self.write(write, &mut luck),
            Task::Stage(write, slot) => {
                if luck.is_bad() {
                    self.waiting.extend(buffer_of(&write));
                    return Event::NotStaged { write, slot };
                }
                self.free_buffer(&write);
                Event::Staged(Write { place: Place::Stage(slot), ..write })
            }
            Task::Release(writes) => {
                writes.iter().for_each(|write| self.free_buffer(write));
                Event::Released(writes)
            }
            Task::Sync(files) => {
                let results = files.into_iter().map(|file| self.sync(file, &mut luck));
                Event::Synced(results.collect())
            }
            Task::Commit(commits) => {
                let results = commits.iter().map(|it| (it.entry, self.commit(it, &mut luck)));
                Event::Committed(results.collect())
            }
            Task::Close(entries) => {
                let results = entries.into_iter().map(|entry| {
                    self.books.complete.insert(entry);
                    (entry, luck.failure())
                });
                Event::Closed(results.collect())
            }
            Task::Discard(entries) => {
                for discard in &entries {
                    self.books.written.remove(&discard.entry);
                }
                // What is kept is still on record.
                for discard in entries.iter().filter(|discard| !discard.is_kept) {
                    self.books.durable.remove(&discard.entry);
                }
                Event::Discarded(entries.iter().map(|discard| discard.entry).collect())
            }
            Task::Remove { is_permitted } => {
                let names = vec![b"name".to_vec(); 1 + luck.choices.below(3) as usize];
                if is_permitted && self.sink.may_ask() {
                    self.sink.ask(Vec::new(), names);
                }
                Event::RemovalOver
            }
            Task::Finish { .. } => Event::Finished,
        }
    }

    /// Looks what is there: something from an earlier attempt, for some.
    fn examine(&mut self, entry: &Entry, luck: &mut Luck<'_, '_>) -> Examined {
        if let Some(failure) = luck.failure() {
            return Examined::Answer(Answer::Failed(failure));
        }
        if !matches!(entry.kind, Kind::File { .. }) {
            return Examined::Answer(Answer::Made);
        }
        let choices = &mut *luck.choices;
        // Another file may have had its number.
        self.books.compared.remove(&entry.id);
        // No choice, so that inputs that were found before mean what they did.
        let is_sized = !entry.is_unsized();
        if entry.id.0 % 7 == 5 && entry.size() > 0 && is_sized {
            self.books.compared.insert(entry.id);
            return Examined::Compare { layout: self.layout(choices) };
        }
        if choices.is_one_in(16) && is_sized {
            return Examined::Answer(Answer::Have);
        }
        let block_bytes = self.config.buffer_bytes;
        let block = |number: u32| BlockRecord {
            offset: u64::from(number) * u64::from(block_bytes),
            length: block_bytes,
            checksum: 0,
        };
        let is_begun = self.config.has_journal && choices.is_one_in(4) && is_sized;
        let mut done = Vec::new();
        if is_begun {
            done.extend((0..4).filter(|_| choices.is_one_in(2)).map(block));
            done.retain(|block| block.offset + u64::from(block.length) <= entry.size());
        }
        Examined::Want { done, layout: self.layout(choices), extents: Vec::new() }
    }

    fn layout(&self, choices: &mut Choices<'_>) -> Layout {
        let ost_count = u32::try_from(self.config.osts.len()).expect("few");
        let first = choices.below(ost_count);
        let stripe_count = 1 + choices.below(ost_count);
        let osts = (0..stripe_count).map(|stripe| OstId((first + stripe) % ost_count)).collect();
        let stripe_size = u64::from(self.config.buffer_bytes) << choices.below(3) >> 1;
        Layout::striped(stripe_size, osts).expect("it has a size and OSTs")
    }

    fn write(&mut self, write: Write, luck: &mut Luck<'_, '_>) -> Event {
        let service = Duration::from_micros(u64::from(luck.choices.below(8)) * 1000);
        if !write.is_in_memory() && luck.is_bad() {
            return Event::NotDrained { write, service };
        }
        self.free_buffer(&write);
        if write.is_comparison {
            let results = write.rows.iter().map(|(row, _)| self.compare(row, luck)).collect();
            return Event::Compared { write, service, results };
        }
        let failures: Vec<Option<Failure>> = write.rows.iter().map(|_| luck.failure()).collect();
        for ((row, _), _) in write.rows.iter().zip(&failures).filter(|(_, it)| it.is_none()) {
            let range = row.block.offset..row.block.end();
            self.books.written.entry(row.block.entry).or_default().insert(range.clone());
            if !self.config.has_journal {
                self.books.durable.entry(row.block.entry).or_default().insert(range);
            }
        }
        Event::Written { write, service, failures }
    }

    fn compare(&mut self, row: &Row, luck: &mut Luck<'_, '_>) -> Compared {
        if let Some(failure) = luck.failure() {
            return Compared::Failed(failure);
        }
        let entry = row.block.entry;
        if entry.0.is_multiple_of(2) {
            self.books.different.insert(entry);
            return Compared::Different;
        }
        let durable = self.books.durable.entry(entry).or_default();
        durable.insert(row.block.offset..row.block.end());
        Compared::Same
    }

    fn sync(&mut self, file: SyncFile, luck: &mut Luck<'_, '_>) -> (SyncFile, Option<Failure>) {
        let failure = luck.failure();
        if failure.is_none() {
            let durable = self.books.durable.entry(file.entry).or_default();
            for block in &file.blocks {
                durable.insert(block.offset..block.offset + u64::from(block.length));
            }
        }
        (file, failure)
    }

    fn commit(&mut self, commit: &Commit, luck: &mut Luck<'_, '_>) -> Committed {
        if self.books.compared.contains(&commit.entry) {
            assert!(commit.verify.is_none(), "what is compared is read once");
            self.books.complete.insert(commit.entry);
            return Committed::Same;
        }
        if let Some(blocks) = &commit.verify
            && luck.is_bad()
            && let Some(place) = luck.choices.place_in(blocks.len())
        {
            return Committed::Bad(vec![blocks[place]]);
        }
        if let Some(failure) = luck.failure() {
            return Committed::Failed(failure);
        }
        self.books.complete.insert(commit.entry);
        Committed::Complete
    }
}

/// Whether things go well; if not, every other one does.
struct Luck<'c, 'a> {
    choices: &'c mut Choices<'a>,
    is_good: bool,
}

impl Luck<'_, '_> {
    fn is_bad(&mut self) -> bool {
        !self.is_good && self.choices.is_one_in(2)
    }

    fn failure(&mut self) -> Option<Failure> {
        self.is_bad().then(|| nonsense::failure(self.choices, Side::Sink))
    }
}

fn config(choices: &mut Choices<'_>) -> SinkConfig {
    let ost_count = 1 + choices.below(4);
    let osts: Vec<OstSpec> =
        (0..ost_count).map(|ost| OstSpec::new(ost.to_string(), 1 + choices.below(3))).collect();
    let buffer_bytes = 4096 << choices.below(3);
    let stage = choices.is_one_in(3).then(|| StageConfig {
        bytes: u64::from(buffer_bytes) * u64::from(choices.below(8)),
        threads_max: 1 + choices.below(2),
        drains_max: 1 + choices.below(3),
        writes_max: 1 + choices.below(4),
    });
    let policies =
        [Policy::Adaptive, Policy::Layout, Policy::Threshold, Policy::Polite, Policy::File];
    let removal = RemovalConfig { after_errors: ost_count > 2, count_max: None };
    let mut config = SinkConfig {
        tuning: Tuning::DEFAULT,
        policy: choices.one_of(&policies),
        threshold: Threshold::default(),
        osts,
        placing: PlacingConfig {
            rule: Rule::Aware,
            stripe_size: 4096,
            stripe_count_max: 4,
            seed: 1,
        },
        placed_bytes_min: choices.is_one_in(2).then(|| u64::from(ost_count) * 4096),
        buffer_count: ost_count * (1 + choices.below(4)),
        buffer_bytes,
        has_journal: !choices.is_one_in(4),
        batch_bytes: u64::from(buffer_bytes) * 3,
        batch_interval: Duration::from_secs(1),
        verifies_media: choices.is_one_in(3),
        commits_max: 1 + choices.below(2),
        at_once_max: Duration::from_millis(choices.below(3).into()),
        growth: None,
        resends_max: 3,
        removal: (ost_count > 1).then_some(removal),
        stage,
    };
    if config.buffer_count % 2 == 1 {
        // As with hundreds of OSTs: there is no buffer for each grant.
        config.tuning.room_parts = 1;
    }
    config.buffer_count += config.kept_count();
    config
}

fn writes_of(task: &Task) -> &[Write] {
    match task {
        Task::Write(write) | Task::Stage(write, _) => std::slice::from_ref(write),
        Task::Release(writes) => writes,
        _ => &[],
    }
}

fn buffer_of(write: &Write) -> Option<BufferId> {
    match write.place {
        Place::Buffer(buffer) => Some(buffer),
        Place::Stage(_) => None,
    }
}

/// How many things a task is about.
fn items_of(task: &Task) -> usize {
    match task {
        Task::Examine(entries) => entries.len(),
        Task::Write(write) | Task::Stage(write, _) => write.rows.len(),
        Task::Release(writes) => writes.len(),
        Task::Sync(files) => files.iter().map(|file| file.blocks.len()).sum(),
        Task::Commit(commits) => commits.len(),
        Task::Close(entries) => entries.len(),
        Task::Discard(entries) => entries.len(),
        Task::Remove { .. } | Task::Finish { .. } => 1,
    }
}

/// How many things an event is about.
fn items_of_event(event: &Event) -> usize {
    match event {
        Event::Examined(results) => results.len(),
        Event::Written { write, .. } | Event::Compared { write, .. } | Event::Staged(write) => {
            write.rows.len()
        }
        Event::Released(writes) => writes.len(),
        Event::Synced(files) => files.iter().map(|(file, _)| file.blocks.len()).sum(),
        Event::Committed(results) => results.len(),
        Event::Closed(results) => results.len(),
        Event::Discarded(entries) => entries.len(),
        _ => 0,
    }
}
