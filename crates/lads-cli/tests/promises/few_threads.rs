//! The number of processes and threads of a user, or a container, may be limited. Whoever meets
//! that limit says so, and neither hangs nor takes others along.

use crate::world::{LADS, RUN_HERE, Rng, World, has, is_root, run, start, wait_for};
use lads_core::packet::{Channel, Packet};
use lads_core::remote::message::{self, ToServer, VERSION};
use lads_hostile::files::line::as_client;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Longer than an end waits for threads of its own.
const SOON: Duration = Duration::from_secs(10);
/// Users that nothing else runs as. The limit is for all processes of a user.
const USERS: u32 = 70_000;

fn can_limit() -> bool {
    is_root() && has("prlimit") && has("setpriv")
}

/// Returns the same command, run by this user.
fn by_user(command: &Command, user: u32) -> Command {
    let mut other = Command::new("setpriv");
    other.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".to_owned()]);
    other.arg("--").arg(command.get_program()).args(command.get_args());
    other
}

/// The same, if the user may have `most` processes and threads.
fn limited(command: &Command, user: u32, most: u32) -> Command {
    let command = by_user(command, user);
    let mut other = Command::new("prlimit");
    other.arg(format!("--nproc={most}")).arg("--");
    other.arg(command.get_program()).args(command.get_args());
    other
}

/// Makes a directory of this user.
fn place_of(user: u32, place: PathBuf) -> PathBuf {
    fs::create_dir(&place).unwrap();
    chown(&place, Some(user), Some(user)).unwrap();
    place
}

/// Runs the command for a user with room for few threads, then for another one with room for more,
/// until it succeeds. Returns how often it failed.
fn until_it_succeeds(first_user: u32, mut command_for: impl FnMut(u32) -> Command) -> u32 {
    for (failures, most) in (2..40).step_by(3).chain([60, 100, 600]).enumerate() {
        let failures = u32::try_from(failures).unwrap();
        let user = first_user + failures;
        let ended = run(limited(&command_for(user), user, most)).within(SOON);
        if ended.code == Some(0) {
            return failures;
        }
        assert_eq!(ended.code, Some(1), "{most} threads: {ended:?}");
        for word in ["mistake", "panicked"] {
            assert!(!ended.stderr.contains(word), "{most} threads: {ended:?}");
        }
        assert!(ended.stderr.contains("ulimit -u"), "{most} threads: {ended:?}");
        assert!(!ended.stderr.contains("os error"), "{most} threads: {ended:?}");
    }
    panic!("600 threads are too few");
}

#[test]
fn a_transfer_with_too_few_threads_says_so_at_once() {
    if !can_limit() {
        return;
    }
    let world = World::new();
    world.write("src/a", &Rng::new(1).bytes(3_000_000));
    let from = format!("{}/", world.source().display());
    // The other end of a transfer that has failed may still be there: the next one has a target of
    // its own.
    let to = |user: u32| world.path(format!("dst-{user}"));
    for (index, options) in [&[][..], &["--streams=12"], &["--tunnel"]].into_iter().enumerate() {
        let first_user = USERS + 100 * u32::try_from(index).unwrap();
        let shell = world.fake_shell(RUN_HERE);
        let command_for = |user| {
            let to = place_of(user, to(user));
            let mut command = Command::new(LADS);
            command.args(["cp", "-q"]).args(options).arg(&from);
            match options {
                ["--tunnel"] => {
                    command.args(["-e", &shell, "--remote-lads", LADS]);
                    command.arg(format!("host:{}", to.display()));
                }
                _ => drop(command.arg(&to)),
            }
            command
        };
        let failures = until_it_succeeds(first_user, command_for);
        assert!(failures > 3, "{options:?}: {failures}");
        let copy = to(first_user + failures).join("a");
        assert_eq!(fs::read(copy).unwrap(), fs::read(world.source().join("a")).unwrap());
    }
}

#[test]
fn storage_is_not_measured_with_too_few_threads() {
    if !can_limit() {
        return;
    }
    let world = World::new();
    let place = |user: u32| world.path(format!("place-{user}"));
    let command_for = |user| {
        let mut command = Command::new(LADS);
        command.args(["bench", "-q", "--time=1", "--size=16M", "--requests=64K", "--threads=24"]);
        command.arg(place_of(user, place(user)));
        command
    };
    let failures = until_it_succeeds(USERS + 400, command_for);
    assert!(failures > 3, "{failures}");
    for user in USERS + 400..=USERS + 400 + failures {
        assert_eq!(fs::read_dir(place(user)).unwrap().count(), 0, "{user}");
    }
}

/// A server would end with all its clients if one of them came when there is no thread left.
#[test]
fn a_client_that_a_server_has_no_threads_for_does_not_end_the_others() {
    if !can_limit() {
        return;
    }
    let world = World::new();
    let (user, root, token) = (USERS + 500, world.path("root"), world.path("token-dir"));
    for directory in [&root, &token] {
        fs::create_dir(directory).unwrap();
        chown(directory, Some(user), Some(user)).unwrap();
    }
    let token = token.join("token");
    let mut command = Command::new(LADS);
    command.args(["rfs", "serve", "--root"]).arg(&root).arg("--token-file").arg(&token);
    let mut server = start(by_user(&command, user));
    let pid = server.own_pid();
    let address = wait_for("the server to listen", || server.word_after("listening on "));
    let shown = fs::read_to_string(&token).unwrap();
    let digits = shown.trim().as_bytes().chunks(2);
    let token = digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16));
    let token = token.collect::<Result<Vec<_>, _>>().unwrap();
    let token: [u8; 32] = token.try_into().unwrap();
    let connect = || {
        let mut stream = as_client(TcpStream::connect(&address).unwrap(), &token).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        // A server that is full may have ended the connection.
        let _ = stream.write_all(&greeting());
        stream
    };
    let is_served = |stream: &mut UnixStream| stream.read_exact(&mut [0; 4]).is_ok();
    let limit = |most: u32| {
        let mut command = Command::new("prlimit");
        command.args([format!("--pid={pid}"), format!("--nproc={most}:")]);
        assert!(by_user(&command, user).status().unwrap().success());
    };
    let mut first = connect();
    assert!(is_served(&mut first));
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    let count: u32 = count.trim().parse().unwrap();
    for room in 0..5 {
        limit(count + room);
        // It is told that it is not served, or only that this is the end.
        let mut second = connect();
        let ended = second.read_to_end(&mut Vec::new());
        let is_over = |error: &std::io::Error| error.kind() == ErrorKind::ConnectionReset;
        assert!(ended.as_ref().map_or_else(is_over, |_| true), "room for {room}: {ended:?}");
        assert!(server.is_running(), "room for {room}");
    }
    limit(count + 100);
    assert!(is_served(&mut connect()) && server.is_running());
    drop(first);
}

/// The first packet of a client of remote files.
fn greeting() -> Vec<u8> {
    let mut bytes = Vec::new();
    message::encode(&ToServer::Hello { version: VERSION, name: String::new() }, &mut bytes);
    let count = u32::try_from(bytes.len()).unwrap();
    let head = Packet { channel: Channel::Messages, bytes: count }.head();
    [head.as_slice(), &bytes].concat()
}
