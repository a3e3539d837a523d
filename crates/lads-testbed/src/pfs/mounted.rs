//! The kernel's requests to the emulated file system, and the answers.
//!
//! Every read or write is answered when its storage targets have served it, by a thread of the
//! service. Every operation on names is answered when the metadata server would have answered. The
//! threads that take requests from the kernel wait for nothing.

use super::attributes::{Changes, attributes, change, drop_privileges, entry};
use super::file::{FileBody, errno};
use super::hidden::{self, Hidden};
use super::layouts;
use super::queues::{Direction, Start};
use super::system::System;
use super::tree::{Directory, Kind, Maker, NewName, Renaming, Tree};
use crate::kernel_words::{code, kind};
use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use lads_core::lov::ATTRIBUTE_ADD;
use lads_sys::emulated;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno as Error;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

/// How long the kernel may cache what it was told; nobody else changes anything.
const FOR_LONG: Duration = Duration::from_secs(3600);

/// The largest request, in bytes. The kernel sends at most 256 pages anyway.
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The number of requests that the kernel may have in progress with no program waiting for each:
/// readahead and writeback. It is enough for 8 MiB of each of 32 files.
const BACKGROUND_MAX: u16 = 256;

/// Lustre's `O_LOV_DELAY_CREATE` as it arrives here: the kernel does not pass on its other bit,
/// `O_NOCTTY`.
const DELAY_LAYOUT: i32 = libc::O_ASYNC;

/// The error for an unknown file handle, which occurs only if the kernel errs.
const NOT_OPEN: Error = Error::BADF;

/// The emulated file system as the kernel sees it.
pub(super) struct Mounted {
    system: Arc<System>,
    handles: RwLock<HashMap<u64, Handle>>,
    last_handle: AtomicU64,
}

/// An open file.
#[derive(Clone)]
enum Handle {
    File(u64, Arc<FileBody>),
    /// A hidden file, with the contents that it had when it was opened.
    Hidden(Hidden, Arc<Vec<u8>>),
}

impl Mounted {
    /// Makes a file system that is ready to be mounted.
    pub(super) fn new(system: Arc<System>) -> Self {
        Self { system, handles: RwLock::default(), last_handle: AtomicU64::new(0) }
    }

    /// Returns the state of the file system.
    pub(super) fn system(&self) -> Arc<System> {
        Arc::clone(&self.system)
    }

    fn add_handle(&self, handle: Handle) -> FileHandle {
        let number = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        self.handles.write().expect("no thread panics with it").insert(number, handle);
        FileHandle(number)
    }

    fn handle(&self, number: FileHandle) -> Result<Handle, Error> {
        let handles = self.handles.read().expect("no thread panics with it");
        handles.get(&number.0).cloned().ok_or(NOT_OPEN)
    }

    fn open_file(&self, number: FileHandle) -> Result<(u64, Arc<FileBody>), Error> {
        match self.handle(number)? {
            Handle::File(inode, file) => Ok((inode, file)),
            Handle::Hidden(..) => Err(Error::OPNOTSUPP),
        }
    }

    /// Makes a new entry, and answers the kernel.
    fn make(
        &self,
        at: &NewName<'_>,
        maker: Maker,
        reply: ReplyEntry,
        kind: impl FnOnce(u64, &Arc<lads_core::lov::Lov>) -> Kind,
    ) {
        let mut tree = self.system.tree();
        let made = tree.make(at, maker, SystemTime::now(), kind);
        let entry = made.and_then(|number| entry(&mut tree, number));
        drop(tree);
        self.answer_entry(entry, reply);
    }

    fn answer_entry(&self, entry: Result<FileAttr, Error>, reply: ReplyEntry) {
        self.system.answer_metadata(move || match entry {
            Ok(attributes) => reply.entry(&FOR_LONG, &attributes, Generation(0)),
            Err(error) => reply.error(code(error)),
        });
    }

    fn answer_attributes(&self, attributes: Result<FileAttr, Error>, reply: ReplyAttr) {
        self.system.answer_metadata(move || match attributes {
            Ok(attributes) => reply.attr(&FOR_LONG, &attributes),
            Err(error) => reply.error(code(error)),
        });
    }

