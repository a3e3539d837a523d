//! `lads check` finds all differences and nothing else, and changes nothing.

use crate::faultfs::FaultFs;
use crate::tree::{Scale, grow, visit};
use crate::world::{
    Ended, LADS, RUN_HERE, Rng, World, as_nobody, check, for_seeds, has, is_root, not_tried, run,
    start, wait_for,
};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Makes a tree and its copy.
fn copied() -> World {
    let world = World::on_disk();
    let mut rng = Rng::new(5);
    world.write("src/large", &rng.bytes(3 << 20));
    for number in 0..5 {
        world.write(format!("src/dir/small{number}"), &rng.bytes(3000));
    }
    world.write("src/empty", b"");
    fs::create_dir(world.path("src/hollow")).unwrap();
    symlink("large", world.path("src/link")).unwrap();
    fs::hard_link(world.path("src/large"), world.path("src/dir/other-name")).unwrap();
    run(world.cp(&[])).expect(0);
    world
}

fn checked(world: &World, options: &[&str]) -> Ended {
    let mut command = check(options);
    command.arg(world.source_contents()).arg(world.target());
    run(command)
}

#[test]
fn what_is_the_same_is_said_to_be_and_what_was_compared() {
    let world = copied();
    let ended = checked(&world, &[]).expect(0);
    assert!(ended.differences().is_empty());
    assert_eq!((ended.count("files_compared"), ended.count("files_unread")), (7, 0));
    assert_eq!(ended.count("bytes_compared"), 2 * (3 << 20) + 15_000);
    let mut command = Command::new(LADS);
    command.arg("check").arg(world.source_contents()).arg(world.target());
    let ended = run(command).expect(0);
    let said = "done: no difference; the contents of 7 files (6.0 MiB) were read at both ends";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

#[test]
fn exactly_the_file_with_other_bytes_is_listed_at_whichever_end_it_is() {
    let world = copied();
    world.damage("dir/small3", 2000);
    let expected = ["other-contents dir/small3"];
    assert_eq!(checked(&world, &[]).expect(11).differences(), expected);
    let shell = world.fake_shell(RUN_HERE);
    let options = ["-e", &shell, "--remote-lads", LADS, "--data-address", "127.0.0.1"];
    let pushed = format!("there:{}", world.target().display());
    let pulled = format!("there:{}", world.source_contents());
    for more in [&[][..], &["--tunnel"]] {
        let mut push = check(&options);
        push.args(more).arg(world.source_contents()).arg(&pushed);
        assert_eq!(run(push).expect(11).differences(), expected);
        let mut pull = check(&options);
        pull.args(more).arg(&pulled).arg(world.target());
        assert_eq!(run(pull).expect(11).differences(), expected);
    }
    let mut command = Command::new(LADS);
    command.arg("check").arg(world.source_contents()).arg(world.target());
    let ended = run(command).expect(11);
    let listed = String::from_utf8(ended.stdout.clone()).unwrap();
    assert!(listed.lines().any(|line| line == "other contents     dir/small3"), "{listed}");
    assert!(ended.stderr.contains("done: 1 difference: 1 other contents; "), "{ended:?}");
}

#[test]
fn every_kind_of_difference_has_its_name() {
    let world = copied();
    let target = world.target();
    fs::remove_dir(target.join("hollow")).unwrap();
    world.write("src/only/below", b"1");
    world.write("dst/more/below", b"1");
    world.write("dst/dir/more", b"1");
    fs::write(target.join("dir/small0"), b"shorter").unwrap();
    fs::remove_file(target.join("dir/small1")).unwrap();
    symlink("small0", target.join("dir/small1")).unwrap();
    fs::remove_file(target.join("dir/small2")).unwrap();
    fs::remove_file(target.join("link")).unwrap();
    symlink("elsewhere", target.join("link")).unwrap();
    fs::remove_file(target.join("empty")).unwrap();
    fs::create_dir(target.join("empty")).unwrap();
    world.damage("large", (3 << 20) - 4);
    let expected = [
        "only-at-sink dir/more",
        "only-at-sink more/",
        "only-at-source dir/small2",
        "only-at-source hollow/",
        "only-at-source only/",
        "other-contents dir/other-name",
        "other-contents large",
        "other-kind dir/small1",
        "other-kind empty",
        "other-size dir/small0",
        "other-target link",
    ];
    assert_eq!(checked(&world, &[]).expect(11).differences(), expected);
    // In the other direction, what only one side has is reported the other way round.
    let mut other_way = check(&[format!("{}/", target.display())]);
    other_way.arg(world.source());
    let told = run(other_way).expect(11).differences();
    assert!(told.contains(&"only-at-source dir/more".to_owned()), "{told:?}");
    assert!(told.contains(&"only-at-sink hollow/".to_owned()), "{told:?}");
}

#[test]
fn metadata_is_compared_only_if_asked_for() {
    let world = copied();
    let path = world.target().join("dir/small4");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(world.target().join("hollow"), fs::Permissions::from_mode(0o700)).unwrap();
    checked(&world, &[]).expect(0);
    let told = checked(&world, &["--metadata"]).expect(11).differences();
    assert_eq!(told, ["other-metadata dir/small4", "other-metadata hollow"]);
}

/// Their metadata was compared with their contents only, of which they have none.
#[test]
fn the_metadata_of_files_without_data_is_compared_too() {
    let world = World::on_disk();
    for end in ["src", "dst"] {
        world.write(format!("{end}/empty"), b"");
        let hole = fs::File::create(world.path(format!("{end}/hole"))).unwrap();
        hole.set_len(3 << 20).unwrap();
    }
    for name in ["empty", "hole"] {
        let modified = fs::metadata(world.source().join(name)).unwrap().modified().unwrap();
        let copy = fs::File::options().write(true).open(world.target().join(name)).unwrap();
        copy.set_modified(modified).unwrap();
    }
    let set_mode = |name: &str, mode| {
        let path = world.target().join(name);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let told = |options: &[&str]| {
        let mut told = checked(&world, options).differences();
        told.retain(|line| !line.ends_with(' ') && !line.ends_with(" ."));
        told
    };
    assert_eq!(told(&["--metadata"]), [""; 0]);
    set_mode("empty", 0o600);
    set_mode("hole", 0o600);
    assert_eq!(told(&[]), [""; 0]);
    let mut metadata = told(&["--metadata"]);
    metadata.sort();
    assert_eq!(metadata, ["other-metadata empty", "other-metadata hole"]);
}

#[test]
fn what_is_excluded_is_neither_compared_nor_missed() {
    let world = copied();
    world.damage("dir/small3", 1);
    world.write("dst/dir/more", b"1");
    world.write("src/only", b"1");
    checked(&world, &["--exclude", "small3", "--exclude", "more", "--exclude", "only"]).expect(0);
    let list = world.write("list", b"dir/small3\nlarge\n");
    let told = checked(&world, &["--files-from", list.to_str().unwrap()]).expect(11).differences();
    assert_eq!(told, ["other-contents dir/small3"]);
}

#[test]
fn a_single_file_and_a_directory_beside_others_are_compared_as_cp_would_move_them() {
    let world = copied();
    world.write("dst/src/of-another", b"1");
    let mut command = check(&[world.source()]);
    command.arg(world.target());
    // The contents of DST/src are compared with SRC; its siblings are not.
    let told = run(command).expect(11).differences();
    assert!(told.contains(&"only-at-sink src/of-another".to_owned()), "{told:?}");
    assert!(told.iter().all(|line| line.split(' ').nth(1).unwrap().starts_with("src/")));
    let file = |from: &str, to: &str| {
        let mut command = check(&[world.source().join(from)]);
        command.arg(world.target().join(to));
        run(command)
    };
    file("large", "large").expect(0);
    file("large", "dir/other-name").expect(0);
    assert_eq!(file("large", "empty").expect(11).differences(), ["other-size empty"]);
    assert_eq!(file("large", "nothing").expect(11).differences(), ["only-at-source nothing"]);
}

#[test]
fn a_target_that_is_not_there_and_options_that_move_are_refused() {
    let world = copied();
    let mut command = check(&[world.source_contents()]);
    command.arg(world.path("nowhere"));
    run(command).expect(6).says(&["cannot examine the target"]);
    assert!(!world.path("nowhere").exists());
    checked(&world, &["--verify", "media"])
        .expect(2)
        .says(&["--verify", "lads check moves nothing"]);
    checked(&world, &["-I"]).expect(2).says(&["--ignore-times"]);
}

/// Returns all that can be seen of these paths, except what the look itself changes.
fn look_at(paths: &[PathBuf]) -> Vec<(PathBuf, String)> {
    let look = |path: &PathBuf| {
        let it = fs::symlink_metadata(path).unwrap();
        // Reading a link sets its time of access, and no call can avoid that.
        let accessed = if it.is_symlink() { (0, 0) } else { (it.atime(), it.atime_nsec()) };
        let changed = (it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec());
        let all = (it.ino(), it.mode(), it.uid(), it.size(), it.nlink(), accessed, changed);
        (path.clone(), format!("{all:?}"))
    };
    paths.iter().map(look).collect()
}

/// Returns a directory and all that is below it.
fn all_below(root: &Path) -> Vec<PathBuf> {
    let mut paths = vec![root.to_owned()];
    visit(root, &mut |path, _| paths.push(path.to_owned()));
    paths
}

#[test]
fn a_comparison_changes_nothing_at_all_not_even_times_of_access() {
    let world = copied();
    world.damage("large", 5);
    world.write("dst/dir/more", b"1");
    world.write("src/only/one", b"1");
    let list = || [all_below(&world.source()), all_below(&world.target())].concat();
    let paths = list();
    // So long ago that any read would set the times anew, whatever `relatime` means here.
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for path in paths.iter().filter(|path| !path.is_symlink()) {
        let times = fs::FileTimes::new().set_accessed(long_ago);
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
    let before = look_at(&paths);
    assert_eq!(checked(&world, &["--metadata"]).code, Some(11));
    assert_eq!(look_at(&paths), before);
    assert_eq!(list(), paths, "nothing is made");
}

#[test]
fn what_cannot_be_read_at_either_end_is_told_and_not_called_a_difference() {
    if !is_root() {
        return;
    }
    let world = copied();
    world.damage("dir/small0", 0);
    for (root, code) in [("src", 3), ("dst", 6)] {
        let path = world.path(root).join("large");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
        // Only what the source could list is known to be missing there.
        world.write("dst/more", b"1");
        let mut command = check(&["--exclude", "other-name"]);
        command.arg(world.source_contents()).arg(world.target());
        let ended = run(as_nobody(&command)).expect(code);
        assert_eq!(ended.issue()["operation"], "open", "{ended:?}");
        let told = ended.differences();
        assert!(told.contains(&"other-contents dir/small0".to_owned()), "{ended:?}");
        assert!(!told.iter().any(|line| line.ends_with(" large")), "{ended:?}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::remove_file(world.path("dst/more")).unwrap();
    }
}

#[test]
fn a_directory_that_cannot_be_listed_at_the_source_makes_nothing_of_the_sink_extra() {
    if !is_root() {
        return;
    }
    let world = copied();
    fs::set_permissions(world.path("src/dir"), fs::Permissions::from_mode(0o0)).unwrap();
    let mut command = check(&[world.source_contents()]);
    command.arg(world.target());
    let ended = run(as_nobody(&command)).expect(3);
    assert!(ended.differences().is_empty(), "{ended:?}");
}

#[test]
fn what_storage_damages_is_found() {
    let world = World::new();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    fs::create_dir(storage.path("dst")).unwrap();
    world.write("src/a", &Rng::new(1).bytes(2 << 20));
    let mut copy = crate::world::lads(&["--privileges"]);
    copy.arg(world.source_contents()).arg(storage.path("dst"));
    run(copy).expect(0);
    let checked = || {
        let mut command = check(&[world.source_contents()]);
        command.arg(storage.path("dst"));
        run(command)
    };
    checked().expect(0);
    storage.command("flip dst/a 1000000 5");
    assert_eq!(checked().expect(11).differences(), ["other-contents a"]);
}

/// The page cache may hold other bytes than storage.
#[test]
fn both_ends_read_from_storage_although_the_page_cache_has_all_of_it() {
    let world = World::on_disk();
    let bytes = Rng::new(1).bytes(2 << 20);
    world.write("src/a", &bytes);
    world.write("src/small", &bytes[..5000]);
    run(world.cp(&[])).expect(0);
    let direct = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    if rustix::fs::open(world.path("src/a"), direct, rustix::fs::Mode::empty()).is_err() {
        return not_tried("the file system of temporary files does not support direct I/O");
    }
    for name in ["src/a", "src/small", "dst/a", "dst/small"] {
        assert!(fs::read(world.path(name)).unwrap().len() >= 5000, "it is in the page cache now");
    }
    // The shell's count includes that of the command once the command has ended.
    let script = "\"$@\" || exit; cat /proc/$$/io";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", LADS, "check"]);
    command.arg(world.source_contents()).arg(world.target());
    let ended = run(command).expect(0);
    let told = String::from_utf8(ended.stdout.clone()).unwrap();
    let count = told.lines().find_map(|line| line.strip_prefix("read_bytes: ")).unwrap();
    assert!(count.parse::<usize>().unwrap() >= 2 * (bytes.len() + 5000), "{told}");
}

#[test]
fn any_two_trees_that_rsync_finds_the_same_have_no_difference() {
    if !has("rsync") {
        return;
    }
    for_seeds(3, 40, |seed| {
        let world = World::new();
        grow(&mut Rng::new(seed), &world.source(), &Scale::LARGE);
        run(world.cp(&["-D"])).expect(0);
        let ended = checked(&world, &["--metadata"]);
        assert_eq!(ended.code, Some(0), "{:?} {ended:?}", ended.differences());
    });
}

#[test]
fn a_comparison_that_is_stopped_says_that_not_all_was_compared() {
    let world = World::new();
    for number in 0..200 {
        world.write(format!("src/{number}"), &[7; 100_000]);
    }
    run(world.cp(&[])).expect(0);
    let slow = "layout=synthetic:osts=1,latency_ms=50";
    let mut command = check(&["--source", slow, "--lab", "block-size=64K"]);
    command.arg(world.source_contents()).arg(world.target());
    let running = start(command);
    wait_for("something to be compared", || running.told("\"event\":\"progress\"").then_some(()));
    running.signal("TERM");
    let ended = running.end().expect(9);
    assert!(ended.count("files_compared") < 200, "{ended:?}");
    assert_eq!(ended.summary()["verified"], "none");
}
