//! Ends that are pipes, devices, and files that grow.

use crate::faultfs::FaultFs;
use crate::world::{Ended, LADS, RUN_HERE, Rng, World, has, is_root, lads, not_tried, run, start};
use crate::world::{ShownOnFailure, wait_for};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

/// Lengths in bytes at which something could be off by one: blocks are 1 MiB long.
const LENGTHS: [usize; 7] = [0, 1, 4095, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 9_437_189];

/// Runs a line of the shell, in which `$LADS` is the command.
fn shell(line: &str, here: &Path) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(here).env("LADS", LADS);
    run(command)
}

/// A world with a directory, some bytes of a length in `bytes` in it.
fn world_with(length: usize) -> (World, Vec<u8>) {
    let world = World::new();
    let bytes = Rng::new(length as u64 + 1).bytes(length);
    world.write("dst/bytes", &bytes);
    (world, bytes)
}

#[test]
fn standard_input_becomes_a_file_of_just_its_bytes() {
    for length in LENGTHS {
        let shown = ShownOnFailure(format!("{length} bytes"));
        let (world, bytes) = world_with(length);
        let there = world.fake_shell(RUN_HERE);
        let line = format!(
            "cat bytes | $LADS cp -q - out && cat bytes | $LADS cp -q - . && cat bytes | \
             $LADS cp -q -e {there} --remote-lads $LADS --data-address 127.0.0.1 - there:$PWD/far"
        );
        shell(&line, &world.target()).expect(0);
        for name in ["out", "stdin", "far"] {
            assert!(fs::read(world.target().join(name)).unwrap() == bytes, "{name}");
        }
        assert_eq!(left_over(&world), Vec::<String>::new());
        drop(shown);
    }
}

#[test]
fn a_file_goes_to_standard_output_in_order() {
    for length in LENGTHS {
        let shown = ShownOnFailure(format!("{length} bytes"));
        let (world, bytes) = world_with(length);
        let there = world.fake_shell(RUN_HERE);
        let line = format!(
            "$LADS cp -q --streams 8 bytes - | cat && $LADS cp -q bytes - && $LADS cp -q -e {there} \
             --remote-lads $LADS --data-address 127.0.0.1 there:$PWD/bytes - | cat"
        );
        let ended = shell(&line, &world.target()).expect(0);
        assert!(ended.stdout == [&bytes[..]; 3].concat(), "to a pipe, a file, from another host");
        drop(shown);
    }
}

#[test]
fn holes_are_zeros_on_standard_output() {
    let (world, _) = world_with(1);
    let file = fs::File::create(world.target().join("holes")).unwrap();
    file.set_len(5 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"data", 3 << 20).unwrap();
    let ended = shell("$LADS cp -q holes - | cat", &world.target()).expect(0);
    assert!(ended.stdout == fs::read(world.target().join("holes")).unwrap());
}

#[test]
fn fifos_are_read_and_written_if_that_is_asked_for() {
    let (world, bytes) = world_with(3_000_001);
    let line = "mkfifo from to || exit 1
        cat bytes > from & $LADS cp -q --copy-devices from read || exit 2
        cat to > written & $LADS cp -q --write-devices bytes to || exit 3
        wait";
    shell(line, &world.target()).expect(0);
    for name in ["read", "written"] {
        assert!(fs::read(world.target().join(name)).unwrap() == bytes, "{name}");
    }
}

#[test]
fn a_fifo_or_device_is_neither_replaced_nor_written_to_unless_that_is_asked_for() {
    let (world, _) = world_with(10);
    for device in ["/dev/null", "fifo"] {
        let ended = shell(&format!("mkfifo -m 600 fifo; $LADS cp bytes {device}"), &world.target());
        assert_eq!(ended.code, Some(6), "{ended:?}");
        assert!(ended.stderr.contains("--write-devices"), "{ended:?}");
    }
    shell("test -p fifo && $LADS cp -q --write-devices bytes /dev/null", &world.target()).expect(0);
    shell("test -c /dev/null", &world.target()).expect(0);
}

