//! What arrives is identical to what was sent, whatever it is.

use crate::tree::{self, Scale, Seen, describe, grow, hash_of, is_own_name, set_acl, visit};
use crate::world::{Rng, World, assert_identical, for_seeds, has, run, start};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Options that divide and order the same data differently; the result must not depend on them.
const WAYS: [&[&str]; 8] = [
    &[],
    &["--lab", "block-size=64K"],
    &["--source", "layout=synthetic:osts=4,stripe_size=64K,stripe_count=3"],
    &["--source", "layout=synthetic:osts=5,stripe_size=256K,stripe_count=2,copies=2"],
    &[
        "--source",
        "layout=synthetic:osts=5,stripe_size=192K,stripe_count=5",
        "--sink",
        "layout=synthetic:osts=3,stripe_size=128K,stripe_count=2",
        "--lab",
        "block-size=128K",
    ],
    &["--lab", "schedule=file", "--sink", "layout=synthetic:osts=7,stripe_size=4K,stripe_count=7"],
    &["--streams", "3", "--lab=journal=no", "--polite"],
    &["--sink", "layout=synthetic:osts=600"],
];

#[test]
fn a_tree_arrives_identical_to_what_rsync_says() {
    if !has("rsync") {
        return;
    }
    for_seeds(8, 200, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        grow(&mut rng, &world.source(), &Scale::LARGE);
        fs::create_dir(world.target()).unwrap();
        if rng.is_one_in(2) {
            // Entries made below it must not keep the ACL that they inherit.
            set_acl(&world.target(), b"system.posix_acl_default", &mut rng);
        }
        let way = WAYS[usize::try_from(seed).unwrap() % WAYS.len()];
        let ended = run(world.cp(way)).expect(0);
        assert_eq!(ended.events_of("issue").len(), 0, "{ended:?}");
        assert_identical(&world.source(), &world.target());
        assert_holes_stay_holes(&world.source(), &world.target());
        tree::assert_nothing_left_over(&world.target());
        run(world.cp(&[])).expect(0);
        assert_identical(&world.source(), &world.target());
    });
}

fn assert_holes_stay_holes(source: &Path, target: &Path) {
    visit(source, &mut |path, metadata| {
        let there = target.join(path.strip_prefix(source).unwrap());
        if metadata.is_file() {
            let (here, there) = (metadata.blocks(), there.symlink_metadata().unwrap().blocks());
            assert!(there <= here, "{}: {here} blocks became {there}", path.display());
        }
    });
}

