//! `lads bench`: measures how fast storage is in many modes, with a file of its own.
//!
//! The file loses its name as soon as it is open, so the kernel removes it however this process
//! ends. It takes at most a quarter of the free space.

use crate::paths::open_named;
use crate::stop::StopFlag;
use crate::thread::spawn_in;
use crate::whole::{fill_random, read_at_least, write_all};
use lads_core::entry::OWN_PREFIX;
use lads_core::mode::{Caching, Direction, Figure, Mode, Order, best, unordered};
use lads_core::sizes::bytes;
use lads_sys::{Arena, Buffer, resident_bytes};
use rustix::fs::{
    Advice, AtFlags, Mode as Permissions, OFlags, fadvise, fdatasync, fstatvfs, openat, unlinkat,
};
use rustix::io::Errno;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use thiserror::Error;

/// How often each mode is measured. With one time less, there is no median; with twice as often,
/// each time is half as long.
const PASSES: usize = 3;
/// The shortest measurement. With half of it, a disk that turns answers two or three requests in
/// the time. With the double, fewer modes are measured in a minute.
const SLICE_MIN: Duration = Duration::from_millis(100);
/// The part of the time in which is measured. The rest is for the first request of each thread,
/// which is not counted. With half of this, measurements are half as long. With all of it, slow
/// storage is measured twice instead of three times.
const MEASURED_PART: f64 = 0.67;
/// The file takes at most this part of the free space, so that others who write there meanwhile do
/// not run out of it. With half of the part, a disk that is nearly full cannot be measured; with
/// the double, two that measure at once fill it.
const FREE_PART: u64 = 4;
/// The smallest file that says anything, in bytes: four requests of the longest default size. With
/// half of it, those wrap round at once; double would keep small partitions out.
const SIZE_MIN: u64 = 64 << 20;
/// How the file is filled at first: bytes of a request, and threads, as `lads cp` writes by
/// default.
/// Half of either fills a file over a network more slowly; double makes the last requests of a slow
/// disk late.
const FILL: (u32, u16) = (1 << 20, 4);
/// The part of the time after which the file is taken as long as it is then. With half of the part,
/// the file of slow storage is so short that its cache holds it. With the double, half of the time
/// is not used to measure.
const FILL_PART: u32 = 4;
/// A mode is not measured if its requests in flight alone take more than this many measurements.
/// With half of it, more modes of slow storage are left out. With the double, a few of them take up
/// the time of all others.
const IN_FLIGHT_SLICES_MAX: u64 = 4;
const PAGE_BYTES: usize = 4096;

/// What is measured.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// A directory on the storage.
    pub directory: Vec<u8>,
    /// The longest that the file may be, in bytes.
    pub size_bytes: u64,
    /// How long everything may take. A request that storage does not answer may take longer.
    pub time: Duration,
    /// Sizes of requests in bytes: multiples of 4096.
    pub request_bytes: Vec<u32>,
    /// Numbers of threads, none of them zero.
    pub thread_counts: Vec<u16>,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// The length of the file in bytes.
    pub size_bytes: u64,
    /// How long everything took.
    pub elapsed: Duration,
    /// Every mode without order; those that were not measured have no rate.
    pub figures: Vec<Figure>,
    /// The best mode of each direction, in all orders.
    pub orders: Vec<Figure>,
    /// What a user should know of the figures.
    pub notices: Vec<String>,
}

/// Why nothing could be measured.
#[derive(Debug, Error)]
pub enum BenchError {
    /// A call failed.
    #[error("cannot {what}: {errno}")]
    Failed {
        /// What was to be done.
        what: &'static str,
        /// Why it cannot be done.
        errno: Errno,
    },
    /// The file would take too much of the free space.
    #[error(
        "there is too little space: {} are free, lads bench uses at most a quarter of that, and it \
         needs {}",
        bytes(*free_bytes),
        bytes(SIZE_MIN)
    )]
    NoRoom {
        /// The free space in bytes.
        free_bytes: u64,
    },
    /// There is no room for as many threads.
    #[error("{0}, or use fewer threads (--threads)")]
    NoThread(String),
    /// Somebody wants to stop.
    #[error("stopped ({0}); the file is removed")]
    Stopped(String),
}

