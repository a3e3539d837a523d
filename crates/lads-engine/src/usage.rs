//! What is known of this process and of each storage target, for the counters.

use crate::caching::Caching;
use crate::stream::Streams;
use lads_core::matching::Why;
use lads_core::message::{BusyOst, Counters};
use lads_core::pool::{Io, Requests};
use lads_core::schedule::{OstSpec, OstStats};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Age of a transfer from which on its end counts the time that threads wait for processors and
/// that processors are idle. To count them takes longer than many a transfer of a few small files.
/// The bottleneck, for which they are needed, is not reported after so little time. With double, a
/// transfer of 80 ms would not be known to lack processors.
const PROCESSORS_AFTER: Duration = Duration::from_millis(50);

/// How many bytes went to or from storage, by the way that they went.
#[derive(Debug, Default)]
pub(crate) struct IoBytes {
    direct: AtomicU64,
    buffered: AtomicU64,
    uncached: AtomicU64,
}

impl IoBytes {
    /// So many bytes were read or written.
    pub(crate) fn count(&self, caching: Caching, bytes: u64) {
        let sum = match caching {
            Caching::Direct => &self.direct,
            Caching::Buffered => &self.buffered,
            Caching::Uncached => &self.uncached,
        };
        sum.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The way that most bytes went.
    fn most(&self) -> Io {
        let ways = [
            (&self.buffered, Io::Buffered),
            (&self.uncached, Io::Uncached),
            (&self.direct, Io::Direct),
        ];
        let bytes = ways.map(|(bytes, io)| (bytes.load(Ordering::Relaxed), io));
        let most = bytes.into_iter().max_by_key(|(bytes, _)| *bytes);
        most.filter(|(bytes, _)| *bytes > 0).map_or(Io::Absent, |(_, io)| io)
    }

    /// What requests were like, with the way that most bytes went. `threads_asked_for` is zero
    /// unless a user has fixed how many threads there are.
    pub(crate) fn complete(&self, requests: Requests, threads_asked_for: u16) -> Requests {
        let io = self.most();
        match threads_asked_for {
            0 => Requests { io, ..requests },
            count => {
                let limit = requests.limit.min(count.into());
                Requests { io, limit, why: Why::Fixed, ..requests }
            }
        }
    }
}

/// Adds processor time, memory, the busiest OST and where the threads' time went.
pub(crate) fn complete<'a>(
    counters: &Counters,
    osts: &[OstSpec],
    stats: impl Iterator<Item = &'a OstStats>,
    streams: &Streams,
    elapsed: Duration,
) -> Counters {
    let usage = lads_sys::usage();
    let (cpu_delay, cpu_idle) = match elapsed < PROCESSORS_AFTER {
        true => (Duration::ZERO, Duration::ZERO),
        false => (lads_sys::cpu_delay(), lads_sys::cpu_idle()),
    };
    let stats: Vec<&OstStats> = stats.collect();
    let busiest_ost = by_target(osts, stats.iter().copied())
        .into_iter()
        .max_by_key(|target| target.occupied)
        .filter(|target| !target.occupied.is_zero() || target.bytes > 0)
        .map(|TargetUsage { ost, bytes, occupied }| BusyOst {
            name: ost.name.clone(),
            busy_micros: micros(occupied),
            bytes,
        });
    Counters {
        cpu_micros: micros(usage.cpu),
        cpu_delay_micros: micros(cpu_delay),
        cpu_idle_micros: micros(cpu_idle),
        memory_bytes_peak: usage.memory_bytes_peak,
        busiest_ost,
        storage_micros: stats.iter().map(|stats| micros(stats.busy)).sum(),
        network_micros: streams.busy_micros(),
        stream_count: u32::try_from(streams.there_count()).unwrap_or(u32::MAX),
        ..counters.clone()
    }
}

/// A time as counters have it.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The bytes of each target, in the order of their numbers. The tracks of a target are added up.
pub(crate) fn bytes_by_target<'a>(
    osts: &[OstSpec],
    stats: impl Iterator<Item = &'a OstStats>,
) -> Vec<u64> {
    by_target(osts, stats).into_iter().map(|target| target.bytes).collect()
}

/// What one target did, over all its tracks.
struct TargetUsage<'a> {
    ost: &'a OstSpec,
    bytes: u64,
    /// How long the busiest of its tracks had a request: the target had one for at least as long.
    occupied: Duration,
}

fn by_target<'a, 'b>(
    osts: &'a [OstSpec],
    stats: impl Iterator<Item = &'b OstStats>,
) -> Vec<TargetUsage<'a>> {
    let mut targets: Vec<TargetUsage<'a>> = Vec::new();
    for (ost, stats) in osts.iter().zip(stats) {
        let &OstStats { bytes, occupied, .. } = stats;
        match targets.last_mut() {
            Some(last) if ost.is_track && last.ost == ost => {
                last.bytes += bytes;
                last.occupied = last.occupied.max(occupied);
            }
            _ => targets.push(TargetUsage { ost, bytes, occupied }),
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracks_of_a_target_are_shown_as_that_target() {
        let track = |name| OstSpec { is_track: true, ..OstSpec::new(name, 1) };
        let disk = || OstSpec::new("disk", 4);
        let osts = [disk(), disk(), track("/a"), track("/a"), track("/b")];
        let stats: Vec<OstStats> =
            (1..6).map(|bytes| OstStats { bytes, ..OstStats::default() }).collect();
        assert_eq!(bytes_by_target(&osts, stats.iter()), [1, 2, 7, 5]);
    }
}
