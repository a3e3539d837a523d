//! The records that let the same command go on after a crash of the sink.
//!
//! The journal is a file of records that only grows. Blocks are made durable before their record is
//! written, and the record is made durable before the source is told that the blocks are done. Only
//! files that arrive in more than one block have records: a file of one block is either under its
//! own name or not there. After a crash, the journal is read up to the first record that is torn or
//! damaged, and is cut off there.
//! Their form is that of [`crate::record`].

use crate::entry::Identity;
use crate::message::wire::Writer;
use crate::range::RangeSet;
use crate::record::{self, Next};
use crate::{wire_enum, wire_list, wire_struct};
use std::collections::HashMap;

/// The version of the journal's format. From a journal of another version only the salt is used.
pub const FORMAT: u32 = 2;

/// The longest body of a record, in bytes: the memory that it takes to read one record.
const BODY_BYTES_MAX: usize = 16 << 20;

/// The most blocks in one record. A block takes at most 25 bytes, so such a record has a tenth of
/// [`BODY_BYTES_MAX`]. Twice as many would do as well; half as many cost a few bytes more.
const BLOCKS_PER_RECORD: usize = 1 << 16;

/// The most blocks, over all files, that are kept when a journal is read. A block takes 24 bytes,
/// so all take 400 MB; with blocks of 1 MiB they stand for 16 TiB of unfinished files. Blocks
/// beyond this number are sent again.
const BLOCKS_KEPT_MAX: usize = 16 << 20;

/// The most unfinished files that are kept when a journal is read. A sink has 16,384 entries at a
/// time. Files beyond this number are sent again.
const FILES_KEPT_MAX: usize = 1 << 20;

/// The longest path that can be recorded, in bytes: far longer than the operating system
/// allows (4,096), and far shorter than the longest record.
pub const PATH_BYTES_MAX: usize = 1 << 20;

/// One block that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Where in the file it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u32,
    /// xxh3 (64 bits) of its bytes, to compare with when the block is read back.
    pub checksum: u64,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first record: the records after it belong to this transfer.
    Begin {
        /// [`FORMAT`].
        format: u32,
        /// Random; temporary names are derived from it.
        salt: [u8; 16],
    },
    /// A file is begun.
    File {
        /// Its number in this journal.
        number: u64,
        /// Its path below the root.
        path: Vec<u8>,
        /// The identity of the source file.
        identity: Identity,
    },
    /// Blocks of a file are durable.
    Blocks {
        /// The file's number in this journal.
        number: u64,
        /// The identity of the temporary file when the blocks were durable. If it differs now,
        /// somebody has written to the file since.
        part: Identity,
        /// The blocks.
        blocks: Vec<BlockRecord>,
    },
    /// The records of a file do not count any more: the file has its own name, or was dropped.
    Forget {
        /// The file's number in this journal.
        number: u64,
    },
    /// The process that writes to this journal.
    Holder(Holder),
}

/// A process. Where there are no locks, this says whether a journal is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The host's name.
    pub host: Vec<u8>,
    /// A text that is different after each start of that host.
    pub boot: Vec<u8>,
    /// The number of the process.
    pub pid: u32,
    /// When the process started, in ticks since the start of the host: a number can be used again.
    pub started_ticks: u64,
}

wire_struct!(Holder { host, boot, pid, started_ticks });
wire_struct!(BlockRecord { offset, length, checksum });
wire_list!(BlockRecord);
wire_enum!(Record {
    1 => Begin { format, salt },
    2 => File { number, path, identity },
    3 => Blocks { number, part, blocks },
    4 => Forget { number },
    5 => Holder(holder),
});

/// Appends records of a file's blocks; several records if there are too many blocks for one.
pub fn encode_blocks(number: u64, part: Identity, blocks: &[BlockRecord], to: &mut Writer) {
    for blocks in blocks.chunks(BLOCKS_PER_RECORD) {
        encode(&Record::Blocks { number, part, blocks: blocks.to_vec() }, to);
    }
}

/// Appends a record. Blocks go through [`encode_blocks`].
///
/// # Panics
/// If the body is longer than `BODY_BYTES_MAX`: such a record could not be read again.
pub fn encode(record: &Record, to: &mut Writer) {
    record::encode(record, BODY_BYTES_MAX, to);
}

/// A file of which the sink has a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its number in the journal.
    pub number: u64,
    /// The identity of the source file.
    pub identity: Identity,
    /// The identity of the temporary file when the last of its blocks was recorded.
    pub part: Identity,
    /// Its durable blocks, with checksums.
    pub blocks: Vec<BlockRecord>,
}

impl Begun {
    /// Returns which bytes are durable.
    #[must_use]
    pub fn done(&self) -> RangeSet {
        self.blocks.iter().map(|b| b.offset..b.offset + u64::from(b.length)).collect()
    }
}

