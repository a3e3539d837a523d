//! What an end is made of: options, streams, memory for blocks, and the number of files it may
//! open.

use crate::board::Board;
use crate::clock::Clock;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::Options;
use crate::layout::{self, Layouts, TracksWanted};
use crate::stream::Streams;
use lads_core::issue::Side;
use lads_core::schedule::Policy;
use lads_core::shares::track_count;
use lads_core::tuning::Tuning;
use lads_sys::Arena;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::Arc;

/// The number of open files beyond which no transfer gets faster.
const OPEN_FILES_WANTED: u64 = 16_384;

/// What an end is made with.
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) streams: Arc<Streams>,
    pub(crate) board: Arc<Board>,
    pub(crate) clock: Clock,
}

/// Opens the provider of layouts for data below these roots. Targets that hide their OSTs are
/// divided into tracks, unless whole files are read one after the other.
pub(crate) fn layouts(
    options: &Options,
    side: Side,
    roots: &[&Path],
) -> Result<Box<dyn Layouts>, Fatal> {
    let (choice, threads, buffers_bytes, needed_each) = match side {
        Side::Source => {
            (&options.source_layout, options.source_threads, options.source_buffers_bytes, 1)
        }
        Side::Sink => {
            let (threads, bytes) = (options.sink_threads, options.sink_buffers_bytes(1));
            (&options.sink_layout, threads, bytes, options.sink_needs().buffers(1))
        }
    };
    let mut layouts =
        layout::open_all(choice, roots).map_err(|text| Fatal::new(ExitCode::Usage, text))?;
    if options.schedule != Policy::File {
        let block_size = options.block_size;
        let buffer_count = buffers_bytes / u64::from(block_size).max(1);
        let count = track_count(&Tuning::DEFAULT, threads, buffer_count, needed_each);
        layouts.divide(TracksWanted { count, block_size, side });
    }
    Ok(layouts)
}

/// The memory for blocks that the options ask for at one end.
pub(crate) fn arena(options: &Options, buffers_bytes: u64) -> Result<Arena, Fatal> {
    let block_size = options.block_size as usize;
    let count = buffers_bytes / u64::from(options.block_size).max(1);
    let is_sound = block_size.is_multiple_of(4096) && (64 << 10..=64 << 20).contains(&block_size);
    let count = u32::try_from(count).ok().filter(|&count| count >= 2 && is_sound);
    let Some(count) = count else {
        let text = "--lab block-size must be a multiple of 4096 from 64 KiB to 64 MiB, and \
                    --buffers at least two blocks";
        return Err(Fatal::new(ExitCode::Usage, text));
    };
    Arena::new(count, block_size)
        .map_err(|error| Fatal::new(ExitCode::Other, format!("no memory for --buffers: {error}")))
}

/// Raises this process's limit of open files to the number that a transfer can use, if the system
/// permits that.
///
/// The command calls this. The engine does not unless the program asks for it: the limit holds for
/// everything that the process does.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(OPEN_FILES_WANTED, |maximum| maximum.min(OPEN_FILES_WANTED));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Returns the number of file descriptors that this process may have, as far as it is of use.
pub(crate) fn descriptors_max() -> u64 {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(OPEN_FILES_WANTED, |current| current.min(OPEN_FILES_WANTED))
}

/// How many files this process can keep open for the transfer: most of its limit of open files.
pub(crate) fn open_files_max() -> u32 {
    let current = descriptors_max();
    // Directories, streams and pipes need some descriptors.
    u32::try_from(current.saturating_sub(400) / 2).unwrap_or(u32::MAX).clamp(16, 4096)
}
