//! How the two ends find each other: one starts the other, they greet, and connect data streams.

use crate::control::{MessageReader, write_message};
use crate::event::ExitCode;
use crate::hub::Fatal;
use crate::job::{Assignment, Job, Location, Options};
use crate::session::StopFlag;
use crate::stream::{Listener, connect, set_send_timeout, show_token_on, wait_readable};
use crate::talk::exit_code_from;
use lads_core::issue::Side;
use lads_core::message::wire::{Reader, Wire};
use lads_core::message::{Hello, LENGTH_BYTES, MAGIC, Message, VERSION, VERSION_MIN};
use std::io::{self, Chain, Cursor, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

/// How long to wait for data connections.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// How long the listening end waits for all of them.
const ACCEPT_DEADLINE: Duration = Duration::from_secs(30);
/// How long the other end may take to end by itself.
const EXIT_DEADLINE: Duration = Duration::from_secs(5);
/// How often to see whether we are to stop while the other end says nothing: somebody may be
/// asked for a password.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait for the last words of an other end that has ended.
const COMPLAINTS_DEADLINE: Duration = Duration::from_millis(500);
/// Streams by default: as many as I/O threads can send on at a time, two for each processor, so
/// that none waits for another. Measured: `docs/benchmarks.md`.
const STREAMS_DEFAULT: std::ops::RangeInclusive<usize> = 4..=8;

/// The two directions of the control channel.
pub(crate) type Control = (MessageReader<Box<dyn Read + Send>>, Box<dyn Write + Send>);

/// Two ends that know each other.
pub(crate) struct Connected {
    control: Option<Control>,
    children: Vec<Child>,
    pub(crate) streams: Vec<OwnedFd>,
    pub(crate) options: Options,
    pub(crate) paths: Vec<Vec<u8>>,
    pub(crate) own_side: Side,
    pub(crate) job_key: u64,
    pub(crate) own_host: String,
    pub(crate) peer_host: String,
    /// Whether data goes to another host over connections that are not encrypted.
    pub(crate) is_clear: bool,
}

impl Connected {
    /// The two directions of the control channel; once.
    pub(crate) fn take_control(&mut self) -> Control {
        self.control.take().expect("taken once, by the one who runs the end")
    }

    /// Says a last word to the other end, if nobody else talks to it.
    pub(crate) fn say(&mut self, message: &Message) {
        if let Some((_, writer)) = &mut self.control {
            let _ = write_message(writer, message);
        }
    }

    /// Ends the other end, or the way to it: it is silent.
    pub(crate) fn kill(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
        }
    }

    /// Lets go of the other end and sees it end.
    pub(crate) fn close(&mut self) {
        self.control = None;
        self.streams.clear();
        let until = Instant::now() + EXIT_DEADLINE;
        for child in &mut self.children {
            end_child(child, until);
        }
    }
}

/// Waits for a process until then, and kills it if it has not ended.
fn end_child(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                let _ = child.kill();
                return child.wait().ok();
            }
            result => return result.ok().flatten(),
        }
    }
}

/// Starts the other end and connects to it.
pub(crate) fn start(job: &Job, stop: &StopFlag) -> Result<Connected, Fatal> {
    let (own_side, host) = sides(job)?;
    let options = with_defaults(&job.options);
    let mut other = Other::start(job, host.as_deref())?;
    let patience = Duration::from_secs(options.timeout_seconds.into());
    let hello = other.greet(stop, patience)?;
    let assignment = assignment(job, own_side, &options, host.is_some());
    let mut bytes = Vec::new();
    assignment.put(&mut bytes);
    other.say(&Message::Job(bytes))?;
    other.await_word(stop, Some(patience))?;
    let (address, port, tokens) = match other.hear()? {
        Message::Listen { address, port, tokens } => (address, port, tokens),
        Message::Fatal { code, text } => return Err(Fatal::new(exit_code_from(code), text)),
        _ => {
            return Err(Fatal::new(
                ExitCode::Network,
                "the other end does not say where it listens",
            ));
        }
    };
    let route = Route { job, host: host.as_deref(), address, port };
    let (streams, mut children) = route.connect_all(&tokens)?;
    limit_silence(&streams, &options);
    children.insert(0, other.child);
    let paths = match own_side {
        Side::Source => job.sources.iter().map(|source| source.path.clone()).collect(),
        Side::Sink => vec![job.target.path.clone()],
    };
    Ok(Connected {
        control: Some((other.reader, other.writer)),
        children,
        streams,
        options,
        paths,
        own_side,
        job_key: assignment.job_key,
        own_host: own_host(),
        peer_host: hello.host,
        is_clear: host.is_some() && !job.remote.tunnel,
    })
}