/// A file with more than 10,000 pieces was written in full from the 10,000th piece on.
#[test]
fn a_file_of_very_many_pieces_keeps_its_holes() {
    let world = World::new();
    let file = fs::File::create(world.write("src/pieces", b"")).unwrap();
    for piece in 0..12_000 {
        file.write_all_at(b"x", piece * (64 << 10)).unwrap();
    }
    file.set_len(12_001 * (64 << 10)).unwrap();
    run(world.cp(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
    assert_holes_stay_holes(&world.source(), &world.target());
}

#[test]
fn a_rerun_moves_nothing() {
    for_seeds(3, 50, |seed| {
        let world = World::new();
        grow(&mut Rng::new(seed), &world.source(), &Scale::SMALL);
        let first = run(world.cp(&[])).expect(0);
        let before = describe(&world.target());
        let again = run(world.cp(&[])).expect(0);
        assert_eq!(again.count("bytes_sent"), 0, "{again:?}");
        assert_eq!(again.count("files_moved"), 0, "{again:?}");
        assert_eq!(again.count("files_skipped"), first.count("files_moved"));
        let whats = |tree: BTreeMap<PathBuf, Seen>| {
            tree.into_iter().map(|(path, seen)| (path, seen.what)).collect::<Vec<_>>()
        };
        assert_eq!(whats(describe(&world.target())), whats(before));
    });
}

#[test]
fn a_change_of_metadata_alone_is_mended_without_moving_data() {
    if !has("rsync") {
        return;
    }
    let world = World::new();
    grow(&mut Rng::new(5), &world.source(), &Scale::SMALL);
    let changed = world.write("src/deep/er/mode", b"data");
    let attribute = world.write("src/deep/attribute", b"data");
    tree::set_mtime(&changed, 1_000_000_000, 5);
    run(world.cp(&[])).expect(0);
    fs::set_permissions(&changed, fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(world.path("src/deep/er"), fs::Permissions::from_mode(0o700)).unwrap();
    tree::set_xattr(&attribute, b"user.new", b"value");
    let again = run(world.cp(&[])).expect(0);
    assert_eq!(again.count("bytes_sent"), 0, "{again:?}");
    assert_identical(&world.source(), &world.target());
    // An attribute that the source no longer has is removed again.
    rustix::fs::lremovexattr(&attribute, "user.new").unwrap();
    run(world.cp(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
}

#[test]
fn never_a_partial_file_under_its_real_name() {
    for_seeds(3, 40, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        let wanted = files_of_both_versions(&mut rng, &world);
        let is_over = AtomicBool::new(false);
        let looks = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| watch(&world.target(), &wanted, &is_over));
            let options = ["--bwlimit", "40M", "--lab", "block-size=64K", "--streams", "2"];
            let mut first = start(world.cp(&options));
            let sink = first.other_end();
            if first.runs_until_written(sink, rng.next() % (10 << 20)) {
                first.signal("KILL");
            }
            first.end();
            crate::world::wait_until_gone(sink);
            run(world.cp(&["--lab", "block-size=64K"])).expect(0);
            is_over.store(true, Ordering::Relaxed);
            watcher.join().unwrap()
        });
        assert!(looks > 0);
        for (path, versions) in &wanted {
            assert_eq!(hash_of(&world.target().join(path)), Some(versions[0]), "{path:?}");
        }
    });
}

/// Makes files at the source, and older ones under some of their names at the target. Returns the
/// possible hashes of each name, the source's first.
fn files_of_both_versions(rng: &mut Rng, world: &World) -> HashMap<OsString, Vec<u64>> {
    let mut wanted = HashMap::new();
    for number in 0..60 {
        let name = format!("file{number}");
        let size = if number < 5 { 2 << 20 } else { rng.below(100_000) };
        let bytes = rng.bytes(size);
        world.write(format!("src/{name}"), &bytes);
        let mut versions = vec![tree::hash(&bytes)];
        if rng.is_one_in(3) {
            let older_bytes = rng.below(200_000);
            let older = rng.bytes(older_bytes);
            let path = world.write(format!("dst/{name}"), &older);
            tree::set_mtime(&path, 1_000_000, 0);
            versions.push(tree::hash(&older));
        }
        wanted.insert(OsString::from(name), versions);
    }
    wanted
}

/// Looks at the target again and again; returns how often a file was examined.
fn watch(target: &Path, wanted: &HashMap<OsString, Vec<u64>>, is_over: &AtomicBool) -> u64 {
    let mut looks = 0;
    while !is_over.load(Ordering::Relaxed) {
        for name in fs::read_dir(target).into_iter().flatten().filter_map(Result::ok) {
            // The hash is of one opened file, even if the name is replaced meanwhile.
            let Some(there) = hash_of(&name.path()).filter(|_| !is_own_name(&name.path())) else {
                continue;
            };
            looks += 1;
            let versions = &wanted[&name.file_name()];
            assert!(versions.contains(&there), "{:?} is neither old nor new", name.file_name());
        }
    }
    looks
}

#[test]
fn verify_media_finds_what_changed_on_storage() {
    // Only on storage can the test show that data is read back past the page cache.
    let world = World::on_disk();
    let bytes = Rng::new(7).bytes(24 << 20);
    world.write("src/large", &bytes);
    let mut running = start(world.cp(&["--verify", "media", "--bwlimit", "16M"]));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 9 << 20), "it is over before it was disturbed");
    let part = part_file(&world.target());
    // When nine of 24 blocks are written, the first one is among them, whichever thread wrote it.
    let file = fs::OpenOptions::new().write(true).open(&part).unwrap();
    let damaged_at = first_written_block(&part, &bytes);
    file.write_all_at(&[0xa5; 1000], damaged_at + 5000).unwrap();
    drop(file);
    let ended = running.end().expect(0);
    assert_eq!(fs::read(world.target().join("large")).unwrap(), bytes, "{ended:?}");
    assert_eq!(ended.count("blocks_resent"), 1, "{ended:?}");
}

fn part_file(target: &Path) -> PathBuf {
    let names = fs::read_dir(target).unwrap().filter_map(Result::ok).map(|name| name.path());
    let mut parts = names.filter(|path| path.extension().is_some_and(|end| end == "part"));
    parts.next().expect("a file is under way")
}

fn first_written_block(part: &Path, bytes: &[u8]) -> u64 {
    const BLOCK: usize = 1 << 20;
    let there = fs::read(part).unwrap();
    let blocks = there.chunks(BLOCK).zip(bytes.chunks(BLOCK));
    let first = blocks.into_iter().position(|(there, wanted)| there == wanted);
    (first.expect("a whole block is written") * BLOCK) as u64
}

/// The target exists already and has a default ACL, which new entries in it inherit.
#[test]
fn a_fifo_gets_no_acl_that_it_has_not_at_the_source() {
    if !has("rsync") || !has("mkfifo") {
        return;
    }
    let world = World::new();
    world.write("src/file", b"x");
    let fifo = std::process::Command::new("mkfifo").arg(world.path("src/fifo")).status().unwrap();
    assert!(fifo.success());
    set_acl(&world.source(), b"system.posix_acl_default", &mut Rng::new(1));
    run(world.cp(&[])).expect(0);
    run(world.cp(&["--specials"])).expect(0);
    assert_identical(&world.source(), &world.target());
}

/// Small files share a frame, and all but the first do not start at a page boundary in memory.
#[test]
fn small_files_arrive_where_direct_writes_are_asked_for() {
    if !has("rsync") {
        return;
    }
    let world = World::on_disk();
    let mut rng = Rng::new(1);
    for number in 0..20 {
        let bytes = 4096 + rng.below(20_000);
        world.write(format!("src/{number}"), &rng.bytes(bytes));
    }
    run(world.cp(&["--sink", "io=direct"])).expect(0);
    assert_identical(&world.source(), &world.target());
}
