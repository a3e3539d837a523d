//! The storage of a server: one queue for each OST, and threads that read and write.

use super::reach::Reach;
use super::session::Session;
use crate::clock::Clock;
use crate::layout::Layouts;
use crate::whole::write_all;
use lads_core::congestion::Rule;
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::remote::message::{Failure, Written};
use lads_core::remote::order::Start;
use lads_core::remote::scatter::{Spot, scatter};
use lads_core::schedule::OstQueues;
use lads_core::shares::writing_threads;
use lads_core::tuning::Tuning;
use lads_core::units::OstId;
use lads_sys::{Arena, Buffer};
use rustix::io::{Errno, pread};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// What all sessions of a server share.
pub(super) struct Storage {
    pub(super) reach: Reach,
    pub(super) layouts: Box<dyn Layouts>,
    /// Buffers for frames that are written, and for bytes that are read.
    pub(super) for_writing: Arena,
    pub(super) for_reading: Arena,
    clock: Clock,
    inner: Mutex<Inner>,
    ready: Condvar,
}

struct Inner {
    queues: OstQueues<Job>,
    is_over: bool,
}

/// An open file of a client.
pub(super) struct OpenFile {
    pub(super) file: OwnedFd,
    pub(super) layout: Layout,
}

/// What one thread does for one OST.
enum Job {
    Write { spots: Vec<Spot>, frame: Arc<Frame> },
    Read(Box<Read>),
}

impl Job {
    fn bytes(&self) -> u64 {
        match self {
            Self::Write { spots, .. } => spots.iter().map(|spot| spot.run.length).sum(),
            Self::Read(read) => read.length.into(),
        }
    }
}

/// A frame that is being written.
struct Frame {
    start: Start,
    file: Arc<OpenFile>,
    buffer: Buffer,
    session: Arc<Session>,
    /// Jobs that are not done.
    left: AtomicU32,
    /// The first failure, and the position up to which jobs were made.
    state: Mutex<(Option<Failure>, u64)>,
}

/// Bytes that a client wants.
pub(super) struct Read {
    pub(super) number: u64,
    pub(super) first: u64,
    pub(super) length: u32,
    /// Where they lie, in the order of the stream.
    pub(super) spots: Vec<Spot>,
    pub(super) file: Arc<OpenFile>,
    pub(super) buffer: Buffer,
    pub(super) session: Arc<Session>,
}

impl Storage {
    pub(super) fn new(
        reach: Reach,
        layouts: Box<dyn Layouts>,
        for_writing: Arena,
        for_reading: Arena,
    ) -> Self {
        let queues = OstQueues::new(Rule::Adaptive, &Tuning::DEFAULT, &layouts.osts());
        let inner = Mutex::new(Inner { queues, is_over: false });
        let (clock, ready) = (Clock::start(), Condvar::new());
        Self { reach, layouts, for_writing, for_reading, clock, inner, ready }
    }

