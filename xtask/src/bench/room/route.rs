//! The network between source and sink: loopback, or a line with a long delay between two network
//! namespaces.
//!
//! A mover is a command at the source and, for most, a server at the sink. A route has the prefix
//! for the command of each end, and the addresses of both.

use crate::scratch::Scratch;
use crate::shell;
use crate::sshd::Sshd;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The distance between source and sink: the loops of the XDD paper, table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Distance {
    /// A round trip of 0.28 ms.
    Ornl,
    /// A round trip of 26.8 ms.
    Chicago,
    /// A round trip of 128 ms.
    Seattle,
    /// A round trip of 163 ms.
    Sunnyvale,
}

impl Distance {
    /// All distances, the shortest first.
    pub(super) const ALL: [Self; 4] = [Self::Ornl, Self::Chicago, Self::Seattle, Self::Sunnyvale];

    /// The round-trip time as text.
    pub(super) fn said(self) -> &'static str {
        match self {
            Self::Ornl => "0.28 ms",
            Self::Chicago => "26.8 ms",
            Self::Seattle => "128 ms",
            Self::Sunnyvale => "163 ms",
        }
    }

    fn preset(self) -> &'static str {
        match self {
            Self::Ornl => "ornl",
            Self::Chicago => "chicago",
            Self::Seattle => "seattle",
            Self::Sunnyvale => "sunnyvale",
        }
    }
}

/// What a long line is like, besides its round trip.
#[derive(Clone, Copy, Debug)]
pub(super) struct LineKind {
    /// Its rate, such as `4Gbit`.
    pub(super) rate: &'static str,
    /// Further options of `lads-testbed wan`.
    pub(super) options: &'static [&'static str],
}

impl LineKind {
    /// The usual line. Its rate is less than the 9.6 Gbit/s in the papers, because two cores have
    /// to carry it and also serve two file systems.
    pub(super) const USUAL: Self = Self::of_rate("4Gbit");

    /// A line that loses nothing, between hosts whose TCP memory does not limit.
    pub(super) const fn of_rate(rate: &'static str) -> Self {
        Self { rate, options: &[] }
    }
}

/// A line between two network namespaces. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    ssh: Option<SshConnection>,
    child: Child,
    /// The route along this line.
    pub(super) route: Route,
}

impl Line {
    /// Sets up a line.
    pub(super) fn lay(testbed: &Path, distance: Distance, kind: LineKind) -> Result<Self> {
        let mut child = shell::command(testbed)
            .args(["wan", "--preset", distance.preset(), "--rate", kind.rate])
            .args(kind.options)
            .args(["up", "lads-bench"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot create the emulated line")?;
        let mut said = String::new();
        BufReader::new(child.stdout.take().expect("piped above")).read_line(&mut said)?;
        // From here on, the line is removed whatever happens.
        let mut line = Self { ssh: None, child, route: Route::loopback() };
        let said = serde_json::from_str(&said).context("the emulated line was not created")?;
        line.route = route_of(&said, distance, kind)?;
        let ssh = SshConnection::open(&line.route)?;
        line.route.remote_shell = ssh.remote_shell();
        line.ssh = Some(ssh);
        Ok(line)
    }

    /// The command that starts a program at the sink through a connection of its own.
    pub(super) fn own_shell(&self) -> String {
        self.ssh.as_ref().map_or_else(String::new, |ssh| ssh.server.remote_shell())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.ssh.take());
        // The process waits until its stdin is closed, and then removes the line.
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            println!("the emulated line cannot be removed: {error}");
        }
    }
}

/// An open ssh connection from the source to the sink, which commands share: what people have who
/// set `ControlPersist`. So messages of LADS cross the line, and no run pays for opening ssh.
#[derive(Debug)]
struct SshConnection {
    keys: Scratch,
    server: Sshd,
    client: Child,
}

/// The port of the ssh server in the namespace of the sink.
const SSH_PORT: u16 = 2222;
/// How long it may take to open the ssh connection: many round trips.
const SSH_OPEN_MAX: Duration = Duration::from_secs(20);

