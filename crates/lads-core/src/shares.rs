//! How many threads and buffers an end has, what they are for, and how far an end works ahead, if
//! nobody says otherwise.
//!
//! An engine asks when it sets up an end, the simulator when it plays one: what is measured there
//! is what the command does.

use crate::schedule::{OstSpec, Policy};
use crate::tuning::Tuning;
use std::time::Duration;

/// More I/O threads than this help no one on one host.
const THREADS_MAX: u32 = 128;
/// Memory for blocks at an end of which nothing is said, in bytes.
pub const BUFFERS_BYTES: u64 = 256 << 20;
/// Threads of a source besides, if it has a stage: bringing blocks back should not keep those from
/// reading that keep the OSTs busy.
pub const DRAIN_THREADS: u32 = 2;
/// Threads of a sink besides, if it has a stage: it is of use when all others wait for OSTs.
pub const STAGE_THREADS: u32 = 2;
/// How often a file that changes while it moves is tried again.
pub const RETRIES_MAX: u32 = 3;
/// The most streams to a host far away, if nobody says otherwise. Each is a connection, and a
/// thread at each end. Half would be too few for 128 ms (see [`Tuning::stream_window_bytes`]). More
/// gain nothing further away, because each holds a buffer of the sink for longer: over 300 ms, with
/// the kernel's limits for windows, 768 MiB take 7.3 s with 24, 7.5 with 48, and 9.0 with 96.
pub const STREAMS_DISTANT_MAX: u16 = 32;

/// The number of tracks of a target that hides its OSTs ([`crate::tracks`]), at an end with this
/// number of buffers; no more than `threads_asked_for`, if that is not zero. Each track has one
/// buffer more than it cannot do without. Two are enough: with four, and so with half of the
/// tracks, 8 hidden OSTs reach 86 % of the bound instead of 90, and 32 reach 73 instead of 81.
#[must_use]
pub fn track_count(
    tuning: &Tuning,
    threads_asked_for: u16,
    buffer_count: u64,
    needed_each: u32,
) -> u32 {
    let by_buffers = buffer_count / u64::from(needed_each + 1);
    let by_threads = match threads_asked_for {
        0 => u64::MAX,
        count => count.into(),
    };
    let count = by_buffers.min(by_threads).min(tuning.tracks.into());
    u32::try_from(count).unwrap_or(u32::MAX).max(1)
}

/// The number of streams to a host at this distance, if `near_count` are enough for one next door,
/// and the window of each can hold `window_bytes`.
///
/// A connection carries at most what its window holds in one round trip. So the number grows with
/// the round trip.
#[must_use]
pub fn stream_count(
    tuning: &Tuning,
    near_count: u16,
    round_trip: Duration,
    window_bytes: u64,
) -> u16 {
    let bytes = round_trip.as_micros().saturating_mul(tuning.stream_rate.into()) / 1_000_000;
    let by_distance = bytes.div_ceil(window_bytes.max(1).into());
    let by_distance = u16::try_from(by_distance).unwrap_or(u16::MAX);
    by_distance.min(STREAMS_DISTANT_MAX).max(near_count)
}

/// I/O threads of a source with these OSTs; `asked_for` if that is not zero.
///
/// As many as requests that the OSTs should have, so that none is idle for want of one; sending
/// takes some of their time, too.
#[must_use]
pub fn reading_threads(asked_for: u16, osts: &[OstSpec]) -> u32 {
    let by_osts: u32 = osts.iter().map(|ost| ost.in_flight_max).sum();
    match asked_for {
        0 => by_osts.clamp(2, THREADS_MAX),
        count => u32::from(count),
    }
}

/// With how many requests in flight an end begins that looks for the number that is best
/// ([`crate::matching`]); `None` if the number is fixed.
///
/// It is looked for where OSTs are hidden. Where they are known, each has the number that is best
/// for its kind. A user who says how many threads there are has fixed it, too.
#[must_use]
pub fn matched_requests(asked_for: u16, policy: Policy, osts: &[OstSpec]) -> Option<u32> {
    let is_hidden = !osts.is_empty() && osts.iter().all(|ost| ost.is_track);
    let is_matched = asked_for == 0 && policy == Policy::Adaptive && is_hidden;
    is_matched.then(|| osts.iter().map(|ost| ost.in_flight_max).sum())
}

/// I/O threads of a sink with these OSTs; `asked_for` if that is not zero.
///
/// One for each OST at least, and half as many as requests that the OSTs should have: what is quick
/// is written by the threads that receive.
#[must_use]
pub fn writing_threads(asked_for: u16, osts: &[OstSpec]) -> u32 {
    let in_flight_max: u32 = osts.iter().map(|ost| ost.in_flight_max).sum();
    let ost_count = u32::try_from(osts.len()).unwrap_or(u32::MAX);
    match asked_for {
        0 => (in_flight_max / 2).max(ost_count).clamp(2, THREADS_MAX),
        count => u32::from(count),
    }
}

/// Of the threads of a source, or its buffers if those are fewer, how many may fill its stage at a
/// time: the others go on sending.
#[must_use]
pub fn filling_threads_max(threads: u32, buffer_count: u32) -> u32 {
    (threads.min(buffer_count) * 3 / 4).max(1)
}

/// Of the threads of a sink, how many may give files their names at a time: half of them, and no
/// more than files may be read back.
#[must_use]
pub fn commits_max(threads: u32, reads_max: Option<u32>) -> u32 {
    let half = threads.div_ceil(2);
    reads_max.map_or(half, |reads_max| half.min(reads_max))
}

/// What a sink needs buffers for, besides what is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SinkNeeds {
    /// Whether it stages blocks.
    pub has_stage: bool,
    /// Whether it reads files back before they are done.
    pub verifies_media: bool,
}

