//! How long to sleep between looks at something that is usually over at once, such as the end of a
//! thread or a process, where nothing wakes whoever waits.

use std::time::Duration;

/// The first pause. With half, a wait of a millisecond looks six times instead of five; with
/// double, a wait for what is over at once takes 50 µs more.
const FIRST: Duration = Duration::from_micros(50);

/// Pauses, each twice as long as the one before. So a wait takes at most twice as long as it must,
/// and a long one costs few looks.
///
/// With looks at fixed intervals of 1 and 2 ms, to end a transfer of one small file took 5 of its
/// 18 ms.
#[derive(Clone, Debug)]
pub struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    /// Begins with a short pause; none is longer than `longest`.
    #[must_use]
    pub fn up_to(longest: Duration) -> Self {
        Self { next: FIRST.min(longest), longest }
    }

    /// Returns how long to sleep before the next look.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut pauses = Pauses::up_to(Duration::from_micros(300));
        let micros: Vec<_> = (0..5).map(|_| pauses.next_pause().as_micros()).collect();
        assert_eq!(micros, [50, 100, 200, 300, 300]);
        assert_eq!(Pauses::up_to(Duration::ZERO).next_pause(), Duration::ZERO);
    }
}
