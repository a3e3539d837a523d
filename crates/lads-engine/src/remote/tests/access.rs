//! How tests give a client its connection, what they see of its session, and how they end it.

use super::Place;
use super::by_hand::met;
use crate::board::lock;
use crate::remote::line::{Connection, sealed_both_ways};
use crate::remote::wire::say;
use crate::remote::{Client, ClientOptions, RemoteError};
use lads_core::remote::message::ToServer;
use lads_core::remote::name::Server;

impl Place {
    /// A connection whose handshake is done.
    pub(in crate::remote) fn connection(&self) -> Connection {
        let (socket, seals) = met(self);
        let (transport, channel) = sealed_both_ways(&socket, seals).unwrap();
        Connection { line: Box::new(socket), transport, channel }
    }
}

/// Connects once.
pub(in crate::remote) fn once(
    connection: Connection,
) -> impl FnMut() -> Result<Connection, RemoteError> + Send + 'static {
    let mut connection = Some(connection);
    move || connection.take().ok_or_else(|| RemoteError::lost("there is one connection"))
}

impl Client {
    /// Uses one connection, whose other end a server has.
    pub(in crate::remote) fn over(
        connection: Connection,
        server: Server,
        options: &ClientOptions,
    ) -> Result<Self, RemoteError> {
        Self::begin(server, options, once(connection))
    }

    /// Returns the number of frames that were sent.
    pub(super) fn sent(&self) -> u64 {
        self.link.event(|client, _| client.sent())
    }

    /// Returns the number of calls that wait until certain frames are sent.
    pub(super) fn awaited(&self) -> u32 {
        self.link.event(|client, _| client.awaited())
    }

    /// Returns the maximum number of frames in flight.
    pub(super) fn under_way_max(&self) -> usize {
        self.link.event(|client, _| client.under_way_max())
    }

    /// Loses the connection. The server does not wait for another one.
    pub(super) fn cut(&self) {
        let mut output = lock(&self.link.output);
        let _ = output.as_mut().map(|output| say(&mut **output, [ToServer::Bye]));
        drop(output);
        self.link.lose("it closed the connection");
    }

    /// Breaks the connection.
    pub(in crate::remote) fn break_line(&self) {
        self.link.break_off("a test broke it");
    }
}
