//! How files and directories end: which parts have to know of it.

use super::blocks::{Blocks, Purpose};
use super::event::{Commit, Committed, Discard};
use super::file::{File, Kept, Step};
use super::{Sink, outbox};
use crate::issue::{Failure, Operation, Reason, Side};
use crate::journal::BlockRecord;
use crate::message::Ending;
use crate::units::EntryId;

impl Sink {
    /// Commits a file if all of it is durable, or will be with the commit. When the transfer stops,
    /// its blocks go on record instead.
    pub(super) fn commit_if_complete(&mut self, entry: EntryId) {
        let Some(file) = self.files.get(entry) else { return };
        let is_complete = file.is_complete() && !self.recording.is_running_for(entry);
        if !is_complete || self.course.is_stopping() {
            return;
        }
        let waiting = self.recording.take(entry);
        let (verify, size) = (file.blocks().and_then(Blocks::to_read_back), file.size());
        let end = file.ended_at().map(|mtime| (size, mtime));
        self.files.step(entry, Step::Complete);
        self.committing.push(Commit { entry, verify, end }, size, waiting);
    }

    /// The commit of a file has ended.
    pub(super) fn on_committed(&mut self, entry: EntryId, committed: Committed) {
        let Some(file) = self.files.get(entry) else { return };
        let is_given_up = file.is_given_up();
        match committed {
            Committed::Different => self.on_different(entry),
            Committed::Complete | Committed::Same => {
                let is_same = committed == Committed::Same;
                self.counters.files_moved += u64::from(!is_same);
                self.end(entry, Step::Named);
                let ending = if is_same { Ending::Same } else { Ending::Complete };
                self.outbox.tell_ending(entry, ending);
                if is_given_up {
                    self.outbox.tell_ending(entry, Ending::Dropped);
                }
            }
            Committed::Failed(failure) => self.fail(entry, failure),
            Committed::Bad(_) if is_given_up => {
                self.files.step(entry, Step::Bad);
                self.discard_if_idle(entry);
            }
            Committed::Bad(blocks) => self.on_bad(entry, &blocks),
        }
    }

    /// When read back, these blocks were not what was written.
    fn on_bad(&mut self, entry: EntryId, blocks: &[BlockRecord]) {
        let resends_max = self.resends_max;
        let withdrawn = |file: &mut File| {
            let of_file = file.blocks_mut().expect("it was written");
            if of_file.on_resends(blocks.len()) > resends_max {
                of_file.distrust();
                return None;
            }
            Some(of_file.on_bad(blocks))
        };
        let Some(withdrawn_bytes) = self.files.with(entry, withdrawn).flatten() else {
            let failure = Failure::new(Side::Sink, Operation::Verify, Reason::Media);
            self.fail(entry, failure);
            return;
        };
        self.counters.bytes_done -= withdrawn_bytes;
        self.files.step(entry, Step::Bad);
        self.counters.blocks_resent += blocks.len() as u64;
        self.outbox.ask_again(blocks.iter().map(|block| outbox::range_of(entry, block)).collect());
    }

    /// The metadata of a directory is set, or could not be.
    pub(super) fn on_closed(&mut self, entry: EntryId, failure: Option<Failure>) {
        if failure.is_some() {
            self.removal.on_failed();
            self.course.on_failed();
        }
        if let Some(parent) = self.files.on_ended(entry) {
            self.committing.close(parent);
        }
        self.outbox.tell_ending(entry, failure.map_or(Ending::Complete, Ending::Failed));
    }

    pub(super) fn fail(&mut self, entry: EntryId, failure: Failure) {
        let Some(file) = self.files.get(entry) else { return };
        if !file.is_ending() {
            let written = file.blocks().filter(|it| it.purpose() == Purpose::Write);
            let on_record = written.map(Blocks::on_record).filter(|it| !it.is_empty());
            let has_journal = self.recording.has_journal() && !file.is_unsized();
            let kept = match on_record.filter(|_| has_journal) {
                Some(on_record) => {
                    self.outbox.take_back_all_but(entry, on_record);
                    Kept::Yes
                }
                None => {
                    self.outbox.take_back(entry);
                    Kept::No
                }
            };
            self.withdraw(entry, kept);
            self.files.step(entry, Step::Failed(failure, kept));
        }
        self.discard_if_idle(entry);
    }

    /// Takes written bytes of a file that is dropped out of the progress.
    fn withdraw(&mut self, entry: EntryId, kept: Kept) {
        let withdrawn = |file: &mut File| file.blocks_mut().map(|blocks| blocks.withdraw(kept));
        self.counters.bytes_done -= self.files.with(entry, withdrawn).flatten().unwrap_or(0);
    }

    /// A file is no longer wanted: nothing more of it is written, and nothing of it is kept.
    pub(super) fn give_up(&mut self, entry: EntryId, step: Step) {
        self.withdraw(entry, Kept::No);
        let ahead = &mut self.ahead;
        let frames = &mut self.frames;
        self.files.with(entry, |file| {
            file.step(step);
            let Some(blocks) = file.blocks_mut() else { return };
            if let Some(placed) = blocks.placed_mut() {
                ahead.on_given_up(placed, u64::MAX);
            }
            let count = frames.release_waiting(entry, blocks.layout().osts());
            blocks.on_released(count);
        });
        self.outbox.take_back(entry);
    }

    /// Drops a file if none of its blocks is in flight. A file that is to be announced again does
    /// not wait for writes in flight: they are on an OST that has turned slow, and go to a file
    /// without a name.
    pub(super) fn discard_if_idle(&mut self, entry: EntryId) {
        let Some(file) = self.files.get(entry) else { return };
        let Some(why) = file.dropping() else { return };
        let in_flight = file.blocks().map_or(0, Blocks::in_flight);
        let is_idle = in_flight == 0 || why.failure().is_none();
        if is_idle && !self.recording.is_running_for(entry) {
            self.files.step(entry, Step::Idle);
            self.recording.forget(entry);
            let (is_kept, failure) = (why.is_kept(), why.failure());
            self.committing.discard(Discard { entry, is_kept, failure });
        }
    }

    /// A file ends by this step, if there is one of this number.
    pub(super) fn end(&mut self, entry: EntryId, step: Step) {
        self.recording.forget(entry);
        self.placing.release(entry);
        if let Some(mut placed) = self.files.end(entry, step) {
            self.ahead.on_given_up(&mut placed, u64::MAX);
        }
    }

    pub(super) fn on_discarded(&mut self, entries: &[EntryId]) {
        for &entry in entries {
            let Some(why) = self.files.get(entry).and_then(File::discarding) else { continue };
            self.end(entry, Step::Discarded);
            if why.failure().is_some() {
                self.removal.on_failed();
            }
            self.outbox.tell_ending(entry, why.ending());
        }
    }
}
