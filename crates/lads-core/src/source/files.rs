//! Files, links and special files that were found and have not ended.

use super::blocks::Blocks;
use super::file::{File, Step};
use crate::gate::ProtocolError;
use crate::limits::RANGES_MAX;
use crate::range::RangeSet;
use crate::units::{Block, EntryId, EntryMap};

/// All of them, with their sums.
#[derive(Debug)]
pub(super) struct Files {
    open: EntryMap<File>,
    /// Files that failed while blocks of them were in flight, each with the number of those blocks.
    /// So there are at most as many as blocks in flight, however many files fail.
    failed: EntryMap<u32>,
    /// The bytes of all names and attributes.
    metadata_bytes: u64,
    /// The number of separate ranges that the sink has, over all files.
    range_count: usize,
    /// Files whose length is not known yet.
    unsized_count: usize,
    /// The last entry that the sink was told of.
    announced_last: EntryId,
}

impl Files {
    /// No file has been found.
    pub(super) fn new() -> Self {
        Self {
            open: EntryMap::default(),
            failed: EntryMap::default(),
            metadata_bytes: 0,
            range_count: 0,
            unsized_count: 0,
            announced_last: EntryId::ROOT,
        }
    }

    /// A file was found.
    pub(super) fn add(&mut self, entry: EntryId, file: File) {
        self.metadata_bytes += file.metadata_bytes();
        self.unsized_count += usize::from(file.is_still_unsized());
        let other = self.open.insert(entry, file);
        assert!(other.is_none(), "{entry} was found twice");
    }

    /// An entry is announced: from now on the sink may send messages about it. Returns `false` if
    /// it is not one of these files.
    pub(super) fn on_announced(&mut self, entry: EntryId) -> bool {
        self.announced_last = self.announced_last.max(entry);
        self.with(entry, |file| file.step(Step::Told)).is_some()
    }

    /// Checks that an entry was announced; it may have ended since.
    pub(super) fn check_was_announced(&self, entry: EntryId) -> Result<(), ProtocolError> {
        let was_announced = entry != EntryId::ROOT && entry <= self.announced_last;
        if was_announced { Ok(()) } else { Err(ProtocolError::UnknownEntry(entry)) }
    }

    /// Checks that the separate ranges that the sink has are not too many.
    pub(super) fn check_range_count(&self) -> Result<(), ProtocolError> {
        let is_bounded = self.range_count <= RANGES_MAX;
        if is_bounded { Ok(()) } else { Err(ProtocolError::TooMuch("separate pieces of files")) }
    }

    /// Whether there is a file whose length is not known yet.
    pub(super) fn has_unsized(&self) -> bool {
        self.unsized_count > 0
    }

    pub(super) fn get(&self, entry: EntryId) -> Option<&File> {
        self.open.get(&entry)
    }

    /// A file that the caller has looked up before.
    pub(super) fn known(&self, entry: EntryId) -> &File {
        self.open.get(&entry).expect("looked up by the caller")
    }

    /// Calls a function with a file, if there is one of this number, and updates the sums.
    pub(super) fn with<T>(
        &mut self,
        entry: EntryId,
        what: impl FnOnce(&mut File) -> T,
    ) -> Option<T> {
        let file = self.open.get_mut(&entry)?;
        let (ranges, is_open) = (range_count(file), file.is_still_unsized());
        let result = what(file);
        self.range_count = self.range_count + range_count(file) - ranges;
        self.unsized_count -= usize::from(is_open && !file.is_still_unsized());
        Some(result)
    }

    /// Takes a step of a file, if there is one of this number.
    ///
    /// # Panics
    /// If the step is not possible in the file's state.
    pub(super) fn step(&mut self, entry: EntryId, step: Step) {
        self.with(entry, |file| file.step(step));
    }

    /// Removes a file, if there is one of this number, and returns it.
    pub(super) fn remove(&mut self, entry: EntryId) -> Option<File> {
        let file = self.open.remove(&entry)?;
        self.metadata_bytes -= file.metadata_bytes();
        self.range_count -= range_count(&file);
        self.unsized_count -= usize::from(file.is_still_unsized());
        Some(file)
    }

    /// Blocks are handed out, to be sent or staged.
    ///
    /// # Panics
    /// If they are of a file whose blocks are not wanted.
    pub(super) fn on_out(&mut self, blocks: &[Block]) {
        for block in blocks {
            let file = self.open.get_mut(&block.entry).and_then(File::blocks_mut);
            file.expect("only what is wanted is handed out").on_out();
        }
    }

