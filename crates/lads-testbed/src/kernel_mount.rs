//! How our FUSE file systems are mounted and unmounted.
//!
//! `fuser` can do this too, but as of 0.18, when its session ends, it unmounts once more whatever
//! is at the *path*, even if the kernel has long removed the mount (`is_mounted` misreads the error
//! that says so). What it unmounts then may be a mount that another process has just made. So we
//! mount and unmount ourselves, and give `fuser` only the device.
//!
//! Only root may ask the kernel to mount. For other users, `fusermount3` does it.

use fuser::{Config, Filesystem, Session, SessionACL};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::ffi::CString;
use std::io::{Error, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

/// What happens to the users of a file system that is to be unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// They go on, and the file system stays mounted.
    GoOn,
    /// Their calls and open files fail.
    Fail,
}

/// Mounts on a directory; `name` is shown as the device and in the type. If root mounts, all users
/// may use the file system, as far as its permissions allow.
///
/// # Errors
/// If there is no `/dev/fuse`, if we may not mount, or if the file system refuses to begin.
pub(crate) fn mount<F: Filesystem>(
    file_system: F,
    directory: &Path,
    name: &str,
    config: Config,
) -> Result<Session<F>> {
    let device = match mount_as_root(directory, name) {
        Err(Errno::PERM) => mount_as_user(directory, name)?,
        device => device?,
    };
    Session::from_fd(file_system, device, SessionACL::All, config).or_else(|error| {
        unmount(directory, Users::Fail)?;
        Err(error)
    })
}

/// Unmounts what is mounted on a directory.
///
/// # Errors
/// If nothing is mounted there, or if it is in use and `users` may go on.
pub(crate) fn unmount(directory: &Path, users: Users) -> Result<()> {
    let (flags, options): (_, &[&str]) = match users {
        Users::GoOn => (UnmountFlags::empty(), &["-u"]),
        Users::Fail => (UnmountFlags::FORCE | UnmountFlags::DETACH, &["-u", "-z"]),
    };
    match rustix::mount::unmount(directory, flags) {
        Err(Errno::PERM) => fusermount(Command::new(FUSERMOUNT).args(options).arg(directory)),
        result => Ok(result?),
    }
}

fn mount_as_root(directory: &Path, name: &str) -> rustix::io::Result<OwnedFd> {
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

const FUSERMOUNT: &str = "fusermount3";

/// Runs `fusermount3`, which opens the device, mounts, and sends the device through a socket. The
/// socket is its standard input, the simplest descriptor to pass to a child.
fn mount_as_user(directory: &Path, name: &str) -> Result<OwnedFd> {
    let (ours, its) = UnixStream::pair()?;
    let options = format!("fsname={name},subtype={name},default_permissions");
    let mut command = Command::new(FUSERMOUNT);
    command.args(["-o", &options, "--"]).arg(directory).env("_FUSE_COMMFD", "0");
    fusermount(command.stdin(Stdio::from(OwnedFd::from(its))))?;
    // Otherwise the socket would stay open, and the wait for the device might never end.
    drop(command);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(&ours, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut devices = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    devices.next().ok_or_else(|| Error::other(format!("{FUSERMOUNT} sent no device")))
}

fn fusermount(command: &mut Command) -> Result<()> {
    let output =
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
