//! A name is never trusted twice: no file gets bytes that are not its own, whatever others put
//! under the names that a transfer uses, and even if several transfers use them at once.

use crate::faultfs::FaultFs;
use crate::tree::{assert_nothing_left_over, is_own_name, set_mtime, visit};
use crate::world::{
    Ended, Rng, Running, World, assert_identical, has, is_root, lads, not_tried, run, start,
    wait_for,
};
use lads_core::journal::replay;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Slow enough to be stopped in the middle.
const PACE: &[&str] = &["--bwlimit", "20M", "--lab", "block-size=256K"];
const LARGE_BYTES: usize = 12 << 20;

/// Returns LADS's own files with this ending below a directory.
fn own_files(root: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    visit(root, &mut |path, _| {
        if is_own_name(path) && path.to_str().unwrap().ends_with(ending) {
            found.push(path.to_owned());
        }
    });
    found
}

/// Stops a transfer of one large file in the middle; returns its temporary file.
fn stopped(world: &World, options: &[&str]) -> PathBuf {
    world.write("src/large", &Rng::new(1).bytes(LARGE_BYTES));
    let mut running = start(world.cp(&[PACE, options].concat()));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 4 << 20));
    running.signal("TERM");
    running.end().expect(9);
    own_files(&world.target(), ".part").pop().expect("it has begun")
}

/// Writes other bytes into a file without changing its size and time of change.
fn damage_unseen(path: &Path, offset: u64) {
    let before = path.metadata().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"damage", offset).unwrap();
    drop(file);
    set_mtime(path, before.mtime(), before.mtime_nsec());
}

/// The mode bits that let others read or write.
const OTHERS: u32 = 0o077;

/// The directory may be open to all although few may read the file at the source.
#[test]
fn only_its_owner_can_read_a_file_before_it_has_its_own_mode() {
    let world = World::new();
    fs::create_dir(world.target()).unwrap();
    fs::set_permissions(world.target(), fs::Permissions::from_mode(0o755)).unwrap();
    let part = stopped(&world, &[]);
    let journal = own_files(&world.target(), ".journal").pop().unwrap();
    for path in [&part, &journal] {
        let mode = path.metadata().unwrap().mode();
        assert_eq!(mode & OTHERS, 0, "{} has mode {mode:o}", path.display());
    }
    // Also check a file of a single block, which is written in one go.
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    world.write("other/small", b"secret");
    storage.command("hang write path=*.part nth=1");
    let mut command = lads::<&str>(&[]);
    command.arg(format!("{}/", world.path("other").display())).arg(storage.path("dst"));
    let running = start(command);
    storage.wait_for_fault("hang");
    let part = own_files(&world.path("storage.below/dst"), ".part").pop().unwrap();
    let mode = part.metadata().unwrap().mode();
    assert_eq!(mode & OTHERS, 0, "{} has mode {mode:o}", part.display());
    storage.command("release");
    running.end().expect(0);
}

/// Changes that another user may have made to a temporary file between two attempts, after which it
/// is no longer ours alone and may contain the other user's bytes.
#[test]
fn a_temporary_file_that_is_not_ours_alone_is_not_used() {
    type Deed = fn(&Path);
    let deeds: [(&str, Deed); 4] = [
        ("has another name", |part| fs::hard_link(part, part.with_file_name("other")).unwrap()),
        ("others may write to it", |part| {
            fs::set_permissions(part, fs::Permissions::from_mode(0o666)).unwrap();
        }),
        ("is longer", |part| {
            let file = fs::File::options().write(true).open(part).unwrap();
            file.set_len(LARGE_BYTES as u64 + 4096).unwrap();
        }),
        ("is another user's", |part| {
            std::os::unix::fs::chown(part, Some(1234), Some(1234)).unwrap();
        }),
    ];
    for (what, deed) in deeds {
        if what.contains("user") && !is_root() {
            continue;
        }
        let world = World::new();
        let part = stopped(&world, &[]);
        let number = part.metadata().unwrap().ino();
        // Keep the file open, so that its inode number is not reused if it is removed.
        let _kept = fs::File::open(&part).unwrap();
        deed(&part);
        let ended = run(world.cp(&[])).expect(0);
        assert_eq!(ended.count("bytes_sent"), LARGE_BYTES as u64, "{what}: {ended:?}");
        let large = world.target().join("large");
        assert_ne!(large.metadata().unwrap().ino(), number, "it {what}, and is used");
        assert!(fs::read(large).unwrap() == Rng::new(1).bytes(LARGE_BYTES), "{what}");
        assert_nothing_left_over(&world.target());
    }
}

