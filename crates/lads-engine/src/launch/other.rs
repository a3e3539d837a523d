//! The other end as a process that this one starts: LADS itself, or a remote shell that starts
//! LADS. This module waits for the first message, and explains if there is none or if something
//! else comes.

use super::LAST_WORD_DEADLINE;
use super::deploy::{Builds, FAIL, LINE_BYTES_MAX, Line, NEED};
use super::greeting::{
    GREETING_DEADLINE, Greeting, HELLO_BYTES_MAX, LISTEN_BYTES_MAX, check_hello,
};
use super::process::{Process, start};
use super::terminal::Terminal;
use crate::event::{ExitCode, Happening, Observer, Waiting};
use crate::fatal::{Fatal, exit_code_from};
use crate::job::{RemoteShell, Stderr, is_daemon, shown_host};
use crate::patience::{Cut, Patience};
use crate::stop::StopFlag;
use crate::thread::{NoThread, spawn};
use crate::transport::tcp::socket_pair;
use lads_core::message::{DataPort, Hello, LENGTH_BYTES, MAGIC, Message};
use lads_core::protection::Protection;
use lads_sys::SignalsBlocked;
use rustix::event::{PollFd, PollFlags};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// How long ssh may be silent at first, by default. A user who is asked for a password, and for a
/// second factor that comes by telephone, needs a minute or two. Half of this is too short for a
/// second attempt. With the double, a script whose user is away would wait for ten minutes.
const SSH_SILENCE: Duration = Duration::from_secs(300);
/// A longer wait than this is shown. ssh over a long-distance line needs about a second, and a
/// login node under load two. With the double, people would wonder whether anything happens.
const WAIT_UNTOLD: Duration = Duration::from_secs(3);
/// How often the wait is shown again, for a display that counts seconds.
const WAIT_TOLD_INTERVAL: Duration = Duration::from_secs(1);
/// How long to wait for the exit code and the last words of an other end that has ended.
const END_DEADLINE: Duration = Duration::from_secs(2);
const COMPLAINTS_DEADLINE: Duration = Duration::from_millis(500);
/// How long to wait for standard error of an other end that has ended. A shared ssh connection
/// keeps standard error open, so every command takes this much longer there; the double would be
/// noticed. Half of it is too short for a thread on a busy machine.
pub(super) const LAST_ERRORS_DEADLINE: Duration = Duration::from_millis(50);
/// The time limit for sending LADS. The host is silent until all of it has arrived: 3.5 MB at
/// 12 KB/s. Half of it excludes lines of 20 KB/s. With the double, a user whose host hangs would
/// wait for ten minutes.
const DEPLOYMENT_DEADLINE: Duration = Duration::from_secs(300);
/// How long to read more from a program that is not LADS, and how many bytes of it are shown.
const NOISE_DEADLINE: Duration = Duration::from_millis(200);
const NOISE_BYTES_MAX: usize = 200;
/// The bytes up to the end of the magic number: the length of HELLO, its type, the magic number.
const FIRST_BYTES: usize = LENGTH_BYTES + 1 + MAGIC.len();

/// The other end, as a process that this one started.
pub(super) struct Other {
    pub(super) process: Process,
    greeting: Greeting,
    /// Its name in messages.
    name: String,
    is_remote: bool,
    lads: String,
    /// The builds for a host without LADS.
    builds: Option<Builds>,
    /// Whether the command on the other host failed, and not ssh.
    is_command_refused: bool,
    /// The first bytes that it has sent.
    first: Vec<u8>,
    /// The remote shell, as the user gave it; and a command that the user can type to test the
    /// login.
    shell: String,
    login: String,
    wording: &'static Wording,
    /// Whether the user has already seen them.
    stderr: Stderr,
    errors: Errors,
    /// The terminal on which it may ask questions. Declared after the process: a remote shell that
    /// is ended can only reset the terminal while it has the terminal.
    terminal: Option<Terminal>,
}

