//! What clients ask for besides writing: each request as system calls.

use super::session::{Opened, Session};
use super::storage::{OpenFile, Read, failed};
use crate::board::lock;
use crate::layout::FileAt;
use crate::paths::sync_names;
use lads_core::issue::Operation;
use lads_core::remote::locks::{FileId, Owner};
use lads_core::remote::message::{
    Call, FRAME_BYTES, Failure, FileNumber, LockKind, OpenMode, Outcome, Request, ToClient,
    ViewNumber,
};
use lads_core::remote::order::Breach;
use lads_core::remote::scatter::scatter;
use lads_core::view::{Datatype, View};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, fallocate, fstat, fsync, ftruncate, openat,
    unlinkat,
};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

impl Session {
    /// Does what is asked for. `None`: the answer comes later.
    ///
    /// # Errors
    /// If the client breaks the protocol.
    pub(super) fn call(self: &Arc<Self>, request: Request) -> Result<Option<Outcome>, Breach> {
        let done = |result: Result<(), Failure>| result.map(|()| Outcome::Done);
        let number = |result: Result<u64, Failure>| result.map(Outcome::Number);
        let outcome = match request.call {
            Call::Open { file, path, mode, group } => done(self.open(file, &path, mode, group)?),
            Call::View { view, file, displacement, filetype } => {
                let made = made_view(displacement, &filetype);
                let failure = self.lock().order.set_view(view, file, filetype.len(), made)?;
                failure.map_or(Ok(Outcome::Done), Err)
            }
            Call::Forget { view } => {
                self.lock().order.forget(view);
                Ok(Outcome::Done)
            }
            Call::Read { view, position, length } => {
                match self.read(request.number, view, position, length)? {
                    Ok(()) => return Ok(None),
                    Err(failure) => Err(failure),
                }
            }
            Call::Sync { file } => done(self.with(file, sync)?),
            Call::Flush { file } => done(self.with(file, |_| Ok(()))?),
            Call::Close { file } => {
                let synced = self.with(file, sync)?;
                self.close(file);
                done(synced)
            }
            Call::Size { file } => number(self.with(file, size_of)?),
            Call::SetSize { file, size } => done(self.with(file, |opened| {
                ftruncate(&opened.file.file, size).map_err(|it| failed(Operation::Write, it))
            })?),
            Call::Preallocate { file, size } => {
                done(self.with(file, |opened| preallocate(&opened.file.file, size))?)
            }
            Call::End { view } => {
                let (file, view) = self.lock().order.view(view)?;
                let size = self.with(file, size_of)?;
                let position = |size| {
                    view.position_at(size).map_err(|_| failed(Operation::Examine, Errno::FBIG))
                };
                number(size.and_then(position))
            }
            Call::AddShared { file, bytes } => number(self.with(file, |opened| {
                let before = self.shared.groups.add(&opened.group, bytes);
                before.ok_or_else(|| failed(Operation::Examine, Errno::INVAL))
            })?),
            Call::SetShared { file, position } => done(self.with(file, |opened| {
                let set = self.shared.groups.set(&opened.group, position);
                set.ok_or_else(|| failed(Operation::Examine, Errno::INVAL))
            })?),
            Call::Delete { path } => done(self.delete(&path)),
            Call::Lock { file, kind } => match self.take_lock(request.number, file, kind)? {
                Ok(true) => Ok(Outcome::Done),
                Ok(false) => return Ok(None),
                Err(failure) => Err(failure),
            },
            Call::Unlock { file } => {
                self.give_lock_back(file)?;
                Ok(Outcome::Done)
            }
        };
        Ok(Some(outcome.unwrap_or_else(Outcome::Failed)))
    }

    /// Does something with an open file.
    fn with<T>(
        &self,
        file: FileNumber,
        act: impl FnOnce(&Opened) -> Result<T, Failure>,
    ) -> Result<Result<T, Failure>, Breach> {
        let inner = self.lock();
        if let Some(failure) = inner.order.failure_of(file)? {
            return Ok(Err(failure));
        }
        let opened = inner.files.get(&file).map(Arc::clone).ok_or(Breach::Unknown)?;
        // The lock is not held in a system call: it may take long.
        drop(inner);
        Ok(act(&opened))
    }

    fn open(
        &self,
        file: FileNumber,
        path: &[u8],
        mode: OpenMode,
        group: [u8; 16],
    ) -> Result<Result<(), Failure>, Breach> {
        let opened = self.opened(path, mode, group);
        let mut inner = self.lock();
        inner.order.open(file, opened.as_ref().err().copied())?;
        Ok(opened.map(|opened| {
            self.shared.groups.join(group);
            inner.files.insert(file, Arc::new(opened));
        }))
    }

