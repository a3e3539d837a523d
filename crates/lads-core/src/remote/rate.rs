//! How much is done in a second, of late.

use std::time::Duration;

/// An amount and the time that it took.
#[derive(Debug)]
pub(super) struct Rate {
    amount: f64,
    seconds: f64,
    /// Half of what was measured before counts after as many seconds.
    span_seconds: f64,
}

impl Rate {
    pub(super) fn over(span_seconds: f64) -> Self {
        Self { amount: 0.0, seconds: 0.0, span_seconds }
    }

    pub(super) fn add(&mut self, amount: f64, time: Duration) {
        self.amount += amount;
        self.seconds += time.as_secs_f64();
        if self.seconds > self.span_seconds {
            (self.amount, self.seconds) = (self.amount / 2.0, self.seconds / 2.0);
        }
    }

    /// The amount in a second, if anything was measured.
    pub(super) fn get(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.amount / self.seconds)
    }
}
