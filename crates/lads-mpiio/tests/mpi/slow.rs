//! Programs whose connection to a server is slow, is cut, or is held.

use super::{checks, checks_with, on_each_mpi, on_every_mpi};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

/// A forwarder of connections: bytes arrive late, or not at all.
pub(crate) struct Slow {
    pub(crate) at: String,
}

#[derive(Clone)]
pub(crate) enum Pace {
    /// 16 MiB/s.
    Slow,
    /// The connection is cut after a mebibyte.
    Cut,
    /// Of what the server sends, most is held until this file exists.
    Held(PathBuf),
}

impl Slow {
    /// Forwards connections to a server, until the test ends.
    pub(crate) fn to(server: &str, pace: Pace) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap().to_string();
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(&server).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                let (there, here) = match pace.clone() {
                    held @ Pace::Held(_) => (None, Some(held)),
                    pace => (Some(pace), None),
                };
                std::thread::spawn(move || forward(client, server, there.as_ref()));
                std::thread::spawn(move || forward(back.0, back.1, here.as_ref()));
            }
        });
        Self { at }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, pace: Option<&Pace>) {
    let mut bytes = vec![0; 64 << 10];
    let mut all = 0;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        all += count;
        match pace {
            Some(Pace::Cut) if all > 1 << 20 => break,
            Some(Pace::Slow) => std::thread::sleep(Duration::from_millis(4)),
            Some(Pace::Held(until)) => {
                while all > 256 << 10 && !until.exists() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            _ => {}
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

/// Only rank 0 flushed its writes before the size was changed, and before atomic mode began.
#[test]
fn collective_calls_come_after_what_a_process_with_a_slow_line_has_written() {
    on_each_mpi(|mpi, place| {
        let slow = Slow::to(&place.server.at, Pace::Slow);
        let name = format!("rfs:{},{}:behind", place.server.at, slow.at);
        checks(mpi, place, "tests/programs/behind.c", 2, &[&name]);
    });
}

#[test]
fn an_error_that_one_process_meets_has_its_reason_on_all() {
    on_each_mpi(|mpi, place| {
        let cut = Slow::to(&place.server.at, Pace::Cut);
        let name = format!("rfs:{},{}:lost", place.server.at, cut.at);
        // Each further connection is cut as well, before anything is done.
        let hints = "rfs_timeout=1";
        checks_with(mpi, place, "tests/programs/behind.c", 2, &[&name, "lost"], hints);
    });
}

/// Such reads were done before the call returned.
#[test]
fn nonblocking_reads_are_pending_while_the_program_goes_on() {
    on_every_mpi(|mpi, place| {
        for processes in ["1", "2"] {
            let go = place.path(&format!("go{processes}"));
            let held = Slow::to(&place.server.at, Pace::Held(go.clone()));
            let arguments = [&format!("rfs:{}:pending", held.at), go.to_str().unwrap()];
            let processes = processes.parse().unwrap();
            checks(mpi, place, "tests/programs/pending.c", processes, &arguments);
        }
    });
}