/// Which end this is, and the host of the other if it is another.
fn sides(job: &Job) -> Result<(Side, Option<String>), Fatal> {
    let source_host = job.sources.first().and_then(|source| source.host.clone());
    let is_mixed = job.sources.iter().any(|source| source.host != source_host);
    if is_mixed {
        return Err(Fatal::new(ExitCode::Usage, "all sources must be on the same host"));
    }
    match (source_host, job.target.host.clone()) {
        (Some(_), Some(_)) => {
            let text = "one side must be here: run lads on one of the two hosts";
            Err(Fatal::new(ExitCode::Usage, text))
        }
        (Some(host), None) => Ok((Side::Sink, Some(host))),
        (None, host) => Ok((Side::Source, host)),
    }
}

fn with_defaults(options: &Options) -> Options {
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let streams = match options.streams {
        0 => {
            let count = (processors * 2).clamp(*STREAMS_DEFAULT.start(), *STREAMS_DEFAULT.end());
            u16::try_from(count).expect("at most the end of the range")
        }
        count => count,
    };
    Options { streams, ..options.clone() }
}

fn assignment(job: &Job, own_side: Side, options: &Options, is_remote: bool) -> Assignment {
    let (side, paths) = match own_side {
        Side::Source => (Side::Sink, vec![job.target.path.clone()]),
        Side::Sink => {
            (Side::Source, job.sources.iter().map(|source| source.path.clone()).collect())
        }
    };
    let (port_first, port_last) = job.remote.ports.unwrap_or((0, 0));
    Assignment {
        side,
        paths,
        options: options.clone(),
        job_key: job_key(job),
        is_local: !is_remote || job.remote.tunnel,
        port_first,
        port_last,
    }
}

/// A number for this command: the same places on the same hosts have the same.
fn job_key(job: &Job) -> u64 {
    let mut text = own_host().into_bytes();
    for location in job.sources.iter().chain([&job.target]) {
        text.push(0);
        text.extend_from_slice(location.host.as_deref().unwrap_or("").as_bytes());
        text.push(0);
        text.extend_from_slice(&absolute(location));
    }
    XxHash3_64::oneshot(&text)
}

fn absolute(location: &Location) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    if location.host.is_some() || location.path.starts_with(b"/") {
        return location.path.clone();
    }
    let mut path = std::env::current_dir().unwrap_or_default().as_os_str().as_bytes().to_vec();
    path.push(b'/');
    path.extend_from_slice(&location.path);
    path
}

fn own_host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

fn limit_silence(streams: &[OwnedFd], options: &Options) {
    let timeout = Duration::from_secs(options.timeout_seconds.into());
    for stream in streams {
        set_send_timeout(stream, timeout);
    }
}

/// The other end as a process of ours: LADS itself, or a remote shell that starts it.
struct Other {
    child: Child,
    reader: MessageReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    /// What is read from, to wait for it without reading.
    stdout: OwnedFd,
    /// What it is called in messages.
    name: String,
    is_remote: bool,
    lads: String,
    /// The last of what it wrote to its standard error.
    complaints: Arc<Mutex<Vec<u8>>>,
    /// Disconnected when it has written all that it will.
    complaints_end: mpsc::Receiver<()>,
}