    /// The fate of blocks that were handed out is known, or does not matter any more.
    pub(super) fn on_back(&mut self, blocks: &[Block]) {
        for block in blocks {
            if let Some(file) = self.open.get_mut(&block.entry) {
                file.blocks_mut().expect("it was handed out").on_back();
            } else if let Some(count) = self.failed.get_mut(&block.entry) {
                *count -= 1;
                if *count == 0 {
                    self.failed.remove(&block.entry);
                }
            }
        }
    }

    /// A file has failed: of its blocks in flight, nobody will say whether they arrive.
    pub(super) fn on_failed(&mut self, entry: EntryId, file: &File) {
        let count = file.blocks().map_or(0, Blocks::out_count);
        if count > 0 {
            self.failed.insert(entry, count);
        }
    }

    /// Whether this file has failed while blocks of it are in flight.
    pub(super) fn has_failed(&self, entry: EntryId) -> bool {
        self.failed.contains_key(&entry)
    }

    /// How many failed files are kept.
    #[cfg(test)]
    pub(super) fn failed_count(&self) -> usize {
        self.failed.len()
    }

    /// Whether nothing more will happen for a block that was sent.
    pub(super) fn is_settled(&self, block: &Block) -> bool {
        let Some(file) = self.open.get(&block.entry) else { return true };
        file.blocks().is_some_and(|blocks| blocks.has(block))
    }

    /// The bytes of all names and attributes.
    pub(super) fn metadata_bytes(&self) -> u64 {
        self.metadata_bytes
    }
}

fn range_count(file: &File) -> usize {
    file.confirmed().map_or(0, RangeSet::range_count)
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Purpose;
    use super::super::file::Tries;
    use super::*;
    use crate::entry::{Entry, Identity, Kind, Metadata, UNSIZED_BYTES};
    use crate::placement::Striping;
    use crate::units::OstId;

    const ENTRY: EntryId = EntryId(1);
    const BLOCK: Block = Block { entry: ENTRY, offset: 0, length: 4096 };

    fn entry(size: u64, name: &[u8]) -> Entry {
        let identity = Identity { size, ..Identity::default() };
        let (striping, source_ost) = (Striping::default(), OstId(0));
        let kind =
            Kind::File { identity, data_bytes: size, striping, source_ost, is_different: false };
        let (parent, metadata) = (EntryId::ROOT, Metadata::default());
        Entry { id: ENTRY, parent, name: name.to_vec(), kind, metadata }
    }

    /// Files of which one is wanted.
    fn wanted() -> Files {
        let entry = entry(4096, b"a");
        let mut files = Files::new();
        files.add(ENTRY, File::new(&entry, None, Tries::default(), None));
        files.on_announced(ENTRY);
        files.step(ENTRY, Step::Wanted(Blocks::new(Purpose::Send, RangeSet::new(), 0)));
        files
    }

    #[test]
    fn a_file_that_failed_is_forgotten_when_nothing_of_it_is_under_way() {
        let mut files = wanted();
        files.on_out(&[BLOCK, BLOCK]);
        let file = files.remove(ENTRY).unwrap();
        files.on_failed(ENTRY, &file);
        files.on_back(&[BLOCK]);
        assert!(files.has_failed(ENTRY), "a block of it is under way");
        files.on_back(&[BLOCK]);
        assert!(files.failed.is_empty());
    }

    #[test]
    fn of_a_file_that_failed_before_anything_was_sent_nothing_is_kept() {
        let mut files = wanted();
        files.on_out(&[BLOCK]);
        files.on_back(&[BLOCK]);
        let file = files.remove(ENTRY).unwrap();
        files.on_failed(ENTRY, &file);
        assert!(files.failed.is_empty());
    }

    #[test]
    #[should_panic(expected = "a block is back, and none was handed out")]
    fn no_more_blocks_come_back_than_were_handed_out() {
        let mut files = wanted();
        files.on_back(&[BLOCK]);
    }

    #[test]
    fn names_and_unsized_files_count_until_the_file_is_removed() {
        let entry = entry(UNSIZED_BYTES, b"a long name");
        let mut files = Files::new();
        files.add(ENTRY, File::new(&entry, None, Tries::default(), None));
        assert!(files.has_unsized());
        assert_eq!(files.metadata_bytes(), entry.variable_bytes() as u64);
        files.remove(ENTRY);
        assert!(!files.has_unsized() && files.metadata_bytes() == 0);
    }
}
