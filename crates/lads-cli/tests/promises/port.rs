//! A blocked port for data: the transfer continues through the remote shell, and says so.

use crate::proxy::{free_port, silent_port};
use crate::world::{LADS, RUN_HERE, Rng, World, assert_identical, lads, run};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Addresses to which no data connection opens: a port that answers nothing, and one that refuses.
fn blocked_addresses() -> (Vec<String>, impl Sized) {
    let (silent, kept) = silent_port();
    (vec![format!("127.0.0.1:{silent}"), format!("127.0.0.1:{}", free_port())], kept)
}

fn command(shell: &str, address: &str, options: &[&str]) -> Command {
    let mut command = lads(&["-e", shell, "--remote-lads", LADS, "--data-address", address]);
    command.args(options);
    command
}

#[test]
fn data_goes_through_the_remote_shell_if_the_port_is_blocked() {
    let (addresses, _kept) = blocked_addresses();
    for address in &addresses {
        let world = World::with_files(&mut Rng::new(5));
        let shell = world.fake_shell(RUN_HERE);
        let reason = format!("data connections to {address} fail");
        let mut push = command(&shell, address, &[]);
        push.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
        let ended = run(push).expect(0).within(Duration::from_secs(20));
        assert_eq!(ended.summary()["is_port_blocked"], true);
        assert_identical(&world.source(), &world.target());
        fs::remove_dir_all(world.target()).unwrap();
        let mut pull = command(&shell, address, &[]);
        pull.arg(format!("there:{}", world.source_contents())).arg(world.target());
        let ended = run(pull).expect(0);
        assert_identical(&world.source(), &world.target());
        let summary = ended.summary();
        assert_eq!(summary["is_port_blocked"], true);
        assert_eq!(summary["data_protection"], "ssh");
        assert_eq!(summary["attempts"], 2);
        let retries = ended.events_of("retry");
        assert!(retries[0]["message"].as_str().unwrap().starts_with(&reason), "{retries:?}");
        assert_eq!(retries[0]["wait_seconds"], 0.0);
    }
}

#[test]
fn a_transfer_fails_if_the_port_is_blocked_and_it_may_not_or_cannot_use_the_shell() {
    let world = World::new();
    world.write("src/a", b"a");
    let shell = world.fake_shell(RUN_HERE);
    let address = format!("127.0.0.1:{}", free_port());
    let mut strict = command(&shell, &address, &["--no-tunnel"]);
    strict.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    run(strict).expect(5).says(&["cannot connect a data stream", "(--tunnel)"]);
    // Bytes that were read from a pipe cannot be read again.
    let mut pipe = Command::new("sh");
    pipe.args(["-c", "echo bytes | exec \"$0\" \"$@\"", LADS, "cp", "--json", "-e", &shell]);
    pipe.args(["--remote-lads", LADS, "--data-address", &address, "-"]);
    pipe.arg(format!("there:{}", world.path("out").display()));
    run(pipe).expect(5).says(&["cannot connect a data stream", "(--tunnel)"]);
    assert!(!world.path("out").exists());
}

#[test]
fn later_attempts_use_the_shell_at_once() {
    let world = World::with_files(&mut Rng::new(6));
    // The third start of the other end is the second attempt through the shell.
    let count = world.path("count");
    let script = format!(
        "echo >> {0}; if [ $(wc -l < {0}) = 2 ]; then exit 255; fi; {RUN_HERE}",
        count.display()
    );
    let shell = world.fake_shell(&script);
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = command(&shell, &address, &["--retries=1", "--json"]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let ended = run(command).expect(0);
    assert_identical(&world.source(), &world.target());
    assert_eq!(fs::read(&count).unwrap().len(), 3, "{ended:?}");
    assert_eq!(ended.summary()["attempts"], 3);
}

#[test]
fn the_user_reads_that_the_port_is_blocked_and_how_to_open_it() {
    let world = World::new();
    world.write("src/a", b"a");
    let shell = world.fake_shell(RUN_HERE);
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(LADS);
    command.args(["cp", "-e", &shell, "--remote-lads", LADS, "--data-address", &address]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let ended = run(command).expect(0);
    for text in ["data connections to", "through ssh", "--ports FIRST-LAST", "data is blocked"] {
        assert!(ended.stderr.contains(text), "{ended:?}");
    }
    assert!(!ended.stderr.contains("attempt 2"), "{ended:?}");
}
