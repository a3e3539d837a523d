//! What must hold at the sink, whatever happens.

use crate::content::Content;
use crate::findings::Checked;
use crate::sink_end::{Job, SinkEnd, State};
use crate::sink_work::range_of;
use crate::world::World;
use lads_core::journal::BlockRecord;
use lads_core::message::{BlockRange, Ending, Message};
use lads_core::range::RangeSet;
use lads_core::sink::{Discard, SyncFile, Write};
use lads_core::units::EntryId;

impl SinkEnd {
    /// What is said to the source must be so.
    pub(crate) fn check_message(&mut self, world: &mut World, message: &Message) -> Checked {
        match message {
            Message::Grant(lot) => {
                self.outstanding.add(lot);
                let (granted, used) = (self.outstanding.frames, self.buffers.iter().flatten());
                let used = used.count();
                if used + granted as usize > self.buffers.len() {
                    return Err(format!("{granted} frames are granted, {used} buffers in use"));
                }
                Ok(())
            }
            Message::BlockDone(ranges) => {
                ranges.iter().try_for_each(|range| self.check_block_done(world, range))
            }
            Message::FileDone(endings) => {
                let complete = endings.iter().filter(|(_, ending)| *ending == Ending::Complete);
                complete.map(|(entry, _)| &self.items[entry]).try_for_each(|item| {
                    match item.state == State::Committed && world.disk.may_lose_name(&item.path) {
                        true => Err(format!("{} is done, and its name not durable", item.path)),
                        false => Ok(()),
                    }
                })
            }
            _ => Ok(()),
        }
    }

    fn check_block_done(&self, world: &mut World, block: &BlockRange) -> Checked {
        let item = &self.items[&block.entry];
        let Some(body) = item.body.map(|body| &world.disk.bodies[body]) else {
            return Err(format!("{block:?} is done, and {:?}", item.state));
        };
        let range = block.offset..block.offset + block.length;
        let identity = item.identity().expect("only files have blocks");
        // The rest of a file that is all written becomes durable with its name.
        let version = world.tree.version_of(&identity).ok_or("nobody announced this")?;
        let is_written = version.data_set().iter().all(|data| item.written.contains(data));
        let goes_on_record = self.config.has_journal && !is_written;
        let extents = if goes_on_record { &body.durable } else { &body.volatile };
        let content = extents.single(range.clone());
        let is_good = content.is_some_and(|content| content != Content::GARBAGE);
        if !is_good && !body.rotten.contains(range.clone()) {
            return Err(format!("{block:?} is done, but not there: {content:?}"));
        }
        let is_on_record = item.on_record.contains(range.clone());
        if goes_on_record && !is_on_record {
            return Err(format!("{block:?} is done, but not on record"));
        }
        if is_on_record && item.state == State::Wanted {
            let promised = world.disk.promised.entry(item.path.clone());
            let promised = promised.or_insert_with(|| (identity, RangeSet::new()));
            if promised.0 != identity {
                *promised = (identity, RangeSet::new());
            }
            promised.1.insert(range);
        }
        Ok(())
    }

    /// Blocks that are to be put on record must have been written.
    pub(crate) fn check_sync(&self, world: &World, files: &[SyncFile]) -> Checked {
        for file in files {
            let item = &self.items[&file.entry];
            let Some(body) = item.body.filter(|_| item.state == State::Wanted) else {
                return Err(format!("{} is synced, and {:?}", item.path, item.state));
            };
            for block in &file.blocks {
                let content = world.disk.bodies[body].volatile.single(range_of(block));
                let checksum = content.map(|c| c.checksum(block.offset, block.length.into()));
                if checksum != Some(block.checksum) {
                    return Err(format!("{} {block:?} is put on record as {content:?}", item.path));
                }
            }
        }
        Ok(())
    }

    /// What is read back must be all that the file has.
    pub(crate) fn check_read_back(
        &self,
        world: &World,
        entry: EntryId,
        records: &[BlockRecord],
    ) -> Checked {
        let identity = self.items[&entry].identity().ok_or("only files are read back")?;
        let version = world.tree.version_of(&identity).ok_or("nobody announced this")?;
        let read: RangeSet = records.iter().map(range_of).collect();
        match version.data_set().iter().find(|range| !read.contains(range.clone())) {
            Some(range) => Err(format!("{} {range:?} is not read back", self.items[&entry].path)),
            None => Ok(()),
        }
    }

