//! Which OST holds which byte of a file.
//!
//! A file is striped round robin over its OSTs, `stripe_size` bytes at a time, as Lustre's plain
//! layouts are (LADS, FAST '15, section 2.3). A file on a single OST is one stripe without end.

use crate::units::OstId;

/// How a file lies on storage targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes in a stripe before the next OST takes over; never zero.
    stripe_size: u64,
    /// The OSTs in turn; never empty.
    osts: Vec<OstId>,
}

/// The largest number of OSTs one file may be striped over (Lustre's own limit).
pub const STRIPE_COUNT_MAX: usize = 2000;

impl Layout {
    /// A layout of stripes over the OSTs in turn; `None` if the stripe size is zero, or there is
    /// no OST or more than [`STRIPE_COUNT_MAX`].
    #[must_use]
    pub fn striped(stripe_size: u64, osts: Vec<OstId>) -> Option<Self> {
        let is_sound = stripe_size > 0 && !osts.is_empty() && osts.len() <= STRIPE_COUNT_MAX;
        is_sound.then_some(Self { stripe_size, osts })
    }

    /// A file that lies wholly on one OST.
    #[must_use]
    pub fn on(ost: OstId) -> Self {
        Self { stripe_size: u64::MAX, osts: vec![ost] }
    }

    /// The OST that holds the byte at `offset`.
    #[must_use]
    pub fn ost_at(&self, offset: u64) -> OstId {
        self.osts[self.position_at(offset)]
    }

    /// Which of the file's OSTs, counted from zero, holds the byte at `offset`.
    #[must_use]
    pub fn position_at(&self, offset: u64) -> usize {
        let count = self.osts.len() as u64;
        usize::try_from(offset / self.stripe_size % count).expect("less than STRIPE_COUNT_MAX")
    }

    /// The first byte after the stripe that holds the byte at `offset`.
    #[must_use]
    pub fn stripe_end(&self, offset: u64) -> u64 {
        (offset / self.stripe_size + 1).saturating_mul(self.stripe_size)
    }

    /// The first offset from `offset` on that lies on the OST at `position`.
    #[must_use]
    pub fn next_at(&self, position: usize, offset: u64) -> u64 {
        let here = self.position_at(offset);
        if here == position {
            return offset;
        }
        let count = self.osts.len();
        let stripes_ahead = (position + count - here) % count;
        (offset / self.stripe_size)
            .saturating_add(stripes_ahead as u64)
            .saturating_mul(self.stripe_size)
    }

    /// After so many bytes everything repeats; 1 where the file is on one OST.
    #[must_use]
    pub fn period(&self) -> u64 {
        match self.osts.len() as u64 {
            1 => 1,
            count => self.stripe_size.saturating_mul(count),
        }
    }

    /// The OSTs in turn.
    #[must_use]
    pub fn osts(&self) -> &[OstId] {
        &self.osts
    }

    /// Bytes in a stripe; `u64::MAX` where the file has only one.
    #[must_use]
    pub fn stripe_size(&self) -> u64 {
        self.stripe_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_go_round_the_osts() {
        let layout = Layout::striped(10, vec![OstId(7), OstId(3), OstId(5)]).unwrap();
        let osts: Vec<_> = [0, 9, 10, 29, 30].iter().map(|&o| layout.ost_at(o).0).collect();
        assert_eq!(osts, [7, 7, 3, 5, 7]);
        assert_eq!(layout.stripe_end(0), 10);
        assert_eq!(layout.next_at(0, 5), 5);
        assert_eq!(layout.next_at(0, 15), 30);
        assert_eq!(layout.next_at(2, 15), 20);
    }

    #[test]
    fn a_file_on_one_ost_has_one_stripe() {
        let layout = Layout::on(OstId(4));
        assert_eq!(layout.ost_at(u64::MAX - 1), OstId(4));
        assert_eq!(layout.stripe_end(1 << 60), u64::MAX);
    }
}
