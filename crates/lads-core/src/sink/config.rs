//! How a sink behaves.

use super::{PlacingConfig, RemovalConfig, StageConfig};
use crate::congestion::Threshold;
use crate::growth::GrowthConfig;
use crate::schedule::{OstSpec, Policy};
use crate::tuning::Tuning;
use std::time::Duration;

/// How a sink behaves.
#[derive(Clone, Debug)]
pub struct SinkConfig {
    /// By which numbers it decides.
    pub tuning: Tuning,
    /// By which rule frames are handed to I/O threads.
    pub policy: Policy,
    /// What is slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// Its OSTs.
    pub osts: Vec<OstSpec>,
    /// By which rule new files are placed.
    pub placing: PlacingConfig,
    /// This many bytes of new files may be placed before they come, in any case; `None` if
    /// it does not matter when they are placed.
    pub placed_bytes_min: Option<u64>,
    /// Buffers in its arena, each for one frame; at least one for each OST besides those of
    /// [`Self::kept_count`].
    pub buffer_count: u32,
    /// Bytes in each buffer.
    pub buffer_bytes: u32,
    /// Whether blocks are recorded in a journal, and count as done only then.
    pub has_journal: bool,
    /// When this many bytes are written and not recorded, they are recorded.
    pub batch_bytes: u64,
    /// When bytes have been written and not recorded for this long, they are recorded.
    pub batch_interval: Duration,
    /// Whether files are read back from storage before they count as done.
    pub verifies_media: bool,
    /// Commits that may run side by side; the rest gathers, to be made durable together. Each has
    /// a buffer if files are read back.
    pub commits_max: u32,
    /// A write that usually takes less than this is done by whoever received it.
    pub at_once_max: Duration,
    /// How files grow while they are written, if any may.
    pub growth: Option<GrowthConfig>,
    /// How often a block that arrived damaged is asked for again.
    pub resends_max: u32,
    /// What is removed that the source does not have, if anything is.
    pub removal: Option<RemovalConfig>,
    /// Its stage, if it has one.
    pub stage: Option<StageConfig>,
}

impl SinkConfig {
    /// Buffers that are never granted to the source: for frames that are brought back from the
    /// stage, and for files that are read back. A thread that waited for one of those that are
    /// granted could be the thread that has to free it.
    #[must_use]
    pub fn kept_count(&self) -> u32 {
        let drains = self.stage.map_or(0, |stage| stage.drains_max);
        let reads = if self.verifies_media { self.commits_max } else { 0 };
        drains + reads
    }
}
