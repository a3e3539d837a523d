//! What the sink's I/O threads do to the disk, and what goes wrong with it.

use crate::content::Content;
use crate::disk::Name;
use crate::findings::Checked;
use crate::journal::Journal;
use crate::options::{PAGE, draw_layout};
use crate::rng::Rng;
use crate::sink_end::{Job, SinkEnd, State};
use crate::source_end::EIO;
use crate::world::{Happening, World};
use lads_core::entry::{Entry, Identity, Kind};
use lads_core::frame::Row;
use lads_core::growth::{self, Extent};
use lads_core::issue::{Failure, Operation, Reason, Side};
use lads_core::journal::BlockRecord;
use lads_core::layout::Layout;
use lads_core::message::Answer;
use lads_core::placement::{Candidate, OstState, Striping, Wish};
use lads_core::sink::{
    BufferId, Commit, Committed, Discard, Event, Examined, Place, SyncFile, Write,
};
use lads_core::units::{EntryId, Instant};
use std::time::Duration;

/// Linux's ENOSPC.
const ENOSPC: i32 = 28;
/// What Lustre says of an OST that takes no new objects.
const ENOBUFS: i32 = 105;

impl SinkEnd {
    pub(crate) fn examine(&mut self, world: &mut World, entries: &[Entry]) -> Checked {
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let examined = self.examine_one(world, entry)?;
            let item = self.items.get_mut(&entry.id).expect("registered");
            if item.state == State::Closed {
                return Err(format!("{} was closed before it was examined", item.path));
            }
            item.is_examined = true;
            item.state = match &examined {
                Examined::Want { .. } => State::Wanted,
                Examined::Compare { .. } => unreachable!("no world compares by checksum"),
                Examined::Answer(Answer::Failed(_)) => State::Failed,
                Examined::Answer(_) => State::Made,
            };
            results.push((entry.id, examined));
        }
        self.tell(world, Event::Examined(results))
    }

    fn examine_one(&mut self, world: &mut World, entry: &Entry) -> Checked<Examined> {
        let item = self.items[&entry.id].clone();
        let path = item.path.as_str();
        if !self.make_parents(world, item.parent)? {
            let failure = Failure::new(Side::Sink, Operation::Create, Reason::ParentFailed);
            return Ok(Examined::Answer(Answer::Failed(failure)));
        }
        let rate = world.faults.examine_error;
        if item.state == State::Announced && world.fails(rate, path) {
            let failure = Self::failure(Operation::Create, EIO);
            return Ok(Examined::Answer(Answer::Failed(failure)));
        }
        let there = world.disk.names.get(path).map(|name| &name.what);
        let answer = match &entry.kind {
            Kind::File { identity, .. } => return self.examine_file(world, entry.id, identity),
            Kind::Directory => {
                if there != Some(&Name::Directory) {
                    world.disk.make(path, Name::Directory);
                }
                Answer::Made
            }
            Kind::Symlink { target } => {
                let wanted = Name::Symlink(target.clone());
                if there == Some(&wanted) {
                    Answer::Have
                } else {
                    world.disk.make(path, wanted);
                    Answer::Made
                }
            }
            Kind::HardLink { target } => {
                let target = String::from_utf8_lossy(target).into_owned();
                let wanted = world.disk.names.get(&target).map(|name| name.what.clone());
                let Some(wanted @ Name::File(_)) = wanted else {
                    return Err(format!("{path} is linked to {target}, which is not there"));
                };
                if there == Some(&wanted) {
                    Answer::Have
                } else {
                    world.disk.make(path, wanted);
                    Answer::Made
                }
            }
            Kind::Special { .. } => return Err(format!("{path}: there are no specials")),
        };
        Ok(Examined::Answer(answer))
    }

    /// Directories are made when something in them is looked at, if their own turn comes later.
    fn make_parents(&mut self, world: &mut World, directory: EntryId) -> Checked<bool> {
        if directory == EntryId::ROOT {
            return Ok(true);
        }
        let Some(item) = self.items.get(&directory).cloned() else {
            return Err(format!("directory {directory} was not announced before what is in it"));
        };
        match item.state {
            State::Failed => Ok(false),
            State::Closed => Err(format!("{} is closed, and something new in it", item.path)),
            State::Announced => {
                if !self.make_parents(world, item.parent)? {
                    return Ok(false);
                }
                if !world.disk.names.contains_key(&item.path) {
                    world.disk.make(&item.path, Name::Directory);
                }
                self.items.get_mut(&directory).expect("just seen").state = State::Made;
                Ok(true)
            }
            _ => Ok(true),
        }
    }

    fn examine_file(
        &mut self,
        world: &mut World,
        entry: EntryId,
        identity: &Identity,
    ) -> Checked<Examined> {
        let path = self.items[&entry].path.clone();
        let is_there = world
            .disk
            .file(&path)
            .is_some_and(|body| (body.size, body.mtime) == (identity.size, identity.mtime));
        if is_there {
            return Ok(Examined::Answer(Answer::Have));
        }
        let is_double =
            |item: &crate::sink_end::Item| item.path == path && item.state == State::Wanted;
        if self.items.values().any(is_double) {
            return Err(format!("{path} begins anew before what there was of it is dropped"));
        }
        let done = self.journal.take_begun(&mut world.disk, &path, identity);
        let body = if done.is_empty() {
            let (layout, extents) = self.place(world, entry, identity.size)?;
            world.disk.create(&path, layout, extents, identity.size)
        } else {
            world.disk.unfinished[&path].what
        };
        let extents = world.disk.bodies[body].extents.clone();
        let grown = growth::layout_of(&extents);
        let layout = grown.unwrap_or_else(|| world.disk.bodies[body].layout.clone());
        let item = self.items.get_mut(&entry).expect("looked up above");
        item.body = Some(body);
        item.extents.clone_from(&extents);
        item.on_record = done.iter().map(|b| b.offset..b.offset + u64::from(b.length)).collect();
        item.written = item.on_record.clone();
        Ok(Examined::Want { done, layout, extents })
    }

    /// Where a new file is to lie.
    fn place(
        &mut self,
        world: &mut World,
        entry: EntryId,
        size: u64,
    ) -> Checked<(Layout, Vec<Extent>)> {
        if !world.is_placed {
            self.tell_of_osts(world, entry)?;
        }
        let placement = self.session.place(world.now, entry, Striping::default());
        if !world.is_placed {
            // A file system need not do as it is asked.
            let layout = draw_layout(&mut world.rng, self.config.osts.len());
            let extents = self.draw_extents(world, &layout, size);
            return Ok((layout, extents));
        }
        let Wish::On { stripe_size, osts } = placement.wish else {
            return Err(format!("no OST takes a file, and all do: {placement:?}"));
        };
        let layout = Layout::striped(stripe_size, osts).ok_or("a file is to lie nowhere")?;
        let first = |end| Extent { range: 0..end, ost: layout.ost_at(0) };
        let extents = placement.first_extent_bytes.map(first).into_iter().collect();
        Ok((layout, extents))
    }

    /// OSTs come and go, and fill.
    fn tell_of_osts(&mut self, world: &World, entry: EntryId) -> Checked {
        let mut rng =
            Rng::new(entry.0 ^ u64::try_from(world.now.since_start().as_nanos()).unwrap_or(0));
        let states = [OstState::Up, OstState::Degraded, OstState::Full, OstState::Down];
        let known = self.config.osts.iter().map(|_| Candidate {
            state: *rng.pick(&states),
            capacity_bytes: if rng.hits(500) { 0 } else { rng.below(1 << 24) },
            free_bytes: rng.below(1 << 24),
            ..Candidate::default()
        });
        let known = known.collect();
        let delay_micros = world.options.network.delay_micros;
        self.tell(world, Event::RoundTrip(Duration::from_micros(2 * delay_micros)))?;
        self.tell(world, Event::Osts(known))
    }

    /// A file that may grow has its first extent.
    fn draw_extents(&self, world: &mut World, layout: &Layout, size: u64) -> Vec<Extent> {
        let is_alone = layout.position_count() == 1 && size > self.config.tuning.packed_bytes_max;
        let is_open = is_alone && self.config.growth.is_some() && !self.has_placed_again;
        if !is_open || world.rng.hits(300) {
            return Vec::new();
        }
        let end = world.rng.below(size.div_ceil(PAGE) + 1) * PAGE;
        let first = Extent { range: 0..end.max(PAGE), ost: layout.ost_at(0) };
        vec![first]
    }

    pub(crate) fn finish_write(
        &mut self,
        world: &mut World,
        write: Write,
        started: Instant,
    ) -> Checked {
        let buffer = match write.place {
            Place::Buffer(BufferId(buffer)) => buffer as usize,
            Place::Stage(slot) => self.brought_back.remove(&slot).ok_or("it never came back")?,
        };
        let held = self.buffers[buffer].take();
        let held = held.ok_or("a buffer is written that holds nothing")?;
        if !write.is_in_memory() {
            let is_good = |(row, place): &(Row, u32)| {
                let held = held.iter().find(|held| held.place == *place);
                let length = row.block.length.into();
                held.is_some_and(|it| it.content.checksum(row.block.offset, length) == row.checksum)
            };
            if !write.rows.iter().all(is_good) || world.stage_fails(world.faults.stage_read_error) {
                self.end_write(&write);
                let service = world.now.since(started);
                return self.tell(world, Event::NotDrained { write, service });
            }
        }
        let mut failures = Vec::with_capacity(write.rows.len());
        for (row, place) in &write.rows {
            let held = held.iter().find(|held| held.place == *place && held.block == row.block);
            let held = held.ok_or_else(|| format!("{row:?} is not at {place} in its buffer"))?;
            failures.push(self.write_block(world, row, held.content)?);
        }
        self.end_write(&write);
        let service = world.now.since(started);
        self.tell(world, Event::Written { write, service, failures })
    }

    fn write_block(
        &mut self,
        world: &mut World,
        row: &Row,
        content: Content,
    ) -> Checked<Option<Failure>> {
        let block = row.block;
        let item = self.items.get_mut(&block.entry).ok_or("a block of nothing")?;
        if item.state == State::Dropped {
            // To a file that has no name any more.
            return Ok(None);
        }
        let Some(body) = item.body.filter(|_| item.state == State::Wanted) else {
            return Err(format!("{row:?} is written to a file that is {:?}", item.state));
        };
        let range = block.offset..block.end();
        if content.checksum(block.offset, block.length.into()) != row.checksum {
            return Err(format!("{row:?} is written with other bytes: {content:?}"));
        }
        let rate = world.faults.write_error;
        if world.fails(rate, &item.path) {
            world.disk.bodies[body].volatile.put(range, Content::GARBAGE);
            let is_closed = block.offset / PAGE % 2 == 1;
            let errno = match (world.faults.is_full, is_closed) {
                (true, _) => ENOSPC,
                (false, true) => ENOBUFS,
                (false, false) => EIO,
            };
            let is_of_its_extent = block.offset / PAGE % 3 == 1;
            let operation =
                if is_of_its_extent { Operation::Preallocate } else { Operation::Write };
            return Ok(Some(Self::failure(operation, errno)));
        }
        world.disk.bodies[body].volatile.put(range.clone(), content);
        item.written.insert(range);
        Ok(None)
    }

    pub(crate) fn sync_data(
        &mut self,
        world: &mut World,
        files: Vec<SyncFile>,
    ) -> Vec<(SyncFile, Option<Failure>)> {
        let mut results = Vec::with_capacity(files.len());
        for file in files {
            let path = self.items[&file.entry].path.clone();
            let rate = world.faults.sync_error;
            let fails = world.fails(rate, &path);
            if !fails {
                self.make_durable(world, &file);
            }
            results.push((file, fails.then(|| Self::failure(Operation::Sync, EIO))));
        }
        results
    }

    /// Only what was written before the sync began is sure to be durable: the blocks in it.
    pub(crate) fn make_durable(&self, world: &mut World, file: &SyncFile) {
        let item = &self.items[&file.entry];
        let Some(body) = item.body else { return };
        if let Some(name) = world.disk.unfinished.get_mut(&item.path) {
            name.is_durable = true;
        }
        let body = &mut world.disk.bodies[body];
        for block in &file.blocks {
            let range = range_of(block);
            if let Some(content) = body.volatile.single(range.clone()) {
                body.durable.put(range, content);
            }
        }
    }

    pub(crate) fn append(&mut self, world: &mut World, results: &[(SyncFile, Option<Failure>)]) {
        let mut records = Vec::new();
        for (file, failure) in results {
            let item = &self.items[&file.entry];
            if let Some(identity) = item.identity()
                && failure.is_none()
            {
                records.push((item.path.clone(), identity, file.blocks.clone()));
            }
        }
        self.journal.append(&mut world.disk, &records);
    }

    pub(crate) fn finish_sync(
        &mut self,
        world: &mut World,
        mut results: Vec<(SyncFile, Option<Failure>)>,
    ) -> Checked {
        if world.rng.hits(world.faults.journal_error) {
            for (file, failure) in &mut results {
                world.excused.insert(self.items[&file.entry].path.clone());
                failure.get_or_insert(Self::failure(Operation::Journal, EIO));
            }
        } else {
            Journal::sync(&mut world.disk);
            for (file, _) in results.iter().filter(|(_, failure)| failure.is_none()) {
                let item = self.items.get_mut(&file.entry).expect("synced");
                for block in &file.blocks {
                    item.on_record.insert(range_of(block));
                }
            }
        }
        self.tell(world, Event::Synced(results))
    }

    pub(crate) fn commit(&mut self, world: &mut World, commits: &[Commit]) -> Checked {
        let mut results = Vec::with_capacity(commits.len());
        for commit in commits {
            let committed = self.commit_one(world, commit)?;
            results.push((commit.entry, committed));
        }
        self.tell(world, Event::Committed(results))
    }

    fn commit_one(&mut self, world: &mut World, commit: &Commit) -> Checked<Committed> {
        let path = self.items[&commit.entry].path.clone();
        let rate = world.faults.commit_error;
        if world.fails(rate, &path) {
            return Ok(Committed::Failed(Self::failure(Operation::Rename, EIO)));
        }
        if let Some(records) = &commit.verify {
            let bad = self.read_back(world, commit.entry, records)?;
            if !bad.is_empty() {
                return Ok(Committed::Bad(bad));
            }
        }
        self.give_name(world, commit.entry)?;
        Ok(Committed::Complete)
    }

    /// Makes files durable; the next step gives them their names.
    pub(crate) fn commit_in_steps(
        &mut self,
        world: &mut World,
        worker: usize,
        commits: &[Commit],
    ) -> Checked {
        let (mut durable, mut results) = (Vec::new(), Vec::new());
        for commit in commits {
            let path = self.items[&commit.entry].path.clone();
            world.disk.sync_file(&path);
            let bad = match &commit.verify {
                Some(records) => self.read_back(world, commit.entry, records)?,
                None => Vec::new(),
            };
            if bad.is_empty() {
                self.check_commit(world, commit.entry)?;
                durable.push(commit.entry);
            } else {
                results.push((commit.entry, Committed::Bad(bad)));
            }
        }
        self.go_on(world, worker, Job::Rename(durable, results));
        Ok(())
    }

    /// Gives files their names, which a power cut may take back.
    pub(crate) fn rename_all(
        &mut self,
        world: &mut World,
        worker: usize,
        entries: Vec<EntryId>,
        mut results: Vec<(EntryId, Committed)>,
    ) -> Checked {
        let mut renamed = Vec::new();
        for entry in entries {
            let path = self.items[&entry].path.clone();
            let rate = world.faults.commit_error;
            if world.fails(rate, &path) {
                let failure = Self::failure(Operation::Rename, EIO);
                results.push((entry, Committed::Failed(failure)));
            } else {
                self.rename_one(world, entry)?;
                renamed.push(entry);
            }
        }
        self.go_on(world, worker, Job::SyncNames(renamed, results));
        Ok(())
    }

    /// Gives one file its name.
    pub(crate) fn rename_one(&mut self, world: &mut World, entry: EntryId) -> Checked {
        self.check_commit(world, entry)?;
        let item = self.items.get_mut(&entry).expect("checked");
        let identity = item.identity().expect("only files are committed");
        item.state = State::Committed;
        world.disk.rename(&item.path, identity.mtime);
        Ok(())
    }

    /// Makes the names durable, and says that the files are done.
    pub(crate) fn sync_names(
        &mut self,
        world: &mut World,
        entries: &[EntryId],
        mut results: Vec<(EntryId, Committed)>,
    ) -> Checked {
        for entry in entries {
            let path = &self.items[entry].path;
            world.disk.sync_rename(path);
            self.journal.forget(&mut world.disk, path);
            results.push((*entry, Committed::Complete));
        }
        self.tell(world, Event::Committed(results))
    }

    /// The same thread does the next step of the same files.
    fn go_on(&mut self, world: &mut World, worker: usize, job: Job) {
        self.workers[worker] = Some(job);
        let wait = world.rng.micros(10, world.options.sync_micros_max);
        world.after(wait, Happening::Worker(Side::Sink, worker));
    }

    /// The last step of a file, if it is what was announced.
    pub(crate) fn give_name(&mut self, world: &mut World, entry: EntryId) -> Checked {
        self.check_commit(world, entry)?;
        let item = self.items.get_mut(&entry).expect("checked");
        let identity = item.identity().expect("only files are committed");
        item.state = State::Committed;
        world.disk.commit(&item.path, identity.mtime);
        self.journal.forget(&mut world.disk, &item.path);
        Ok(())
    }

    /// Reads a file back from storage that may have rotted.
    fn read_back(
        &self,
        world: &mut World,
        entry: EntryId,
        records: &[BlockRecord],
    ) -> Checked<Vec<BlockRecord>> {
        let item = &self.items[&entry];
        let body = item.body.ok_or("a commit of nothing")?;
        let rate = world.faults.rot;
        if !records.is_empty() && world.fails(rate, &item.path) {
            let range = range_of(world.rng.pick(records));
            world.disk.bodies[body].rotten.insert(range.clone());
            world.disk.bodies[body].volatile.put(range, Content::GARBAGE);
        }
        let is_bad = |record: &&BlockRecord| {
            let content = world.disk.bodies[body].volatile.single(range_of(record));
            content.map(|c| c.checksum(record.offset, record.length.into()))
                != Some(record.checksum)
        };
        self.check_read_back(world, entry, records)?;
        Ok(records.iter().filter(is_bad).copied().collect())
    }

    pub(crate) fn close(&mut self, world: &mut World, entries: &[EntryId]) -> Checked {
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let item = self.items.get_mut(entry).ok_or("nothing is closed")?;
            if item.kind != Kind::Directory || !item.is_examined {
                return Err(format!("{} is closed, and {:?}", item.path, item.state));
            }
            let path = item.path.clone();
            let mut failure = None;
            if item.state != State::Failed {
                item.state = State::Closed;
                let rate = world.faults.close_error;
                failure =
                    world.fails(rate, &path).then(|| Self::failure(Operation::SetMetadata, EIO));
                self.make_names_durable(world, &path);
            }
            results.push((*entry, failure));
        }
        self.tell(world, Event::Closed(results))
    }

    fn make_names_durable(&self, world: &mut World, directory: &str) {
        world.disk.sync_renames_in(directory);
        for (path, name) in &mut world.disk.names {
            if path == directory || crate::tree::parent_of(path) == directory {
                name.is_durable = true;
            }
        }
    }

    pub(crate) fn discard(&mut self, world: &mut World, discards: &[Discard]) -> Checked {
        for discard in discards {
            self.discard_one(world, discard.entry, discard.is_kept)?;
        }
        let entries = discards.iter().map(|discard| discard.entry).collect();
        self.tell(world, Event::Discarded(entries))
    }

    pub(crate) fn discard_one(
        &mut self,
        world: &mut World,
        entry: EntryId,
        is_kept: bool,
    ) -> Checked {
        let item = self.items.get_mut(&entry).ok_or("nothing is dropped")?;
        item.state = State::Dropped;
        item.is_kept = is_kept;
        let body = item.body.take();
        if is_kept {
            return Ok(());
        }
        self.journal.forget_dropped(&mut world.disk, &item.path);
        let there = world.disk.unfinished.get(&item.path).map(|name| name.what);
        if there.is_some() && there != body {
            return Err(format!("{} is dropped, and with it another's blocks", item.path));
        }
        world.disk.unfinished.remove(&item.path);
        Ok(())
    }
}

/// Which bytes a record is of.
pub(crate) fn range_of(record: &BlockRecord) -> std::ops::Range<u64> {
    record.offset..record.offset + u64::from(record.length)
}