/// Measures storage; calls `tell` with the number of measurements that are done, and of all.
///
/// # Errors
/// If there is no room for the file, a call fails, or `stop` is set.
///
/// # Panics
/// If there is no size of requests or no number of threads, or one of them is zero.
pub fn bench(
    config: &BenchConfig,
    stop: &StopFlag,
    tell: &mut dyn FnMut(usize, usize),
) -> Result<BenchReport, BenchError> {
    let started = Instant::now();
    let mut bed = Bed::open(config, stop)?;
    let fill_rate = bed.fill(config.time / FILL_PART)?;
    let mut figures = modes(config, &bed);
    let count = figures.len() * PASSES;
    // The orders of two modes come at the end.
    let all = count + 2 * 2 * PASSES;
    let left = config.time.saturating_sub(started.elapsed());
    let slice = left.mul_f64(MEASURED_PART) / u32::try_from(all).unwrap_or(u32::MAX);
    let slice = slice.max(SLICE_MIN);
    let mut runs = Runs { bed: &bed, slice, fill_rate, until: started + config.time };
    let mut done = 0;
    for _ in 0..PASSES {
        // In another order each time, so that no mode always follows the same one.
        let mut order: Vec<usize> = (0..figures.len()).collect();
        fastrand::shuffle(&mut order);
        for index in order {
            runs.measure(&mut figures[index])?;
            done += 1;
            tell(done, all);
        }
    }
    // However late it is: these are few.
    runs.until = Instant::now() + config.time;
    let mut orders = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let Some(best) = best(&figures, direction) else { continue };
        orders.push(best.clone());
        for order in [Order::Loose, Order::Serial] {
            let mode = Mode { order, ..best.mode };
            let mut figure = Figure { mode, rates: Vec::new() };
            for _ in 0..PASSES {
                runs.measure(&mut figure)?;
                done += 1;
                tell(done, all);
            }
            orders.push(figure);
        }
    }
    let notices = notices(config, &bed, &figures);
    Ok(BenchReport {
        size_bytes: bed.size_bytes,
        elapsed: started.elapsed(),
        figures,
        orders,
        notices,
    })
}

/// All modes without order; bypassing the page cache only where that can be.
fn modes(config: &BenchConfig, bed: &Bed<'_>) -> Vec<Figure> {
    let mut figures = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        for caching in [Caching::Direct, Caching::Buffered] {
            if caching == Caching::Direct && bed.direct.is_none() {
                continue;
            }
            for &request_bytes in &config.request_bytes {
                for &thread_count in &config.thread_counts {
                    let order = Order::None;
                    let mode = Mode { direction, caching, order, request_bytes, thread_count };
                    figures.push(Figure { mode, rates: Vec::new() });
                }
            }
        }
    }
    figures
}

fn notices(config: &BenchConfig, bed: &Bed<'_>, figures: &[Figure]) -> Vec<String> {
    let mut notices = Vec::new();
    if bed.size_bytes < config.size_bytes {
        notices.push(
            "the file is smaller than requested, because of the time limit (--time) or the free \
             space"
                .to_owned(),
        );
    }
    if bed.direct.is_none() {
        notices.push("this file system does not support direct I/O".to_owned());
    }
    if bed.stays_in_cache {
        notices.push(
            "the page cache cannot be dropped here: buffered reads are served from memory"
                .to_owned(),
        );
    }
    let missing = figures.iter().filter(|it| it.rates.is_empty()).count();
    if missing > 0 {
        notices.push(format!(
            "{missing} modes were not measured, because one request per thread takes longer than \
             the time limit: use a longer --time"
        ));
    }
    let few = figures.iter().filter(|it| (1..PASSES).contains(&it.rates.len())).count();
    if few > 0 {
        notices.push(format!(
            "{few} modes were measured fewer than {PASSES} times: use a longer --time"
        ));
    }
    notices
}