/// A process that is to be started as the other end.
pub(super) struct Program<'a> {
    pub(super) command: Command,
    /// The host that it leads to, if that is another one.
    pub(super) host: Option<&'a str>,
    /// The remote shell as the user gave it.
    pub(super) typed: &'a RemoteShell,
    pub(super) stderr: Stderr,
    pub(super) way: Way,
    pub(super) wording: &'static Wording,
    /// True if it may ask the user questions on the terminal.
    pub(super) asks_on_terminal: bool,
    /// The builds for a host without LADS, if `command` contains the script that asks for one.
    pub(super) builds: Option<Builds>,
}

/// The start of a conversation: the bytes that the other end receives first, and time limits.
pub(super) struct Beginning<'e, 's> {
    /// HELLO, and JOB if it is short.
    pub(super) early: &'e [u8],
    pub(super) first_word: FirstWord,
    /// The time limit for silence after its first word.
    pub(super) silence: Duration,
    pub(super) stop: &'s StopFlag,
}

/// What standard input and output of the other end are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// A pipe each.
    Pipes,
    /// One socket: a write after the other end has disconnected fails, without a signal.
    Socket,
}

/// What a user can do, in the words of the program.
#[derive(Debug)]
pub(super) struct Wording {
    /// Say where LADS is on the other host.
    pub(super) lads: &'static str,
    /// Wait longer for the first word.
    pub(super) patience: &'static str,
}

impl Wording {
    /// For who types a command.
    pub(super) const COMMAND: Self =
        Self { lads: "--remote-lads PATH", patience: "--connect-timeout SECONDS" };
    /// For who starts an MPI program.
    pub(super) const HINTS: Self = Self {
        lads: "the hint rfs_remote_lads or LADS_REMOTE_LADS",
        patience: "the hint rfs_timeout",
    };
}

/// The standard error of the other end, and the thread that passes it on.
#[derive(Debug)]
pub(super) struct Errors {
    /// The last bytes of it.
    kept: Arc<Mutex<Vec<u8>>>,
    /// Disconnected when the other end has closed its standard error.
    end: mpsc::Receiver<()>,
    is_muted: Arc<AtomicBool>,
}

impl Errors {
    /// Waits a short time for the last of it. Later output is not shown, because nothing follows
    /// the summary.
    pub(super) fn finish(&self) {
        let _: Result<(), _> = self.end.recv_timeout(LAST_ERRORS_DEADLINE);
        self.is_muted.store(true, Ordering::Relaxed);
    }

    /// The last of it. That may come a little later than the end of the process. A process that it
    /// leaves behind, such as a shared ssh connection, may keep standard error open.
    pub(super) fn said(&self, limit: Duration) -> String {
        let _: Result<(), _> = self.end.recv_timeout(limit);
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
}

/// How long another host may be silent at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FirstWord {
    limit: Duration,
    /// Whether this is the same limit as for any silence of a peer.
    is_as_any_silence: bool,
}

impl FirstWord {
    /// `silence` is how long any peer may be silent. A command that involves ssh may ask a user
    /// for a password; any other command is a program that answers or does not.
    pub(super) fn of(remote: &RemoteShell, silence: Duration) -> Self {
        let may_ask = involves_ssh(remote);
        // "No limit" for silence is not meant for a command that never began.
        let is_limited = silence < Duration::from_secs(u32::MAX.into());
        match remote.connect_timeout_seconds {
            Some(seconds) => {
                let limit = Duration::from_secs(seconds.into());
                Self { limit, is_as_any_silence: false }
            }
            None if may_ask || !is_limited => Self { limit: SSH_SILENCE, is_as_any_silence: false },
            None => Self { limit: silence, is_as_any_silence: true },
        }
    }
}

