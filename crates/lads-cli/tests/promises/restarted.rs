//! Programs go on when their `lads rfs serve` is killed or stopped, and started again.

use crate::world::{LADS, Rng, World, for_seeds, send_signal, wait_for};
use lads_core::remote::message::{LockKind, OpenMode};
use lads_engine::remote::{Client, ClientOptions, FileHandle, Prefetch, RemoteError, read_token};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

const CREATE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
const GROUP: [u8; 16] = [7; 16];
const ENOENT: i32 = 2;
const ESTALE: i32 = 116;

/// A server at a port of its own, which can be started again.
struct Server {
    at: String,
    child: Child,
}

impl Server {
    fn start(world: &World) -> Self {
        fs::create_dir_all(world.path("root")).unwrap();
        // The port is free, and another process that wants any gets another one for a while.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let at = format!("127.0.0.1:{port}");
        let child = serve(world, &at);
        Self { at, child }
    }

    fn client(&self, world: &World) -> Client {
        let token = read_token(&world.path("token")).unwrap();
        Client::connect(&self.at, &token, &ClientOptions::default()).unwrap()
    }

    fn end(&mut self, signal: &str) {
        send_signal(self.child.id(), signal);
        self.child.wait().unwrap();
    }

    fn restart(&mut self, world: &World, signal: &str) {
        self.end(signal);
        self.child = serve(world, &self.at);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn serve(world: &World, at: &str) -> Child {
    let mut command = Command::new(LADS);
    command.args(["rfs", "serve", "--listen", at, "--layout", "synthetic:osts=3,stripe_size=64K"]);
    command.arg("--root").arg(world.path("root")).arg("--token-file").arg(world.path("token"));
    command.env("XDG_RUNTIME_DIR", world.path(""));
    command.stderr(fs::File::create(world.path("stderr")).unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(
        line.starts_with("listening on "),
        "{}",
        fs::read_to_string(world.path("stderr")).unwrap()
    );
    child
}

fn open(client: &Client, name: &str) -> FileHandle {
    client.open(name.as_bytes(), CREATE, GROUP, false).unwrap()
}

fn read(file: &FileHandle, at: u64, length: usize) -> Result<Vec<u8>, RemoteError> {
    let mut bytes = vec![0; length];
    let count = file.read(at, &mut [&mut bytes])?;
    bytes.truncate(usize::try_from(count).unwrap());
    Ok(bytes)
}

/// A file that two clients write in turn, and what it must hold.
struct Turns {
    clients: [Client; 2],
    files: [FileHandle; 2],
    expected: Vec<u8>,
    rng: Rng,
}

impl Turns {
    /// One client writes, the other one hears of it by a fence, and reads.
    fn take(&mut self, round: usize) {
        let Self { clients, files, expected, rng } = self;
        let (own, other) = (round % 2, (round + 1) % 2);
        let begin = rng.below(expected.len() - 1);
        let end = (begin + 1 + rng.below(3 * PART)).min(expected.len());
        expected[begin..end].fill(u8::try_from(round % 251).unwrap());
        files[own].write(begin as u64, &[&expected[begin..end]]).unwrap();
        match rng.below(8) {
            0 => files[own].flush().unwrap(),
            1 => files[own].sync().unwrap(),
            _ => {}
        }
        clients[own].fence();
        let begin = rng.below(expected.len());
        let end = (begin + PART).min(expected.len());
        let found = read(&files[other], begin as u64, end - begin).unwrap();
        let known = &expected[begin..end];
        assert!(found == known[..found.len()], "round {round}");
        assert!(known[found.len()..].iter().all(|it| *it == 0), "round {round}");
    }
}

const PART: usize = 90_000;

#[test]
fn what_programs_write_in_turn_survives_servers_that_are_killed() {
    for_seeds(3, 40, |seed| {
        let world = World::new();
        let mut server = Server::start(&world);
        let clients = [server.client(&world), server.client(&world)];
        let files = [0, 1].map(|it: usize| open(&clients[it], "new"));
        // What another one has written is seen at once.
        files.iter().for_each(|file| file.set_prefetch(Prefetch::Off));
        let rng = Rng::new(seed);
        let mut turns = Turns { clients, files, expected: vec![0; 16 * PART], rng };
        let rounds = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                let mut rng = Rng::new(seed ^ 1);
                for _ in 0..6 {
                    let until = rounds.load(Ordering::Relaxed) + rng.below(60);
                    let is_due = || rounds.load(Ordering::Relaxed) >= until;
                    wait_for("rounds", || is_due().then_some(()));
                    server.restart(&world, rng.pick(&["KILL", "TERM"]));
                }
            });
            while !killer.is_finished() {
                turns.take(rounds.fetch_add(1, Ordering::Relaxed));
            }
        });
        let Turns { clients, files, expected, .. } = turns;
        files.into_iter().for_each(|file| file.close(false).unwrap());
        clients.iter().for_each(|client| client.finish().unwrap());
        let found = fs::read(world.path("root/new")).unwrap();
        assert!(found[..] == expected[..found.len()]);
        assert!(clients.iter().all(|client| client.reconnections() > 0));
    });
}

