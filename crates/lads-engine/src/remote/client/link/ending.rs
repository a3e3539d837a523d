//! The end of a connection: when all is done, or when the server is lost.

use super::{Inner, Link};
use crate::remote::client::RemoteError;
use lads_core::remote::policy::LOOK_INTERVAL;
use lads_core::units::StreamId;
use std::sync::{MutexGuard, PoisonError, Weak};

impl Link {
    /// That the connection is lost, and what has become of what was not sent.
    pub(super) fn outlived<T>(&self, inner: MutexGuard<'_, Inner>) -> Result<T, RemoteError> {
        let is_keeping = |inner: &mut Inner| inner.is_keeping;
        let waited = self.changed.wait_timeout_while(inner, self.timeout, is_keeping);
        let (inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        Err(RemoteError::lost(inner.lost.clone().unwrap_or_default()))
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

    /// Ends the connection if the server says nothing for too long.
    pub(super) fn watch(link: &Weak<Self>) {
        loop {
            std::thread::sleep(LOOK_INTERVAL);
            let Some(link) = link.upgrade() else { return };
            let inner = link.lock();
            let (is_over, silence) = (inner.lost.is_some(), inner.heard_at.elapsed());
            drop(inner);
            if is_over {
                return;
            }
            if silence > link.timeout {
                link.lose(&format!("it said nothing for {} s", link.timeout.as_secs()));
            }
        }
    }

    /// The connection is lost: nothing more is sent, and whoever waits is told. What is left goes
    /// to the local disk if there is one.
    pub(super) fn lose(&self, why: &str) {
        let said = if self.is_lost() { String::new() } else { self.line.last_words() };
        let mut inner = self.lock();
        if inner.lost.is_none() {
            inner.lost =
                Some(format!("lost the server of remote files {}: {why}{said}", self.name));
            inner.is_keeping = self.stage.is_some();
            inner.lost_bytes = inner.outbox.all().map(|about| u64::from(about.length)).sum();
        }
        if !inner.is_keeping {
            inner.outbox.clear();
        }
        inner.reading.clear();
        drop(inner);
        self.changed.notify_all();
        self.transport.end(StreamId(0));
        self.line.end();
    }
}
