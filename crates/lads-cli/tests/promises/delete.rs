//! Deletion at the sink: removes what rsync removes, when it is safe, and nothing else.

use crate::choice::names_and_bytes;
use crate::faultfs::FaultFs;
use crate::world::{
    AS_RSYNC, Ended, Mounted, RUN_HERE, Rng, World, as_nobody, for_seeds, has, is_root, lads, run,
    start, there, wait_for,
};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

/// Options that decide what stays; each run uses some of them.
const OPTIONS: [&str; 10] = [
    "--exclude=*.o",
    "--exclude=d1",
    "--exclude=d2/",
    "--include=*.c",
    "--exclude=/d1/*",
    "--delete-excluded",
    "--max-size=2",
    "--ignore-existing",
    "--existing",
    "-x",
];

#[test]
fn what_is_deleted_is_what_rsync_deletes() {
    if !has("rsync") {
        return;
    }
    for_seeds(30, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        for root in ["src", "dst"] {
            grow(&mut rng, &world.path(root), 3);
        }
        copy(&world.target(), &world.path("theirs"));
        let mut options = vec!["--delete"];
        options.extend((0..rng.below(4)).map(|_| rng.pick(&OPTIONS)).collect::<Vec<_>>());
        let removed = rsync(&world, &options);
        let before = names_and_bytes(&world.target());
        assert_eq!(deleted(&run(world.cp(&[&options[..], &["-n"]].concat())).expect(0)), removed);
        assert_eq!(names_and_bytes(&world.target()), before, "the dry run changed something");
        let ended = run(world.cp(&[&options[..], &["-v"]].concat())).expect(0);
        assert_eq!(deleted(&ended), removed, "{options:?}");
        assert_eq!(ended.count("entries_deleted"), removed.len() as u64);
        let [ours, theirs] = ["dst", "theirs"].map(|root| names_and_bytes(&world.path(root)));
        assert_eq!(ours, theirs, "{options:?}");
        let again = run(world.cp(&[&options[..], &["-v"]].concat())).expect(0);
        assert_eq!(deleted(&again), BTreeSet::new(), "a second run deleted more");
    });
}

