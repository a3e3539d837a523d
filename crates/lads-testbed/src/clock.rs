//! The time, on the one clock that all programs of a machine share.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the time on `CLOCK_MONOTONIC`, which began when the machine started.
pub(crate) fn monotonic() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("it begins at zero")
}