#[test]
fn a_file_is_followed_while_it_grows() {
    let (world, _) = world_with(0);
    let path = world.target().join("growing");
    let mut growing = fs::File::create(&path).unwrap();
    let mut command = lads(&["--follow=2", "growing", "moved"]);
    command.current_dir(world.target());
    let running = start(command);
    let mut rng = Rng::new(7);
    for megabytes in 1..4 {
        growing.write_all(&rng.bytes((megabytes << 20) + 1)).unwrap();
        let so_far = u64::try_from(megabytes * (megabytes + 1) / 2 - 1).unwrap() << 20;
        wait_for("what was added", || (arrived(&world) >= so_far).then_some(()));
    }
    let ended = running.end().expect(0);
    assert!(fs::read(&path).unwrap() == fs::read(world.target().join("moved")).unwrap());
    assert_eq!(ended.summary()["bytes_found"], (6 << 20) + 3);
    assert!(modified(&world, "moved") < modified(&world, "growing"), "it may be a mixture");
    for options in ["-u", ""] {
        fs::write(world.target().join("moved"), vec![b'-'; (6 << 20) + 3]).unwrap();
        set_modified(&world, "moved", modified(&world, "growing") - Duration::from_secs(2));
        let line = format!("$LADS cp --json {options} growing moved");
        let again = shell(&line, &world.target()).expect(0);
        assert_eq!(again.summary()["bytes_sent"], (6 << 20) + 3, "it was skipped");
    }
    let again = shell("$LADS cp --json growing moved", &world.target()).expect(0);
    assert_eq!(again.summary()["bytes_sent"], 0, "it was moved as a whole");
}

fn modified(world: &World, name: &str) -> SystemTime {
    fs::metadata(world.target().join(name)).unwrap().modified().unwrap()
}

fn set_modified(world: &World, name: &str, time: SystemTime) {
    let file = fs::File::options().write(true).open(world.target().join(name)).unwrap();
    file.set_modified(time).unwrap();
}

/// The time of the copy said that nothing had changed, and the next run skipped it.
#[test]
fn a_file_whose_beginning_is_written_again_at_its_end_is_read_again() {
    let (world, _) = world_with(0);
    let path = world.target().join("growing");
    let mut bytes = Rng::new(8).bytes(3 << 20);
    fs::write(&path, &bytes).unwrap();
    let mut command = lads(&["--follow=1", "growing", "moved"]);
    command.current_dir(world.target());
    let running = start(command);
    wait_for("what is there", || (arrived(&world) >= 2 << 20).then_some(()));
    // As a program that closes a file of HDF5: the header is written last.
    bytes[..8].copy_from_slice(b"complete");
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"complete", 0).unwrap();
    let ended = running.end().expect(0);
    assert!(fs::read(world.target().join("moved")).unwrap() == bytes, "{ended:?}");
    assert_eq!(modified(&world, "moved"), modified(&world, "growing"), "{ended:?}");
    assert_eq!(left_over(&world), Vec::<String>::new());
}

/// Bytes that were read before a change and bytes that were written after it became one file.
#[test]
fn a_file_that_is_cut_and_filled_again_is_read_again() {
    let (world, _) = world_with(0);
    let path = world.target().join("growing");
    fs::write(&path, Rng::new(9).bytes(3 << 20)).unwrap();
    let mut command = lads(&["--follow=1", "growing", "moved"]);
    command.current_dir(world.target());
    let running = start(command);
    wait_for("what is there", || (arrived(&world) >= 2 << 20).then_some(()));
    let bytes = Rng::new(10).bytes(1 << 20);
    fs::write(&path, &bytes).unwrap();
    let ended = running.end().expect(0);
    assert!(fs::read(world.target().join("moved")).unwrap() == bytes, "{ended:?}");
    assert_eq!(left_over(&world), Vec::<String>::new());
}