    fn answer_empty(&self, result: Result<(), Error>, reply: ReplyEmpty) {
        self.system.answer_metadata(move || match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        });
    }

    fn new_file(&self, number: u64, template: &Arc<lads_core::lov::Lov>) -> Kind {
        let store = Arc::clone(&self.system.store);
        Kind::File(Arc::new(FileBody::new(number, store, Arc::clone(template))))
    }

    fn file_of(&self, number: u64) -> Result<Arc<FileBody>, Error> {
        match &self.system.tree().inode(number)?.kind {
            Kind::File(file) => Ok(Arc::clone(file)),
            Kind::Directory(_) => Err(Error::ISDIR),
            _ => Err(Error::INVAL),
        }
    }

    fn try_open(&self, number: u64, flags: i32) -> Result<(FileHandle, FopenFlags), Error> {
        if let Some(hidden) = Hidden::of_number(number) {
            let content = Arc::new(hidden.content(&self.system));
            let handle = self.add_handle(Handle::Hidden(hidden, content));
            return Ok((handle, FopenFlags::FOPEN_DIRECT_IO));
        }
        let file = self.file_of(number)?;
        let is_for_writing = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if is_for_writing && flags & DELAY_LAYOUT == 0 {
            file.place_by_default()?;
        }
        file.open().map_err(|error| errno(&error))?;
        self.lengthen_if_it_grows(number);
        Ok((self.add_handle(Handle::File(number, file)), open_flags(flags)))
    }

    fn try_create(
        &self,
        at: &NewName<'_>,
        maker: Maker,
        flags: i32,
    ) -> Result<(FileAttr, FileHandle, FopenFlags), Error> {
        let now = SystemTime::now();
        let made = |number, template: &Arc<_>| self.new_file(number, template);
        let number = self.system.tree().make(at, maker, now, made)?;
        let opened = match self.try_open(number, flags) {
            Ok(opened) => opened,
            Err(error) => {
                self.system.tree().unlink(at.parent, at.name, now)?;
                return Err(error);
            }
        };
        let attributes = entry(&mut self.system.tree(), number)?;
        Ok((attributes, opened.0, opened.1))
    }

    /// Updates the times of an inode on a write, and clears its privileges if the kernel asks for
    /// that.
    fn on_write(&self, number: u64, flags: WriteFlags) {
        // The page cache writes back later than the program wrote; the kernel sends that time
        // separately.
        if !flags.contains(WriteFlags::FUSE_WRITE_CACHE)
            && let Ok(inode) = self.system.tree().inode_mut(number)
        {
            inode.metadata.modified = SystemTime::now();
            inode.metadata.changed = inode.metadata.modified;
            if flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                drop_privileges(inode);
            }
        }
    }

    /// Makes a growing file look long to the kernel from the start. Otherwise the kernel would let
    /// only one thread at a time write beyond the end, which Lustre's client does not do.
    fn lengthen_if_it_grows(&self, number: u64) {
        if self.file_of(number).is_ok_and(|file| file.is_growing()) {
            self.system.lengthen(number);
        }
    }

    fn write_hidden(&self, hidden: Hidden, data: &[u8]) -> Result<(), Error> {
        match hidden {
            Hidden::Control => self.system.obey(data),
            _ => Err(Error::ACCESS),
        }
    }
}

/// With O_DIRECT, requests go past the page cache and in parallel. Otherwise the writers of one
/// file would wait for each other in the kernel, even if they write to different OSTs.
fn open_flags(flags: i32) -> FopenFlags {
    if flags & libc::O_DIRECT != 0 {
        FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
    } else {
        FopenFlags::FOPEN_KEEP_CACHE
    }
}

