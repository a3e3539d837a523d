//! Modes of files and directories: those that are no obstacle, and those that entries get.

use crate::tree::{assert_nothing_left_over, set_acl, set_xattr, visit};
use crate::world::{
    Ended, LADS, Rng, World, as_nobody, assert_identical, check, has, is_root, lads, run,
};
use rustix::fs::{CWD, FileType, Mode, getxattr, lgetxattr, mknodat};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: u32 = 65_534;

/// Returns whether another user can be taken for a while.
fn can_be_nobody() -> bool {
    is_root() && has("setpriv")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().mode() & 0o7777
}

fn give_to_nobody(path: &Path) {
    let status = Command::new("chown").args(["-hR", "65534:65534"]).arg(path).status();
    assert!(status.unwrap().success());
}

/// Runs `lads cp --json` with these words as an unprivileged user.
fn cp_as_nobody(words: &[&str]) -> Ended {
    run(as_nobody(&lads(words)))
}

fn can_trace() -> bool {
    let trace = || Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    has("strace") && trace().unwrap().success()
}

/// The same command under strace with these words, and all processes that it starts.
fn traced(words: &[&str], command: &Command) -> Command {
    let mut traced = Command::new("strace");
    traced.arg("-f").args(words).arg(command.get_program()).args(command.get_args());
    traced
}

/// An ACL of these tags and rights (acl(5)); that of a named user is for user 1000.
fn acl_of(entries: &[(u8, u8)]) -> Vec<u8> {
    const NAMED_USER: u8 = 2;
    let mut acl = vec![2, 0, 0, 0];
    for &(tag, rights) in entries {
        acl.extend([tag, 0, rights, 0]);
        let id = if tag == NAMED_USER { 1000 } else { u32::MAX };
        acl.extend(id.to_le_bytes());
    }
    acl
}

/// Makes a source of an unprivileged user. Its directories are those of the first column, with
/// these modes; each holds a read-only file.
fn source_of_nobody(directories: &[(&str, u32)]) -> World {
    let world = World::new();
    for (name, _) in directories {
        let file = world.write(format!("src/{name}/file"), name.as_bytes());
        set_mode(&file, 0o444);
    }
    for (name, mode) in directories.iter().rev() {
        set_mode(&world.path(format!("src/{name}")), *mode);
    }
    give_to_nobody(&world.path(""));
    world
}

/// The target directory got its mode before the journal in it was removed, which then was not
/// permitted: exit code 6 each time, and a journal that stayed.
#[test]
fn directories_that_are_read_only_are_copied_changed_and_deleted_from() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[(".", 0o555), ("a", 0o555), ("a/b", 0o500), ("c", 0o555)]);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    cp_as_nobody(&[&source, &target]).expect(0);
    assert_identical(&world.source(), &world.target());
    assert_nothing_left_over(&world.target());

    // As root, the modes of the directories do not matter.
    world.write("src/new", b"new");
    world.write("src/a/b/file", b"changed");
    fs::remove_dir_all(world.path("src/c")).unwrap();
    give_to_nobody(&world.source());
    cp_as_nobody(&["--delete", &source, &target]).expect(0);
    assert_identical(&world.source(), &world.target());
    assert_nothing_left_over(&world.target());
}

/// Threads examine entries in parallel: a file was examined before its directory was made writable,
/// and failed with EACCES. Here each fchmod takes 2 ms.
#[test]
fn files_may_be_examined_before_their_read_only_directories() {
    if !can_be_nobody() || !can_trace() {
        return;
    }
    // More than a thread examines at once.
    let pair = |number| [format!("d{number}"), format!("d{number}/below")];
    let names: Vec<String> = (0..75).flat_map(pair).collect();
    for mode in [0o555, 0o055] {
        let directories: Vec<(&str, u32)> = names.iter().map(|name| (&**name, 0o755)).collect();
        let world = source_of_nobody(&directories);
        let (source, target) = (world.source_contents(), world.target().display().to_string());
        cp_as_nobody(&[&source, &target]).expect(0);
        for name in names.iter().rev() {
            world.write(format!("src/{name}/file"), b"changed");
            set_mode(&world.path(format!("dst/{name}")), mode);
        }
        give_to_nobody(&world.source());
        let slow_modes =
            ["-e", "trace=fchmod", "-e", "inject=fchmod:delay_enter=2000", "-o", "/dev/null"];
        run(traced(&slow_modes, &as_nobody(&lads(&[source, target])))).expect(0);
        assert_identical(&world.source(), &world.target());
    }
}

