//! The thread that connects, hears messages until the connection breaks, and connects again.

use super::super::super::line::Connection;
use super::super::super::wire::{Unheard, hear, say};
use super::{Carrier, Link, OwnClient};
use crate::board::lock;
use crate::remote::error::RemoteError;
use crate::thread::spawn;
use crate::transport::Channel;
use lads_core::remote::message::TO_CLIENT_BYTES_MAX;
use lads_core::remote::policy::CONNECT_INTERVAL;
use lads_core::units::StreamId;
use rustix::io::Errno;
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

/// The threads of one connection besides the one that hears messages, and what that one hears.
type Begun = (Box<dyn Read + Send>, Vec<JoinHandle<()>>);

impl Link {
    /// Connects, and again whenever the connection breaks, until it is lost.
    pub(super) fn stay_connected(
        link: &Weak<Self>,
        mut connect: impl FnMut() -> Result<Connection, RemoteError>,
    ) {
        loop {
            let begun_at = Instant::now();
            let panicked = |_| Err(RemoteError::lost("a thread panicked"));
            let connected = catch_unwind(AssertUnwindSafe(&mut connect)).unwrap_or_else(panicked);
            let Some(own) = link.upgrade() else {
                return connected.map_or((), |connection| connection.line.end());
            };
            match connected {
                Ok(connection) => {
                    let begun = own.begin(connection);
                    drop(own);
                    if let Some(begun) = begun
                        && !Self::serve(link, begun)
                    {
                        return;
                    }
                }
                Err(error) if !own.connects_again(&error) => return own.end(error),
                Err(_) => drop(own),
            }
            std::thread::sleep(CONNECT_INTERVAL.saturating_sub(begun_at.elapsed()));
            if link.upgrade().is_none_or(|link| link.is_lost()) {
                return;
            }
        }
    }

    /// The connection is there: what waits is sent.
    fn begin(self: &Arc<Self>, connection: Connection) -> Option<Begun> {
        let Connection { line, transport, channel: Channel { input, mut output } } = connection;
        let coming = super::Coming(Arc::downgrade(self));
        let receiver = transport.receiver(StreamId(0), Arc::new(coming));
        let carrier = Arc::new(Carrier { transport, line, is_over: AtomicBool::new(false) });
        *lock(&self.carrier) = Some(Arc::clone(&carrier));
        let greeting = self.lock().client.greeting();
        match say(&mut *output, [greeting]) {
            Ok(()) => {
                *lock(&self.output) = Some(output);
                self.event(OwnClient::on_connected);
                self.say_all();
            }
            // A server that turns the client away may have closed the connection: it is read on.
            Err(error) => self.break_off(&error.to_string()),
        }
        if self.is_lost() {
            carrier.end();
        }
        let (receiving, sending) = (Arc::downgrade(self), Arc::downgrade(self));
        let threads = [
            spawn("lads-receive", move || Self::receive(&receiving, receiver)),
            spawn("lads-send", move || Self::send(&sending, &carrier)),
        ];
        match threads.into_iter().collect::<Result<_, _>>() {
            Ok(threads) => Some((input, threads)),
            Err(error) => {
                self.lose(&error.to_string());
                None
            }
        }
    }

    /// Hears messages until the connection ends. Returns whether to connect again.
    fn serve(link: &Weak<Self>, (mut input, threads): Begun) -> bool {
        let Some(why) = Self::listen(link, &mut *input) else { return false };
        let Some(own) = link.upgrade() else { return false };
        if !own.on_broken(&why) {
            own.lose_after_all(&why);
            return false;
        }
        drop(own);
        for thread in threads {
            let _ = thread.join();
        }
        // What these threads found is no reason to end the next connection.
        link.upgrade().is_some_and(|own| {
            own.lock().broken = None;
            !own.is_lost()
        })
    }

    /// Hears messages until the connection ends. Returns why it ended; `None` if it is lost.
    pub(super) fn listen(link: &Weak<Self>, input: &mut (dyn Read + Send)) -> Option<String> {
        loop {
            let heard = hear(input, TO_CLIENT_BYTES_MAX);
            let own = link.upgrade()?;
            let taken = match heard {
                Ok(message) => own.take_in(message),
                Err(Unheard::Nonsense(text)) => Err(text),
                Err(Unheard::Ended(why)) => return Some(why),
                Err(Unheard::Changed(why)) => {
                    // A write may have failed before, with a less exact reason.
                    own.lock().broken = Some(why.clone());
                    return Some(why);
                }
            };
            if let Err(text) = taken {
                own.lose(&text);
                return None;
            }
        }
    }

    /// Nothing more arrives on the connection. Returns whether to make another one.
    fn on_broken(&self, why: &str) -> bool {
        let broken = self.lock().broken.clone();
        let why = broken.as_deref().unwrap_or(why);
        let is_away = self.event(|client, now| client.on_broken(why, now));
        if is_away {
            if let Some(carrier) = lock(&self.carrier).take() {
                carrier.end();
            }
            // A thread that writes there has noticed that it has ended.
            *lock(&self.output) = None;
            self.event(|_, _| ());
        }
        is_away
    }

    /// A connection could not be made. Returns whether to try again.
    fn connects_again(&self, error: &RemoteError) -> bool {
        let mut session = self.lock();
        session.client.on_not_connected(error.text.clone());
        // A server with another token stays one.
        session.client.is_away() && error.errno != Errno::ACCESS.raw_os_error()
    }

    pub(super) fn carrier(&self) -> Option<Arc<Carrier>> {
        lock(&self.carrier).clone()
    }
}
