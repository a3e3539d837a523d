//! The end that writes, as an engine would drive it: receiving threads, I/O threads, a disk.

mod receiver;
mod removal;

use crate::books::in_flight_at_least;
use crate::content::Content;
use crate::findings::Checked;
use crate::journal::Journal;
use crate::room::RoomBooks;
use crate::tree::join;
use crate::world::{Happening, World};
use lads_core::entry::{Entry, Identity, Kind};
use lads_core::growth::Extent;
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::message::Message;
use lads_core::range::RangeSet;
use lads_core::schedule::OstSpec;
use lads_core::sink::{
    BufferId, Commit, Committed, Discard, Event, Place, Sink, SinkConfig, SyncFile, Task, Write,
};
use lads_core::staging::Slot;
use lads_core::units::{Block, EntryId, Instant, OstId};
use removal::Removal;
use std::collections::BTreeMap;

pub(crate) use receiver::Receiver;

/// How far an entry has come at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Announced,
    /// A file of which blocks may come.
    Wanted,
    /// A directory or link that is there.
    Made,
    Failed,
    Committed,
    Dropped,
    /// A directory in which nothing changes any more.
    Closed,
}

/// What the sink keeps of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) path: String,
    pub(crate) parent: EntryId,
    pub(crate) kind: Kind,
    pub(crate) state: State,
    pub(crate) is_examined: bool,
    pub(crate) is_kept: bool,
    /// Of a wanted file: its unfinished body.
    pub(crate) body: Option<usize>,
    pub(crate) written: RangeSet,
    pub(crate) on_record: RangeSet,
    /// If it grows: what it consists of.
    pub(crate) extents: Vec<Extent>,
}

impl Item {
    /// What the source file was announced as.
    pub(crate) fn identity(&self) -> Option<Identity> {
        match self.kind {
            Kind::File { identity, .. } => Some(identity),
            _ => None,
        }
    }
}

/// A block in a buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Where in the buffer it begins.
    pub(crate) place: u32,
    pub(crate) block: Block,
    pub(crate) content: Content,
}

/// A frame that waits to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// The OST that room for it was granted for.
    pub(crate) room: OstId,
    /// Its first block.
    pub(crate) block: Block,
}

/// What an I/O thread does.
#[derive(Debug)]
pub(crate) enum Job {
    Examine(Vec<Entry>),
    Write(Write, Instant),
    Stage(Write, Slot),
    Release(Vec<Write>),
    /// Data first.
    SyncData(Vec<SyncFile>),
    /// Then the journal.
    SyncJournal(Vec<(SyncFile, Option<Failure>)>),
    /// With the buffer through which files are read back.
    Commit(Vec<Commit>, Option<usize>),
    /// What has been made durable gets its name; the others have ended so.
    Rename(Vec<EntryId>, Vec<(EntryId, Committed)>),
    /// Then the directories.
    SyncNames(Vec<EntryId>, Vec<(EntryId, Committed)>),
    Close(Vec<EntryId>),
    Discard(Vec<Discard>),
    Remove(Removal),
    Finish,
}

/// The end that writes.
#[derive(Debug)]
pub(crate) struct SinkEnd {
    pub(crate) session: Sink,
    pub(crate) items: BTreeMap<EntryId, Item>,
    pub(crate) journal: Journal,
    pub(crate) config: SinkConfig,
    pub(crate) workers: Vec<Option<Job>>,
    pub(crate) receivers: Vec<Receiver>,
    /// What each buffer of the arena holds, if it is in use.
    pub(crate) buffers: Vec<Option<Vec<Held>>>,
    /// Granted and not used.
    pub(crate) outstanding: RoomBooks,
    /// Frames that wait to be written, by their buffers; and how many are written, by OST.
    pub(crate) waiting: BTreeMap<BufferId, Waiting>,
    pub(crate) writing: Vec<u32>,
    /// Files that are locked while they are written, once for each write.
    pub(crate) locked: Vec<EntryId>,
    /// What each place in the stage holds; and the frames that wait there.
    pub(crate) stage: BTreeMap<Slot, Vec<Held>>,
    staged: BTreeMap<Slot, Waiting>,
    /// Buffers of frames that are brought back.
    pub(crate) brought_back: BTreeMap<Slot, usize>,
    pub(crate) is_stopping: bool,
    /// Whether nobody answers any more.
    pub(crate) is_cut_off: bool,
    /// Whether the session asked for a file to be announced again. If files may grow, no further
    /// file begins to grow from then on.
    pub(crate) has_placed_again: bool,
    woken_at: Option<Instant>,
    is_talk_due: bool,
    /// Whether it looks for the best number of requests in flight.
    is_matched: bool,
}

