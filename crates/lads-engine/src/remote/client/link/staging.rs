//! What goes to the local disk: while a write finds no free buffer, while the program computes, and
//! when the connection is lost.

use super::{Link, Session, Stage};
use crate::remote::error::RemoteError;
use lads_core::remote::client::{About, Why};
use lads_core::remote::outbox::Staging;
use lads_core::remote::policy::TAILS_INTERVAL;
use lads_core::sizes;
use lads_sys::Buffer;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Instant;

impl Link {
    /// A buffer for what the program writes; `None` if the connection is lost. If none is free, one
    /// that waits is put on the local disk.
    pub(in crate::remote::client) fn buffer(&self) -> Option<Buffer> {
        loop {
            if let Some(buffer) = self.for_writing.try_take() {
                return Some(buffer);
            }
            let frames = self.event(|client, _| match client.loss() {
                Some(_) => None,
                None => Some(client.start_staging()),
            })?;
            let Some(stage) = self.stage.as_ref().filter(|_| !frames.is_empty()) else {
                return Some(self.for_writing.take());
            };
            if let Some(buffer) = self.put_aside(stage, frames, Why::Write) {
                return Some(buffer);
            }
        }
    }

    /// Makes durable which of the frames that were staged are written at the server, if the user
    /// wants that.
    pub(in crate::remote::client) fn settle(&self) -> Result<(), RemoteError> {
        let Some(stage) = &self.stage else { return Ok(()) };
        stage.cache.settle().map_err(|error| {
            let path = stage.cache.path().display();
            RemoteError::lost(format!(
                "cannot record in {path} which data was sent (rfs_cache_dir): {error}"
            ))
        })
    }

    /// Stages in the background until the connection is lost; then keeps what is left.
    pub(super) fn stage(link: &Weak<Self>) {
        loop {
            let Some(link) = link.upgrade() else { return };
            let stage = link.stage.as_ref().expect("this thread is there for it");
            let mut session = link.lock();
            if session.client.loss().is_some() {
                drop(session);
                return link.keep_the_rest(stage);
            }
            match session.client.next_staging(link.now()) {
                Ok(staging) => {
                    drop(session);
                    link.put_aside(stage, vec![staging], Why::Outlook);
                }
                Err(wait) => {
                    let is_quiet = |session: &mut Session| session.client.loss().is_none();
                    drop(link.wakes.disks.wait_timeout_while(session, wait, is_quiet));
                }
            }
        }
    }

    /// Puts frames on the local disk. Returns the buffer of one, if it is free now.
    fn put_aside(
        &self,
        stage: &Stage,
        frames: Vec<Staging<Arc<Buffer>, About>>,
        why: Why,
    ) -> Option<Buffer> {
        let from = Instant::now();
        let put = stage.cache.put(&frames);
        let took = put.is_ok().then(|| from.elapsed());
        self.event(|client, now| client.on_staged(&frames, took, why, now));
        frames.into_iter().filter_map(|frame| Arc::into_inner(frame.buffer)).last()
    }

    /// Puts all that is not written at the server on the local disk, and says so.
    fn keep_the_rest(&self, stage: &Stage) {
        let mut forgotten_bytes = self.keep_what_waits(stage);
        // A thread that writes may wait for a buffer, and others may have taken those that are free
        // now. It notices the loss when it has one.
        while !self.seal_tails() {
            std::thread::sleep(TAILS_INTERVAL);
            forgotten_bytes += self.keep_what_waits(stage);
        }
        forgotten_bytes += self.keep_what_waits(stage);
        let kept_bytes = self.lock().client.unwritten_bytes();
        let path = stage.cache.path().display();
        let kept = match kept_bytes {
            0 => {
                stage.cache.remove();
                String::new()
            }
            kept_bytes => format!(
                "; {} of {} of unsent data are kept; send them with lads rfs replay {path}",
                sizes::bytes(kept_bytes),
                sizes::bytes(kept_bytes + forgotten_bytes)
            ),
        };
        self.event(|client, _| client.end_keeping(forgotten_bytes, &kept));
    }

    /// Puts all that is in memory on the local disk. What finds no room there is lost: returns how
    /// many bytes.
    fn keep_what_waits(&self, stage: &Stage) -> u64 {
        let mut is_late = false;
        loop {
            let mut session = self.lock();
            if let Some(staging) = session.client.start_keeping() {
                drop(session);
                self.put_aside(stage, vec![staging], Why::Loss);
                continue;
            }
            if is_late || !session.client.is_staging() {
                return session.client.forget_in_memory();
            }
            // Another thread is putting a frame there, and further ones may come meanwhile.
            let timeout = session.client.timeout();
            let is_staging = |session: &mut Session| session.client.is_staging();
            let waited = self.wakes.disks.wait_timeout_while(session, timeout, is_staging);
            is_late = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
        }
    }
}
