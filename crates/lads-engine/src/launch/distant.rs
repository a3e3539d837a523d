//! A `lads` on another host that a library starts through a remote shell, for a program that knows
//! nothing of it: an MPI program.
//!
//! So nobody can be asked for a password, the program's terminal, signals and standard input are
//! not touched, and what is preloaded into the program is not preloaded into ssh. The process has
//! one socket as standard input and output: the program must not get SIGPIPE when it is gone.

use super::deploy::Builds;
use super::greeting::{
    GREETING_DEADLINE, Greeting, HELLO_BYTES_MAX, bytes_of, check_hello, own_hello,
};
use super::other::{
    Beginning, Errors, FirstWord, LAST_ERRORS_DEADLINE, Other, Program, Way, Wording, shell_command,
};
use super::process::{Process, reap};
use super::ssh::{Ssh, is_ssh};
use crate::board::lock;
use crate::event::{ExitCode, Happening, Observer};
use crate::fatal::Fatal;
use crate::job::{RemoteShell, Stderr, is_daemon};
use crate::patience::Patience;
use crate::stop::StopFlag;
use crate::transport::tcp::end_socket;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What loads the library into the program.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";

/// The process on this host that leads to the one on the other. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Distant {
    socket: OwnedFd,
    /// Dropped last: ended.
    _process: Arc<Mutex<Process>>,
    errors: Mutex<Errors>,
}

impl Distant {
    /// Runs these words of `lads` on a host, and exchanges HELLO. Returns what to read from and
    /// write to, too. A thread that writes must take no signals.
    ///
    /// # Errors
    /// If the process there does not say HELLO within `limit`, with what ssh or LADS said instead.
    pub(crate) fn start(
        remote: &RemoteShell,
        host: &str,
        words: &[Vec<u8>],
        limit: Duration,
    ) -> Result<(Self, File, File), Fatal> {
        if host.is_empty() || host.starts_with('-') {
            // ssh would take it for an option, and options of ssh can run commands here.
            return Err(Fatal::new(ExitCode::Usage, "a host cannot begin with a dash"));
        }
        let remote = match is_daemon(host) {
            true => &remote.clone().dialing(&own_lads().unwrap_or_else(|| "lads".into())),
            false => remote,
        };
        let stop = StopFlag::new();
        let patience = Patience::new(&stop, limit);
        let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
        let typed = RemoteShell { connect_timeout_seconds: Some(seconds.max(1)), ..remote.clone() };
        let asks_nothing = without_questions(&typed, host, &patience)?;
        let early = bytes_of(&own_hello());
        let program = |builds: Option<Builds>| {
            let mut command = asks_nothing.lads_on(host, builds.as_ref(), early.len(), words);
            put_aside(&mut command);
            Program {
                command,
                host: Some(host),
                typed: &typed,
                stderr: Stderr::Kept,
                way: Way::Socket,
                wording: &Wording::HINTS,
                asks_on_terminal: false,
                builds,
            }
        };
        let builds = own_lads().and_then(|own| Builds::for_shell(remote, &own));
        let first_word = FirstWord::of(&typed, limit);
        let beginning = Beginning { early: &early, first_word, silence: limit, stop: &stop };
        let (other, _) = Other::meet(builds, program, &beginning, &mut Unwatched)?;
        let (process, errors, input, output) = other.into_parts();
        let no_handle = |error| {
            Fatal::new(ExitCode::Other, format!("cannot duplicate a file descriptor: {error}"))
        };
        let socket = output.as_fd().try_clone_to_owned().map_err(no_handle)?;
        let process = Arc::new(Mutex::new(process));
        reap(&process);
        Ok((Self { socket, _process: process, errors: Mutex::new(errors) }, input, output))
    }

    /// Ends the connection: whoever reads from it or writes to it returns.
    pub(crate) fn end(&self) {
        end_socket(&self.socket);
    }

    /// What it has said on standard error.
    pub(crate) fn last_words(&self) -> String {
        lock(&self.errors).said(LAST_ERRORS_DEADLINE)
    }
}

/// The remote shell with options with which it asks nothing and gives up in time, if it is ssh.
/// Options of the user go first, and so hold.
fn without_questions(
    typed: &RemoteShell,
    host: &str,
    patience: &Patience<'_>,
) -> Result<RemoteShell, Fatal> {
    let mut asking = shell_command(typed);
    put_aside(&mut asking);
    if !is_ssh(&asking) {
        return Ok(typed.clone());
    }
    let ssh = Ssh::ask(asking, host, patience)?;
    let mut remote = ssh.map_or_else(|| typed.clone(), |ssh| ssh.made_impatient(typed));
    remote.command.extend(["-o".to_owned(), "BatchMode=yes".to_owned()]);
    Ok(remote)
}

/// Returns the first LADS in the search path of this host: the program is another one.
fn own_lads() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let candidates = std::env::split_paths(&path).map(|directory| directory.join("lads"));
    candidates.into_iter().find(|it| it.is_file())
}

/// Keeps a process apart from the program: no signal of the keyboard, no library.
fn put_aside(command: &mut Command) {
    command.env_remove(PRELOAD_VARIABLE).process_group(0);
}

/// Shows nothing.
pub(super) struct Unwatched;

impl Observer for Unwatched {
    fn on(&mut self, _happening: Happening) {}
}

/// The part of the process on the other host: exchanges HELLO.
///
/// # Errors
/// If what comes is none of this build.
pub(crate) fn answer_distant(input: File, output: File) -> Result<(File, File), Fatal> {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, GREETING_DEADLINE);
    let mut greeting = Greeting::new(input, output, "the client");
    greeting.say(&own_hello(), &patience)?;
    check_hello(greeting.hear(HELLO_BYTES_MAX, &patience)?, "the client")?;
    Ok(greeting.into_pipes())
}
