//! How a FUSE file system of ours gets its place in the tree of names.
//!
//! `fuser` can do this too, but as of 0.18 it unmounts whatever is at the *path* once more when
//! its session ends, even if the kernel has long taken the mount away (`is_mounted` takes the
//! error that says so for the opposite). What is there then is a mount that somebody else just
//! made. So we mount and unmount ourselves, and give `fuser` no more than the device.

use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Mounts on a directory; `name` is shown as the device and in the type. All users may use it, as
/// far as its permissions say. The answer is what `fuser::Session::from_fd` wants.
///
/// # Errors
/// If there is no `/dev/fuse`, or we may not mount.
pub(crate) fn mount(directory: &Path, name: &str) -> Result<OwnedFd> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
    let options = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    let options = CString::new(options).expect("it has no zeros");
    let file_system = format!("fuse.{name}");
    rustix::mount::mount(name, directory, file_system, MountFlags::empty(), Some(&*options))?;
    Ok(device)
}

/// Unmounts. Programs that are in it keep what they have open, until the file system ends.
///
/// # Errors
/// If nothing is mounted there.
pub(crate) fn unmount(directory: &Path) -> Result<()> {
    rustix::mount::unmount(directory, UnmountFlags::DETACH)
}
