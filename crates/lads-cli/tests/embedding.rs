//! Tests that a program other than `lads` can use the engine. It runs `examples/embed.rs` of
//! `lads-engine` as a separate process, with the real command as the other end.
#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../../lads-engine/examples/embed.rs"]
#[expect(dead_code, reason = "it has a main function, as all examples do")]
mod embed;

use libtest_mimic::{Arguments, Trial};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use tempfile::TempDir;

const LADS: &str = env!("CARGO_BIN_EXE_lads");
/// With this word as its argument, this program runs the example.
const EMBED: &str = "embed";

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == EMBED) {
        return embed::embed(words.collect());
    }
    let test = |name: &str, run: fn()| {
        Trial::test(name, move || {
            run();
            Ok(())
        })
    };
    let trials = vec![
        test("another_program_moves_data_and_is_told_how_far", moves),
        test("another_program_stops_a_transfer_and_goes_on_later", stops_and_goes_on),
        test("a_program_that_is_not_lads_is_no_other_end", refuses_another_program),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Makes a source of `count` files of 1 MiB, and a place for a target.
fn world(count: u8) -> TempDir {
    let world = tempfile::tempdir().unwrap();
    fs::create_dir_all(world.path().join("src/deep")).unwrap();
    for number in 0..count {
        fs::write(world.path().join(format!("src/deep/{number}")), [number; 1 << 20]).unwrap();
    }
    world
}

/// Starts the example with few open files allowed, so that the test fails if it needs more.
fn embedder(program: &str, world: &Path, limit: Option<&str>) -> Child {
    let own = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", "ulimit -Sn 300; exec \"$0\" \"$@\""])
        .arg(own)
        .args([EMBED, program])
        .arg(world.join("src/"))
        .arg(world.join("dst"))
        .args(limit)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the exit code and the output, and checks that nothing was written to standard error.
fn ending(child: Child) -> (i32, String) {
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

fn assert_moved(world: &Path, count: u8) {
    for number in 0..count {
        let there = fs::read(world.join(format!("dst/deep/{number}"))).unwrap();
        assert!(there == [number; 1 << 20], "file {number}");
    }
}

fn moves() {
    let world = world(4);
    let (code, told) = ending(embedder(LADS, world.path(), None));
    assert_eq!(code, 0, "{told}");
    assert!(told.starts_with("so far "), "{told}");
    assert!(told.ends_with("Ok: 4 files, 4194304 bytes\n"), "{told}");
    assert_moved(world.path(), 4);
}

fn stops_and_goes_on() {
    let world = world(24);
    let mut child = embedder(LADS, world.path(), Some("4194304"));
    let mut told = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("so far ") || line == "so far 0 bytes\n" {
        line.clear();
        assert!(told.read_line(&mut line).unwrap() > 0, "it ended by itself");
    }
    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let open_files = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(open_files.split_whitespace().nth(3), Some("300"), "{limits}");
    child.stdin.take().unwrap().write_all(b"enough\n").unwrap();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    let (code, _) = ending(child);
    assert_eq!(code, lads_engine::ExitCode::Interrupted as i32, "{rest}");
    assert!(rest.contains("message: ") && rest.contains("Interrupted: "), "{rest}");
    let is_there = |number: &u8| world.path().join(format!("dst/deep/{number}")).exists();
    assert!((0..24).filter(is_there).count() < 24, "it was not stopped: {rest}");

    let (code, told) = ending(embedder(LADS, world.path(), None));
    assert_eq!(code, 0, "{told}");
    assert_moved(world.path(), 24);
}

fn refuses_another_program() {
    let world = world(1);
    for program in ["false", "ls", "no-such-program-anywhere", "./neither"] {
        let (code, told) = ending(embedder(program, world.path(), None));
        assert_eq!(code, lads_engine::ExitCode::Other as i32, "{told}");
        assert!(told.contains("message: cannot start "), "{told}");
        assert_eq!(told.contains("it printed \""), program == "ls", "{told}");
    }
    assert!(!world.path().join("dst").exists());
}
