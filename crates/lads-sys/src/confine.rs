//! Confines this process to one directory tree, before it reads anything that a peer sent.
//!
//! A process that serves a peer needs few things: the files below one directory, TCP connections,
//! and some facts about the host. [`confine`] gives up everything else, so that a peer that takes
//! over the process cannot reach other files, other processes or the kernel's rarely used calls:
//!
//! 1. privileges: no capabilities, no way to get any, no dumps of memory (`privileges.rs`);
//! 2. files, by Landlock: only the tree, and the files that LADS itself needs (`landlock.rs`,
//!    `own_files.rs`);
//! 3. system calls, by seccomp: those that a data mover never needs fail with `EPERM`
//!    (`seccomp.rs`).
//!
//! Open files stay usable. The network is not limited.
//!
//! Landlock does not limit calls that change only metadata of a named file (`chmod`, `chown`,
//! `utimensat`, `setxattr`), nor `stat` and `readlink`. With [`FileAccess::Read`], seccomp refuses
//! those that change something. With [`FileAccess::ReadAndWrite`], a process that is taken over can
//! still change the metadata of its user's own files outside of the tree.

mod access;
mod landlock;
mod own_files;
mod privileges;
mod seccomp;

pub use access::FileAccess;

use landlock::Ruleset;
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// The files that a confined process can use.
#[derive(Clone, Copy, Debug)]
pub struct Confinement<'a> {
    /// Directory whose tree the process can use. A symbolic link is followed once, at the start.
    pub root: &'a Path,
    /// Access to the files of this tree.
    pub access: FileAccess,
    /// Other files and directories that the process can read, such as a configuration file. Files
    /// that do not exist are ignored.
    pub readable: &'a [&'a Path],
}

/// Parts of a confinement that depend on the kernel and the user, as they are in force. The parts
/// that [`confine`] lists and that have no field here are always in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InForce {
    /// Version of the kernel's Landlock interface; `None` if the kernel has no Landlock. Before
    /// version 2, files cannot be moved or linked between directories. Before version 3, files
    /// outside of the tree can be truncated. From version 6, the process cannot send signals to
    /// unconfined processes or connect to their abstract sockets.
    pub landlock_abi: Option<u32>,
    /// True if Landlock limits the process to the tree. False if the tree is `/` and the process
    /// can read and write: nothing is left to limit.
    pub are_files_limited: bool,
    /// True if the kernel refuses system calls that a data mover never needs. False if the kernel
    /// has no seccomp filters, or this architecture has no list of calls.
    pub has_seccomp: bool,
    /// True if the bounding set of capabilities is empty. Only a process that has the capability
    /// `CAP_SETPCAP` can empty it. The other sets are always empty, and stay so.
    pub is_bounding_set_empty: bool,
}

impl fmt::Display for InForce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.are_files_limited, self.landlock_abi) {
            (true, Some(abi)) => write!(f, "files limited by Landlock (version {abi})")?,
            _ => write!(f, "files not limited")?,
        }
        write!(f, ", system calls {}", if self.has_seccomp { "limited" } else { "not limited" })
    }
}

/// Confines this process and all threads and processes that it starts later, irrevocably.
///
/// From now on, the process
/// - has no capabilities, even if it belongs to root; a program that it started could get none;
/// - leaves no core dump, and unprivileged processes of the same user cannot read its memory;
/// - can read, or read and write, only the tree, and read the few files that LADS needs;
/// - executes no program, so that `getent` finds no names of users or hosts;
/// - creates sockets of TCP and UDP only, and pairs of sockets;
/// - cannot debug or signal unconfined processes, mount, use namespaces, change its user, or use
///   most interfaces for administration.
///
/// The umask, resource limits other than that for core dumps, and open files stay the same. A few
/// descriptors that permit no access stay open until the process ends.
///
/// A process of root loses the right to read and write files of other users, too.
///
/// A process that this one forks later is confined, too, but cannot read its own `/proc/self`: call
/// this function in the process that does the work.
///
/// # Errors
/// If this process has more than one thread or cannot count its threads, if the tree cannot be
/// opened, if the kernel has no Landlock and files have to be limited, and those of the system
/// calls. The process may then be confined in part, and should end.
pub fn confine(confinement: &Confinement<'_>) -> io::Result<InForce> {
    check_that_no_other_thread_runs()?;
    let is_bounding_set_empty = privileges::give_up()?;
    let (landlock_abi, are_files_limited) = limit_files(confinement)?;
    let has_seccomp = seccomp::enforce(confinement.access)
        .map_err(|error| failed("cannot limit system calls", &error))?;
    Ok(InForce { landlock_abi, are_files_limited, has_seccomp, is_bounding_set_empty })
}

