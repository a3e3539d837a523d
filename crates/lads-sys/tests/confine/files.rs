//! Tests of the files that a confined process can use.

use crate::{Place, is_not_permitted, is_refused};
use lads_sys::{Confinement, FileAccess, confine};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, XattrFlags, linkat, mknodat, openat, setxattr,
};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, lchown, symlink};
use std::path::Path;
use std::time::UNIX_EPOCH;

fn append(path: impl AsRef<Path>) -> io::Result<()> {
    File::options().append(true).open(path)?.write_all(b"more")
}

pub(crate) fn reads(place: &Place) {
    place.confine(FileAccess::Read);
    assert_eq!(fs::read(place.inside.join("file")).unwrap(), b"inside");
    assert_eq!(fs::read(place.inside.join("deep/../deep/file")).unwrap(), b"deep");
    assert_eq!(fs::read_dir(&place.inside).unwrap().count(), 4);
    is_refused(fs::read(place.outside.join("file")));
    is_refused(fs::read_dir(&place.outside).map(drop));
    is_refused(fs::read(place.inside.join("../out/file")));
    is_refused(fs::read(place.inside.join("link")));
    is_refused(fs::read(place.inside.join("way/file")));
    is_refused(fs::read_dir(place.inside.join("..")).map(drop));
    is_refused(fs::read("/etc/passwd"));
    is_refused(fs::read(format!("/proc/{}/status", rustix::process::getppid().unwrap())));
    is_refused(fs::read_dir("/").map(drop));
}

pub(crate) fn changes_nothing(place: &Place) {
    place.confine(FileAccess::Read);
    let at = |name: &str| place.inside.join(name);
    is_refused(append(at("file")));
    is_refused(fs::write(at("new"), ""));
    is_refused(File::options().read(true).custom_flags(libc::O_TRUNC).open(at("file")));
    is_refused(fs::create_dir(at("new")));
    is_refused(fs::remove_file(at("file")));
    is_refused(fs::remove_dir(at("deep")));
    is_refused(fs::rename(at("file"), at("new")));
    is_refused(fs::hard_link(at("file"), at("new")));
    is_refused(symlink("file", at("new")));
    is_refused(truncate(&at("file")));
    changes_no_metadata(&at("file"));
    changes_no_metadata(&place.outside.join("file"));
    assert_eq!(fs::read(at("file")).unwrap(), b"inside");
}

/// Landlock does not limit these calls.
fn changes_no_metadata(file: &Path) {
    is_not_permitted(fs::set_permissions(file, fs::Permissions::from_mode(0o640)));
    is_not_permitted(lchown(file, None, None));
    is_not_permitted(chown(file, None, None));
    let attribute = setxattr(file, "user.a", b"b", XattrFlags::empty());
    is_not_permitted(attribute.map_err(io::Error::from));
    is_not_permitted(File::open("/dev/null").unwrap().set_modified(UNIX_EPOCH));
}

pub(crate) fn changes(place: &Place) {
    place.confine(FileAccess::ReadAndWrite);
    let at = |name: &str| place.inside.join(name);
    append(at("file")).unwrap();
    assert_eq!(fs::read(at("file")).unwrap(), b"insidemore");
    fs::write(at("new"), "text").unwrap();
    fs::rename(at("new"), at("deep/new")).unwrap();
    fs::hard_link(at("deep/new"), at("second")).unwrap();
    File::options().write(true).open(at("second")).unwrap().set_len(2).unwrap();
    assert_eq!(fs::read(at("deep/new")).unwrap(), b"te");
    fs::write(at("second"), "x").unwrap();
    fs::create_dir(at("directory")).unwrap();
    symlink("file", at("directory/link")).unwrap();
    mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::remove_file(at("directory/link")).unwrap();
    fs::remove_dir(at("directory")).unwrap();
    fs::set_permissions(at("file"), fs::Permissions::from_mode(0o600)).unwrap();
    File::open(at("file")).unwrap().set_modified(UNIX_EPOCH).unwrap();
    match setxattr(at("file"), "user.a", b"b", XattrFlags::empty()) {
        Ok(()) | Err(Errno::OPNOTSUPP) => (),
        Err(errno) => panic!("{errno}"),
    }
    let unnamed = openat(CWD, &place.inside, OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    if let Ok(file) = unnamed {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, path, CWD, at("named"), AtFlags::SYMLINK_FOLLOW).unwrap();
    }
    changes_nothing_outside(place);
}

