//! A target that is no directory and no file: standard output, a FIFO, a device.
//!
//! A block device is written wherever a block belongs. Anything else takes bytes only in order: the
//! source sends blocks in order, but over several data streams, so they arrive a little out of
//! order. Those that are early are held in their buffers. One thread writes what is next. Each
//! block that the source has handed out has a buffer here, so the next one can always come.

use super::{SinkEnd, failed, is_file};
use crate::board::lock;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::Options;
use crate::job::stdio::{LOOK_INTERVAL, PIPE_BYTES, check_output, is_stdio};
use crate::whole::write_all;
use lads_core::entry::Entry;
use lads_core::issue::{Failure, Operation};
use lads_core::layout::Layout;
use lads_core::message::Answer;
use lads_core::schedule::{OstSpec, Policy};
use lads_core::sink::{Commit, Committed, Event, Examined, Write};
use lads_core::units::{Block, EntryId, OstId};
use lads_sys::Buffer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom, fstat, fsync, openat, seek};
use rustix::io::{Errno, write};
use rustix::pipe::fcntl_setpipe_size;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// A target that is no directory and no file.
pub(super) struct Output {
    target: Vec<u8>,
    sort: Sort,
    /// The only file that is written to it.
    entry: OnceLock<EntryId>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

enum Sort {
    /// It takes bytes in order. A FIFO is opened when there is something to write: that waits for a
    /// reader.
    Pipe(OnceLock<OwnedFd>),
    /// A block device of this many bytes.
    Device(OwnedFd, u64),
}

/// Blocks that were not written yet, by their offsets. A block that was sent twice is there twice.
#[derive(Default)]
struct Queue {
    position: u64,
    held: BTreeMap<u64, Vec<(Write, Buffer)>>,
    failure: Option<Failure>,
}

impl Queue {
    /// Takes the frames that can be written now, or any if all that are held have failed.
    fn take_next(&mut self) -> Option<Vec<(Write, Buffer)>> {
        let first = self.held.first_entry()?;
        let is_next = self.failure.is_some() || *first.key() <= self.position;
        is_next.then(|| first.remove())
    }

    /// Frames wait for an earlier one, which does not arrive if the transfer is stopping.
    fn on_waiting(&mut self, is_stopping: bool) {
        if is_stopping {
            self.failure.get_or_insert_with(|| failed(Operation::Write, Errno::INTR));
        }
    }
}

impl Output {
    /// The output that a target stands for, with the options made to fit; `None` if the target is a
    /// directory or a file, or will be.
    ///
    /// # Errors
    /// If it cannot be written to, or an option has no meaning for it.
    pub(super) fn of(target: &[u8], options: &mut Options) -> Result<Option<Self>, Fatal> {
        let sort = match is_stdio(target) {
            true => Some(FileType::Fifo),
            false => rustix::fs::stat(target).ok().map(|it| FileType::from_raw_mode(it.st_mode)),
        };
        let is_device = match sort {
            Some(FileType::BlockDevice) => true,
            Some(FileType::Fifo | FileType::CharacterDevice) => false,
            _ => return Ok(None),
        };
        let name = String::from_utf8_lossy(target);
        if !options.write_devices {
            let text = format!(
                "the target {name} is a device or a FIFO; add --write-devices to write to it"
            );
            return Err(Fatal::new(ExitCode::SinkRefuses, text));
        }
        check_output(options)?;
        // Nothing is left that another attempt could find.
        options.journal = false;
        let sort = match (is_device, is_stdio(target)) {
            (true, _) => open_device(target),
            (false, true) => standard().map(|file| Sort::Pipe(OnceLock::from(file))),
            (false, false) => Ok(Sort::Pipe(OnceLock::new())),
        };
        let sort = sort.map_err(|errno| {
            let hint = match errno {
                Errno::BUSY => ": it is in use, for example mounted",
                _ => "",
            };
            Fatal::new(ExitCode::SinkRefuses, format!("cannot write to {name}: {errno}{hint}"))
        })?;
        let (queue, changed) = (Mutex::default(), Condvar::new());
        Ok(Some(Self { target: target.to_vec(), sort, entry: OnceLock::new(), queue, changed }))
    }

    /// Makes the only OST and the options fit to it.
    pub(super) fn fit(&self, ost: &mut OstSpec, buffer_count: u32, options: &mut Options) {
        if self.is_in_order() {
            // Blocks that are early are held in their buffers, and count as being written.
            ost.in_flight_max = buffer_count;
            options.schedule = Policy::Layout;
        }
    }

    /// Whether it takes bytes only in order.
    pub(super) fn is_in_order(&self) -> bool {
        matches!(self.sort, Sort::Pipe(_))
    }