impl SinkNeeds {
    /// Buffers without which a sink with this number of OSTs cannot go on: one for each, or three
    /// with a stage (one of them for what comes back from it), and one more where files are read
    /// back.
    #[must_use]
    pub fn buffers(self, ost_count: usize) -> u32 {
        let each = if self.has_stage { 3 } else { 1 };
        let for_osts = u32::try_from(ost_count).unwrap_or(u32::MAX).saturating_mul(each);
        for_osts.saturating_add(u32::from(self.verifies_media))
    }

    /// Memory for blocks of this length, in bytes, if nothing is said: twice what is needed, or as
    /// much as at a source if that is more.
    #[must_use]
    pub fn buffers_bytes(self, ost_count: usize, block_size: u32) -> u64 {
        (2 * u64::from(self.buffers(ost_count)) * u64::from(block_size)).max(BUFFERS_BYTES)
    }

    /// Files that may be read back at a time, if they are at all. Each has a buffer of its own, for
    /// which half of the buffers that nothing else needs are kept. It matters only where memory is
    /// scarce: with 8 buffers of 64 KiB and 16 threads, 2,000 files of 128 KiB took 2.7 s; with a
    /// quarter kept 2.3 s (the same, on that disk), with nine tenths 3.6 s.
    ///
    /// # Panics
    /// If there are fewer buffers than [`Self::buffers`].
    #[must_use]
    pub fn reads_max(self, ost_count: usize, buffer_count: u32) -> Option<u32> {
        let needed = self.buffers(ost_count);
        assert!(buffer_count >= needed, "{buffer_count} buffers, {needed} are needed");
        self.verifies_media.then_some(1 + (buffer_count - needed) / 2)
    }
}

/// Returns how many buffers are for what comes back from the stage of a sink: half of them, if two
/// are left for each OST. One of those is not for what is written at a time, or all would be, and
/// none could be put aside; so the OSTs get fewer requests at a time.
///
/// # Panics
/// If there are fewer than three buffers for each OST, or no OST.
#[must_use]
pub fn part_from_stage(osts: &mut [OstSpec], buffer_count: u32) -> u32 {
    let ost_count = u32::try_from(osts.len()).unwrap_or(u32::MAX);
    assert!(buffer_count / 3 >= ost_count, "{buffer_count} buffers for {ost_count} OSTs");
    let left = (buffer_count - ost_count * 2).min(buffer_count / 2);
    let share = (buffer_count - left) / ost_count;
    for ost in osts {
        ost.in_flight_max = ost.in_flight_max.min(share - 1);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osts(count: usize) -> Vec<OstSpec> {
        vec![OstSpec::new(String::new(), 4); count]
    }

    #[test]
    fn threads_follow_the_osts_unless_they_are_asked_for() {
        let counts = [1, 8, 32, 500].map(|count| reading_threads(0, &osts(count)));
        assert_eq!(counts, [4, 32, 128, 128]);
        let counts = [1, 8, 32, 500].map(|count| writing_threads(0, &osts(count)));
        assert_eq!(counts, [2, 16, 64, 128]);
        assert_eq!((reading_threads(3, &osts(8)), writing_threads(300, &osts(8))), (3, 300));
    }

    #[test]
    fn the_further_away_the_more_streams() {
        let tuning = Tuning::DEFAULT;
        let of_window =
            |near, micros, bytes| stream_count(&tuning, near, Duration::from_micros(micros), bytes);
        let count = |near, micros| of_window(near, micros, tuning.stream_window_bytes);
        let counts = [0, 280, 26_800, 128_000, 163_000, 600_000].map(|micros| count(4, micros));
        assert_eq!(counts, [4, 4, 7, 32, 32, 32]);
        assert_eq!((count(8, 26_800), count(64, 600_000)), (8, 64));
        assert_eq!([64 << 20, 10 << 20, 0].map(|bytes| of_window(4, 128_000, bytes)), [4, 8, 32]);
    }

    #[test]
    fn a_hidden_target_has_as_many_tracks_as_threads_and_buffers_can_serve() {
        let count = |threads, buffers, each| track_count(&Tuning::DEFAULT, threads, buffers, each);
        assert_eq!((count(0, 256, 1), count(0, 100, 1), count(0, 256, 3)), (128, 50, 64));
        assert_eq!((count(8, 256, 1), count(0, 1, 1)), (8, 1));
    }

    #[test]
    fn a_sink_has_twice_the_buffers_that_it_needs_or_as_many_as_a_source() {
        let plain = SinkNeeds { has_stage: false, verifies_media: false };
        assert_eq!((plain.buffers(8), plain.buffers_bytes(8, 1 << 20)), (8, BUFFERS_BYTES));
        assert_eq!(plain.buffers_bytes(500, 1 << 20), 1000 << 20);
        let all = SinkNeeds { has_stage: true, verifies_media: true };
        assert_eq!((all.buffers(8), all.reads_max(8, 41)), (25, Some(9)));
        assert_eq!(plain.reads_max(8, 41), None);
    }

    #[test]
    fn some_threads_are_left_for_what_must_not_wait() {
        assert_eq!(filling_threads_max(16, 8), 6);
        assert_eq!(filling_threads_max(1, 8), 1);
        assert_eq!((commits_max(5, None), commits_max(16, Some(3))), (3, 3));
    }

    #[test]
    fn half_of_the_buffers_come_back_from_the_stage_if_each_ost_keeps_two() {
        let mut eight = osts(8);
        assert_eq!(part_from_stage(&mut eight, 64), 32);
        assert_eq!(eight[0].in_flight_max, 3);
        let mut eight = osts(8);
        assert_eq!(part_from_stage(&mut eight, 24), 8);
        assert_eq!(eight[0].in_flight_max, 1);
    }
}
