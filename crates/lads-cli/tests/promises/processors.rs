//! How much of the processors an end uses, and which, if the person says so.

use crate::world::{Rng, World, check, lads, run, start, wait_for};
use std::fs;
use std::time::Duration;

/// The share is so small that it limits the transfer on a busy machine, too. Data has to move
/// within the share before the transfer is stopped.
#[test]
fn an_end_uses_no_more_than_its_share_of_the_processors() {
    const SHARE: f64 = 0.02;
    /// The time that a process needs until it knows its share.
    const START_SECONDS: f64 = 0.3;
    let all = std::thread::available_parallelism().unwrap().get() as f64;
    let running = start(lads(&["--max-cpu", "2%", "null:1T", "null:"]));
    wait_for("data to move within the share", || {
        (running.has_moved(0) && running.told("\"bottleneck\":\"cpu-limit\"")).then_some(())
    });
    running.signal("TERM");
    let ended = running.end().expect(9);
    let summary = ended.summary();
    let elapsed = summary["elapsed_seconds"].as_f64().unwrap();
    for end in ["source", "sink"] {
        let used = summary[end]["cpu_seconds"].as_f64().unwrap();
        let share = all * SHARE * elapsed;
        assert!(used < START_SECONDS + 1.25 * share, "{used} of {share} s: {ended:?}");
    }
}

#[test]
fn a_transfer_that_waits_for_its_share_stops_at_once() {
    let world = World::new();
    let mut rng = Rng::new(1);
    for number in 0..200 {
        world.write(format!("src/{number}"), &rng.bytes(1 << 18));
    }
    let running = start(world.cp(&["--max-cpu", "0.01"]));
    wait_for("a first file", || (running.bytes_sent() > 0).then_some(()));
    running.signal("INT");
    running.end().expect(9).within(Duration::from_secs(10));
    let rest = run(world.cp(&[])).expect(0);
    assert!(rest.count("files_skipped") < 200, "{rest:?}");
}

#[test]
fn the_threads_of_an_end_run_where_they_were_pinned() {
    let world = World::new();
    world.write("src/file", &Rng::new(1).bytes(4 << 20));
    let running = start(world.cp(&["--sink", "pin=0", "--bwlimit", "1M"]));
    let sink = running.other_end();
    // A thread has its name before it is pinned.
    wait_for("threads that write, all of them pinned", || {
        let threads = fs::read_dir(format!("/proc/{sink}/task")).ok()?;
        let statuses = threads.flatten().filter_map(|it| {
            fs::read_to_string(it.path().join("status")).ok().filter(|it| it.contains("lads-io"))
        });
        let allowed: Vec<String> = statuses
            .filter_map(|it| Some(it.split_once("Cpus_allowed_list:\t")?.1.lines().next()?.into()))
            .collect();
        (!allowed.is_empty() && allowed.iter().all(|it| it == "0")).then_some(())
    });
    running.end().expect(0);
}

#[test]
fn a_processor_that_an_end_does_not_have_is_refused_with_the_end_that_lacks_it() {
    let world = World::new();
    world.write("src/file", b"x");
    for (option, end, cpus, why) in [
        ("--source", "source", "pin=0,65000", "there is no processor 65000"),
        ("--sink", "sink", "pin=65000", "there is no processor 65000"),
        ("--sink", "sink", "pin=node:999", "there is no node 999"),
    ] {
        let ended = run(world.cp(&[option, cpus])).expect(2);
        ended.says(&[&format!("the {end} on "), why, option]);
    }
    let both = check(&["--source=pin=0", "--sink=pin=0", "--max-cpu", "50%", "null:1M", "null:"]);
    assert!(!run(both).stderr.contains("unexpected"), "lads check takes them, too");
}
