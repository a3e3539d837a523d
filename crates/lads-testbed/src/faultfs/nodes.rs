//! Maps the kernel's inode numbers to files and directories.
//!
//! Each is held by a handle that only names it (`O_PATH`), so that its number cannot be reused
//! while the kernel knows it. The number is that of the directory below, except for the root.

use crate::kernel_words::kind;
use fuser::{FileAttr, INodeNo};
use rustix::fs::{CWD, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A file, directory or other entry below, held by a handle that only names it.
#[derive(Debug)]
pub(super) struct Node {
    handle: OwnedFd,
    /// The number by which the kernel knows it.
    pub(super) number: u64,
    pub(super) file_type: rustix::fs::FileType,
}

impl Node {
    pub(super) fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.handle)
    }

    /// A path that leads to it, whatever its name is now.
    pub(super) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.handle.as_raw_fd())
    }

    /// Opens it for reading or writing; a directory only for reading.
    pub(super) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(CWD, self.path(), flags | OFlags::CLOEXEC, Mode::empty())
    }

    pub(super) fn is_directory(&self) -> bool {
        self.file_type == rustix::fs::FileType::Directory
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// All nodes that the kernel knows.
#[derive(Debug)]
pub(super) struct Nodes {
    root: Arc<Node>,
    root_path: Vec<u8>,
    root_number_below: u64,
    /// The unit in which times are shown.
    time_unit: Duration,
    known: Mutex<HashMap<u64, Known>>,
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    /// How many times the kernel has been told of it and has not yet forgotten it.
    lookups: u64,
}

impl Nodes {
    pub(super) fn open(directory: &Path, time_unit: Duration) -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, directory, flags, Mode::empty())?;
        let root_number_below = fstat(&handle)?.st_ino;
        let number = INodeNo::ROOT.0;
        let file_type = rustix::fs::FileType::Directory;
        let root = Arc::new(Node { handle, number, file_type });
        let root_path = readlinkat(CWD, root.path(), Vec::new())?.into_bytes();
        Ok(Self { root, root_path, root_number_below, time_unit, known: Mutex::default() })
    }

    pub(super) fn root(&self) -> &Arc<Node> {
        &self.root
    }

    pub(super) fn find(&self, number: INodeNo) -> Result<Arc<Node>, Errno> {
        if number == INodeNo::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&number.0).map(|known| Arc::clone(&known.node)).ok_or(Errno::STALE)
    }

    /// Looks up a name in a directory. The kernel is told of the node, and will forget it once.
    pub(super) fn look_up(&self, parent: &Node, name: &OsStr) -> Result<Arc<Node>, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = openat(parent, name, flags, Mode::empty())?;
        let stat = fstat(&handle)?;
        let number = self.number_of(stat.st_ino);
        let file_type = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(number).or_insert_with(|| Known {
            node: Arc::new(Node { handle, number, file_type }),
            lookups: 0,
        });
        known.lookups += 1;
        Ok(Arc::clone(&known.node))
    }

    pub(super) fn forget(&self, number: INodeNo, lookups: u64) {
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get_mut(&number.0) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                all.remove(&number.0);
            }
        }
    }

    /// Returns the kernel's number for the entry that has this number below.
    pub(super) fn number_of(&self, number_below: u64) -> u64 {
        if number_below == self.root_number_below { INodeNo::ROOT.0 } else { number_below }
    }

    /// Returns its present path below the root, without a slash at the start.
    pub(super) fn path_of(&self, node: &Node) -> Vec<u8> {
        let path = readlinkat(CWD, node.path(), Vec::new());
        let path = path.map_or_else(|_| Vec::new(), std::ffi::CString::into_bytes);
        let below = path.strip_prefix(self.root_path.as_slice()).unwrap_or_default();
        below.strip_prefix(b"/").unwrap_or(below).to_vec()
    }

    /// Returns the path of a name in a directory.
    pub(super) fn path_in(&self, parent: &Node, name: &OsStr) -> Vec<u8> {
        let mut path = self.path_of(parent);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        path
    }

    /// Returns the attributes for the kernel; `hidden_names` of the names are ours and are not
    /// counted.
    pub(super) fn attributes(&self, stat: &Stat, hidden_names: u32) -> FileAttr {
        let time = |seconds, nanos| {
            cut(moment(seconds, u32::try_from(nanos).unwrap_or(0)), self.time_unit)
        };
        let changed = time(stat.st_ctime, stat.st_ctime_nsec);
        FileAttr {
            ino: INodeNo(self.number_of(stat.st_ino)),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            blocks: u64::try_from(stat.st_blocks).unwrap_or(0),
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: changed,
            crtime: changed,
            kind: kind(rustix::fs::FileType::from_raw_mode(stat.st_mode)),
            perm: u16::try_from(stat.st_mode & 0o7777).expect("twelve bits"),
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX).saturating_sub(hidden_names),
            uid: stat.st_uid,
            gid: stat.st_gid,
            // Linux encodes small device numbers in this way, which is what FUSE takes.
            rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
            blksize: 4096,
            flags: 0,
        }
    }
}

/// The last multiple of a unit before a moment, or the moment itself if it is one or before 1970.
fn cut(moment: SystemTime, unit: Duration) -> SystemTime {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let rest = since.as_nanos() % unit.as_nanos().max(1);
    moment - Duration::from_nanos(u64::try_from(rest).unwrap_or(0))
}

/// A moment in seconds and nanoseconds since 1970; seconds may be negative.
fn moment(seconds: i64, nanos: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = SystemTime::UNIX_EPOCH;
    let second = if seconds < 0 { start.checked_sub(whole) } else { start.checked_add(whole) };
    second.unwrap_or(start) + Duration::from_nanos(nanos.into())
}
