//! How a source behaves.

use crate::congestion::Threshold;
use crate::schedule::Policy;
use crate::tuning::Tuning;

/// How a source behaves.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// By which numbers it decides.
    pub tuning: Tuning,
    /// By which rule blocks are handed to I/O threads.
    pub policy: Policy,
    /// What is slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// No block is longer, in bytes; a multiple of 4096.
    pub block_size: u32,
    /// Files and links announced and not ended, and directories that are being ended; memory grows
    /// with this, not with the tree.
    pub window_entries: u64,
    /// Data streams to the sink.
    pub stream_count: u16,
    /// Whether nothing is moved, and only told what would be.
    pub is_dry_run: bool,
    /// Whether the sink may pass entries over, because the person asked for it.
    pub may_pass: bool,
    /// Whether the sink may ask which names there are, to remove what is not.
    pub may_be_asked: bool,
    /// Whether all that the person named is there.
    pub is_all_there: bool,
    /// Whether the sink may ask for checksums of files that it has, to compare them.
    pub is_comparing: bool,
    /// Directories announced and not ended, that of the target included. The walk goes depth
    /// first, so all of them end without it but those on the way to where it is: at most
    /// [`DEPTH_MAX`](crate::limits::DEPTH_MAX), that of the target, and those that it has met and
    /// not yet told. With room for more than these it never waits for itself.
    pub window_directories: u64,
    /// Files open at a time.
    pub open_files_max: u32,
    /// How often a file that changed while it moved is tried again.
    pub retries_max: u32,
    /// The most to send in a second, if there is a limit.
    pub bytes_per_second: Option<u64>,
    /// Bytes of the stage; none if zero.
    pub stage_bytes: u64,
    /// Threads that may be busy reading for the stage and writing to it at a time.
    pub stage_threads_max: u32,
}
