//! seccomp: system calls that a data mover never needs fail with `EPERM`.
//!
//! All other calls are permitted, so that a new version of the C library continues to work. The
//! filter is a program of the kernel's packet filter that runs before each system call; kernels
//! since 5.11 run it only for calls whose arguments it reads.

use super::access::FileAccess;
use libc::{c_long, sock_filter};
use std::io;

/// Number of the architecture in `linux/audit.h`; `None` if the filter is not known to work there.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// x86_64 only: numbers from here on are calls of programs with short pointers (x32), which the
/// lists do not contain.
const X32: u32 = 0x4000_0000;

// Numbers that are equal on all architectures, and that not all versions of libc have.
const SYS_PROCESS_MADVISE: c_long = 440;
const SYS_FCHMODAT2: c_long = 452;
const SYS_SETXATTRAT: c_long = 463;
const SYS_REMOVEXATTRAT: c_long = 466;
const SYS_OPEN_TREE_ATTR: c_long = 467;
const SYS_FILE_SETATTR: c_long = 469;

/// Calls that are always refused.
const REFUSED: &[c_long] = &[
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    SYS_PROCESS_MADVISE,
    libc::SYS_process_mrelease,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    // Other views of the file systems, and other ways to files than by their names.
    libc::SYS_chroot,
    libc::SYS_fanotify_init,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    SYS_OPEN_TREE_ATTR,
    libc::SYS_pivot_root,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // Another user.
    libc::SYS_setfsgid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setgroups,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setreuid,
    libc::SYS_setuid,
    // Parts of the kernel that had many faults.
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_personality,
    libc::SYS_request_key,
    libc::SYS_userfaultfd,
    // Administration of the host.
    libc::SYS_acct,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_vhangup,
];

/// Calls of one architecture that are always refused.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[c_long] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_kexec_file_load,
    libc::SYS_modify_ldt,
    libc::SYS_uselib,
];
/// Calls of one architecture that are always refused.
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[c_long] = &[294 /* kexec_file_load */];

/// Calls that change the metadata of a file. They are refused if the process can only read, because
/// Landlock does not limit them.
const OF_METADATA: &[c_long] = &[
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    SYS_FILE_SETATTR,
    libc::SYS_fremovexattr,
    libc::SYS_fsetxattr,
    libc::SYS_lremovexattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    SYS_REMOVEXATTRAT,
    libc::SYS_setxattr,
    SYS_SETXATTRAT,
    libc::SYS_utimensat,
];

/// Calls of one architecture that change the metadata of a file.
#[cfg(target_arch = "x86_64")]
const OF_METADATA_HERE: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_futimesat,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
];
/// Calls of one architecture that change the metadata of a file.
#[cfg(not(target_arch = "x86_64"))]
const OF_METADATA_HERE: &[c_long] = &[];

/// Families of sockets that can be created. `AF_UNIX` is not one of them: Landlock does not limit
/// connections to sockets with a path. `socketpair` needs no permission.
const SOCKET_FAMILIES: [libc::c_int; 2] = [libc::AF_INET, libc::AF_INET6];

/// Flags of `clone` that create a namespace.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWUTS;

