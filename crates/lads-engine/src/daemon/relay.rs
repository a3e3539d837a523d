//! Copies the bytes of two pipes to and from a protected connection.

use crate::transport::seal::{Opener, Sealer};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpStream};

/// Bytes that are copied at a time: a record.
const BYTES: usize = 64 << 10;

/// The first byte of a daemon: a session has begun, whose bytes follow.
pub(super) const GO_ON: u8 = 0;
/// It gives no session; the reason for the user follows.
pub(super) const REFUSED: u8 = 1;

/// Sends what comes out of a pipe, until it ends.
///
/// # Errors
/// If the connection is lost.
pub(super) fn send(mut from: impl Read, socket: &TcpStream, sealer: &mut Sealer) -> io::Result<()> {
    let mut bytes = vec![0; BYTES];
    loop {
        let count = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        send_all(&bytes[..count], socket, sealer)?;
    }
    socket.shutdown(Shutdown::Write)
}

/// Sends some bytes.
///
/// # Errors
/// If the connection is lost.
pub(super) fn send_all(bytes: &[u8], socket: &TcpStream, sealer: &mut Sealer) -> io::Result<()> {
    sealer.write(&[IoSlice::new(bytes)], |record| {
        let mut socket = socket;
        socket.write_all(record)
    })
}

/// Receives the first bytes of a connection: `bytes_max`, or fewer if the connection ends.
///
/// # Errors
/// If the connection is lost, or something on it is not genuine.
pub(super) fn receive_some(
    socket: &TcpStream,
    opener: &mut Opener,
    bytes_max: usize,
) -> io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; bytes_max], 0);
    while filled < bytes_max {
        match opener.read(&mut bytes[filled..], |pieces| read_from(socket, pieces))? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn read_from(mut socket: &TcpStream, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    loop {
        match socket.read_vectored(pieces) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Puts what the connection brings into a pipe, until it ends, or nobody reads the pipe.
///
/// # Errors
/// If the connection is lost, or something on it is not genuine. Then nothing is sent any more,
/// either: the other end would take it for an answer to what it has said.
pub(super) fn receive(socket: &TcpStream, opener: &mut Opener, mut to: File) -> io::Result<()> {
    let mut bytes = vec![0; BYTES];
    loop {
        match opener.read(&mut bytes, |pieces| read_from(socket, pieces)) {
            Ok(0) => return Ok(()),
            Ok(count) if to.write_all(&bytes[..count]).is_err() => return Ok(()),
            Ok(_) => {}
            Err(error) => {
                let _ = socket.shutdown(Shutdown::Both);
                return Err(error);
            }
        }
    }
}
