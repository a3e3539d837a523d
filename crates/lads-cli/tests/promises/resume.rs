//! An interrupted transfer goes on where it was: nothing finished is sent again, nothing is lost.

use crate::faultfs::FaultFs;
use crate::tree::{self, is_own_name, visit};
use crate::world::{
    Ended, Rng, Running, Stopwatch, World, assert_identical, blocks_on_record, byte_count,
    for_seeds, has, lads, run, send_signal, sends_nothing_again, start, there, wait_for,
    wait_until_gone,
};
use lads_core::journal::replay;
use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LARGE_BYTES: usize = 12 << 20;
/// Fast enough for a quick test, slow enough to be stopped in the middle.
const PACE: &[&str] = &["--bwlimit", "40M", "--lab", "block-size=256K"];
const BLOCK_BYTES: u64 = 256 << 10;
/// The most data that may be in progress when an end stops: what this pace moves in a tenth of a
/// second. Two tenths have not been seen. All files take about a second, and some files only three
/// tenths.
const UNDER_WAY_BYTES_MAX: u64 = 16 * BLOCK_BYTES;

#[test]
fn after_kill_9_of_either_end_or_both_the_same_command_resumes() {
    if !has("rsync") {
        return;
    }
    for_seeds(8, 50, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        let total = fill(&mut rng, &world);
        let mut killed = start(world.cp(PACE));
        let (source, sink) = (killed.pid(), killed.other_end());
        killed.runs_until_written(sink, rng.next() % total);
        let (kills_source, kills_sink) = [(true, false), (false, true), (true, true)][rng.below(3)];
        if kills_source {
            send_signal(source, "KILL");
        }
        if kills_sink {
            send_signal(sink, "KILL");
        }
        let ended = killed.end();
        if !kills_source {
            assert_eq!(ended.code, Some(5), "{ended:?}");
        }
        wait_until_gone(sink);
        if !kills_sink {
            Done::at(&world.target()).is_all_on_record();
        }
        resumes(&world, total);
    });
}

#[test]
fn a_signal_leaves_a_state_that_can_be_resumed_within_5_s() {
    if !has("rsync") {
        return;
    }
    for_seeds(4, 40, |seed| {
        let mut rng = Rng::new(seed);
        let world = World::new();
        let total = fill(&mut rng, &world);
        let mut stopped = start(world.cp(PACE));
        let sink = stopped.other_end();
        assert!(stopped.runs_until_written(sink, rng.next() % (total / 2)), "over before stopped");
        let asked = Stopwatch::start();
        stopped.signal(rng.pick(&["TERM", "INT"]));
        stopped.end().expect(9);
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        wait_until_gone(sink);
        Done::at(&world.target()).is_all_on_record();
        resumes(&world, total);
    });
}

/// A regression test: the blocks on record are longer than any buffer of the second attempt, which
/// reads them back. This used to end in a panic.
#[test]
fn what_is_gone_on_with_in_smaller_blocks_is_read_back_from_storage() {
    if !has("rsync") {
        return;
    }
    let world = World::on_disk();
    let mut rng = Rng::new(1);
    world.write("src/large", &rng.bytes(3 * LARGE_BYTES));
    let mut stopped = start(world.cp(&["--bwlimit", "40M", "--lab", "block-size=4M"]));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, LARGE_BYTES as u64), "over before stopped");
    stopped.signal("TERM");
    stopped.end().expect(9);
    wait_until_gone(sink);
    let ended = run(world.cp(&["--lab", "block-size=64K", "--verify", "media"])).expect(0);
    assert!(ended.count("bytes_skipped") >= 4 << 20, "{ended:?}");
    assert_identical(&world.source(), &world.target());
    tree::assert_nothing_left_over(&world.target());
}

/// Makes some large files and many small ones; returns the total number of bytes.
fn fill(rng: &mut Rng, world: &World) -> u64 {
    let mut total = 0;
    let sizes = (0..3).map(|_| LARGE_BYTES).chain((0..80).map(|_| 30_000)).collect::<Vec<_>>();
    for (number, size) in sizes.into_iter().enumerate() {
        let size = size / 2 + rng.below(size);
        world.write(format!("src/d{}/f{number}", number % 7), &rng.bytes(size));
        total += size as u64;
    }
    total
}

/// Asserts that the same command sends what is missing, and nothing else.
fn resumes(world: &World, total: u64) -> Ended {
    let done = Done::at(&world.target());
    let ended = run(world.cp(&["--lab", "block-size=256K"])).expect(0);
    let sent = ended.count("bytes_sent");
    let missing = total - done.final_bytes - done.recorded_bytes;
    assert_eq!(sent, missing, "of {total} there were {done:?}: {ended:?}");
    assert_eq!(ended.count("files_skipped"), done.files, "{ended:?}");
    assert_identical(&world.source(), &world.target());
    tree::assert_nothing_left_over(&world.target());
    ended
}

