//! The end that reads, as an engine would drive it: a walk, I/O threads, streams.

mod walk;

use crate::books::Books;
use crate::content::Content;
use crate::findings::Checked;
use crate::sink_end::{Receiver, SinkEnd};
use crate::tree::{File, Node, Version, name_of};
use crate::world::{Arrival, Frame, Happening, World};
use lads_core::entry::{Entry, Identity, Kind, Metadata};
use lads_core::frame::{Bound, Row, put_head};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::layout::Layout;
use lads_core::message::{Message, Question};
use lads_core::plan::Plan;
use lads_core::range::RangeSet;
use lads_core::schedule::{Policy, Way, Work};
use lads_core::source::{Event, Found, LinkName, Outcome, ReadOutcome, Source, SourceConfig, Task};
use lads_core::staging::Slot;
use lads_core::units::{EntryId, Instant, StreamId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use walk::Walk;

/// Linux's EIO.
pub(crate) const EIO: i32 = 5;

/// What the source keeps of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) parent: EntryId,
    /// Of a file: which one, as it was announced.
    pub(crate) file: Option<(usize, Identity)>,
}

#[derive(Debug)]
enum Job {
    /// With what each block's file held when the reading began.
    Read(Work, Instant, Vec<Option<Content>>),
    Stage(Work, Slot, Vec<Row>, Vec<Content>),
    Drain(Work),
    /// The stream that a frame is sent on, and the number of frames sent before it.
    Send(Work, StreamId, u64),
    Check(EntryId),
    Examine(EntryId),
    LookUp(Question),
}

#[derive(Debug, Default)]
struct Stream {
    free_at: Instant,
    last_arrival: Instant,
    sent: u64,
    is_lost: bool,
    known_lost_at: Option<Instant>,
}

/// The end that reads.
#[derive(Debug)]
pub(crate) struct SourceEnd {
    pub(crate) session: Source,
    pub(crate) books: Books,
    pub(crate) items: BTreeMap<EntryId, Item>,
    pub(crate) outcomes: BTreeMap<EntryId, Outcome>,
    /// Files that the sink wanted announced anew, and what took their place.
    placed_again: BTreeSet<EntryId>,
    config: SourceConfig,
    /// What each place in the stage holds.
    stage: BTreeMap<Slot, Vec<Content>>,
    workers: Vec<Option<Job>>,
    walk: Walk,
    streams: Vec<Stream>,
    last_id: u64,
    woken_at: Option<Instant>,
    is_talk_due: bool,
    is_stopping: bool,
}

impl SourceEnd {
    pub(crate) fn new(world: &World) -> Self {
        let options = &world.options;
        let specs = options.source_specs();
        let streams = (0..options.network.stream_count).map(|_| Stream::default()).collect();
        let mut session = Source::new(options.source.clone(), &specs);
        if let Some(most) = options.matched {
            session.match_requests(most);
        }
        let mut books = Books::new(&options.source, &specs, options.sink_osts.len());
        books.is_matched = options.matched.is_some();
        Self {
            session,
            books,
            items: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            placed_again: BTreeSet::new(),
            config: options.source.clone(),
            stage: BTreeMap::new(),
            workers: (0..options.source_workers).map(|_| None).collect(),
            walk: Walk::new(world),
            streams,
            last_id: 0,
            woken_at: None,
            is_talk_due: false,
            is_stopping: false,
        }
    }

    pub(crate) fn new_item(&mut self, item: Item) -> EntryId {
        self.last_id += 1;
        self.items.insert(EntryId(self.last_id), item);
        EntryId(self.last_id)
    }

    /// Tells the session what happened.
    pub(crate) fn tell(&mut self, world: &World, event: Event) -> Checked {
        world.log(|| format!("source <- {event:?}"));
        self.session
            .handle(world.now, event)
            .map_err(|error| format!("the source refuses: {error}"))
    }

    /// Someone stops it.
    pub(crate) fn stop(&mut self, world: &World) -> Checked {
        self.is_stopping = true;
        self.tell(world, Event::Stop("asked to".to_owned()))
    }

    pub(crate) fn on_walk(&mut self, world: &mut World) -> Checked {
        let mut walk = std::mem::take(&mut self.walk);
        let stepped = walk.step(world, self);
        self.walk = walk;
        stepped
    }