/// A regression test: with two commands at once, one of them without a journal, both wrote to the
/// same file, and the transfer ended with exit code 0 and partial data.
#[test]
fn the_same_command_runs_once_at_a_time_with_a_journal_or_without() {
    for (first, second) in [
        ("--lab=journal=no", "--lab=journal=no"),
        ("--lab=journal=no", "-v"),
        ("-v", "--lab=journal=no"),
    ] {
        let world = World::new();
        world.write("src/large", &Rng::new(2).bytes(LARGE_BYTES));
        // It takes longer than the second command waits for the first to end.
        let mut running = start(world.cp(&["--bwlimit", "6M", "--lab", "block-size=256K", first]));
        let sink = running.other_end();
        assert!(running.runs_until_written(sink, 1 << 20));
        run(world.cp(&[second])).expect(12).says(&["already running"]);
        running.end().expect(0);
        assert_eq!(fs::read(world.target().join("large")).unwrap().len(), LARGE_BYTES);
        assert_nothing_left_over(&world.target());
    }
}

#[test]
fn different_commands_move_into_one_directory_at_once() {
    let world = World::new();
    for name in ["one", "two"] {
        world.write(format!("{name}/{name}"), &Rng::new(3).bytes(LARGE_BYTES));
    }
    fs::create_dir(world.target()).unwrap();
    let begin = |name: &str| {
        let mut command = lads(PACE);
        command.arg(format!("{}/", world.path(name).display())).arg(world.target());
        start(command)
    };
    let both = [begin("one"), begin("two")];
    for running in both {
        running.end().expect(0);
    }
    for name in ["one", "two"] {
        assert_eq!(fs::read(world.target().join(name)).unwrap(), Rng::new(3).bytes(LARGE_BYTES));
    }
    assert_nothing_left_over(&world.target());
}

#[test]
fn a_dry_run_locks_nobody_out_and_leaves_nothing() {
    let world = World::new();
    world.write("src/large", &Rng::new(2).bytes(LARGE_BYTES));
    fs::create_dir(world.target()).unwrap();
    run(world.cp(&["-n"])).expect(0);
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
    let mut running = start(world.cp(PACE));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    run(world.cp(&["-n"])).expect(0);
    running.end().expect(0);
}

/// A regression test: the file that a killed transfer without a journal left was never removed, or
/// was used as it was.
#[test]
fn a_transfer_without_a_journal_that_was_killed_leaves_what_the_next_one_removes() {
    let world = World::new();
    world.write("src/large", &Rng::new(4).bytes(LARGE_BYTES));
    let mut running = start(world.cp(&[PACE, &["--lab=journal=no"]].concat()));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 4 << 20));
    running.kill_both_ends(|| {});
    assert_eq!(own_files(&world.target(), ".part").len(), 1);
    let ended = run(world.cp(&["--lab=journal=no"])).expect(0);
    assert_eq!(ended.count("bytes_sent"), LARGE_BYTES as u64, "an interrupted file begins anew");
    assert_nothing_left_over(&world.target());
    assert_eq!(fs::read(world.target().join("large")).unwrap(), Rng::new(4).bytes(LARGE_BYTES));
}

