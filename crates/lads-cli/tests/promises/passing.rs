//! Entries that are left alone although they are at the source: the same ones as with rsync.

use crate::choice::names_and_bytes;
use crate::world::{
    Ended, LADS, Mounted, RUN_HERE, Rng, World, check, for_seeds, has, is_root, lads, run, there,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Options that pass over entries; each run uses one or two of them.
const OPTIONS: [&str; 8] = [
    "--update",
    "-u",
    "--ignore-existing",
    "--existing",
    "--ignore-non-existing",
    "--max-size=3",
    "--min-size=4",
    "--max-size=5-1",
];

#[test]
fn what_is_passed_over_is_what_rsync_passes_over() {
    if !has("rsync") {
        return;
    }
    for_seeds(25, 1000, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        for root in ["src", "dst"] {
            grow(&mut rng, &world.path(root), 3);
        }
        copy(&world.target(), &world.path("theirs"));
        let options = [rng.pick(&OPTIONS), rng.pick(&OPTIONS)];
        let mut command = Command::new("rsync");
        command.arg("-a").args(options).arg(world.source_contents()).arg(world.path("theirs"));
        assert!(command.output().unwrap().status.success(), "{command:?}");
        let said = lines(&world, &options, "-n");
        assert_eq!(lines(&world, &options, "-v"), said, "{options:?}: the dry run");
        let [ours, theirs] = ["dst", "theirs"].map(|root| names_and_bytes(&world.path(root)));
        assert_eq!(ours, theirs, "{options:?}");
    });
}

/// Returns the lines about paths, sorted.
fn lines(world: &World, options: &[&str], how: &str) -> Vec<String> {
    let ended = run(world.cp(&[options, &[how]].concat())).expect(0);
    let mut lines: Vec<String> =
        ended.events_of("line").into_iter().map(|line| line.to_string()).collect();
    lines.sort();
    lines
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.unwrap().success());
}

/// Makes a tree in which names that begin with `d` are directories, and others are files or links,
/// of various sizes and times.
pub(crate) fn grow(rng: &mut Rng, root: &Path, depth: usize) {
    fs::create_dir_all(root).unwrap();
    for name in ["d1", "d2", "f1", "f2", "f3", "f4", "f5"] {
        let path = root.join(name);
        match (rng.below(3), name.starts_with('d')) {
            (0, _) => {}
            (_, true) if depth > 0 => grow(rng, &path, depth - 1),
            (_, true) => fs::create_dir(&path).unwrap(),
            (_, false) if rng.is_one_in(6) => symlink(rng.pick(&["f1", "f2"]), &path).unwrap(),
            _ => {
                let length = rng.below(7);
                let letter = *rng.pick(&[b"a", b"b", b"c", b"d"]);
                fs::write(&path, letter.repeat(length)).unwrap();
                let seconds = 1_500_000_000 + rng.below(3) as u64;
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
                fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
            }
        }
    }
}

#[test]
fn the_summary_says_how_many_were_left_out_and_why() {
    let world = World::new();
    world.write("src/newer", b"old");
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    fs::File::options()
        .write(true)
        .open(world.path("src/newer"))
        .and_then(|file| file.set_modified(old))
        .unwrap();
    world.write("dst/newer", b"changed here");
    world.write("src/large", &[0; 100]);
    world.write("src/fit", b"fit");
    let ended = run(world.cp(&["-u", "--max-size=99"])).expect(0);
    let counts = ["files_newer", "files_by_size", "files_existing", "files_missing", "files_moved"];
    assert_eq!(counts.map(|name| ended.count(name)), [1, 1, 0, 0, 1]);
    let mut command = Command::new(LADS);
    command.args(["cp", "--ignore-existing", "--max-size=99", "--no-progress"]);
    let ended = run({
        command.arg(world.source_contents()).arg(world.target());
        command
    });
    for words in [
        "; 2 files skipped (already at the sink, --ignore-existing)",
        "; 1 file skipped (too large or too small, --max-size, --min-size)",
    ] {
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    }
}

