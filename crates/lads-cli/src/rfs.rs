//! `lads rfs serve` lets MPI programs write and read files below a directory; `lads rfs replay` sends
//! what such a program could not send.

use crate::args::{ReplayArgs, ServeFilesArgs};
use crate::complain;
use crate::signals::Watch;
use anyhow::{Context, Result, anyhow};
use lads_core::sizes;
use lads_engine::StopFlag;
use lads_engine::remote::{FileServer, Replay, ServerConfig, Token, make_token, read_token};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// The shortest time between two redraws of the line of progress.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Serves until a signal comes.
pub(crate) fn serve(args: &ServeFilesArgs) -> Result<()> {
    let watch = Watch::begin()?;
    let shown = args.token_file.display();
    make_token(&args.token_file).with_context(|| format!("cannot make the token {shown}"))?;
    let token =
        read_token(&args.token_file).with_context(|| format!("cannot use the token {shown}"))?;
    let config = ServerConfig {
        listen: args.listen,
        root: args.root.clone(),
        token,
        sessions_max: args.sessions,
        buffers_bytes: args.buffers,
        layout: args.layout.clone(),
    };
    lads_engine::raise_open_files_limit();
    let server = FileServer::open(&config).map_err(|text| anyhow!(text))?;
    let stop = StopFlag::new();
    let stopping = stop.clone();
    watch.listen(move |_| stopping.set("a signal"))?;
    // Whoever started it waits for this line.
    let mut out = io::stdout();
    writeln!(out, "listening on {}", server.address())?;
    out.flush()?;
    server.run(&stop, &complain);
    Ok(())
}

/// Sends what programs left behind. All lists are tried, whatever becomes of the first.
pub(crate) fn replay(args: &ReplayArgs) -> Result<()> {
    let shown = args.token_file.display();
    let token =
        read_token(&args.token_file).with_context(|| format!("cannot use the token {shown}"))?;
    let sent = args.lists.iter().map(|list| replay_one(list, args.server.as_deref(), &token));
    let failed: Vec<_> = sent.collect::<Vec<_>>().into_iter().filter_map(Result::err).collect();
    let count = failed.len();
    let mut failed = failed.into_iter();
    match (failed.next(), count) {
        (None, _) => Ok(()),
        (Some(only), 1) => Err(only),
        (Some(first), count) => {
            complain(&format!("{first:#}"));
            failed.for_each(|error| complain(&format!("{error:#}")));
            Err(anyhow!("{count} of {} lists could not be sent", args.lists.len()))
        }
    }
}

fn replay_one(list: &Path, server: Option<&str>, token: &Token) -> Result<()> {
    let replay = Replay::open(list)?;
    let (at, all) = (server.unwrap_or(replay.at()).to_owned(), replay.bytes());
    let is_shown = io::stderr().is_terminal();
    let (mut sent, mut shown) = (0, Instant::now());
    let outcome = replay.send(&at, token, |bytes| {
        sent += bytes;
        if is_shown && shown.elapsed() >= REDRAW_INTERVAL {
            shown = Instant::now();
            let (sent, all) = (sizes::bytes(sent), sizes::bytes(all));
            // If stderr is closed, nobody waits for progress.
            let _ = write!(io::stderr(), "\rlads: {sent} of {all}\x1b[K");
        }
    });
    if is_shown {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    outcome?;
    let (all, list) = (sizes::bytes(all), list.display());
    writeln!(io::stdout(), "{all} sent to {at}; {list} is removed")
        .context("cannot write to stdout")
}
