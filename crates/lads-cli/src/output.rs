//! Standard output and standard error of a transfer, written by a thread of their own.
//!
//! A write to a pipe that no process reads, or to a terminal after Ctrl-S, does not return. The
//! thread that shows a transfer also notices that the user wants to stop, so it must not block in
//! such a write: it appends to a queue, and waits for the queue only while no stop is requested.

use crate::not_started;
use anyhow::Result;
use lads_engine::StopFlag;
use lads_sys::{SignalsBlocked, Standard};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of bytes in the queue while no stop is requested: the capacity of a pipe. With
/// half, a listing takes more wake-ups; double only takes memory.
const QUEUE_BYTES_MAX: usize = 64 << 10;

/// Interval of checks for a stop request. It is a hundredth of the promised 5 s.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// After a stop request: maximum time without a completed write, and maximum time since the
/// request, until the rest of the output is discarded. A reader on a busy machine needs some
/// milliseconds, and the command has to end within 5 s.
const IDLE_MAX: Duration = Duration::from_secs(1);
const STOP_DEADLINE: Duration = Duration::from_millis(4700);

/// Time that the rest of the output has in any case: the deadline may have passed while this
/// process was stopped (SIGSTOP). With half, a reader on a busy machine could be too slow; with
/// double, the command would take longer than 5 s.
const WRITE_TIME_MIN: Duration = Duration::from_millis(200);

/// One of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Stdout,
    Stderr,
}

/// The queue of both outputs.
#[derive(Debug)]
pub(crate) struct Output {
    shared: Arc<Shared>,
    stop: StopFlag,
}

/// A writer that appends to the queue. Its `flush` returns when everything is written.
#[derive(Debug)]
pub(crate) struct Stream {
    to: To,
    shared: Arc<Shared>,
    stop: StopFlag,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<(To, Vec<u8>)>,
    /// Bytes of the pieces, and of the piece that is being written.
    bytes: usize,
    stdout_error: Option<Errno>,
    stderr_error: Option<Errno>,
}

impl Queue {
    fn error(&mut self, to: To) -> &mut Option<Errno> {
        match to {
            To::Stdout => &mut self.stdout_error,
            To::Stderr => &mut self.stderr_error,
        }
    }
}

impl Output {
    /// Starts the thread that writes.
    pub(crate) fn start(stop: &StopFlag) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        if Standard::Output.was_closed() {
            shared.lock().stdout_error = Some(Errno::BADF);
        }
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("output".to_owned());
        thread.spawn(move || its.write_forever()).map_err(not_started)?;
        Ok(Self { shared, stop: stop.clone() })
    }

    /// Returns a writer to standard output.
    pub(crate) fn stdout(&self) -> Stream {
        self.stream(To::Stdout)
    }

    /// Returns a writer to standard error.
    pub(crate) fn stderr(&self) -> Stream {
        self.stream(To::Stderr)
    }

    fn stream(&self, to: To) -> Stream {
        Stream { to, shared: Arc::clone(&self.shared), stop: self.stop.clone() }
    }

    /// Waits until everything is written. After a stop request, output that is not read is
    /// discarded.
    pub(crate) fn drain(&self) {
        let mut waited = Waited::default();
        let mut queue = self.shared.lock();
        while queue.bytes > 0 {
            let is_late = |since_stop| is_discarded(since_stop, waited);
            if self.stop.elapsed().is_some_and(is_late) {
                return;
            }
            let (began, count) = (Instant::now(), queue.bytes);
            queue = self.shared.wait(queue);
            waited.add(began.elapsed(), queue.bytes < count);
        }
    }
}

/// How long the rest of the output has been waited for.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    all: Duration,
    /// Without a completed write.
    idle: Duration,
}

impl Waited {
    /// Adds a wait of at most [`LOOK_INTERVAL`]. If it took much longer, this process was stopped
    /// meanwhile, as the other one may have been.
    fn add(&mut self, time: Duration, is_written: bool) {
        let time = time.min(2 * LOOK_INTERVAL);
        self.all += time;
        self.idle = if is_written { Duration::ZERO } else { self.idle + time };
    }
}

/// Reports whether the rest of the output is discarded, at this time after a stop request.
fn is_discarded(since_stop: Duration, waited: Waited) -> bool {
    since_stop >= STOP_DEADLINE && waited.all >= WRITE_TIME_MIN || waited.idle >= IDLE_MAX
}