impl Other {
    /// Starts it.
    pub(super) fn start(program: Program<'_>) -> Result<Self, Fatal> {
        let Program { mut command, host, typed, stderr, way, wording, asks_on_terminal, builds } =
            program;
        let not_started = |command: &Command, error| not_started(command, host.is_some(), error);
        let socket = match way {
            Way::Pipes => {
                command.stdin(Stdio::piped()).stdout(Stdio::piped());
                None
            }
            Way::Socket => {
                let put = |command: &mut Command| {
                    let (ours, theirs) = socket_pair()?;
                    command.stdin(theirs.try_clone()?).stdout(theirs);
                    Ok((ours.try_clone()?, ours))
                };
                Some(put(&mut command).map_err(|error| not_started(&command, error))?)
            }
        };
        // A signal to the group of this process stops the transfer in order, which needs the other
        // end. Questions of ssh on the terminal: `terminal.rs`.
        command.stderr(Stdio::piped()).process_group(0);
        let mut child = start(&mut command).map_err(|error| not_started(&command, error))?;
        let name = host.map_or_else(|| "the other end".to_owned(), shown_host);
        let (writing, end) = mpsc::channel();
        let is_muted = Arc::new(AtomicBool::new(stderr == Stderr::Kept));
        let errors = Errors { kept: Arc::default(), end, is_muted };
        let said = child.stderr.take();
        let (input, output) = socket.unwrap_or_else(|| {
            let input = OwnedFd::from(child.stdout.take().expect("piped above"));
            (input, OwnedFd::from(child.stdin.take().expect("piped above")))
        });
        let process = match host {
            Some(_) => Process::remote_shell(child),
            None => Process::leading_group(child),
        };
        if let Some(said) = said {
            let (kept, is_muted) = (Arc::clone(&errors.kept), Arc::clone(&errors.is_muted));
            spawn("lads-stderr", move || {
                pass_on(said, &kept, &is_muted);
                drop(writing);
            })?;
        }
        Ok(Self {
            process,
            greeting: Greeting::new(File::from(input), File::from(output), &name),
            name,
            is_remote: host.is_some(),
            lads: typed.lads.clone().unwrap_or_else(|| "lads".to_owned()),
            builds,
            is_command_refused: false,
            first: Vec::new(),
            shell: shown(shell_words(typed)),
            login: login_command(typed, host.unwrap_or_default()),
            wording,
            stderr,
            errors,
            terminal: asks_on_terminal.then(Terminal::open).flatten(),
        })
    }

    /// Starts it, sends LADS if the host does not have it, and exchanges HELLO. `program` returns
    /// the command with these builds, or without any. Returns also the patience for the rest of the
    /// greeting: one deadline holds from the first byte on.
    pub(super) fn meet<'a, 's>(
        mut builds: Option<Builds>,
        program: impl Fn(Option<Builds>) -> Program<'a>,
        beginning: &Beginning<'_, 's>,
        observer: &mut dyn Observer,
    ) -> Result<(Self, Patience<'s>), Fatal> {
        loop {
            let mut other = Self::start(program(builds.take()))?;
            match other.begin(beginning, observer) {
                // The host may execute nothing but `lads`.
                Err(_) if other.is_confined() => {}
                begun => return begun.map(|patience| (other, patience)),
            }
        }
    }

