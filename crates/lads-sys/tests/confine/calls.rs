//! Tests of the system calls of a confined process.

use crate::{Place, is_not_permitted};
use lads_sys::FileAccess;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket, socketpair};
use rustix::process::{Signal, getpid, getppid, kill_process, test_kill_process};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

/// Makes a system call with arguments that are no addresses of this process.
fn call(number: libc::c_long, arguments: [i64; 5]) -> io::Result<i64> {
    let [a, b, c, d, e] = arguments;
    // SAFETY: no argument is an address of memory of ours: the kernel reads and writes none.
    let result = unsafe { libc::syscall(number, a, b, c, d, e) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn executes_nothing(place: &Place) {
    place.confine(FileAccess::ReadAndWrite);
    is_not_permitted(Command::new("/bin/true").status());
    is_not_permitted(Command::new("no-program-has-this-name").status());
    is_not_permitted(Command::new("/proc/self/exe").status());
    is_not_permitted(call(libc::SYS_execve, [0; 5]));
    is_not_permitted(call(libc::SYS_execveat, [-1, 0, 0, 0, 0]));
}

/// Without the filter, none of these calls fails with `EPERM`, whatever capabilities are missing.
pub(crate) fn makes_no_odd_calls(place: &Place) {
    place.confine(FileAccess::ReadAndWrite);
    let own = i64::from(getpid().as_raw_pid());
    let calls: &[(libc::c_long, [i64; 5])] = &[
        (libc::SYS_ptrace, [libc::PTRACE_CONT.into(), 0, 0, 0, 0]),
        (libc::SYS_process_vm_readv, [own, 0, 0, 0, 0]),
        (libc::SYS_process_vm_writev, [own, 0, 0, 0, 0]),
        (libc::SYS_kcmp, [own, own, 0, 0, 0]),
        (libc::SYS_pidfd_getfd, [-1, 0, 0, 0, 0]),
        (libc::SYS_perf_event_open, [0; 5]),
        (libc::SYS_unshare, [0; 5]),
        (libc::SYS_setns, [-1, 0, 0, 0, 0]),
        (libc::SYS_io_uring_setup, [0; 5]),
        (libc::SYS_add_key, [0; 5]),
        (libc::SYS_request_key, [0; 5]),
        (libc::SYS_keyctl, [-1, 0, 0, 0, 0]),
        (libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0]),
        (libc::SYS_setuid, [rustix::process::getuid().as_raw().into(), 0, 0, 0, 0]),
        (libc::SYS_setresgid, [-1, -1, -1, 0, 0]),
        (libc::SYS_adjtimex, [0; 5]),
        (libc::SYS_chroot, [0; 5]),
        (libc::SYS_userfaultfd, [1, 0, 0, 0, 0]),
    ];
    for &(number, arguments) in calls {
        let result = call(number, arguments);
        let error = result.as_ref().err().and_then(io::Error::raw_os_error);
        assert_eq!(error, Some(libc::EPERM), "call {number}: {result:?}");
    }
    // These need a capability, too.
    let privileged = [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_fsopen,
        libc::SYS_pivot_root,
        libc::SYS_bpf,
        libc::SYS_open_by_handle_at,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_init_module,
        libc::SYS_kexec_load,
        libc::SYS_acct,
        libc::SYS_sethostname,
    ];
    for number in privileged {
        is_not_permitted(call(number, [-1, 0, 0, 0, 0]));
    }
}

pub(crate) fn creates_no_namespaces(place: &Place) {
    place.confine(FileAccess::ReadAndWrite);
    // Without the filter, these flags contradict each other.
    let flags = i64::from(libc::CLONE_NEWUSER | libc::CLONE_FS);
    is_not_permitted(call(libc::SYS_clone, [flags, 0, 0, 0, 0]));
    let error = call(libc::SYS_clone3, [0; 5]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSYS));
    // Processes without namespaces of their own are created, and confined.
    match lads_sys::fork().unwrap() {
        lads_sys::Forked::Child => {
            let is_confined = std::fs::read("/etc/passwd").is_err();
            std::process::exit(i32::from(!is_confined));
        }
        lads_sys::Forked::Parent(child) => {
            let options = rustix::process::WaitOptions::empty();
            let (_, status) = rustix::process::waitpid(Some(child), options).unwrap().unwrap();
            assert_eq!(status.exit_status(), Some(0));
        }
    }
}

pub(crate) fn starts_threads(place: &Place) {
    place.confine(FileAccess::Read);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sending = std::thread::spawn(move || {
        TcpStream::connect(address).unwrap().write_all(b"text").unwrap();
        std::fs::read("/etc/passwd")
    });
    let mut text = String::new();
    listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
    crate::is_refused(sending.join().unwrap());
    assert_eq!(text, "text");
}

pub(crate) fn opens_no_other_sockets(place: &Place) {
    place.confine(FileAccess::Read);
    let open = |family, kind| socket(family, kind, None).map_err(io::Error::from);
    is_not_permitted(open(AddressFamily::NETLINK, SocketType::RAW));
    is_not_permitted(open(AddressFamily::PACKET, SocketType::RAW));
    is_not_permitted(open(AddressFamily::UNIX, SocketType::STREAM));
    is_not_permitted(open(AddressFamily::VSOCK, SocketType::STREAM));
    is_not_permitted(open(AddressFamily::from_raw(38), SocketType::SEQPACKET));
    open(AddressFamily::INET, SocketType::DGRAM).unwrap();
    socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
}

pub(crate) fn signals_nobody(place: &Place) {
    let parent = getppid().unwrap();
    let user = rustix::process::geteuid();
    if test_kill_process(parent).is_err() {
        assert!(!user.is_root());
    }
    let in_force = place.confine(FileAccess::Read);
    test_kill_process(getpid()).unwrap();
    if in_force.landlock_abi.unwrap() >= 6 {
        is_not_permitted(kill_process(parent, Signal::CONT).map_err(io::Error::from));
    }
}

/// Calls `getpid` as a program of 32 bits does.
#[cfg(target_arch = "x86_64")]
pub(crate) fn calls_32_bits(place: &Place) {
    place.confine(FileAccess::Read);
    let mut result = 20u64;
    // SAFETY: this call takes no arguments and changes only the register with its result.
    unsafe { std::arch::asm!("int 0x80", inout("rax") result) };
    panic!("the call returned {result}");
}

#[cfg(target_arch = "x86_64")]
pub(crate) fn calls_x32(place: &Place) {
    place.confine(FileAccess::Read);
    let result = call(0x4000_0000 | libc::SYS_getpid, [0; 5]);
    panic!("the call returned {result:?}");
}
