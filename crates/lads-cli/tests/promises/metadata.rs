//! Metadata that the sink cannot keep: reported once for each kind, and never replaced by more
//! rights.

use crate::faultfs::FaultFs;
use crate::tree::{assert_nothing_left_over, set_mtime, set_xattr};
use crate::world::{Ended, Mounted, RUN_HERE, World, as_nobody, has, is_root, lads, run, there};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::process::Command;

const ACL: &[u8] = b"system.posix_acl_access";

/// Sets an ACL with `user:1000:rw-`, `mask::rw-`, `other::---` and these rights of the group.
fn set_acl(path: &Path, group: u8) {
    let mut value = vec![2, 0, 0, 0];
    for (tag, rights, id) in [
        (1, 6, u32::MAX),
        (2, 6, 1000),
        (4, group, u32::MAX),
        (0x10, 6, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        value.extend([tag, 0, rights, 0]);
        value.extend(id.to_le_bytes());
    }
    set_xattr(path, ACL, &value);
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

/// Returns the reported kinds with the number of entries, which the summary repeats.
fn reduced(ended: &Ended) -> Vec<(String, u64)> {
    let events = ended.events_of("reduced");
    let text = |event: &serde_json::Value| event["kind"].as_str().unwrap().to_owned();
    let kinds: Vec<_> =
        events.iter().map(|event| (text(event), event["entries"].as_u64().unwrap())).collect();
    let summary = ended.summary()["reduced"].clone();
    assert_eq!(summary.as_object().unwrap().len(), kinds.len(), "{ended:?}");
    assert!(kinds.iter().all(|(kind, entries)| summary[kind] == *entries), "{ended:?}");
    kinds
}

fn kinds(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    expected.iter().map(|(kind, entries)| ((*kind).to_owned(), *entries)).collect()
}

/// Files and a directory with attributes and ACLs.
fn with_attributes() -> World {
    let world = World::new();
    world.write("src/plain", b"plain");
    set_xattr(&world.write("src/attribute", b"1"), b"user.origin", b"here");
    // A file of several blocks has a temporary name; the others have none until they are complete.
    let large = world.write("src/large", &vec![1; 3 << 20]);
    set_xattr(&large, b"user.origin", b"here");
    for (name, group) in [("none", 0), ("read", 4), ("all", 7)] {
        set_acl(&world.write(format!("src/{name}"), name.as_bytes()), group);
        assert_eq!(mode(&world.source().join(name)), 0o660);
    }
    let directory = world.source().join("directory");
    fs::create_dir(&directory).unwrap();
    set_xattr(&directory, b"user.origin", b"here");
    set_acl(&directory, 0);
    world
}

#[test]
fn attributes_and_acls_that_the_sink_does_not_store_are_reported_once_for_each_kind() {
    let world = with_attributes();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    storage.command("fail setxattr EOPNOTSUPP");
    let shell = world.fake_shell(RUN_HERE);
    let (source, sink) = (world.source_contents(), |name| storage.path(name).display().to_string());
    for name in ["local", "pushed", "pulled"] {
        let command = || {
            let (mut command, [from, to]) = match name {
                "pushed" => (there(&shell), [source.clone(), format!("there:{}", sink(name))]),
                "pulled" => (there(&shell), [format!("there:{source}"), sink(name)]),
                _ => (lads::<&str>(&[]), [source.clone(), sink(name)]),
            };
            command.args([from, to]);
            command
        };
        // The second time, metadata is compared and set again: the report is the same.
        for _ in 0..2 {
            let ended = run(command()).expect(13);
            assert_eq!(reduced(&ended), kinds(&[("acls", 4), ("attributes", 3)]), "{name}");
            assert_eq!(ended.summary()["outcome"], "reduced");
            assert_eq!(ended.count("issue_count"), 0);
        }
        let modes = ["none", "read", "all", "directory"];
        let modes = modes.map(|it| mode(&storage.path(name).join(it)));
        assert_eq!(modes, [0o600, 0o640, 0o660, 0o600], "{name}");
        assert_eq!(fs::read(storage.path(name).join("large")).unwrap().len(), 3 << 20);
    }
    // The option that the advice names.
    let ended = run(world_cp(&world, &["--no-xattrs"], &storage.path("without"))).expect(0);
    assert_eq!(reduced(&ended), []);
    assert_eq!(mode(&storage.path("without/none")), 0o600);
}

/// ext4 returns ENOSPC for an attribute that is larger than a block, although it is almost empty.
/// The transfer stopped as if the sink were full, each time.
#[test]
fn attributes_that_are_too_large_for_the_sink_stop_nothing() {
    let world = World::new();
    for number in 0..50 {
        world.write(format!("src/{number}"), b"file");
    }
    world.write("src/directory/inside", b"inside");
    for name in ["7", "directory", "."] {
        set_xattr(&world.source().join(name), b"user.large", &[7; 10_000]);
    }
    let make = ["mkfs.ext4", "-q", "-F"];
    let Some(mounted) = Mounted::new_image(&world.target(), &world.path("image"), &make) else {
        return;
    };
    for moved in [51, 0] {
        let ended = run(mounted.command(&world.cp(&[]))).expect(13);
        assert_eq!(reduced(&ended), kinds(&[("large-attributes", 3)]));
        assert_eq!((ended.count("files_moved"), ended.count("issue_count")), (moved, 0));
    }
    assert_eq!(fs::read(mounted.seen().join("7")).unwrap(), b"file");
}

#[test]
fn every_error_of_an_attribute_without_space_is_a_reduction() {
    let world = with_attributes();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    for errno in ["ENOSPC", "EDQUOT", "E2BIG", "ERANGE"] {
        storage.command(&format!("clear\nfail setxattr {errno}"));
        let ended = run(world_cp(&world, &[], &storage.path(errno))).expect(13);
        let [(kind, _)] = &reduced(&ended)[..] else { panic!("{errno}: {ended:?}") };
        assert_eq!((kind.as_str(), ended.count("issue_count")), ("large-attributes", 0));
        assert_eq!(fs::read(storage.path(errno).join("large")).unwrap().len(), 3 << 20);
    }
}

fn world_cp(world: &World, options: &[&str], target: &Path) -> Command {
    let mut command = lads(options);
    command.arg(world.source_contents()).arg(target);
    command
}

/// Without ACLs, the group bits of a file would be the mask of its ACL.
#[test]
fn without_xattrs_the_group_gets_no_rights_of_the_mask() {
    let world = with_attributes();
    run(world_cp(&world, &["--no-xattrs"], &world.target())).expect(0);
    let modes = ["none", "read", "all", "directory"].map(|it| mode(&world.target().join(it)));
    assert_eq!(modes, [0o600, 0o640, 0o660, 0o600]);
    assert_eq!(mode(&world.target().join("plain")), mode(&world.source().join("plain")));
}

#[test]
fn a_failure_counts_more_than_metadata() {
    let world = with_attributes();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    storage.command("fail setxattr EOPNOTSUPP");
    fs::create_dir_all(storage.path("dst/plain/kept")).unwrap();
    let ended = run(world_cp(&world, &[], &storage.path("dst"))).expect(6);
    assert_eq!(reduced(&ended), kinds(&[("acls", 4), ("attributes", 3)]));
}

/// FAT and some network file systems store no permissions, or no times.
#[test]
fn permissions_and_times_that_the_sink_does_not_store_are_reported() {
    let world = World::new();
    for name in ["a", "b", "d/c"] {
        set_mtime(&world.write(format!("src/{name}"), name.as_bytes()), 1_000_000_000, 0);
    }
    for name in ["a", "d"] {
        fs::set_permissions(world.source().join(name), fs::Permissions::from_mode(0o750)).unwrap();
    }
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    storage.command("fail setattr EPERM");
    let ended = run(world_cp(&world, &[], &storage.path("dst"))).expect(13);
    let [(permissions, some), (times, all)] = &reduced(&ended)[..] else { panic!("{ended:?}") };
    assert_eq!((permissions.as_str(), times.as_str(), *all), ("permissions", "times", 5));
    assert!((2..=5).contains(some), "{ended:?}");
    assert_eq!(fs::read(storage.path("dst/d/c")).unwrap(), b"d/c");
    let ended = run(world_cp(&world, &["--no-perms", "--no-times"], &storage.path("other")));
    assert_eq!(reduced(&ended.expect(0)), []);
}

/// ext4 with small inodes stores the seconds from 1901 to 2038; the kernel sets the nearest time.
#[test]
fn times_outside_the_range_of_the_sink_are_reported() {
    let world = World::new();
    for (name, seconds) in [("usual", 1_700_000_000), ("late", 5_000_000_000), ("early", -1)] {
        set_mtime(&world.write(format!("src/{name}"), name.as_bytes()), seconds, 0);
    }
    symlink("usual", world.source().join("link")).unwrap();
    set_mtime(&world.source().join("link"), 6_000_000_000, 0);
    let image = world.path("image");
    let make = ["mkfs.ext4", "-q", "-I", "128", "-F"];
    let Some(mounted) = Mounted::new_image(&world.target(), &image, &make) else { return };
    let ended = run(mounted.command(&world.cp(&[]))).expect(13);
    assert_eq!(reduced(&ended), kinds(&[("times", 2)]));
    assert_eq!(mounted.seen().join("early").metadata().unwrap().mtime(), -1);
    let ended = run(mounted.command(&world.cp(&["--no-times"]))).expect(0);
    assert_eq!(reduced(&ended), []);
}

#[test]
fn owners_that_only_root_may_set_are_no_loss() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = World::new();
    let file = world.write("src/file", b"bytes");
    let set_id = world.write("src/set-id", b"bytes");
    fs::set_permissions(&set_id, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::create_dir(world.source().join("group")).unwrap();
    fs::set_permissions(world.source().join("group"), fs::Permissions::from_mode(0o2775)).unwrap();
    for path in [world.source(), file] {
        lchown(path, Some(1234), Some(1234)).unwrap();
    }
    fs::create_dir(world.target()).unwrap();
    fs::set_permissions(world.target(), fs::Permissions::from_mode(0o777)).unwrap();
    let without = |options: &[&str]| {
        let target = world.target().join(format!("to{}", options.concat()));
        run(as_nobody(&world_cp(&world, options, &target)))
    };
    let ended = without(&[]).expect(0);
    assert_eq!(reduced(&ended), kinds(&[("owner", 4), ("privileges", 1)]));
    // On a directory, the bit gives no rights.
    assert_eq!(mode(&world.target().join("to/group")), 0o2775);
    // These were asked for.
    let ended = without(&["--privileges"]).expect(13);
    assert_eq!(reduced(&ended), kinds(&[("set-id-bits", 1), ("owner", 4)]));
    assert_eq!(mode(&world.target().join("to--privileges/set-id")), 0o755);
}

/// A refusal for root comes from the file system, and is reported as rsync reports it.
#[test]
fn owners_that_root_may_not_set_are_a_loss() {
    if !is_root() {
        return;
    }
    let world = World::new();
    lchown(world.write("src/file", b"bytes"), Some(1234), Some(1234)).unwrap();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    storage.command("fail setattr EPERM");
    let options = ["--no-perms", "--no-times"];
    let ended = run(world_cp(&world, &options, &storage.path("dst"))).expect(13);
    assert_eq!(reduced(&ended), kinds(&[("owner-refused", 1)]));
    let options = ["--no-perms", "--no-times", "--no-owner"];
    run(world_cp(&world, &options, &storage.path("dst"))).expect(0);
}

/// Three names of one file; then one of them is another file with the same bytes. Its metadata was
/// set on the file at the sink, which the two others still named. Chaos found it (20784000027).
#[test]
fn a_name_that_left_a_group_of_hard_links_does_not_take_the_others_along() {
    for options in [&[][..], &["-c"], &["-u"]] {
        let world = World::new();
        let names = ["a", "b", "c"].map(|name| world.source().join(name));
        let write = |path: &Path, mode: u32| {
            fs::write(path, b"bytes").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            set_mtime(path, 1_700_000_000, 0);
        };
        fs::create_dir_all(world.source()).unwrap();
        write(&names[1], 0o600);
        fs::hard_link(&names[1], &names[0]).unwrap();
        fs::hard_link(&names[1], &names[2]).unwrap();
        run(world.cp(&[])).expect(0);
        for (gone, group) in [("a", ["b", "c"]), ("c", ["b", "b"])] {
            let other = world.source().join(gone);
            fs::remove_file(&other).unwrap();
            write(&other, 0o644);
            run(world.cp(options)).expect(0);
            let there = |name: &str| world.target().join(name);
            assert_eq!(mode(&there(gone)), 0o644, "{options:?} {gone}");
            let inode = |name: &str| fs::metadata(there(name)).unwrap().ino();
            for name in group {
                assert_eq!(mode(&there(name)), 0o600, "{options:?} {gone} {name}");
                assert_eq!(inode(name), inode("b"), "{options:?} {gone} {name}");
            }
            assert_ne!(inode(gone), inode("b"), "{options:?} {gone}");
        }
    }
}

/// Names of one FIFO, device or symbolic link were copied as entries of their own.
#[test]
fn hard_links_of_all_kinds_are_kept() {
    let world = World::new();
    world.write("src/file", b"bytes");
    fs::create_dir(world.source().join("d")).unwrap();
    symlink("file", world.source().join("link")).unwrap();
    mknodat(CWD, world.source().join("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let names = ["file", "link", "fifo"];
    for name in names {
        let first = world.source().join(name);
        fs::hard_link(&first, world.source().join("d").join(name)).unwrap();
        fs::hard_link(&first, world.source().join(format!("{name}2"))).unwrap();
    }
    let inodes = |name: &str| {
        [name.to_owned(), format!("d/{name}"), format!("{name}2")]
            .map(|name| world.target().join(name).symlink_metadata().unwrap().ino())
    };
    for _ in 0..2 {
        run(world.cp(&["-D"])).expect(0);
        assert_nothing_left_over(&world.target());
        for name in names {
            let [first, second, third] = inodes(name);
            assert!(first == second && second == third, "{name}");
        }
    }
    // A changed group is joined again, and a name that left the group is separated.
    fs::remove_file(world.target().join("d/link")).unwrap();
    symlink("file", world.target().join("d/link")).unwrap();
    fs::remove_file(world.source().join("fifo2")).unwrap();
    mknodat(CWD, world.source().join("fifo2"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    run(world.cp(&["-D"])).expect(0);
    let [first, second, third] = inodes("link");
    assert!(first == second && second == third);
    let [first, second, third] = inodes("fifo");
    assert!(first == second && second != third);
    let ended = run(world.cp(&["-D", "--no-hard-links", "-I"])).expect(0);
    let [first, second, _] = inodes("file");
    assert!(first != second, "{ended:?}");
}

#[test]
fn a_sink_without_hard_links_names_the_option_that_helps() {
    let world = World::new();
    let first = world.write("src/a", b"bytes");
    fs::hard_link(first, world.source().join("b")).unwrap();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    for errno in ["EPERM", "EOPNOTSUPP", "EMLINK"] {
        storage.command(&format!("clear\nfail link {errno}"));
        let target = storage.path(errno);
        let ended = run(world_cp(&world, &[], &target)).expect(6);
        let issue = ended.issue();
        assert_eq!(issue["operation"], "link", "{issue}");
        assert!(issue["advice"].as_str().unwrap().contains("--no-hard-links"), "{issue}");
        run(world_cp(&world, &["--no-hard-links"], &target)).expect(0);
        for name in ["a", "b"] {
            assert_eq!(fs::read(target.join(name)).unwrap(), b"bytes");
        }
    }
}

#[test]
fn an_acl_that_the_source_may_not_read_is_reported() {
    let world = World::new();
    let Some(storage) = FaultFs::mount(&world, "src") else { return };
    set_acl(&world.write("src.below/file", b"file"), 7);
    storage.command("fail getxattr EACCES");
    let ended = run(world.cp(&[])).expect(13);
    assert_eq!(reduced(&ended), kinds(&[("attributes-unreadable", 1)]));
    assert_eq!(fs::read(world.target().join("file")).unwrap(), b"file");
}

/// The data is the same, so the file is not sent.
#[test]
fn metadata_of_a_file_that_is_not_sent_is_made_durable() {
    let world = World::new();
    let Some(sink) = FaultFs::mount(&world, "dst") else { return };
    let file = world.write("src/file", b"file");
    run(world.cp(&[])).expect(0);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    sink.command("fail fsync EIO path=file");
    let ended = run(world.cp(&[])).expect(6);
    assert_eq!(ended.issue()["errno_name"], "EIO");
    sink.command("clear");
    run(world.cp(&[])).expect(0);
    assert_eq!(mode(&world.target().join("file")), 0o640);
}
