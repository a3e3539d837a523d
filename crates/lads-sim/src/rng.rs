//! Which choice comes next, when the seed decides.
//!
//! SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014): one
//! word of state, good enough for a simulator, and the same on every machine.

use std::time::Duration;

/// A stream of choices that follows from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed ^ 0x51ed_270b_9f63_a2c5 }
    }

    /// Any number.
    pub(crate) fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// A number from `low` to `high`, both possible.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// The same for counts.
    pub(crate) fn count(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.between(low.into(), high.into())).expect("not above `high`")
    }

    /// A place in something that has `length` places.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below `length`")
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// True this many times in a thousand.
    pub(crate) fn hits(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < u64::from(per_mille)
    }

    /// A number from `low` to `high`, small ones as likely as large ones of any size.
    pub(crate) fn of_any_size(&mut self, low: u64, high: u64) -> u64 {
        let top = high.max(low + 1);
        let bits = u64::from((top / low.max(1)).ilog2());
        let scale = 1u64 << self.between(0, bits);
        let number = low.max(1) * scale + self.below(low.max(1) * scale);
        number.clamp(low, high.max(low))
    }

    /// A time between this many microseconds and this many.
    pub(crate) fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low, high))
    }
}

/// Spreads a number's bits over all bits.
pub(crate) fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
