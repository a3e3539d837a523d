//! The thread that sends frames, as far as the server has granted room (the paper's background
//! thread, section 3.2), and messages that other threads have left.

use super::{Carrier, Link, OwnClient};
use lads_core::frame::{Bound, Row, put_head};
use lads_core::remote::client::About;
use lads_core::remote::outbox::{Next, Place};
use lads_core::units::{Block, OstId, StreamId};
use lads_sys::Buffer;
use std::io::{self, IoSlice};
use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError, Weak};
use twox_hash::XxHash3_64;

impl Link {
    /// Sends until the connection ends.
    pub(super) fn send(link: &Weak<Self>, carrier: &Carrier) {
        let mut head = Vec::new();
        // Of this connection.
        let mut frames = 0;
        loop {
            let Some(link) = link.upgrade() else { return };
            if carrier.is_over.load(Ordering::Relaxed) || link.is_lost() {
                return;
            }
            link.say_all();
            let Some(next) = link.next_to_send() else { continue };
            if let Err(error) = link.send_one(&next, frames, carrier, &mut head) {
                return link.break_off(&error.to_string());
            }
            frames += 1;
            // Requests that come after the frame may be made.
            drop(next);
            link.event(|_, _| ());
        }
    }

    fn send_one(
        &self,
        next: &Next<Arc<Buffer>, About>,
        frames: u64,
        carrier: &Carrier,
        head: &mut Vec<u8>,
    ) -> io::Result<()> {
        let Next { of, about, place, is_last_grant, .. } = next;
        let block = Block { entry: of.entry(), offset: about.position, length: about.length };
        let (sink_ost, is_last_grant) = (OstId(0), *is_last_grant);
        let bound = Bound { sink_ost, is_last_grant, has_only_sums: false };
        let mut put_head = |checksum| {
            put_head(&[Row { block, is_whole: false, checksum }], frames, bound, head);
        };
        let length = about.length as usize;
        match place {
            Place::Memory(it) | Place::Staging(it) => {
                let bytes = &it[..length];
                put_head(XxHash3_64::oneshot(bytes));
                // It may have to be sent again, on another connection.
                let pieces = &mut [IoSlice::new(head), IoSlice::new(bytes)];
                carrier.transport.send(StreamId(0), pieces)
            }
            Place::Staged(slot) => {
                let stage = self.stage.as_ref().expect("it was staged there");
                let mut buffer = stage.for_draining.take();
                let taken = stage.cache.take(*slot, about.length, &mut buffer);
                // Another connection would not help.
                let lost = |error| {
                    let path = stage.cache.path().display();
                    self.lose(&format!("cannot read back staged data in {path}: {error}"));
                };
                let Ok(checksum) = taken.map_err(lost) else { return Ok(()) };
                put_head(checksum);
                carrier.transport.send_last(StreamId(0), head, &mut buffer[..length])
            }
        }
    }

    /// Lets the buffers of files be sent that no thread uses. Returns whether these are all.
    pub(super) fn seal_tails(&self) -> bool {
        let mut is_all = true;
        for tail in self.tails() {
            match tail.try_lock() {
                Ok(mut tail) => self.seal(&mut tail),
                Err(TryLockError::Poisoned(tail)) => self.seal(&mut tail.into_inner()),
                Err(TryLockError::WouldBlock) => is_all = false,
            }
        }
        is_all
    }

    /// The next frame. `None` after a while without one, or if there are messages to be sent.
    fn next_to_send(&self) -> Option<Next<Arc<Buffer>, About>> {
        let mut session = self.lock();
        let now = self.now();
        if let Some(next) = session.client.next_frame(now) {
            return Some(next);
        }
        if session.client.take_tails_due(now) {
            drop(session);
            if !self.seal_tails() {
                self.event(OwnClient::put_off_tails);
            }
            return None;
        }
        if session.client.has_messages() || session.client.loss().is_some() {
            return None;
        }
        let until = session.client.next_timeout(now);
        session.sender_until = Some(until);
        drop(self.wakes.sender.wait_timeout(session, until.saturating_sub(now)));
        self.lock().sender_until = None;
        None
    }
}
