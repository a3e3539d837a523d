//! The daemon: accepts connections, and starts a process for each.

use super::DaemonConfig;
use crate::clock::Clock;
use crate::keys::{KEY_BYTES, PublicKey};
use crate::names::address_of;
use crate::stop::StopFlag;
use crate::transport::tcp::socket_pair;
use lads_core::offer::{Places, SessionLimits, StrangerLines};
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How many connections may be in their handshakes. Each is a process for two round trips: 500 new
/// connections per second at 64 ms. Half would be half of that; the double takes twice the memory
/// from a host whom strangers ask.
const STRANGERS_MAX: usize = 64;
/// Pause after a connection could not be accepted, because the process has too many open files.
/// Half would retry more often in vain; the double would delay a peer noticeably.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// The ports of a daemon.
#[derive(Debug)]
pub struct Listening {
    listeners: Vec<TcpListener>,
}

impl Listening {
    /// Opens the ports of a configuration, or takes those that the service manager has opened.
    ///
    /// # Errors
    /// If a port cannot be opened, with its address.
    pub fn open(config: &DaemonConfig, inherited: Vec<OwnedFd>) -> Result<Self, String> {
        let own = |text: &String| -> Result<TcpListener, String> {
            let bind = address_of(text).and_then(|address| match TcpListener::bind(address) {
                // All addresses, on a host without IPv6.
                Err(_) if address == SocketAddr::from((Ipv6Addr::UNSPECIFIED, address.port())) => {
                    TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port()))
                }
                result => result,
            });
            bind.map_err(|error| format!("cannot listen on {text}: {error}"))
        };
        let listeners: Vec<TcpListener> = match inherited.is_empty() {
            true => config.listen.iter().map(own).collect::<Result<_, _>>()?,
            false => inherited.into_iter().map(Into::into).collect(),
        };
        for listener in &listeners {
            let prepared = listener.local_addr().and_then(|_| listener.set_nonblocking(true));
            prepared.map_err(|error| format!("cannot use a socket that was passed on: {error}"))?;
        }
        Ok(Self { listeners })
    }

    /// The addresses on which it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(|it| it.local_addr().ok()).collect()
    }
}

/// A process that serves a connection.
struct Running {
    child: Child,
    /// It asks for a session through this; it closes with the process.
    status: OwnedFd,
}

/// The connections of a daemon and their processes, by numbers.
struct Connections {
    running: BTreeMap<u64, Running>,
    places: Places<u64, PublicKey>,
    next: u64,
    /// The last reported error.
    last_told: Option<String>,
    clock: Clock,
    lines: StrangerLines,
}

/// A request for a session, from the process of a connection to the daemon: a key and two limits.
const REQUEST_BYTES: usize = KEY_BYTES + 2 * 4;
/// The answer if there is room.
const ROOM: u8 = 1;

