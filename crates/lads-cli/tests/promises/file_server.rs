//! Tests of `lads rfs serve` where the system refuses something.

use crate::faultfs::FaultFs;
use crate::world::{LADS, World, wait_for};
use lads_core::remote::message::OpenMode;
use lads_core::view::Datatype;
use lads_engine::remote::{Client, ClientOptions, FileHandle, RemoteError, read_token};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const CREATE: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENFILE: i32 = 23;
const EFBIG: i32 = 27;

/// A server that is ended with the test.
struct Server {
    child: Child,
    at: String,
}

impl Server {
    /// Starts a server of a directory with these options, after a command of a shell.
    fn start(world: &World, before: &str, options: &[&str]) -> Self {
        fs::create_dir_all(world.path("root")).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{before}; exec \"$@\""), "-", LADS, "rfs", "serve"]);
        command.args(options).arg("--root").arg(world.path("root"));
        command.arg("--token-file").arg(world.path("token"));
        command.stderr(fs::File::create(world.path("stderr")).unwrap());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let at = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        Self { child, at }
    }

    fn client(&self, world: &World) -> Result<Client, RemoteError> {
        let token = read_token(&world.path("token")).unwrap();
        Client::connect(&self.at, &token, &ClientOptions::default())
    }

    /// Returns the processor time of the server so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11..13].iter().map(|it| it.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn open(client: &Client, name: &str) -> Result<FileHandle, RemoteError> {
    client.open(name.as_bytes(), CREATE, [7; 16], false)
}

/// A server without descriptors used a processor and answered no client.
#[test]
fn the_files_of_one_client_leave_descriptors_for_other_clients() {
    let world = World::new();
    let server = Server::start(&world, "ulimit -n 64", &[]);
    let first = server.client(&world).unwrap();
    let mut files = Vec::new();
    let error = loop {
        match open(&first, &format!("f{}", files.len())) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    assert!(error.errno == ENFILE && files.len() >= 8, "{} files: {error}", files.len());
    // Strangers take no descriptors of others either.
    let strangers: Vec<_> = (0..100).map(|_| TcpStream::connect(&server.at)).collect();
    let second = server.client(&world).unwrap();
    assert_eq!(second.delete(b"none").unwrap_err().errno, ENOENT);
    assert_eq!(open(&second, "new").unwrap_err().errno, ENFILE);
    let third = server.client(&world).and_then(|third| open(&third, "new"));
    assert!(third.is_err(), "there are two clients at most");
    let printed = fs::read_to_string(world.path("stderr")).unwrap();
    assert!(
        printed.contains("at most 2 clients can connect, not 64: ulimit -n is 64"),
        "{printed}"
    );
    let before = server.ticks();
    std::thread::sleep(Duration::from_secs(1));
    let used = server.ticks() - before;
    assert!(used < 50, "{used} ticks in a second without work");
    drop(strangers);
    // A closed file leaves its descriptors to any client.
    for file in files.drain(..2) {
        file.close(false).unwrap();
    }
    let file = open(&second, "new").unwrap();
    file.write(0, &[b"x"]).unwrap();
    file.close(false).unwrap();
    drop((first, files));
    wait_for("the place of the first client", || {
        server.client(&world).and_then(|third| open(&third, "third")?.close(false)).ok()
    });
}

/// Pieces of two clients that are side by side are written by one call. If the system did a part of
/// it, all counted as written.
#[test]
fn pieces_that_are_written_in_part_are_an_error() {
    const LIMIT: u64 = 64 << 10;
    let world = World::new();
    // The limit is in blocks of 512 bytes. The signal would end the server.
    let before = format!("trap '' XFSZ; ulimit -f {}", LIMIT / 512);
    let options = ["--layout=synthetic:osts=1,latency_ms=200"];
    let server = Server::start(&world, &before, &options);
    let clients = [0; 3].map(|_| server.client(&world).unwrap());
    let [others @ .., busy] = &clients;
    // While the storage does this, the pieces of the others arrive.
    let blocks = open(busy, "blocks").unwrap();
    (0..16).for_each(|block| blocks.write(block * 4096, &[b"x"]).unwrap());
    blocks.flush().unwrap();
    (0..16).for_each(|block| blocks.write(block * 4096, &[b"x"]).unwrap());
    let written = |index: u64, client: &Client| {
        let file = open(client, "new")?;
        let mut filetype = Vec::new();
        let of = Box::new(Datatype::Bytes(512));
        Datatype::Resized { begin: 0, extent: 1024, of }.write(&mut filetype);
        // Two pieces: one before the limit, and one behind it.
        file.set_view(LIMIT - 1024 + index * 512, &filetype)?;
        file.write(0, &[&[1; 1024]])?;
        file.sync()
    };
    std::thread::scope(|scope| {
        let written = &written;
        let threads = (0..).zip(others).map(|it| scope.spawn(move || written(it.0, it.1)));
        for thread in threads.collect::<Vec<_>>() {
            assert_eq!(thread.join().unwrap().unwrap_err().errno, EFBIG);
        }
    });
    let length = fs::metadata(world.path("root/new")).unwrap().len();
    assert_eq!(length, LIMIT, "the first pieces are written");
    blocks.close(false).unwrap();
}

/// Everything seemed to be durable when the program ended.
#[test]
fn a_failed_sync_of_a_deferred_close_is_an_error_at_the_end() {
    let world = World::new();
    let Some(storage) = FaultFs::mount(&world, "storage") else { return };
    let path = storage.path("new");
    let name = path.as_os_str().as_bytes();
    for (call, defers) in [("fsync", true), ("fsync", false), ("fsyncdir", true)] {
        storage.command(&format!("clear\nfail {call} EIO"));
        let client = Client::here(name, &ClientOptions::default()).unwrap();
        let file = client.open(name, CREATE, [7; 16], false).unwrap();
        file.write(0, &[b"x"]).unwrap();
        let closed = file.close(defers);
        let error = if defers { closed.and_then(|()| client.finish()) } else { closed };
        assert_eq!(error.unwrap_err().errno, EIO, "{call}");
        client.finish().unwrap();
        fs::remove_file(&path).unwrap();
    }
}
