//! A source that is a single file of an unusual sort: standard input, a FIFO, a device, or a file
//! that grows while it is moved.
//!
//! Nobody knows the length of most of them before their end. They are announced as unsized, and
//! their blocks are handed out in order. Several threads have blocks at a time: while one reads,
//! the others send.

use crate::board::lock;
use crate::clock::Clock;
use crate::event::ExitCode;
use crate::fatal::Fatal;
use crate::job::stdio::{LOOK_INTERVAL, PIPE_BYTES, check_input, is_stdio};
use crate::job::{IoMode, Options};
use crate::metadata::metadata_of;
use crate::stat::{identity_of, now};
use lads_core::entry::UNSIZED_BYTES;
use lads_core::entry::{Identity, Metadata, Timestamp};
use lads_core::follow::{Following, Look};
use lads_core::units::EntryId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek};
use rustix::io::{Errno, pread, read};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{getegid, geteuid};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The permissions of what is made of a pipe: those of a new file with the usual umask.
const PIPE_MODE: u32 = 0o644;

/// The permissions of what is made of a device: only its owner reads it.
const DEVICE_MODE: u32 = 0o600;

/// A source that is a single file of an unusual sort.
#[derive(Debug)]
pub(super) struct Input {
    name: Vec<u8>,
    metadata: Metadata,
    file: OwnedFd,
    sort: Sort,
    progress: Mutex<Progress>,
    moved: Condvar,
    clock: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// It is read once, in order.
    Pipe,
    /// A regular file whose size is not what its status says: it is read in order, too.
    MadeUp,
    /// A file that is at its end when it has not grown for this long.
    Growing { idle: Duration },
    /// A block device of this many bytes.
    Device { bytes: u64 },
}

/// How far an input has been read.
#[derive(Debug)]
struct Progress {
    /// Pipes are read up to here.
    position: u64,
    /// The length, once the end was met.
    end: Option<u64>,
    failure: Option<Errno>,
    /// The present pass over a file that grows.
    pass: Option<Pass>,
}

/// A pass over a file that grows.
#[derive(Debug)]
struct Pass {
    /// The entry that it is read for, once a block of it was read.
    entry: Option<EntryId>,
    following: Following,
    /// The length, and the time of change that the copy gets, once the end was met.
    end: Option<(u64, Timestamp)>,
}

/// What became of a block that was to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Got {
    /// This many bytes of it. If they are fewer than asked for, the input ends after them.
    Bytes(usize),
    /// Nothing: the transfer stops.
    Stopped,
    /// Nothing: the file must be read again from its beginning.
    Changed,
}

impl Input {
    /// The input that the paths stand for; `None` if they are files and directories.
    ///
    /// # Errors
    /// If it cannot be opened, or there are others beside it.
    pub(super) fn of(paths: &[Vec<u8>], options: &Options) -> Result<Option<Self>, Fatal> {
        let follows = options.follow_seconds > 0;
        let Some(path) = paths.iter().find(|path| is_stdio(path)).or_else(|| {
            let first = paths.first()?;
            (follows || options.copy_devices && is_device(first)).then_some(first)
        }) else {
            return Ok(None);
        };
        check_input(paths, options)?;
        let input = match () {
            () if is_stdio(path) => Self::standard(),
            () if follows => Self::growing(path, options.follow_seconds),
            () => Self::device(path, options.source_io),
        };
        let failed = |errno: Errno| {
            let path = String::from_utf8_lossy(path);
            Fatal::new(ExitCode::SourceUnreadable, format!("cannot read {path}: {errno}"))
        };
        input.map(Some).map_err(failed)
    }

    fn standard() -> Result<Self, Errno> {
        let file = io::stdin().as_fd().try_clone_to_owned().map_err(|_| Errno::BADF)?;
        Ok(Self::new(b"stdin", new_metadata(PIPE_MODE), file, Sort::Pipe))
    }

    fn growing(path: &[u8], seconds: u32) -> Result<Self, Errno> {
        let file =
            openat(CWD, path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let sort = Sort::Growing { idle: Duration::from_secs(seconds.into()) };
        let input = Self::new(last_of(path), metadata_of(&stat), file, sort);
        input.begin_pass(None)?;
        Ok(input)
    }

    fn device(path: &[u8], mode: IoMode) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(CWD, path, flags, Mode::empty())?;
        if !is_block_device(&fstat(&file)?) {
            return Ok(Self::new(last_of(path), new_metadata(PIPE_MODE), file, Sort::Pipe));
        }
        let bytes = seek(&file, SeekFrom::End(0))?;
        let direct = (mode != IoMode::Buffered)
            .then(|| openat(CWD, path, flags | OFlags::DIRECT, Mode::empty()).ok());
        let file = direct.flatten().unwrap_or(file);
        Ok(Self::new(last_of(path), new_metadata(DEVICE_MODE), file, Sort::Device { bytes }))
    }

