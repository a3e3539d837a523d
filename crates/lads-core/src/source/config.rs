//! How a source behaves: its options and limits.

use crate::congestion::Threshold;
use crate::schedule::Policy;
use crate::tuning::Tuning;

/// The options and limits of a source's session.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// The numbers of policy.
    pub tuning: Tuning,
    /// The rule by which blocks are handed to I/O threads.
    pub policy: Policy,
    /// Which service time counts as slow, for [`Policy::Threshold`].
    pub threshold: Threshold,
    /// The longest block, in bytes; a multiple of 4096.
    pub block_size: u32,
    /// The most files and links that are announced and not ended, and directories that are being
    /// ended. Memory grows with this number, not with the tree.
    pub window_entries: u64,
    /// The number of data streams to the sink.
    pub stream_count: u16,
    /// Whether the blocks of a file are handed out in the order of their offsets, as those of an
    /// unsized file are in any case.
    pub is_in_order: bool,
    /// Whether nothing is moved, and the sink only says what would be.
    pub is_dry_run: bool,
    /// Whether the sink may pass entries over, because the user asked for that.
    pub may_pass: bool,
    /// Whether the sink may ask which names the source has, in order to remove those that it has
    /// not.
    pub may_be_asked: bool,
    /// Whether files, links and special files are removed at the source when the sink has them.
    pub removes_sources: bool,
    /// Whether everything that the user named exists.
    pub is_all_there: bool,
    /// Whether the sink may ask for checksums of files that it has, in order to compare them.
    pub is_comparing: bool,
    /// The most directories that are announced and not ended, the target's root included. The walk
    /// goes depth first, so only these depend on the walk to end: the directories above its
    /// position (at most [`DEPTH_MAX`](crate::limits::DEPTH_MAX)), the root, and those that the
    /// walk has met and not yet announced. With room for more than these, the walk never waits for
    /// itself.
    pub window_directories: u64,
    /// The most files open at a time.
    pub open_files_max: u32,
    /// How often a file that changed while it moved is tried again before it fails.
    pub retries_max: u32,
    /// The rate limit in bytes per second, if there is one.
    pub bytes_per_second: Option<u64>,
    /// The size of the stage in bytes; zero if there is none.
    pub stage_bytes: u64,
    /// The most threads that may read for the stage and write to it at a time.
    pub stage_threads_max: u32,
}