    /// Starts the threads; they end after [`Self::end`].
    pub(super) fn start_threads(self: &Arc<Self>) {
        for _ in 0..writing_threads(0, &self.layouts.osts()) {
            let storage = Arc::clone(self);
            crate::thread::spawn("lads-io", move || storage.work());
        }
    }

    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.ready.notify_all();
    }

    /// Writes a frame, some time; then its session is told.
    pub(super) fn write(
        &self,
        start: Start,
        file: Arc<OpenFile>,
        buffer: Buffer,
        session: Arc<Session>,
    ) {
        let state = Mutex::new((None, start.positions.start));
        let left = AtomicU32::new(0);
        self.go_on(Arc::new(Frame { start, file, buffer, session, left, state }));
    }

    /// Reads, some time; then the session is told.
    pub(super) fn read(&self, read: Read) {
        let first = read.spots.first().map_or(0, |spot| spot.run.offset);
        let ost = read.file.layout.ost_at(first);
        self.push([(ost, Job::Read(Box::new(read)))]);
    }

    /// Queues the next part of a frame; tells the session when there is none.
    fn go_on(&self, frame: Arc<Frame>) {
        let Start { view, positions, .. } = &frame.start;
        let mut state = frame.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = state.1..positions.end;
        let is_done = rest.is_empty() || state.0.is_some();
        let scattered = match is_done {
            true => None,
            false => scatter(view, &frame.file.layout, positions.start, rest).ok(),
        };
        let Some(scattered) = scattered else {
            let failure =
                state.0.or_else(|| (!is_done).then(|| failed(Operation::Write, Errno::FBIG)));
            drop(state);
            return self.finish(frame, failure);
        };
        state.1 = scattered.end;
        drop(state);
        frame.left.store(
            u32::try_from(scattered.osts.len()).expect("OSTs are 32 bits"),
            Ordering::Release,
        );
        let jobs = scattered
            .osts
            .into_iter()
            .map(|(ost, spots)| (ost, Job::Write { spots, frame: Arc::clone(&frame) }));
        self.push(jobs);
    }

    fn finish(&self, frame: Arc<Frame>, failure: Option<Failure>) {
        let (session, number) = (Arc::clone(&frame.session), frame.start.frame);
        // The buffer is free before its grant is.
        drop(frame);
        session.on_written(Written { frame: number, failure });
    }

    fn push(&self, jobs: impl IntoIterator<Item = (OstId, Job)>) {
        let mut inner = self.lock();
        for (ost, job) in jobs {
            let bytes = job.bytes();
            inner.queues.push(ost, job, bytes);
        }
        drop(inner);
        self.ready.notify_all();
    }

    /// What each thread does.
    fn work(&self) {
        while let Some((ost, job)) = self.next() {
            let started = std::time::Instant::now();
            self.layouts.pretend(ost);
            let bytes = job.bytes();
            let done = match job {
                Job::Write { spots, frame } => Done::Write(write_spots(&spots, &frame), frame),
                Job::Read(mut read) => Done::Read(read_spots(&mut read), read),
            };
            let service = started.elapsed();
            self.lock().queues.finish(self.clock.now(), ost, bytes, service);
            self.ready.notify_one();
            self.on_done(done);
        }
    }

    fn next(&self) -> Option<(OstId, Job)> {
        let mut inner = self.lock();
        loop {
            if inner.is_over {
                return None;
            }
            let now = self.clock.now();
            let take = |_, queue: &mut std::collections::VecDeque<Job>, _| {
                let job = queue.pop_front()?;
                let bytes = job.bytes();
                Some((job, bytes))
            };
            if let Some(found) = inner.queues.next(now, take) {
                return Some(found);
            }
            inner = self.ready.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn on_done(&self, done: Done) {
        match done {
            Done::Write(result, frame) => {
                if let Err(errno) = result {
                    let mut state = frame.state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.0.get_or_insert_with(|| failed(Operation::Write, errno));
                }
                if frame.left.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.go_on(frame);
                }
            }
            Done::Read(result, read) => {
                let session = Arc::clone(&read.session);
                session.on_read(*read, result.map_err(|errno| failed(Operation::Read, errno)));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Done {
    Write(Result<(), Errno>, Arc<Frame>),
    Read(Result<u32, Errno>, Box<Read>),
}

pub(super) fn failed(operation: Operation, errno: Errno) -> Failure {
    Failure { operation, errno: errno.raw_os_error() }
}

fn write_spots(spots: &[Spot], frame: &Frame) -> Result<(), Errno> {
    spots.iter().try_for_each(|spot| {
        let bytes = &frame.buffer[spot.place as usize..][..length_of(spot)];
        write_all(&frame.file.file, bytes, spot.run.offset)
    })
}

/// Returns how many bytes there were before the end of the file.
fn read_spots(read: &mut Read) -> Result<u32, Errno> {
    let Read { spots, file, buffer, .. } = read;
    let mut got = 0;
    for spot in spots {
        let length = length_of(spot);
        let to = &mut buffer[spot.place as usize..][..length];
        let count = read_up_to(&file.file, to, spot.run.offset)?;
        got += u32::try_from(count).expect("a frame is shorter");
        if count < length {
            break;
        }
    }
    Ok(got)
}

fn read_up_to(file: &OwnedFd, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < to.len() {
        match pread(file, &mut to[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

fn length_of(spot: &Spot) -> usize {
    usize::try_from(spot.run.length).expect("a frame is shorter")
}
