//! How entries end: what the sink says of it (FILE_DONE), and which parts must be told.

use super::blocks::Blocks;
use super::event::{Note, Outcome};
use super::file::{File, Step, Why};
use super::links::First;
use super::removing::Removing;
use super::{ProtocolError, Source};
use crate::issue::{Failure, Reason};
use crate::message::{Ending, Message, Verb};
use crate::units::EntryId;

impl Source {
    /// The sink says how an entry ended.
    pub(super) fn on_file_done(
        &mut self,
        entry: EntryId,
        ending: &Ending,
    ) -> Result<(), ProtocolError> {
        if self.directories.is_open(entry) {
            let failure = match ending {
                Ending::Failed(failure) => Some(*failure),
                _ => None,
            };
            self.end_directory(entry, failure);
            return Ok(());
        }
        let Some(file) = self.files.get(entry) else {
            return self.files.check_was_announced(entry);
        };
        if file.is_untold() {
            return Err(ProtocolError::UnknownEntry(entry));
        }
        match ending {
            Ending::Failed(failure) => self.end_file(entry, Outcome::Failed(*failure)),
            Ending::Same => return self.on_same(entry),
            Ending::Different => return self.on_different(entry),
            Ending::Complete if file.is_compared() => {
                return Err(ProtocolError::OutOfPlace("FILE_DONE for a file that is compared"));
            }
            Ending::Complete => self.on_complete(entry),
            Ending::Dropped => return self.on_dropped(entry),
            Ending::Incomplete | Ending::CompleteAt { .. } => {
                return Err(ProtocolError::OutOfPlace("FILE_DONE that only a source sends"));
            }
        }
        Ok(())
    }

    /// The sink has given a file its own name.
    fn on_complete(&mut self, entry: EntryId) {
        let file = self.files.known(entry);
        if matches!(file.dropping(), Some(Why::Failed(_))) {
            // The source has told the sink to drop the file: it does not count as complete.
            return;
        }
        let (verb, bytes) = (file.verb(), file.data_bytes());
        let done_bytes = file.blocks().map_or(0, Blocks::done_bytes);
        self.counters.files_moved += 1;
        self.counters.files_verified += u64::from(verb == Verb::Send);
        self.counters.bytes_done += bytes.saturating_sub(done_bytes);
        self.end_file(entry, Outcome::Done(verb, bytes));
    }

    /// The sink has dropped a file, as it was told to.
    fn on_dropped(&mut self, entry: EntryId) -> Result<(), ProtocolError> {
        let file = self.files.known(entry);
        match file.dropping() {
            None => Err(ProtocolError::OutOfPlace("FILE_DONE for a file not dropped")),
            Some(Why::Failed(failure)) => {
                self.try_again_or_end(entry, failure);
                Ok(())
            }
            // A file that was only to get another place is left to the next attempt.
            Some(Why::Elsewhere) if !self.course.goes_on() => Ok(()),
            Some(Why::Elsewhere) => {
                self.retry(entry, Step::Dropped);
                Ok(())
            }
        }
    }

    /// A file that changed is tried again, unless it was tried often enough.
    fn try_again_or_end(&mut self, entry: EntryId, failure: Failure) {
        let is_tried_again = failure.reason == Reason::Changed
            && self.files.known(entry).tries().changed < self.config.retries_max;
        if is_tried_again && self.course.goes_on() {
            self.files.with(entry, File::on_changed);
            self.retry(entry, Step::Dropped);
        } else {
            self.end_file(entry, Outcome::Failed(failure));
        }
    }

    /// The sink has compared a file and found no difference.
    fn on_same(&mut self, entry: EntryId) -> Result<(), ProtocolError> {
        self.check_compared(entry)?;
        let file = self.files.known(entry);
        if matches!(file.dropping(), Some(Why::Failed(_))) {
            return Ok(());
        }
        let bytes = file.data_bytes();
        let done_bytes = file.blocks().map_or(0, Blocks::done_bytes);
        self.counters.files_skipped += 1;
        self.counters.bytes_skipped += bytes;
        self.counters.files_compared += 1;
        self.counters.bytes_compared += bytes;
        self.counters.bytes_done += bytes.saturating_sub(done_bytes);
        self.end_file(entry, Outcome::Done(Verb::Skip, bytes));
        Ok(())
    }

