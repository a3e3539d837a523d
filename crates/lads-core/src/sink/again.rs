//! Which files get another place, because the OST that they are on has turned slow.
//!
//! A file is placed before it comes, and OSTs turn slow within seconds. As long as there are others
//! to write, a slow OST does what it can; but at the end all wait for what is left on it. So when
//! no file waits to be placed any more, the source is asked to announce such files anew
//! (PLACE_AGAIN), each once at most, if that is likely to be quicker, although all of the file
//! comes once more: it is dropped like one that changed, and placed where least is left to do.
//!
//! This is what a computation does that has others begin what a slow machine was to do (Dean and
//! Ghemawat, `MapReduce`, 2004, section 3.6), except that the slow one stops.

use super::{Phase, Place, Sink, Stop, Task, Write};
use crate::layout::Layout;
use crate::message::Message;
use crate::placement::SLOWNESS_ONE;
use crate::units::{EntryId, Instant};
use std::cmp::Reverse;
use std::time::Duration;

/// How often it is looked at what is left where.
const INTERVAL: Duration = Duration::from_millis(50);

/// A file of which something is written is placed again only if its OST needs this many times as
/// long for what is left there as another would for the whole file: it is read again as well, and
/// the OST may be quick again meanwhile. If nothing is written, it costs little more than a round
/// trip.
const TIMES_IF_BEGUN: f64 = 3.0;

/// An OST counts as slow if its requests take this many times as long as they should.
const SLOWNESS_MIN: f64 = 2.0;

/// What is left to do on an OST.
#[derive(Clone, Debug, Default)]
struct Left {
    bytes: u64,
    /// Files that lie on no other.
    files: Vec<LeftOfFile>,
    /// How many times as long as usual it takes now.
    slowness: f64,
    /// For how long it has been so, in seconds.
    slow_seconds: f64,
}

#[derive(Clone, Copy, Debug)]
struct LeftOfFile {
    entry: EntryId,
    left_bytes: u64,
    size: u64,
}

impl Sink {
    /// Asks for those files to be announced anew that are better placed again, if it is time to
    /// look and nothing else is left to be placed.
    pub(super) fn place_again(&mut self, now: Instant) {
        // What grows goes on elsewhere by itself.
        let is_due = self.ahead.is_limited()
            && self.config.growth.is_none()
            && now.since(self.looked_at) >= INTERVAL;
        if !is_due || self.stop != Stop::No || !self.ahead.is_empty() {
            return;
        }
        self.looked_at = now;
        if self.queues.slowness(now).all(|slowness| slowness == SLOWNESS_ONE) {
            return;
        }
        let entries = better_placed_again(&mut self.left_per_ost(now), self.best_rate(now));
        for entry in &entries {
            if let Some(file) = self.files.get_mut(entry) {
                file.is_placed_again = true;
            }
        }
        if !entries.is_empty() {
            self.messages.push_back(Message::PlaceAgain(entries));
        }
    }

    /// What an OST can do that is not slow, in bytes per second: as much as the best has done.
    fn best_rate(&self, now: Instant) -> f64 {
        let most = self.queues.stats().map(|stats| stats.bytes).max().unwrap_or(0);
        most as f64 / now.since_start().as_secs_f64().max(1e-9)
    }

    /// What is placed and not written.
    fn left_per_ost(&self, now: Instant) -> Vec<Left> {
        let slow = self.queues.slowness(now).zip(self.queues.slow_for(now));
        let left = |(slowness, slow_for): (u32, Duration)| Left {
            slowness: f64::from(slowness) / f64::from(SLOWNESS_ONE),
            slow_seconds: slow_for.as_secs_f64(),
            ..Left::default()
        };
        let mut all: Vec<Left> = slow.map(left).collect();
        for (&entry, file) in &self.files {
            let is_placed = file.ahead.is_some_and(|placed| placed.sink_ost.is_some());
            let Some(layout) = file.layout.as_ref().filter(|_| is_placed) else { continue };
            if file.phase != Phase::Receiving || file.is_compared {
                continue;
            }
            let left_bytes = file.data_bytes.saturating_sub(file.written.byte_count());
            let count = layout.osts().count() as u64;
            for ost in layout.osts() {
                all[ost.index()].bytes += left_bytes / count;
            }
            let size = file.data_bytes;
            // One that has begun and of which nothing waits here, waits for the source.
            let waits_here = left_bytes == size || file.in_flight > 0;
            if count == 1 && left_bytes > 0 && waits_here && !file.is_placed_again {
                let files = &mut all[layout.ost_at(0).index()].files;
                files.push(LeftOfFile { entry, left_bytes, size });
            }
        }
        all
    }

    /// Frames of a file that is dropped need not be written: their buffers are wanted, and the
    /// source waits to hear that nothing is left of it.
    pub(super) fn release_waiting(&mut self, entry: EntryId) {
        let Some(file) = self.files.get_mut(&entry) else { return };
        let is_of_file = |write: &Write| {
            write.is_in_memory() && write.rows.iter().all(|(row, _)| row.block.entry == entry)
        };
        for ost in file.layout.iter().flat_map(Layout::osts) {
            while let Some(write) = self.queues.remove_last(ost, is_of_file, Write::bytes) {
                file.in_flight -= u32::try_from(write.rows.len()).expect("rows are few");
                self.to_release.push(write);
            }
        }
    }