/// Returns what rsync says that it deletes in the copy of the target.
fn rsync(world: &World, options: &[&str]) -> BTreeSet<String> {
    let mut command = Command::new("rsync");
    command.arg("-av").args(options).arg(world.source_contents()).arg(world.path("theirs"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    told.lines().filter_map(|line| line.strip_prefix("deleting ")).map(str::to_owned).collect()
}

/// Returns what was reported as deleted.
fn deleted(ended: &Ended) -> BTreeSet<String> {
    let lines = ended.events_of("line").into_iter().filter(|line| line["verb"] == "delete");
    lines.map(|line| line["path"].as_str().unwrap().to_owned()).collect()
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// Makes a tree in which names that begin with `d` are directories. Other names are files, or links
/// to files and directories.
fn grow(rng: &mut Rng, root: &Path, depth: usize) {
    fs::create_dir_all(root).unwrap();
    for name in ["d1", "d2", "d3", "a.c", "b.c", "a.o", "b.o", "l1", "l2"] {
        let path = root.join(name);
        match (rng.below(3), name.as_bytes()[0]) {
            (0, _) => {}
            (_, b'd') if depth > 0 => grow(rng, &path, depth - 1),
            (_, b'd') => fs::create_dir(&path).unwrap(),
            (_, b'l') => symlink(rng.pick(&["d1", "..", "a.c", "/etc"]), &path).unwrap(),
            _ => fs::write(&path, rng.pick(&["1", "two", "three"])).unwrap(),
        }
    }
}

#[test]
fn several_sources_and_named_directories_delete_what_rsync_deletes() {
    if !has("rsync") {
        return;
    }
    for sources in [
        &["one"][..],
        &["one/"],
        &["one", "two"],
        &["one/", "two/"],
        &["one/", "two"],
        &["one/d", "two/d"],
        &["one/f", "two"],
        &["one/f"],
    ] {
        for (side, host) in [("push", false), ("push", true), ("pull", true)] {
            let world = World::new();
            for name in ["one/f", "one/d/1", "two/d/2", "two/g"] {
                world.write(format!("from/{name}"), b"of the source");
            }
            for name in
                ["f", "d/1", "d/2", "d/3", "d/e/4", "g", "h/i", "one/x", "two/y/z", "two/d/9"]
            {
                world.write(format!("from/dst/{name}"), b"there");
                world.write(format!("from/theirs/{name}"), b"there");
            }
            let shell = world.fake_shell(RUN_HERE);
            let mut command = if host { there(&shell) } else { lads::<&str>(&[]) };
            let from = world.path("from").display().to_string();
            let place = |is_there: bool, path: &str| match host && is_there {
                true => format!("there:{from}/{path}"),
                false => path.to_owned(),
            };
            command.args([AS_RSYNC, "--delete"]).current_dir(&from);
            command.args(sources.iter().map(|source| place(side == "pull", source)));
            run({
                command.arg(place(side == "push", "dst"));
                command
            })
            .expect(0);
            let mut command = Command::new("rsync");
            command.args(["-a", "--delete"]).args(sources).arg("theirs").current_dir(&from);
            assert!(command.status().unwrap().success());
            let [ours, theirs] =
                ["dst", "theirs"].map(|root| names_and_bytes(&world.path("from").join(root)));
            assert_eq!(ours, theirs, "{sources:?}, {side}");
        }
    }
}

/// Makes a world for runs in which something goes wrong: `dst/extra` is to be deleted.
fn world_with_extra() -> World {
    let world = World::new();
    for name in ["src/a", "src/d/b", "dst/extra", "dst/d/extra"] {
        world.write(name, b"bytes");
    }
    world
}

fn has_extra(world: &World) -> bool {
    let both = ["dst/extra", "dst/d/extra"].map(|name| world.path(name).exists());
    assert_eq!(both[0], both[1]);
    both[0]
}

#[test]
fn nothing_is_deleted_after_an_error_unless_asked_for() {
    // A file cannot be created, because an excluded entry stays in a directory of its name.
    let world = world_with_extra();
    world.write("src/e", b"bytes");
    world.write("dst/e/kept", b"in the way");
    let ended = run(world.cp(&["--delete", "--exclude=kept"])).expect(6);
    let notices = ended.events_of("notice");
    let is_told = |it: &serde_json::Value| it["text"].as_str().unwrap().contains("was deleted");
    assert!(notices.iter().any(is_told), "{ended:?}");
    assert!(has_extra(&world));
    run(world.cp(&["--delete", "--exclude=kept", "--ignore-errors"])).expect(6);
    assert!(!has_extra(&world) && world.path("dst/e/kept").exists());
}

/// The entries of the missing source would count as extra at the target.
#[test]
fn nothing_is_deleted_if_a_source_is_missing() {
    let world = world_with_extra();
    let mut command = lads(&["--delete"]);
    command.arg(world.source_contents()).arg(world.path("nowhere/")).arg(world.target());
    run(command).expect(3);
    assert!(has_extra(&world));
}

/// This holds even with --ignore-errors, because the contents of the directory are unknown.
#[test]
fn nothing_is_deleted_where_the_source_could_not_list() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = world_with_extra();
    let directory = world.path("src/d");
    for mode in [0o000, 0o311] {
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        give_to_nobody(&world);
        let cp = |options: &[&str]| run(as_nobody(&world.cp(options)));
        cp(&["--delete"]).expect(3);
        assert!(has_extra(&world));
        cp(&["--delete", "--ignore-errors"]).expect(3);
        assert!(world.path("dst/d/extra").exists(), "{mode:o}");
        assert!(!world.path("dst/extra").exists());
        world.write("dst/extra", b"again");
    }
}

/// The names before the break can be looked up and are reported correctly, but it is unknown what
/// else there is.
#[test]
fn nothing_is_deleted_where_a_listing_of_the_source_broke_off() {
    let world = World::new();
    let Some(source) = FaultFs::mount(&world, "src") else { return };
    for name in ["src/a", "dst/extra"] {
        world.write(name, b"bytes");
    }
    source.command("fail readdir EIO");
    run(world.cp(&["--delete", "--ignore-errors"])).expect(3);
    assert!(world.path("dst/extra").exists());
    source.command("clear");
    run(world.cp(&["--delete"])).expect(0);
    assert!(!world.path("dst/extra").exists());
}

fn give_to_nobody(world: &World) {
    let status = Command::new("chown").args(["-R", "65534:65534"]).arg(world.path("")).status();
    assert!(status.unwrap().success());
}

/// A read-only directory is emptied as rsync empties it, and gets its mode back.
#[test]
fn directories_that_may_not_be_written_to_are_no_hindrance() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = world_with_extra();
    for name in ["dst/gone/f", "dst/gone/further/f"] {
        world.write(name, b"bytes");
    }
    give_to_nobody(&world);
    for name in ["src/d", "dst/d", "dst/gone/further", "dst/gone"] {
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(0o555)).unwrap();
    }
    run(as_nobody(&world.cp(&["--delete"]))).expect(0);
    assert!(!has_extra(&world) && !world.path("dst/gone").exists());
    assert_eq!(world.path("dst/d").metadata().unwrap().mode() & 0o777, 0o555);
}

