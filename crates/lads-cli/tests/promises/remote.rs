//! Remote files on a host where no server was started: the client starts one through ssh.

use crate::world::{LADS, RUN_HERE, Stopwatch, World, send_signal, wait_for, write_script};
use lads_core::remote::message::OpenMode;
use lads_engine::RemoteShell;
use lads_engine::remote::{Client, ClientOptions, FileHandle, RemoteError};
use lads_tried::Sshd;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub(crate) const CREATE: OpenMode =
    OpenMode { reads: true, writes: true, creates: true, is_new: false };
pub(crate) const GROUP: [u8; 16] = [7; 16];
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOTDIR: i32 = 20;

pub(crate) fn shell(command: &str, lads: &str) -> RemoteShell {
    let command = RemoteShell::words(command).unwrap();
    RemoteShell { command, lads: Some(lads.to_owned()), ..RemoteShell::default() }
}

pub(crate) fn client(shell: &RemoteShell, host: &str, path: &str) -> Result<Client, RemoteError> {
    let timeout = Duration::from_secs(20);
    let options = ClientOptions { timeout, ..ClientOptions::default() };
    Client::start(shell, host, path.as_bytes(), &options)
}

pub(crate) fn open(client: &Client, path: &str) -> Result<FileHandle, RemoteError> {
    client.open(path.as_bytes(), CREATE, GROUP, false)
}

/// A script that tells its number and becomes a command.
pub(crate) fn told(world: &World, name: &str, command: &str) -> String {
    let (script, pid) = (world.path(name), world.path(format!("{name}.pid")));
    let text = format!("echo $$ > {}\nexec {command}", pid.display());
    write_script(&script, &text).unwrap();
    script.display().to_string()
}

fn pid_of(world: &World, name: &str) -> u32 {
    fs::read_to_string(world.path(format!("{name}.pid"))).unwrap().trim().parse().unwrap()
}

/// Neither running nor a zombie.
fn is_gone(pid: u32) -> Option<()> {
    (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
}

#[test]
fn a_server_is_started_through_a_real_ssh_and_ends_with_its_client() {
    let world = World::new();
    let Some(sshd) = Sshd::start(&world.path("")).unwrap() else { return };
    let ssh = told(&world, "ssh-of-test", &format!("{} \"$@\"", sshd.shell));
    let lads = told(&world, "lads-of-test", &format!("{LADS} \"$@\""));
    let path = world.path("new").display().to_string();
    let client = client(&shell(&ssh, &lads), &sshd.host, &path).unwrap();
    let file = open(&client, &path).unwrap();
    let bytes: Vec<u8> = (0..9_000_000u32).map(|index| (index % 251) as u8).collect();
    file.write(5, &[&bytes]).unwrap();
    let mut back = vec![0; bytes.len() + 10];
    let got = file.read(5, &mut [&mut back]).unwrap();
    assert!(got == bytes.len() as u64 && back[..bytes.len()] == bytes[..]);
    file.close(false).unwrap();
    assert!(fs::read(&path).unwrap()[5..] == bytes);
    let (ssh, server) = (pid_of(&world, "ssh-of-test"), pid_of(&world, "lads-of-test"));
    assert!(is_gone(ssh).is_none() && is_gone(server).is_none());
    drop(client);
    wait_for("ssh to end, and be no zombie", || is_gone(ssh));
    wait_for("the server to end", || is_gone(server));
}

#[test]
fn a_server_that_nobody_talks_to_ends_and_says_why() {
    let mut command = Command::new(LADS);
    command.args(["rfs", "serve", "--stdio"]).stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("the client ended before"), "{said}");
}

#[test]
fn paths_are_those_of_the_user_below_the_home_directory_and_through_links() {
    let world = World::new();
    let home = world.path("home");
    fs::create_dir_all(home.join("real")).unwrap();
    symlink("real", home.join("link")).unwrap();
    symlink("target", home.join("real/file")).unwrap();
    fs::write(home.join("real/target"), b"x").unwrap();
    let fake = world.fake_shell(&format!("cd {}; {RUN_HERE}", home.display()));
    let client = client(&shell(&fake, LADS), "host", "link/a").unwrap();
    for path in ["a", "link/b", "link/file", "link/../c"] {
        let file = open(&client, path).unwrap();
        file.write(0, &[path.as_bytes()]).unwrap();
        file.close(false).unwrap();
    }
    let read = |name: &str| fs::read_to_string(home.join(name)).unwrap();
    assert_eq!(
        (read("a"), read("real/b"), read("c")),
        ("a".into(), "link/b".into(), "link/../c".into())
    );
    assert_eq!(read("real/target"), "link/file");
    client.delete(b"link/b").unwrap();
    assert!(!home.join("real/b").exists());
}

