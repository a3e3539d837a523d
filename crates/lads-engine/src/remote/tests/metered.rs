//! A client whose server's credit arrives only as far as the test allows: the client sends no
//! further frame, and messages are sent and received all the same.

use super::Place;
use crate::board::lock;
use crate::remote::line::Connection;
use crate::remote::wire::hear;
use crate::remote::{Client, ClientOptions, RemoteError};
use lads_core::remote::message::{TO_CLIENT_BYTES_MAX, ToClient, encode};
use lads_core::remote::name::Server;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::ops::Deref;
use std::sync::{Arc, Mutex};

/// The client.
pub(in crate::remote) struct Metered {
    client: Client,
    credit: Arc<Mutex<Credit>>,
}

/// Numbers of frames.
#[derive(Default)]
struct Credit {
    /// The server has granted them, and the client does not know of it.
    withheld: u32,
    /// The client may learn of this number of further ones.
    allowed: u32,
}

impl Credit {
    /// Takes the credit that the client learns of now.
    fn take(&mut self) -> u32 {
        let count = self.withheld.min(self.allowed);
        self.withheld -= count;
        self.allowed -= count;
        count
    }
}

impl Metered {
    /// A client over a connection, which may send no frame at first.
    pub(in crate::remote) fn new(
        connection: Connection,
        begin: impl FnOnce(Connection) -> Result<Client, RemoteError>,
    ) -> Self {
        let credit = Arc::<Mutex<Credit>>::default();
        let Connection { line, transport, mut channel } = connection;
        let (input, own) = (channel.input, Arc::clone(&credit));
        channel.input = Box::new(Meter { input, credit: own, unread: VecDeque::new() });
        let client = begin(Connection { line, transport, channel }).unwrap();
        Self { client, credit }
    }

    /// Lets the client send this number of further frames.
    pub(in crate::remote) fn allow(&self, frames: u32) {
        let mut credit = lock(&self.credit);
        credit.allowed = credit.allowed.saturating_add(frames);
        let count = credit.take();
        drop(credit);
        if count > 0 {
            let grant = ToClient::Grant(count);
            self.client.link.event(|client, now| client.on_message(grant, now)).unwrap();
        }
    }

    /// Lets the client send all its frames.
    pub(in crate::remote) fn allow_all(&self) {
        self.allow(u32::MAX);
    }
}

impl Deref for Metered {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// The messages of a server.
struct Meter {
    input: Box<dyn Read + Send>,
    credit: Arc<Mutex<Credit>>,
    unread: VecDeque<u8>,
}

impl Read for Meter {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.unread.is_empty() {
            let Ok(message) = hear(&mut *self.input, TO_CLIENT_BYTES_MAX) else { return Ok(0) };
            let message = match message {
                // A client with a ticket counts the messages of the server, and these are others.
                ToClient::Ticket(_) => continue,
                ToClient::Grant(count) => {
                    let mut credit = lock(&self.credit);
                    credit.withheld += count;
                    ToClient::Grant(credit.take())
                }
                message => message,
            };
            let mut bytes = Vec::new();
            encode(&message, &mut bytes);
            self.unread.extend(bytes);
        }
        self.unread.read(to)
    }
}

impl Place {
    /// A client that may send no frame at first.
    pub(super) fn metered(&self) -> Metered {
        self.metered_with(&ClientOptions::default())
    }

    pub(super) fn metered_with(&self, options: &ClientOptions) -> Metered {
        let begin = |it| Client::over(it, Server::At(self.at.clone()), options);
        Metered::new(self.connection(), begin)
    }
}
