//! How the two ends meet: one starts the other, they exchange HELLO, and connect data streams.
//!
//! Nothing here waits forever: see [`crate::patience`].

mod ahead;
mod deploy;
mod distant;
mod greeting;
mod other;
mod process;
mod route;
mod ssh;
mod streams;
mod terminal;
mod terms;

use crate::board::lock;
use crate::closing::Closing;
use crate::control::write_message;
use crate::event::{ExitCode, Observer};
use crate::fatal::{Fatal, own_host};
use crate::job::stdio::is_stdio;
use crate::job::{Assignment, Job, Location, Options, RemoteShell, Stderr, Tunnel, shown_host};
use crate::patience::Patience;
use crate::stop::StopFlag;
use crate::transport::seal::has_aes;
use crate::transport::{Channel, Transport, pipe, tcp};
use deploy::Builds;
pub use deploy::version;
use distant::Unwatched;
pub(crate) use distant::{Distant, answer_distant};
pub use greeting::refusal;
use greeting::{
    GREETING_DEADLINE, Greeting, HELLO_BYTES_MAX, LISTEN_BYTES_MAX, bytes_of, check_hello,
    own_hello,
};
use lads_core::issue::Side;
use lads_core::limits::STREAMS_MAX;
use lads_core::message::wire::{Reader, Wire};
use lads_core::message::{DataPort, Hello, JOB_BYTES_MAX, JOB_MESSAGE_BYTES_MAX, Message};
use lads_core::pauses::Pauses;
use lads_core::protection::{DataLevel, Protection};
use lads_core::shares::STREAMS_DISTANT_MAX;
use other::{Beginning, Errors, FirstWord, Other, Program, Way, Wording, shell_command};
use process::Process;
pub(crate) use route::CONTACT_DEADLINE;
use route::Route;
use ssh::Ssh;
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
pub(crate) use streams::Opening;
use streams::{Windows, accepting, connecting, data_streams};
use terms::protection;
pub use terms::{Offer, Terms};
use twox_hash::XxHash3_64;

/// The longest pause between looks whether the other end has ended by itself, when everything is
/// done.
const EXIT_INTERVAL: Duration = Duration::from_millis(2);
/// How long writing the first messages, or the last one, may take. They fit into an empty pipe.
const LAST_WORD_DEADLINE: Duration = Duration::from_secs(1);
/// A job of at most this many bytes is sent right after HELLO, before the other end has said a
/// word, and is an argument of the command that starts it: each saves a round trip. A longer one
/// could fill the pipe to a remote shell that does not read yet. The smallest pipe holds 4 KiB;
/// jobs without long lists have some 200 bytes. With half or double of this, jobs with lists of 1
/// to 4 KiB would take two round trips more or less.
const EARLY_JOB_BYTES_MAX: usize = 2 << 10;
/// The number of streams to a host next door: as many as I/O threads can send on at a time, two for
/// each processor, so that no thread waits for another. Measured: `docs/benchmarks.md`. More lose
/// packets where a switch has a small buffer: over 0.28 ms and 4 Gbit/s, with a buffer of one round
/// trip, 1 GiB takes 3.3 s with 4 or 8, 4.5 to 5.2 s with 16, and 3.6 to 12.9 s with 32. To a host
/// far away there are more: [`lads_core::shares::stream_count`].
const STREAMS_DEFAULT: std::ops::RangeInclusive<usize> = 4..=8;

/// Two ends that have exchanged HELLO.
pub(crate) struct Connected {
    control: Option<Channel>,
    /// The other end, if it was started here.
    process: Option<Process>,
    errors: Option<Errors>,
    pub(crate) transport: Arc<dyn Transport>,
    /// The streams of the transport while they are being opened.
    pub(crate) opening: Option<Opening>,
    pub(crate) options: Options,
    pub(crate) paths: Vec<Vec<u8>>,
    /// The user wrote the paths on another host, so that no shell has expanded them here.
    pub(crate) expands_paths: bool,
    pub(crate) own_side: Side,
    pub(crate) job_key: u64,
    pub(crate) own_host: String,
    pub(crate) peer_host: String,
    /// What protects data that goes to another host over connections of its own.
    pub(crate) protection: Option<Protection>,
}

