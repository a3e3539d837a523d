//! Clients that speak the protocol by hand: on a socket within this process, whose bytes threads
//! carry through the records of a connection.

use super::*;
use crate::patience::Patience;
use crate::transport::handshake::Refusal;
use crate::transport::seal::Seals;
use crate::transport::tcp::{connect_to_service, end_socket, socket_pair};
use std::fs::File;
use std::io::{IoSlice, Read as _, Write as _};
use std::os::fd::OwnedFd;

/// A connection whose handshake is done with the keys that follow from this token.
pub(super) fn met_with(at: &str, token: &Token) -> Result<(OwnedFd, Seals), Refusal> {
    let (stop, limit) = (StopFlag::new(), Duration::from_secs(30));
    let keys = (&token.of_clients(), token.of_server().public());
    connect_to_service(at.parse().unwrap(), keys, &Patience::new(&stop, limit), limit)
}

/// The same, with the right token.
pub(super) fn met(place: &Place) -> (OwnedFd, Seals) {
    met_with(&place.at, &place.token).unwrap()
}

/// A connection whose handshake is done, and that says what it likes.
pub(super) fn stranger(place: &Place) -> File {
    let (socket, seals) = met(place);
    in_clear(socket, seals).into()
}

/// The bytes of a connection without its records.
pub(super) fn in_clear(socket: OwnedFd, Seals { mut sealer, mut opener }: Seals) -> OwnedFd {
    let (own, served) = socket_pair().unwrap();
    let again = |it: &OwnedFd| File::from(it.try_clone().unwrap());
    let (from, mut into) = (again(&socket), again(&served));
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        let mut read = || {
            opener.read(&mut bytes, |pieces| Ok(rustix::io::readv(&from, pieces)?)).map(|count| {
                // Whoever speaks by hand may be gone.
                (count > 0 && into.write_all(&bytes[..count]).is_ok()).then_some(())
            })
        };
        while let Ok(Some(())) = read() {}
        end_socket(&into.into());
    });
    let (mut from, mut into) = (File::from(served), File::from(socket));
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut bytes)
            && count > 0
            && sealer.write(&[IoSlice::new(&bytes[..count])], |it| into.write_all(it)).is_ok()
        {
        }
        end_socket(&into.into());
    });
    own
}
