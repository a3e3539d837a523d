//! A source that changes while it is moved: what arrives is one state of it, or the change is
//! reported.

use crate::faultfs::FaultFs;
use crate::tree::hash;
use crate::world::{Ended, Rng, World, for_seeds, has, run, send_signal, start};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time between two changes: longer than the resolution of the file system's times.
const CHANGE_INTERVAL: Duration = Duration::from_millis(25);
const FILE_BYTES: usize = 3 << 20;

#[test]
fn a_source_that_changes_is_never_mixed() {
    for_seeds(4, 60, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        is_never_mixed(&world, &mut rng, &ANY_CHANGE);
    });
}

/// Two changes within a second leave the same times. A file that was read between them was skipped
/// by the next run.
#[test]
fn a_source_with_coarse_times_that_changes_is_never_mixed() {
    for_seeds(2, 20, |seed| {
        let world = World::new();
        let options = ["--time-unit", "1000000000"];
        let Some(_storage) = FaultFs::mount_with(&world, "src", &options) else { return };
        is_never_mixed(&world, &mut Rng::new(seed), &[Change::Grow, Change::Cut, Change::Write]);
    });
}

/// Changes files while they are moved, some to the end and some not.
fn is_never_mixed(world: &World, rng: &mut Rng, changes: &[Change]) {
    let mut files: Vec<Changing> = (0..4).map(|number| Changing::new(world, number, rng)).collect();
    let calm = rng.bytes(FILE_BYTES);
    world.write("src/calm", &calm);
    let is_over = AtomicBool::new(false);
    // Some changes end before everything is moved; others go on to the end.
    let change_count = 3 + rng.below(60);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| change(rng, &mut files, changes, change_count, &is_over));
        let options = ["--bwlimit", "12M", "--lab", "block-size=128K"];
        let ended = start(world.cp(&options)).end();
        is_over.store(true, Ordering::Relaxed);
        ended
    });
    assert_eq!(fs::read(world.target().join("calm")).unwrap(), calm);
    for file in &files {
        file.check(&world.target(), &ended);
    }
    let is_changed = !ended.events_of("issue").is_empty();
    assert_eq!(ended.code, Some(if is_changed { 8 } else { 0 }), "{ended:?}");
    let calm_again = run(world.cp(&[])).expect(0);
    assert_eq!(calm_again.events_of("issue").len(), 0);
    for file in &files {
        let there = fs::read(world.target().join(&file.name)).unwrap();
        assert!(there == file.bytes, "{} is not what it is at last", file.name);
    }
}

/// A change of a file.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// Bytes are added.
    Grow,
    /// Bytes are taken away.
    Cut,
    /// Bytes are written over others.
    Write,
    /// Another file gets the name.
    Replace,
}

const ANY_CHANGE: [Change; 4] = [Change::Grow, Change::Cut, Change::Write, Change::Replace];

/// A file, and every state that it was ever in.
struct Changing {
    name: String,
    path: std::path::PathBuf,
    bytes: Vec<u8>,
    states: HashSet<u64>,
}

impl Changing {
    fn new(world: &World, number: usize, rng: &mut Rng) -> Self {
        let name = format!("changing{number}");
        let bytes = rng.bytes(FILE_BYTES);
        let path = world.write(format!("src/{name}"), &bytes);
        let states = HashSet::from([hash(&bytes)]);
        Self { name, path, bytes, states }
    }

    /// Makes one change with a single system call, so that there is no state in between.
    fn change(&mut self, rng: &mut Rng, change: Change) {
        let open = || fs::OpenOptions::new().write(true).open(&self.path).unwrap();
        match change {
            Change::Grow => {
                let more = rng.bytes(1000);
                open().write_all_at(&more, self.bytes.len() as u64).unwrap();
                self.bytes.extend(more);
            }
            Change::Cut => {
                let length = self.bytes.len() - rng.below(1000);
                open().set_len(length as u64).unwrap();
                self.bytes.truncate(length);
            }
            Change::Write => {
                // The write stays within one page, so that a reader sees all of it or nothing.
                let other = rng.bytes(512);
                let offset = rng.below(self.bytes.len() / 4096 - 1) * 4096;
                open().write_all_at(&other, offset as u64).unwrap();
                self.bytes[offset..offset + other.len()].copy_from_slice(&other);
            }
            Change::Replace => {
                self.bytes = rng.bytes(FILE_BYTES);
                let new = self.path.with_extension("new");
                // The new file is made outside the source, so that the walk does not find it under
                // this name.
                let new = new.parent().unwrap().with_file_name(new.file_name().unwrap());
                fs::write(&new, &self.bytes).unwrap();
                fs::rename(&new, &self.path).unwrap();
            }
        }
        self.states.insert(hash(&self.bytes));
    }

