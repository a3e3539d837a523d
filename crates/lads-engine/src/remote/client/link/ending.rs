//! The end of a connection: when all is done, or when the server is lost.

use super::{Carrier, Link, OwnClient, Session};
use crate::board::lock;
use crate::remote::error::RemoteError;
use crate::remote::wire::say;
use lads_core::remote::client::{CallError, Loss, Trouble, Wait};
use lads_core::remote::policy::LOOK_INTERVAL;
use lads_core::units::StreamId;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};

impl Carrier {
    /// Ends the connection: all threads that read from it or write to it return.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.transport.end(StreamId(0));
        self.line.end();
    }
}

impl Link {
    pub(in crate::remote::client) fn is_lost(&self) -> bool {
        self.lock().client.loss().is_some()
    }

    /// That the connection is lost, and what has become of what was not sent.
    pub(in crate::remote::client) fn lost(&self) -> RemoteError {
        let mut session = self.lock();
        session.waiting += 1;
        let timeout = session.client.timeout();
        let is_keeping = |session: &mut Session| session.client.is_keeping();
        let waited = self.wakes.program.wait_timeout_while(session, timeout, is_keeping);
        let (mut session, _) = waited.unwrap_or_else(PoisonError::into_inner);
        session.waiting -= 1;
        let unknown = || RemoteError::lost("the connection is lost");
        session.client.loss().cloned().map_or_else(unknown, RemoteError::from)
    }

    /// Waits until there is a connection.
    pub(in crate::remote::client) fn wait_until_connected(&self) -> Result<(), RemoteError> {
        drop(self.wait(&Wait::Connected));
        if self.is_lost() { Err(self.lost()) } else { Ok(()) }
    }

    /// Waits for all requests for which nobody waited.
    pub(in crate::remote::client) fn finish(&self) -> Result<(), RemoteError> {
        let mut session = self.wait(&Wait::Finished);
        let finished = session.client.finish();
        let is_left = session.client.is_left();
        drop(session);
        match finished {
            Err(CallError::Lost) => return Err(self.lost()),
            Err(error) => return Err(self.error(error, &format!("a file on {}", self.name))),
            Ok(()) => {}
        }
        if let Some(stage) = self.stage.as_ref().filter(|_| !is_left) {
            stage.cache.remove();
        }
        self.say_farewell();
        Ok(())
    }

    /// If nothing is left to be done: the server need not keep anything if the connection ends now.
    pub(super) fn say_farewell(&self) {
        let mut output = lock(&self.output);
        let Some(to_server) = &mut *output else { return };
        let farewell = self.lock().client.farewell();
        // Who cannot be told notices it later.
        let _ = say(&mut **to_server, farewell);
    }

    /// Ends the connection if the server says nothing for too long, or does nothing.
    pub(super) fn watch(link: &Weak<Self>) {
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let Some(link) = link.upgrade() else { return };
            if link.is_lost() {
                return;
            }
            match link.event(OwnClient::look) {
                Some(Trouble::Broken(why)) => {
                    if link.event(|client, now| client.on_broken(&why, now)) {
                        link.break_off(&why);
                    } else {
                        link.lose(&why);
                    }
                }
                Some(Trouble::Lost(why)) => link.lose(&why),
                None => {}
            }
        }
    }

    /// Ends the connection after a failure of a thread other than the one that reads messages. That
    /// thread reads what has arrived, with the server's reason if there is one, and then reports
    /// the loss.
    pub(in crate::remote) fn break_off(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
        if let Some(carrier) = self.carrier() {
            carrier.end();
        }
    }

    /// Reports the loss of a connection on which no further message arrives.
    pub(super) fn lose_after_all(&self, why: &str) {
        let broken = self.lock().broken.take();
        self.lose(broken.as_deref().unwrap_or(why));
    }

    /// The connection is lost.
    pub(in crate::remote) fn lose(&self, why: &str) {
        let carrier = self.carrier();
        let said = match &carrier {
            Some(carrier) if !self.is_lost() => carrier.line.last_words(),
            _ => String::new(),
        };
        let name = &self.name;
        self.end(RemoteError::lost(format!("lost the server of remote files {name}: {why}{said}")));
        if let Some(carrier) = carrier {
            carrier.end();
        }
    }

    /// Nothing more is sent, and whoever waits goes on. What is left goes to the local disk, if
    /// there is one.
    pub(in crate::remote::client) fn end(&self, why: RemoteError) {
        let RemoteError { errno, text } = why;
        self.event(|client, _| client.on_lost(Loss { errno, text }));
        // A thread that writes may wait for the buffer of another file, which is not sent any more.
        self.seal_tails();
    }
}
