//! Removes one name with all that is in it.

use super::{Name, Removal, Stopped, name_of, open_again, unlink};
use crate::deeds::Subject;
use crate::paths::{Directory, Making};
use crate::sink::failed;
use crate::sink::usable::open_usable;
use lads_core::issue::Operation;
use rustix::fs::{AtFlags, RawDir, StatxAttributes, StatxFlags, fstat, statx};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A directory that is being removed.
struct Level {
    above: Arc<Directory>,
    name: Name,
    own: Arc<Directory>,
    /// Directories in it that have still to be removed.
    left: Vec<Name>,
    /// Whether something in it stays, so that it does, too.
    is_kept: bool,
}

impl Removal<'_> {
    /// Removes a name; if it is a directory, with all that is in it.
    pub(super) fn remove(
        &mut self,
        directory: &Arc<Directory>,
        name: &Name,
    ) -> Result<(), Stopped> {
        if !name.is_directory || self.remove_contents(directory, name)? {
            self.remove_one(directory, name)?;
        }
        Ok(())
    }

    /// Removes everything in a directory; returns `false` if something stays. Nothing recurses: a
    /// tree may be deeper than the stack of a thread.
    pub(super) fn remove_contents(
        &mut self,
        directory: &Arc<Directory>,
        name: &Name,
    ) -> Result<bool, Stopped> {
        let Some(top) = self.enter(directory, name.clone())? else { return Ok(false) };
        let mut above = Vec::new();
        let mut level = top;
        loop {
            if let Some(next) = level.left.pop() {
                let own = Arc::clone(&level.own);
                match self.enter(&own, next)? {
                    Some(below) => above.push(std::mem::replace(&mut level, below)),
                    None => level.is_kept = true,
                }
                continue;
            }
            self.kept_count += u64::from(level.is_kept);
            let Some(next) = above.pop() else { return Ok(!level.is_kept) };
            let done = std::mem::replace(&mut level, next);
            if done.is_kept || !self.remove_one(&done.above, &done.name)? {
                level.is_kept = true;
            }
        }
    }

    /// Lists a directory that is to be removed, and removes what is in it but for directories.
    /// `None` if it stays and nothing in it is touched, which is told.
    fn enter(&mut self, above: &Arc<Directory>, name: Name) -> Result<Option<Level>, Stopped> {
        let own = above.child(&name.name, Making::Never);
        let opened = above.open().and_then(|handle| {
            if is_mount_point(&handle, &name.name)? {
                return Err(Errno::BUSY);
            }
            own.open()
        });
        let handle = match opened {
            Ok(handle) => handle,
            // With --one-file-system, that of another is no business of ours.
            Err(Errno::BUSY) if self.device.is_some() => return Ok(None),
            Err(errno) => {
                self.failed(&above.path_of(&name.name), failed(Operation::Remove, errno));
                return Ok(None);
            }
        };
        if !self.end.options.dry_run {
            // Where that is not permitted, removing is not, and is told.
            let _ = open_usable(&own);
        }
        let mut level =
            Level { above: Arc::clone(above), name, own, left: Vec::new(), is_kept: false };
        if let Err(errno) = self.empty(&mut level, &handle)? {
            self.failed(&level.own.path(), failed(Operation::List, errno));
            level.is_kept = true;
        }
        Ok(Some(level))
    }

    /// Removes what is in a directory but for directories, which are left for later.
    fn empty(&mut self, level: &mut Level, handle: &OwnedFd) -> Result<Result<(), Errno>, Stopped> {
        let listing = match open_again(handle) {
            Ok(listing) => listing,
            Err(errno) => return Ok(Err(errno)),
        };
        let mut buffer = Vec::with_capacity(32 << 10);
        let mut entries: RawDir<'_, _> = RawDir::new(&listing, buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return Ok(Err(errno)),
            };
            let name = entry.file_name().to_bytes();
            let Some(name) = name_of(handle, name, entry.file_type()) else { continue };
            if self.is_protected(&level.own, &name) {
                level.is_kept = true;
            } else if name.is_directory {
                level.left.push(name);
            } else if !self.remove_one(&level.own, &name)? {
                level.is_kept = true;
            }
        }
        Ok(Ok(()))
    }

    /// Removes one name; `false` if that was not possible, which is told.
    fn remove_one(&mut self, directory: &Arc<Directory>, name: &Name) -> Result<bool, Stopped> {
        let path = || directory.path_of(&name.name);
        self.see_to_permission(path)?;
        let subject = Subject::In(Arc::clone(directory));
        let asked = self.end.hub.deeds.begin(Operation::Remove, subject, None);
        if !self.end.options.dry_run
            && let Err(errno) = directory.open().and_then(|handle| unlink(&handle, name))
        {
            self.failed(&path(), failed(Operation::Remove, errno));
            return Ok(false);
        }
        drop(asked);
        self.on_removed(path(), name.is_directory);
        Ok(true)
    }
}

/// Whether something is mounted on a directory. Old kernels do not say: there, what lies on another
/// file system is taken to be mounted.
pub(in crate::sink) fn is_mount_point(above: &OwnedFd, name: &[u8]) -> Result<bool, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let stat = match statx(above, name, flags, StatxFlags::BASIC_STATS) {
        Ok(stat) => stat,
        Err(Errno::NOSYS) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    if stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    let own = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
    Ok(own != fstat(above)?.st_dev)
}
