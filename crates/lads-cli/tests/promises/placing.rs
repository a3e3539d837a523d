//! On how many storage targets new files lie, on an emulated parallel file system. The tests look
//! at the number of bytes that each target was given.

use crate::faultfs::{Daemon, testbed};
use crate::world::{World, run, start, wait_until_gone};
use lads_core::lov::{ATTRIBUTE, Body, Lov};
use serde_json::Value;
use std::fs;
use std::process::Command;

const MIB: usize = 1 << 20;

/// A world whose target is a parallel file system of eight OSTs.
struct Bed {
    // Unmounted before the directory that it is in is removed.
    _daemon: Daemon,
    world: World,
}

impl Bed {
    fn new() -> Option<Self> {
        let world = World::new();
        fs::create_dir(world.target()).unwrap();
        let mut command = Command::new(testbed());
        command.args(["pfs", "--osts=8"]).arg(world.target());
        Some(Self { _daemon: Daemon::start(command)?, world })
    }

    fn control(&self, command: &str) {
        fs::write(self.world.target().join(".pfs/control"), command).unwrap();
    }

    /// Moves this many files of this many MiB each.
    fn moves(&self, file_count: u8, mib: usize, options: &[&str]) {
        for number in 1..=file_count {
            self.world.write(format!("src/{number}"), &vec![number; mib * MIB]);
        }
        run(self.world.cp(options)).expect(0);
        self.control("congest off");
        self.control("rate all unlimited");
        for number in 1..=file_count {
            let moved = fs::read(self.world.target().join(number.to_string())).unwrap();
            assert!(moved == vec![number; mib * MIB], "{number}");
        }
    }

    /// Returns the layout of a file, as reported by the file system.
    fn lov(&self, number: u8) -> Lov {
        let path = self.world.target().join(number.to_string());
        let mut bytes = vec![0; 4096];
        let length = rustix::fs::getxattr(path, ATTRIBUTE, &mut bytes[..]).unwrap();
        Lov::parse(&bytes[..length]).unwrap()
    }

    /// Returns the OSTs of the parts of a file, in order.
    fn osts(&self, number: u8) -> Vec<u32> {
        let lov = self.lov(number);
        let osts = lov.components.iter().map(|it| match &it.body {
            Body::Stripes(stripes) => stripes.objects[0].ost.0,
            Body::Foreign(_) => unreachable!("the emulator has none"),
        });
        osts.collect()
    }

    /// Returns how many MiB each OST was given.
    fn written_mib(&self) -> Vec<u64> {
        self.written_bytes().into_iter().map(|bytes| bytes / MIB as u64).collect()
    }

    fn written_bytes(&self) -> Vec<u64> {
        let stats = fs::read(self.world.target().join(".pfs/stats")).unwrap();
        let stats: Value = serde_json::from_slice(&stats).unwrap();
        let of_ost = |ost: &Value| ost["written_bytes"].as_u64().unwrap();
        stats["osts"].as_array().unwrap().iter().map(of_ost).collect()
    }
}

/// A regression test: the file lay on two targets, and took four times as long to write.
#[test]
fn one_large_file_is_written_by_all_targets_alike() {
    let Some(bed) = Bed::new() else { return };
    bed.moves(1, 64, &[]);
    assert_eq!(bed.written_mib(), [8; 8]);
}

/// A regression test: each file lay on two targets. The test uses a rule that takes no target to be
/// slow, because on a busy machine one may seem slow for a moment. The targets are slow themselves:
/// a file gets no part on a target that has not yet written its earlier part when the others have.
#[test]
fn a_few_large_files_are_written_by_all_targets_alike() {
    let Some(bed) = Bed::new() else { return };
    bed.control("rate all 40000000");
    bed.moves(3, 64, &["--lab", "schedule=layout"]);
    let written = bed.written_mib();
    assert_eq!(written.iter().sum::<u64>(), 3 * 64);
    // Each target has its part of at least two files.
    assert!(written.iter().all(|&mib| mib >= 16), "{written:?}");
}

/// OST 5 is twenty times slower than the others. Files that begin there go on elsewhere, and no
/// part of them is read again.
#[test]
fn files_on_a_slow_ost_go_on_elsewhere_extent_by_extent() {
    let Some(bed) = Bed::new() else { return };
    bed.control("rate all 40000000");
    bed.control("congest fixed OSTS=5 2000000");
    bed.moves(
        24,
        4,
        &["--lab", "place-extents=8", "--lab", "block-size=256K", "--sink", "io=direct"],
    );
    let grown: Vec<_> = (1..=24).map(|file| bed.osts(file)).collect();
    assert!(grown.iter().all(|osts| osts.len() <= 8), "{grown:?}");
    let went_on = |osts: &&Vec<u32>| osts.iter().any(|ost| *ost != osts[0]);
    assert!(grown.iter().find(went_on).is_some(), "{grown:?}");
    // The sum in whole MiB leaves out the journal, which is there, too.
    assert_eq!(bed.written_bytes().iter().sum::<u64>() / MIB as u64, 24 * 4);
}