    fn begin<'s>(
        &mut self,
        beginning: &Beginning<'_, 's>,
        observer: &mut dyn Observer,
    ) -> Result<Patience<'s>, Fatal> {
        let (_, patience) = self.install(beginning, observer)?;
        self.greet(&patience)?;
        Ok(patience)
    }

    /// Waits for the first bytes of LADS there. Sends LADS if it is not there. Returns whether it
    /// did, and the patience that began with those bytes.
    pub(super) fn install<'s>(
        &mut self,
        beginning: &Beginning<'_, 's>,
        observer: &mut dyn Observer,
    ) -> Result<(bool, Patience<'s>), Fatal> {
        let Beginning { early, silence, stop, .. } = *beginning;
        self.say_early(early, stop);
        self.await_first_word(&beginning.first_word, stop, observer)?;
        let greeting = || Patience::new(stop, GREETING_DEADLINE).with_silence(silence);
        let patience = greeting();
        self.hear_first(&patience)?;
        let is_script = [NEED, FAIL].iter().any(|it| self.first.starts_with(it.as_bytes()));
        let Some(builds) = self.builds.take_if(|_| is_script) else { return Ok((false, patience)) };
        self.deploy(&builds, stop, observer)?;
        self.say_early(early, stop);
        let patience = greeting();
        self.hear_first(&patience)?;
        Ok((true, patience))
    }

    /// Reads the rest of the only line that it prints.
    pub(super) fn last_line(&mut self, patience: &Patience<'_>) -> Result<String, Fatal> {
        let line = self.next_line(patience)?;
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    /// Whether it ended without a word because the host executes certain commands only.
    fn is_confined(&self) -> bool {
        self.builds.is_some() && self.first.is_empty() && self.is_command_refused
    }

    /// Sends LADS to a script that has asked for it.
    fn deploy(
        &mut self,
        builds: &Builds,
        stop: &StopFlag,
        observer: &mut dyn Observer,
    ) -> Result<(), Fatal> {
        let patience = &Patience::new(stop, DEPLOYMENT_DEADLINE);
        let name = self.name.clone();
        let fail = |text: String| Fatal::new(ExitCode::Usage, text).when_reached();
        let refused = |why: String| fail(format!("cannot send LADS to {name}: {why}"));
        let (system, machine) = match self.hear_line(patience)? {
            Line::Need { system, machine } => (system, machine),
            Line::Fail(why) => return Err(refused(why)),
            Line::Ready => return Err(refused("it sent no request".to_owned())),
        };
        if !builds.may_be_sent {
            let (version, option) = (env!("CARGO_PKG_VERSION"), self.wording.lads);
            return Err(fail(format!(
                "there is no LADS {version} on {name}: install it there, omit --no-deploy, or give \
                 its path with {option}"
            )));
        }
        let parcel = builds.parcel(&name, &system, &machine)?;
        // If the script has ended, its last line says why.
        let sent = self.greeting.send(&parcel, patience);
        let waited = self.await_word(&format!("{name} to receive LADS"), patience, observer)?;
        waited.map_err(|cut| cut.fatal(&name))?;
        match self.hear_line(patience) {
            Ok(Line::Ready) => sent,
            Ok(Line::Fail(why)) => Err(refused(why)),
            Ok(Line::Need { .. }) => Err(refused("it sent its request twice".to_owned())),
            Err(error) => sent.and(Err(error)),
        }
    }

    /// The next line of the script.
    fn hear_line(&mut self, patience: &Patience<'_>) -> Result<Line, Fatal> {
        let line = self.next_line(patience)?;
        let text = String::from_utf8_lossy(&line);
        Line::parse(text.trim_end()).ok_or_else(|| self.explain_noise(&line))
    }

    fn next_line(&mut self, patience: &Patience<'_>) -> Result<Vec<u8>, Fatal> {
        let mut line = std::mem::take(&mut self.first);
        let mut byte = [0];
        while line.last() != Some(&b'\n') {
            match self.greeting.read(&mut byte, patience) {
                Ok(1..) if line.len() < LINE_BYTES_MAX => line.push(byte[0]),
                Ok(1..) => break,
                Ok(0) => return Err(self.explain_end(&line, patience)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let cut = Cut::of(&error).map(|cut| cut.fatal(&self.name));
                    return Err(cut.unwrap_or_else(|| self.explain_end(&line, patience)));
                }
            }
        }
        Ok(line)
    }

    /// Waits for its first message. Another host may get more time than a process of this one,
    /// because a user may be asked for a password. A long wait is shown.
    fn await_first_word(
        &mut self,
        remote: &FirstWord,
        stop: &StopFlag,
        observer: &mut dyn Observer,
    ) -> Result<(), Fatal> {
        let limit = match self.is_remote {
            true => remote.limit,
            false => remote.limit.min(GREETING_DEADLINE),
        };
        let what = match self.is_remote {
            true => format!("LADS on {} to answer, through `{}`", self.name, self.shell),
            false => "the second process of this transfer".to_owned(),
        };
        let waited = self.await_word(&what, &Patience::new(stop, limit), observer)?;
        waited.map_err(|cut| self.explain_silence(cut, remote))
    }

    /// Waits until it has sent something. A long wait is shown. The inner error is why the wait
    /// ended early.
    fn await_word(
        &mut self,
        what: &str,
        patience: &Patience<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Result<(), Cut>, Fatal> {
        let (since, limit) = (Instant::now(), patience.limit());
        let mut told_next = WAIT_UNTOLD;
        loop {
            if let (Some(terminal), Some(leader)) = (&mut self.terminal, self.process.pid()) {
                terminal.attend(leader)?;
            }
            let polled = &mut [PollFd::new(self.greeting.input(), PollFlags::IN)];
            match patience.look(polled, since) {
                Ok(true) => return Ok(Ok(())),
                Ok(false) if patience.waited(since) >= told_next => {
                    let (what, elapsed) = (what.to_owned(), patience.waited(since));
                    observer.on(Happening::Waiting(Waiting { what, elapsed, limit }));
                    told_next += WAIT_TOLD_INTERVAL;
                }
                Ok(false) => {}
                Err(cut) => return Ok(Err(cut)),
            }
        }
    }

    fn explain_silence(&self, cut: Cut, remote: &FirstWord) -> Fatal {
        if cut == Cut::Stopped || !self.is_remote {
            return cut.fatal(&self.name);
        }
        let (name, login, seconds) = (&self.name, &self.login, remote.limit.as_secs());
        let set_by = if remote.is_as_any_silence { " (--timeout)" } else { "" };
        let text = format!(
            "no reply from {name} within {seconds} s{set_by}, neither from LADS nor an error; try: \
             {login}, or wait longer with {}",
            self.wording.patience
        );
        Fatal::new(ExitCode::Network, text)
    }

    /// Reads the first bytes of HELLO, or of what comes instead.
    fn hear_first(&mut self, patience: &Patience<'_>) -> Result<(), Fatal> {
        while self.first.len() < FIRST_BYTES {
            let mut more = [0; FIRST_BYTES];
            let left = FIRST_BYTES - self.first.len();
            let first = self.first.clone();
            match self.greeting.read(&mut more[..left], patience) {
                Ok(0) => return Err(self.explain_end(&first, patience)),
                Ok(count) => self.first.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(match Cut::of(&error) {
                        // The program wrote something and then nothing more: a prompt, or a program
                        // that waits.
                        Some(Cut::Silent(_)) if !may_be_hello(&first) => self.explain_noise(&first),
                        Some(cut) => cut.fatal(&self.name),
                        None => self.explain_end(&first, patience),
                    });
                }
            }
        }
        Ok(())
    }

    fn greet(&mut self, patience: &Patience<'_>) -> Result<Hello, Fatal> {
        let first = std::mem::take(&mut self.first);
        if first[LENGTH_BYTES + 1..] != MAGIC {
            return Err(self.explain_noise(&first));
        }
        let message = self.greeting.hear_after(&first, HELLO_BYTES_MAX, patience)?;
        check_hello(message, &self.name)
    }

    /// Sends messages before the other end has said a word. An error is ignored: if the other end
    /// is gone, its last output says more than a failed write.
    fn say_early(&mut self, messages: &[u8], stop: &StopFlag) {
        let _ = self.greeting.send(messages, &Patience::new(stop, LAST_WORD_DEADLINE));
    }

    pub(super) fn say(&mut self, message: &Message, patience: &Patience<'_>) -> Result<(), Fatal> {
        self.greeting.say(message, patience)
    }

    /// Its answer to JOB.
    pub(super) fn hear_where_it_listens(
        &mut self,
        patience: &Patience<'_>,
    ) -> Result<(DataPort, Protection), Fatal> {
        let text = match self.greeting.hear(LISTEN_BYTES_MAX, patience)? {
            Some(Message::Listen { port, protection }) => return Ok((port, protection)),
            Some(Message::Fatal { code, text }) => {
                return Err(Fatal::new(exit_code_from(code), text).when_reached());
            }
            Some(_) => "the other end did not report its port".to_owned(),
            None => format!("{} ended before the transfer began", self.name),
        };
        Err(Fatal::new(ExitCode::Network, text).when_reached())
    }

    /// The process and its two pipes, for the time after the greeting, in which it asks no
    /// questions: the terminal is taken back.
    pub(super) fn into_parts(self) -> (Process, Errors, File, File) {
        let (input, output) = self.greeting.into_pipes();
        (self.process, self.errors, input, output)
    }

    /// The error for an other end that said nothing.
    fn explain_end(&mut self, said: &[u8], patience: &Patience<'_>) -> Fatal {
        let status = self.process.wait(&patience.part(END_DEADLINE));
        if patience.is_stopped() {
            return Cut::Stopped.fatal(&self.name);
        }
        let code = status.and_then(|status| status.code());
        // ssh itself ends with 255.
        self.is_command_refused = self.is_remote && code.is_some_and(|code| code != 255);
        let complaints = self.errors.said(COMPLAINTS_DEADLINE);
        let (name, lads, login) = (&self.name, &self.lads, &self.login);
        let told = self.told(&complaints);
        // A signal of the keyboard goes to all processes of a command, and the second one may react
        // before this one. While a remote shell asks a question, it goes to that shell alone.
        let had_keyboard =
            !self.is_remote || self.terminal.as_ref().is_some_and(Terminal::was_lent);
        if had_keyboard && status.and_then(|status| status.signal()).is_some_and(is_request) {
            return Cut::Stopped.fatal(&self.name);
        }
        if !self.is_remote {
            let told =
                if self.stderr == Stderr::Kept { format!("; {told}") } else { String::new() };
            let text = format!("cannot start the second process of this transfer{told}");
            return Fatal::new(ExitCode::Other, text);
        }
        match code {
            // It is `lads dial`, which ends as a transfer does.
            Some(1..) if is_daemon(&self.name) => {
                let code = code.and_then(|it| u8::try_from(it).ok()).unwrap_or(u8::MAX);
                let text = format!("{name} gives no session; {told}");
                let fatal = Fatal::new(exit_code_from(code), text);
                if fatal.code == ExitCode::Network { fatal } else { fatal.when_reached() }
            }
            Some(127) => Fatal::new(
                ExitCode::Usage,
                format!(
                    "there is no {lads} on {name}: install it there, or give its path with {}",
                    self.wording.lads
                ),
            ),
            Some(255) if is_refusal(&complaints) => Fatal::new(
                ExitCode::Refused,
                format!("{name} rejected the login; {told}, or try: {login}"),
            ),
            Some(255) => Fatal::new(
                ExitCode::Network,
                format!("cannot reach {name}; {told}, or try: {login}"),
            ),
            _ => Fatal::new(
                ExitCode::Network,
                format!(
                    "{name} ended before LADS started there (exit {}){}",
                    code.map_or_else(|| "by a signal".to_owned(), |code| code.to_string()),
                    match (said, complaints.as_str()) {
                        ([], "") => String::new(),
                        ([], _) => format!("; {told}"),
                        _ => format!(
                            "; it printed: \"{}\"",
                            String::from_utf8_lossy(said).escape_debug()
                        ),
                    }
                ),
            )
            .when_reached(),
        }
    }

    /// What it wrote to standard error, or where the user finds that.
    fn told(&self, complaints: &str) -> String {
        match (self.stderr, complaints.trim()) {
            (Stderr::PassedOn, _) => "see the message above".to_owned(),
            (Stderr::Kept, "") => "it printed no reason".to_owned(),
            (Stderr::Kept, said) => format!("it printed \"{}\"", said.escape_debug()),
        }
    }

    /// The error for a program that is not LADS: a login script that prints, or another program.
    fn explain_noise(&mut self, first: &[u8]) -> Fatal {
        let mut said = first.to_vec();
        // A program that prints for ever is read for a short time only.
        let (stop, mut piece) = (StopFlag::new(), [0; NOISE_BYTES_MAX]);
        let patience = Patience::new(&stop, NOISE_DEADLINE);
        while said.len() < NOISE_BYTES_MAX
            && let Ok(count @ 1..) = self.greeting.read(&mut piece, &patience)
        {
            said.extend_from_slice(&piece[..count]);
        }
        said.truncate(NOISE_BYTES_MAX);
        let text = String::from_utf8_lossy(&said).escape_debug().to_string();
        Fatal::new(
            ExitCode::Usage,
            format!(
                "{} printed text before LADS started: \"{text}\"; a login script must print \
                 nothing if there is no terminal",
                self.name
            ),
        )
    }
}

