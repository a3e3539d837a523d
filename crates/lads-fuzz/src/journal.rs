//! Whether any bytes are survived as a journal, and what is sound in them is understood again.

use lads_core::entry::Identity;
use lads_core::journal::{FORMAT, Record, Replay, encode, encode_blocks, replay};
use std::collections::BTreeMap;

/// Bytes of the length and the checksum before a record.
const HEAD_BYTES: usize = 8;

/// Replays bytes as a journal, and once more what the sink would write anew of it. If the first
/// byte is odd, the checksums of the others are made to match first.
///
/// # Panics
/// If the two do not tell the same, or what is said to be durable cannot be.
pub fn run(bytes: &[u8]) {
    let Some((&first, journal)) = bytes.split_first() else { return };
    let mut journal = journal.to_vec();
    if first % 2 == 1 {
        seal(&mut journal);
    }
    let found = replay(&journal);
    assert!(found.sound_bytes <= journal.len() as u64);
    if found.other_format.is_some() {
        let Replay { salt, other_format, .. } = found;
        let expected = Replay { salt, other_format, ..replay(&[]) };
        assert_eq!(found, expected, "of another format only the salt is used");
        assert!(salt.is_some());
        return;
    }
    let sound = &journal[..usize::try_from(found.sound_bytes).expect("at most what there is")];
    assert_eq!(replay(sound), found, "what is not sound is as if never written");
    for begun in found.files.values() {
        assert!(begun.number < found.next_number || begun.number == u64::MAX, "{begun:?}");
        let lengths = begun.blocks.iter().map(|block| u64::from(block.length));
        assert!(begun.done().byte_count() <= lengths.sum(), "{begun:?}");
    }
    let again = replay(&written_anew(&found));
    let Replay { salt, holder, mut files, .. } = found;
    // What the temporary file was like is said with its blocks: without any, it means nothing.
    let without_blocks = files.values_mut().filter(|begun| begun.blocks.is_empty());
    without_blocks.for_each(|begun| begun.part = Identity::default());
    assert_eq!((again.salt, again.holder, again.files), (salt, holder, files));
}

/// A journal that says what another said.
fn written_anew(found: &Replay) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Some(salt) = found.salt else { return bytes };
    encode(&Record::Begin { format: FORMAT, salt }, &mut bytes);
    found.holder.iter().for_each(|holder| encode(&Record::Holder(holder.clone()), &mut bytes));
    // Sorted, so that the same input does the same each time.
    for (path, begun) in found.files.iter().collect::<BTreeMap<_, _>>() {
        let (number, identity) = (begun.number, begun.identity);
        encode(&Record::File { number, path: path.clone(), identity }, &mut bytes);
        encode_blocks(number, begun.part, &begun.blocks, &mut bytes);
    }
    bytes
}

/// Writes the checksum that belongs to each record, as far as they can be told apart.
pub fn seal(mut journal: &mut [u8]) {
    while let Some((head, rest)) = journal.split_at_mut_checked(HEAD_BYTES) {
        let length: [u8; 4] = head[..4].try_into().expect("four bytes");
        let length_bytes = u32::from_le_bytes(length) as usize;
        let Some((body, rest)) = rest.split_at_mut_checked(length_bytes) else { return };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&length), body);
        head[4..].copy_from_slice(&crc.to_le_bytes());
        journal = rest;
    }
}
