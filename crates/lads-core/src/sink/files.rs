//! The files that were announced and have not ended, and all that the source may speak of.
//!
//! A number stands for one entry at a time. While blocks of a file that has ended are still being
//! written, no other file gets its number.

use super::blocks::Blocks;
use super::file::{File, Step};
use crate::ahead::Placed;
use crate::entry::{Entry, Kind};
use crate::gate::{AtSink, ProtocolError};
use crate::message::{Ending, Message};
use crate::units::{EntryId, EntryMap};

/// The files, and totals over all of them.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// What the source has announced and may speak of.
    announced: AtSink,
    open: EntryMap<File>,
    /// Blocks of files that have ended that are still being written.
    late: EntryMap<u32>,
    /// Files that may grow.
    growing_count: usize,
    /// Separate ranges of bytes that are written, of all files together.
    range_count: usize,
}

impl Files {
    /// Whether the source may say this now, as far as it is about entries.
    pub(super) fn check(&self, message: &Message) -> Result<(), ProtocolError> {
        self.announced.check(message)?;
        match message {
            Message::FileDone(endings) => {
                endings.iter().try_for_each(|(entry, ending)| self.check_ending(*entry, ending))
            }
            _ => Ok(()),
        }
    }

    /// The source cannot confirm or give up a file before the sink has said whether it wants it; an
    /// unsized file is confirmed by its length, and nothing else is.
    fn check_ending(&self, entry: EntryId, ending: &Ending) -> Result<(), ProtocolError> {
        let Some(file) = self.open.get(&entry) else { return Ok(()) };
        let text = match ending {
            _ if file.is_unanswered() => "FILE_DONE for an unanswered file",
            Ending::CompleteAt { size, .. } if !file.may_end_at(*size) => {
                "FILE_DONE for an unsized file of another length"
            }
            Ending::Complete if file.is_unsized() => {
                "FILE_DONE for an unsized file without its length"
            }
            _ => return Ok(()),
        };
        Err(ProtocolError::OutOfPlace(text))
    }

    /// Sees that an entry was announced, whether or not it has ended since.
    pub(super) fn check_was_announced(&self, entry: EntryId) -> Result<(), ProtocolError> {
        self.announced.check_was_announced(entry)
    }

    /// The source has said what it is going to send.
    pub(super) fn on_roots(&mut self) {
        self.announced.on_roots();
    }

    /// An entry was announced, and passed [`Self::check`].
    pub(super) fn on_announced(&mut self, entry: &Entry) {
        self.announced.on_announced(entry);
        if let Kind::File { identity, data_bytes, .. } = &entry.kind {
            let file = File::new(identity.size, *data_bytes).unsized_if(entry.is_unsized());
            self.open.insert(entry.id, file);
        }
    }

    /// Whether all entries have ended.
    pub(super) fn have_all_ended(&self) -> bool {
        self.announced.is_empty()
    }

    /// Whether there is a directory of this number that has not ended.
    pub(super) fn is_directory(&self, entry: EntryId) -> bool {
        self.announced.is_directory(entry)
    }

    /// The source says that everything in this directory has ended. Returns whether it may be
    /// closed now, because all directories in it have ended.
    pub(super) fn on_closing(&mut self, entry: EntryId) -> bool {
        self.announced.on_closing(entry)
    }

    /// An entry that is no file has ended. Returns the directory that may be closed now, if there
    /// is one.
    pub(super) fn on_ended(&mut self, entry: EntryId) -> Option<EntryId> {
        assert!(!self.open.contains_key(&entry), "{entry} is a file that has not ended");
        self.announced.on_ended(entry)
    }

