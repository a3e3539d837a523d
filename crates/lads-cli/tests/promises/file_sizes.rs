//! The maximum size of a file (`ulimit -f`), which batch systems set: a write beyond it is an error
//! of one file, and ends no process.

use crate::remote::{CREATE, GROUP, open, shell, told};
use crate::world::{LADS, Rng, World, has, lads, run, there, wait_for, write_script};
use lads_engine::remote::{Client, ClientOptions, StageOptions, StageSettings, Told};
use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const EFBIG: i32 = 27;
const LIMIT_BYTES: usize = 960 << 10;

/// Returns the same command, which writes no file beyond the limit.
fn limited(command: &Command) -> Command {
    let mut other = Command::new("prlimit");
    other.arg(format!("--fsize={LIMIT_BYTES}")).arg("--");
    other.arg(command.get_program()).args(command.get_args());
    other
}

/// Makes a source with files within the limit, and one beyond it.
fn world_with_a_large_file() -> World {
    let world = World::new();
    for number in 0..20 {
        world.write(format!("src/{number}"), &Rng::new(number).bytes(1000));
    }
    world.write("src/large", &Rng::new(99).bytes(3 * LIMIT_BYTES));
    world
}

/// The first write beyond the limit ended the sink with all of the transfer, and each retry ended
/// in the same way.
#[test]
fn a_file_beyond_the_limit_fails_alone_and_is_not_tried_again() {
    if !has("prlimit") {
        return;
    }
    for options in
        [&[][..], &["--sink=preallocate=no"], &["--lab", "block-size=64K", "--lab=journal=no"]]
    {
        let world = world_with_a_large_file();
        let mut command = limited(&lads(options));
        command.args(["--retries", "3", &world.source_contents()]).arg(world.target());
        let ended = run(command).expect(6);
        let issue = ended.issue();
        assert_eq!(issue["errno_name"], "EFBIG");
        assert!(issue["path"].as_str().unwrap().ends_with("/large"), "{issue}");
        assert!(issue["advice"].as_str().unwrap().contains("ulimit -f"), "{issue}");
        assert_eq!((ended.count("attempts"), ended.count("files_moved")), (1, 20));
        assert_eq!(fs::read(world.path("dst/19")).unwrap(), Rng::new(19).bytes(1000));
        assert!(!world.path("dst/large").exists());
        // Without the limit, the same command completes the transfer.
        run(world.cp(options)).expect(0);
        assert_eq!(fs::read(world.path("dst/large")).unwrap().len(), 3 * LIMIT_BYTES);
    }
}

#[test]
fn a_limit_at_the_other_host_fails_one_file_too() {
    if !has("prlimit") {
        return;
    }
    let world = world_with_a_large_file();
    let script = format!("shift; exec prlimit --fsize={LIMIT_BYTES} -- \"$@\"");
    let mut command = there(&world.fake_shell(&script));
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let ended = run(command).expect(6);
    assert_eq!((&ended.issue()["errno_name"], ended.count("files_moved")), (&"EFBIG".into(), 20));
}

/// A file from a pipe has no length before its end.
#[test]
fn standard_input_beyond_the_limit_is_an_error() {
    if !has("prlimit") {
        return;
    }
    let world = world_with_a_large_file();
    let mut command = limited(&lads(&["-"]));
    command.arg(world.path("written"));
    let words = [command.get_program()].into_iter().chain(command.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
    let line = format!("cat {} | {}", world.path("src/large").display(), words.join(" "));
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    assert_eq!(run(shell).expect(6).issue()["errno_name"], "EFBIG");
    assert!(!world.path("written").exists());
}

/// One write of one client ended the server of all.
#[test]
fn a_server_of_remote_files_outlives_a_write_beyond_the_limit() {
    if !has("prlimit") {
        return;
    }
    let world = World::new();
    let limited = format!("prlimit --fsize={LIMIT_BYTES} -- {LADS} \"$@\"");
    let lads = told(&world, "limited", &limited);
    let path = |name: &str| world.path(name).display().to_string();
    let shell = shell(&world.fake_shell(crate::world::RUN_HERE), &lads);
    let client = crate::remote::client(&shell, "host", &path("a")).unwrap();
    let (large, small) = (open(&client, &path("a")).unwrap(), open(&client, &path("b")).unwrap());
    large.write(0, &[&vec![1; 2 * LIMIT_BYTES]]).unwrap();
    assert_eq!(large.close(false).unwrap_err().errno, EFBIG);
    small.write(0, &[b"small"]).unwrap();
    small.close(false).unwrap();
    assert_eq!(fs::read(path("b")).unwrap(), b"small");
}

/// The variable that names the world of the process that stages.
const WORLD: &str = "LADS_TEST_STAGING_WORLD";

/// Writes more than there is memory for, before the server is there.
fn stage_beyond_the_limit(world: &Path) {
    let settings = StageSettings {
        bytes_max: 1 << 30,
        in_foreground: true,
        in_background: false,
        is_synced: false,
        told: Told::default(),
    };
    let stage = StageOptions { directory: world.join("stage"), settings };
    let options = ClientOptions {
        buffers_bytes: 2 << 20,
        timeout: Duration::from_secs(60),
        defers_connecting: true,
        stage: Some(stage),
        ..ClientOptions::default()
    };
    let path = world.join("file").display().to_string();
    let server = shell(&world.join("server").display().to_string(), LADS);
    let client = Client::start(&server, "host", path.as_bytes(), &options).unwrap();
    let file = client.open(path.as_bytes(), CREATE, GROUP, true).unwrap();
    file.write(0, &[&vec![1; 8 << 20]]).unwrap();
    file.close(false).unwrap();
    client.finish().unwrap();
}

/// A program that stages more than the limit was ended by its own write to the local disk.
#[test]
fn a_program_outlives_staging_beyond_the_limit() {
    if let Some(world) = env::var_os(WORLD) {
        return stage_beyond_the_limit(Path::new(&world));
    }
    if !has("prlimit") || !has("mkfifo") {
        return;
    }
    let world = World::new();
    fs::create_dir(world.path("stage")).unwrap();
    let fifo = world.path("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let wait = format!(
        "read go < {}\nshift\nexec prlimit --fsize=unlimited:unlimited \"$@\"",
        fifo.display()
    );
    write_script(&world.path("server"), &wait).unwrap();
    let mut program = Command::new("prlimit");
    program.args([&format!("--fsize={LIMIT_BYTES}:unlimited"), "--"]);
    program.arg(env::current_exe().unwrap());
    program.args(["--exact", "file_sizes::a_program_outlives_staging_beyond_the_limit"]);
    program.env(WORLD, world.path("")).stdout(Stdio::null());
    let mut program = program.spawn().unwrap();
    wait_for("a write up to the limit, or the end of the program", || {
        let is_at_limit = |name: PathBuf| fs::metadata(name).is_ok_and(|it| it.len() > 0);
        let names = fs::read_dir(world.path("stage")).unwrap();
        let mut bytes = names.map(|it| it.unwrap().path());
        let has_begun = bytes.any(|it| it.to_string_lossy().ends_with("bytes") && is_at_limit(it));
        (has_begun || program.try_wait().unwrap().is_some()).then_some(())
    });
    // Open for reading, too, it keeps the line until the shell reads it.
    let mut gate = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    gate.write_all(b"go\n").unwrap();
    assert!(program.wait().unwrap().success());
    assert_eq!(fs::read(world.path("file")).unwrap(), vec![1; 8 << 20]);
}
