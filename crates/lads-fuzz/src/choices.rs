//! What an input says to do next, where it says what to do and not what to read.

use arbitrary::Unstructured;

/// An input that is used up choice by choice. When nothing is left of it, every choice is the
/// first.
#[derive(Debug)]
pub struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    /// Choices from the beginning of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// Whether anything is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number below `count`.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn below(&mut self, count: u32) -> u32 {
        assert!(count > 0, "there is a choice");
        self.0.int_in_range(0..=count - 1).unwrap_or(0)
    }

    /// A place in a list of this many, if it has any.
    pub fn place_in(&mut self, count: usize) -> Option<usize> {
        let last = count.checked_sub(1)?;
        Some(self.0.int_in_range(0..=last).unwrap_or(0))
    }

    /// Yes, once in this many times; no, when nothing is left.
    ///
    /// # Panics
    /// If `count` is zero.
    pub fn is_one_in(&mut self, count: u32) -> bool {
        self.below(count) == count - 1 && count > 1
    }

    /// One of these.
    ///
    /// # Panics
    /// If there are none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place_in(all.len()).expect("there is one")]
    }

    /// A number, often one at which something ends: near a power of two, or near the largest.
    pub fn number(&mut self) -> u64 {
        let near = u64::from(self.below(8));
        match self.below(8) {
            0 | 1 => near,
            2 => u64::from(self.below(256)),
            3 => (1 << self.below(64)) + near,
            4 => (1u64 << self.below(64)).wrapping_sub(near),
            5 => u64::MAX - near,
            6 => u64::from(u32::MAX).wrapping_sub(near),
            _ => self.0.arbitrary().unwrap_or(0),
        }
    }

    /// The same, of 32 bits.
    pub fn number32(&mut self) -> u32 {
        let number = self.number();
        u32::try_from(number).unwrap_or(u32::MAX - (number & 7) as u32)
    }

    /// At most `most` bytes.
    pub fn bytes(&mut self, most: u32) -> &'a [u8] {
        let count = self.below(most + 1) as usize;
        self.0.bytes(count.min(self.0.len())).unwrap_or_default()
    }
}
