//! `lads serve --config`: transfers between hosts that have no ssh between them.

use crate::proxy::free_port;
use crate::tree::assert_nothing_left_over;
use crate::world::{
    Ended, LADS, Rng, World, as_nobody, assert_identical, check, child_of, has, is_root, lads,
    not_tried, run, send_signal, start, wait_for,
};
use lads_core::limits::STRANGER_LINES_MAX;
use lads_core::remote::message::OpenMode;
use lads_core::remote::name::{Server, parse};
use lads_engine::RemoteShell;
use lads_engine::remote::{Client, ClientOptions};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The user of sessions.
const NOBODY: u32 = 65_534;

/// The file consists of repetitions of this text.
const PASSAGE: &[u8] = b"nobody on the way reads this passage";

/// A daemon whose root is the target of its world.
struct Daemon<'a> {
    world: &'a World,
    child: Child,
    port: u16,
    /// What `[[peer]]` has besides name, key and root.
    peer: String,
}

impl<'a> Daemon<'a> {
    /// Starts one that knows the user of the tests, with this access.
    fn start(world: &'a World, access: &str) -> Self {
        let user = if is_root() { "user = \"nobody\"\n" } else { "" };
        let peer = format!("access = \"{access}\"\n{user}");
        Self::start_with(world, peer, "", |command| command)
    }

    /// Starts the service manager's part, which starts the daemon at the first connection.
    fn activated(world: &'a World, peer: String) -> Self {
        let mut daemon = Self::prepare(world, peer, "");
        let listen = format!("--listen=127.0.0.1:{}", daemon.port);
        let mut command = Command::new("systemd-socket-activate");
        command.args([&listen, LADS, "serve", "--json", "--config"]).arg(world.path("serve.toml"));
        let log = fs::File::create(world.path("log")).unwrap();
        daemon.child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        wait_for("the port", || daemon.log().contains("Listening on").then_some(()));
        daemon
    }

    fn start_with(
        world: &'a World,
        peer: String,
        top: &str,
        started: impl Fn(Command) -> Command,
    ) -> Self {
        let mut daemon = Self::prepare(world, peer, top);
        let mut command = Command::new(LADS);
        command.args(["serve", "--json", "--config"]).arg(world.path("serve.toml"));
        let log = fs::File::create(world.path("log")).unwrap();
        let mut command = started(command);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = daemon.port;
        assert_eq!(line, format!("listening on 127.0.0.1:{port}\n"), "{}", daemon.log());
        daemon.child = child;
        daemon
    }

    /// All that one needs, but the process.
    fn prepare(world: &'a World, peer: String, top: &str) -> Self {
        let port = free_port();
        fs::create_dir_all(world.target()).unwrap();
        if is_root() {
            chown(world.target(), Some(NOBODY), Some(NOBODY)).unwrap();
            // Then both trees belong to the same user.
            give_to_nobody(&world.source());
        }
        let host = key_of(world, &["--file", world.path("host.key").to_str().unwrap()]);
        let own = key_of(world, &[]);
        let daemon = Self { world, child: never(), port, peer };
        daemon.write_config(top, &own);
        daemon.trust(&host);
        daemon
    }

    fn write_config(&self, top: &str, key: &str) {
        let (port, host_key, root) = (self.port, self.world.path("host.key"), self.world.target());
        let text = format!(
            "listen = \"127.0.0.1:{port}\"\nkey_file = \"{}\"\n{top}[[peer]]\nname = \"test\"\n\
             key = \"{key}\"\nroot = \"{}\"\n{}",
            host_key.display(),
            root.display(),
            self.peer
        );
        // Whoever reads it sees all of it.
        let new = self.world.write("serve.new", text.as_bytes());
        fs::rename(new, self.world.path("serve.toml")).unwrap();
    }

    fn trust(&self, key: &str) {
        let host = self.at("");
        let words = ["key", "--trust", host.trim_end_matches('/'), key];
        let status = at_home(self.world, Command::new(LADS)).args(words).output().unwrap();
        assert!(status.status.success(), "{status:?}");
    }

