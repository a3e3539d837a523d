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

/// Options of a transfer whose data connections come from the other end.
fn from_there(end: &str) -> [&str; 2] {
    ["--connect", end]
}

#[test]
fn either_end_opens_the_data_connections() {
    // Fewer and more streams than are announced before the first message of the other end.
    for streams in ["2", "200"] {
        for end in ["source", "sink"] {
            let world = World::with_files(&mut Rng::new(5));
            let shell = world.fake_shell(RUN_HERE);
            let options = ["--connect", end, "--streams", streams];
            let mut push = command(&shell, "127.0.0.1", &options);
            push.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
            let first = run(push).expect(0);
            assert_identical(&world.source(), &world.target());
            fs::remove_dir_all(world.target()).unwrap();
            let mut pull = command(&shell, "127.0.0.1", &options);
            pull.arg(format!("there:{}", world.source_contents())).arg(world.target());
            let second = run(pull).expect(0);
            assert_identical(&world.source(), &world.target());
            for ended in [first, second] {
                assert_eq!(ended.summary()["attempts"], 1);
                assert_eq!(ended.summary()["data_protection"], "encrypted");
            }
        }
    }
}

/// Within a host, both ends can connect, too.
#[test]
fn either_end_of_a_local_transfer_connects() {
    for end in ["source", "sink"] {
        let world = World::with_files(&mut Rng::new(5));
        run(world.cp(&from_there(end))).expect(0);
        assert_identical(&world.source(), &world.target());
    }
}

/// The port is on the host that the user is on, so the other end meets the firewall.
#[test]
fn data_goes_through_the_remote_shell_if_the_other_end_cannot_connect() {
    let (addresses, _kept) = blocked_addresses();
    for address in &addresses {
        let world = World::with_files(&mut Rng::new(5));
        let shell = world.fake_shell(RUN_HERE);
        let mut push = command(&shell, address, &from_there("sink"));
        push.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
        let ended = run(push).expect(0).within(Duration::from_secs(20));
        assert_identical(&world.source(), &world.target());
        assert_eq!(ended.summary()["is_port_blocked"], true);
        let message = &ended.events_of("retry")[0]["message"];
        assert!(message.as_str().unwrap().contains("do not arrive"), "{message}");
        let mut strict = command(&shell, address, &["--connect", "sink", "--no-tunnel"]);
        strict.arg(world.source_contents()).arg(format!("there:{}", world.path("no").display()));
        let told = ["cannot connect a data stream to 127.0.0.1", "(--tunnel)"];
        run(strict).expect(5).says(&told).within(Duration::from_secs(20));
    }
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
