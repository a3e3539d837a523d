//! On how many OSTs a new file should lie.
//!
//! All OSTs should be done at the same time, and each file should lie on few of them: a stripe more
//! is one more object to make, to ask for its length and to remove. So what is placed now is
//! thought of as water that is poured over what waits on the OSTs: its level is the earliest
//! moment at which all of it could be written. Each OST has room up to that level, a slow one
//! less, and a file gets the fewest stripes that fit below it. If there is no such number, the
//! level is raised by an eighth, and so on. What is placed later, when this has come
//! ([`crate::ahead`]), does not count: meanwhile it keeps no OST busy.
//!
//! A file that is longer than an OST's share of the whole transfer is one of few: if each of them
//! got the fewest, those that come last would find room for half a file here and a third there. It
//! gets as many as fit, so that all OSTs stay level.
//!
//! What is still to be announced is not known. So the first file of many may have more stripes than
//! it needs, which does no harm, and the others have one.

use super::{BYTES_PER_STRIPE, Candidate, NewFile};
use std::ops::RangeInclusive;

/// No stripe is shorter than this, in bytes: eight requests of 1 MiB, twice as many as an OST of a
/// parallel file system has under way. With half of it the first of 160 files of 8 MiB were torn in
/// two, before it was known that more followed, and 32 OSTs, for which five whole files each are
/// the same to a byte, came to 89 % of what is possible, not 97 % (simulator). With the double, one
/// file of 96 MiB would lie on six of eight OSTs, and take a third longer.
pub const STRIPE_BYTES_MIN: u64 = 8 << 20;

/// Nor is one shorter than this part of an OST's share of the whole transfer, for then whole files
/// keep all OSTs busy. About such a part is what one OST may have to do longer than others at the
/// end: with a fourth, the last of 10 files of 96 MiB on 8 OSTs would not fit where there is room,
/// and take a fifteenth longer; with a sixteenth, the last of 60 files of 32 MiB would be torn in
/// two to win as little.
const SHARE_PARTS: u64 = 8;

/// A stripe of this many bytes is long enough for any transfer. Half of it would tear the last
/// files of large transfers into more pieces than they gain by; with the double, a last file of
/// 96 MiB would be on one OST.
const STRIPE_BYTES_ENOUGH: u64 = 32 << 20;

/// The level is raised by this part of it, so a file's end may be later than need be by as much.
const LEVEL_PART: u128 = 8;

/// How often it is raised: nine eighths to the power of 64 are 1,900, more than OSTs differ by.
const RAISES_MAX: u32 = 64;

/// The level is counted in this part of a byte by what an OST's slowness is, so that the slowest
/// OST has some, too.
const LEVEL_SCALE: u128 = 1 << 40;

/// On how many OSTs a file should lie, at most this many; `None` if there is no room for it.
pub(super) fn count(file: &NewFile, candidates: &[Candidate], count_max: usize) -> Option<usize> {
    let osts: Vec<&Candidate> = candidates.iter().filter(|it| it.state.takes_files()).collect();
    let ost_count = osts.len().max(1) as u64;
    let share_bytes = file.transfer_bytes.max(file.size) / ost_count;
    let stripe_bytes = (share_bytes / SHARE_PARTS).clamp(STRIPE_BYTES_MIN, STRIPE_BYTES_ENOUGH);
    let count_max = as_count(ost_count).min(count_max);
    let least = as_count(file.size.div_ceil(BYTES_PER_STRIPE)).clamp(1, count_max);
    let most = as_count(file.size / stripe_bytes).clamp(least, count_max);
    let anywhere = roomiest_first(osts.iter().map(|it| it.space()).collect());
    let any = || (1..=most).rev().find(|&count| fits(&anywhere, file.size, count));
    if least == most {
        return any();
    }
    let is_one_of_few = file.size > share_bytes;
    below_level(file, &osts, least..=most, is_one_of_few).or_else(any)
}

/// The fewest stripes, or the most, of which each is done when the others are.
fn below_level(
    file: &NewFile,
    osts: &[&Candidate],
    counts: RangeInclusive<usize>,
    takes_most: bool,
) -> Option<usize> {
    let queued = osts.iter().map(|it| it.queued_bytes).fold(0, u64::saturating_add);
    let left_bytes = queued.saturating_add(file.coming_bytes.max(file.size));
    let speed: u128 = osts.iter().map(|it| LEVEL_SCALE / it.slowness_in_all()).sum();
    let mut level = u128::from(left_bytes) * LEVEL_SCALE / speed.max(1);
    for _ in 0..RAISES_MAX {
        let rooms = roomiest_first(osts.iter().map(|it| it.room_below(level)).collect());
        let fits = |count: &usize| fits(&rooms, file.size, *count);
        let mut counts = counts.clone();
        let found = if takes_most { counts.rev().find(fits) } else { counts.find(fits) };
        if found.is_some() {
            return found;
        }
        level += level / LEVEL_PART + 1;
    }
    None
}

fn roomiest_first(mut rooms: Vec<u64>) -> Vec<u64> {
    rooms.sort_unstable_by(|left, right| right.cmp(left));
    rooms
}

/// Whether at least this number of these OSTs have room for a stripe each.
fn fits(rooms: &[u64], size: u64, count: usize) -> bool {
    let least = rooms.get(count - 1);
    least.is_some_and(|&room| room >= size.div_ceil(count as u64))
}

fn as_count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Candidate {
    /// Bytes that are written here when others of no slowness have come to this level.
    fn room_below(&self, level: u128) -> u64 {
        let bytes = u64::try_from(level / self.slowness_in_all()).unwrap_or(u64::MAX);
        bytes.saturating_sub(self.queued_bytes).min(self.space())
    }
}