    /// Writes a block to a block device.
    pub(super) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        match &self.sort {
            Sort::Device(file, _) => write_all(file, bytes, offset),
            Sort::Pipe(_) => unreachable!("its blocks are held for the thread that writes"),
        }
    }

    /// Holds a frame until its turn comes.
    pub(super) fn hold(&self, write: Write, buffer: Buffer) {
        let Some((row, _)) = write.rows.first() else { return };
        let offset = row.block.offset;
        lock(&self.queue).held.entry(offset).or_default().push((write, buffer));
        self.changed.notify_one();
    }

    /// Nothing more comes: what is held has failed.
    fn close(&self, failure: Failure) {
        lock(&self.queue).failure.get_or_insert(failure);
        self.changed.notify_one();
    }

    /// Whether a file of this length fits.
    fn fits(&self, size: u64) -> bool {
        match self.sort {
            Sort::Device(_, bytes) => size <= bytes,
            Sort::Pipe(_) => true,
        }
    }

    /// What is open, once it is.
    fn file(&self) -> Option<&OwnedFd> {
        match &self.sort {
            Sort::Device(file, _) => Some(file),
            Sort::Pipe(file) => file.get(),
        }
    }

    /// Makes durable what was written, where that can be done.
    fn sync(&self) -> Result<(), Errno> {
        match self.file().map(fsync) {
            // A pipe cannot be synced.
            None | Some(Ok(()) | Err(Errno::INVAL | Errno::ROFS | Errno::OPNOTSUPP)) => Ok(()),
            Some(Err(errno)) => Err(errno),
        }
    }

