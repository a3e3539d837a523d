//! Tests of the confinement of a process. It cannot be undone, so each test runs this program again
//! as a process of its own.
#![allow(unsafe_code, reason = "some calls have no safe form, which is why they are refused")]
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod calls;
mod files;
mod privileges;

use lads_sys::{Confinement, FileAccess, InForce, confine};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Gid, Uid};
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// With this variable, this program does one test in this process.
const TEST: &str = "LADS_CONFINED_TEST";
/// The user that the process belongs to; as it is if not set.
const USER: &str = "LADS_CONFINED_USER";
/// The directory that the test uses.
const PLACE: &str = "LADS_CONFINED_PLACE";
/// Exit code of a process that the kernel cannot confine.
const NO_LANDLOCK: i32 = 77;
/// A user without any files.
const NOBODY: u32 = 65534;

/// A test in a process of its own, and the signal that ends this process, if one does.
struct Confined {
    name: &'static str,
    run: fn(&Place),
    signals: &'static [i32],
}

const fn test(name: &'static str, run: fn(&Place)) -> Confined {
    Confined { name, run, signals: &[] }
}

const TESTS: &[Confined] = &[
    test("files_of_the_tree_are_read_and_no_others", files::reads),
    test("a_tree_to_read_is_not_changed", files::changes_nothing),
    test("a_tree_to_write_is_changed_and_nothing_else", files::changes),
    test("other_files_are_read_if_permitted", files::reads_what_is_permitted),
    test("the_whole_host_is_written_if_it_is_the_tree", files::writes_everywhere),
    test("the_whole_host_is_only_read_if_it_is_a_tree_to_read", files::reads_everywhere),
    test("files_of_the_host_that_lads_needs_are_read", files::reads_own_files),
    test("open_files_stay_usable", files::uses_open_files),
    test("no_program_is_executed", calls::executes_nothing),
    test("calls_that_a_data_mover_does_not_need_are_refused", calls::makes_no_odd_calls),
    test("processes_and_namespaces_are_not_created", calls::creates_no_namespaces),
    test("threads_start_and_use_tcp", calls::starts_threads),
    test("other_sockets_are_refused", calls::opens_no_other_sockets),
    test("processes_outside_get_no_signals", calls::signals_nobody),
    test("no_privileges_remain", privileges::has_no_privileges),
    test("the_umask_is_kept", privileges::keeps_umask),
    test("a_second_thread_is_an_error", privileges::refuses_threads),
    test("a_tree_that_does_not_exist_is_an_error", files::refuses_missing_tree),
    #[cfg(target_arch = "x86_64")]
    Confined {
        name: "calls_of_32_bits_end_the_process",
        run: calls::calls_32_bits,
        // Kernels without such calls send SIGSEGV.
        signals: &[libc::SIGSYS, libc::SIGSEGV],
    },
    #[cfg(target_arch = "x86_64")]
    Confined {
        name: "calls_with_short_pointers_end_the_process",
        run: calls::calls_x32,
        signals: &[libc::SIGSYS],
    },
];

fn main() -> ExitCode {
    if let Some(name) = std::env::var_os(TEST) {
        let test = TESTS.iter().find(|test| name == test.name).unwrap();
        run_here(test);
        return ExitCode::SUCCESS;
    }
    let mut trials = Vec::new();
    for test in TESTS {
        trials.push(Trial::test(test.name, || in_a_process(test, None)));
        let as_nobody = format!("{}_as_another_user", test.name);
        trials.push(Trial::test(as_nobody, || in_a_process(test, Some(NOBODY))));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a test in a process that belongs to a user.
fn in_a_process(test: &Confined, user: Option<u32>) -> Result<(), Failed> {
    if user.is_some() && !lads_tried::is_root() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    let place = tempfile::tempdir()?;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755))?;
    command.env(TEST, test.name).env(PLACE, place.path()).env_remove("RUST_BACKTRACE");
    if let Some(user) = user {
        command.env(USER, user.to_string());
        std::os::unix::fs::chown(place.path(), Some(user), Some(user))?;
    }
    let output = command.output()?;
    let is_expected = match output.status.signal() {
        Some(signal) => test.signals.contains(&signal),
        None => output.status.success() && test.signals.is_empty(),
    };
    if is_expected {
        return Ok(());
    }
    if output.status.code() == Some(NO_LANDLOCK) {
        lads_tried::not_tried("the kernel has no Landlock");
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{printed}", output.status).into())
}

/// Runs a test in this process.
fn run_here(test: &Confined) {
    if let Some(user) = std::env::var_os(USER) {
        let id = user.to_str().unwrap().parse().unwrap();
        rustix::thread::set_thread_groups(&[]).unwrap();
        rustix::thread::set_thread_gid(Gid::from_raw(id)).unwrap();
        rustix::thread::set_thread_uid(Uid::from_raw(id)).unwrap();
    }
    (test.run)(&Place::new(Path::new(&std::env::var_os(PLACE).unwrap())));
}

/// A directory `in` that is the tree, and another one next to it.
struct Place {
    inside: PathBuf,
    outside: PathBuf,
}

impl Place {
    fn new(directory: &Path) -> Self {
        let (inside, outside) = (directory.join("in"), directory.join("out"));
        fs::create_dir_all(inside.join("deep")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(inside.join("file"), "inside").unwrap();
        fs::write(inside.join("deep/file"), "deep").unwrap();
        fs::write(outside.join("file"), "outside").unwrap();
        symlink("../out/file", inside.join("link")).unwrap();
        symlink("../out", inside.join("way")).unwrap();
        Self { inside, outside }
    }

    fn confine(&self, access: FileAccess) -> InForce {
        let result = confine(&Confinement { root: &self.inside, access, readable: &[] });
        if result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::Unsupported) {
            std::process::exit(NO_LANDLOCK);
        }
        let in_force = result.unwrap();
        assert!(in_force.are_files_limited && in_force.has_seccomp, "{in_force:?}");
        in_force
    }
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EACCES));
}

/// Refused by the filter of system calls, not by the rules for files.
#[track_caller]
fn is_not_permitted<T: std::fmt::Debug>(result: io::Result<T>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EPERM));
}
