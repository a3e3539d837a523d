//! `lads rfs serve` lets MPI programs write and read files of this host; `lads rfs replay` sends
//! what such a program could not send.

use crate::args::{ReplayArgs, ServeFilesArgs};
use crate::front::STOP_DEADLINE;
use crate::progress_line::ProgressLine;
use crate::signals::{self, Watch};
use crate::{complain, daemon, has_open_pipes};
use anyhow::{Context, Result, anyhow};
use lads_core::remote::hints::pairs;
use lads_core::remote::name::Server;
use lads_core::sizes;
use lads_engine::remote::{
    Client, ClientOptions, FileServer, OwnServerConfig, Replay, ReplayError, ServerConfig, Token,
    make_token, read_token, serve_own_client,
};
use lads_engine::{ExitCode, RemoteShell, StopFlag};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Memory for what is to be written, in bytes. With the 64 clients that may come by default, each
/// has 16 MiB: what is under way on 1 Gbit/s over 130 ms. Half is half of that; double is memory of
/// a login node that others use.
const BUFFERS_BYTES: u64 = 1 << 30;

/// The same for the one client that has started the server: 10 Gbit/s over 50 ms. A program of 64
/// processes has as many servers, so double would be 8 GiB there if the storage is slow. Half is
/// half of the rate over a long line.
const OWN_BUFFERS_BYTES: u64 = 64 << 20;

/// Serves until a signal comes, or the one client is gone.
pub(crate) fn serve(args: &ServeFilesArgs) -> Result<()> {
    lads_engine::raise_open_files_limit();
    match (&args.root, &args.token_file) {
        (Some(root), Some(token_file)) => serve_all(args, root, token_file),
        // Both are there unless it serves one client.
        _ => serve_one(args),
    }
}

fn serve_one(args: &ServeFilesArgs) -> Result<()> {
    has_open_pipes()?;
    args.confined.map_or(Ok(()), |access| daemon::confine_to_here(access).map(drop))?;
    let config = OwnServerConfig {
        root: args.root.clone(),
        near: args.near.clone().unwrap_or_else(|| PathBuf::from(".")),
        buffers_bytes: args.buffers.unwrap_or(OWN_BUFFERS_BYTES),
        layout: args.layout.clone(),
    };
    // The handles of the standard library are not used, because they buffer bytes.
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    serve_own_client(input, output, &config).map_err(|text| anyhow!(text))
}

fn serve_all(args: &ServeFilesArgs, root: &Path, token_file: &Path) -> Result<()> {
    let watch = Watch::begin()?;
    let shown = token_file.display();
    make_token(token_file).with_context(|| format!("cannot create the token {shown}"))?;
    let token = read_token(token_file).with_context(|| format!("cannot use the token {shown}"))?;
    let config = ServerConfig {
        listen: args.listen,
        root: root.to_owned(),
        token,
        sessions_max: args.sessions,
        buffers_bytes: args.buffers.unwrap_or(BUFFERS_BYTES),
        layout: args.layout.clone(),
    };
    let server = FileServer::open(&config).map_err(|text| anyhow!(text))?;
    let stop = StopFlag::new();
    let stopping = stop.clone();
    watch.listen(move |_| {
        if !stopping.is_set() {
            stopping.set("a signal");
            signals::exit_after(STOP_DEADLINE, || ());
        }
    })?;
    // Whoever started it waits for this line.
    let mut out = io::stdout();
    writeln!(out, "listening on {}", server.address())?;
    out.flush()?;
    server.run(&stop, &complain).map_err(|text| anyhow!(text))
}

