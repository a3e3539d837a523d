//! Asks a server of remote files whether it is there and has the token.

use super::problem::{Problem, quoted};
use crate::rfs::remote_shell;
use lads_core::errno;
use lads_core::remote::message::OpenMode;
use lads_core::remote::name::Server;
use lads_engine::is_daemon;
use lads_engine::remote::{Client, ClientOptions, RemoteError, Token};
use std::time::Duration;

/// How long a server may be silent. An answer takes a round trip, 0.3 s around the world. With
/// half, a busy server counts as lost; with double, a person waits longer to hear that a firewall
/// swallows everything.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The same for a server that ssh starts. To log in takes a second, to a busy host several. With
/// half, one that is slow to look up names counts as lost.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens a file for reading at one of its servers, and returns what it found. A file that does not
/// exist is no problem if its directory exists, because a program may create it. `file` is the name
/// that the user gave.
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
            if !has_directory_of(&client, path) {
                let directory = String::from_utf8_lossy(above(path)).into_owned();
                return Err(Problem::new(
                    format!(
                        "{who} answers, but the directory {directory} of {shown} does not exist"
                    ),
                    format!("create it there: mkdir -p {}", quoted(&directory)) + below(server),
                ));
            }
            Ok(format!("{who} answers; {shown} does not exist yet"))
        }
        Err(error) => Err(Problem::new(
            format!("{who} answers, but: {}", error.text),
            match server {
                Server::At(_) => {
                    "check the path, below the root of lads rfs serve, and its permissions there"
                }
                Server::StartedOn(_) | Server::Here => "check the path and its permissions there",
            },
        )),
    }
}

/// Returns the path of the directory of a file; empty for the root, or the directory of the server.
fn above(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(b"", |at| &path[..at])
}

/// The place at which a path on a server begins, for the user.
fn below(server: &Server) -> &'static str {
    match server {
        Server::At(_) => ", below the root of lads rfs serve",
        Server::StartedOn(_) | Server::Here => "",
    }
}

/// Reports whether the directory of a file that does not exist is there. A server opens no
/// directories, but its error tells whether one exists.
fn has_directory_of(client: &Client, path: &[u8]) -> bool {
    let directory = above(path);
    if directory.is_empty() {
        return true;
    }
    let mode = OpenMode { reads: true, writes: false, creates: false, is_new: false };
    match client.open(directory, mode, [0; 16], false) {
        Ok(handle) => {
            // It is a file.
            let _ = handle.close(false);
            false
        }
        Err(error) => !matches!(errno::name(error.errno), Some("ENOENT" | "ENOTDIR")),
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
                Problem::new(error.to_string(), "set LADS_RSH to a command, as in a shell")
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
            "lads rfs serve of this version must listen on {at} there with the same token, and no \
             firewall may block the port. Test this on the host where the program runs"
        ),
        Server::StartedOn(host) if is_daemon(host) => format!(
            "on the host where the program runs, lads must be in PATH, {host} be trusted (lads key \
             --trust), and your key be known there (lads key)"
        ),
        Server::StartedOn(host) => format!(
            "`ssh -o BatchMode=yes {host} lads --version` must work without a question, on the \
             host where the program runs; LADS_REMOTE_LADS is the path of lads there"
        ),
        Server::Here => "this host has too little memory or too few file handles left".to_owned(),
    };
    Problem::new(error.text, todo)
}
