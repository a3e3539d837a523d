//! `lads clean` removes what killed transfers left, and nothing else: neither files of a running
//! transfer nor files that only look alike.

use crate::tree::{assert_nothing_left_over, is_own_name, visit};
use crate::world::{
    Ended, LADS, Rng, World, assert_identical, has, is_root, run, start, wait_for, wait_until_gone,
};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Uid, chownat, mknodat};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// So slow that it runs until it is stopped; the target has unfinished files very soon.
const SLOWLY: &[&str] = &["--bwlimit", "4M", "--lab", "block-size=64K"];

/// Smaller files are done in an instant.
const SMALL_BYTES: u64 = 60_000;

fn clean(directory: &Path, options: &[&str]) -> Ended {
    let mut command = Command::new(LADS);
    command.arg("clean").args(options).arg(directory);
    run(command)
}

fn said(ended: &Ended) -> String {
    String::from_utf8_lossy(&ended.stdout).into_owned()
}

/// Returns the files in a tree whose names are LADS's own.
fn own(tree: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    visit(tree, &mut |path, _| {
        if is_own_name(path) {
            found.insert(path.to_owned());
        }
    });
    found
}

/// Makes a world with a transfer that was killed in the middle.
fn killed() -> World {
    let world = World::with_files(&mut Rng::new(1));
    let running = start(world.cp(SLOWLY));
    let pids = [running.pid(), running.other_end()];
    wait_for("a large file that is unfinished, and a journal", || {
        let own = own(&world.target());
        let is_large = |path: &PathBuf| fs::metadata(path).is_ok_and(|it| it.len() > SMALL_BYTES);
        let is_part = |path: &&PathBuf| path.extension().is_some_and(|it| it == "part");
        (own.len() >= 2 && own.iter().filter(is_part).any(is_large)).then_some(())
    });
    running.kill_both_ends(|| ());
    pids.into_iter().for_each(wait_until_gone);
    world
}

#[test]
fn what_a_killed_transfer_left_is_removed_and_the_same_command_begins_anew() {
    let world = killed();
    let before = own(&world.target());
    assert!(before.len() >= 2, "{before:?}");
    let ended = clean(&world.target(), &["-n"]).expect(0);
    assert_eq!(said(&ended).matches("would remove").count(), before.len(), "{ended:?}");
    assert_eq!(own(&world.target()), before);
    let ended = clean(&world.target(), &[]).expect(0);
    assert_eq!(said(&ended).matches("removed .lads-").count(), before.len(), "{ended:?}");
    assert_nothing_left_over(&world.target());
    run(world.cp(&[])).expect(0);
    if has("rsync") {
        assert_identical(&world.source(), &world.target());
    }
}

#[test]
fn what_a_running_transfer_owns_stays_whichever_directory_is_cleaned() {
    let world = World::with_files(&mut Rng::new(2));
    let deep = "dst/deep/er";
    // A file that another command left, below the directory where the running one works.
    let stale = world.write(format!("{deep}/.lads-{}.part", "0a".repeat(16)), b"stale");
    let running = start(world.cp(SLOWLY));
    wait_for("an unfinished file and a journal", || {
        (own(&world.target()).len() >= 3).then_some(())
    });
    for directory in [world.path(deep), world.target(), world.path("")] {
        let ended = clean(&directory, &[]).expect(0);
        let told = said(&ended);
        assert!(told.contains("a running transfer may own it"), "{told}");
        assert!(told.contains("0 files of 0 B removed; a transfer is running"), "{told}");
        assert!(stale.exists());
    }
    running.signal("TERM");
    running.end().expect(9);
    run(world.cp(&[])).expect(0);
    clean(&world.target(), &[]).expect(0);
    assert_nothing_left_over(&world.target());
}

#[test]
fn what_only_looks_like_a_leftover_stays() {
    let world = World::new();
    let name = |number: u32, ending: &str| format!("dst/.lads-{number:032x}.{ending}");
    let removed = world.write(name(1, "part"), b"left over");
    let hard_link = world.write(name(2, "part"), b"precious");
    fs::hard_link(&hard_link, world.path("precious")).unwrap();
    fs::create_dir(world.path(name(3, "part"))).unwrap();
    let inside = world.write(format!("{}/file", name(3, "part")), b"precious");
    symlink(world.path("precious"), world.path(name(4, "part"))).unwrap();
    let fifo = Mode::RUSR | Mode::WUSR;
    let fifo_path = world.path(name(5, "part"));
    mknodat(CWD, &fifo_path, FileType::Fifo, fifo, 0).unwrap();
    let journal_fifo = world.path("dst/.lads-0123456789abcdef.journal");
    mknodat(CWD, &journal_fifo, FileType::Fifo, fifo, 0).unwrap();
    let other_names = [
        world.write("dst/.lads-short.part", b"precious"),
        world.write("dst/.lads-notes", b"precious"),
        world.write(format!("dst/lads-{:032x}.part", 6), b"precious"),
    ];
    // A tree elsewhere, to which a link leads.
    let elsewhere = world.write(format!("elsewhere/.lads-{:032x}.part", 7), b"precious");
    symlink(world.path("elsewhere"), world.path("dst/link")).unwrap();
    let ended = clean(&world.target(), &[]).expect(0);
    assert!(!removed.exists());
    let mut kept = vec![hard_link, inside, elsewhere];
    kept.extend(other_names);
    for path in kept {
        assert!(fs::read(&path).is_ok_and(|bytes| bytes == b"precious"), "{path:?}: {ended:?}");
    }
    for path in [world.path(name(4, "part")), fifo_path, journal_fifo] {
        assert!(fs::symlink_metadata(&path).is_ok(), "{path:?}: {ended:?}");
    }
    let told = said(&ended);
    assert_eq!(told.matches("so lads did not create it").count(), 5, "{told}");
    assert!(told.contains("1 file of 9 B removed"), "{told}");
}

#[test]
fn what_belongs_to_somebody_else_stays() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let part = world.write(format!("dst/.lads-{:032x}.part", 1), b"theirs");
    let nobody = (Some(Uid::from_raw(65534)), Some(Gid::from_raw(65534)));
    chownat(CWD, &part, nobody.0, nobody.1, AtFlags::empty()).unwrap();
    let ended = clean(&world.target(), &[]).expect(0);
    assert!(part.exists() && said(&ended).contains("another user (65534)"), "{ended:?}");
}

#[test]
fn a_directory_that_is_not_there_is_told() {
    let world = World::new();
    let ended = clean(&world.target(), &[]).expect(3);
    assert!(ended.stderr.contains("cannot clean"), "{ended:?}");
}
