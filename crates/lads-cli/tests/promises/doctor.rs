//! `lads doctor`: one line per check, and a remedy for each problem.

use crate::proxy::free_port;
use crate::world::{Ended, LADS, World, has, is_root, not_tried, run, write_script};
use lads_tried::{Account, Sshd};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A world whose directory is the home directory on the other host, and the command that leads
/// there, as ssh does.
fn host(before: &str) -> (World, String) {
    let world = World::new();
    world.write("scratch/file", b"x");
    let home = world.path("").display().to_string();
    let script = format!(
        "shift; export HOME={home} SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'; cd; {before}\n\
         eval \"$*\""
    );
    let shell = world.fake_shell(&script);
    (world, shell)
}

/// Returns the command for a host that has LADS.
pub(crate) fn doctor(shell: &str, words: &[&str]) -> Command {
    let mut command = doctor_with(shell, &["--remote-lads", LADS, "--json"]);
    command.args(words);
    command
}

fn doctor_with(shell: &str, words: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.env_remove("LADS_REMOTE_LADS").args(["doctor", "-e", shell]).args(words);
    command
}

fn checks(ended: &Ended) -> Vec<Value> {
    let object: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(object["exit_code"], ended.code.unwrap());
    object["checks"].as_array().unwrap().clone()
}

/// Returns the checks of a name, with the text and the remedy.
pub(crate) fn found(ended: &Ended, check: &str) -> Vec<(bool, String, String)> {
    let of = |it: &Value| {
        let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
        (it["is_ok"] == true, text("text"), text("todo"))
    };
    checks(ended).iter().filter(|it| it["check"] == check).map(of).collect()
}

#[test]
fn a_good_way_has_no_problem() {
    let (world, shell) = host("");
    let options = ["--data-address", "127.0.0.1", "there:scratch"];
    let ended = run(doctor(&shell, &[&options[..], &[&world.source_contents()]].concat()));
    let names: Vec<_> = checks(&ended).iter().map(|it| it["check"].clone()).collect();
    for name in [
        "ssh",
        "lads",
        "port",
        "port back",
        "round trip",
        "path MTU",
        "clocks",
        "data",
        "storage",
        "limits",
    ] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    for name in ["ssh", "lads", "port", "port back", "round trip", "path MTU", "clocks", "data"] {
        let found = found(&ended, name);
        assert!(found.iter().all(|(is_ok, ..)| *is_ok), "{name}: {found:?}");
    }
    let there = &found(&ended, "storage")[1].1;
    assert!(there.contains(&world.path("scratch").display().to_string()), "{there}");
}

#[test]
fn each_problem_has_a_remedy() {
    let (world, shell) = host("ulimit -f 1000");
    let address = format!("127.0.0.1:{}", free_port());
    let ended = run(doctor(&shell, &["--data-address", &address, "there:/proc"])).expect(1);
    let (is_ok, text, todo) = &found(&ended, "port")[0];
    assert!(!is_ok && text.contains("refused") && todo.contains("--ports"), "{ended:?}");
    let (is_ok, text, todo) = &found(&ended, "limits")[1];
    assert!(!is_ok && text.contains("ulimit -f") && todo.contains("unlimited"), "{ended:?}");
    let (is_ok, ..) = &found(&ended, "storage")[1];
    assert!(!is_ok, "/proc has no space: {ended:?}");
    // The nearest directory above one that does not exist yet is examined.
    let ended = run(doctor(&shell, &["there:scratch/new/one"])).expect(1);
    let (_, text, _) = &found(&ended, "storage")[1];
    assert!(text.contains(&format!("{}:", world.path("scratch").display())), "{text}");
    assert!(!world.path("scratch/new").exists());
}

#[test]
fn a_host_that_cannot_be_reached_ends_it_with_the_reason() {
    let ended = run(doctor("sh -c 'exit 255'", &["there:"])).expect(5);
    let (is_ok, text, _) = &found(&ended, "ssh")[0];
    assert!(!is_ok && text.contains("there"), "{ended:?}");
    run(doctor("sh -c 'exit 255'", &["--", "-oProxyCommand=x"])).expect(2);
    run(doctor("sh -c 'exit 255'", &["/dir"])).expect(2);
    let mut human = Command::new(LADS);
    human.args(["doctor", "-e", "sh -c 'exit 255'", "--remote-lads", LADS, "there"]);
    let ended = run(human).expect(5);
    assert!(String::from_utf8_lossy(&ended.stdout).starts_with("PROBLEM  ssh "), "{ended:?}");
}