#[test]
fn a_directory_keeps_its_time_of_change_when_something_in_it_is_deleted() {
    let world = world_with_extra();
    run(world.cp(&["--delete"])).expect(0);
    for name in ["", "d"] {
        let [source, target] = ["src", "dst"].map(|root| {
            let stat = world.path(root).join(name).metadata().unwrap();
            (stat.mtime(), stat.mtime_nsec())
        });
        assert_eq!(source, target, "{name:?}");
    }
}

/// There are four names to delete in three places; a directory counts, too.
#[test]
fn no_more_is_deleted_than_allowed() {
    for (max, code) in [(0, 10), (1, 10), (3, 10), (4, 0), (5, 0)] {
        let world = World::new();
        world.write("src/a", b"bytes");
        for name in ["dst/b", "dst/c", "dst/d/e"] {
            world.write(name, b"bytes");
        }
        let option = format!("--max-delete={max}");
        let would = run(world.cp(&["--delete", &option, "-n"])).expect(code);
        let ended = run(world.cp(&["--delete", &option, "-v"])).expect(code);
        for ended in [&would, &ended] {
            assert_eq!(deleted(ended).len(), max.min(4));
            assert_eq!(ended.count("entries_deleted"), max.min(4) as u64);
        }
        if code != 0 {
            let message = ended.issue()["message"].as_str().unwrap().to_owned();
            assert!(message.contains("--max-delete"), "{message}");
        }
        let left = ["dst/b", "dst/c", "dst/d/e", "dst/d"].map(|name| world.path(name).exists());
        assert_eq!(left.into_iter().filter(|is_there| *is_there).count(), 4 - max.min(4));
        assert!(world.path("dst/a").exists());
    }
}

/// Journals and unfinished files may belong to another transfer, which goes on with them.
#[test]
fn files_of_lads_itself_stay_and_so_do_their_directories() {
    let part = format!(".lads-{}.part", "0a".repeat(16));
    let world = world_with_extra();
    let own = [format!("dst/{part}"), format!("dst/d/{part}"), format!("dst/gone/further/{part}")];
    for name in &own {
        world.write(name, b"begun");
    }
    world.write("dst/.lads-0123456789abcdef.journal", b"of another");
    world.write("dst/gone/file", b"bytes");
    for option in ["--delete", "--delete-excluded"] {
        let ended = run(world.cp(&[option, "--exclude=.lads*"])).expect(0);
        let notices = ended.events_of("notice");
        let is_told = |it: &serde_json::Value| {
            it["text"].as_str().unwrap().contains("that were not deleted: 2")
        };
        assert!(notices.iter().any(is_told), "{ended:?}");
        assert!(!has_extra(&world) && !world.path("dst/gone/file").exists());
        assert!(own.iter().all(|name| world.path(name).exists()));
        assert!(world.path("dst/.lads-0123456789abcdef.journal").exists());
    }
}

/// The link is removed, not what it leads to.
#[test]
fn no_link_is_followed() {
    let world = world_with_extra();
    world.write("elsewhere/file", b"not ours");
    for name in ["dst/link", "dst/d/link", "dst/gone/link"] {
        fs::create_dir_all(world.path(name).parent().unwrap()).unwrap();
        symlink(world.path("elsewhere"), world.path(name)).unwrap();
    }
    run(world.cp(&["--delete"])).expect(0);
    assert!(!has_extra(&world));
    assert!(!world.path("dst/link").is_symlink() && !world.path("dst/gone").exists());
    assert_eq!(fs::read(world.path("elsewhere/file")).unwrap(), b"not ours");
}