    /// The sink has compared a file and found a difference; it has stopped comparing that file.
    fn on_different(&mut self, entry: EntryId) -> Result<(), ProtocolError> {
        self.check_compared(entry)?;
        let file = self.files.known(entry);
        let bytes = file.data_bytes();
        if let Some(Why::Failed(failure)) = file.dropping() {
            // The sink dropped the file before it received the order to drop it.
            self.try_again_or_end(entry, failure);
        } else if self.config.is_dry_run {
            self.files.step(entry, Step::Different);
            self.end_file(entry, Outcome::Done(Verb::Send, bytes));
        } else if self.course.goes_on() {
            self.schedule.remove(entry);
            self.clear_stage();
            self.retry(entry, Step::Different);
        }
        // Otherwise it is left to the next attempt.
        Ok(())
    }

    fn check_compared(&self, entry: EntryId) -> Result<(), ProtocolError> {
        let file = self.files.known(entry);
        if file.is_compared() && !file.is_replacing() {
            Ok(())
        } else {
            Err(ProtocolError::OutOfPlace("FILE_DONE of a comparison"))
        }
    }

    /// A thread looks at a file again, to announce it as another entry.
    fn retry(&mut self, entry: EntryId, step: Step) {
        self.files.step(entry, step);
        if let Some(blocks) = self.files.known(entry).blocks() {
            self.counters.bytes_done -= blocks.done_bytes();
            self.counters.bytes_skipped -= blocks.skipped_bytes();
        }
        self.checking.examine(entry);
    }

    /// A file, link or special file ends.
    pub(super) fn end_file(&mut self, entry: EntryId, outcome: Outcome) {
        let mut file = self.files.remove(entry).expect("looked up by the caller");
        self.schedule.remove(entry);
        // Blocks of a failed file may be under way, and nobody will say whether they arrive.
        let is_dropped = matches!(outcome, Outcome::Failed(_)) && !file.is_announced();
        if is_dropped || file.is_replacing() {
            self.files.on_failed(entry, &file);
            self.clear_stage();
        }
        if let Some(key) = file.link() {
            let is_there = matches!(outcome, Outcome::Done(..));
            self.on_first_ended(key, if is_there { First::There } else { First::Failed });
        }
        self.count_walk();
        let parent = file.parent();
        file.step(Step::Ended);
        if self.config.removes_sources && matches!(outcome, Outcome::Done(..)) {
            self.removals.insert(entry, Removing { parent, outcome });
            self.checking.remove(entry);
        } else {
            self.end(entry, parent, outcome);
        }
    }

    /// A thread has removed an entry that the sink has, or could not remove it.
    pub(super) fn on_removed(&mut self, entry: EntryId, failure: Option<Failure>) {
        let Some(Removing { parent, outcome }) = self.removals.remove(&entry) else { return };
        self.end(entry, parent, failure.map_or(outcome, Outcome::Failed));
    }

    /// An entry of any kind but a directory has ended.
    pub(super) fn end(&mut self, entry: EntryId, parent: EntryId, outcome: Outcome) {
        self.count_end(entry, parent, outcome);
        self.directories.on_child_ended(parent);
        self.close_directory_if_done(parent);
    }

    fn count_end(&mut self, entry: EntryId, parent: EntryId, outcome: Outcome) {
        if let Outcome::Failed(failure) = outcome {
            self.directories.on_child_failed(parent);
            if failure.reason != Reason::Special {
                self.counters.files_failed += 1;
            }
            if failure.is_sink_full() {
                self.stop("the sink is full".to_owned());
            }
        }
        self.window.on_ended();
        self.outbox.note(Note { entry, outcome });
    }

    /// Tells the sink to set a directory's metadata, if everything in it has ended; and so with
    /// those that it is in, up to the root. What fails meanwhile in closing them, the sink knows.
    pub(super) fn close_directory_if_done(&mut self, directory: EntryId) {
        let mut directory = directory;
        while self.directories.start_closing_if_done(directory) {
            if directory == EntryId::ROOT {
                // A directory that failed is counted when the sink has closed it.
                let has_failed = self.counters.files_failed > 0 || self.directories.has_failed();
                let is_complete = !has_failed && self.config.is_all_there;
                self.outbox.tell(Message::Finish { is_complete });
                return;
            }
            self.window.on_open();
            self.outbox.tell_ending(directory, self.directories.ending(directory));
            let Some(parent) = self.directories.on_told(directory) else { return };
            directory = parent;
        }
    }

    fn end_directory(&mut self, directory: EntryId, failure: Option<Failure>) {
        let Some(closed) = self.directories.on_closed(directory) else { return };
        let outcome = match closed.failure.or(failure) {
            Some(failure) => Outcome::Failed(failure),
            None if closed.is_new => Outcome::Done(Verb::Directory, 0),
            None => Outcome::There,
        };
        self.count_end(directory, closed.parent, outcome);
    }
}