/// The file, and memory for requests.
struct Bed<'a> {
    stop: &'a StopFlag,
    buffered: OwnedFd,
    direct: Option<OwnedFd>,
    size_bytes: u64,
    /// For each thread.
    buffers: Vec<Mutex<Buffer>>,
    /// Whether the file stays in memory whatever is asked for, as on tmpfs.
    stays_in_cache: bool,
}

impl<'a> Bed<'a> {
    /// Makes the file, which is empty at first and has no name.
    fn open(config: &BenchConfig, stop: &'a StopFlag) -> Result<Self, BenchError> {
        let directory = open_named(&config.directory).map_err(failed("open the directory"))?;
        let space = fstatvfs(&directory).map_err(failed("query the free space"))?;
        let free_bytes = space.f_bavail.saturating_mul(space.f_frsize);
        let size_bytes = config.size_bytes.min(free_bytes / FREE_PART);
        if size_bytes < SIZE_MIN.min(config.size_bytes) {
            return Err(BenchError::NoRoom { free_bytes });
        }
        let mut number = [0; 16];
        fill_random(&mut number).map_err(|_| Errno::IO).map_err(failed("get random bytes"))?;
        // If this process is killed before the name is removed, `lads clean` knows the name.
        let name = format!("{OWN_PREFIX}{:032x}.part", u128::from_le_bytes(number));
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = flags | OFlags::CREATE | OFlags::EXCL;
        let buffered =
            openat(&directory, name.as_str(), make, Permissions::RUSR | Permissions::WUSR)
                .map_err(failed("create a file there"))?;
        let direct =
            openat(&directory, name.as_str(), flags | OFlags::DIRECT, Permissions::empty()).ok();
        unlinkat(&directory, name.as_str(), AtFlags::empty()).map_err(failed("unlink the file"))?;
        let threads = config.thread_counts.iter().copied().max().expect("there is one").max(FILL.1);
        let longest = config.request_bytes.iter().copied().max().expect("there is one").max(FILL.0);
        let arena = Arena::new(threads.into(), longest as usize)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
            .map_err(failed("allocate memory for requests"))?;
        let buffers = (0..threads).map(|_| Mutex::new(random(arena.take()))).collect();
        Ok(Self { stop, buffered, direct, size_bytes, buffers, stays_in_cache: false })
    }