/// Asks the daemon, through the other end of a status socket, for a session of a peer.
///
/// # Errors
/// If the daemon has ended.
pub(super) fn ask(
    daemon: &OwnedFd,
    peer: PublicKey,
    SessionLimits { all, of_peer }: SessionLimits,
) -> io::Result<bool> {
    let request = [&peer.0[..], &all.to_le_bytes(), &of_peer.to_le_bytes()].concat();
    let mut answer = [0];
    let is_sent = rustix::io::write(daemon, &request)? == REQUEST_BYTES;
    match is_sent && rustix::io::read(daemon, &mut answer)? == 1 {
        true => Ok(answer == [ROOM]),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The request in these bytes.
fn request(bytes: &[u8; REQUEST_BYTES]) -> (PublicKey, SessionLimits) {
    let (key, limits) = bytes.split_at(KEY_BYTES);
    let number = |at: usize| {
        let bytes = limits[at..at + 4].try_into();
        u32::from_le_bytes(bytes.expect("it has four bytes"))
    };
    let key = PublicKey(key.try_into().expect("it was split there"));
    (key, SessionLimits { all: number(0), of_peer: number(4) })
}

/// Accepts connections until `stop` is set. For each, starts the command `process`, with the
/// connection as standard input; as standard output, it has a socket through which it asks for a
/// session. The process receives whether its connection gets a line in the log if the connection
/// is not authenticated. When `check` is set, `load` reads the configuration, as those processes
/// do. The thread that sets a flag then writes to the pipe of which `woken` is the other end.
/// `tell` reports errors.
pub fn listen(
    listening: &Listening,
    (load, check): (&dyn Fn() -> Result<DaemonConfig, String>, &AtomicBool),
    process: &dyn Fn(bool) -> Command,
    (stop, woken): (&StopFlag, &OwnedFd),
    tell: &dyn Fn(&str),
) {
    let mut all = Connections {
        running: BTreeMap::new(),
        places: Places::new(STRANGERS_MAX),
        next: 0,
        last_told: None,
        clock: Clock::start(),
        lines: StrangerLines::default(),
    };
    while !stop.is_set() {
        if check.swap(false, Ordering::Relaxed) {
            match load() {
                Ok(_) => tell("the configuration is right"),
                Err(why) => tell(&format!("the configuration is wrong, nobody is let in: {why}")),
            }
        }
        all.wait(&listening.listeners, woken);
        all.on_status();
        for listener in &listening.listeners {
            all.accept(listener, process, tell);
        }
    }
}

impl Connections {
    /// Waits until something happens.
    fn wait(&self, listeners: &[TcpListener], waker: &OwnedFd) {
        let status = self.running.values().map(|it| PollFd::new(&it.status, PollFlags::IN));
        let ports = listeners.iter().map(|it| PollFd::new(it, PollFlags::IN));
        let woken = [PollFd::new(waker, PollFlags::IN)];
        let mut polled: Vec<PollFd<'_>> = woken.into_iter().chain(ports).chain(status).collect();
        // An error is met by the next call.
        let is_woken = poll(&mut polled, None).is_ok() && !polled[0].revents().is_empty();
        if is_woken {
            let _ = rustix::io::read(waker, &mut [0; 64]);
        }
    }

    /// Takes note of who is known, and who has ended.
    fn on_status(&mut self) {
        let places = &mut self.places;
        self.running.retain(|id, running| {
            let mut asked = [0; REQUEST_BYTES];
            if rustix::io::read(&running.status, &mut asked) == Ok(REQUEST_BYTES) {
                let (peer, limits) = request(&asked);
                let answer = if places.on_known(id, peer, limits) { ROOM } else { 0 };
                // If it does not hear it, it has ended.
                let _ = rustix::io::write(&running.status, &[answer]);
            }
            let has_ended = matches!(running.child.try_wait(), Ok(Some(_)) | Err(_));
            if has_ended {
                places.on_ended(id);
            }
            !has_ended
        });
    }

    /// Accepts the connections that wait.
    fn accept(
        &mut self,
        listener: &TcpListener,
        process: &dyn Fn(bool) -> Command,
        tell: &dyn Fn(&str),
    ) {
        // After some, others get a turn.
        for _ in 0..STRANGERS_MAX {
            let error = match listener.accept() {
                Ok((socket, _)) => {
                    let (has_line, omitted) = self.lines.on_connected(self.clock.now());
                    if let Some(count) = omitted {
                        tell(&format!("{count} more connections have no line, except for peers"));
                    }
                    match self.begin(socket.into(), process(has_line)) {
                        Ok(()) => continue,
                        Err(error) => format!("cannot start a process for a connection: {error}"),
                    }
                }
                Err(error) if is_over(&error) => return,
                Err(error) => format!("cannot accept a connection: {error}"),
            };
            // A flood of connections is no flood of lines.
            if self.last_told.as_ref() != Some(&error) {
                tell(&error);
                self.last_told = Some(error);
            }
            std::thread::sleep(FULL_PAUSE);
            return;
        }
    }

    fn begin(&mut self, socket: OwnedFd, mut command: Command) -> io::Result<()> {
        let (status, asking) = socket_pair()?;
        rustix::io::ioctl_fionbio(&status, true)?;
        if self.running.len() >= STRANGERS_MAX {
            // Who has become known meanwhile is not to be ended as a stranger.
            self.on_status();
        }
        let id = self.next;
        self.next += 1;
        let ends = self.places.on_connected(id);
        if let Some(mut ended) = ends.and_then(|oldest| self.running.remove(&oldest)) {
            let _ = ended.child.kill();
            let _ = ended.child.wait();
        }
        // A signal for the daemon in its terminal is not for them.
        command.stdin(Stdio::from(socket)).stdout(Stdio::from(asking)).process_group(0);
        match command.spawn() {
            Ok(child) => {
                self.running.insert(id, Running { child, status });
                Ok(())
            }
            Err(error) => {
                self.places.on_ended(&id);
                Err(error)
            }
        }
    }
}

/// Whether no connection waits, or the one that waited is gone.
fn is_over(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | ConnectionAborted | ConnectionReset | Interrupted)
}
