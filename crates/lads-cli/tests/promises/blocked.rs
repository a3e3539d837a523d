//! Standard output or standard error that no process reads: a signal ends the command all the same.

use crate::world::{
    Ended, LADS, Rng, Running, World, assert_identical, child_of, has, run, send_signal,
    start_with, wait_for, wait_until_gone,
};
use rustix::fs::{OFlags, fcntl_setfl};
use std::fs::File;
use std::io::{PipeReader, Read as _, Write as _, pipe};
use std::process::{Command, Stdio};
use std::thread;

/// A pipe that is full, and the end to read from, which keeps it open.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'\n'; 4096]).is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer.into())
}

/// A command whose standard output and standard error are full pipes.
struct Blocked {
    running: Running,
    stdout: PipeReader,
    _stderr: PipeReader,
}

impl Blocked {
    fn start(mut command: Command) -> Self {
        let ((stdout, full_stdout), (stderr, full_stderr)) = (full_pipe(), full_pipe());
        command.stdout(full_stdout).stderr(full_stderr);
        Self { running: start_with(command), stdout, _stderr: stderr }
    }
}

#[test]
fn a_transfer_whose_output_is_not_read_stops_in_order() {
    let world = World::with_files(&mut Rng::new(1));
    for (round, options) in
        [&["--json", "-v"][..], &["-vv"], &["--progress=1"], &["--tunnel"]].into_iter().enumerate()
    {
        for signal in ["TERM", "INT"] {
            let mut command = Command::new(LADS);
            command
                .args(["cp", "--bwlimit=1M", "--lab=block-size=64K", "--privileges"])
                .args(options);
            command.arg(world.source_contents()).arg(world.target());
            let mut blocked = Blocked::start(command);
            let sink = blocked.running.other_end();
            assert!(blocked.running.runs_until_written(sink, 256 << 10), "{round}");
            blocked.running.signal(signal);
            assert_eq!(blocked.running.end().code, Some(9), "{options:?} {signal}");
            wait_until_gone(sink);
        }
    }
    run(world.cp(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
}

#[test]
fn a_second_interrupt_ends_a_command_whose_output_is_not_read() {
    let world = World::with_files(&mut Rng::new(2));
    let mut command = Command::new(LADS);
    command.args(["cp", "-v", "--bwlimit=1M"]).arg(world.source_contents()).arg(world.target());
    let mut blocked = Blocked::start(command);
    let sink = blocked.running.other_end();
    wait_for("the end", || {
        blocked.running.signal("INT");
        (!blocked.running.is_running()).then_some(())
    });
    // The first signal may have ended it before the second one was sent.
    assert!(matches!(blocked.running.end().code, Some(9 | 130)));
    wait_until_gone(sink);
}

/// These have nothing to keep in order: the process that the user started ends them.
#[test]
fn commands_that_measure_and_servers_end_although_their_output_is_not_read() {
    let world = World::with_files(&mut Rng::new(3));
    let (place, token) = (world.path("place"), world.path("token"));
    std::fs::create_dir(&place).unwrap();
    let commands = [
        format!("bench --time=1 --size=4M --requests=64K --threads=1 {}", place.display()),
        format!("rfs serve --root {} --token-file {}", place.display(), token.display()),
        format!("check {} {}", world.source_contents(), place.display()),
    ];
    for words in commands {
        for signal in ["TERM", "INT"] {
            let mut command = Command::new(LADS);
            command.args(words.split(' '));
            let blocked = Blocked::start(command);
            let pid = blocked.running.own_pid();
            wait_for("a thread to wait for signals", || handles_signals(pid).then_some(()));
            blocked.running.signal(signal);
            let code = blocked.running.end().code;
            assert!(matches!(code, Some(9 | 0 | 11)), "{words} {signal}: {code:?}");
        }
    }
}

/// A regression test: the process that the user started noticed the end of the other one before it
/// exited itself, and reported that the other one was killed (137).
#[test]
fn a_command_that_is_ended_at_once_or_at_its_deadline_has_the_exit_code_for_that() {
    let can_trace =
        || Command::new("strace").args(["-o", "/dev/null", "true"]).status().unwrap().success();
    if !has("strace") || !can_trace() {
        return;
    }
    let world = World::with_files(&mut Rng::new(5));
    for (is_repeated, code) in [(false, 9), (true, 130)] {
        let mut command = Command::new("strace");
        // The call that kills the other process returns when that process has ended.
        command.args(["-f", "-e", "trace=kill", "-e", "inject=kill:delay_exit=500000"]);
        command.arg("-o").arg(world.path("trace")).args([LADS, "bench", "--size=4M"]).args([
            "--requests=64K",
            "--threads=1",
            world.path("").to_str().unwrap(),
        ]);
        let mut blocked = Blocked::start(command);
        let front = wait_for("a thread to wait for signals", || {
            child_of(blocked.running.own_pid()).filter(|&pid| handles_signals(pid))
        });
        send_signal(front, "INT");
        wait_for("the end", || {
            if is_repeated {
                send_signal(front, "INT");
            }
            (!blocked.running.is_running()).then_some(())
        });
        assert_eq!(blocked.running.end().code, Some(code));
    }
}

/// Reports whether a process has a thread that listens to signals.
fn handles_signals(pid: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let names = threads.filter_map(|it| std::fs::read_to_string(it.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name.trim_end() == "signals")
}

/// Output that is still in the queue at the end, or after a signal, is not lost.
#[test]
fn a_slow_reader_gets_everything() {
    let world = World::with_files(&mut Rng::new(4));
    for signal in [None, Some("TERM")] {
        let mut command = Command::new(LADS);
        command.args(["cp", "--json", "-v", "--bwlimit=2M", "--lab=block-size=64K"]);
        command.arg(world.source_contents()).arg(world.path(format!("to{}", signal.is_some())));
        let mut blocked = Blocked::start(command);
        let sink = blocked.running.other_end();
        if let Some(signal) = signal {
            assert!(blocked.running.runs_until_written(sink, 256 << 10));
            blocked.running.signal(signal);
        }
        let mut reader = File::from(std::os::fd::OwnedFd::from(blocked.stdout));
        let read = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).map(|_| text).unwrap()
        });
        let code = blocked.running.end().code;
        assert_eq!(code, Some(if signal.is_some() { 9 } else { 0 }));
        let text = read.join().unwrap();
        let last = text.lines().last().unwrap();
        let summary: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(summary["event"], "summary", "{last}");
        assert!(child_of(sink).is_none());
    }
}

