//! How much processor time and memory this process has used.

use rustix::param::clock_ticks_per_second;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::sync::OnceLock;
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
    Usage { cpu: cpu_time(), memory_bytes_peak: memory_bytes_peak() }
}

/// The processor time that this process has used since it began, user and system: quicker to learn
/// than all of its usage.
#[must_use]
pub fn cpu_time() -> Duration {
    // SAFETY: `rusage` is plain numbers, for which all zeroes is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` of ours, which the call fills in.
    let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    if result != 0 {
        return Duration::ZERO;
    }
    duration(usage.ru_utime) + duration(usage.ru_stime)
}

/// Returns the time that the threads of this process were ready to run and waited for a processor,
/// summed over the threads that have not ended. Zero where the kernel does not count it.
///
/// This function opens a file of each thread, and the kernel removes these files at the end of the
/// process, which then takes longer.
#[must_use]
pub fn cpu_delay() -> Duration {
    // The second number of each file, in nanoseconds.
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let of_thread = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    };
    threads.flatten().filter_map(|thread| of_thread(thread.path())).sum()
}

/// Returns the time that processors were idle since this function was first called, summed over the
/// processors on which this process may run. Zero where the kernel does not report it.
#[must_use]
pub fn cpu_idle() -> Duration {
    static AT_FIRST: OnceLock<Duration> = OnceLock::new();
    let Ok(ours) = sched_getaffinity(None) else { return Duration::ZERO };
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = idle_ticks(&text, |cpu| cpu < CpuSet::MAX_CPU && ours.is_set(cpu));
    let micros = ticks.saturating_mul(1_000_000) / clock_ticks_per_second().max(1);
    let idle = Duration::from_micros(micros);
    idle.saturating_sub(*AT_FIRST.get_or_init(|| idle))
}

/// The fourth number of each line `cpuN` of `/proc/stat`, summed up.
fn idle_ticks(stat: &str, is_ours: impl Fn(usize) -> bool) -> u64 {
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu = words.next()?.parse().ok()?;
        let idle = words.nth(3)?.parse::<u64>().ok()?;
        is_ours(cpu).then_some(idle)
    };
    stat.lines().filter_map(of_line).sum()
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// The peak that `rusage` reports includes what the process that started us had; this does not.
fn memory_bytes_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_used_something() {
        let usage = super::usage();
        assert!(usage.memory_bytes_peak > 0);
    }

    #[test]
    fn idle_time_is_that_of_our_processors() {
        let stat =
            "cpu  9 9 9 999 9 9\ncpu0 1 2 3 40 5 6\ncpu1 1 2 3 70 5 6\ncpu12 1 2 3 8\nintr 5";
        assert_eq!(super::idle_ticks(stat, |cpu| cpu != 1), 48);
        assert_eq!(super::idle_ticks("", |_| true), 0);
    }
}