/// Another client of the group may have moved the pointer.
#[test]
fn locks_survive_a_server_that_is_killed_and_shared_pointers_fail() {
    let world = World::new();
    let mut server = Server::start(&world);
    let clients = [server.client(&world), server.client(&world)];
    let files = [0, 1].map(|it: usize| open(&clients[it], "new"));
    let count = |file: &FileHandle| read(file, 0, 8).unwrap().first().copied().unwrap_or(0);
    std::thread::scope(|scope| {
        let adders = files.each_ref().map(|file| {
            scope.spawn(move || {
                for _ in 0..40 {
                    file.lock(LockKind::Exclusive).unwrap();
                    file.write(0, &[&[count(file) + 1; 8]]).unwrap();
                    file.unlock();
                }
            })
        });
        for _ in 0..4 {
            server.restart(&world, "KILL");
        }
        adders.into_iter().for_each(|it| it.join().unwrap());
    });
    // The holder of the lock reads the bytes written under it; other clients may still read earlier
    // bytes.
    files[0].lock(LockKind::Exclusive).unwrap();
    assert_eq!(count(&files[0]), 80);
    files[0].unlock();
    assert_eq!(files[0].add_shared(5).unwrap_err().errno, ESTALE);
    files[1].set_shared(7).unwrap();
    assert_eq!(files[0].add_shared(5).unwrap(), 7);
}

#[test]
fn a_file_that_was_replaced_while_the_server_was_down_fails() {
    let world = World::new();
    let mut server = Server::start(&world);
    let client = server.client(&world);
    let files = ["kept", "replaced", "removed"].map(|name| open(&client, name));
    files.iter().for_each(|file| file.write(0, &[&[1; 100]]).unwrap());
    files.iter().for_each(|file| file.flush().unwrap());
    server.end("KILL");
    let path = world.path("root/replaced");
    fs::rename(&path, world.path("root/old")).unwrap();
    fs::write(&path, b"others").unwrap();
    fs::remove_file(world.path("root/removed")).unwrap();
    server.child = serve(&world, &server.at);
    let [kept, replaced, removed] = &files;
    kept.write(100, &[&[2; 100]]).unwrap();
    kept.sync().unwrap();
    assert_eq!(replaced.size().unwrap_err().errno, ESTALE);
    assert_eq!(removed.size().unwrap_err().errno, ENOENT);
    assert_eq!(fs::read(&path).unwrap(), b"others");
    assert!(!world.path("root/removed").exists());
    assert_eq!(fs::read(world.path("root/kept")).unwrap(), [[1; 100], [2; 100]].concat());
}

/// What it wrote and had not sent is not known.
#[test]
fn readers_learn_that_a_writer_did_not_come_back() {
    let world = World::new();
    let mut server = Server::start(&world);
    let (gone, stays) = (server.client(&world), server.client(&world));
    let (written, file) = (open(&gone, "new"), open(&stays, "new"));
    let other = open(&stays, "other");
    server.end("KILL");
    drop((written, gone));
    server.child = serve(&world, &server.at);
    other.write(0, &[&[1; 10]]).unwrap();
    assert_eq!(read(&other, 0, 10).unwrap(), [1; 10]);
    let is_lost = || read(&file, 0, 10).is_err_and(|it| it.text.contains("another process wrote"));
    assert!(is_lost());
    server.restart(&world, "KILL");
    assert!(is_lost(), "the server after that one knows it as well");
    other.sync().unwrap();
    file.close(false).unwrap();
    let file = open(&stays, "new");
    assert!(read(&file, 0, 10).unwrap().is_empty(), "nobody relies on what was lost");
}
