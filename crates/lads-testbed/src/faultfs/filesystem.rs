//! Turns the kernel's requests into calls, and the results into answers.

use super::calls::{Changes, New, is_dots};
use super::rules::Kind;
use super::state::State;
use crate::kernel_words::{code, kind};
use fuser::{
    BsdFileFlags, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The kernel may cache nothing, so that every call of a program arrives here.
const NO_TIME: Duration = Duration::ZERO;
/// An inode number is not reused while the kernel knows it.
const GENERATION: Generation = Generation(0);

/// The file system that the kernel talks to.
#[derive(Debug)]
pub(super) struct FaultFs {
    state: Arc<State>,
    refuses_locks: bool,
}

impl FaultFs {
    pub(super) fn new(state: Arc<State>, refuses_locks: bool) -> Self {
        Self { state, refuses_locks }
    }
}

fn reply_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(code(errno)),
    }
}

fn reply_entry(result: Result<FileAttr, Errno>, reply: ReplyEntry) {
    match result {
        Ok(attributes) => reply.entry(&NO_TIME, &attributes, GENERATION),
        Err(errno) => reply.error(code(errno)),
    }
}

fn reply_attributes(result: Result<FileAttr, Errno>, reply: ReplyAttr) {
    match result {
        Ok(attributes) => reply.attr(&NO_TIME, &attributes),
        Err(errno) => reply.error(code(errno)),
    }
}

fn reply_data(result: Result<Vec<u8>, Errno>, reply: ReplyData) {
    match result {
        Ok(data) => reply.data(&data),
        Err(errno) => reply.error(code(errno)),
    }
}

fn reply_open(result: Result<u64, Errno>, flags: FopenFlags, reply: ReplyOpen) {
    match result {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(errno) => reply.error(code(errno)),
    }
}

fn reply_xattr(result: Result<Vec<u8>, Errno>, room: u32, reply: ReplyXattr) {
    match result {
        Err(errno) => reply.error(code(errno)),
        Ok(value) => {
            let length = u32::try_from(value.len()).expect("attributes are short");
            match room {
                0 => reply.size(length),
                room if room < length => reply.error(fuser::Errno::ERANGE),
                _ => reply.data(&value),
            }
        }
    }
}

/// Makes every read and write arrive here as the program made it.
fn uncached() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

impl Filesystem for FaultFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            // An older kernel may lack some of these.
            let _ = config.add_capabilities(wanted);
        }
        if self.refuses_locks {
            // The kernel then asks us for locks. We do not implement that call, so it fails.
            let _ = config.add_capabilities(InitFlags::FUSE_FLOCK_LOCKS);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(self.state.lookup(parent, name), reply);
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        self.state.nodes.forget(number, lookups);
    }

    fn getattr(
        &self,
        _request: &Request,
        number: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        reply_attributes(self.state.getattr(number), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _backed_up: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes { mode, uid, gid, bytes, accessed, modified };
        reply_attributes(self.state.setattr(number, &changes), reply);
    }

    fn readlink(&self, _request: &Request, number: INodeNo, reply: ReplyData) {
        reply_data(self.state.readlink(number), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let new = New::by(request, parent, name);
        reply_entry(self.state.mknod(&new, mode, device), reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply_entry(self.state.mkdir(&New::by(request, parent, name), mode), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.state.remove(Kind::Unlink, parent, name), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.state.remove(Kind::Rmdir, parent, name), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = New::by(request, parent, name);
        reply_entry(self.state.symlink(&new, target.as_os_str()), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = self.state.rename((parent, name), (new_parent, new_name), flags);
        reply_empty(result, reply);
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        reply_entry(self.state.link(number, &New::by(request, parent, name)), reply);
    }

    fn open(&self, _request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        reply_open(self.state.open(number, flags.0), uncached(), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.state.create(&New::by(request, parent, name), mode, flags) {
            Ok((attributes, handle)) => {
                let handle = FileHandle(handle);
                reply.created(&NO_TIME, &attributes, GENERATION, handle, uncached());
            }
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply_data(self.state.read(handle.0, offset, bytes, flags.0), reply);
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.state.write(handle.0, offset, data, flags.0) {
            Ok(written) => reply.written(u32::try_from(written).expect("not more than given")),
            Err(errno) => reply.error(code(errno)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.state.flush(handle.0), reply);
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.state.release_handle(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        of_data: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.state.fsync(handle.0, of_data), reply);
    }

    fn opendir(&self, _request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply_open(self.state.opendir(number), FopenFlags::empty(), reply);
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.state.readdir(handle.0, index(offset)) {
            Err(errno) => reply.error(code(errno)),
            Ok((entries, _)) => {
                for (entry, next) in entries.iter().zip(offset + 1..) {
                    let number = INodeNo(entry.number);
                    if reply.add(number, next, kind(entry.file_type), &entry.name) {
                        break;
                    }
                }
                reply.ok();
            }
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let (entries, directory) = match self.state.readdir(handle.0, index(offset)) {
            Err(errno) => return reply.error(code(errno)),
            Ok((entries, Some(directory))) => (entries, directory),
            Ok((_, None)) => return reply.ok(),
        };
        for (entry, next) in entries.iter().zip(offset + 1..) {
            // For these two, the kernel uses only the file type.
            let told = if is_dots(&entry.name) {
                self.state.getattr(number).ok()
            } else {
                self.state.tell_entry(&directory, entry)
            };
            let Some(attributes) = told else { continue };
            let number = attributes.ino;
            let is_full = reply.add(number, next, &entry.name, &NO_TIME, &attributes, GENERATION);
            if is_full {
                if !is_dots(&entry.name) {
                    self.state.nodes.forget(number, 1);
                }
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.state.release_handle(handle.0);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        _of_data: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.state.fsyncdir(handle.0), reply);
    }

    fn statfs(&self, _request: &Request, number: INodeNo, reply: ReplyStatfs) {
        match self.state.statfs(number) {
            Err(errno) => reply.error(code(errno)),
            Ok(stat) => {
                let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
                reply.statfs(
                    stat.f_blocks,
                    stat.f_bfree,
                    stat.f_bavail,
                    stat.f_files,
                    stat.f_ffree,
                    narrow(stat.f_bsize),
                    narrow(stat.f_namemax),
                    narrow(stat.f_frsize),
                );
            }
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.state.setxattr(number, name, value, flags), reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        number: INodeNo,
        name: &OsStr,
        room: u32,
        reply: ReplyXattr,
    ) {
        reply_xattr(self.state.getxattr(number, name), room, reply);
    }

    fn listxattr(&self, _request: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        reply_xattr(self.state.listxattr(number), room, reply);
    }

    fn removexattr(&self, _request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.state.removexattr(number, name), reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: u64,
        bytes: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.state.fallocate(handle.0, offset, bytes, mode), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        _number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.state.lseek(handle.0, offset, whence) {
            Ok(offset) => reply.offset(i64::try_from(offset).unwrap_or(i64::MAX)),
            Err(errno) => reply.error(code(errno)),
        }
    }
}

/// Returns the index of the next entry.
fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
