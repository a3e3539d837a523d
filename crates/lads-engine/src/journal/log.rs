//! The bytes of a journal. It is read without holding all of them in memory, and added to so that
//! no torn record hides later ones.

use lads_core::journal::{Begun, Reading, Record, Replay, encode, encode_blocks};
use rustix::fs::{fdatasync, ftruncate};
use rustix::io::{Errno, pread};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A journal is read, and rewritten, in pieces of this many bytes: one call for each piece, and
/// memory for one.
const PIECE_BYTES: usize = 1 << 20;

/// How many blocks are encoded at a time: they take at most one and a half times `PIECE_BYTES`.
const BLOCKS_PER_PIECE: usize = 1 << 16;

/// A journal shorter than this is not rewritten while it is in use. A block takes about 18 bytes,
/// so a rewrite happens once in 4 TiB of blocks of 1 MiB, and takes a fraction of a second.
const GROWN_BYTES_MIN: u64 = 64 << 20;

/// The journal's file, locked as long as it is open.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// The bytes of the records that are durable.
    sound_bytes: u64,
    /// The bytes that it had when it was last rewritten.
    anew_bytes: u64,
    /// Why nothing more can be added; `None` while records can be added.
    pub(super) failure: Option<Errno>,
}

impl Log {
    pub(super) fn new(file: File, sound_bytes: u64) -> Self {
        Self { file, sound_bytes, anew_bytes: sound_bytes, failure: None }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Adds records, durably. After an error none of them counts, and no torn record is left that
    /// would hide later ones. If that cannot be guaranteed, no later record is added at all.
    pub(super) fn append(&mut self, records: &[u8]) -> std::io::Result<()> {
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        if let Err(error) = self.file.write_all_at(records, self.sound_bytes) {
            self.failure = ftruncate(&self.file, self.sound_bytes).err();
            return Err(error);
        }
        // The kernel counts pages that it could not write back as written from then on. A second
        // call would wrongly report success.
        self.failure = fdatasync(&self.file).err();
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        self.sound_bytes += records.len() as u64;
        Ok(())
    }

    /// Whether so many of its records may be out of date that a rewrite is worth it.
    pub(super) fn is_grown(&self) -> bool {
        self.failure.is_none() && self.sound_bytes > GROWN_BYTES_MIN.max(2 * self.anew_bytes)
    }

    /// The contents of the journal.
    pub(super) fn read(&self) -> std::io::Result<Replay> {
        read(&self.file)
    }
}

/// Reads a journal from its beginning.
pub(super) fn read(file: impl AsFd) -> std::io::Result<Replay> {
    let mut reading = Reading::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let count = match pread(&file, &mut piece, offset) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        offset += count as u64;
        if count == 0 || !reading.feed(&piece[..count]) {
            return Ok(reading.end());
        }
    }
}

/// Writes these bytes and the records of these files into an empty file. Returns the number of
/// bytes.
pub(super) fn write(
    to: &File,
    mut bytes: Vec<u8>,
    files: &HashMap<Vec<u8>, Begun>,
) -> std::io::Result<u64> {
    let mut offset = 0;
    let mut flush = |bytes: &mut Vec<u8>, bytes_min: usize| {
        if bytes.len() >= bytes_min {
            to.write_all_at(bytes, offset)?;
            offset += bytes.len() as u64;
            bytes.clear();
        }
        std::io::Result::Ok(())
    };
    for (path, begun) in files {
        let (number, path) = (begun.number, path.clone());
        encode(&Record::File { number, path, identity: begun.identity }, &mut bytes);
        for blocks in begun.blocks.chunks(BLOCKS_PER_PIECE) {
            encode_blocks(number, begun.part, blocks, &mut bytes);
            flush(&mut bytes, PIECE_BYTES)?;
        }
        flush(&mut bytes, PIECE_BYTES)?;
    }
    flush(&mut bytes, 0)?;
    Ok(offset)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;

    #[test]
    fn where_a_torn_record_cannot_be_cut_off_no_other_follows_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        std::fs::write(&path, "sound").unwrap();
        let mut log = Log::new(File::open(&path).unwrap(), 5);
        assert!(log.append(b"torn").is_err());
        log.file = File::options().write(true).open(&path).unwrap();
        assert!(log.append(b"later").is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"sound");
    }
}