/// An error was mistaken for the end of the input, and the file was cut short.
#[test]
fn a_read_error_of_standard_input_is_not_its_end() {
    // The error comes at the beginning of a block, or in the midst of one.
    for rules in [
        "fail read EIO path=/input from=3",
        "short read path=/input nth=1\nfail read EIO path=/input from=2",
    ] {
        let (world, _) = world_with(0);
        let Some(storage) = FaultFs::mount(&world, "storage") else { return };
        fs::write(storage.path("input"), vec![b'x'; 5 << 20]).unwrap();
        storage.command(rules);
        let line = format!("$LADS cp --json - out < {}", storage.path("input").display());
        let ended = shell(&line, &world.target()).expect(3);
        assert_eq!(ended.issue()["errno"], 5, "{ended:?}");
        assert!(!world.target().join("out").exists(), "{ended:?}");
        assert_eq!(storage.log()[0]["call"], "read", "some bytes were read before");
    }
}

#[test]
fn a_reader_that_goes_away_ends_it() {
    let (world, _) = world_with(9_437_189);
    let line = "{ $LADS cp bytes -; echo $? > code; } | head -c 100 > /dev/null; cat code";
    let ended = shell(line, &world.target()).within(Duration::from_secs(20));
    assert_eq!(ended.stdout, b"6\n", "{ended:?}");
    assert!(ended.stderr.contains("the program that reads it has ended"), "{ended:?}");
    assert!(!ended.stderr.contains("resume"), "it cannot: {ended:?}");
}

/// Nothing but a whole file ever has its own name.
#[test]
fn a_transfer_from_a_pipe_that_waits_is_stopped_at_once() {
    let (world, _) = world_with(0);
    let mut command = Command::new(LADS);
    command.args(["cp", "-", "out"]).current_dir(world.target());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut writer = child.stdin.take().unwrap();
    writer.write_all(&[1; 3 << 20]).unwrap();
    let part = || left_over(&world).into_iter().find(|name| name.ends_with(".part"));
    wait_for("the first bytes", part);
    interrupt(child.id());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(9), "{ended:?}");
    assert!(!world.target().join("out").exists());
    drop(writer);
    // The next one begins anew, and leaves nothing of this one.
    shell("echo new | $LADS cp -q - out", &world.target()).expect(0);
    assert_eq!(fs::read(world.target().join("out")).unwrap(), b"new\n");
    assert_eq!(left_over(&world), Vec::<String>::new());
}

#[test]
fn what_has_no_meaning_with_a_pipe_is_refused() {
    let (world, _) = world_with(10);
    for (line, told) in [
        ("$LADS cp - -", "cannot both be -"),
        ("$LADS cp --json bytes -", "--json writes to standard output"),
        ("$LADS cp -v bytes -", "-v writes to standard output"),
        ("$LADS cp --retries 3 - out", "cannot restart a transfer with a pipe"),
        ("$LADS cp --files-from - - out", "both SRC and a list"),
        ("$LADS cp --follow - out", "--follow needs a file"),
        ("$LADS cp -n - out", "--dry-run needs files"),
        ("$LADS cp - bytes out", "must be the only SRC"),
        ("$LADS cp --delete bytes -", "--delete cannot be used"),
        ("$LADS cp --remove-source-files bytes -", "--remove-source-files cannot be used"),
        ("$LADS cp --remove-source-files - out", "--remove-source-files needs complete"),
        ("$LADS cp --remove-source-files --follow bytes out", "needs complete regular files"),
        ("$LADS cp --remove-source-files bytes null:", "null: discards it"),
        ("$LADS cp --remove-source-files null:1M out", "--remove-source-files needs files"),
        ("$LADS cp --lab order=serial --lab schedule=layout bytes out", "--lab order=serial needs"),
    ] {
        let ended = shell(line, &world.target());
        assert_eq!(ended.code, Some(2), "{line}: {ended:?}");
        assert!(ended.stderr.contains(told), "{line}: {ended:?}");
    }
    fs::create_dir(world.target().join("directory")).unwrap();
    let ended = shell("$LADS cp directory -", &world.target());
    assert!(ended.code == Some(6) && ended.stderr.contains("a single file"), "{ended:?}");
    // A file of that name is meant with ./ before it, and on other hosts.
    shell("echo a > ./-; $LADS cp -q ./- named && cmp named ./-", &world.target()).expect(0);
    let there = world.fake_shell(RUN_HERE);
    let words = "--remote-lads $LADS --data-address 127.0.0.1";
    let far = format!("$LADS cp -q -e {there} {words} there:- far && cmp far ./-");
    shell(&far, &world.target()).expect(0);
}

