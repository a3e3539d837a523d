//! Which files get another place, because the OST that they are on has turned slow.
//!
//! A file is placed before its bytes come, and OSTs turn slow within seconds. As long as other
//! files can be written elsewhere, a slow OST does no harm; but at the end, everything waits for
//! what is left on it. So when no file waits to be placed any more, the sink asks the source to
//! announce such files again (PLACE_AGAIN), each at most once, if that is likely to be quicker. The
//! whole file is then sent again: it is dropped like a file that changed, and placed where least is
//! left to do.
//!
//! `MapReduce` does the same with work of a slow machine (backup tasks; Dean and Ghemawat, 2004,
//! section 3.6), except that here the slow OST stops.

use super::blocks::{Placing, Purpose};
use super::event::Write;
use super::files::Files;
use crate::placement::SLOWNESS_ONE;
use crate::schedule::OstQueues;
use crate::tuning::Tuning;
use crate::units::{EntryId, Instant};
use std::cmp::Reverse;
use std::time::Duration;

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

/// Looks from time to time whether files are better placed again.
#[derive(Debug)]
pub(super) struct Again {
    tuning: Tuning,
    looked_at: Instant,
}

impl Again {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self { tuning, looked_at: Instant::START }
    }

    /// Whether it is time to look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.since(self.looked_at) >= self.tuning.again_interval
    }

    /// Which of the files that wait in these queues are better placed again.
    pub(super) fn look(
        &mut self,
        now: Instant,
        files: &Files,
        queues: &OstQueues<Write>,
    ) -> Vec<EntryId> {
        self.looked_at = now;
        if queues.slowness(now).all(|slowness| slowness == SLOWNESS_ONE) {
            return Vec::new();
        }
        let mut left = left_per_ost(now, files, queues);
        better_placed_again(&self.tuning, &mut left, best_rate(now, queues))
    }
}

/// The rate of an OST that is not slow, in bytes per second: as much as the best OST has done.
fn best_rate(now: Instant, queues: &OstQueues<Write>) -> f64 {
    let most = queues.stats().map(|stats| stats.bytes).max().unwrap_or(0);
    most as f64 / now.since_start().as_secs_f64().max(1e-9)
}

/// What is placed and not written.
fn left_per_ost(now: Instant, files: &Files, queues: &OstQueues<Write>) -> Vec<Left> {
    let slow = queues.slowness(now).zip(queues.slow_for(now));
    let left = |(slowness, slow_for): (u32, Duration)| Left {
        slowness: f64::from(slowness) / f64::from(SLOWNESS_ONE),
        slow_seconds: slow_for.as_secs_f64(),
        ..Left::default()
    };
    let mut all: Vec<Left> = slow.map(left).collect();
    for (entry, file) in files.iter() {
        let Some(blocks) = file.receiving() else { continue };
        let is_placed = blocks.placed_bytes().is_some_and(|placed| placed.sink_ost.is_some());
        if !is_placed || blocks.purpose() == Purpose::Compare {
            continue;
        }
        let (left_bytes, size) = (blocks.left_bytes(), blocks.data_bytes());
        let layout = blocks.layout();
        let count = layout.osts().count() as u64;
        for ost in layout.osts() {
            all[ost.index()].bytes += left_bytes / count;
        }
        // A file that has begun, and of which nothing waits here, waits for the source.
        let waits_here = left_bytes == size || blocks.in_flight() > 0;
        if count == 1 && left_bytes > 0 && waits_here && blocks.placing() == Placing::Once {
            let files = &mut all[layout.ost_at(0).index()].files;
            files.push(LeftOfFile { entry, left_bytes, size });
        }
    }
    all
}

impl Left {
    /// How long the OST needs for `bytes`, in seconds, if it does `bytes_per_second` when it is not
    /// slow. Nobody knows how much longer it will be slow. It is assumed to be slow for as long
    /// again as it has been so far. So an OST that is slow for a moment, by chance, moves no file.
    fn seconds(&self, bytes: u64, bytes_per_second: f64) -> f64 {
        let quick_seconds = bytes as f64 / bytes_per_second;
        let done_while_slow = self.slow_seconds / self.slowness;
        (quick_seconds * self.slowness).min(self.slow_seconds + quick_seconds - done_while_slow)
    }
}