impl SshConnection {
    fn open(route: &Route) -> Result<Self> {
        let keys = Scratch::new(&std::env::temp_dir(), "lads-line")?;
        let address = route.sink_address.parse().context("the address of the sink")?;
        let at = std::net::SocketAddr::new(address, SSH_PORT);
        let server = Sshd::start_at(&keys.join(""), |program| route.at_sink(program), at)?;
        let server = server.context("sshd is missing (openssh-server)")?;
        let client = route
            .at_source("ssh")
            .args(["-M", "-N"])
            .arg(control_path(&keys))
            .args(server.options())
            .arg("sink")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let mut connection = Self { keys, server, client };
        connection.wait_until_it_is_open()?;
        Ok(connection)
    }

    fn wait_until_it_is_open(&mut self) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < SSH_OPEN_MAX && self.client.try_wait()?.is_none() {
            if self.keys.join(SSH_SOCKET).exists() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("ssh does not reach the sink")
    }

    /// The command that starts a program at the sink through the open connection.
    fn remote_shell(&self) -> String {
        format!("{} {}", self.server.remote_shell(), control_path(&self.keys))
    }
}

const SSH_SOCKET: &str = "connection";

fn control_path(keys: &Scratch) -> String {
    format!("-oControlPath={}", keys.join(SSH_SOCKET).display())
}

impl Drop for SshConnection {
    fn drop(&mut self) {
        // An error means that it has already ended.
        let _ = self.client.kill();
        let _ = self.client.wait();
    }
}

fn route_of(said: &Value, distance: Distance, kind: LineKind) -> Result<Route> {
    let prefix = |end: &str| -> Result<Vec<String>> {
        Ok(["ip", "netns", "exec", &text(said, end, "namespace")?].map(str::to_owned).to_vec())
    };
    let options = kind.options.iter().map(|option| format!(" {option}")).collect::<String>();
    Ok(Route {
        name: format!("{} there and back, {}/s{options}", distance.said(), kind.rate),
        source_address: text(said, "source", "address")?,
        sink_address: text(said, "sink", "address")?,
        source_prefix: prefix("source")?,
        sink_prefix: prefix("sink")?,
        bytes_per_second: said["rate_bytes_per_second"].as_u64(),
        remote_shell: String::new(),
    })
}

fn text(said: &Value, end: &str, key: &str) -> Result<String> {
    let text = said[end][key].as_str().map(str::to_owned);
    text.with_context(|| format!("no {key} of the {end}"))
}

/// How to start programs at the two ends, and how these reach each other.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// The name in the results.
    pub(super) name: String,
    /// The address of the source.
    pub(super) source_address: String,
    /// The address of the sink.
    pub(super) sink_address: String,
    /// The words before each command at the source.
    pub(super) source_prefix: Vec<String>,
    /// The words before each command at the sink.
    pub(super) sink_prefix: Vec<String>,
    /// The rate of the line, if it is limited.
    pub(super) bytes_per_second: Option<u64>,
    /// The command that starts a program at the sink, as ssh does; empty on loopback.
    pub(super) remote_shell: String,
}

impl Route {
    /// The loopback network only.
    pub(super) fn loopback() -> Self {
        Self {
            name: "loopback".to_owned(),
            source_address: "127.0.0.1".to_owned(),
            sink_address: "127.0.0.1".to_owned(),
            source_prefix: Vec::new(),
            sink_prefix: Vec::new(),
            bytes_per_second: None,
            remote_shell: String::new(),
        }
    }

    /// Whether both ends share a file system tree and a network.
    pub(super) fn is_local(&self) -> bool {
        self.sink_prefix.is_empty()
    }

    /// A command that runs at the source.
    pub(super) fn at_source(&self, program: &str) -> Command {
        command(&self.source_prefix, program)
    }

    /// A command that runs at the sink.
    pub(super) fn at_sink(&self, program: &str) -> Command {
        command(&self.sink_prefix, program)
    }

    /// A port at the sink that is free now. Another program could take it before it is used.
    pub(super) fn free_port(&self) -> Result<u16> {
        // In a network namespace of our own, all ports are free.
        if self.is_local() { crate::sshd::free_port() } else { Ok(45_000) }
    }
}

fn command(prefix: &[String], program: &str) -> Command {
    match prefix.split_first() {
        None => shell::command(program),
        Some((first, rest)) => {
            let mut command = shell::command(first);
            command.args(rest).arg(program);
            command
        }
    }
}