impl Stream {
    /// Waits while `is_wanted`, unless a stop is requested. Returns the error of this output, if
    /// there was one.
    fn wait_while(&self, is_wanted: impl Fn(&Queue) -> bool) -> io::Result<MutexGuard<'_, Queue>> {
        let mut queue = self.shared.lock();
        loop {
            if let Some(error) = *queue.error(self.to) {
                return Err(error.into());
            }
            if !is_wanted(&queue) || self.stop.is_set() {
                return Ok(queue);
            }
            queue = self.shared.wait(queue);
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut queue = self.wait_while(|queue| queue.bytes >= QUEUE_BYTES_MAX)?;
        queue.bytes += bytes.len();
        match queue.pieces.back_mut() {
            Some((to, piece)) if *to == self.to => piece.extend_from_slice(bytes),
            _ => queue.pieces.push_back((self.to, bytes.to_vec())),
        }
        drop(queue);
        self.shared.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait_while(|queue| queue.bytes > 0).map(drop)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let waited = self.changed.wait_timeout(queue, LOOK_INTERVAL);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn write_forever(&self) {
        // While ssh has the terminal to ask for a password, SIGTTOU would stop a process that
        // writes to the terminal, if the user wants that (`stty tostop`).
        let _blocked = SignalsBlocked::begin();
        let mut queue = self.lock();
        loop {
            let Some((to, piece)) = queue.pieces.pop_front() else {
                let waited = self.changed.wait(queue);
                queue = waited.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let has_failed = queue.error(to).is_some();
            drop(queue);
            // After an error, the rest is discarded.
            let result = if has_failed { Ok(()) } else { write_all(to, &piece) };
            queue = self.lock();
            queue.bytes -= piece.len();
            if let Err(error) = result {
                *queue.error(to) = Some(error);
            }
            self.changed.notify_all();
        }
    }
}

/// Writes to the descriptor itself: the writers of the standard library have locks, which a thread
/// that is blocked in a write holds, and report no error of a descriptor that cannot be written to.
fn write_all(to: To, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = match to {
            To::Stdout => rustix::io::write(rustix::stdio::stdout(), bytes),
            To::Stderr => rustix::io::write(rustix::stdio::stderr(), bytes),
        };
        match written {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An output whose thread stays blocked.
    fn blocked() -> Output {
        Output { shared: Arc::default(), stop: StopFlag::new() }
    }

    #[test]
    fn whoever_writes_waits_for_the_reader_until_a_stop_is_requested() {
        let output = blocked();
        let mut stream = output.stdout();
        stream.write_all(&[b'x'; QUEUE_BYTES_MAX]).unwrap();
        let writing = std::thread::spawn(move || {
            stream.write_all(b"more").unwrap();
            stream.flush().unwrap();
        });
        std::thread::sleep(LOOK_INTERVAL);
        assert!(!writing.is_finished());
        output.stop.set("enough");
        writing.join().unwrap();
        assert_eq!(output.shared.lock().bytes, QUEUE_BYTES_MAX + 4, "nothing is discarded yet");
        output.drain();
    }

    #[test]
    fn output_is_discarded_if_no_process_reads_it_or_the_command_has_to_end() {
        let discarded = |since_stop, all, idle| {
            let [since_stop, all, idle] = [since_stop, all, idle].map(Duration::from_millis);
            is_discarded(since_stop, Waited { all, idle })
        };
        assert!(discarded(1000, 1000, 1000) && discarded(0, 5000, 5000), "no reader");
        assert!(discarded(4800, 300, 0), "a slow reader");
        assert!(!discarded(4600, 4600, 900));
    }

    /// A command that was stopped for 6 s after a stop request wrote no summary.
    #[test]
    fn output_is_not_discarded_because_the_process_was_stopped() {
        let mut waited = Waited::default();
        assert!(!is_discarded(Duration::from_secs(6), waited), "the deadline passed before");
        waited.add(Duration::from_secs(6), false);
        assert!(!is_discarded(Duration::from_secs(6), waited));
        for _ in 0..20 {
            waited.add(LOOK_INTERVAL, false);
        }
        assert!(waited.idle >= IDLE_MAX && is_discarded(Duration::from_secs(7), waited));
        waited.add(LOOK_INTERVAL, true);
        assert_eq!(waited.idle, Duration::ZERO);
    }

    #[test]
    fn pieces_of_both_outputs_keep_their_order_and_an_error_is_that_of_one() {
        let output = blocked();
        let (mut stdout, mut stderr) = (output.stdout(), output.stderr());
        stdout.write_all(b"a").unwrap();
        stdout.write_all(b"b").unwrap();
        stderr.write_all(b"c").unwrap();
        stdout.write_all(b"d").unwrap();
        let pieces = Vec::from(output.shared.lock().pieces.clone());
        let text = |to, text: &str| (to, text.as_bytes().to_vec());
        let (first, last) = (text(To::Stdout, "ab"), text(To::Stdout, "d"));
        assert_eq!(pieces, [first, text(To::Stderr, "c"), last]);
        output.shared.lock().stdout_error = Some(Errno::PIPE);
        assert_eq!(stdout.write(b"e").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(stderr.write(b"e").is_ok());
    }
}
