//! `lads cp a:x b:y`: a transfer between two other hosts.

use crate::world::{LADS, World, assert_identical, run, start, wait_for};
use std::fs;
use std::process::Command;

/// A world with two hosts, `a` and `b`, whose home directories are directories of these names, and
/// the command that leads to them as ssh does. Each start writes the host and the command to `log`.
fn hosts() -> (World, String) {
    let world = World::new();
    world.write("a/run1/out.h5", &[7; 300_000]);
    world.write("a/run1/log", b"text");
    world.write("a/run2/out.h5", b"second");
    fs::create_dir(world.path("b")).unwrap();
    let home = world.path("").display().to_string();
    let home = home.trim_end_matches('/');
    let script = format!(
        "host=$1; shift; echo \"$host $*\" >> {home}/log; export HOME={home}/$host; cd; \
         eval \"$*\""
    );
    let shell = world.fake_shell(&script);
    (world, shell)
}

fn cp(shell: &str, words: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.args(["cp", "-e", shell, "--remote-lads", LADS]);
    command.args(["--data-address", "127.0.0.1"]).args(words);
    command
}

#[test]
fn data_goes_straight_from_one_host_to_the_other() {
    let (world, shell) = hosts();
    let ended = run(cp(&shell, &["--json", "a:run1", "b:"])).expect(0);
    assert_identical(&world.path("a/run1"), &world.path("b/run1"));
    assert_eq!(ended.summary()["files_moved"], 2);
    let log = fs::read_to_string(world.path("log")).unwrap();
    let starts: Vec<_> = log.lines().map(|line| &line[..line.find(' ').unwrap()]).collect();
    // Host `a` starts the other end: nothing but the output goes through this host.
    assert_eq!(starts, ["a", "b"], "{log}");
    let second = log.lines().nth(1).unwrap();
    assert!(second.contains(" serve "), "{log}");
}

#[test]
fn patterns_homes_and_odd_names_mean_what_they_mean_on_their_hosts() {
    let (world, shell) = hosts();
    world.write("a/-x", b"dash");
    world.write("a/c:d", b"colon");
    world.write("a/run*", b"star");
    run(cp(&shell, &["a:run?/out.h5", "b:~/one/", "--mkpath"])).expect(0);
    assert_eq!(fs::read(world.path("b/one/out.h5")).unwrap(), [7; 300_000]);
    run(cp(&shell, &["a:~/run[12]", "a:-x", "a:c:d", "b:~/all", "--mkpath"])).expect(0);
    for path in ["run1/out.h5", "run2/out.h5", "-x", "c:d"] {
        let copy = world.path("b/all").join(path);
        assert_eq!(fs::read(copy).unwrap(), fs::read(world.path("a").join(path)).unwrap());
    }
    run(cp(&shell, &["a:run1/", "a:copy"])).expect(0);
    assert_identical(&world.path("a/run1"), &world.path("a/copy"));
}

#[test]
fn options_lists_and_exit_codes_pass() {
    let (world, shell) = hosts();
    world.write("patterns", b"*.h5\n");
    let patterns = format!("--exclude-from={}", world.path("patterns").display());
    let ended = run(cp(&shell, &["-v", &patterns, "a:run1/", "b:some"])).expect(0);
    assert_eq!(String::from_utf8_lossy(&ended.stdout).matches("log").count(), 1, "{ended:?}");
    assert!(world.path("b/some/log").exists() && !world.path("b/some/out.h5").exists());
    let ended = run(cp(&shell, &["a:missing", "b:"])).expect(3);
    assert!(ended.stderr.contains("missing"), "{ended:?}");
    let ended = run(cp(&shell, &["-n", "a:run2", "b:"])).expect(0);
    assert!(!world.path("b/run2").exists() && !ended.stdout.is_empty(), "{ended:?}");
    let ended = run(cp(&shell, &["--files-from=list", "a:run1", "b:"])).expect(2);
    assert!(ended.stderr.contains("log in there"), "{ended:?}");
    run(cp(&shell, &["--inplace", "a:run1", "b:"])).expect(2);
    run(cp(&shell, &["--max-size=nonsense", "a:run1", "b:"])).expect(2);
    let ended = run(cp("sh -c 'exit 255'", &["--json", "a:run1", "b:"])).expect(5);
    assert_eq!(ended.summary()["exit_code"], 5);
    assert!(ended.stderr.contains("a: the remote shell failed"), "{ended:?}");
    let ended = run(cp(&shell, &["a:run1", "c:run1", "b:"])).expect(2);
    assert!(ended.stderr.contains("one is on a and one on c"), "{ended:?}");
}

#[test]
fn a_signal_stops_both_hosts_and_the_same_command_resumes() {
    let (world, shell) = hosts();
    world.write("a/large", &vec![3; 8 << 20]);
    for signal in ["INT", "TERM"] {
        let running = start(cp(&shell, &["--json", "--bwlimit=1M", "a:large", "b:"]));
        wait_for("data to be sent", || running.told("\"event\":\"progress\"").then_some(()));
        running.signal(signal);
        let ended = running.end().expect(9);
        assert_eq!(ended.summary()["exit_code"], 9, "{ended:?}");
        assert!(!world.path("b/large").exists());
    }
    run(cp(&shell, &["a:large", "b:"])).expect(0);
    assert_eq!(fs::read(world.path("b/large")).unwrap(), fs::read(world.path("a/large")).unwrap());
}
