//! Directories by handle: every name is looked up in a directory that is held open, one component
//! at a time, and no symbolic link is followed below the root.
//!
//! That is what keeps a transfer inside its root whatever the other end, or somebody else on this
//! host, does to the tree meanwhile. Few handles are kept open; one that was closed is opened again
//! through its parents when it is needed.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Directory handles kept open at a time.
const OPEN_MAX: usize = 256;

/// A directory below a root, or the root.
#[derive(Debug)]
pub(crate) struct Directory {
    parent: Option<Arc<Self>>,
    name: Vec<u8>,
    handle: Mutex<Option<Arc<OwnedFd>>>,
    /// Whether it is made when it is opened and is not there.
    is_made: bool,
    /// Whether it was not there before this transfer.
    pub(crate) was_made: OnceLock<()>,
    /// Whether files made in it get an ACL from it; looked up once.
    pub(crate) has_default_acl: OnceLock<bool>,
    recent: Arc<Recent>,
}

/// The directories opened last.
#[derive(Debug, Default)]
struct Recent {
    directories: Mutex<VecDeque<Weak<Directory>>>,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Directory {
    /// A root that is held open as long as anything below it is known.
    pub(crate) fn root(handle: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            name: Vec::new(),
            handle: Mutex::new(Some(Arc::new(handle))),
            is_made: false,
            was_made: OnceLock::new(),
            has_default_acl: OnceLock::new(),
            recent: Arc::new(Recent::default()),
        })
    }

    /// A directory in this one; with `is_made` it will be made when first opened.
    pub(crate) fn child(self: &Arc<Self>, name: &[u8], is_made: bool) -> Arc<Self> {
        Arc::new(Self {
            parent: Some(Arc::clone(self)),
            name: name.to_vec(),
            handle: Mutex::new(None),
            is_made,
            was_made: OnceLock::new(),
            has_default_acl: OnceLock::new(),
            recent: Arc::clone(&self.recent),
        })
    }

    /// Its handle.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Arc<OwnedFd>, Errno> {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*handle {
            return Ok(Arc::clone(handle));
        }
        let parent = self.parent.as_ref().expect("a root is always open").open()?;
        let opened = Arc::new(self.open_in(&parent)?);
        *handle = Some(Arc::clone(&opened));
        drop(handle);
        self.recent.add(self);
        Ok(opened)
    }

    fn open_in(&self, parent: &OwnedFd) -> Result<OwnedFd, Errno> {
        match openat(parent, self.name.as_slice(), DIRECTORY, Mode::empty()) {
            Err(Errno::NOENT) if self.is_made => {}
            result => return result,
        }
        // Only we look inside until its own mode is set, when all in it has ended.
        match mkdirat(parent, self.name.as_slice(), Mode::RWXU) {
            Ok(()) => {
                let _ = self.was_made.set(());
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        openat(parent, self.name.as_slice(), DIRECTORY, Mode::empty())
    }

    /// Its path below the root, without slashes at the ends; empty for the root.
    pub(crate) fn path(&self) -> Vec<u8> {
        let mut path = self.parent.as_ref().map(|parent| parent.path()).unwrap_or_default();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&self.name);
        path
    }

    /// The path below the root of something in it.
    pub(crate) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let mut path = self.path();
        if name == b"." && !path.is_empty() {
            return path;
        }
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }
}

impl Recent {
    fn add(&self, directory: &Arc<Directory>) {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        directories.push_back(Arc::downgrade(directory));
        if directories.len() <= OPEN_MAX {
            return;
        }
        let Some(oldest) = directories.pop_front().and_then(|oldest| oldest.upgrade()) else {
            return;
        };
        drop(directories);
        // Whoever uses the handle now has a share of it; it closes when the last one is done.
        if let Ok(mut handle) = oldest.handle.try_lock() {
            handle.take();
        };
    }
}

/// Opens the directory that a person named, following symbolic links as the shell would.
pub(crate) fn open_named(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The directory that holds the last component of a path below `root`, and that component.
pub(crate) fn parent_of<'a>(
    root: &Arc<Directory>,
    path: &'a [u8],
) -> Result<(Arc<OwnedFd>, &'a [u8]), Errno> {
    let mut directory = Arc::clone(root);
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|&byte| byte == b'/') {
        directory = directory.child(&rest[..slash], false);
        rest = &rest[slash + 1..];
    }
    Ok((directory.open()?, rest))
}

/// A path through which calls that take no directory handle (those for extended attributes) reach
/// a name in an open directory.
pub(crate) fn proc_path(directory: &OwnedFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// Whether a name stands for this open file, and not for what somebody has put there instead.
pub(crate) fn is_named(
    directory: &OwnedFd,
    name: impl Arg,
    file: impl AsFd,
) -> Result<bool, Errno> {
    let there = match statat(directory, name, NOT_THROUGH_LINKS) {
        Ok(there) => there,
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    let own = fstat(file)?;
    Ok((there.st_dev, there.st_ino) == (own.st_dev, own.st_ino))
}

/// Opens an open file once more, with other flags. Its name is not looked up: somebody may have put
/// another file there. Only where there is no `/proc` it is, and what it stands for is compared.
///
/// # Errors
/// Of the system calls; `ESTALE` if the name stands for another file.
pub(crate) fn reopen(
    file: &OwnedFd,
    directory: &OwnedFd,
    name: &str,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = openat(directory, name, flags, Mode::empty())?;
    if is_named(directory, name, file)? && is_named(directory, name, &opened)? {
        Ok(opened)
    } else {
        Err(Errno::STALE)
    }
}

/// Removes what an earlier attempt left under a name of ours. Root's may belong to somebody else:
/// it was given away just before it would have got its own name.
///
/// # Errors
/// Of the system calls; `EEXIST` if it belongs to somebody else.
pub(crate) fn remove_left_over(directory: &OwnedFd, name: &str, uid: u32) -> Result<(), Errno> {
    let stat = match statat(directory, name, NOT_THROUGH_LINKS) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    if stat.st_uid != uid && !rustix::process::geteuid().is_root() {
        return Err(Errno::EXIST);
    }
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// The flags for calls that look at a link itself.
pub(crate) const NOT_THROUGH_LINKS: AtFlags = AtFlags::SYMLINK_NOFOLLOW;
