//! What the program writes becomes frames in the outbox.

use super::{Inner, Link};
use crate::board::lock;
use crate::remote::client::{About, RemoteError, Target};
use lads_core::limits::CLIENT_ANNOUNCED_MAX;
use lads_core::remote::message::{Call, FileNumber};
use lads_core::remote::outbox::Goes;
use lads_sys::Buffer;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, Weak};

impl Link {
    /// The program begins to write into a file, and waits for the server next or not. An earlier
    /// failure comes first.
    pub(in crate::remote::client) fn begin_write(
        &self,
        file: FileNumber,
        what: &str,
        is_awaited: bool,
    ) -> Result<(), RemoteError> {
        let now = self.now();
        let mut inner = self.checked(file, what)?;
        inner.outlook.on_write(now);
        match is_awaited {
            true => inner.awaited += 1,
            false => inner.rest.on_copying(),
        }
        Ok(())
    }

    /// The program has written into a file.
    pub(in crate::remote::client) fn end_write(
        &self,
        file: FileNumber,
        what: &str,
        is_awaited: bool,
        bytes: u64,
    ) -> Result<(), RemoteError> {
        let mut inner = self.lock();
        if is_awaited {
            inner.awaited -= 1;
        } else if inner.rest.on_copied() {
            self.changed.notify_all();
        }
        drop(inner);
        self.checked(file, what)?.outlook.on_write_done(self.now(), bytes);
        Ok(())
    }

    /// As if a thread of the program copied from now on, or no more.
    #[cfg(test)]
    pub(in crate::remote::client) fn set_copying(&self, is_copying: bool) {
        let rest = &mut self.lock().rest;
        if is_copying {
            rest.on_copying();
        } else if rest.on_copied() {
            self.changed.notify_all();
        }
    }

    /// A buffer of a file begins to be filled: it is to be sent some time.
    pub(in crate::remote::client) fn on_tail(&self) {
        let mut inner = self.lock();
        inner.open_tails += 1;
        self.notify_sender(inner, false);
    }

    /// Puts a buffer that was filled into the outbox. Returns the number of frames up to this one.
    pub(in crate::remote::client) fn put(&self, about: About, buffer: Buffer) -> u64 {
        let positions = about.position..about.position.saturating_add(about.length.into());
        let Target { file, view, shape, .. } = &*about.target;
        let (file, view, reach) = (*file, *view, shape.reach(&positions));
        let goes = Goes { file, view, positions, reach };
        let mut inner = self.lock();
        inner.open_tails -= 1;
        let is_first = inner.outbox.is_empty();
        if inner.lost.is_none() || inner.is_keeping {
            let now = self.now();
            if is_first {
                inner.rest.begin(now);
            }
            inner.outlook.on_put(now);
            inner.outbox.put(goes, about, Arc::new(buffer));
        }
        let count = inner.outbox.count();
        self.notify_sender(inner, is_first);
        count
    }

    /// Waits until all clients of the server see what was written before: until the server knows of
    /// it, or, if other processes use other servers, has it. The next call of a file returns its
    /// failure.
    pub(in crate::remote::client) fn fence(&self) {
        let tails: Vec<_> = self.lock().tails.iter().filter_map(Weak::upgrade).collect();
        tails.iter().for_each(|tail| lock(tail).seal(self));
        if self.has_other_servers.load(Ordering::Relaxed) {
            return self.wait_until_written();
        }
        let is_too_much = |inner: &Inner| inner.outbox.unsent_count() > CLIENT_ANNOUNCED_MAX;
        let mut inner = self.wait_while_awaited(is_too_much);
        let is_known = inner.outbox.is_empty() && inner.deferred.is_empty();
        if is_known || inner.lost.is_some() {
            return;
        }
        let unsent = inner.outbox.announce();
        let number = self.request_with(inner, true, Call::Fence { unsent }, None);
        // If the connection is lost, the next call returns that.
        let _ = self.wait(number);
    }

    /// From now on, other processes use other servers for the same files.
    pub(in crate::remote::client) fn share_with_other_servers(&self) {
        self.has_other_servers.store(true, Ordering::Relaxed);
    }

    fn wait_until_written(&self) {
        let inner = self.lock();
        let count = inner.outbox.count();
        drop(inner);
        drop(self.wait_while_awaited(|inner| {
            inner.outbox.is_unwritten_before(count) || !inner.deferred.is_empty()
        }));
    }

    /// Wakes the sending thread, unless it rests and knows for how long.
    fn notify_sender(&self, inner: MutexGuard<'_, Inner>, is_news: bool) {
        let rests = inner.awaited == 0 && inner.rest.left(self.now()).is_some();
        drop(inner);
        if is_news || !rests {
            self.changed.notify_all();
        }
    }
}
