//! `lads serve --config`: the daemon for hosts without ssh between them, and its sessions.

mod settings;

use crate::args::ServeArgs;
use crate::signals::Watch;
use anyhow::{Context, Result, anyhow};
use lads_core::issue::Side;
use lads_core::offer::Access;
use lads_core::protection::DataLevel;
use lads_core::text::escape;
use lads_engine::{
    DaemonConfig, ExitCode, Listening, Offer, Served, ServedJob, SessionEnd, StopFlag, Terms,
    listen, refusal, serve, serve_connection,
};
use lads_sys::{Confinement, FileAccess, InForce, confine};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Serialize;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the daemon until a signal comes, or what its processes do.
pub(crate) fn run(args: &ServeArgs, config: &Path) -> Result<()> {
    let load = || settings::read(config).map_err(|error| format!("{error:#}"));
    if args.session {
        return session(args, &load);
    }
    let first = load().map_err(|text| anyhow!(text))?;
    if args.check {
        return io::stdout().write_all(shown(&first).as_bytes()).context("cannot write to stdout");
    }
    lads_engine::raise_open_files_limit();
    let inherited = lads_sys::inherited_sockets();
    let listening = Listening::open(&first, inherited).map_err(|text| anyhow!(text))?;
    let (stop, check) = (StopFlag::new(), Arc::new(AtomicBool::new(false)));
    let (woken, waking) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let (stopping, checking) = (stop.clone(), Arc::clone(&check));
    Watch::begin_with_hangup()?.listen(move |number| {
        match i32::from(number) == signal_hook::consts::SIGHUP {
            true => checking.store(true, Ordering::Relaxed),
            false => stopping.set("a signal"),
        }
        // If the pipe is full, it wakes already.
        let _ = rustix::io::write(&waking, b"w");
    })?;
    // Whoever started it waits for these lines.
    let mut out = io::stdout();
    listening.addresses().iter().try_for_each(|it| writeln!(out, "listening on {it}"))?;
    out.flush()?;
    let process = |has_line: bool| {
        let mut command = Command::new("/proc/self/exe");
        command.args(["serve", "--session", "--config"]).arg(config);
        command.args(args.json.then_some("--json"));
        command.args((!has_line).then_some("--only-peers"));
        command.stderr(Stdio::inherit());
        command
    };
    let tell = |text: &str| crate::complain(text);
    listen(&listening, (&load, &check), &process, (&stop, &woken), &tell);
    Ok(())
}

/// Serves one connection, and writes a line of it to the log.
fn session(args: &ServeArgs, load: &dyn Fn() -> Result<DaemonConfig, String>) -> Result<()> {
    let connection = io::stdin().as_fd().try_clone_to_owned()?;
    let daemon = io::stdout().as_fd().try_clone_to_owned()?;
    let end = serve_connection(load, Path::new("/proc/self/exe"), connection, &daemon);
    if args.only_peers && end.peer.is_none() {
        return Ok(());
    }
    let line = if args.json { serde_json::to_string(&Logged::of(&end))? } else { line_of(&end) };
    // One write, so that lines of several sessions do not mix.
    io::stderr().write_all(format!("{line}\n").as_bytes()).context("cannot write the log")
}

/// A session in the log.
#[derive(Debug, Serialize)]
struct Logged<'a> {
    time: String,
    from: Option<String>,
    key: Option<String>,
    peer: Option<&'a str>,
    user: Option<&'a str>,
    said: String,
    exit_code: Option<i32>,
    reason: Option<String>,
    milliseconds: u64,
}

impl<'a> Logged<'a> {
    fn of(end: &'a SessionEnd) -> Self {
        Self {
            time: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            from: end.from.map(|it| it.to_string()),
            key: end.key.map(|it| it.to_string()),
            peer: end.peer.as_deref(),
            user: end.user.as_deref(),
            said: escape(end.said.as_bytes()),
            exit_code: end.exit_code,
            reason: end.reason.as_ref().map(|it| escape(it.as_bytes())),
            milliseconds: end.milliseconds,
        }
    }
}

