//! How a program reads a file, and what it would read next.

use super::CHUNK_BYTES;
use crate::remote::policy::{FIRST_AHEAD_BYTES, NEAR_BYTES, REGULAR_READS_MAX};
use std::ops::Range;

/// What is kept of what is read, and what is read ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing is kept, and nothing read ahead.
    Off,
    /// What was read is kept.
    Never,
    /// Also, what comes next is read ahead when reads follow each other, or have one distance.
    #[default]
    Auto,
    /// Also, it is read ahead from the beginning on.
    Always,
}

/// From one read to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It begins where the one before has ended, or a little behind.
    Follows,
    /// It has the same length, and begins so far from the beginning of the one before.
    Distance(i64),
}

/// The reads of a file so far.
#[derive(Debug)]
pub(super) struct Pattern {
    last: Range<u64>,
    step: Option<Step>,
    /// How many steps were like this one, without another between.
    steps: u32,
    needed: u32,
    window: u64,
}

impl Step {
    fn between(last: &Range<u64>, next: &Range<u64>) -> Option<Self> {
        if (last.end..=last.end.saturating_add(NEAR_BYTES)).contains(&next.start) {
            return Some(Self::Follows);
        }
        let is_like = next.end - next.start == last.end - last.start;
        let distance = i64::try_from(i128::from(next.start) - i128::from(last.start)).ok()?;
        (is_like && distance != 0).then_some(Self::Distance(distance))
    }
}

impl Pattern {
    pub(super) fn new() -> Self {
        Self { last: 0..0, step: None, steps: 0, needed: 1, window: 0 }
    }

    /// The program reads. Returns whether it does not go on as it did.
    pub(super) fn on_read(&mut self, read: &Range<u64>, window_max: u64) -> bool {
        if read.is_empty() {
            return false;
        }
        let is_first = self.last.is_empty();
        let step = if is_first { None } else { Step::between(&self.last, read) };
        let length = read.end - read.start;
        let last_end = self.last.end;
        self.last = read.clone();
        if step.is_some() && step == self.step {
            self.steps += 1;
            if self.steps >= 2 * self.needed {
                self.needed = (self.needed / 2).max(1);
            }
        } else {
            let was_wrong = self.window > 0;
            if was_wrong {
                self.needed = (2 * self.needed).min(REGULAR_READS_MAX);
            }
            (self.step, self.steps, self.window) = (step, u32::from(step.is_some()), 0);
            if was_wrong || read.start != last_end {
                return true;
            }
        }
        if self.is_regular() {
            let first = FIRST_AHEAD_BYTES.max(length.saturating_mul(2));
            self.window = first.max(self.window.saturating_mul(2)).min(window_max);
        }
        false
    }

    /// A program that reads one thing after the other is regular at once; one distance is not a
    /// distance that repeats.
    fn is_regular(&self) -> bool {
        match self.step {
            Some(Step::Follows) => self.steps >= self.needed,
            Some(Step::Distance(_)) => self.steps > self.needed,
            None => false,
        }
    }

    /// What the program would read next.
    pub(super) fn targets(
        &self,
        prefetch: Prefetch,
        window_max: u64,
    ) -> impl Iterator<Item = Range<u64>> + use<> {
        let (distance, window) = match (prefetch, self.step) {
            (Prefetch::Auto | Prefetch::Always, Some(Step::Distance(distance)))
                if self.is_regular() =>
            {
                (distance, self.window)
            }
            (Prefetch::Always, _) => (0, window_max),
            (Prefetch::Auto, Some(Step::Follows)) if self.is_regular() => (0, self.window),
            _ => (0, 0),
        };
        // Chunks are read ahead whole, or a program with small reads would have a request for each.
        let follows = match self.last.end.saturating_add(window) {
            end if window < CHUNK_BYTES => self.last.end..end,
            end => self.last.end..end - end % CHUNK_BYTES,
        };
        let last = self.last.clone();
        let length = (last.end - last.start).max(1);
        let count = if distance == 0 { u64::from(window > 0) } else { window / length };
        (1..=count)
            .map_while(move |number| match distance {
                0 => Some(follows.clone()),
                distance => {
                    let way = distance.checked_mul(i64::try_from(number).ok()?)?;
                    let start = last.start.checked_add_signed(way)?;
                    Some(start..start.checked_add(length)?)
                }
            })
            .filter(|target| target.start < target.end)
    }
}