/// If the file is the same at the target already, the rest of an earlier attempt is of no use.
#[test]
fn what_was_begun_of_a_file_that_is_found_the_same_by_its_contents_goes() {
    let world = World::new();
    stopped(&world, &["-c"]);
    fs::copy(world.path("src/large"), world.path("dst/large")).unwrap();
    // Make the transfer fail, so that it does not reach the clean-up at its end.
    world.write("src/unreadable", b"1");
    world.write("dst/unreadable/kept", b"in the way");
    let ended = run(world.cp(&["-c"])).expect(6);
    assert_eq!((ended.count("files_compared"), ended.count("bytes_sent")), (1, 0));
    assert!(own_files(&world.target(), ".part").is_empty());
}

/// If the file is passed over, the rest of an earlier attempt is of no use, either.
#[test]
fn what_was_begun_of_a_file_that_is_passed_over_goes() {
    let world = World::new();
    let part = stopped(&world, &[]);
    world.write("dst/large", b"of another");
    run(world.cp(&["--ignore-existing", "-n"])).expect(0);
    assert!(part.exists(), "a dry run changes nothing");
    // The next attempt removes it at once, not only at its end.
    world.write("src/other", &Rng::new(2).bytes(LARGE_BYTES));
    let mut running = start(world.cp(&[PACE, &["--ignore-existing"]].concat()));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    assert!(!part.exists());
    running.end().expect(0);
    assert_eq!(fs::read(world.path("dst/large")).unwrap(), b"of another");
}

/// The same of a link, which has a temporary name for a moment: a killed transfer left it, and the
/// next one found the link there, or passed it over.
#[test]
fn what_was_begun_of_a_link_that_is_not_made_any_more_goes() {
    for (options, is_there) in [(&["--existing"][..], false), (&[], true)] {
        let world = World::new();
        fs::create_dir(world.path("src")).unwrap();
        std::os::unix::fs::symlink("nowhere", world.path("src/link")).unwrap();
        let Some(storage) = FaultFs::mount(&world, "storage") else { return };
        storage.command("hang rename path=*.part nth=1");
        let command = |options: &[&str]| {
            let mut command = lads(options);
            command.arg(format!("{}/", world.source().display())).arg(storage.path("dst"));
            command
        };
        let running = start(command(&[]));
        storage.wait_for_fault("hang");
        let below = world.path("storage.below/dst");
        let part = own_files(&below, ".part").pop().expect("it has begun");
        running.kill_both_ends(|| storage.command("release"));
        // The emulated storage now completes its pending requests.
        let link = below.join("link");
        fs::rename(&link, &part).unwrap();
        if is_there {
            std::os::unix::fs::symlink("nowhere", &link).unwrap();
        }
        run(command(options)).expect(0);
        assert_eq!(link.symlink_metadata().is_ok(), is_there);
        assert_nothing_left_over(&below);
    }
}

/// Two commands may find at the same time that the target does not exist.
#[test]
fn a_target_directory_that_another_makes_at_the_same_moment_is_used() {
    let world = World::new();
    world.write("src/file", b"bytes");
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    storage.command("hang mkdir path=dst nth=1");
    let mut command = lads::<&str>(&[]);
    command.arg(format!("{}/", world.source().display())).arg(storage.path("dst"));
    let running = start(command);
    storage.wait_for_fault("hang");
    world.write("storage.below/dst/of-another", b"1");
    storage.command("release");
    running.end().expect(0);
    assert_eq!(fs::read(storage.path("dst/file")).unwrap(), b"bytes");
    assert_eq!(fs::read(storage.path("dst/of-another")).unwrap(), b"1");
}

#[test]
fn a_temporary_file_that_somebody_replaced_does_not_get_the_real_name() {
    let world = World::new();
    world.write("src/large", &Rng::new(5).bytes(LARGE_BYTES));
    let mut running = start(world.cp(PACE));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    let part = own_files(&world.target(), ".part").pop().expect("it has begun");
    fs::remove_file(&part).unwrap();
    fs::write(&part, "foreign").unwrap();
    let ended = running.end().expect(6);
    let issue = ended.issue();
    assert_eq!(issue["operation"], "rename", "{issue}");
    assert_eq!(issue["errno"], 116, "{issue}");
    assert!(!world.target().join("large").exists());
    run(world.cp(&[])).expect(0);
    assert_eq!(fs::read(world.target().join("large")).unwrap(), Rng::new(5).bytes(LARGE_BYTES));
    assert_nothing_left_over(&world.target());
}

