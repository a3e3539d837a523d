//! The process that a daemon starts for each connection: who is there, and may it have a session?

use super::account::Account;
use super::listen::ask;
use super::{DaemonConfig, Peer, relay};
use crate::keys::{KeyPair, PublicKey};
use crate::patience::{Patience, Patient};
use crate::stop::StopFlag;
use crate::thread::spawn;
use crate::transport::handshake::{Handshake, Listening, Purpose, meet_with};
use crate::transport::seal::{Opener, Sealer};
use crate::transport::tcp::tune;
use lads_core::offer::SessionLimits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Time limit of a handshake. It takes two round trips, and lost packets are sent again after 1, 3
/// and 7 s. Half of this would fail after the third loss; the double would keep the place of a
/// stranger for longer.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long the last bytes of a session that has ended may take to leave. Half is too short for a
/// lost packet on a long line; with the double, a dead peer keeps a place for longer.
const LAST_BYTES_DEADLINE: Duration = Duration::from_secs(10);
/// Interval in which a session with a time limit is checked: it ends at most this much late. Limits
/// are hours; half or double would not be noticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum length of the standard error of a session in the log, in bytes: three paths of 1 KiB.
/// Half would cut long paths; the double would let a peer write longer lines into the log.
const SAID_BYTES_MAX: u64 = 4 << 10;

/// How a connection ended, for the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionEnd {
    /// The address of the other host.
    pub from: Option<SocketAddr>,
    /// The key that it has shown.
    pub key: Option<PublicKey>,
    /// The name that the configuration gives it.
    pub peer: Option<String>,
    /// The user of the session.
    pub user: Option<String>,
    /// What the session itself says of what it did.
    pub said: String,
    /// Its exit code; `None` if no session began, or if a signal ended it.
    pub exit_code: Option<i32>,
    /// Why it did not begin, or was ended.
    pub reason: Option<String>,
    /// How long it took, in milliseconds.
    pub milliseconds: u64,
}

/// Serves a connection: the part of it in the process of its own. `load` reads the configuration,
/// `program` is LADS, and `daemon` is the socket through which the daemon is asked for a session.
#[must_use]
pub fn serve_connection(
    load: &dyn Fn() -> Result<DaemonConfig, String>,
    program: &Path,
    connection: OwnedFd,
    daemon: &OwnedFd,
) -> SessionEnd {
    let began = Instant::now();
    let socket = TcpStream::from(connection);
    let mut end = SessionEnd { from: socket.peer_addr().ok(), ..SessionEnd::default() };
    let outcome = serve(load, program, &socket, daemon, &mut end);
    end.reason = outcome.err();
    end.milliseconds = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    end
}

fn serve(
    load: &dyn Fn() -> Result<DaemonConfig, String>,
    program: &Path,
    socket: &TcpStream,
    daemon: &OwnedFd,
    end: &mut SessionEnd,
) -> Result<(), String> {
    // No other process of the user whom this one becomes may look into it: it knows keys.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(|errno| format!("cannot protect its memory: {errno}"))?;
    let config = load()?;
    let key = KeyPair::read(&config.key_file)
        .map_err(|error| format!("{}: {error}", config.key_file.display()))?;
    tune(socket);
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, HANDSHAKE_DEADLINE);
    let mut own = Listening::new(&key, &[Purpose::Transfer, Purpose::FilesSession])
        .and_then(|listening| Handshake::server(&listening))
        .map_err(|refusal| refusal.to_string())?;
    meet_with(&mut own, &mut Patient { pipe: socket, patience: &patience })
        .map_err(|refusal| refusal.to_string())?;
    let is_for_files = own.is_for(Purpose::FilesSession);
    let (seals, shown) = own.finish().map_err(|refusal| refusal.to_string())?;
    drop(key);
    end.key = Some(shown);
    let (mut sealer, opener) = (seals.sealer, seals.opener);
    let mut refuse = |told: &str, logged: String| {
        let bytes = [&[relay::REFUSED], told.as_bytes()].concat();
        let _ = socket.set_write_timeout(Some(LAST_BYTES_DEADLINE));
        let _ = relay::send_all(&bytes, socket, &mut sealer);
        linger(socket);
        logged
    };
    let Some(peer) = config.peers.iter().find(|peer| peer.key == shown) else {
        let told = format!("the key {shown} is not known there: its administrator can permit it");
        return Err(refuse(&told, "the key is not known".to_owned()));
    };
    end.peer = Some(peer.name.clone());
    end.user.clone_from(&peer.user);
    if is_for_files && !peer.access.permits_programs() {
        let told = "your key permits only write there, and programs could read, too";
        return Err(refuse(told, "programs need to read".to_owned()));
    }
    let all = config.sessions_max;
    let limits = SessionLimits { all, of_peer: peer.sessions_max.unwrap_or(all) };
    if !ask(daemon, shown, limits).map_err(|error| format!("the daemon has ended: {error}"))? {
        let told = "all sessions are in use; try again later";
        return Err(refuse(told, "all sessions are in use".to_owned()));
    }
    let child = match begin(peer, &config, program, is_for_files) {
        Ok(child) => child,
        // Why is for the administrator of this host, and not for the peer.
        Err(why) => {
            let told = "the session cannot begin; its administrator finds the reason in the log";
            return Err(refuse(told, why));
        }
    };
    // If that fails, the session finds it out.
    let _ = relay::send_all(&[relay::GO_ON], socket, &mut sealer);
    let carried = Carried { child, socket, sealer, opener, time: peer.time };
    carried.until_its_end(end)
}

