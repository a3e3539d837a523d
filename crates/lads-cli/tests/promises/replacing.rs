//! Entries whose kind differs at both ends: the sink's entry is replaced as rsync replaces it.

use crate::faultfs::FaultFs;
use crate::tree::{assert_nothing_left_over, visit};
use crate::world::{AS_RSYNC, Ended, Mounted, World, has, is_root, lads, run, start};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, symlink};
use std::path::Path;
use std::process::Command;

/// Kinds of entries. The last ones are only made at the sink.
const KINDS: [&str; 9] =
    ["file", "empty-file", "link", "fifo", "empty", "full", "deep", "link-to-directory", "kept"];
const SOURCE_KINDS: usize = 6;

fn make(path: &Path, kind: &str) {
    let directory = |entries: &[&str]| {
        fs::create_dir(path).unwrap();
        entries.iter().for_each(|name| fs::write(path.join(name), name).unwrap());
    };
    match kind {
        "file" => {
            // For rsync, files of one size and second are the same.
            let is_at_sink = path.components().any(|part| part.as_os_str() == "dst");
            let text = format!("file {}{}", path.display(), if is_at_sink { " there" } else { "" });
            fs::write(path, text).unwrap();
        }
        "empty-file" => fs::write(path, "").unwrap(),
        "link" => symlink("nowhere", path).unwrap(),
        "link-to-directory" => symlink("../elsewhere", path).unwrap(),
        "fifo" => mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap(),
        "empty" => directory(&[]),
        "full" => directory(&["one", "two"]),
        "deep" => {
            directory(&["one"]);
            make(&path.join("below"), "full");
            make(&path.join("below/fifo"), "fifo");
        }
        "kept" => directory(&["one", "excluded"]),
        _ => panic!("no such kind: {kind}"),
    }
}

/// Returns every entry with its kind and content.
fn seen(root: &Path) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    visit(root, &mut |path, metadata| {
        let below = path.strip_prefix(root).unwrap().display();
        let content = match metadata.file_type() {
            kind if kind.is_file() => fs::read_to_string(path).unwrap(),
            kind if kind.is_symlink() => format!("-> {:?}", fs::read_link(path).unwrap()),
            kind if kind.is_fifo() => "|".to_owned(),
            _ => "/".to_owned(),
        };
        seen.insert(format!("{below} {content}"));
    });
    seen
}

/// Every kind at the source with every kind at the sink.
fn world_of_all_pairs() -> World {
    let world = World::new();
    world.write("elsewhere/file", b"not ours");
    for root in ["src", "dst"] {
        fs::create_dir(world.path(root)).unwrap();
    }
    for source in &KINDS[..SOURCE_KINDS] {
        for sink in KINDS {
            make(&world.path(format!("src/{source} {sink}")), source);
            make(&world.path(format!("dst/{source} {sink}")), sink);
        }
    }
    let status =
        Command::new("cp").arg("-a").arg(world.target()).arg(world.path("theirs")).status();
    assert!(status.unwrap().success());
    world
}

#[test]
fn kinds_are_replaced_as_rsync_replaces_them() {
    if !has("rsync") {
        return;
    }
    for options in [
        &[][..],
        &["--force"],
        &["--delete"],
        &["--delete", "--force"],
        &["--ignore-existing"],
        &["--existing", "--force"],
        &["--update", "--force"],
    ] {
        let world = world_of_all_pairs();
        let all = [&["-D", "--exclude=excluded"], options].concat();
        let mut rsync = Command::new("rsync");
        rsync.arg("-a").args(&all).arg(world.source_contents()).arg(world.path("theirs"));
        // An entry in which something excluded stays is no reason for rsync to delete nothing.
        let all = [&all[..], &["--ignore-errors"]].concat();
        let is_complete = rsync.output().unwrap().status.success();
        // rsync reports an error for each file in a directory that it passed over.
        let code = if is_complete || options.contains(&"--ignore-existing") { 0 } else { 6 };
        let before = seen(&world.target());
        run(world.cp(&[&all[..], &["-n"]].concat())).expect(code);
        assert_eq!(seen(&world.target()), before, "{options:?}: the dry run changed something");
        let ended = run(world.cp(&all)).expect(code);
        let theirs = seen(&world.path("theirs"));
        let ours = seen(&world.target());
        let ours: BTreeSet<String> =
            ours.into_iter().filter(|entry| !entry.starts_with(".lads-")).collect();
        assert_eq!(ours, theirs, "{options:?}: {ended:?}");
        assert_eq!(fs::read(world.path("elsewhere/file")).unwrap(), b"not ours");
    }
}

#[test]
fn no_more_is_removed_to_make_room_than_allowed() {
    let world = World::new();
    world.write("src/file", b"new");
    world.write("dst/file/old", b"old");
    let ended = run(world.cp(&["--delete", "--max-delete=0"])).expect(6);
    assert_eq!(fs::read(world.path("dst/file/old")).unwrap(), b"old", "{ended:?}");
    assert!(fails_with(&ended, "limit") && fails_with(&ended, "in-the-way"), "{ended:?}");
    let ended = run(world.cp(&["--delete", "--max-delete=1"])).expect(0);
    assert_eq!(fs::read(world.path("dst/file")).unwrap(), b"new", "{ended:?}");
    assert_eq!(ended.count("entries_deleted"), 1);
}

