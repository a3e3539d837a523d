//! The trial connection: some bytes go there, and an answer returns.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time for each step of the trial connection.
pub(super) const DEADLINE: Duration = Duration::from_secs(3);

/// Bytes that are sent: more than a round of full packets, so that packets of the full length are
/// tried.
const BYTES: usize = 256 << 10;

/// Answer to a few bytes, and to all of them.
const ANSWERS: [u8; 2] = [b'f', b'a'];

/// Result of the trial connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    All,
    /// Only short packets arrived.
    ShortPackets,
    /// Another program answered, or none.
    Nothing,
}

/// Answers a trial connection.
pub(super) fn serve(stream: &TcpStream) {
    // A connection of another program is none of the doctor's concern.
    let _ = answer(stream);
}

fn answer(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let mut bytes = vec![0; BYTES];
    stream.read_exact(&mut bytes[..1])?;
    stream.write_all(&ANSWERS[..1])?;
    stream.read_exact(&mut bytes[1..])?;
    stream.write_all(&ANSWERS[1..])
}

/// Sends the bytes over a connection.
pub(super) fn send(stream: &TcpStream) -> Arrival {
    let step = |mut stream: &TcpStream, bytes: &[u8], answer: u8| -> io::Result<()> {
        stream.write_all(bytes)?;
        let mut read = [0];
        stream.read_exact(&mut read)?;
        if read[0] == answer { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    };
    let timeouts = stream
        .set_read_timeout(Some(DEADLINE))
        .and_then(|()| stream.set_write_timeout(Some(DEADLINE)));
    let bytes = vec![0; BYTES];
    if timeouts.is_err() || step(stream, &bytes[..1], ANSWERS[0]).is_err() {
        return Arrival::Nothing;
    }
    match step(stream, &bytes[1..], ANSWERS[1]) {
        Ok(()) => Arrival::All,
        Err(_) => Arrival::ShortPackets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn all_bytes_arrive_over_a_good_connection() {
        let (client, server) = connected();
        thread::scope(|scope| {
            scope.spawn(|| serve(&server));
            assert_eq!(send(&client), Arrival::All);
        });
    }

    #[test]
    fn short_packets_alone_are_distinguished_from_another_program() {
        let (client, mut server) = connected();
        let short = move || {
            let mut byte = [0];
            server.read_exact(&mut byte).unwrap();
            server.write_all(&ANSWERS[..1]).unwrap();
        };
        thread::scope(|scope| {
            scope.spawn(short);
            assert_eq!(send(&client), Arrival::ShortPackets);
        });
        let (client, mut server) = connected();
        server.write_all(b"SSH-2.0").unwrap();
        assert_eq!(send(&client), Arrival::Nothing);
    }
}
