//! How close a mover came to what was possible: the least time in which its bytes could have moved,
//! given the rates of the file systems.
//!
//! The bytes are modelled as a fluid without latency, moved by a mover that knows the future. Where
//! they lie at the source is fixed; at the sink they may be written to any OST. So no real mover
//! can be faster, and how near one came does not depend on the machine. The parts: [`curve`] does
//! the arithmetic, [`fluid`] the reasoning, [`record`] reads what a mounted file system says.

pub mod curve;
pub mod fluid;
pub mod record;

use crate::stats::Stats;
use anyhow::{Context, Result};
use clap::Args;
use curve::Steps;
use fluid::{UNLIMITED, Way};
use record::servers;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Say the least time in which bytes could have moved between two emulated file systems
#[derive(Debug, Args)]
pub struct BoundArgs {
    /// `.pfs/stats` of the source, or a copy
    #[arg(long, value_name = "FILE")]
    source_stats: PathBuf,
    /// `.pfs/series` of the source, or a copy; without it, rates are those of the stats
    #[arg(long, value_name = "FILE")]
    source_series: Option<PathBuf>,
    /// Bytes to be read from each OST, by index; without it, what lies there
    #[arg(long, value_name = "BYTES,BYTES,...", value_delimiter = ',')]
    source_bytes: Option<Vec<u64>>,
    /// `.pfs/stats` of the sink, or a copy; without it, the sink takes anything at once
    #[arg(long, value_name = "FILE")]
    sink_stats: Option<PathBuf>,
    /// `.pfs/series` of the sink, or a copy
    #[arg(long, value_name = "FILE", requires = "sink_stats")]
    sink_series: Option<PathBuf>,
    /// What the network between them carries, in bytes a second
    #[arg(long, value_name = "RATE")]
    network: Option<u64>,
    /// When the move began, on CLOCK_MONOTONIC
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,
}

/// Prints the bound as one JSON object.
///
/// # Errors
/// If a file cannot be read, or is not what a mounted file system writes.
#[expect(clippy::print_stdout, reason = "it is a command")]
pub fn run(args: &BoundArgs) -> Result<ExitCode> {
    let stats = Stats::read(&args.source_stats)?;
    let on_osts = || stats.osts.iter().map(|ost| ost.used_bytes).collect();
    let bytes = args.source_bytes.clone().unwrap_or_else(on_osts);
    let source_series = read_series(args.source_series.as_deref())?;
    let sink = match &args.sink_stats {
        Some(path) => {
            let series = read_series(args.sink_series.as_deref())?;
            Some(servers(&Stats::read(path)?, &series, &[], args.from)?)
        }
        None => None,
    };
    let way = Way {
        source: servers(&stats, &source_series, &bytes, args.from)?,
        network: Steps::constant(args.network.map_or(UNLIMITED, |rate| rate as f64)),
        sink,
    };
    let bound = way.bound();
    let text = json!({
        "bytes": bound.bytes,
        "seconds": bound.seconds,
        "source_seconds": bound.source_seconds,
        "network_seconds": bound.network_seconds,
        "sink_seconds": bound.sink_seconds,
        "is_exact": bound.is_exact,
    });
    println!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn read_series(path: Option<&Path>) -> Result<String> {
    path.map_or_else(|| Ok(String::new()), read)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}