fn changes_nothing_outside(place: &Place) {
    let at = |name: &str| place.inside.join(name);
    let outside = |name: &str| place.outside.join(name);
    is_refused(append(outside("file")));
    is_refused(append(at("link")));
    is_refused(append(at("way/file")));
    is_refused(fs::write(outside("new"), ""));
    is_refused(fs::create_dir(outside("new")));
    is_refused(symlink("file", outside("new")));
    is_refused(fs::remove_file(outside("file")));
    is_refused(truncate(&outside("file")));
    is_refused(fs::rename(at("file"), outside("new")));
    is_refused(fs::rename(outside("file"), at("new")));
    is_refused(fs::hard_link(at("file"), outside("new")));
}

fn truncate(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is a string that ends with a zero and outlives the call.
    let result = unsafe { libc::truncate(path.as_ptr(), 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn reads_what_is_permitted(place: &Place) {
    let (permitted, missing) = (place.outside.join("file"), place.outside.join("missing"));
    fs::write(place.outside.join("other"), "other").unwrap();
    let readable = &[permitted.as_path(), missing.as_path()];
    let access = FileAccess::ReadAndWrite;
    confine(&Confinement { root: &place.inside, access, readable }).unwrap();
    assert_eq!(fs::read(&permitted).unwrap(), b"outside");
    is_refused(append(&permitted));
    is_refused(fs::read(place.outside.join("other")));
}

pub(crate) fn writes_everywhere(place: &Place) {
    let access = FileAccess::ReadAndWrite;
    let in_force = confine(&Confinement { root: Path::new("/"), access, readable: &[] }).unwrap();
    assert!(!in_force.are_files_limited && in_force.has_seccomp, "{in_force:?}");
    append(place.outside.join("file")).unwrap();
    fs::rename(place.outside.join("file"), place.inside.join("new")).unwrap();
    assert_eq!(fs::read(place.inside.join("new")).unwrap(), b"outsidemore");
    fs::read("/etc/passwd").unwrap();
}

pub(crate) fn reads_everywhere(place: &Place) {
    let access = FileAccess::Read;
    // Another name of the whole host.
    let root = Path::new("/proc/..");
    let in_force = confine(&Confinement { root, access, readable: &[] }).unwrap();
    assert!(in_force.are_files_limited, "{in_force:?}");
    fs::read("/etc/passwd").unwrap();
    is_refused(append(place.inside.join("file")));
    is_refused(fs::remove_file(place.outside.join("file")));
}

pub(crate) fn reads_own_files(place: &Place) {
    let devices = fs::read_dir("/sys/dev/block").into_iter().flatten().flatten();
    let devices: Vec<_> = devices.map(|it| it.path().canonicalize().unwrap()).collect();
    place.confine(FileAccess::ReadAndWrite);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_else(|it| panic!("{path}: {it}"));
    assert!(read("/proc/self/status").contains("Umask:"));
    let own = format!("/proc/{}/stat", std::process::id());
    let files = [
        own.as_str(),
        "/proc/self/mountinfo",
        "/proc/stat",
        "/proc/sys/kernel/random/boot_id",
        "/proc/sys/net/ipv4/tcp_wmem",
        "/sys/devices/system/cpu/online",
    ];
    for path in files {
        assert!(!read(path).is_empty(), "{path}");
    }
    let task = fs::read_dir("/proc/self/task").unwrap().next().unwrap().unwrap();
    read(task.path().join("schedstat").to_str().unwrap());
    File::options().read(true).write(true).open("/dev/null").unwrap();
    for device in devices {
        let is_partition = device.join("partition").exists();
        let disk = if is_partition { device.parent().unwrap() } else { &device };
        read(disk.join("queue/rotational").to_str().unwrap());
        fs::read_dir(disk.join("slaves")).unwrap();
    }
    is_refused(fs::read("/proc/version"));
    is_refused(fs::read("/proc/sys/kernel/ostype"));
    is_refused(fs::read("/sys/kernel/mm/transparent_hugepage/enabled"));
}

pub(crate) fn uses_open_files(place: &Place) {
    let path = place.outside.join("file");
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    place.confine(FileAccess::Read);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().len()), ("outside", 11));
    // Control of a file, as LADS does it to find the extents of a file: only of devices is refused.
    assert_ne!(
        lads_sys::first_extent(&file).err().map(|it| it.kind()),
        Some(io::ErrorKind::PermissionDenied)
    );
    // It is not opened again.
    is_refused(File::open(format!("/proc/self/fd/{}", file.as_raw_fd())));
}

pub(crate) fn refuses_missing_tree(place: &Place) {
    let root = place.inside.join("missing");
    let access = FileAccess::Read;
    let error = confine(&Confinement { root: &root, access, readable: &[] }).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains(root.to_str().unwrap()), "{error}");
}
