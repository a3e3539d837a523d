//! What cannot be done is reported clearly and soon, costs nothing, and does not stop the rest.

use crate::proxy::free_port;
use crate::tree::{describe, set_xattr};
use crate::world::{
    Ended, LADS, Mounted, RUN_HERE, Rng, World, as_nobody, has, is_root, lads, run,
};
use lads_core::message::{Hello, MAGIC, Message, SchemaDigest, VERSION, encode};
use rustix::fs::{AtFlags, CWD, Gid, Uid, chownat};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(2);
const ENOSPC: i64 = 28;
const EACCES: i64 = 13;

#[test]
fn a_directory_in_the_way_at_the_sink_does_not_stop_the_rest() {
    let world = some_files();
    world.write("dst/b/kept", b"kept");
    let ended = run(world.cp(&[])).expect(6).within(SOON);
    let issue = ended.issue();
    assert_eq!(issue["side"], "sink");
    assert_eq!(issue["path"].as_str(), world.target().join("b").to_str(), "{issue}");
    assert!(issue["advice"].as_str().unwrap().contains("--force"), "{issue}");
    assert_eq!(fs::read(world.target().join("b/kept")).unwrap(), b"kept");
    for name in ["a", "c/d"] {
        assert_eq!(fs::read(world.target().join(name)).unwrap(), name.as_bytes());
    }
}

#[test]
fn memory_that_is_too_small_for_the_sink_is_refused_and_what_is_said_to_do_is_enough() {
    let world = some_files();
    fs::create_dir(world.path("stage")).unwrap();
    let stage = format!("--sink=stage={}", world.path("stage").display());
    let at_sink = [stage.as_str()];
    let media = ["--verify=media"];
    let cases = [
        (8, Vec::new()),
        (8 + 1, media.to_vec()),
        (3 * 8, at_sink.to_vec()),
        (3 * 8 + 1, [&at_sink[..], &media].concat()),
    ];
    for (blocks, options) in cases {
        let cp = |blocks: u32| {
            let buffers = format!("--sink=buffers={}K", 64 * blocks);
            let general = ["--lab=block-size=64K", "--sink=layout=synthetic:osts=8", &buffers];
            run(world.cp(&[&general, &options[..]].concat()))
        };
        let needed = format!("needs {blocks} blocks");
        cp(blocks - 1).expect(2).says(&["--buffers is too small", "8 OSTs", &needed]);
        cp(blocks).expect(0);
        fs::remove_dir_all(world.target()).unwrap();
    }
    // By default, the buffers are large enough for any number of OSTs.
    let many = ["--lab=block-size=1M", "--sink=layout=synthetic:osts=200"];
    run(world.cp(&[&many[..], &at_sink, &media].concat())).expect(0);
}

#[test]
fn an_unreadable_file_does_not_stop_the_rest() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = some_files();
    fs::set_permissions(world.source().join("b"), fs::Permissions::from_mode(0o000)).unwrap();
    let ended = run(as_nobody(&owned_by_nobody(&world).cp(&[]))).expect(3).within(SOON);
    let issue = ended.issue();
    assert_eq!((&issue["side"], issue["errno"].as_i64()), (&"source".into(), Some(EACCES)));
    assert_eq!(issue["path"].as_str(), world.source().join("b").to_str(), "{issue}");
    assert!(!world.target().join("b").exists());
    assert_eq!(fs::read(world.target().join("c/d")).unwrap(), b"c/d");
}

/// A regression test: the mode was set before the attributes, and then the file accepted none.
#[test]
fn a_read_only_file_keeps_its_attributes_without_root() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = some_files();
    let note = world.source().join("b");
    set_xattr(&note, b"user.note", b"kept");
    fs::set_permissions(&note, fs::Permissions::from_mode(0o444)).unwrap();
    run(as_nobody(&owned_by_nobody(&world).cp(&[]))).expect(0);
    let arrived = world.target().join("b");
    let mut value = [0; 8];
    let value_bytes = rustix::fs::getxattr(&arrived, "user.note", &mut value[..]).unwrap();
    assert_eq!(&value[..value_bytes], b"kept");
    assert_eq!(fs::metadata(&arrived).unwrap().permissions().mode() & 0o777, 0o444);
}

#[test]
fn an_unlistable_directory_does_not_stop_the_rest() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = some_files();
    fs::set_permissions(world.source().join("c"), fs::Permissions::from_mode(0o000)).unwrap();
    let ended = run(as_nobody(&owned_by_nobody(&world).cp(&[]))).expect(3).within(SOON);
    assert_eq!(ended.issue()["side"], "source");
    assert_eq!(fs::read(world.target().join("b")).unwrap(), b"b");
}

