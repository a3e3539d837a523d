//! From which value to which an axis goes, at which round numbers it has ticks, and what is written
//! there: times in seconds, minutes, hours or days, whichever makes the numbers short.

/// What the values of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Bytes in a second.
    Rate,
    /// Seconds.
    Time,
    /// A part of a whole, from 0 to 1.
    Share,
}

/// A unit, and how much it is.
type Unit = (&'static str, f64);

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

const RATES: [Unit; 5] =
    [("B/s", 1.0), ("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9), ("TB/s", 1e12)];
const TIMES: [Unit; 4] = [("s", 1.0), ("min", MINUTE), ("h", HOUR), ("d", DAY)];
const SHARES: [Unit; 1] = [("%", 0.01)];

/// Steps of seconds, minutes and hours that are read at a glance. Below and above, days, it is 1, 2
/// and 5 times a power of ten.
const TIME_STEPS: [f64; 16] = [
    10.0,
    20.0,
    30.0,
    MINUTE,
    2.0 * MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    20.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    3.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
];
/// The same for an axis of several decades, between seconds and days.
const TIME_DECADES: [f64; 5] = [10.0, MINUTE, 10.0 * MINUTE, HOUR, 6.0 * HOUR];

/// On a logarithmic axis, what is less than this part of the greatest lies at the edge.
const DECADES_MAX: i32 = 6;
/// With fewer ticks, a logarithmic axis has those between powers of ten, too.
const DECADE_TICKS_MIN: usize = 4;
/// A straight axis has this many ticks at most, and seldom less than half: with twice as many, the
/// larger numbers touch each other; with half, many axes have two.
const TICKS: f64 = 6.0;

/// An axis with its ticks.
#[derive(Debug)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    /// Values, and what is written there.
    pub(super) ticks: Vec<(f64, String)>,
    /// In which all of them are, if it is not written at each.
    pub(super) unit: Option<&'static str>,
}

impl Scale {
    /// For all values. A straight one begins at zero: what differs by a thousandth should not look
    /// as if it differed by much.
    pub(super) fn of(
        values: impl Iterator<Item = f64> + Clone,
        quantity: Quantity,
        is_logarithmic: bool,
    ) -> Self {
        let most = values.clone().fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        if is_logarithmic {
            let positive = values.filter(|value| *value > 0.0);
            let least = positive.fold(most, f64::min).max(most / 10_f64.powi(DECADES_MAX));
            return Self::logarithmic(least, most, quantity);
        }
        Self::straight(most, quantity)
    }

    fn straight(to: f64, quantity: Quantity) -> Self {
        let wish = to / TICKS;
        let (step, (name, size)) = match quantity {
            Quantity::Time => {
                let step = time_step(wish);
                (step, unit_of(&TIMES, step))
            }
            Quantity::Rate => {
                let unit = unit_of(&RATES, to);
                (nice_step(wish / unit.1) * unit.1, unit)
            }
            Quantity::Share => (nice_step(wish), SHARES[0]),
        };
        let values = (0..).map(|index| f64::from(index) * step);
        let values = values.take_while(|value| *value <= to + step * 1e-6);
        let ticks = values.map(|value| {
            let number = plain(value / size, step / size);
            // A sign behind each number is usual for shares, and short.
            let said =
                if quantity == Quantity::Share { format!("{number} {name}") } else { number };
            (value, said)
        });
        let ticks = ticks.collect();
        let unit = (quantity != Quantity::Share).then_some(name);
        Self { from: 0.0, to, is_logarithmic: false, ticks, unit }
    }

    fn logarithmic(least: f64, most: f64, quantity: Quantity) -> Self {
        let coarse = within(&decades(quantity, least, most), least, most);
        let values = match coarse.len() {
            DECADE_TICKS_MIN.. => coarse,
            _ => within(&between(quantity, least, most), least, most),
        };
        let units: &[Unit] = match quantity {
            Quantity::Time => &TIMES,
            Quantity::Rate => &RATES,
            Quantity::Share => &SHARES,
        };
        let said = |&value: &f64| {
            let (name, size) = unit_of(units, value);
            (value, format!("{} {name}", plain(value / size, value / size)))
        };
        let ticks: Vec<_> = values.iter().map(said).collect();
        let (from, to) = (values[0], values[values.len() - 1]);
        Self { from, to, is_logarithmic: true, ticks, unit: None }
    }

    /// Where a value lies, from 0 to 1.
    pub(super) fn part(&self, value: f64) -> f64 {
        let part = match self.is_logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The largest unit that a value is not less than, or the smallest.
fn unit_of(units: &[Unit], value: f64) -> Unit {
    units.iter().rev().find(|unit| unit.1 <= value * 1.000_001).copied().unwrap_or(units[0])
}

/// Powers of ten around two values; of times those that have a name.
fn decades(quantity: Quantity, least: f64, most: f64) -> Vec<f64> {
    let powers = powers(least, most);
    match quantity {
        Quantity::Time => {
            let below = powers.iter().copied().filter(|power| *power <= 1.0);
            below.chain(TIME_DECADES).chain(whole_days(most)).collect()
        }
        Quantity::Rate | Quantity::Share => powers,
    }
}

/// The same, with what is between.
fn between(quantity: Quantity, least: f64, most: f64) -> Vec<f64> {
    let times = powers(least, most).into_iter().flat_map(|it| [it, 2.0 * it, 5.0 * it]);
    match quantity {
        Quantity::Time => {
            let below = times.filter(|it| *it < TIME_STEPS[0]);
            let above = whole_days(most).into_iter().flat_map(|it| [it, 2.0 * it, 5.0 * it]);
            let last = TIME_STEPS[TIME_STEPS.len() - 1];
            below.chain(TIME_STEPS).chain(above.filter(|it| *it > last)).collect()
        }
        Quantity::Rate | Quantity::Share => times.collect(),
    }
}

/// From the power of ten below the least to that above the most.
fn powers(least: f64, most: f64) -> Vec<f64> {
    let first = least.log10().floor();
    let powers = (0..).map(|index| 10_f64.powf(first + f64::from(index)));
    // A power more than needed: they must go on beyond the most.
    let mut powers: Vec<f64> = powers.take_while(|power| *power < most * 10.0).collect();
    powers.push(10_f64.powf(first + powers.len() as f64));
    powers
}

/// 1 day, 10 days and so on, beyond the most.
fn whole_days(most: f64) -> Vec<f64> {
    powers(1.0, (most / DAY).max(1.0)).into_iter().map(|power| power * DAY).collect()
}

/// The last candidate that is not above the least, the first that is not below the most, and what
/// is between; at least two.
fn within(candidates: &[f64], least: f64, most: f64) -> Vec<f64> {
    let first = candidates.iter().rposition(|it| *it <= least).unwrap_or(0);
    let last = candidates.iter().position(|it| *it >= most).unwrap_or(candidates.len() - 1);
    let first = first.min(candidates.len() - 2);
    candidates[first..=last.max(first + 1)].to_vec()
}

/// A round time, not below the wish.
fn time_step(wish: f64) -> f64 {
    if wish <= 5.0 {
        return nice_step(wish);
    }
    let step = TIME_STEPS.into_iter().find(|step| *step >= wish * 0.999);
    step.unwrap_or_else(|| nice_step(wish / DAY) * DAY)
}

/// 1, 2 or 5 times a power of ten, not below the wish.
pub(crate) fn nice_step(wish: f64) -> f64 {
    if wish <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(wish.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= wish * 0.999);
    power * times.unwrap_or(10.0)
}

/// A number that is a multiple of a step, with no more digits than that needs: `0`, `0.5`, `20`.
fn plain(number: f64, step: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "numbers of a plot have few digits")]
    let digits = (0.0 - (step * 1.000_001).log10().floor()).clamp(0.0, 12.0) as i32;
    let said = format!("{number:.*}", digits.unsigned_abs() as usize);
    match said.split_once('.') {
        Some(_) => said.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Quantity::{Rate, Share, Time};

    fn said(from: f64, to: f64, quantity: Quantity, is_logarithmic: bool) -> String {
        let scale = Scale::of([from, to].into_iter(), quantity, is_logarithmic);
        assert!(scale.ticks.windows(2).all(|pair| pair[0].0 < pair[1].0), "{scale:?}");
        let words: Vec<&str> = scale.ticks.iter().map(|it| it.1.as_str()).collect();
        format!("{} ({})", words.join(" | "), scale.unit.unwrap_or("-"))
    }

    #[test]
    fn ticks_are_at_round_numbers_in_a_unit_that_fits() {
        let expected = [
            (0.0, 0.9, Time, "0 | 0.2 | 0.4 | 0.6 | 0.8 (s)"),
            (0.0, 45.2, Time, "0 | 10 | 20 | 30 | 40 (s)"),
            (0.0, 130.0, Time, "0 | 30 | 60 | 90 | 120 (s)"),
            (0.0, 1000.0, Time, "0 | 5 | 10 | 15 (min)"),
            (0.0, 6000.0, Time, "0 | 20 | 40 | 60 | 80 | 100 (min)"),
            (0.0, 9.0 * HOUR, Time, "0 | 2 | 4 | 6 | 8 (h)"),
            (0.0, 2.2 * DAY, Time, "0 | 12 | 24 | 36 | 48 (h)"),
            (0.0, 92.0 * DAY, Time, "0 | 20 | 40 | 60 | 80 (d)"),
            (0.0, 2.2e6, Rate, "0 | 0.5 | 1 | 1.5 | 2 (MB/s)"),
            (0.0, 999.0, Rate, "0 | 200 | 400 | 600 | 800 (B/s)"),
            (90e9, 100e9, Rate, "0 | 20 | 40 | 60 | 80 | 100 (GB/s)"),
            (0.0, 1.0, Share, "0 % | 20 % | 40 % | 60 % | 80 % | 100 % (-)"),
            (0.0, 0.0, Time, "0 | 0.2 | 0.4 | 0.6 | 0.8 | 1 (s)"),
        ];
        for (from, to, quantity, expected) in expected {
            assert_eq!(said(from, to, quantity, false), expected, "{from} to {to}");
        }
    }

    #[test]
    fn decades_of_time_are_seconds_minutes_hours_and_days() {
        let expected = [
            (
                1.0,
                50.0 * DAY,
                Time,
                "1 s | 10 s | 1 min | 10 min | 1 h | 6 h | 1 d | 10 d | 100 d (-)",
            ),
            (0.1, 58.0, Time, "0.1 s | 1 s | 10 s | 1 min (-)"),
            (2.0, 50.0, Time, "2 s | 5 s | 10 s | 20 s | 30 s | 1 min (-)"),
            (2e3, 3e6, Rate, "1 kB/s | 10 kB/s | 100 kB/s | 1 MB/s | 10 MB/s (-)"),
            (2e3, 8e4, Rate, "2 kB/s | 5 kB/s | 10 kB/s | 20 kB/s | 50 kB/s | 100 kB/s (-)"),
        ];
        for (from, to, quantity, expected) in expected {
            assert_eq!(said(from, to, quantity, true), expected, "{from} to {to}");
        }
    }

    #[test]
    fn every_value_lies_between_the_first_and_the_last_tick_of_a_logarithmic_axis() {
        for exponent in -90..150 {
            let most = 10_f64.powf(f64::from(exponent) / 10.0);
            for quantity in [Time, Rate] {
                for decades in [0.0, 0.5, 1.7, 4.0, 9.0] {
                    let least = most / 10_f64.powf(decades);
                    let scale = Scale::of([least, most].into_iter(), quantity, true);
                    let (first, last) = (scale.from, scale.to);
                    assert!(first < last && most <= last * 1.000_001, "{most} {scale:?}");
                    let is_cut = decades > f64::from(DECADES_MAX);
                    assert!(first <= least * 1.000_001 || is_cut, "{least} {scale:?}");
                    assert!(scale.ticks.len() <= 12, "{scale:?}");
                }
            }
        }
    }
}
