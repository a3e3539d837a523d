//! Storage that refuses, shortens, holds up and damages: what cannot be done is reported, the rest
//! arrives, and the same command goes on when the storage works again.

use crate::faultfs::FaultFs;
use crate::tree::{Scale, assert_nothing_left_over, grow, hash_of, is_own_name, set_xattr, visit};
use crate::world::{
    AS_RSYNC, Ended, Rng, World, assert_identical, for_seeds, has, lads, run, start, wait_for,
};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The end at which something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Source,
    Sink,
}

/// A source and a sink, one of them on storage that fails on command.
struct Bench {
    // Unmounted before the directory that it is in is removed.
    storage: FaultFs,
    world: World,
    at: At,
}

impl Bench {
    fn new(at: At) -> Option<Self> {
        if !has("rsync") {
            return None;
        }
        let world = World::new();
        let storage = FaultFs::mount(&world, "storage")?;
        fs::create_dir(storage.path("src")).unwrap();
        Some(Self { storage, world, at })
    }

    fn source(&self) -> PathBuf {
        match self.at {
            At::Source => self.storage.path("src"),
            At::Sink => self.world.source(),
        }
    }

    fn target(&self) -> PathBuf {
        match self.at {
            At::Source => self.world.target(),
            At::Sink => self.storage.path("dst"),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.source().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn cp(&self, options: &[&str]) -> std::process::Command {
        let mut command = lads(options);
        command.arg(AS_RSYNC);
        command.args(["--lab", "block-size=64K"]);
        command.arg(format!("{}/", self.source().display())).arg(self.target());
        command
    }

    /// Runs the same command when the storage works again, and checks that it does the rest.
    fn finishes(&self) {
        self.storage.command("clear");
        run(self.cp(&[])).expect(0);
        assert_identical(&self.source(), &self.target());
        assert_nothing_left_over(&self.target());
    }
}

/// The calls of each end that may fail, and the possible errors.
const SINK_CALLS: [&str; 20] = [
    "mkdir",
    "create",
    "write",
    "fsync",
    "fdatasync",
    "fsyncdir",
    "rename",
    "setxattr",
    "removexattr",
    "setattr",
    "truncate",
    "fallocate",
    "unlink",
    "symlink",
    "link",
    "open",
    "opendir",
    "lookup",
    "getattr",
    "listxattr",
];
const SINK_ERRORS: [(&str, i64); 6] =
    [("EIO", 5), ("ENOSPC", 28), ("EDQUOT", 122), ("EROFS", 30), ("ESTALE", 116), ("ENOMEM", 12)];
const SOURCE_CALLS: [&str; 10] = [
    "opendir",
    "readdir",
    "open",
    "read",
    "getattr",
    "lookup",
    "readlink",
    "listxattr",
    "getxattr",
    "lseek",
];
/// Without EPERM and EACCES, because attributes that need privilege are then left out silently.
const SOURCE_ERRORS: [(&str, i64); 5] =
    [("EIO", 5), ("ESHUTDOWN", 108), ("ETIMEDOUT", 110), ("ENOMEM", 12), ("EINVAL", 22)];
/// Calls whose failure must not go unnoticed: data counts as durable only if they succeed.
const SYNCS: [&str; 3] = ["fsync", "fdatasync", "fsyncdir"];

#[test]
fn an_error_of_the_sink_is_told_and_the_rest_arrives() {
    for_seeds(12, 600, |seed| {
        let mut rng = Rng::new(seed);
        let call = SINK_CALLS[rng.below(SINK_CALLS.len())];
        let error = SINK_ERRORS[rng.below(SINK_ERRORS.len())];
        fails(&mut rng, At::Sink, call, error);
    });
}

#[test]
fn an_error_of_the_source_is_told_and_the_rest_arrives() {
    for_seeds(8, 400, |seed| {
        let mut rng = Rng::new(seed);
        let call = SOURCE_CALLS[rng.below(SOURCE_CALLS.len())];
        let error = SOURCE_ERRORS[rng.below(SOURCE_ERRORS.len())];
        fails(&mut rng, At::Source, call, error);
    });
}

#[test]
fn an_attribute_that_may_not_be_read_is_told() {
    let Some(bench) = Bench::new(At::Source) else { return };
    for name in ["a", "noted"] {
        bench.write(name, b"data");
    }
    set_xattr(&bench.source().join("noted"), b"user.note", b"kept");
    bench.storage.command("fail getxattr EACCES path=noted");
    let ended = run(bench.cp(&[]));
    is_told(&ended, At::Source, 13);
    the_rest_arrived(&bench, &ended, &bench.storage.log());
    bench.finishes();
}

/// A regression test: a temporary file whose space could not be reserved was never removed.
#[test]
fn a_file_that_could_not_be_prepared_leaves_nothing_over() {
    // Reserved space already has the right length, so there is nothing to lengthen.
    for (call, options) in [("truncate", &["--sink=preallocate=no"][..]), ("fallocate", &[])] {
        let Some(bench) = Bench::new(At::Sink) else { return };
        bench.write("large", &Rng::new(1).bytes(300_000));
        bench.storage.command(&format!("fail {call} EIO"));
        run(bench.cp(options)).expect(6);
        bench.finishes();
    }
}

/// Runs with an error in one kind of call, once or repeatedly.
fn fails(rng: &mut Rng, at: At, call: &str, (name, errno): (&str, i64)) {
    let Some(bench) = Bench::new(at) else { return };
    grow(rng, &bench.source(), &Scale::SMALL);
    bench.write("large", &rng.bytes(700_000));
    let turn = match rng.below(5) {
        0 => String::new(),
        1 => format!("percent=30 seed={}", rng.below(1000)),
        _ => format!("nth={}", 1 + rng.below(15)),
    };
    let rule = format!("fail {call} {name} {turn}");
    let shown = crate::world::ShownOnFailure(rule.clone());
    bench.storage.command(&rule);
    let ended = run(bench.cp(&[]));
    bench.storage.command("clear");
    let harms = bench.storage.log();
    if ended.code == Some(0) {
        let is_harmed_unseen = SYNCS.contains(&call) && !harms.is_empty();
        assert!(!is_harmed_unseen, "a failed {call} was not told: {ended:?}");
        assert_identical(&bench.source(), &bench.target());
    } else {
        assert!(!harms.is_empty(), "nothing was wrong: {ended:?}");
        is_told(&ended, at, errno);
        the_rest_arrived(&bench, &ended, &harms);
    }
    bench.finishes();
    drop(shown);
}

/// Checks that the exit code and the messages fit the error.
fn is_told(ended: &Ended, at: At, errno: i64) {
    let (side, code) = match at {
        At::Source => ("source", 3),
        At::Sink => ("sink", 6),
    };
    let issues = ended.events_of("issue");
    let name = lads_core::errno::name(i32::try_from(errno).unwrap()).unwrap();
    let is_said = |text: &str| text.contains(&format!("({name})"));
    let is_fatal = ended.summary()["message"].as_str().is_some_and(is_said);
    let is_listed = issues.iter().any(|issue| issue["errno"].as_i64() == Some(errno));
    assert!(is_fatal || is_listed, "error {errno} is not told: {ended:?}");
    // If a second look at a file of the source fails, the file counts as changed.
    let is_code = ended.code == Some(code) || at == At::Source && ended.code == Some(8);
    assert!(is_code, "{ended:?}");
    for issue in issues {
        assert_eq!(issue["side"], side, "{issue}");
        for key in ["path", "message", "advice", "operation"] {
            assert!(!issue[key].as_str().unwrap().is_empty(), "{issue}");
        }
    }
}

/// Checks that all files that were not reported as failed are there, and that none is wrong. Only
/// if the transfer could not go on at all may files be missing without a report.
fn the_rest_arrived(bench: &Bench, ended: &Ended, harms: &[Value]) {
    let is_fatal = !ended.summary()["message"].is_null();
    if is_fatal {
        let is_excused = harms.iter().any(ends_a_transfer);
        assert!(is_excused, "one error ended it all: {harms:?} {ended:?}");
    }
    let failed: Vec<PathBuf> = ended.events_of("issue").iter().map(path_of).collect();
    let (source, target) = (bench.source(), bench.target());
    visit(&source, &mut |path, metadata| {
        let there = target.join(path.strip_prefix(&source).unwrap());
        let has_failed =
            failed.iter().any(|failed| path.starts_with(failed) || there.starts_with(failed));
        if !metadata.is_file() || is_fatal && !there.exists() || has_failed {
            return;
        }
        assert!(there.exists(), "{} is missing, and not told: {ended:?}", there.display());
        assert_eq!(hash_of(&there), hash_of(path), "{}: {ended:?}", there.display());
    });
    nothing_else_is_there(&target, &source);
}

/// Returns whether a transfer may end because of this fault. It needs the journal and the two
/// directories, and it is a matter of chance which file does not fit on a full file system.
fn ends_a_transfer(harm: &Value) -> bool {
    let path = harm["path"].as_str().unwrap();
    let is_full = matches!(harm["errno"].as_i64(), Some(28 | 122));
    path.contains(".journal") || matches!(path, "" | "src" | "dst" | "src/" | "dst/") || is_full
}

/// Returns the path in an issue, whether it is text or not.
fn path_of(issue: &Value) -> PathBuf {
    let Some(hex) = issue["path_hex"].as_str() else {
        return PathBuf::from(issue["path"].as_str().unwrap());
    };
    let digits = (0..hex.len()).step_by(2);
    let bytes = digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
    PathBuf::from(OsStr::from_bytes(&bytes.collect::<Vec<_>>()))
}

fn nothing_else_is_there(target: &Path, source: &Path) {
    visit(target, &mut |path, metadata| {
        let below = path.strip_prefix(target).unwrap();
        let wanted = source.join(below);
        if metadata.is_file() && !is_own_name(path) {
            assert_eq!(hash_of(path), hash_of(&wanted), "{} is wrong", path.display());
        }
    });
}

#[test]
fn what_cannot_be_written_is_told_with_its_place() {
    let Some(bench) = Bench::new(At::Sink) else { return };
    for name in ["a", "large", "z"] {
        bench.write(name, &Rng::new(1).bytes(if name == "large" { 300_000 } else { 10 }));
    }
    bench.storage.command("fail write ENOSPC from=3 path=*.part");
    let ended = run(bench.cp(&["--sink", "io=buffered", "--streams", "1"]));
    let issues = ended.events_of("issue");
    let issue = issues.iter().find(|issue| issue["block_offset"].is_u64()).unwrap();
    assert_eq!(ended.code, Some(6), "{ended:?}");
    assert_eq!((&issue["errno_name"], &issue["operation"]), (&"ENOSPC".into(), &"write".into()));
    assert!(issue["advice"].as_str().unwrap().contains("free space"), "{issue}");
    assert!(issue["path"].as_str().unwrap().starts_with(bench.target().to_str().unwrap()));
    bench.finishes();
}

#[test]
fn one_read_error_costs_one_file() {
    const COUNT: u64 = 200;
    let Some(bench) = Bench::new(At::Source) else { return };
    let bytes_of = |number: u64| Rng::new(number).bytes(1000);
    for number in 0..COUNT {
        bench.write(&format!("file{number}"), &bytes_of(number));
    }
    bench.storage.command("fail read EIO path=file77");
    let ended = run(bench.cp(&[])).expect(3);
    let issue = ended.issue();
    assert!(issue["path"].as_str().unwrap().ends_with("/file77"), "{issue}");
    assert_eq!((&issue["operation"], &issue["errno"]), (&"read".into(), &5.into()));
    let arrived = (0..COUNT).filter(|number| {
        let there = fs::read(bench.target().join(format!("file{number}")));
        there.is_ok_and(|there| there == bytes_of(*number))
    });
    assert_eq!(arrived.collect::<Vec<_>>(), (0..COUNT).filter(|it| *it != 77).collect::<Vec<_>>());
    assert!(!bench.target().join("file77").exists());
    bench.finishes();
}

/// The first half is read before the file changes, the second half after. Only a second look at the
/// file shows that.
#[test]
fn a_file_of_one_block_that_changes_while_it_is_read_is_read_again() {
    let Some(bench) = Bench::new(At::Source) else { return };
    let (before, after) = (Rng::new(1).bytes(50_000), Rng::new(2).bytes(50_000));
    bench.write("small", &before);
    bench.storage.command("short read path=small nth=1\nhang read path=small nth=2");
    let running = start(bench.cp(&["--source", "io=buffered"]));
    bench.storage.wait_for_fault("hang");
    // Write past the mount, because a call hangs on it.
    fs::write(bench.world.path("storage.below/src/small"), &after).unwrap();
    bench.storage.command("release");
    running.end().expect(0);
    assert!(fs::read(bench.target().join("small")).unwrap() == after, "it is mixed");
    bench.finishes();
}

#[test]
fn short_reads_and_writes_change_nothing() {
    for at in [At::Source, At::Sink] {
        for_seeds(2, 60, |seed| {
            let Some(bench) = Bench::new(at) else { return };
            let mut rng = Rng::new(seed);
            grow(&mut rng, &bench.source(), &Scale::SMALL);
            bench.write("large", &rng.bytes(1 << 20));
            bench.storage.command(&format!("short read,write percent=60 seed={seed}"));
            let uncached = ["--source", "io=uncached", "--sink", "io=uncached"];
            let ways: [&[&str]; 4] =
                [&[], &["--verify", "media"], &["--sink", "io=direct"], &uncached];
            let ended = run(bench.cp(ways[rng.below(ways.len())])).expect(0);
            assert!(!bench.storage.log().is_empty(), "nothing was short");
            assert_eq!(ended.count("blocks_resent"), 0, "{ended:?}");
            bench.finishes();
        });
    }
}

#[test]
fn a_file_is_read_back_though_all_that_was_granted_waits_to_be_written() {
    let Some(bench) = Bench::new(At::Sink) else { return };
    for number in 0..20 {
        bench.write(&format!("file{number}"), &Rng::new(number).bytes(1 << 16));
    }
    // The only I/O thread is about to read back the first file, so later blocks have to wait for
    // it.
    bench.storage.command("delay write 20\nhang fsync nth=1 path=*.part");
    let memory = ["--sink", "buffers=256K", "--sink", "threads=1"];
    let rest = ["--verify", "media", "--lab=journal=no", "--progress=1"];
    let running = start(bench.cp(&[memory.as_slice(), &rest].concat()));
    bench.storage.wait_for_fault("hang");
    wait_for("three more files, for four buffers", || {
        (running.bytes_sent() >= 4 << 16).then_some(())
    });
    bench.storage.command("release");
    running.end().expect(0);
    bench.finishes();
}

#[test]
fn storage_that_takes_longer_than_the_timeout_is_not_taken_for_a_dead_peer() {
    for (at, call) in [(At::Sink, "write"), (At::Source, "read")] {
        let Some(bench) = Bench::new(at) else { return };
        for number in 0..20 {
            bench.write(&format!("file{number}"), &Rng::new(number).bytes(100_000));
        }
        bench.storage.command(&format!("delay {call} 1500 nth=5"));
        run(bench.cp(&["--timeout", "1"])).expect(0);
        assert!(!bench.storage.log().is_empty());
        bench.finishes();
    }
}

#[test]
fn a_bit_that_flips_at_rest_is_found_when_it_is_read_back() {
    let Some(bench) = Bench::new(At::Sink) else { return };
    bench.write("large", &Rng::new(1).bytes(1 << 20));
    // When the file is to be made durable, everything is written and nothing has been read back.
    bench.storage.command("hang fsync nth=1 path=*.part");
    let running = start(bench.cp(&["--verify", "media"]));
    let part = bench.storage.wait_for_fault("hang")["path"].as_str().unwrap().to_owned();
    bench.storage.command(&format!("flip {part} 300000 5\nrelease"));
    let ended = running.end().expect(0);
    assert_eq!(ended.count("blocks_resent"), 1, "{ended:?}");
    bench.finishes();
}