impl SinkEnd {
    pub(crate) fn new(world: &mut World) -> Checked<Self> {
        let config = world.options.sink.clone();
        let rows = vec![0; config.osts.len()];
        let stream_count = world.options.network.stream_count;
        let mut session = Sink::new(&config);
        if let Some(most) = world.options.matched {
            session.match_requests(most);
        }
        let mut end = Self {
            session,
            is_matched: world.options.matched.is_some(),
            items: BTreeMap::new(),
            journal: Journal::open(&mut world.disk, config.has_journal)?,
            workers: (0..world.options.sink_workers).map(|_| None).collect(),
            receivers: (0..stream_count).map(|_| Receiver::default()).collect(),
            buffers: (0..config.buffer_count).map(|_| None).collect(),
            config,
            outstanding: RoomBooks::new(rows.len()),
            waiting: BTreeMap::new(),
            staged: BTreeMap::new(),
            stage: BTreeMap::new(),
            brought_back: BTreeMap::new(),
            is_stopping: false,
            is_cut_off: false,
            writing: rows,
            locked: Vec::new(),
            has_placed_again: false,
            woken_at: None,
            is_talk_due: false,
        };
        end.tell(world, Event::Message(Message::Roots(Vec::new())))?;
        let ost_count = u32::try_from(end.config.osts.len()).expect("a few");
        let open_files_max = world.options.sink_open_files_max;
        // Some worlds have a sink that keeps whole seconds.
        let has_seconds = end.config.osts.len().is_multiple_of(3);
        let time_unit_nanos = if has_seconds { 1_000_000_000 } else { 1 };
        let is_renamed = false;
        let ready = Message::Ready { ost_count, open_files_max, is_renamed, time_unit_nanos };
        world.send(Side::Source, &ready)?;
        Ok(end)
    }

    /// Tells the session what happened.
    pub(crate) fn tell(&mut self, world: &World, event: Event) -> Checked {
        world.log(|| format!("sink <- {event:?}"));
        self.is_stopping |= matches!(event, Event::Stop);
        let told = self.session.handle(world.now, event);
        told.map_err(|error| format!("the sink refuses: {error}"))
    }

    pub(crate) fn on_message(&mut self, world: &mut World) -> Checked {
        let message = world.receive(Side::Sink);
        if let Message::NewFile(entries) = &message {
            entries.iter().for_each(|entry| self.register(entry));
        }
        self.is_stopping |= matches!(message, Message::Stop(_));
        self.tell(world, Event::Message(message))
    }

    fn register(&mut self, entry: &Entry) {
        let name = String::from_utf8_lossy(&entry.name);
        let parent = self.items.get(&entry.parent).map_or("", |parent| parent.path.as_str());
        let item = Item {
            path: join(parent, &name),
            parent: entry.parent,
            kind: entry.kind.clone(),
            state: State::Announced,
            is_examined: false,
            is_kept: false,
            body: None,
            written: RangeSet::new(),
            on_record: RangeSet::new(),
            extents: Vec::new(),
        };
        self.items.insert(entry.id, item);
    }