/// Sends what programs left behind. All lists are tried, whatever becomes of the first. Returns the
/// exit code as well: that of damaged data, if there is any.
pub(crate) fn replay(args: &ReplayArgs) -> (Result<()>, ExitCode) {
    let sent = args.lists.iter().map(|list| replay_one(list, args));
    let failed: Vec<_> = sent.collect::<Vec<_>>().into_iter().filter_map(Result::err).collect();
    let code = match failed.iter().any(is_damage) {
        true => ExitCode::Mismatch,
        false => ExitCode::SinkRefuses,
    };
    let count = failed.len();
    let mut failed = failed.into_iter();
    let outcome = match (failed.next(), count) {
        (None, _) => Ok(()),
        (Some(only), 1) => Err(only),
        (Some(first), count) => {
            complain(&format!("{first:#}"));
            failed.for_each(|error| complain(&format!("{error:#}")));
            Err(anyhow!("{count} of {} lists could not be sent", args.lists.len()))
        }
    };
    (outcome, code)
}

fn is_damage(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ReplayError::Damaged { .. }))
}

fn replay_one(list: &Path, args: &ReplayArgs) -> Result<()> {
    let replay = Replay::open(list)?;
    if let Some(damage) = replay.damage().filter(|_| !args.send_readable) {
        let readable = sizes::bytes(replay.bytes());
        let text = format!(
            "{damage}; nothing was sent, and nothing was removed. {readable} of data can be read; \
             --send-readable sends it, also over newer data at the server"
        );
        return Err(ReplayError::Damaged { path: list.to_owned(), text }.into());
    }
    let client = client_of(&replay, args)?;
    let (at, all) = (client.server().to_owned(), replay.bytes());
    let (mut sent, mut line) = (0, ProgressLine::new(false));
    let outcome = replay.send(&client, |bytes| {
        sent += bytes;
        line.show(false, || format!("{} of {}", sizes::bytes(sent), sizes::bytes(all)));
    });
    drop(line);
    outcome?;
    let (all, list) = (sizes::bytes(all), list.display());
    writeln!(io::stdout(), "{all} sent to {at}; {list} is removed")
        .context("cannot write to stdout")
}

/// A connection to the server that a list names, or to the one that is told instead.
fn client_of(replay: &Replay, args: &ReplayArgs) -> Result<Client> {
    let options = ClientOptions::default();
    let told = args.server.clone().map(Server::At);
    Ok(match told.as_ref().unwrap_or_else(|| replay.server()) {
        Server::At(at) => Client::connect(at, &token_for(at, args)?, &options)?,
        Server::StartedOn(host) => {
            let shell = remote_shell(args.rsh.clone(), args.remote_lads.clone())?;
            Client::start(&shell, host, replay.path_there(), &options)?
        }
        Server::Here => Client::here(replay.path_there(), &options)?,
    })
}

fn token_for(at: &str, args: &ReplayArgs) -> Result<Token> {
    let given = args.token_file.as_ref().filter(|path| !path.as_os_str().is_empty());
    let path = given.ok_or_else(|| {
        anyhow!("the server {at} needs a token: give --token-file, or set LADS_RFS_TOKEN_FILE")
    })?;
    read_token(path).with_context(|| format!("cannot use the token {}", path.display()))
}

/// How a server is started on another host: as told, or else as programs of this shell do it.
pub(crate) fn remote_shell(ssh: Option<String>, lads: Option<String>) -> Result<RemoteShell> {
    let default = RemoteShell::default();
    let command = match ssh.or_else(|| of_environment("rfs_ssh", "LADS_RSH")) {
        None => default.command,
        Some(command) => RemoteShell::words(&command)
            .map_err(|error| anyhow!("the command of ssh (LADS_RSH) {error}"))?,
    };
    let lads = lads.or_else(|| of_environment("rfs_remote_lads", "LADS_REMOTE_LADS"));
    Ok(RemoteShell { command, lads, ..default })
}

/// A hint that the environment gives, or else a variable for the same.
fn of_environment(hint: &str, variable: &str) -> Option<String> {
    let hints = std::env::var("LADS_RFS_HINTS").unwrap_or_default();
    let given = pairs(&hints).filter(|(key, value)| *key == hint && !value.is_empty()).last();
    let given = given.map(|(_, value)| value.to_owned());
    given.or_else(|| std::env::var(variable).ok().filter(|value| !value.is_empty()))
}
