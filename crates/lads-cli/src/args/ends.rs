//! Options for ends that are no directory trees, and the order in which files are read.

use super::SELECTION;
use clap::{Args, ValueEnum};

/// How long a file must not grow before it counts as ended, in seconds, if nothing is said. Half
/// would end too early with instruments that write every few seconds; with double, a person waits
/// 20 s for a transfer that has nothing left to do.
const FOLLOW_SECONDS: &str = "10";

/// Options of `lads cp` for such ends.
#[derive(Args, Debug)]
pub(crate) struct EndsArgs {
    /// Read a SRC that is a FIFO or a device like a file
    ///
    /// It must be the only SRC. By default, it counts as failed, or is created at the sink (-D).
    #[arg(long, help_heading = SELECTION)]
    pub(crate) copy_devices: bool,

    /// Write to a DST that is a FIFO or a device like a file
    ///
    /// A device is overwritten from its beginning; it must not be in use (mounted). By default,
    /// such a DST is rejected.
    #[arg(long, help_heading = SELECTION)]
    pub(crate) write_devices: bool,

    /// SRC is a growing file: also copy data that is appended during the transfer
    ///
    /// The file counts as complete when it has not grown for this number of seconds [default: 10].
    /// If it /// becomes shorter, or was written to and has not grown, it is read again from its
    /// beginning. Bytes that are rewritten while the file grows cannot be noticed, so the copy of a
    /// file that changed gets a time 2 s before that of the source, and the next run without this
    /// option does not skip it. A transfer that was interrupted starts over.
    #[arg(long, value_name = "SECONDS", help_heading = SELECTION)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = FOLLOW_SECONDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) follow: Option<u32>,
}

/// Order in which the blocks of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// By free OSTs
    None,
    /// From the beginning to the end, several at a time
    Loose,
    /// As loose, and each block after the previous one was sent; implies schedule=file
    Serial,
}