/// rsync empties the mount, and then cannot remove its directory.
#[test]
fn what_is_mounted_on_a_directory_to_be_deleted_stays() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = world_with_extra();
    world.write("dst/gone/file", b"bytes");
    world.write("elsewhere/file", b"not ours");
    let mount = world.path("dst/gone/mounted");
    let Some(mounted) = Mounted::tmpfs(&mount, "size=1m") else { return };
    fs::write(mounted.seen().join("file"), b"mounted").unwrap();
    // Part of the same file system, mounted a second time.
    let bound = world.path("dst/gone/bound");
    fs::create_dir(&bound).unwrap();
    let mut bind = Command::new("mount");
    bind.arg("--bind").arg(world.path("elsewhere")).arg(&bound);
    assert!(mounted.command(&bind).status().unwrap().success());
    let ended = run(mounted.command(&world.cp(&["--delete"]))).expect(6);
    assert_eq!(ended.events_of("issue").len(), 2, "{ended:?}");
    let are_there = || {
        assert_eq!(fs::read(mounted.seen().join("file")).unwrap(), b"mounted");
        assert_eq!(fs::read(world.path("elsewhere/file")).unwrap(), b"not ours");
        assert!(!world.path("dst/gone/file").exists() && !has_extra(&world));
    };
    are_there();
    run(mounted.command(&world.cp(&["--delete", "-x"]))).expect(0);
    are_there();
}

/// A tree that has been unmounted looks like one that was removed.
#[test]
fn nothing_is_deleted_where_the_source_is_no_longer_what_was_listed() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = World::new();
    world.write("src/a", b"bytes");
    world.write("dst/mounted/kept", b"bytes");
    world.write("dst/extra", b"bytes");
    let source = world.path("src/mounted");
    let Some(mounted) = Mounted::tmpfs(&source, "size=64m") else { return };
    fs::write(mounted.seen().join("kept"), Rng::new(1).bytes(16 << 20)).unwrap();
    let mut running = start(mounted.command(&world.cp(&["--delete", "--bwlimit=8M"])));
    let other = running.other_end();
    assert!(running.runs_until_written(other, 1 << 20));
    let mut unmount = Command::new("umount");
    unmount.arg("-l").arg(&source);
    assert!(mounted.command(&unmount).status().unwrap().success());
    let ended = running.end();
    assert!(world.path("dst/mounted/kept").exists(), "{ended:?}");
}

/// Both ends are killed during deletion; then the same command must reach the same result.
#[test]
fn what_was_killed_while_it_deleted_goes_on() {
    for_seeds(4, 60, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        world.write("src/d/stays", b"bytes");
        for number in 0..3000 {
            world.write(format!("dst/d{}/{number}", number % 7), b"");
            world.write(format!("dst/d/{number}"), b"");
        }
        let running = start(world.cp(&["--delete"]));
        let left = 1 + rng.below(5900);
        wait_for("some of it to be deleted", || (count_of(&world.target()) <= left).then_some(()));
        running.kill_both_ends(|| {});
        assert!(world.path("dst/d/stays").exists());
        run(world.cp(&["--delete"])).expect(0);
        assert_eq!(names_and_bytes(&world.target()), names_and_bytes(&world.source()));
    });
}

/// Counts the entries, approximately, because they may be removed meanwhile.
fn count_of(root: &Path) -> usize {
    let Ok(entries) = fs::read_dir(root) else { return 0 };
    let paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.iter().map(|path| 1 + if path.is_dir() { count_of(path) } else { 0 }).sum()
}

#[test]
fn delete_needs_whole_directories() {
    let world = World::new();
    let list = world.write("list", b"a\n");
    let list = format!("--files-from={}", list.display());
    run(world.cp(&["--delete", &list])).expect(2).says(&["--files-from"]);
}

/// The source would be deleted as something that the source does not have.
#[test]
fn a_source_below_the_target_is_not_deleted() {
    let world = World::new();
    world.write("dst/inner/src/file", b"bytes");
    for source in ["dst/inner/", "dst/inner/src/", "dst/../dst/inner/src/"] {
        let mut command = lads(&["--delete"]);
        command.arg(source).arg("dst").current_dir(world.path(""));
        run(command).expect(2).says(&["would be deleted itself"]);
    }
    // Here the source is moved into a directory beside it.
    let mut command = lads(&["--delete"]);
    command.args(["dst/inner/src", "dst"]).current_dir(world.path(""));
    run(command).expect(0);
    assert!(world.path("dst/src/file").exists() && world.path("dst/inner/src/file").exists());
}