impl Connected {
    /// The control channel. It can be taken once.
    pub(crate) fn take_control(&mut self) -> Channel {
        self.control.take().expect("taken once, by the one who runs the end")
    }

    /// Sends a last message to the other end, if no thread talks to it. It is not worth a wait
    /// whether the message is read.
    pub(crate) fn say(&mut self, message: &Message) {
        let Some(Channel { input, output }) = self.control.take() else { return };
        let stop = StopFlag::new();
        let patience = Patience::new(&stop, LAST_WORD_DEADLINE);
        let (ours, its_message) = (Arc::new(Mutex::new(Some(output))), message.clone());
        let theirs = Arc::clone(&ours);
        let say = move || {
            let mut output = lock(&theirs).take()?;
            write_message(&mut output, &its_message).ok().map(|()| output)
        };
        let output = match patience.result_of("lads-say", say) {
            Ok(output) => output,
            // If no thread can be started, this one writes: the message is shorter than the buffer
            // of a pipe, and is the first.
            Err(_) => lock(&ours)
                .take()
                .and_then(|mut output| write_message(&mut output, message).ok().map(|()| output)),
        };
        self.control = output.map(|output| Channel { input, output });
    }

    /// Kills the other end, or the process that leads to it.
    pub(crate) fn kill(&mut self) {
        self.process.iter_mut().for_each(Process::kill);
    }

    /// Closes the connection and waits for the other end to end by itself, as long as there is
    /// time.
    ///
    /// Meanwhile calls `meanwhile` again and again.
    pub(crate) fn close(&mut self, closing: &Closing, mut meanwhile: impl FnMut()) {
        self.control = None;
        if let Some(process) = &mut self.process {
            let mut pauses = Pauses::up_to(EXIT_INTERVAL);
            while !process.has_ended() && !closing.left().is_zero() {
                meanwhile();
                process.pause(pauses.next_pause());
            }
            process.end();
        }
        if let Some(errors) = &self.errors {
            errors.finish();
        }
    }
}