/// What an interrupted transfer left.
#[derive(Debug, Default)]
struct Done {
    files: u64,
    final_bytes: u64,
    recorded_bytes: u64,
    /// The bytes of unfinished files.
    part_bytes: u64,
}

impl Done {
    fn at(target: &Path) -> Self {
        let mut done = Self::default();
        visit(target, &mut |path, metadata| {
            let name = path.file_name().unwrap().as_bytes();
            if name.ends_with(b".journal") {
                let files = replay(&fs::read(path).unwrap()).files;
                // The journal no longer matters for a file that has its final name.
                let unfinished = files.iter().filter(|(path, _)| {
                    let path = std::ffi::OsStr::from_bytes(path);
                    target.join(path).symlink_metadata().is_err()
                });
                done.recorded_bytes = unfinished.map(|(_, begun)| begun.done().byte_count()).sum();
            } else if metadata.is_file() && !is_own_name(path) {
                done.files += 1;
                done.final_bytes += metadata.len();
            } else if metadata.is_file() {
                done.part_bytes += tree::data_bytes(path);
            }
        });
        done
    }

    /// Asserts that a sink that was not killed has put on record what it has written, except for
    /// what was still in progress.
    #[track_caller]
    fn is_all_on_record(&self) {
        let most = self.recorded_bytes + UNDER_WAY_BYTES_MAX;
        assert!(self.part_bytes <= most, "written and not on record: {self:?}");
    }
}

/// A transfer that waits for one block of `src/large`; all other blocks are on record.
struct Waiting {
    // Unmounted before the directory that they are in is removed.
    source: FaultFs,
    sink: FaultFs,
    world: World,
    running: Running,
}

impl Waiting {
    fn new() -> Option<Self> {
        let world = World::new();
        let (source, sink) = (FaultFs::mount(&world, "source")?, FaultFs::mount(&world, "sink")?);
        fs::write(source.path("large"), Rng::new(9).bytes(LARGE_BYTES)).unwrap();
        source.command("hang read path=large nth=20");
        let running = start(Self::command(&source, &sink));
        wait_for("all blocks but one to be on record", || {
            let bytes = byte_count(&blocks_on_record(&sink.path("dst"), "large"));
            (bytes == LARGE_BYTES as u64 - BLOCK_BYTES).then_some(())
        });
        Some(Self { source, sink, world, running })
    }

    fn command(source: &FaultFs, sink: &FaultFs) -> Command {
        let mut command = lads(&["--lab", "block-size=256K", "--source", "io=buffered"]);
        // No read is shorter than a block, as reads of slow tracks are otherwise.
        command.args(["--lab", "schedule=layout"]);
        command.arg(format!("{}/", source.path("").display())).arg(sink.path("dst"));
        command
    }
}

/// Asserts that the same command sends only the one missing block.
fn one_block_is_missing(source: &FaultFs, sink: &FaultFs) {
    let ended = run(Waiting::command(source, sink)).expect(0);
    assert_eq!(ended.count("bytes_sent"), BLOCK_BYTES, "{ended:?}");
    assert!(fs::read(sink.path("dst/large")).unwrap() == Rng::new(9).bytes(LARGE_BYTES));
    tree::assert_nothing_left_over(&sink.path("dst"));
}

#[test]
fn what_is_on_record_when_both_ends_are_killed_is_not_sent_again() {
    let Some(Waiting { world: _world, source, sink, running }) = Waiting::new() else { return };
    running.kill_both_ends(|| source.command("release"));
    one_block_is_missing(&source, &sink);
}

#[test]
fn what_arrived_of_a_file_that_failed_is_not_sent_again() {
    let Some(Waiting { world: _world, source, sink, running }) = Waiting::new() else { return };
    sink.command("fail write EIO path=*.part");
    source.command("release");
    let ended = running.end().expect(6);
    assert_eq!(ended.issue()["operation"], "write", "{ended:?}");
    sink.command("clear");
    one_block_is_missing(&source, &sink);
}

/// Nothing that was reported as done is sent again, no matter which end reported it or when.
#[test]
fn what_was_told_as_done_is_not_sent_again() {
    let world = World::new();
    let total = fill(&mut Rng::new(4), &world);
    let mut stopped = start(world.cp(PACE));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, total / 3), "over before stopped");
    stopped.signal("TERM");
    let stopped = stopped.end().expect(9);
    wait_until_gone(sink);
    assert!(stopped.count("bytes_done") > 0, "{stopped:?}");
    let ended = run(world.cp(&["--lab", "block-size=256K"])).expect(0);
    sends_nothing_again(&stopped, &ended);
}

