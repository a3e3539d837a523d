//! Directories of this user whose mode does not let their owner work in them (555, 333, 000).
//!
//! While a transfer works in such a directory, its owner has all permissions there. The directory
//! gets its mode when everything in it has ended.

use crate::metadata::make_usable;
use crate::paths::Directory;
use rustix::fs::fstat;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Opens a directory of the tree that is being copied. It and those above it, up to the root, are
/// made usable first, so that it does not matter which of their entries is looked at before them:
/// threads share the entries.
///
/// # Errors
/// Of the system calls.
pub(super) fn open_to_work_in(directory: &Arc<Directory>) -> Result<Arc<OwnedFd>, Errno> {
    let mut unusable = Vec::new();
    let mut next = Some(Arc::clone(directory));
    while let Some(it) = next
        && it.is_usable.get().is_none()
        && let Some(above) = it.above()
    {
        unusable.push(it);
        next = Some(above);
    }
    for it in unusable.iter().rev() {
        // If this is not permitted, calls that need it fail, and are reported.
        if open_usable(it).is_ok() {
            let _ = it.is_usable.set(());
        }
    }
    directory.open()
}

/// Opens a directory; if this user owns it, permits its owner to list it and to change it.
///
/// # Errors
/// Of the system calls.
pub(super) fn open_usable(directory: &Arc<Directory>) -> Result<Arc<OwnedFd>, Errno> {
    let handle = directory.open()?;
    let Some(mode) = make_usable(&*handle, &fstat(&*handle)?)? else { return Ok(handle) };
    // The first mode is that of the user; a later one may be ours.
    let _ = directory.mode_before.set(mode);
    directory.reopen(handle)
}