/// Starts the other end and connects to it; reports to `observer` if that takes long.
pub(crate) fn start(
    job: &Job,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<Connected, Fatal> {
    let (own_side, host) = sides(job)?;
    job.options.check()?;
    let options = with_defaults(&job.options);
    let assignment = assignment(job, own_side, &options, host.as_deref());
    let more_count = assignment.more_streams;
    let silence = Duration::from_secs(options.timeout_seconds.into());
    let patience = Patience::new(stop, GREETING_DEADLINE);
    let listen = || {
        let (count, is_local) = (options.streams + more_count, host.is_none());
        tcp::Listener::open(count, job.remote.ports, is_local, &patience)
    };
    let listener = assignment.connects.then(listen).transpose()?;
    let told = Told::new(&assignment, connect_message(job, listener.as_ref(), own_side))?;
    let asked = host.as_deref().map(|host| Ssh::ask(shell_command(&job.remote), host, &patience));
    let ssh = asked.transpose()?.flatten();
    let (mut other, patience) = meet(job, ssh.as_ref(), host.as_deref(), &told, (stop, observer))?;
    if !told.is_short {
        told.messages.iter().try_for_each(|message| other.say(message, &patience))?;
    }
    let (port, protection) = other.hear_where_it_listens(&patience)?;
    let has_port = !(assignment.is_piped || assignment.connects);
    check_secrets(port.secrets.len(), if has_port { options.streams + more_count } else { 0 })?;
    let between = host.as_deref().filter(|_| !assignment.is_piped);
    between.map_or(Ok(()), |host| check_level(host, protection, options.data))?;
    let protection_between = between.map(|_| protection);
    // Without a tunnel as an alternative, a slow network has all the time that TCP gives it.
    let contact_limit = (host.is_some() && job.can_tunnel()).then_some(CONTACT_DEADLINE);
    let (process, errors, input, output) = other.into_parts();
    let (transport, control, opening): (Arc<dyn Transport>, _, _) = match assignment.is_piped {
        true => {
            let (transport, control) = pipe::open(input, output, options.streams, own_side);
            (transport, control, None)
        }
        false => {
            let streams = data_streams(&options, more_count, host.is_none());
            let to = Arc::clone(&streams);
            let opening = if let Some(listener) = listener {
                accepting(listener, (to, protection), contact_limit, &input, stop.clone())
            } else {
                let data_address = job.remote.data_address.clone();
                let route =
                    Route::to(&port, protection, (host.clone(), ssh), data_address, contact_limit);
                let windows = Windows { own_side, far_bytes: port.window_bytes };
                let addresses = route.addresses(&patience)?;
                connecting(route, addresses, port.secrets, to, windows, (stop.clone(), silence))
            };
            (streams, over_pipes(input, output), Some(opening))
        }
    };
    let paths = match own_side {
        Side::Source => job.sources.iter().map(|source| source.path.clone()).collect(),
        Side::Sink => vec![job.target.path.clone()],
    };
    Ok(Connected {
        control: Some(control),
        process: Some(process),
        errors: Some(errors),
        transport,
        opening,
        options,
        paths,
        expands_paths: false,
        own_side,
        job_key: assignment.job_key,
        own_host: String::new(),
        peer_host: host.as_deref().map_or_else(|| "the other end".to_owned(), shown_host),
        protection: protection_between,
    })
}

/// Starts the other end, and exchanges HELLO with it.
fn meet<'s>(
    job: &Job,
    ssh: Option<&Ssh>,
    host: Option<&str>,
    told: &Told,
    (stop, observer): (&'s StopFlag, &mut dyn Observer),
) -> Result<(Other, Patience<'s>), Fatal> {
    let silence = Duration::from_secs(job.options.timeout_seconds.into());
    let early = told.early();
    let remote = ssh.map_or_else(|| job.remote.clone(), |ssh| ssh.made_impatient(&job.remote));
    let program = |builds: Option<Builds>| Program {
        command: match host {
            Some(host) => remote.lads_on(host, builds.as_ref(), early.len(), &told.serve_words()),
            None => command_here(job),
        },
        host,
        // Hints must show the command as the person typed it.
        typed: &job.remote,
        stderr: job.stderr,
        way: Way::Pipes,
        wording: &Wording::COMMAND,
        asks_on_terminal: host.is_some(),
        builds,
    };
    let builds = host.and_then(|_| Builds::for_shell(&job.remote, &job.program));
    let first_word = FirstWord::of(&job.remote, silence);
    let beginning = Beginning { early: &early, first_word, silence, stop };
    Other::meet(builds, program, &beginning, observer)
}

/// Sends LADS to a host if it does not have it. `own`: the program of this process. Returns whether
/// it was sent.
///
/// # Errors
/// If LADS cannot be started there, with the exit code of a transfer for the same reason.
pub fn deploy(
    remote: &RemoteShell,
    host: &str,
    own: &Path,
    stop: &StopFlag,
) -> Result<bool, (ExitCode, String)> {
    let installed = || -> Result<bool, Fatal> {
        let patience = Patience::new(stop, GREETING_DEADLINE);
        let ssh = Ssh::ask(shell_command(remote), host, &patience)?;
        let typed = remote;
        let remote = ssh.map_or_else(|| typed.clone(), |ssh| ssh.made_impatient(typed));
        let builds = Builds::for_shell(typed, own);
        let command = remote.lads_on(host, builds.as_ref(), 0, &[b"--version".to_vec()]);
        let mut other = Other::start(Program {
            command,
            host: Some(host),
            typed,
            stderr: Stderr::PassedOn,
            way: Way::Pipes,
            wording: &Wording::COMMAND,
            asks_on_terminal: true,
            builds,
        })?;
        let silence = Duration::from_secs(Options::default().timeout_seconds.into());
        let first_word = FirstWord::of(typed, silence);
        let beginning = Beginning { early: &[], first_word, silence, stop };
        let (is_sent, patience) = other.install(&beginning, &mut Unwatched)?;
        let (its, own) = (other.last_line(&patience)?, version());
        if its == own {
            return Ok(is_sent);
        }
        let text = format!("{} runs {its:?}, this host {own}", shown_host(host));
        Err(Fatal::new(ExitCode::Usage, text).when_reached())
    };
    installed().map_err(|fatal| (fatal.code, fatal.text))
}

/// Connects to a port of another host over the way that data connections take. `reached`: the
/// address of that host as it knows it, or empty.
///
/// # Errors
/// If the address is unknown, or no connection opens within `limit`, with the reason.
pub fn connect_for_data(
    remote: &RemoteShell,
    host: &str,
    reached: &str,
    port: u16,
    limit: Duration,
) -> Result<OwnedFd, String> {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, GREETING_DEADLINE);
    let connect = || -> Result<OwnedFd, Fatal> {
        let ssh = Ssh::ask(shell_command(remote), host, &patience)?;
        let data_address = remote.data_address.clone();
        let (host, told) = (Some(host.to_owned()), reached.to_owned());
        let protection = Protection::Plain;
        let route = Route { data_address, host, ssh, told, port, protection, contact_limit: None };
        let addresses = route.addresses(&patience)?;
        let limit = limit / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut last = String::new();
        for address in &addresses {
            match tcp::connect_within(*address, limit) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = format!("{address}: {error}"),
            }
        }
        Err(Fatal::new(ExitCode::Network, last))
    };
    connect().map_err(|fatal| fatal.text)
}

