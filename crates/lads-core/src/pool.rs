//! Statistics of an end's requests to its storage, for the user: number in flight, number of files,
//! and length.
//!
//! They are means over the latest requests, and decide nothing.

use crate::matching::Why;
use crate::units::{EntryId, EntryMap};
use std::collections::hash_map::Entry;

/// A new request has one part in this number of the weight in the means. With half of it, the end
/// of a transfer, where requests become few, shows in the summary; with double, so does the
/// beginning of a short one.
const PARTS: f64 = 64.0;

/// The requests of an end.
#[derive(Debug, Default)]
pub struct Pool {
    /// How many requests each file has in flight; a request for several files counts for the first.
    files: EntryMap<u32>,
    in_flight: u32,
    count: u64,
    requests: f64,
    files_mean: f64,
    bytes: f64,
}

/// What the requests of an end are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// How many are in flight at a time.
    pub in_flight: u32,
    /// To how many files these belong.
    pub files: u32,
    /// The length of each, in bytes.
    pub request_bytes: u64,
    /// How many may be in flight at a time.
    pub limit: u32,
    /// Why it is this number.
    pub why: Why,
    /// What the last change of `limit` gained: the rate after it in thousandths of the rate before.
    pub gain_per_mille: u32,
    /// How the bytes go to and from storage.
    pub io: Io,
}

/// How bytes go to and from storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Io {
    /// Through the page cache.
    #[default]
    Buffered,
    /// Past the page cache.
    Direct,
    /// Through the page cache, and nothing stays there.
    Uncached,
    /// Nowhere: there is no storage at this end.
    Absent,
}

impl Requests {
    /// Reports whether the number that may be in flight is another one than at the beginning.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        matches!(self.why, Why::Less | Why::More)
    }
}

impl Pool {
    /// A request begins.
    pub fn on_start(&mut self, file: EntryId, bytes: u64) {
        *self.files.entry(file).or_default() += 1;
        self.in_flight += 1;
        self.count += 1;
        let weight = 1.0 / PARTS.min(self.count as f64);
        let files = self.files.len() as f64;
        for (mean, new) in [
            (&mut self.requests, f64::from(self.in_flight)),
            (&mut self.files_mean, files),
            (&mut self.bytes, bytes as f64),
        ] {
            *mean += (new - *mean) * weight;
        }
    }

    /// A request is complete.
    pub fn on_finish(&mut self, file: EntryId) {
        let Entry::Occupied(mut held) = self.files.entry(file) else { return };
        self.in_flight -= 1;
        *held.get_mut() -= 1;
        if *held.get() == 0 {
            held.remove();
        }
    }

    /// What the latest requests were like; `None` before the first.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "means of numbers that fit"
    )]
    pub fn requests(&self, limit: u32, why: Why, gain: f64) -> Option<Requests> {
        (self.count > 0).then(|| Requests {
            in_flight: self.requests.round() as u32,
            files: self.files_mean.round() as u32,
            request_bytes: self.bytes.round() as u64,
            limit,
            why,
            gain_per_mille: (gain * 1000.0).round() as u32,
            io: Io::default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_means_follow_what_is_usual() {
        let mut pool = Pool::default();
        assert_eq!(pool.requests(8, Why::Guess, 1.0), None);
        for _ in 0..100 {
            for file in 0..4 {
                pool.on_start(EntryId(file), 1000);
                pool.on_start(EntryId(file), 3000);
            }
            for file in 0..4 {
                pool.on_finish(EntryId(file));
                pool.on_finish(EntryId(file));
            }
        }
        let requests = pool.requests(8, Why::Guess, 1.0).unwrap();
        assert!((4..=5).contains(&requests.in_flight), "{requests:?}");
        assert!((1900..=2100).contains(&requests.request_bytes), "{requests:?}");
        assert!((2..=3).contains(&requests.files), "{requests:?}");
        pool.on_finish(EntryId(9));
        assert_eq!((pool.in_flight, pool.files.len()), (0, 0));
    }
}