/// An administrator closes OSTs for new files while files that began there are still growing, or
/// the file system adds no extent to any file.
#[test]
fn files_that_can_go_on_no_more_where_they_began_go_on_elsewhere() {
    for orders in
        [["state 5 no-create", "state 6 no-create"], ["state 5 degraded"; 2], ["grow off"; 2]]
    {
        let Some(bed) = Bed::new() else { return };
        for number in 1..=16 {
            bed.world.write(format!("src/{number}"), &vec![number; 4 * MIB]);
        }
        let pace = ["--lab", "block-size=256K", "--bwlimit", "20M", "--lab", "place-extents=8"];
        let mut copy = start(bed.world.cp(&pace));
        let sink = copy.other_end();
        assert!(copy.runs_until_written(sink, 8 * MIB as u64), "over before it was closed");
        orders.iter().for_each(|order| bed.control(order));
        copy.end().expect(0);
        for number in 1..=16 {
            let moved = fs::read(bed.world.target().join(number.to_string())).unwrap();
            assert!(moved == vec![number; 4 * MIB], "{orders:?}: {number}");
        }
    }
}

/// Nothing can be written beyond the last extent of a file. If no extent is added, a write waits
/// for ever.
#[test]
fn a_file_that_was_left_open_is_finished_by_a_run_that_lets_none_grow() {
    for extents_max in ["0", "2", "8"] {
        let Some(bed) = Bed::new() else { return };
        let content = vec![7; 12 * MIB];
        bed.world.write("src/1", &content);
        let options = |extents_max: &str| {
            let lab = format!("--lab=block-size=256K,place-extents={extents_max}");
            [lab, "--bwlimit=12M".to_owned()]
        };
        let command = |extents_max| {
            let options = options(extents_max);
            bed.world.cp(&options.each_ref().map(String::as_str))
        };
        let mut stopped = start(command("8"));
        let sink = stopped.other_end();
        assert!(stopped.runs_until_written(sink, 5 * MIB as u64), "over before it was stopped");
        stopped.signal("TERM");
        stopped.end().expect(9);
        wait_until_gone(sink);
        run(command(extents_max)).expect(0);
        assert!(fs::read(bed.world.target().join("1")).unwrap() == content);
        let lov = bed.lov(1);
        assert!(lov.components.len() <= 8, "{lov:?}");
        assert_eq!(lov.components.last().unwrap().extent.end, u64::MAX);
        let sent_again = bed.written_bytes().iter().sum::<u64>() / MIB as u64;
        assert!(sent_again < 18, "{sent_again} MiB were written of 12");
    }
}

/// Found by chaos (seed 424521): where the second run takes the file system for another one, nobody
/// adds extents to what the first run has left.
#[test]
fn a_file_that_was_left_open_is_begun_anew_by_a_run_that_does_not_know_of_extents() {
    let Some(bed) = Bed::new() else { return };
    let content = vec![7; 12 * MIB];
    bed.world.write("src/1", &content);
    let pace = ["--lab", "block-size=256K", "--bwlimit", "12M"];
    let mut stopped = start(bed.world.cp(&pace));
    let sink = stopped.other_end();
    assert!(stopped.runs_until_written(sink, 5 * MIB as u64), "over before it was stopped");
    stopped.signal("TERM");
    stopped.end().expect(9);
    wait_until_gone(sink);
    let other = [&pace[..], &["--sink", "layout=synthetic:osts=4,stripe_size=256K"]].concat();
    run(bed.world.cp(&other)).expect(0);
    assert!(fs::read(bed.world.target().join("1")).unwrap() == content);
}

#[test]
fn files_grow_only_if_they_may() {
    let Some(bed) = Bed::new() else { return };
    bed.moves(8, 4, &["--lab", "place-extents=0", "--lab", "block-size=256K"]);
    assert!((1..=8).all(|file| bed.osts(file).len() == 1));
}

#[test]
fn where_the_file_system_shall_decide_a_large_file_lies_as_it_says() {
    let Some(bed) = Bed::new() else { return };
    bed.moves(1, 64, &["--sink", "place=inherit"]);
    let busy: Vec<u64> = bed.written_mib().into_iter().filter(|&mib| mib > 0).collect();
    assert_eq!(busy, [64]);
}