    pub(crate) fn on_message(&mut self, world: &mut World) -> Checked {
        let message = world.receive(Side::Source);
        let Self { books, items, config, .. } = self;
        books.on_message(&message, |entry| {
            let (file, identity) = items.get(&entry)?.file?;
            let version = world.tree.version_of(&identity)?;
            Some(plan_of(version, &world.tree.files[file], config))
        });
        if let Message::PlaceAgain(entries) = &message {
            let first = entries.iter().filter(|&&entry| self.placed_again.insert(entry));
            first.for_each(|&entry| self.books.forget(entry));
        }
        self.is_stopping |= matches!(message, Message::Finished(_) | Message::Stop(_));
        self.tell(world, Event::Message(message))
    }

    /// An I/O thread has done what it was told.
    pub(crate) fn on_worker(&mut self, world: &mut World, worker: usize) -> Checked {
        match self.workers[worker].take().expect("it had something to do") {
            Job::Read(work, started, seen) => self.on_read(world, worker, work, started, &seen),
            Job::Stage(work, slot, rows, payload) => {
                self.put_aside(world, work, slot, rows, payload)
            }
            Job::Drain(work) => self.drain(world, worker, work),
            // Even if the stream is lost, the head of the frame may arrive.
            Job::Send(work, stream, number) => {
                self.books.on_sent(stream, number, &work);
                self.tell(world, Event::Sent { stream, number, work })
            }
            Job::Check(entry) => {
                let outcome = self.outcome_of_check(world, entry);
                if outcome != ReadOutcome::Good {
                    self.books.forget(entry);
                }
                self.tell(world, Event::Checked { entry, outcome })
            }
            Job::LookUp(question) => {
                let answers = world.look_up(&question);
                self.tell(world, Event::LookedUp { question, answers })
            }
            Job::Examine(entry) => self.examine_again(world, entry),
        }
    }

    /// A stream is lost; this end does not know yet.
    pub(crate) fn lose_stream(&mut self, world: &mut World, stream: usize) {
        if !self.streams[stream].is_lost {
            self.streams[stream].is_lost = true;
            let wait = world.network_delay();
            world.after(wait, Happening::StreamKnownLost(stream));
        }
    }

    /// Says whether all are lost.
    pub(crate) fn on_stream_known_lost(&mut self, world: &World, stream: usize) -> bool {
        self.streams[stream].known_lost_at = Some(world.now);
        self.streams.iter().all(|stream| stream.known_lost_at.is_some())
    }

    /// Gives idle threads something to do, lets the walk go on, sends messages.
    pub(crate) fn poll(&mut self, world: &mut World) -> Checked {
        while let Some(note) = self.session.next_note() {
            world.log(|| format!("source: {note:?}"));
            self.books.forget(note.entry);
            if let Outcome::Failed(failure) = note.outcome {
                self.is_stopping |= failure.is_sink_full();
            }
            if self.outcomes.insert(note.entry, note.outcome).is_some() {
                return Err(format!("entry {} ended twice", note.entry));
            }
        }
        self.check_counters()?;
        self.give_tasks(world)?;
        if self.walk.may_go_on(world, &mut self.session) {
            let wait = world.rng.micros(1, 100);
            world.after(wait, Happening::Walk);
        }
        if world.rng.hits(500) {
            self.talk(world)?;
        } else if !self.is_talk_due {
            self.is_talk_due = true;
            let wait = world.rng.micros(1, 300);
            world.after(wait, Happening::Talk(Side::Source));
        }
        Ok(())
    }

    /// Sends what the session has to say.
    pub(crate) fn talk(&mut self, world: &mut World) -> Checked {
        let is_expected = self.session.has_message();
        while let Some(message) = self.session.next_message() {
            if !is_expected {
                return Err(format!("nobody would have been woken for {message:?}"));
            }
            world.send(Side::Sink, &message)?;
        }
        Ok(())
    }

    pub(crate) fn on_talk(&mut self, world: &mut World) -> Checked {
        self.is_talk_due = false;
        self.talk(world)
    }

    /// Threads that do something.
    pub(crate) fn busy_workers(&self) -> Vec<usize> {
        let workers = self.workers.iter().enumerate();
        workers.filter(|(_, job)| job.is_some()).map(|(worker, _)| worker).collect()
    }

    /// Whether nothing is read or on its way.
    pub(crate) fn is_quiet(&self, sink: &SinkEnd) -> bool {
        let arrived = sink.receivers.iter().map(Receiver::frame_count);
        self.workers.iter().all(Option::is_none)
            && self.streams.iter().map(|stream| stream.sent).eq(arrived)
    }