/// Whether these bytes can be the beginning of HELLO.
fn may_be_hello(said: &[u8]) -> bool {
    said.iter().skip(LENGTH_BYTES + 1).zip(MAGIC).all(|(said, byte)| *said == byte)
        && said.len() > LENGTH_BYTES + 1
}

/// The error of a command that cannot be started; `is_remote`: it would lead to another host.
fn not_started(command: &Command, is_remote: bool, error: io::Error) -> Fatal {
    let program = command.get_program().to_string_lossy().into_owned();
    if error.kind() == io::ErrorKind::WouldBlock {
        return NoThread::from(error).into();
    }
    if is_remote {
        let text = format!("cannot start {program}: {error}");
        return Fatal::new(ExitCode::Network, text).when_reached();
    }
    let text = format!("cannot start {program}, the other end of this transfer: {error}");
    Fatal::new(ExitCode::Other, text)
}

fn is_refusal(complaints: &str) -> bool {
    ["Permission denied", "Host key verification failed", "Too many authentication failures"]
        .iter()
        .any(|text| complaints.contains(text))
}

/// Passes standard error on, unless it is muted, and keeps the last bytes of it.
fn pass_on(mut from: ChildStderr, kept: &Mutex<Vec<u8>>, is_muted: &AtomicBool) {
    // While ssh has the terminal, a write of this process to it may be stopped by SIGTTOU.
    let _blocked = SignalsBlocked::begin();
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if !is_muted.load(Ordering::Relaxed) {
            let _ = io::stderr().write_all(&bytes[..count]);
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&bytes[..count]);
        let excess = kept.len().saturating_sub(bytes.len());
        kept.drain(..excess);
    }
}

