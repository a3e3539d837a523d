//! Layouts of local file systems: a file lies on the device that holds its file system.
//!
//! The device is found through `st_dev` and `/sys/dev/block`; a file system without one of its own
//! (tmpfs, btrfs, overlay, network mounts) counts as a target of its own. Every mount at or below
//! the root is a target, so that a tree over several disks keeps all of them busy.

use super::mount::nearest_existing;
use super::{FileAt, Layouts, Located, NewFile, Placed};
use lads_core::layout::Layout;
use lads_core::schedule::OstSpec;
use lads_core::units::OstId;
use rustix::fs::fstat;
use rustix::io::Errno;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Requests that a spinning disk should have at a time: more only make it seek.
const SPINNING_IN_FLIGHT_MAX: u32 = 2;
/// Requests that flash can have at a time.
const FLASH_IN_FLIGHT_MAX: u32 = 8;

/// Where block devices have their names.
const DEVICES: &str = "/dev/";

/// One target for each file system below a root.
#[derive(Debug)]
pub(super) struct Local {
    /// `st_dev` and what is behind it; never empty.
    targets: Vec<(u64, OstSpec)>,
}

impl Local {
    /// Looks at what is mounted at and below `root`.
    pub(super) fn of(root: &Path) -> Self {
        let root = nearest_existing(root);
        let mut local = Self { targets: Vec::new() };
        if let Ok(metadata) = std::fs::metadata(&root) {
            local.add(metadata.dev(), &root);
        }
        for mount in mounts_below(&root) {
            if let Ok(metadata) = std::fs::metadata(&mount) {
                local.add(metadata.dev(), &mount);
            }
        }
        if local.targets.is_empty() {
            local.add(0, &root);
        }
        local
    }

    fn on(&self, device: u64) -> Layout {
        let index = self.targets.iter().position(|(known, _)| *known == device).unwrap_or(0);
        Layout::on(OstId(u32::try_from(index).expect("mounts are few")))
    }

    fn add(&mut self, device: u64, mount: &Path) {
        if !self.targets.iter().any(|(known, _)| *known == device) {
            self.targets.push((device, describe(device, mount)));
        }
    }
}

impl Layouts for Local {
    fn kind(&self) -> &'static str {
        "local"
    }

    fn osts(&self) -> Vec<OstSpec> {
        self.targets.iter().map(|(_, spec)| spec.clone()).collect()
    }

    fn of_file(&self, file: &FileAt<'_>) -> Located {
        Located::at(self.on(file.device))
    }

    fn of_new_file(&self, file: &NewFile<'_>) -> Result<Placed, Errno> {
        fstat(file.directory).map(|stat| Placed::at(self.on(stat.st_dev)))
    }

    fn prefers_direct_writes(&self) -> bool {
        self.targets.iter().all(|(_, spec)| spec.name.starts_with(DEVICES))
    }
}

fn mounts_below(root: &Path) -> Vec<PathBuf> {
    let Ok(table) = std::fs::read("/proc/self/mountinfo") else { return Vec::new() };
    let places = table.split(|&byte| byte == b'\n').filter_map(|line| {
        let field = line.split(|&byte| byte == b' ').nth(4)?;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(field))))
    });
    places.filter(|place| place != root && place.starts_with(root)).collect()
}

/// Undoes mountinfo's escapes: `\040` is a space.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| byte == b'\\');
        let value = octal
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(value.unwrap_or(byte));
        rest = if value.is_some() { &tail[3..] } else { tail };
    }
    plain
}

fn describe(device: u64, mount: &Path) -> OstSpec {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let system = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let Ok(block_device) = system.canonicalize() else {
        // Memory, or something that queues for itself.
        let in_flight_max = processors() * 2;
        return OstSpec { name: mount.display().to_string(), in_flight_max };
    };
    let name = block_device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let is_spinning = is_rotational(&block_device);
    let in_flight_max = if is_spinning { SPINNING_IN_FLIGHT_MAX } else { FLASH_IN_FLIGHT_MAX };
    OstSpec { name: format!("{DEVICES}{name}"), in_flight_max }
}

/// A partition has no queue of its own: its disk, the directory above, does.
fn is_rotational(block_device: &Path) -> bool {
    [block_device.join("queue/rotational"), block_device.join("../queue/rotational")]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok())
        .is_some_and(|text| text.trim() == "1")
}

fn processors() -> u32 {
    let count = std::thread::available_parallelism().map_or(2, usize::from);
    u32::try_from(count).unwrap_or(2).clamp(2, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_escapes_are_undone() {
        assert_eq!(unescape(br"/mnt/a\040b\134c"), b"/mnt/a b\\c");
        assert_eq!(unescape(br"/mnt/\9"), br"/mnt/\9");
    }

    #[test]
    fn a_place_that_is_not_there_yet_lies_where_its_parent_does() {
        let here = Local::of(Path::new("/"));
        let there = Local::of(Path::new("/no/such/place"));
        assert_eq!(here.osts()[0], there.osts()[0]);
    }
}
