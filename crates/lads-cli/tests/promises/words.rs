//! Messages: worded alike everywhere, in order, and with helpful advice.

use crate::proxy::silent_port;
use crate::world::{Ended, LADS, RUN_HERE, Rng, World, has, lads, run, there};
use std::fs::{self, File};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

/// Asserts that one source was reported not to exist.
fn says_that_it_does_not_exist(ended: Ended, path: &str) {
    let ended = ended.expect(3);
    let issue = ended.issue();
    let message = issue["message"].as_str().unwrap();
    assert!(message.ends_with(&format!("{path}: it does not exist")), "{message}");
    assert_eq!((&issue["side"], &issue["errno_name"]), (&"source".into(), &"ENOENT".into()));
    assert_eq!(issue["path"], path);
    assert_eq!(ended.count("issue_count"), 1);
}

#[test]
fn a_source_that_does_not_exist_is_told_in_one_way() {
    let world = World::new();
    world.write("src/a", b"a");
    let shell = world.fake_shell(RUN_HERE);
    let missing = world.path("missing").display().to_string();
    let (here, far) = (world.path("here"), format!("there:{}", world.path("far").display()));
    let copy = |mut command: Command, sources: &[&str], target: &str| {
        run({
            command.args(sources).arg(target);
            command
        })
    };
    let target = here.display().to_string();
    for sources in [&[missing.as_str()][..], &[&format!("{missing}/")]] {
        says_that_it_does_not_exist(copy(lads::<&str>(&[]), sources, &target), sources[0]);
        says_that_it_does_not_exist(copy(lads(&["-n"]), sources, &target), sources[0]);
        says_that_it_does_not_exist(copy(there(&shell), sources, &far), sources[0]);
        let remote = format!("there:{}", sources[0]);
        says_that_it_does_not_exist(copy(there(&shell), &[&remote], &target), sources[0]);
        assert!(!here.exists() && !world.path("far").exists());
    }
    let there_is = world.source().join("a").display().to_string();
    fs::create_dir(&here).unwrap();
    let ended = copy(lads::<&str>(&[]), &[&missing, &there_is], &target);
    says_that_it_does_not_exist(ended, &missing);
    assert_eq!(fs::read(here.join("a")).unwrap(), b"a");
    // A name from a list was not found by listing a directory.
    let list = world.write("list", b"a\nnope\n").display().to_string();
    let source = world.source().display().to_string();
    let ended = copy(lads(&["--files-from", &list]), &[&source], &target);
    says_that_it_does_not_exist(ended, &format!("{source}/nope"));
}

