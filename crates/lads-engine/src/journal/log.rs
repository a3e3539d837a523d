//! The bytes of a journal: read without holding all of them, added to so that nothing torn hides
//! what comes later.

use lads_core::journal::{Begun, Reading, Record, Replay, encode, encode_blocks};
use rustix::fs::{fdatasync, ftruncate};
use rustix::io::{Errno, pread};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// A journal is read and written anew in pieces of this many bytes: a call for each, and memory for
/// one.
const PIECE_BYTES: usize = 1 << 20;

/// Blocks that are encoded in one go: PIECE_BYTES and a half, at most.
const BLOCKS_PER_PIECE: usize = 1 << 16;

/// A journal shorter than this is not written anew while it is in use. It takes about 18 bytes for
/// a block, so that is once in 4 TiB of blocks of 1 MiB, for a fraction of a second.
const GROWN_BYTES_MIN: u64 = 64 << 20;

/// The journal's file, locked as long as it is open.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// The records that are durable take this many bytes.
    sound_bytes: u64,
    /// This many did when it was written anew.
    anew_bytes: u64,
    /// Why nothing more can be added.
    pub(super) failure: Option<Errno>,
}

impl Log {
    pub(super) fn new(file: File, sound_bytes: u64) -> Self {
        Self { file, sound_bytes, anew_bytes: sound_bytes, failure: None }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Adds records, durably. After an error none of them counts, and there is nothing torn that
    /// would hide later ones; if that is not sure, there will be no later ones.
    pub(super) fn append(&mut self, records: &[u8]) -> std::io::Result<()> {
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        if let Err(error) = self.file.write_all_at(records, self.sound_bytes) {
            self.failure = ftruncate(&self.file, self.sound_bytes).err();
            return Err(error);
        }
        // What could not be written back is taken for written from then on: to ask once more
        // would only get a wrong answer.
        self.failure = fdatasync(&self.file).err();
        if let Some(errno) = self.failure {
            return Err(errno.into());
        }
        self.sound_bytes += records.len() as u64;
        Ok(())
    }

    /// Whether much of it may no longer count, so that it is worth writing it anew.
    pub(super) fn is_grown(&self) -> bool {
        self.failure.is_none() && self.sound_bytes > GROWN_BYTES_MIN.max(2 * self.anew_bytes)
    }

    /// What it says.
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

/// Writes these bytes and the records of these files into an empty file; how many bytes that took.
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
