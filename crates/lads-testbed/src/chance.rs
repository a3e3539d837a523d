//! Chance that comes out the same each time for the same seed.

/// SplitMix64 (Steele, Lea, Flood 2014): small, quick, and good enough to lose packets with.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The sequence that belongs to a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next of all numbers.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Whether something of this probability, 0 to 1, happens now.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        // 53 bits are what a double can tell apart.
        let drawn = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < probability
    }
}
