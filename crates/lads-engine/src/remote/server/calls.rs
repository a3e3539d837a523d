//! What clients ask for besides writing: each task as system calls.

use super::opened::{Opened, open_file, preallocate, size_of, spots_of, sync};
use super::session::Session;
use super::storage::{Asker, OpenFile, Read, failed};
use crate::board::lock;
use crate::layout::FileAt;
use lads_core::issue::Operation;
use lads_core::remote::extent::Extent;
use lads_core::remote::locks::FileId;
use lads_core::remote::message::{Failure, FileNumber, OpenMode, Outcome};
use lads_core::remote::server::{Act, Breach, Task};
use rustix::fs::{AtFlags, FileType, fstat, ftruncate, unlinkat};
use rustix::io::Errno;
use std::sync::{Arc, Mutex};

impl Session {
    /// Does a task, and reports it.
    pub(super) fn do_task(self: &Arc<Self>, Task { request, act }: Task) -> Result<(), Breach> {
        let done = |result: Result<(), Failure>| result.map(|()| Outcome::Done);
        let is_noted = act.is_noted();
        let outcome = match act {
            Act::Open { file, path, mode } => return self.open(request, file, &path, mode),
            Act::Read { file, extent } => return self.read(request, file, &extent),
            Act::Sync(file) => done(self.with(file, sync)),
            Act::Close { file, is_usable } => {
                let opened = lock(&self.files).remove(&file);
                done(opened.filter(|_| is_usable).map_or(Ok(()), |opened| sync(&opened)))
            }
            Act::Size(file) => self.with(file, size_of).map(Outcome::Number),
            Act::SetSize(file, size) => done(self.with(file, |opened| {
                ftruncate(&opened.file.file, size).map_err(|it| failed(Operation::Write, it))
            })),
            Act::Preallocate(file, size) => {
                done(self.with(file, |opened| preallocate(&opened.file.file, size)))
            }
            Act::Delete(path) => done(self.delete(&path)),
        };
        if let Some(list) = self.list.as_ref().filter(|_| is_noted && outcome.is_ok()) {
            list.add_request(request);
        }
        let outcome = outcome.unwrap_or_else(Outcome::Failed);
        self.shared.event(|server, now| server.on_done(self.number, request, outcome, now))
    }

    /// Does something with an open file.
    fn with<T>(
        &self,
        file: FileNumber,
        act: impl FnOnce(&Opened) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        // It may have been closed meanwhile.
        let opened = lock(&self.files).get(&file).map(Arc::clone);
        // The lock is not held in a system call: it may take long.
        opened.ok_or_else(|| failed(Operation::Examine, Errno::BADF)).and_then(|it| act(&it))
    }

    fn open(
        &self,
        request: u64,
        file: FileNumber,
        path: &[u8],
        mode: OpenMode,
    ) -> Result<(), Breach> {
        let opened = self.opened(path, mode);
        let result = opened.map(|opened| {
            let id = opened.file.id;
            if let Some(list) = &self.list {
                list.add_file(file, id, mode.writes);
            }
            lock(&self.files).insert(file, Arc::new(opened));
            id
        });
        self.shared.event(|server, now| server.on_opened(self.number, request, result, now))
    }

    fn opened(&self, path: &[u8], mode: OpenMode) -> Result<Opened, Failure> {
        let not_opened = |errno| failed(Operation::Open, errno);
        let place = || self.shared.place_for_file().ok_or_else(|| not_opened(Errno::NFILE));
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
        Ok(Opened { file, writes: mode.writes, made_in, _place: place })
    }

    fn delete(&self, path: &[u8]) -> Result<(), Failure> {
        let found = self.shared.storage.reach.find(path);
        let removed =
            found.and_then(|(directory, name, _)| unlinkat(&directory, name, AtFlags::empty()));
        removed.map_err(|errno| failed(Operation::Remove, errno))
    }

    fn read(
        self: &Arc<Self>,
        request: u64,
        file: FileNumber,
        extent: &Extent,
    ) -> Result<(), Breach> {
        let file = self.with(file, |opened| Ok(Arc::clone(&opened.file)));
        let read = file.and_then(|file| {
            let spots = spots_of(extent, &file)?;
            Ok((file, spots))
        });
        match read {
            Ok((file, spots)) => {
                let positions = extent.positions().clone();
                let buffer = self.shared.storage.for_reading.take();
                let asker: Arc<dyn Asker> = Arc::clone(self) as Arc<dyn Asker>;
                self.shared.storage.read(Read { request, positions, spots, file, buffer, asker });
                Ok(())
            }
            Err(failure) => {
                self.shared.event(|it, _| it.on_read(self.number, request, Err(failure))).map(drop)
            }
        }
    }
}