    fn at(&self, path: &str) -> String {
        format!("lads://127.0.0.1:{}/{path}", self.port)
    }

    fn push(&self, options: &[&str]) -> Command {
        let mut command = at_home(self.world, lads(options));
        command.arg(self.world.source_contents()).arg(self.at(""));
        command
    }

    fn pull(&self, path: &str, to: &str) -> Ended {
        run(at_home(self.world, lads(&[self.at(path), self.world.path(to).display().to_string()])))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.world.path("log")).unwrap_or_default()
    }

    /// Waits until the log has `count` sessions, and returns all of them.
    fn logged(&self, count: usize) -> Vec<Value> {
        wait_for("the log", || {
            let log = self.log();
            let lines = log.lines().filter(|line| line.starts_with('{') && line.ends_with('}'));
            let all: Vec<Value> = lines.map(|it| serde_json::from_str(it).unwrap()).collect();
            (all.len() >= count).then_some(all)
        })
    }
}

impl Drop for Daemon<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn give_to_nobody(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_to_nobody(&entry.unwrap().path()));
    }
}

/// A process that has ended, in the place of one that has not begun.
fn never() -> Child {
    Command::new("true").spawn().unwrap()
}

/// A command with keys and known hosts of its own.
fn at_home(world: &World, mut command: Command) -> Command {
    command.env("XDG_CONFIG_HOME", world.path("home")).env("LADS_CONFIG", "/dev/null");
    command
}

