//! A stage changes nothing except the time that a transfer takes: whatever happens to the stage,
//! every byte arrives, and nothing of the stage is left.

use crate::faultfs::FaultFs;
use crate::tree::assert_nothing_left_over;
use crate::world::{Ended, Rng, Running, World, assert_identical, has, lads, run, start, wait_for};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The buffers of both ends have 1 MiB, so most of this must be staged.
const SOURCE_BYTES: usize = 12 << 20;
const OPTIONS: [&str; 4] = [
    "--lab=block-size=64K",
    "--buffers=1M",
    "--source=layout=synthetic:osts=4",
    "--sink=layout=synthetic:osts=4,io=buffered",
];

/// Both ends keep the same promises.
const SIDES: [&str; 2] = ["source", "sink"];

/// A transfer whose sink writes nothing until it is released.
struct Bench {
    // Unmounted before the directory that they are in is removed.
    sink: FaultFs,
    /// Storage that fails on command, if the stage is to fail.
    stage: Option<FaultFs>,
    world: World,
}

impl Bench {
    fn new(has_failing_stage: bool) -> Option<Self> {
        if !has("rsync") {
            return None;
        }
        let world = World::new();
        let sink = FaultFs::mount(&world, "sink")?;
        let stage = if has_failing_stage { Some(FaultFs::mount(&world, "stage")?) } else { None };
        fs::create_dir_all(world.path("stage")).unwrap();
        let mut rng = Rng::new(5);
        for number in 0..12 {
            world.write(format!("src/file{number}"), &rng.bytes(SOURCE_BYTES / 12));
        }
        sink.command("hang write path=*.part");
        Some(Self { sink, stage, world })
    }

    fn stage(&self) -> PathBuf {
        self.world.path("stage")
    }

    fn start(&self, at: &str, options: &[&str]) -> Running {
        let mut command = lads(&OPTIONS);
        command.args(options).arg(format!("--{at}=stage={}", self.stage().display()));
        command.arg(self.world.source_contents()).arg(self.sink.path("dst"));
        start(command)
    }

    /// Releases the sink; checks that the transfer ends and that the result is right.
    fn ends_well(&self, running: Running) -> Ended {
        self.sink.command("clear");
        let ended = running.end().expect(0);
        assert_identical(&self.world.source(), &self.sink.path("dst"));
        assert_nothing_left_over(&self.sink.path("dst"));
        self.stage_is_empty();
        assert!(ended.count("bytes_staged") > 0, "{ended:?}");
        ended
    }

    fn stage_is_empty(&self) {
        let names = fs::read_dir(self.stage()).unwrap().map(|entry| entry.unwrap().file_name());
        let names: Vec<_> = names.filter(|name| name != ".fault").collect();
        assert!(names.is_empty(), "{names:?}");
    }
}

/// Returns the file in the stage's directory that a process, or the one that it started, holds
/// open. The result is a path that can be opened.
fn stage_file(running: &Running, stage: &Path) -> PathBuf {
    let pids = [running.pid(), running.other_end()];
    // While the file is being made, the directory is open, too.
    let is_stage = |handle: &PathBuf| {
        fs::read_link(handle).is_ok_and(|it| it.parent().is_some_and(|it| it == stage))
    };
    wait_for("a stage", || {
        pids.iter().find_map(|pid| {
            let handles = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
            handles.flatten().map(|handle| handle.path()).find(is_stage)
        })
    })
}

/// Waits until this many bytes are in the stage; returns its file.
fn wait_until_staged(running: &Running, stage: &Path, bytes: u64) -> PathBuf {
    let file = stage_file(running, stage);
    wait_for("blocks to be staged", || {
        (fs::metadata(&file).ok()?.blocks() * 512 >= bytes).then_some(())
    });
    file
}