/// The contents of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The salt, if the beginning of the journal is sound, in any format.
    pub salt: Option<[u8; 16]>,
    /// The version of the format, if it is not [`FORMAT`]; then nothing else was read.
    pub other_format: Option<u32>,
    /// The process that wrote to it last.
    pub holder: Option<Holder>,
    /// The files that were begun and not forgotten, by path.
    pub files: HashMap<Vec<u8>, Begun>,
    /// The bytes of sound records. Everything after them is torn and must be cut off.
    pub sound_bytes: u64,
    /// The next number for a file.
    pub next_number: u64,
}

/// Reads a whole journal as far as it is sound. It never fails: whatever is not sound counts as
/// never written.
#[must_use]
pub fn replay(bytes: &[u8]) -> Replay {
    let mut reading = Reading::new();
    reading.feed(bytes);
    reading.end()
}

/// A journal that is being read, piece by piece. It keeps at most one record, and what counts of
/// the records before; that is limited, too.
#[derive(Debug)]
pub struct Reading {
    replay: Replay,
    paths: HashMap<u64, Vec<u8>>,
    /// The beginning of a record whose end is still to come.
    rest: Vec<u8>,
    blocks_kept: usize,
    is_at_end: bool,
}

impl Default for Reading {
    fn default() -> Self {
        Self::new()
    }
}

impl Reading {
    /// A journal of which nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            replay: Replay { next_number: 1, ..Replay::default() },
            paths: HashMap::new(),
            rest: Vec::new(),
            blocks_kept: 0,
            is_at_end: false,
        }
    }

    /// Takes in the next bytes. Returns whether further bytes can be of use.
    pub fn feed(&mut self, bytes: &[u8]) -> bool {
        self.rest.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.rest);
        let mut rest = all.as_slice();
        while !self.is_at_end {
            match record::next::<Record>(rest, BODY_BYTES_MAX) {
                Next::Record(record, length) if record.is_possible() => {
                    self.is_at_end = !self.take(record);
                    if !self.is_at_end {
                        self.replay.sound_bytes += length as u64;
                        rest = &rest[length..];
                    }
                }
                Next::Incomplete => break,
                Next::Record(..) | Next::Damaged => self.is_at_end = true,
            }
        }
        self.rest = rest.to_vec();
        !self.is_at_end
    }

    /// What the journal says. A record that is incomplete counts as torn.
    #[must_use]
    pub fn end(self) -> Replay {
        self.replay
    }

    /// Takes in a record. Returns `false` if the record cannot be at this place; the sound part
    /// ends before it.
    fn take(&mut self, record: Record) -> bool {
        let replay = &mut self.replay;
        match record {
            Record::Begin { .. } if replay.salt.is_some() => return false,
            Record::Begin { format, salt } => {
                replay.salt = Some(salt);
                replay.other_format = (format != FORMAT).then_some(format);
                return format == FORMAT;
            }
            _ if replay.salt.is_none() => return false,
            Record::Holder(holder) => replay.holder = Some(holder),
            Record::File { number, path, identity } => {
                replay.next_number = replay.next_number.max(number.saturating_add(1));
                if replay.files.len() < FILES_KEPT_MAX {
                    self.paths.insert(number, path.clone());
                    let (part, blocks) = (Identity::default(), Vec::new());
                    let begun = Begun { number, identity, part, blocks };
                    let before = replay.files.insert(path, begun);
                    self.blocks_kept -= before.map_or(0, |begun| begun.blocks.len());
                }
            }
            Record::Blocks { number, part, blocks } => {
                let begun = self.paths.get(&number).and_then(|path| replay.files.get_mut(path));
                if let Some(begun) = begun.filter(|begun| begun.number == number)
                    && self.blocks_kept + blocks.len() <= BLOCKS_KEPT_MAX
                {
                    self.blocks_kept += blocks.len();
                    begun.part = part;
                    begun.blocks.extend(blocks);
                }
            }
            Record::Forget { number } => {
                if let Some(path) = self.paths.remove(&number)
                    && replay.files.get(&path).is_some_and(|begun| begun.number == number)
                {
                    let forgotten = replay.files.remove(&path);
                    self.blocks_kept -= forgotten.map_or(0, |begun| begun.blocks.len());
                }
            }
        }
        true
    }
}