    fn give_tasks(&mut self, world: &mut World) -> Checked {
        if self.session.is_over() {
            return Ok(());
        }
        let first = world.rng.index(self.workers.len());
        let mut has_idle = false;
        for step in 0..self.workers.len() {
            let worker = (first + step) % self.workers.len();
            if self.workers[worker].is_none() {
                let is_late = self.session.next_timeout().is_some_and(|at| at <= world.now);
                let is_expected = is_late || self.session.may_have_task();
                match self.session.next_task(world.now, worker) {
                    Some(task) if !is_expected => {
                        return Err(format!("nobody would have been woken for {task:?}"));
                    }
                    Some(task) => self.begin(world, worker, task)?,
                    None => {
                        has_idle = true;
                        // Only this rule has something for one thread that it has not for another.
                        if self.config.policy != Policy::File {
                            break;
                        }
                    }
                }
            }
        }
        let timeout = self.session.next_timeout().filter(|&at| at > world.now);
        if let Some(at) = timeout
            && self.woken_at != Some(at)
        {
            self.woken_at = Some(at);
            world.at(at, Happening::Wake);
        }
        if has_idle && timeout.is_none() && !self.is_stopping {
            self.books.check_idle()
        } else {
            Ok(())
        }
    }

    fn begin(&mut self, world: &mut World, worker: usize, task: Task) -> Checked {
        world.log(|| format!("source worker {worker}: {task:?}"));
        let (job, wait) = match task {
            Task::Read(work) if matches!(work.way, Way::Drain(..)) => {
                self.books.on_work(&work)?;
                (Job::Drain(work), world.rng.micros(20, 2000))
            }
            Task::Read(work) => {
                self.books.on_work(&work)?;
                let bytes = work.blocks.iter().map(|block| u64::from(block.length)).sum();
                let World { rng, options, now, .. } = world;
                let ost = &mut options.source_osts[work.source_ost.index()];
                let wait = ost.service(rng, *now, bytes);
                world.watch_taking(Side::Source, work.source_ost, wait);
                let seen = work.blocks.iter().map(|b| self.content_now(world, b.entry)).collect();
                (Job::Read(work, world.now, seen), wait)
            }
            Task::Check(entry) => (Job::Check(entry), world.rng.micros(5, 500)),
            Task::Examine(entry) => (Job::Examine(entry), world.rng.micros(5, 500)),
            Task::Remove(entry) => return Err(format!("{entry} is to be removed")),
            Task::LookUp(question) => (Job::LookUp(question), world.rng.micros(5, 500)),
        };
        self.workers[worker] = Some(job);
        world.after(wait, Happening::Worker(Side::Source, worker));
        Ok(())
    }

    /// What the file of an entry holds now, whatever was announced.
    fn content_now(&self, world: &World, entry: EntryId) -> Option<Content> {
        let (file, _) = self.items.get(&entry)?.file?;
        Some(world.tree.current(file).content)
    }

    fn on_read(
        &mut self,
        world: &mut World,
        worker: usize,
        mut work: Work,
        started: Instant,
        seen: &[Option<Content>],
    ) -> Checked {
        let mut rows = Vec::new();
        let mut payload = Vec::new();
        let mut outcomes = Vec::new();
        for (block, before) in work.blocks.iter().zip(seen) {
            let item = self.items[&block.entry].clone();
            let (_, identity) = item.file.expect("only files have blocks");
            let is_whole = block.offset == 0 && u64::from(block.length) == identity.size;
            let rate = world.faults.read_error;
            let outcome = if world.fails(rate, &item.path) {
                let failure = Failure::new(Side::Source, Operation::Read, Reason::Os(EIO));
                ReadOutcome::Failed(failure)
            } else if is_whole || world.rng.hits(300) {
                self.outcome_of_check(world, block.entry)
            } else {
                ReadOutcome::Good
            };
            outcomes.push(outcome);
            if outcome == ReadOutcome::Good {
                let after = self.content_now(world, block.entry);
                let content = if world.rng.hits(500) { *before } else { after };
                let content = content.expect("a file was announced");
                let checksum = content.checksum(block.offset, block.length.into());
                rows.push(Row { block: *block, is_whole, checksum });
                payload.push(content);
            }
        }
        let service = world.now.since(started);
        self.books.on_read(&work, &outcomes);
        self.tell(world, Event::Read { work: work.clone(), service, outcomes })?;
        if rows.is_empty() {
            return Ok(());
        }
        work.blocks = rows.iter().map(|row| row.block).collect();
        let Way::Stage(slot) = work.way else {
            return self.send(world, worker, work, &rows, payload);
        };
        self.workers[worker] = Some(Job::Stage(work, slot, rows, payload));
        let wait = world.rng.micros(20, 5000);
        world.after(wait, Happening::Worker(Side::Source, worker));
        Ok(())
    }