/// The first name of a file is left as it is at the sink, where it may be any file. So the second
/// name must not become a link to it.
#[test]
fn a_further_name_is_not_linked_to_what_was_passed_over() {
    let world = World::new();
    world.write("src/a", b"of the source");
    fs::hard_link(world.path("src/a"), world.path("src/b")).unwrap();
    for there in ["a", "b"] {
        let dst = world.path("dst");
        let _ = fs::remove_dir_all(&dst);
        world.write(format!("dst/{there}"), b"of the sink");
        run(world.cp(&["--ignore-existing"])).expect(0);
        let other = if there == "a" { "b" } else { "a" };
        assert_eq!(fs::read(dst.join(there)).unwrap(), b"of the sink");
        assert_eq!(fs::read(dst.join(other)).unwrap(), b"of the source");
    }
}

#[test]
fn what_is_mounted_below_the_source_is_left_out_with_x() {
    if !is_root() || !has("unshare") || !has("rsync") {
        return;
    }
    let world = World::new();
    world.write("src/plain/file", b"plain");
    world.write("dst/mounted/there", b"there");
    let Some(mounted) = Mounted::tmpfs(&world.path("src/mounted"), "size=1m") else { return };
    fs::write(mounted.seen_at(&world.path("src/mounted/file")), b"mounted").unwrap();
    copy(&world.target(), &world.path("theirs"));
    let mut rsync = Command::new("rsync");
    rsync.arg("-ax").arg(world.source_contents()).arg(world.path("theirs"));
    assert!(mounted.command(&rsync).status().unwrap().success());
    run(mounted.command(&world.cp(&["-x"]))).expect(0);
    let [ours, theirs] = ["dst", "theirs"].map(|root| names_and_bytes(&world.path(root)));
    assert_eq!(ours, theirs);
    assert!(!world.path("dst/mounted/file").exists());
    let compared = |options: &[&str]| {
        let mut command = check(options);
        command.arg(world.source_contents()).arg(world.target());
        run(mounted.command(&command)).expect(11).differences()
    };
    assert_eq!(compared(&["-x"]), ["only-at-sink mounted/there"]);
    let both = ["only-at-sink mounted/there", "only-at-source mounted/file"];
    assert_eq!(compared(&[]), both);
    // A named source is entered even if it is a mount point.
    let mut named = lads(&["-x"]);
    named.arg(world.path("src/mounted")).arg(world.path("named"));
    run(mounted.command(&named)).expect(0);
    assert_eq!(fs::read(world.path("named/mounted/file")).unwrap(), b"mounted");
}

/// Without --mkpath, a dry run and a real run report the same; with it, both programs make the same
/// tree.
#[test]
fn directories_above_the_target_are_made_only_if_asked_for() {
    let sources = [("src/", "a/b/c"), ("src", "a/b"), ("src/f", "a/b/c"), ("src/f", "a/b/")];
    for (source, target) in sources {
        let world = World::new();
        world.write("src/f", b"bytes");
        let cp = |options: &[&str], target: &str| -> Ended {
            let mut command = lads(options);
            command.arg(source).arg(target).current_dir(world.path(""));
            run(command)
        };
        let said: Vec<String> = [&[][..], &["-n"]]
            .into_iter()
            .map(|options| {
                let ended = cp(options, target).expect(6).says(&["--mkpath"]);
                ended.summary()["message"].to_string()
            })
            .collect();
        assert_eq!(said[0], said[1], "{source} to {target}");
        assert!(!world.path("a").exists(), "{source} to {target}");
        cp(&["-n", "--mkpath"], target).expect(0);
        assert!(!world.path("a").exists(), "the dry run of {source} to {target} made something");
        cp(&["--mkpath"], target).expect(0);
        let ours = names_and_bytes(&world.path("a"));
        if has("rsync") {
            fs::rename(world.path("a"), world.path("ours")).unwrap();
            let mut rsync = Command::new("rsync");
            rsync.args(["-a", "--mkpath", source, target]).current_dir(world.path(""));
            assert!(rsync.status().unwrap().success());
            assert_eq!(ours, names_and_bytes(&world.path("a")), "{source} to {target}");
        }
    }
}

#[test]
fn directories_above_a_remote_target_are_made_too() {
    let world = World::new();
    world.write("src/f", b"bytes");
    let shell = world.fake_shell(RUN_HERE);
    let mut command = there(&shell);
    command.arg("--mkpath").arg(world.source_contents());
    command.arg(format!("there:{}", world.path("a/b/c").display()));
    run(command).expect(0);
    assert_eq!(fs::read(world.path("a/b/c/f")).unwrap(), b"bytes");
}