/// A regression test: with another user's journal that said that all was done, and with that user's
/// temporary file, the command ended with exit code 0 and the wrong bytes.
#[test]
fn a_journal_that_others_may_write_to_is_refused_with_what_to_do() {
    let world = World::new();
    let part = stopped(&world, &[]);
    let journal = own_files(&world.target(), ".journal").pop().unwrap();
    fs::set_permissions(&journal, fs::Permissions::from_mode(0o666)).unwrap();
    let ended = run(world.cp(&[])).expect(6);
    ended.says(&["other users may write to it", "remove it", journal.to_str().unwrap()]);
    assert!(part.exists() && !world.target().join("large").exists());
    fs::remove_file(&journal).unwrap();
    fs::remove_file(&part).unwrap();
    run(world.cp(&[])).expect(0);
}

/// A regression test: a file of the source with the journal's name could replace the journal.
#[test]
fn a_name_of_our_own_is_not_made_at_the_sink() {
    let world = World::new();
    let name = ".lads-0123456789abcdef.journal";
    world.write("file", b"data");
    fs::create_dir(world.target()).unwrap();
    let mut command = lads::<&str>(&[]);
    command.arg(world.path("file")).arg(world.target().join(name));
    let ended = run(command).expect(6);
    assert_eq!(ended.issue()["side"], "sink", "{ended:?}");
    assert!(!world.target().join(name).exists());
}

/// Compares what rsync makes of several sources with what LADS makes.
fn merged_as_rsync(world: &World, sources: &[&str]) -> Ended {
    let sources = sources.iter().map(|it| world.path("").join(it)).collect::<Vec<_>>();
    let expected = world.path("expected");
    let mut rsync = Command::new("rsync");
    let status = rsync.arg("-aHAX").args(&sources).arg(format!("{}/", expected.display())).status();
    assert!(status.unwrap().success());
    fs::create_dir_all(world.target()).unwrap();
    let mut command = lads(&["--lab", "block-size=64K"]);
    command.args(&sources).arg(world.target());
    let ended = run(command).expect(0);
    assert_identical(&expected, &world.target());
    assert_nothing_left_over(&world.target());
    ended
}

/// A regression test: both wrote to the same temporary file, and the target had the bytes of
/// neither.
#[test]
fn of_equal_names_the_first_named_is_moved_as_rsync_does() {
    if !has("rsync") {
        return;
    }
    let orders: [&[&str]; 4] =
        [&["d1/", "d2/"], &["d2/", "d1/"], &["d1/f", "d2/", "d1"], &["d2/tree", "d1/", "d2/f"]];
    for sources in orders {
        let world = World::new();
        let mut rng = Rng::new(6);
        for number in 1..=2 {
            let root = format!("d{number}");
            world.write(format!("{root}/f"), &rng.bytes(1 << 20));
            world.write(format!("{root}/tree/g"), &rng.bytes(300_000));
            world.write(format!("{root}/tree/only{number}"), b"only");
            world.write(format!("{root}/tree/deep/h"), format!("h{number}").as_bytes());
            // One source has a file of this name, the other a directory.
            let (file, directory) = (format!("clash{number}"), format!("clash{}", 3 - number));
            world.write(format!("{root}/{file}"), b"file");
            world.write(format!("{root}/{directory}/inside"), root.as_bytes());
            std::os::unix::fs::symlink(&root, world.path(format!("{root}/link"))).unwrap();
            for directory in [root.clone(), format!("{root}/tree")] {
                set_mtime(&world.path(directory), 1_000_000_000 + number, 0);
            }
        }
        let ended = merged_as_rsync(&world, sources);
        let told = ended.events_of("notice");
        let told = told.iter().filter(|it| it.to_string().contains("several sources contain"));
        assert_eq!(told.count(), 1, "{sources:?}: {ended:?}");
    }
}

