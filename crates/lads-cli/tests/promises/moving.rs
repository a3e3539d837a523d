//! Files that are removed at the source when the sink has them (`--remove-source-files`).

use crate::choice::names_and_bytes;
use crate::faultfs::FaultFs;
use crate::passing::{copy, grow};
use crate::tree::assert_nothing_left_over;
use crate::world::{
    AS_RSYNC, Ended, LADS, RUN_HERE, Rng, World, as_nobody, for_seeds, has, is_root, lads, run,
    start, there,
};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;
use std::process::Command;

const MOVE: &str = "--remove-source-files";

/// Options that select entries; each run uses up to two of them.
const OPTIONS: [&str; 9] = [
    "-u",
    "--ignore-existing",
    "--existing",
    "--max-size=3",
    "--exclude=f1",
    "--exclude=d1/",
    "-c",
    "-n",
    "-I",
];

#[test]
fn what_is_removed_at_the_source_is_what_rsync_removes() {
    if !has("rsync") {
        return;
    }
    for_seeds(15, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        for root in ["src", "dst"] {
            grow(&mut rng, &world.path(root), 2);
            copy(&world.path(root), &world.path(format!("their-{root}")));
        }
        let options: Vec<&str> = (0..rng.below(3)).map(|_| rng.pick(&OPTIONS)).collect();
        let mut command = Command::new("rsync");
        command.args(["-aH", MOVE]).args(&options).args(["their-src/", "their-dst"]);
        assert!(command.current_dir(world.path("")).output().unwrap().status.success());
        run(world.cp(&[&options[..], &[MOVE]].concat())).expect(0);
        for root in ["src", "dst"] {
            let ours = names_and_bytes(&world.path(root));
            let theirs = names_and_bytes(&world.path(format!("their-{root}")));
            assert_eq!(ours, theirs, "{root} with {options:?}");
        }
    });
}

#[test]
fn names_of_one_file_links_and_special_files_are_moved_as_they_are() {
    let world = World::new();
    world.write("src/d/a", b"one file");
    for name in ["b", "d/c", "z"] {
        fs::hard_link(world.path("src/d/a"), world.path("src").join(name)).unwrap();
    }
    symlink("d/a", world.path("src/link")).unwrap();
    symlink("nowhere", world.path("src/dangling")).unwrap();
    let fifo = Command::new("mkfifo").arg(world.path("src/fifo")).status().unwrap();
    assert!(fifo.success());
    let moved = run(world.cp(&[MOVE])).expect(0);
    assert_eq!(moved.events_of("issue").len(), 1, "the FIFO is not moved: {moved:?}");
    assert_eq!(left(&world.source()), ["d", "fifo"], "{moved:?}");
    let inode = |name: &str| fs::metadata(world.target().join(name)).unwrap().ino();
    for name in ["b", "d/c", "z"] {
        assert_eq!(inode(name), inode("d/a"), "{name}");
    }
    assert_eq!(fs::read_link(world.target().join("link")).unwrap(), Path::new("d/a"));
    run(world.cp(&[MOVE, "-D"])).expect(0);
    assert_eq!(left(&world.source()), ["d"]);
    // The sink has a link already: the source's is removed all the same.
    symlink("d/a", world.path("src/link")).unwrap();
    run(world.cp(&[MOVE])).expect(0);
    assert_eq!(left(&world.source()), ["d"]);
    assert_nothing_left_over(&world.target());
}

