//! What `lads bench` is told.

use super::text;
use clap::builder::ValueHint;
use clap::{Args, Command};
use lads_core::sizes;
use std::path::PathBuf;
use std::time::Duration;

/// `lads bench`.
pub(super) fn command() -> Command {
    BenchArgs::augment_args(Command::new("bench"))
        .about("Measures how fast storage is, and in which mode it is fastest")
        .long_about(text::BENCH_ABOUT)
        .before_help(text::BENCH_EXAMPLES)
        .after_long_help(text::BENCH_NOTES)
        .help_template(super::EXAMPLES_FIRST)
}

/// What `lads bench` is told.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// A directory on the storage to be measured
    #[arg(value_name = "PATH", value_hint = ValueHint::DirPath)]
    pub(crate) path: PathBuf,

    /// How long to measure: 90, 45s, 10m
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = sizes::parse_span)]
    pub(crate) time: Duration,

    /// The longest that the file may be; it takes at most a quarter of the free space
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = sizes::parse_bytes)]
    pub(crate) size: u64,

    /// Sizes of requests, multiples of 4K
    #[arg(
        long,
        value_name = "SIZE,...",
        default_value = "64K,256K,1M,4M,16M",
        value_delimiter = ',',
        value_parser = request_size
    )]
    pub(crate) requests: Vec<u32>,

    /// Numbers of threads; each has one request at a time
    #[arg(
        long,
        value_name = "N,...",
        default_value = "1,2,4,8,16",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub(crate) threads: Vec<u16>,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a page with heat maps, for a browser
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,

    /// Show no progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// The longest request, in bytes: as the longest block of a transfer.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

fn request_size(text: &str) -> Result<u32, String> {
    let bytes = sizes::parse_bytes(text)?;
    let is_fit = bytes > 0 && bytes.is_multiple_of(4096) && bytes <= REQUEST_BYTES_MAX;
    let bytes = u32::try_from(bytes).ok().filter(|_| is_fit);
    bytes.ok_or_else(|| "it must be a multiple of 4K, at most 64M".to_owned())
}
