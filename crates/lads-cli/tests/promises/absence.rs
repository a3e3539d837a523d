//! A command that is stopped for longer than `--timeout` (Ctrl-Z, SIGSTOP) and then continued.

use crate::world::{
    LADS, Rng, Running, World, assert_identical, start, start_fed, start_with, there, wait_for,
    wait_until_gone,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The shortest timeout of the option.
const TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT_OPTION: &str = "--timeout=2";

/// Sends a signal to the processes that Ctrl-Z reaches.
fn signal_group(running: &Running, signal: Signal) {
    let group = Pid::from_raw(i32::try_from(running.own_pid()).unwrap()).unwrap();
    kill_process_group(group, signal).unwrap();
}

#[test]
fn the_other_end_on_the_same_host_waits_while_the_command_is_stopped() {
    let world = World::with_files(&mut Rng::new(1));
    let mut command = world.cp(&["--bwlimit=2M", "--lab=block-size=64K", TIMEOUT_OPTION]);
    command.process_group(0);
    let mut running = start(command);
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    signal_group(&running, Signal::STOP);
    // No event tells that the other end waits: this has to outlast its timeout.
    thread::sleep(TIMEOUT * 3);
    signal_group(&running, Signal::CONT);
    let ended = running.end().expect(0);
    assert_eq!(ended.summary()["attempts"], 1, "{ended:?}");
    assert_identical(&world.source(), &world.target());
}

/// Data from a pipe cannot be read a second time.
#[test]
fn a_pipe_is_copied_to_its_end_although_the_command_is_stopped_in_between() {
    let world = World::new();
    let bytes = Rng::new(2).bytes(24 << 20);
    let (source, target) = (world.write("source", &bytes), world.path("target"));
    let mut command = Command::new(LADS);
    command.args(["cp", "-q", TIMEOUT_OPTION]).arg("-").arg(&target).process_group(0);
    let (mut running, mut input) = start_fed(command);
    let (half, rest) = bytes.split_at(12 << 20);
    input.write_all(half).unwrap();
    let sink = running.other_end();
    assert!(running.runs_until_written(sink, 1 << 20));
    signal_group(&running, Signal::STOP);
    thread::sleep(TIMEOUT * 3);
    signal_group(&running, Signal::CONT);
    input.write_all(rest).unwrap();
    drop(input);
    assert_eq!(running.end().code, Some(0));
    assert!(std::fs::read(source).unwrap() == std::fs::read(target).unwrap());
}

/// The kernel ends a connection to a reader that does not read, if the other end is another host.
#[test]
fn a_pipe_is_written_to_its_end_although_the_command_is_stopped_in_between() {
    let world = World::new();
    let bytes = Rng::new(4).bytes(64 << 20);
    let source = world.write("source", &bytes);
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut command = Command::new(LADS);
    command.args(["cp", "-q", TIMEOUT_OPTION]).arg(source).arg("-").process_group(0);
    command.stdout(writer).stderr(Stdio::null());
    let running = start_with(command);
    let mut read = vec![0; 1 << 20];
    reader.read_exact(&mut read).unwrap();
    signal_group(&running, Signal::STOP);
    thread::sleep(TIMEOUT * 3);
    signal_group(&running, Signal::CONT);
    reader.read_to_end(&mut read).unwrap();
    assert_eq!(running.end().code, Some(0));
    assert!(read == bytes);
}

/// Chaos found that a command that was stopped while it waited for the other end's first bytes gave
/// up (seed 900410).
#[test]
fn a_command_that_is_stopped_before_the_other_end_answers_waits_for_it() {
    let world = World::with_files(&mut Rng::new(5));
    let (begun, go) = (world.path("begun"), world.path("go"));
    assert!(Command::new("mkfifo").arg(&go).status().unwrap().success());
    let wait = format!("touch {}; cat {}; shift; exec \"$@\"", begun.display(), go.display());
    let mut command = there(&world.fake_shell(&wait));
    command.arg(TIMEOUT_OPTION).arg(world.source_contents());
    command.arg(format!("there:{}", world.target().display())).process_group(0);
    let running = start(command);
    wait_for("the shell", || begun.exists().then_some(()));
    signal_group(&running, Signal::STOP);
    // No event tells that the time is over.
    thread::sleep(TIMEOUT * 3);
    signal_group(&running, Signal::CONT);
    std::fs::write(&go, "").unwrap();
    let ended = running.end().expect(0);
    assert_eq!(ended.summary()["attempts"], 1, "{ended:?}");
    assert_identical(&world.source(), &world.target());
}

/// The other end cannot distinguish a stopped process from a lost host.
#[test]
fn a_transfer_whose_other_end_gave_up_while_the_command_was_stopped_starts_over_by_itself() {
    let world = World::with_files(&mut Rng::new(3));
    // The shell stays between the two ends, as sshd does.
    let shell = world.fake_shell("shift; \"$@\"; exit $?");
    let mut command = there(&shell);
    command.args(["--bwlimit=2M", "--lab=block-size=64K", "--privileges", TIMEOUT_OPTION]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    command.process_group(0);
    let mut running = start(command);
    let sink = wait_for("the other end", || crate::world::child_of(running.other_end()));
    assert!(running.runs_until_written(sink, 1 << 20));
    signal_group(&running, Signal::STOP);
    wait_until_gone(sink);
    signal_group(&running, Signal::CONT);
    let ended = running.end().expect(0);
    let retries = ended.events_of("retry");
    let message = retries[0]["message"].as_str().unwrap();
    assert!(message.contains("was stopped for longer than --timeout"), "{message}");
    let summary = ended.summary();
    assert!(summary["bytes_sent"].as_u64() < summary["bytes_found"].as_u64(), "{summary}");
    assert_identical(&world.source(), &world.target());
}