    /// What was read is written to the stage, or not, or something else is.
    fn put_aside(
        &mut self,
        world: &mut World,
        work: Work,
        slot: Slot,
        rows: Vec<Row>,
        mut payload: Vec<Content>,
    ) -> Checked {
        if world.stage_fails(world.faults.stage_write_error) {
            self.books.on_not_staged(&work);
            return self.tell(world, Event::NotStaged { work });
        }
        if world.stage_fails(world.faults.stage_rot) {
            payload[0] = Content::GARBAGE;
        }
        world.stats.blocks_staged += rows.len() as u64;
        self.stage.insert(slot, payload);
        self.books.on_staged(&work);
        self.tell(world, Event::Staged { work, rows })
    }

    /// Blocks are brought back, and sent if they are what was put there.
    fn drain(&mut self, world: &mut World, worker: usize, work: Work) -> Checked {
        let Way::Drain(slot, rows) = work.way.clone() else { return Err("no drain".to_owned()) };
        let payload = self.stage.remove(&slot).ok_or("nothing is in the stage there")?;
        let is_good = |(row, content): (&Row, &Content)| {
            content.checksum(row.block.offset, row.block.length.into()) == row.checksum
        };
        let is_read = !world.stage_fails(world.faults.stage_read_error);
        if is_read && rows.iter().zip(&payload).all(is_good) {
            return self.send(world, worker, work, &rows, payload);
        }
        self.books.on_not_drained(&work);
        self.tell(world, Event::NotDrained { work })
    }

    fn send(
        &mut self,
        world: &mut World,
        worker: usize,
        work: Work,
        rows: &[Row],
        payload: Vec<Content>,
    ) -> Checked {
        world.stats.blocks_sent += rows.len() as u64;
        let free =
            (0..self.streams.len()).filter(|&index| self.streams[index].known_lost_at.is_none());
        let Some(index) = free.min_by_key(|&index| self.streams[index].free_at) else {
            self.books.on_lost(&work);
            return self.tell(world, Event::NotSent { work });
        };
        let id = StreamId(u16::try_from(index).expect("a few streams"));
        let number = self.streams[index].sent;
        let mut head = Vec::new();
        let bound = Bound {
            sink_ost: work.sink_ost,
            is_last_grant: work.is_last_grant,
            has_only_sums: work.is_comparison,
        };
        put_head(rows, number, bound, &mut head);
        let payload_bytes = rows.iter().map(|row| u64::from(row.block.length)).sum();
        let mut frame = Frame { head, payload, payload_bytes };
        flip_bits(world, &mut frame, |row| self.items[&rows[row].block.entry].path.clone());
        let network = &world.options.network;
        let pages = frame.byte_count().div_ceil(crate::options::PAGE);
        let duration = Duration::from_nanos(pages * network.page_nanos);
        let (head_delay, delay) = (world.network_delay(), world.network_delay());
        let stream = &mut self.streams[index];
        let begin = stream.free_at.max(world.now);
        let end = begin + duration;
        (stream.free_at, stream.sent) = (end, number + 1);
        if !stream.is_lost {
            let head_at = stream.last_arrival.max(begin + head_delay);
            stream.last_arrival = head_at.max(end + delay);
            let payload_at = stream.last_arrival;
            world.at(head_at, Happening::Arrival(index, Arrival::Head(Box::new(frame))));
            world.at(payload_at, Happening::Arrival(index, Arrival::Payload));
        }
        self.workers[worker] = Some(Job::Send(work, id, number));
        let late = world.rng.micros(0, 200);
        world.at(end + late, Happening::Worker(Side::Source, worker));
        Ok(())
    }

    fn outcome_of_check(&self, world: &World, entry: EntryId) -> ReadOutcome {
        let item = &self.items[&entry];
        let Some(file) = world.tree.file_at(&item.path) else {
            let failure = Failure::new(Side::Source, Operation::Examine, Reason::Vanished);
            return ReadOutcome::Failed(failure);
        };
        let identity = world.tree.current(file).identity;
        if item.file == Some((file, identity)) { ReadOutcome::Good } else { ReadOutcome::Changed }
    }

