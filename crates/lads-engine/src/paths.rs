//! Directories by handle: every name is looked up in an open directory, one component at a time,
//! and no symbolic link is followed below the root unless the user asked for that at the source.
//!
//! This keeps a transfer inside its root, whatever the other end or another user of this host does
//! to the tree meanwhile. Few handles stay open. A handle that was closed is opened again through
//! its parents when it is needed.
//!
//! A tree may be [`lads_core::limits::DEPTH_MAX`] levels deep, and the stacks of threads are small.
//! So everything that follows parents is a loop, never a recursion; dropping directories, too.

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Stat, fcntl_getfl, fstat, fsync, mkdirat, openat, readlinkat,
    statat, sync, syncfs, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;
use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The most directory handles that stay open.
const OPEN_MAX: usize = 256;
/// When directories are opened on the way down to one, this many next to it keep their handles, and
/// this many above those, at even distances. With half of this, a directory near one that was
/// opened lately must more often be opened from far above. With the double, one deep directory
/// would close half of the handles that others are about to need.
const KEPT_BELOW: usize = 32;

/// A directory below a root, or the root.
#[derive(Debug)]
pub(crate) struct Directory {
    parent: Option<Arc<Self>>,
    name: Vec<u8>,
    /// The number of levels below the root; zero for the root.
    depth: u32,
    handle: Mutex<Option<Arc<OwnedFd>>>,
    making: Making,
    /// Whether its name may be a symbolic link, which is followed.
    may_be_link: bool,
    /// The numbers of the file system and of the directory, once they were looked up; `None` if
    /// the directory is only the place of a name that the user gave.
    identity: OnceLock<Option<(u64, u64)>>,
    /// Set if it did not exist before this transfer.
    pub(crate) was_made: OnceLock<()>,
    /// Mode with which it is made if it does not exist; by default, only this user can look inside
    /// until it gets its own mode.
    pub(crate) mode_of_new: OnceLock<u32>,
    /// Mode that it had before its owner was permitted to work in it, if that was necessary.
    pub(crate) mode_before: OnceLock<u32>,
    /// Set at the sink when its owner is permitted to work in it.
    pub(crate) is_usable: OnceLock<()>,
    /// Whether files made in it get a default ACL; looked up once.
    pub(crate) has_default_acl: OnceLock<bool>,
    /// Permissions that entries made in it can have; looked up once.
    pub(crate) default_permissions: OnceLock<u32>,
    /// Set when its name is durable in the directory above, if that was asked for.
    pub(crate) name_is_durable: OnceLock<()>,
    recent: Arc<Recent>,
}

/// What happens when a directory is opened that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Making {
    /// That is an error.
    Never,
    /// It is made.
    IfMissing,
    /// It is made in place of a file, a link or a special file of its name, but not if there is
    /// nothing.
    InPlaceOfOthers,
    /// It is made in either case.
    Always,
}