    /// Checks that one of the states arrived, or that the change was reported and nothing arrived.
    fn check(&self, target: &Path, ended: &Ended) {
        let there = fs::read(target.join(&self.name)).ok();
        let issues = ended.events_of("issue");
        let is_told = issues.iter().any(|issue| {
            issue["path"].as_str().unwrap().ends_with(&self.name) && issue["side"] == "source"
        });
        match there {
            Some(bytes) => {
                assert!(self.states.contains(&hash(&bytes)), "{} is mixed: {ended:?}", self.name);
                assert!(!is_told, "{} is told as failed, and there", self.name);
            }
            None => assert!(is_told, "{} is not there, and nothing is told", self.name),
        }
    }
}

fn change(
    rng: &mut Rng,
    files: &mut [Changing],
    changes: &[Change],
    count: usize,
    is_over: &AtomicBool,
) {
    for _ in 0..count {
        let until = Instant::now() + CHANGE_INTERVAL;
        let which = rng.below(files.len());
        let change = changes[rng.below(changes.len())];
        files[which].change(rng, change);
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
    }
}

/// Stores one byte at the beginning of a file through a shared mapping.
const STORE: &str = "import mmap, sys
with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 4096) as page: page[0] ^= 255";

#[test]
fn what_is_stored_through_a_mapping_to_a_page_that_storage_has_is_noticed() {
    if !has("python3") {
        return;
    }
    let world = World::on_disk();
    let mut bytes = Rng::new(1).bytes(4 << 20);
    let path = world.write("src/mapped", &bytes);
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let mut running = start(world.cp(&["--bwlimit", "1M", "--lab", "block-size=64K"]));
    let (source, sink) = (running.pid(), running.other_end());
    // By then the first block was read, so only another attempt can bring the stored byte.
    assert!(running.runs_until_written(sink, 256 << 10));
    send_signal(source, "STOP");
    let status = Command::new("python3").args(["-c", STORE]).arg(&path).status().unwrap();
    send_signal(source, "CONT");
    assert!(status.success());
    bytes[0] ^= 255;
    running.end().expect(0);
    assert!(fs::read(world.target().join("mapped")).unwrap() == bytes, "it arrived as it was");
}

#[test]
fn a_file_that_vanishes_is_told_and_the_rest_arrives() {
    let world = World::new();
    for number in 0..20 {
        world.write(format!("src/file{number}"), &Rng::new(number).bytes(1 << 20));
    }
    let mut running = start(world.cp(&["--bwlimit", "10M", "--lab", "block-size=64K"]));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    let finished = |name: &String| world.target().join(name).exists();
    let names: Vec<String> = (0..20).map(|number| format!("file{number}")).collect();
    let gone: Vec<&String> = names.iter().filter(|name| !finished(name)).collect();
    for name in &gone {
        fs::remove_file(world.source().join(name)).unwrap();
    }
    let ended = running.end();
    // A file that is open at the source can still be read to its end; then it counts as changed.
    for name in &names {
        let is_told = ended
            .events_of("issue")
            .iter()
            .any(|issue| issue["path"].as_str().unwrap().ends_with(&format!("/{name}")));
        assert!(finished(name) != is_told, "{name}: {ended:?}");
    }
    assert_eq!(ended.code, Some(8), "{ended:?}");
}

/// No link is followed, and the user does not have to know with which error no file was opened.
#[test]
fn a_file_that_becomes_a_link_before_it_is_opened_is_reported_as_changed() {
    let world = World::new();
    let Some(source) = FaultFs::mount(&world, "src") else { return };
    let paths = ["a", "b", "c"].map(|name| world.write(format!("src.below/{name}"), b"its own"));
    let elsewhere = world.write("elsewhere", b"not to be read");
    source.command("hang open nth=1");
    let running = start(world.cp(&["--source=threads=1"]));
    source.wait_for_fault("hang");
    for path in &paths {
        fs::remove_file(path).unwrap();
        symlink(&elsewhere, path).unwrap();
    }
    source.command("clear");
    let ended = running.end().expect(8);
    for issue in ended.events_of("issue") {
        assert_eq!(issue["reason"], "changed", "{ended:?}");
    }
    // A file that is examined only now is copied as a link.
    for name in ["a", "b", "c"] {
        let arrived = world.target().join(name).symlink_metadata();
        assert!(arrived.is_err() || arrived.unwrap().is_symlink(), "{name}: {ended:?}");
    }
}