impl RemoteShell {
    /// A command that removes from a host what [`deploy()`] has sent to it, and prints the paths.
    #[must_use]
    pub fn removal_on(&self, host: &str) -> Command {
        self.command_on(host, &deploy::removal().iter().map(Vec::as_slice).collect::<Vec<_>>())
    }
}

/// The command that starts the other end on this host.
fn command_here(job: &Job) -> Command {
    let mut command = Command::new(&job.program);
    command.arg0("lads").arg("serve");
    command
}

/// What carries messages while each data stream has a connection of its own.
fn over_pipes(input: File, output: File) -> Channel {
    Channel { input: Box::new(input), output: Box::new(output) }
}

/// What the other end is told.
struct Told {
    /// JOB, and CONNECT if the other end connects.
    messages: Vec<Message>,
    /// Whether they fit into a pipe that nobody reads yet.
    is_short: bool,
}

impl Told {
    /// A job that is longer than the other end accepts is refused here.
    fn new(assignment: &Assignment, connect: Option<Message>) -> Result<Self, Fatal> {
        let mut bytes = Vec::new();
        assignment.put(&mut bytes);
        if bytes.len() > JOB_BYTES_MAX {
            let text = format!(
                "--files-from and the patterns have {} MiB, and the other end accepts at most {} \
                 MiB: split the list, or name a directory",
                bytes.len().div_ceil(1 << 20),
                JOB_BYTES_MAX >> 20
            );
            return Err(Fatal::new(ExitCode::Usage, text));
        }
        let count = bytes.len() + connect.as_ref().map_or(0, |it| bytes_of(it).len());
        let messages = [Message::Job(bytes)].into_iter().chain(connect).collect();
        Ok(Self { messages, is_short: count <= EARLY_JOB_BYTES_MAX })
    }

    /// The messages for an other end that has not sent anything.
    fn early(&self) -> Vec<u8> {
        let mut early = bytes_of(&own_hello());
        if self.is_short {
            early.extend(self.messages.iter().flat_map(bytes_of));
        }
        early
    }

    /// The words of the command. A short job is an argument of it, too: ssh lets nothing into
    /// standard input before the command has begun, a round trip later.
    fn serve_words(&self) -> Vec<Vec<u8>> {
        let ahead = match self.messages.first() {
            Some(Message::Job(bytes)) if self.is_short => Some(ahead::argument(bytes).into_bytes()),
            _ => None,
        };
        [b"serve".to_vec()].into_iter().chain(ahead).collect()
    }
}

/// Tells the other end where this one listens, if it does.
fn connect_message(job: &Job, listener: Option<&tcp::Listener>, own_side: Side) -> Option<Message> {
    let address = job.remote.data_address.clone().unwrap_or_default();
    Some(Message::Connect(listener?.port_at(address, own_side)))
}

/// Checks that the other end gives one secret for each stream that it was asked for.
fn check_secrets(count: usize, asked_for: u16) -> Result<(), Fatal> {
    if count == usize::from(asked_for) {
        return Ok(());
    }
    let text = format!("the other end opens {count} data streams instead of {asked_for}");
    Err(Fatal::new(ExitCode::Network, text))
}

