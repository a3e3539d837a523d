//! Runs the same operations on an emulated file system and on a tmpfs: results, errors and the
//! final tree must be the same.

use super::{MIB, on_a_mount};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, XattrFlags};
use std::fs::{self, OpenOptions};
use std::io::Result;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const OPERATIONS: usize = 4000;

/// Only a few names, so that operations often use the same ones.
const NAMES: [&str; 12] =
    ["a", "b", "c", "d", "a/a", "a/b", "a/c", "b/a", "b/b", "a/a/a", "a/a/b", "b/a/a"];

/// An operation on a tree.
#[derive(Clone, Debug)]
enum Operation {
    MakeDirectory(&'static str),
    RemoveDirectory(&'static str),
    Write { name: &'static str, offset: u64, length: usize, flags: i32 },
    Append(&'static str),
    Read(&'static str),
    Truncate(&'static str, u64),
    PunchHole(&'static str, u64, u64),
    Allocate(&'static str, u64, u64),
    Remove(&'static str),
    Rename(&'static str, &'static str, RenameFlags),
    Link(&'static str, &'static str),
    Symlink(&'static str, &'static str),
    SetMode(&'static str, u32),
    SetAttribute(&'static str, u8, XattrFlags),
    RemoveAttribute(&'static str, u8),
    List(&'static str),
}

impl Operation {
    fn random(chance: &mut fastrand::Rng) -> Self {
        let name = |chance: &mut fastrand::Rng| NAMES[chance.usize(0..NAMES.len())];
        let it = name(chance);
        match chance.u32(0..20) {
            0..=2 => Self::MakeDirectory(it),
            3 => Self::RemoveDirectory(it),
            4..=6 => {
                let (offset, length) = (chance.u64(0..3 << 20), chance.usize(0..2 * MIB));
                let create = if chance.bool() { libc::O_CREAT } else { libc::O_TRUNC };
                Self::Write { name: it, offset, length, flags: create }
            }
            7 => {
                let (offset, length) = (chance.u64(0..500) << 12, chance.usize(0..100) << 12);
                Self::Write { name: it, offset, length, flags: libc::O_DIRECT | libc::O_CREAT }
            }
            8 => Self::Append(it),
            9 => Self::Read(it),
            10 => Self::Truncate(it, chance.u64(0..4 << 20)),
            11 => Self::PunchHole(it, chance.u64(0..2 << 20), chance.u64(1..2 << 20)),
            12 => Self::Allocate(it, chance.u64(0..4 << 20), chance.u64(1..1 << 20)),
            13 => Self::Remove(it),
            14 => {
                let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE];
                Self::Rename(it, name(chance), flags[chance.usize(0..3)])
            }
            15 => Self::Link(it, name(chance)),
            16 => Self::Symlink(it, name(chance)),
            17 => Self::SetMode(it, chance.u32(0..0o10000)),
            18 => {
                let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE];
                Self::SetAttribute(it, chance.u8(0..3), flags[chance.usize(0..3)])
            }
            _ if chance.bool() => Self::RemoveAttribute(it, chance.u8(0..3)),
            _ => Self::List(it),
        }
    }

    /// Performs it; returns the result to compare.
    fn perform(&self, root: &Path) -> Result<Vec<u8>> {
        let at = |name: &str| root.join(name);
        let writable = |name: &str| OpenOptions::new().write(true).open(at(name));
        let nothing = |()| Vec::new();
        match *self {
            Self::MakeDirectory(name) => fs::create_dir(at(name)).map(nothing),
            Self::RemoveDirectory(name) => fs::remove_dir(at(name)).map(nothing),
            Self::Write { name, offset, length, flags } => {
                let mut arena = lads_sys::Arena::new(1, 2 * MIB)?.take();
                arena.fill(u8::try_from(length % 251).expect("below 251"));
                let file = OpenOptions::new()
                    .write(true)
                    .mode(0o644)
                    .custom_flags(flags)
                    .open(at(name))?;
                file.write_all_at(&arena[..length], offset).map(nothing)
            }
            Self::Append(name) => {
                let mut file = OpenOptions::new().append(true).open(at(name))?;
                std::io::Write::write_all(&mut file, name.as_bytes()).map(nothing)
            }
            Self::Read(name) => fs::read(at(name)),
            Self::Truncate(name, size) => writable(name)?.set_len(size).map(nothing),
            Self::PunchHole(name, offset, length) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(nothing(rustix::fs::fallocate(writable(name)?, mode, offset, length)?))
            }
            Self::Allocate(name, offset, length) => {
                let mode = FallocateFlags::empty();
                Ok(nothing(rustix::fs::fallocate(writable(name)?, mode, offset, length)?))
            }
            Self::Remove(name) => fs::remove_file(at(name)).map(nothing),
            Self::Rename(from, to, flags) => {
                Ok(nothing(rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?))
            }
            Self::Link(from, to) => fs::hard_link(at(from), at(to)).map(nothing),
            Self::Symlink(from, to) => std::os::unix::fs::symlink(from, at(to)).map(nothing),
            Self::SetMode(name, mode) => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).map(nothing)
            }
            Self::SetAttribute(name, key, flags) => {
                let key = format!("user.{key}");
                Ok(nothing(rustix::fs::setxattr(at(name), key, name.as_bytes(), flags)?))
            }
            Self::RemoveAttribute(name, key) => {
                Ok(nothing(rustix::fs::removexattr(at(name), format!("user.{key}"))?))
            }
            Self::List(name) => Ok(names(&at(name))?.join("\n").into_bytes()),
        }
    }
}

fn names(directory: &Path) -> Result<Vec<String>> {
    let names = fs::read_dir(directory)?;
    let mut names: Vec<String> = names
        .map(|entry| Ok(entry?.file_name().into_string().expect("they are ASCII")))
        .collect::<Result<_>>()?;
    names.sort_unstable();
    Ok(names)
}

/// Describes everything in a tree that a program can see, one line per entry.
fn describe(root: &Path, path: &Path, lines: &mut Vec<String>) -> Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let mut keys = vec![0; 1000];
    let length = rustix::fs::llistxattr(path, &mut keys[..])?;
    let mut keys: Vec<_> = keys[..length].split(|byte| *byte == 0).collect();
    keys.sort_unstable();
    let content = if metadata.is_file() {
        let bytes = fs::read(path)?;
        format!("{} bytes, sum {}", bytes.len(), bytes.iter().map(|it| u64::from(*it)).sum::<u64>())
    } else {
        fs::read_link(path).unwrap_or_default().display().to_string()
    };
    let (mode, links) = (metadata.mode(), metadata.nlink());
    let name = path.strip_prefix(root).expect("it is below").display();
    lines.push(format!("{name}: mode {mode:o}, {links} links, attributes {keys:?}, {content}"));
    if metadata.is_dir() {
        for name in names(path)? {
            describe(root, &path.join(name), lines)?;
        }
    }
    Ok(())
}

/// Returns the result of an operation, with an error as its number.
fn outcome(operation: &Operation, root: &Path) -> std::result::Result<Vec<u8>, Option<i32>> {
    operation.perform(root).map_err(|error| error.raw_os_error())
}

fn compare(seed: u64, settings: &[&str]) {
    on_a_mount(settings, |daemon| {
        let place: PathBuf = "/dev/shm".into();
        let model = tempfile::tempdir_in(place)?;
        let real = daemon.path("root");
        fs::create_dir(&real)?;
        fs::set_permissions(&real, fs::metadata(model.path())?.permissions())?;
        let mut chance = fastrand::Rng::with_seed(seed);
        for index in 0..OPERATIONS {
            let operation = Operation::random(&mut chance);
            let (expected, found) = (outcome(&operation, model.path()), outcome(&operation, &real));
            assert!(
                expected == found,
                "seed {seed}, operation {index}, {operation:?}: tmpfs says \
                {:?}, the emulated file system {:?}",
                brief(&expected),
                brief(&found)
            );
        }
        let (mut expected, mut found) = (Vec::new(), Vec::new());
        describe(model.path(), model.path(), &mut expected)?;
        describe(&real, &real, &mut found)?;
        assert_eq!(found, expected, "seed {seed}");
        Ok(())
    });
}

fn brief(
    outcome: &std::result::Result<Vec<u8>, Option<i32>>,
) -> std::result::Result<usize, Option<i32>> {
    outcome.as_ref().map(Vec::len).map_err(|error| *error)
}

#[test]
fn it_behaves_as_a_tmpfs_does() {
    compare(1, &["--osts", "4", "--stripe-count", "3", "--stripe-size", "64K"]);
}

#[test]
fn it_behaves_as_a_tmpfs_does_with_writeback() {
    compare(2, &["--osts", "4", "--stripe-count", "3", "--stripe-size", "64K", "--writeback"]);
}
