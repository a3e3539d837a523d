//! The buffer of a file that is being filled: where the bytes of a write go.

use super::Client;
use super::gathered::{Gathered, run_of};
use crate::remote::message::{Call, FileNumber, ViewNumber};
use crate::remote::policy::GATHERED_RECORD_BYTES_MAX;
use crate::remote::reading::{ChunkBytes, Prefetch};
use crate::view::View;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A view of a file, as it is set.
#[derive(Debug)]
pub struct Target {
    /// The file.
    pub file: FileNumber,
    /// Its path below the root of the server.
    pub path: Vec<u8>,
    /// The view.
    pub view: ViewNumber,
    /// Where the view begins, in bytes.
    pub displacement: u64,
    /// The filetype, as it travels.
    pub filetype: Vec<u8>,
    /// What the view shows.
    pub shape: View,
}

impl Target {
    /// The request that sets the view.
    pub(super) fn call(&self) -> Call {
        let Self { file, view, displacement, .. } = *self;
        Call::View { view, file, displacement, filetype: self.filetype.clone() }
    }
}

/// What a buffer holds.
#[derive(Clone, Debug)]
pub struct About {
    /// The view through which it is written.
    pub target: Arc<Target>,
    /// Its first position.
    pub position: u64,
    /// How many bytes.
    pub length: u32,
}

impl About {
    /// Its positions.
    #[must_use]
    pub fn positions(&self) -> Range<u64> {
        self.position..self.position.saturating_add(self.length.into())
    }
}

/// The view of an open file, and the buffer that is being filled.
#[derive(Debug)]
pub struct Tail<B> {
    target: Arc<Target>,
    prefetch: Prefetch,
    filling: Option<Filling<B>>,
    /// How many frames of the connection there were up to the last one of this file.
    frames: u64,
}

#[derive(Debug)]
struct Filling<B> {
    position: u64,
    length: u32,
    capacity: u32,
    buffer: B,
    /// Short records at places of their own, if the bytes do not follow each other in the view.
    gathered: Option<Gathered>,
}

/// A buffer that is to be sent.
#[derive(Debug)]
pub(super) struct Sealed<B> {
    pub(super) about: About,
    pub(super) buffer: B,
    /// Whether it is written through a view of its own.
    pub(super) is_of_records: bool,
}

impl<B> Filling<B> {
    fn is_full(&self) -> bool {
        self.length >= self.capacity
    }

    /// Whether bytes at a position of the view follow those in the buffer.
    fn is_followed_by(&self, position: u64) -> bool {
        let is_plain = self.gathered.is_none();
        is_plain && !self.is_full() && self.position + u64::from(self.length) == position
    }
}

impl<B> Tail<B> {
    /// A file that was just opened.
    #[must_use]
    pub fn new(target: Arc<Target>, prefetch: Prefetch) -> Self {
        Self { target, prefetch, filling: None, frames: 0 }
    }

    /// The view of the file.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// How the file is read ahead.
    #[must_use]
    pub fn prefetch(&self) -> Prefetch {
        self.prefetch
    }

    /// From now on the file is read ahead like this.
    pub fn set_prefetch(&mut self, prefetch: Prefetch) {
        self.prefetch = prefetch;
    }

    /// Another view is set.
    pub fn set_target(&mut self, target: Arc<Target>) {
        self.target = target;
    }

    /// Returns how many frames of the connection there were up to the last one of this file.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Reports whether there is a buffer, full or not.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Reports whether the buffer is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.filling.as_ref().is_some_and(Filling::is_full)
    }

    /// Reports whether the first of these positions go into the buffer that is being filled: they
    /// follow its bytes, or are a short record at a place of its own. `reserve` reserves a view for
    /// such records ([`Client::reserve_view`]). If they do not, the buffer is sealed, and another
    /// one begins.
    pub fn takes(
        &mut self,
        positions: &Range<u64>,
        reserve: impl FnOnce() -> Option<ViewNumber>,
    ) -> bool {
        let Some(filling) = &mut self.filling else { return false };
        if filling.is_followed_by(positions.start) {
            return true;
        }
        let length = positions.end - positions.start;
        let room = u64::from(filling.capacity - filling.length);
        if length > GATHERED_RECORD_BYTES_MAX || length > room {
            return false;
        }
        let shape = &self.target.shape;
        let Some(run) = run_of(shape, positions) else { return false };
        if let Some(gathered) = &mut filling.gathered {
            return gathered.add(run);
        }
        let first = filling.position..filling.position + u64::from(filling.length);
        let first = run_of(shape, &first).filter(|it| it.offset + it.length <= run.offset);
        let reserved = first.and_then(|it| Some((it, reserve()?)));
        let Some((first, view)) = reserved else { return false };
        filling.gathered.insert(Gathered::new(view, first)).add(run)
    }

    /// Begins to fill a buffer with room for this many bytes, from a position on.
    pub fn begin(&mut self, position: u64, buffer: B, capacity: u32) {
        self.filling = Some(Filling { position, length: 0, capacity, buffer, gathered: None });
    }

    /// The buffer, and how many bytes are in it.
    pub fn buffer(&mut self) -> Option<(&mut B, u32)> {
        self.filling.as_mut().map(|filling| (&mut filling.buffer, filling.length))
    }

    /// Further bytes are in the buffer.
    pub fn advance(&mut self, count: u32) {
        if let Some(filling) = &mut self.filling {
            filling.length += count;
        }
    }

    /// Lets the buffer be sent, if there is one.
    pub fn seal<R: ChunkBytes>(&mut self, client: &mut Client<B, R>, now: Duration)
    where
        B: Clone,
    {
        let Some(Filling { position, length, buffer, gathered, .. }) = self.filling.take() else {
            return;
        };
        let is_of_records = gathered.is_some();
        let about = match gathered {
            Some(gathered) => {
                let target = Arc::new(gathered.target(&self.target));
                About { target, position: 0, length }
            }
            None => About { target: Arc::clone(&self.target), position, length },
        };
        self.frames = client.put(Sealed { about, buffer, is_of_records }, now);
    }
}
