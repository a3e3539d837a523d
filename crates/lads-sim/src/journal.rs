//! The journal as an engine keeps it: the core's records in a file that can tear.

use crate::disk::Disk;
use lads_core::entry::Identity;
use lads_core::journal::{Begun, BlockRecord, FORMAT, Record, encode, encode_blocks, replay};
use std::collections::BTreeMap;

/// An open journal; without a file if the transfer has none.
#[derive(Debug)]
pub(crate) struct Journal {
    has_file: bool,
    /// What an earlier attempt left and nobody has asked for yet.
    begun: BTreeMap<String, Begun>,
    numbers: BTreeMap<String, u64>,
    next_number: u64,
    /// Records that need not be durable before anything else.
    pending: Vec<u8>,
    /// Whether one of them must be before a file begins anew.
    is_forget_due: bool,
}

impl Journal {
    /// Reads what an earlier attempt left, and checks that it is all that was promised.
    pub(crate) fn open(disk: &mut Disk, has_file: bool) -> Result<Self, String> {
        let mut journal = Self {
            has_file,
            begun: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next_number: 1,
            pending: Vec::new(),
            is_forget_due: false,
        };
        if !has_file {
            return Ok(journal);
        }
        let replay = replay(&disk.journal.bytes);
        if replay.salt.is_none() {
            // Temporary names follow from the salt: the old ones are not found again.
            disk.unfinished.clear();
        }
        let text = |path: Vec<u8>| String::from_utf8(path).expect("the world's names are text");
        journal.begun = replay.files.into_iter().map(|(p, begun)| (text(p), begun)).collect();
        journal.next_number = replay.next_number;
        journal.numbers = journal.begun.iter().map(|(p, b)| (p.clone(), b.number)).collect();
        for (path, (identity, promised)) in &disk.promised {
            let known = journal.begun.get(path).filter(|begun| begun.identity == *identity);
            let done = known.map(Begun::done).unwrap_or_default();
            if let Some(lost) = promised.iter().find(|range| !done.contains(range.clone())) {
                return Err(format!("{path} {lost:?} was BLOCK_DONE, the journal has lost it"));
            }
        }
        journal.compact(disk);
        Ok(journal)
    }

    /// Writes the file anew without what no longer counts; durable at once, by a rename.
    fn compact(&self, disk: &mut Disk) {
        let mut bytes = Vec::new();
        encode(&Record::Begin { format: FORMAT, salt: [1; 16] }, &mut bytes);
        for (path, begun) in &self.begun {
            let (number, identity) = (begun.number, begun.identity);
            let path = path.clone().into_bytes();
            encode(&Record::File { number, path, identity }, &mut bytes);
            encode_blocks(number, begun.part, &begun.blocks, &mut bytes);
        }
        disk.journal.durable_count = bytes.len();
        disk.journal.bytes = bytes;
    }

    /// What an earlier attempt left of a file, if the source file is still the same.
    pub(crate) fn take_begun(
        &mut self,
        disk: &mut Disk,
        path: &str,
        identity: &Identity,
    ) -> Vec<BlockRecord> {
        let Some(begun) = self.begun.remove(path) else {
            self.settle(disk);
            return Vec::new();
        };
        if begun.identity == *identity && disk.unfinished.contains_key(path) {
            return begun.blocks;
        }
        // This must last: the file begins anew under the same temporary name, and after a crash
        // what is on record would be taken for what lies there.
        self.forget(disk, path);
        self.append(disk, &[]);
        Self::sync(disk);
        Vec::new()
    }

    /// Appends records of blocks; they are on record only after [`Self::sync`].
    pub(crate) fn append(
        &mut self,
        disk: &mut Disk,
        files: &[(String, Identity, Vec<BlockRecord>)],
    ) {
        let mut bytes = std::mem::take(&mut self.pending);
        for (path, identity, blocks) in files {
            let number = self.numbers.get(path).copied().unwrap_or_else(|| {
                let number = self.next_number;
                self.next_number += 1;
                self.numbers.insert(path.clone(), number);
                let path = path.clone().into_bytes();
                encode(&Record::File { number, path, identity: *identity }, &mut bytes);
                number
            });
            encode_blocks(number, Identity::default(), blocks, &mut bytes);
        }
        if self.has_file {
            disk.journal.bytes.extend(bytes);
        }
    }

    /// All that was appended is durable.
    pub(crate) fn sync(disk: &mut Disk) {
        disk.journal.durable_count = disk.journal.bytes.len();
    }

    /// What is on record of a file that is dropped, and may begin anew, no longer counts.
    pub(crate) fn forget_dropped(&mut self, disk: &mut Disk, path: &str) {
        self.forget(disk, path);
        self.is_forget_due = true;
    }

    /// Makes durable that files that were dropped do not count.
    fn settle(&mut self, disk: &mut Disk) {
        if std::mem::take(&mut self.is_forget_due) {
            self.append(disk, &[]);
            Self::sync(disk);
        }
    }

    /// What is on record of a file no longer counts.
    pub(crate) fn forget(&mut self, disk: &mut Disk, path: &str) {
        disk.promised.remove(path);
        if let Some(number) = self.numbers.remove(path) {
            encode(&Record::Forget { number }, &mut self.pending);
        }
    }

    /// Removes the file, if nothing is left to go on with.
    pub(crate) fn finish(&mut self, disk: &mut Disk) {
        for path in std::mem::take(&mut self.begun).into_keys() {
            disk.unfinished.remove(&path);
            disk.promised.remove(&path);
            self.numbers.remove(&path);
        }
        if self.numbers.is_empty() {
            disk.journal = crate::disk::JournalFile::default();
        }
    }
}
