//! A power cut at the sink: all that was reported as done is there, and nothing is wrong.

use crate::faultfs::{FaultFs, torn};
use crate::tree::{Scale, assert_nothing_left_over, grow, set_mtime, set_xattr};
use crate::world::{
    AS_RSYNC, Ended, Rng, Running, World, assert_identical, for_seeds, has, is_root, lads, run,
    start, wait_for, wait_until_gone,
};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A source, and a sink whose power can be cut.
struct Bench {
    // Unmounted before the directory that it is in is removed.
    sink: FaultFs,
    world: World,
}

impl Bench {
    fn new() -> Option<Self> {
        if !has("rsync") {
            return None;
        }
        let world = World::new();
        let sink = FaultFs::mount(&world, "sink")?;
        Some(Self { sink, world })
    }

    fn target(&self) -> PathBuf {
        self.sink.path("dst")
    }

    fn cp(&self, options: &[&str]) -> Command {
        let mut command = lads(options);
        command.arg(AS_RSYNC);
        command.args(["--lab", "block-size=64K"]);
        command.arg(self.world.source_contents()).arg(self.target());
        command
    }

    /// Starts the command, and waits until this rule has done harm; returns `None` if the command
    /// ended before that.
    fn starts_until(&self, rule: &str, options: &[&str]) -> Option<Running> {
        self.sink.command(rule);
        let harms = self.sink.log().len();
        let mut running = start(self.cp(options));
        let is_harmed = wait_for("harm, or the end", || {
            let is_running = running.is_running();
            let is_harmed = self.sink.log().len() > harms;
            (is_harmed || !is_running).then_some(is_harmed)
        });
        if is_harmed {
            return Some(running);
        }
        running.end().expect(0);
        None
    }

    /// Stops a run whose calls hang.
    fn stops(&self, running: Running) -> Ended {
        let sink = running.other_end();
        running.signal("TERM");
        self.sink.command("release");
        let ended = running.end();
        wait_until_gone(sink);
        ended
    }

    /// Checks that the command ends with 0, and that all that it reported as done survives a power
    /// cut.
    fn arrives_durably(&self, options: &[&str], tear: Option<u64>) -> Ended {
        let ended = run(self.cp(options)).expect(0);
        self.sink.power_cycle(tear);
        assert_identical(&self.world.source(), &self.target());
        assert_nothing_left_over(&self.target());
        ended
    }
}

fn maybe_torn(rng: &mut Rng) -> Option<u64> {
    if rng.is_one_in(2) { Some(rng.next()) } else { None }
}

#[test]
fn what_exit_0_said_is_there_after_a_power_cut() {
    for_seeds(6, 150, |seed| {
        let Some(bench) = Bench::new() else { return };
        let mut rng = Rng::new(seed);
        grow(&mut rng, &bench.world.source(), &Scale::SMALL);
        let large = rng.bytes(500_000);
        bench.world.write("src/large", &large);
        let ways: [&[&str]; 4] = [&[], &["--lab=journal=no"], &["--sink", "io=direct"], &["-I"]];
        bench.arrives_durably(ways[rng.below(ways.len())], maybe_torn(&mut rng));
        // Run once more, with something to replace and something to repair.
        let changed = bench.world.write("src/large", b"now small");
        set_mtime(&changed, 1_000_000_000, 5);
        bench.world.write("src/new/deep/file", b"new");
        fs::set_permissions(bench.world.source(), fs::Permissions::from_mode(0o750)).unwrap();
        bench.arrives_durably(&[], maybe_torn(&mut rng));
    });
}

#[test]
fn mended_metadata_is_durable() {
    let Some(bench) = Bench::new() else { return };
    let file = bench.world.write("src/file", b"data");
    bench.arrives_durably(&[], None);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o4711)).unwrap();
    set_xattr(&file, b"user.new", b"value");
    let ended = bench.arrives_durably(&[], None);
    assert_eq!(ended.count("bytes_sent"), 0, "{ended:?}");
}

#[test]
fn after_power_cuts_in_the_middle_the_same_command_ends_with_no_wrong_byte() {
    for_seeds(10, 400, survives_power_cuts);
}

fn survives_power_cuts(seed: u64) {
    let Some(bench) = Bench::new() else { return };
    let mut rng = Rng::new(seed);
    fill(&mut rng, &bench.world);
    for round in 0..=rng.below(3) {
        interrupt(&mut rng, &bench);
        if rng.is_one_in(3) {
            change_source(&mut rng, &bench.world, round);
        }
    }
    bench.arrives_durably(&[], maybe_torn(&mut rng));
}

