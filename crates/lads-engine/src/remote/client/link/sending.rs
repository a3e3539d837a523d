//! The thread that sends buffers, as far as the server has granted room (the paper's background
//! thread, section 3.2).

use super::{Inner, Link};
use crate::remote::client::About;
use lads_core::frame::{Bound, Row, put_head};
use lads_core::remote::outbox::{Next, Place};
use lads_core::remote::policy::{LOOK_INTERVAL, TAIL_WAIT};
use lads_core::units::{Block, OstId, StreamId};
use lads_sys::Buffer;
use std::io::{self, IoSlice};
use std::sync::{Arc, PoisonError, Weak};
use twox_hash::XxHash3_64;

impl Link {
    /// How many frames were sent.
    #[cfg(test)]
    pub(in crate::remote::client) fn sent(&self) -> u64 {
        self.lock().outbox.sent()
    }

    /// Sends what is in the outbox.
    pub(super) fn send(link: &Weak<Self>) {
        let mut head = Vec::new();
        loop {
            let Some(link) = link.upgrade() else { return };
            link.go_ahead();
            let Some(next) = link.next_to_send() else {
                link.say_present();
                continue;
            };
            if let Err(error) = link.send_one(&next, &mut head) {
                return link.break_off(&error.to_string());
            }
            link.changed.notify_all();
            link.release_held();
        }
    }

    fn send_one(&self, next: &Next<Arc<Buffer>, About>, head: &mut Vec<u8>) -> io::Result<()> {
        let Next { number, of, about, place, is_last_grant } = next;
        let length = about.length;
        let back;
        let (buffer, checksum): (&Buffer, _) = match place {
            Place::Memory(it) | Place::Staging(it) => {
                (&**it, XxHash3_64::oneshot(&it[..length as usize]))
            }
            Place::Staged(slot) => {
                let stage = self.stage.as_ref().expect("it was staged there");
                let mut buffer = stage.for_draining.take();
                let checksum = stage.cache.take(*slot, length, &mut buffer).map_err(|error| {
                    let path = stage.cache.path().display();
                    io::Error::other(format!("cannot read back staged data in {path}: {error}"))
                })?;
                back = buffer;
                (&back, checksum)
            }
        };
        let block = Block { entry: of.entry(), offset: about.position, length };
        let row = Row { block, is_whole: false, checksum };
        let (sink_ost, is_last_grant) = (OstId(0), *is_last_grant);
        let bound = Bound { sink_ost, is_last_grant, has_only_sums: false };
        put_head(&[row], *number, bound, head);
        let pieces = &mut [IoSlice::new(head), IoSlice::new(&buffer[..length as usize])];
        self.carrier.get().expect("it is connected").transport.send(StreamId(0), pieces)
    }

    /// The next buffer for which there is room at the server. `None` after a while without one.
    fn next_to_send(&self) -> Option<Next<Arc<Buffer>, About>> {
        let inner = self.lock();
        let has_tails = inner.open_tails > 0;
        let may_send = |inner: &Inner| {
            let is_recalled = inner.outbox.is_recalled();
            let has_room = is_recalled || inner.outbox.under_way() < self.under_way_max(inner);
            #[cfg(test)]
            let has_room = has_room && !inner.is_paused;
            let is_ready = has_room && inner.lost.is_none() && inner.outbox.has_next();
            is_ready && (is_recalled || inner.awaited > 0 || inner.rest.left(self.now()).is_none())
        };
        let is_idle = |inner: &mut Inner| {
            let is_same = (inner.open_tails > 0) == has_tails;
            !may_send(inner) && is_same && inner.next_ahead().is_none()
        };
        let limit = if has_tails { TAIL_WAIT } else { LOOK_INTERVAL };
        let limit = inner.rest.left(self.now()).map_or(limit, |rest| rest.min(limit));
        let waited = self.changed.wait_timeout_while(inner, limit, is_idle);
        let (mut inner, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        #[cfg(test)]
        if inner.is_paused {
            return None;
        }
        if waited.timed_out() && has_tails {
            let tails: Vec<_> = inner.tails.iter().filter_map(Weak::upgrade).collect();
            drop(inner);
            for tail in tails {
                // A thread that fills it will see to it.
                if let Ok(mut tail) = tail.try_lock() {
                    tail.seal(self);
                }
            }
            return None;
        }
        if !may_send(&inner) {
            return None;
        }
        let is_waited_for = inner.awaited > 0;
        let under_way = inner.outbox.under_way();
        let next = inner.outbox.next(is_waited_for)?;
        let is_full = next.about.length == self.buffer_bytes;
        inner.window.on_sent(next.number, self.now(), is_full, under_way);
        Some(next)
    }

    /// How many frames may be sent and not written. What is sent cannot be staged any more.
    pub(in crate::remote::client) fn under_way_max(&self, inner: &Inner) -> usize {
        match self.stage {
            Some(_) => inner.window.frames_max(self.for_writing.buffer_count()),
            None => usize::MAX,
        }
    }
}