#[test]
fn a_changed_part_is_compared_and_what_is_wrong_in_it_is_sent_again() {
    if !has("rsync") {
        return;
    }
    for verify in ["wire", "media"] {
        let world = World::on_disk();
        let part = stopped(&world, &[]);
        damage_unseen(&part, 0);
        let ended = run(world.cp(&["--verify", verify])).expect(0);
        assert_identical(&world.source(), &world.target());
        let told = ended.events_of("notice");
        let is_told = |it: &serde_json::Value| it.to_string().contains("1 of");
        assert!(told.iter().any(is_told), "{ended:?}");
        assert!(ended.count("bytes_sent") < LARGE_BYTES as u64, "{ended:?}");
    }
}

#[test]
fn what_somebody_wrote_where_a_file_has_a_hole_does_not_stay() {
    if !has("rsync") {
        return;
    }
    let world = World::on_disk();
    let path = world.write("src/large", &Rng::new(8).bytes(LARGE_BYTES));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.set_len(2 * LARGE_BYTES as u64).unwrap();
    file.write_all_at(b"end", 2 * LARGE_BYTES as u64).unwrap();
    let mut running = start(world.cp(PACE));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 4 << 20));
    running.signal("TERM");
    running.end().expect(9);
    let part = own_files(&world.target(), ".part").pop().expect("it has begun");
    damage_unseen(&part, LARGE_BYTES as u64 + 5000);
    let ended = run(world.cp(&[])).expect(0);
    assert!(ended.count("bytes_sent") < LARGE_BYTES as u64, "it goes on: {ended:?}");
    assert_identical(&world.source(), &world.target());
}

/// A regression test: blocks of an earlier attempt were longer than a buffer of this one.
#[test]
fn blocks_of_an_earlier_attempt_are_read_back_whatever_their_size() {
    if !has("rsync") {
        return;
    }
    let world = World::on_disk();
    stopped(&world, &["--verify", "media"]);
    let ended = run(world.cp(&["--verify", "media", "--lab", "block-size=64K"])).expect(0);
    assert!(ended.count("bytes_sent") < LARGE_BYTES as u64, "{ended:?}");
    assert_identical(&world.source(), &world.target());
}

/// A regression test: on a Lustre that is mounted without flock, every transfer was refused because
/// it seemed to be running already.
#[test]
fn where_there_are_no_locks_a_transfer_runs_once_at_a_time_and_goes_on() {
    let world = World::new();
    world.write("src/large", &Rng::new(7).bytes(LARGE_BYTES));
    let Some(storage) = FaultFs::mount_with(&world, "storage", &["--without-locks"]) else {
        return;
    };
    let cp = |options: &[&str]| {
        let mut command = lads(options);
        command.arg(world.source_contents()).arg(storage.path("dst"));
        command
    };
    let running: Running = start(cp(&["--bwlimit", "4M", "--lab", "block-size=256K"]));
    let sink = running.other_end();
    wait_for("blocks to be on record", || {
        let journal = own_files(&storage.path("dst"), ".journal").pop()?;
        let files = replay(&fs::read(journal).ok()?).files;
        files.values().any(|begun| !begun.blocks.is_empty()).then_some(())
    });
    let refused = run(cp(&[])).expect(12);
    if refused.summary()["message"].to_string().contains("another process") {
        return not_tried("this kernel gives FUSE its own locks");
    }
    refused.says(&["already running", &format!("process {sink}")]);
    running.kill_both_ends(|| {});
    let ended = run(cp(&[])).expect(0);
    let notices = ended.events_of("notice");
    assert!(notices.iter().any(|it| it.to_string().contains("no file locks")), "{ended:?}");
    assert!(ended.count("bytes_sent") < LARGE_BYTES as u64, "it goes on: {ended:?}");
    assert_eq!(fs::read(storage.path("dst/large")).unwrap(), Rng::new(7).bytes(LARGE_BYTES));
}