/// The directories that were opened last.
#[derive(Debug, Default)]
struct Recent {
    directories: Mutex<VecDeque<Weak<Directory>>>,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory. If this process may not list the directory (its mode is 711 or 733), the
/// handle only leads to it (`O_PATH`): names in it are looked up, created and removed as far as its
/// mode permits, but the handle itself can be neither listed nor synced.
fn open_to_look_up(at: impl AsFd, name: impl Arg + Copy, flags: OFlags) -> Result<OwnedFd, Errno> {
    match openat(&at, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => openat(at, name, flags | OFlags::PATH, Mode::empty()),
        result => result,
    }
}

impl Directory {
    /// A root. Its handle stays open as long as anything below it is known.
    pub(crate) fn root(handle: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            parent: None,
            name: Vec::new(),
            depth: 0,
            handle: Mutex::new(Some(Arc::new(handle))),
            making: Making::Never,
            may_be_link: false,
            identity: OnceLock::new(),
            was_made: OnceLock::new(),
            mode_of_new: OnceLock::new(),
            mode_before: OnceLock::new(),
            is_usable: OnceLock::new(),
            has_default_acl: OnceLock::new(),
            default_permissions: OnceLock::new(),
            name_is_durable: OnceLock::new(),
            recent: Arc::new(Recent::default()),
        })
    }

    /// A root that is only the place of a name that the user gave: not part of the tree.
    pub(crate) fn place_of_root(handle: OwnedFd) -> Arc<Self> {
        let place = Self::root(handle);
        let _ = place.identity.set(None);
        place
    }

    /// A directory in this one.
    pub(crate) fn child(self: &Arc<Self>, name: &[u8], making: Making) -> Arc<Self> {
        Arc::new(self.new_child(name, making))
    }

    /// A directory in this one, also through a symbolic link. Only the source follows links, and
    /// only if the user asked for that.
    pub(crate) fn child_through_link(self: &Arc<Self>, name: &[u8]) -> Arc<Self> {
        let mut child = self.new_child(name, Making::Never);
        child.may_be_link = true;
        Arc::new(child)
    }

    fn new_child(self: &Arc<Self>, name: &[u8], making: Making) -> Self {
        Self {
            parent: Some(Arc::clone(self)),
            name: name.to_vec(),
            depth: self.depth.saturating_add(1),
            handle: Mutex::new(None),
            making,
            may_be_link: false,
            identity: OnceLock::new(),
            was_made: OnceLock::new(),
            mode_of_new: OnceLock::new(),
            mode_before: OnceLock::new(),
            is_usable: OnceLock::new(),
            has_default_acl: OnceLock::new(),
            default_permissions: OnceLock::new(),
            name_is_durable: OnceLock::new(),
            recent: Arc::clone(&self.recent),
        }
    }

    /// The directory that it lies in; `None` for the root.
    pub(crate) fn above(&self) -> Option<Arc<Self>> {
        self.parent.clone()
    }

    /// Reports whether a file is this directory or one of those above it, as they were opened.
    ///
    /// # Errors
    /// Of opening one of these directories again.
    pub(crate) fn is_within(self: &Arc<Self>, file: &Stat) -> Result<bool, Errno> {
        let mut directory = Some(self);
        while let Some(it) = directory {
            let identity = match it.identity.get() {
                Some(identity) => *identity,
                None => {
                    let stat = fstat(&*it.open()?)?;
                    *it.identity.get_or_init(|| Some((stat.st_dev, stat.st_ino)))
                }
            };
            if identity == Some((file.st_dev, file.st_ino)) {
                return Ok(true);
            }
            directory = it.parent.as_ref();
        }
        Ok(false)
    }

    /// The number of levels below the root; zero for the root.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Its handle. If it is closed, it is opened from the nearest directory above that is open.
    pub(crate) fn open(self: &Arc<Self>) -> Result<Arc<OwnedFd>, Errno> {
        let (closed, mut handle) = self.nearest_open();
        let far = closed.len().saturating_sub(KEPT_BELOW);
        let step = far.div_ceil(KEPT_BELOW).max(1);
        for (levels_below, directory) in closed.into_iter().enumerate().rev() {
            let is_kept =
                levels_below < KEPT_BELOW || (levels_below - KEPT_BELOW).is_multiple_of(step);
            handle = directory.open_below(&handle, is_kept)?;
        }
        Ok(handle)
    }

    /// Returns a handle that can be listed and synced, in place of one that only leads to the
    /// directory because listing it was not permitted.
    ///
    /// # Errors
    /// `ACCESS` if it is still not permitted.
    pub(crate) fn reopen(&self, handle: Arc<OwnedFd>) -> Result<Arc<OwnedFd>, Errno> {
        let opened = to_list(handle)?;
        if let Some(kept) = &mut *self.lock() {
            *kept = Arc::clone(&opened);
        }
        Ok(opened)
    }

    /// The closed directories from this one upwards, and the handle of the first open one above.
    fn nearest_open(self: &Arc<Self>) -> (Vec<&Arc<Self>>, Arc<OwnedFd>) {
        let mut closed = Vec::new();
        let mut directory = self;
        loop {
            if let Some(handle) = &*directory.lock() {
                return (closed, Arc::clone(handle));
            }
            closed.push(directory);
            directory = directory.parent.as_ref().expect("a root is always open");
        }
    }

    /// Its handle. If it is closed, it is opened by its name in `parent`; with `is_kept` the handle
    /// stays open for a while.
    fn open_below(
        self: &Arc<Self>,
        parent: &OwnedFd,
        is_kept: bool,
    ) -> Result<Arc<OwnedFd>, Errno> {
        // The lock is held until it is known whether the directory was made: a second thread must
        // know that, too.
        let mut handle = self.lock();
        if let Some(handle) = &*handle {
            return Ok(Arc::clone(handle));
        }
        let opened = Arc::new(self.open_in(parent)?);
        if is_kept {
            *handle = Some(Arc::clone(&opened));
            drop(handle);
            self.recent.add(self);
        }
        Ok(opened)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<OwnedFd>>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_in(&self, parent: &OwnedFd) -> Result<OwnedFd, Errno> {
        let flags = if self.may_be_link { DIRECTORY - OFlags::NOFOLLOW } else { DIRECTORY };
        match open_to_look_up(parent, self.name.as_slice(), flags) {
            Err(Errno::NOENT) if matches!(self.making, Making::IfMissing | Making::Always) => {}
            Err(Errno::NOTDIR | Errno::LOOP)
                if matches!(self.making, Making::InPlaceOfOthers | Making::Always) =>
            {
                match unlinkat(parent, self.name.as_slice(), AtFlags::empty()) {
                    // Another process removed it, or replaced it by a directory.
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(errno) => return Err(errno),
                }
            }
            result => return result,
        }
        let mode = self.mode_of_new.get().map_or(Mode::RWXU, |mode| Mode::from_raw_mode(*mode));
        match mkdirat(parent, self.name.as_slice(), mode) {
            Ok(()) => {
                let _ = self.was_made.set(());
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
        open_to_look_up(parent, self.name.as_slice(), DIRECTORY)
    }

    /// Its path below the root, without slashes at the ends; empty for the root. The time and
    /// memory for this grow with the depth.
    pub(crate) fn path(&self) -> Vec<u8> {
        let mut names = Vec::new();
        let mut directory = self;
        while let Some(parent) = &directory.parent {
            names.push(directory.name.as_slice());
            directory = parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path of an entry in it, below the root.
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

impl Drop for Directory {
    /// Drops parents that nothing else refers to in a loop. Left to themselves, each would be
    /// dropped inside the drop of its child.
    fn drop(&mut self) {
        let mut last = self.parent.take().and_then(Arc::into_inner);
        while let Some(mut directory) = last {
            last = directory.parent.take().and_then(Arc::into_inner);
        }
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
        // Threads that use the handle have a share of it; it closes when the last one is done.
        oldest.lock().take();
    }
}

/// Opens a directory that the user named and that is to be listed, following symbolic links as the
/// shell would.
///
/// # Errors
/// Of the system call.
pub(crate) fn open_named(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    openat(CWD, path, NAMED, Mode::empty())
}

/// Opens a directory that the user named and in which names are to be looked up, following symbolic
/// links as the shell would. Permission to list the directory is not needed.
///
/// # Errors
/// Of the system calls.
pub(crate) fn open_named_to_look_up(path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b"." } else { path };
    open_to_look_up(CWD, path, NAMED)
}

const NAMED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Returns a handle of the same directory that can be listed.
///
/// # Errors
/// `ACCESS` if this process may not list the directory.
pub(crate) fn to_list(directory: Arc<OwnedFd>) -> Result<Arc<OwnedFd>, Errno> {
    if fcntl_getfl(&*directory)?.contains(OFlags::PATH) {
        return openat(&*directory, ".", DIRECTORY, Mode::empty()).map(Arc::new);
    }
    Ok(directory)
}

/// Makes the names in a directory durable.
///
/// A directory that this process may write to and not list cannot be synced alone. Then its whole
/// file system is synced, through a new file without a name; where there are no such files, all
/// file systems of the host are.
///
/// # Errors
/// Of the system calls.
pub(crate) fn sync_names(directory: &OwnedFd) -> Result<(), Errno> {
    match fsync(directory) {
        Err(Errno::BADF) => {}
        result => return result,
    }
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match openat(directory, ".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => syncfs(file),
        // This process can have changed no name there.
        Err(Errno::ACCESS | Errno::ROFS) => Ok(()),
        Err(_) => {
            sync();
            Ok(())
        }
    }
}

/// Opens a file for reading without changing its time of access, if that is permitted: for the
/// owner and for root.
///
/// # Errors
/// Of the system call.
pub(crate) fn open_unnoticed(
    directory: impl AsFd,
    name: impl Arg + Copy,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    match openat(&directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(&directory, name, flags, Mode::empty()),
        result => result,
    }
}

/// The directory that holds the last component of a path below `root`, and that component.
pub(crate) fn parent_of<'a>(
    root: &Arc<Directory>,
    path: &'a [u8],
) -> Result<(Arc<OwnedFd>, &'a [u8]), Errno> {
    let mut directory = Arc::clone(root);
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|&byte| byte == b'/') {
        directory = directory.child(&rest[..slash], Making::Never);
        rest = &rest[slash + 1..];
    }
    Ok((directory.open()?, rest))
}

/// A path to a name in an open directory, for calls that take no directory handle (those for
/// extended attributes).
pub(crate) fn proc_path(directory: &OwnedFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", directory.as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

/// Returns the directory and the name of the file that a symbolic link leads to, for calls that do
/// not follow links. The directory handle serves to look up names only.
///
/// # Errors
/// Of the system calls; `ESTALE` if the link leads to another file than the one with this status.
pub(crate) fn referent_of(
    directory: &OwnedFd,
    link: &[u8],
    file: &Stat,
) -> Result<(OwnedFd, Vec<u8>), Errno> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = openat(directory, link, flags, Mode::empty())?;
    let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
    let path = readlinkat(CWD, path, Vec::new())?.into_bytes();
    let start = path.iter().rposition(|&byte| byte == b'/').ok_or(Errno::STALE)?;
    let (above, name) = path.split_at(start + 1);
    let name = if name.is_empty() { b".".to_vec() } else { name.to_vec() };
    let above = openat(CWD, above, flags | OFlags::DIRECTORY, Mode::empty())?;
    if is_name_of(&above, name.as_slice(), file)? { Ok((above, name)) } else { Err(Errno::STALE) }
}

/// Whether a name stands for this open file, and not for a file that somebody has put there since.
pub(crate) fn is_named(
    directory: &OwnedFd,
    name: impl Arg,
    file: impl AsFd,
) -> Result<bool, Errno> {
    is_name_of(directory, name, &fstat(file)?)
}

/// The same for a file that had this status at any time since it was opened.
pub(crate) fn is_name_of(directory: &OwnedFd, name: impl Arg, file: &Stat) -> Result<bool, Errno> {
    match statat(directory, name, NOT_THROUGH_LINKS) {
        Ok(there) => Ok((there.st_dev, there.st_ino) == (file.st_dev, file.st_ino)),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Opens an open file again, with other flags. Its name is not looked up, because somebody may have
/// put another file there. Only without `/proc` the name is used, if it has one, and the result is
/// compared.
///
/// # Errors
/// Of the system calls; `ESTALE` if the name stands for another file.
pub(crate) fn reopen(
    file: &OwnedFd,
    directory: &OwnedFd,
    name: Option<&str>,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let name = match (openat(CWD, path, flags, Mode::empty()), name) {
        (Err(Errno::NOENT), Some(name)) => name,
        (result, _) => return result,
    };
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = openat(directory, name, flags, Mode::empty())?;
    if is_named(directory, name, file)? && is_named(directory, name, &opened)? {
        Ok(opened)
    } else {
        Err(Errno::STALE)
    }
}

/// Removes what an earlier attempt left under a temporary name. If this process is root, the file
/// may belong to another user: its owner was set just before it would have got its own name.
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
    match remove_own(directory, name) {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

/// Removes the file under a temporary name; or a directory that holds nothing but one special file
/// of the same name.
///
/// # Errors
/// Of the system calls; `NOTEMPTY` if there is more in a directory.
pub(crate) fn remove_own(directory: &OwnedFd, name: &str) -> Result<(), Errno> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => {
            let handle = openat(directory, name, DIRECTORY, Mode::empty())?;
            match unlinkat(&handle, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno),
            }
            unlinkat(directory, name, AtFlags::REMOVEDIR)
        }
        result => result,
    }
}

/// The flag for calls that look at a link itself.
pub(crate) const NOT_THROUGH_LINKS: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::process::Command;

    /// Levels of the trees here: with a frame of 32 bytes for each, a recursion over them does not
    /// fit into [`STACK_BYTES`].
    const LEVELS: usize = 2_000;
    const STACK_BYTES: usize = 64 << 10;

    /// A root in a place of its own. The standard library opens as many directories at a time as a
    /// tree is deep to remove it; `rm` does not.
    struct Place {
        place: tempfile::TempDir,
        root: Arc<Directory>,
    }

    impl Place {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let handle = open_named(place.path().as_os_str().as_encoded_bytes()).unwrap();
            Self { place, root: Directory::root(handle) }
        }

        /// A directory that deep, and all above it, the deepest last. They are made when they are
        /// opened.
        fn chain(&self) -> Vec<Arc<Directory>> {
            let mut chain = vec![Arc::clone(&self.root)];
            for _ in 0..LEVELS {
                chain.push(chain.last().unwrap().child(b"d", Making::IfMissing));
            }
            chain
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = Command::new("rm").arg("-rf").arg(self.place.path()).status();
        }
    }

    #[test]
    fn a_path_has_slashes_only_between_names_and_the_contents_of_a_directory_have_its_path() {
        let place = Place::new();
        let below = place.root.child(b"d", Making::Never);
        let paths = [&place.root, &below].map(|it| [it.path_of(b"f"), it.path_of(b".")]);
        assert_eq!(paths[0], [b"f".to_vec(), b".".to_vec()]);
        assert_eq!(paths[1], [b"d/f".to_vec(), b"d".to_vec()]);
    }

    /// A tree 1,600 levels deep ended a transfer: opening a directory, naming it and dropping it
    /// each called itself for its parent, on a stack of 512 KiB.
    #[test]
    fn a_deep_directory_needs_no_more_stack_than_any_other() {
        let place = Place::new();
        let deepest = place.chain().pop().unwrap();
        let work = move || {
            assert!(deepest.open().is_ok());
            assert_eq!(deepest.path_of(b"f").len(), 2 * LEVELS + 1);
            assert_eq!(deepest.depth() as usize, LEVELS);
            drop(deepest);
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
        thread.spawn(work).unwrap().join().unwrap();
    }

    #[test]
    fn a_directory_of_ours_is_removed_with_what_is_made_in_it_and_with_nothing_else() {
        let place = Place::new();
        let root = place.root.open().unwrap();
        let inside = place.place.path().join("ours");
        for other in [None, Some("other")] {
            std::fs::create_dir(&inside).unwrap();
            std::fs::write(inside.join("ours"), b"").unwrap();
            if let Some(other) = other {
                std::fs::write(inside.join(other), b"").unwrap();
            }
            let expected = if other.is_some() { Err(Errno::NOTEMPTY) } else { Ok(()) };
            assert_eq!(remove_own(&root, "ours"), expected);
            assert_eq!(inside.exists(), other.is_some());
        }
    }

    /// Makes a directory of another user with this mode, in which this thread gets no more rights
    /// from now on than the mode gives. `None` if this process is not root.
    fn of_another_user(place: &Place, mode: u32) -> Option<Arc<Directory>> {
        const ANOTHER: u32 = 65_534;
        if !rustix::process::geteuid().is_root() {
            lads_tried::not_tried("only root can give a directory to another user");
            return None;
        }
        let path = place.place.path().join("theirs");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("file"), b"").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(ANOTHER), Some(ANOTHER)).unwrap();
        let own = capabilities(None).unwrap();
        let overrides = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        let effective = own.effective - overrides;
        set_capabilities(None, CapabilitySets { effective, ..own }).unwrap();
        Some(place.root.child(b"theirs", Making::Never))
    }

    #[test]
    fn names_are_looked_up_in_a_directory_that_may_only_be_searched() {
        let place = Place::new();
        let Some(directory) = of_another_user(&place, 0o711) else { return };
        let handle = directory.open().unwrap();
        statat(&handle, "file", NOT_THROUGH_LINKS).unwrap();
        assert_eq!(to_list(Arc::clone(&handle)).err(), Some(Errno::ACCESS));
        // Nothing can have changed in it.
        assert_eq!(sync_names(&handle), Ok(()));
        let path = place.place.path().join("theirs").into_os_string();
        assert_eq!(open_named(path.as_encoded_bytes()).err(), Some(Errno::ACCESS));
        let handle = open_named_to_look_up(path.as_encoded_bytes()).unwrap();
        statat(&handle, "file", NOT_THROUGH_LINKS).unwrap();
    }

    #[test]
    fn names_that_were_made_in_a_directory_that_may_not_be_listed_are_made_durable() {
        let place = Place::new();
        let Some(directory) = of_another_user(&place, 0o733) else { return };
        let handle = directory.open().unwrap();
        mkdirat(&handle, "made", Mode::RWXU).unwrap();
        assert_eq!(fsync(&handle), Err(Errno::BADF));
        assert_eq!(sync_names(&handle), Ok(()));
    }

    #[test]
    fn few_of_many_directories_are_open_at_a_time() {
        let place = Place::new();
        let chain = place.chain();
        for directory in chain.iter().step_by(10) {
            directory.open().unwrap();
            chain[LEVELS - 1].open().unwrap();
            let count = chain.iter().filter(|directory| directory.lock().is_some()).count();
            assert!(count <= OPEN_MAX + 1, "{count} are open");
        }
    }

    /// The sink closes directories from the deepest to the first, when most are closed again.
    #[test]
    fn a_chain_of_directories_is_gone_through_upwards_with_few_opens_for_each() {
        let place = Place::new();
        let chain = place.chain();
        chain[LEVELS].open().unwrap();
        let mut opens = 0;
        for directory in chain.iter().rev() {
            opens += directory.nearest_open().0.len();
            directory.open().unwrap();
        }
        assert!(opens <= 10 * LEVELS, "{opens} opens for {LEVELS} directories");
    }

    #[test]
    fn a_deep_directory_that_is_opened_leaves_others_open() {
        let place = Place::new();
        let other = place.root.child(b"other", Making::IfMissing);
        other.open().unwrap();
        place.chain()[LEVELS].open().unwrap();
        assert!(other.lock().is_some());
    }

    #[test]
    fn what_several_threads_drop_of_a_chain_at_a_time_is_dropped() {
        let place = Place::new();
        let chain = place.chain();
        let first = Arc::downgrade(&chain[1]);
        let (even, odd): (Vec<_>, Vec<_>) =
            chain.into_iter().partition(|directory| directory.depth().is_multiple_of(2));
        std::thread::scope(|scope| {
            scope.spawn(move || drop(even));
            scope.spawn(move || drop(odd));
        });
        assert!(first.upgrade().is_none());
    }
}