    fn examine_again(&mut self, world: &World, entry: EntryId) -> Checked {
        let Item { path, parent, .. } = self.items[&entry].clone();
        let Some(file) = world.tree.file_at(&path) else {
            let failure = Failure::new(Side::Source, Operation::Examine, Reason::Vanished);
            return self.tell(world, Event::Gone { entry, failure });
        };
        let found = self.find_file(world, &path, parent, file);
        if self.placed_again.contains(&entry) {
            self.placed_again.insert(found.entry.id);
        }
        let found = Found { link: None, replaces: Some(entry), ..found };
        self.tell(world, Event::Found(Box::new(found)))
    }

    fn find_file(&mut self, world: &World, path: &str, parent: EntryId, file: usize) -> Found {
        let version = world.tree.current(file);
        let identity = version.identity;
        let id =
            self.new_item(Item { path: path.to_owned(), parent, file: Some((file, identity)) });
        let name_count = world.tree.names_of(file).len() as u64;
        let link = (name_count > 1).then(|| LinkName {
            device: 1,
            inode: identity.inode,
            name_count,
            path: path.as_bytes().to_vec(),
        });
        let kind = Kind::File {
            identity,
            data_bytes: version.data_set().byte_count(),
            striping: world.tree.files[file].layout.striping(identity.size),
            source_ost: world.tree.files[file].layout.ost_at(0),
            is_different: false,
        };
        let metadata = Metadata { mtime: identity.mtime, mode: 0o644, ..Metadata::default() };
        let name = name_of(path).as_bytes().to_vec();
        // Some files changed a moment ago.
        let is_young = identity.inode.is_multiple_of(5);
        let in_millis = |millis| world.now + Duration::from_millis(millis);
        Found {
            settled_at: is_young.then(|| in_millis(identity.inode % 7)),
            settled_at_sink: is_young.then(|| in_millis(1000 + identity.inode % 1000)),
            layout: world.tree.files[file].layout.clone(),
            mirrors: world.tree.files[file].mirrors.clone(),
            data: version.data.clone(),
            link,
            ..Found::new(Entry { id, parent, name, kind, metadata })
        }
    }

    /// Looks at a path, which the walk has met.
    pub(crate) fn find(&mut self, world: &World, path: &str, parent: EntryId) -> Option<Found> {
        let kind = match world.tree.nodes.get(path)? {
            Node::File(file) => return Some(self.find_file(world, path, parent, *file)),
            Node::Directory => Kind::Directory,
            Node::Symlink(target) => Kind::Symlink { target: target.clone() },
        };
        let id = self.new_item(Item { path: path.to_owned(), parent, file: None });
        let name = name_of(path).as_bytes().to_vec();
        let entry = Entry { id, parent, name, kind, metadata: Metadata::default() };
        Some(Found::new(entry))
    }

    fn check_counters(&self) -> Checked {
        let counters = self.session.counters();
        let ended = counters.files_moved + counters.files_skipped;
        let is_sane = counters.bytes_skipped <= counters.bytes_done
            && (!counters.is_walk_ended || counters.bytes_done <= counters.bytes_found)
            && ended <= counters.files_found;
        if is_sane { Ok(()) } else { Err(format!("counters that cannot be: {counters:?}")) }
    }
}

fn plan_of(version: &Version, file: &File, config: &SourceConfig) -> Plan {
    let (source, mirrors) = match config.is_in_order {
        true => (Layout::on(file.layout.ost_at(0)), Vec::new()),
        false => (file.layout.clone(), file.mirrors.clone()),
    };
    Plan {
        size: version.identity.size,
        source,
        mirrors,
        sink: Layout::on(lads_core::units::OstId(0)),
        block_size: config.block_size,
        data: version.data.clone(),
        done: RangeSet::new(),
        taken: RangeSet::new(),
        disk_offset: None,
        is_begun: false,
        is_in_order: config.is_in_order,
        is_comparison: false,
    }
}

/// Damages a frame on its way, now and then.
fn flip_bits(world: &mut World, frame: &mut Frame, path_of: impl Fn(usize) -> String) {
    for row in 0..frame.payload.len() {
        let rate = world.faults.payload_flip;
        if world.fails(rate, &path_of(row)) {
            frame.payload[row] = Content::GARBAGE;
        }
    }
    if world.rng.hits(world.faults.head_flip) {
        let at = world.rng.index(frame.head.len());
        frame.head[at] ^= 1 << world.rng.below(8);
        world.log(|| "(mishap) a frame's head is damaged".to_owned());
    }
}