#[test]
fn a_relative_path_is_told_as_it_was_typed() {
    let world = World::new();
    world.write("target", b"a file");
    world.write("src/a", b"a");
    let mut command = lads(&["src/", "target"]);
    command.current_dir(world.path(""));
    let ended = run(command).expect(6);
    let message = ended.summary()["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("the target target is a file"), "{message}");
    let mut command = lads(&["src", "no/such/dir"]);
    command.current_dir(world.path(""));
    let ended = run(command).expect(6);
    let message = ended.summary()["message"].as_str().unwrap().to_owned();
    assert!(message.contains(" sink:no/such/dir: "), "{message}");
}

#[test]
fn a_pattern_on_another_host_is_answered_with_what_to_do() {
    let world = World::new();
    let mut command = there(&world.fake_shell(RUN_HERE));
    command.arg(format!("there:{}/*", world.source().display())).arg(world.target());
    let advice = run(command).expect(3).issue()["advice"].as_str().unwrap().to_owned();
    assert!(advice.contains("patterns are not expanded on the other host"), "{advice}");
}

#[test]
fn a_limit_that_binds_is_blamed_and_not_storage() {
    let world = World::with_files(&mut Rng::new(1));
    let shell = world.fake_shell(RUN_HERE);
    let source = world.source_contents();
    let moved = |limit: &str, mut command: Command, from: &str, to: &str| {
        command.args(["--bwlimit", limit, "--lab", "block-size=64K", from, to]);
        run(command).expect(0)
    };
    let target = |name: &str| world.path(name).display().to_string();
    let limited = [
        moved("8M", lads::<&str>(&[]), &source, &target("one")),
        moved("8M", there(&shell), &source, &format!("there:{}", target("two"))),
        moved("8M", there(&shell), &format!("there:{source}"), &target("three")),
        moved("8M", lads(&["--source", "threads=1"]), &source, &target("four")),
    ];
    for ended in limited {
        assert_eq!(ended.summary()["bottleneck"], "limit", "{ended:?}");
        for progress in ended.events_of("progress") {
            let told = &progress["bottleneck"];
            assert!(told.is_null() || told == "limit", "{progress}");
        }
    }
    let free = moved("100G", lads::<&str>(&[]), &source, &target("five"));
    assert_ne!(free.summary()["bottleneck"], "limit", "{free:?}");
}

/// Runs `lads cp` with stdout and stderr in one file; returns its lines.
fn lines_of(world: &World, words: &[&str], code: i32) -> Vec<String> {
    let told = world.path("told");
    let file = File::create(&told).unwrap();
    let mut command = Command::new(LADS);
    command.arg("cp").args(words).stdout(file.try_clone().unwrap()).stderr(file);
    assert_eq!(command.status().unwrap().code(), Some(code));
    fs::read_to_string(told).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_summary_is_the_last_that_is_told() {
    let world = World::new();
    for number in 0..3000 {
        world.write(format!("src/{}{number}", "x".repeat(40)), b"a");
    }
    world.write(format!("dst/{}7/in the way", "x".repeat(40)), b"");
    let shell = world.fake_shell(RUN_HERE);
    let (source, target) = (world.source_contents(), world.target().display().to_string());
    let remote = ["-e", &shell, "--remote-lads", LADS, "--data-address", "127.0.0.1"];
    let (from_there, to_there) = (format!("there:{source}"), format!("there:{target}"));
    let ways: [&[&str]; 4] = [
        &["-n", &source, &target],
        &["-v", &source, &target],
        &[&remote[..], &["-v", "-I", &from_there, &target]].concat(),
        &[&remote[..], &["-v", "-I", &source, &to_there]].concat(),
    ];
    for words in ways {
        let lines = lines_of(&world, words, 6);
        let closing = lines.iter().position(|line| line.starts_with("lads: incomplete: "));
        let after = &lines[closing.unwrap_or_else(|| panic!("no summary: {lines:?}")) + 1..];
        assert!(after.iter().all(|line| line.starts_with("      ")), "{words:?}: {after:?}");
        assert!(lines.len() > 2999 + after.len(), "{words:?}: {} lines", lines.len());
    }
}

#[test]
fn a_host_may_be_an_address_in_brackets() {
    if TcpListener::bind("[::1]:0").is_err() {
        return crate::world::not_tried("this host has no ::1");
    }
    let world = World::new();
    world.write("src/a", b"a");
    let shell = world.fake_shell(&format!("echo \"host $1\" >&2; {RUN_HERE}"));
    for (host, seen) in [("[::1]", "host ::1\n"), ("me@[::1]", "host me@::1\n")] {
        let mut command = lads(&["-I", "-e", &shell, "--remote-lads", LADS]);
        command.arg(world.source_contents());
        command.arg(format!("{host}:{}", world.target().display()));
        let ended = run(command).expect(0);
        assert!(ended.stderr.contains(seen), "{ended:?}");
        assert_eq!(fs::read(world.target().join("a")).unwrap(), b"a");
    }
}

#[test]
fn a_host_that_drops_packets_is_given_up_in_time_and_told() {
    let (port, _kept) = silent_port();
    let world = World::new();
    world.write("src/a", b"a");
    let shell = world.fake_shell(RUN_HERE);
    let mut command = lads(&["-e", &shell, "--remote-lads", LADS, "--no-tunnel"]);
    command.args(["--data-address", &format!("127.0.0.1:{port}")]).arg(world.source_contents());
    command.arg(format!("there:{}", world.target().display()));
    let ended = run(command).expect(5).within(Duration::from_secs(20));
    let tried = format!("cannot connect a data stream to 127.0.0.1:{port}");
    ended.says(&[&tried, "no reply in time", "--tunnel"]);
    if !has("ssh") {
        return;
    }
    let mut command = lads(&["-e", &format!("ssh -F /dev/null -o BatchMode=yes -p {port}")]);
    command.arg(world.source_contents()).arg("127.0.0.1:/nowhere");
    let ended = run(command).expect(5).within(Duration::from_secs(25));
    ended.says(&["timed out", "cannot reach 127.0.0.1", &format!("-p {port} 127.0.0.1 true")]);
}

/// More failures than fit in memory at the same time (10,000 from each end): each is reported,
/// counted and logged.
#[test]
fn however_many_files_fail_all_are_in_the_log() {
    const COUNT: u64 = 10_500;
    let world = World::new();
    for number in 0..COUNT {
        world.write(format!("src/{number}"), b"");
        fs::create_dir_all(world.target().join(format!("{number}/kept"))).unwrap();
    }
    let log = world.path("log");
    let ended = run(world.cp(&["--log", log.to_str().unwrap()])).expect(6);
    assert_eq!(ended.count("issue_count"), COUNT);
    assert_eq!(ended.events_of("issue").len() as u64, COUNT);
    let text = fs::read_to_string(log).unwrap();
    let in_the_way = text.lines().filter(|line| line.contains("\"in-the-way\"")).count();
    assert_eq!(in_the_way as u64, COUNT);
}
