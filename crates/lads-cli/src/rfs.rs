//! `lads rfs serve`: lets MPI programs write and read files below a directory.

use crate::args::ServeFilesArgs;
use crate::complain;
use crate::signals::Watch;
use anyhow::{Context, Result, anyhow};
use lads_engine::StopFlag;
use lads_engine::remote::{FileServer, ServerConfig, make_token, read_token};
use std::io::{self, Write};

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
