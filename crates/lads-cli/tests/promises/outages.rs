//! Transfers that go on by themselves after an outage.

use crate::world::{
    Ended, Rng, Running, World, assert_identical, run, send_signal, start, there, wait_for,
};
use std::fs;
use std::time::Duration;

/// Runs the other end so that it lives on when the shell that leads to it is killed, as at the end
/// of a cut ssh connection.
const DETACHED: &str = "exec 3<&0; shift; setsid \"$@\" <&3 & wait";

/// How many times the command has said that it begins again.
fn retry_count(running: &Running) -> usize {
    (2..).take_while(|attempt| running.told(&format!("\"attempt\":{attempt},"))).count()
}

fn wait_for_retries(running: &mut Running, count: usize) {
    wait_for("another attempt", || {
        assert!(running.is_running(), "it ended instead");
        (retry_count(running) >= count).then_some(())
    });
}

fn messages(ended: &Ended) -> Vec<String> {
    let retries = ended.events_of("retry");
    retries.iter().map(|it| it["message"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn after_an_outage_it_goes_on_by_itself_and_sends_nothing_twice() {
    let mut rng = Rng::new(1);
    let world = World::with_files(&mut rng);
    let command =
        world.cp(&["--retries=1", "--bwlimit=3M", "--lab=block-size=64K", "--buffers=1M"]);
    let mut running = start(command);
    // More outages than new attempts are allowed in one: each attempt moves something.
    for round in 1..=2 {
        wait_for("something on record", || running.has_moved(round - 1).then_some(()));
        send_signal(running.other_end(), "KILL");
        wait_for_retries(&mut running, round);
    }
    let ended = running.end().expect(0);
    assert_identical(&world.source(), &world.target());
    let summary = ended.summary();
    assert_eq!(summary["attempts"], 3);
    let sent = summary["bytes_sent"].as_u64().unwrap();
    let found = summary["bytes_found"].as_u64().unwrap();
    assert!(sent < found, "the last attempt sends {sent} of {found} bytes");
}

#[test]
fn a_host_that_cannot_be_reached_is_asked_again_until_it_can() {
    let world = World::with_files(&mut Rng::new(2));
    let there_again = world.path("there-again");
    let shell = world.fake_shell(&format!(
        "test -e {} || {{ echo 'ssh: connect to host there port 22: No route to host' >&2; \
         exit 255; }}; shift; exec \"$@\"",
        there_again.display()
    ));
    let target = format!("there:{}", world.target().display());
    let mut command = there(&shell);
    command.arg("--retry-for=2m").arg(world.source_contents()).arg(&target);
    let mut running = start(command);
    wait_for_retries(&mut running, 2);
    fs::write(&there_again, b"").unwrap();
    let ended = running.end().expect(0).says(&["No route to host"]);
    assert!(messages(&ended).iter().all(|it| it.contains("cannot reach there")), "{ended:?}");
    assert_identical(&world.source(), &world.target());

    fs::remove_file(&there_again).unwrap();
    let mut command = there(&shell);
    command.arg("--retries=2").arg(world.source_contents()).arg(&target);
    let ended = run(command).expect(5).says(&["No route to host"]);
    assert_eq!(ended.summary()["attempts"], 3);

    let mut command = there(&shell);
    command.arg("--retry-for=1h").arg(world.source_contents()).arg(&target);
    let mut running = start(command);
    wait_for_retries(&mut running, 2);
    running.signal("TERM");
    running.end().expect(9).says(&["stopped"]).within(Duration::from_secs(15));
}

/// Where the other end does not notice that it is alone, it still holds the journal.
#[test]
fn what_is_left_of_a_lost_end_is_waited_for() {
    let world = World::with_files(&mut Rng::new(3));
    let shell = world.fake_shell(DETACHED);
    let mut command = there(&shell);
    command.args(["--retries=1", "--timeout=4", "--bwlimit=4M", "--lab=block-size=64K"]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let mut running = start(command);
    let shell = running.other_end();
    let sink = wait_for("the other end to start", || crate::world::child_of(shell));
    assert!(running.runs_until_written(sink, 2 << 20));
    send_signal(sink, "STOP");
    wait_for_retries(&mut running, 2);
    send_signal(sink, "KILL");
    let ended = running.end().expect(0);
    let messages = messages(&ended);
    assert!(messages[0].contains("no heartbeat"), "{messages:?}");
    assert!(messages[1..].iter().all(|it| it.contains("already running")), "{messages:?}");
    assert_identical(&world.source(), &world.target());
}

#[test]
fn a_transfer_that_somebody_else_runs_is_not_waited_for() {
    let world = World::with_files(&mut Rng::new(4));
    let mut running = start(world.cp(&["--bwlimit=1M", "--lab=block-size=64K"]));
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 64 << 10));
    let ended = run(world.cp(&["--retry-for=1h"])).expect(12).says(&["already running"]);
    assert_eq!(ended.summary()["attempts"], 1);
    assert_eq!(ended.summary()["outcome"], "running");
}

/// The host is reached each time, so it is no outage.
#[test]
fn a_failure_that_repeats_identically_ends_the_attempts() {
    let world = World::with_files(&mut Rng::new(5));
    let shell = world.fake_shell("exit 3");
    let mut command = there(&shell);
    command.arg("--retry-for=1h").arg(world.source_contents()).arg("there:nowhere");
    let ended = run(command).expect(5).says(&["ended before LADS started there (exit 3)"]);
    assert_eq!(ended.summary()["attempts"], 5);
    let mut command = there("/nonexistent/ssh");
    command.arg("--retry-for=1h").arg(world.source_contents()).arg("there:nowhere");
    let ended = run(command).expect(5).says(&["cannot start /nonexistent/ssh"]);
    assert_eq!(ended.summary()["attempts"], 5);
}

/// A relative path means another job in another directory.
#[test]
fn the_same_relative_path_in_another_directory_is_another_transfer() {
    let world = World::new();
    world.write("one/x/large", &Rng::new(6).bytes(8 << 20));
    world.write("two/x/small", b"small");
    let cp = |directory: &str, options: &[&str]| {
        let mut command = crate::world::lads(options);
        command.arg("x").arg(world.target()).current_dir(world.path(directory));
        command
    };
    let mut first = start(cp("one", &["--bwlimit=64K", "--lab=block-size=64K"]));
    let sink = first.other_end();
    assert!(first.runs_until_written(sink, 64 << 10));
    run(cp("one", &[])).expect(12).says(&["already running"]);
    run(cp("two", &[])).expect(0);
    assert!(first.is_running());
    assert_eq!(fs::read(world.target().join("x/small")).unwrap(), b"small");
}