impl Other {
    fn start(job: &Job, host: Option<&str>) -> Result<Self, Fatal> {
        let mut command = match host {
            Some(host) => remote_command(job, host, &["serve".to_owned()]),
            None => {
                let mut command = Command::new("/proc/self/exe");
                // An interrupt from the keyboard is for us; the sink stops when we tell it to.
                command.arg0("lads").arg("serve").process_group(0);
                command
            }
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = host.unwrap_or("localhost").to_owned();
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            Fatal::new(ExitCode::Network, format!("cannot start {program}: {error}"))
        })?;
        let complaints = Arc::new(Mutex::new(Vec::new()));
        let (writing, complaints_end) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&complaints);
            crate::session::spawn("lads-stderr", move || {
                pass_on(stderr, &kept);
                drop(writing);
            });
        }
        let stdin = child.stdin.take().expect("piped above");
        let from = child.stdout.take().expect("piped above");
        let stdout = from.as_fd().try_clone_to_owned().map_err(|error| {
            Fatal::new(ExitCode::Other, format!("cannot share a pipe: {error}"))
        })?;
        Ok(Self {
            child,
            reader: MessageReader::new(Box::new(from)),
            writer: Box::new(stdin),
            stdout,
            name,
            is_remote: host.is_some(),
            lads: job.remote.lads.clone(),
            complaints,
            complaints_end,
        })
    }

    /// Exchanges HELLO. Another host may take as long as it likes: somebody may be asked for a
    /// password.
    fn greet(&mut self, stop: &StopFlag, patience: Duration) -> Result<Hello, Fatal> {
        // If it is gone already, what it said last tells more than that we could not write.
        let _ = write_message(&mut self.writer, &own_hello());
        self.await_word(stop, (!self.is_remote).then_some(patience))?;
        let mut first = [0; LENGTH_BYTES + 1 + MAGIC.len()];
        let mut filled = 0;
        while filled < first.len() {
            match self.reader.inner().read(&mut first[filled..]) {
                Ok(0) => return Err(self.explain_end(&first[..filled], stop)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(self.explain_end(&first[..filled], stop)),
            }
        }
        if first[LENGTH_BYTES + 1..] != MAGIC {
            return Err(self.explain_noise(&first));
        }
        self.put_back(first.to_vec());
        check_hello(self.hear()?, &self.name)
    }

    /// Waits until it says something; ends it if we are to stop, or if it is silent for so long.
    fn await_word(&mut self, stop: &StopFlag, patience: Option<Duration>) -> Result<(), Fatal> {
        let start = Instant::now();
        while !wait_readable(&self.stdout, STOP_INTERVAL) {
            if stop.is_set() {
                let _ = self.child.kill();
                return Err(self.explain_end(&[], stop));
            }
            if let Some(patience) = patience.filter(|patience| start.elapsed() >= *patience) {
                let _ = self.child.kill();
                let (name, seconds) = (&self.name, patience.as_secs());
                let text = format!("{name} was silent for {seconds} s before the transfer began");
                return Err(Fatal::new(ExitCode::Network, text));
            }
        }
        Ok(())
    }

    /// Lets the reader begin with bytes that were looked at already.
    fn put_back(&mut self, bytes: Vec<u8>) {
        let rest = std::mem::replace(self.reader.inner(), Box::new(io::empty()));
        let chain: Chain<Cursor<Vec<u8>>, _> = Cursor::new(bytes).chain(rest);
        self.reader = MessageReader::new(Box::new(chain));
    }

    fn say(&mut self, message: &Message) -> Result<(), Fatal> {
        write_message(&mut self.writer, message)
            .and_then(|()| self.writer.flush())
            .map_err(|error| Fatal::new(ExitCode::Network, format!("lost {}: {error}", self.name)))
    }

    fn hear(&mut self) -> Result<Message, Fatal> {
        let message = self.reader.next()?;
        message.ok_or_else(|| {
            Fatal::new(ExitCode::Network, format!("{} ended before it began", self.name))
        })
    }

    /// Why the other end said nothing.
    fn explain_end(&mut self, said: &[u8], stop: &StopFlag) -> Fatal {
        let status = end_child(&mut self.child, Instant::now() + Duration::from_secs(2));
        let code = status.and_then(|status| status.code());
        let complaints = self.complaints();
        let (name, lads) = (&self.name, &self.lads);
        if stop.is_set() {
            return Fatal::new(ExitCode::Interrupted, "stopped before the transfer began");
        }
        if !self.is_remote {
            return Fatal::new(ExitCode::Other, "cannot start the second process of this transfer");
        }
        match code {
            Some(127) => Fatal::new(
                ExitCode::Usage,
                format!(
                    "there is no {lads} on {name}: install it there, or say where it is with \
                     --remote-lads PATH"
                ),
            ),
            Some(255) if is_refusal(&complaints) => Fatal::new(
                ExitCode::Refused,
                format!("{name} did not let us in; see the message above, or try: ssh {name} true"),
            ),
            Some(255) => Fatal::new(
                ExitCode::Network,
                format!("cannot reach {name}; see the message above, or try: ssh {name} true"),
            ),
            _ => Fatal::new(
                ExitCode::Network,
                format!(
                    "{name} ended before LADS began there (exit {}); it printed: {}",
                    code.map_or_else(|| "by a signal".to_owned(), |code| code.to_string()),
                    String::from_utf8_lossy(said).escape_debug()
                ),
            ),
        }
    }

    /// What it wrote to its standard error, which may come a little later than its end; something
    /// that it leaves behind, such as a shared ssh connection, may keep it open.
    fn complaints(&self) -> String {
        let _: Result<(), _> = self.complaints_end.recv_timeout(COMPLAINTS_DEADLINE);
        let kept = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }

    /// Something else than LADS speaks: a login script that prints, or another program.
    fn explain_noise(&mut self, first: &[u8]) -> Fatal {
        let _ = self.child.kill();
        let mut said = first.to_vec();
        let _ = self.reader.inner().take(200).read_to_end(&mut said);
        let text = String::from_utf8_lossy(&said).escape_debug().to_string();
        Fatal::new(
            ExitCode::Usage,
            format!(
                "{} printed something before LADS began: \"{text}\"; a login script must print \
                 nothing when there is no terminal",
                self.name
            ),
        )
    }
}