    /// Fills the file, as far as there is time. Returns how fast that was, in bytes per second.
    fn fill(&mut self, time: Duration) -> Result<u64, BenchError> {
        let (request_bytes, thread_count) = FILL;
        let caching = if self.direct.is_some() { Caching::Direct } else { Caching::Buffered };
        let order = Order::Loose;
        let mode =
            Mode { direction: Direction::Write, caching, order, request_bytes, thread_count };
        let requests = self.size_bytes / u64::from(request_bytes);
        let (bytes, elapsed) = self.run(&mode, time, requests)?;
        // The threads end at about the same place; what is before that has no hole.
        self.size_bytes = bytes;
        self.forget();
        let resident = resident_bytes(&self.buffered, 0, PAGE_BYTES).unwrap_or(0);
        self.stays_in_cache = resident > 0;
        let rate = u128::from(bytes) * 1_000_000 / elapsed.as_micros().max(1);
        Ok(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// Empties the page cache of the file.
    fn forget(&self) {
        // If it cannot be emptied, that is told.
        let _ = fadvise(&self.buffered, 0, NonZeroU64::new(self.size_bytes), Advice::DontNeed);
    }

    /// Uses storage in a mode for a time, or until this number of requests is done; each thread
    /// does one request at least. Returns the bytes that were moved, and how long that took.
    fn run(
        &self,
        mode: &Mode,
        time: Duration,
        requests_max: u64,
    ) -> Result<(u64, Duration), BenchError> {
        let in_file = (self.size_bytes / u64::from(mode.request_bytes)).max(1);
        let started = Instant::now();
        let turns = Turns { mode, next: AtomicU64::new(0), serial: Mutex::new(()), requests_max };
        let one_thread = |thread: u16| -> Result<u64, Errno> {
            let buffer = &self.buffers[usize::from(thread)];
            let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
            let mut bytes = 0;
            for count in 0.. {
                let is_over = count > 0 && started.elapsed() >= time;
                if is_over || self.stop.is_set() {
                    break;
                }
                let Some((request, _turn)) = turns.take(thread, count) else { break };
                self.request(mode, request % in_file, &mut buffer)?;
                bytes += u64::from(mode.request_bytes);
            }
            Ok(bytes)
        };
        let what = match mode.direction {
            Direction::Read => "read the file",
            Direction::Write => "write the file",
        };
        let bytes = std::thread::scope(|scope| {
            let one_thread = &one_thread;
            let begin = |thread| spawn_in(scope, "lads-bench", move || one_thread(thread));
            let threads: Vec<_> = (0..mode.thread_count).map(begin).collect();
            threads.into_iter().try_fold(0, |bytes, thread| {
                let thread = thread.map_err(|error| BenchError::NoThread(error.to_string()))?;
                let outcome = thread.join().unwrap_or(Err(Errno::IO));
                Ok(bytes + outcome.map_err(failed(what))?)
            })
        })?;
        if mode.direction == Direction::Write {
            fdatasync(&self.buffered).map_err(failed("make the file durable"))?;
        }
        match self.stop.reason() {
            Some(reason) => Err(BenchError::Stopped(reason)),
            None => Ok((bytes, started.elapsed())),
        }
    }

    /// Does one request of the file.
    fn request(&self, mode: &Mode, number: u64, buffer: &mut Buffer) -> Result<(), Errno> {
        let file = match (mode.caching, &self.direct) {
            (Caching::Direct, Some(direct)) => direct,
            _ => &self.buffered,
        };
        let length = mode.request_bytes as usize;
        let bytes = &mut buffer[..length];
        let offset = number * u64::from(mode.request_bytes);
        match mode.direction {
            Direction::Read => read_at_least(file, bytes, offset, length),
            Direction::Write => {
                stamp(bytes, offset);
                write_all(file, bytes, offset)
            }
        }
    }
}

/// Which request a thread does next.
struct Turns<'a> {
    mode: &'a Mode,
    next: AtomicU64,
    serial: Mutex<()>,
    requests_max: u64,
}

impl Turns<'_> {
    /// The number of the request, and what keeps other threads waiting until it is done; `None` if
    /// there are enough.
    fn take(
        &self,
        thread: u16,
        count: u64,
    ) -> Option<(u64, Option<std::sync::MutexGuard<'_, ()>>)> {
        let turn = match self.mode.order {
            Order::Serial => Some(self.serial.lock().unwrap_or_else(PoisonError::into_inner)),
            Order::None | Order::Loose => None,
        };
        let request = match self.mode.order {
            Order::None => unordered(thread, self.mode.thread_count, count),
            Order::Loose | Order::Serial => self.next.fetch_add(1, Ordering::Relaxed),
        };
        (request < self.requests_max).then_some((request, turn))
    }
}

/// One measurement after the other, until the time is over.
struct Runs<'a> {
    bed: &'a Bed<'a>,
    slice: Duration,
    /// In bytes per second.
    fill_rate: u64,
    until: Instant,
}