    /// A regular file in a tree whose size is not what its status says.
    pub(super) fn made_up(name: &[u8], stat: &Stat, file: OwnedFd) -> Self {
        Self::new(name, metadata_of(stat), file, Sort::MadeUp)
    }

    fn new(name: &[u8], metadata: Metadata, file: OwnedFd, sort: Sort) -> Self {
        if sort == Sort::Pipe {
            // Not all of them are pipes, and a user may have used up what he may have of this.
            let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
        }
        let progress = Progress { position: 0, end: None, failure: None, pass: None };
        let (name, progress) = (name.to_vec(), Mutex::new(progress));
        let (moved, clock) = (Condvar::new(), Clock::start());
        Self { name, metadata, file, sort, progress, moved, clock }
    }

    /// The name that it gets in a directory at the sink.
    pub(super) fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What it is announced as.
    pub(super) fn identity(&self) -> Identity {
        let size = match self.sort {
            Sort::Device { bytes } => bytes,
            Sort::Pipe | Sort::MadeUp | Sort::Growing { .. } => UNSIZED_BYTES,
        };
        let now = now();
        Identity { size, mtime: self.metadata.mtime, ctime: now, inode: 0 }
    }

    /// The length, and the time of change that the copy gets, once the end was met.
    pub(super) fn end(&self) -> Option<(u64, Timestamp)> {
        let progress = lock(&self.progress);
        let at_end = || if self.sort == Sort::MadeUp { self.metadata.mtime } else { now() };
        match &progress.pass {
            Some(pass) => pass.end,
            None => progress.end.map(|end| (end, at_end())),
        }
    }

    /// Starts over with a file that grows, because it changed in another way. It is read for this
    /// entry from now on. Returns `false` if the input cannot be read again.
    ///
    /// # Errors
    /// Of the system call.
    pub(super) fn start_over(&self, entry: EntryId) -> Result<bool, Errno> {
        self.begin_pass(Some(entry))?;
        Ok(matches!(self.sort, Sort::Growing { .. }))
    }

    fn begin_pass(&self, entry: Option<EntryId>) -> Result<(), Errno> {
        if let Sort::Growing { idle } = self.sort {
            let status = identity_of(&fstat(&self.file)?);
            let following = Following::new(idle, status, self.clock.now(), now());
            lock(&self.progress).pass = Some(Pass { entry, following, end: None });
        }
        Ok(())
    }

    /// Reads `length` bytes of an entry at an offset, and waits until they are there or the input
    /// has come to its end. `to` is whole pages.
    ///
    /// # Errors
    /// Of the system call; ESPIPE if the bytes are to be read again and cannot be.
    pub(super) fn read(
        &self,
        entry: EntryId,
        offset: u64,
        length: usize,
        to: &mut [u8],
        is_stopping: impl Fn() -> bool,
    ) -> Result<Got, Errno> {
        match self.sort {
            Sort::Pipe | Sort::MadeUp => self.read_in_turn(offset, &mut to[..length], is_stopping),
            Sort::Growing { .. } => {
                self.read_as_it_grows(entry, offset, &mut to[..length], is_stopping)
            }
            Sort::Device { .. } => self.read_device(offset, length, to),
        }
    }

