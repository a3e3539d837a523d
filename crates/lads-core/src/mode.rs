//! Modes in which storage can be used, and which of those that were measured is the best one
//! (`lads bench`).
//!
//! XDD characterises storage in the same way (figures 14 to 25 of its paper on long-distance
//! transfers): bandwidth over the size of requests, the number of threads and their order.

/// Whether storage is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It is read.
    Read,
    /// It is written, and made durable.
    Write,
}

/// Which way bytes take between a program and storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Past the page cache (`O_DIRECT`).
    Direct,
    /// Through the page cache, which is empty before a read.
    Buffered,
}

/// In which order the threads issue requests, as in XDD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Each thread has its own requests, and waits for no other thread.
    None,
    /// A request is issued as soon as the one before it in the file has been issued.
    Loose,
    /// A request is issued when the one before it in the file has ended.
    Serial,
}

/// One way to use storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Whether it is read or written.
    pub direction: Direction,
    /// Which way bytes take between a program and storage.
    pub caching: Caching,
    /// In which order requests are issued.
    pub order: Order,
    /// The size of a request in bytes.
    pub request_bytes: u32,
    /// The number of threads; each has one request at a time.
    pub thread_count: u16,
}

impl Mode {
    /// The bytes of all requests that are in flight at a time.
    #[must_use]
    pub fn bytes_in_flight(&self) -> u64 {
        u64::from(self.request_bytes) * u64::from(self.thread_count)
    }
}

/// What was measured of a mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The mode.
    pub mode: Mode,
    /// Bytes per second, one figure for each time it was measured; empty if it never was.
    pub rates: Vec<f64>,
}

impl Figure {
    /// The rate in the middle, in bytes per second; of an even number, the lower one of the two.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut rates = self.rates.clone();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len().saturating_sub(1) / 2).copied()
    }

    /// The lowest and the highest rate.
    #[must_use]
    pub fn spread(&self) -> Option<(f64, f64)> {
        let least = self.rates.iter().copied().min_by(f64::total_cmp)?;
        let most = self.rates.iter().copied().max_by(f64::total_cmp)?;
        Some((least, most))
    }
}

/// Modes within this share of the highest rate are as good as the one that has it. Runs of a few
/// tenths of a second differ by some percent. With half of the distance (97.5 %), the mode that is
/// named changes from run to run on a quiet disk. With the double (90 %), a tenth is given away.
const AS_GOOD: f64 = 0.95;

/// The best mode for a direction: of those that are as good as the fastest, the one with the fewest
/// threads, then the one with the smallest requests, then the one bypassing the page cache.
#[must_use]
pub fn best(figures: &[Figure], direction: Direction) -> Option<&Figure> {
    let rated = || {
        let of_direction = figures.iter().filter(move |it| it.mode.direction == direction);
        of_direction.filter_map(|it| Some((it, it.median()?)))
    };
    let highest = rated().map(|(_, rate)| rate).max_by(f64::total_cmp)?;
    let cost =
        |mode: &Mode| (mode.thread_count, mode.request_bytes, mode.caching == Caching::Buffered);
    let good = rated().filter(|&(_, rate)| rate >= AS_GOOD * highest);
    good.map(|(figure, _)| figure).min_by_key(|it| cost(&it.mode))
}

/// Returns which request of the file a thread issues when there is no order: its `count`-th one.
///
/// Threads take turns in the file, so that all of them read or write in one place.
#[must_use]
pub fn unordered(thread: u16, thread_count: u16, count: u64) -> u64 {
    u64::from(thread) + count * u64::from(thread_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(request_bytes: u32, thread_count: u16, caching: Caching, rates: &[f64]) -> Figure {
        let (direction, order) = (Direction::Read, Order::None);
        let mode = Mode { direction, caching, order, request_bytes, thread_count };
        Figure { mode, rates: rates.to_vec() }
    }

    #[test]
    fn of_modes_that_are_as_good_the_one_that_costs_least_is_best() {
        let figures = [
            figure(1 << 20, 16, Caching::Direct, &[100.0, 101.0, 90.0]),
            figure(4 << 20, 4, Caching::Direct, &[96.0]),
            figure(1 << 20, 4, Caching::Buffered, &[97.0]),
            figure(1 << 20, 4, Caching::Direct, &[95.5]),
            figure(1 << 20, 1, Caching::Direct, &[94.0]),
            figure(1 << 16, 1, Caching::Direct, &[]),
        ];
        assert_eq!(best(&figures, Direction::Read), Some(&figures[3]));
        assert_eq!(best(&figures[4..], Direction::Read), Some(&figures[4]));
        assert_eq!(best(&figures, Direction::Write), None);
        assert_eq!(best(&figures[5..], Direction::Read), None, "it was never measured");
    }

    #[test]
    fn a_figure_tells_median_and_spread() {
        let of = |rates: &[f64]| figure(1, 1, Caching::Direct, rates);
        assert_eq!(of(&[3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(of(&[3.0, 1.0]).median(), Some(1.0));
        assert_eq!(of(&[3.0, 1.0, 2.0]).spread(), Some((1.0, 3.0)));
        assert_eq!((of(&[]).median(), of(&[]).spread()), (None, None));
    }

    #[test]
    fn without_order_every_request_is_issued_once() {
        let mut requests: Vec<u64> = (0..3)
            .flat_map(|thread| (0..4).map(move |count| unordered(thread, 3, count)))
            .collect();
        requests.sort_unstable();
        assert_eq!(requests, (0..12).collect::<Vec<u64>>());
    }
}