/// Checks that a host protects data as it was asked to.
fn check_level(host: &str, protection: Protection, asked: DataLevel) -> Result<(), Fatal> {
    let (host, level) = (shown_host(host), protection.level());
    if level == asked {
        return Ok(());
    }
    let text = format!("with {host}, data would be {level} instead of {asked}");
    Err(Fatal::new(ExitCode::Refused, text))
}

/// Which end this is, and the host of the other end if it is another host.
fn sides(job: &Job) -> Result<(Side, Option<String>), Fatal> {
    let source_host = job.sources.first().and_then(|source| source.host.clone());
    let is_mixed = job.sources.iter().any(|source| source.host != source_host);
    if is_mixed {
        return Err(Fatal::new(ExitCode::Usage, "all sources must be on the same host"));
    }
    match (source_host, job.target.host.clone()) {
        (Some(_), Some(_)) => {
            let text = "source or target must be on this host: run lads on one of the two hosts";
            Err(Fatal::new(ExitCode::Usage, text))
        }
        (Some(host), None) => Ok((Side::Sink, Some(host))),
        // Standard output of the other end carries messages.
        (None, None) if is_stdio(&job.target.path) => Ok((Side::Sink, None)),
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
        count => count.min(STREAMS_MAX),
    };
    Options { streams, ..options.clone() }
}

fn assignment(job: &Job, own_side: Side, options: &Options, host: Option<&str>) -> Assignment {
    let (side, paths) = match own_side {
        Side::Source => (Side::Sink, vec![job.target.path.clone()]),
        Side::Sink => {
            (Side::Source, job.sources.iter().map(|source| source.path.clone()).collect())
        }
    };
    let (port_first, port_last) = job.remote.ports.unwrap_or((0, 0));
    let is_piped = host.is_some() && is_tunneled(job);
    // If a person gives the number of streams, no further ones are opened.
    let has_more = job.options.streams == 0 && host.is_some() && !is_tunneled(job);
    let more_streams =
        if has_more { STREAMS_DISTANT_MAX.saturating_sub(options.streams) } else { 0 };
    Assignment {
        side,
        paths,
        options: options.clone(),
        job_key: job_key(job),
        host: host.map_or_else(String::new, shown_host),
        is_local: host.is_none(),
        is_piped,
        connects: !is_piped && job.remote.connects == Some(side),
        port_first,
        port_last,
        more_streams,
        has_aes: has_aes(),
    }
}

fn is_tunneled(job: &Job) -> bool {
    job.remote.tunnel == Tunnel::Always
}

/// A number for this command: the same for the same places on the same hosts.
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

/// The other end's part: sends HELLO, receives the job, and listens for the data streams.
/// `argument` is the one that the command came with, if any.
pub(crate) fn answer(
    input: File,
    output: File,
    argument: Option<&str>,
    terms: &Terms<'_>,
) -> Result<Connected, Fatal> {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, GREETING_DEADLINE);
    let mut greeting = Greeting::new(input, output, "the other end");
    let ahead = argument.and_then(ahead::job);
    let (hello, assignment, way) =
        match answer_within(&mut greeting, ahead.as_deref(), terms, &patience) {
            Ok(answered) => answered,
            Err(fatal) => {
                let message = Message::Fatal { code: fatal.code as u8, text: fatal.text.clone() };
                let patience = Patience::new(&stop, LAST_WORD_DEADLINE);
                let _ = greeting.say(&message, &patience);
                return Err(fatal);
            }
        };
    let (input, output) = greeting.into_pipes();
    let (options, own_side) = (&assignment.options, assignment.side);
    let streams = data_streams(options, assignment.more_streams, assignment.is_local);
    let (transport, control, opening): (Arc<dyn Transport>, _, _) = match way {
        DataWay::Pipes => {
            let (transport, control) = pipe::open(input, output, options.streams, own_side);
            (transport, control, None)
        }
        DataWay::Accepts(listener, protection) => {
            let to = (Arc::clone(&streams), protection);
            let opening = accepting(listener, to, None, &input, stop);
            (streams, over_pipes(input, output), Some(opening))
        }
        DataWay::Connects(route, addresses, port) => {
            let silence = Duration::from_secs(options.timeout_seconds.into());
            let windows = Windows { own_side, far_bytes: port.window_bytes };
            let to = Arc::clone(&streams);
            let opening = connecting(route, addresses, port.secrets, to, windows, (stop, silence));
            (streams, over_pipes(input, output), Some(opening))
        }
    };
    Ok(Connected {
        control: Some(control),
        process: None,
        errors: None,
        transport,
        opening,
        options: assignment.options,
        paths: assignment.paths,
        expands_paths: !assignment.is_local,
        own_side: assignment.side,
        job_key: assignment.job_key,
        own_host: assignment.host,
        peer_host: hello.host,
        protection: None,
    })
}

