//! The storage of a profile: where the data of the source lie, and where the sink writes them.

use super::super::contest::drop_caches_of;
use super::super::mount::{Pair, Storage};
use super::disk::Disk;
use crate::scratch::Scratch;
use anyhow::Result;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// What a profile has at both ends.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) enum Kind {
    /// Directories in memory.
    Memory,
    /// Emulated parallel file systems.
    Mounts(Storage),
    /// A disk each, that reads this many bytes a second and writes as many.
    Disks {
        /// The limit.
        bytes_per_second: u64,
    },
    /// Directories on the disk that holds the build, as it is.
    Plain,
}

/// Both ends of a profile. All is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    held: Held,
    roots: [PathBuf; 2],
}

/// What has to be undone, and is slow only while something is measured.
#[derive(Debug)]
enum Held {
    Directory { _scratch: Scratch },
    Mounts { pair: Pair, _scratch: Scratch },
    Disks { disks: [Disk; 2], bytes_per_second: u64, _scratch: Scratch },
}

/// The directory for the images of disks, and for all that lies in memory.
const MEMORY: &str = "/dev/shm";

/// The length of a disk: several times that of the data.
const DISK_BYTES: u64 = 1 << 30;

const ENDS: [&str; 2] = ["source", "sink"];

impl Place {
    /// Makes both ends. Plain directories lie below `disk`.
    pub(super) fn start(testbed: &Path, disk: &Path, kind: Kind) -> Result<Self> {
        let parent = if matches!(kind, Kind::Plain) { disk } else { Path::new(MEMORY) };
        let scratch = Scratch::new(parent, "lads-grid")?;
        Ok(match kind {
            Kind::Memory | Kind::Plain => {
                let roots = ENDS.map(|end| scratch.join(end));
                roots.iter().try_for_each(fs::create_dir)?;
                Self { held: Held::Directory { _scratch: scratch }, roots }
            }
            Kind::Mounts(storage) => {
                let pair = Pair::start(testbed, storage, storage, &scratch.join("mounts"))?;
                let roots = [&pair.source, &pair.sink].map(|mount| mount.path().to_owned());
                Self { held: Held::Mounts { pair, _scratch: scratch }, roots }
            }
            Kind::Disks { bytes_per_second } => {
                let [source, sink] =
                    ENDS.map(|end| Disk::start(&scratch.join(""), end, DISK_BYTES));
                let disks = [source?, sink?];
                let roots = [&disks[0], &disks[1]].map(|disk| disk.path().to_owned());
                Self { held: Held::Disks { disks, bytes_per_second, _scratch: scratch }, roots }
            }
        })
    }

    /// The directory that is moved, and the one that it is moved to.
    pub(super) fn directories(&self) -> [PathBuf; 2] {
        [self.roots[0].join("data"), self.roots[1].join("target")]
    }

    /// Empties the page cache.
    pub(super) fn forget(&self) -> Result<()> {
        drop_caches_of(&self.roots)
    }

    /// Makes both ends as slow as they should be.
    pub(super) fn throttle(&self) -> Result<()> {
        match &self.held {
            Held::Directory { .. } => Ok(()),
            Held::Mounts { pair, .. } => pair.throttle(),
            Held::Disks { disks, bytes_per_second, .. } => {
                disks.iter().try_for_each(|disk| disk.limit(*bytes_per_second))
            }
        }
    }

    /// Makes both ends as quick as they can be.
    pub(super) fn release(&self) -> Result<()> {
        match &self.held {
            Held::Directory { .. } => Ok(()),
            Held::Mounts { pair, .. } => pair.release(),
            Held::Disks { disks, .. } => disks.iter().try_for_each(|disk| disk.limit(0)),
        }
    }
}
