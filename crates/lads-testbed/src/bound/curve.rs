//! The number of bytes that could have passed by a given moment: the arithmetic of fluids.
//!
//! A [`Curve`] gives the number of bytes at each second. It begins at second zero, never falls, is
//! made of straight lines, and goes on for ever with the slope of its last line. Rates that change
//! in steps are [`Steps`]; their integral is a curve.

/// One corner of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Corner {
    seconds: f64,
    bytes: f64,
}

/// A number of bytes as a function of seconds, made of straight lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Sorted by time; the first is at second zero.
    corners: Vec<Corner>,
    /// The slope after the last corner, in bytes per second.
    slope_after: f64,
}

impl Curve {
    /// Returns the bytes that a server with these rates could move if it were always busy.
    pub fn integral(rates: &Steps) -> Self {
        let mut corners = vec![Corner { seconds: 0.0, bytes: 0.0 }];
        for pair in rates.steps.windows(2) {
            let last = corners.last().expect("there is one from the start").bytes;
            let length = pair[1].seconds - pair[0].seconds;
            let bytes = last + pair[0].bytes_per_second * length;
            corners.push(Corner { seconds: pair[1].seconds, bytes });
        }
        Self { corners, slope_after: rates.last() }
    }

    /// A curve that has this number of bytes at all times.
    pub fn constant(bytes: f64) -> Self {
        Self { corners: vec![Corner { seconds: 0.0, bytes }], slope_after: 0.0 }
    }

    /// Returns the number of bytes at this second.
    pub fn at(&self, seconds: f64) -> f64 {
        let index = self.corners.partition_point(|corner| corner.seconds <= seconds).max(1) - 1;
        let from = self.corners[index];
        let slope = match self.corners.get(index + 1) {
            Some(to) => (to.bytes - from.bytes) / (to.seconds - from.seconds),
            None => self.slope_after,
        };
        from.bytes + slope * (seconds - from.seconds)
    }

    /// Returns the first second at which this number of bytes is reached, if it ever is.
    pub fn time_of(&self, bytes: f64) -> Option<f64> {
        let reached = self.corners.iter().position(|corner| corner.bytes >= bytes);
        match reached {
            Some(0) => Some(0.0),
            Some(index) => {
                let (from, to) = (self.corners[index - 1], self.corners[index]);
                let share = (bytes - from.bytes) / (to.bytes - from.bytes);
                Some(from.seconds + share * (to.seconds - from.seconds))
            }
            None => {
                let last = self.corners.last().expect("never empty");
                let left = bytes - last.bytes;
                (self.slope_after > 0.0).then(|| last.seconds + left / self.slope_after)
            }
        }
    }

    /// Returns the sum of the two curves.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.combined(other, self.slope_after + other.slope_after, |own, other| own + other)
    }

    /// Returns the smaller of the two curves at each moment.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        let mut times = self.times_with(other);
        times.extend(self.crossings(other, &times));
        times.sort_by(f64::total_cmp);
        let last = *times.last().expect("never empty");
        let is_self_last = self.at(last + 1.0) <= other.at(last + 1.0);
        let slope_after = if is_self_last { self.slope_after } else { other.slope_after };
        Self::through_points(&times, slope_after, |t| self.at(t).min(other.at(t)))
    }

    /// Returns the bytes that have left a server, where `self` is what has come to it and
    /// `capacity` is what it can move. Nothing leaves before it came, and nothing waits longer than
    /// it must.
    ///
    /// The result is a minimum over all moments up to now: what had come by that moment, plus what
    /// the server could move since (Le Boudec & Thiran, Network Calculus, 2001, theorem 1.5.3).
    #[must_use]
    pub fn through(&self, capacity: &Self) -> Self {
        let slope = self.slope_after - capacity.slope_after;
        let backlog_side = self.combined(capacity, slope, |come, could| come - could);
        backlog_side.lowest_so_far().plus(capacity)
    }

    /// Returns the lowest value up to each moment; before the start, the value was zero.
    fn lowest_so_far(&self) -> Self {
        let mut lowest = self.corners[0].bytes.min(0.0);
        let mut corners = vec![Corner { seconds: 0.0, bytes: lowest }];
        for pair in self.corners.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            if to.bytes < lowest {
                let share = ((from.bytes - lowest) / (from.bytes - to.bytes)).max(0.0);
                let seconds = from.seconds + share * (to.seconds - from.seconds);
                corners.push(Corner { seconds, bytes: lowest });
                lowest = to.bytes;
            }
            corners.push(Corner { seconds: to.seconds, bytes: lowest });
        }
        let last = self.corners[self.corners.len() - 1];
        let falls = self.slope_after < 0.0;
        if falls {
            let seconds = last.seconds + (last.bytes - lowest) / -self.slope_after;
            corners.push(Corner { seconds, bytes: lowest });
        }
        corners.dedup_by(|right, left| right.seconds <= left.seconds);
        Self { corners, slope_after: if falls { self.slope_after } else { 0.0 } }
    }

    fn combined(&self, other: &Self, slope: f64, combine: impl Fn(f64, f64) -> f64) -> Self {
        let times = self.times_with(other);
        Self::through_points(&times, slope, |t| combine(self.at(t), other.at(t)))
    }

    fn through_points(times: &[f64], slope_after: f64, bytes: impl Fn(f64) -> f64) -> Self {
        let corner = |&seconds: &f64| Corner { seconds, bytes: bytes(seconds) };
        Self { corners: times.iter().map(corner).collect(), slope_after }
    }

    /// Returns the times of the corners of both curves, each time once.
    fn times_with(&self, other: &Self) -> Vec<f64> {
        let both = self.corners.iter().chain(&other.corners);
        let mut times: Vec<f64> = both.map(|corner| corner.seconds).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        times
    }

    /// Returns the times at which the two curves cross, between these times or after the last of
    /// them.
    fn crossings(&self, other: &Self, times: &[f64]) -> Vec<f64> {
        let gap = |t: f64| self.at(t) - other.at(t);
        let mut crossings = Vec::new();
        for pair in times.windows(2) {
            let (before, after) = (gap(pair[0]), gap(pair[1]));
            if before * after < 0.0 {
                let crossing = pair[0] + before / (before - after) * (pair[1] - pair[0]);
                if pair[0] < crossing && crossing < pair[1] {
                    crossings.push(crossing);
                }
            }
        }
        let last = *times.last().expect("never empty");
        let (before, closing) = (gap(last), other.slope_after - self.slope_after);
        let crossing = last + before / closing;
        if before * closing > 0.0 && crossing > last {
            crossings.push(crossing);
        }
        crossings
    }
}