fn key_of(world: &World, words: &[&str]) -> String {
    let output = at_home(world, Command::new(LADS)).arg("key").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn files_go_both_ways_and_belong_to_the_user_of_the_session() {
    let world = World::with_files(&mut Rng::new(1));
    let daemon = Daemon::start(&world, "read-write");
    let summary = run(daemon.push(&[])).expect(0).summary();
    assert_eq!(summary["data_protection"], "encrypted");
    assert_identical(&world.source(), &world.target());
    assert_nothing_left_over(&world.target());
    if is_root() {
        assert_eq!(world.target().join("large0").metadata().unwrap().uid(), NOBODY);
    }
    daemon.pull("", "back").expect(0);
    assert_identical(&world.source(), &world.path("back"));
    let checked = [world.source_contents(), daemon.at("")];
    run(at_home(&world, check(&checked))).expect(0);
    let [push, pull, compared] = &daemon.logged(3)[..] else { panic!("{}", daemon.log()) };
    assert!(text(&push["said"]).starts_with("wrote .: 44 files, "), "{push}");
    assert!(text(&pull["said"]).starts_with("read .: 44 files, "), "{pull}");
    for session in [push, pull, compared] {
        assert_eq!((text(&session["peer"]), session["exit_code"].as_i64()), ("test", Some(0)));
        assert!(text(&session["from"]).starts_with("127.0.0.1:"), "{session}");
    }
}

/// With `--tunnel`, one port is enough, and a listener on the way sees no names and no data.
#[test]
fn all_goes_over_one_connection_if_the_user_wants_it() {
    let world = World::new();
    world.write("src/file", &PASSAGE.repeat(100_000));
    let daemon = Daemon::start(&world, "write");
    let eve = Eve::start(daemon.port, None);
    let through = format!("lads://127.0.0.1:{}/", eve.port);
    let key = key_of(&world, &["--file", world.path("host.key").to_str().unwrap()]);
    let words = ["key", "--trust", through.trim_end_matches('/'), &key];
    assert!(at_home(&world, Command::new(LADS)).args(words).output().unwrap().status.success());
    let words = ["--tunnel", &world.source_contents(), &through];
    run(at_home(&world, lads(&words))).expect(0);
    assert_identical(&world.source(), &world.target());
    let seen = eve.seen.lock().unwrap();
    assert!(seen.len() > PASSAGE.len() * 100_000);
    for secret in [PASSAGE, b"file", world.path("src").to_str().unwrap().as_bytes()] {
        assert!(!seen.windows(secret.len()).any(|it| it == secret), "{secret:?}");
    }
}

#[test]
fn a_host_that_is_not_trusted_gets_nothing() {
    let world = World::with_files(&mut Rng::new(2));
    let daemon = Daemon::start(&world, "read-write");
    let known = world.path("home/lads/known_hosts");
    fs::remove_file(&known).unwrap();
    let key = key_of(&world, &["--file", world.path("host.key").to_str().unwrap()]);
    let told = format!("`lads key --trust lads://127.0.0.1:{} {key}`", daemon.port);
    run(daemon.push(&[])).expect(4).says(&["is not known here", &told]);
    let other = key_of(&world, &["--file", world.path("other.key").to_str().unwrap()]);
    daemon.trust(&other);
    let told = format!("shows the key {key} instead of {other}");
    run(daemon.push(&[])).expect(4).says(&[&told, "somebody may be in the middle"]);
    daemon.logged(2);
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
    daemon.trust(&key);
    run(daemon.push(&[])).expect(0);
}

#[test]
fn who_is_not_known_is_told_so_and_gets_nothing() {
    let world = World::with_files(&mut Rng::new(3));
    let daemon = Daemon::start(&world, "read-write");
    let other = key_of(&world, &["--file", world.path("other.key").to_str().unwrap()]);
    daemon.write_config("", &other);
    let own = key_of(&world, &[]);
    run(daemon.push(&[])).expect(4).says(&[&format!("the key {own} is not known there")]);
    daemon.pull("", "back").expect(4);
    let sessions = daemon.logged(2);
    for session in sessions {
        assert_eq!((text(&session["key"]), &session["peer"]), (own.as_str(), &Value::Null));
        assert_eq!(text(&session["reason"]), "the key is not known");
    }
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
}

#[test]
fn a_peer_does_only_what_it_may() {
    let world = World::with_files(&mut Rng::new(4));
    let daemon = Daemon::start(&world, "read");
    run(daemon.push(&[])).expect(4).says(&["your key permits only read there"]);
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
    world.write("dst/file", b"to be read");
    daemon.pull("file", "back").expect(0);
    // Whoever may read may compare.
    let compared = [world.path("back").display().to_string(), daemon.at("file")];
    run(at_home(&world, check(&compared))).expect(0);
    world.write("back", b"something");
    run(at_home(&world, check(&compared))).expect(11);
    let log = daemon.logged(4);
    assert!(log.iter().any(|line| text(&line["said"]).starts_with("looked at file")), "{log:?}");
    let removing = [
        "--remove-source-files".to_owned(),
        daemon.at("file"),
        world.path("moved").display().to_string(),
    ];
    run(at_home(&world, lads(&removing)));
    assert!(world.target().join("file").exists());
    drop(daemon);
    let daemon = Daemon::start(&world, "write");
    daemon.pull("file", "back2").expect(4).says(&["your key permits only write there"]);
    assert!(!world.path("back2").exists());
    run(daemon.push(&[])).expect(0);
}

#[test]
fn nothing_outside_of_the_root_is_reached() {
    let world = World::with_files(&mut Rng::new(5));
    let daemon = Daemon::start(&world, "read-write");
    world.write("outside/secret", b"secret");
    symlink(world.path("outside"), world.target().join("out")).unwrap();
    symlink("/proc/self/root/etc", world.target().join("etc")).unwrap();
    let push = |path: &str| {
        let words = [world.path("src/large0").display().to_string(), daemon.at(path)];
        run(at_home(&world, lads(&words)))
    };
    for path in ["../outside/x", "a/../../outside/x", "out/../x"] {
        push(path).expect(4).says(&["is not below the directory that is offered"]);
        daemon.pull(path, "back").expect(4);
    }
    for path in ["out/x", "etc/x", "out/secret"] {
        assert_ne!(push(path).code, Some(0), "{path}");
    }
    for path in ["out/secret", "etc/passwd", "out/", "etc/"] {
        assert_ne!(daemon.pull(path, "back").code, Some(0), "{path}");
    }
    let stage = format!("--sink=stage={}", world.path("outside").display());
    assert_ne!(run(daemon.push(&[&stage])).code, Some(0));
    assert!(!world.path("back/secret").exists() && !world.path("back/passwd").exists());
    assert_eq!(fs::read_dir(world.path("outside")).unwrap().count(), 1);
    assert_eq!(fs::read(world.path("outside/secret")).unwrap(), b"secret");
}

#[test]
fn less_protection_needs_the_consent_of_the_daemon() {
    let world = World::with_files(&mut Rng::new(6));
    let user = if is_root() { "user = \"nobody\"\n" } else { "" };
    let daemon = Daemon::start(&world, "read-write");
    let why = ["--data plain is refused", "ask its administrator for data = \"plain\""];
    run(daemon.push(&["--data", "plain"])).expect(4).says(&why);
    drop(daemon);
    let peer = format!("access = \"write\"\ndata = \"plain\"\n{user}");
    let daemon = Daemon::start_with(&world, peer, "", |command| command);
    let summary = run(daemon.push(&["--data", "plain"])).expect(0).summary();
    assert_eq!(summary["data_protection"], "none");
}

/// Starts a program as on a kernel without Landlock: a filter lets its first call fail (ENOSYS).
const WITHOUT_LANDLOCK: &str = "import ctypes, os, struct, sys
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (6, 0, 0, 0x50000 | 38), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack('HP', len(rules), ctypes.addressof(code)))
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program) == 0
os.execv(sys.argv[1], sys.argv[1:])";