    /// A file that gets its name must be all that was announced, and of one version.
    pub(crate) fn check_commit(&self, world: &World, entry: EntryId) -> Checked {
        let item = &self.items[&entry];
        let path = &item.path;
        let Some(body) = item.body.filter(|_| item.state == State::Wanted) else {
            return Err(format!("{path} gets its name, and is {:?}", item.state));
        };
        if world.disk.unfinished.get(path).map(|name| name.what) != Some(body) {
            return Err(format!("{path} gets its name, and its blocks are gone"));
        }
        if self.is_written_now(entry) || self.is_synced_now(entry) {
            return Err(format!("{path} gets its name, and blocks of it are still written"));
        }
        if let Some(parent) = self.items.get(&item.parent)
            && parent.state == State::Closed
        {
            return Err(format!("{path} gets its name in a directory that is closed"));
        }
        let identity = item.identity().ok_or("only files are committed")?;
        let version = world.tree.version_of(&identity).ok_or("nobody announced this")?;
        let extents = &world.disk.bodies[body].volatile;
        let data = version.data_set();
        for range in data.iter() {
            if extents.single(range.clone()) != Some(version.content) {
                let found: Vec<_> = extents.iter().collect();
                return Err(format!("{path} {range:?} is not {:?}: {found:?}", version.content));
            }
        }
        match extents.stranger(version.content, &data) {
            Some(range) => Err(format!("{path} has {range:?} where the source has a hole")),
            None => Ok(()),
        }
    }

    /// What is dropped must not be about to be put on record, and what is kept for another attempt
    /// must be in nobody's hands.
    pub(crate) fn check_discard(&self, discards: &[Discard]) -> Checked {
        for Discard { entry, is_kept, .. } in discards {
            let path = &self.items[entry].path;
            if self.is_synced_now(*entry) || (*is_kept && self.is_written_now(*entry)) {
                return Err(format!("{path} is dropped, and blocks of it are still written"));
            }
            if let Some(parent) = self.items.get(&self.items[entry].parent)
                && parent.state == State::Closed
            {
                return Err(format!("{path} is dropped in a directory that is closed"));
            }
        }
        Ok(())
    }

    /// Nothing may be under way when everything has ended, but writes to files that are no more.
    pub(crate) fn check_finish(&self) -> Checked {
        let is_dropped = |entry: &EntryId| self.items[entry].state == State::Dropped;
        let is_of_dropped = |job: &Job| {
            let writes = match job {
                Job::Write(write, _) => std::slice::from_ref(write),
                Job::Release(writes) => writes,
                _ => return false,
            };
            let mut rows = writes.iter().flat_map(|write| &write.rows);
            rows.all(|(row, _)| is_dropped(&row.block.entry))
        };
        if let Some(job) = self.workers.iter().flatten().find(|job| !is_of_dropped(job)) {
            return Err(format!("everything has ended, and still: {job:?}"));
        }
        let unended = |state| matches!(state, State::Announced | State::Wanted);
        match self.items.values().find(|item| unended(item.state)) {
            Some(item) => Err(format!("everything has ended, and {item:?}")),
            None => Ok(()),
        }
    }

    /// Whether blocks of a file are written now.
    fn is_written_now(&self, entry: EntryId) -> bool {
        let is_of = |write: &Write| write.rows.iter().any(|(row, _)| row.block.entry == entry);
        let is_busy = |job: &Job| matches!(job, Job::Write(write, _) if is_of(write));
        self.workers.iter().flatten().any(is_busy)
            || self.receivers.iter().filter_map(|r| r.writing.as_ref()).any(|(w, _)| is_of(w))
    }

    /// Whether blocks of a file are put on record now.
    fn is_synced_now(&self, entry: EntryId) -> bool {
        let is_busy = |job: &Job| match job {
            Job::SyncData(files) => files.iter().any(|file| file.entry == entry),
            Job::SyncJournal(files) => files.iter().any(|(file, _)| file.entry == entry),
            _ => false,
        };
        self.workers.iter().flatten().any(is_busy)
    }

    /// Bytes that a crash would cost now: written, and not on record.
    pub(crate) fn unrecorded_bytes(&self) -> u64 {
        let wanted = self.items.values().filter(|item| item.state == State::Wanted);
        wanted.map(|item| item.written.byte_count() - item.on_record.byte_count()).sum()
    }
}
