//! Each call: passes it through to the directory below, and notes what it makes volatile or
//! durable.

use super::control::{DIRECTORY, Virtual};
use super::disk::write_all;
use super::nodes::Node;
use super::rules::Kind;
use super::snapshot::XATTR_BYTES_MAX;
use super::state::{Call, Passage, State, lock};
use fuser::{FileAttr, INodeNo, RenameFlags, Request, TimeOrNow};
use rustix::fs::{
    AtFlags, CWD, Dir, FallocateFlags, FileType, Gid, Mode, OFlags, SeekFrom, StatVfs, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chmodat, chownat, fallocate, fstat,
    fstatvfs, ftruncate, getxattr, linkat, listxattr, mkdirat, mknodat, openat, readlinkat,
    removexattr, seek, setxattr, statat, symlinkat, utimensat,
};
use rustix::io::{Errno, pread};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::sync::Arc;
use std::sync::{Mutex, atomic};
use std::time::SystemTime;

/// Offsets and lengths of direct I/O must be a multiple of this.
const SECTOR_BYTES: usize = 512;
/// The mode bits that can be set.
const MODE_BITS: u32 = 0o7777;

/// An open file or directory.
#[derive(Debug)]
pub(super) enum Handle {
    File { node: Arc<Node>, file: OwnedFd, epoch: u64 },
    Directory { node: Arc<Node>, entries: Mutex<Vec<DirectoryEntry>>, epoch: u64 },
    Virtual { which: Virtual, text: String },
}

/// A name in an open directory.
#[derive(Clone, Debug)]
pub(super) struct DirectoryEntry {
    pub(super) number: u64,
    pub(super) file_type: FileType,
    pub(super) name: OsString,
}

/// The metadata of a file that is to be set.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) bytes: Option<u64>,
    pub(super) accessed: Option<TimeOrNow>,
    pub(super) modified: Option<TimeOrNow>,
}

/// A new name, and the user who makes it.
pub(super) struct New<'a> {
    pub(super) parent: INodeNo,
    pub(super) name: &'a OsStr,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl<'a> New<'a> {
    pub(super) fn by(request: &Request, parent: INodeNo, name: &'a OsStr) -> Self {
        Self { parent, name, uid: request.uid(), gid: request.gid() }
    }
}

impl State {
    // Calls about an inode that the kernel names by its number.

    fn pass_node(&self, kind: Kind, node: &Node) -> Result<Passage, Errno> {
        let paths = || vec![self.nodes.path_of(node)];
        self.pass(Call { kind, epoch: None, offset: None, paths })
    }

    pub(super) fn getattr(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        if let Some(which) = Virtual::of_number(number) {
            return Ok(which.attributes());
        }
        let node = self.nodes.find(number)?;
        // The path to the control file leads through the root, so the root must always answer.
        if number != INodeNo::ROOT {
            self.pass_node(Kind::Getattr, &node)?;
        }
        self.attributes(&node)
    }

    fn attributes(&self, node: &Node) -> Result<FileAttr, Errno> {
        let stat = node.stat()?;
        Ok(self.nodes.attributes(&stat, self.disk.any().hidden_names(stat.st_ino)))
    }

