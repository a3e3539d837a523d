//! Commands about storage on another host.

use crate::world::{LADS, World, run};
use std::process::Command;

/// A world whose directory is the home directory there, and the command that leads to it.
fn host() -> (World, String) {
    let world = World::new();
    world.write("data/file", b"some bytes");
    world.write("data/-odd", b"");
    // As ssh does, it gives all words to a shell.
    let script = format!("shift; cd {} && eval \"$*\"", world.path("").display());
    let shell = world.fake_shell(&script);
    (world, shell)
}

fn lads(shell: &str, words: &[&str]) -> Command {
    let mut command = Command::new(LADS);
    command.env("LADS_RSH", shell).env("LADS_REMOTE_LADS", LADS).args(words);
    command
}

fn printed(command: Command) -> String {
    String::from_utf8(run(command).expect(0).stdout).unwrap()
}

#[test]
fn what_is_told_of_another_host_is_what_lads_tells_there() {
    let (world, shell) = host();
    for words in [["osts", "--json"], ["layout", "--json"], ["layout", "--layout=local"]] {
        for path in ["data/file", "~/data/file", "./data/file"] {
            let there = format!("me@there:{path}");
            let theirs = printed(lads(&shell, &[words[0], words[1], &there]));
            let mut here = Command::new(LADS);
            here.current_dir(world.path("")).args(words).arg(path.trim_start_matches("~/"));
            // Paths are printed as given.
            let plain = |text: String| text.replace("./data", "data");
            assert_eq!(plain(theirs), plain(printed(here)), "{words:?} {path}");
        }
    }
    let told = printed(lads(&shell, &["probe", "--read-only", "--json", "there:"]));
    assert!(told.starts_with('{'), "{told}");
    printed(lads(&shell, &["layout", "there:data/-odd", "there:data/file"]));
    printed(lads(&shell, &["bench", "-q", "--time=1", "--size=1M", "--threads=1", "there:data"]));
}

#[test]
fn remains_are_removed_on_another_host() {
    let (world, shell) = host();
    printed(lads(&shell, &["clean", "--dry-run", "there:data"]));
    assert!(world.path("data/file").exists());
}

#[test]
fn an_error_there_is_an_error_here() {
    let (_world, shell) = host();
    let ended = run(lads(&shell, &["osts", "there:nothing"]));
    assert!(ended.code != Some(0) && ended.stderr.contains("nothing"), "{ended:?}");
    let ended = run(lads(&shell, &["layout", "there:data/file", "data/file"])).expect(2);
    assert!(ended.stderr.contains("all paths must be on the same host"), "{ended:?}");
    run(lads("sh -c 'exit 255'", &["osts", "there:/"])).expect(5);
    let ended = run(lads(&shell, &["osts", "-x:/"])).expect(2);
    assert!(!ended.stderr.is_empty(), "{ended:?}");
}
