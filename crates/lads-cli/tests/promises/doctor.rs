//! `lads doctor`: one line per check, and a remedy for each problem.

use crate::proxy::free_port;
use crate::world::{Ended, LADS, World, run};
use serde_json::Value;
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

fn doctor(shell: &str, words: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.args(["doctor", "-e", shell, "--remote-lads", LADS, "--json"]).args(words);
    command
}

fn checks(ended: &Ended) -> Vec<Value> {
    let object: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(object["exit_code"], ended.code.unwrap());
    object["checks"].as_array().unwrap().clone()
}

/// Returns the checks of a name, with the text and the remedy.
fn found(ended: &Ended, check: &str) -> Vec<(bool, String, String)> {
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
        "storage",
        "limits",
    ] {
        assert!(names.iter().any(|it| it == name), "{name}: {names:?}");
    }
    for name in ["ssh", "lads", "port", "port back", "round trip", "path MTU", "clocks"] {
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