#[test]
fn a_sink_that_may_not_be_written_is_told() {
    if !is_root() || !has("setpriv") {
        return;
    }
    let world = some_files();
    fs::create_dir(world.target()).unwrap();
    fs::set_permissions(world.target(), fs::Permissions::from_mode(0o555)).unwrap();
    let ended = run(as_nobody(&world.cp(&[]))).expect(6).within(SOON);
    ended.says(&["ermission denied", world.target().to_str().unwrap()]);
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
    // The same, below a target that may be written to.
    let world = some_files();
    fs::create_dir_all(world.target().join("c")).unwrap();
    fs::write(world.target().join("c/kept"), "kept").unwrap();
    fs::set_permissions(world.target(), fs::Permissions::from_mode(0o777)).unwrap();
    let ended = run(as_nobody(&world.cp(&[]))).expect(6).within(SOON);
    let issues = ended.events_of("issue");
    assert!(issues.iter().any(|issue| issue["errno"].as_i64() == Some(EACCES)), "{ended:?}");
    assert_eq!(fs::read(world.target().join("b")).unwrap(), b"b");
    assert_eq!(fs::read(world.target().join("c/kept")).unwrap(), b"kept");
}

#[test]
fn a_full_disk_is_told_and_the_same_command_goes_on_when_there_is_room() {
    if !is_root() || !has("unshare") || !has("rsync") {
        return;
    }
    let world = World::new();
    for number in 0..12 {
        world.write(format!("src/file{number:02}"), &Rng::new(number).bytes(1 << 20));
    }
    let Some(mounted) = Mounted::tmpfs(&world.target(), "size=16m") else { return };
    fs::write(mounted.seen().join("filler"), vec![1; 9 << 20]).unwrap();
    // With few threads some files are whole before the disk is full. Of others, nothing need be on
    // record: the journal lies on the same disk.
    let command = || {
        mounted.command(&world.cp(&[
            "--lab=block-size=64K",
            "--source=threads=2",
            "--sink=threads=2",
        ]))
    };
    let ended = run(command()).expect(6).within(SOON);
    let issues = ended.events_of("issue");
    assert!(issues.iter().any(|issue| issue["errno"].as_i64() == Some(ENOSPC)), "{ended:?}");
    assert!(issues.iter().all(|issue| issue["side"] == "sink"), "{ended:?}");
    assert_eq!(fs::metadata(mounted.seen().join("filler")).unwrap().len(), 9 << 20);
    fs::remove_file(mounted.seen().join("filler")).unwrap();
    let again = run(command()).expect(0);
    assert!(again.count("bytes_sent") < 12 << 20, "{again:?}");
    mounted.assert_identical_to(&world.source());
}

#[test]
fn a_read_only_sink_is_told() {
    if !is_root() || !has("unshare") {
        return;
    }
    let world = some_files();
    let Some(mounted) = Mounted::tmpfs(&world.target(), "ro") else { return };
    let ended = run(mounted.command(&world.cp(&[]))).expect(6).within(SOON);
    ended.says(&["ead-only file system", world.target().to_str().unwrap()]);
}

#[test]
fn of_two_sources_the_one_that_is_there_is_moved() {
    let world = some_files();
    let mut command = lads::<&str>(&[]);
    command.arg(world.source().join("a")).arg(world.source().join("missing")).arg(world.target());
    fs::create_dir(world.target()).unwrap();
    let ended = run(command).expect(3).within(SOON);
    let issue = ended.issue();
    assert_eq!(issue["side"], "source");
    assert!(issue["path"].as_str().unwrap().ends_with("missing"), "{issue}");
    assert_eq!(fs::read(world.target().join("a")).unwrap(), b"a");
}

#[test]
fn a_missing_source_is_told_and_nothing_is_made() {
    let world = World::new();
    let ended = run(world.cp(&[])).expect(3).within(SOON);
    ended.says(&["nothing to move"]);
    assert!(!world.target().exists());
}

#[test]
fn a_target_that_is_a_file_is_not_replaced_by_a_directory() {
    let world = some_files();
    world.write("dst", b"precious");
    run(world.cp(&[])).expect(6).within(SOON).says(&["is a file"]);
    assert_eq!(fs::read(world.target()).unwrap(), b"precious");
}

