//! Asks a server of remote files whether it is there and knows the token.

use super::problem::Problem;
use lads_core::errno;
use lads_core::remote::message::OpenMode;
use lads_core::remote::name;
use lads_engine::remote::{Client, ClientOptions, RemoteError, Token};
use std::time::Duration;

/// How long a server may be silent. An answer takes a round trip, 0.3 s around the world. With
/// half, a busy server counts as lost; with double, a person waits longer to hear that a firewall
/// swallows everything.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a file for reading, and says what came of it. That a file is not there is fine: a program
/// may make it.
pub(super) fn ask(file: &[u8], token: &Token) -> Result<String, Problem> {
    let shown = String::from_utf8_lossy(file);
    let name = name::parse(file)
        .map_err(|text| Problem::new(text, "write it so, with the port of lads rfs serve"))?;
    let at = &name.at;
    let lost = |error: RemoteError| {
        Problem::new(
            error.text,
            format!(
                "there, lads rfs serve must listen on {at} and have the same token; no firewall \
                 may be between. Try it on the host where the program runs"
            ),
        )
    };
    let options = ClientOptions { timeout: TIMEOUT, ..ClientOptions::default() };
    let client = Client::connect(at, token, &options).map_err(lost)?;
    let mode = OpenMode { reads: true, writes: false, creates: false, is_new: false };
    match client.open(&name.path, mode, [0; 16], false) {
        Ok(handle) => {
            // It was only looked at.
            let _ = handle.close(false);
            Ok(format!("the server {at} answers, and has {shown}"))
        }
        Err(error) if client.is_lost() => Err(lost(error)),
        Err(error) if errno::name(error.errno) == Some("ENOENT") => {
            Ok(format!("the server {at} answers; {shown} is not there yet"))
        }
        Err(error) => Err(Problem::new(
            format!("the server {at} answers, but: {}", error.text),
            "see the path, below the root of lads rfs serve, and its permissions there",
        )),
    }
}