    /// Buffers that hold nothing that is wanted.
    pub(super) fn next_release(&mut self) -> Option<Task> {
        let writes = std::mem::take(&mut self.to_release);
        (!writes.is_empty()).then_some(Task::Release(writes))
    }

    /// Their buffers are free.
    pub(super) fn on_released(&mut self, writes: &[Write]) {
        for write in writes {
            if let Place::Buffer(_) = write.place {
                self.grants.on_release(write.room);
            }
        }
    }
}

impl Left {
    /// How long the OST needs for this many bytes, in seconds, if it does this many a second when
    /// it is not slow. Nobody knows for how much longer it will be: it is taken to be for as long
    /// again as it has been. So what is slow for a moment, by chance, moves nothing.
    fn seconds(&self, bytes: u64, bytes_per_second: f64) -> f64 {
        let quick_seconds = bytes as f64 / bytes_per_second;
        let done_while_slow = self.slow_seconds / self.slowness;
        (quick_seconds * self.slowness).min(self.slow_seconds + quick_seconds - done_while_slow)
    }
}

/// Which files to take from OSTs that are slow, where others do this many bytes a second; those
/// first of which most is left, for they lose least by it. Each goes where least is left.
fn better_placed_again(all: &mut [Left], bytes_per_second: f64) -> Vec<EntryId> {
    let mut found = Vec::new();
    let is_slow = |left: &Left| left.slowness >= SLOWNESS_MIN;
    let slow: Vec<usize> = (0..all.len()).filter(|&ost| is_slow(&all[ost])).collect();
    for slow in slow {
        let mut files = std::mem::take(&mut all[slow].files);
        files.sort_unstable_by_key(|file| (Reverse(file.left_bytes), file.entry));
        for file in files {
            let quick = (0..all.len()).filter(|&ost| all[ost].slowness <= 1.0);
            let Some(best) = quick.min_by_key(|&ost| all[ost].bytes) else { return found };
            let there_bytes = all[best].bytes.saturating_add(file.size);
            let here = all[slow].seconds(all[slow].bytes, bytes_per_second);
            let there = all[best].seconds(there_bytes, bytes_per_second);
            let times = if file.left_bytes < file.size { TIMES_IF_BEGUN } else { 1.0 };
            if here > there * times {
                all[slow].bytes = all[slow].bytes.saturating_sub(file.left_bytes);
                all[best].bytes = there_bytes;
                found.push(file.entry);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// OSTs that do 10 MiB/s, with files of 8 MiB of which this many MiB are left; the first of
    /// them has been this many times slower for this many seconds.
    fn placed_again(slowness: f64, slow_seconds: f64, left_mib: &[&[u64]]) -> Vec<u64> {
        let mut entry = 0;
        let mut all = Vec::new();
        for files in left_mib {
            let mut left = Left { slowness: 1.0, ..Left::default() };
            for mib in *files {
                let (left_bytes, size) = (mib * MIB, 8 * MIB);
                left.bytes += left_bytes;
                left.files.push(LeftOfFile { entry: EntryId(entry), left_bytes, size });
                entry += 1;
            }
            all.push(left);
        }
        (all[0].slowness, all[0].slow_seconds) = (slowness, slow_seconds);
        let found = better_placed_again(&mut all, 10.0 * MIB as f64);
        found.into_iter().map(|entry| entry.0).collect()
    }

    #[test]
    fn what_is_on_an_ost_that_is_not_slow_stays() {
        assert_eq!(placed_again(1.0, 0.0, &[&[8, 8, 8], &[]]), []);
        assert_eq!(placed_again(1.5, 9.0, &[&[8, 8, 8], &[]]), []);
    }

    #[test]
    fn a_file_that_has_not_begun_goes_where_it_is_done_sooner() {
        assert_eq!(placed_again(5.0, 9.0, &[&[8], &[]]), [0]);
        assert_eq!(placed_again(5.0, 9.0, &[&[8], &[8, 8, 8, 8]]), []);
    }

    #[test]
    fn one_that_has_begun_goes_only_where_it_is_done_far_sooner() {
        assert_eq!(placed_again(5.0, 9.0, &[&[4], &[]]), []);
        assert_eq!(placed_again(5.0, 9.0, &[&[5], &[]]), [0]);
        assert_eq!(placed_again(100.0, 9.0, &[&[1], &[]]), [0]);
    }

    #[test]
    fn an_ost_that_has_just_turned_slow_may_be_quick_again_as_soon() {
        assert_eq!(placed_again(5.0, 0.01, &[&[8], &[8]]), []);
        // In 2 s it does 4 of 7 MiB, the rest takes 0.3 s: not three times what another needs.
        assert_eq!(placed_again(5.0, 2.0, &[&[7], &[]]), []);
        assert_eq!(placed_again(5.0, 3.0, &[&[7], &[]]), [0]);
    }

    #[test]
    fn those_that_go_do_not_all_go_to_the_same_place() {
        assert_eq!(placed_again(2.0, 9.0, &[&[8, 8, 8], &[], &[8]]), [0, 1]);
        assert_eq!(placed_again(100.0, 9.0, &[&[8, 8, 8], &[], &[]]), [0, 1, 2]);
    }

    #[test]
    fn where_no_other_is_quick_all_stay() {
        assert_eq!(placed_again(5.0, 9.0, &[&[8, 8]]), []);
    }
}