/// Ways to change the bytes of a file between two attempts that keep its size.
const CHANGES: [fn(&Path, &[u8]); 3] = [
    |path, bytes| fs::write(path, bytes).unwrap(),
    // Only the inode's change time, which the system sets itself, shows this change.
    |path, bytes| {
        let before = fs::metadata(path).unwrap();
        fs::write(path, bytes).unwrap();
        tree::set_mtime(path, before.mtime(), before.mtime_nsec());
    },
    |path, bytes| {
        let before = fs::metadata(path).unwrap();
        let other = path.with_file_name("../other");
        fs::write(&other, bytes).unwrap();
        tree::set_mtime(&other, before.mtime(), before.mtime_nsec());
        fs::rename(other, path).unwrap();
    },
];

#[test]
fn a_file_that_changed_between_two_attempts_begins_anew() {
    for change in CHANGES {
        let world = World::new();
        let path = world.write("src/large", &Rng::new(5).bytes(LARGE_BYTES));
        let mut stopped = start(world.cp(PACE));
        let sink = stopped.other_end();
        assert!(stopped.runs_until_written(sink, 2 << 20), "over before stopped");
        stopped.signal("TERM");
        stopped.end().expect(9);
        assert!(!blocks_on_record(&world.target(), "large").is_empty());
        let bytes = Rng::new(6).bytes(LARGE_BYTES);
        change(&path, &bytes);
        let ended = run(world.cp(&[])).expect(0);
        assert!(fs::read(world.target().join("large")).unwrap() == bytes, "{ended:?}");
        assert_eq!(ended.count("bytes_sent"), LARGE_BYTES as u64, "{ended:?}");
        tree::assert_nothing_left_over(&world.target());
    }
}

#[test]
fn a_dead_peer_is_noticed() {
    let world = World::new();
    fill(&mut Rng::new(1), &world);
    let options = [PACE, &["--timeout", "2"]].concat();
    let mut running = start(world.cp(&options));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    send_signal(sink, "STOP");
    let lost = notices_silence(running, sink);
    let ended = run(world.cp(&["--lab", "block-size=256K"])).expect(0);
    assert_eq!(ended.count("files_failed"), 0);
    sends_nothing_again(&lost, &ended);
}

#[test]
fn a_dead_peer_is_noticed_even_if_it_still_had_to_be_told_much() {
    let world = World::new();
    let long = "x".repeat(200);
    for number in 0..3000 {
        world.write(format!("src/{long}{number}"), b"small");
    }
    let running = start(world.cp(&["--timeout", "2"]));
    let sink = running.other_end();
    // Once the journal exists, every message is sent as fast as the other end reads.
    let is_begun = || fs::read_dir(world.target()).ok()?.next().map(drop);
    wait_for("the journal", is_begun);
    send_signal(sink, "STOP");
    notices_silence(running, sink);
}

#[test]
fn a_signal_is_heeded_while_the_other_end_is_silent_before_it_begins() {
    let world = World::new();
    world.write("src/a", b"a");
    let shell = world.fake_shell("echo started >&2; exec sleep 50");
    let mut command = there(&shell);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let running = start(command);
    // In this phase a user could be asked for a password.
    running.other_end();
    wait_for("the shell to start", || running.has_said("started").then_some(()));
    running.signal("TERM");
    let since = Stopwatch::start();
    running.end().expect(9);
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[test]
fn a_peer_that_greets_and_says_no_more_is_noticed() {
    let world = World::new();
    world.write("src/a", b"a");
    // The other end receives nothing. It sends HELLO; if it was told what to do, LISTEN, too.
    for (words, said) in [("\"$1\" \"$2\"", "sent nothing"), ("\"$@\"", "no heartbeat")] {
        let shell = world.fake_shell(&format!("shift; sleep 50 | {words}"));
        let mut command = there(&shell);
        command.args(["--timeout", "1", "--connect-timeout", "60"]).arg(world.source_contents());
        command.arg(format!("there:{}", world.target().display()));
        run(command).expect(5).says(&[said]).within(Duration::from_secs(20));
    }
}

#[test]
fn a_dead_source_of_a_pull_is_noticed() {
    let world = World::new();
    fill(&mut Rng::new(2), &world);
    let shell = world.fake_shell(crate::world::RUN_HERE);
    let mut command = there(&shell);
    command.args(PACE).args(["--timeout", "2"]);
    command.arg(format!("there:{}", world.source_contents())).arg(world.target());
    let mut running = start(command);
    let (sink, source) = (running.pid(), running.other_end());
    assert!(running.runs_until_written(sink, 1 << 20));
    send_signal(source, "STOP");
    notices_silence(running, source);
}

fn notices_silence(running: Running, stopped: u32) -> Ended {
    let since = Stopwatch::start();
    let ended = running.end();
    let elapsed = since.elapsed();
    send_signal(stopped, "KILL");
    send_signal(stopped, "CONT");
    assert_eq!(ended.code, Some(5), "{ended:?}");
    assert!(elapsed < Duration::from_millis(4500), "noticed after {elapsed:?}: {ended:?}");
    wait_until_gone(stopped);
    ended
}

/// A regression test: the check was whether the directory gives an ACL now, not whether it gave one
/// then.
#[test]
fn a_file_that_goes_on_keeps_no_acl_that_its_directory_gave_it() {
    const DEFAULT_ACL: &str = "system.posix_acl_default";
    if !has("rsync") {
        return;
    }
    let world = World::new();
    world.write("src/below/large", &Rng::new(1).bytes(LARGE_BYTES));
    let directory = world.target().join("below");
    fs::create_dir_all(&directory).unwrap();
    tree::set_acl(&directory, DEFAULT_ACL.as_bytes(), &mut Rng::new(1));
    let mut stopped = start(world.cp(PACE));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, 2 << 20), "over before stopped");
    stopped.signal("TERM");
    stopped.end().expect(9);
    rustix::fs::removexattr(&directory, DEFAULT_ACL).unwrap();
    let ended = run(world.cp(&[])).expect(0);
    assert!(ended.count("bytes_skipped") > 0, "it began anew: {ended:?}");
    assert_identical(&world.source(), &world.target());
}