impl Filesystem for Mounted {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            // Otherwise the kernel asks for `security.capability` before every write.
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        if self.system.settings.writeback {
            wanted |= InitFlags::FUSE_WRITEBACK_CACHE;
        }
        config
            .add_capabilities(wanted & config.capabilities())
            .map_err(|missing| std::io::Error::other(format!("the kernel lacks {missing:?}")))?;
        let refused = |nearest| std::io::Error::other(format!("the kernel insists on {nearest}"));
        config.set_max_write(REQUEST_BYTES_MAX).map_err(refused)?;
        config.set_max_background(BACKGROUND_MAX).map_err(|it| refused(it.into()))?;
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(number) = hidden::find(parent.0, name) {
            return match number {
                Some(number) => {
                    let attributes = hidden::attributes(number);
                    // The kernel may cache the name for long, so that a look-up does not wait for
                    // another process that changes the directory.
                    reply.entry_with_ttls(&Duration::ZERO, &FOR_LONG, &attributes, Generation(0));
                }
                None => reply.error(Errno::ENOENT),
            };
        }
        let mut tree = self.system.tree();
        let found = tree.find(parent.0, name).and_then(|number| entry(&mut tree, number));
        drop(tree);
        self.answer_entry(found, reply);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.system.tree().forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if hidden::is_hidden(ino.0) {
            return reply.attr(&Duration::ZERO, &hidden::attributes(ino.0));
        }
        let attributes = attributes(&self.system.tree(), ino.0);
        self.lengthen_if_it_grows(ino.0);
        self.answer_attributes(attributes, reply);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        changed: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if hidden::is_hidden(ino.0) {
            // A program may open `control` with O_TRUNC; that does nothing.
            return reply.attr(&Duration::ZERO, &hidden::attributes(ino.0));
        }
        let is_by_root = req.uid() == 0;
        let changes = Changes { mode, uid, gid, size, accessed, modified, changed, is_by_root };
        // The names are not locked while the file is truncated.
        let truncated =
            size.map_or(Ok(()), |size| self.file_of(ino.0).and_then(|file| file.truncate(size)));
        let result = truncated.and_then(|()| change(&mut self.system.tree(), ino.0, &changes));
        self.answer_attributes(result, reply);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let target = match self.system.tree().inode(ino.0).map(|inode| &inode.kind) {
            Ok(Kind::Link(target)) => Ok(target.clone()),
            Ok(_) => Err(Error::INVAL),
            Err(error) => Err(error),
        };
        self.system.answer_metadata(move || match target {
            Ok(target) => reply.data(target.as_os_str().as_encoded_bytes()),
            Err(error) => reply.error(code(error)),
        });
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let at = NewName { parent: parent.0, name };
        let maker = Maker { uid: req.uid(), gid: req.gid(), mode, device };
        let file_type = rustix::fs::FileType::from_raw_mode(mode);
        self.make(&at, maker, reply, |number, template| match file_type {
            rustix::fs::FileType::RegularFile => self.new_file(number, template),
            other => Kind::Special(other),
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let at = NewName { parent: parent.0, name };
        let maker = Maker { uid: req.uid(), gid: req.gid(), mode, device: 0 };
        self.make(&at, maker, reply, |_, template| {
            Kind::Directory(Directory::new(parent.0, Arc::clone(template)))
        });
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let at = NewName { parent: parent.0, name };
        let maker = Maker { uid: req.uid(), gid: req.gid(), mode: 0o777, device: 0 };
        self.make(&at, maker, reply, |_, _| Kind::Link(target.to_owned()));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.system.tree().unlink(parent.0, name, SystemTime::now());
        self.answer_empty(result, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.system.tree().rmdir(parent.0, name, SystemTime::now());
        self.answer_empty(result, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            RenameFlags::RENAME_NOREPLACE => Renaming::New,
            RenameFlags::RENAME_EXCHANGE => Renaming::Exchange,
            flags if flags.is_empty() => Renaming::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        let from = NewName { parent: parent.0, name };
        let to = NewName { parent: newparent.0, name: newname };
        let result = self.system.tree().rename(&from, &to, how, SystemTime::now());
        self.answer_empty(result, reply);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let at = NewName { parent: newparent.0, name: newname };
        let mut tree = self.system.tree();
        let linked = tree.link(ino.0, &at, SystemTime::now());
        let entry = linked.and_then(|()| entry(&mut tree, ino.0));
        drop(tree);
        self.answer_entry(entry, reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.try_open(ino.0, flags.0);
        let answer = move || match opened {
            Ok((handle, flags)) => reply.opened(handle, flags),
            Err(error) => reply.error(code(error)),
        };
        if hidden::is_hidden(ino.0) {
            return answer();
        }
        self.system.answer_metadata(answer);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let at = NewName { parent: parent.0, name };
        let maker = Maker { uid: req.uid(), gid: req.gid(), mode, device: 0 };
        let created = self.try_create(&at, maker, flags);
        self.system.answer_metadata(move || match created {
            Ok((attributes, handle, flags)) => {
                reply.created(&FOR_LONG, &attributes, Generation(0), handle, flags);
            }
            Err(error) => reply.error(code(error)),
        });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.handle(fh) {
            Ok(Handle::File(_, file)) => file,
            Ok(Handle::Hidden(_, content)) => {
                return reply.data(hidden::part(&content, offset, size));
            }
            Err(error) => return reply.error(code(error)),
        };
        let shares = file.read_shares(offset, size.into());
        let ((shares, length), bytes) = match shares.and_then(|it| Ok((it, file.bytes()?))) {
            Ok(found) => found,
            Err(error) => return reply.error(code(error)),
        };
        let length = usize::try_from(length).expect("at most a request");
        let answer = move |result: Result<(), Error>| match result {
            Ok(()) => bytes.read(offset, length, |data| match data {
                Ok(data) => reply.data(data),
                Err(error) => reply.error(code(error)),
            }),
            Err(error) => reply.error(code(error)),
        };
        let start = Start { file: ino.0, offset };
        self.system.service.submit(&shares, Direction::Read, start, Box::new(answer));
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = u32::try_from(data.len()).expect("at most a request");
        let answer = move |result: Result<(), Error>| match result {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(code(error)),
        };
        let (number, file) = match self.handle(fh) {
            Ok(Handle::File(number, file)) => (number, file),
            Ok(Handle::Hidden(hidden, _)) => return answer(self.write_hidden(hidden, data)),
            Err(error) => return answer(Err(error)),
        };
        let shares = match file.prepare_write(offset, length.into()) {
            Ok(shares) => shares,
            Err(error) => return answer(Err(error)),
        };
        let start = Start { file: number, offset };
        // The bytes move while the storage targets serve them.
        let service = &self.system.service;
        let ticket = service.begin(&shares, Direction::Write, start, Box::new(answer));
        let written = file.write(offset, data);
        self.on_write(number, write_flags);
        service.release(ticket, written);
    }

    /// Does nothing, because every write was answered only when it was served. After this answer,
    /// the kernel no longer sends this request for any file.
    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    /// Asks every OST of the file whether it is durable. All written data has been served already,
    /// because the kernel has waited for it, so no bytes move. The question takes the OST's
    /// latency, and does not wait behind its other requests.
    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let osts = match self.handle(fh) {
            Ok(Handle::File(_, file)) => file.osts(),
            _ => Vec::new(),
        };
        let service = &self.system.service;
        let longest = service
            .with_model(|model| osts.into_iter().map(|ost| model.queues().latency(ost)).max());
        service.delay(longest.unwrap_or_default(), Box::new(move |_| reply.ok()));
    }

    /// Takes the time of one question to the metadata server.
    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        self.system.answer_metadata(move || reply.ok());
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let handle = self.handles.write().expect("no thread panics with it").remove(&fh.0);
        if let Some(Handle::File(_, file)) = handle {
            file.release();
        }
        reply.ok();
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        self.system.answer_metadata(move || reply.opened(FileHandle(0), flags));
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.system.tree();
        let listed = list(&tree, ino.0, offset, |place, name, number| {
            let kind =
                tree.inode(number).map_or(FileType::Directory, |inode| kind(inode.file_type()));
            reply.add(INodeNo(number), place, kind, name)
        });
        drop(tree);
        self.system.answer_metadata(move || match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        });
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut told = Vec::new();
        let mut tree = self.system.tree();
        let listed = list(&tree, ino.0, offset, |place, name, number| {
            let Ok(attributes) = attributes(&tree, number) else { return false };
            let is_full =
                reply.add(INodeNo(number), place, name, &FOR_LONG, &attributes, Generation(0));
            // The kernel does not count `.` and `..` as looked up.
            if !is_full && place > DOT_DOT {
                told.push(number);
            }
            is_full
        });
        told.into_iter().for_each(|number| tree.remember(number));
        drop(tree);
        self.system.answer_metadata(move || match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        const BLOCK: u64 = 4096;
        const INODES_FREE: u64 = 1 << 30;
        let inodes = self.system.tree().inode_count() as u64 + INODES_FREE;
        let targets = self.system.store.space().targets().to_vec();
        let capacity: u64 = targets.iter().map(|it| it.capacity).sum();
        let free: u64 = targets.iter().map(super::space::Target::free).sum();
        let (all, free) = (capacity / BLOCK, free / BLOCK);
        let block = u32::try_from(BLOCK).expect("it is small");
        reply.statfs(all, free, free, inodes, INODES_FREE, block, 255, block);
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let result = layouts::set(&self.system, ino.0, name, value, flags);
        let answer = move || match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(code(error)),
        };
        match layouts::is_layout(name) {
            true => self.system.answer_layout(answer),
            false => self.system.answer_metadata(answer),
        }
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = layouts::get(&self.system, ino.0, name);
        self.system.answer_metadata(move || answer_xattr(value, size, reply));
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = layouts::list(&self.system, ino.0);
        self.system.answer_metadata(move || answer_xattr(names, size, reply));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = layouts::remove(&self.system, ino.0, name);
        self.answer_empty(result, reply);
    }

    fn ioctl(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        if !emulated::is_addition(cmd) {
            return reply.error(Errno::ENOTTY);
        }
        let name = OsStr::new(ATTRIBUTE_ADD);
        let result = layouts::set(&self.system, ino.0, name, in_data, 0);
        self.system.answer_layout(move || match result {
            Ok(()) => reply.ioctl(0, &[]),
            Err(error) => reply.error(code(error)),
        });
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode.unsigned_abs());
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let is_known = mode.is_empty() || mode == FallocateFlags::KEEP_SIZE || mode == hole;
        let range = offset..offset.saturating_add(length);
        let result = self.open_file(fh).and_then(|(_, file)| match is_known {
            true => file.allocate(range, mode),
            false => Err(Error::OPNOTSUPP),
        });
        if let (Ok(()), Ok(inode)) = (result, self.system.tree().inode_mut(ino.0)) {
            inode.metadata.modified = SystemTime::now();
            inode.metadata.changed = inode.metadata.modified;
        }
        self.answer_empty(result, reply);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let from = u64::try_from(offset).map_err(|_| Error::NXIO);
        let to = from.and_then(|from| match whence {
            libc::SEEK_DATA => Ok(SeekFrom::Data(from)),
            libc::SEEK_HOLE => Ok(SeekFrom::Hole(from)),
            _ => Err(Error::INVAL),
        });
        let found = to.and_then(|to| self.open_file(fh)?.1.seek(to));
        match found.map(i64::try_from) {
            Ok(Ok(offset)) => reply.offset(offset),
            Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
            Err(error) => reply.error(code(error)),
        }
    }
}

/// The places of `.` and `..` in a directory.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Lists the entries of a directory after a place, until `add` returns that no more fits.
fn list(
    tree: &Tree,
    number: u64,
    after: u64,
    mut add: impl FnMut(u64, &OsStr, u64) -> bool,
) -> Result<(), Error> {
    if hidden::is_hidden(number) {
        return Ok(());
    }
    let own = [(DOT, ".", number), (DOT_DOT, "..", tree.parent(number)?)];
    let own = own.into_iter().map(|(place, name, number)| (place, OsStr::new(name), number));
    let own = own.filter(|(place, ..)| *place > after);
    for (place, name, number) in own.chain(tree.list(number, after.max(DOT_DOT))?) {
        if add(place, name, number) {
            break;
        }
    }
    Ok(())
}

fn answer_xattr(value: Result<Vec<u8>, Error>, size: u32, reply: ReplyXattr) {
    match value {
        Ok(value) if size == 0 => {
            reply.size(u32::try_from(value.len()).expect("attributes are at most 64 KiB"));
        }
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(code(error)),
    }
}
