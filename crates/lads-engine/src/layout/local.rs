//! Layouts of local file systems, and of all others that do not say where data lies: a file lies on
//! the disks of its file system, or on a target that stands for the file system.
//!
//! The number of the file's device leads to the disks. File systems on the same disks share one
//! target. A file system over several disks (md, LVM, btrfs) is one target that takes requests for
//! all of them, because only the volume knows which disk a request meets. A file system without a
//! device of its own (tmpfs, overlay, networks) is a target by itself. Every mount at or below the
//! root counts, so that a tree over several disks keeps all of them busy.
//!
//! A target that is a whole file system of other hosts, or that a program serves (FUSE), hides its
//! OSTs. A transfer divides it into tracks ([`lads_core::tracks`]).

use super::disk::{Devices, Storage};
use super::kind::{OPAQUE_IN_FLIGHT_MAX, Opaque, opaque, server_of};
use super::mount::{Mount, mounts, nearest_existing, on_which};
use super::{FileAt, Layouts, Located, NewFile, Placed, Target, TracksWanted};
use crate::board::lock;
use lads_core::issue::Side;
use lads_core::layout::Layout;
use lads_core::schedule::OstSpec;
use lads_core::tracks::Tracks;
use lads_core::tuning::Tuning;
use lads_core::units::OstId;
use rustix::fs::{
    AtFlags, FsWord, Mode, OFlags, StatxFlags, fstat, openat, statfs, statvfs, statx,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

/// The type of a btrfs in the mount table. Its files have device numbers that belong to no device.
const BTRFS: &str = "btrfs";
/// The type of a place that is mounted only when it is looked at; LADS does not look.
const AUTOFS: &str = "autofs";

/// The type of a mount that a program serves. Some say which program: `fuse.sshfs`.
const FUSE: &str = "fuse";
/// The kind of a mount whose files are in memory.
const TMPFS: &str = "tmpfs";
/// File systems on which a file that was synced before it had a name is durable when its directory
/// is synced: they write all that is known of a file with each change of its names.
const LINK_DURABLY: [&str; 3] = [TMPFS, "ext4", "xfs"];

/// One target for each set of disks, and for each file system without disks, at or below some
/// roots.
#[derive(Debug)]
pub(super) struct Local {
    /// Never empty; the first target is that of the first root.
    targets: Vec<Held>,
    /// The target of each mount, by the kernel's number of the mount.
    by_mount: HashMap<u64, usize>,
    /// The target of each device. Devices of subvolumes are added when files of them are met.
    by_device: RwLock<HashMap<u64, usize>>,
}

/// A target and what is behind it.
#[derive(Debug)]
struct Held {
    spec: OstSpec,
    mount: Mount,
    storage: Option<Storage>,
    opaque: Option<&'static Opaque>,
    /// Whether this block device belongs to its file system alone.
    is_on_device: bool,
    /// The number of its only OST, or of its first track.
    first: u32,
    /// If it is divided: its tracks, and what their files are there for.
    tracks: Option<(Side, Mutex<Tracks>)>,
}

impl Local {
    /// Looks at what is mounted at and below these roots.
    pub(super) fn of(roots: &[&Path]) -> Self {
        Self::over(roots, &Devices::here(), &mounts())
    }

    fn over(roots: &[&Path], devices: &Devices, mounts: &[Mount]) -> Self {
        let mut local =
            Self { targets: Vec::new(), by_mount: HashMap::new(), by_device: RwLock::default() };
        for root in roots {
            let root = nearest_existing(root);
            let own = on_which(&root, mounts).cloned().unwrap_or_else(|| Mount::unknown(&root));
            local.add(&root, own, devices);
            let is_below = |mount: &&Mount| {
                mount.place != root && mount.place.starts_with(&root) && mount.kind != AUTOFS
            };
            for mount in mounts.iter().filter(is_below) {
                local.add(&mount.place, mount.clone(), devices);
            }
        }
        local
    }

    /// Adds the target of the file system mounted at a place, unless it is known already.
    fn add(&mut self, place: &Path, mount: Mount, devices: &Devices) {
        // A mount that does not answer is not reported here; its files will fail.
        let Ok(metadata) = std::fs::metadata(place) else {
            if self.targets.is_empty() {
                self.targets.push(Held::new(0, mount, None, false, None));
            }
            return;
        };
        let (device, id) = (metadata.dev(), mount.id);
        let own = devices.behind(device);
        let is_on_device = own.is_some();
        let is_btrfs = mount.kind == BTRFS;
        let storage =
            own.or_else(|| is_btrfs.then(|| devices.behind_btrfs(&mount.source)).flatten());
        let known = self.by_device.get_mut().unwrap_or_else(PoisonError::into_inner);
        let same_disks = |held: &Held| match (&held.storage, &storage) {
            (Some(one), Some(other)) => one.is_on_disks_of(other),
            _ => false,
        };
        let same = known.get(&device).copied();
        let index = same.or_else(|| self.targets.iter().position(same_disks));
        let index = index.unwrap_or_else(|| {
            let magic = statfs(place).ok().map(|it| magic_of(it.f_type));
            let opaque = if is_on_device { None } else { opaque(&mount, magic) };
            let first = u32::try_from(self.targets.len()).expect("mounts are few");
            self.targets.push(Held::new(first, mount, storage, is_on_device, opaque));
            self.targets.len() - 1
        });
        known.insert(device, index);
        self.by_mount.insert(id, index);
    }

    /// The target of a file or directory on a device. The name is used only if the device is new.
    fn target(&self, device: u64, directory: &OwnedFd, name: &[u8]) -> usize {
        if self.targets.len() == 1 {
            return 0;
        }
        let known = self.by_device.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(&index) = known.get(&device) {
            return index;
        }
        drop(known);
        // A subvolume has a device number of its own. It belongs to the mount through which it is
        // seen.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        let mount = statx(directory, name, flags, StatxFlags::MNT_ID).ok();
        let mount = mount.filter(|it| it.stx_mask & StatxFlags::MNT_ID.bits() != 0);
        let index = mount.and_then(|it| self.by_mount.get(&it.stx_mnt_id).copied()).unwrap_or(0);
        let mut known = self.by_device.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(device, index);
        index
    }
}

impl Held {
    fn new(
        first: u32,
        mount: Mount,
        storage: Option<Storage>,
        is_on_device: bool,
        opaque: Option<&'static Opaque>,
    ) -> Self {
        let mut spec = match (&storage, opaque) {
            (Some(storage), _) => OstSpec::new(storage.name.clone(), storage.in_flight_max()),
            (None, opaque) => {
                let name = mount.place.display().to_string();
                // Memory is as fast as the processors that copy. One thread more, because one may
                // wait for the network.
                let in_flight_max =
                    if opaque.is_some() { OPAQUE_IN_FLIGHT_MAX } else { processors() + 1 };
                OstSpec::new(name, in_flight_max)
            }
        };
        // So do file systems on disks, but large files are written past their page cache.
        spec.locks_files = mount.kind == TMPFS;
        Self { spec, mount, storage, opaque, is_on_device, first, tracks: None }
    }

    /// Whether it has several OSTs, or may have, and does not say which of them holds what.
    fn hides_osts(&self) -> bool {
        self.opaque.is_some() || self.is_served()
    }

    /// Whether a program serves it.
    fn is_served(&self) -> bool {
        self.storage.is_none() && (self.mount.kind == FUSE || self.mount.kind.starts_with("fuse."))
    }

    fn divide(&mut self, wanted: TracksWanted) {
        let TracksWanted { count, block_size, side } = wanted;
        let tracks = Tracks::new(&Tuning::DEFAULT, OstId(self.first), count, block_size);
        (self.spec.in_flight_max, self.spec.is_track) = (1, true);
        self.tracks = Some((side, Mutex::new(tracks)));
    }

    /// How many OSTs it counts as.
    fn ost_count(&self) -> usize {
        self.tracks.as_ref().map_or(1, |(_, tracks)| lock(tracks).count() as usize)
    }

    /// Where a file of this length lies, or will lie.
    fn layout(&self, size: u64) -> Layout {
        match &self.tracks {
            None => Layout::on(OstId(self.first)),
            Some((Side::Source, tracks)) => lock(tracks).of_read(size),
            Some((Side::Sink, tracks)) => lock(tracks).of_written(size),
        }
    }

    fn target(&self) -> Target {
        let space = statvfs(&self.mount.place).ok();
        let bytes = |count: fn(&rustix::fs::StatVfs) -> u64| {
            space.as_ref().map_or(0, |it| count(it).saturating_mul(it.f_frsize))
        };
        Target {
            name: self.spec.name.clone(),
            server: self.opaque.map_or_else(String::new, |_| server_of(&self.mount.source)),
            capacity_bytes: bytes(|it| it.f_blocks),
            free_bytes: bytes(|it| it.f_bavail),
            is_flash: self.storage.as_ref().and_then(Storage::is_flash),
            ..Target::default()
        }
    }
}

impl Layouts for Local {
    fn kind(&self) -> &'static str {
        self.targets[0].opaque.map_or("local", |it| it.name)
    }

    fn remarks(&self) -> Vec<String> {
        let remark = |it: &Opaque| format!("{}: each mount is one target", it.remark);
        self.targets[0].opaque.map(remark).into_iter().collect()
    }

    fn osts(&self) -> Vec<OstSpec> {
        let specs = |held: &Held| vec![held.spec.clone(); held.ost_count()];
        self.targets.iter().flat_map(specs).collect()
    }

    fn targets(&self) -> Vec<Target> {
        self.targets.iter().flat_map(|held| vec![held.target(); held.ost_count()]).collect()
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        let held = &self.targets[self.target(file.device, file.directory, file.name)];
        Located::at(held.layout(file.size))
    }

    fn disk_offset(&self, file: &FileAt<'_>) -> Option<u64> {
        let held = &self.targets[self.target(file.device, file.directory, file.name)];
        held.storage.as_ref().filter(|storage| storage.turns())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(file.directory, file.name, flags, Mode::empty()).ok()?;
        lads_sys::first_extent(&file).ok()?
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        let device = fstat(file.directory)?.st_dev;
        let held = &self.targets[self.target(device, file.directory, b"")];
        Ok(Placed::at(held.layout(file.size)))
    }

    fn prefers_direct_writes(&self) -> bool {
        // A client of FUSE writes one block of a file at a time to the page cache, each to its end.
        let is_best =
            |held: &Held| held.is_on_device || (held.tracks.is_some() && held.is_served());
        self.targets.iter().all(is_best)
    }

    fn is_memory(&self) -> bool {
        self.targets.iter().all(|held| held.mount.kind == TMPFS)
    }

    fn links_durably(&self) -> bool {
        LINK_DURABLY.contains(&self.targets[0].mount.kind.as_str())
    }

    fn divide(&mut self, wanted: TracksWanted) {
        let mut first = 0;
        for held in &mut self.targets {
            held.first = first;
            if held.hides_osts() {
                held.divide(wanted);
            }
            first += u32::try_from(held.ost_count()).expect("mounts and tracks are few");
        }
    }

    fn starts_writeback(&self) -> bool {
        self.targets.iter().any(|held| held.tracks.is_some())
    }
}

/// The number in the type used for comparisons: the system's type differs between machines.
#[expect(clippy::cast_sign_loss, reason = "it is a number of 32 bits, whatever holds it")]
fn magic_of(word: FsWord) -> u64 {
    word as u64 & 0xffff_ffff
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(2, usize::from);
    u32::try_from(count).unwrap_or(2).clamp(2, 8)
}

#[cfg(test)]
mod tests;