#[test]
fn a_host_that_cannot_be_reached_is_told() {
    if !has("ssh") {
        return;
    }
    let world = some_files();
    let shell = format!("ssh -p {} -o BatchMode=yes", free_port());
    // The advice contains the command that the user typed.
    let hint = format!("try: {} 127.0.0.1 true", shell.replace("BatchMode=yes", "'BatchMode=yes'"));
    let ended = remote(&world, &shell, "127.0.0.1").expect(5).within(SOON);
    ended.says(&["cannot reach 127.0.0.1", &hint]);
}

#[test]
fn a_missing_lads_at_the_other_host_is_told() {
    let world = some_files();
    let shell = world.fake_shell("shift; exec sh -c \"$*\"");
    let mut command = lads(&["-e", &shell, "--remote-lads", "/nowhere/lads"]);
    command.arg(world.source_contents()).arg(format!("there:{}", world.target().display()));
    let ended = run(command).expect(2).within(SOON);
    ended.says(&["/nowhere/lads", "--remote-lads"]);
}

#[test]
fn a_login_script_that_prints_is_told() {
    let world = some_files();
    let script = format!("echo 'Welcome to the cluster!'; {RUN_HERE}");
    let shell = world.fake_shell(&script);
    remote(&world, &shell, "there")
        .expect(2)
        .within(SOON)
        .says(&["Welcome to the", "login script"]);
}

/// Returns the result of a push to a host whose LADS begins with this greeting.
fn greeted_with(hello: Hello) -> Ended {
    let world = some_files();
    let mut bytes = Vec::new();
    encode(&Message::Hello(hello), &mut bytes);
    let file = world.write("hello", &bytes);
    let shell = world.fake_shell(&format!("cat '{}'; exec cat > /dev/null", file.display()));
    let ended = remote(&world, &shell, "there").expect(2).within(SOON);
    assert!(!world.target().exists());
    ended
}

fn hello_of(version: u16, schema: SchemaDigest) -> Hello {
    let (software, host) = (format!("lads {version}.0.0"), "future".to_owned());
    Hello { magic: MAGIC, version_min: version, version, features: 0, software, host, schema }
}

#[test]
fn an_other_version_at_the_other_host_is_told() {
    let ended = greeted_with(hello_of(99, SchemaDigest(Some([1; 8]))));
    ended.says(&["lads 99.0.0", "protocols 99 to 99", "install the same version on both hosts"]);
}

#[test]
fn an_other_build_of_the_same_version_is_told_unless_it_speaks_the_same() {
    let what_to_do = "install the same build on both hosts";
    let ended = greeted_with(hello_of(VERSION, SchemaDigest(Some([0xab; 8]))));
    ended.says(&["lads 2.0.0", "wire abababababababab", what_to_do]);
    greeted_with(hello_of(VERSION, SchemaDigest(None))).says(&["wire unknown", what_to_do]);
}

#[test]
fn a_host_that_does_not_let_us_in_is_told() {
    let world = some_files();
    let script = "echo 'me@there: Permission denied (publickey).' >&2; exit 255";
    let shell = world.fake_shell(script);
    remote(&world, &shell, "me@there").expect(4).within(SOON).says(&["rejected the login"]);
}

#[test]
fn what_cannot_be_said_together_is_refused() {
    let world = some_files();
    let before = describe(&world.path(""));
    for words in [
        &["there:/a", "elsewhere:/b", "here"][..],
        &["here", "there:/a", "/b"],
        &["only"],
        &["--lab", "block-size=1000", "a", "b"],
        &["--no-such-option", "a", "b"],
        &["--inplace", "a", "b"],
    ] {
        let ended = run(lads(words)).within(SOON);
        assert_eq!(ended.code, Some(2), "{words:?}: {ended:?}");
    }
    assert_eq!(describe(&world.path("")), before);
}

/// Makes a source with a few files.
fn some_files() -> World {
    let world = World::new();
    for name in ["a", "b", "c/d"] {
        world.write(format!("src/{name}"), name.as_bytes());
    }
    world
}

/// Gives the source and a new target to an unprivileged user.
fn owned_by_nobody(world: &World) -> &World {
    fs::create_dir(world.target()).unwrap();
    for name in ["src", "src/a", "src/b", "src/c", "src/c/d", "dst"] {
        own_by_nobody(&world.path(name));
    }
    world
}

fn own_by_nobody(path: &Path) {
    let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(65534));
    chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Runs a push to another host through this remote shell.
fn remote(world: &World, shell: &str, host: &str) -> Ended {
    let mut command: Command = lads(&["-e", shell, "--remote-lads", LADS]);
    command.arg(world.source_contents()).arg(format!("{host}:{}", world.target().display()));
    run(command)
}
