//! Trees that are deeper or wider than people make: they arrive, or it is reported what does not.

use crate::world::{Ended, Rng, World, assert_identical, for_seeds, has, run, start};
use lads_core::entry::PATH_BYTES_MAX;
use lads_core::limits::DEPTH_MAX;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::{Errno, read, write};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

/// The number of levels of a deep tree that have a file. There are few, because a rename takes the
/// kernel longer the deeper it is.
const FILE_LEVELS: u32 = 10;

/// A world with trees so deep that no call can name their whole paths. `rm` removes them, because
/// the standard library would open as many directories at the same time as the tree is deep.
struct Deep(World);

impl Drop for Deep {
    fn drop(&mut self) {
        for tree in [self.0.source(), self.0.target()] {
            let _ = Command::new("rm").arg("-rf").arg(tree).status();
        }
    }
}

fn open_directory(at: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

fn open_root(path: &Path) -> OwnedFd {
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
}

impl Deep {
    /// Makes a source of `levels` nested directories of the same name. The last one, and every
    /// [`FILE_LEVELS`]th, holds a file `f` with the number of its level.
    fn new(levels: u32, name: &str) -> Self {
        let world = World::new();
        fs::create_dir(world.source()).unwrap();
        let mut directory = open_root(&world.source());
        for level in 1..=levels {
            mkdirat(&directory, name, Mode::RWXU).unwrap();
            directory = open_directory(&directory, name).unwrap();
            if level % FILE_LEVELS != 0 && level != levels {
                continue;
            }
            let flags = OFlags::WRONLY | OFlags::CREATE;
            let file = openat(&directory, "f", flags, Mode::RWXU).unwrap();
            write(&file, &level.to_le_bytes()).unwrap();
        }
        Self(world)
    }

    /// Returns how many levels arrived, and checks their files.
    #[track_caller]
    fn arrived_levels(&self, name: &str) -> u32 {
        let mut directory = open_root(&self.0.target());
        let mut levels = 0;
        loop {
            directory = match open_directory(&directory, name) {
                Ok(below) => below,
                Err(Errno::NOENT) => return levels,
                Err(errno) => panic!("{errno} at level {levels}"),
            };
            levels += 1;
            if levels % FILE_LEVELS != 0 {
                continue;
            }
            let file = openat(&directory, "f", OFlags::RDONLY, Mode::empty()).unwrap();
            let mut bytes = [0; 5];
            assert_eq!(read(&file, &mut bytes).unwrap(), 4, "level {levels}");
            assert_eq!(bytes[..4], levels.to_le_bytes(), "level {levels}");
        }
    }
}

/// Returns the one entry that was reported to lie too deep.
#[track_caller]
fn too_deep(ended: &Ended) -> String {
    let issue = ended.issue();
    assert_eq!((&issue["side"], &issue["reason"]), (&"source".into(), &"too-deep".into()));
    issue["path"].as_str().unwrap().to_owned()
}

/// A regression test: a tree 1,600 levels deep ended the whole transfer by a stack overflow.
#[test]
fn directories_as_deep_as_they_may_be_arrive_and_a_deeper_one_is_told_alone() {
    let deep = Deep::new(DEPTH_MAX + 3, "d");
    deep.0.write("src/z/beside", b"arrives, too");
    for _ in 0..2 {
        let ended = run(deep.0.cp(&[])).expect(3);
        let path = too_deep(&ended);
        assert!(path.ends_with("/d/d") && path.contains("/d/.../d/"), "{path}");
        let below_source = path.strip_prefix(deep.0.source().to_str().unwrap()).unwrap();
        assert!(below_source.len() <= PATH_BYTES_MAX + 1, "{} bytes", below_source.len());
        assert_eq!(deep.arrived_levels("d"), DEPTH_MAX);
        assert_eq!(fs::read(deep.0.target().join("z/beside")).unwrap(), b"arrives, too");
    }
}

#[test]
fn directories_with_the_longest_names_arrive_300_deep() {
    let name = "n".repeat(255);
    let deep = Deep::new(300, &name);
    run(deep.0.cp(&[])).expect(0);
    assert_eq!(deep.arrived_levels(&name), 300);
}

#[test]
fn a_list_may_name_a_file_thousands_of_levels_deep() {
    const LEVELS: u32 = 5_000;
    let deep = Deep::new(LEVELS, "d");
    let list = deep.0.write("list", format!("{}f\n", "d/".repeat(LEVELS as usize)).as_bytes());
    run(deep.0.cp(&["--files-from", list.to_str().unwrap()])).expect(0);
    let mut directory = open_root(&deep.0.target());
    for level in 1..=LEVELS {
        directory = open_directory(&directory, "d").unwrap();
        let file = openat(&directory, "f", OFlags::RDONLY, Mode::empty());
        assert_eq!(file.is_ok(), level == LEVELS, "only what is listed: level {level}");
    }
}

/// A hard link is described by the path of the first name, and the length of a path is limited.
#[test]
fn names_of_one_file_are_linked_as_far_as_the_first_can_be_told() {
    let levels = u32::try_from(PATH_BYTES_MAX).unwrap() / 201 + 1;
    let name = "n".repeat(200);
    let deep = Deep::new(levels, &name);
    fs::write(deep.0.source().join("high"), b"high").unwrap();
    let mut directory = open_root(&deep.0.source());
    for _ in 0..levels {
        directory = open_directory(&directory, &name).unwrap();
    }
    let flags = rustix::fs::AtFlags::empty();
    rustix::fs::linkat(CWD, deep.0.source().join("high"), &directory, "low", flags).unwrap();
    rustix::fs::linkat(&directory, "f", &directory, "g", flags).unwrap();
    let ended = run(deep.0.cp(&[])).expect(3);
    let path = too_deep(&ended);
    let mut directory = open_root(&deep.0.target());
    for _ in 0..levels {
        directory = open_directory(&directory, &name).unwrap();
    }
    let there = |name: &str| rustix::fs::statat(&directory, name, flags);
    let high = fs::metadata(deep.0.target().join("high")).unwrap().ino();
    assert_eq!(there("low").unwrap().st_ino, high);
    let told = if there("f").is_ok() { "/g" } else { "/f" };
    assert!(path.ends_with(told), "{path}");
    assert!(there("f").is_ok() != there("g").is_ok());
}

/// Returns the peak memory of both ends of such a transfer, in bytes, the source first.
fn peaks(count: usize, make: impl Fn(&Path) -> std::io::Result<()>) -> [u64; 2] {
    let world = World::new();
    fs::create_dir(world.source()).unwrap();
    for number in 0..count {
        make(&world.source().join(format!("{number:06}"))).unwrap();
    }
    let ended = run(world.cp(&[])).expect(0);
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), count);
    let summary = ended.summary();
    ["source", "sink"].map(|side| summary[side]["memory_bytes_peak"].as_u64().unwrap())
}

