//! Which disks are behind a block device, and whether they rotate.
//!
//! The kernel shows how devices are made of others. A partition lies in its disk. md and LVM
//! volumes have `slaves`, down to disks, which have none. Several paths to one disk (multipath) are
//! one disk. A btrfs has a list of its devices.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

/// Requests that a rotating disk should have at a time: more only make it seek.
const SPINNING_IN_FLIGHT_MAX: u32 = 2;
/// Requests that flash can have at a time.
const FLASH_IN_FLIGHT_MAX: u32 = 8;
/// The most requests at a time: no array needs more from one process.
const IN_FLIGHT_MAX: u32 = 64;

/// The most layers of devices on top of each other: more than anybody builds.
const LAYERS_MAX: u32 = 16;

/// What the kernel shows of block devices.
#[derive(Clone, Debug)]
pub(super) struct Devices {
    /// The directory in which the kernel shows them.
    system: PathBuf,
}

/// The disks that hold a file system: one or several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Storage {
    /// The device's usual name: `/dev/sda`, `/dev/md0`, `/dev/mapper/vg-scratch`.
    pub(super) name: String,
    /// The disks, by their names in the kernel.
    disks: BTreeMap<String, Medium>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Medium {
    Flash,
    Spinning,
    /// A virtual disk; nothing is known of what is behind it.
    Unknown,
}

impl Devices {
    /// The devices of this machine.
    pub(super) fn here() -> Self {
        Self::shown_in("/sys".into())
    }

    /// The devices shown in a directory that is like `/sys`.
    pub(super) fn shown_in(system: PathBuf) -> Self {
        Self { system }
    }

    /// The disks behind a device number; `None` if it is not the number of a block device.
    pub(super) fn behind(&self, number: u64) -> Option<Storage> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = self.system.join(format!("dev/block/{major}:{minor}"));
        Some(Storage::of([device.canonicalize().ok()?]))
    }

    /// The disks behind a btrfs that was mounted from this device, which may be one of several.
    pub(super) fn behind_btrfs(&self, source: &Path) -> Option<Storage> {
        let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let has_source =
            |list: &PathBuf| list.join(source.file_name().unwrap_or_default()).exists();
        let file_systems = read_dir(self.system.join("fs/btrfs")).ok()?;
        let list = file_systems.flatten().map(|it| it.path().join("devices")).find(has_source)?;
        let devices: Vec<_> = entries(&list).collect();
        (!devices.is_empty()).then(|| Storage::of(devices))
    }
}

impl Storage {
    /// The disks that these devices, at least one, lie on together.
    fn of(devices: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut disks = BTreeMap::new();
        let mut names = Vec::new();
        for device in devices {
            let device = settle(device);
            names.push(name_of(&device));
            add_disks(&device, LAYERS_MAX, &mut disks);
        }
        names.sort_unstable();
        Self { name: names.swap_remove(0), disks }
    }

    /// Whether both are on the same disks.
    pub(super) fn is_on_disks_of(&self, other: &Self) -> bool {
        self.disks.keys().eq(other.disks.keys())
    }

    /// Whether one of its disks rotates, so that the order of reads matters.
    pub(super) fn turns(&self) -> bool {
        self.disks.values().any(|&medium| medium == Medium::Spinning)
    }

    /// Whether it is flash, if that is known.
    pub(super) fn is_flash(&self) -> Option<bool> {
        let is_flash = self.disks.values().all(|&medium| medium == Medium::Flash);
        if self.turns() { Some(false) } else { is_flash.then_some(true) }
    }

    /// How many requests it should have at a time: enough for each of its disks, because it is left
    /// to chance which disk a request meets.
    pub(super) fn in_flight_max(&self) -> u32 {
        let of_disk = |medium: &Medium| match medium {
            Medium::Spinning => SPINNING_IN_FLIGHT_MAX,
            Medium::Flash | Medium::Unknown => FLASH_IN_FLIGHT_MAX,
        };
        self.disks.values().map(of_disk).sum::<u32>().clamp(1, IN_FLIGHT_MAX)
    }
}

/// The device that a partition, or a volume on only one device, lies on.
fn settle(mut device: PathBuf) -> PathBuf {
    for _ in 0..LAYERS_MAX {
        let below = below(&device);
        let [one] = below.as_slice() else { break };
        device.clone_from(one);
    }
    device
}

/// The devices that a device lies on; none if it is a disk.
fn below(device: &Path) -> Vec<PathBuf> {
    if device.join("partition").exists() {
        return device.parent().map(Path::to_owned).into_iter().collect();
    }
    let kind = read_to_string(device.join("dm/uuid")).unwrap_or_default();
    if kind.starts_with("mpath-") {
        return Vec::new();
    }
    entries(&device.join("slaves")).collect()
}

fn add_disks(device: &Path, layers_max: u32, disks: &mut BTreeMap<String, Medium>) {
    let below = below(device);
    if below.is_empty() || layers_max == 0 {
        disks.insert(file_name(device), medium_of(device));
    }
    for device in below.iter().filter(|_| layers_max > 0) {
        add_disks(device, layers_max - 1, disks);
    }
}

fn medium_of(disk: &Path) -> Medium {
    let rotational = read_to_string(disk.join("queue/rotational")).unwrap_or_default();
    // The host's disks may be of any kind, but the driver says that they rotate.
    let driver = disk.join("device/driver").canonicalize().unwrap_or_default();
    let is_virtual = driver.file_name().is_some_and(|name| name == "virtio_blk");
    match rotational.trim() {
        "1" if is_virtual => Medium::Unknown,
        "1" => Medium::Spinning,
        _ => Medium::Flash,
    }
}

/// The devices to which a directory has links.
fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = read_dir(directory).ok().into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.path().canonicalize().ok())
}

fn name_of(device: &Path) -> String {
    match read_to_string(device.join("dm/name")) {
        Ok(name) => format!("/dev/mapper/{}", name.trim()),
        // A slash in a name is shown as `!`.
        Err(_) => format!("/dev/{}", file_name(device).replace('!', "/")),
    }
}

fn file_name(device: &Path) -> String {
    device.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
pub(super) mod tests;
