//! The storage of a server: one queue for each OST, and threads that read and write.

use super::reach::Reach;
use crate::clock::Clock;
use crate::layout::Layouts;
use crate::thread::{NoThread, spawn};
use crate::whole::write_all;
use lads_core::congestion::Rule;
use lads_core::issue::Operation;
use lads_core::layout::Layout;
use lads_core::remote::extent::Extent;
use lads_core::remote::joined::{
    Piece, alone_in, are_in, are_joined, in_order, place_of, side_by_side, take_in,
};
use lads_core::remote::locks::FileId;
use lads_core::remote::message::Failure;
use lads_core::remote::scatter::{Spot, scatter};
use lads_core::schedule::OstQueues;
use lads_core::shares::writing_threads;
use lads_core::tuning::Tuning;
use lads_core::units::OstId;
use lads_sys::{Arena, Buffer};
use rustix::io::{Errno, pread, pwritev};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Linux's limit of pieces in one call (`IOV_MAX`).
const TOGETHER_MAX: usize = 1024;

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
    pub(super) id: FileId,
    pub(super) layout: Layout,
}

/// What waits for an OST.
enum Job {
    Write(Part),
    Read(Box<Read>),
}

impl Job {
    fn bytes(&self) -> u64 {
        match self {
            Self::Write(part) => part.bytes(),
            Self::Read(read) => read.bytes(),
        }
    }

    /// The part that it writes, if that may be joined with this one.
    fn part_beside(&self, part: &Part) -> Option<&Part> {
        match self {
            Self::Write(own) if own.is_joined && own.frame.file.id == part.frame.file.id => {
                Some(own)
            }
            Self::Write(_) | Self::Read(_) => None,
        }
    }

    /// Whether the process that wants it is the one that wrote this part.
    fn is_of_asker_of(&self, part: &Part) -> bool {
        let asker = match self {
            Self::Write(own) => &own.frame.asker,
            Self::Read(read) => &read.asker,
        };
        Arc::ptr_eq(asker, &part.frame.asker)
    }
}

/// What one thread does for one OST.
enum Work {
    Write(Part),
    /// Short pieces of one file, which may lie side by side.
    WriteJoined(Vec<Part>),
    Read(Box<Read>),
}

impl Work {
    fn bytes(&self) -> u64 {
        match self {
            Self::Write(part) => part.bytes(),
            Self::WriteJoined(parts) => parts.iter().map(Part::bytes).sum(),
            Self::Read(read) => read.bytes(),
        }
    }
}

/// What is written of a frame by one thread.
struct Part {
    spots: Vec<Spot>,
    is_joined: bool,
    frame: Arc<Frame>,
}

impl Part {
    fn new(spots: Vec<Spot>, frame: Arc<Frame>) -> Self {
        Self { is_joined: are_joined(&spots), spots, frame }
    }

    fn bytes(&self) -> u64 {
        self.spots.iter().map(|spot| spot.run.length).sum()
    }

    fn write(&self) -> Result<(), Errno> {
        self.spots.iter().try_for_each(|spot| self.frame.write(spot))
    }

    /// Takes the spots in a place away, for another thread or another time.
    fn split(&mut self, place: &Range<u64>) -> Option<Self> {
        let spots = split(&mut self.spots, place, &self.frame.left)?;
        Some(Self { spots, is_joined: self.is_joined, frame: Arc::clone(&self.frame) })
    }
}

/// Takes spots out of a part. There is one more part then, unless nothing is left of this one: it
/// is dropped.
fn split(spots: &mut Vec<Spot>, place: &Range<u64>, parts: &AtomicU32) -> Option<Vec<Spot>> {
    let taken = take_in(spots, place);
    if taken.is_empty() {
        return None;
    }
    if !spots.is_empty() {
        parts.fetch_add(1, Ordering::Relaxed);
    }
    Some(taken)
}

/// On whose behalf bytes are written and read.
pub(super) trait Asker: Send + Sync {
    /// A frame is written, or cannot be.
    fn on_written(&self, frame: u64, failure: Option<Failure>);