/// Checks that 100,000 entries in one directory take at most `more_bytes` more memory than 25,000.
fn take_little_more_memory(more_bytes: u64, make: impl Fn(&Path) -> std::io::Result<()>) {
    let [few, many] = [25_000, 100_000].map(|count| peaks(count, &make));
    for side in 0..2 {
        assert!(many[side] <= few[side] + more_bytes, "{few:?} {many:?}");
    }
}

#[test]
fn a_hundred_thousand_empty_directories_take_little_more_memory_than_a_few() {
    // The source keeps the names of directories that are still to be listed: 17 to 22 MiB for
    // 75,000 more, by how the allocator grows.
    take_little_more_memory(32 << 20, |path| fs::create_dir(path));
}

#[test]
fn a_hundred_thousand_files_in_one_directory_take_little_more_memory_than_a_few() {
    // The window may have become wider with the one than with the other. In the widest, entries
    // take 36 MiB; 75,000 more would take 160 MiB.
    take_little_more_memory(48 << 20, |path| fs::write(path, b"x"));
}

#[test]
fn directories_that_are_moved_during_the_walk_mix_nothing_up() {
    for_seeds(2, 20, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        for directory in 0..40 {
            for file in 0..25 {
                let name = format!("src/d{directory}/below/{file}");
                world.write(name, format!("{directory}/{file}").as_bytes());
            }
        }
        let mut running = start(world.cp(&[]));
        while running.is_running() {
            let number = rng.below(40);
            let [here, there] =
                ["d", "moved"].map(|name| world.path(format!("src/{name}{number}")));
            let (from, to) = if here.exists() { (&here, &there) } else { (&there, &here) };
            fs::rename(from, to).unwrap();
        }
        let ended = running.end();
        assert!(matches!(ended.code, Some(0 | 3 | 8)), "{ended:?}");
        crate::tree::visit(&world.target(), &mut |path, metadata| {
            if metadata.is_file() {
                let below = path.strip_prefix(world.target()).unwrap().to_str().unwrap();
                let content = below.replace("moved", "").replace('d', "").replace("/below", "");
                assert_eq!(fs::read(path).unwrap(), content.as_bytes(), "{below}");
            }
        });
    });
}

#[test]
fn what_looks_like_our_own_unfinished_files_is_left_out_and_told_once() {
    if !has("rsync") {
        return;
    }
    let world = World::new();
    let own = [".lads-0123456789abcdef.journal", ".lads-0123456789abcdef0123456789abcdef.part"];
    for name in own {
        world.write(format!("src/a/{name}"), b"left by a transfer to here");
    }
    let excluded = ".lads-ffffffffffffffff.journal";
    world.write(format!("src/{excluded}"), b"not asked for");
    world.write("src/.lads-kept", b"looks like nothing of ours");
    let ended = run(world.cp(&["--exclude", excluded])).expect(0);
    let notices = ended.events_of("notice");
    let told: Vec<&str> = notices
        .iter()
        .filter_map(|it| it["text"].as_str())
        .filter(|it| it.contains("skipped at the source"))
        .collect();
    assert_eq!(told.len(), 1, "{ended:?}");
    assert!(
        told[0].contains(": 2 ") && told[0].contains("a/.lads-0123456789abcdef"),
        "{}",
        told[0]
    );
    for name in own {
        fs::remove_file(world.source().join("a").join(name)).unwrap();
    }
    fs::remove_file(world.source().join(excluded)).unwrap();
    // Removing them has changed the times of their directories.
    assert!(run(world.cp(&[])).expect(0).events_of("notice").is_empty());
    assert_identical(&world.source(), &world.target());
}
