//! Becoming another user, for good.

use rustix::process::{getgid, getuid};
use std::io;

/// Makes this process one of another user: of all its threads, all user and group numbers change.
/// It cannot change back.
///
/// # Errors
/// If this process may not do that, with a part of it done: then it must not go on. If it could
/// change back.
pub fn become_user(uid: u32, gid: u32, groups: &[u32]) -> io::Result<()> {
    let check = |result: i32| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the pointer and the length are those of a slice, which is only read. The functions of
    // the C library change all threads.
    check(unsafe { libc::setgroups(groups.len(), groups.as_ptr()) })?;
    // SAFETY: these take numbers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: as above.
    check(unsafe { libc::setresuid(uid, uid, uid) })?;
    // SAFETY: as above.
    let is_back = uid != 0 && unsafe { libc::setuid(0) } == 0;
    if is_back || getuid().as_raw() != uid || getgid().as_raw() != gid {
        return Err(io::Error::other("the system did not change the user for good"));
    }
    Ok(())
}