/// The directory is not moved, so nothing is deleted in it, and that is no error.
#[test]
fn a_named_directory_that_is_left_out_is_left_alone() {
    let world = world_with_extra();
    for option in ["--delete", "--delete-excluded"] {
        let mut command = lads(&[option, "--exclude=/d"]);
        command.args(["src/d", "src/a", "dst"]).current_dir(world.path(""));
        run(command).expect(0);
        assert!(has_extra(&world));
    }
}

/// More names than one message holds, and more messages than may be open at the same time.
#[test]
fn large_and_many_directories_are_gone_through() {
    let world = World::new();
    for number in 0..2500 {
        world.write(format!("src/large/{number}"), b"");
        world.write(format!("dst/large/{}", number * 2), b"");
    }
    for number in 0..1500 {
        world.write(format!("src/many/{number}/f"), b"");
        world.write(format!("dst/many/{number}/g"), b"");
    }
    run(world.cp(&["--delete"])).expect(0);
    assert_eq!(names_and_bytes(&world.target()), names_and_bytes(&world.source()));
}

/// Patterns with a slash are compared with the path below the target, however deep, and whether the
/// source has the directories above or not. In one version, an excluded file in a directory that
/// only the sink has was compared by the path in the directory above, and deleted.
#[test]
fn patterns_with_a_slash_protect_entries_below_directories_that_only_the_sink_has() {
    if !has("rsync") {
        return;
    }
    let kept = [
        ("/d1/*", "d1/file"),
        ("/d1/file", "d1/file"),
        ("/d1/d2/file", "d1/d2/file"),
        ("/d1/**", "d1/d2/d3/file"),
        ("/*/d2/file", "d1/d2/file"),
        ("d1/file", "d1/file"),
        ("d2/file", "d1/d2/file"),
        ("d2/d3/", "d1/d2/d3/file"),
        ("d2/d3/***", "d1/d2/d3/file"),
        ("**/d3/file", "d1/d2/d3/file"),
        ("d1/**/file", "d1/d2/d3/file"),
        ("/both/d1/file", "both/d1/file"),
        ("both/d1/*", "both/d1/d2"),
        ("/both/*/d2/file", "both/d1/d2/file"),
    ];
    let others = [
        "/file",
        "/d2/file",
        "/d1/d3/file",
        "d3/d2/file",
        "/d1/d2",
        "d1/d2/",
        "both/file",
        "/both/d2/*",
        "*/d1",
        "d1/*/d3/file",
    ];
    let patterns = kept.iter().map(|(pattern, _)| *pattern).chain(others);
    for pattern in patterns {
        let world = World::new();
        world.write("src/both/a", b"of the source");
        for above in ["", "both/"] {
            for below in ["", "d1/", "d1/d2/", "d1/d2/d3/"] {
                for name in ["file", "other"] {
                    world.write(format!("dst/{above}{below}{name}"), b"of the sink");
                }
            }
        }
        copy(&world.target(), &world.path("theirs"));
        let exclude = format!("--exclude={pattern}");
        let removed = rsync(&world, &["--delete", &exclude]);
        let dry = run(world.cp(&["--delete", &exclude, "-n"])).expect(0);
        assert_eq!(deleted(&dry), removed, "{pattern}");
        let ended = run(world.cp(&["--delete", &exclude, "-v"])).expect(0);
        assert_eq!(deleted(&ended), removed, "{pattern}");
        let [ours, theirs] = ["dst", "theirs"].map(|root| names_and_bytes(&world.path(root)));
        assert_eq!(ours, theirs, "{pattern}");
        for (_, path) in kept.iter().filter(|(protects, _)| *protects == pattern) {
            assert!(world.target().join(path).exists(), "{pattern}: {path}");
        }
    }
}

/// The same for entries in a directory that is removed to make room for a file.
#[test]
fn patterns_with_a_slash_protect_entries_in_a_directory_that_is_in_the_way() {
    for (pattern, is_kept) in
        [("/d1/d2/file", true), ("d2/file", true), ("/d2/file", false), ("/d1/file", false)]
    {
        let world = World::new();
        world.write("src/d1", b"of the source");
        world.write("dst/d1/d2/file", b"of the sink");
        let exclude = format!("--exclude={pattern}");
        run(world.cp(&["--delete", &exclude])).expect(if is_kept { 6 } else { 0 });
        assert_eq!(world.path("dst/d1/d2/file").exists(), is_kept, "{pattern}");
    }
}

