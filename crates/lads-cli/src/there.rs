//! Commands about storage on another host: LADS runs there, and its output is printed here.

use crate::args::{COMMANDS, EXPAND, can_expand};
use crate::{EXIT_UNREAD, args, complain, config, ls, not_started};
use anyhow::{Context, Result, anyhow, ensure};
use clap::ArgMatches;
use lads_engine::{ExitCode, Location, RemoteShell, StopFlag, deploy, is_daemon};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

/// First words of the deployment script if LADS is missing, and if it cannot be started.
const COMPLAINTS: [&[u8]; 2] = [b"LADS-NEED", b"LADS-FAIL"];

/// Exit code of ssh if it cannot reach the host.
const SSH_FAILED: i32 = 255;

/// Interval in which a request to stop is noticed.
const STOP_INTERVAL: Duration = Duration::from_millis(20);

/// Runs a command on the host of its operands. Returns `None` if they have no host, or if the
/// command handles other hosts itself.
pub(crate) fn run(words: &[OsString], matches: &ArgMatches) -> Option<std::process::ExitCode> {
    let (name, leaf, operands) = operands(matches)?;
    if leaf.get_flag(EXPAND) {
        return None;
    }
    let places: Vec<Location> = operands.iter().filter_map(|it| Location::parse(it)).collect();
    let host = places.iter().find_map(|place| place.host.clone())?;
    if is_daemon(&host) {
        complain(&format!("lads {name}: {host} serves only lads cp and lads check"));
        return Some(std::process::ExitCode::from(ExitCode::Usage as u8));
    }
    if name == "bench" && operands.len() > 1 {
        return None;
    }
    let outcome = match places.iter().all(|place| place.host.as_ref() == Some(&host)) {
        true => run_there(&host, &operands, words),
        false => Err((ExitCode::Usage, anyhow!("all paths must be on the same host"))),
    };
    Some(match outcome {
        Ok(code) => std::process::ExitCode::from(code),
        Err((code, error)) => {
            complain(&format!("{error:#}"));
            std::process::ExitCode::from(code as u8)
        }
    })
}

/// Returns the command, its matches and its operands.
fn operands(matches: &ArgMatches) -> Option<(&str, &ArgMatches, Vec<OsString>)> {
    let (name, leaf) = matches.subcommand()?;
    let (_, id) = COMMANDS.into_iter().find(|(command, _)| *command == name)?;
    Some((name, leaf, leaf.get_raw(id)?.map(OsStr::to_owned).collect()))
}

/// Returns the words of the command with expanded operands, if LADS on another host asks for that.
pub(crate) fn expanded(
    words: &[OsString],
    matches: &ArgMatches,
) -> Result<Option<Vec<OsString>>, (ExitCode, String)> {
    let Some((name, leaf)) = matches.subcommand().filter(|(name, _)| can_expand(name)) else {
        return Ok(None);
    };
    if !leaf.get_flag(EXPAND) {
        return Ok(None);
    }
    let id = COMMANDS.iter().find(|(command, _)| *command == name).map_or("paths", |(_, id)| id);
    let mut operands: Vec<&OsStr> = leaf.get_raw(id).into_iter().flatten().collect();
    if name == "cp" {
        // The target may be on a third host; the command itself expands it there.
        let is_here = |it: &&OsStr| Location::parse(it).is_none_or(|it| it.host.is_none());
        operands.retain(is_here);
    }
    let mut all = Vec::with_capacity(words.len());
    for word in words {
        match operands.contains(&word.as_os_str()) {
            true => {
                let paths = lads_engine::expand_paths(vec![word.clone().into_vec()])?;
                all.extend(paths.into_iter().map(named_here));
            }
            false => all.push(word.clone()),
        }
    }
    Ok(Some(all))
}

/// Returns a path as an operand that means this host.
fn named_here(path: Vec<u8>) -> OsString {
    let operand = OsString::from_vec(path);
    match Location::parse(&operand).is_some_and(|it| it.host.is_some()) {
        true => [OsStr::new("./"), &operand].into_iter().collect(),
        false => operand,
    }
}

/// Prints the paths that begin with a word `host:path`, each as such a word. Prints nothing if the
/// host cannot be reached without a question to the user, or does not have LADS.
pub(crate) fn complete(word: &OsStr) -> Result<()> {
    let Some(Location { host: Some(host), path }) = Location::parse(word) else { return Ok(()) };
    if is_daemon(&host) {
        return Ok(());
    }
    let mut remote = RemoteShell { deploys: false, ..remote_shell(&host)? };
    if RemoteShell::default().command == remote.command {
        let options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=3"].map(str::to_owned);
        remote.command.extend(options);
    }
    let pattern = ls::pattern_of_prefix(&path);
    let mut words: Vec<Vec<u8>> =
        ["ls", "-d", "--expand-paths", "--"].map(|word| word.as_bytes().to_vec()).into();
    words.push(pattern);
    let mut command = remote.lads_command_on(&host, Path::new("/proc/self/exe"), &words);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(not_started)?;
    if !output.status.success() || COMPLAINTS.iter().any(|it| output.stdout.starts_with(it)) {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    for line in output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        // A name with control characters is printed in another form.
        if !line.contains(&b'\\') {
            out.write_all(&[host.as_bytes(), b":", line, b"\n"].concat())?;
        }
    }
    Ok(out.flush()?)
}

fn run_there(
    host: &str,
    operands: &[OsString],
    words: &[OsString],
) -> Result<u8, (ExitCode, anyhow::Error)> {
    let remote = remote_shell(host).map_err(|error| (ExitCode::Usage, error))?;
    let word = |word: &OsString| match operands.contains(word) {
        true => path_there(word),
        false => word.clone().into_vec(),
    };
    let mut words: Vec<Vec<u8>> = words.iter().skip(1).map(word).collect();
    words.insert(1, format!("--{EXPAND}").into_bytes());
    on_host(&remote, host, &words, None)
}