/// Becomes the user of the session, and starts the end of the transfer.
fn begin(
    peer: &Peer,
    config: &DaemonConfig,
    program: &Path,
    is_for_files: bool,
) -> Result<Child, String> {
    if let Some(account) = Account::of(peer)? {
        account.become_it()?;
    }
    let limit = |resource, most: u64| {
        let current = getrlimit(resource).maximum;
        let most = Some(current.map_or(most, |current| most.min(current)));
        setrlimit(resource, Rlimit { current: most, maximum: most }).map_err(|it| it.to_string())
    };
    limit(Resource::Core, 0)?;
    if let Some(bytes) = peer.memory_bytes {
        limit(Resource::Data, bytes)?;
    }
    let mut command = Command::new(program);
    if is_for_files {
        command.args(["rfs", "serve", "--stdio", "--root=.", "--confined", peer.access.name()]);
    } else {
        command.args(["serve", "--confined", peer.access.name(), "--data", peer.level.name()]);
        let ports = config.ports.map(|(first, last)| format!("--ports={first}-{last}"));
        command.args(ports);
    }
    command.current_dir(&peer.root);
    command.env_clear().env("HOME", &peer.root).env("LADS_CONFIG", "/dev/null");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|error| format!("cannot begin in {}: {error}", peer.root.display()))
}

/// A session, whose bytes this process carries.
struct Carried<'a> {
    child: Child,
    socket: &'a TcpStream,
    sealer: Sealer,
    opener: Opener,
    time: Option<Duration>,
}

impl Carried<'_> {
    fn until_its_end(self, end: &mut SessionEnd) -> Result<(), String> {
        let Self { mut child, socket, mut sealer, mut opener, time } = self;
        let to = File::from(OwnedFd::from(child.stdin.take().expect("piped above")));
        let from = File::from(OwnedFd::from(child.stdout.take().expect("piped above")));
        let said = child.stderr.take().expect("piped above");
        let cloned = || socket.try_clone().map_err(|error| error.to_string());
        let (incoming, outgoing) = (cloned()?, cloned()?);
        let receive = move || {
            // An error ends the session, which reads no further.
            let _ = relay::receive(&incoming, &mut opener, to);
        };
        spawn("lads-receive", receive).map_err(|error| error.to_string())?;
        let (done, is_sent) = mpsc::channel();
        let send = move || {
            let _ = relay::send(from, &outgoing, &mut sealer);
            let _ = done.send(());
        };
        spawn("lads-send", send).map_err(|error| error.to_string())?;
        let (keep, kept) = mpsc::channel();
        let hear = move || {
            let _ = keep.send(heard(said));
        };
        spawn("lads-hear", hear).map_err(|error| error.to_string())?;
        let (status, is_late) = wait(&mut child, time).map_err(|error| error.to_string())?;
        let _ = is_sent.recv_timeout(LAST_BYTES_DEADLINE);
        linger(socket);
        end.said = kept.recv_timeout(LAST_BYTES_DEADLINE).unwrap_or_default();
        end.exit_code = status.code();
        match (is_late, status.signal()) {
            (true, _) => Err("its time was over".to_owned()),
            (false, Some(signal)) => Err(format!("signal {signal} ended it")),
            (false, None) => Ok(()),
        }
    }
}

/// Waits for the end of a session; ends it when its time is over. Returns whether it was.
fn wait(child: &mut Child, time: Option<Duration>) -> io::Result<(ExitStatus, bool)> {
    let Some(time) = time else { return Ok((child.wait()?, false)) };
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            child.kill()?;
            return Ok((child.wait()?, true));
        }
        std::thread::sleep(left.min(LOOK_INTERVAL));
    }
}

/// The first bytes of what a session says; the rest is read, too, so that it does not wait.
fn heard(mut said: ChildStderr) -> String {
    let mut kept = Vec::new();
    let _ = said.by_ref().take(SAID_BYTES_MAX).read_to_end(&mut kept);
    let _ = io::copy(&mut said, &mut io::sink());
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// Lets the last bytes arrive: if a connection is closed while bytes of the peer are unread, the
/// kernel resets it, and the peer loses what it has not read.
fn linger(socket: &TcpStream) {
    let _ = socket.shutdown(std::net::Shutdown::Write);
    let _ = socket.set_read_timeout(Some(Duration::from_secs(1)));
    let mut rest = [0; 4096];
    let mut socket = socket;
    let began = Instant::now();
    while began.elapsed() < LAST_BYTES_DEADLINE && matches!(socket.read(&mut rest), Ok(1..)) {}
    let _ = socket.flush();
}
