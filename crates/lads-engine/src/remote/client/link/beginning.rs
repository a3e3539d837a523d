//! A connection that is made while the program already writes.

use super::{Carrier, Coming, Inner, Link};
use crate::board::lock;
use crate::remote::client::{Connection, RemoteError};
use crate::remote::wire::say;
use crate::thread::spawn;
use crate::transport::Channel;
use lads_core::remote::message::{ToServer, VERSION};
use lads_core::units::StreamId;
use std::io::Write;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

impl Link {
    /// The connection is there: what waits is sent.
    pub(in crate::remote::client) fn on_connected(self: &Arc<Self>, connection: Connection) {
        let Connection { line, transport, channel: Channel { mut input, mut output } } = connection;
        let coming = Coming(Arc::downgrade(self));
        let receiver = transport.receiver(StreamId(0), Arc::new(coming));
        let carrier = self.carrier.set(Carrier { transport, line });
        carrier.unwrap_or_else(|_| unreachable!("it connects once"));
        let hello = ToServer::Hello { version: VERSION, name: String::new() };
        match say(&mut *output, [hello]) {
            Ok(()) => self.on_greeted(output),
            // A server that turns the client away may have closed the connection: it is read on.
            Err(error) => self.break_off(&error.to_string()),
        }
        let of = |link: &Arc<Self>| Arc::downgrade(link);
        let (listening, receiving, sending, watching) = (of(self), of(self), of(self), of(self));
        let threads = [
            spawn("lads-listen", move || Self::listen(&listening, &mut *input)),
            spawn("lads-receive", move || Self::receive(&receiving, receiver)),
            spawn("lads-send", move || Self::send(&sending)),
            spawn("lads-watch", move || Self::watch(&watching)),
        ];
        if let Some(error) = threads.into_iter().find_map(Result::err) {
            self.lose(&error.to_string());
        }
    }

    fn on_greeted(&self, output: Box<dyn Write + Send>) {
        *lock(&self.output) = Some(output);
        let mut inner = self.lock();
        inner.is_connected = true;
        inner.heard_at = Instant::now();
        inner.done_at = inner.heard_at;
        drop(inner);
        self.changed.notify_all();
        self.say_all();
    }

    /// Waits until there is a connection.
    pub(in crate::remote::client) fn wait_until_connected(&self) -> Result<(), RemoteError> {
        let is_open = |inner: &mut Inner| !inner.is_connected && inner.lost.is_none();
        let waited = self.changed.wait_while(self.lock(), is_open);
        let inner = waited.unwrap_or_else(PoisonError::into_inner);
        if inner.lost.is_some() { self.outlived(inner) } else { Ok(()) }
    }

    /// The connection could not be made.
    pub(in crate::remote::client) fn on_not_connected(&self, error: RemoteError) {
        self.end(error);
    }
}