    /// Gives idle threads something to do, sends messages.
    pub(crate) fn poll(&mut self, world: &mut World) -> Checked {
        self.give_tasks(world)?;
        if world.rng.hits(500) {
            self.talk(world)?;
        } else if !self.is_talk_due {
            self.is_talk_due = true;
            let wait = world.rng.micros(1, 300);
            world.after(wait, Happening::Talk(Side::Sink));
        }
        Ok(())
    }

    pub(crate) fn on_talk(&mut self, world: &mut World) -> Checked {
        self.is_talk_due = false;
        self.talk(world)
    }

    /// Sends what the session has to say.
    pub(crate) fn talk(&mut self, world: &mut World) -> Checked {
        let is_expected = self.session.has_message();
        while let Some(message) = self.session.next_message() {
            if !is_expected {
                return Err(format!("nobody would have been woken for {message:?}"));
            }
            self.check_message(world, &message)?;
            self.has_placed_again |= matches!(message, Message::PlaceAgain(_));
            world.send(Side::Source, &message)?;
        }
        // Where files grow, the session asks only for a file that cannot be written otherwise.
        if self.config.growth.is_none() && world.rng.hits(world.faults.place_again) {
            self.ask_for_another_place(world)?;
        }
        Ok(())
    }

    /// Whatever the session thinks of it, a file under way might have to be announced anew.
    fn ask_for_another_place(&self, world: &mut World) -> Checked {
        let is_under_way = |item: &Item| {
            let data_bytes = match item.kind {
                Kind::File { data_bytes, .. } => data_bytes,
                _ => 0,
            };
            item.state == State::Wanted && item.written.byte_count() < data_bytes
        };
        let wanted = self.items.iter().filter(|(_, item)| is_under_way(item));
        let wanted: Vec<EntryId> = wanted.map(|(entry, _)| *entry).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let message = Message::PlaceAgain(vec![*world.rng.pick(&wanted)]);
        world.log(|| format!("for no reason: {message:?}"));
        world.send(Side::Source, &message)
    }