    /// A request has read this number of bytes of the stream, from the first position on; the
    /// buffer has them.
    fn on_read(&self, request_and_first: (u64, u64), buffer: Buffer, result: Result<u32, Failure>);
}

/// A frame that is being written.
struct Frame {
    number: u64,
    extent: Extent,
    file: Arc<OpenFile>,
    buffer: Buffer,
    asker: Arc<dyn Asker>,
    /// Parts that are not written.
    left: AtomicU32,
    /// The first failure, and the position up to which jobs were made.
    state: Mutex<(Option<Failure>, u64)>,
}

impl Frame {
    fn bytes_of(&self, spot: &Spot) -> &[u8] {
        &self.buffer[spot.place as usize..][..length_of(spot)]
    }

    fn write(&self, spot: &Spot) -> Result<(), Errno> {
        write_all(&self.file.file, self.bytes_of(spot), spot.run.offset)
    }
}

/// Bytes that a client wants.
pub(super) struct Read {
    pub(super) request: u64,
    pub(super) positions: Range<u64>,
    /// Where they lie, in the order of the stream.
    pub(super) spots: Vec<Spot>,
    pub(super) file: Arc<OpenFile>,
    pub(super) buffer: Buffer,
    pub(super) asker: Arc<dyn Asker>,
}