/// As a command that a key is limited to.
#[test]
fn with_a_root_the_client_stays_below_it() {
    let world = World::new();
    let root = world.path("root");
    fs::create_dir(&root).unwrap();
    symlink("..", root.join("out")).unwrap();
    let lads = told(&world, "lads-of-test", &format!("{LADS} \"$@\" --root {}", root.display()));
    let client = client(&shell(&world.fake_shell(RUN_HERE), &lads), "host", "a").unwrap();
    open(&client, "/a").unwrap().close(false).unwrap();
    assert!(root.join("a").exists());
    assert_eq!(open(&client, "../b").unwrap_err().errno, EINVAL);
    assert_eq!(open(&client, "out/b").unwrap_err().errno, ENOTDIR);
}

#[test]
fn what_ssh_says_is_told() {
    let world = World::new();
    let Some(sshd) = Sshd::start(&world.path("")).unwrap() else { return };
    let start = |shell: &RemoteShell, host: &str| {
        let since = Stopwatch::start();
        let error = client(shell, host, "a").unwrap_err();
        assert!(since.elapsed() < Duration::from_secs(15), "{error}");
        error
    };
    let error = start(&shell(&sshd.shell, "/nowhere/lads"), &sshd.host);
    assert!(error.text.contains("there is no /nowhere/lads on"), "{error}");
    let error = start(&shell(&sshd.shell, LADS), "-oProxyCommand=x");
    assert!(error.text.contains("dash"), "{error}");
    // Nobody listens at the first port.
    let port = sshd.shell.replace(" -p ", " -p 1 -o Port=");
    let error = start(&shell(&port, LADS), &sshd.host);
    assert!(error.text.contains("Connection refused"), "{error}");
    sshd.lock_out().unwrap();
    let error = start(&shell(&sshd.shell, LADS), &sshd.host);
    assert!(error.errno == EACCES && error.text.contains("Permission denied"), "{error}");
}

#[test]
fn what_comes_instead_of_a_server_is_told_in_time() {
    let world = World::new();
    for (script, expected) in [
        ("echo 'You have mail, and much of it'; exec sleep 1000", "printed text"),
        ("echo no such option >&2; exit 2", "no such option"),
        ("exit 0", "ended before LADS started"),
        ("exec sleep 1000", "within 1 s, neither from LADS"),
        ("kill -STOP $$", "within 1 s, neither from LADS"),
    ] {
        let fake = told(&world, "shell-of-test", &format!("sh -c '{}'", script.replace('\'', "")));
        let options = ClientOptions { timeout: Duration::from_secs(1), ..Default::default() };
        let since = Stopwatch::start();
        let error = Client::start(&shell(&fake, LADS), "host", b"a", &options).unwrap_err();
        assert!(error.text.contains(expected), "{script}: {error}");
        assert!(since.elapsed() < Duration::from_secs(10), "{script}");
        assert!(is_gone(pid_of(&world, "shell-of-test")).is_some(), "{script}: is left");
    }
}

/// The program may run for days after that: ssh must not stay as a zombie.
#[test]
fn a_connection_whose_ssh_is_killed_is_lost_and_nothing_stays() {
    let world = World::new();
    let fake =
        told(&world, "shell-of-test", "sh -c 'shift; echo a last word >&2; \"$@\"' - \"$@\"");
    let path = world.path("new").display().to_string();
    let client = client(&shell(&fake, LADS), "host", &path).unwrap();
    let file = open(&client, &path).unwrap();
    let pid = pid_of(&world, "shell-of-test");
    let server = wait_for("the server", || crate::world::child_of(pid));
    send_signal(server, "KILL");
    let bytes = vec![1; 1 << 20];
    while file.write(0, &[&bytes]).is_ok() {}
    let error = file.sync().unwrap_err();
    assert!(error.text.contains("a last word"), "{error}");
    assert!(client.is_lost());
    wait_for("the shell to be taken off", || is_gone(pid));
}

/// Nobody is there to type a password, nor to stop ssh while it tries for minutes to connect.
#[test]
fn ssh_asks_nothing_and_gives_up_in_time_unless_the_user_says_otherwise() {
    let world = World::new();
    let list = world.path("asked");
    let script = format!(
        "sh -c 'echo \"$@\" >> {}; echo hostname a; echo connecttimeout none; exit 255' - \"$@\"",
        list.display()
    );
    let ssh = told(&world, "ssh", &script);
    client(&shell(&format!("{ssh} -o BatchMode=no"), LADS), "host", "a").unwrap_err();
    let asked = fs::read_to_string(list).unwrap();
    let last = asked.lines().last().unwrap();
    let expected = "-o BatchMode=no -o ConnectTimeout=15 -o BatchMode=yes host ";
    assert!(last.starts_with(expected), "{asked}");
}