/// Landlock, seccomp and the capabilities are set per thread.
fn check_that_no_other_thread_runs() -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task")
        .map_err(|error| failed("cannot count the threads of this process", &error))?;
    match threads.count() {
        1 => Ok(()),
        count => {
            let text = format!("cannot confine a process with {count} threads");
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// Limits the files that this process can use. Returns the version of Landlock, and whether files
/// are limited.
fn limit_files(confinement: &Confinement<'_>) -> io::Result<(Option<u32>, bool)> {
    let Confinement { root, access, readable } = *confinement;
    let of_root = |error: io::Error| failed(&format!("cannot open {}", root.display()), &error);
    let is_everything = root.canonicalize().map_err(of_root)? == Path::new("/");
    let are_limited = !(is_everything && access == FileAccess::ReadAndWrite);
    let Some(abi) = landlock::abi() else {
        if are_limited {
            return Err(no_landlock(root));
        }
        return Ok((None, false));
    };
    let unusable = |error: io::Error| failed("cannot use Landlock", &error);
    if !are_limited {
        let ruleset = Ruleset::of_scopes(abi).map_err(unusable)?;
        ruleset.map_or(Ok(()), Ruleset::enforce).map_err(unusable)?;
        return Ok((Some(abi), false));
    }
    let ruleset = Ruleset::of_files(abi).map_err(unusable)?;
    ruleset.permit(open(root).map_err(of_root)?, access).map_err(unusable)?;
    permit_reading(&ruleset, readable)?;
    own_files::permit(&ruleset).map_err(unusable)?;
    ruleset.enforce().map_err(unusable)?;
    Ok((Some(abi), true))
}

fn permit_reading(ruleset: &Ruleset, paths: &[&Path]) -> io::Result<()> {
    for path in paths {
        match open(path) {
            Ok(file) => ruleset.permit(&file, FileAccess::Read)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (),
            Err(error) => return Err(failed(&format!("cannot open {}", path.display()), &error)),
        }
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn no_landlock(root: &Path) -> io::Error {
    let text = format!(
        "cannot limit this process to {}: this kernel has no Landlock (Linux 5.13 or newer, with \
         \"landlock\" in /sys/kernel/security/lsm)",
        root.display()
    );
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn failed(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_several_threads_is_not_confined() {
        // The test runner has a thread per test.
        let waiting = std::thread::spawn(std::thread::park);
        let root = Path::new("/");
        let confinement = Confinement { root, access: FileAccess::ReadAndWrite, readable: &[] };
        let error = confine(&confinement).unwrap_err();
        waiting.thread().unpark();
        assert!(error.to_string().contains("threads"), "{error}");
        assert!(!rustix::thread::no_new_privs().unwrap());
    }

    #[test]
    fn a_kernel_without_landlock_is_an_error_that_names_the_tree() {
        let error = no_landlock(Path::new("/scratch"));
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(error.to_string().starts_with("cannot limit this process to /scratch: "));
    }

    #[test]
    fn a_line_for_logs_names_what_is_limited() {
        let all = InForce {
            landlock_abi: Some(6),
            are_files_limited: true,
            has_seccomp: true,
            is_bounding_set_empty: true,
        };
        let line = "files limited by Landlock (version 6), system calls limited";
        assert_eq!(all.to_string(), line);
        let few = InForce { are_files_limited: false, has_seccomp: false, ..all };
        assert_eq!(few.to_string(), "files not limited, system calls not limited");
    }
}