#[test]
fn a_dry_run_changes_no_mode() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[("d", 0o555)]);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    cp_as_nobody(&[&source, &target]).expect(0);
    let changed = || world.target().join("d").metadata().unwrap().ctime_nsec();
    let before = changed();
    world.write("src/d/file", b"changed");
    cp_as_nobody(&["-n", &source, &target]).expect(0);
    assert_eq!(changed(), before);
}

/// A new directory gets its permissions from the default ACL, which may not let its owner write.
#[test]
fn directories_are_filled_where_the_default_acl_does_not_let_their_owner_write() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[(".", 0o755), ("a", 0o755), ("a/b", 0o700)]);
    fs::create_dir(world.target()).unwrap();
    // user::r-x, group::r-x, other::r-x
    set_xattr(&world.target(), b"system.posix_acl_default", &acl_of(&[(1, 5), (4, 5), (32, 5)]));
    give_to_nobody(&world.target());
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    cp_as_nobody(&["--no-perms", &source, &target]).expect(0);
    let modes = ["a", "a/b", "a/b/file"].map(|name| mode(&world.target().join(name)));
    assert_eq!(modes, [0o555, 0o500, 0o444]);
    cp_as_nobody(&["--delete", &source, &target]).expect(0);
    assert_eq!(mode(&world.target().join("a/b")), 0o700);
}

/// Without permission to read a directory, its owner can still permit that.
#[test]
fn directories_that_even_their_owner_may_not_read_are_written_to_and_deleted_from() {
    if !can_be_nobody() {
        return;
    }
    for hidden in [0o311, 0o000] {
        let world = source_of_nobody(&[(".", 0o755), ("a", 0o755)]);
        let (source, target) = (world.source_contents(), world.target().display().to_string());
        cp_as_nobody(&[&source, &target]).expect(0);
        for name in ["dst/extra", "dst/a/extra"] {
            world.write(name, b"extra");
        }
        world.write("src/a/new", b"new");
        give_to_nobody(&world.path(""));
        set_mode(&world.path("dst/a"), hidden);
        set_mode(&world.target(), hidden);
        // So the modes are those of before, not those of the source.
        cp_as_nobody(&["--no-perms", "--delete", &source, &target]).expect(0);
        assert_eq!([mode(&world.target()), mode(&world.path("dst/a"))], [hidden; 2]);
        assert!(world.path("dst/a/new").exists());
        assert!(!world.path("dst/extra").exists() && !world.path("dst/a/extra").exists());
        assert_nothing_left_over(&world.target());
        cp_as_nobody(&[&source, &target]).expect(0);
        assert_identical(&world.source(), &world.target());
    }
}

/// A user attribute of a read-only file could not be set, in any run.
#[test]
fn read_only_files_get_user_attributes() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[(".", 0o755)]);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    let copied = world.path("dst/file");
    let value = || {
        let mut value = [0; 8];
        let count = getxattr(&copied, "user.origin", &mut value[..]);
        count.map(|count| value[..count].to_vec()).unwrap_or_default()
    };
    cp_as_nobody(&[&source, &target]).expect(0);
    for (options, text) in [(&[][..], &b"here"[..]), (&["--no-perms"], b"there"), (&[], b"")] {
        let file = world.path("src/file");
        if text.is_empty() {
            rustix::fs::removexattr(&file, "user.origin").unwrap();
        } else {
            set_xattr(&file, b"user.origin", text);
        }
        let words = [options, &[&source, &target]].concat();
        let ended = cp_as_nobody(&words).expect(0);
        assert_eq!((value(), mode(&copied), ended.count("bytes_sent")), (text.to_vec(), 0o444, 0));
        let changed_at = |path: &Path| {
            let it = path.metadata().unwrap();
            (it.ctime(), it.ctime_nsec())
        };
        let before = changed_at(&copied);
        cp_as_nobody(&words).expect(0);
        assert_eq!(changed_at(&copied), before, "there is nothing to set");
    }
}