#[test]
fn orders_of_blocks_move_the_same_bytes() {
    let world = World::with_files(&mut Rng::new(3));
    for order in ["none", "loose", "serial"] {
        let layout = "layout=synthetic:osts=4,stripe_size=256K,stripe_count=4";
        let order = format!("order={order}");
        run(world.cp(&["--source", layout, "--sink", layout, "--lab", &order])).expect(0);
        for number in 0..4 {
            let name = format!("large{number}");
            let read = |path: std::path::PathBuf| fs::read(path).unwrap();
            assert!(
                read(world.source().join(&name)) == read(world.target().join(&name)),
                "{order}"
            );
        }
        fs::remove_dir_all(world.target()).unwrap();
    }
}

#[test]
fn a_block_device_is_read_and_written_in_place() {
    if !is_root() || !has("losetup") {
        return not_tried("a block device: needs root and losetup");
    }
    let (world, bytes) = world_with(5_000_000);
    let line = "truncate -s 6M image; device=$(losetup -f --show image) || exit 77
        $LADS cp -q --write-devices bytes $device; wrote=$?
        $LADS cp -q --copy-devices $device read; read=$?
        truncate -s 7M long; $LADS cp -q --write-devices long $device; long=$?
        losetup -d $device; echo $wrote $read $long";
    let ended = shell(line, &world.target());
    if ended.code == Some(77) {
        return not_tried("a block device: this machine has no loop devices");
    }
    assert_eq!(ended.stdout, b"0 0 6\n", "{ended:?}");
    let read = fs::read(world.target().join("read")).unwrap();
    assert!(read.len() == 6 << 20 && read[..bytes.len()] == bytes);
}

/// The device has the file of a file system that fails, and returns its error.
#[test]
fn a_block_device_that_cannot_be_synced_is_an_error() {
    if !is_root() || !has("losetup") {
        return not_tried("a block device: needs root and losetup");
    }
    let (world, _) = world_with(5_000_000);
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    let image = storage.path("image");
    fs::File::create(&image).unwrap().set_len(6 << 20).unwrap();
    let attach = format!("losetup -f --show {} || exit 77", image.display());
    let attached = shell(&attach, &world.target());
    if attached.code == Some(77) {
        return not_tried("a block device: this machine has no loop devices");
    }
    let device = String::from_utf8(attached.stdout).unwrap().trim().to_owned();
    let _detached = Detached(device.clone());
    storage.command("fail fsync EIO path=image");
    let line = format!("$LADS cp --json --write-devices bytes {device}");
    let ended = shell(&line, &world.target());
    storage.command("clear");
    let ended = ended.expect(6);
    assert_eq!((&ended.issue()["operation"], &ended.issue()["errno"]), (&"sync".into(), &5.into()));
}

/// A loop device that is detached at the end.
struct Detached(String);

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// Sends SIGINT to a process.
fn interrupt(pid: u32) {
    let status = Command::new("kill").args(["-INT", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

/// The length of the unfinished file in the target, in bytes.
fn arrived(world: &World) -> u64 {
    let part = left_over(world).into_iter().find(|name| name.ends_with(".part"));
    part.map_or(0, |part| fs::metadata(world.target().join(part)).map_or(0, |it| it.len()))
}

/// Names of LADS's own in the target.
fn left_over(world: &World) -> Vec<String> {
    let names = fs::read_dir(world.target()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(".lads-")).collect()
}
