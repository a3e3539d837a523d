//! Arguments of `lads bench`.

use super::text;
use clap::builder::ValueHint;
use clap::{ArgMatches, Args, Command};
use lads_core::sizes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `lads bench`.
pub(super) fn command() -> Command {
    BenchArgs::augment_args(Command::new("bench"))
        .about("Measures the rate of storage, or of each part of a transfer")
        .override_usage(concat!(
            "lads bench [OPTIONS] PATH\n",
            "       lads bench [OPTIONS] SRC DST [-- OPTIONS OF lads cp]"
        ))
        .long_about(text::BENCH_ABOUT)
        .before_help(text::BENCH_EXAMPLES)
        .after_long_help(text::BENCH_NOTES)
        .help_template(super::EXAMPLES_FIRST)
}

/// Arguments of `lads bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// A directory on the storage to measure; or SRC and DST, as for lads cp
    #[arg(value_name = "PATH", num_args = 1..=2, required = true, value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    /// For SRC and DST: options of lads cp, for every transfer
    #[arg(value_name = "OPTIONS OF lads cp", last = true, allow_hyphen_values = true)]
    pub(crate) options: Vec<OsString>,

    /// Duration of the measurement: 90, 45s, 10m [default: 1m; 2m for SRC and DST]
    #[arg(long, value_name = "TIME", value_parser = sizes::parse_span)]
    pub(crate) time: Option<Duration>,

    /// Maximum size of the file, or of the data of a transfer
    ///
    /// At most a quarter of the free space. [default: 1G; 10G for SRC and DST]
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_bytes)]
    pub(crate) size: Option<u64>,

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

    /// Do not show progress
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Those options that have no meaning for SRC and DST, of those that were given.
pub(crate) fn only_for_one_path(matches: &ArgMatches) -> Vec<&'static str> {
    let is_given =
        |id: &&str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    ["requests", "threads", "html"].into_iter().filter(is_given).collect()
}

/// The longest request, in bytes: as the longest block of a transfer.
const REQUEST_BYTES_MAX: u64 = 64 << 20;

fn request_size(text: &str) -> Result<u32, String> {
    let bytes = sizes::parse_bytes(text)?;
    let is_fit = bytes > 0 && bytes.is_multiple_of(4096) && bytes <= REQUEST_BYTES_MAX;
    let bytes = u32::try_from(bytes).ok().filter(|_| is_fit);
    bytes.ok_or_else(|| "it must be a multiple of 4K, at most 64M".to_owned())
}
