//! What a client of Lustre, or an emulated one, says of its OSTs: names, servers, state, space.

use crate::layout::Target;
use lads_core::lov::ATTRIBUTE_ADD;
use lads_core::placement::OstState;
use lads_core::units::OstId;
use lads_sys::{emulated, lustre};
use rustix::fs::{XattrFlags, fsetxattr};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The hidden file in which an emulator lists its OSTs: index, server, state, capacity and use in
/// bytes, a line each.
const EMULATOR_FILE: &str = ".pfs/osts";

/// Where Lustre's client shows its connections to OSTs.
const CONNECTIONS: &str = "/sys/fs/lustre/osc";

/// The most OSTs. No file system has more; the limit is for an answer that never ends.
const OSTS_MAX: u32 = 16 << 10;

/// Where the table of OSTs is read.
#[derive(Debug)]
pub(super) enum Table {
    /// From a client of Lustre: by calls on one of its directories, and from `/sys`.
    Client {
        /// A directory of the file system.
        directory: File,
        /// The name of the file system and the number of the mount, which are parts of file names,
        /// if known.
        names: Option<(String, String)>,
    },
    /// From a file that lists the OSTs.
    Listed(PathBuf),
}

impl Table {
    /// The table of a client of Lustre.
    pub(super) fn of_client(directory: &Path) -> Option<Self> {
        let is_directory = directory.is_dir();
        let directory = if is_directory { directory } else { directory.parent()? };
        let directory = File::open(directory).ok()?;
        let name = lustre::device_name(&directory).ok();
        let names = name.as_deref().and_then(names_of);
        Some(Self::Client { directory, names })
    }

    /// The table of an emulated Lustre that is mounted here.
    pub(super) fn of_emulator(mount: &Path) -> Option<Self> {
        let list = mount.join(EMULATOR_FILE);
        list.exists().then_some(Self::Listed(list))
    }

    /// The OSTs as they are now, by index; gaps are [`OstState::Absent`].
    pub(super) fn read(&self) -> Vec<Target> {
        match self {
            Self::Client { directory, names } => read_client(directory, names.as_ref()),
            Self::Listed(list) => parse_list(&std::fs::read_to_string(list).unwrap_or_default()),
        }
    }
}

impl Table {
    /// Adds components to a file. An emulator has a call of its own for this, because with the
    /// attribute the kernel would lock the file against all its writers.
    pub(super) fn add_components(&self, file: &OwnedFd, addition: &[u8]) -> Result<(), Errno> {
        match self {
            Self::Client { .. } => fsetxattr(file, ATTRIBUTE_ADD, addition, XattrFlags::empty()),
            Self::Listed(_) => emulated::add_components(file, addition)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

fn read_client(directory: &File, names: Option<&(String, String)>) -> Vec<Target> {
    let mut targets = Vec::new();
    for index in 0..OSTS_MAX {
        let target = match lustre::ost(directory, index) {
            Ok(ost) => target_of(&ost),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::AGAIN) => absent(index),
                Some(Errno::NODATA) => Target { state: OstState::Down, ..absent(index) },
                _ => break,
            },
        };
        let server = names.map_or_else(String::new, |names| server_of(names, index));
        targets.push(Target { server, ..target });
    }
    if targets.is_empty() {
        // Then at least the number of OSTs is known.
        let count = lustre::ost_count(directory).unwrap_or(0).min(OSTS_MAX);
        targets = (0..count).map(|index| Target { state: OstState::Up, ..absent(index) }).collect();
    }
    targets
}

fn absent(index: u32) -> Target {
    let name = OstId(index).to_string();
    Target { name, state: OstState::Absent, ..Target::default() }
}

fn target_of(ost: &lustre::Ost) -> Target {
    let has = |bits: u32| ost.state & bits != 0;
    let state = if has(lustre::STATE_NO_SPACE | lustre::STATE_NO_INODES) {
        OstState::Full
    } else if has(lustre::STATE_READ_ONLY | lustre::STATE_NO_CREATE) {
        OstState::NoCreate
    } else if has(lustre::STATE_DEGRADED) {
        OstState::Degraded
    } else {
        OstState::Up
    };
    Target {
        name: ost.uuid.trim_end_matches("_UUID").to_owned(),
        server: String::new(),
        state,
        capacity_bytes: ost.capacity_bytes,
        free_bytes: ost.free_bytes,
        is_flash: Some(has(lustre::STATE_FLASH)),
    }
}

/// Takes the name of the file system and the number of the mount from a name like
/// `scratch-clilov-ffff88…`.
fn names_of(device: &str) -> Option<(String, String)> {
    let (rest, instance) = device.rsplit_once('-')?;
    let (file_system, _) = rest.rsplit_once('-')?;
    Some((file_system.to_owned(), instance.to_owned()))
}

/// The network address of the server that serves an OST now; it changes when a server fails.
fn server_of((file_system, instance): &(String, String), index: u32) -> String {
    let device = format!("{file_system}-OST{index:04x}-osc-{instance}");
    let connection = Path::new(CONNECTIONS).join(device);
    let address = ["ost_conn_uuid", "conn_uuid"]
        .iter()
        .find_map(|file| std::fs::read_to_string(connection.join(file)).ok());
    // The client has given up connections that were idle for long.
    address.map(|it| it.trim().to_owned()).filter(|it| it != "<none>").unwrap_or_default()
}

fn parse_list(list: &str) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for line in list.lines() {
        let Some((index, target)) = parse_line(line) else { continue };
        for gap in targets.len()..=index {
            targets.push(absent(u32::try_from(gap).expect("below OSTS_MAX")));
        }
        targets[index] = target;
    }
    targets
}