fn is_refusal(complaints: &str) -> bool {
    ["Permission denied", "Host key verification failed", "Too many authentication failures"]
        .iter()
        .any(|text| complaints.contains(text))
}

/// Passes standard error on, and keeps the last of it.
fn pass_on(mut from: ChildStderr, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let _ = io::stderr().write_all(&bytes[..count]);
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[..count]);
        let excess = kept.len().saturating_sub(bytes.len());
        kept.drain(..excess);
    }
}

fn own_hello() -> Message {
    Message::Hello(Hello {
        magic: MAGIC,
        version_min: VERSION_MIN,
        version: VERSION,
        features: 0,
        software: format!("lads {}", env!("CARGO_PKG_VERSION")),
        host: own_host(),
    })
}

fn check_hello(message: Message, name: &str) -> Result<Hello, Fatal> {
    let Message::Hello(hello) = message else {
        return Err(Fatal::new(ExitCode::Usage, format!("{name} does not greet")));
    };
    if hello.magic != MAGIC || hello.version_min > VERSION || hello.version < VERSION_MIN {
        let text = format!(
            "{name} runs {} (protocols {} to {}), here is lads {} (protocols {VERSION_MIN} to \
             {VERSION}): install the same version on both",
            hello.software,
            hello.version_min,
            hello.version,
            env!("CARGO_PKG_VERSION")
        );
        return Err(Fatal::new(ExitCode::Usage, text));
    }
    Ok(hello)
}

/// A command that runs LADS with these words on another host.
fn remote_command(job: &Job, host: &str, words: &[String]) -> Command {
    let shell = &job.remote.command;
    let mut command = Command::new(shell.first().map_or("ssh", String::as_str));
    command.args(shell.iter().skip(1)).arg(host).arg(quoted(&job.remote.lads)).args(words);
    command
}

/// A word as a remote shell takes it; a plain one is left as it is, so that `~` works.
fn quoted(word: &str) -> String {
    let is_plain =
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./~-+".contains(&byte));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// How data reaches the other end.
struct Route<'a> {
    job: &'a Job,
    host: Option<&'a str>,
    /// The address under which the other end was reached, as it says itself.
    address: String,
    port: u16,
}