/// Whether the source has the name is unknown, so the entry at the sink stays.
#[test]
fn a_name_whose_status_the_source_cannot_read_is_not_deleted() {
    let world = World::new();
    let Some(source) = FaultFs::mount(&world, "src") else { return };
    for name in ["src.below/kept", "src.below/large", "dst/extra"] {
        world.write(name, b"bytes");
    }
    source.command("hang read path=large nth=1");
    let running = start(world.cp(&["--delete", "--no-xattrs"]));
    source.wait_for_fault("hang");
    let kept = world.path("dst/kept");
    wait_for("the other file to arrive", || kept.exists().then_some(()));
    // The walk has ended. From now on, the sink asks.
    source.command("fail lookup,getattr EIO path=kept\nrelease");
    let ended = running.end();
    assert!(kept.exists() && !world.path("dst/extra").exists(), "{ended:?}");
}

/// That a directory is not empty follows from the failure, and is no failure of its own.
#[test]
fn an_entry_that_cannot_be_deleted_is_reported_and_its_directories_are_not() {
    let world = World::new();
    let Some(sink) = FaultFs::mount(&world, "dst") else { return };
    for name in ["src/a", "dst/gone/below/kept", "dst/gone/below/file"] {
        world.write(name, b"bytes");
    }
    sink.command("fail unlink EIO path=kept");
    let ended = run(world.cp(&["--delete"])).expect(6);
    assert_eq!(ended.issue()["errno_name"], "EIO", "{ended:?}");
    assert!(!world.path("dst/gone/below/file").exists());
    sink.command("clear");
    run(world.cp(&["--delete"])).expect(0);
    assert!(!world.path("dst/gone").exists());
}

/// In a directory that was removed, every name would look absent.
#[test]
fn nothing_is_deleted_if_the_source_is_removed_while_it_is_copied() {
    let world = World::new();
    let Some(sink) = FaultFs::mount(&world, "dst") else { return };
    for name in ["src/a", "src/d/b", "dst/extra", "dst/d/extra"] {
        world.write(name, b"bytes");
    }
    sink.command("hang rename,link");
    let running = start(world.cp(&["--delete", "--ignore-errors"]));
    sink.wait_for_fault("hang");
    fs::remove_dir_all(world.source()).unwrap();
    sink.command("clear");
    let ended = running.end();
    assert!(has_extra(&world), "{ended:?}");
}

/// A directory with several hundred names is asked about in several questions.
#[test]
fn a_directory_that_the_source_cannot_list_again_is_reported_once() {
    let world = World::new();
    let Some(source) = FaultFs::mount(&world, "src") else { return };
    for name in ["src.below/d/kept", "src.below/large"] {
        world.write(name, b"bytes");
    }
    for number in 0..1500 {
        world.write(format!("dst/d/{number}"), b"");
    }
    source.command("hang read path=large nth=1");
    let running = start(world.cp(&["--delete", "--no-xattrs"]));
    source.wait_for_fault("hang");
    let kept = world.path("dst/d/kept");
    wait_for("the other file to arrive", || kept.exists().then_some(()));
    source.command("fail opendir EIO path=d\nrelease");
    let ended = running.end();
    let listed = |issue: &serde_json::Value| issue["operation"] == "list";
    let issues = ended.events_of("issue");
    assert_eq!(issues.iter().filter(|issue| listed(issue)).count(), 1, "{ended:?}");
    assert!(world.path("dst/d/0").exists());
}

/// With `-x`, the contents of a mount at the source do not count, so nothing is known to be extra.
#[test]
fn nothing_is_deleted_below_a_mount_point_of_the_source_with_one_file_system() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = World::new();
    for name in ["src/a", "dst/mounted/kept", "dst/extra"] {
        world.write(name, b"bytes");
    }
    let Some(mounted) = Mounted::tmpfs(&world.path("src/mounted"), "size=1m") else { return };
    fs::write(mounted.seen().join("other"), b"mounted").unwrap();
    run(mounted.command(&world.cp(&["--delete", "-x"]))).expect(0);
    assert!(world.path("dst/mounted/kept").exists() && !world.path("dst/extra").exists());
    run(mounted.command(&world.cp(&["--delete"]))).expect(0);
    assert!(!world.path("dst/mounted/kept").exists());
}