/// Returns the names in a tree that are left, sorted.
fn left(root: &Path) -> Vec<String> {
    let entries = names_and_bytes(root);
    let names = entries.iter().map(|line| line.split(' ').next().unwrap().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The source has confirmed the file before the copy gets its name.
#[test]
fn a_file_that_changes_after_it_was_read_stays() {
    let world = World::new();
    let Some(sink) = FaultFs::mount(&world, "dst") else { return };
    let path = world.write("src/file", b"as it was read");
    sink.command("hang rename,link path=file");
    let running = start(world.cp(&[MOVE]));
    sink.wait_for_fault("hang");
    fs::write(&path, b"as it is now, and longer").unwrap();
    sink.command("clear");
    let ended = running.end().expect(8);
    let issue = ended.issue();
    assert_eq!((&issue["operation"], &issue["reason"]), (&"remove".into(), &"changed".into()));
    let copy = world.target().join("file");
    assert_eq!(fs::read(&copy).unwrap(), b"as it was read");
    assert_eq!(fs::read(&path).unwrap(), b"as it is now, and longer");
    run(world.cp(&[MOVE])).expect(0);
    assert_eq!(fs::read(&copy).unwrap(), b"as it is now, and longer");
    assert!(!path.exists());
}

/// The size and the modification time are as before; only the ctime shows the change.
#[test]
fn a_file_that_is_overwritten_unseen_after_it_was_read_stays() {
    for name_count in [1, 2] {
        let world = World::new();
        let Some(sink) = FaultFs::mount(&world, "dst") else { return };
        let path = world.write("src/file", b"as it was read");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        (1..name_count).for_each(|_| fs::hard_link(&path, world.path("src/name")).unwrap());
        // It gets its name after everything was read.
        sink.command("hang rename,link path=/file");
        let running = start(world.cp(&[MOVE]));
        sink.wait_for_fault("hang");
        fs::write(&path, b"as it is now..").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        sink.command("clear");
        let ended = running.end();
        assert_eq!(ended.code, Some(8), "{name_count}: {ended:?}");
        assert_eq!(fs::read(&path).unwrap(), b"as it is now..", "{name_count}: {ended:?}");
        run(world.cp(&[MOVE, "-I"])).expect(0);
        assert_eq!(fs::read(world.target().join("file")).unwrap(), b"as it is now..");
        assert_eq!(left(&world.source()), [""; 0]);
    }
}

/// Each removal changes the ctime of the file under its other names.
#[test]
fn all_names_of_a_file_are_removed_also_if_they_become_files_of_their_own() {
    for options in
        [&[MOVE][..], &[MOVE, "--no-hard-links"], &[MOVE, "--source=threads=1", "--sink=threads=1"]]
    {
        let world = World::new();
        for file in 0..20 {
            let path = world.write(format!("src/{file}/0"), file.to_string().as_bytes());
            for name in 1..6 {
                let other = world.path(format!("src/{}", (file + name) % 20));
                fs::create_dir_all(&other).unwrap();
                fs::hard_link(&path, other.join(name.to_string())).unwrap();
            }
        }
        run(world.cp(options)).expect(0);
        let moved = names_and_bytes(&world.target());
        let files = left(&world.source()).iter().filter(|name| name.contains('/')).count();
        assert_eq!((files, moved.len()), (0, 1 + 20 + 20 * 6), "{options:?}");
    }
}

/// A move into its own directory would remove the only copy.
#[test]
fn nothing_is_removed_where_source_and_target_are_one_directory() {
    let world = World::new();
    let shell = world.fake_shell(RUN_HERE);
    world.write("dir/file", b"only copy");
    world.write("dir/empty", b"");
    fs::hard_link(world.path("dir/file"), world.path("dir/name")).unwrap();
    symlink("file", world.path("dir/link")).unwrap();
    assert!(Command::new("mkfifo").arg(world.path("dir/fifo")).status().unwrap().success());
    let dir = world.path("dir");
    let seen = || (left(&dir), fs::read(dir.join("file")).unwrap());
    let before = seen();
    for options in [&["-D"][..], &["-D", "-c"], &["-D", "-I"], &["-D", "-e", &shell]] {
        let is_remote = options.contains(&"-e");
        let target = format!("{}{}", if is_remote { "there:" } else { "" }, dir.display());
        let mut command = if is_remote { there(&shell) } else { lads(&[""; 0]) };
        command.args([MOVE, "-D"]).args(options).arg(format!("{}/", dir.display())).arg(target);
        let ended = run(command);
        assert_ne!(ended.code, Some(0), "{options:?}: {ended:?}");
        assert_eq!(seen(), before, "{options:?}: {ended:?}");
    }
    assert_nothing_left_over(&dir);
}

#[test]
fn a_file_is_renamed_by_a_move_within_its_directory() {
    let world = World::new();
    world.write("dir/a", b"text");
    let mut command = lads(&[MOVE, "a", "b"]);
    command.current_dir(world.path("dir"));
    run(command).expect(0);
    assert_eq!(left(&world.path("dir")), ["b"]);
}

#[test]
fn what_is_not_moved_stays_at_the_source() {
    let world = World::new();
    for name in ["one/same", "two/same", "one/listed", "one/unlisted", "two/other"] {
        world.write(name, name.as_bytes());
    }
    let cp = |words: &[&str]| {
        let mut command = lads(words);
        command.current_dir(world.path(""));
        run(command).expect(0)
    };
    cp(&[MOVE, "-n", "one/", "two/", "dst"]);
    assert_eq!(left(&world.path("one")).len() + left(&world.path("two")).len(), 5);
    world.write("list", b"listed");
    cp(&[MOVE, "--files-from", "list", "one", "dst"]);
    assert_eq!(left(&world.path("one")), ["same", "unlisted"]);
    cp(&[MOVE, "one/", "two/", "dst"]);
    assert_eq!(left(&world.path("one")), [""; 0]);
    assert_eq!(left(&world.path("two")), ["same"], "the one in the first source was moved");
    assert_eq!(fs::read(world.path("dst/same")).unwrap(), b"one/same");
}

#[test]
fn what_cannot_be_removed_is_reported_and_is_at_the_sink() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.write("src/file", b"text");
    fs::create_dir(world.target()).unwrap();
    chown(world.target(), Some(65534), Some(65534)).unwrap();
    let ended = run(as_nobody(&world.cp(&[MOVE]))).expect(3);
    let issue = ended.issue();
    assert_eq!((&issue["operation"], &issue["side"]), (&"remove".into(), &"source".into()));
    assert_eq!(left(&world.source()), ["file"]);
    assert_eq!(fs::read(world.target().join("file")).unwrap(), b"text");
}

#[test]
fn a_move_that_would_delete_what_it_moves_is_refused() {
    let world = World::new();
    world.write("src/file", b"text");
    for option in ["--delete", "--delete-excluded"] {
        assert_eq!(run(world.cp(&[MOVE, option])).code, Some(2), "{option}");
    }
    assert_eq!(left(&world.source()), ["file"]);
    let mut check = Command::new(LADS);
    check.args(["check", MOVE]).arg(world.source_contents()).arg(world.target());
    assert_eq!(run(check).code, Some(2));
}

/// Whatever happens to the sink, a file that is gone at the source is there.
#[test]
fn a_file_is_removed_only_when_it_survives_a_power_cut() {
    for_seeds(8, 300, survives_power_cuts);
}

fn survives_power_cuts(seed: u64) {
    let mut rng = Rng::new(seed);
    let world = World::new();
    let Some(sink) = FaultFs::mount(&world, "sink") else { return };
    let target = sink.path("dst");
    fs::create_dir_all(target.join("d1/d2")).unwrap();
    let names = ["a", "d1/b", "d1/d2/c", "d1/d2/d", "d3/d4/e", "f", "d3/g"];
    let mut files = Vec::new();
    for name in names {
        let length = if rng.is_one_in(4) { 200_000 } else { rng.below(300) };
        let bytes = rng.bytes(length);
        let path = world.write(format!("src/{name}"), &bytes);
        // Another program has copied some of them, and nothing made its copies durable.
        if rng.is_one_in(3) && !name.starts_with("d3") {
            fs::write(target.join(name), &bytes).unwrap();
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let file = fs::File::options().write(true).open(target.join(name)).unwrap();
            file.set_modified(modified).unwrap();
        }
        files.push((name, path, bytes));
    }
    fs::hard_link(world.path("src/a"), world.path("src/d3/a2")).unwrap();
    files.push(("d3/a2", world.path("src/d3/a2"), files[0].2.clone()));
    let cp = || -> Ended {
        let options = [AS_RSYNC, MOVE, "--lab", "block-size=64K"];
        run({
            let mut command = lads(&options);
            command.arg(world.source_contents()).arg(&target);
            command
        })
    };
    for _ in 0..6 {
        let kinds = ["fsync", "rename,link", "any", "fsyncdir,fsync"];
        sink.command(&format!("cut {} nth={}", rng.pick(&kinds), 1 + rng.below(40)));
        cp();
        sink.power_cycle(None);
        for (name, path, bytes) in &files {
            let there = fs::read(target.join(name)).ok();
            assert!(path.exists() || there.as_ref() == Some(bytes), "{name} is lost");
        }
    }
    cp().expect(0);
    for (name, path, bytes) in &files {
        assert!(!path.exists() && fs::read(target.join(name)).unwrap() == *bytes, "{name}");
    }
    assert_nothing_left_over(&target);
}

/// A source file is removed only if its copy and every name on the path to it could be made
/// durable.
#[test]
fn a_copy_that_cannot_be_made_durable_keeps_the_source_file() {
    for (options, rule) in [
        (&[][..], "fail fsync EIO path=file"),
        (&["-c"], "fail fsync EIO path=file"),
        (&[], "fail fsyncdir EIO path=/d/e/f"),
        (&[], "fail fsyncdir EIO path=/d/e"),
        (&[], "fail fsyncdir EIO path=/d"),
        (&["-c"], "fail fsyncdir EIO path=/d"),
    ] {
        let world = World::new();
        let Some(sink) = FaultFs::mount(&world, "dst") else { return };
        let file = world.write("src/d/e/f/file", b"text");
        run(world.cp(&[])).expect(0);
        sink.command(rule);
        let options = [&[MOVE][..], options].concat();
        let ended = run(world.cp(&options)).expect(6);
        assert!(file.exists(), "{options:?} {rule}: {ended:?}");
        sink.command("clear");
        run(world.cp(&options)).expect(0);
        assert!(!file.exists());
    }
}

/// The copy need not be readable for this user to be made durable.
#[test]
fn a_copy_that_its_owner_may_only_write_is_made_durable() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = World::new();
    let file = world.write("src/file", b"text");
    run(world.cp(&[])).expect(0);
    fs::set_permissions(world.target().join("file"), fs::Permissions::from_mode(0o200)).unwrap();
    let mut give = Command::new("chown");
    assert!(give.args(["-R", "65534:65534"]).arg(world.path("")).status().unwrap().success());
    let ended = run(as_nobody(&world.cp(&[MOVE, "--no-perms"]))).expect(0);
    assert!(!file.exists() && ended.count("bytes_sent") == 0, "{ended:?}");
}

#[test]
fn a_source_file_that_another_process_removes_first_is_no_failure() {
    let world = World::new();
    let Some(sink) = FaultFs::mount(&world, "dst") else { return };
    let path = world.write("src/file", b"text");
    sink.command("hang rename,link path=file");
    let running = start(world.cp(&[MOVE]));
    sink.wait_for_fault("hang");
    fs::remove_file(path).unwrap();
    sink.command("clear");
    running.end().expect(0);
    assert_eq!(fs::read(world.target().join("file")).unwrap(), b"text");
}