/// The new file is complete under its temporary name before anything is removed.
#[test]
fn nothing_is_removed_if_the_new_file_cannot_be_completed() {
    let world = World::new();
    let Some(source) = FaultFs::mount(&world, "src") else { return };
    world.write("src.below/file", b"new");
    world.write("dst/file/old", b"old");
    source.command("fail read EIO");
    run(world.cp(&["--delete"])).expect(3);
    assert_eq!(fs::read(world.path("dst/file/old")).unwrap(), b"old");
    source.command("clear");
    run(world.cp(&["--delete"])).expect(0);
    assert_eq!(fs::read(world.path("dst/file")).unwrap(), b"new");
}

fn fails_with(ended: &Ended, reason: &str) -> bool {
    ended.events_of("issue").iter().any(|issue| issue["reason"] == reason)
}

#[test]
fn a_mount_point_is_never_replaced() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = World::new();
    for name in ["mounted", "above", "empty"] {
        world.write(format!("src/{name}"), b"new");
    }
    fs::create_dir_all(world.path("dst/empty")).unwrap();
    let Some(mounted) = Mounted::tmpfs(&world.path("dst/mounted"), "size=1m") else { return };
    mounted.mount_too(&world.path("dst/above/below/mounted"));
    mounted.mount_too(&world.path("dst/empty"));
    fs::write(mounted.seen().join("file"), b"mounted").unwrap();
    let below = mounted.seen_at(&world.path("dst/above/below/mounted"));
    fs::write(below.join("file"), b"mounted").unwrap();
    for option in ["--force", "--delete"] {
        let ended = run(mounted.command(&world.cp(&[option]))).expect(6);
        assert_eq!(ended.count("files_failed"), 3, "{ended:?}");
        // Nothing is sent in vain, unless the mount is found only when the directory is emptied.
        assert_eq!(ended.count("bytes_sent"), 3, "{ended:?}");
        for directory in [mounted.seen(), below.clone()] {
            assert_eq!(fs::read(directory.join("file")).unwrap(), b"mounted", "{ended:?}");
        }
    }
}

/// Files of an earlier attempt of the same command, which the source does not have any more, do not
/// keep their directory; those of another transfer do.
#[test]
fn unfinished_files_of_another_transfer_keep_their_directory() {
    let world = World::new();
    world.write("src/file", b"new");
    let part = world.write(format!("dst/file/.lads-{}.part", "0a".repeat(16)), b"begun");
    let ended = run(world.cp(&["--delete"])).expect(6);
    assert!(fails_with(&ended, "in-the-way"), "{ended:?}");
    assert_eq!(fs::read(part).unwrap(), b"begun");
}

/// The source would be removed to make room for one of its own files.
#[test]
fn a_source_below_the_target_is_not_replaced() {
    let world = World::new();
    world.write("dst/inner/src/inner", b"bytes");
    for option in ["--force", "--delete"] {
        let mut command = lads(&[option]);
        command.args(["dst/inner/src/", "dst"]).current_dir(world.path(""));
        run(command).expect(2);
        assert!(world.path("dst/inner/src/inner").is_file());
    }
}

/// A further name replaces a directory as the first name does, even if the first name is below it.
#[test]
fn hard_links_replace_directories() {
    let world = World::new();
    let first = world.write("src/a", b"linked");
    fs::hard_link(first, world.source().join("b")).unwrap();
    world.write("dst/b/c/d", b"old");
    let mut command = lads(&[AS_RSYNC, "--force"]);
    command.arg(world.source_contents()).arg(world.target());
    run(command).expect(0);
    assert_eq!(seen(&world.target()), seen(&world.source()));
}

#[test]
fn a_dry_run_lists_what_would_be_removed_and_nothing_is_sent_for_a_directory_that_stays() {
    let world = World::new();
    world.write("src/file", b"new");
    for name in ["dst/file/old", "dst/file/below/older"] {
        world.write(name, b"old");
    }
    let removed = |options: &[&str], code| -> BTreeSet<String> {
        let ended = run(world.cp(options)).expect(code);
        assert_eq!(ended.count("bytes_sent") > 0, code == 0 && !options.contains(&"-n"));
        let lines = ended.events_of("line").into_iter().filter(|line| line["verb"] == "delete");
        lines.map(|line| line["path"].as_str().unwrap().to_owned()).collect()
    };
    assert!(removed(&["-n"], 6).is_empty() && removed(&[], 6).is_empty());
    let planned = removed(&["-n", "--force"], 0);
    assert_eq!(planned.len(), 3, "{planned:?}");
    assert_eq!(removed(&["-v", "--force"], 0), planned);
}

/// They are of no use, because the source does not have these files any more.
#[test]
fn unfinished_files_of_the_same_transfer_do_not_keep_their_directory() {
    let world = World::new();
    world.write("src/name/large", &vec![7; 8 << 20]);
    let mut running = start(world.cp(&["--bwlimit=256K", "--lab=block-size=64K"]));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 256 << 10));
    running.signal("TERM");
    running.end().expect(9);
    let left = fs::read_dir(world.target().join("name")).unwrap();
    assert_eq!(left.count(), 1, "the unfinished file");
    fs::remove_dir_all(world.path("src/name")).unwrap();
    world.write("src/name", b"now a file");
    run(world.cp(&["--force"])).expect(0);
    assert_eq!(fs::read(world.path("dst/name")).unwrap(), b"now a file");
    assert_nothing_left_over(&world.target());
}