impl Route<'_> {
    fn connect_all(&self, tokens: &[[u8; 32]]) -> Result<(Vec<OwnedFd>, Vec<Child>), Fatal> {
        let mut streams = Vec::with_capacity(tokens.len());
        let mut children = Vec::new();
        for (index, token) in (0..).zip(tokens) {
            let stream = if self.job.remote.tunnel && self.host.is_some() {
                let (stream, child) = self.tunnel(index, token)?;
                children.push(child);
                stream
            } else {
                self.connect_one(index, token)?
            };
            streams.push(stream);
        }
        Ok((streams, children))
    }

    fn connect_one(&self, index: u16, token: &[u8; 32]) -> Result<OwnedFd, Fatal> {
        let (address, port) = self.data_address();
        let failed = |error: io::Error| {
            Fatal::new(
                ExitCode::Network,
                format!(
                    "cannot connect a data stream to {address} port {port}: {error}; open that port \
                     (--ports FIRST-LAST), name another address (--data-address), or send data \
                     through ssh (--tunnel)"
                ),
            )
        };
        let addresses: Vec<SocketAddr> =
            (address.as_str(), port).to_socket_addrs().map_err(failed)?.collect();
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match connect(address, index, token, CONNECT_DEADLINE) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(failed(last))
    }

    /// Where data streams go: what the person says, with a port of its own if there is one in it
    /// (a forwarded port), or the address that ssh reached.
    fn data_address(&self) -> (String, u16) {
        if let Some(address) = &self.job.remote.data_address {
            return match address.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') => {
                    (host.to_owned(), port.parse().unwrap_or(self.port))
                }
                _ => (address.clone(), self.port),
            };
        }
        let address = match self.host {
            None => "127.0.0.1".to_owned(),
            Some(_) if !self.address.is_empty() => self.address.clone(),
            Some(host) => host.rsplit('@').next().unwrap_or(host).to_owned(),
        };
        (address, self.port)
    }

    /// A stream through the remote shell: LADS there passes it on to the port.
    fn tunnel(&self, index: u16, token: &[u8; 32]) -> Result<(OwnedFd, Child), Fatal> {
        let failed = |error: io::Error| {
            Fatal::new(ExitCode::Network, format!("cannot open a data stream through ssh: {error}"))
        };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let input = OwnedFd::from(theirs.try_clone().map_err(failed)?);
        let host = self.host.unwrap_or("localhost");
        let words = ["relay".to_owned(), "127.0.0.1".to_owned(), self.port.to_string()];
        let mut command = remote_command(self.job, host, &words);
        command.stdin(Stdio::from(input)).stdout(Stdio::from(OwnedFd::from(theirs)));
        let child = command.spawn().map_err(failed)?;
        drop(command);
        let stream = show_token_on(ours.into(), index, token, ACCEPT_DEADLINE).map_err(failed)?;
        Ok((stream, child))
    }
}

/// The other end's part: greets, is told what to do, listens, and waits for the data streams.
pub(crate) fn answer(
    input: impl Read + Send + 'static,
    mut output: impl Write + Send + 'static,
) -> Result<Connected, Fatal> {
    let lost = |error: io::Error| Fatal::new(ExitCode::Network, error.to_string());
    write_message(&mut output, &own_hello()).and_then(|()| output.flush()).map_err(lost)?;
    let mut reader: MessageReader<Box<dyn Read + Send>> = MessageReader::new(Box::new(input));
    let early_end = || Fatal::new(ExitCode::Network, "the other end is gone");
    let hello = check_hello(reader.next()?.ok_or_else(early_end)?, "the other end")?;
    let Some(Message::Job(bytes)) = reader.next()? else {
        return Err(Fatal::new(ExitCode::Network, "the other end does not say what to do"));
    };
    let assignment = Assignment::take(&mut Reader::of_own(&bytes))
        .map_err(|error| Fatal::new(ExitCode::Network, error.to_string()))?;
    let options = assignment.options;
    let ports =
        (assignment.port_first > 0).then_some((assignment.port_first, assignment.port_last));
    let count = options.streams.clamp(1, 256);
    let listener = match Listener::open(count, ports, assignment.is_local) {
        Ok(listener) => listener,
        Err(fatal) => {
            let message = Message::Fatal { code: fatal.code as u8, text: fatal.text.clone() };
            write_message(&mut output, &message).and_then(|()| output.flush()).map_err(lost)?;
            return Err(fatal);
        }
    };
    let message = Message::Listen {
        address: address_reached(),
        port: listener.port,
        tokens: listener.tokens.clone(),
    };
    write_message(&mut output, &message).and_then(|()| output.flush()).map_err(lost)?;
    let streams = listener.accept_all(ACCEPT_DEADLINE)?;
    limit_silence(&streams, &options);
    Ok(Connected {
        control: Some((reader, Box::new(output))),
        children: Vec::new(),
        streams,
        options,
        paths: assignment.paths,
        own_side: assignment.side,
        job_key: assignment.job_key,
        own_host: own_host(),
        peer_host: hello.host,
        is_clear: false,
    })
}

/// The address of ours that ssh reached: data can reach it, too.
fn address_reached() -> String {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    connection.split(' ').nth(2).unwrap_or_default().to_owned()
}
