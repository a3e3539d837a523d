//! What goes to the local disk: while a write finds no free buffer, while the program computes, and
//! when the connection is lost.

use super::{Inner, Link, Stage};
use crate::board::lock;
use crate::remote::client::{About, RemoteError, StagedBytes};
use lads_core::remote::message::FRAME_BYTES;
use lads_core::remote::outbox::Staging;
use lads_core::remote::outlook::Memory;
use lads_core::remote::policy::STAGING_INTERVAL;
use lads_core::sizes;
use lads_sys::Buffer;
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

impl Link {
    /// A buffer for what the program writes; `None` if the connection is lost. If none is free, one
    /// that waits is put on the local disk.
    pub(in crate::remote::client) fn buffer(&self) -> Option<Buffer> {
        let stage = self.stage.as_ref().filter(|stage| stage.options.in_foreground);
        loop {
            if self.is_lost() {
                return None;
            }
            if let Some(buffer) = self.for_writing.try_take() {
                return Some(buffer);
            }
            if self.lock().rest.end() {
                self.changed.notify_all();
            }
            let Some((stage, frames)) = stage.and_then(|stage| Some((stage, self.start(stage)?)))
            else {
                return Some(self.for_writing.take());
            };
            let count = |staged: &mut StagedBytes, bytes| staged.in_foreground += bytes;
            if let Some(buffer) = self.put_aside(stage, frames, count) {
                return Some(buffer);
            }
        }
    }

    /// Frames to be staged, because the program waits for a buffer: one, or as many as have the
    /// bytes of the longest frame if they are made durable, which takes as long for one.
    fn start(&self, stage: &Stage) -> Option<Vec<Staging<Arc<Buffer>, About>>> {
        let count = if stage.options.is_synced { FRAME_BYTES / self.buffer_bytes } else { 1 };
        let mut inner = self.lock();
        let frames: Vec<_> = (0..count).map_while(|_| inner.outbox.start_staging()).collect();
        (!frames.is_empty()).then_some(frames)
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
            if link.is_lost() {
                return link.keep_the_rest(stage);
            }
            let Some(staging) = link.next_staging(stage) else { continue };
            let count = |staged: &mut StagedBytes, bytes| staged.in_background += bytes;
            link.put_aside(stage, vec![staging], count);
        }
    }

    /// The next buffer to be staged in the background. `None` after a while without one.
    fn next_staging(&self, stage: &Stage) -> Option<Staging<Arc<Buffer>, About>> {
        let mut inner = self.lock();
        let (now, memory) = (self.now(), self.memory(&inner));
        let wait = inner.outlook.next_staging(now, memory);
        let wait = wait.filter(|_| stage.options.in_background);
        if wait == Some(Duration::ZERO)
            && let Some(staging) = inner.outbox.start_staging_ahead()
        {
            return Some(staging);
        }
        let wait = wait.filter(|wait| !wait.is_zero());
        let limit = wait.map_or(STAGING_INTERVAL, |wait| wait.min(STAGING_INTERVAL));
        let is_quiet = |inner: &mut Inner| inner.lost.is_none();
        drop(self.changed.wait_timeout_while(inner, limit, is_quiet));
        None
    }

    fn memory(&self, inner: &Inner) -> Memory {
        let (count, buffer_bytes) = (self.for_writing.buffer_count(), self.buffer_bytes);
        let free = count.saturating_sub(inner.outbox.in_memory());
        let bytes = |buffers| u64::from(buffers) * u64::from(buffer_bytes);
        Memory { all_bytes: bytes(count), free_bytes: bytes(free), buffer_bytes }
    }

    /// Puts frames on the local disk, and lets their bytes be counted. Returns the buffer of one,
    /// if it is free now.
    fn put_aside(
        &self,
        stage: &Stage,
        frames: Vec<Staging<Arc<Buffer>, About>>,
        count: impl FnOnce(&mut StagedBytes, u64),
    ) -> Option<Buffer> {
        let from = Instant::now();
        let put = stage.cache.put(&frames);
        let mut inner = self.lock();
        for Staging { id, slot, .. } in &frames {
            match put {
                Ok(()) => inner.outbox.on_staged(*id, *slot),
                // Nothing is lost: the frame stays in memory, and writes wait for the network.
                Err(_) => inner.outbox.on_not_staged(*id, *slot),
            }
        }
        if put.is_ok() {
            let bytes = frames.iter().map(|frame| u64::from(frame.about.length)).sum();
            inner.outlook.on_staged(self.now(), bytes, from.elapsed());
            count(&mut inner.staged, bytes);
        }
        drop(inner);
        self.changed.notify_all();
        frames.into_iter().filter_map(|frame| Arc::into_inner(frame.buffer)).last()
    }

    /// Puts all that is not written at the server on the local disk, and says so.
    fn keep_the_rest(&self, stage: &Stage) {
        let mut lost_bytes = self.keep_what_waits(stage);
        // Threads that write find out that the connection is lost, now that buffers are free.
        let tails: Vec<_> = self.lock().tails.iter().filter_map(Weak::upgrade).collect();
        tails.iter().for_each(|tail| lock(tail).seal(self));
        lost_bytes += self.keep_what_waits(stage);
        let mut inner = self.lock();
        let kept_bytes = inner.outbox.all().map(|about| u64::from(about.length)).sum();
        let path = stage.cache.path().display();
        let kept = match kept_bytes {
            0 => {
                stage.cache.remove();
                String::new()
            }
            kept_bytes => format!(
                "; {} of {} of unsent data are kept; send them with lads rfs replay {path}",
                sizes::bytes(kept_bytes),
                sizes::bytes(kept_bytes + lost_bytes)
            ),
        };
        inner.lost_bytes = kept_bytes + lost_bytes;
        if let Some(error) = &mut inner.lost {
            error.text.push_str(&kept);
        }
        inner.outbox.clear();
        inner.is_keeping = false;
        drop(inner);
        self.changed.notify_all();
    }

    /// Puts all that is in memory on the local disk. What finds no room there is lost: returns how
    /// many bytes.
    fn keep_what_waits(&self, stage: &Stage) -> u64 {
        loop {
            let mut inner = self.lock();
            if let Some(staging) = inner.outbox.start_keeping() {
                drop(inner);
                self.put_aside(stage, vec![staging], |_, _| {});
                continue;
            }
            // Another thread may be putting a frame there.
            let is_moving = |inner: &mut Inner| inner.outbox.is_staging();
            let waited = self.changed.wait_timeout_while(inner, self.timeout, is_moving);
            let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
            let lost = inner.outbox.forget_in_memory();
            return lost.iter().map(|about| u64::from(about.length)).sum();
        }
    }
}
