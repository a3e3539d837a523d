//! What the program writes, and which frames are sent.

use super::fences::Fences;
use super::tail::{About, Sealed};
use super::{CallError, Client};
use crate::limits::CLIENT_ANNOUNCED_MAX;
use crate::remote::message::{FileNumber, WriteNumber};
use crate::remote::outbox::{Goes, Gone, Next, Outbox};
use crate::remote::policy::TAIL_WAIT;
use crate::remote::reading::ChunkBytes;
use crate::remote::rest::Rest;
use crate::remote::window::Window;
use std::ops::Range;
use std::time::Duration;

/// The frames of a client.
#[derive(Debug)]
pub(super) struct Sending<B> {
    /// What is not written at the server.
    pub(super) outbox: Outbox<B, About>,
    pub(super) fences: Fences,
    window: Window,
    /// Whether nothing is sent, so that the program copies faster.
    pub(super) rest: Rest,
    /// How many calls wait until certain frames are sent.
    pub(super) awaited: u32,
    /// How often another client waited for a frame, or a frame for another client.
    conflicts: u64,
    /// When buffers that are not full are sent, if there are any.
    pub(super) tails_due: Option<Duration>,
    pub(super) buffers: u32,
    pub(super) buffer_bytes: u32,
    /// Whether there is a local disk: a frame that is sent cannot be put there any more.
    has_stage: bool,
}

impl<B: Clone> Sending<B> {
    pub(super) fn new(
        outbox: Outbox<B, About>,
        buffers: u32,
        buffer_bytes: u32,
        has_stage: bool,
    ) -> Self {
        Self {
            outbox,
            fences: Fences::default(),
            window: Window::default(),
            rest: Rest::default(),
            awaited: 0,
            conflicts: 0,
            tails_due: None,
            buffers,
            buffer_bytes,
            has_stage,
        }
    }

    /// A frame is written, or cannot be.
    pub(super) fn on_written(&mut self, number: u64, now: Duration) -> Option<Gone<About>> {
        let gone = self.outbox.on_written(number)?;
        self.window.on_written(number, now, self.outbox.under_way());
        Some(gone)
    }

    /// A frame waited for another client's, and can be sent again.
    pub(super) fn again(&mut self, frame: u64) {
        self.conflicts += 1;
        self.outbox.again(frame);
    }

    /// Another client waits for a frame.
    pub(super) fn recall(&mut self, write: WriteNumber) {
        self.conflicts += 1;
        self.outbox.recall(write);
    }

    pub(super) fn has_many_unsent(&self) -> bool {
        self.outbox.unsent_count() > CLIENT_ANNOUNCED_MAX
    }

    /// How many frames may be sent and not written.
    fn under_way_max(&self) -> usize {
        if self.has_stage { self.window.frames_max(self.buffers) } else { usize::MAX }
    }

    fn has_frame(&self, now: Duration) -> bool {
        let is_urgent = self.outbox.is_recalled() || self.outbox.is_resuming();
        let has_room = is_urgent || self.outbox.under_way() < self.under_way_max();
        let is_ready = has_room && self.outbox.has_next();
        is_ready && (is_urgent || self.awaited > 0 || self.rest.left(now).is_none())
    }

    fn next_frame(&mut self, now: Duration) -> Option<Next<B, About>> {
        if !self.has_frame(now) {
            return None;
        }
        let (under_way, is_new) = (self.outbox.under_way(), !self.outbox.is_resuming());
        let next = self.outbox.next(self.awaited > 0)?;
        if is_new {
            let is_full = next.about.length == self.buffer_bytes;
            self.window.on_sent(next.number, now, is_full, under_way);
        }
        Some(next)
    }
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The program begins to write to these positions of a file. If it waits for the server next,
    /// sending does not wait until everything is copied.
    ///
    /// # Errors
    /// The first failure of the file that no call has returned, or the loss of the connection.
    pub fn begin_write(
        &mut self,
        file: FileNumber,
        positions: &Range<u64>,
        is_awaited: bool,
        now: Duration,
    ) -> Result<(), CallError> {
        self.take_failure(file)?;
        self.stage.outlook.on_write(now);
        match is_awaited {
            true => self.sending.awaited += 1,
            false => self.sending.rest.on_copying(),
        }
        self.reading.on_write(file, positions);
        Ok(())
    }

    /// The program has written this many bytes of a file. `has_tail` says whether the last of them
    /// are in a buffer that is not full.
    ///
    /// # Errors
    /// As with [`Self::begin_write`]: the connection may have been lost meanwhile.
    pub fn end_write(
        &mut self,
        file: FileNumber,
        is_awaited: bool,
        (bytes, has_tail): (u64, bool),
        now: Duration,
    ) -> Result<(), CallError> {
        if is_awaited {
            self.sending.awaited -= 1;
        } else {
            self.sending.rest.on_copied();
        }
        if has_tail {
            self.put_off_tails(now);
        }
        self.take_failure(file)?;
        self.stage.outlook.on_write_done(now, bytes);
        Ok(())
    }

    /// Reports whether buffers that are not full are to be sent now, once for all of them.
    pub fn take_tails_due(&mut self, now: Duration) -> bool {
        self.sending.tails_due.take_if(|due| *due <= now).is_some()
    }

    /// Some of these buffers were in use by other threads: they are due again after a while.
    pub fn put_off_tails(&mut self, now: Duration) {
        self.sending.tails_due.get_or_insert(now + TAIL_WAIT);
    }

    /// A buffer is to be sent. Returns how many frames there were up to this one.
    pub(super) fn put(&mut self, sealed: Sealed<B>, now: Duration) -> u64 {
        let Sealed { about, buffer, is_of_records } = sealed;
        let target = &about.target;
        let (file, view) = (target.file, target.view);
        if is_of_records {
            self.set_view(target);
        }
        if self.line.loss.is_none() || self.is_keeping() {
            if self.sending.outbox.is_empty() {
                self.sending.rest.begin(now);
            }
            self.stage.outlook.on_put(now);
            let positions = about.positions();
            let reach = target.shape.reach(&positions);
            self.sending.outbox.put(Goes { file, view, positions, reach }, about, buffer);
        }
        if is_of_records {
            self.forget_later(file, view);
        }
        self.sending.outbox.count()
    }

    /// The next frame to be sent. It counts as sent.
    pub fn next_frame(&mut self, now: Duration) -> Option<Next<B, About>> {
        if self.line.is_open() { self.sending.next_frame(now) } else { None }
    }

    /// Reports whether there is a frame to be sent.
    #[must_use]
    pub fn has_frame(&self, now: Duration) -> bool {
        self.line.is_open() && self.sending.has_frame(now)
    }

    /// Returns how many frames may be sent and not written.
    #[must_use]
    pub fn under_way_max(&self) -> usize {
        self.sending.under_way_max()
    }

    /// Returns how many calls wait until certain frames are sent.
    #[must_use]
    pub fn awaited(&self) -> u32 {
        self.sending.awaited
    }

    /// Returns how often another client waited for a frame of this one, or the reverse.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.sending.conflicts
    }

    /// Returns how many frames were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sending.outbox.sent()
    }
}