impl RemoteShell {
    /// A command that runs these words of LADS on another host, which has it. `own`: the program of
    /// this process.
    #[must_use]
    pub fn lads_command_on(&self, host: &str, own: &Path, words: &[Vec<u8>]) -> Command {
        self.lads_on(host, Builds::for_shell(self, own).as_ref(), 0, words)
    }

    /// A command that runs these words of LADS on another host. `builds`: LADS is looked for there,
    /// and `early_bytes` may be sent before it is known whether it is there.
    pub(super) fn lads_on(
        &self,
        host: &str,
        builds: Option<&Builds>,
        early_bytes: usize,
        words: &[Vec<u8>],
    ) -> Command {
        let lads = self.lads.as_deref().unwrap_or("lads");
        let words = match builds {
            Some(builds) => builds.words(early_bytes, words),
            None => [&[lads.as_bytes().to_vec()], words].concat(),
        };
        self.command_on(host, &words.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    /// A command that runs these words on another host, where a shell takes them for a command and
    /// its arguments.
    #[must_use]
    pub fn command_on(&self, host: &str, words: &[&[u8]]) -> Command {
        let mut command = shell_command(self);
        command.arg(host).args(words.iter().map(|word| OsString::from_vec(quoted_bytes(word))));
        command
    }
}

/// The remote shell with the arguments that the user gave it.
pub(super) fn shell_command(remote: &RemoteShell) -> Command {
    let mut command = Command::new(remote.command.first().map_or("ssh", String::as_str));
    command.args(remote.command.iter().skip(1));
    command
}

/// A command that a user can type to log in to the other host in the same way as LADS.
fn login_command(remote: &RemoteShell, host: &str) -> String {
    shown(shell_words(remote).chain([host, "true"]))
}

/// Whether a word of the remote shell is ssh, or a program with a name that contains it.
pub(super) fn involves_ssh(remote: &RemoteShell) -> bool {
    shell_words(remote).any(|word| {
        let name = Path::new(word).file_name();
        name.is_some_and(|name| name.to_string_lossy().contains("ssh"))
    })
}

fn shell_words(remote: &RemoteShell) -> impl Iterator<Item = &str> {
    let is_ssh = remote.command.is_empty().then_some("ssh");
    is_ssh.into_iter().chain(remote.command.iter().map(String::as_str))
}

/// Words of a command, quoted as a user would type them.
fn shown<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(quoted).collect::<Vec<_>>().join(" ")
}

/// A word, quoted for a remote shell; a plain word is left as it is, so that `~` works.
fn quoted(word: &str) -> String {
    String::from_utf8_lossy(&quoted_bytes(word.as_bytes())).into_owned()
}

fn quoted_bytes(word: &[u8]) -> Vec<u8> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_./~-+@:".contains(byte);
    if !word.is_empty() && word.iter().all(is_plain) {
        return word.to_vec();
    }
    let parts: Vec<&[u8]> = word.split(|&byte| byte == b'\'').collect();
    [b"'", &*parts.join(&br"'\''"[..]), b"'"].concat()
}

/// Whether this is a signal with which people and systems ask programs to stop.
fn is_request(signal: i32) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP].map(Signal::as_raw).contains(&signal)
}