fn line_of(end: &SessionEnd) -> String {
    let logged = Logged::of(end);
    let from = logged.from.as_deref().unwrap_or("an unknown address");
    let who = match (logged.peer, &logged.key) {
        (Some(peer), _) => format!("{from}, {peer}"),
        (None, Some(key)) => format!("{from}, {key}"),
        (None, None) => from.to_owned(),
    };
    let user = logged.user.map(|user| format!(" as {user}")).unwrap_or_default();
    let said = if logged.said.is_empty() { String::new() } else { format!(": {}", logged.said) };
    let how = match (&logged.reason, logged.exit_code) {
        (Some(reason), _) => format!("; {reason}"),
        (None, Some(code)) => format!("; exit code {code}"),
        (None, None) => String::new(),
    };
    let seconds = logged.milliseconds as f64 / 1e3;
    format!("{} {who}{user}{said}{how} ({seconds:.1} s)", logged.time)
}

/// Confines this process to the files below the current directory.
pub(crate) fn confine_to_here(access: Access) -> Result<InForce> {
    let files = if access.may_write() { FileAccess::ReadAndWrite } else { FileAccess::Read };
    let root = std::env::current_dir()?;
    let confinement = Confinement { root: &root, access: files, readable: &[] };
    confine(&confinement).context("this process cannot be confined")
}

/// Is the other end of a transfer in a session: uses no files but those below the current
/// directory.
pub(crate) fn serve_confined(
    access: Access,
    level: Option<DataLevel>,
    ports: Option<(u16, u16)>,
) -> std::process::ExitCode {
    lads_engine::raise_open_files_limit();
    let confined = confine_to_here(access);
    let in_force = match confined {
        Ok(in_force) => in_force,
        Err(error) => {
            let text = "the session cannot be confined; its administrator finds the reason in the \
                        log";
            let _ = io::stdout().write_all(&refusal(ExitCode::Refused, text));
            let _ = writeln!(io::stderr(), "{error:#}");
            return std::process::ExitCode::from(ExitCode::Refused as u8);
        }
    };
    let level = move || Ok(level.unwrap_or(DataLevel::Encrypted));
    let terms = Terms { level: &level, offer: Some(Offer { access, ports }) };
    let served = serve(None, &terms);
    let is_whole = in_force.are_files_limited && in_force.has_seccomp;
    let lacking = if is_whole { String::new() } else { format!("; {in_force}") };
    let _ = writeln!(io::stderr(), "{}{lacking}", what(&served));
    std::process::ExitCode::from(served.exit_code as u8)
}

/// What a session did, in a line.
fn what(served: &Served) -> String {
    let job = match &served.job {
        None => "asked for nothing".to_owned(),
        Some(ServedJob { side, is_dry_run, paths }) => {
            let verb = match (side, is_dry_run) {
                (_, true) => "looked at",
                (Side::Source, false) => "read",
                (Side::Sink, false) => "wrote",
            };
            let paths: Vec<String> = paths.iter().take(3).map(|path| escape(path)).collect();
            format!("{verb} {}", paths.join(", "))
        }
    };
    let (files, bytes) = (served.moved.files_moved, served.moved.bytes_done);
    let why = served.message.as_ref().map(|text| format!("; {text}")).unwrap_or_default();
    format!("{job}: {files} files, {bytes} bytes{why}")
}

/// Who may do what, for `--check`.
fn shown(config: &DaemonConfig) -> String {
    let ports = config
        .ports
        .map_or_else(|| "any port".to_owned(), |(first, last)| format!("{first}-{last}"));
    let mut text = format!(
        "listens on {}; data on {ports}; at most {} sessions\n",
        config.listen.join(", "),
        config.sessions_max
    );
    for peer in &config.peers {
        let user = peer.user.as_deref().unwrap_or("the user of the daemon");
        text += &format!(
            "{}: {} {} as {user}, data {}, {}\n",
            peer.name,
            peer.access,
            peer.root.display(),
            peer.level,
            peer.key
        );
    }
    text
}
