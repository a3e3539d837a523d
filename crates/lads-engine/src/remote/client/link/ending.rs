//! The end of a connection: when all is done, or when the server is lost.

use super::{Carrier, Inner, Link};
use crate::clock::Clock;
use crate::remote::client::RemoteError;
use lads_core::absence::Presence;
use lads_core::remote::policy::LOOK_INTERVAL;
use lads_core::units::StreamId;
use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::Instant;

impl Carrier {
    /// Ends the connection: all threads that read from it or write to it return.
    fn end(&self) {
        self.transport.end(StreamId(0));
        self.line.end();
    }
}

impl Link {
    /// That the connection is lost, and what has become of what was not sent.
    pub(super) fn outlived<T>(&self, inner: MutexGuard<'_, Inner>) -> Result<T, RemoteError> {
        let is_keeping = |inner: &mut Inner| inner.is_keeping;
        let waited = self.changed.wait_timeout_while(inner, self.timeout, is_keeping);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let lost = || RemoteError::lost("the connection is lost");
        Err(inner.lost.clone().unwrap_or_else(lost))
    }

    /// Waits for all requests for which nobody waited.
    pub(in crate::remote::client) fn finish(&self) -> Result<(), RemoteError> {
        let is_open = |inner: &mut Inner| {
            let is_left = !inner.deferred.is_empty() || !inner.held.is_empty();
            is_left && inner.lost.is_none()
        };
        let inner = self.changed.wait_while(self.lock(), is_open);
        let mut inner = inner.unwrap_or_else(PoisonError::into_inner);
        let first = inner.failures.keys().min().copied();
        if let Some(failure) = first.and_then(|file| inner.failures.remove(&file)) {
            return Err(RemoteError::of(failure, &format!("a file on {}", self.name)));
        }
        let is_left = inner.is_left();
        if inner.lost.is_some() && is_left {
            return self.outlived(inner);
        }
        if !is_left && let Some(stage) = &self.stage {
            stage.cache.remove();
        }
        Ok(())
    }

    /// Ends the connection if the server says nothing for too long, or does nothing.
    pub(super) fn watch(link: &Weak<Self>) {
        let clock = Clock::start();
        let mut presence = Presence::begin(clock.now(), LOOK_INTERVAL);
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let Some(link) = link.upgrade() else { return };
            let mut inner = link.lock();
            // The program may be stopped, which is no silence of the server.
            let away = presence.look(clock.now());
            let now = Instant::now();
            inner.heard_at = (inner.heard_at + away).min(now);
            inner.done_at = (inner.done_at + away).min(now);
            if !inner.is_owed() {
                inner.done_at = Instant::now();
            }
            let (silence, stall) = (inner.heard_at.elapsed(), inner.done_at.elapsed());
            let is_over = inner.lost.is_some();
            drop(inner);
            if is_over {
                return;
            }
            let patience = link.timeout * link.stall_timeouts;
            if silence > link.timeout {
                link.lose(&format!("it sent nothing for {} s", link.timeout.as_secs()));
            } else if stall > patience {
                let seconds = patience.as_secs();
                link.lose(&format!("it made no progress for {seconds} s and sent only heartbeats"));
            }
        }
    }

    /// Ends the connection after a failure of a thread other than the one that reads messages. That
    /// thread reads what has arrived, with the server's reason if there is one, and then reports
    /// the loss.
    pub(super) fn break_off(&self, why: &str) {
        self.lock().broken.get_or_insert_with(|| why.to_owned());
        if let Some(carrier) = self.carrier.get() {
            carrier.end();
        }
    }

    /// Reports the loss of a connection on which no further message arrives.
    pub(super) fn lose_after_all(&self, why: &str) {
        let broken = self.lock().broken.take();
        self.lose(broken.as_deref().unwrap_or(why));
    }

    /// The connection is lost.
    pub(super) fn lose(&self, why: &str) {
        let carrier = self.carrier.get();
        let said = match carrier {
            Some(carrier) if !self.is_lost() => carrier.line.last_words(),
            _ => String::new(),
        };
        let name = &self.name;
        self.end(RemoteError::lost(format!("lost the server of remote files {name}: {why}{said}")));
        if let Some(carrier) = carrier {
            carrier.end();
        }
    }

    /// Nothing more is sent, and whoever waits is told. What is left goes to the local disk if
    /// there is one.
    pub(super) fn end(&self, why: RemoteError) {
        let mut inner = self.lock();
        if inner.lost.is_none() {
            inner.lost = Some(why);
            inner.is_keeping = self.stage.is_some();
            inner.lost_bytes = inner.outbox.all().map(|about| u64::from(about.length)).sum();
        }
        if !inner.is_keeping {
            inner.outbox.clear();
        }
        inner.reading.clear();
        drop(inner);
        self.changed.notify_all();
    }
}
