//! Which times of two file systems count as the same.
//!
//! Many file systems keep times in a coarser unit than the one in which they were set (100 ns, 1 s
//! or 2 s instead of 1 ns), and only times of a limited range. A file there has not the time of its
//! source, but the time that the file system made of it. [`KeptTimes`] describes this rule. It is
//! learned from what a file system returned after times were set. Where nothing may be written, in
//! a dry run, [`looks_kept`] judges by the times that are there.
//!
//! This module does not read or set any time.

use crate::entry::Timestamp;

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// The units in which file systems keep times, in nanoseconds: decimal parts of a second, and the
/// two seconds of FAT.
const UNITS: [i128; 11] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    NANOS_PER_SECOND,
    LONGEST_UNIT,
];

/// The longest unit in which a known file system keeps times, in nanoseconds: FAT's two seconds.
pub(crate) const UNIT_NANOS_MAX: u32 = 2_000_000_000;
pub(crate) const LONGEST_UNIT: i128 = UNIT_NANOS_MAX as i128;

/// The shortest time between two ticks of the clock that Linux writes into files, in nanoseconds
/// (1000 ticks per second). Times that are closer together do not tell two states of a file apart
/// in any case.
const SHORTEST_TICK: i128 = 1_000_000;

/// How a file system makes a time a multiple of its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Down,
    Up,
    Nearest,
}

/// The unit of a file system's times, in nanoseconds, and how other times are rounded to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rounding {
    unit: i128,
    direction: Direction,
}

impl Rounding {
    const NONE: Self = Self { unit: 1, direction: Direction::Down };

    fn of(self, time: Timestamp) -> Timestamp {
        let Self { unit, direction } = self;
        let nanos = nanos_of(time);
        let below = nanos.div_euclid(unit) * unit;
        let rest = nanos - below;
        let is_up = match direction {
            Direction::Down => false,
            Direction::Up => rest > 0,
            Direction::Nearest => rest * 2 >= unit,
        };
        time_of(if is_up { below + unit } else { below })
    }
}

/// The times that a file system keeps, and what becomes of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptTimes {
    rounding: Rounding,
    earliest: Option<Timestamp>,
    latest: Option<Timestamp>,
}

impl KeptTimes {
    /// The times to be set on a file, one after the other, to learn what the file system keeps of
    /// them. The first three tell all roundings apart: all digits below the second are above the
    /// middle of their unit, or below it, and seconds are odd and even. The others are beyond most
    /// limits; cut to 32 bits, they are on the wrong side of the first three.
    pub const PROBES: [Timestamp; 5] = [
        Timestamp { seconds: 1_000_000_001, nanos: 678_967_896 },
        Timestamp { seconds: 1_000_000_000, nanos: 432_143_214 },
        Timestamp { seconds: 1_000_000_001, nanos: 432_143_214 },
        Timestamp { seconds: (1 << 31) - (1 << 40), nanos: 0 },
        Timestamp { seconds: 1 << 40, nanos: 0 },
    ];

    /// Returns the rule of a file system that returned these times after [`Self::PROBES`] were set.
    /// A file system that follows no known rule counts as one that keeps every time.
    #[must_use]
    pub fn learned(returned: [Timestamp; Self::PROBES.len()]) -> Self {
        let explains = |rounding: &Rounding| {
            (0..3).all(|index| rounding.of(Self::PROBES[index]) == returned[index])
        };
        let directions = [Direction::Down, Direction::Up, Direction::Nearest];
        let roundings_of =
            |unit| directions.into_iter().map(move |direction| Rounding { unit, direction });
        let Some(rounding) = UNITS.into_iter().flat_map(roundings_of).find(explains) else {
            return Self { rounding: Rounding::NONE, earliest: None, latest: None };
        };
        let [.., earliest, latest] = returned;
        let is_other = |index: usize, got| rounding.of(Self::PROBES[index]) != got;
        // Some file systems drop the high bits of a time instead of limiting it.
        let earliest = (is_other(3, earliest) && earliest < Self::PROBES[1]).then_some(earliest);
        let latest = (is_other(4, latest) && latest > Self::PROBES[0]).then_some(latest);
        Self { rounding, earliest, latest }
    }

    /// Returns the unit of the times, in nanoseconds: at most two seconds.
    #[must_use]
    pub fn unit_nanos(&self) -> u32 {
        unit_nanos(self.rounding.unit)
    }

    /// Returns the time that a file has on this file system after `time` was set.
    #[must_use]
    pub fn kept(&self, time: Timestamp) -> Timestamp {
        let time = self.rounding.of(time);
        let time = self.earliest.map_or(time, |earliest| time.max(earliest));
        self.latest.map_or(time, |latest| time.min(latest))
    }
}

/// Reports whether `there` looks like the time that a coarse file system made of `source`. To be
/// used where the rule of the file system cannot be learned.
///
/// Differences below a millisecond never count, because no file system's clock shows that two
/// states of a file are so close together. A longer unit counts only if `changed`, a time that the
/// file system itself wrote into the same file, is a multiple of that unit, too.
#[must_use]
pub fn looks_kept(source: Timestamp, there: Timestamp, changed: Timestamp) -> bool {
    let mut unit = longest_unit_of(there);
    if unit > SHORTEST_TICK {
        unit = unit.min(longest_unit_of(changed).max(SHORTEST_TICK));
    }
    let directions = [Direction::Down, Direction::Up];
    directions.into_iter().any(|direction| Rounding { unit, direction }.of(source) == there)
}

/// Returns an earlier time that no file system takes for this one, whatever its unit.
#[must_use]
pub fn clearly_before(time: Timestamp) -> Timestamp {
    time_of(nanos_of(time) - LONGEST_UNIT)
}

