//! Storage that hides its OSTs: how many of its files, and which parts of them, are in flight at a
//! time.
//!
//! Many file systems (GPFS, NFS, most that are mounted with FUSE) do not say which OST holds a
//! file. To keep all hidden OSTs busy, many files must be read and written side by side, and a long
//! file at distant offsets. So a transfer divides such a target into *tracks*. A track is an OST as
//! far as the schedule, grants and the congestion rule are concerned, with one request at a time:
//! files that lie on a slow hidden OST make slow tracks, for which the other tracks do not wait.
//!
//! Files are dealt to tracks in turn. An idle track of a source takes over files, or half of a long
//! one, from the track that has most to do (`schedule.rs`).

use crate::layout::{Layout, STRIPE_COUNT_MAX};
use crate::tuning::Tuning;
use crate::units::OstId;

/// The tracks of one target, and how many files they were dealt.
#[derive(Clone, Debug)]
pub struct Tracks {
    tuning: Tuning,
    first: u32,
    count: u32,
    block_bytes: u64,
    small_count: u64,
    other_count: u64,
}

impl Tracks {
    /// Tracks with the numbers from `first` on, for blocks of at most `block_size` bytes.
    ///
    /// # Panics
    /// If `count` is zero, or larger than [`STRIPE_COUNT_MAX`].
    #[must_use]
    pub fn new(tuning: &Tuning, first: OstId, count: u32, block_size: u32) -> Self {
        assert!((1..=STRIPE_COUNT_MAX).contains(&(count as usize)), "{count} tracks of a target");
        let block_bytes = u64::from(block_size);
        Self { tuning: *tuning, first: first.0, count, block_bytes, small_count: 0, other_count: 0 }
    }

    /// The number of tracks.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The track of the next file to be read, which has `size` bytes.
    pub fn of_read(&mut self, size: u64) -> Layout {
        Layout::on(self.next(size))
    }

    /// The tracks of the next file to be written, which will have `size` bytes. A long file gets
    /// several, because its blocks come from distant offsets at the same time.
    pub fn of_written(&mut self, size: u64) -> Layout {
        let first = self.next(size).0 - self.first;
        let parts = size.div_ceil(self.tuning.track_bytes.max(1));
        let stripe_count = parts.clamp(1, self.count.into());
        // The next file begins behind this one: two files on one track would wait for each other.
        self.other_count += stripe_count - 1;
        let osts = (0..stripe_count).map(|step| self.track(u64::from(first) + step)).collect();
        // Each track gets one part of the file, as each track of the source does.
        let stripe_size = size.div_ceil(stripe_count).max(1).next_multiple_of(self.block_bytes);
        Layout::striped(stripe_size, osts)
            .expect("at least one track, and fewer than a file may have")
    }

    /// The track whose turn it is. Small files that follow each other get the same track at both
    /// ends, because only files of the same track share a frame.
    fn next(&mut self, size: u64) -> OstId {
        let is_small = size <= self.tuning.packed_bytes_max;
        let count = if is_small { &mut self.small_count } else { &mut self.other_count };
        let number = *count;
        *count += 1;
        let run = if is_small { self.tuning.packed_count_max as u64 } else { 1 };
        self.track(number / run)
    }

    fn track(&self, turn: u64) -> OstId {
        let step = turn % u64::from(self.count);
        OstId(self.first + u32::try_from(step).expect("less than the number of tracks"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn tracks() -> Tracks {
        Tracks::new(&Tuning::DEFAULT, OstId(3), 4, 1 << 20)
    }

    #[test]
    fn files_are_dealt_in_turn() {
        let mut tracks = tracks();
        let dealt: Vec<u32> = (0..6)
            .flat_map(|_| tracks.of_read(MIB).osts().collect::<Vec<_>>())
            .map(|ost| ost.0)
            .collect();
        assert_eq!(dealt, [3, 4, 5, 6, 3, 4]);
    }

    #[test]
    fn small_files_stay_together_so_that_they_share_frames() {
        let mut tracks = tracks();
        let run = Tuning::DEFAULT.packed_count_max;
        let dealt: Vec<Layout> = (0..=run).map(|_| tracks.of_written(4096)).collect();
        assert!(dealt[..run].iter().all(|layout| *layout == Layout::on(OstId(3))));
        assert_eq!(dealt[run], Layout::on(OstId(4)));
        assert_eq!(tracks.of_written(MIB), Layout::on(OstId(3)), "others have turns of their own");
    }

    #[test]
    fn each_track_gets_one_part_of_a_long_file() {
        let mut tracks = tracks();
        let _ = tracks.of_written(MIB);
        let two = tracks.of_written(2 * Tuning::DEFAULT.track_bytes);
        assert_eq!(two.osts().collect::<Vec<_>>(), [OstId(4), OstId(5)]);
        assert_eq!(two.stripe_end(0), Tuning::DEFAULT.track_bytes);
        assert_eq!(tracks.of_written(MIB), Layout::on(OstId(6)), "behind both tracks of that file");
        assert_eq!(tracks.of_written(1 << 40).position_count(), 4);
    }
}