impl Read {
    fn bytes(&self) -> u64 {
        self.positions.end - self.positions.start
    }
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
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub(super) fn start_threads(self: &Arc<Self>) -> Result<(), NoThread> {
        for _ in 0..writing_threads(0, &self.layouts.osts()) {
            let storage = Arc::clone(self);
            spawn("lads-io", move || storage.work())?;
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.lock().is_over = true;
        self.ready.notify_all();
    }

    /// Writes a frame, some time; then whoever asked for it hears of it.
    pub(super) fn write(
        &self,
        (number, extent): (u64, Extent),
        file: Arc<OpenFile>,
        buffer: Buffer,
        asker: Arc<dyn Asker>,
    ) {
        let state = Mutex::new((None, extent.positions().start));
        let left = AtomicU32::new(0);
        self.go_on(Arc::new(Frame { number, extent, file, buffer, asker, left, state }));
    }

    /// Reads, some time; then whoever asked for it hears of it.
    pub(super) fn read(&self, read: Read) {
        let first = read.spots.first().map_or(0, |spot| spot.run.offset);
        let ost = read.file.layout.ost_at(first);
        self.push([(ost, Job::Read(Box::new(read)))]);
    }

    /// Queues the next part of a frame; if there is none, it is written.
    fn go_on(&self, frame: Arc<Frame>) {
        let (view, positions) = (frame.extent.view(), frame.extent.positions());
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
            .map(|(ost, spots)| (ost, Job::Write(Part::new(spots, Arc::clone(&frame)))));
        self.push(jobs);
    }

    fn finish(&self, frame: Arc<Frame>, failure: Option<Failure>) {
        let (asker, number) = (Arc::clone(&frame.asker), frame.number);
        // The buffer is free before its grant is.
        drop(frame);
        asker.on_written(number, failure);
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
        while let Some((ost, work)) = self.next() {
            self.act(ost, work);
        }
    }

    /// Writes or reads, and reports that to the client.
    fn act(&self, ost: OstId, work: Work) {
        let started = std::time::Instant::now();
        self.layouts.pretend(ost);
        let bytes = work.bytes();
        let done = match work {
            Work::Write(part) => Done::Write(part.write(), part),
            Work::WriteJoined(parts) => Done::WriteJoined(write_joined(&parts), parts),
            Work::Read(mut read) => Done::Read(read_spots(&mut read), read),
        };
        let service = started.elapsed();
        self.lock().queues.finish(self.clock.now(), ost, bytes, service);
        self.ready.notify_one();
        self.on_done(done);
    }

    fn next(&self) -> Option<(OstId, Work)> {
        let mut inner = self.lock();
        loop {
            if inner.is_over {
                return None;
            }
            let now = self.clock.now();
            let take = |_, queue: &mut VecDeque<Job>, _| {
                let work = match queue.pop_front()? {
                    Job::Write(part) if part.is_joined => Work::WriteJoined(join(part, queue)),
                    Job::Write(part) => Work::Write(part),
                    Job::Read(read) => Work::Read(read),
                };
                let bytes = work.bytes();
                Some((work, bytes))
            };
            if let Some(found) = inner.queues.next(now, take) {
                return Some(found);
            }
            inner = self.ready.wait(inner).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn on_done(&self, done: Done) {
        match done {
            Done::Write(result, part) => self.on_written(result, part.frame),
            Done::WriteJoined(results, parts) => {
                for (result, Part { frame, .. }) in results.into_iter().zip(parts) {
                    self.on_written(result, frame);
                }
            }
            Done::Read(result, read) => {
                let Read { request, positions, buffer, asker, .. } = *read;
                let result = result.map_err(|errno| failed(Operation::Read, errno));
                asker.on_read((request, positions.start), buffer, result);
            }
        }
    }

    fn on_written(&self, result: Result<(), Errno>, frame: Arc<Frame>) {
        if let Err(errno) = result {
            let mut state = frame.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.0.get_or_insert_with(|| failed(Operation::Write, errno));
        }
        if frame.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.go_on(frame);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Done {
    Write(Result<(), Errno>, Part),
    WriteJoined(Vec<Result<(), Errno>>, Vec<Part>),
    Read(Result<u32, Errno>, Box<Read>),
}

pub(super) fn failed(operation: Operation, errno: Errno) -> Failure {
    Failure { operation, errno: errno.raw_os_error() }
}

/// Takes beside a part what waits to be written between its pieces. If it is long, or no other
/// process has written anything there, the rest of it goes back into the queue: others may have
/// come by then.
fn join(mut part: Part, queue: &mut VecDeque<Job>) -> Vec<Part> {
    let Some(place) = place_of(&part.spots) else { return vec![part] };
    let is_there = |job: &Job| job.part_beside(&part).is_some_and(|it| are_in(&it.spots, &place));
    let has_others = queue.iter().any(|job| is_there(job) && !job.is_of_asker_of(&part));
    let place = if has_others { place } else { alone_in(place, &part.spots) };
    let mut parts: Vec<_> = part.split(&place).into_iter().collect();
    let beside = queue.iter_mut().filter(|job| job.part_beside(&part).is_some());
    parts.extend(beside.filter_map(|job| match job {
        Job::Write(other) => other.split(&place),
        Job::Read(_) => None,
    }));
    if !part.spots.is_empty() {
        queue.push_front(Job::Write(part));
    }
    queue.retain(|job| !matches!(job, Job::Write(part) if part.spots.is_empty()));
    parts
}

/// Writes parts of one file. Returns the result of each.
fn write_joined(parts: &[Part]) -> Vec<Result<(), Errno>> {
    let spots: Vec<_> = parts.iter().map(|part| part.spots.as_slice()).collect();
    let pieces = in_order(&spots);
    let mut results = vec![Ok(()); parts.len()];
    for group in side_by_side(&pieces, TOGETHER_MAX) {
        if group.len() > 1 && write_together(parts, group) {
            continue;
        }
        for (part, spot) in group {
            let written = parts[*part].frame.write(spot);
            results[*part] = results[*part].and(written);
        }
    }
    results
}

/// Writes pieces that lie side by side by one call. Returns whether it has written all of them. If
/// not, each is written alone: the error of one is not that of all.
fn write_together(parts: &[Part], group: &[Piece]) -> bool {
    let (first, at) = group[0];
    let slices = group.iter().map(|(part, spot)| parts[*part].frame.bytes_of(spot));
    let slices: Vec<_> = slices.map(IoSlice::new).collect();
    let bytes = group.iter().map(|(_, spot)| length_of(spot)).sum();
    pwritev(&parts[first].frame.file.file, &slices, at.run.offset) == Ok(bytes)
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

#[cfg(test)]
mod tests;