/// Such a file counted as the same, and its metadata stayed different, with exit code 0.
#[test]
fn files_that_even_their_owner_may_not_read_get_their_metadata() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[(".", 0o755)]);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    cp_as_nobody(&[&source, &target]).expect(0);
    let copied = world.path("dst/file");
    set_mode(&copied, 0o000);
    cp_as_nobody(&["--no-perms", &source, &target]).expect(0);
    assert_eq!(mode(&copied), 0o000);
    let ended = cp_as_nobody(&[&source, &target]).expect(0);
    assert_eq!((mode(&copied), ended.count("bytes_sent")), (0o444, 0));
    // Another user's file stays as it is.
    set_mode(&copied, 0o600);
    chown(&copied, Some(1234), None).unwrap();
    cp_as_nobody(&[&source, &target]).expect(0);
    assert_eq!(mode(&copied), 0o600);
}

#[test]
fn a_journal_that_was_left_in_a_read_only_directory_is_removed_by_clean() {
    if !can_be_nobody() {
        return;
    }
    let world = World::new();
    let journal = world.write("dst/.lads-0123456789abcdef.journal", b"");
    set_mode(&journal, 0o600);
    set_mode(&world.target(), 0o555);
    give_to_nobody(&world.target());
    let clean = || {
        let mut command = Command::new(LADS);
        command.arg("clean").arg(world.target());
        run(as_nobody(&command))
    };
    clean().expect(0);
    assert_eq!((journal.exists(), mode(&world.target())), (false, 0o555));
    // In a directory of another user, it is only reported.
    fs::write(&journal, b"").unwrap();
    set_mode(&journal, 0o600);
    chown(&journal, Some(NOBODY), Some(NOBODY)).unwrap();
    chown(world.target(), Some(1234), None).unwrap();
    clean();
    assert_eq!((journal.exists(), mode(&world.target())), (true, 0o555));
}

/// Parents of source and target were opened for reading, which fails where a user may only search
/// them, as in the home directories of many hosts.
#[test]
fn directories_that_may_be_searched_and_not_listed_are_no_obstacle() {
    if !can_be_nobody() {
        return;
    }
    let world = World::new();
    for name in ["home/src/file", "home/listed/deep/file", "home/dst/there"] {
        world.write(name, b"file");
    }
    give_to_nobody(&world.path("home"));
    for name in ["home", "home/listed", "home/listed/deep"] {
        chown(world.path(name), Some(0), Some(0)).unwrap();
        set_mode(&world.path(name), 0o711);
    }
    let path = |name: &str| world.path(name).display().to_string();
    cp_as_nobody(&[&path("home/src/file"), &path("home/dst/one")]).expect(0);
    cp_as_nobody(&[&path("home/src"), &path("home/dst/")]).expect(0);
    cp_as_nobody(&[&format!("{}/", path("home/src")), &path("home/dst/contents")]).expect(0);
    cp_as_nobody(&[&path("home/listed/deep/file"), &path("home/dst/two")]).expect(0);
    let list = world.write("list", b"deep/file\n").display().to_string();
    set_mode(Path::new(&list), 0o644);
    cp_as_nobody(&["--files-from", &list, &path("home/listed"), &path("home/dst/from")]).expect(0);
    for name in ["one", "src/file", "contents/file", "two", "from/deep/file"] {
        assert_eq!(fs::read(world.path("home/dst").join(name)).unwrap(), b"file", "{name}");
    }
    run(as_nobody(&check(&[&path("home/src"), &path("home/dst/")]))).expect(0);
    let mut layout = Command::new(LADS);
    layout.args(["layout", &path("home/listed/deep/file")]);
    run(as_nobody(&layout)).expect(0);
    // A directory that is to be listed must be readable.
    let contents = format!("{}/", path("home/listed"));
    cp_as_nobody(&[&contents, &path("home/dst/none")]).expect(3);
    assert!(!world.path("home/dst/none").exists());
    let ended = cp_as_nobody(&[&path("home/listed"), &path("home/dst/")]).expect(3);
    assert_eq!(ended.issue()["operation"], "list");
    assert_eq!(ended.issue()["errno_name"], "EACCES");
}

