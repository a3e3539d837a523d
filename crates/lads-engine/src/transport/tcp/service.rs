//! Connections to a server of remote files: each shows the same token, as often as a client likes.

use super::door::{Lobby, await_answer, bind, connect_with, opening};
use crate::patience::Patience;
use crate::stop::StopFlag;
use rustix::event::PollFd;
use rustix::net::sockopt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The first bytes of a connection.
const OPENING: [u8; 8] = *b"LADSFILE";

/// How long [`Service::accept`] waits without looking at its stop flag.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// A client that reads nothing for as long, or whose host is gone, loses its connection: as long as
/// a client waits for a server. With half, a program that was stopped by a debugger is lost sooner;
/// with double, it holds its place for longer.
const UNREAD_MAX: Duration = Duration::from_secs(60);

/// A port at which clients with a token are let in.
#[derive(Debug)]
pub(crate) struct Service {
    lobby: Lobby,
    token: [u8; 32],
    address: SocketAddr,
}

impl Service {
    /// Listens at an address; port 0 is any port. At most `visitors_max` connections without a
    /// token are looked at.
    ///
    /// # Errors
    /// If nobody can listen there.
    pub(crate) fn open(
        address: SocketAddr,
        token: [u8; 32],
        visitors_max: usize,
    ) -> io::Result<Self> {
        let listener = bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { lobby: Lobby::new(listener, OPENING, visitors_max)?, token, address })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next clients, with names for messages; none if the flag is set.
    pub(crate) fn accept(&mut self, stop: &StopFlag) -> Vec<(OwnedFd, String)> {
        while !stop.is_set() {
            let patience = Patience::new(stop, WAIT_MAX);
            let mut polled: Vec<PollFd<'_>> = self.lobby.polled().collect();
            // A wait that is over is begun anew.
            let _ = patience.look(&mut polled, Instant::now());
            drop(polled);
            let mut clients = Vec::new();
            for visitor in self.lobby.look(Instant::now()) {
                let stream = if visitor.has(&self.token) { visitor.accept() } else { None };
                if let Some(stream) = stream {
                    let millis = u32::try_from(UNREAD_MAX.as_millis()).unwrap_or(u32::MAX);
                    let _ = sockopt::set_tcp_user_timeout(&stream, millis);
                    let name =
                        stream.peer_addr().map_or_else(|_| "?".to_owned(), |it| it.to_string());
                    clients.push((stream.into(), name));
                }
            }
            if !clients.is_empty() {
                return clients;
            }
        }
        Vec::new()
    }
}

/// Connects to a server of remote files, while patience lasts. A server that takes nothing for
/// `unread_max` loses the connection.
///
/// # Errors
/// If nobody listens at the address, the token is not right, or patience ends.
pub(crate) fn connect_to_service(
    address: SocketAddr,
    token: &[u8; 32],
    patience: &Patience<'_>,
    unread_max: Duration,
) -> io::Result<OwnedFd> {
    let socket = connect_with(address, &opening(OPENING, 0, token), patience)?;
    await_answer(&socket, patience)?;
    let millis = u32::try_from(unread_max.as_millis()).unwrap_or(u32::MAX);
    // A server whose host is gone is noticed by writing to it.
    let _ = sockopt::set_tcp_user_timeout(&socket, millis);
    Ok(socket)
}