#[test]
fn what_the_sink_has_no_room_for_waits_in_the_stage_and_arrives_whole() {
    for at in SIDES {
        let Some(bench) = Bench::new(false) else { return };
        let running = bench.start(at, &[]);
        wait_until_staged(&running, &bench.stage(), 8 << 20);
        bench.stage_is_empty();
        let ended = bench.ends_well(running);
        assert!(ended.events_of("notice").is_empty(), "{ended:?}");
        assert_eq!(ended.count("blocks_resent"), 0, "{ended:?}");
    }
}

#[test]
fn a_stage_takes_up_no_more_than_it_may() {
    for at in SIDES {
        let Some(bench) = Bench::new(false) else { return };
        let size = format!("--{at}=stage-size=2M");
        let running = bench.start(at, &[&size]);
        let file = wait_until_staged(&running, &bench.stage(), 2 << 20);
        let length = fs::metadata(file).unwrap().len();
        assert!(length <= 2 << 20, "{length} bytes long");
        bench.ends_well(running);
    }
}

#[test]
fn a_stage_that_fails_or_is_full_is_given_up_and_told_once() {
    for at in SIDES {
        for rule in ["fail write ENOSPC from=20", "fail write EIO nth=9", "fail read EIO from=5"] {
            fails(at, rule);
        }
    }
}

fn fails(at: &str, rule: &str) {
    let Some(bench) = Bench::new(true) else { return };
    let storage = bench.stage.as_ref().unwrap();
    storage.command(rule);
    let running = bench.start(at, &[]);
    if rule.contains("write") {
        storage.wait_for_fault("fail");
    } else {
        wait_until_staged(&running, &bench.stage(), 4 << 20);
    }
    let ended = bench.ends_well(running);
    assert!(!storage.log().is_empty(), "nothing went wrong");
    let notices = ended.events_of("notice");
    let words = format!("at the {at} is no longer used");
    let is_told = |text: &str| text.contains(&words);
    let told = notices.iter().filter(|it| is_told(it["text"].as_str().unwrap())).count();
    assert_eq!(told, 1, "{rule}: {ended:?}");
}

#[test]
fn what_a_stage_gives_back_wrong_is_read_again_and_never_used() {
    for at in SIDES {
        let Some(bench) = Bench::new(false) else { return };
        let running = bench.start(at, &[]);
        let file = wait_until_staged(&running, &bench.stage(), 8 << 20);
        let file = OpenOptions::new().write(true).open(file).unwrap();
        for slot in 0..64 {
            file.write_all_at(b"something else", slot * (64 << 10) + 100).unwrap();
        }
        file.sync_all().unwrap();
        let ended = bench.ends_well(running);
        let notices = ended.events_of("notice");
        let text = notices.first().map(|notice| notice["text"].as_str().unwrap().to_owned());
        assert!(text.is_some_and(|text| text.contains("other bytes")), "{ended:?}");
        // The sink must request the blocks again; the source just reads them again.
        let is_resent = ended.count("blocks_resent") > 0;
        assert_eq!(is_resent, at == "sink", "{ended:?}");
    }
}

#[test]
fn after_kill_9_nothing_of_the_stage_is_left_and_the_same_command_goes_on() {
    for at in SIDES {
        let Some(bench) = Bench::new(false) else { return };
        let running = bench.start(at, &[]);
        wait_until_staged(&running, &bench.stage(), 4 << 20);
        running.kill_both_ends(|| bench.sink.command("clear"));
        bench.stage_is_empty();
        bench.sink.command("hang write path=*.part");
        let running = bench.start(at, &[]);
        wait_until_staged(&running, &bench.stage(), 2 << 20);
        bench.ends_well(running);
    }
}

#[test]
fn a_stage_that_cannot_be_made_is_told_before_anything_is_moved() {
    let world = World::new();
    world.write("src/file", b"x");
    for at in SIDES {
        let ended = run(world.cp(&[&format!("--{at}=stage=/nowhere/at/all")])).expect(2);
        ended.says(&[&format!("/nowhere/at/all at the {at}"), &format!("--{at} stage=DIR")]);
        assert!(!world.path("dst/file").exists());
    }
}
