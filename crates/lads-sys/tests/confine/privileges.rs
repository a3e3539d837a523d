//! Tests of the privileges of a confined process, and of when it can be confined.

use crate::Place;
use lads_sys::{Confinement, FileAccess, confine};
use rustix::fs::Mode;
use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit, umask};
use rustix::thread::{
    CapabilitySet, capabilities, configure_capability_in_ambient_set, set_capabilities,
};
use std::fs;

/// Returns a field of this thread's status.
fn status(field: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

/// Gives this process a capability that programs would inherit, if it has one.
fn raise_ambient() {
    let mut sets = capabilities(None).unwrap();
    if sets.permitted.contains(CapabilitySet::CHOWN) {
        sets.inheritable |= CapabilitySet::CHOWN;
        set_capabilities(None, sets).unwrap();
        configure_capability_in_ambient_set(CapabilitySet::CHOWN, true).unwrap();
    }
}

pub(crate) fn has_no_privileges(place: &Place) {
    raise_ambient();
    let is_root = rustix::process::geteuid().is_root();
    let in_force = place.confine(FileAccess::Read);
    for field in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(field), "0000000000000000", "{field}");
    }
    // Only root can empty this one.
    assert_eq!(status("CapBnd") == "0000000000000000", in_force.is_bounding_set_empty);
    assert!(!is_root || in_force.is_bounding_set_empty);
    assert_eq!((status("NoNewPrivs"), status("Seccomp")), ("1".to_owned(), "2".to_owned()));
    let limit = getrlimit(Resource::Core);
    assert_eq!((limit.current, limit.maximum), (Some(0), Some(0)));
    assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
}

pub(crate) fn keeps_umask(place: &Place) {
    umask(Mode::from_raw_mode(0o027));
    place.confine(FileAccess::ReadAndWrite);
    assert_eq!(umask(Mode::empty()), Mode::from_raw_mode(0o027));
}

pub(crate) fn refuses_threads(place: &Place) {
    let waiting = std::thread::spawn(std::thread::park);
    let (root, access) = (place.inside.as_path(), FileAccess::Read);
    let error = confine(&Confinement { root, access, readable: &[] }).unwrap_err();
    assert_eq!(error.to_string(), "cannot confine a process with 2 threads");
    assert_eq!(status("NoNewPrivs"), "0");
    waiting.thread().unpark();
    waiting.join().unwrap();
    // The thread leaves the list a little later than it is joined.
    while fs::read_dir("/proc/self/task").unwrap().count() > 1 {
        std::thread::yield_now();
    }
    place.confine(FileAccess::Read);
}
