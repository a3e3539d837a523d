//! How a FUSE file system of ours gets its place in the tree of names, and leaves it.
//!
//! `fuser` can do this too, but as of 0.18 it unmounts whatever is at the *path* once more when
//! its session ends, even if the kernel has long taken the mount away (`is_mounted` takes the
//! error that says so for the opposite). What is there then is a mount that somebody else just
//! made. So we mount and unmount ourselves, and give `fuser` no more than the device.
//!
//! Only root may ask the kernel for this. For others `fusermount3` does it, as they may.

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

/// What becomes of whoever uses a file system that is to be unmounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Users {
    /// They go on, and it stays mounted.
    GoOn,
    /// What they have under way and open fails.
    Fail,
}

/// Mounts on a directory; `name` is shown as the device and in the type. If root does it, all
/// users may use it, as far as its permissions say.
///
/// # Errors
/// If there is no `/dev/fuse`, we may not mount, or the file system refuses to begin.
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
/// If nothing is mounted there, or somebody uses it who may go on.
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

/// It opens the device, mounts, and sends the device through a socket: its standard input, which
/// is the only one that a child gets without more ado.
fn mount_as_user(directory: &Path, name: &str) -> Result<OwnedFd> {
    let (ours, its) = UnixStream::pair()?;
    let options = format!("fsname={name},subtype={name},default_permissions");
    let mut command = Command::new(FUSERMOUNT);
    command.args(["-o", &options, "--"]).arg(directory).env("_FUSE_COMMFD", "0");
    fusermount(command.stdin(Stdio::from(OwnedFd::from(its))))?;
    // Else the socket would stay open, and waiting for what does not come would not end.
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
