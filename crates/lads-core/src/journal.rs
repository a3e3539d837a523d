//! What the sink writes down so that the same command can go on after a crash.
//!
//! The journal is a file of records that only grows. A record is on disk before the source is told
//! that the blocks in it are done; the blocks are on disk before the record. Only files that arrive
//! in more than one block have records: a file of one block is either under its real name or not
//! there. After a crash the file is read up to the first record that is torn or damaged, and cut
//! off there.
//!
//! ```text
//!  +---------------+---------------+------ ... ------+
//!  | length u32 LE | crc32c u32 LE | body            |   the checksum covers length and body
//!  +---------------+---------------+------ ... ------+
//! ```

use crate::entry::Identity;
use crate::message::wire::{Reader, Wire, Writer};
use crate::range::RangeSet;
use crate::{wire_enum, wire_list, wire_struct};
use std::collections::HashMap;

/// The journal's own format; a journal of another format is not used, and said so.
pub const FORMAT: u32 = 1;

/// Bytes before each record's body.
const HEAD_BYTES: usize = 8;

/// No record is longer.
const BODY_BYTES_MAX: usize = 16 << 20;

/// One block that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// Where in the file it begins.
    pub offset: u64,
    /// How long it is.
    pub length: u32,
    /// xxh3 (64 bits) of its bytes, to read it back against.
    pub checksum: u64,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The first: what follows belongs to this transfer.
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
        /// What the source file was like.
        identity: Identity,
    },
    /// Blocks of a file are durable.
    Blocks {
        /// The file's number in this journal.
        number: u64,
        /// The blocks.
        blocks: Vec<BlockRecord>,
    },
    /// What is known of a file no longer counts: it has its name, or was dropped.
    Forget {
        /// The file's number in this journal.
        number: u64,
    },
}

wire_struct!(BlockRecord { offset, length, checksum });
wire_list!(BlockRecord);
wire_enum!(Record {
    1 => Begin { format, salt },
    2 => File { number, path, identity },
    3 => Blocks { number, blocks },
    4 => Forget { number },
});

/// Appends a record.
pub fn encode(record: &Record, to: &mut Writer) {
    let start = to.len();
    to.extend_from_slice(&[0; HEAD_BYTES]);
    record.put(to);
    let length = u32::try_from(to.len() - start - HEAD_BYTES).expect("records are small");
    to[start..start + 4].copy_from_slice(&length.to_le_bytes());
    let crc = crc_of(&to[start..start + 4], &to[start + HEAD_BYTES..]);
    to[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

fn crc_of(length: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(length), body)
}

/// A file of which part is at the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Its number in the journal.
    pub number: u64,
    /// What the source file was like.
    pub identity: Identity,
    /// What is durable of it, with checksums.
    pub blocks: Vec<BlockRecord>,
}

impl Begun {
    /// Which bytes are durable.
    #[must_use]
    pub fn done(&self) -> RangeSet {
        self.blocks.iter().map(|b| b.offset..b.offset + u64::from(b.length)).collect()
    }
}

/// What a journal says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// The salt, if the journal has a sound beginning of this format.
    pub salt: Option<[u8; 16]>,
    /// Files begun and not forgotten, by path.
    pub files: HashMap<Vec<u8>, Begun>,
    /// Bytes of sound records; what follows is torn and must be cut off.
    pub sound_bytes: u64,
    /// The next number for a file.
    pub next_number: u64,
}

/// Reads a journal as far as it is sound. Never fails: what is not sound is as if never written.
#[must_use]
pub fn replay(bytes: &[u8]) -> Replay {
    let mut replay = Replay { next_number: 1, ..Replay::default() };
    let mut paths: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut rest = bytes;
    while let Some((record, length)) = next_record(rest) {
        match record {
            Record::Begin { format, salt } => {
                if format != FORMAT {
                    return replay;
                }
                replay.salt = Some(salt);
            }
            _ if replay.salt.is_none() => return replay,
            Record::File { number, path, identity } => {
                replay.next_number = replay.next_number.max(number.saturating_add(1));
                paths.insert(number, path.clone());
                replay.files.insert(path, Begun { number, identity, blocks: Vec::new() });
            }
            Record::Blocks { number, blocks } => {
                let begun = paths.get(&number).and_then(|path| replay.files.get_mut(path));
                if let Some(begun) = begun.filter(|begun| begun.number == number) {
                    begun.blocks.extend(blocks);
                }
            }
            Record::Forget { number } => {
                if let Some(path) = paths.remove(&number)
                    && replay.files.get(&path).is_some_and(|begun| begun.number == number)
                {
                    replay.files.remove(&path);
                }
            }
        }
        rest = &rest[length..];
        replay.sound_bytes += length as u64;
    }
    replay
}

/// The first record and how many bytes it takes; `None` if it is torn or damaged.
fn next_record(bytes: &[u8]) -> Option<(Record, usize)> {
    let head = bytes.get(..HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
    let crc = u32::from_le_bytes(head[4..].try_into().expect("four bytes"));
    if length > BODY_BYTES_MAX {
        return None;
    }
    let body = bytes.get(HEAD_BYTES..HEAD_BYTES + length)?;
    if crc_of(&head[..4], body) != crc {
        return None;
    }
    let record = Record::take(&mut Reader::new(body)).ok()?;
    record.is_possible().then_some((record, HEAD_BYTES + length))
}

impl Record {
    /// Whether it says what can be: no file has a block that ends beyond the last offset that a
    /// number can say. A checksum matches whatever was summed up.
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
            Record::Blocks { number: 1, blocks: vec![block(0), block(2)] },
            Record::File { number: 2, path: b"c".to_vec(), identity },
            Record::Forget { number: 2 },
            Record::Blocks { number: 1, blocks: vec![block(1)] },
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
        assert_eq!(replay.files[&b"a/b"[..]].done().byte_count(), 3 << 20);
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
        records.push(Record::Blocks { number: 1, blocks: vec![block] });
        let replay = replay(&bytes_of(&records));
        assert_eq!(replay.sound_bytes, sound_bytes);
        assert_eq!(replay.files[&b"a/b"[..]].done().byte_count(), 3 << 20);
    }

    #[test]
    fn a_journal_of_another_format_is_not_used() {
        let bytes = bytes_of(&[Record::Begin { format: FORMAT + 1, salt: [0; 16] }]);
        assert_eq!(replay(&bytes).salt, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _ = replay(&bytes);
        }
    }
}
