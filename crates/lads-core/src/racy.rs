//! Whether a further change of a file would show in its status.
//!
//! A file system writes times into a file in its own unit (1 s on ext4 with small inodes and on
//! Lustre), by a clock that ticks every few milliseconds. Two changes within one tick leave the
//! same times. So a file that changed a moment ago may change again while it is read, or after it
//! was read, with the status that it had before. Version control systems call such times racy. A
//! file is read only when the tick of its last change is over: any change from then on leaves other
//! times, and the transfer, or the next one, notices it.
//!
//! The unit is measured by the file's own time of change, which no program can set. If the clock of
//! the file server is behind the clock of this host by more than a unit, changes may go unnoticed.
//!
//! The next transfer compares the file's modification time with the one that the sink keeps,
//! perhaps in a coarser unit. So a file is read only when that unit is over, too
//! ([`same_at_sink_for`]).

use crate::entry::{Identity, Timestamp};
use crate::times::{LONGEST_UNIT, longest_unit_of, nanos_of};
use std::time::Duration;

/// The longest time between two ticks of the clocks that write times into files, in nanoseconds: 1
/// to 10 ms on Linux, and 15.6 ms on Windows servers. With half, changes on a Windows server may go
/// unnoticed; with the double, a file that changed just now is read 16 ms later.
const LONGEST_TICK: i128 = 16_000_000;

/// Reports whether a unit of times, in nanoseconds, is longer than the time between two ticks of
/// any clock, so that it decides which changes of a file show.
#[must_use]
pub fn is_coarse(unit_nanos: u32) -> bool {
    i128::from(unit_nanos) > LONGEST_TICK
}

/// Returns how long to wait from `now` on until any further change of a file leaves other times in
/// its status; `None` if every change from `now` on does. `now` must be later than the look at the
/// file.
#[must_use]
pub fn unsettled_for(identity: &Identity, now: Timestamp) -> Option<Duration> {
    let tick = longest_unit_of(identity.ctime).max(LONGEST_TICK);
    let since = |time| nanos_of(now) - nanos_of(time);
    // A time of change in the future shows that the server's clock is ahead. By the time of the
    // look, that clock showed at least this time.
    let of_ctime = tick - since(identity.ctime).max(0);
    // A program can set this time to the future.
    let of_mtime = Some(tick - since(identity.mtime)).filter(|wait| *wait <= tick);
    let wait = of_mtime.map_or(of_ctime, |of_mtime| of_mtime.max(of_ctime));
    let wait = u64::try_from(wait).ok().filter(|nanos| *nanos > 0);
    wait.map(Duration::from_nanos)
}

/// Returns how long from `now` on a change of a file may leave a modification time that is the same
/// in the longest unit in which a sink keeps times; `None` if no change does. In a shorter unit,
/// that time is over earlier by the difference of the units.
#[must_use]
pub fn same_at_sink_for(identity: &Identity, now: Timestamp) -> Option<Duration> {
    let since = |time| nanos_of(now) - nanos_of(time);
    // Only a server whose clock is ahead writes a time of change in the future. Other modification
    // times in the future were set by a program, and a change does not leave them.
    let since_mtime = match since(identity.mtime) {
        since if since < 0 && identity.mtime <= identity.ctime => 0,
        since => since,
    };
    let wait = LONGEST_UNIT - since_mtime;
    let wait = u64::try_from(wait).ok().filter(|nanos| *nanos > 0 && wait <= LONGEST_UNIT);
    wait.map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::time_of;

    const NOW: Timestamp = Timestamp { seconds: 1_700_000_003, nanos: 250_000_000 };

    fn at(seconds: i64, nanos: u32) -> Timestamp {
        Timestamp { seconds, nanos }
    }

    /// Returns the time to wait for a file with these times, in milliseconds.
    fn wait(mtime: Timestamp, ctime: Timestamp) -> Option<u128> {
        let identity = Identity { mtime, ctime, ..Identity::default() };
        unsettled_for(&identity, NOW).map(|wait| wait.as_millis())
    }

    #[test]
    fn a_file_is_waited_for_until_the_tick_of_its_last_change_is_over() {
        let fine = at(1_700_000_003, 240_000_001);
        assert_eq!(wait(fine, fine), Some(6));
        let odd_second = at(1_700_000_003, 0);
        assert_eq!(wait(odd_second, odd_second), Some(750));
        let even_second = at(1_700_000_002, 0);
        assert_eq!(wait(even_second, even_second), Some(750), "the unit may be 2 s");
        let last = at(1_700_000_001, 0);
        assert_eq!(wait(last, last), None);
    }

    #[test]
    fn a_file_system_with_fine_times_costs_no_second() {
        for age in [0, 1, 15, 100, 900] {
            let nanos = (250 - age % 250) * 1_000_000 + 1;
            let time = at(1_700_000_003, nanos);
            assert!(wait(time, time).is_none_or(|wait| wait <= 16), "{age}");
            // A program has set the time to a whole second, of the past or the future.
            for mtime in [at(1_700_000_003, 0), at(1_700_000_004, 0), at(5_000_000_000, 0)] {
                assert!(wait(mtime, time).is_none_or(|wait| wait <= 16), "{age} {mtime:?}");
            }
        }
        assert_eq!(wait(at(1_600_000_000, 0), at(1_700_000_002, 900_000_001)), None);
    }

    #[test]
    fn a_server_whose_clock_is_ahead_is_waited_for_by_one_tick() {
        assert_eq!(wait(at(1_700_000_009, 0), at(1_700_000_009, 0)), Some(1000));
        assert_eq!(wait(at(1_700_000_009, 1), at(1_700_000_009, 1)), Some(16));
    }

    #[test]
    fn the_time_of_data_counts_where_the_file_system_has_no_time_of_change() {
        assert_eq!(wait(at(1_700_000_003, 0), at(0, 0)), Some(1750));
        assert_eq!(wait(at(1_700_000_000, 0), at(0, 0)), None);
    }

    /// As [`wait`], until the modification time is another one at every sink.
    fn wait_for_sink(mtime: Timestamp, ctime: Timestamp) -> Option<u128> {
        let identity = Identity { mtime, ctime, ..Identity::default() };
        same_at_sink_for(&identity, NOW).map(|wait| wait.as_millis())
    }

    #[test]
    fn a_modification_time_is_another_one_at_every_sink_after_two_seconds() {
        let long_ago = at(1_000_000_000, 5);
        assert_eq!(wait_for_sink(long_ago, NOW), None, "a change leaves a new time");
        let before = |millis: i128| time_of(nanos_of(NOW) - millis * 1_000_000);
        for (millis, expected) in [(0, Some(2000)), (1, Some(1999)), (1999, Some(1)), (2000, None)]
        {
            assert_eq!(wait_for_sink(before(millis), before(millis)), expected, "{millis}");
        }
        assert_eq!(wait_for_sink(before(-500), before(-500)), Some(2000), "the clock is ahead");
        assert_eq!(wait_for_sink(before(-500), before(100)), None, "set by a program");
    }
}
