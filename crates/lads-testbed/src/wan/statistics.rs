//! What the line carried and dropped, and how late its packets left.

use serde::Serialize;
use std::fmt;

/// The number of buckets for each power of two: a figure is right to one part in 64.
const BUCKETS_PER_OCTAVE: u64 = 64;
const OCTAVE_BITS: u32 = BUCKETS_PER_OCTAVE.ilog2();

/// What one direction did.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Statistics {
    /// The number of packets that came; a super-packet counts as one.
    pub(crate) packets: u64,
    /// The number of wire packets that came.
    pub(crate) wire_packets: u64,
    /// The number of bytes that came, including IP headers.
    pub(crate) bytes: u64,
    /// The number of packets dropped because the bottleneck's buffer was full.
    pub(crate) dropped_full: u64,
    /// The number of packets lost at random.
    pub(crate) dropped_loss: u64,
    /// The number of packets that the kernel dropped because the delay line was too slow; it should
    /// be 0.
    pub(crate) dropped_kernel: u64,
    /// The most bytes that waited before the bottleneck.
    pub(crate) queue_bytes_max: u64,
    /// The most packets under way at the same time.
    pub(crate) packets_under_way_max: usize,
    /// The number of times that several packets left at once.
    pub(crate) verdict_batches: u64,
    /// How long after its due time each packet left.
    pub(crate) late: Histogram,
}

/// Times in nanoseconds, counted in buckets that grow with the times.
#[derive(Clone, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    /// Counts one time.
    pub(crate) fn add(&mut self, nanos: u64) {
        let bucket = bucket(nanos);
        if bucket >= self.counts.len() {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// Returns the time that this share of all times, 0 to 1, does not exceed; 0 if there are none.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let mut below = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            below += count;
            if below as f64 >= share * self.total as f64 && below > 0 {
                return upper(bucket).min(self.max);
            }
        }
        0
    }

    /// Returns a few quantiles for people and programs.
    pub(crate) fn summary(&self) -> Quantiles {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        Quantiles {
            count: self.total,
            p50_seconds: seconds(self.quantile(0.5)),
            p99_seconds: seconds(self.quantile(0.99)),
            max_seconds: seconds(self.max),
        }
    }
}

/// Quantiles of many times.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Quantiles {
    pub(crate) count: u64,
    pub(crate) p50_seconds: f64,
    pub(crate) p99_seconds: f64,
    pub(crate) max_seconds: f64,
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary().fmt(f)
    }
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.summary().serialize(serializer)
    }
}

/// Returns the bucket of a number. Small numbers have a bucket each; from then on, each power of
/// two has 64.
fn bucket(nanos: u64) -> usize {
    let octave = nanos.max(1).ilog2().saturating_sub(OCTAVE_BITS);
    let index = u64::from(octave) * BUCKETS_PER_OCTAVE + (nanos >> octave);
    usize::try_from(index).expect("below 60 * 64")
}

/// Returns the largest number in a bucket.
fn upper(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * BUCKETS_PER_OCTAVE {
        return bucket;
    }
    let octave = bucket / BUCKETS_PER_OCTAVE - 1;
    let mantissa = bucket - octave * BUCKETS_PER_OCTAVE;
    ((mantissa + 1) << octave) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_in_the_bucket_that_ends_with_it_or_a_little_above() {
        for nanos in (0..100).chain([1000, 123_456, 1 << 40, (1 << 40) - 1]) {
            let upper = upper(bucket(nanos));
            assert!((nanos..=nanos + nanos / 64).contains(&upper), "{nanos}: {upper}");
        }
    }

    #[test]
    fn quantiles_are_found() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|nanos| histogram.add(nanos));
        assert!((500..=508).contains(&histogram.quantile(0.5)));
        assert!((990..=1000).contains(&histogram.quantile(0.99)));
        assert_eq!(histogram.quantile(1.0), 1000);
        assert_eq!(Histogram::default().quantile(0.5), 0);
    }
}
