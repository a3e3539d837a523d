//! The threads of a client that use its local disk, and what calls of the program do there.

use super::bytes::{Buffer, ReadBuffer, Stamp, WriteBuffer};
use super::client_end::{Link, OwnClient};
use super::program::{Done, Stop};
use lads_core::remote::client::{About, Why};
use lads_core::remote::outbox::Staging;
use lads_core::remote::reading::{Load, Save};
use lads_core::staging::Slot;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// The part of writes to a local disk that fail, in thousandths.
const DISK_FAILURES_PER_MILLE: u32 = 25;

/// Chunks on the local disk, by slot: their bytes and a checksum.
#[derive(Debug, Default)]
pub(super) struct ReadDisk {
    slots: RefCell<HashMap<Slot, SavedChunk>>,
    saved: Cell<u64>,
    is_loading: Cell<bool>,
}

/// A checksum, and bytes by their places.
type SavedChunk = (u64, BTreeMap<usize, Stamp>);

/// Lets others do something before the caller continues.
pub(super) async fn pause(polls: u64) {
    let mut left = polls;
    poll_fn(|_| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    })
    .await;
}

impl Link {
    /// Lets others do something, or nothing.
    pub(super) async fn pause(&self) {
        let polls = self.rng.borrow_mut().below(3);
        pause(polls).await;
    }

    async fn sleep(&self, time: Duration) {
        let until = self.shared.now() + time;
        let is_over = || self.shared.now() >= until || self.is_lost();
        poll_fn(|_| if is_over() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// A buffer for what the program writes; `None` if the connection is lost.
    pub(super) async fn buffer(&self) -> Done<Option<Buffer<Vec<Stamp>>>> {
        loop {
            if let Some(buffer) = self.for_writing.take(vec![0; self.buffer_bytes as usize]) {
                return Ok(Some(buffer));
            }
            self.stats(|it| it.buffer_waits += 1);
            let frames = self.event(|client, _| match client.loss() {
                Some(_) => None,
                None => Some(client.start_staging()),
            });
            let Some(frames) = frames else { return Ok(None) };
            if frames.is_empty() {
                let has_free = || self.for_writing.has_free();
                poll_fn(|_| if has_free() { Poll::Ready(()) } else { Poll::Pending }).await;
            } else {
                self.put_aside(frames, Why::Write).await?;
            }
        }
    }

    async fn put_aside(&self, frames: Vec<Staging<WriteBuffer, About>>, why: Why) -> Done {
        let from = self.shared.now();
        self.pause().await;
        let fails = self.rng.borrow_mut().hits(DISK_FAILURES_PER_MILLE);
        self.disk.borrow_mut().is_full |= fails && self.shared.is_troubled();
        let put = self.disk.borrow_mut().put(&frames)?;
        self.trace(|| format!("stages {} frames, {why:?}: {put:?}", frames.len()));
        let now = self.shared.now();
        let took = put.is_ok().then(|| now.saturating_sub(from));
        self.stats(|it| match took {
            Some(_) if why == Why::Loss => it.kept += 1,
            Some(_) => it.staged += 1,
            None => it.disk_failures += 1,
        });
        self.event(|client, now| client.on_staged(&frames, took, why, now));
        Ok(())
    }

    /// Stages in the background until the connection is lost; then keeps what is left.
    pub(super) async fn stage(self: Rc<Self>) -> Done {
        loop {
            if self.is_lost() {
                return self.keep_the_rest().await;
            }
            match self.event(OwnClient::next_staging) {
                Ok(staging) => self.put_aside(vec![staging], Why::Outlook).await?,
                Err(wait) => self.sleep(wait).await,
            }
            pause(1).await;
        }
    }

    async fn keep_the_rest(&self) -> Done {
        let mut forgotten_bytes = self.keep_what_waits().await?;
        while !self.seal_tails() {
            pause(1).await;
            forgotten_bytes += self.keep_what_waits().await?;
        }
        forgotten_bytes += self.keep_what_waits().await?;
        self.forgotten_bytes.set(forgotten_bytes);
        if forgotten_bytes > 0 && self.disk.borrow().has_room() {
            let text = format!("{forgotten_bytes} bytes are forgotten, and the disk has room");
            return Err(Stop::Broken(text));
        }
        let kept_bytes = self.event(|client, _| client.unwritten_bytes());
        self.trace(|| format!("keeps {kept_bytes} bytes, and forgets {forgotten_bytes}"));
        self.event(|client, _| client.end_keeping(forgotten_bytes, ""));
        Ok(())
    }

    async fn keep_what_waits(&self) -> Done<u64> {
        loop {
            let staging = self.event(|client, _| client.start_keeping());
            if let Some(staging) = staging {
                self.put_aside(vec![staging], Why::Loss).await?;
                continue;
            }
            let is_staging = || self.event(|client, _| client.is_staging());
            if !is_staging() {
                return Ok(self.event(|client, _| client.forget_in_memory()));
            }
            // Meanwhile the program may have filled another buffer.
            poll_fn(|_| if is_staging() { Poll::Pending } else { Poll::Ready(()) }).await;
        }
    }

    /// Puts chunks on the local disk until the connection is lost.
    pub(super) async fn save(self: Rc<Self>) -> Done {
        while !self.is_lost() {
            let Some(save) = self.event(|client, _| client.next_save()) else {
                self.sleep(Duration::from_millis(2)).await;
                continue;
            };
            self.pause().await;
            let fails = self.rng.borrow_mut().hits(DISK_FAILURES_PER_MILLE);
            let checksum = (!fails).then(|| self.read_disk.put(&save));
            self.stats(|it| it.saved += 1);
            self.event(|client, _| client.on_saved(save, checksum));
        }
        Ok(())
    }

    /// Brings a chunk back from the disk. `None` if that has failed.
    pub(super) async fn load(&self, load: Load) -> Done<Option<ReadBuffer>> {
        let is_busy = || self.read_disk.is_loading.get() || !self.for_reading.has_free();
        poll_fn(|_| if is_busy() { Poll::Pending } else { Poll::Ready(()) }).await;
        let (checksum, bytes) = self.read_disk.take(load.slot)?;
        let buffer = self.for_reading.take(bytes).ok_or("no buffer for a chunk")?;
        self.read_disk.is_loading.set(true);
        self.pause().await;
        self.read_disk.is_loading.set(false);
        if checksum != load.checksum {
            return Err(Stop::Broken("a chunk on the disk is replaced while it is read".into()));
        }
        let fails = self.rng.borrow_mut().hits(DISK_FAILURES_PER_MILLE);
        let mut buffer = (!fails).then(|| ReadBuffer::new(buffer));
        self.stats(|it| it.loaded += 1);
        self.event(|client, _| client.on_loaded(load, buffer.as_mut()));
        Ok(buffer)
    }
}

impl ReadDisk {
    fn put(&self, save: &Save<ReadBuffer>) -> u64 {
        self.saved.set(self.saved.get() + 1);
        let bytes = save.bytes.bytes().range(..save.length as usize);
        let bytes = bytes.map(|(place, stamp)| (*place, *stamp)).collect();
        self.slots.borrow_mut().insert(save.slot, (self.saved.get(), bytes));
        self.saved.get()
    }

    fn take(&self, slot: Slot) -> Result<SavedChunk, String> {
        let taken = self.slots.borrow().get(&slot).cloned();
        taken.ok_or_else(|| "an empty slot is read".to_owned())
    }
}
