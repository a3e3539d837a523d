//! The connection to a daemon, in the place of a remote shell.

use super::relay;
use crate::event::ExitCode;
use crate::job::DaemonPlace;
use crate::keys::{KEY_BYTES, KeyPair, PublicKey};
use crate::names;
use crate::patience::{Patience, Patient};
use crate::stop::StopFlag;
use crate::thread::spawn;
use crate::transport::handshake::{Handshake, Purpose, Refusal, meet};
use crate::transport::tcp::{connect_within, tune};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// How long it may take until both hosts know each other. A lost packet that opens a connection is
/// sent again after 1, 3 and 7 s: half would give up after the second; with the double, a user
/// whose port is blocked waits half a minute to learn it.
const DEADLINE: Duration = Duration::from_secs(15);

/// Maximum length of the reason for which a daemon refuses a session, in bytes. Reasons have 100.
const REASON_BYTES_MAX: usize = 4 << 10;

/// Connects to a daemon that has the key `known`, as the owner of `own`, and copies between the
/// connection and the two pipes until the connection ends. `command`: what a remote shell would run
/// there.
///
/// # Errors
/// If the daemon cannot be reached, has another key, or the connection is lost; with the exit code
/// of a transfer for the same reason.
pub fn dial(
    place: &DaemonPlace,
    own: &KeyPair,
    known: Option<PublicKey>,
    command: &[OsString],
    (input, output): (File, File),
) -> Result<(), (ExitCode, String)> {
    let stop = StopFlag::new();
    let patience = Patience::new(&stop, DEADLINE);
    let unreached = |why: String| (ExitCode::Network, format!("cannot reach {place}: {why}"));
    let socket = connect(place, &patience).map_err(|error| unreached(error.to_string()))?;
    tune(&socket);
    // No daemon has this key, so the error contains the key that the daemon shows.
    let expected = known.unwrap_or(PublicKey([0; KEY_BYTES]));
    let purpose = match command.get(1).is_some_and(|word| word == "rfs") {
        true => Purpose::FilesSession,
        false => Purpose::Transfer,
    };
    let met = Handshake::client(own, expected, purpose)
        .and_then(|own| meet(own, &mut Patient { pipe: &socket, patience: &patience }));
    let (seals, _) = met.map_err(|refusal| refused(place, known, &refusal))?;
    let (mut sealer, mut opener) = (seals.sealer, seals.opener);
    let sending = socket.try_clone().map_err(|error| unreached(error.to_string()))?;
    // It ends with the process: the transfer closes its end of the pipe when it ends.
    spawn("lads-dial", move || {
        let _ = relay::send(input, &sending, &mut sealer);
    })
    .map_err(|error| (ExitCode::Other, error.to_string()))?;
    let lost = |error: io::Error| (ExitCode::Network, format!("lost {place}: {error}"));
    match relay::receive_some(&socket, &mut opener, 1).map_err(lost)?[..] {
        [relay::GO_ON] => relay::receive(&socket, &mut opener, output).map_err(lost),
        [relay::REFUSED] => {
            let reason =
                relay::receive_some(&socket, &mut opener, REASON_BYTES_MAX).map_err(lost)?;
            let reason = String::from_utf8_lossy(&reason).into_owned();
            Err((ExitCode::Refused, format!("{place}: {reason}")))
        }
        _ => Err((ExitCode::Network, format!("{place} ended the connection at once"))),
    }
}

fn connect(place: &DaemonPlace, patience: &Patience<'_>) -> io::Result<TcpStream> {
    let (name, port) = (place.name.clone(), place.port);
    let resolved = patience.result_of("lads-resolve", move || names::resolve(&name, port));
    let addresses = resolved??;
    let limit = DEADLINE / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match connect_within(address, limit) {
            Ok(socket) => return Ok(socket.into()),
            Err(error) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
        }
    }
    Err(last)
}

fn refused(place: &DaemonPlace, known: Option<PublicKey>, refusal: &Refusal) -> (ExitCode, String) {
    match (refusal, known) {
        (Refusal::OtherKey(shown), None) => {
            let text = format!(
                "{place} is not known here. It shows the key {shown}: if its administrator \
                 confirms that, run `lads key --trust {place} {shown}`"
            );
            (ExitCode::Refused, text)
        }
        (Refusal::OtherKey(shown), Some(known)) => {
            let text = format!(
                "{place} shows the key {shown} instead of {known}: somebody may be in the middle. \
                 If its administrator confirms the new key, run `lads key --trust {place} {shown}`"
            );
            (ExitCode::Refused, text)
        }
        (Refusal::Lost(error), _) => {
            (ExitCode::Network, format!("lost {place} before it was known: {error}"))
        }
        (refusal, _) => (ExitCode::Network, format!("{place}: {refusal}; is a daemon there?")),
    }
}