/// Makes files of all sizes, some with holes.
fn fill(rng: &mut Rng, world: &World) {
    for number in 0..30 {
        let bytes_max = if number < 6 { 1 << 20 } else { 40_000 };
        let bytes = rng.below(bytes_max);
        let path = world.write(format!("src/d{}/f{number}", number % 4), &rng.bytes(bytes));
        if rng.is_one_in(5) {
            punch(rng, &path);
        }
        if rng.is_one_in(3) && rustix::process::geteuid().is_root() {
            chown(&path, Some(1234), None).unwrap();
        }
    }
}

/// Makes a hole in a file: the size stays, the bytes and the time of change do not.
fn punch(rng: &mut Rng, path: &Path) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let (offset, length) = (rng.below(bytes + 1) as u64, rng.below(bytes + 1) as u64 + 1);
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, mode, offset, length).unwrap();
}

/// Changes a file, and gives it a time of change that it never had before.
fn change_source(rng: &mut Rng, world: &World, round: usize) {
    let number = rng.below(30);
    let path = world.path(format!("src/d{}/f{number}", number % 4));
    let bytes = fs::metadata(&path).unwrap().len();
    match rng.below(3) {
        0 => punch(rng, &path),
        1 => fs::write(&path, rng.bytes(usize::try_from(bytes).unwrap())).unwrap(),
        _ => fs::write(&path, b"short").unwrap(),
    }
    set_mtime(&path, 1_600_000_000 + i64::try_from(round).unwrap(), 0);
}

/// Ends a run early: kills it, or asks it to stop and then cuts the power at the sink, or cuts the
/// power in the middle of it.
fn interrupt(rng: &mut Rng, bench: &Bench) {
    let tear = maybe_torn(rng);
    let nth = 1 + rng.below(60);
    let hang = format!("hang write path=*.part from={nth}");
    match rng.below(4) {
        0 => {
            if let Some(killed) = bench.starts_until(&hang, &[]) {
                killed.kill_both_ends(|| bench.sink.command("release"));
            }
            bench.sink.command("clear");
        }
        1 => {
            if let Some(stopped) = bench.starts_until(&hang, &[]) {
                // Everything may be done before the signal arrives.
                let ended = bench.stops(stopped);
                assert!(matches!(ended.code, Some(0 | 9)), "{ended:?}");
            }
            bench.sink.power_cycle(tear);
        }
        _ => {
            let kinds = ["any", "write", "fsync", "fdatasync", "rename", "create", "fsyncdir"];
            let cut = format!("cut {} nth={nth} {}", rng.pick(&kinds), torn(tear));
            if let Some(cut) = bench.starts_until(&cut, &[]) {
                cut.kill_both_ends(|| ());
            }
            bench.sink.power_cycle(tear);
        }
    }
}

/// A regression test. The journal had blocks of a file whose temporary file was lost with the
/// power. The next run began that file anew, and was killed before it put anything on record. The
/// run after that took the new temporary file for the old one, and zeros for the blocks on record.
#[test]
fn blocks_on_record_are_not_looked_for_in_a_temporary_file_begun_anew() {
    let Some(bench) = Bench::new() else { return };
    bench.world.write("src/large", &Rng::new(1).bytes(8 << 20));
    let slowly = ["--bwlimit", "16M"];
    let stopped = bench.starts_until("hang write path=*.part from=30", &slowly).unwrap();
    bench.stops(stopped).expect(9);
    bench.sink.power_cycle(None);
    let killed = bench.starts_until("hang write path=*.part from=3", &slowly).unwrap();
    killed.kill_both_ends(|| bench.sink.command("release"));
    bench.sink.command("clear");
    bench.arrives_durably(&[], None);
}

/// A regression test: a temporary file that had its final owner already was taken for another
/// user's and begun anew, but its blocks on record still counted as done.
#[test]
fn blocks_on_record_of_a_file_that_has_its_owner_are_not_taken_for_zeros() {
    let Some(bench) = Bench::new().filter(|_| is_root()) else { return };
    let large = bench.world.write("src/large", &Rng::new(2).bytes(8 << 20));
    chown(large, Some(1234), None).unwrap();
    let stopped =
        bench.starts_until("hang write path=*.part from=30", &["--bwlimit", "16M"]).unwrap();
    bench.stops(stopped).expect(9);
    bench.sink.command("settle");
    let killed = bench.starts_until("hang rename path=large", &[]).unwrap();
    killed.kill_both_ends(|| bench.sink.command("release"));
    // The command is killed during the rename, and the rename is lost with the power.
    bench.sink.power_cycle(None);
    bench.arrives_durably(&[], None);
}
