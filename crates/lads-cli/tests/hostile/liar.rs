//! Clients that lie to the real server of remote files: each is refused with a reason, and the
//! server serves others.

use lads_core::packet::{Channel, Packet};
use lads_core::remote::message::{
    Call, Fenced, FileNumber, OpenMode, Request, ToServer, Unsent, VERSION, ViewNumber,
    WriteNumber, encode,
};
use lads_hostile::files::line::as_client;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A lie: its name, and what the client asks for after its greeting.
pub(crate) type Lie = (&'static str, fn() -> Vec<Call>);

/// No server was started again.
pub(crate) const ALL: [Lie; 4] = [
    ("files_return_of_a_new_client", || vec![back(0, 0)]),
    ("files_return_after_an_open", || vec![open(), back(0, 0)]),
    ("files_return_to_the_last_frame", || vec![back(u64::MAX, 0)]),
    ("files_return_with_many_writes", || vec![back(0, 60_000)]),
];

/// What the server says to one that must not ask for it.
const REASON: &str = "a request out of order";

const PATIENCE: Duration = Duration::from_secs(30);

fn open() -> Call {
    let mode = OpenMode { reads: true, writes: true, creates: true, is_new: false };
    Call::Open { file: FileNumber(1), path: b"a".to_vec(), mode, group: [1; 16] }
}

fn back(frames: u64, count: u32) -> Call {
    let (view, position, length) = (ViewNumber(1), 0, 1);
    let unsent = |number| Unsent { write: WriteNumber(number), view, position, length };
    let writes = (0..count).map(|number| Fenced { fence: 1, unsent: unsent(number) });
    Call::Return { frames, writes: writes.collect() }
}

/// Tells a lie.
///
/// # Errors
/// The description of what was wrong.
pub(crate) fn run(lads: &Path, lie: Lie) -> Result<(), String> {
    let place = tempfile::Builder::new().prefix("lads-hostile-").tempdir().unwrap();
    let (root, token) = (place.path().join("root"), place.path().join("token"));
    fs::create_dir(&root).unwrap();
    let mut command = Command::new(lads);
    command.args(["rfs", "serve", "--root"]).arg(&root).arg("--token-file").arg(&token);
    let mut server = Ended(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let address = address(&mut server.0);
    for _ in 0..2 {
        let mut stream = connect(&address, &token);
        for (number, call) in (0..).zip(lie.1()) {
            let request = Request { number, frames_before: 0, call };
            // The server may have ended the connection.
            let _ = stream.write_all(&packet(&ToServer::Request(request)));
        }
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said).into_owned();
        if !said.contains(REASON) {
            return Err(format!("the server did not say why it refuses: {}", said.escape_debug()));
        }
    }
    match server.0.try_wait().unwrap() {
        None => Ok(()),
        Some(status) => Err(format!("the server has ended: {status}")),
    }
}

/// A server that ends with its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the server listens. What it says later is read, too.
fn address(server: &mut Child) -> String {
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let listening = lines.find_map(|line| {
        let line = line.unwrap();
        let (_, rest) = line.split_once("listening on ")?;
        rest.split_whitespace().next().map(str::to_owned)
    });
    std::thread::spawn(move || lines.for_each(drop));
    listening.expect("it listens").trim_end_matches([',', ';', '.']).to_owned()
}

/// A connection whose handshake is done, and on which the greeting was sent.
fn connect(address: &str, token: &Path) -> UnixStream {
    let shown = fs::read_to_string(token).unwrap();
    let digits = shown.trim().as_bytes().chunks(2).map(|two| str::from_utf8(two).unwrap());
    let secret: Vec<u8> = digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect();
    let socket = TcpStream::connect(address).unwrap();
    let mut stream = as_client(socket, &secret.try_into().unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let hello = ToServer::Hello { version: VERSION, name: "liar".to_owned() };
    stream.write_all(&packet(&hello)).unwrap();
    stream
}

/// A message in packets.
fn packet(message: &ToServer) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes);
    let parts = bytes.chunks(lads_core::limits::PACKET_BYTES_MAX as usize);
    let packed = parts.map(|part| {
        let bytes = u32::try_from(part.len()).unwrap();
        [&Packet { channel: Channel::Messages, bytes }.head()[..], part].concat()
    });
    packed.collect::<Vec<_>>().concat()
}
