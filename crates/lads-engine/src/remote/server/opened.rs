//! A file that a client has open, and what is done with it as a whole.

use super::places::Place;
use super::storage::{OpenFile, failed};
use crate::board::lock;
use crate::paths::sync_names;
use lads_core::issue::Operation;
use lads_core::remote::extent::Extent;
use lads_core::remote::message::{Failure, OpenMode};
use lads_core::remote::scatter::{Spot, scatter};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, fstat, fsync, ftruncate, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// A file that a client has open.
pub(super) struct Opened {
    pub(super) file: Arc<OpenFile>,
    pub(super) writes: bool,
    /// The directory, if the file was created and its name is not durable yet.
    pub(super) made_in: Mutex<Option<(Arc<OwnedFd>, Place)>>,
    /// One of the files that clients may have open.
    pub(super) _place: Place,
}

/// Where bytes lie that are to be read, in the order of the stream: what is behind the end of the
/// file is not read.
pub(super) fn spots_of(extent: &Extent, file: &OpenFile) -> Result<Vec<Spot>, Failure> {
    let positions = extent.positions();
    let mut spots = Vec::new();
    let mut next = positions.start;
    while next < positions.end {
        let rest = next..positions.end;
        let scattered = scatter(extent.view(), &file.layout, positions.start, rest)
            .map_err(|_| failed(Operation::Read, Errno::FBIG))?;
        next = scattered.end;
        spots.extend(scattered.osts.into_values().flatten());
    }
    spots.sort_unstable_by_key(|spot| spot.place);
    Ok(spots)
}

/// Opens a file, and says whether it was made.
pub(super) fn open_file(
    directory: &OwnedFd,
    name: &[u8],
    mode: OpenMode,
    link: OFlags,
) -> Result<(OwnedFd, bool), Errno> {
    let access = match (mode.reads, mode.writes) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    // A FIFO would wait for its other end.
    let flags = access | link | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    if !mode.creates {
        return openat(directory, name, flags, Mode::empty()).map(|file| (file, false));
    }
    let new = flags | OFlags::CREATE | OFlags::EXCL;
    match openat(directory, name, new, Mode::from_raw_mode(0o666)) {
        Err(Errno::EXIST) if !mode.is_new => {
            openat(directory, name, flags, Mode::empty()).map(|file| (file, false))
        }
        result => result.map(|file| (file, true)),
    }
}

pub(super) fn size_of(opened: &Opened) -> Result<u64, Failure> {
    let stat = fstat(&opened.file.file).map_err(|errno| failed(Operation::Examine, errno))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Makes data and name durable.
pub(super) fn sync(opened: &Opened) -> Result<(), Failure> {
    let synced = match opened.writes {
        true => fsync(&opened.file.file),
        false => Ok(()),
    };
    let mut made_in = lock(&opened.made_in);
    let synced = synced.and_then(|()| made_in.as_ref().map_or(Ok(()), |(it, _)| sync_names(it)));
    synced.map_err(|errno| failed(Operation::Sync, errno))?;
    *made_in = None;
    Ok(())
}

pub(super) fn preallocate(file: &OwnedFd, size: u64) -> Result<(), Failure> {
    // The system refuses to reserve nothing.
    if size == 0 {
        return Ok(());
    }
    let reserved = match fallocate(file, FallocateFlags::empty(), 0, size) {
        // The length is what MPI asks for; to reserve the space is optional.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fstat(file).and_then(|stat| {
            let is_shorter = u64::try_from(stat.st_size).unwrap_or(0) < size;
            if is_shorter { ftruncate(file, size) } else { Ok(()) }
        }),
        result => result,
    };
    reserved.map_err(|errno| failed(Operation::Preallocate, errno))
}
