//! What a crash leaves of what the sink's threads were doing.

use crate::content::Content;
use crate::disk::JournalFile;
use crate::findings::Checked;
use crate::sink_end::{Job, SinkEnd};
use crate::world::World;
use lads_core::sink::{Discard, Write};

impl SinkEnd {
    /// The process dies: each thread stops somewhere in the middle.
    pub(crate) fn crash(&mut self, world: &mut World) -> Checked {
        let unrecorded = self.unrecorded_bytes() * 1000 / self.config.batch_bytes;
        let stats = &mut world.stats;
        stats.unrecorded_per_mille_max = stats.unrecorded_per_mille_max.max(unrecorded);
        for worker in 0..self.workers.len() {
            if let Some(job) = self.workers[worker].take() {
                self.break_off(world, job)?;
            }
        }
        for stream in 0..self.receivers.len() {
            if let Some((write, _)) = self.receivers[stream].writing.take() {
                self.tear(world, &write);
            }
        }
        Ok(())
    }

    fn break_off(&mut self, world: &mut World, job: Job) -> Checked {
        match job {
            Job::Write(write, _) => self.tear(world, &write),
            Job::SyncData(files) => {
                for file in files {
                    if world.rng.hits(500) {
                        self.make_durable(world, &file);
                    }
                }
            }
            Job::SyncJournal(_) => {
                let journal = &mut world.disk.journal;
                let tail = journal.bytes.len() - journal.durable_count;
                let lost = world.rng.index(tail + 1);
                journal.bytes.truncate(journal.bytes.len() - lost);
            }
            Job::Commit(commits, _) if world.options.commits_in_steps => {
                for commit in commits {
                    if world.rng.hits(500) {
                        world.disk.sync_file(&self.items[&commit.entry].path);
                    }
                }
            }
            Job::Commit(commits, _) => {
                for commit in commits {
                    // One that would be read back first has not come so far.
                    if commit.verify.is_none() && world.rng.hits(500) {
                        self.give_name(world, commit.entry)?;
                    }
                }
            }
            Job::Rename(entries, _) => {
                for entry in entries {
                    if world.rng.hits(500) {
                        self.rename_one(world, entry)?;
                    }
                }
            }
            Job::SyncNames(entries, _) => {
                for entry in entries {
                    if world.rng.hits(500) {
                        world.disk.sync_rename(&self.items[&entry].path);
                    }
                }
            }
            Job::Discard(entries) => {
                for Discard { entry, is_kept, .. } in entries {
                    if world.rng.hits(500) {
                        self.discard_one(world, entry, is_kept)?;
                    }
                }
            }
            Job::Finish => {
                if world.rng.hits(500) {
                    world.disk.promised.clear();
                    world.disk.journal = JournalFile::default();
                }
            }
            Job::Examine(_) | Job::Close(_) | Job::Stage(..) | Job::Release(_) | Job::Remove(_) => {
            }
        }
        Ok(())
    }

    /// A write stops in the middle.
    fn tear(&self, world: &mut World, write: &Write) {
        for (row, _) in &write.rows {
            if let Some(body) = self.items[&row.block.entry].body
                && world.rng.hits(500)
            {
                let range = row.block.offset..row.block.end();
                world.disk.bodies[body].volatile.put(range, Content::GARBAGE);
            }
        }
    }
}
