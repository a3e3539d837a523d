//! A command that is asked to stop ends within 5 seconds, whatever hangs at either end, and reports
//! what it did not wait for. The same command goes on when storage answers again.

use crate::faultfs::FaultFs;
use crate::tree::assert_nothing_left_over;
use crate::world::{
    AS_RSYNC, Ended, Rng, Running, Stopwatch, World, assert_identical, for_seeds, has, lads, run,
    start, wait_for, wait_until_gone,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// The promised time.
const PROMISED: Duration = Duration::from_secs(5);

/// A source and a sink on storage that hangs on command.
struct Bench {
    // Unmounted before the directory that it is in is removed.
    storage: FaultFs,
    _world: World,
}

impl Bench {
    /// Makes a bench with three files of a few blocks each.
    fn new() -> Option<Self> {
        if !has("rsync") {
            return None;
        }
        let world = World::new();
        let storage = FaultFs::mount(&world, "storage")?;
        fs::create_dir(storage.path("src")).unwrap();
        for number in 0..3 {
            let path = storage.path(format!("src/file{number}"));
            fs::write(path, Rng::new(number).bytes(1 << 20)).unwrap();
        }
        Some(Self { storage, _world: world })
    }

    fn source(&self) -> PathBuf {
        self.storage.path("src")
    }

    fn target(&self) -> PathBuf {
        self.storage.path("dst")
    }

    fn cp(&self, options: &[&str]) -> Command {
        let mut command = lads(options);
        command.args([AS_RSYNC, "--lab", "block-size=64K"]);
        command.arg(format!("{}/", self.source().display())).arg(self.target());
        command
    }

    /// Starts the command; returns when one of its calls hangs.
    fn hangs(&self, rule: &str) -> Running {
        self.storage.command(rule);
        let running = start(self.cp(&[]));
        self.storage.wait_for_fault(rule.split(' ').next().unwrap());
        running
    }

    /// Stops a command that hangs. Checks that it ends, and that the same command goes on when
    /// storage answers again.
    fn stops(&self, running: Running, signal: &str) -> Ended {
        let (moving, other) = (running.pid(), running.other_end());
        let asked = Stopwatch::start();
        running.signal(signal);
        let ended = running.end();
        let elapsed = asked.elapsed();
        assert!(elapsed < PROMISED, "it took {elapsed:?}: {ended:?}");
        self.storage.command("clear");
        [moving, other].into_iter().for_each(wait_until_gone);
        run(self.cp(&[])).expect(0);
        assert_identical(&self.source(), &self.target());
        assert_nothing_left_over(&self.target());
        ended
    }
}

/// Asserts that the user was told which end does not answer, and what it was asked for.
fn says_what_hangs(ended: &Ended, words: &[&str]) {
    let message = ended.summary()["message"].as_str().unwrap_or_default().to_owned();
    let notices = ended.events_of("notice").into_iter();
    let notices: Vec<String> = notices.map(|it| it["text"].as_str().unwrap().to_owned()).collect();
    let told = format!("{message}\n{}", notices.join("\n"));
    for word in words {
        assert!(told.contains(word), "{word:?} is not said: {ended:?}");
    }
}

#[test]
fn a_signal_is_heeded_although_a_call_to_storage_does_not_return() {
    for_seeds(5, 60, |seed| {
        let Some(bench) = Bench::new() else { return };
        let mut rng = Rng::new(seed);
        let hangs = [
            ("hang write path=*.part", ["at the sink", "write file"]),
            ("hang fsync path=*.part", ["at the sink", "make durable file"]),
            ("hang fdatasync path=*.part", ["at the sink", "make durable file"]),
            ("hang rename path=file1", ["at the sink", "rename into place file"]),
            ("hang create path=*.part", ["at the sink", "file"]),
            ("hang read path=src/file1", ["at the source", "read file1"]),
            ("hang open path=src/file2", ["at the source", "read file2"]),
            ("hang readdir path=src", ["at the source", "list "]),
            // These two hang before the transfer begins.
            ("hang opendir path=src", ["stopped", "before the transfer began"]),
            ("hang lookup path=dst", ["stopped", "had not stopped after 3 s"]),
        ];
        let (rule, words) = hangs[rng.below(hangs.len())];
        let running = bench.hangs(rule);
        let ended = bench.stops(running, rng.pick(&["TERM", "INT", "USR1"]));
        says_what_hangs(&ended.expect(9), &words);
    });
}

#[test]
fn a_signal_is_heeded_although_a_write_takes_12_s() {
    let Some(bench) = Bench::new() else { return };
    let running = bench.hangs("delay write 12000 path=*.part nth=3");
    let ended = bench.stops(running, "TERM").expect(9);
    says_what_hangs(
        &ended,
        &["at the sink", "write file", "can start when that call has returned"],
    );
}

/// The keyboard sends a signal to both processes of a command. Before the second one exists, the
/// signal ends the first; after that, the transfer stops as documented.
#[test]
fn a_signal_that_comes_at_the_start_stops_the_transfer_or_comes_before_it() {
    let world = World::new();
    world.write("src/file", &[7; 1 << 20]);
    for step in 0..60 {
        let mut copy = world.cp(&["--bwlimit=6M"]).process_group(0).spawn().unwrap();
        // This does not wait for an event: the signal comes a little later in each step.
        thread::sleep(Duration::from_micros(200) * step);
        kill_process_group(Pid::from_child(&copy), Signal::TERM).unwrap();
        let status = copy.wait().unwrap();
        let is_documented = matches!(status.code(), Some(0 | 9)) || status.signal() == Some(15);
        assert!(is_documented, "{status} after {step} steps");
    }
}

#[test]
fn a_second_interrupt_ends_it_at_once_whatever_hangs() {
    for rule in ["hang read path=src/file1", "hang write path=*.part"] {
        let Some(bench) = Bench::new() else { return };
        let mut running = bench.hangs(rule);
        let (moving, other) = (running.pid(), running.other_end());
        let asked = Stopwatch::start();
        // Signals of one kind that come close together may arrive as one, so send it again.
        wait_for("the end", || {
            running.signal("INT");
            (!running.is_running()).then_some(())
        });
        let ended = running.end().expect(130);
        let elapsed = asked.elapsed();
        assert!(elapsed < Duration::from_secs(1), "{elapsed:?}: {ended:?}");
        bench.storage.command("clear");
        [moving, other].into_iter().for_each(wait_until_gone);
        run(bench.cp(&[])).expect(0);
        assert_identical(&bench.source(), &bench.target());
    }
}