    fn read_device(&self, offset: u64, length: usize, to: &mut [u8]) -> Result<Got, Errno> {
        let mut filled = 0;
        while filled < length {
            match pread(&self.file, &mut to[filled..], offset + filled as u64) {
                Ok(0) => return Err(Errno::STALE),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Got::Bytes(length))
    }

    fn read_in_turn(
        &self,
        offset: u64,
        to: &mut [u8],
        is_stopping: impl Fn() -> bool,
    ) -> Result<Got, Errno> {
        let mut progress = lock(&self.progress);
        loop {
            match &*progress {
                Progress { failure: Some(errno), .. } => return Err(*errno),
                Progress { end: Some(end), .. } if *end <= offset => return Ok(Got::Bytes(0)),
                Progress { position, .. } if *position > offset => return Err(Errno::SPIPE),
                Progress { position, .. } if *position == offset => break,
                _ if is_stopping() => return Ok(Got::Stopped),
                _ => {}
            }
            let waited = self.moved.wait_timeout(progress, LOOK_INTERVAL);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(progress);
        // It is this thread's turn until the position moves on.
        let result = match self.sort {
            Sort::MadeUp => read_to_end(&self.file, to).map(Got::Bytes),
            _ => read_pipe(&self.file, to, is_stopping),
        };
        let mut progress = lock(&self.progress);
        match result {
            Ok(Got::Bytes(count)) => {
                progress.position += count as u64;
                if count < to.len() {
                    progress.end = Some(progress.position);
                }
            }
            Ok(Got::Stopped | Got::Changed) => {}
            Err(errno) => progress.failure = Some(errno),
        }
        drop(progress);
        self.moved.notify_all();
        result
    }

    fn read_as_it_grows(
        &self,
        entry: EntryId,
        offset: u64,
        to: &mut [u8],
        is_stopping: impl Fn() -> bool,
    ) -> Result<Got, Errno> {
        let mut filled = 0;
        while filled < to.len() {
            match pread(&self.file, &mut to[filled..], offset + filled as u64) {
                Ok(0) => {}
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno),
            }
            match self.look(entry, offset, filled)? {
                Look::Changed => return Ok(Got::Changed),
                Look::Ended(end, _) if end <= offset + filled as u64 => {
                    let count = usize::try_from(end.saturating_sub(offset)).unwrap_or(0);
                    return Ok(Got::Bytes(count.min(filled)));
                }
                // It grew between the last two calls.
                Look::Ended(..) => {}
                Look::Open if is_stopping() => return Ok(Got::Stopped),
                Look::Open => std::thread::sleep(LOOK_INTERVAL),
            }
        }
        if let Some(pass) = Self::pass_for(&mut lock(&self.progress), entry) {
            pass.following.on_read(offset + filled as u64);
        }
        Ok(Got::Bytes(filled))
    }

    /// Looks whether a file that grows has ended, after `filled` bytes were read at an offset.
    fn look(&self, entry: EntryId, offset: u64, filled: usize) -> Result<Look, Errno> {
        let mut progress = lock(&self.progress);
        let Some(pass) = Self::pass_for(&mut progress, entry) else { return Ok(Look::Changed) };
        if let Some((size, mtime)) = pass.end {
            return Ok(Look::Ended(size, mtime));
        }
        if filled > 0 {
            pass.following.on_read(offset + filled as u64);
        }
        let look = pass.following.on_look(identity_of(&fstat(&self.file)?), self.clock.now());
        if let Look::Ended(size, mtime) = look {
            pass.end = Some((size, mtime));
        }
        Ok(look)
    }

    /// Returns the present pass, if it is for this entry.
    fn pass_for(progress: &mut Progress, entry: EntryId) -> Option<&mut Pass> {
        let pass = progress.pass.as_mut()?;
        (*pass.entry.get_or_insert(entry) == entry).then_some(pass)
    }
}

/// Fills `to` from a regular file that has no size, up to the end of the file. A file that would
/// make the reader wait for more, such as a log of the kernel, ends there.
fn read_to_end(file: &OwnedFd, to: &mut [u8]) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < to.len() {
        match read(file, &mut to[filled..]) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}

/// Fills `to` from a pipe, as far as there is something to come.
fn read_pipe(file: &OwnedFd, to: &mut [u8], is_stopping: impl Fn() -> bool) -> Result<Got, Errno> {
    let timeout = Timespec::try_from(LOOK_INTERVAL).expect("it is short");
    let mut filled = 0;
    while filled < to.len() {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&timeout)) {
            Ok(0) if is_stopping() => return Ok(Got::Stopped),
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno),
        }
        match read(file, &mut to[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(Got::Bytes(filled))
}

/// Whether a path, links followed, is a FIFO or a device.
fn is_device(path: &[u8]) -> bool {
    let stat = rustix::fs::stat(path);
    let sort = stat.map(|stat| FileType::from_raw_mode(stat.st_mode));
    matches!(sort, Ok(FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice))
}

fn is_block_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
}

fn last_of(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().filter(|name| !name.is_empty()).unwrap_or(b"input")
}

fn new_metadata(mode: u32) -> Metadata {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    Metadata { mode, uid, gid, mtime: now(), xattrs: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::write;
    use rustix::pipe::{PipeFlags, pipe_with};

    /// A log of the kernel has no end: its reader would have to wait for more.
    #[test]
    fn a_file_whose_reader_would_have_to_wait_ends_there() {
        let (file, log) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        write(&log, b"lines").unwrap();
        let mut bytes = [0; 16];
        assert_eq!(read_to_end(&file, &mut bytes), Ok(5));
        assert_eq!(read_to_end(&file, &mut bytes), Ok(0));
        assert_eq!(&bytes[..5], b"lines");
    }
}
