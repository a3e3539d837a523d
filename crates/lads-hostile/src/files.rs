//! A server of remote files that lies, and the trial of a client that it serves.
//!
//! The client is a process of its own, which uses the library as an MPI program does and prints
//! the result of each call ([`crate::files::server::Server`] is the other end). A trial checks that
//! the client ends in time and by itself, with bounded memory and threads, that no call panics,
//! that every value that is returned is possible, that no control characters are printed, and that
//! the lie was noticed if it had to be.

pub mod cases;
pub mod line;
pub mod server;

use crate::oracle;
use crate::peer::Stop;
use crate::process::{Limits, Watched};
use crate::trial::Programs;
use crate::world::World;
use server::Server;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// The secret of the server.
pub const TOKEN: [u8; 32] = [0x5a; 32];

/// The timeout of the client. One that is served by a busy machine is not lost.
pub const TIMEOUT: Duration = Duration::from_secs(4);

/// Buffers of the client, in bytes.
pub const BUFFERS_BYTES: u64 = 8 << 20;

/// The longest wait of the client is for a server that is alive and does nothing: ten timeouts.
const ELAPSED_MAX: Duration = Duration::from_secs(100);

/// Memory of the client beyond its buffers, in bytes: a client that is served honestly takes 20
/// MiB.
const MEMORY_BYTES: u64 = 48 << 20;

/// Threads of the client: five of the connection, and that of the program.
const THREADS_MAX: u64 = 20;

/// Descriptors of the client.
const DESCRIPTORS_MAX: u64 = 60;

/// The prefix of the line that the client prints when its connection is lost.
pub const LOST: &str = "lost: ";

/// The line that the client prints when all calls were made.
pub const DONE: &str = "all calls were made";

/// The way in which a client ends after a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It refuses the lie, and ends the connection.
    Refuses,
    /// It ends the connection, because of the lie or because of its consequences.
    Loses,
    /// It makes all its calls.
    Continues,
}

impl End {
    /// Returns the text for the page.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Refuses => "refuses the lie",
            Self::Loses => "ends the connection",
            Self::Continues => "continues",
        }
    }
}

/// A lie of a server.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The name of the case: the same in `docs/security.md`.
    pub name: &'static str,
    /// Serves the client until the lie is told, and then as long as the client stays.
    pub lie: fn(&mut Server) -> crate::peer::Told,
    /// The way in which the client ends.
    pub end: End,
    /// Words that the client must print.
    pub prints: &'static str,
}

/// Runs a case.
///
/// # Errors
/// The description of everything that was wrong.
pub fn run(programs: &Programs, case: &Case) -> Result<(), String> {
    let place = tempfile::Builder::new().prefix("lads-hostile-").tempdir().unwrap();
    let world = World::at(place.path());
    world.make();
    let (listener, address) = server::listen();
    let create = |name: &str| File::create(world.peer().join(name)).unwrap();
    let mut command = Command::new(&programs.peer);
    command.args(["client", &address]).arg(world.peer().join("token"));
    let digits: String = TOKEN.iter().map(|byte| format!("{byte:02x}")).collect();
    write_secret(&world.peer().join("token"), &digits);
    command.stdin(Stdio::null()).stdout(create("stdout")).stderr(create("stderr"));
    let mut child = command.spawn().unwrap();
    let (case, of_server) = (*case, world.clone());
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        play(&case, listener, &of_server);
        let _ = ended.send(());
    });
    let limits = Limits {
        memory_bytes: BUFFERS_BYTES + MEMORY_BYTES,
        threads: THREADS_MAX,
        descriptors: DESCRIPTORS_MAX,
        elapsed: ELAPSED_MAX,
    };
    let watched = Watched::until_end(&mut child, &limits);
    // The client is gone, so the server hears no more; what it found is written down soon.
    let _ = end.recv_timeout(Duration::from_secs(5));
    let mut wrongs = watched.beyond(&limits);
    wrongs.extend(verdict(&case, &world, &watched));
    wrongs.extend(oracle::of_output(&world));
    if wrongs.is_empty() {
        return Ok(());
    }
    let printed = [printed(&world, "stdout"), printed(&world, "stderr")].concat();
    Err(format!("{}\n--- {watched:?}\n{}", wrongs.join("\n"), printed.escape_debug()))
}

fn write_secret(path: &Path, digits: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, digits).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn play(case: &Case, listener: std::net::TcpListener, world: &World) {
    let told = Server::accept(&listener, world.clone()).and_then(|mut server| {
        drop(listener);
        (case.lie)(&mut server)?;
        server.serve()
    });
    match told {
        Ok(()) | Err(Stop::Gone) => {}
        Err(Stop::Wrong(text)) => world.note(&format!("wrong {text}")),
    }
}

fn printed(world: &World, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(world.peer().join(name)).unwrap()).into_owned()
}

/// Describes what is wrong with how the client ended.
fn verdict(case: &Case, world: &World, watched: &Watched) -> Vec<String> {
    let noted = world.noted();
    let mut wrongs: Vec<String> =
        noted.iter().filter_map(|line| line.strip_prefix("wrong ")).map(str::to_owned).collect();
    if !noted.iter().any(|line| line == "lied") {
        wrongs.push(format!("the server did not tell its lie: {noted:?}"));
    }
    match watched.status.map(|status| status.code()) {
        Some(Some(0)) => {}
        Some(code) => wrongs.push(format!("exit {code:?}")),
        None => wrongs.push("it had to be killed".to_owned()),
    }
    let printed = printed(world, "stdout");
    let lost = printed.lines().find_map(|line| line.strip_prefix(LOST));
    let is_consequence = |text: &str| {
        ["it sent nothing", "it made no progress", "it closed the connection"]
            .iter()
            .any(|words| text.contains(words))
    };
    let is_right = match case.end {
        End::Refuses => lost.is_some_and(|text| !is_consequence(text)),
        End::Loses => lost.is_some(),
        End::Continues => lost.is_none() && printed.lines().any(|line| line == DONE),
    };
    if !is_right {
        wrongs.push(format!("it is not so that the client {}", case.end.text()));
    }
    if !printed.contains(case.prints) {
        wrongs.push(format!("it did not print {:?}", case.prints));
    }
    wrongs
}