#[test]
fn files_are_written_to_a_directory_that_may_not_be_listed() {
    if !can_be_nobody() {
        return;
    }
    let world = World::new();
    world.write("src/file", b"file");
    world.write("src/box/inside", b"inside");
    fs::create_dir_all(world.path("dst/box")).unwrap();
    for name in ["dst", "dst/box"] {
        set_mode(&world.path(name), 0o733);
    }
    let path = |name: &str| world.path(name).display().to_string();
    cp_as_nobody(&[&path("src/file"), &path("dst/file")]).expect(0);
    // The directory is another user's, so its metadata cannot be set.
    let words = ["--no-perms", "--no-times", "--no-owner", &path("src/"), &path("dst")];
    cp_as_nobody(&words).expect(0);
    cp_as_nobody(&words).expect(0);
    for (name, text) in [("file", "file"), ("box/inside", "inside")] {
        assert_eq!(fs::read_to_string(world.target().join(name)).unwrap(), text);
    }
    assert_nothing_left_over(&world.target());
    // What else is there is not known.
    let ended = cp_as_nobody(&[&["--delete"], &words[..]].concat()).expect(6);
    assert!(ended.events_of("issue").iter().all(|issue| issue["operation"] == "list"));
}

/// Returns the mode of every entry of a tree, and its ACL.
fn modes(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut modes = BTreeMap::new();
    let mut see = |path: &Path| {
        let mut acl = [0; 256];
        let count = lgetxattr(path, "system.posix_acl_access", &mut acl[..]).unwrap_or(0);
        let below = path.strip_prefix(root).unwrap().to_owned();
        modes.insert(below, (mode(path), acl[..count].to_vec()));
    };
    see(root);
    visit(root, &mut |path, _| see(path));
    modes
}

