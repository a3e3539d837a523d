//! How much processor time and memory this process has used.

use std::time::Duration;

/// What a process has used since it began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor time, user and system.
    pub cpu: Duration,
    /// Largest resident memory, in bytes.
    pub memory_bytes_peak: u64,
}

/// What this process has used.
#[must_use]
pub fn usage() -> Usage {
    // SAFETY: `rusage` is plain numbers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` of ours, which the call fills in.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    if result != 0 {
        return Usage::default();
    }
    let cpu = duration(usage.ru_utime) + duration(usage.ru_stime);
    let kibibytes = u64::try_from(usage.ru_maxrss).unwrap_or(0);
    Usage { cpu, memory_bytes_peak: kibibytes * 1024 }
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_used_something() {
        let usage = super::usage();
        assert!(usage.memory_bytes_peak > 0);
    }
}