/// Limits the system calls of this thread, which must not be able to get new privileges. Returns
/// false if the kernel has no seccomp filters, or the architecture is not supported.
///
/// # Errors
/// Of the system call.
pub(super) fn enforce(access: FileAccess) -> io::Result<bool> {
    let Some(architecture) = ARCHITECTURE else { return Ok(false) };
    let mut filter = filter(architecture, access);
    // Without this flag, kernels before 5.16 make the whole process slower to protect it from
    // code that it runs itself. Kernels before 4.17 do not know the flag.
    let result = install(&mut filter, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW).or_else(|error| {
        if is(&error, libc::EINVAL) { install(&mut filter, 0) } else { Err(error) }
    });
    match result {
        Ok(()) => Ok(true),
        Err(error) if is(&error, libc::EINVAL) || is(&error, libc::ENOSYS) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is(error: &io::Error, number: i32) -> bool {
    error.raw_os_error() == Some(number)
}

fn install(filter: &mut [sock_filter], flags: libc::c_ulong) -> io::Result<()> {
    let len = u16::try_from(filter.len()).expect("a few instructions per call");
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program has as many instructions as it says, and outlives the call, which copies
    // it.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// The lower half of the first argument: both architectures are little-endian.
const ARGUMENT_AT: u32 = 16;

const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;

/// Returns the program of the filter.
fn filter(architecture: u32, access: FileAccess) -> Vec<sock_filter> {
    // Calls with numbers of other architectures are made by no compiler, only by an attacker.
    let mut filter = vec![load(ARCHITECTURE_AT), if_equal(architecture, 1, 0), answer(KILL)];
    filter.push(load(NUMBER_AT));
    if cfg!(target_arch = "x86_64") {
        filter.extend([jump(libc::BPF_JGE, X32, 0, 1), answer(KILL)]);
    }
    for &call in refused(access) {
        filter.extend([if_equal(number(call), 0, 1), answer(error(libc::EPERM))]);
    }
    // The C library then uses `clone`, whose flags a filter can read.
    filter.extend([if_equal(number(libc::SYS_clone3), 0, 1), answer(error(libc::ENOSYS))]);
    let namespaces = [
        if_equal(number(libc::SYS_clone), 0, 4),
        load(ARGUMENT_AT),
        jump(libc::BPF_JSET, NEW_NAMESPACES.cast_unsigned(), 0, 1),
        answer(error(libc::EPERM)),
        answer(ALLOW),
    ];
    filter.extend(namespaces);
    let [ip, ip6] = SOCKET_FAMILIES.map(libc::c_int::cast_unsigned);
    let sockets = [
        if_equal(number(libc::SYS_socket), 0, 4),
        load(ARGUMENT_AT),
        if_equal(ip, 2, 0),
        if_equal(ip6, 1, 0),
        answer(error(libc::EPERM)),
    ];
    filter.extend(sockets);
    filter.push(answer(ALLOW));
    filter
}

/// Returns the calls that are refused whatever their arguments are.
fn refused(access: FileAccess) -> impl Iterator<Item = &'static c_long> {
    let (of_metadata, of_metadata_here) = match access {
        FileAccess::Read => (OF_METADATA, OF_METADATA_HERE),
        FileAccess::ReadAndWrite => (&[][..], &[][..]),
    };
    [REFUSED, REFUSED_HERE, of_metadata, of_metadata_here].into_iter().flatten()
}

fn number(call: c_long) -> u32 {
    u32::try_from(call).expect("numbers of calls are small")
}

fn error(number: libc::c_int) -> u32 {
    libc::SECCOMP_RET_ERRNO | number.cast_unsigned()
}

fn load(offset: u32) -> sock_filter {
    instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn answer(value: u32) -> sock_filter {
    instruction(libc::BPF_RET | libc::BPF_K, value, 0, 0)
}

/// Compares the loaded value, and skips as many instructions as the result requires.
fn jump(comparison: u32, value: u32, skip_if_true: u8, skip_if_false: u8) -> sock_filter {
    instruction(libc::BPF_JMP | comparison | libc::BPF_K, value, skip_if_true, skip_if_false)
}

fn if_equal(value: u32, skip_if_true: u8, skip_if_false: u8) -> sock_filter {
    jump(libc::BPF_JEQ, value, skip_if_true, skip_if_false)
}

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: u16::try_from(code).expect("codes have 16 bits"), jt, jf, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u32 = 7;
    const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

    /// Returns the answer of the filter to a call.
    fn answer_to(access: FileAccess, architecture: u32, call: u32, argument: u32) -> u32 {
        let filter = filter(HERE, access);
        let (mut at, mut loaded) = (0, 0);
        loop {
            let it = filter[at];
            let (class, comparison) = (u32::from(it.code) & 7, u32::from(it.code) & 0xf0);
            at += 1;
            let is_true = match (class, comparison) {
                (libc::BPF_RET, _) => return it.k,
                (libc::BPF_LD, _) => {
                    let values = [(0, call), (4, architecture), (16, argument)];
                    loaded = values.iter().find(|(offset, _)| *offset == it.k).unwrap().1;
                    continue;
                }
                (_, libc::BPF_JEQ) => loaded == it.k,
                (_, libc::BPF_JGE) => loaded >= it.k,
                (_, libc::BPF_JSET) => loaded & it.k != 0,
                other => panic!("an instruction that the filter has no use for: {other:?}"),
            };
            at += usize::from(if is_true { it.jt } else { it.jf });
        }
    }

    fn to(call: c_long, argument: libc::c_int) -> u32 {
        answer_to(FileAccess::ReadAndWrite, HERE, number(call), argument.cast_unsigned())
    }

    #[test]
    fn each_listed_call_is_refused_and_no_other() {
        let read_only = |call| answer_to(FileAccess::Read, HERE, call, 0);
        let read_write = |call| answer_to(FileAccess::ReadAndWrite, HERE, call, 0);
        let always: Vec<_> = REFUSED.iter().chain(REFUSED_HERE).map(|&call| number(call)).collect();
        let metadata: Vec<_> =
            OF_METADATA.iter().chain(OF_METADATA_HERE).map(|&call| number(call)).collect();
        for call in 0..600 {
            let by_argument = [libc::SYS_clone3, libc::SYS_socket].map(number).contains(&call);
            let is_always = always.contains(&call);
            let expected = |is_refused| if is_refused { EPERM } else { ALLOW };
            if !by_argument {
                assert_eq!(read_write(call), expected(is_always), "{call}");
                let is_refused = is_always || metadata.contains(&call);
                assert_eq!(read_only(call), expected(is_refused), "{call}");
            }
        }
    }

    #[test]
    fn threads_and_processes_are_created_without_namespaces() {
        let of_threads = libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        assert_eq!(to(libc::SYS_clone, of_threads), ALLOW);
        assert_eq!(to(libc::SYS_clone, libc::SIGCHLD), ALLOW);
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNET, libc::CLONE_NEWNS] {
            assert_eq!(to(libc::SYS_clone, flag | libc::SIGCHLD), EPERM);
        }
        assert_eq!(to(libc::SYS_clone3, 0), ENOSYS);
    }

    #[test]
    fn only_sockets_of_the_internet_are_created() {
        for family in 0..46 {
            let is_internet = family == libc::AF_INET || family == libc::AF_INET6;
            let expected = if is_internet { ALLOW } else { EPERM };
            assert_eq!(to(libc::SYS_socket, family), expected, "{family}");
        }
        assert_eq!(to(libc::SYS_socketpair, libc::AF_UNIX), ALLOW);
    }

    #[test]
    fn calls_of_other_architectures_end_the_process() {
        let getpid = number(libc::SYS_getpid);
        let answer = |architecture, call| answer_to(FileAccess::Read, architecture, call, 0);
        assert_eq!(answer(HERE, getpid), ALLOW);
        assert_eq!(answer(HERE + 1, getpid), KILL);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(answer(HERE, X32 | getpid), KILL);
    }
}