    pub(super) fn get(&self, entry: EntryId) -> Option<&File> {
        self.open.get(&entry)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (EntryId, &File)> {
        self.open.iter().map(|(&entry, file)| (entry, file))
    }

    /// Does something with the file of this number, if there is one, and brings the totals up to
    /// date.
    pub(super) fn with<T>(
        &mut self,
        entry: EntryId,
        what: impl FnOnce(&mut File) -> T,
    ) -> Option<T> {
        let file = self.open.get_mut(&entry)?;
        let (ranges, growing) = (range_count(file), growing_count(file));
        let result = what(file);
        self.range_count = self.range_count + range_count(file) - ranges;
        self.growing_count = self.growing_count + growing_count(file) - growing;
        Some(result)
    }

    /// Something happens to a file, if there is one of this number.
    ///
    /// # Panics
    /// If the step cannot be taken in its state.
    pub(super) fn step(&mut self, entry: EntryId, step: Step) {
        self.with(entry, |file| file.step(step));
    }

    /// The file of this number ends by this step, if there is one. Returns its bytes that are
    /// placed and have not come.
    ///
    /// # Panics
    /// If the step cannot be taken in its state.
    pub(super) fn end(&mut self, entry: EntryId, step: Step) -> Option<Placed> {
        let mut file = self.open.remove(&entry)?;
        self.range_count -= range_count(&file);
        self.growing_count -= growing_count(&file);
        match file.blocks().map_or(0, Blocks::in_flight) {
            0 => drop(self.announced.on_ended(entry)),
            count => {
                self.announced.on_ended_early(entry);
                let other = self.late.insert(entry, count);
                assert_eq!(other, None, "{entry} was in use when it was announced");
            }
        }
        let placed = file.placed();
        file.step(step);
        placed
    }

    /// A block is no longer with a thread, nor waits for one.
    ///
    /// # Panics
    /// If it was not in flight.
    pub(super) fn on_block_released(&mut self, entry: EntryId) {
        if let Some(file) = self.open.get_mut(&entry) {
            file.blocks_mut().expect("only what is wanted is under way").on_released(1);
            return;
        }
        let count = self.late.get_mut(&entry).expect("it ended while a block was under way");
        *count -= 1;
        if *count == 0 {
            self.late.remove(&entry);
            self.announced.on_written(entry);
        }
    }

    /// Whether any file may grow.
    pub(super) fn has_growing(&self) -> bool {
        self.growing_count > 0
    }

    /// Separate ranges of bytes that are written, of all files together.
    pub(super) fn range_count(&self) -> usize {
        self.range_count
    }
}

fn range_count(file: &File) -> usize {
    file.blocks().map_or(0, Blocks::range_count)
}

fn growing_count(file: &File) -> usize {
    usize::from(file.blocks().is_some_and(|blocks| blocks.growth().is_some()))
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Purpose;
    use super::*;
    use crate::entry::{Identity, Kind, Metadata};
    use crate::frame::Row;
    use crate::layout::Layout;
    use crate::placement::Striping;
    use crate::units::{Block, OstId};

    const FILE: EntryId = EntryId(1);

    #[test]
    fn separate_ranges_of_a_file_count() {
        let identity = Identity { size: 300, ..Identity::default() };
        let (striping, source_ost) = (Striping::default(), OstId(0));
        let kind =
            Kind::File { identity, data_bytes: 300, striping, source_ost, is_different: false };
        let (parent, metadata) = (EntryId::ROOT, Metadata::default());
        let mut files = Files::default();
        files.on_roots();
        files.on_announced(&Entry { id: FILE, parent, name: b"a".to_vec(), kind, metadata });
        files.step(FILE, Step::Taken(None));
        files.step(FILE, Step::Wanted(Blocks::new(Purpose::Write, 300, Layout::on(OstId(0)))));
        let counts = [0, 200, 100].map(|offset| {
            let block = Block { entry: FILE, offset, length: 100 };
            let row = Row { block, is_whole: false, checksum: 0 };
            files.with(FILE, |file| file.blocks_mut().map(|blocks| blocks.on_written(&row)));
            files.range_count()
        });
        assert_eq!(counts, [1, 2, 1]);
    }
}
