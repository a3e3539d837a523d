//! How numbers are distributed.

/// Numbers in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    sorted: Vec<f64>,
}

impl FromIterator<f64> for Distribution {
    fn from_iter<I: IntoIterator<Item = f64>>(numbers: I) -> Self {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        Self { sorted }
    }
}

impl Distribution {
    /// Returns how many numbers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The least number of which this many percent of all are not greater, as it is read from a
    /// cumulative plot (nearest rank); zero if there are none.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> f64 {
        let count = self.sorted.len();
        if count == 0 {
            return 0.0;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most as many as there are, and none is less than zero"
        )]
        // What is a whole number but for the rounding of a division is one.
        let rank = (percent / 100.0 * count as f64 - 1e-9).ceil().max(1.0) as usize;
        self.sorted[rank.min(count) - 1]
    }

    /// The mean; zero if there are none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sorted.iter().sum::<f64>() / self.sorted.len().max(1) as f64
    }

    /// The greatest; zero if there are none.
    #[must_use]
    pub fn maximum(&self) -> f64 {
        self.sorted.last().copied().unwrap_or(0.0)
    }

    /// About this many points of the cumulative plot: a number, and the part of all, from 0 to 1,
    /// that are not greater. The first and the last are always among them.
    pub fn curve(&self, points: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
        let count = self.sorted.len();
        let points = points.max(2).min(count);
        let index = move |point: usize| point * (count - 1) / (points - 1).max(1);
        (0..points)
            .map(index)
            .map(move |index| (self.sorted[index], (index + 1) as f64 / count as f64))
    }
}