    fn opened(&self, path: &[u8], mode: OpenMode, group: [u8; 16]) -> Result<Opened, Failure> {
        let not_opened = |errno| failed(Operation::Open, errno);
        let place = || self.shared.files.take().ok_or_else(|| not_opened(Errno::NFILE));
        // A file that is created takes another one, for its directory.
        let (place, of_directory) = (place()?, mode.creates.then(place).transpose()?);
        let (directory, name, link) = self.shared.storage.reach.find(path).map_err(not_opened)?;
        let (file, is_made) = open_file(&directory, name, mode, link).map_err(not_opened)?;
        let stat = fstat(&file).map_err(not_opened)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(not_opened(Errno::ISDIR)),
            _ => return Err(not_opened(Errno::INVAL)),
        }
        let at = FileAt {
            directory: &directory,
            name,
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
        };
        let layout = self.shared.storage.layouts.of_file(&at).layout.in_pages();
        let made_in = Mutex::new(of_directory.filter(|_| is_made).map(|place| (directory, place)));
        let id = FileId { device: stat.st_dev, inode: stat.st_ino };
        let file = Arc::new(OpenFile { file, id, layout });
        Ok(Opened { file, writes: mode.writes, group, made_in, _place: place })
    }

    fn close(&self, file: FileNumber) {
        let mut inner = self.lock();
        inner.order.close(file);
        let Some(opened) = inner.files.remove(&file) else { return };
        drop(inner);
        let given_up = self.on_closed(file, &opened);
        let outcome = Outcome::Failed(failed(Operation::Examine, Errno::BADF));
        let replies = given_up.into_iter().map(|number| ToClient::Reply { number, outcome });
        let mut inner = self.lock();
        replies.for_each(|reply| inner.replies.add(reply));
    }

    /// Asks for the lock of a file. Returns whether the client has it now.
    fn take_lock(
        self: &Arc<Self>,
        number: u64,
        file: FileNumber,
        kind: LockKind,
    ) -> Result<Result<bool, Failure>, Breach> {
        self.with(file, |opened| {
            let taken = self.shared.locks.lock(self, (opened.file.id, file), number, kind);
            taken.map_err(|_| failed(Operation::Examine, Errno::NOLCK))
        })
    }

    /// Also of a file that cannot be used any more: others wait for it.
    fn give_lock_back(&self, file: FileNumber) -> Result<(), Breach> {
        let opened = self.lock().files.get(&file).map(Arc::clone).ok_or(Breach::Unknown)?;
        let owner = Owner { client: self.number, file };
        self.shared.locks.unlock(opened.file.id, owner).ok_or(Breach::Unknown)
    }

    fn delete(&self, path: &[u8]) -> Result<(), Failure> {
        let found = self.shared.storage.reach.find(path);
        let removed =
            found.and_then(|(directory, name, _)| unlinkat(&directory, name, AtFlags::empty()));
        removed.map_err(|errno| failed(Operation::Remove, errno))
    }

    fn read(
        self: &Arc<Self>,
        number: u64,
        view: ViewNumber,
        first: u64,
        length: u32,
    ) -> Result<Result<(), Failure>, Breach> {
        let (file, view) = self.lock().order.view(view)?;
        let open = self.with(file, |opened| Ok(Arc::clone(&opened.file)))?;
        let file = match open {
            Ok(file) => file,
            Err(failure) => return Ok(Err(failure)),
        };
        if length > FRAME_BYTES {
            return Err(Breach::Frame);
        }
        let not_read = |_| failed(Operation::Read, Errno::FBIG);
        let mut spots = Vec::new();
        let mut next = first;
        let Some(end) = first.checked_add(length.into()) else {
            return Ok(Err(failed(Operation::Read, Errno::FBIG)));
        };
        // In the order of the stream: what is behind the end of the file is not read.
        while next < end {
            match scatter(&view, &file.layout, first, next..end) {
                Ok(scattered) => {
                    next = scattered.end;
                    spots.extend(scattered.osts.into_values().flatten());
                }
                Err(error) => return Ok(Err(not_read(error))),
            }
        }
        spots.sort_unstable_by_key(|spot| spot.place);
        if self.begin_read() {
            let buffer = self.shared.storage.for_reading.take();
            let session = Arc::clone(self);
            self.shared.storage.read(Read { number, first, length, spots, file, buffer, session });
        }
        Ok(Ok(()))
    }
}

/// Opens a file, and says whether it was made.
fn open_file(
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

fn made_view(displacement: u64, filetype: &[u8]) -> Result<View, Failure> {
    let no_view = |_| failed(Operation::Examine, Errno::INVAL);
    let filetype = Datatype::take(filetype).map_err(no_view)?;
    View::new(displacement, &filetype).map_err(no_view)
}

fn size_of(opened: &Opened) -> Result<u64, Failure> {
    let stat = fstat(&opened.file.file).map_err(|errno| failed(Operation::Examine, errno))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// Makes data and name durable.
fn sync(opened: &Opened) -> Result<(), Failure> {
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

fn preallocate(file: &OwnedFd, size: u64) -> Result<(), Failure> {
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
