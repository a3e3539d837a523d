//! What was read: its buffers in memory, and the file on the local disk.

use crate::slots::SlotFile;
use crate::stage::open_unnamed;
use lads_core::remote::message::FRAME_BYTES;
use lads_core::remote::reading::ChunkBytes;
use lads_sys::Buffer;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::{Arc, Mutex};

/// Buffers beside those of chunks and of reads in flight: one that is being put on the disk, and
/// one that comes back from there.
pub(super) const MOVING_BUFFERS: u32 = 2;

/// The file on the local disk, for one thread at a time to read from.
#[derive(Debug)]
pub(super) struct ReadCache {
    pub(super) file: SlotFile,
    pub(super) loading: Mutex<()>,
}

/// The buffer of a chunk.
#[derive(Clone, Debug)]
pub(in crate::remote) struct ReadBuffer(pub(super) Arc<Buffer>);

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl ChunkBytes for ReadBuffer {
    fn take_in(&mut self, from: &Self, part: Range<usize>) -> bool {
        let Some(buffer) = Arc::get_mut(&mut self.0) else { return false };
        buffer[part.clone()].copy_from_slice(&from[part]);
        true
    }
}

impl ReadCache {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let file = open_unnamed(directory).map_err(|error| {
            let place = directory.display();
            io::Error::other(format!("cannot cache read data in {place} (rfs_cache_dir): {error}"))
        })?;
        Ok(Self { file: SlotFile::new(file, FRAME_BYTES), loading: Mutex::new(()) })
    }
}