impl Runs<'_> {
    /// Measures a mode once more, if there is time.
    fn measure(&self, figure: &mut Figure) -> Result<(), BenchError> {
        let (mode, bed) = (&figure.mode, self.bed);
        let in_a_slice = bytes_within(self.slice, self.fill_rate);
        let is_too_long = mode.bytes_in_flight() > in_a_slice * IN_FLIGHT_SLICES_MAX
            || mode.bytes_in_flight() > bed.size_bytes;
        if is_too_long || Instant::now() >= self.until {
            return Ok(());
        }
        // One request of each thread, which waits behind what is left of the mode before, such as
        // reading ahead.
        bed.run(mode, Duration::ZERO, mode.thread_count.into())?;
        let of_bytes = |bytes: u64| bytes / u64::from(mode.request_bytes);
        let requests_max = match (mode.caching, mode.direction) {
            (Caching::Direct, _) => u64::MAX,
            // What was read once is in the page cache.
            (Caching::Buffered, Direction::Read) => {
                bed.forget();
                of_bytes(bed.size_bytes)
            }
            // What is written quickly to the page cache may take long to become durable.
            (Caching::Buffered, Direction::Write) => {
                of_bytes(2 * in_a_slice).max(mode.thread_count.into())
            }
        };
        let (bytes, elapsed) = bed.run(mode, self.slice, requests_max)?;
        figure.rates.push(bytes as f64 / elapsed.as_secs_f64());
        Ok(())
    }
}

/// The bytes that are moved at this rate, in bytes per second, within a time.
fn bytes_within(time: Duration, rate: u64) -> u64 {
    let bytes = u128::from(rate) * time.as_micros() / 1_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX / IN_FLIGHT_SLICES_MAX)
}

fn failed(what: &'static str) -> impl Fn(Errno) -> BenchError {
    move |errno| BenchError::Failed { what, errno }
}

/// Fills memory with bytes that no storage can compress.
fn random(mut buffer: Buffer) -> Buffer {
    fastrand::fill(&mut buffer);
    buffer
}

/// Makes each page differ from all others of the file, for storage that keeps equal ones once.
fn stamp(bytes: &mut [u8], offset: u64) {
    for (page, bytes) in bytes.chunks_mut(PAGE_BYTES).enumerate() {
        let number = offset + (page * PAGE_BYTES) as u64;
        bytes[..8].copy_from_slice(&number.to_le_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "these are tests")]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn config(directory: &std::path::Path) -> BenchConfig {
        BenchConfig {
            directory: directory.as_os_str().as_bytes().to_vec(),
            size_bytes: 4 << 20,
            time: Duration::from_secs(1),
            request_bytes: vec![64 << 10, 1 << 20],
            thread_counts: vec![1, 2],
        }
    }

    #[test]
    fn every_mode_is_measured_and_nothing_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let stop = StopFlag::new();
        let report =
            bench(&config(directory.path()), &stop, &mut |done, all| told.push((done, all)));
        let report = report.unwrap();
        assert!(report.figures.iter().any(|it| it.mode.direction == Direction::Read));
        let measured = report.figures.iter().filter(|it| !it.rates.is_empty()).count();
        assert!(measured > 0 && report.size_bytes > 0, "{report:?}");
        let rates = report.figures.iter().flat_map(|it| &it.rates);
        assert!(rates.copied().all(|rate| rate > 0.0 && rate.is_finite()), "{report:?}");
        assert!(report.orders.len() == 6, "{report:?}");
        assert!(told.iter().all(|(done, all)| done <= all) && told.is_sorted());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn whoever_wants_to_stop_does_not_wait_for_all_modes() {
        let directory = tempfile::tempdir().unwrap();
        let stop = StopFlag::new();
        let mut config = config(directory.path());
        config.time = Duration::from_secs(30);
        let set = stop.clone();
        let result = bench(&config, &stop, &mut |_, _| set.set("enough"));
        assert!(matches!(result, Err(BenchError::Stopped(reason)) if reason == "enough"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn no_page_is_like_another_one() {
        let mut bytes = vec![7; 4 * PAGE_BYTES];
        stamp(&mut bytes, 1 << 40);
        let pages: std::collections::HashSet<&[u8]> = bytes.chunks(PAGE_BYTES).collect();
        assert_eq!(pages.len(), 4);
    }
}