/// Runs LADS with other descriptors, such as `>&-` in a shell.
fn run_closed(closed: &str, words: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("exec \"$@\" {closed}"), "sh", LADS]).args(words);
    run(command)
}

/// A regression test: the runtime of Rust replaces closed descriptors by /dev/null, and the data
/// was lost, or an empty file was created, with exit code 0.
#[test]
fn closed_descriptors_are_no_empty_input_and_no_output() {
    let world = World::new();
    let file = world.write("file", b"contents").display().to_string();
    let (to, list) = (world.path("to").display().to_string(), "--files-from=-");
    let source = format!("{}/", world.path("").display());
    for (closed, words, code) in [
        (">&-", &["cp", &file, "-"][..], 2),
        (">&- 2>&-", &["cp", &file, "-"], 2),
        ("<&-", &["cp", "-", &to], 2),
        ("<&-", &["cp", list, &source, &to], 2),
        ("<&-", &["cp", "--exclude-from=-", &source, &to], 2),
        (">&-", &["cp", "-n", &file, &to], 1),
        (">&-", &["cp", "--json", &file, &format!("{to}-json")], 1),
        (">&-", &["check", "--json", &file, &file], 1),
        (">&-", &["version"], 1),
        (">&-", &["layout", &file], 1),
        (">&-", &["completions", "bash"], 1),
        ("<&-", &["imbalance", "-"], 3),
        (">&-", &["serve"], 1),
        ("<&-", &["serve"], 1),
        ("<&-", &["rfs", "serve", "--stdio"], 6),
        (">&-", &["cp", &file, &format!("{to}-quiet")], 0),
        ("<&- >&- 2>&-", &["cp", &file, &format!("{to}-silent")], 0),
    ] {
        let ended = run_closed(closed, words);
        assert_eq!(ended.code, Some(code), "{words:?} {closed}: {ended:?}");
        let is_told = ended.stderr.contains("closed")
            || ended.stderr.contains("must be connected")
            || ended.stderr.contains("Bad file descriptor");
        assert!(code == 0 || closed.contains("2>&-") || is_told, "{words:?} {closed}: {ended:?}");
    }
    assert!(!world.path("to").exists(), "nothing was created");
    for name in ["to-quiet", "to-silent", "to-json"] {
        assert_eq!(std::fs::read(world.path(name)).unwrap(), b"contents", "{name}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_although_all_data_is_copied() {
    let world = World::new();
    let file = world.write("file", b"contents").display().to_string();
    let to = |name: &str| world.path(name).display().to_string();
    for words in [
        &["cp", "--json", &file, &to("json")][..],
        &["cp", "-v", &file, &to("verbose")],
        &["cp", "-n", &file, &to("dry")],
        &["check", "--json", &file, &file],
    ] {
        let ended = run_closed("> /dev/full", words);
        assert_eq!(ended.code, Some(1), "{words:?}: {ended:?}");
        assert!(
            ended.stderr.contains("cannot write the output or the log"),
            "{words:?}: {ended:?}"
        );
    }
    for name in ["json", "verbose"] {
        assert_eq!(std::fs::read(world.path(name)).unwrap(), b"contents", "{name}");
    }
}

#[test]
fn data_written_to_a_pipe_is_not_called_durable() {
    let world = World::new();
    let file = world.write("file", b"contents").display().to_string();
    let fifo = world.path("fifo").display().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let kept = world.path("kept").display().to_string();
    for (to, is_durable) in [
        ("- | cat > /dev/null".to_owned(), false),
        ("- > /dev/null".to_owned(), false),
        (format!("- > {kept}"), true),
        (format!("--write-devices {fifo}"), false),
        (format!("{kept}-file"), true),
    ] {
        let reader = to.contains("fifo").then(|| {
            let fifo = fifo.clone();
            thread::spawn(move || std::fs::read(fifo).unwrap())
        });
        let mut command = Command::new("sh");
        let shown = world.path("shown").display().to_string();
        command.args(["-c", &format!("\"$0\" cp \"$1\" 2> {shown} {to}"), LADS, &file]);
        assert!(command.status().unwrap().success(), "{to}");
        let shown = std::fs::read_to_string(&shown).unwrap();
        assert_eq!(shown.contains("durable"), is_durable, "{to}: {shown}");
        assert!(shown.contains("verified"), "{to}: {shown}");
        if let Some(reader) = reader {
            assert_eq!(reader.join().unwrap(), b"contents");
        }
    }
}