    pub(super) fn setattr(&self, number: INodeNo, changes: &Changes) -> Result<FileAttr, Errno> {
        if let Some(which) = Virtual::of_number(number) {
            return Ok(which.attributes());
        }
        let node = self.nodes.find(number)?;
        let kind = if changes.bytes.is_some() { Kind::Truncate } else { Kind::Setattr };
        let passage = self.pass_node(kind, &node)?;
        let mut disk = self.disk.since(passage.epoch)?;
        if let Some(bytes) = changes.bytes {
            disk.changes_length(&node, bytes)?;
            ftruncate(node.open(OFlags::WRONLY)?, bytes)?;
        }
        disk.changes_metadata(&node)?;
        if changes.uid.is_some() || changes.gid.is_some() {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            chownat(&*node, "", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(mode) = changes.mode {
            let mode = Mode::from_raw_mode(mode & MODE_BITS);
            chmodat(CWD, node.path(), mode, AtFlags::empty())?;
        }
        if changes.accessed.is_some() || changes.modified.is_some() {
            let times = Timestamps {
                last_access: timespec(changes.accessed),
                last_modification: timespec(changes.modified),
            };
            utimensat(&*node, "", &times, AtFlags::EMPTY_PATH)?;
        }
        drop(disk);
        self.attributes(&node)
    }

    pub(super) fn readlink(&self, number: INodeNo) -> Result<Vec<u8>, Errno> {
        let node = self.nodes.find(number)?;
        self.pass_node(Kind::Readlink, &node)?;
        Ok(readlinkat(&*node, "", Vec::new())?.into_bytes())
    }

    pub(super) fn statfs(&self, number: INodeNo) -> Result<StatVfs, Errno> {
        let node = match Virtual::of_number(number) {
            Some(_) => Arc::clone(self.nodes.root()),
            None => self.nodes.find(number)?,
        };
        self.pass_node(Kind::Statfs, &node)?;
        fstatvfs(&*node)
    }

    pub(super) fn getxattr(&self, number: INodeNo, name: &OsStr) -> Result<Vec<u8>, Errno> {
        self.read_xattr(Kind::Getxattr, number, |path, room| getxattr(path, name, room))
    }

    pub(super) fn listxattr(&self, number: INodeNo) -> Result<Vec<u8>, Errno> {
        self.read_xattr(Kind::Listxattr, number, |path, room| listxattr(path, room))
    }

    fn read_xattr(
        &self,
        kind: Kind,
        number: INodeNo,
        read: impl FnOnce(String, &mut [u8]) -> Result<usize, Errno>,
    ) -> Result<Vec<u8>, Errno> {
        if Virtual::of_number(number).is_some() {
            return Err(Errno::OPNOTSUPP);
        }
        let node = self.nodes.find(number)?;
        self.pass_node(kind, &node)?;
        let mut value = vec![0; XATTR_BYTES_MAX];
        let length = read(node.path(), value.as_mut_slice())?;
        value.truncate(length);
        Ok(value)
    }

    pub(super) fn setxattr(
        &self,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> Result<(), Errno> {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        self.change_xattr(Kind::Setxattr, number, |path| setxattr(path, name, value, flags))
    }

    pub(super) fn removexattr(&self, number: INodeNo, name: &OsStr) -> Result<(), Errno> {
        self.change_xattr(Kind::Removexattr, number, |path| removexattr(path, name))
    }

    fn change_xattr(
        &self,
        kind: Kind,
        number: INodeNo,
        change: impl FnOnce(String) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let node = self.nodes.find(number)?;
        let passage = self.pass_node(kind, &node)?;
        let mut disk = self.disk.since(passage.epoch)?;
        disk.changes_metadata(&node)?;
        change(node.path())
    }

    // Calls about names in a directory.

    fn pass_name(&self, kind: Kind, parent: &Node, name: &OsStr) -> Result<Passage, Errno> {
        let paths = || vec![self.nodes.path_in(parent, name)];
        self.pass(Call { kind, epoch: None, offset: None, paths })
    }

    pub(super) fn lookup(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        if let Some(which) = Virtual::of_name(parent, name) {
            return Ok(which.attributes());
        }
        let parent = self.nodes.find(parent)?;
        self.pass_name(Kind::Lookup, &parent, name)?;
        self.tell(&parent, name)
    }

    /// Returns the attributes of a name for the kernel, which will forget the inode once.
    fn tell(&self, parent: &Node, name: &OsStr) -> Result<FileAttr, Errno> {
        let node = self.nodes.look_up(parent, name)?;
        let told = self.attributes(&node);
        if told.is_err() {
            self.nodes.forget(INodeNo(node.number), 1);
        }
        told
    }

    /// Makes a new entry under a name.
    fn make(
        &self,
        kind: Kind,
        new: &New<'_>,
        make: impl FnOnce(&Node) -> Result<(), Errno>,
    ) -> Result<FileAttr, Errno> {
        if Virtual::of_name(new.parent, new.name).is_some() {
            return Err(Errno::EXIST);
        }
        let parent = self.nodes.find(new.parent)?;
        let passage = self.pass_name(kind, &parent, new.name)?;
        let mut disk = self.disk.since(passage.epoch)?;
        make(&parent)?;
        disk.added(&parent, new.name);
        if kind != Kind::Link {
            own(&parent, new)?;
        }
        drop(disk);
        self.tell(&parent, new.name)
    }

    pub(super) fn mknod(&self, new: &New<'_>, mode: u32, device: u32) -> Result<FileAttr, Errno> {
        let bits = Mode::from_raw_mode(mode & MODE_BITS);
        let file_type = FileType::from_raw_mode(mode);
        self.make(Kind::Mknod, new, |parent| {
            mknodat(parent, new.name, file_type, bits, device.into())
        })
    }

    pub(super) fn mkdir(&self, new: &New<'_>, mode: u32) -> Result<FileAttr, Errno> {
        let mode = Mode::from_raw_mode(mode & MODE_BITS);
        self.make(Kind::Mkdir, new, |parent| mkdirat(parent, new.name, mode))
    }

    pub(super) fn symlink(&self, new: &New<'_>, target: &OsStr) -> Result<FileAttr, Errno> {
        self.make(Kind::Symlink, new, |parent| symlinkat(target, parent, new.name))
    }

    pub(super) fn link(&self, number: INodeNo, new: &New<'_>) -> Result<FileAttr, Errno> {
        let node = self.nodes.find(number)?;
        self.make(Kind::Link, new, |parent| {
            linkat(CWD, node.path(), parent, new.name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    pub(super) fn remove(&self, kind: Kind, parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
        if Virtual::of_name(parent, name).is_some() {
            return Err(Errno::PERM);
        }
        let parent = self.nodes.find(parent)?;
        let passage = self.pass_name(kind, &parent, name)?;
        self.disk.since(passage.epoch)?.remove(&parent, name, kind == Kind::Rmdir)
    }

    pub(super) fn rename(
        &self,
        from: (INodeNo, &OsStr),
        to: (INodeNo, &OsStr),
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if [from, to].iter().any(|(parent, name)| Virtual::of_name(*parent, name).is_some()) {
            return Err(Errno::PERM);
        }
        let parents = (self.nodes.find(from.0)?, self.nodes.find(to.0)?);
        let paths =
            || vec![self.nodes.path_in(&parents.1, to.1), self.nodes.path_in(&parents.0, from.1)];
        let passage = self.pass(Call { kind: Kind::Rename, epoch: None, offset: None, paths })?;
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let mut disk = self.disk.since(passage.epoch)?;
        disk.rename((&parents.0, from.1), (&parents.1, to.1), flags)
    }

    // Calls about open files.

    pub(super) fn open(&self, number: INodeNo, flags: i32) -> Result<u64, Errno> {
        if let Some(which) = Virtual::of_number(number) {
            return Ok(self.open_virtual(which));
        }
        let node = self.nodes.find(number)?;
        let passage = self.pass_node(Kind::Open, &node)?;
        let file = node.open(access(flags))?;
        Ok(self.keep(Handle::File { node, file, epoch: passage.epoch }))
    }

    fn open_virtual(&self, which: Virtual) -> u64 {
        let text = match which {
            Virtual::Directory | Virtual::Control => String::new(),
            Virtual::LastError => self.last_error(),
            Virtual::Log => self.log(),
            Virtual::Counts => self.counts(),
        };
        self.keep(Handle::Virtual { which, text })
    }

    pub(super) fn create(
        &self,
        new: &New<'_>,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, u64), Errno> {
        if Virtual::of_name(new.parent, new.name).is_some() {
            return Err(Errno::EXIST);
        }
        let parent = self.nodes.find(new.parent)?;
        let passage = self.pass_name(Kind::Create, &parent, new.name)?;
        let mut disk = self.disk.since(passage.epoch)?;
        let is_there = statat(&*parent, new.name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
        let wanted = OFlags::from_bits_retain(flags.cast_unsigned());
        let flags = access(flags) | OFlags::CREATE | OFlags::NOFOLLOW | (wanted & OFlags::EXCL);
        let mode = Mode::from_raw_mode(mode & MODE_BITS);
        let file = openat(&*parent, new.name, flags | OFlags::CLOEXEC, mode)?;
        if !is_there {
            disk.added(&parent, new.name);
            own(&parent, new)?;
        }
        drop(disk);
        let attributes = self.tell(&parent, new.name)?;
        let node = self.nodes.find(attributes.ino)?;
        Ok((attributes, self.keep(Handle::File { node, file, epoch: passage.epoch })))
    }

    fn keep(&self, handle: Handle) -> u64 {
        static NEXT: atomic::AtomicU64 = atomic::AtomicU64::new(1);
        let number = NEXT.fetch_add(1, atomic::Ordering::Relaxed);
        lock(&self.handles).insert(number, Arc::new(handle));
        number
    }

    fn handle(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        lock(&self.handles).get(&number).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn release_handle(&self, number: u64) {
        lock(&self.handles).remove(&number);
    }

    fn pass_open(
        &self,
        kind: Kind,
        node: &Node,
        epoch: u64,
        offset: Option<u64>,
    ) -> Result<Passage, Errno> {
        let paths = || vec![self.nodes.path_of(node)];
        self.pass(Call { kind, epoch: Some(epoch), offset, paths })
    }

    pub(super) fn read(
        &self,
        handle: u64,
        offset: u64,
        bytes: u32,
        flags: i32,
    ) -> Result<Vec<u8>, Errno> {
        let bytes = bytes as usize;
        match &*self.handle(handle)? {
            Handle::Directory { .. } => Err(Errno::ISDIR),
            Handle::Virtual { text, .. } => {
                let rest = text.as_bytes().get(usize::try_from(offset).unwrap_or(usize::MAX)..);
                let rest = rest.unwrap_or_default();
                Ok(rest[..bytes.min(rest.len())].to_vec())
            }
            Handle::File { node, file, epoch } => {
                let unit = unit(flags, offset, bytes)?;
                let passage = self.pass_open(Kind::Read, node, *epoch, Some(offset))?;
                let mut room = vec![0; passage.shorten(bytes, unit)];
                let mut filled = 0;
                while filled < room.len() {
                    match pread(file, &mut room[filled..], offset + filled as u64)? {
                        0 => break,
                        count => filled += count,
                    }
                }
                room.truncate(filled);
                Ok(room)
            }
        }
    }

    pub(super) fn write(
        &self,
        handle: u64,
        offset: u64,
        bytes: &[u8],
        flags: i32,
    ) -> Result<usize, Errno> {
        match &*self.handle(handle)? {
            Handle::Directory { .. } => Err(Errno::ISDIR),
            Handle::Virtual { which: Virtual::Control, .. } => {
                self.command(bytes).map(|()| bytes.len())
            }
            Handle::Virtual { .. } => Err(Errno::PERM),
            Handle::File { node, file, epoch } => {
                let unit = unit(flags, offset, bytes.len())?;
                let passage = self.pass_open(Kind::Write, node, *epoch, Some(offset))?;
                let bytes = &bytes[..passage.shorten(bytes.len(), unit)];
                let mut disk = self.disk.since(passage.epoch)?;
                let appends = OFlags::from_bits_retain(flags.cast_unsigned());
                let offset = if appends.contains(OFlags::APPEND) {
                    u64::try_from(fstat(file)?.st_size).unwrap_or(0)
                } else {
                    offset
                };
                disk.changes_data(node, offset, bytes.len() as u64)?;
                write_all(file, bytes, offset)?;
                Ok(bytes.len())
            }
        }
    }

    pub(super) fn flush(&self, handle: u64) -> Result<(), Errno> {
        match &*self.handle(handle)? {
            Handle::File { node, epoch, .. } => {
                self.pass_open(Kind::Flush, node, *epoch, None).map(drop)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn fsync(&self, handle: u64, of_data: bool) -> Result<(), Errno> {
        let handle = self.handle(handle)?;
        let Handle::File { node, epoch, .. } = &*handle else { return Ok(()) };
        let kind = if of_data { Kind::Fdatasync } else { Kind::Fsync };
        self.pass_open(kind, node, *epoch, None)?;
        let mut disk = self.disk.since(*epoch)?;
        if of_data {
            return disk.sync_data(node);
        }
        disk.sync_file(node);
        Ok(())
    }

    pub(super) fn fallocate(
        &self,
        handle: u64,
        offset: u64,
        bytes: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let handle = self.handle(handle)?;
        let Handle::File { node, file, epoch } = &*handle else { return Err(Errno::INVAL) };
        let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let changes = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
        if !(changes | FallocateFlags::KEEP_SIZE).contains(mode) {
            return Err(Errno::OPNOTSUPP);
        }
        self.pass_open(Kind::Fallocate, node, *epoch, Some(offset))?;
        let mut disk = self.disk.since(*epoch)?;
        let changed = if mode.intersects(changes) { bytes } else { 0 };
        disk.changes_data(node, offset, changed)?;
        fallocate(file, mode, offset, bytes)
    }

    pub(super) fn lseek(&self, handle: u64, offset: i64, whence: i32) -> Result<u64, Errno> {
        const DATA: i32 = 3;
        const HOLE: i32 = 4;
        let handle = self.handle(handle)?;
        let Handle::File { node, file, epoch } = &*handle else { return Err(Errno::INVAL) };
        let at = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        self.pass_open(Kind::Lseek, node, *epoch, Some(at))?;
        match whence {
            DATA => seek(file, SeekFrom::Data(at)),
            HOLE => seek(file, SeekFrom::Hole(at)),
            _ => Err(Errno::INVAL),
        }
    }

    // Calls about open directories.

    pub(super) fn opendir(&self, number: INodeNo) -> Result<u64, Errno> {
        if let Some(which) = Virtual::of_number(number) {
            return Ok(self.open_virtual(which));
        }
        let node = self.nodes.find(number)?;
        let passage = self.pass_node(Kind::Opendir, &node)?;
        let entries = Mutex::default();
        Ok(self.keep(Handle::Directory { node, entries, epoch: passage.epoch }))
    }

    /// Returns the entries of an open directory from this index on, and the directory itself.
    pub(super) fn readdir(
        &self,
        handle: u64,
        index: usize,
    ) -> Result<(Vec<DirectoryEntry>, Option<Arc<Node>>), Errno> {
        let handle = self.handle(handle)?;
        let Handle::Directory { node, entries, epoch } = &*handle else {
            return Ok((Vec::new(), None));
        };
        self.pass_open(Kind::Readdir, node, *epoch, None)?;
        let mut entries = lock(entries);
        if index == 0 {
            *entries = self.entries(node)?;
        }
        Ok((entries.iter().skip(index).cloned().collect(), Some(Arc::clone(node))))
    }

    fn entries(&self, node: &Node) -> Result<Vec<DirectoryEntry>, Errno> {
        let is_root = node.number == INodeNo::ROOT.0;
        let mut entries = Vec::new();
        for entry in Dir::new(node.open(OFlags::RDONLY | OFlags::DIRECTORY)?)? {
            let entry = entry?;
            let name = OsString::from_vec(entry.file_name().to_bytes().to_vec());
            if !(is_root && name == DIRECTORY) {
                let number = self.nodes.number_of(entry.ino());
                entries.push(DirectoryEntry { number, file_type: entry.file_type(), name });
            }
        }
        Ok(entries)
    }

    /// Returns the attributes of an entry for the kernel. The kernel will forget the inode once,
    /// except for `.` and `..`. Returns `None` for these two, and for an entry that no longer
    /// exists.
    pub(super) fn tell_entry(&self, directory: &Node, entry: &DirectoryEntry) -> Option<FileAttr> {
        if is_dots(&entry.name) { None } else { self.tell(directory, &entry.name).ok() }
    }

    pub(super) fn fsyncdir(&self, handle: u64) -> Result<(), Errno> {
        let handle = self.handle(handle)?;
        let Handle::Directory { node, epoch, .. } = &*handle else { return Ok(()) };
        self.pass_open(Kind::Fsyncdir, node, *epoch, None)?;
        self.disk.since(*epoch)?.sync_directory(node)
    }
}

/// Returns whether the name is `.` or `..`.
pub(super) fn is_dots(name: &OsStr) -> bool {
    name.as_bytes() == b"." || name.as_bytes() == b".."
}

/// Returns the part of the open flags that is passed on: whether to read or write.
fn access(flags: i32) -> OFlags {
    OFlags::from_bits_retain(flags.cast_unsigned()) & OFlags::ACCMODE
}

/// Returns the unit that a shortened length must be a multiple of.
///
/// # Errors
/// EINVAL for direct I/O that storage would refuse.
fn unit(flags: i32, offset: u64, bytes: usize) -> Result<usize, Errno> {
    if !OFlags::from_bits_retain(flags.cast_unsigned()).contains(OFlags::DIRECT) {
        return Ok(1);
    }
    let is_aligned =
        bytes.is_multiple_of(SECTOR_BYTES) && offset.is_multiple_of(SECTOR_BYTES as u64);
    if is_aligned { Ok(SECTOR_BYTES) } else { Err(Errno::INVAL) }
}

/// Gives a new entry to the user who made it, if this process may.
fn own(parent: &Node, new: &New<'_>) -> Result<(), Errno> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    // A directory with the SGID bit passes on its group.
    let hands_on = Mode::from_raw_mode(parent.stat()?.st_mode).contains(Mode::SGID);
    let gid = (!hands_on).then(|| Gid::from_raw(new.gid));
    chownat(parent, new.name, Some(Uid::from_raw(new.uid)), gid, AtFlags::SYMLINK_NOFOLLOW)
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => moment(time),
    }
}

/// Returns the seconds and nanoseconds since 1970 that the kernel gave. For a time before 1970,
/// fuser 0.18 counts the nanoseconds backwards, which is wrong; this reads its result the same way,
/// so the kernel's numbers come out.
fn moment(time: SystemTime) -> Timespec {
    let seconds = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => {
            Timespec { tv_sec: seconds(since.as_secs()), tv_nsec: since.subsec_nanos().into() }
        }
        Err(error) => {
            let before = error.duration();
            Timespec { tv_sec: -seconds(before.as_secs()), tv_nsec: before.subsec_nanos().into() }
        }
    }
}
