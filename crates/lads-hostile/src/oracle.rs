//! What must hold after every case, whatever was lied about.

use crate::case::Case;
use crate::entries::content_of;
use crate::snapshot::xattr_names;
use crate::world::{SECRET, World};
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// Namespaces of attributes that give rights, or that file systems and kernels keep books with.
const RIGHTS: [&str; 2] = ["security.", "trusted."];

/// What is wrong with what the honest end printed: a panic, control characters.
#[must_use]
pub(crate) fn of_output(world: &World) -> Vec<String> {
    let mut wrongs = Vec::new();
    for name in ["stderr", "stdout"] {
        let bytes = fs::read(world.peer().join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("panicked at") {
            wrongs.push(format!("it panicked ({name})"));
        }
        let is_raw = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        if let Some(at) = text.find(is_raw) {
            let around: String = text[at..].chars().take(20).collect();
            wrongs.push(format!("a control character was printed: {around:?} ({name})"));
        }
    }
    wrongs
}

/// What is wrong with the target: a file under a real name that does not hold what its name
/// stands for, rights that nobody asked to give, a device, or something missing.
#[must_use]
pub(crate) fn of_target(world: &World, case: &Case, is_arrived: bool) -> Vec<String> {
    let mut wrongs = Vec::new();
    let devices_are_asked_for = case.options.contains(&"-D");
    for path in paths_below(&world.target()) {
        let Ok(stat) = fs::symlink_metadata(&path) else { continue };
        let kind = stat.file_type();
        let said = path.display();
        if kind.is_file() && !is_ours(&path) && !is_right(&path, stat.nlink()) {
            wrongs.push(format!("{said} does not hold what it should ({} bytes)", stat.len()));
        }
        if kind.is_file() && stat.mode() & SET_ID_BITS != 0 {
            wrongs.push(format!("{said} has mode {:o}", stat.mode()));
        }
        let is_node =
            kind.is_block_device() || kind.is_char_device() || kind.is_fifo() || kind.is_socket();
        if is_node && !devices_are_asked_for && !is_ours(&path) {
            wrongs.push(format!("{said} is a device, FIFO or socket ({:o})", stat.mode()));
        }
        let is_right = |name: &String| RIGHTS.iter().any(|rights| name.starts_with(rights));
        if let Some(name) = xattr_names(&path).iter().find(|name| is_right(name)) {
            wrongs.push(format!("{said} has the attribute {name}"));
        }
    }
    wrongs.extend(of_victim(world));
    for (name, size) in case.arrives.iter().filter(|_| is_arrived) {
        let path = world.target().join(name);
        let base = path.file_name().unwrap().as_encoded_bytes();
        if fs::read(&path).ok().as_deref() != Some(&content_of(base, *size)) {
            wrongs.push(format!("exit 0, and {} is not there or wrong", path.display()));
        }
    }
    wrongs
}

/// What is wrong with the file to which somebody planted links: names of it may go, not its data
/// and mode.
fn of_victim(world: &World) -> Option<String> {
    let stat = fs::symlink_metadata(world.victim()).unwrap();
    let is_right = fs::read(world.victim()).is_ok_and(|bytes| bytes == SECRET)
        && stat.mode() & 0o7777 == 0o600;
    (!is_right).then(|| format!("the victim of a link has changed: mode {:o}", stat.mode()))
}

fn paths_below(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for entry in entries {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found
}

/// Whether it has one of LADS' own names: a journal, or a file that is not whole.
fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".lads-"))
}

/// Whether a file holds what its name stands for; of one with several names, its size is enough.
fn is_right(path: &Path, links: u64) -> bool {
    let name = path.file_name().unwrap().as_encoded_bytes();
    let Ok(bytes) = fs::read(path) else { return false };
    links > 1 || bytes == content_of(name, bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::os::unix::fs::PermissionsExt as _;
    use tempfile::TempDir;

    /// A world in which the honest source of `honest_source` has moved `two`, and nothing else.
    fn world() -> (TempDir, World) {
        let place = tempfile::tempdir().unwrap();
        let world = World::at(place.path());
        world.make();
        fs::write(world.target().join("two"), content_of(b"two", 10)).unwrap();
        (place, world)
    }

    /// What is found wrong, all of it in one text.
    fn found(world: &World, is_arrived: bool) -> String {
        of_target(world, &cases::find("honest_source").unwrap(), is_arrived).join("\n")
    }

    #[test]
    fn what_is_right_is_not_found_fault_with() {
        let (_place, world) = world();
        fs::write(world.target().join(".lads-0.part"), "not whole").unwrap();
        assert_eq!(found(&world, false), "");
        assert!(of_output(&world).is_empty());
    }

    #[test]
    fn a_file_that_holds_something_else_is_found() {
        let (_place, world) = world();
        let mut bytes = content_of(b"two", 10);
        bytes[9] = 0;
        fs::write(world.target().join("two"), bytes).unwrap();
        assert!(found(&world, false).contains("two does not hold what it should"));
    }

    #[test]
    fn a_file_that_is_missing_counts_only_after_exit_0() {
        let (_place, world) = world();
        assert!(found(&world, true).contains("one is not there or wrong"));
        assert!(!found(&world, true).contains("two is not there or wrong"));
    }

    #[test]
    fn rights_that_nobody_asked_for_are_found() {
        let (_place, world) = world();
        let set_id = fs::Permissions::from_mode(0o4755);
        fs::set_permissions(world.target().join("two"), set_id).unwrap();
        let fifo = world.target().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let found = found(&world, false);
        assert!(found.contains("two has mode 104755"), "{found}");
        assert!(found.contains("fifo is a device, FIFO or socket"), "{found}");
    }

    #[test]
    fn a_change_of_the_victim_of_a_link_is_found() {
        let (_place, world) = world();
        fs::set_permissions(world.victim(), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(found(&world, false).contains("victim"));
    }

    #[test]
    fn panics_and_control_characters_that_are_printed_are_found() {
        let (_place, world) = world();
        fs::write(world.peer().join("stderr"), "thread 'x' panicked at a.rs:1").unwrap();
        fs::write(world.peer().join("stdout"), "a\x1b[2J").unwrap();
        let found = of_output(&world).join("\n");
        assert!(found.contains("panicked") && found.contains("control character"), "{found}");
    }
}
