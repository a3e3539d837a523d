//! Adds to the counters what is known of this process.

use crate::stream::Streams;
use lads_core::message::{BusyOst, Counters};
use lads_core::schedule::{OstSpec, OstStats};

/// Adds processor time, memory, the busiest OST and where the threads' time went.
pub(crate) fn complete<'a>(
    counters: &Counters,
    osts: &[OstSpec],
    stats: impl Iterator<Item = &'a OstStats>,
    streams: &Streams,
) -> Counters {
    let usage = lads_sys::usage();
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let stats: Vec<&OstStats> = stats.collect();
    let busiest_ost = osts
        .iter()
        .zip(&stats)
        .max_by_key(|(_, stats)| stats.occupied)
        .filter(|(_, stats)| stats.requests > 0)
        .map(|(ost, stats)| BusyOst {
            name: ost.name.clone(),
            busy_micros: micros(stats.occupied),
            bytes: stats.bytes,
        });
    Counters {
        cpu_micros: micros(usage.cpu),
        memory_bytes_peak: usage.memory_bytes_peak,
        busiest_ost,
        storage_micros: stats.iter().map(|stats| micros(stats.busy)).sum(),
        network_micros: streams.busy_micros(),
        ..counters.clone()
    }
}