/// A regression test: the directory already had its time of change, and lost it.
#[test]
fn what_was_begun_of_a_file_that_is_gone_is_removed_without_a_trace() {
    if !has("rsync") {
        return;
    }
    let world = World::new();
    world.write("src/below/large", &Rng::new(1).bytes(LARGE_BYTES));
    let mut stopped = start(world.cp(PACE));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, 2 << 20), "over before stopped");
    stopped.signal("TERM");
    stopped.end().expect(9);
    let mut begun = 0;
    visit(&world.target().join("below"), &mut |path, _| begun += usize::from(is_own_name(path)));
    assert_eq!(begun, 1);
    fs::remove_file(world.source().join("below/large")).unwrap();
    tree::set_mtime(&world.source().join("below"), 1_000_000_000, 0);
    run(world.cp(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
    tree::assert_nothing_left_over(&world.target());
}

#[test]
fn a_second_identical_command_is_refused_while_the_first_runs() {
    let world = World::new();
    fill(&mut Rng::new(3), &world);
    // It takes longer than the second command waits for the first to end.
    let mut first = start(world.cp(&["--bwlimit", "10M", "--lab", "block-size=256K"]));
    let sink = first.other_end();
    assert!(first.runs_until_written(sink, 2 << 20));
    run(world.cp(&[])).expect(12).says(&["already running"]).within(Duration::from_secs(2));
    first.end().expect(0);
    let hashes = |root: &Path| {
        let mut hashes = HashMap::new();
        visit(root, &mut |path, metadata| {
            if metadata.is_file() {
                hashes.insert(path.strip_prefix(root).unwrap().to_owned(), tree::hash_of(path));
            }
        });
        hashes
    };
    assert_eq!(hashes(&world.source()), hashes(&world.target()));
}

/// The second attempt compares the blocks, because the part was changed, and is killed before it
/// receives anything. The third attempt must not trust the blocks that were found to be damaged.
#[test]
fn a_damaged_block_is_off_the_record_before_anything_else_is_recorded() {
    let world = World::new();
    let Some(source) = FaultFs::mount(&world, "src") else { return };
    let bytes = Rng::new(3).bytes(LARGE_BYTES);
    world.write("src.below/large", &bytes);
    let mut running = start(world.cp(PACE));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 4 << 20));
    running.signal("TERM");
    running.end().expect(9);
    let recorded = blocks_on_record(&world.target(), "large");
    let damaged = recorded[recorded.len() / 2].offset;
    let mut part = None;
    visit(&world.target(), &mut |path, _| {
        if path.extension().is_some_and(|it| it == "part") {
            part = Some(path.to_owned());
        }
    });
    let part = fs::File::options().write(true).open(part.expect("it was stopped")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&part, b"damage", damaged).unwrap();
    drop(part);
    source.command("hang read path=large");
    let running = start(world.cp(PACE));
    source.wait_for_fault("hang");
    running.kill_both_ends(|| source.command("clear"));
    let left = blocks_on_record(&world.target(), "large");
    assert!(left.iter().all(|block| block.offset != damaged), "{damaged}: {left:?}");
    assert_eq!(left.len(), recorded.len() - 1);
    run(world.cp(PACE)).expect(0);
    assert_eq!(fs::read(world.target().join("large")).unwrap(), bytes);
}
