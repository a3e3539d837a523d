//! Time limits of tests that hold on a busy machine, too.

use std::fs;
use std::time::{Duration, Instant};

/// Measures time without the time in which a thread of this machine waited for a processor.
///
/// A limit for this time holds on a machine with nothing else to do. On a busy machine, it is
/// extended by as much time as the machine was busy, so that a test fails only for a reason of its
/// own. Where the kernel does not count that time (`/proc/pressure/cpu`), it is the whole time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    began: Instant,
    busy: Duration,
}

impl Stopwatch {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { began: Instant::now(), busy: busy() }
    }

    /// Returns the time since the start without the time in which a thread waited for a processor.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let waited = busy().saturating_sub(self.busy);
        self.began.elapsed().saturating_sub(waited)
    }
}

/// Returns the time since the machine was started in which at least one thread waited for a
/// processor.
fn busy() -> Duration {
    let pressure = fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    Duration::from_micros(total_of(&pressure).unwrap_or(0))
}

fn total_of(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_the_kernel_is_read() {
        let pressure = "some avg10=99.37 avg60=99.24 avg300=96.78 total=1293730985\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(total_of(pressure), Some(1_293_730_985));
        assert_eq!(total_of(""), None);
    }

    #[test]
    fn the_time_is_never_longer_than_that_of_a_clock() {
        let (began, watch) = (Instant::now(), Stopwatch::start());
        let measured = watch.elapsed();
        assert!(measured <= began.elapsed());
    }
}