#[test]
fn another_end_that_lies_or_is_silent_neither_hangs_nor_reaches_the_terminal() {
    let version = "case \"$*\" in *--version*) exec $LADS --version;; esac";
    let end = |answer: &str| {
        let script = format!("shift; LADS={LADS}; {version}; {answer}");
        let world = World::new();
        let shell = world.fake_shell(&script);
        run(doctor(&shell, &["there:"]))
    };
    for answer in [
        "exit 0",
        "echo '{}'",
        "printf 'x%.0s' $(seq 100000)",
        "printf '\\033[31mred\\n'",
        "head -c 3000000 /dev/zero",
    ] {
        let ended = end(answer).expect(1);
        assert!(!ended.stdout.contains(&0x1b), "{ended:?}");
        let (is_ok, ..) = found(&ended, "lads").last().unwrap().clone();
        assert!(!is_ok, "{ended:?}");
    }
}

/// Problems of these checks may be those of the machine on which the tests run.
const OF_MACHINE: [&str; 3] = ["storage", "limits", "TCP windows"];

#[test]
fn through_a_real_ssh_it_sends_lads_and_finds_no_problem() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = World::on_disk();
    fs::create_dir_all(world.path("home/data")).unwrap();
    let account = Account::new(&world.path("home"), Path::new("/bin/sh"));
    let Some(sshd) = Sshd::start_for(&world.path(""), &account).unwrap() else { return };
    let here = world.path("").display().to_string();
    let data = format!("{}:data", sshd.host);
    let sent = run(doctor_with(&sshd.shell, &["--json", &data, &here]));
    assert!(found(&sent, "lads")[0].1.ends_with("was sent"), "{sent:?}");
    let ended = run(doctor_with(&sshd.shell, &["--json", &data, &here]));
    assert!(found(&ended, "lads")[0].1.ends_with("was already present"), "{ended:?}");
    for ended in [&sent, &ended] {
        let problems: Vec<_> = checks(ended).into_iter().filter(|it| it["is_ok"] != true).collect();
        let is_of_machine = |it: &Value| OF_MACHINE.iter().any(|name| it["check"] == *name);
        assert!(problems.iter().all(is_of_machine), "{problems:?}");
        assert_eq!(ended.code, Some(i32::from(!problems.is_empty())), "{ended:?}");
        if !problems.is_empty() {
            not_tried(&format!("this machine has problems of its own: {problems:?}"));
        }
        for (name, count) in [("ssh", 1), ("port", 1), ("port back", 1), ("round trip", 1)] {
            assert_eq!(found(ended, name).len(), count, "{name}: {ended:?}");
        }
        let storage = found(ended, "storage");
        for (found, path) in storage.iter().zip([world.path(""), world.path("home/data")]) {
            let path = path.canonicalize().unwrap().display().to_string();
            assert!(found.1.contains(&format!(":{path}: ")), "{path}: {found:?}");
        }
    }
    // The user reads the same checks, one per line.
    let human = run(doctor_with(&sshd.shell, &[&data, &here]));
    assert_eq!(human.code, ended.code);
    let lines = String::from_utf8(human.stdout).unwrap();
    let names: Vec<_> = lines.lines().filter_map(|line| line.get(9..20)).map(str::trim).collect();
    for check in checks(&ended) {
        assert!(names.contains(&check["check"].as_str().unwrap()), "{check}: {lines}");
    }
}

/// A library changes the time that the process on the other host reads.
#[test]
fn a_clock_that_differs_through_a_real_ssh_is_a_problem() {
    if !has("faketime") {
        return;
    }
    let world = World::new();
    let Some(sshd) = Sshd::start(&world.path("")).unwrap() else { return };
    for (offset, expected) in [("+1h", "ahead"), ("-1h", "behind")] {
        let there = world.path(format!("lads{offset}"));
        let variables = "LD_PRELOAD='/usr/$LIB/faketime/libfaketime.so.1' FAKETIME_DISABLE_SHM=1 \
                         FAKETIME_DONT_FAKE_MONOTONIC=1";
        let script = format!("{variables} FAKETIME={offset} exec {LADS} \"$@\"");
        write_script(&there, &script).unwrap();
        let words = ["--json", "--remote-lads", there.to_str().unwrap(), &sshd.host];
        let ended = run(doctor_with(&sshd.shell, &words)).expect(1);
        let (is_ok, text, todo) = &found(&ended, "clocks")[0];
        // The clocks are compared over a round trip, which has a length.
        let is_an_hour = ["59 min ", "1 h 00 min"].iter().any(|it| text.contains(it));
        assert!(!is_ok && text.ends_with(expected) && is_an_hour, "{text}");
        assert!(todo.contains("chronyc"), "{todo}");
    }
}