/// Makes entries with these modes, each sort in a directory of its own.
fn source_with_modes(world: &World) {
    const MODES: [u32; 12] =
        [0o644, 0o600, 0o755, 0o444, 0o777, 0o660, 0o000, 0o501, 0o1777, 0o4755, 0o2755, 0o6711];
    for wanted in MODES {
        set_mode(&world.write(format!("src/files/{wanted:o}"), b"file"), wanted);
        // A file of several blocks gets its mode in another way.
        set_mode(&world.write(format!("src/files/long{wanted:o}"), &[1; 200_000]), wanted);
        let directory = world.path(format!("src/{wanted:o}"));
        fs::create_dir_all(directory.join("below")).unwrap();
        set_mode(&directory, wanted);
        let fifo = world.path(format!("src/files/fifo{wanted:o}"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        set_mode(&fifo, wanted);
    }
    let acl_of = world.write("src/files/acl", b"file");
    set_acl(&acl_of, b"system.posix_acl_access", &mut Rng::new(3));
    set_mode(&world.source(), 0o751);
}

/// Files were left with mode 600 and directories with mode 700.
#[test]
fn without_permissions_modes_are_those_that_rsync_gives() {
    if !has("rsync") {
        return;
    }
    for (umask, has_acl) in [("022", false), ("077", false), ("000", false), ("027", true)] {
        let world = World::new();
        source_with_modes(&world);
        let ends = ["rsync", "lads"].map(|name| world.path(name).join("dst"));
        for end in &ends {
            let above = end.parent().unwrap();
            fs::create_dir(above).unwrap();
            if has_acl {
                set_acl(above, b"system.posix_acl_default", &mut Rng::new(1));
            }
            set_mode(above, 0o2755);
        }
        let copy = || {
            let line = format!("umask {umask}; exec \"$0\" \"$@\"");
            let run_with = |words: &[&str], end: &Path| {
                let mut command = Command::new("sh");
                command.args(["-c", &line]).args(words).arg(world.source_contents()).arg(end);
                run(command).expect(0);
            };
            run_with(&["rsync", "-rltHp", "--specials", "--no-perms"], &ends[0]);
            let options = ["--specials", "--no-perms", "--no-owner", "--lab", "block-size=64K"];
            run_with(&[&[LADS, "cp", "--json"], &options[..]].concat(), &ends[1]);
        };
        let compare = |what: &str| {
            let [expected, found] = ends.each_ref().map(|end| modes(end));
            for (path, mode) in &expected {
                let other = &found[path];
                assert_eq!(other, mode, "{what} {}: {:o}", path.display(), other.0);
            }
            assert_eq!(found.len(), expected.len());
        };
        copy();
        compare(umask);
        // Existing entries keep their modes, also if their contents are replaced.
        for end in &ends {
            set_mode(&end.join("files/644"), 0o604);
            set_mode(&end.join("files/600"), 0o1640);
            set_mode(&end.join("755"), 0o711);
            set_mode(&end.join("files/fifo644"), 0o622);
            set_mode(end, 0o701);
        }
        world.write("src/files/644", b"changed");
        world.write("src/755/new", b"new");
        copy();
        compare(umask);
    }
}

/// The set-id bits of a file were given to other contents.
#[test]
fn without_permissions_new_contents_get_no_set_id_bits() {
    let world = World::new();
    world.write("src/file", b"changed");
    let copy = world.write("dst/file", b"file");
    set_mode(&copy, 0o6755);
    run(world.cp(&["--no-perms"])).expect(0);
    assert_eq!((fs::read(&copy).unwrap(), mode(&copy)), (b"changed".to_vec(), 0o755));
}

#[test]
fn without_permissions_read_only_directories_of_an_unprivileged_user_are_filled() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[(".", 0o555), ("a", 0o555), ("a/b", 0o500)]);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    for _ in 0..2 {
        cp_as_nobody(&["--no-perms", &source, &target]).expect(0);
        let modes = ["", "a", "a/b", "a/b/file"].map(|name| mode(&world.target().join(name)));
        assert_eq!(modes, [0o555, 0o555, 0o500, 0o444]);
        assert_nothing_left_over(&world.target());
        // The second run finds the directories, and changes something in them.
        fs::remove_file(world.target().join("a/b/file")).unwrap();
    }
}

/// Such a directory cannot be synced by itself.
#[test]
fn names_in_a_directory_that_may_not_be_listed_are_made_durable() {
    if !can_be_nobody() || !can_trace() {
        return;
    }
    let world = World::new();
    let file = world.write("src/file", b"file").display().to_string();
    fs::create_dir(world.target()).unwrap();
    set_mode(&world.target(), 0o733);
    let cp = as_nobody(&lads(&[file, world.path("dst/file").display().to_string()]));
    let trace = world.path("trace");
    let words = ["-e", "trace=syncfs,sync", "-o", trace.to_str().unwrap()];
    run(traced(&words, &cp)).expect(0);
    let calls = fs::read_to_string(trace).unwrap();
    let is_sync = |line: &str| line.contains("sync") && line.ends_with("= 0");
    assert!(calls.lines().any(is_sync), "{calls}");
}

/// The attribute was set after the ACL, which does not let the owner write: exit code 6.
#[test]
fn files_whose_acl_does_not_let_their_owner_write_get_user_attributes() {
    if !can_be_nobody() {
        return;
    }
    let world = source_of_nobody(&[(".", 0o755)]);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    let file = world.path("src/file");
    // user::r--, user:1000:r--, group::r--, mask::r--, other::---
    let acl = acl_of(&[(1, 4), (2, 4), (4, 4), (16, 4), (32, 0)]);
    set_xattr(&file, b"system.posix_acl_access", &acl);
    for text in ["here", "there"] {
        // The first run copies the file, and the second one changes its metadata.
        set_xattr(&file, b"user.origin", text.as_bytes());
        cp_as_nobody(&[&source, &target]).expect(0);
        assert_eq!(modes(&world.target()), modes(&world.source()));
        assert_identical(&world.source(), &world.target());
    }
}