/// A rate that changes in steps and then keeps its last value.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Sorted by time; the first is at second zero.
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    seconds: f64,
    bytes_per_second: f64,
}

impl Steps {
    /// A rate that never changes.
    pub fn constant(bytes_per_second: f64) -> Self {
        Self { steps: vec![Step { seconds: 0.0, bytes_per_second }] }
    }

    /// Sets the rate from this second on. A time below zero sets the rate at the start.
    ///
    /// # Panics
    /// If a change at a later time has already been made.
    pub fn change(&mut self, seconds: f64, bytes_per_second: f64) {
        let seconds = seconds.max(0.0);
        let last = self.steps.last_mut().expect("never empty");
        assert!(last.seconds <= seconds, "{} changes behind {seconds}", last.seconds);
        if last.seconds == seconds {
            last.bytes_per_second = bytes_per_second;
        } else {
            self.steps.push(Step { seconds, bytes_per_second });
        }
    }

    /// Returns the sum of the two rates at each moment.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.combined(other, |own, other| own + other)
    }

    /// Returns the smaller of the two rates at each moment.
    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        self.combined(other, f64::min)
    }

    /// Returns whether the rate is never below this one.
    pub fn is_at_least(&self, bytes_per_second: f64) -> bool {
        self.steps.iter().all(|step| step.bytes_per_second >= bytes_per_second)
    }

    fn at(&self, seconds: f64) -> f64 {
        let index = self.steps.partition_point(|step| step.seconds <= seconds).max(1) - 1;
        self.steps[index].bytes_per_second
    }

    fn last(&self) -> f64 {
        self.steps.last().expect("never empty").bytes_per_second
    }

    fn combined(&self, other: &Self, combine: impl Fn(f64, f64) -> f64) -> Self {
        let both = self.steps.iter().chain(&other.steps);
        let mut times: Vec<f64> = both.map(|step| step.seconds).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let step = |seconds| Step {
            seconds,
            bytes_per_second: combine(self.at(seconds), other.at(seconds)),
        };
        Self { steps: times.into_iter().map(step).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 10 bytes a second for two seconds, then 2 bytes a second.
    fn slowed() -> Curve {
        let mut rates = Steps::constant(10.0);
        rates.change(2.0, 2.0);
        Curve::integral(&rates)
    }

    #[track_caller]
    fn assert_bytes<const N: usize>(curve: &Curve, expected: [(f64, f64); N]) {
        for (seconds, bytes) in expected {
            let is = curve.at(seconds);
            assert!((is - bytes).abs() < 1e-9, "{is} bytes at {seconds} s, not {bytes}");
        }
    }

    #[test]
    fn an_integral_follows_its_rates() {
        let curve = slowed();
        assert_bytes(&curve, [(0.0, 0.0), (1.0, 10.0), (2.0, 20.0), (5.0, 26.0)]);
        assert_eq!(curve.time_of(15.0), Some(1.5));
        assert_eq!(curve.time_of(30.0), Some(7.0));
    }

    #[test]
    fn what_stands_still_never_gets_there() {
        assert_eq!(Curve::integral(&Steps::constant(0.0)).time_of(1.0), None);
    }

    #[test]
    fn the_less_of_two_changes_over_where_they_cross() {
        let steady = Curve::integral(&Steps::constant(5.0));
        let less = slowed().min(&steady);
        // 20 + 2 (t - 2) = 5 t at 5.33 s.
        assert_bytes(&less, [(2.0, 10.0), (5.0, 25.0), (8.0, 32.0)]);
    }

    #[test]
    fn nothing_leaves_a_server_before_it_came() {
        let come = Curve::integral(&Steps::constant(4.0)).min(&Curve::constant(20.0));
        let mut rates = Steps::constant(10.0);
        rates.change(3.0, 2.0);
        let left = come.through(&Curve::integral(&rates));
        // Up to 3 s, all that came has left: 12 bytes. After that, 2 bytes leave per second.
        assert_bytes(&left, [(1.0, 4.0), (3.0, 12.0), (5.0, 16.0), (7.0, 20.0), (9.0, 20.0)]);
    }

    #[test]
    fn a_backlog_leaves_at_the_rate_of_the_server() {
        let come = Curve::constant(12.0);
        let mut rates = Steps::constant(0.0);
        rates.change(2.0, 6.0);
        let left = come.through(&Curve::integral(&rates));
        assert_eq!(left.time_of(12.0), Some(4.0));
    }
}