impl Record {
    /// Whether its values are possible: no file has a block that ends beyond the largest offset. A
    /// checksum alone does not say that, because it matches whatever bytes it was made of.
    fn is_possible(&self) -> bool {
        let Self::Blocks { blocks, .. } = self else { return true };
        blocks.iter().all(|block| block.offset.checked_add(block.length.into()).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Vec<Record> {
        let identity = Identity { size: 3 << 20, inode: 7, ..Identity::default() };
        let block = |n: u64| BlockRecord { offset: n << 20, length: 1 << 20, checksum: n };
        vec![
            Record::Begin { format: FORMAT, salt: [5; 16] },
            Record::File { number: 1, path: b"a/b".to_vec(), identity },
            Record::Blocks {
                number: 1,
                part: Identity::default(),
                blocks: vec![block(0), block(2)],
            },
            Record::File { number: 2, path: b"c".to_vec(), identity },
            Record::Forget { number: 2 },
            Record::Blocks { number: 1, part: identity, blocks: vec![block(1)] },
        ]
    }

    fn bytes_of(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in records {
            encode(record, &mut bytes);
        }
        bytes
    }

    #[test]
    fn what_is_recorded_is_found_again() {
        let bytes = bytes_of(&sample());
        let replay = replay(&bytes);
        assert_eq!(replay.sound_bytes, bytes.len() as u64);
        assert_eq!(replay.salt, Some([5; 16]));
        assert_eq!(replay.files.len(), 1);
        let begun = &replay.files[&b"a/b"[..]];
        assert_eq!(begun.done().byte_count(), 3 << 20);
        assert_eq!(begun.part.inode, 7, "as the last record of its blocks says");
        assert_eq!(replay.next_number, 3);
    }

    #[test]
    fn a_torn_tail_is_cut_at_the_last_whole_record() {
        let records = sample();
        let bytes = bytes_of(&records);
        let ends: Vec<u64> =
            (0..=records.len()).map(|n| bytes_of(&records[..n]).len() as u64).collect();
        for cut in 0..bytes.len() {
            let sound = replay(&bytes[..cut]).sound_bytes;
            let expected = ends.iter().rev().find(|&&end| end <= cut as u64).copied();
            assert_eq!(Some(sound), expected, "cut at {cut}");
        }
    }

    #[test]
    fn nothing_after_a_flipped_bit_counts() {
        let bytes = bytes_of(&sample());
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(replay(&damaged).sound_bytes <= at as u64, "byte {at}");
        }
    }

    /// Found by looking at what the fuzzer looks for: the end of such a block overflowed.
    #[test]
    fn a_block_beyond_all_offsets_is_not_sound() {
        let mut records = sample();
        let sound_bytes = bytes_of(&records).len() as u64;
        let block = BlockRecord { offset: u64::MAX, length: 1, checksum: 0 };
        records.push(Record::Blocks { number: 1, part: Identity::default(), blocks: vec![block] });
        let replay = replay(&bytes_of(&records));
        assert_eq!(replay.sound_bytes, sound_bytes);
        assert_eq!(replay.files[&b"a/b"[..]].done().byte_count(), 3 << 20);
    }

    #[test]
    fn of_a_journal_of_another_format_only_the_salt_is_used() {
        let mut records = sample();
        records[0] = Record::Begin { format: FORMAT + 1, salt: [5; 16] };
        let replay = replay(&bytes_of(&records));
        assert_eq!((replay.salt, replay.other_format), (Some([5; 16]), Some(FORMAT + 1)));
        assert!(replay.files.is_empty());
    }

    #[test]
    fn it_does_not_matter_in_which_pieces_a_journal_is_read() {
        let bytes = bytes_of(&sample());
        for piece in [1, 7, 64, 1000] {
            let mut reading = Reading::new();
            for bytes in bytes.chunks(piece) {
                assert!(reading.feed(bytes));
            }
            assert_eq!(reading.end(), replay(&bytes), "in pieces of {piece}");
        }
    }

    /// A second beginning, of another format, took the place of the first, and what lay between
    /// them counted all the same.
    #[test]
    fn a_journal_begins_once() {
        let sound = replay(&bytes_of(&sample()));
        for format in [FORMAT, FORMAT + 1] {
            let mut records = sample();
            records.push(Record::Begin { format, salt: [6; 16] });
            assert_eq!(replay(&bytes_of(&records)), sound);
        }
    }

    /// All blocks of a file went into one record when a journal was written again: beyond 16 MiB
    /// it could not be read again, and all progress was forgotten.
    #[test]
    fn what_is_on_record_of_a_file_of_a_million_blocks_is_read_again() {
        let block =
            |n: u64| BlockRecord { offset: n << 16, length: 1 << 16, checksum: u64::MAX - n };
        let blocks: Vec<_> = (0..1_000_000).map(block).collect();
        let mut bytes = bytes_of(&sample()[..2]);
        encode_blocks(1, Identity::default(), &blocks, &mut bytes);
        assert!(bytes.len() > BODY_BYTES_MAX, "that is {} bytes", bytes.len());
        let mut replay = replay(&bytes);
        assert_eq!(replay.sound_bytes, bytes.len() as u64);
        assert!(replay.files.remove(&b"a/b"[..]).unwrap().blocks == blocks);
    }

    #[test]
    #[should_panic(expected = "could not be read again")]
    fn a_record_that_could_not_be_read_again_is_never_written() {
        let path = vec![b'x'; BODY_BYTES_MAX];
        let identity = Identity::default();
        encode(&Record::File { number: 1, path, identity }, &mut Vec::new());
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = replay(&bytes);
        }
    }
}