/// Runs LADS with these words on a host, and copies its output; sends LADS there if it is missing.
/// With `stop`, the command is one with `--stop-with-stdin`, whose input ends when the flag is set.
pub(crate) fn on_host(
    remote: &RemoteShell,
    host: &str,
    words: &[Vec<u8>],
    stop: Option<&StopFlag>,
) -> Result<u8, (ExitCode, anyhow::Error)> {
    // The standard input is not free for sending it.
    let quiet = RemoteShell { deploys: false, ..remote.clone() };
    if let Some(code) = attempt(&quiet, host, words, stop)? {
        return Ok(code);
    }
    let never = StopFlag::new();
    deploy(remote, host, Path::new("/proc/self/exe"), stop.unwrap_or(&never))
        .map_err(|(code, text)| (code, anyhow!(text)))?;
    let lost =
        || (ExitCode::Other, anyhow!("the copy of lads that was sent to {host} was removed there"));
    attempt(&quiet, host, words, stop)?.ok_or_else(lost)
}

/// Returns the remote shell of the defaults, because these commands have no options for it.
fn remote_shell(host: &str) -> Result<RemoteShell> {
    ensure!(!host.starts_with('-'), "a host cannot begin with a dash");
    let command = args::command();
    let rsh = config::default_of(&command, "rsh", host)?.unwrap_or_else(|| "ssh".to_owned());
    let lads = config::default_of(&command, "remote-lads", host)?;
    let command = RemoteShell::words(&rsh).map_err(|error| anyhow!("rsh {error}"))?;
    Ok(RemoteShell { command, lads, ..RemoteShell::default() })
}

/// Returns the path in an operand for the command there, which starts in the home directory.
pub(crate) fn path_there(operand: &OsString) -> Vec<u8> {
    let path = Location::parse(operand).map(|place| place.path).unwrap_or_default();
    match path.as_slice() {
        b"" => b".".to_vec(),
        // The command must not parse it as an option, or as a path on another host.
        [b'-', ..] => [b"./", path.as_slice()].concat(),
        _ if Location::parse(OsStr::from_bytes(&path)).is_some_and(|it| it.host.is_some()) => {
            [b"./", path.as_slice()].concat()
        }
        _ => path,
    }
}

/// Runs the command there, and copies its output. Returns its exit code, or `None` if LADS is
/// missing there.
fn attempt(
    remote: &RemoteShell,
    host: &str,
    words: &[Vec<u8>],
    stop: Option<&StopFlag>,
) -> Result<Option<u8>, (ExitCode, anyhow::Error)> {
    let other = |error: anyhow::Error| (ExitCode::Other, error);
    let shell = &remote.command;
    let mut command = remote.lads_command_on(host, Path::new("/proc/self/exe"), words);
    if stop.is_some() {
        command = without_interrupt(&command);
    }
    command.stdin(if stop.is_some() { Stdio::piped() } else { Stdio::null() });
    let child = command.stdout(Stdio::piped()).spawn().map_err(not_started);
    let mut child = child.map_err(other)?;
    if let (Some(stop), Some(input)) = (stop, child.stdin.take()) {
        let stop = stop.clone();
        let end_input = move || {
            while !stop.is_set() {
                thread::sleep(STOP_INTERVAL);
            }
            drop(input);
        };
        thread::Builder::new().spawn(end_input).map_err(not_started).map_err(other)?;
    }
    let stdout = child.stdout.take().context("piped above").map_err(other)?;
    let complaint = pass_on(stdout);
    if complaint.is_err() {
        // No process reads the output.
        let _ = child.kill();
    }
    let status = child.wait().context("the remote shell").map_err(other)?;
    let complaint = match complaint {
        // The reader has gone, as with `lads ls dtn2: | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Some(EXIT_UNREAD)),
        result => result.context("cannot write to standard output").map_err(other)?,
    };
    match complaint {
        Some(complaint) if complaint.starts_with(COMPLAINTS[0]) => return Ok(None),
        Some(complaint) => {
            let complaint = String::from_utf8_lossy(&complaint);
            return Err(other(anyhow!("{host}: {}", complaint.trim())));
        }
        None => {}
    }
    match status.code() {
        Some(SSH_FAILED) => Err((
            ExitCode::Network,
            anyhow!(
                "{host}: the remote shell failed; `{} {host} true` must succeed",
                shell.join(" ")
            ),
        )),
        Some(code) => Ok(Some(u8::try_from(code).unwrap_or(ExitCode::Other as u8))),
        None => Err(other(anyhow!("a signal ended the remote shell ({status})"))),
    }
}

/// Returns the command with SIGINT ignored: a user who types Ctrl-C stops LADS, and ssh must still
/// carry its last messages. (ssh still obeys Ctrl-C while it asks for a password.)
fn without_interrupt(command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

/// Copies the output to standard output. Returns the first line if it is one of [`COMPLAINTS`].
fn pass_on(from: ChildStdout) -> io::Result<Option<Vec<u8>>> {
    let mut from = BufReader::new(from);
    let mut first = Vec::new();
    from.read_until(b'\n', &mut first)?;
    if COMPLAINTS.iter().any(|complaint| first.starts_with(complaint)) {
        return Ok(Some(first));
    }
    let mut out = io::stdout().lock();
    out.write_all(&first)?;
    out.flush()?;
    io::copy(&mut from, &mut out)?;
    out.flush()?;
    Ok(None)
}
