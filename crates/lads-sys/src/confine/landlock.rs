//! Landlock: the kernel refuses to open, create or remove files outside of some trees.
//!
//! The numbers are those of `linux/landlock.h`. A kernel with an older version of the interface
//! limits what this version can limit.

use super::access::FileAccess;
use rustix::fs::{FileType, fstat};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// Moving and linking files to another directory, from version 2. Version 1 always refuses this.
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// All accesses of version 1: those above, and removing and making entries of each type.
const VERSION_1: u64 = (1 << 13) - 1;

/// Accesses that concern a file which is not a directory.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// Connecting to abstract sockets, and sending signals.
const SCOPES: u64 = 1 << 0 | 1 << 1;
/// First version that can limit these.
const SCOPES_SINCE: u32 = 6;

/// Asks for the version of the interface instead of a set of rules.
const VERSION: u32 = 1 << 0;

/// The rule applies to a file and everything below it.
const PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneathAttributes {
    allowed_access: u64,
    parent_fd: i32,
}

/// Returns the version of the kernel's interface; `None` if Landlock is missing or disabled.
pub(super) fn abi() -> Option<u32> {
    let none = std::ptr::null::<RulesetAttributes>();
    // SAFETY: with this flag, the call takes no memory and no length.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0usize, VERSION) };
    u32::try_from(version).ok().filter(|&version| version > 0)
}

/// Returns the accesses that a version of the interface can limit.
fn accesses(abi: u32) -> u64 {
    let since = |version: u32, access: u64| if abi >= version { access } else { 0 };
    VERSION_1 | since(2, REFER) | since(3, TRUNCATE) | since(5, IOCTL_DEV)
}

/// Rules about the files that this process can use, not in force yet.
#[derive(Debug)]
pub(super) struct Ruleset {
    rules: OwnedFd,
    /// The accesses that are refused unless a rule permits them.
    handled: u64,
}

impl Ruleset {
    /// Creates rules by which all accesses to files are refused unless permitted.
    pub(super) fn of_files(abi: u32) -> io::Result<Self> {
        Self::new(abi, accesses(abi))
    }

    /// Creates rules that do not concern files; `None` if this version has no other rules.
    ///
    /// A rule about any access to files would also refuse to move files between directories.
    pub(super) fn of_scopes(abi: u32) -> io::Result<Option<Self>> {
        (abi >= SCOPES_SINCE).then(|| Self::new(abi, 0)).transpose()
    }

    fn new(abi: u32, handled: u64) -> io::Result<Self> {
        let scoped = if abi >= SCOPES_SINCE { SCOPES } else { 0 };
        let attributes =
            RulesetAttributes { handled_access_fs: handled, handled_access_net: 0, scoped };
        let bytes = size_of_val(&attributes);
        // Older kernels take longer attributes than they know, if the rest is zero.
        // SAFETY: the attributes are as long as the length says and outlive the call.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attributes, bytes, 0u32)
        };
        let descriptor = i32::try_from(done(result)?).expect("a descriptor is an int");
        // SAFETY: the call returned a new descriptor, which no other code knows.
        let rules = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { rules, handled })
    }

    /// Permits an access to a file, or to a directory and everything below it. Devices are not
    /// permitted to be controlled (`ioctl`), and nothing to be executed.
    pub(super) fn permit(&self, file: impl AsFd, access: FileAccess) -> io::Result<()> {
        let file = file.as_fd();
        let wanted = match access {
            FileAccess::Read => READ_FILE | READ_DIR,
            // Devices among the entries that can be made need a capability as well.
            FileAccess::ReadAndWrite => !(EXECUTE | IOCTL_DEV),
        };
        let status = fstat(file)?;
        let is_directory = FileType::from_raw_mode(status.st_mode) == FileType::Directory;
        let sensible = if is_directory { self.handled } else { self.handled & OF_FILES };
        let rule = PathBeneathAttributes {
            allowed_access: wanted & sensible,
            parent_fd: file.as_raw_fd(),
        };
        let rules = self.rules.as_raw_fd();
        // SAFETY: the rule is what this type of rule needs, and outlives the call.
        let result = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, rules, PATH_BENEATH, &raw const rule, 0u32)
        };
        done(result).map(drop)
    }

    /// Puts the rules into force for this thread. It must not be able to get new privileges.
    pub(super) fn enforce(self) -> io::Result<()> {
        let rules = self.rules.as_raw_fd();
        // SAFETY: the call takes numbers and touches no memory of ours.
        let result = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules, 0u32) };
        done(result).map(drop)
    }
}

fn done(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_limits_less() {
        assert_eq!(accesses(1), 0x1fff);
        assert_eq!(accesses(2), 0x3fff);
        assert_eq!([accesses(3), accesses(4)], [0x7fff; 2]);
        assert_eq!([accesses(5), accesses(9)], [0xffff; 2]);
    }

    #[test]
    fn rules_are_as_long_as_the_kernel_expects() {
        assert_eq!(size_of::<RulesetAttributes>(), 24);
        assert_eq!(size_of::<PathBeneathAttributes>(), 12);
    }
}
