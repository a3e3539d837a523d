//! A TCP proxy that does harm: it passes data streams on, and damages or breaks them as told.

use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr as InetAddr, SocketAddrV4, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The length of the first message of each connection, before frames: opening, number, token, salt.
const OPENING_BYTES: usize = 58;
/// The length of the answer to it.
const ANSWER_BYTES: usize = 1;
const HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 32;

/// Ports for servers that are told their port. The kernel gives none of them to those who connect
/// or bind port 0.
const PORTS: Range<u16> = 12_000..32_000;

/// A fault, which happens once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    /// Flips a bit of the blocks' bytes after this many bytes of blocks.
    FlipInPayload(u64),
    /// Flips a bit in the header of a frame, after this many bytes of blocks.
    FlipInHeader(u64),
    /// Resets one connection, after this many bytes of blocks.
    ResetOne(u64),
    /// Resets all connections after this many bytes of blocks, when this many connections have
    /// been accepted.
    ResetAll(u64, usize),
}

/// The direction of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Towards {
    /// Towards the end that the proxy connects to: a push.
    Listener,
    /// Towards the end that connects to the proxy: a pull.
    Connecter,
}

/// A proxy from its own port to another one.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    harm: Harm,
    towards: Towards,
    is_done: AtomicBool,
    payload_bytes: AtomicU64,
    connection_count: AtomicUsize,
    connections: Mutex<Vec<TcpStream>>,
    /// The number of connections whose token was accepted.
    accepted_count: Mutex<usize>,
    accepted: Condvar,
}

impl Proxy {
    /// Listens, and connects to `to_port`.
    pub(crate) fn start(to_port: u16, harm: Harm, towards: Towards) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            harm,
            towards,
            is_done: AtomicBool::new(false),
            payload_bytes: AtomicU64::new(0),
            connection_count: AtomicUsize::new(0),
            connections: Mutex::default(),
            accepted_count: Mutex::default(),
            accepted: Condvar::new(),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to_port)) else { continue };
                shared.connection_count.fetch_add(1, Ordering::Relaxed);
                let mut all = shared.connections.lock().unwrap();
                all.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                drop(all);
                shared.join(near, far);
            }
        });
        Self { port, state }
    }

    /// Returns whether the fault has happened.
    pub(crate) fn has_harmed(&self) -> bool {
        self.state.is_done.load(Ordering::Relaxed)
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.state.connection_count.load(Ordering::Relaxed)
    }
}

impl State {
    fn on_accepted(&self) {
        *self.accepted_count.lock().unwrap() += 1;
        self.accepted.notify_all();
    }