#[test]
fn without_landlock_there_are_no_sessions() {
    if !has("python3") {
        return;
    }
    let world = World::with_files(&mut Rng::new(12));
    let user = if is_root() { "user = \"nobody\"\n" } else { "" };
    let peer = format!("access = \"read-write\"\n{user}");
    let daemon = Daemon::start_with(&world, peer, "", |command| {
        let mut python = Command::new("python3");
        python.args(["-c", WITHOUT_LANDLOCK]).arg(command.get_program()).args(command.get_args());
        python
    });
    run(daemon.push(&[])).expect(4).says(&["the session cannot be confined"]);
    let said = daemon.logged(1)[0]["said"].as_str().unwrap().to_owned();
    assert!(said.contains("Landlock"), "{said}");
    assert_eq!(fs::read_dir(world.target()).unwrap().count(), 0);
}

/// Others do not keep out who is known, whatever they send.
#[test]
fn strangers_keep_nobody_out() {
    let world = World::with_files(&mut Rng::new(7));
    let daemon = Daemon::start(&world, "read-write");
    let mut strangers = Vec::new();
    for number in 0..300 {
        let mut stranger = TcpStream::connect(("127.0.0.1", daemon.port)).unwrap();
        let some: &[u8] = match number % 4 {
            0 => b"",
            1 => b"GET / HTTP/1.1\r\n\r\n",
            2 => &[22, 3, 1, 0, 200, 1, 0, 0],
            _ => &[255; 64],
        };
        let _ = stranger.write_all(some);
        strangers.push(stranger);
        if number % 100 == 99 {
            run(daemon.push(&["--ignore-times"])).expect(0);
        }
    }
    assert_identical(&world.source(), &world.target());
    // The oldest were ended, although they sent nothing.
    let mut byte = [0];
    strangers[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert!(matches!(strangers[0].read(&mut byte), Ok(0) | Err(_)));
    // The log has a line for each peer, and few for the others.
    drop(strangers);
    let is_of_peer = |line: &&Value| line["peer"] != Value::Null;
    let lines = wait_for("the sessions in the log", || {
        let lines = daemon.logged(3);
        (lines.iter().filter(is_of_peer).count() == 3).then_some(lines)
    });
    let of_strangers = lines.iter().filter(|line| !is_of_peer(line)).count();
    assert!(of_strangers <= STRANGER_LINES_MAX as usize, "{of_strangers}");
}

#[test]
fn sessions_have_a_limit_that_is_told() {
    let world = World::with_files(&mut Rng::new(8));
    let mut daemon = Daemon::start(&world, "read-write");
    daemon.peer.push_str("sessions_max = 1\n");
    daemon.write_config("", &key_of(&world, &[]));
    let slow = start(daemon.push(&["--bwlimit", "500K"]));
    wait_for("the slow one", || (slow.bytes_sent() > 0).then_some(()));
    run(daemon.push(&[])).expect(4).says(&["all sessions are in use; try again later"]);
    slow.signal("INT");
    slow.end().expect(9);
    daemon.logged(2);
    wait_for("a place", || (run(daemon.push(&[])).code == Some(0)).then_some(()));
    assert_identical(&world.source(), &world.target());
}

#[test]
fn a_session_ends_when_its_time_is_over_and_another_one_resumes_it() {
    let world = World::with_files(&mut Rng::new(9));
    let user = if is_root() { "user = \"nobody\"\n" } else { "" };
    let peer = format!("access = \"write\"\ntime = \"2s\"\n{user}");
    let mut daemon = Daemon::start_with(&world, peer, "", |command| command);
    run(daemon.push(&["--bwlimit", "1M", "--retries", "0"])).expect(5);
    assert_eq!(text(&daemon.logged(1)[0]["reason"]), "its time was over");
    daemon.peer = daemon.peer.replace("2s", "1h");
    daemon.write_config("", &key_of(&world, &[]));
    run(daemon.push(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
    assert_nothing_left_over(&world.target());
}

#[test]
fn too_little_memory_ends_a_session_with_a_message() {
    let world = World::with_files(&mut Rng::new(10));
    let user = if is_root() { "user = \"nobody\"\n" } else { "" };
    let peer = format!("access = \"write\"\nmemory = \"64M\"\n{user}");
    let daemon = Daemon::start_with(&world, peer, "", |command| command);
    let ended = run(daemon.push(&["--retries", "0"]));
    assert_ne!(ended.code, Some(0), "{ended:?}");
    assert_eq!(daemon.logged(1).len(), 1);
    let small = ["--buffers", "16M", "--lab", "block-size=64K"];
    run(daemon.push(&small)).expect(0);
    assert_identical(&world.source(), &world.target());
}

/// Each session reads the configuration: a wrong one refuses new sessions, and existing ones
/// continue.
#[test]
fn a_wrong_configuration_lets_nobody_in_and_ends_nothing() {
    let world = World::with_files(&mut Rng::new(11));
    let mut daemon = Daemon::start(&world, "read-write");
    let slow = start(daemon.push(&["--bwlimit", "2M"]));
    wait_for("the slow one", || (slow.bytes_sent() > 0).then_some(()));
    fs::write(world.path("serve.toml"), "listen = 7\n").unwrap();
    send_signal(daemon.child.id(), "HUP");
    wait_for("the complaint", || daemon.log().contains("configuration is wrong").then_some(()));
    assert!(matches!(daemon.pull("", "back").code, Some(4 | 5)));
    assert!(matches!(daemon.child.try_wait(), Ok(None)));
    slow.end().expect(0);
    assert_identical(&world.source(), &world.target());
    daemon.write_config("", &key_of(&world, &[]));
    daemon.pull("", "back").expect(0);
}

#[test]
fn a_daemon_that_ends_leaves_its_sessions_to_their_end() {
    let world = World::with_files(&mut Rng::new(12));
    let daemon = Daemon::start(&world, "read-write");
    let slow = start(daemon.push(&["--bwlimit", "2M"]));
    wait_for("the slow one", || (slow.bytes_sent() > 0).then_some(()));
    drop(daemon);
    slow.end().expect(0);
    assert_identical(&world.source(), &world.target());
}

#[test]
fn a_session_that_is_killed_is_resumed() {
    let world = World::with_files(&mut Rng::new(13));
    let daemon = Daemon::start(&world, "read-write");
    let slow = start(daemon.push(&["--bwlimit", "1M", "--retries", "3"]));
    wait_for("the slow one", || (slow.bytes_sent() > 1 << 20).then_some(()));
    let front = wait_for("its process", || child_of(daemon.child.id()));
    let session = wait_for("its session", || child_of(front));
    send_signal(session, "KILL");
    slow.end().expect(0);
    assert_identical(&world.source(), &world.target());
    let sessions = daemon.logged(2);
    assert_eq!(text(&sessions[0]["reason"]), "signal 9 ended it");
    assert_nothing_left_over(&world.target());
}

/// Arguments, environments and logs contain no key, and other processes of the session's user
/// cannot read the memory of the process that has one.
#[test]
fn no_secret_is_shown_by_the_system() {
    let world = World::with_files(&mut Rng::new(14));
    let daemon = Daemon::start(&world, "read-write");
    let slow = start(daemon.push(&["--bwlimit", "500K"]));
    wait_for("the slow one", || (slow.bytes_sent() > 0).then_some(()));
    let front = wait_for("its process", || child_of(daemon.child.id()));
    let session = wait_for("its session", || child_of(front));
    let secrets: Vec<String> = ["host.key", "home/lads/key"]
        .map(|name| fs::read_to_string(world.path(name)).unwrap().trim().to_owned())
        .into();
    for process in [daemon.child.id(), front, session, slow.pid(), slow.other_end()] {
        for file in ["cmdline", "environ"] {
            let shown = fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
            let shown = String::from_utf8_lossy(&shown);
            assert!(!secrets.iter().any(|secret| shown.contains(secret.as_str())), "{shown}");
        }
    }
    if is_root() {
        for process in [front, session] {
            let mut looking = Command::new("cat");
            looking.arg(format!("/proc/{process}/environ"));
            let looked = as_nobody(&looking).output().unwrap();
            assert!(!looked.status.success(), "{process} shows what it has");
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
            assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
        }
        let status = fs::read_to_string(format!("/proc/{session}/status")).unwrap();
        for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
            assert!(status.contains(line), "{line}: {status}");
        }
    } else {
        not_tried("another user");
    }
    slow.signal("INT");
    slow.end().expect(9);
    let log = daemon.log();
    assert!(!secrets.iter().any(|secret| log.contains(secret.as_str())), "{log}");
}

/// Changed, missing and repeated bytes on the way cause an error, never a wrong file.
#[test]
fn nobody_on_the_way_changes_anything() {
    let world = World::with_files(&mut Rng::new(15));
    let daemon = Daemon::start(&world, "read-write");
    let key = key_of(&world, &["--file", world.path("host.key").to_str().unwrap()]);
    let flip: Deed = |bytes| {
        if let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
    };
    let cut_out: Deed = |bytes| drop(bytes.drain(..bytes.len() / 2));
    let repeat: Deed = |bytes| bytes.extend_from_within(..);
    let drop_all: Deed = Vec::clear;
    for deed in [flip, cut_out, repeat, drop_all] {
        // In the handshake, in the greeting, and later.
        for after in [0, 400, 20_000] {
            let eve = Eve::start(daemon.port, Some((after, deed)));
            let through = format!("lads://127.0.0.1:{}", eve.port);
            let words = ["key", "--trust", &through, &key];
            let trusted = at_home(&world, Command::new(LADS)).args(words).output().unwrap();
            assert!(trusted.status.success());
            let to = format!("{through}/{after}");
            let words = ["--tunnel", "--retries=0", "--timeout=5", &world.source_contents(), &to];
            let ended = run(at_home(&world, lads(&words)));
            assert!(matches!(ended.code, Some(4 | 5)), "after {after}: {ended:?}");
            run(at_home(&world, lads(&words))).expect(0);
            assert_identical(&world.source(), &world.target().join(after.to_string()));
            fs::remove_dir_all(world.target().join(after.to_string())).unwrap();
        }
    }
}

#[test]
fn a_daemon_of_an_ordinary_user_serves_as_that_user() {
    if !is_root() {
        return not_tried("another user");
    }
    let world = World::with_files(&mut Rng::new(16));
    let peer = "access = \"read-write\"\n".to_owned();
    let daemon = Daemon::start_with(&world, peer, "", |command| {
        chown(world.path("host.key"), Some(NOBODY), Some(NOBODY)).unwrap();
        as_nobody(&command)
    });
    run(daemon.push(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
    assert_eq!(world.target().join("large0").metadata().unwrap().uid(), NOBODY);
}

#[test]
fn what_is_said_wrongly_is_explained() {
    let world = World::with_files(&mut Rng::new(17));
    let said = |words: &[&str], code: i32, told: &str| {
        let output = at_home(&world, Command::new(LADS)).args(words).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {error}");
        assert!(error.contains(told), "{words:?}: {error}");
    };
    let source = world.source_contents();
    let nowhere = format!("lads://127.0.0.1:{}/", free_port());
    said(&["cp", "--retries=0", &source, &nowhere], 5, "cannot reach lads://127.0.0.1");
    said(&["cp", &source, "lads:///a"], 2, "a daemon is lads://host/path");
    said(&["cp", &source, "lads://a:x/b"], 2, "a daemon is lads://host/path");
    said(&["cp", "lads://a/b", "lads://c/d"], 2, "one side must be on this host");
    said(&["cp", "lads://a/b", "c:d"], 2, "one side must be on this host");
    said(&["ls", "lads://a/b"], 2, "serves only lads cp and lads check");
    said(&["serve", "--config", "/nonexistent"], 2, "there is no file /nonexistent");
    said(&["key", "--trust", "a", "b"], 2, "a host is lads://NAME");
    said(&["key", "--trust", "lads://a", "b"], 2, "a public key is ed25519:");
    let path = world.write("open.key", "0".repeat(64).as_bytes());
    said(&["key", "--file", path.to_str().unwrap()], 2, "other users can read it");
}

/// A program opens `rfs:lads://HOST/PATH`.
#[test]
fn programs_use_files_through_a_daemon() {
    if let Ok(at) = std::env::var("LADS_TEST_FILES_AT") {
        return use_files(&at);
    }
    let world = World::new();
    world.write("outside/secret", b"secret");
    world.write("src/none", b"");
    let mut daemon = Daemon::start(&world, "read-write");
    symlink(world.path("outside"), world.target().join("out")).unwrap();
    let program = |daemon: &Daemon<'_>, access: &str| {
        let mut program = at_home(&world, Command::new(std::env::current_exe().unwrap()));
        program.args(["daemon::programs_use_files_through_a_daemon", "--exact", "--nocapture"]);
        let own = Path::new(LADS).parent().unwrap().display();
        program.env("PATH", format!("{own}:{}", std::env::var("PATH").unwrap()));
        program.env("LADS_TEST_FILES_AT", daemon.at("")).env("LADS_TEST_ACCESS", access);
        let output = program.output().unwrap();
        assert!(output.status.success(), "{output:?}\n{}", daemon.log());
    };
    program(&daemon, "read-write");
    assert_eq!(fs::read(world.target().join("new")).unwrap(), [7; 100_000]);
    if is_root() {
        assert_eq!(world.target().join("new").metadata().unwrap().uid(), NOBODY);
    }
    let session = &daemon.logged(1)[0];
    assert_eq!((text(&session["peer"]), session["exit_code"].as_i64()), ("test", Some(0)));
    for access in ["read", "write"] {
        let user = if is_root() { "user = \"nobody\"\n" } else { "" };
        daemon.peer = format!("access = \"{access}\"\n{user}");
        daemon.write_config("", &key_of(&world, &[]));
        program(&daemon, access);
    }
    assert_eq!(fs::read(world.target().join("new")).unwrap(), [7; 100_000]);
}

/// The program of that test.
fn use_files(at: &str) {
    let host = at.trim_end_matches('/');
    let name = parse(format!("rfs:{at}new").as_bytes()).unwrap();
    assert_eq!(name.servers, [Server::StartedOn(host.to_owned())]);
    let options = ClientOptions::default();
    let started = Client::start(&RemoteShell::default(), host, &name.path, &options);
    if std::env::var("LADS_TEST_ACCESS").unwrap() == "write" {
        let error = started.err().unwrap().text;
        return assert!(error.contains("your key permits only write there"), "{error}");
    }
    let client = started.unwrap();
    let open = |path: &[u8], writes| {
        let mode = OpenMode { reads: true, writes, creates: writes, is_new: false };
        client.open(path, mode, [7; 16], false)
    };
    if std::env::var("LADS_TEST_ACCESS").unwrap() == "read" {
        assert!(open(b"new", true).is_err(), "the session may only read");
    } else {
        let file = open(b"new", true).unwrap();
        file.write(0, &[&[7; 100_000]]).unwrap();
        file.sync().unwrap();
        file.close(false).unwrap();
        open(b"out/x", true).unwrap_err();
    }
    for path in [&b"out/secret"[..], b"../outside/secret", b"/etc/passwd"] {
        assert!(open(path, false).is_err(), "{}", String::from_utf8_lossy(path));
    }
    let file = open(b"new", false).unwrap();
    let mut bytes = vec![0; 100_000];
    assert_eq!(file.read(0, &mut [&mut bytes]).unwrap(), 100_000);
    assert!(bytes.iter().all(|byte| *byte == 7));
    file.close(false).unwrap();
    client.finish().unwrap();
}

/// `systemd-analyze security` rates the exposure of the unit with at most 2.5.
#[test]
fn the_unit_for_systemd_is_hardened() {
    if !has("systemd-analyze") {
        return;
    }
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/systemd/lads-serve.service");
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--no-pager", "--offline=true", "--threshold=25", unit]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("Overall exposure level"), "{output:?}");
}

/// The first connection starts the daemon.
#[test]
fn a_service_manager_may_open_the_port() {
    if !has("systemd-socket-activate") {
        return;
    }
    let world = World::with_files(&mut Rng::new(18));
    let user = if is_root() { "user = \"nobody\"\n" } else { "" };
    let peer = format!("access = \"read-write\"\n{user}");
    let daemon = Daemon::activated(&world, peer);
    run(daemon.push(&[])).expect(0);
    assert_identical(&world.source(), &world.target());
}

/// What Eve does to the bytes that go to the daemon.
type Deed = fn(&mut Vec<u8>);

/// Somebody on the way.
struct Eve {
    port: u16,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Eve {
    /// Listens, and forwards connections to `to_port`. Applies the deed to the first connection,
    /// after the given number of bytes.
    fn start(to_port: u16, deed: Option<(usize, Deed)>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&seen);
        std::thread::spawn(move || {
            let mut deed = deed;
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
                let (back_from, back_to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                let (there, back) = (Arc::clone(&all), Arc::clone(&all));
                let deed = deed.take();
                std::thread::spawn(move || pass(near, far, &there, deed));
                std::thread::spawn(move || pass(back_from, back_to, &back, None));
            }
        });
        Self { port, seen }
    }
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    seen: &Mutex<Vec<u8>>,
    mut deed: Option<(usize, Deed)>,
) {
    let (mut bytes, mut passed) = (vec![0; 16 << 10], 0);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let mut some = bytes[..count].to_vec();
        seen.lock().unwrap().extend_from_slice(&some);
        passed += count;
        if let Some((_, deed)) = deed.take_if(|(after, _)| passed > *after) {
            deed(&mut some);
        }
        if to.write_all(&some).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