/// `INDEX SERVER STATE CAPACITY USED`.
fn parse_line(line: &str) -> Option<(usize, Target)> {
    let mut fields = line.split_whitespace();
    let index: u32 = fields.next()?.parse().ok().filter(|&index| index < OSTS_MAX)?;
    let server = fields.next()?;
    let state = match fields.next()? {
        "up" => OstState::Up,
        "degraded" => OstState::Degraded,
        "full" => OstState::Full,
        "no-create" => OstState::NoCreate,
        _ => OstState::Down,
    };
    let capacity_bytes: u64 = fields.next()?.parse().ok()?;
    let used_bytes: u64 = fields.next()?.parse().ok()?;
    let target = Target {
        name: OstId(index).to_string(),
        server: server.to_owned(),
        state,
        capacity_bytes,
        free_bytes: capacity_bytes.saturating_sub(used_bytes),
        is_flash: None,
    };
    Some((index as usize, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_a_line_for_each_ost() {
        let targets = parse_list("0 oss0 up 100 30\nnonsense\n3 oss1 no-create 100 200\n");
        let states: Vec<_> = targets.iter().map(|it| it.state).collect();
        let expected = [OstState::Up, OstState::Absent, OstState::Absent, OstState::NoCreate];
        assert_eq!(states, expected);
        assert_eq!((targets[0].free_bytes, targets[3].free_bytes), (70, 0));
        assert_eq!((targets[3].name.as_str(), targets[3].server.as_str()), ("OST0003", "oss1"));
    }

    #[test]
    fn an_index_beyond_all_bounds_makes_no_table() {
        assert!(parse_list("4000000000 oss0 up 1 1").is_empty());
    }

    #[test]
    fn a_device_name_tells_file_system_and_mount() {
        let names = names_of("my-scratch-clilov-ffff8801a2b3c4d5");
        assert_eq!(names, Some(("my-scratch".to_owned(), "ffff8801a2b3c4d5".to_owned())));
    }

    #[test]
    fn a_full_ost_is_full_even_if_it_is_degraded_too() {
        let state = lustre::STATE_NO_SPACE | lustre::STATE_DEGRADED | lustre::STATE_FLASH;
        let uuid = "fs-OST000a_UUID".to_owned();
        let target = target_of(&lustre::Ost { state, capacity_bytes: 5, free_bytes: 1, uuid });
        assert_eq!((target.name.as_str(), target.state), ("fs-OST000a", OstState::Full));
        assert_eq!(target.is_flash, Some(true));
    }
}
