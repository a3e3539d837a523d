//! Options for ends that are no trees, and for the order in which files are read.

use super::SELECTION;
use clap::{Args, ValueEnum};

/// How long a file must not grow before it counts as ended, in seconds, if nothing is said. Half
/// would end too early with instruments that write every few seconds; with double, a person waits
/// 20 s for a transfer that has nothing left to do.
const FOLLOW_SECONDS: &str = "10";

/// What `lads cp` is told of such ends.
#[derive(Args, Debug)]
pub(crate) struct EndsArgs {
    /// Read a SRC that is a FIFO or a device as if it were a file
    ///
    /// It is the only SRC. Without this, it counts as failed, or is made anew at the sink (-D).
    #[arg(long, help_heading = SELECTION)]
    pub(crate) copy_devices: bool,

    /// Write to a DST that is a FIFO or a device as if it were a file
    ///
    /// A device gets the bytes from its beginning on, and what was there is lost; it must not be in
    /// use (mounted). Without this, lads refuses such a DST.
    #[arg(long, help_heading = SELECTION)]
    pub(crate) write_devices: bool,

    /// SRC is a file that grows: move also what is added to it while it is moved
    ///
    /// The file is at its end when it has not grown for this number of seconds [default: 10]. If it
    /// becomes shorter, or was written to and has not grown, it is read again from its beginning.
    /// Bytes that are rewritten while the file grows cannot be noticed, so the copy of a file that
    /// changed gets a time 2 s before that of the source, and the next run without this option does
    /// not skip it. A transfer that was interrupted starts over.
    #[arg(long, value_name = "SECONDS", help_heading = SELECTION)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = FOLLOW_SECONDS)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) follow: Option<u32>,
}

/// In which order the blocks of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// Whichever OST is free first
    None,
    /// From the beginning to the end, several at a time
    Loose,
    /// The same, and each when the one before has been sent; as schedule=file
    Serial,
}