    /// Opens a FIFO, which waits for a reader.
    fn open(&self, is_stopping: &impl Fn() -> bool) -> Result<&OwnedFd, Errno> {
        let Sort::Pipe(place) = &self.sort else { unreachable!("a device is open") };
        if let Some(file) = place.get() {
            return Ok(file);
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        loop {
            match openat(CWD, self.target.as_slice(), flags, Mode::empty()) {
                Ok(file) => {
                    let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
                    return Ok(place.get_or_init(|| file));
                }
                Err(Errno::NXIO) if !is_stopping() => std::thread::sleep(LOOK_INTERVAL),
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Writes bytes in order; waits while nobody takes them.
    fn write(&self, mut bytes: &[u8], is_stopping: &impl Fn() -> bool) -> Result<(), Errno> {
        let file = self.open(is_stopping)?;
        let timeout = Timespec::try_from(LOOK_INTERVAL).expect("it is short");
        while !bytes.is_empty() {
            match poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&timeout)) {
                Ok(0) if is_stopping() => return Err(Errno::INTR),
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno),
            }
            match write(file, bytes) {
                Ok(0) => return Err(Errno::IO),
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

impl SinkEnd {
    /// What the thread that writes in order does until the transfer is over.
    pub(super) fn write_in_order(&self, output: &Output) {
        let is_over = || self.hub.with(|inner| inner.is_over);
        let is_stopping = || self.hub.with(|inner| inner.is_over || inner.session.is_stopping());
        loop {
            let mut queue = lock(&output.queue);
            let Some(frames) = queue.take_next() else {
                let waited = output.changed.wait_timeout(queue, LOOK_INTERVAL);
                let mut queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                match queue.held.is_empty() {
                    true if is_over() => return,
                    true => {}
                    false => queue.on_waiting(is_stopping()),
                }
                continue;
            };
            let (position, failure) = (queue.position, queue.failure);
            drop(queue);
            for (write, buffer) in frames {
                self.write_frame(output, write, buffer, position, failure, &is_stopping);
            }
        }
    }

    /// Writes a frame, but for what of it was written before.
    fn write_frame(
        &self,
        output: &Output,
        write: Write,
        buffer: Buffer,
        mut position: u64,
        mut failure: Option<Failure>,
        is_stopping: &impl Fn() -> bool,
    ) {
        let started = Instant::now();
        let mut failures = Vec::with_capacity(write.rows.len());
        for (row, place) in &write.rows {
            let Block { entry, offset, length } = row.block;
            let bytes = &buffer[*place as usize..][..length as usize];
            let is_next = offset == position && output.entry.get() == Some(&entry);
            if failure.is_none() && is_next {
                let _asked = self.begin_call(Operation::Write, entry, Some(write.ost));
                match output.write(bytes, is_stopping) {
                    Ok(()) => position = row.block.end(),
                    Err(errno) => failure = Some(failed(Operation::Write, errno)),
                }
            } else if failure.is_none() && row.block.end() > position {
                failure = Some(failed(Operation::Write, Errno::SPIPE));
            }
            failures.push(failure);
        }
        let service = started.elapsed();
        drop(buffer);
        let mut queue = lock(&output.queue);
        queue.position = queue.position.max(position);
        queue.failure = queue.failure.or(failure);
        drop(queue);
        self.tell(Event::Written { write, service, failures });
    }

    /// Wants the data of the only file.
    pub(super) fn want_output(&self, output: &Output, entries: Vec<Entry>) {
        let want = |entry: Entry| {
            let is_first = is_file(&entry.kind) && output.entry.set(entry.id).is_ok();
            let errno = match () {
                () if !is_first => Some(Errno::SPIPE),
                () if !entry.is_unsized() && !output.fits(entry.size()) => Some(Errno::NOSPC),
                () => None,
            };
            let examined = match errno {
                None => {
                    let layout = Layout::on(OstId(0));
                    Examined::Want { done: Vec::new(), layout, extents: Vec::new() }
                }
                Some(errno) => {
                    let failure = failed(Operation::Write, errno);
                    if let Some(item) = self.table.remove(entry.id) {
                        self.tell_failure(&item, failure);
                    }
                    Examined::Answer(Answer::Failed(failure))
                }
            };
            (entry.id, examined)
        };
        self.tell_last(Event::Examined(entries.into_iter().map(want).collect()));
    }

    /// The file of which all blocks have come is done when it is durable.
    pub(super) fn finish_output(&self, output: &Output, commits: &[Commit]) {
        let finish = |commit: &Commit| {
            let _asked = self.begin_call(Operation::Sync, commit.entry, None);
            let committed = match output.sync() {
                Ok(()) => {
                    self.table.remove(commit.entry);
                    Committed::Complete
                }
                Err(errno) => Committed::Failed(failed(Operation::Sync, errno)),
            };
            (commit.entry, committed)
        };
        self.tell_last(Event::Committed(commits.iter().map(finish).collect()));
    }

    /// Nothing more of the file comes.
    pub(super) fn close_output(&self, output: &Output) {
        output.close(failed(Operation::Write, Errno::CANCELED));
    }
}

/// Standard output. A pipe is opened again, so that writing to it never blocks a thread and its
/// other users do not notice; a file must keep its offset.
fn standard() -> Result<OwnedFd, Errno> {
    let own = io::stdout().as_fd().try_clone_to_owned().map_err(|_| Errno::BADF)?;
    let sort = FileType::from_raw_mode(fstat(&own)?.st_mode);
    if sort != FileType::Fifo {
        return Ok(own);
    }
    // A user may have used up what he may have of this.
    let _ = fcntl_setpipe_size(&own, PIPE_BYTES);
    let path = format!("/proc/self/fd/{}", own.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty()).unwrap_or(own))
}

/// Opens a block device that nobody else uses.
fn open_device(target: &[u8]) -> Result<Sort, Errno> {
    let flags = OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(CWD, target, flags, Mode::empty())?;
    let bytes = seek(&file, SeekFrom::End(0))?;
    Ok(Sort::Device(file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(sort: Sort) -> Output {
        let (queue, changed) = (Mutex::default(), Condvar::new());
        Output { target: Vec::new(), sort, entry: OnceLock::new(), queue, changed }
    }

    #[test]
    fn a_device_that_cannot_be_made_durable_is_an_error_and_a_pipe_is_not() {
        // This descriptor refuses to be synced, as a device does that has lost data.
        let refusing = openat(CWD, "/dev/null", OFlags::PATH, Mode::empty()).unwrap();
        assert_eq!(output(Sort::Device(refusing, 0)).sync(), Err(Errno::BADF));
        let (_reader, writer) = io::pipe().unwrap();
        assert_eq!(output(Sort::Pipe(OnceLock::from(OwnedFd::from(writer)))).sync(), Ok(()));
        assert_eq!(output(Sort::Pipe(OnceLock::new())).sync(), Ok(()));
    }

    #[test]
    fn frames_wait_for_an_earlier_one_until_the_transfer_stops() {
        let mut queue = Queue { position: 10, ..Queue::default() };
        assert!(queue.take_next().is_none());
        for offset in [10, 30] {
            queue.held.insert(offset, Vec::new());
        }
        assert!(queue.take_next().is_some() && queue.take_next().is_none());
        queue.on_waiting(false);
        assert!(queue.take_next().is_none());
        queue.on_waiting(true);
        assert!(queue.take_next().is_some());
        assert_eq!(queue.failure, Some(failed(Operation::Write, Errno::INTR)));
    }
}
