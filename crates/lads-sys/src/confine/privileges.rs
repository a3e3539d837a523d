//! Gives up capabilities, ways to get new ones, and dumps of memory.

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
use std::io;

/// Gives up all privileges of this thread. Returns true if the bounding set is empty now.
///
/// # Errors
/// Of the system calls.
pub(super) fn give_up() -> io::Result<bool> {
    set_no_new_privs(true)?;
    // First, because it needs a capability.
    let is_bounding_set_empty = empty_bounding_set()?;
    // This empties the ambient set, too: it never exceeds the permitted set.
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    forbid_dumps()?;
    Ok(is_bounding_set_empty)
}

/// Removes all capabilities from the bounding set, if this process may.
fn empty_bounding_set() -> io::Result<bool> {
    for capability in 0..=u64::BITS {
        match drop_from_bounding_set(capability) {
            Ok(()) => (),
            // The kernel knows no further capability.
            Err(Errno::INVAL) => return Ok(capability > 0),
            Err(Errno::PERM) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(true)
}

/// Removes a capability by its number: new kernels have more than any library has names for.
fn drop_from_bounding_set(capability: u32) -> Result<(), Errno> {
    let capability = libc::c_ulong::from(capability);
    // SAFETY: the call takes numbers and touches no memory of ours.
    let result = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(errno())) }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Forbids core dumps, and reading the memory of this process from outside.
///
/// The files in `/proc/self` then belong to root. This process can still read those that LADS
/// needs: they are readable by all users, and the kernel lets a process follow its own links in
/// `/proc/self/fd`.
fn forbid_dumps() -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The limit does not apply if the host passes dumps to a program.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}