/// How data comes to the end that was started.
enum DataWay {
    /// As the messages do.
    Pipes,
    /// Over connections that this end accepts.
    Accepts(tcp::Listener, Protection),
    /// Over connections that this end opens, to one of these addresses.
    Connects(Route, Vec<SocketAddr>, DataPort),
}

/// What it was told, and how data comes.
fn answer_within(
    greeting: &mut Greeting,
    ahead: Option<&[u8]>,
    terms: &Terms<'_>,
    patience: &Patience<'_>,
) -> Result<(Hello, Assignment, DataWay), Fatal> {
    greeting.say(&own_hello(), patience)?;
    let begun = match ahead {
        Some(bytes) => Some(take_up(bytes, greeting, terms, patience)?),
        None => None,
    };
    let hello = check_hello(greeting.hear(HELLO_BYTES_MAX, patience)?, "the other end")?;
    let Some(Message::Job(bytes)) = greeting.hear(JOB_MESSAGE_BYTES_MAX, patience)? else {
        return Err(Fatal::new(ExitCode::Network, "the other end sent no job"));
    };
    let (assignment, protection, listener) = match begun {
        Some(begun) if ahead == Some(&bytes) => begun,
        Some(_) => {
            let text = "the other end sent two different jobs";
            return Err(Fatal::new(ExitCode::Network, text));
        }
        None => take_up(&bytes, greeting, terms, patience)?,
    };
    let way = match listener {
        _ if assignment.is_piped => DataWay::Pipes,
        Some(listener) => DataWay::Accepts(listener, protection),
        None => {
            let Some(Message::Connect(port)) = greeting.hear(LISTEN_BYTES_MAX, patience)? else {
                let text = "the other end did not say where data connections go";
                return Err(Fatal::new(ExitCode::Network, text));
            };
            let asked_for = assignment.options.streams + assignment.more_streams;
            check_secrets(port.secrets.len(), asked_for)?;
            let route = Route::back(&port, protection, assignment.is_local)?;
            let addresses = route.addresses(patience)?;
            DataWay::Connects(route, addresses, port)
        }
    };
    Ok((hello, assignment, way))
}

/// Takes up a job, and says what protects the data, and where this end listens for it, if it does.
fn take_up(
    job: &[u8],
    greeting: &mut Greeting,
    terms: &Terms<'_>,
    patience: &Patience<'_>,
) -> Result<(Assignment, Protection, Option<tcp::Listener>), Fatal> {
    let mut assignment = Assignment::take(&mut Reader::of_own(job))
        .map_err(|error| Fatal::new(ExitCode::Network, error.to_string()))?;
    assignment.options.check()?;
    terms.offer.map_or(Ok(()), |offer| offer.apply_to(&mut assignment))?;
    let count = assignment.options.streams.clamp(1, STREAMS_MAX);
    assignment.options.streams = count;
    assignment.more_streams = assignment.more_streams.min(STREAMS_MAX - count);
    let protection = match assignment.is_piped || assignment.is_local {
        true => Protection::Plain,
        false => protection(&assignment, terms)?,
    };
    let listen = || {
        let ports =
            (assignment.port_first > 0).then_some((assignment.port_first, assignment.port_last));
        let count = count + assignment.more_streams;
        tcp::Listener::open(count, ports, assignment.is_local, patience)
    };
    let listens = !(assignment.is_piped || assignment.connects);
    let listener = listens.then(listen).transpose()?;
    let port = |it: &tcp::Listener| it.port_at(address_reached(), assignment.side);
    let port = listener.as_ref().map(port).unwrap_or_default();
    greeting.say(&Message::Listen { port, protection }, patience)?;
    Ok((assignment, protection, listener))
}

/// The address of this host that ssh connected to: data can reach it, too.
fn address_reached() -> String {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    connection.split(' ').nth(2).unwrap_or_default().to_owned()
}