    fn join(self: &Arc<Self>, near: TcpStream, far: TcpStream) {
        let (from, to, first_bytes) = match self.towards {
            Towards::Listener => (near, far, OPENING_BYTES),
            Towards::Connecter => (far, near, ANSWER_BYTES),
        };
        let (mut back_from, mut back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
        let state = Arc::clone(self);
        std::thread::spawn(move || {
            let back_bytes = match state.towards {
                Towards::Listener => ANSWER_BYTES,
                Towards::Connecter => OPENING_BYTES,
            };
            let passed = pass_first(&back_from, &back_to, back_bytes);
            if passed.is_ok() && state.towards == Towards::Listener {
                state.on_accepted();
            }
            let _ = std::io::copy(&mut back_from, &mut back_to);
            let _ = back_to.shutdown(Shutdown::Write);
        });
        let state = Arc::clone(self);
        std::thread::spawn(move || {
            let _ = state.pass_frames(&from, &to, first_bytes);
            let _ = to.shutdown(Shutdown::Write);
        });
    }

    /// Passes on frames, one after the other.
    fn pass_frames(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        first_bytes: usize,
    ) -> std::io::Result<()> {
        pass_first(from, to, first_bytes)?;
        if self.towards == Towards::Connecter {
            self.on_accepted();
        }
        let mut frame = vec![0; HEADER_BYTES];
        loop {
            frame.resize(HEADER_BYTES, 0);
            from.read_exact(&mut frame)?;
            let row_count = usize::from(u16::from_le_bytes([frame[4], frame[5]]));
            let payload_bytes = u32::from_le_bytes(frame[8..12].try_into().unwrap());
            let head_bytes = HEADER_BYTES + row_count * ROW_BYTES;
            frame.resize(head_bytes + payload_bytes as usize, 0);
            from.read_exact(&mut frame[HEADER_BYTES..])?;
            let before = self.payload_bytes.fetch_add(payload_bytes.into(), Ordering::Relaxed);
            if !self.harm(&mut frame, head_bytes, before, from, to) {
                return Ok(());
            }
            to.write_all(&frame)?;
        }
    }

    /// Does the fault if it is due; returns `false` if the connection is gone.
    fn harm(
        &self,
        frame: &mut [u8],
        head_bytes: usize,
        before: u64,
        from: &TcpStream,
        to: &TcpStream,
    ) -> bool {
        let payload_bytes = (frame.len() - head_bytes) as u64;
        let (Harm::FlipInPayload(at)
        | Harm::FlipInHeader(at)
        | Harm::ResetOne(at)
        | Harm::ResetAll(at, _)) = self.harm;
        let is_due = before + payload_bytes > at;
        if !is_due || self.is_done.swap(true, Ordering::Relaxed) {
            return true;
        }
        match self.harm {
            Harm::FlipInPayload(_) => {
                let offset = usize::try_from(at.saturating_sub(before)).unwrap();
                frame[head_bytes + offset] ^= 0x10;
                true
            }
            Harm::FlipInHeader(_) => {
                frame[usize::try_from(at).unwrap() % HEADER_BYTES] ^= 0x04;
                true
            }
            Harm::ResetOne(_) => {
                // Only half of the frame arrives.
                let mut half = to;
                let _ = half.write_all(&frame[..frame.len() / 2]);
                reset(from);
                reset(to);
                false
            }
            Harm::ResetAll(_, count) => {
                let accepted = self.accepted_count.lock().unwrap();
                drop(self.accepted.wait_while(accepted, |accepted| *accepted < count).unwrap());
                self.connections.lock().unwrap().iter().for_each(reset);
                false
            }
        }
    }
}

/// Passes on what is not a frame: a token, or the answer to it.
fn pass_first(mut from: &TcpStream, mut to: &TcpStream, count: usize) -> std::io::Result<()> {
    let mut first = vec![0; count];
    from.read_exact(&mut first)?;
    to.write_all(&first)
}

/// Ends a connection as a crash would.
fn reset(connection: &TcpStream) {
    let _ = set_socket_linger(connection, Some(Duration::ZERO));
    let _ = connection.shutdown(Shutdown::Both);
}

/// Returns a port that nobody listens on, and that no other test is given until this process ends.
///
/// An abstract socket, which ends with the process, reserves it.
pub(crate) fn free_port() -> u16 {
    static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    // Processes that start together begin at different ports.
    let skipped = std::process::id() as usize % PORTS.len();
    for port in PORTS.cycle().skip(skipped).take(PORTS.len()) {
        let name = SocketAddr::from_abstract_name(format!("lads-test-port-{port}")).unwrap();
        if let Ok(reservation) = UnixListener::bind_addr(&name)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            RESERVED.lock().unwrap().push(reservation);
            return port;
        }
    }
    panic!("none of the ports {PORTS:?} is free");
}

/// Opens a port that never replies: its queue of pending connections is full, so the kernel drops
/// new ones. Also returns the sockets that keep the queue full.
pub(crate) fn silent_port() -> (u16, (OwnedFd, Vec<TcpStream>)) {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    listen(&socket, 0).unwrap();
    let address = InetAddr::try_from(getsockname(&socket).unwrap()).unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the kernel takes any number");
    }
    (address.port(), (socket, waiting))
}
