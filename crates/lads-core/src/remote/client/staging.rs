//! The local disk for what is written: what goes there while the program computes, or because it
//! waits for a buffer.

use super::{About, Client};
use crate::remote::message::FRAME_BYTES;
use crate::remote::outbox::Staging;
use crate::remote::outlook::{Memory, Outlook, Told};
use crate::remote::policy::STAGING_INTERVAL;
use crate::remote::reading::ChunkBytes;
use std::time::Duration;

/// What a client does with a local disk.
#[derive(Clone, Copy, Debug)]
pub struct StageSettings {
    /// The most bytes that are there at a time.
    pub bytes_max: u64,
    /// Whether buffers go there when a write finds no free one.
    pub in_foreground: bool,
    /// Whether buffers go there while the program computes, so that the next output finds free
    /// ones.
    pub in_background: bool,
    /// Whether what goes there is durable at once.
    pub is_synced: bool,
    /// What the user says about the outputs of the program.
    pub told: Told,
}

/// How many bytes a client has put on the local disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedBytes {
    /// While a write waited for it.
    pub in_foreground: u64,
    /// While the program computed.
    pub in_background: u64,
}

/// Why frames go to the local disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A write waits for a buffer.
    Write,
    /// The next output will need buffers.
    Outlook,
    /// The connection is lost.
    Loss,
}

/// The local disk of a client.
#[derive(Debug)]
pub(super) struct Stage {
    settings: Option<StageSettings>,
    /// When the next output begins, and how much of it fits into memory.
    pub(super) outlook: Outlook,
    staged: StagedBytes,
}

impl Stage {
    pub(super) fn new(settings: Option<StageSettings>) -> Self {
        let told = settings.map_or_else(Told::default, |settings| settings.told);
        Self { settings, outlook: Outlook::new(told), staged: StagedBytes::default() }
    }

    pub(super) fn is_there(&self) -> bool {
        self.settings.is_some()
    }
}

impl<B: Clone, R: ChunkBytes> Client<B, R> {
    /// The program waits for a buffer. Returns the frames that are staged for it: one, or as many
    /// as have the bytes of the longest frame if they are made durable, which takes as long for
    /// one. If there are none, it waits until a frame is written.
    pub fn start_staging(&mut self) -> Vec<Staging<B, About>> {
        self.sending.rest.end();
        let Some(settings) = self.stage.settings.filter(|it| it.in_foreground) else {
            return Vec::new();
        };
        let in_frame = FRAME_BYTES / self.sending.buffer_bytes;
        let count = if settings.is_synced { in_frame } else { 1 };
        (0..count).map_while(|_| self.sending.outbox.start_staging()).collect()
    }

    /// The next frame to be staged while the program computes.
    ///
    /// # Errors
    /// If there is none now: the time after which to ask again.
    pub fn next_staging(&mut self, now: Duration) -> Result<Staging<B, About>, Duration> {
        let wait = self.stage.outlook.next_staging(now, self.memory());
        let wait = wait.filter(|_| self.stage.settings.is_some_and(|it| it.in_background));
        if wait == Some(Duration::ZERO)
            && let Some(staging) = self.sending.outbox.start_staging_ahead()
        {
            return Ok(staging);
        }
        let wait = wait.filter(|wait| !wait.is_zero());
        Err(wait.map_or(STAGING_INTERVAL, |wait| wait.min(STAGING_INTERVAL)))
    }

    fn memory(&self) -> Memory {
        let (count, buffer_bytes) = (self.sending.buffers, self.sending.buffer_bytes);
        let free = count.saturating_sub(self.sending.outbox.in_memory());
        let bytes = |buffers| u64::from(buffers) * u64::from(buffer_bytes);
        Memory { all_bytes: bytes(count), free_bytes: bytes(free), buffer_bytes }
    }

    /// Frames are on the local disk after this time; `None` if they could not be put there: then
    /// they stay in memory, nothing more is staged, and writes wait for the network.
    pub fn on_staged(
        &mut self,
        frames: &[Staging<B, About>],
        took: Option<Duration>,
        why: Why,
        now: Duration,
    ) {
        let mut bytes = 0;
        for Staging { id, slot, about, .. } in frames {
            match took {
                Some(_) => self.sending.outbox.on_staged(*id, *slot),
                None => self.sending.outbox.on_not_staged(*id, *slot),
            }
            bytes += u64::from(about.length);
        }
        let Some(took) = took else { return };
        self.stage.outlook.on_staged(now, bytes, took);
        match why {
            Why::Write => self.stage.staged.in_foreground += bytes,
            Why::Outlook => self.stage.staged.in_background += bytes,
            Why::Loss => {}
        }
    }

    /// Reports whether a frame is on its way to the local disk.
    #[must_use]
    pub fn is_staging(&self) -> bool {
        self.sending.outbox.is_staging()
    }

    /// Returns how many bytes went to the local disk.
    #[must_use]
    pub fn staged(&self) -> StagedBytes {
        self.stage.staged
    }
}