    /// Threads that have called something which may never return: freeing a buffer does.
    pub(crate) fn busy_workers(&self) -> Vec<usize> {
        let calls =
            |job: &Option<Job>| job.as_ref().is_some_and(|it| !matches!(it, Job::Release(_)));
        let workers = self.workers.iter().enumerate();
        workers.filter(|(_, job)| calls(job)).map(|(worker, _)| worker).collect()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.workers.iter().all(Option::is_none) && self.receivers.iter().all(Receiver::is_idle)
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
                match self.session.next_task(world.now) {
                    Some(task) if !is_expected => {
                        return Err(format!("nobody would have been woken for {task:?}"));
                    }
                    Some(task) => self.begin(world, worker, task)?,
                    None => {
                        has_idle = true;
                        break;
                    }
                }
            }
        }
        let timeout = self.session.next_timeout();
        if let Some(at) = timeout.filter(|&at| at > world.now && self.woken_at != timeout) {
            self.woken_at = Some(at);
            world.at(at, Happening::Wake);
        }
        if has_idle { self.check_idle() } else { Ok(()) }
    }

    /// Which OSTs have nothing in flight although frames wait for them.
    pub(crate) fn neglected(&self) -> impl Iterator<Item = bool> + '_ {
        let waits = self.waits();
        self.writing.iter().zip(waits).map(|(writing, waits)| waits && *writing == 0)
    }

    /// For which OSTs frames wait in memory.
    fn waits(&self) -> Vec<bool> {
        self.osts_of(self.waiting.values())
    }

    /// Which OSTs these go to, and could go to now. A file that grows may have been given an extent
    /// elsewhere.
    fn osts_of<'a>(&self, frames: impl Iterator<Item = &'a Waiting>) -> Vec<bool> {
        let mut waits = vec![false; self.writing.len()];
        for Waiting { room, block } in frames {
            let grown = self.items.get(&block.entry).map(|item| &item.extents);
            let mut extents = grown.into_iter().flatten();
            let extent = extents.find(|extent| extent.range.contains(&block.offset));
            let index = extent.map_or(*room, |extent| extent.ost).index();
            let is_held_up =
                self.config.osts[index].locks_files && self.locked.contains(&block.entry);
            waits[index] |= !is_held_up;
        }
        waits
    }

    /// A thread was told that there is nothing to do: is that so?
    fn check_idle(&self) -> Checked {
        // Fewer requests than could be may be better, but not none.
        if self.is_matched && self.writing.iter().any(|&count| count > 0) {
            return Ok(());
        }
        let stage = self.config.stage;
        let may_drain = !self.is_stopping
            && stage.is_some_and(|it| (self.brought_back.len() as u64) < it.drains_max.into());
        if stage.is_some_and(|it| self.writing.iter().sum::<u32>() >= it.writes_max) {
            return Ok(());
        }
        // What may still go anywhere may be left to others, as long as these are busy.
        let is_left_to_others =
            self.config.growth.is_some() && self.writing.iter().any(|&count| count > 0);
        let (waits, staged) = (self.waits(), self.osts_of(self.staged.values()));
        for (index, ost) in self.config.osts.iter().enumerate().filter(|_| !is_left_to_others) {
            let at_least = in_flight_at_least(self.config.policy, ost.in_flight_max);
            let waits = waits[index] || (may_drain && staged[index]);
            if waits && self.writing[index] < at_least {
                return Err(format!("{} is free, its frames wait, a thread is idle", ost.name));
            }
        }
        Ok(())
    }

    fn begin(&mut self, world: &mut World, worker: usize, task: Task) -> Checked {
        world.log(|| format!("sink worker {worker}: {task:?}"));
        let mut wait = world.rng.micros(10, 2000);
        let job = match task {
            Task::Examine(entries) => Job::Examine(entries),
            Task::Stage(write, slot) => {
                self.begin_stage(&write, slot)?;
                Job::Stage(write, slot)
            }
            Task::Release(writes) => {
                for write in &writes {
                    self.stop_waiting(write)?;
                }
                Job::Release(writes)
            }
            Task::Write(write) => {
                match write.place {
                    Place::Buffer(_) => {
                        self.stop_waiting(&write)?;
                    }
                    Place::Stage(slot) => self.begin_drain(slot)?,
                }
                wait = self.begin_write(world, &write)?;
                Job::Write(write, world.now)
            }
            Task::Sync(files) => {
                wait = world.rng.micros(100, world.options.sync_micros_max);
                self.check_sync(world, &files)?;
                Job::SyncData(files)
            }
            Task::Commit(commits) => {
                let buffer = self.begin_commit(&commits)?;
                Job::Commit(commits, buffer)
            }
            Task::Close(entries) => Job::Close(entries),
            Task::Discard(entries) => {
                self.check_discard(&entries)?;
                Job::Discard(entries)
            }
            Task::Remove { is_permitted } => self.begin_removal(world, is_permitted),
            Task::Finish { .. } => {
                self.check_finish()?;
                Job::Finish
            }
        };
        self.workers[worker] = Some(job);
        world.after(wait, Happening::Worker(Side::Sink, worker));
        Ok(())
    }

    /// A thread begins to write a frame: how long will it take?
    pub(crate) fn begin_write(
        &mut self,
        world: &mut World,
        write: &Write,
    ) -> Checked<std::time::Duration> {
        self.add_extents(world, write)?;
        let World { rng, options, now, .. } = world;
        let ost = &mut options.sink_osts[write.ost.index()];
        self.writing[write.ost.index()] += 1;
        if self.writing[write.ost.index()] > ost.spec.in_flight_max {
            return Err(format!("{} has more in flight than it may", write.ost));
        }
        if let Some(file) = locked_by(&ost.spec, write) {
            // What waits for an OST that was slow may be taken by another, whatever it is.
            if self.locked.contains(&file) && self.config.growth.is_none() {
                return Err(format!("a second write of {file} begins, which is locked"));
            }
            self.locked.push(file);
        }
        let bytes = write.rows.iter().map(|(row, _)| u64::from(row.block.length)).sum();
        let wait = ost.service(rng, *now, bytes);
        world.watch_taking(Side::Sink, write.ost, wait);
        Ok(wait)
    }

    /// A frame is not being written any more.
    pub(crate) fn end_write(&mut self, write: &Write) {
        self.writing[write.ost.index()] -= 1;
        if let Some(file) = locked_by(&self.config.osts[write.ost.index()], write) {
            let at = self.locked.iter().position(|&locked| locked == file);
            self.locked.swap_remove(at.expect("its write began"));
        }
    }

    /// Adds extents to the file that is about to be written, as a file system would let it.
    fn add_extents(&mut self, world: &mut World, write: &Write) -> Checked {
        let Some((row, _)) = write.rows.first() else { return Ok(()) };
        let Some(body) = self.items.get(&row.block.entry).and_then(|item| item.body) else {
            return Ok(());
        };
        let extents = &mut world.disk.bodies[body].extents;
        for extent in &write.extents {
            let fixed = extents.last().map_or(0, |it| it.range.end);
            if extents.is_empty() || extent.range.start != fixed || extent.range.is_empty() {
                return Err(format!("{extent:?} is added to {extents:?}"));
            }
            extents.push(extent.clone());
        }
        world.stats.extents_added += write.extents.len() as u64;
        if let Some(item) = self.items.get_mut(&row.block.entry) {
            item.extents.clone_from(extents);
        }
        if extents.is_empty() {
            return Ok(());
        }
        // The rows of a frame may be in several extents; its OST is that of the first.
        let first = extents.iter().find(|it| it.range.contains(&row.block.offset));
        let fixed = extents.last().map_or(0, |it| it.range.end);
        let is_fixed = write.rows.iter().all(|(row, _)| row.block.end() <= fixed);
        match first.is_some_and(|it| it.ost == write.ost) && is_fixed {
            true => Ok(()),
            false => Err(format!("{write:?} is written to what has {extents:?}")),
        }
    }

    /// An I/O thread has done what it was told.
    pub(crate) fn on_worker(&mut self, world: &mut World, worker: usize) -> Checked {
        match self.workers[worker].take().expect("it had something to do") {
            Job::Examine(entries) => self.examine(world, &entries),
            Job::Write(write, started) => self.finish_write(world, write, started),
            Job::Stage(write, slot) => self.put_aside(world, write, slot),
            Job::Release(writes) => self.release(world, writes),
            Job::SyncData(files) => {
                let results = self.sync_data(world, files);
                self.append(world, &results);
                self.workers[worker] = Some(Job::SyncJournal(results));
                let wait = world.rng.micros(100, world.options.sync_micros_max / 2);
                world.after(wait, Happening::Worker(Side::Sink, worker));
                Ok(())
            }
            Job::SyncJournal(results) => self.finish_sync(world, results),
            Job::Commit(commits, buffer) => {
                if let Some(buffer) = buffer {
                    self.buffers[buffer] = None;
                }
                if world.options.commits_in_steps {
                    self.commit_in_steps(world, worker, &commits)
                } else {
                    self.commit(world, &commits)
                }
            }
            Job::Rename(entries, results) => self.rename_all(world, worker, entries, results),
            Job::SyncNames(entries, results) => self.sync_names(world, &entries, results),
            Job::Close(entries) => self.close(world, &entries),
            Job::Discard(entries) => self.discard(world, &entries),
            Job::Remove(_) if self.is_cut_off => Ok(()),
            Job::Remove(removal) => self.go_on_removing(world, worker, removal),
            Job::Finish => {
                self.journal.finish(&mut world.disk);
                world.disk.sync_names();
                self.tell(world, Event::Finished)
            }
        }
    }

    /// A frame may only be put aside if its buffer is wanted and its place is free.
    fn begin_stage(&mut self, write: &Write, slot: Slot) -> Checked {
        let stage = self.config.stage.ok_or("there is no stage")?;
        let buffer_bytes = self.config.buffer_bytes;
        let is_inside = slot.offset(buffer_bytes) + u64::from(buffer_bytes) <= stage.bytes;
        if !is_inside || self.stage.contains_key(&slot) || self.brought_back.contains_key(&slot) {
            return Err(format!("{write:?} cannot be put into {slot:?}"));
        }
        self.stop_waiting(write)?;
        self.stage.insert(slot, Vec::new());
        Ok(())
    }

    /// A frame that waits in memory is taken.
    fn stop_waiting(&mut self, write: &Write) -> Checked {
        let Place::Buffer(buffer) = write.place else { return Err("where?".to_owned()) };
        self.waiting.remove(&buffer).map(|_| ()).ok_or_else(|| format!("{write:?} did not wait"))
    }

    /// There must be a buffer for what is brought back.
    fn begin_drain(&mut self, slot: Slot) -> Checked {
        self.staged.remove(&slot).ok_or("it was not staged")?;
        let held = self.stage.remove(&slot).ok_or("nothing is in the stage there")?;
        let buffer = self.buffers.iter().position(Option::is_none);
        let buffer = buffer.ok_or("a frame is brought back, and there is no buffer")?;
        self.buffers[buffer] = Some(held);
        self.brought_back.insert(slot, buffer);
        Ok(())
    }

    /// There must be a buffer for files that are read back: a thread that waited for one could be
    /// the one that would free it.
    fn begin_commit(&mut self, commits: &[Commit]) -> Checked<Option<usize>> {
        if commits.iter().all(|commit| commit.verify.is_none()) {
            return Ok(None);
        }
        let buffer = self.buffers.iter().position(Option::is_none);
        let buffer = buffer.ok_or("files are read back, and there is no buffer")?;
        self.buffers[buffer] = Some(Vec::new());
        Ok(Some(buffer))
    }

    /// What is in a buffer goes to the stage, or does not, or something else does.
    fn put_aside(&mut self, world: &mut World, write: Write, slot: Slot) -> Checked {
        let Place::Buffer(BufferId(buffer)) = write.place else { return Err("where?".to_owned()) };
        if world.stage_fails(world.faults.stage_write_error) {
            self.stage.remove(&slot);
            let block = write.rows.first().ok_or("a frame of nothing")?.0.block;
            self.waiting.insert(BufferId(buffer), Waiting { room: write.room, block });
            return self.tell(world, Event::NotStaged { write, slot });
        }
        let mut held = self.buffers[buffer as usize].take().ok_or("nothing is put aside")?;
        if world.stage_fails(world.faults.stage_rot) {
            held.iter_mut().for_each(|held| held.content = Content::GARBAGE);
        }
        world.stats.blocks_staged += write.rows.len() as u64;
        self.stage.insert(slot, held);
        let block = write.rows.first().ok_or("a frame of nothing")?.0.block;
        self.staged.insert(slot, Waiting { room: write.room, block });
        self.tell(world, Event::Staged(Write { place: Place::Stage(slot), ..write }))
    }

    /// Nothing is wanted of these frames: only files that are dropped have such.
    fn release(&mut self, world: &mut World, writes: Vec<Write>) -> Checked {
        for write in &writes {
            let Place::Buffer(BufferId(buffer)) = write.place else {
                return Err(format!("{write:?} is released, and not in a buffer"));
            };
            self.buffers[buffer as usize].take().ok_or("a buffer is released that is free")?;
        }
        self.tell(world, Event::Released(writes))
    }

    /// A failure at this end.
    pub(crate) fn failure(operation: Operation, errno: i32) -> Failure {
        Failure::new(Side::Sink, operation, Reason::Os(errno))
    }
}

/// The file that nobody else may write as long as this frame is written.
fn locked_by(ost: &OstSpec, write: &Write) -> Option<EntryId> {
    let locks = ost.locks_files && !write.is_comparison;
    let first = write.rows.first().filter(|_| locks);
    first.map(|(row, _)| row.block.entry)
}