/// Returns the unit of the times of a file system, in nanoseconds, as far as one time that it wrote
/// itself shows it: the longest known unit that this time is a multiple of.
#[must_use]
pub fn looks_like_unit_nanos(written: Timestamp) -> u32 {
    unit_nanos(longest_unit_of(written))
}

fn unit_nanos(unit: i128) -> u32 {
    u32::try_from(unit).expect("at most two seconds")
}

/// Returns the longest known unit that a time is a multiple of, in nanoseconds.
pub(crate) fn longest_unit_of(time: Timestamp) -> i128 {
    let nanos = nanos_of(time);
    UNITS.into_iter().rev().find(|unit| nanos.rem_euclid(*unit) == 0).unwrap_or(1)
}

/// Returns a time in nanoseconds since 1970.
pub(crate) fn nanos_of(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOS_PER_SECOND + i128::from(time.nanos)
}

/// Returns the time that is this many nanoseconds after 1970, or the nearest possible time.
pub(crate) fn time_of(nanos: i128) -> Timestamp {
    let seconds = nanos.div_euclid(NANOS_PER_SECOND);
    let nanos =
        u32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).expect("below a thousand million");
    match i64::try_from(seconds) {
        Ok(seconds) => Timestamp { seconds, nanos },
        Err(_) if seconds < 0 => Timestamp { seconds: i64::MIN, nanos: 0 },
        Err(_) => Timestamp { seconds: i64::MAX, nanos: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, nanos: u32) -> Timestamp {
        Timestamp { seconds, nanos }
    }

    /// A file system with this rule and these limits, as it answers to the probes.
    fn learned(
        unit: i128,
        direction: Direction,
        earliest: Timestamp,
        latest: Timestamp,
    ) -> KeptTimes {
        let rounding = Rounding { unit, direction };
        let keep = |time| rounding.of(time).clamp(earliest, latest);
        let kept = KeptTimes::learned(KeptTimes::PROBES.map(keep));
        for time in [at(-3, 1), at(0, 0), at(5_000_000_000, 7), at(1_600_000_001, 999_999_999)] {
            assert_eq!(kept.kept(time), keep(time), "{unit} {direction:?} {time:?}");
        }
        kept
    }

    #[test]
    fn the_rule_of_a_file_system_is_learned_from_what_it_returns() {
        let no_limit = (at(i64::MIN, 0), at(i64::MAX, 0));
        let limits = (at(-(1 << 31), 0), at((1 << 31) - 1, 0));
        for unit in UNITS {
            for direction in [Direction::Down, Direction::Up, Direction::Nearest] {
                for (earliest, latest) in [no_limit, limits] {
                    let kept = learned(unit, direction, earliest, latest);
                    let expected = if unit == 1 { Direction::Down } else { direction };
                    assert_eq!(kept.rounding, Rounding { unit, direction: expected });
                }
            }
        }
    }

    #[test]
    fn a_file_system_that_follows_no_rule_keeps_every_time() {
        let now = at(1_700_000_000, 5);
        let wrapped = KeptTimes::PROBES.map(|time| at(time.seconds & 0xffff_ffff, time.nanos));
        for returned in [[now; 5], wrapped] {
            let kept = KeptTimes::learned(returned);
            for time in [at(-5, 1), at(10, 3), at(1 << 41, 9)] {
                assert_eq!(kept.kept(time), time, "{returned:?}");
            }
        }
    }

    #[test]
    fn a_time_looks_kept_only_if_the_file_system_has_such_times() {
        let whole = at(1_646_561_410, 0);
        let source = at(1_646_561_410, 735_461_000);
        assert!(looks_kept(source, whole, at(1_700_000_001, 0)));
        assert!(looks_kept(at(1_646_561_409, 5), whole, at(1_700_000_001, 0)), "rounded up");
        assert!(!looks_kept(at(1_646_561_411, 0), whole, at(1_700_000_001, 0)), "a second later");
        assert!(looks_kept(at(1_646_561_411, 0), whole, at(1_700_000_002, 0)), "units of 2 s");
        assert!(!looks_kept(source, whole, at(1_700_000_001, 4_000_000)), "its clock is finer");
        // The unit of 100 ns is finer than any clock.
        let fine = at(1_646_561_410, 123_456_700);
        assert!(looks_kept(at(1_646_561_410, 123_456_789), fine, at(1_700_000_001, 123_456_789)));
        assert!(!looks_kept(at(1_646_561_410, 123_456_889), fine, at(1_700_000_001, 0)));
    }

    #[test]
    fn a_time_clearly_before_another_is_another_in_every_unit() {
        for time in [at(10, 1), at(11, 999_999_999), at(-1, 0)] {
            for unit in UNITS {
                for direction in [Direction::Down, Direction::Up, Direction::Nearest] {
                    let rounding = Rounding { unit, direction };
                    assert!(rounding.of(clearly_before(time)) < rounding.of(time));
                }
            }
        }
    }

    #[test]
    fn times_are_rounded_down_before_1970_too() {
        let seconds = Rounding { unit: NANOS_PER_SECOND, direction: Direction::Down };
        assert_eq!(seconds.of(at(-2, 500_000_000)), at(-2, 0));
        assert_eq!(time_of(nanos_of(at(-2, 500_000_000))), at(-2, 500_000_000));
        for end in [i64::MIN, i64::MAX] {
            let rounding = Rounding { unit: LONGEST_UNIT, direction: Direction::Up };
            assert!(rounding.of(at(end, 999_999_999)).seconds.abs_diff(end) <= 2, "{end}");
        }
    }
}
