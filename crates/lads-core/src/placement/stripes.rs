//! On how many OSTs a new file should lie.
//!
//! All OSTs should finish at the same time, and each file should lie on few OSTs: each further
//! stripe is one more object to make, to ask for its length and to remove. Picture the bytes that
//! are placed now as water, poured over the work that waits on the OSTs. The water level is the
//! earliest moment at which all of it could be written. Each OST has room up to that level, a slow
//! one less, and a file gets the fewest stripes that fit below the level. If no number of stripes
//! fits, the level is raised by an eighth, and so on. Files that are placed only after these have
//! come ([`crate::ahead`]) do not count, because they keep no OST busy meanwhile.
//!
//! Few files can be longer than an OST's share of the whole transfer. If each of them got the
//! fewest stripes, the last ones would find room for half a file here and a third there. Such a
//! file gets as many stripes as fit, so that all OSTs stay level.
//!
//! LADS does not know how many files are still to be announced. So the first of many files may get
//! more stripes than it needs, which does no harm; the others get one.

use super::{Candidate, NewFile};
use crate::tuning::Tuning;
use std::ops::RangeInclusive;

/// How often the level is raised at most: nine eighths to the power of 64 is 1,900, more than OSTs
/// differ by.
const RAISES_MAX: u32 = 64;

/// The level is counted in this fraction of a byte, so that the slowest OST gets some, too.
const LEVEL_SCALE: u128 = 1 << 40;

/// On how many OSTs a file should lie, at most this many; `None` if there is no room for it.
pub(super) fn count(
    file: &NewFile,
    candidates: &[Candidate],
    tuning: &Tuning,
    count_max: usize,
) -> Option<usize> {
    let osts: Vec<&Candidate> = candidates.iter().filter(|it| it.state.takes_files()).collect();
    let ost_count = osts.len().max(1) as u64;
    let share_bytes = file.transfer_bytes.max(file.size) / ost_count;
    let stripe_bytes = (share_bytes / tuning.share_parts)
        .min(tuning.stripe_bytes_enough)
        .max(tuning.stripe_bytes_min);
    let count_max = as_count(ost_count).min(count_max);
    let least = as_count(file.size.div_ceil(tuning.bytes_per_stripe)).clamp(1, count_max);
    let most = as_count(file.size / stripe_bytes).clamp(least, count_max);
    let anywhere = roomiest_first(osts.iter().map(|it| it.space()).collect());
    let any = || (1..=most).rev().find(|&count| fits(&anywhere, file.size, count));
    if least == most {
        return any();
    }
    let is_one_of_few = file.size > share_bytes;
    below_level(file, &osts, tuning, least..=most, is_one_of_few).or_else(any)
}

/// The fewest stripes, or the most, of which each is done when the others are.
fn below_level(
    file: &NewFile,
    osts: &[&Candidate],
    tuning: &Tuning,
    counts: RangeInclusive<usize>,
    takes_most: bool,
) -> Option<usize> {
    let queued = osts.iter().map(|it| it.queued_bytes).fold(0, u64::saturating_add);
    let left_bytes = queued.saturating_add(file.coming_bytes.max(file.size));
    let speed: u128 = osts.iter().map(|it| LEVEL_SCALE / it.slowness_in_all(tuning)).sum();
    let mut level = u128::from(left_bytes) * LEVEL_SCALE / speed.max(1);
    for _ in 0..RAISES_MAX {
        let rooms = roomiest_first(osts.iter().map(|it| it.room_below(tuning, level)).collect());
        let fits = |count: &usize| fits(&rooms, file.size, *count);
        let mut counts = counts.clone();
        let found = if takes_most { counts.rev().find(fits) } else { counts.find(fits) };
        if found.is_some() {
            return found;
        }
        level += level / u128::from(tuning.level_parts) + 1;
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
    fn room_below(&self, tuning: &Tuning, level: u128) -> u64 {
        let bytes = u64::try_from(level / self.slowness_in_all(tuning)).unwrap_or(u64::MAX);
        bytes.saturating_sub(self.queued_bytes).min(self.space())
    }
}