/// Which files to take from slow OSTs, if other OSTs do `bytes_per_second`. Files of which most is
/// left come first, because least of them is sent twice. Each goes where least is left to do.
fn better_placed_again(tuning: &Tuning, all: &mut [Left], bytes_per_second: f64) -> Vec<EntryId> {
    let mut found = Vec::new();
    let is_slow = |left: &Left| left.slowness >= tuning.again_slowness_min;
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
            let times = if file.left_bytes < file.size { tuning.again_times_if_begun } else { 1.0 };
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
    use super::super::blocks::Blocks;
    use super::super::file::Step;
    use super::*;
    use crate::ahead::Placed;
    use crate::congestion::Rule;
    use crate::entry::{Entry, Identity, Kind, Metadata};
    use crate::layout::Layout;
    use crate::placement::Striping;
    use crate::schedule::OstSpec;
    use crate::units::OstId;
    use std::ops::Range;

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
        let found = better_placed_again(&Tuning::DEFAULT, &mut all, 10.0 * MIB as f64);
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

    #[test]
    fn files_are_looked_at_once_in_an_interval() {
        let tuning = Tuning::DEFAULT;
        let queues = OstQueues::new(Rule::Adaptive, &tuning, &[OstSpec::new("OST0", 1)]);
        let at = |intervals| Instant::after_start(tuning.again_interval * intervals);
        let mut again = Again::new(tuning);
        assert!(!again.is_due(at(0)) && again.is_due(at(1)));
        again.look(at(1), &Files::default(), &queues);
        assert!(!again.is_due(at(1)) && again.is_due(at(2)));
    }

    #[test]
    fn the_best_ost_shows_what_an_ost_can_do() {
        let osts = [0, 1].map(|index| OstSpec::new(format!("{index}"), 1));
        let mut queues = OstQueues::new(Rule::Adaptive, &Tuning::DEFAULT, &osts);
        for (index, bytes) in [(0, 30 * MIB), (1, 50 * MIB)] {
            queues.start(Instant::START, OstId(index), bytes);
            queues.finish(Instant::START, OstId(index), bytes, Duration::from_secs(1));
        }
        let now = Instant::after_start(Duration::from_secs(10));
        assert_eq!(best_rate(now, &queues), 5.0 * MIB as f64);
    }

    /// The bytes that are left on the OST on which a file of 8 MiB lies, and the files that may be
    /// placed elsewhere, if this much of it was written, and as many blocks arrived.
    fn left(purpose: Purpose, written: Range<u64>, arrived_count: u32) -> (u64, usize) {
        let size = 8 * MIB;
        let identity = Identity { size, ..Identity::default() };
        let (striping, source_ost) = (Striping::default(), OstId(0));
        let kind =
            Kind::File { identity, data_bytes: size, striping, source_ost, is_different: false };
        let (id, parent) = (EntryId(1), EntryId::ROOT);
        let (name, metadata) = (b"a".to_vec(), Metadata::default());
        let placed = Some(Placed { source_ost, sink_ost: Some(OstId(0)), bytes: size });
        let mut blocks = Blocks::new(purpose, size, Layout::on(OstId(0))).placed(placed);
        blocks = blocks.with_done(std::iter::once(written).collect());
        (0..arrived_count).for_each(|_| blocks.on_come());
        let mut files = Files::default();
        files.on_roots();
        files.on_announced(&Entry { id, parent, name, kind, metadata });
        files.step(id, Step::Taken(placed));
        files.step(id, Step::Wanted(blocks));
        let queues = OstQueues::new(Rule::Adaptive, &Tuning::DEFAULT, &[OstSpec::new("OST0", 1)]);
        let left = left_per_ost(Instant::START, &files, &queues).remove(0);
        (left.bytes, left.files.len())
    }

    #[test]
    fn files_that_wait_for_this_end_may_be_placed_again() {
        assert_eq!(left(Purpose::Write, 0..0, 0), (8 * MIB, 1));
        assert_eq!(left(Purpose::Write, 0..MIB, 1), (7 * MIB, 1));
        assert_eq!(left(Purpose::Write, 0..MIB, 0), (7 * MIB, 0), "it waits for the source");
        assert_eq!(left(Purpose::Compare, 0..0, 1), (0, 0), "nothing of it is written");
    }
}
