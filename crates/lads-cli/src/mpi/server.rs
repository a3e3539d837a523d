//! Asks a server of remote files whether it is there and knows the token.

use super::problem::Problem;
use crate::rfs::remote_shell;
use lads_core::errno;
use lads_core::remote::message::OpenMode;
use lads_core::remote::name::Server;
use lads_engine::remote::{Client, ClientOptions, RemoteError, Token};
use std::time::Duration;

/// How long a server may be silent. An answer takes a round trip, 0.3 s around the world. With
/// half, a busy server counts as lost; with double, a person waits longer to hear that a firewall
/// swallows everything.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The same for a server that ssh starts. To log in takes a second, to a busy host several. With
/// half, one that is slow to look up names counts as lost.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a file for reading at one of its servers, and says what came of it. That a file is not
/// there is fine: a program may make it. `file` is what the user calls it.
pub(super) fn ask(
    file: &[u8],
    server: &Server,
    path: &[u8],
    token: Option<&Token>,
) -> Result<String, Problem> {
    let shown = String::from_utf8_lossy(file);
    let client = client_of(server, path, token)?;
    let who = match server {
        Server::Here => client.server().to_owned(),
        Server::At(_) | Server::StartedOn(_) => format!("the server {}", client.server()),
    };
    let mode = OpenMode { reads: true, writes: false, creates: false, is_new: false };
    match client.open(path, mode, [0; 16], false) {
        Ok(handle) => {
            // It was only looked at.
            let _ = handle.close(false);
            Ok(format!("{who} answers, and has {shown}"))
        }
        Err(error) if client.is_lost() => Err(lost(server, error)),
        Err(error) if errno::name(error.errno) == Some("ENOENT") => {
            Ok(format!("{who} answers; {shown} is not there yet"))
        }
        Err(error) => Err(Problem::new(
            format!("{who} answers, but: {}", error.text),
            match server {
                Server::At(_) => {
                    "see the path, below the root of lads rfs serve, and its permissions there"
                }
                Server::StartedOn(_) | Server::Here => "see the path, and its permissions there",
            },
        )),
    }
}

fn client_of(server: &Server, path: &[u8], token: Option<&Token>) -> Result<Client, Problem> {
    let options = |timeout| ClientOptions { timeout, ..ClientOptions::default() };
    let client = match server {
        Server::At(at) => {
            let token = token.ok_or_else(super::token::missing)?;
            Client::connect(at, token, &options(TIMEOUT))
        }
        Server::StartedOn(host) => {
            let shell = remote_shell(None, None).map_err(|error| {
                Problem::new(error.to_string(), "set LADS_RFS_SSH to a command, as in a shell")
            })?;
            Client::start(&shell, host, path, &options(START_TIMEOUT))
        }
        Server::Here => Client::here(path, &options(TIMEOUT)),
    };
    client.map_err(|error| lost(server, error))
}

fn lost(server: &Server, error: RemoteError) -> Problem {
    let todo = match server {
        Server::At(at) => format!(
            "there, lads rfs serve must listen on {at} and have the same token; no firewall may be \
             between. Try it on the host where the program runs"
        ),
        Server::StartedOn(host) => format!(
            "`ssh -o BatchMode=yes {host} lads --version` must work without a question, on the host \
             where the program runs; LADS_RFS_REMOTE_LADS says where lads is there"
        ),
        Server::Here => "this host has too little memory or too few file handles left".to_owned(),
    };
    Problem::new(error.text, todo)
}
