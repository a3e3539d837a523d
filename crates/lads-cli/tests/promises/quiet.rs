//! A pull from a source that does not repeat what failed at the sink. The sink is the local end,
//! which knows it anyway.

use crate::faultfs::FaultFs;
use crate::world::{Ended, Mounted, RUN_HERE, Rng, World, has, is_root, run, there};
use lads_core::message::{LENGTH_BYTES, Message, decode};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

/// Makes a remote shell for a source whose messages about failed entries are dropped.
fn quiet_shell(world: &World) -> String {
    let pipes = ["forth", "back"].map(|name| world.path(name));
    assert!(Command::new("mkfifo").args(&pipes).status().unwrap().success());
    let [forth, back] = pipes;
    let script = format!("shift; cat '{}' & exec \"$@\" > '{}'", back.display(), forth.display());
    // The thread ends when the source does, or with the test.
    std::thread::spawn(move || pass_on_without_issues(&forth, &back));
    world.fake_shell(&script)
}

fn pass_on_without_issues(from: &Path, to: &Path) {
    let mut from = fs::File::open(from).unwrap();
    let mut to = fs::File::create(to).unwrap();
    let mut message = [0; LENGTH_BYTES].to_vec();
    while from.read_exact(&mut message[..LENGTH_BYTES]).is_ok() {
        let length = u32::from_le_bytes(message[..LENGTH_BYTES].try_into().unwrap());
        message.resize(LENGTH_BYTES + length as usize, 0);
        from.read_exact(&mut message[LENGTH_BYTES..]).unwrap();
        let is_told = !matches!(decode(&message[LENGTH_BYTES..]), Ok(Message::Issues(_)));
        if is_told && to.write_all(&message).is_err() {
            return;
        }
    }
}

fn pull(world: &World, shell: &str) -> Command {
    let mut command = there(shell);
    command.arg(format!("there:{}", world.source_contents())).arg(world.target());
    command
}

/// Two files that cannot be created, because directories that are not empty have their names, and a
/// file that arrives.
fn with_things_in_the_way() -> World {
    let world = World::new();
    for name in ["a", "b", "c/d"] {
        world.write(format!("src/{name}"), name.as_bytes());
    }
    world.write("dst/b/kept", b"kept");
    world.write("dst/c/d/kept", b"kept");
    world
}

/// Returns the paths that failed, one for each report.
fn failed_paths(ended: &Ended) -> Vec<String> {
    let issues = ended.events_of("issue");
    assert!(issues.iter().all(|issue| issue["side"] == "sink"), "{ended:?}");
    let mut paths: Vec<String> =
        issues.iter().map(|issue| issue["path"].as_str().unwrap().to_owned()).collect();
    paths.sort();
    paths
}

#[test]
fn what_fails_at_the_sink_of_a_pull_is_told_once_though_the_source_keeps_quiet() {
    for shell in [|world: &World| world.fake_shell(RUN_HERE), quiet_shell] {
        let world = with_things_in_the_way();
        let ended = run(pull(&world, &shell(&world))).expect(6);
        let expected = ["b", "c/d"].map(|name| world.target().join(name));
        assert_eq!(failed_paths(&ended), expected.map(|path| path.to_str().unwrap().to_owned()));
        assert_eq!(fs::read(world.target().join("a")).unwrap(), b"a");
    }
}

/// A regression test: the file was forgotten as soon as it had its name, and the failure with it.
#[test]
fn a_pull_tells_of_a_file_whose_name_could_not_be_made_durable() {
    for shell in [|world: &World| world.fake_shell(RUN_HERE), quiet_shell] {
        let world = World::new();
        world.write("src/c/d", b"d");
        let Some(storage) = FaultFs::mount(&world, "storage") else { return };
        storage.command("fail fsyncdir EIO nth=1 path=dst/c");
        let mut command = there(&shell(&world));
        command.arg(format!("there:{}", world.source_contents())).arg(storage.path("dst"));
        let ended = run(command).expect(6);
        assert_eq!(failed_paths(&ended), [storage.path("dst/c/d").to_str().unwrap()]);
    }
}

#[test]
fn a_sink_of_a_pull_that_is_full_says_so_though_the_source_keeps_quiet() {
    if !is_root() || !has("unshare") {
        return;
    }
    for shell in [|world: &World| world.fake_shell(RUN_HERE), quiet_shell] {
        let world = World::new();
        world.write("src/large", &Rng::new(1).bytes(4 << 20));
        let Some(mounted) = Mounted::tmpfs(&world.target(), "size=2m") else { return };
        let ended = run(mounted.command(&pull(&world, &shell(&world)))).expect(6);
        let path = world.target().join("large");
        assert_eq!(failed_paths(&ended), [path.to_str().unwrap()], "{ended:?}");
    }
}
