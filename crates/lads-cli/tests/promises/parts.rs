//! `lads bench SRC DST`, and the two ways in which it stops its transfers.

use crate::world::{LADS, Rng, World, assert_identical, lads, run, start};
use crate::world::{ShownOnFailure, wait_for};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Takes its words as ssh does: the host, and then what a shell is to run.
const AS_SSH: &str = "shift; exec sh -c \"$*\"";

/// Two files at the source, and a target whose name a shell would take apart.
fn world() -> World {
    let world = World::new();
    for name in ["src/one", "src/two"] {
        world.write(name, &Rng::new(7).bytes(3 << 20));
    }
    fs::create_dir_all(odd(&world)).unwrap();
    world
}

fn odd(world: &World) -> std::path::PathBuf {
    world.path("dst").join("it's $(here); or")
}

/// `lads bench` of little data, so that every transfer comes to its end at once.
fn bench(source: &str, target: &str, options: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.args(["bench", "--json", "--time", "60s", "--size", "8M", source, target, "--"]);
    command.args(options);
    command
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn each_part_has_a_rate_and_nothing_is_left() {
    let world = world();
    let shell = world.fake_shell(AS_SSH);
    let remote = ["-e", &shell, "--remote-lads", LADS, "--data-address", "127.0.0.1"];
    let source = world.path("src").display().to_string();
    let target = odd(&world).display().to_string();
    for (from, to) in [("", ""), ("", "there:"), ("there:", "")] {
        let shown = ShownOnFailure(format!("from {from} to {to}"));
        let (from, to) = (format!("{from}{source}"), format!("{to}{target}"));
        let ended = run(bench(&from, &to, &remote)).expect(0);
        let found: Value = serde_json::from_slice(&ended.stdout).unwrap();
        let parts = found["parts"].as_array().unwrap();
        let names: Vec<&str> = parts.iter().map(|it| it["part"].as_str().unwrap()).collect();
        assert_eq!(names, ["read", "network", "write", "together"]);
        for part in parts {
            let rates = part["bytes_per_second_each"].as_array().unwrap();
            assert_eq!(rates.len(), 3, "{found}");
            assert!(rates.iter().all(|it| it.as_f64().unwrap() > 1e5), "{found}");
        }
        let limits = found["limits"].as_str().unwrap();
        let rate = |name: &str| {
            let part = parts.iter().find(|it| it["part"] == name).unwrap();
            part["bytes_per_second"].as_f64().unwrap()
        };
        assert!(names[..3].iter().all(|name| rate(name) >= rate(limits)), "{found}");
        assert!(is_empty(&odd(&world)), "the written files are removed");
        drop(shown);
    }
    assert!(fs::read_dir(world.path("src")).unwrap().count() == 2);
}

#[test]
fn a_limit_shows_in_every_part() {
    let world = world();
    let source = world.path("src").display().to_string();
    let target = odd(&world).display().to_string();
    let ended = run(bench(&source, &target, &["--bwlimit", "6M"])).expect(0);
    let found: Value = serde_json::from_slice(&ended.stdout).unwrap();
    for part in found["parts"].as_array().unwrap() {
        // The first tenth of a second is saved up.
        assert!(part["bytes_per_second"].as_f64().unwrap() < 12e6, "{found}");
    }
}

#[test]
fn what_fails_is_told_with_the_part_and_nothing_is_left() {
    let world = world();
    let target = odd(&world).display().to_string();
    let nothing = world.path("nothing").display().to_string();
    let ended = run(bench(&nothing, &target, &[])).expect(3);
    assert!(ended.stderr.contains("read alone: there is nothing to move"), "{}", ended.stderr);
    assert!(is_empty(&odd(&world)));
    let ended = run(bench(&world.path("src").display().to_string(), &nothing, &[])).expect(1);
    assert!(ended.stderr.contains("DST must be a writable directory"), "{}", ended.stderr);
    for (words, expected) in [
        (&["bench", "a", "null:"][..], "storage at both ends"),
        (&["bench", "a", "b", "--", "c"], "only options can follow --"),
        (&["bench", "a", "--", "--tunnel"], "for lads bench SRC DST"),
        (&["bench", "--threads", "4", "a", "b"], "for lads bench PATH"),
        (&["bench", "--time", "20s", "a", "b"], "must be 24s or more"),
        (&["bench", "a", "b", "--", "--nonsense"], "--nonsense"),
    ] {
        let mut command = Command::new(LADS);
        command.args(words);
        let ended = run(command).expect(2);
        assert!(ended.stderr.contains(expected), "{words:?}: {}", ended.stderr);
    }
}

#[test]
fn an_interrupted_measurement_leaves_nothing() {
    let world = world();
    let (source, target) = (world.path("src").display().to_string(), odd(&world));
    let running = start(bench(&source, &target.display().to_string(), &["--bwlimit", "2M"]));
    let _written = wait_for("a transfer to write", || {
        let room = fs::read_dir(&target).unwrap().next()?.ok()?.path();
        fs::read_dir(room).ok()?.next()?.ok()
    });
    running.signal("INT");
    let ended = running.end().expect(9).within(Duration::from_secs(20));
    assert!(ended.stderr.contains("stopped; the written files are removed"), "{}", ended.stderr);
    assert!(is_empty(&target));
}

#[test]
fn a_transfer_stops_after_the_time_it_was_given_and_goes_on() {
    let world = World::new();
    world.write("src/file", &Rng::new(8).bytes(6 << 20));
    let mut words = vec!["--stop-after", "1s", "--bwlimit", "2M"];
    let ended = run(world.cp(&words)).expect(9);
    assert!(ended.summary()["message"].as_str().unwrap().contains("--stop-after"));
    words[1] = "1h";
    words[3] = "0";
    run(world.cp(&words)).expect(0).within(Duration::from_secs(60));
    assert_identical(&world.source(), &world.target());
}

/// The program that started it may be gone, on another host even: nobody else could stop it.
#[test]
fn a_transfer_can_be_bound_to_its_standard_input() {
    let world = world();
    let mut command = lads(&["--stop-with-stdin", "--bwlimit", "1M"]);
    command.args([world.path("src"), world.path("other")]).stdin(Stdio::piped());
    command.stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9));
}
